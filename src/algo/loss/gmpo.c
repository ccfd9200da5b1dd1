/*
 * loss_type gmpo: geometric-mean policy optimisation (Zhao et al., arXiv 2507.20673, equation 4,
 * and verl's geo_mean). A row's ratio is the geometric mean of token ratios clipped in log space,
 * e^m with m the mean over the row of
 *
 *   c_t = sign(A) min(sign(A) x_t, sign(A) clamp(x_t, -low, high)),   x_t = log pi - log old
 *
 * its loss -A e^m with A the row's mean advantage. low and high are clip_ratio_low and _high, which
 * bound logs here (the paper's 0.4), not ratios. A row weighs what its tokens weigh together:
 * 1 / rows with loss_avg_mode seq-mean-token-mean, as in the paper. The sampler's corrections enter
 * as their geometric mean over the row, as in verl.
 */
#include "entry.h"

typedef struct gmpo_term {
    double log_ratio; /* c_t */
    int passes;       /* whether the token's gradient goes through its c_t */
    /* x_t lies beyond the bounds, at a positive and at a negative advantage (verl's fractions) */
    int clip_high, clip_low;
} gmpo_term;

ARES_LOSS_FN gmpo_term gmpo_clip(double log_ratio, double advantage, double low, double high)
{
    double clamped = ares_loss_clamp(log_ratio, -low, high);
    int better = advantage > 0 ? clamped < log_ratio : advantage < 0 && clamped > log_ratio;
    gmpo_term e = { better ? clamped : log_ratio, !better && advantage != 0,
                    clamped != log_ratio && advantage > 0, clamped != log_ratio && advantage < 0 };
    if (advantage == 0) e.log_ratio = 0; /* sign(0) = 0 */
    return e;
}

/*
 * The row: gradient is by the mean m; a token's own is gradient / tokens of the row where it
 * passes.
 */
ARES_LOSS_FN ares_token_term gmpo_mean(double mean, double advantage)
{
    ares_token_term e = { 0, 0, ares_loss_exp(ares_loss_bound(mean)), 0, 0, 0 };
    e.loss = -advantage * e.ratio;
    e.gradient = ares_loss_beyond(mean) ? 0 : e.loss;
    return e;
}

ARES_LOSS_FN void gmpo_gather(loss_row *r, const loss_token *x, const loss_settings *s)
{
    r->log_ratio += gmpo_clip(x->log_ratio, x->advantage, s->log_low, s->log_high).log_ratio;
    r->advantage += x->advantage;
    r->weight += x->weight;
    if (s->corrected)
        r->log_correction += ares_loss_log(x->correction > 1e-10 ? x->correction : 1e-10);
}
ARES_LOSS_FN void gmpo_row(loss_row *r, const loss_settings *s)
{
    r->term = gmpo_mean(r->log_ratio / r->tokens, r->advantage / r->tokens);
    if (s->corrected) r->weight *= ares_loss_exp(r->log_correction / r->tokens);
}
ARES_LOSS_FN loss_row_token gmpo_row_token(const loss_row *r, const loss_token *x,
                                           const loss_settings *s)
{
    gmpo_term token = gmpo_clip(x->log_ratio, x->advantage, s->log_low, s->log_high);
    loss_row_token e = { { r->term.loss, 0, r->term.ratio, token.clip_high, token.clip_low,
                           !token.passes && x->advantage != 0 },
                         r->weight / r->tokens,
                         token.passes ? r->weight * r->term.gradient / r->tokens : 0,
                         ares_loss_exp(ares_loss_bound(x->log_ratio)) };
    return e;
}

LOSS_OF_ROWS(gmpo, LOSS_DERIVATIVE_OF_TOKEN, .words = "gmpo=geo_mean",
             .doc = "the geometric mean of token ratios clipped in log space",
             .formula = "-mean(A) exp(mean over the row of sign(A) min(sign(A) log r, sign(A) "
                        "clip(log r, -low, high)))",
             .paper = "arXiv 2507.20673",
             .reads = "worker.actor.clip_ratio_low worker.actor.clip_ratio_high")
