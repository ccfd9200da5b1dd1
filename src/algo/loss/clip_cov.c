/*
 * loss_type clip_cov (paper: cov.h): of the tokens with cov in (clip_cov_lb, clip_cov_ub) that
 * PPO's clip has not taken already, max(1, floor(clip_cov_ratio N)) are drawn at random and left
 * out of loss and gradient; the others are PPO without a dual clip. Clip fractions: clip_high
 * counts the tokens chosen (verl's pg_clipfrac), clip_low those that PPO's clip took.
 */
#include "cov.h"
#include "entry.h"
#include "ppo.h"

ARES_LOSS_FN ares_token_term clip_cov_token(const loss_token *x, const loss_settings *s)
{
    const double no_bound = (double)INFINITY;
    ares_token_term e = ares_ppo_token(x->log_ratio, x->advantage, s->low, s->high, no_bound);
    e.clip_low = e.clip_high;
    e.clip_high = x->chosen;
    if (x->chosen) e.loss = e.gradient = 0;
    return e;
}

LOSS_OF_CHOSEN(clip_cov, .words = "clip_cov", .choose = loss_choose_clip_cov,
               .doc = "PPO less a random few of the tokens with a large covariance of log-prob and "
                      "advantage",
               .formula = "max(-A r, -A clip(r, 1 - low, 1 + high)), but 0 on a share "
                          "clip_cov_ratio of the tokens, drawn where lb < (A - mean A)(log pi - "
                          "mean log pi) < ub",
               .paper = "arXiv 2505.22617",
               .reads = "worker.actor.clip_ratio_low worker.actor.clip_ratio_high "
                        "worker.actor.clip_cov_ratio worker.actor.clip_cov_lb "
                        "worker.actor.clip_cov_ub")
