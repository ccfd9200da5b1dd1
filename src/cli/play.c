/*
 * ares-train play: act in an environment by hand, and read what a model would read there.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ares/core.h"
#include "ares/dist.h"
#include "ares/env.h"
#include "ares/train.h"
#include "cli.h"

enum { NAMES = 64, FILES = 16 }; /* at most: actions that a slip is compared with; --config */

/* The options of the command, then the environment and what is shown. */
typedef struct job {
    const char *tag, *actions;
    const char *files[FILES]; /* of --config */
    int n_files;
    int64_t seed, id, max_turns, per_turn; /* 0 turns: no limit; 0 per turn: as the files say */
    bool no_think;
    ares_config *cfg; /* owns the texts of `c` and `d` */
    ares_train_config c;
    ares_env_definition d;
    ares_env env;
    ares_env_format format;
    FILE *in;
    bool echo;      /* print what is read: it was not typed on a terminal */
    int read_error; /* errno; 0: none */
    ares_str line, text;
} job;

/* ---------------- opening */

/* Opens environment and input, and begins the episode. */
static int open_all(job *j, char **words)
{
    /* the definition of the tag and the rules of a conversation: files, then play's own words */
    int n;
    const char *const *tags = ares_env_tag_names(&n);
    /* without files only built-in tags exist: a misspelt one gets a suggestion */
    if (!j->n_files) ARES_TRY(ares_lookup(ARES_EUSE, "play: --env", j->tag, tags, n, &(int){ 0 }));
    j->cfg = ares_config_new();
    ares_train_config_declare(j->cfg, &j->c);
    ares_env_declare(j->cfg);
    ares_config_override(j->cfg, "worker.actor.model.model_path=none"); /* required, unused */
    for (int i = 0; i < j->n_files; i++) ares_config_load_file(j->cfg, j->files[i]);
    static const char *const own[] = { "type", "instruction", "max_actions", "max_tokens" };
    for (; *words; words++) { /* key=value of the definition itself, or else of its type */
        const char *under = ".options";
        ares_str path = { 0 };
        for (int i = 0; i < ARES_COUNT(own); i++) {
            size_t length = strlen(own[i]);
            if (strncmp(*words, own[i], length) == 0 && (*words)[length] == '=') under = "";
        }
        ares_str_addf(&path, "env.definitions.%s%s.%s", j->tag, under, *words);
        ares_config_override(j->cfg, path.data);
        ares_str_fini(&path);
    }
    ares_config_resolve(j->cfg);
    if (ares_config_fault_count(j->cfg)) return ares_config_finish(j->cfg);
    ARES_TRY(ares_env_define(j->cfg, j->tag, &j->d));
    ARES_TRY(ares_config_finish(j->cfg));
    if (j->d.type->program)
        return ares_fail(ARES_EUSE,
                         "play: --env = '%s': its program plays by itself, so there is no state to "
                         "act in; train with trainer.max_steps=1 and read its episodes with "
                         "ares-train show RUN_DIR",
                         j->tag);
    const ares_agents_config *a = &j->c.agents;
    j->format = ares_env_format_default();
    j->format.think = a->enable_think && !j->no_think;
    j->format.separator = a->action_separator;
    j->format.max_actions_per_turn = j->per_turn ? j->per_turn : a->max_actions_per_turn;
    /* what was typed wins over the files */
    if (!j->max_turns && j->n_files) j->max_turns = a->max_turns;
    ARES_TRY(ares_env_definition_open(&j->d));
    ARES_TRY(ares_env_init(&j->env, &j->d));
    bool from_stdin = strcmp(j->actions, "-") == 0;
    const char *why = NULL;
    int fd = from_stdin ? STDIN_FILENO : ares_input_open(j->actions, &why);
    if (why) return ares_fail(ARES_EIO, "play: --actions = '%s': %s", j->actions, why);
    j->in = from_stdin ? stdin : fdopen(fd, "r");
    j->echo = !from_stdin || !isatty(STDIN_FILENO);
    return ares_env_reset(&j->env, &(ares_env_start){ (uint64_t)j->seed, j->id });
}

/* ---------------- reading */
/*
 * Reads byte by byte without a buffer, so that a signal ends the wait. false: the input has ended,
 * or a signal came.
 */
static bool read_line(job *j)
{
    ares_str_clear(&j->line);
    for (;;) {
        /* waits for the next byte; a signal interrupts poll */
        struct pollfd wait = { .fd = fileno(j->in), .events = POLLIN };
        char c;
        if (ares_signal_pending()) return false;
        if (poll(&wait, 1, -1) < 0) continue;
        ssize_t n = read(wait.fd, &c, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) j->read_error = errno;
        if (n <= 0) return j->line.len > 0;
        if (c == '\n') return true;
        ares_str_add_char(&j->line, c);
    }
}

/* ---------------- a turn */
/* Prints j->text under its writer's name, and empties it. */
static int show(job *j, const char *who)
{
    ares_str out = { 0 };
    ares_str_addf(&out, "--- %s\n", who);
    cli_add_safe(&out, ares_str_view(&j->text));
    if (j->text.len && j->text.data[j->text.len - 1] != '\n') ares_str_add_char(&out, '\n');
    ares_str_clear(&j->text);
    int rc = cli_print("play", &out);
    ares_str_fini(&out);
    return rc;
}

/* Acts as if the model had written the line in answer tags; the reward's message is in j->text. */
static int take_turn(job *j)
{
    ares_arena arena = { 0 };
    ares_str written = { 0 };
    ares_env_answer answer;
    ares_env_turn turn;
    int n;
    /* the prompt has opened the first tag: with thoughts they are left empty */
    if (j->format.think) ares_str_add_z(&written, "</think><answer>");
    ares_str_add_view(&written, ares_str_view(&j->line));
    ares_str_add_z(&written, "</answer>");
    ares_env_answer_parse(&j->format, ares_str_view(&written), &arena, &answer);
    ares_str_add_view(&j->text, answer.text);
    int rc = j->echo ? show(j, "assistant") : ARES_OK;
    ares_str_clear(&j->text);
    const char *const *names = ares_env_actions(&j->env, &n);
    for (int i = 0; names && i < answer.n_actions; i++) {
        ares_view action = answer.actions[i];
        if (ares_env_find_action(names, n, action) >= 0) continue;
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)ARES_MIN(action.len, sizeof word - 1),
                 action.data);
        /* training counts it as no action without a word; people want to know */
        const char *near = ares_nearest(word, names, ARES_MIN(n, NAMES));
        ares_str_addf(&j->text, "'%s': no such action%s%s%s (actions: ", word,
                      near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        for (int k = 0; k < n; k++) ares_str_addf(&j->text, "%s%s", k ? ", " : "", names[k]);
        ares_str_add_z(&j->text, ")\n");
    }
    if (!answer.n_actions) ares_str_add_z(&j->text, "no action\n");
    if (rc == ARES_OK)
        rc = ares_env_act(&j->env, answer.actions, answer.n_actions, j->c.agents.format_penalty,
                          &turn);
    if (rc == ARES_OK && turn.penalty != 0)
        ares_str_addf(&j->text, "penalty %g, which the model does not read\n", turn.penalty);
    if (rc == ARES_OK && j->text.len) rc = show(j, "note");
    if (rc == ARES_OK) ares_env_reward_message(turn.outcome.reward, &j->text);
    ares_str_fini(&written);
    ares_arena_fini(&arena);
    return rc;
}

/* ---------------- the end */
/* A signal also fails an environment whose answer was waited for: that is no failure of its own. */
static bool interrupted(const job *j)
{
    return ares_signal_pending() && (j->env.failure || !ares_env_over(&j->env));
}

/* The first line of the end. */
static const char *why_it_ended(const job *j)
{
    const ares_env *e = &j->env;
    if (ares_env_won(e)) return "success";
    if (interrupted(j)) return "interrupted";
    if (e->failure) return e->failure;
    if (ares_env_over(e) && ares_env_actions_left(e) <= 0) return "failure: no actions left";
    if (ares_env_over(e)) return "failure";
    return j->max_turns && e->turns >= j->max_turns ? "failure: no turns left"
                                                    : "the input ended before the episode";
}

/* The conversation: system message, then state and answer in turn, then the score. */
static int play(job *j)
{
    /* Ctrl-C ends the episode, and the end is still shown */
    ares_signal_install(ARES_SIGNAL_DROPS);
    ares_env_system_message(&j->env, &j->format, &j->text);
    ARES_TRY(show(j, "system"));
    while (!ares_env_over(&j->env) && (!j->max_turns || j->env.turns < j->max_turns)) {
        ares_env_turn_message(&j->env, &j->format, &j->text);
        ARES_TRY(show(j, "user"));
        /* a prompt, where somebody types */
        if (!j->echo) {
            ares_str_add_z(&j->text, "> ");
            ARES_TRY(cli_print("play", &j->text));
            ares_str_clear(&j->text);
        }
        if (!read_line(j)) break;
        ARES_TRY(take_turn(j));
    }
    if (ares_env_over(&j->env)) { /* the model reads no further message; people like to see it */
        ares_str_add_z(&j->text, "State:\n");
        ares_env_render(&j->env, &j->text);
        ARES_TRY(show(j, "last state"));
    }
    ares_str_clear(&j->text);
    if (j->read_error)
        return ares_fail(ARES_EIO, "play: --actions = '%s': %s", j->actions,
                         strerror(j->read_error));
    const ares_env *e = &j->env;
    ares_str_addf(&j->text, "%s\n%lld turns, %lld actions; reward ", why_it_ended(j),
                  (long long)e->turns, (long long)e->num_actions);
    ares_env_reward_write(&j->text, e->reward);
    ares_str_add_z(&j->text, ", penalty ");
    ares_env_reward_write(&j->text, (ares_env_reward){ e->penalty, e->penalty == 0 });
    ares_str_add_z(&j->text, ", score ");
    ares_env_reward_write(&j->text, (ares_env_reward){ e->reward.value + e->penalty,
                                                       e->reward.integer && e->penalty == 0 });
    ARES_TRY(show(j, "end"));
    return interrupted(j) ? ares_fail(ARES_EINTERRUPTED, "play: interrupted") : ARES_OK;
}

/* Takes --config out of the words itself: a table of options holds one value, and it may repeat. */
static int take_files(job *j, int *argc, char **argv)
{
    static const char name[] = "--config";
    int left = 1;
    for (int i = 1; i < *argc; i++) {
        size_t n = strlen(name);
        bool own = strncmp(argv[i], name, n) == 0;
        if (!own || (argv[i][n] && argv[i][n] != '=')) {
            argv[left++] = argv[i];
            continue;
        }
        const char *file = argv[i][n] ? argv[i] + n + 1 : argv[++i];
        if (!file || !*file || j->n_files == FILES)
            return ares_fail(ARES_EUSE, "play: --config needs the name of a file, %d times at most",
                             FILES);
        j->files[j->n_files++] = file;
    }
    argv[ *argc = left] = NULL;
    return ARES_OK;
}

int ares_cli_play(int argc, char **argv)
{
    job j = { .actions = "-", .seed = 10000 };
    bool helped;
    ares_str more = { 0 };
    int n, at = 0;
    const char *const *tags = ares_env_tag_names(&n);
    const cli_option options[] = {
        CLI_OPTION(TEXT, j.tag, "--env", "TAG", "a tag of the list below, or of --config",
                   .required = true, .offered = tags, .n_offered = n),
        { .name = "--config",
          .type = CLI_PASSED,
          .value = "FILE",
          .doc = "a configuration of training, whose env.definitions and rules of a conversation "
                 "hold; several are read in order" },
        CLI_OPTION(I64, j.seed, "--seed", "N", "the episode; training begins at 10000",
                   .most = INT64_MAX),
        CLI_OPTION(I64, j.id, "--id", "N",
                   "number of the environment within its step; bandits depend on it",
                   .most = INT64_MAX),
        CLI_OPTION(TEXT, j.actions, "--actions", "FILE",
                   "answers, a line each; - (the default) is stdin"),
        CLI_OPTION(I64, j.max_turns, "--max-turns", "N",
                   "turns after which the episode ends; 0: as --config says, else no limit",
                   .most = INT64_MAX),
        CLI_OPTION(I64, j.per_turn, "--max-actions-per-turn", "N",
                   "further actions of an answer are left out; 0: as --config says, else after 2",
                   .most = INT64_MAX),
        CLI_OPTION(FLAG, j.no_think, "--no-think", NULL, "prompts that ask for no thoughts"),
        { .name = "option=value",
          .type = CLI_PASSED,
          .doc = "sets an option of the environment's type, or max_actions, max_tokens, "
                 "instruction" },
    };
    /* the list of tags under --help, wrapped */
    ares_str_add_z(&more, "tags (docs/environments.md):");
    for (int i = 0; i < n; i++) {
        bool fits = i && at + (int)strlen(tags[i]) < 90;
        at = fits ? at + 1 : 2;
        ares_str_addf(&more, "%s%s", fits ? " " : "\n  ", tags[i]);
        at += (int)strlen(tags[i]);
    }
    ares_str_add_char(&more, '\n');
    const cli_command command = {
        .name = "play",
        .usage = "--env TAG [--config FILE] [--seed N] [--actions FILE] [option=value ...]",
        .about = "Shows an environment as a model reads it and takes actions from the keyboard or "
                 "a file. A line is an answer: one action, or several with || between them. "
                 "Unknown actions cost what they cost in training. At the end: why the episode "
                 "ended, and its score.",
        .more = more.data,
        .example = "ares-train play --env CoordSokoban --seed 10000\n"
                   "ares-train play --env CoordFrozenLake --seed 10001 success_rate=0.98\n"
                   "ares-train play --env Guess --config examples/environment_command/config.yaml",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = CLI_WORDS,
    };
    /* before the table reads the words, which would refuse a second --config */
    int rc = take_files(&j, &argc, argv);
    if (rc == ARES_OK) rc = cli_read(&command, &argc, argv, &helped);
    ares_str_fini(&more);
    if (rc != ARES_OK || helped) return rc;
    rc = open_all(&j, argv + 1);
    if (rc == ARES_OK) rc = play(&j);
    if (j.in && j.in != stdin) fclose(j.in);
    if (j.env.definition) ares_env_fini(&j.env);
    ares_env_definition_close(&j.d);
    ares_config_free(j.cfg);
    ares_str_fini(&j.line);
    ares_str_fini(&j.text);
    return rc;
}
