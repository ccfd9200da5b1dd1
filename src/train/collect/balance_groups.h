/* Which rank trains on which groups of a batch. (balance_groups.c) */
#ifndef ARES_TRAIN_COLLECT_BALANCE_GROUPS_H
#define ARES_TRAIN_COLLECT_BALANCE_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The rank [count] of each group, from the work [count] of the groups; both by place in the batch.
 * Groups are divided within each chunk of consecutive places, and every rank gets at least one: a
 * mini-batch, which is one or more chunks, has the same groups for every rank count. balance:
 * evenly by work; false: in turn. chunk and count are multiples of ranks
 * (docs/design.md#balance-between-ranks).
 */
int balance_groups(const int64_t *work, int64_t count, int64_t chunk, int64_t ranks, bool balance,
                   int64_t *rank);
#endif
