/*
 * What the end-to-end tests share: a model that trains in milliseconds, the run that trains it, and
 * a look at what it left.
 */
#ifndef TESTS_E2E_H
#define TESTS_E2E_H

#include "test.h"

/* A random model of 41,248 parameters in this test's folder. */
const char *e2e_model(void);

/* Runs the program's own words through the shell, after "'.../ares-train' ". */
int e2e_program(ares_str *out, const char *format, ...) ARES_PRINTF(2, 3);

/*
 * The words of a training run of that model on examples/data/sums: 4 prompts x 4 samples, 12
 * tokens, a reward that moves. run: a name in this test's folder. Lives until the test ends.
 */
const char *e2e_train_words(const char *run);
const char *e2e_sft_words(const char *run);

/*
 * Starts a command in the background, sends the signal once metrics.jsonl of the run has so many
 * rows, waits; the command's exit status. What it printed is in test_file(run) + ".out".
 */
int e2e_stop(const char *run, const char *signal, int rows, const char *format, ...)
    ARES_PRINTF(4, 5);

/*
 * Takes a finished run back to its checkpoint of `step`, as a kill right after it would have left
 * it: later checkpoints, rows and rollouts are gone. The first call moves the run to
 * test_file(whole), later ones begin from there. The words of the run must keep every checkpoint
 * (trainer.save_freq=1).
 */
bool e2e_go_back(const char *run, const char *whole, int step);

/* A metric of a run at a step; NaN: none. */
double e2e_metric(const char *run, int64_t step, const char *name);

/* What the rows of a file of JSON lines in this test's folder say of a key, in the file's order:
 * " 1 2 2", texts as they are. */
void e2e_values(const char *file, const char *key, ares_str *out);
/* The lines of a run's JSON-lines file ("rollouts/step_000001.jsonl"), in the arena. */
const ares_json **e2e_rows(ares_arena *arena, const char *run, const char *file, int64_t *n);
double e2e_number(const ares_json *row, const char *key); /* NaN: null or none */

/* Metrics of times, and those that tell how the work was cut. */
bool e2e_of_speed(ares_view key);

/* Two runs hold the same: every file of a checkpoint (critic and controls too), every metric of
 * either but times and rates, every rollout. */
bool e2e_same_runs(const char *a, const char *b, int step);

/* Whether two runs have the same rows in rollouts/ of a step, in any order; and at least one. */
bool e2e_same_rollouts(const char *a, const char *b, int step);

/* Whether the program can be started on several ranks here. */
bool e2e_has_mpi(void);
#define E2E_NEEDS_MPI()                                                   \
    do {                                                                  \
        if (!e2e_has_mpi()) SKIP("built without MPI, or no mpirun here"); \
    } while (0)

/* Writes a file of this test; its path. */
const char *e2e_write(const char *name, const char *text);
#endif
