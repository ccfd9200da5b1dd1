/*
 * data: equal shares of unequal lengths. Every function is a pure one of its arrays; all order is
 * total, so any correct implementation gives the same parts.
 */
#ifndef ARES_DATA_BALANCE_H
#define ARES_DATA_BALANCE_H

#include "ares/core.h"

/*
 * Largest differencing (Karmarkar and Karp, 1982, for k parts; aepo.md 9.1): part [n] is the part
 * of each item, 0 .. k - 1, part 0 having the largest sum. equal_size: n / k items in each. Where
 * groups stay whole, the items are groups and the weights their totals. ARES_EFORMAT for n < k, a
 * negative weight, or n that k does not divide where equal_size asks for it.
 */
int ares_balance_parts(const int64_t *weight, int64_t n, int64_t k, bool equal_size, int64_t *part);
/*
 * Sums over k runs of consecutive items as they came, of n / k items each or, where k does not
 * divide n, of one more or less, and over the parts: global_seqlen/min, max, minmax_diff,
 * balanced_min, balanced_max, mean.
 */
void ares_balance_report(const int64_t *length, int64_t n, int64_t k, const int64_t *part,
                         const char *prefix, ares_metrics *m);
/*
 * Micro-batches of about max_tokens (EasyR1; aepo.md 9.2): min(n, ceil(total / max_tokens)) parts,
 * at least `least` (the largest number of any rank); a part may exceed max_tokens. Part 0 has the
 * largest sum of squared lengths. *k: their number; part [n].
 */
int ares_balance_micro_batches(const int64_t *length, int64_t n, int64_t max_tokens, int64_t least,
                               int64_t *k, int64_t *part);
#endif
