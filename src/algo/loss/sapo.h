/*
 * Soft adaptive policy optimisation (Gao et al., arXiv 2511.20347): the clip becomes a gate that
 * falls off smoothly, -A (4 / tau) sigmoid(tau (ratio - 1)), with a tau for each sign of the
 * advantage. Its slope at ratio 1 is that of PPO.
 */
#ifndef ARES_ALGO_LOSS_SAPO_H
#define ARES_ALGO_LOSS_SAPO_H

#include "token.h"

ARES_LOSS_FN ares_token_term ares_sapo_token(double log_ratio, double advantage,
                                             double tau_positive, double tau_negative)
{
    double tau = advantage < 0 ? tau_negative : tau_positive,
           ratio = ares_loss_exp(ares_loss_bound(log_ratio));
    /* tau (ratio - 1) has no such bound, and 1 / (1 + e^-500) is 1 */
    double x = ares_loss_clamp(tau * (ratio - 1), -500, 500);
    double e_x = ares_loss_exp(x < 0 ? x : -x), gate = x < 0 ? e_x / (1 + e_x) : 1 / (1 + e_x),
           slope = e_x / ((1 + e_x) * (1 + e_x));
    ares_token_term e = { -advantage * (4 / tau) * gate, 0, ratio, 0, 0 };
    if (!ares_loss_beyond(log_ratio)) e.gradient = -advantage * 4 * slope * ratio;
    return e;
}
#endif
