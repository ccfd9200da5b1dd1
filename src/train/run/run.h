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
 * Validation alone, of what trainer.load_checkpoint_path names, else, with `own`, of the run
 * directory's latest checkpoint, else of the model. output (may be NULL): a file to write every
 * answer to. (evaluate.c)
 */
int train_validate_only(const run_kind *kind, ares_config *cfg, const ares_train_config *c,
                        ares_world *world, bool own, const char *output);

/*
 * What the console shows from now on; NULL on other ranks, and where trainer.logger has no console.
 */
ares_progress *train_progress(const ares_train_config *c, const ares_world *world);

/*
 * The number of cards that the driver's folder lists, and the memory of the smallest, by its name;
 * -1: there is no such folder. (memory_check.c)
 */
int train_cards(const char *folder, double *least_bytes);
/* Adds a fault, with the remedy, where processes that hold `bytes` each do not fit on these cards.
 */
void train_check_cards(ares_config *cfg, const char *device, int local_ranks, double bytes,
                       const char *words, int cards, double least, const char *remedy);

/*
 * Prints the table at the end of a run, and writes it to summary.txt: some questions with their
 * answers before and after, validation before and after, the paths of the results. It is made from
 * the run's files alone. (summary.c)
 */
int run_summary(const char *run_dir);
#endif
