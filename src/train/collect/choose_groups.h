/* Which of the groups drawn in a step make its batch. (choose_groups.c) */
#ifndef ARES_TRAIN_COLLECT_CHOOSE_GROUPS_H
#define ARES_TRAIN_COLLECT_CHOOSE_GROUPS_H

#include "collect/collection.h"
#include "collect/filter_groups.h"

/*
 * c: this rank's groups with place = their number in the step; on return those of the batch, with
 * their place in it. *count: groups of the batch, over all ranks: a multiple of the ranks.
 */
int choose_groups(ares_trainer *t, rounds *r, collection *c, int64_t *count, ares_metrics *m);
#endif
