/*
 * What the end-to-end tests share: a model that trains in milliseconds, runs that train it, and
 * functions that read what a run has written.
 */
#ifndef TESTS_E2E_H
#define TESTS_E2E_H

#include "test.h"

/* A model with 41,248 random parameters, made in this test's folder. */
const char *e2e_model(void);
/*
 * A model that has learnt from examples, made once for all tests by learn(run directory), which
 * calls e2e_learn; this test's folder gets a link to its run, under the same name.
 */
const char *e2e_learned(const char *run, void (*learn)(const char *run));
/* 120 steps of sft on these rows; more: further options. */
void e2e_learn(const char *run, const char *rows, const char *more);

/*
 * Runs ares-train with these arguments through the shell, in the root of the sources; gives its
 * exit status. out (may be NULL) gets what is printed.
 */
int e2e_program(ares_str *out, const char *format, ...) ARES_PRINTF(2, 3);

/*
 * The arguments of a training run (the path of a configuration file) of that model on
 * examples/data/sums: 4 prompts x 4 samples, 12 tokens each, with a reward that varies. run: the
 * name of the run in this test's folder. The text is valid until the test ends.
 */
const char *e2e_train_words(const char *run);
const char *e2e_sft_words(const char *run);

/*
 * Starts the program in the background, sends the signal as soon as metrics.jsonl of the run has so
 * many rows, and waits. Gives the exit status. What was printed is in test_file(run) + ".out".
 */
int e2e_stop(const char *run, const char *signal, int rows, const char *format, ...)
    ARES_PRINTF(4, 5);

/*
 * Takes a finished run back to its checkpoint of `step`, to the state in which a kill right after
 * that checkpoint would have left it: later checkpoints, rows and rollouts are removed. The first
 * call moves the run to test_file(whole); later calls begin from that copy. The run must keep every
 * checkpoint (trainer.save_freq=1).
 */
bool e2e_go_back(const char *run, const char *whole, int step);

/* The value of a metric at a step of a run; NaN where there is none. */
double e2e_metric(const char *run, int64_t step, const char *name);

/*
 * The values of a key in all rows of a JSON-lines file in this test's folder, in the order of the
 * file, a blank before each: " 1 2 2". Strings are written without quotes.
 */
void e2e_values(const char *file, const char *key, ares_str *out);
/* The rows of a JSON-lines file of a run ("rollouts/step_000001.jsonl"), in the arena. */
const ares_json **e2e_rows(ares_arena *arena, const char *run, const char *file, int64_t *n);
double e2e_number(const ares_json *row, const char *key); /* NaN where it is null or missing */

/* Whether the metric is a time, or depends on how the work was divided. */
bool e2e_of_speed(ares_view key);

/*
 * Checks that two runs are equal: every file of the checkpoint of `step` (critic and controls
 * included), every rollout, and every metric except times and rates.
 */
bool e2e_same_runs(const char *a, const char *b, int step);

/* Whether two runs have the same rows in rollouts/ of a step, in any order; and at least one. */
bool e2e_same_rollouts(const char *a, const char *b, int step);
/*
 * The same without the columns that come from the update, which on another number of ranks differ
 * in the last digit from the second update of a step on.
 */
bool e2e_same_samples(const char *a, const char *b, int step);

/* Whether the program can be started on several ranks here. */
bool e2e_has_mpi(void);
#define E2E_NEEDS_MPI()                                                   \
    do {                                                                  \
        if (!e2e_has_mpi()) SKIP("built without MPI, or no mpirun here"); \
    } while (0)

/* Writes a file in this test's folder; gives its path. */
const char *e2e_write(const char *name, const char *text);
/* What four ranks may share: nothing, optimizer states, and everything of every model. */
enum { E2E_SHARED = 3 };
extern const char *const e2e_shared[E2E_SHARED];
#endif
