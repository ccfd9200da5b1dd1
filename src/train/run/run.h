#ifndef ARES_TRAIN_RUN_RUN_H
#define ARES_TRAIN_RUN_RUN_H

#include "trainer.h"

/*
 * Reinforcement learning, or supervised training: what a run does besides its directory,
 * checkpoints, signals and metrics, which are the same for both (loop.c).
 */
typedef struct run_kind {
    void (*declare)(ares_config *cfg, ares_train_config *out); /* all options */
    /* *out is to be closed after a failure, too. weights: a checkpoint's model/, or NULL */
    int (*open)(ares_config *cfg, const ares_train_config *c, ares_world *world,
                const char *weights, training **out);
    void (*close)(training *t);
    int (*begin)(training *t, ares_metrics *m); /* before the first step; NULL: nothing */
    int (*step)(training *t, ares_metrics *m);
    int (*validate)(training *t, ares_metrics *m, ares_str *samples);
    /* Files and distributions of the step just made, a collective. NULL: none */
    int (*record)(training *t, ares_tracker *tracker);
    /* Histograms beside the metrics that rank 0 logs. NULL: none */
    int (*draw)(training *t, ares_tracker *tracker);
} run_kind;
int train_run(const run_kind *kind, ares_config *cfg, const ares_train_config *c,
              ares_world *world);
/*
 * Validation alone (eval.c) of what trainer.load_checkpoint_path names, else, if `own` is wanted,
 * of the run directory's latest checkpoint, else of the model. output (may be NULL): a file for
 * every answer.
 */
int train_validate_only(const run_kind *kind, ares_config *cfg, const ares_train_config *c,
                        ares_world *world, bool own, const char *output);

/*
 * Cards that the driver's folder of them lists, and the memory of the smallest by its name; -1: no
 * such folder (memory.c).
 */
int train_cards(const char *folder, double *least_bytes);
/* Faults where processes that hold so many bytes each do not fit on these cards. */
void train_check_cards(ares_config *cfg, const char *device, int local_ranks, double bytes,
                       const char *words, int cards, double least);

/*
 * The table at the end of a run, on stdout and in summary.txt: the same questions before and after,
 * validation before and after, where everything lies; all of it from the run's files. (summary.c)
 */
int run_summary(const char *run_dir);
#endif
