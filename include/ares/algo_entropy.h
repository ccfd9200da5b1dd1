/* algo: entropy of tokens and windows, and the tokens of high window entropy. */
#ifndef ARES_ALGO_ENTROPY_H
#define ARES_ALGO_ENTROPY_H

#include "ares/core.h"

/* ---------------- entropy of tokens and windows (entropy.c; aepo.md 2), all in double */
/*
 * Entropy of a token from the log-probs of its likeliest candidates; tail: what they leave of the
 * mass counts as one more outcome.
 */
double ares_entropy_top_k(const double *log_probs, int64_t n, bool tail);
/*
 * window[t] = (h[t+1] + ... + h[t+w]) / w for t < n - w, the number returned (0 or more; nothing is
 * written behind it): the entropy that follows token t. Each sum is made of its own w terms, so a
 * window has the same bits wherever it stands in whatever answer.
 */
int64_t ares_entropy_windows(const double *h, int64_t n, int64_t w, double *window);
/*
 * The list behind a sample's percentile: the windows, then their mean for each token without one;
 * all h[0] where there is no window.
 */
void ares_entropy_pad_windows(const double *h, int64_t n, const double *window, int64_t windows,
                              double *padded);
/*
 * q-th percentile with linear interpolation between order statistics, as numpy's; 0 for n = 0. x
 * finite. By selection: O(n).
 */
double ares_percentile(const double *x, int64_t n, double q);
double ares_median(const double *x, int64_t n);
/* the percentile of the padded list */
double ares_entropy_sample_threshold(const double *h, int64_t n, int64_t w, double q);
/*
 * tau by the thresholds x [n] of a batch's samples: their median the first time, then a moving
 * average of it.
 */
double ares_entropy_threshold_step(bool started, double tau, const double *x, int64_t n, double ema,
                                   double *median);
/*
 * High-window-entropy (HWE) tokens: candidates (NULL: all) whose window reaches tau. mask [n] is
 * written (may be NULL): 0 where there is no window.
 */
/* candidates at or above tau, below it; sum of window - tau of the former */
typedef struct ares_hwe {
    int64_t count, invalid;
    double soft_cost;
} ares_hwe;
ares_hwe ares_hwe_mark(const double *window, int64_t windows, int64_t n, double tau,
                       const uint8_t *candidates, uint8_t *mask);
/* each HWE token and the w tokens behind it */
void ares_hwe_widen(const uint8_t *mask, int64_t n, int64_t w, uint8_t *wide);
/*
 * A token's text as trigger words are compared: leading U+2581 and U+0120 stripped, then white
 * space, then lower case. Replaces out.
 */
void ares_trigger_normalize(ares_view token, ares_str *out);
#endif
