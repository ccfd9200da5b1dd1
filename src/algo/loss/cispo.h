/*
 * CISPO (MiniMax-M1, arXiv 2506.13585, equation 4): REINFORCE weighted by the clipped ratio, which
 * passes no gradient, so that no token is left out of it: -A log pi sg(clip(ratio)).
 */
#ifndef ARES_ALGO_LOSS_CISPO_H
#define ARES_ALGO_LOSS_CISPO_H

#include "token.h"

/* low 0 (clip_ratio_low 1) is no lower bound. */
ARES_LOSS_FN ares_token_term ares_cispo_token(double log_prob, double log_ratio, double advantage,
                                              double low, double high)
{
    double ratio = ares_loss_exp(ares_loss_bound(log_ratio)),
           weight = ares_loss_clamp(ratio, low, high);
    ares_token_term e = { 0, 0, ratio, ratio > high, ratio < low };
    e.gradient = -advantage * weight;
    e.loss = e.gradient * log_prob;
    return e;
}
#endif
