/*
 * Entropy of windows and the tokens of high window entropy, all in double (entropy.c;
 * docs/aepo.md#entropy-windows-and-hwe-tokens).
 */
#ifndef ARES_ALGO_ENTROPY_PRIVATE_H
#define ARES_ALGO_ENTROPY_PRIVATE_H

#include "ares/algo_entropy.h"

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
