/*
 * data: equal shares of unequal lengths. The results depend on the arrays alone: every comparison
 * is a total order, so any correct implementation gives the same parts.
 */
#ifndef ARES_DATA_BALANCE_H
#define ARES_DATA_BALANCE_H

#include "ares/core.h"

/*
 * Largest differencing (Karmarkar and Karp, 1982, for k parts;
 * docs/design.md#balance-between-ranks): part [n] receives the part of each item, 0 .. k - 1, of
 * which part 0 has the largest sum. equal_size: n / k items in each part. Where groups must stay
 * whole, the items are groups and the weights their totals. ARES_EFORMAT for n < k, a negative
 * weight, or equal_size where k does not divide n.
 */
int ares_balance_parts(const int64_t *weight, int64_t n, int64_t k, bool equal_size, int64_t *part);
/*
 * verl's order of the rows of one card (docs/update.md#the-order-of-rows): by length, of equal ones
 * the first first, then every other row of that list, and back over those between. So lengths rise
 * to the middle and fall after it, and neighbours are alike. verl compares the work
 * 24576 length + length^2 of a row, which rises with its length. order [n]: receives which item
 * stands at each position.
 */
void ares_balance_order(const int64_t *length, int64_t n, int64_t *order);
/*
 * Metrics <prefix>/min, max and minmax_diff: sums of length over k runs of consecutive items as
 * they came, of n / k items each (or one more or less where k does not divide n).
 * <prefix>/balanced_min and balanced_max: the same over the parts. <prefix>/mean: the mean of
 * either.
 */
void ares_balance_report(const int64_t *length, int64_t n, int64_t k, const int64_t *part,
                         const char *prefix, ares_metrics *m);
#endif
