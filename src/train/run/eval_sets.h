/*
 * Evaluation over several data sets, each with its own sampling and verifier
 * (docs/curriculum.md#evaluation). It takes place where a validation does.
 */
#ifndef ARES_TRAIN_RUN_EVAL_SETS_H
#define ARES_TRAIN_RUN_EVAL_SETS_H

#include "ares/data_source.h"
#include "ares/train.h"

typedef struct eval_set {
    const char *name, *path;
    ares_data_config data;     /* with the keys of its rows */
    const ares_json *metadata; /* added to that of its rows; NULL: none */
    ares_sampling sampling;
    int64_t n; /* answers to each prompt */
    ares_prompt_encoder *encoder;
    ares_source source;
} eval_set;
typedef struct eval_sets {
    eval_set *items; /* in the memory of the configuration */
    int64_t n;
} eval_sets;

/*
 * Reads eval.*; faults go to cfg. A value that a data set does not give comes from eval.defaults,
 * then from worker.rollout.val_override_config, then from training. After resolve.
 */
void eval_sets_read(ares_config *cfg, const ares_train_config *c, eval_sets *out);
/* Tokens of an answer at most, of all sets; 0: there is none. */
int64_t eval_sets_longest(const eval_sets *e);
struct ares_trainer;
int eval_sets_open(struct ares_trainer *t);
void eval_sets_close(eval_sets *e);
/* Metrics eval/<name>...; samples (may be NULL) as in trainer_validate. A collective. */
int eval_sets_validate(struct ares_trainer *t, ares_metrics *m, ares_str *samples);
#endif
