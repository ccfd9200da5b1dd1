/* The critic: values of response tokens, and their update (docs/update.md#critic). (critic.c) */
#ifndef ARES_TRAIN_ROLES_CRITIC_H
#define ARES_TRAIN_ROLES_CRITIC_H

#include "options/sharing.h"
#include "roles/learner.h"

typedef struct critic {
    learner learner; /* its model is its own and has a value head */
    const ares_train_config *cfg;
} critic;

/*
 * groups: NULL: one rank. weights: a checkpoint's critic/, where a run goes on; NULL:
 * worker.critic.model.model_path
 */
int critic_open(critic *c, const ares_train_config *cfg, ares_device *d, ares_world *world,
                const sharing_groups *groups, int64_t total_steps, const char *weights);
void critic_close(critic *c);
/* Scratch for a round of n passes, so many outputs each. */
int critic_reserve(critic *c, int32_t rows, int64_t n);
size_t critic_expect(critic *c, int32_t rows, int64_t n); /* as learner_expect_backward */
int critic_values(critic *c, ares_batch *b); /* puts column values: 0 where the mask is */
int critic_update(critic *c, ares_batch *b, ares_metrics *m); /* towards the returns */
#endif
