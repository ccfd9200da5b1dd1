/*
 * What dppo_tv and dppo_kl have in common (Qi et al., arXiv 2602.04879; docs/update.md#dppo): the
 * bound is not on the ratio but on a divergence between the old policy and this one, of which the
 * token is one outcome and all others are the other. A token that the update has moved beyond it,
 * in the direction of its advantage, is left out. The others weigh their ratio, at most
 * clip_ratio_dual, which passes no gradient.
 */
#ifndef ARES_ALGO_LOSS_DPPO_H
#define ARES_ALGO_LOSS_DPPO_H

#include "formula.h"

/* beyond: the divergence lies beyond clip_ratio_high (A > 0) or clip_ratio_low. */
ARES_LOSS_FN ares_token_term dppo_term(const loss_token *x, const loss_settings *s, int beyond)
{
    double ratio = ares_loss_exp(ares_loss_bound(x->log_ratio));
    ares_token_term e = { 0, 0, ratio, beyond, !beyond && ratio > s->dual };
    if (beyond) return e;
    e.gradient = -x->advantage * (ratio > s->dual ? s->dual : ratio);
    e.loss = e.gradient * x->log_prob;
    return e;
}
#endif
