/*
 * loss_type dro: direct reward optimisation (Richemond et al., arXiv 2405.19107, without its value
 * function, as Tinker's loss of this name; docs/update.md#dro). REINFORCE with a quadratic penalty
 * on the log of the ratio, so that every token is pulled back to the old policy and none is
 * clipped.
 */
#include "entry.h"

ARES_LOSS_FN ares_token_term dro_token(const loss_token *x, const loss_settings *s)
{
    ares_token_term e = { 0, 0, ares_loss_exp(ares_loss_bound(x->log_ratio)), 0, 0, 0 };
    e.loss = -(x->log_prob * x->advantage - 0.5 * s->dro_beta * x->log_ratio * x->log_ratio);
    e.gradient = -(x->advantage - s->dro_beta * x->log_ratio);
    return e;
}

LOSS_OF_TOKENS(dro, .words = "dro",
               .doc = "REINFORCE with a quadratic pull back to the old policy; no clip",
               .formula = "-(A log pi - dro_beta / 2 (log pi - log old)^2)",
               .paper = "arXiv 2405.19107", .reads = "worker.actor.dro_beta")
