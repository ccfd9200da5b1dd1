/* The policy: its log-probs and its update. (actor.c, update.c) */
#ifndef ARES_TRAIN_ROLES_ACTOR_H
#define ARES_TRAIN_ROLES_ACTOR_H

#include "ares/algo.h"
#include "roles/learner.h"

typedef struct actor {
    learner learner; /* its model is the trainer's, which rollout samples from */
    const ares_train_config *cfg;
    const ares_loss *loss;
    const ares_kl *kl;
    struct reference *ref; /* the trainer's; read by an exact KL in the loss, else NULL */
    ares_loss_sums sums; /* of the last update, over all ranks: its histogram is drawn from them */
} actor;

/* features: as of learner_options */
int actor_open(actor *a, const ares_train_config *cfg, ares_model *m, ares_features *features,
               ares_world *world, int64_t total_steps);
void actor_close(actor *a);
/*
 * Puts column old_log_probs: the rollout's own where row and weights are unchanged since, else
 * computed again (docs/design.md#old-log-probs).
 */
int actor_log_probs(actor *a, ares_batch *b);
/* The reference where it goes over the rows of the update, too; NULL: it does not. */
learner *actor_beside(const actor *a);
/*
 * Rows that are no part of the batch and learn with it, such as preference pairs
 * (docs/update.md#a-second-batch). Each group goes with one of the batch's rows: the gradient of
 * the mini-batch of that row also gets sum(d_log_prob * gradient of log-prob) over the group's
 * response tokens. A loss of pairs (ARES_LOSS_PAIRS) computes the log-probs and writes the
 * derivatives in each mini-batch; its groups are a chosen and a rejected answer.
 */
typedef struct actor_second {
    const ares_batch *batch; /* with column responses */
    const int64_t *row;      /* [batch->groups] row that the group goes with; never descending */
    float *d_log_prob;       /* [batch->tokens] derivatives of the loss by log-probs */
    double temperature;      /* of the log-probs */
    /* [batch->tokens], of a loss of pairs, else NULL */
    float *log_prob;
    const float *ref_log_prob;
} actor_second;
/*
 * ppo_epochs passes over the batch, an optimizer step per mini-batch. second: NULL where the batch
 * is all there is
 */
int actor_update(actor *a, ares_batch *b, const actor_second *second, ares_metrics *m);
#endif
