/*
 * The critic's squared error with PPO's clip around the old value (Schulman et al., arXiv
 * 1707.06347; verl): half of max((v - R)^2, (clamp(v, old +- range) - R)^2).
 */
#ifndef ARES_ALGO_LOSS_VALUE_LOSS_H
#define ARES_ALGO_LOSS_VALUE_LOSS_H

#include "formula.h"

/*
 * clip_high: the clipped error is the larger one. gradient is by the value. range infinity: no
 * clip.
 */
ARES_LOSS_FN ares_token_term ares_value_token(double value, double old_value, double target,
                                              double range)
{
    double clipped = ares_loss_clamp(value, old_value - range, old_value + range),
           a = value - target, b = clipped - target;
    ares_token_term e = { 0.5 * a * a, a, 1, b * b > a * a, 0 };
    if (e.clip_high) {
        e.loss = 0.5 * b * b;
        e.gradient = 0;
    }
    return e;
}
#endif
