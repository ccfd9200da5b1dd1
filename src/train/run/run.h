#ifndef ARES_TRAIN_RUN_RUN_H
#define ARES_TRAIN_RUN_RUN_H

#include "trainer.h"

/*
 * What a run does between being set up and being saved: reinforcement learning, or supervised
 * training. Everything around it (run directory, checkpoints, signals, metrics) is the same
 * (loop.c).
 */
typedef struct run_kind {
    void (*declare)(ares_config *cfg, ares_train_config *out); /* all options */
    int (*open)(ares_trainer *t, ares_config *cfg, const ares_train_config *c, ares_world *world,
                const char *weights);
    int (*step)(ares_trainer *t, ares_metrics *m);
    int (*validate)(ares_trainer *t, ares_metrics *m, ares_str *samples);
} run_kind;
extern const run_kind train_by_rewards; /* reinforcement learning */
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
 * Parts of opening a trainer (trainer.c): device, model_dir and its fingerprint; then model and
 * tokenizer, which must belong together.
 */
int trainer_open_device(ares_trainer *t);
int trainer_open_model(ares_trainer *t, const char *weights);

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

void sft_free(struct ares_sft *s); /* (sft.c) */
#endif
