/*
 * PPO's clipped surrogate (Schulman et al., arXiv 1707.06347, equation 7) with separate bounds below and above (DAPO,
 * arXiv 2503.14476) and the dual clip of negative advantages (Ye et al., arXiv 1912.09729). One token, as the C compiler
 * and nvcc both read it.
 */
#ifndef ARES_ALGO_LOSS_PPO_H
#define ARES_ALGO_LOSS_PPO_H

typedef struct ares_ppo_term {
    double loss, gradient; /* of the log-prob */
    double ratio;
    int clip_high, clip_low; /* l1 < l2; the dual bound acts */
} ares_ppo_term;

/* log_ratio = log pi - log old; its exponential is taken of the value clamped to +-20. ratio = exp of that, low and high the clip bounds of
 * the ratio (1 - clip_ratio_low, 1 + clip_ratio_high). */
static inline ares_ppo_term ares_ppo_token(double log_ratio, double ratio, double advantage, double low, double high, double dual)
{
    ares_ppo_term e = { 0, 0, ratio, 0, 0 };
    double clipped = ratio < low ? low : ratio > high ? high : ratio;
    double l1 = -advantage * ratio, l2 = -advantage * clipped;
    e.clip_high = l1 < l2;
    e.loss = l1 < l2 ? l2 : l1;
    e.gradient = (l1 < l2 || log_ratio > 20 || log_ratio < -20) ? 0 : l1;
    if (advantage < 0 && e.loss > -advantage * dual) {
        e.clip_low = 1;
        e.loss = -advantage * dual;
        e.gradient = 0;
    }
    return e;
}
#endif
