/*
 * loss_type cispo: log-probs weighted by the clipped ratio. clip_ratio_low = 1 leaves small ratios
 * alone (aepo.md 6.3).
 */
#include "cispo.h"

#include "pass.h"

static int cispo(const ares_loss_args *a)
{
    ARES_TRY(loss_check(a, "cispo"));
    double low = 1 - a->cfg->clip_ratio_low, high = 1 + a->cfg->clip_ratio_high;
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        double log_ratio = loss_log_ratio(a, t);
        ares_token_term e =
            ares_cispo_token((double)a->log_prob[t], log_ratio, (double)a->advantage[t], low, high);
        loss_add(a, t, log_ratio, &e);
    }
    return ARES_OK;
}

const ares_loss ares_loss_cispo = {
    "cispo",
    "REINFORCE weighted by the clipped ratio, which passes no gradient",
    "-A log pi sg(clip(r, 1 - low, 1 + high))",
    "arXiv 2506.13585",
    ARES_LOSS_LOCAL,
    cispo
};
