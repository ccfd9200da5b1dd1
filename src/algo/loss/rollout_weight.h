/*
 * Weights that correct for a sampler whose probabilities are not the trainer's: exp(log old - log
 * rollout), of a token or of a whole row, without a gradient. truncate: min(ratio, upper) (Yao et
 * al., "Your efficient RL framework secretly brings you off-policy RL training", 2025). mask: the
 * ratio inside [lower, upper], 0 outside (IcePop; verl's mode mask).
 */
#ifndef ARES_ALGO_LOSS_ROLLOUT_WEIGHT_H
#define ARES_ALGO_LOSS_ROLLOUT_WEIGHT_H

#include "formula.h"

/* log_ratio: the token's, the sum over its row (sequence), or the mean over its row (geometric). */
ARES_LOSS_FN double ares_rollout_weight(double log_ratio, int mask, double lower, double upper)
{
    double ratio = ares_loss_exp(ares_loss_bound(log_ratio));
    if (mask) return ratio < lower || ratio > upper ? 0 : ratio;
    return ratio > upper ? upper : ratio;
}
#endif
