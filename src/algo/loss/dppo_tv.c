/*
 * loss_type dppo_tv (paper: dppo.h): the divergence is the total variation, |pi - old|. Unset,
 * clip_ratio_dual is 3.
 */
#include "dppo.h"
#include "entry.h"

ARES_LOSS_FN ares_token_term dppo_tv_token(const loss_token *x, const loss_settings *s)
{
    double moved = ares_loss_exp(x->log_prob) - ares_loss_exp(x->log_prob - x->log_ratio);
    return dppo_term(x, s, x->advantage > 0 ? moved > s->log_high : moved < -s->log_low);
}

LOSS_OF_TOKENS(dppo_tv, .words = "dppo_tv", .clips = ARES_LOSS_CLIPS_DUAL,
               .doc = "REINFORCE weighted by the ratio, without tokens whose probability has moved "
                      "too far",
               .formula = "-A log pi sg(min(r, dual)), 0 where pi - old > high (A > 0) or "
                          "old - pi > low",
               .paper = "arXiv 2602.04879",
               .reads = "worker.actor.clip_ratio_low worker.actor.clip_ratio_high "
                        "worker.actor.clip_ratio_dual")
