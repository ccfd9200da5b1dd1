/*
 * PPO's clipped surrogate (Schulman et al., arXiv 1707.06347, equation 7) with separate bounds
 * below and above (DAPO, arXiv 2503.14476) and the dual clip of negative advantages (Ye et al.,
 * arXiv 1912.09729).
 */
#ifndef ARES_ALGO_LOSS_PPO_H
#define ARES_ALGO_LOSS_PPO_H

#include "formula.h"

/*
 * log_ratio = log pi - log old, of the token or of its row; low, high: bounds of the ratio; dual:
 * the bound of the loss of a negative advantage, times the advantage; infinity is none.
 */
ARES_LOSS_FN ares_token_term ares_ppo_token(double log_ratio, double advantage, double low,
                                            double high, double dual)
{
    ares_token_term e = { 0, 0, ares_loss_exp(ares_loss_bound(log_ratio)), 0, 0 };
    double clipped = ares_loss_clamp(e.ratio, low, high), l1 = -advantage * e.ratio,
           l2 = -advantage * clipped;
    e.clip_high = l1 < l2;
    e.loss = l1 < l2 ? l2 : l1;
    e.gradient = (l1 < l2 || ares_loss_beyond(log_ratio)) ? 0 : l1;
    if (advantage < 0 && e.loss > -advantage * dual) {
        e.clip_low = 1;
        e.loss = -advantage * dual;
        e.gradient = 0;
    }
    return e;
}
#endif
