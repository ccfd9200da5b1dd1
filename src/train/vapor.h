/*
 * VAPOR in a run: the stored answers of a step's prompts beside its batch
 * (docs/vapor.md#order-of-work). (vapor.c)
 */
#ifndef ARES_TRAIN_VAPOR_H
#define ARES_TRAIN_VAPOR_H

#include "ares/data_source.h"
#include "trainer.h"

typedef struct vapor {
    const ares_train_config *cfg;
    ares_pairs pairs; /* of the training rows */
    /*
     * [pairs.n] by row: the reference's log-probs of its answers, chosen first; NULL: not asked
     * for yet. ref itself is NULL where no pair is read.
     */
    float **ref;
    int64_t *fresh, n_fresh; /* rows of which this step was the first to ask */
    uint64_t reference;      /* hash of what the reference's weights follow from */
    ares_batch batch;        /* of a step: a group per prompt that has a pair */
    actor_second second;
} vapor;

/* Whether the run's loss is VAPOR's. */
bool vapor_wanted(const ares_train_config *c);

/* Encodes the stored answers of the training rows. */
int vapor_open(ares_trainer *t, vapor **out);
void vapor_close(vapor *v); /* NULL is fine */
/*
 * Makes the second batch of a step from the stored answers to its prompts. *second: that batch,
 * maybe without a pair; NULL, on every rank, where no row of the data has one. A collective.
 */
int vapor_pairs(vapor *v, reference *ref, ares_world *world, ares_batch *b,
                const actor_second **second, ares_metrics *m);
/* After every ref_model_sync_steps steps: moves the reference towards the policy. */
int vapor_sync(vapor *v, reference *ref, const learner *policy, int64_t step);
/* Writes what the reference said of stored answers into a checkpoint; reads it again. */
int vapor_save(const vapor *v, const char *path);
int vapor_load(vapor *v, const char *path);
/* Finds the part of an answer that is judged; *inner: its text, in the arena. */
bool vapor_span(const ares_vapor_config *cfg, const ares_tokenizer *t, ares_trajectory *y,
                ares_arena *arena, ares_view *inner);
#endif
