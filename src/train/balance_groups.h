/* Which rank trains on which groups of a batch. (balance_groups.c) */
#ifndef ARES_TRAIN_BALANCE_GROUPS_H
#define ARES_TRAIN_BALANCE_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * work [count] of the groups by their places in the batch -> rank [count]. Groups are dealt out
 * within each chunk of consecutive places, every rank gets as many, and ranks keep their order: a
 * mini-batch, which is one or more chunks, is the same groups for every rank count. balance: evenly
 * by work, else in turn. Chunk and count are multiples of ranks.
 */
int balance_groups(const int64_t *work, int64_t count, int64_t chunk, int64_t ranks, bool balance,
                   int64_t *rank);
#endif
