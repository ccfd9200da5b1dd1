/* DPPO, which leaves out tokens by the divergence of the policies: dppo_kl and dppo_tv. */
#include "entry.h"
#include "formula.h"

/*
 * loss_type dppo_kl (paper: formula.h): the divergence is the KL of the two outcomes, old of the
 * token and 1 - old of all others, to those of this policy. Unset, clip_ratio_dual is 3.
 */

ARES_LOSS_FN ares_token_term dppo_kl_token(const loss_token *x, const loss_settings *s)
{
    const double tiny = 1e-8; /* verl: for a probability of 1 */
    double new_prob = ares_loss_exp(x->log_prob),
           old_prob = ares_loss_exp(x->log_prob - x->log_ratio),
           others = ares_loss_log((1 - old_prob + tiny) / (1 - new_prob + tiny)),
           kl = (1 - old_prob) * others - old_prob * x->log_ratio;
    int beyond = x->advantage > 0 ? kl > s->log_high && new_prob > old_prob
                                  : kl > s->log_low && new_prob < old_prob;
    return dppo_term(x, s, beyond);
}

LOSS_OF_TOKENS(dppo_kl, .words = "dppo_kl", .clips = ARES_LOSS_CLIPS_DUAL,
               .doc = "the same, by the KL of the token against all others",
               .formula = "-A log pi sg(min(r, dual)), 0 where KL(old, pi) of the token and the "
                          "rest > high (A > 0, pi > old) or > low (pi < old)",
               .paper = "arXiv 2602.04879",
               .reads = "worker.actor.clip_ratio_low worker.actor.clip_ratio_high "
                        "worker.actor.clip_ratio_dual")

/*
 * loss_type dppo_tv (paper: formula.h): the divergence is the total variation, |pi - old|. Unset,
 * clip_ratio_dual is 3.
 */

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
