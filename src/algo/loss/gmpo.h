/*
 * Geometric-mean policy optimisation (Zhao et al., arXiv 2507.20673, equation 4, and verl's
 * geo_mean): a row's ratio is the geometric mean of token ratios clipped in log space, e^m with m
 * the mean over the row of
 *
 *   c_t = sign(A) min(sign(A) x_t, sign(A) clamp(x_t, -low, high)),   x_t = log pi - log old
 *
 * its loss -A e^m with A the row's mean advantage. low and high bound logs here (the paper's 0.4),
 * not ratios.
 */
#ifndef ARES_ALGO_LOSS_GMPO_H
#define ARES_ALGO_LOSS_GMPO_H

#include "token.h"

typedef struct ares_gmpo_term {
    double log_ratio; /* c_t */
    int passes;       /* whether the token's gradient goes through its c_t */
    /*
     * x_t lies beyond the bounds, at a positive and at a negative advantage (verl's two fractions)
     */
    int clip_high, clip_low;
} ares_gmpo_term;

ARES_LOSS_FN ares_gmpo_term ares_gmpo_token(double log_ratio, double advantage, double low,
                                            double high)
{
    double clamped = ares_loss_clamp(log_ratio, -low, high);
    int better = advantage > 0 ? clamped < log_ratio : advantage < 0 && clamped > log_ratio;
    ares_gmpo_term e = { better ? clamped : log_ratio, !better && advantage != 0,
                         clamped != log_ratio && advantage > 0,
                         clamped != log_ratio && advantage < 0 };
    if (advantage == 0) e.log_ratio = 0; /* sign(0) = 0 */
    return e;
}

/*
 * The row: gradient is by the mean m; a token's own is gradient / tokens of the row where it
 * passes.
 */
ARES_LOSS_FN ares_token_term ares_gmpo_row(double mean, double advantage)
{
    ares_token_term e = { 0, 0, ares_loss_exp(ares_loss_bound(mean)), 0, 0 };
    e.loss = -advantage * e.ratio;
    e.gradient = ares_loss_beyond(mean) ? 0 : e.loss;
    return e;
}
#endif
