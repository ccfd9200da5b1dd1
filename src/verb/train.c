/* ares-train train, sft, eval: the verbs that read a configuration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ares/train.h"
#include "verb.h"

static const char words[] =
    "  --config FILE          YAML; several are read from left to right\n"
    "  key=value              overrides, as in worker.rollout.n=8 (also --key=value, --key value, "
    "key+=[x], ~key)\n"
    "  --ranks N              start N processes under mpirun\n"
    "  --check                check the configuration, and the memory it needs here, and stop; "
    "touches no weights\n"
    "  --print-config         print the resolved configuration and stop\n"
    "  --force                go on with a state of other options, another data set or model\n"
    "  --help-config [PREFIX] every option with its default and meaning, as YAML\n"
    "  --help-algorithms      every advantage, loss, KL, filter .. with formula, paper and option, "
    "as Markdown\n";

static const char train_help[] =
    "usage: ares-train [train] --config FILE [key=value ...]\n"
    "\n"
    "Trains a language model by reinforcement learning. The same command goes on with a run that "
    "was stopped.\n"
    "\n%s\n"
    "example:\n"
    "  ares-train --config examples/quickstart/config.yaml trainer.max_steps=4\n";

static const char sft_help[] = "usage: ares-train sft --config FILE [key=value ...]\n"
                               "\n"
                               "Supervised training on {prompt, response} or {messages}; the loss "
                               "is on what the assistant writes.\n"
                               "\n%s\n"
                               "example:\n"
                               "  ares-train sft --config examples/sft/config.yaml\n";

static const char eval_help[] =
    "usage: ares-train eval --config FILE [key=value ...] [--output FILE.jsonl]\n"
    "\n"
    "Samples and judges data.val_files as training would; prints the result, writes no run "
    "directory.\n"
    "\n%s"
    "  --output FILE          every answer with its score, as JSON lines\n"
    "\n"
    "example:\n"
    "  ares-train eval --config examples/quickstart/config.yaml "
    "worker.actor.model.model_path=models/SmolLM2-135M-Instruct\n";

typedef int config_run(ares_config *cfg, const ares_train_config *c, ares_world *world,
                       const char *output);
typedef struct config_verb {
    const char *name, *help;
    config_run *run;
    /* options on top of training's; NULL: none */
    void (*declare)(ares_config *cfg, ares_train_config *c);
    int (*check)(ares_config *cfg, const ares_train_config *c, int world);
    const char *preset; /* an override that comes first; NULL */
} config_verb;

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

/* Takes our own words out; the configuration's stay in rest. */
typedef struct own_words {
    bool help, check, print, help_config, help_algorithms;
    const char *prefix, *output;
    const char **rest;
    int n_rest;
} own_words;

static int take_words(const config_verb *v, int argc, char **argv, own_words *w)
{
    w->rest = ares_calloc((size_t)argc + 1, sizeof *w->rest);
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) w->help = true;
        else if (strcmp(a, "--check") == 0) w->check = true;
        else if (strcmp(a, "--print-config") == 0) w->print = true;
        else if (strcmp(a, "--help-algorithms") == 0) w->help_algorithms = true;
        else if (strcmp(a, "--force") == 0) w->rest[w->n_rest++] = "trainer.force=true";
        else if (strcmp(a, "--help-config") == 0) {
            w->help_config = true;
            if (i + 1 < argc && argv[i + 1][0] != '-' && !strchr(argv[i + 1], '='))
                w->prefix = argv[++i];
        } else if (strcmp(a, "--output") == 0 && v->run != run_train && v->run != run_sft) {
            if (i + 1 == argc) return ares_fail(ARES_EUSE, "%s: --output needs a file", v->name);
            w->output = argv[++i];
        } else w->rest[w->n_rest++] = a;
    }
    return ARES_OK;
}

static int print_text(const ares_str *text)
{
    return fwrite(text->data, 1, text->len, stdout) == text->len && fflush(stdout) == 0
               ? ARES_OK
               : ares_fail(ARES_EIO, "stdout cannot be written");
}

static int print_algorithms(void)
{
    ares_str text = { 0 };
    ares_algo_tables(&text);
    int rc = print_text(&text);
    ares_str_fini(&text);
    return rc;
}

/*
 * All faults of the configuration, and of this machine for it; one that is only printed may be
 * another machine's.
 */
static int check(const config_verb *v, ares_config *cfg, const ares_train_config *c,
                 const own_words *w, ares_world *world)
{
    ares_str needs = { 0 };
    int ranks = ares_world_size(world), local = ares_world_local_size(world);
    if (ranks == 1 && (w->check || w->print)) { /* no launch to be true to */
        ranks = ares_train_named_ranks(c);
        local = ARES_MAX(
            1, ranks / (c->published.nnodes == ARES_NULL_I64 ? 1 : (int)c->published.nnodes));
    }
    if (!w->print) ares_train_memory_check(cfg, c, local, v->run != run_sft, &needs);
    int rc = v->check(cfg, c, ranks);
    if (rc == ARES_OK && w->check && !w->print &&
        printf("the configuration is good; %s\n", needs.data) < 0)
        rc = ARES_EIO;
    ares_str_fini(&needs);
    return rc;
}

static int configured(const config_verb *v, ares_config *cfg, ares_train_config *c,
                      const own_words *w, ares_world *world)
{
    ares_str text = { 0 };
    int rc = ARES_OK;
    if (w->help_config) {
        rc = ares_config_help(cfg, w->prefix, &text);
        if (rc == ARES_OK) rc = print_text(&text);
        ares_str_fini(&text);
        return rc;
    }
    if (v->preset) ares_config_override(cfg, v->preset);
    ares_config_read_args(cfg, w->n_rest, w->rest);
    /* relations of what a file that cannot be read does not set are no news */
    bool unread = ares_config_fault_count(cfg) > 0;
    ares_config_resolve(cfg);
    if (unread) return ares_config_finish(cfg);
    ARES_TRY(check(v, cfg, c, w, world));
    if (w->print) {
        ares_config_print(cfg, &text);
        rc = print_text(&text);
        ares_str_fini(&text);
        return rc;
    }
    return w->check ? ARES_OK : v->run(cfg, c, world, w->output);
}

/* A failure on one rank must not leave the others waiting: all end. Rank 0 tells it first. */
static int run_verb(const config_verb *v, int argc, char **argv)
{
    own_words w = { 0 };
    ares_world *world = NULL;
    int rc = take_words(v, argc, argv, &w);
    if (rc == ARES_OK && w.help) printf(v->help, words);
    else if (rc == ARES_OK && w.help_algorithms) rc = print_algorithms();
    else if (rc == ARES_OK) {
        ares_train_config c;
        memset(&c, 0, sizeof c);
        ares_config *cfg = ares_config_new();
        ares_train_config_declare(cfg, &c);
        if (v->declare) v->declare(cfg, &c);
        rc = ares_world_open(&world);
        if (rc == ARES_OK) {
            ares_log_set(ARES_LOG_INFO, ares_world_rank(world));
            rc = configured(v, cfg, &c, &w, world);
        }
        if (rc != ARES_OK && rc != ARES_EINTERRUPTED && ares_world_size(world) > 1) {
            if (ares_world_rank(world) != 0) {
                struct timespec wait = { 0, 300000000 };
                nanosleep(&wait, NULL);
            }
            ares_world_abort(world, rc);
        }
        ares_config_free(cfg);
        if (world) ares_world_close(world);
    }
    ares_free(w.rest);
    return rc;
}

int ares_verb_train(int argc, char **argv)
{
    static const config_verb v = { "train", train_help, run_train, NULL, ares_train_config_check,
                                   NULL };
    return run_verb(&v, argc, argv);
}

int ares_verb_eval(int argc, char **argv)
{
    static const config_verb v = {
        "eval", eval_help, ares_eval_run, NULL, ares_train_config_check, "trainer.val_only=true"
    };
    return run_verb(&v, argc, argv);
}

int ares_verb_sft(int argc, char **argv)
{
    static const config_verb v = {
        "sft", sft_help, run_sft, ares_sft_declare, ares_sft_check, NULL
    };
    return run_verb(&v, argc, argv);
}
