/* loss_type gspo and gspo_token: PPO's clip on the ratio of the whole row (aepo.md 6.3). */
#include "gspo.h"

#include "pass.h"

static int gspo(const ares_loss_args *a, const char *name, bool by_token)
{
    ARES_TRY(loss_check(a, name));
    double low = 1 - a->cfg->clip_ratio_low, high = 1 + a->cfg->clip_ratio_high,
           dual = loss_dual(a->cfg, 3);
    for (int64_t r = 0; r < loss_rows(a); r++) {
        int64_t from = loss_row(a, r), to = loss_row(a, r + 1);
        double sum = 0, n = 0, gradient = 0;
        for (int64_t t = from; t < to; t++) {
            if (!a->mask[t]) continue;
            sum += loss_log_ratio(a, t);
            n++;
        }
        for (int64_t t = from; t < to; t++) {
            if (!a->mask[t]) continue;
            double log_ratio = loss_log_ratio(a, t), w = loss_weight(a, t);
            ares_token_term e = ares_gspo_token(sum / n, (double)a->advantage[t], low, high, dual);
            loss_see(a, log_ratio, ares_loss_exp(ares_loss_bound(log_ratio)), &e, w);
            gradient += w * e.gradient;
            if (by_token) a->d_log_prob[t] += (float)(w * e.gradient);
        }
        for (int64_t t = from; !by_token && t < to; t++)
            if (a->mask[t]) a->d_log_prob[t] += (float)(gradient / n);
    }
    return ARES_OK;
}

static int whole(const ares_loss_args *a)
{
    return gspo(a, "gspo", false);
}
static int each(const ares_loss_args *a)
{
    return gspo(a, "gspo_token", true);
}

const ares_loss ares_loss_gspo = {
    "gspo",
    "PPO's clip on the length-normalised ratio of the row",
    "that of default, with r = exp(mean over the row of log pi - log old)",
    "arXiv 2507.18071",
    ARES_LOSS_ROWS | ARES_LOSS_CLIPS | ARES_LOSS_DUAL,
    whole
};
const ares_loss ares_loss_gspo_token = {
    "gspo_token",
    "the row's ratio, the gradient of each token by itself",
    "that of default, with r = sg(exp(mean over the row of log pi - log old)) pi / sg(pi)",
    "arXiv 2507.18071",
    ARES_LOSS_ROWS | ARES_LOSS_CLIPS | ARES_LOSS_DUAL,
    each
};
