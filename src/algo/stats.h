/*
 * Statistics in double (stats.c, percentile.c): no order of the values changes a bit.
 */
#ifndef ARES_ALGO_STATS_H
#define ARES_ALGO_STATS_H

#include "ares/algo.h"

/* exactly the value of equal values; 0 for n = 0 */
double stats_mean(const double *x, int64_t n);
double stats_std(const double *x, int64_t n, double mean); /* divides by n - 1; 0 for n < 2 */
/*
 * An exact sum of any number of doubles: a fixed-point number of 2,240 bits that is rounded once.
 * The sums of parts and of ranks add up to the same bits as one sum over everything.
 */
enum { EXACT_LIMBS = 70 };
/* {0} is zero */
typedef struct exact_sum {
    int64_t limb[EXACT_LIMBS], added;
} exact_sum;
void exact_add(exact_sum *s, double x); /* x finite */
/* adds n sums over all ranks, a collective */
int exact_ranks(exact_sum *s, int n, ares_world *world);
double exact_value(const exact_sum *s);
/*
 * Over the values x [n] where mask [n] is 1, on all ranks; all 0 where there is none. verl adds
 * 1e-8 to the count, which is nothing in its float32; in double it would leave a mean beside equal
 * values.
 */
typedef struct stats_moments {
    double count, mean;
    double var, population_var; /* the sum of squares about the mean by count - 1, and by count */
} stats_moments;
int stats_masked_moments(ares_world *world, const double *x, const uint8_t *mask, int64_t n,
                         stats_moments *out);
/* (x - mean) / sqrt(var + 1e-8); 0 where mask is 0 */
int stats_masked_whiten(ares_world *world, double *x, const uint8_t *mask, int64_t n);
/* (x - mean) / (sqrt(population_var) + 1e-5) (docs/dapo.md#advantages); 0 likewise */
int stats_masked_normalize(ares_world *world, double *x, const uint8_t *mask, int64_t n);

/*
 * q-th percentile with linear interpolation between order statistics, as numpy's; 0 for n = 0. x
 * must be finite. By selection, O(n).
 */
double stats_percentile(const double *x, int64_t n, double q);
double stats_median(const double *x, int64_t n);
#endif
