/* Private to cli: a sweep, from its file to its runs, and the workers that run them. */
#ifndef ARES_CLI_SWEEP_H
#define ARES_CLI_SWEEP_H

#include <sys/types.h>

#include "ares/config.h"

/*
 * ares-train sweep: runs of one configuration that differ in a few options (docs/sweeps.md).
 *
 *   sweep_grid.c    the sweep's file and its command line; labels of values, templates such as
 *                   "{name}/{run}.log"; the runs: their names and words, in order
 *   sweep.c         every run's configuration is checked and its directory looked at; sweep.json, a
 *                   line per result, and what a killed sweep left half-written
 *   sweep_queue.c   which cards a run gets; a child per run, with its words, cards and log; some
 *                   children at a time, until all are done or a signal comes
 */

/* ---------------- names (sweep_grid.c) */
typedef struct sweep_variables {
    ares_arena *arena;
    ares_map *index; /* name -> place in values */
    const char **values;
    int n, cap;
} sweep_variables;
void sweep_variables_init(sweep_variables *v, ares_arena *arena);
void sweep_variables_fini(sweep_variables *v);
void sweep_set(sweep_variables *v, const char *name, const char *value); /* replaces */

/*
 * A value as part of a file's name: lower case, dots replaced by `dot` ("" or "p"), and characters
 * other than letters, digits, '_', '-' and '+' by '_'.
 */
void sweep_label(const char *value, const char *dot, ares_str *out);
/* Whether two values are the same word in any case, or the same number: 0, 0.0 and 0e0. */
bool sweep_same_value(const char *a, const char *b);
/*
 * Replaces {name}, {name|label} (dots left out), {name|label_p} (p for a dot) and {name|base} (what
 * follows the last slash). Other braces stay as they are. The text lies in the variables' arena.
 * `what` names the template in a failure.
 */
int sweep_expand(const sweep_variables *v, const char *what, const char *text, const char **out);

/* ---------------- the sweep (sweep_grid.c) */
#define SWEEP_OPTIONS(X)                                                                          \
    X(text, name, "name", "sweep", "nonempty", "name of the sweep")                               \
    X(texts, config, "config", "[]", "nonempty",                                                  \
      "configuration files of every run, read from left to right")                                \
    X(texts, set, "set", "[]", "nonempty", "overrides of every run, as on a command line")        \
    X(tree, let, "let", "{}", "map", "variables for the templates and overrides")                 \
    X(tree, over, "over", "[]", "list",                                                           \
      "what is swept: a list of parameters; the runs are all combinations of their values")       \
    X(i64s, seeds, "seeds", "[]", "[0,)",                                                         \
      "each combination runs with each; none: the configuration's own")                           \
    X(texts, seed_options, "seed_options",                                                        \
      "[data.seed, worker.rollout.seed, 'env.train.seed={seed}10000']", "nonempty",               \
      "options that are given the seed, or a text made of it")                                    \
    X(choice, order, "order", "seeds", "seeds|values",                                            \
      "seeds: every combination with the first seed, then with the second; values: all seeds of " \
      "the first combination, then of the second")                                                \
    X(text, run, "run", "null", "nonempty",                                                       \
      "name of a run; null: parameters and values, and the seed")                                 \
    X(text, dir, "dir", "'runs/{name}'", "nonempty", "folder of the sweep's files")               \
    X(text, run_dir, "run_dir", "'{dir}/{run}'", "nonempty", "run directory of a run")            \
    X(text, log, "log", "'{dir}/logs/{run}.log'", "nonempty",                                     \
      "what a run prints; its result stands beside it, in a file that ends in .result")           \
    X(text, summary, "summary", "'{dir}/results.log'", "nonempty", "the results of all runs")     \
    X(text, result, "result", "null", "nonempty",                                                 \
      "first fields of a result; null: parameters and values")                                    \
    X(i64, jobs, "jobs", "1", "[1,)", "runs at the same time where they train on the CPU")        \
    X(i64, ranks, "ranks", "1", "[1,)", "processes of a run, and cards where it trains on cards") \
    X(texts, gpus, "gpus", "[]", "nonempty",                                                      \
      "cards to use; none: all. cards / ranks runs go on at the same time")                       \
    X(f64, cooldown, "cooldown", "0", "[0,)", "seconds between two runs of one worker")
ARES_OPTION_STRUCT(sweep_options, SWEEP_OPTIONS);

#define SWEEP_PARAMETER_OPTIONS(X)                                                           \
    X(text, name, "name", "???", "nonempty", "name of the parameter, a variable")            \
    X(text, option, "option", "null", "nonempty", "option that is given the value")          \
    X(texts, values, "values", "[]", "nonempty", "the values, in order")                     \
    X(tree, let, "let", "{}", "map", "variables that go with the parameter")                 \
    X(tree, cases, "cases", "[]", "list",                                                    \
      "maps of `when`, a value, and variables with another text for it; numbers compare as " \
      "numbers")
ARES_OPTION_STRUCT(sweep_parameter, SWEEP_PARAMETER_OPTIONS);

typedef enum {
    SWEEP_WAITING, /* not started, or to go on */
    SWEEP_RUNNING,
    SWEEP_DONE,
    SWEEP_FAILED,
    SWEEP_STOPPED /* by a signal; goes on with the next sweep */
} sweep_state;

typedef struct sweep_run {
    const char *name, *run_dir, *log, *result;
    const char *fields;        /* "entropy=0.1 | seed=1" */
    const char *const *values; /* [n_parameters] */
    int64_t seed;              /* -1: none */
    const char **words;        /* of `ares-train train`, then NULL */
    int n_words;
    /* sweep.c */
    bool on_cards, shares_cpus;
    bool goes_on, begins_anew; /* it was begun; what is there is moved aside (--force) */
    /* sweep.c, sweep_queue.c */
    sweep_state state;
    double wall_s;   /* all attempts */
    const char *gpu; /* "1xH100" */
    const char *why; /* it failed; NULL */
} sweep_run;

typedef struct sweep {
    ares_arena arena;
    ares_config *file;
    sweep_options o;
    sweep_parameter *parameters;
    int n_parameters;
    const char *name, *dir, *summary;
    sweep_run *runs;
    int n;
    struct sweep_record *record; /* sweep.c */
    bool force;
    int lock;
} sweep;

/* What the command line gives; NULL and 0: nothing. words: everything else. */
typedef struct sweep_words {
    const char *file, *name, *dir, *seeds, *order, *gpus, *cooldown;
    int64_t jobs, ranks;
    int n;
    const char *const *words; /* [n] --over, --let, --config and overrides, in order */
} sweep_words;
/*
 * Reads the sweep's file and the command line, which wins, and makes the runs. s is zeroed before;
 * sweep_fini also after a failure.
 */
int sweep_read(sweep *s, const sweep_words *w);
/* A parameter's name for people: the last part of an option, unless another one ends so too. */
const char *sweep_shown_name(const char *const *names, int n, int i);
void sweep_fini(sweep *s);
/* Appends the sweep's options with default and meaning, for --help. */
void sweep_describe(ares_str *out);

/* ---------------- records (sweep.c) */
const char *sweep_manifest(sweep *s); /* the path of sweep.json */
/*
 * What earlier commands knew of these runs, time and card, and the runs of theirs that this one
 * does not name: they stay in the list and in the figure for as long as their directories do. A
 * manifest that cannot be read says so. Before sweep_write_manifest.
 */
int sweep_read_manifest(sweep *s);
int sweep_write_manifest(sweep *s);
/* Writes the result of a run that has ended to its own file and to the summary, each whole. */
int sweep_record(sweep *s, const sweep_run *r);
/* Completes what a killed sweep left: torn lines are cut, missing results written. */
int sweep_repair(sweep *s);

int sweep_make_folder_of(const char *path); /* the folder that a file lies in, with parents */

/* ---------------- cards and children (sweep_queue.c) */
/* Refuses a number of a card that a machine of n cards does not have; 0: it tells no number. */
int sweep_check_cards(const ares_texts *cards, int n);
/* "2xH100": how many cards, and their short name. cards: "0,1"; NULL: the CPU. */
const char *sweep_card_label(ares_arena *arena, const char *cards, int64_t ranks);
void sweep_short_card_name(const char *name, ares_str *out); /* "NVIDIA H100 80GB HBM3": "H100" */
/* Prints what would run, in order. */
int sweep_print(sweep *s);
/*
 * Runs everything that is not done. signal: the one that ended it early, or 0. A run that fails
 * does not end it.
 */
int sweep_work(sweep *s, int *signal);

#endif
