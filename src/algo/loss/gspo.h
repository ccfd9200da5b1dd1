/*
 * Group sequence policy optimisation (Zheng et al., arXiv 2507.18071): PPO's clip on the sequence
 * ratio s = exp(mean over the row of log pi - log old). gspo.c and gspo_token.c differ in where the
 * gradient goes.
 */
#ifndef ARES_ALGO_LOSS_GSPO_H
#define ARES_ALGO_LOSS_GSPO_H

#include "ppo.h"

ARES_LOSS_FN void ares_gspo_gather(loss_row *r, const loss_token *x)
{
    r->log_ratio += x->log_ratio;
}
ARES_LOSS_FN void ares_gspo_row(loss_row *r)
{
    r->mean_log_ratio = r->log_ratio / r->tokens;
}
ARES_LOSS_FN loss_row_token ares_gspo_token(const loss_row *r, const loss_token *x,
                                            const loss_settings *s)
{
    loss_row_token e;
    e.term = ares_ppo_token(r->mean_log_ratio, x->advantage, s->low, s->high, s->dual);
    e.weight = x->weight * x->correction;
    e.derivative = e.weight * e.term.gradient;
    return e;
}
#endif
