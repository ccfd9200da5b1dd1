/*
 * loss_type cispo (MiniMax-M1, arXiv 2506.13585, equation 4; docs/update.md#cispo): REINFORCE
 * weighted by the clipped ratio, which passes no gradient, so that no token is left out of it.
 * clip_ratio_low = 1 is no lower bound.
 */
#include "entry.h"

ARES_LOSS_FN ares_token_term cispo_token(const loss_token *x, const loss_settings *s)
{
    double ratio = ares_loss_exp(ares_loss_bound(x->log_ratio)),
           weight = ares_loss_clamp(ratio, s->low, s->high);
    ares_token_term e = {
        0, 0, ratio, ratio > s->high, ratio < s->low, weight != ratio && x->advantage != 0
    };
    e.gradient = -x->advantage * weight;
    e.loss = e.gradient * x->log_prob;
    return e;
}

LOSS_OF_TOKENS(cispo, .words = "cispo",
               .doc = "REINFORCE weighted by the clipped ratio, which passes no gradient",
               .formula = "-A log pi sg(clip(r, 1 - low, 1 + high))", .paper = "arXiv 2506.13585",
               .reads = "worker.actor.clip_ratio_low worker.actor.clip_ratio_high")
