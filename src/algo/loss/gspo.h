/*
 * Group sequence policy optimisation (Zheng et al., arXiv 2507.18071): PPO's clip on the sequence
 * ratio s = exp(mean over the row of log pi - log old).
 *
 *   gspo         the gradient flows through the mean: with g_t what ares_gspo_token gives for
 *                token t and w_t its weight,
 *                d / d log_prob of every token of the row = (sum over its tokens of w_t g_t) /
 *                    tokens of the row
 *   gspo_token   the value of the sequence ratio, the gradient of the token's own log-prob: w_t g_t
 */
#ifndef ARES_ALGO_LOSS_GSPO_H
#define ARES_ALGO_LOSS_GSPO_H

#include "ppo.h"

/* row_log_ratio: mean over the row's masked tokens. */
ARES_LOSS_FN ares_token_term ares_gspo_token(double row_log_ratio, double advantage, double low,
                                             double high, double dual)
{
    return ares_ppo_token(row_log_ratio, advantage, low, high, dual);
}
#endif
