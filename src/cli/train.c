/* The commands that read a configuration of a run: train, sft and eval, then plan. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ares/train.h"

/* Runs a checked configuration; output: where eval writes its answers, or NULL. */
typedef int config_run(ares_config *cfg, const ares_train_config *c, ares_world *world,
                       const char *output);
/* What train, eval and sft differ in. */
typedef struct config_verb {
    const char *name, *usage, *about, *example;
    bool reinforcement;  /* a run holds a reference and a critic where the options ask for them */
    bool writes_answers; /* --output */
    config_run *run;
    /* options on top of training's; NULL: none */
    void (*declare)(ares_config *cfg, ares_train_config *c);
    int (*check)(ares_config *cfg, const ares_train_config *c, int world);
    int (*check_files)(ares_config *cfg, const ares_train_config *c); /* with --check */
    const char *preset; /* an override that comes first; NULL: none */
} config_verb;

/* The options of the verb itself; every other word is the configuration's. */
typedef struct own_options {
    bool check, print, force, algorithms;
    bool no_programs;        /* --check starts none of the user's */
    const char *help_config; /* a word, "" for all; NULL: not asked for */
    const char *output;
    int64_t ranks, restarts; /* main takes them before the verb reads its words */
    const char *const *words;
    int n_words;
} own_options;

/* train and sft write no answers. */
static int run_train(ares_config *cfg, const ares_train_config *c, ares_world *world,
                     const char *output)
{
    (void)output;
    return ares_train_run(cfg, c, world);
}

static int run_sft(ares_config *cfg, const ares_train_config *c, ares_world *world,
                   const char *output)
{
    (void)output;
    return ares_sft_run(cfg, c, world);
}

/*
 * Reports all faults of the configuration, and what this machine lacks for it. With --print-config
 * the machine is not looked at: the run may be meant for another one.
 */
static int check(const config_verb *v, ares_config *cfg, const ares_train_config *c,
                 const own_options *o, ares_world *world)
{
    ares_str needs = { 0 };
    int ranks = ares_world_size(world), local = ares_world_local_size(world);
    if (ranks == 1 && (o->check || o->print)) { /* not launched: as many as the files name */
        ranks = ares_train_named_ranks(c);
        local = ARES_MAX(
            1, ranks / (c->published.nnodes == ARES_NULL_I64 ? 1 : (int)c->published.nnodes));
    }
    if (!o->print) ares_train_memory_check(cfg, c, ranks, local, v->reinforcement, &needs);
    if (!o->print && ares_world_rank(world) == 0) ares_train_check_trackers(cfg, c);
    int rc = v->check(cfg, c, ranks);
    if (rc == ARES_OK && !o->print)
        rc = ares_train_plan_check(cfg, c, ranks, local, v->reinforcement, !o->check, &needs);
    /* then what costs time: the files that the configuration names, and the user's programs */
    if (rc == ARES_OK && o->check && !o->print) rc = v->check_files(cfg, c);
    if (rc == ARES_OK && o->check && !o->print && !o->no_programs && v->reinforcement &&
        ares_world_rank(world) == 0 && (rc = ares_train_try_programs(cfg, c)) != ARES_OK)
        ares_fail_in(rc, "--check (--no-programs starts none)");
    if (rc == ARES_OK && o->check && !o->print &&
        printf("the configuration is good; %s\n", needs.data) < 0)
        rc = ARES_EIO;
    ares_str_fini(&needs);
    return rc;
}

/* Fails on a word that resembles an option of this verb and means nothing to the configuration. */
static int check_typos(const cli_command *command, ares_config *cfg, const own_options *o)
{
    for (int i = 0; i < o->n_words; i++)
        if (strncmp(o->words[i], "--", 2) == 0 && !ares_config_knows(cfg, o->words[i]))
            ARES_TRY(cli_check_typo(command, o->words[i]));
    return ARES_OK;
}

/* The configuration with no option set; it fills c. */
static ares_config *declared(const config_verb *v, ares_train_config *c)
{
    ares_config *cfg = ares_config_new();
    memset(c, 0, sizeof *c);
    ares_train_config_declare(cfg, c);
    if (v->declare) v->declare(cfg, c);
    return cfg;
}

/* Reads the preset, the files and the words in this order; false: some could not be read. */
static bool read_configuration(const config_verb *v, ares_config *cfg, const own_options *o)
{
    if (v->preset) ares_config_override(cfg, v->preset);
    ares_config_read_args(cfg, o->n_words, o->words);
    /* last: it wins over the files */
    if (o->force) ares_config_override(cfg, "trainer.force=true");
    bool good = ares_config_fault_count(cfg) == 0;
    ares_config_resolve(cfg);
    return good;
}

/* Reads and checks the configuration, then prints it or runs it. */
static int configured(const config_verb *v, ares_config *cfg, ares_train_config *c,
                      const own_options *o, ares_world *world)
{
    /* relations between options say nothing new while a file that sets them cannot be read */
    bool unread = !read_configuration(v, cfg, o);
    if (unread) return ares_config_finish(cfg);
    /* before the first message between ranks */
    double timeout = c->trainer.comm_timeout;
    ares_world_set_timeout(world, ares_is_null_f64(timeout) ? 0 : timeout);
    ares_world_set_transport(world, c->trainer.comm_transport);
    char command[40]; /* all ranks must run the same one, on the same configuration */
    snprintf(command, sizeof command, "%s%s%s", v->name, o->check ? " --check" : "",
             o->print ? " --print-config" : "");
    ARES_TRY(ares_train_same_start(cfg, command, world));
    ARES_TRY(check(v, cfg, c, o, world));
    if (!o->print) return o->check ? ARES_OK : v->run(cfg, c, world, o->output);
    ares_str text = { 0 };
    ares_config_print(cfg, &text);
    int rc = cli_print(v->name, &text);
    ares_str_fini(&text);
    return rc;
}

/* train, eval and sft: help, a check, or the run. */
static int run_words(const config_verb *v, const cli_command *command, const own_options *o,
                     ares_str *unused)
{
    (void)unused;
    ares_str text = { 0 };
    /* a text alone: needs no configuration and no other ranks */
    if (o->algorithms) {
        ares_algo_tables(&text);
        int printed = cli_print(v->name, &text);
        ares_str_fini(&text);
        return printed;
    }
    ares_train_config c;
    ares_world *world = NULL;
    ares_config *cfg = declared(v, &c);
    int rc = ares_world_open(&world);
    if (rc == ARES_OK) {
        ares_log_set(ARES_LOG_INFO, ares_world_rank(world));
        if (o->help_config) {
            rc = ares_config_help(cfg, o->help_config, &text);
            if (rc == ARES_OK) rc = cli_print(v->name, &text);
        } else {
            rc = check_typos(command, cfg, o);
            if (rc == ARES_OK) rc = configured(v, cfg, &c, o, world);
        }
    }
    ares_str_fini(&text);
    /* a failure on one rank must not leave the others waiting: all end; rank 0 reports it first */
    if (rc != ARES_OK && rc != ARES_EINTERRUPTED && ares_world_size(world) >= 2) {
        if (ares_world_rank(world) != 0) nanosleep(&(struct timespec){ 0, 300000000 }, NULL);
        ares_world_abort(world, rc);
    }
    /* the interruption is reported once, by rank 0 */
    if (rc == ARES_EINTERRUPTED && ares_world_rank(world) != 0) (void)ares_fail(rc, "%s", "");
    ares_config_free(cfg);
    if (world) ares_world_close(world);
    return rc;
}

/* Reads the words of a verb and does something with them. */
typedef int words_fn(const config_verb *v, const cli_command *command, const own_options *o,
                     ares_str *out);
static int with_words(const config_verb *v, int argc, char **argv, words_fn *run, ares_str *out)
{
    own_options o = { 0 };
    bool helped;
    const cli_option options[] = {
        { .name = "--config",
          .type = CLI_PASSED,
          .value = "FILE",
          .doc = "YAML; several are read from left to right" },
        { .name = "key=value",
          .type = CLI_PASSED,
          .doc = "overrides, such as worker.rollout.n=8 (also --key=value, --key value, key+=[x], "
                 "~key)" },
        CLI_RANKS(o.ranks),
        CLI_RESTARTS(o.restarts),
        CLI_OPTION(FLAG, o.check, "--check", NULL,
                   "check the configuration, the first rows of its files, the checkpoint and "
                   "trackers that "
                   "it names and the memory it needs here, start each reward and environment of "
                   "your own once, and "
                   "stop; touches no "
                   "weights"),
        CLI_OPTION(FLAG, o.no_programs, "--no-programs", NULL,
                   "with --check: start no program of your own"),
        CLI_OPTION(FLAG, o.print, "--print-config", NULL,
                   "print the resolved configuration and stop"),
        CLI_OPTION(FLAG, o.force, "--force", NULL,
                   "continue from a state of other options, another data set or model"),
        CLI_OPTION(OPTIONAL, o.help_config, "--help-config", "[WORD]",
                   "every option with its default and meaning, as YAML; with WORD those below "
                   "that section, "
                   "or with it in their names or texts"),
        CLI_OPTION(FLAG, o.algorithms, "--help-algorithms", NULL,
                   "every advantage, loss, KL, filter .. with formula, paper and option, as "
                   "Markdown"),
        CLI_OPTION(TEXT, o.output, "--output", "FILE",
                   "every answer with its score, as JSON lines"),
    };
    const cli_command command = {
        .name = v->name,
        .usage = v->usage,
        .about = v->about,
        .example = v->example,
        .options = options,
        .n_options = ARES_COUNT(options) - !v->writes_answers, /* --output is the last */
        .words = CLI_OVERRIDES,
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    o.n_words = argc - 1;
    o.words = (const char *const *)argv + 1;
    return helped ? ARES_OK : run(v, &command, &o, out);
}

/* cli_latest_checkpoint looks verbs up here, too */
static const config_verb config_verbs[] = {
    {
        .name = "train",
        .usage = "--config FILE [key=value ...]",
        .about = "Trains a language model by reinforcement learning. The same command continues a "
                 "run that was stopped.",
        .example = "ares-train --config examples/quickstart/config.yaml trainer.max_steps=4",
        .reinforcement = true,
        .run = run_train,
        .check = ares_train_config_check,
        .check_files = ares_train_check_files,
    },
    {
        .name = "eval",
        .usage = "--config FILE [key=value ...] [--output FILE.jsonl]",
        .about = "Samples and judges data.val_files as training would; prints the result, writes "
                 "no run directory.",
        .example = "ares-train eval --config examples/quickstart/config.yaml "
                   "worker.actor.model.model_path=models/SmolLM2-135M-Instruct",
        .reinforcement = true,
        .writes_answers = true,
        .run = ares_eval_run,
        .check = ares_train_config_check,
        .check_files = ares_train_check_files,
        .preset = "trainer.val_only=true",
    },
    {
        .name = "sft",
        .usage = "--config FILE [key=value ...]",
        .about = "Supervised training on {prompt, response} or {messages}; the loss is on what "
                 "the assistant writes.",
        .example = "ares-train sft --config examples/sft/config.yaml",
        .run = run_sft,
        .declare = ares_sft_declare,
        .check = ares_sft_check,
        .check_files = ares_sft_check_files,
    },
};

int ares_cli_train(int argc, char **argv)
{
    return with_words(&config_verbs[0], argc, argv, run_words, NULL);
}

int ares_cli_eval(int argc, char **argv)
{
    return with_words(&config_verbs[1], argc, argv, run_words, NULL);
}

int ares_cli_sft(int argc, char **argv)
{
    return with_words(&config_verbs[2], argc, argv, run_words, NULL);
}

/* ---------------- --restarts */
/* Why a restart could not go on from a checkpoint is said now, before the first start. */
static int latest_of_words(const config_verb *v, const cli_command *command, const own_options *o,
                           ares_str *path)
{
    ares_train_config c;
    ares_str dir = { 0 };
    ares_config *cfg = declared(v, &c);
    int rc = check_typos(command, cfg, o);
    if (rc == ARES_OK) {
        read_configuration(v, cfg, o);
        rc = ares_config_finish(cfg);
    }
    if (rc == ARES_OK && c.trainer.val_only)
        rc = ares_fail(ARES_EUSE,
                       "%s: --restarts: a validation saves no checkpoint to go on from; leave "
                       "the option out",
                       v->name);
    if (rc == ARES_OK && !c.trainer.find_last_checkpoint)
        rc = ares_fail(ARES_EUSE,
                       "%s: --restarts: a restart goes on from the run's last checkpoint, which "
                       "trainer.find_last_checkpoint = false forbids; set it to true",
                       v->name);
    if (rc == ARES_OK) {
        ares_run_path(&c, &dir);
        ares_path_join(path, dir.data, "checkpoints/latest");
    }
    ares_str_fini(&dir);
    ares_config_free(cfg);
    return rc;
}

/* Where a restart would go on from: RUN_DIR/checkpoints/latest. Empty after --help. */
int cli_latest_checkpoint(const char *verb, int argc, char *const *argv, ares_str *path)
{
    /* main has looked the verb up: it is one of these */
    const config_verb *v = config_verbs;
    while (strcmp(v->name, verb) != 0) v++;
    char **words = ares_calloc((size_t)argc + 1, sizeof *words); /* reading takes options out */
    memcpy(words, argv, (size_t)argc * sizeof *words);
    words[0] = (char *)verb;
    int rc = with_words(v, argc, words, latest_of_words, path);
    ares_free(words);
    return rc;
}

/* ares-train plan: what a run would hold and send, from its configuration and config.json alone. */

/* The options of plan; 0: not given. */
typedef struct job {
    int64_t ranks;
    double memory; /* bytes */
    bool json;
} job;

/* The plan is printed even where the run does not fit, which then fails the command. */
static int print_plan(const job *j, ares_config *cfg, const ares_train_config *c)
{
    ares_plan_options o = { .memory = j->memory, .json = j->json };
    /* --ranks, else what the files name; a machine has its share of them */
    o.ranks = j->ranks ? (int)j->ranks : ares_train_named_ranks(c);
    o.local_ranks = o.ranks;
    if (c->published.nnodes != ARES_NULL_I64)
        o.local_ranks = ARES_MAX(1, o.ranks / (int)c->published.nnodes);
    ares_str text = { 0 };
    ARES_TRY(ares_train_config_check(cfg, c, o.ranks));
    int rc = ares_train_plan(cfg, c, &o, &text);
    if (text.len && cli_print("plan", &text) != ARES_OK) rc = ARES_EIO;
    ares_str_fini(&text);
    return rc;
}

int ares_cli_plan(int argc, char **argv)
{
    job j = { 0 };
    bool helped;
    const cli_option options[] = {
        { .name = "--config",
          .type = CLI_PASSED,
          .value = "FILE",
          .doc = "YAML; several are read from left to right" },
        { .name = "key=value", .type = CLI_PASSED, .doc = "overrides, as in training" },
        CLI_OPTION(I64, j.ranks, "--ranks", "N",
                   "processes of the run; none are started (default: as trainer.n_gpus_per_node "
                   "says)",
                   .least = 1, .most = 4096),
        CLI_OPTION(F64, j.memory, "--memory", "BYTES",
                   "of a rank: a card's, or a share of the machine's (default: of this machine)"),
        CLI_OPTION(FLAG, j.json, "--json", NULL, "print JSON instead of a table"),
    };
    const cli_command command = {
        .name = "plan",
        .usage = "--config FILE [key=value ...] [--ranks N] [--memory BYTES] [--json]",
        .about = "Prints the bytes that each rank of a run holds, by owner and phase, the longest "
                 "row and the largest micro-batch that fit, and what a training step sends. It "
                 "reads the "
                 "configuration and config.json and loads no weights. Fails where the run does not "
                 "fit, and names the options with which it would (docs/ranks.md).",
        .example = "ares-train plan --config examples/quickstart/config.yaml\n"
                   "ares-train plan --config run.yaml --ranks 8 --memory 149e9 --json",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = CLI_OVERRIDES,
    };
    ares_train_config c;
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    memset(&c, 0, sizeof c);
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, argc - 1, (const char *const *)argv + 1);
    /* as in `configured`: a file that cannot be read is the only fault that matters */
    bool unread = ares_config_fault_count(cfg) > 0;
    ares_config_resolve(cfg);
    int rc = unread ? ares_config_finish(cfg) : print_plan(&j, cfg, &c);
    ares_config_free(cfg);
    return rc;
}
