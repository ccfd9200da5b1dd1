/*
 * The k smallest of keys that lie on several ranks, as a threshold: a radix search on counts, a
 * byte at a time. (select.c)
 */
#ifndef ARES_ALGO_LOSS_SELECT_H
#define ARES_ALGO_LOSS_SELECT_H

#include "ares/algo_loss.h"

/*
 * key [n] of this rank; k >= 1. *threshold: the k-th smallest over all ranks, or UINT64_MAX where
 * there are no more than k keys. A collective.
 */
int loss_select(const uint64_t *key, int64_t n, int64_t k, ares_world *w, uint64_t *threshold);
/* Orders as the doubles do, -0 as 0. */
uint64_t loss_ordered(double x);
/* The random number of a token: of (key, update, draw, sample, position) alone. */
uint64_t loss_lot(const ares_loss_args *a, int64_t row, int64_t position);
#endif
