/*
 * The loss and the gradients of one mini-batch of the actor, in micro-batches that bound memory and
 * change no bit. (update.c)
 */
#ifndef ARES_TRAIN_ROLES_UPDATE_H
#define ARES_TRAIN_ROLES_UPDATE_H

#include "roles/actor.h"

/*
 * Numbers by token of the batch: what a loss reads of the batch, its weights, and what head and
 * loss write. NULL: not used in this update.
 */
#define UPDATE_COLUMNS(X)    \
    X(float, old_log_prob)   \
    X(float, advantage)      \
    X(float, ref_log_prob)   \
    X(float, kl_weight)      \
    X(uint8_t, mask)         \
    X(float, weight)         \
    X(float, rollout_weight) \
    X(uint8_t, chosen)       \
    X(float, log_prob)       \
    X(float, entropy)        \
    X(float, lse)            \
    X(float, c_log_prob)     \
    X(float, c_entropy)      \
    X(float, kl)             \
    X(float, ref_lse)        \
    X(float, c_kl)           \
    X(float, seen_kl) /* of the last pass over a token, by any estimator; NULL: no KL here */
typedef struct update_columns {
#define UPDATE_COLUMN(type, name) type *name;
    UPDATE_COLUMNS(UPDATE_COLUMN)
#undef UPDATE_COLUMN
} update_columns;

/* Which terms of the loss give gradients; the others are only added up in the sums. */
typedef enum update_part {
    UPDATE_WHOLE, /* all: what trains */
    UPDATE_TASK,  /* the policy loss */
    UPDATE_ENTROPY,
    UPDATE_KL
} update_part;

typedef struct update {
    actor *actor;
    ares_batch *batch;
    update_part part;
    const actor_second *second; /* NULL: none */
    update_columns host;        /* the columns on the host, */
    update_columns col; /* and where the device computes with them: on the CPU the same arrays */
    /* What else a card's losses read, and their sums; NULL on the CPU, whose losses add to sums. */
    const ares_loss_card *card;
    ares_agg_counts rollout; /* of the whole step over all ranks */
    ares_loss_sums sums;
    ares_vapor_sums pairs; /* of a loss of pairs */
    bool *passed;          /* by row: the loss of the current mini-batch has seen it */
    bool compare;          /* the weights are still those of the rollout */
    bool fills;            /* the current mini-batch only fills the batch (mini_batches.counted) */
    bool known;            /* the loss of the current mini-batch needs no forward pass before it */
    /* |update's log-prob - rollout's| over mask-1 tokens that are current */
    double max_abs;
    double compared;     /* 1: there was such a token */
    uint64_t pass;       /* passes over the batch before this one */
    double mini_batches; /* that gave a gradient: metrics are means over them */
    double stopped_mini, stopped_micro, empty, skipped;
    /* of the head's callback: the micro-batch it runs for, and its first failure */
    const ares_micro_batch *micro;
    int rc;
} update;
/*
 * Whether the log-prob that rollout recorded for a token is that of the policy as it is: the token
 * stands as it was sampled, under the current weights. (update.c)
 */
bool actor_current(const actor *a, const ares_batch *b, int64_t token);
/* The columns, and what all mini-batches have in common. (update_prepare.c) */
int update_prepare(update *u);
/* The places of the columns on the device, with what is there to read. (update_card.c) */
int update_card_open(update *u);
/* A card's sums of the losses begin at 0. (update_card.c) */
void update_card_begin(const update *u);
/*
 * Log-probs of rows [row, end) on the host, which has waited for them. On the CPU they are there.
 * (update_card.c)
 */
int update_log_probs(const update *u, int64_t row, int64_t end);
/*
 * What a card's losses have left of rows [row, end): sums, log-probs and KL, all on the host after
 * one wait, or the error that names a fault. On the CPU they are there. (update_card.c)
 */
int update_card_end(update *u, int64_t row, int64_t end);
/*
 * The arguments of the loss over rows [row, end): arrays of col, u->host or u->col; those of its
 * KL. (update.c)
 */
ares_loss_args update_loss_args(update *u, const update_columns *col, int64_t row, int64_t end);
ares_kl_args update_kl_args(const update *u, const update_columns *col, int64_t first);
/*
 * On return the gradients are those of rows [row, end), which may be none of this rank's. *idle: no
 * rank had a token to train on, or early stop abandoned the whole mini-batch; then no optimizer
 * step is due.
 */
int update_mini_batch(update *u, int64_t row, int64_t end, bool *idle);
/* Adds the gradients of the groups that go with rows [row, end) of the batch. (second_batch.c) */
int second_add_gradients(actor *a, const actor_second *s, int64_t row, int64_t end);
/* Their rows [*first, *last); none: *first == *last. */
void second_rows(const actor_second *s, int64_t row, int64_t end, int64_t *first, int64_t *last);
/* The policy's log-probs of the pairs that go with rows [row, end). (pair_loss.c) */
int pair_log_probs(update *u, int64_t row, int64_t end);
/*
 * A loss of pairs over whole groups, after pair_log_probs and the forward passes of rows
 * [row, end). A collective.
 */
int pair_loss(update *u, int64_t row, int64_t end);
#endif
