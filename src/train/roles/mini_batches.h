/*
 * Which rows of a step make a mini-batch (docs/update.md#mini-batches). (mini_batches.c)
 */
#ifndef ARES_TRAIN_ROLES_MINI_BATCHES_H
#define ARES_TRAIN_ROLES_MINI_BATCHES_H

#include "ares/train.h"

/* How many prompts, or rows, a mini-batch has over all ranks, and which. */
typedef struct mini_batch_size {
    int64_t count;
    bool rows; /* count is of rows */
    /* of rows: */
    bool by_length; /* those of like length make a mini-batch (docs/update.md#the-order-of-rows) */
    bool in_order;  /* they keep that order in it, because micro-batches of it are counted */
} mini_batch_size;
mini_batch_size mini_batch_size_of_actor(const ares_train_config *cfg);
mini_batch_size mini_batch_size_of_critic(const ares_train_config *cfg);

/*
 * Mini-batch i has rows [start[i], start[i + 1]) of `batch`, maybe none; n is the same on all
 * ranks. Those from `counted` on hold only groups that give every rank one, and count nowhere;
 * `counted` is the same for every number of ranks.
 */
typedef struct mini_batches {
    int64_t n, counted;
    const int64_t *start;
    ares_batch *batch;    /* the step's, or a copy of this rank's rows in another order */
    const int64_t *order; /* [batch->rows] the step's row that each is; NULL: it is no copy */
} mini_batches;
/*
 * Mini-batches of prompts: `count` groups of all ranks, by ares_sample.place. Of rows: rows are
 * numbered over all ranks by ares_sample.place of their group, then as in the group; numbers
 * stay as they are or are ordered by_length, and `count` consecutive ones make a mini-batch. A
 * group may be divided. Unless in_order, a mini-batch has its rows by their numbers. A collective.
 * What it allocates is in b's arena, but for a copy, which mini_batches_fini frees.
 */
int mini_batches_cut(const mini_batch_size *size, ares_batch *b, ares_world *world,
                     mini_batches *out);
/*
 * Tells the progress of the micro-batches to come, in so many passes over all rows. Rounds of
 * ranks may cut them into a few more.
 */
void mini_batches_expect(const mini_batches *m, int64_t passes, int64_t max_token_len,
                         bool share_prompts);
/* Writes to the step's batch what the actor's update has written to a copy: kl and row_kl. */
void mini_batches_give_back(const mini_batches *m, ares_batch *b);
void mini_batches_fini(mini_batches *m);
/*
 * As mini-batches of rows number them. first [b->groups]: the number of the first row of each of
 * this rank's groups; *total: rows of all ranks. A collective.
 */
int mini_batches_number_rows(ares_batch *b, ares_world *world, int64_t *first, int64_t *total);
#endif
