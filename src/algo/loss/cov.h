/*
 * Clip-Cov and KL-Cov (Cui et al., "The entropy mechanism of reinforcement learning", arXiv
 * 2505.22617, equations 11 to 13, and verl's clip_cov and kl_cov). Both look for the tokens whose
 * share of the covariance of log-prob and advantage is large:
 *
 *   cov_t = (A_t - mean A)(log pi_t - mean log pi)      means over the masked tokens of the
 *                                         mini-batch; no gradient through them
 *
 *   clip_cov   of the tokens with cov in (clip_cov_lb, clip_cov_ub) that the clip has not taken
 *              already, max(1, floor(clip_cov_ratio N))
 *              are drawn at random and left out of loss and gradient; the others are PPO without a
 *                  dual clip
 *   kl_cov     the max(1, floor(kl_cov_ratio N)) largest carry ppo_kl_coef |log pi - log old| on
 *              top of the unclipped -A ratio
 */
#ifndef ARES_ALGO_LOSS_COV_H
#define ARES_ALGO_LOSS_COV_H

#include "token.h"

ARES_LOSS_FN double ares_cov_token(double log_prob, double log_prob_mean, double advantage,
                                   double advantage_mean)
{
    return (advantage - advantage_mean) * (log_prob - log_prob_mean);
}

/* chosen: the token is among the kl_cov_ratio largest. */
ARES_LOSS_FN ares_token_term ares_kl_cov_token(double log_ratio, double advantage, int chosen,
                                               double ppo_kl_coef)
{
    ares_token_term e = { 0, 0, ares_loss_exp(ares_loss_bound(log_ratio)), chosen, 0 };
    e.loss = -advantage * e.ratio;
    e.gradient = ares_loss_beyond(log_ratio) ? 0 : e.loss;
    if (chosen) {
        e.loss += ppo_kl_coef * (log_ratio < 0 ? -log_ratio : log_ratio);
        e.gradient += ppo_kl_coef * (double)((log_ratio > 0) - (log_ratio < 0));
    }
    return e;
}
#endif
