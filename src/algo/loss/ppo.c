/*
 * loss_type default and dapo: PPO with low, high and dual clip (aepo.md 6.3, dapo.md 3). They
 * differ in whether the dual clip acts when nobody asks for it.
 */
#include "ppo.h"

#include <math.h>

#include "pass.h"

static int ppo(const ares_loss_args *a, const char *name, double dual)
{
    ARES_TRY(loss_check(a, name));
    double low = 1 - a->cfg->clip_ratio_low, high = 1 + a->cfg->clip_ratio_high;
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        double log_ratio = loss_log_ratio(a, t);
        ares_token_term e = ares_ppo_token(log_ratio, (double)a->advantage[t], low, high, dual);
        loss_add(a, t, log_ratio, &e);
    }
    return ARES_OK;
}

static int with_dual(const ares_loss_args *a)
{
    return ppo(a, "default", loss_dual(a->cfg, 3));
}
static int without_dual(const ares_loss_args *a)
{
    return ppo(a, "dapo", loss_dual(a->cfg, INFINITY));
}

const ares_loss ares_loss_default = {
    "default",
    "PPO: clipped surrogate with low, high and dual clip",
    "max(-A r, -A clip(r, 1 - low, 1 + high)), at most -A dual where A < 0",
    "arXiv 1707.06347, 1912.09729",
    ARES_LOSS_LOCAL | ARES_LOSS_CLIPS | ARES_LOSS_DUAL,
    with_dual
};
const ares_loss ares_loss_dapo = { "dapo",
                                   "PPO with separate clips, no dual clip unless clip_ratio_dual "
                                   "is set; often with early_stop_imp_ratio",
                                   "max(-A r, -A clip(r, 1 - low, 1 + high))",
                                   "arXiv 2503.14476",
                                   ARES_LOSS_LOCAL | ARES_LOSS_CLIPS,
                                   without_dual };
