/*
 * Which rows of a step make a mini-batch (docs/update.md#mini-batches). (mini_batches.c)
 */
#ifndef ARES_TRAIN_ROLES_MINI_BATCHES_H
#define ARES_TRAIN_ROLES_MINI_BATCHES_H

#include "ares/train.h"

/* How many prompts, or rows, a mini-batch has over all ranks. */
typedef struct mini_batch_size {
    int64_t count;
    bool rows; /* count is of rows */
} mini_batch_size;
mini_batch_size mini_batch_size_of_actor(const ares_train_config *cfg);
mini_batch_size mini_batch_size_of_critic(const ares_train_config *cfg);

/* Mini-batch i has this rank's rows [start[i], start[i + 1]), maybe none; n is that of all ranks.
 */
typedef struct mini_batches {
    int64_t n;
    const int64_t *start; /* [n + 1], in the batch's arena */
} mini_batches;
/*
 * Mini-batches of prompts: every rank has count / ranks groups of each. Mini-batches of rows: rows
 * are numbered over all ranks by ares_sample.place of their group, then as in the group, and k
 * consecutive numbers make a mini-batch; a group may be divided. Places must not descend in the
 * batch. A collective.
 */
int mini_batches_cut(const mini_batch_size *size, ares_batch *b, ares_world *world,
                     mini_batches *out);
/*
 * As mini-batches of rows number them. first [b->groups]: the number of the first row of each of
 * this rank's groups; *total: rows of all ranks. A collective.
 */
int mini_batches_number_rows(ares_batch *b, ares_world *world, int64_t *first, int64_t *total);
#endif
