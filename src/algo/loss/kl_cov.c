/*
 * loss_type kl_cov (paper: cov.h): the max(1, floor(kl_cov_ratio N)) tokens of the largest
 * covariance carry ppo_kl_coef |log pi - log old| on top of the unclipped -A ratio. clip_high
 * counts them (verl's pg_clipfrac).
 */
#include "cov.h"
#include "entry.h"

ARES_LOSS_FN ares_token_term kl_cov_token(const loss_token *x, const loss_settings *s)
{
    double log_ratio = x->log_ratio;
    ares_token_term e = { 0, 0, ares_loss_exp(ares_loss_bound(log_ratio)), x->chosen, 0 };
    e.loss = -x->advantage * e.ratio;
    e.gradient = ares_loss_beyond(log_ratio) ? 0 : e.loss;
    if (x->chosen) {
        e.loss += s->ppo_kl_coef * (log_ratio < 0 ? -log_ratio : log_ratio);
        e.gradient += s->ppo_kl_coef * (double)((log_ratio > 0) - (log_ratio < 0));
    }
    return e;
}

LOSS_OF_CHOSEN(kl_cov, .words = "kl_cov", .choose = loss_choose_kl_cov,
               .doc = "the unclipped surrogate, with a KL penalty on the tokens of largest "
                      "covariance",
               .formula = "-A r, + ppo_kl_coef |log r| on the share kl_cov_ratio of the tokens "
                          "with the largest (A - mean A)(log pi - mean log pi)",
               .paper = "arXiv 2505.22617",
               .reads = "worker.actor.kl_cov_ratio worker.actor.ppo_kl_coef")
