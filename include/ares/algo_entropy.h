/*
 * algo: entropy of tokens and windows, and the tokens of high window entropy, all in double
 * (src/algo/entropy.c; docs/aepo.md#entropy-windows-and-hwe-tokens).
 */
#ifndef ARES_ALGO_ENTROPY_H
#define ARES_ALGO_ENTROPY_H

#include "ares/core.h"

/*
 * Entropy of a token from the log-probs of its most probable candidates; tail: the rest of the
 * probability counts as one more outcome.
 */
double ares_entropy_top_k(const double *log_probs, int64_t n, bool tail);
/*
 * The entropy that follows each token: window[t] = (h[t+1] + ... + h[t+w]) / w for the tokens t <
 * n - w. Returns their number, 0 or more; window is not written beyond it. Each sum is made of its
 * own w terms, so a window has the same bits wherever it stands in any answer.
 */
int64_t ares_entropy_windows(const double *h, int64_t n, int64_t w, double *window);
/*
 * The list whose percentile a sample has: padded [n] is the windows, then their mean for each token
 * without a window; h[0] everywhere where there is no window.
 */
void ares_entropy_pad_windows(const double *h, int64_t n, const double *window, int64_t windows,
                              double *padded);
/*
 * q-th percentile with linear interpolation between order statistics, as numpy's; 0 for n = 0. x
 * must be finite. By selection, O(n).
 */
double ares_percentile(const double *x, int64_t n, double q);
double ares_median(const double *x, int64_t n);
/* the percentile of the padded list */
double ares_entropy_sample_threshold(const double *h, int64_t n, int64_t w, double q);
/*
 * The next tau from the thresholds x [n] of a batch's samples: their median the first time (started
 * false), then the moving average ema tau + (1 - ema) median.
 */
double ares_entropy_threshold_step(bool started, double tau, const double *x, int64_t n, double ema,
                                   double *median);
typedef struct ares_hwe {
    int64_t count, invalid; /* candidates whose window reaches tau, and those whose does not */
    double soft_cost;       /* sum of window - tau over the former */
} ares_hwe;
/*
 * High-window-entropy (HWE) tokens: candidates (NULL: all) whose window reaches tau. mask [n],
 * which may be NULL, is written; 0 where there is no window.
 */
ares_hwe ares_hwe_mark(const double *window, int64_t windows, int64_t n, double tau,
                       const uint8_t *candidates, uint8_t *mask);
/* wide [n], written: 1 at each HWE token and the w tokens after it */
void ares_hwe_widen(const uint8_t *mask, int64_t n, int64_t w, uint8_t *wide);
/*
 * A token's text in the form in which trigger words are compared: leading U+2581 and U+0120
 * removed, then white space at both ends, then lower case. Replaces out.
 */
void ares_trigger_normalize(ares_view token, ares_str *out);
#endif
