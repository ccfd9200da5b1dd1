/*
 * PPO's clipped surrogate (Schulman et al., arXiv 1707.06347, equation 7) with separate bounds
 * below and above (DAPO, arXiv 2503.14476) and the dual clip of negative advantages (Ye et al.,
 * arXiv 1912.09729).
 */
#ifndef ARES_ALGO_LOSS_PPO_H
#define ARES_ALGO_LOSS_PPO_H

#include "token.h"

/*
 * ratio: of the clamped log-ratio, which lies beyond the clamp or not; low, high: bounds of the
 * ratio (1 - clip_ratio_low, 1 + clip_ratio_high); dual: the bound of the loss of a negative
 * advantage, times the advantage; infinity is none.
 */
ARES_LOSS_FN ares_token_term ares_ppo_at(double ratio, int beyond, double advantage, double low,
                                         double high, double dual)
{
    ares_token_term e = { 0, 0, ratio, 0, 0 };
    double clipped = ares_loss_clamp(e.ratio, low, high), l1 = -advantage * e.ratio,
           l2 = -advantage * clipped;
    e.clip_high = l1 < l2;
    e.loss = l1 < l2 ? l2 : l1;
    e.gradient = (l1 < l2 || beyond) ? 0 : l1;
    if (advantage < 0 && e.loss > -advantage * dual) {
        e.clip_low = 1;
        e.loss = -advantage * dual;
        e.gradient = 0;
    }
    return e;
}
/* log_ratio = log pi - log old. */
ARES_LOSS_FN ares_token_term ares_ppo_token(double log_ratio, double advantage, double low,
                                            double high, double dual)
{
    return ares_ppo_at(ares_loss_exp(ares_loss_bound(log_ratio)), ares_loss_beyond(log_ratio),
                       advantage, low, high, dual);
}
#endif
