/*
 * Private to algo: statistics in double, z-scores of the collapse metrics, and entropy windows
 * with their HWE tokens.
 */
#ifndef ARES_ALGO_STATS_H
#define ARES_ALGO_STATS_H

#include "ares/algo.h"

/*
 * Statistics in double (stats.c): no order of the values changes a bit.
 */

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
 * 1e-8 to the count, which changes nothing in its float32. In double it would make the mean of
 * equal values differ from them, so it is left out here.
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

/*
 * Entropy of windows and the tokens of high window entropy, all in double (stats.c;
 * docs/aepo.md#entropy-windows-and-hwe-tokens).
 */

/*
 * The entropy that follows each token: window[t] = (h[t+1] + ... + h[t+w]) / w for the tokens t <
 * n - w. Returns their number, 0 or more; window is not written beyond it. Each sum is made of its
 * own w terms, so a window has the same bits wherever it stands in any answer.
 */
int64_t entropy_windows(const double *h, int64_t n, int64_t w, double *window);
/*
 * The list whose percentile a sample has: padded [n] is the windows, then their mean for each token
 * without a window; h[0] everywhere where there is no window.
 */
void entropy_pad_windows(const double *h, int64_t n, const double *window, int64_t windows,
                         double *padded);
/* the percentile of the padded list */
double entropy_sample_threshold(const double *h, int64_t n, int64_t w, double q);
/*
 * The next tau from the thresholds x [n] of a batch's samples: their median the first time (started
 * false), then the moving average ema tau + (1 - ema) median.
 */
double entropy_threshold_step(bool started, double tau, const double *x, int64_t n, double ema,
                              double *median);
typedef struct hwe_marked {
    int64_t count, invalid; /* candidates whose window reaches tau, and those whose does not */
    double soft_cost;       /* sum of window - tau over the former */
} hwe_marked;
/*
 * High-window-entropy (HWE) tokens: candidates (NULL: all) whose window reaches tau. mask [n],
 * which may be NULL, is written; 0 where there is no window.
 */
hwe_marked hwe_mark(const double *window, int64_t windows, int64_t n, double tau,
                    const uint8_t *candidates, uint8_t *mask);
/* wide [n], written: 1 at each HWE token and the w tokens after it */
void hwe_widen(const uint8_t *mask, int64_t n, int64_t w, uint8_t *wide);
#endif
