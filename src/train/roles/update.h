/*
 * One mini-batch of the actor: the loss and the gradients of its groups, by micro-batches that only
 * bound memory. (update.c)
 */
#ifndef ARES_TRAIN_ROLES_UPDATE_H
#define ARES_TRAIN_ROLES_UPDATE_H

#include "roles/actor.h"

/* Of the head's rows, by token of the batch. */
typedef struct update_columns {
    float *weight, *is_weight; /* is_weight NULL: no correction */
    /* the last three NULL: no exact KL */
    float *log_prob, *entropy, *lse, *c_log_prob, *c_entropy, *kl, *ref_lse, *c_kl;
} update_columns;

typedef struct update {
    ares_actor *actor;
    ares_batch *batch;
    update_columns col;
    ares_agg_counts rollout; /* of the whole step over all ranks */
    ares_loss_sums sums;
    /* by token: KL of the last pass over it; NULL: no KL in the loss */
    float *seen_kl;
    bool *passed; /* by row: the loss of the mini-batch at hand has seen it */
    bool compare; /* the weights are those of rollout still */
    /* |update's log-prob - rollout's| over mask-1 tokens of rows that are current */
    double max_abs;
    double compared;     /* 1: there was such a token */
    uint64_t pass;       /* passes over the batch before this one */
    double mini_batches; /* that gave a gradient: means are over them */
    double stopped_mini, stopped_micro, empty, skipped;
    int rc;                        /* of the callback */
    const ares_micro_batch *micro; /* the one the callback is about */
} update;
/*
 * Whether what rollout recorded of a row is what this policy would give: its tokens are untouched,
 * and of the weights as they are. (actor.c)
 */
bool actor_current(const ares_actor *a, const ares_sample *s);
/*
 * On return the gradients are those of groups [group, group_end). *idle: no rank had a token to
 * train on, or early stop abandoned the whole mini-batch: there is nothing to step on, and weights
 * and moments stay as they are.
 */
int update_mini_batch(update *u, int64_t group, int64_t group_end, bool *idle);
#endif
