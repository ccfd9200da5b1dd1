/*
 * loss_type clip_cov and kl_cov (formulas and papers: cov.h). verl takes means, shares and
 * selections of a micro-batch; here they are of the mini-batch over all ranks, so that no
 * micro-batch size changes them, and the lots that clip_cov draws belong to the tokens. Clip
 * fractions: clip_high counts the tokens chosen (verl's pg_clipfrac), clip_low those that PPO's
 * clip took.
 */
#include "cov.h"

#include <math.h>

#include "ppo.h"
#include "select.h"

typedef struct means {
    double tokens, advantage, log_prob;
} means;

static int means_of(const ares_loss_args *a, means *m)
{
    double sums[3] = { 0 };
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        sums[0] += 1;
        sums[1] += (double)a->advantage[t];
        sums[2] += (double)a->log_prob[t];
    }
    ARES_TRY(ares_world_sum_f64(a->world, sums, 3));
    *m = (means){ sums[0], sums[1] / sums[0], sums[2] / sums[0] };
    return ARES_OK;
}
static double covariance(const ares_loss_args *a, const means *m, int64_t t)
{
    return ares_cov_token((double)a->log_prob[t], m->log_prob, (double)a->advantage[t],
                          m->advantage);
}

/* chosen[t] = 1 on the k candidates (chosen[t] != 0) of smallest key, ties by lot. */
static int choose(const ares_loss_args *a, const uint64_t *key, int64_t k, uint8_t *chosen)
{
    uint64_t *some = ares_malloc((size_t)(a->n + 1) * sizeof *some), threshold, lots;
    int64_t n = 0, sure = 0;
    for (int64_t t = 0; t < a->n; t++)
        if (chosen[t]) some[n++] = key[t];
    int rc = loss_select(some, n, k, a->world, &threshold);
    for (int64_t i = 0; i < n; i++) sure += some[i] < threshold;
    n = 0;
    for (int64_t r = 0; r < loss_rows(a); r++)
        for (int64_t from = loss_row(a, r), t = from; t < loss_row(a, r + 1); t++)
            if (chosen[t] && key[t] == threshold) some[n++] = loss_lot(a, r, t - from);
    if (rc == ARES_OK) rc = ares_world_sum_i64(a->world, &sure, 1);
    if (rc == ARES_OK) rc = loss_select(some, n, ARES_MAX(k - sure, 1), a->world, &lots);
    n = 0;
    for (int64_t t = 0; t < a->n && rc == ARES_OK; t++)
        if (chosen[t]) chosen[t] = key[t] < threshold || (key[t] == threshold && some[n++] <= lots);
    ares_free(some);
    return rc;
}

static int64_t share(double ratio, double tokens)
{
    double k = ratio * tokens;
    return k < 1 ? 1 : (int64_t)k;
}

static int clip_cov_chosen(const ares_loss_args *a, const means *m, uint64_t *key, uint8_t *chosen)
{
    double low = 1 - a->cfg->clip_ratio_low, high = 1 + a->cfg->clip_ratio_high;
    for (int64_t r = 0; r < loss_rows(a); r++)
        for (int64_t from = loss_row(a, r), t = from; t < loss_row(a, r + 1); t++) {
            if (!a->mask[t]) continue;
            double cov = covariance(a, m, t);
            bool between = cov > a->cfg->clip_cov_lb && cov < a->cfg->clip_cov_ub;
            chosen[t] = between && !ares_ppo_token(loss_log_ratio(a, t), (double)a->advantage[t],
                                                   low, high, HUGE_VAL)
                                        .clip_high;
            key[t] = loss_lot(a, r, t - from);
        }
    return choose(a, key, share(a->cfg->clip_cov_ratio, m->tokens), chosen);
}

static int kl_cov_chosen(const ares_loss_args *a, const means *m, uint64_t *key, uint8_t *chosen)
{
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        chosen[t] = 1;
        key[t] = ~loss_ordered(covariance(a, m, t)); /* the largest first */
    }
    return choose(a, key, share(a->cfg->kl_cov_ratio, m->tokens), chosen);
}

int loss_cov_choose(const ares_loss_args *a, bool by_kl, uint8_t *chosen, bool *any)
{
    means m;
    *any = false;
    int rc = ares_world_agree(a->world, loss_check(a, by_kl ? "kl_cov" : "clip_cov"));
    if (rc != ARES_OK) return rc;
    ARES_TRY(means_of(a, &m));
    *any = m.tokens > 0;
    if (!*any || (by_kl && !(a->cfg->kl_cov_ratio > 0))) return ARES_OK;
    uint64_t *key = ares_calloc((size_t)(a->n + 1), sizeof *key);
    rc = by_kl ? kl_cov_chosen(a, &m, key, chosen) : clip_cov_chosen(a, &m, key, chosen);
    ares_free(key);
    return rc;
}

static int cov(const ares_loss_args *a, bool by_kl)
{
    double low = 1 - a->cfg->clip_ratio_low, high = 1 + a->cfg->clip_ratio_high;
    uint8_t *chosen = ares_calloc((size_t)(a->n + 1), 1);
    bool any;
    int rc = loss_cov_choose(a, by_kl, chosen, &any);
    for (int64_t t = 0; t < a->n && rc == ARES_OK && any; t++) {
        if (!a->mask[t]) continue;
        double log_ratio = loss_log_ratio(a, t), advantage = (double)a->advantage[t];
        ares_token_term e =
            by_kl ? ares_kl_cov_token(log_ratio, advantage, chosen[t], a->cfg->ppo_kl_coef)
                  : ares_ppo_token(log_ratio, advantage, low, high, HUGE_VAL);
        if (!by_kl) {
            e.clip_low = e.clip_high;
            e.clip_high = chosen[t];
            if (chosen[t]) e.loss = e.gradient = 0;
        }
        loss_add(a, t, log_ratio, &e);
    }
    ares_free(chosen);
    return rc;
}

static int clip_cov(const ares_loss_args *a)
{
    return cov(a, false);
}
static int kl_cov(const ares_loss_args *a)
{
    return cov(a, true);
}

const ares_loss ares_loss_clip_cov = {
    "clip_cov",
    "PPO less a random few of the tokens with a large covariance of log-prob and advantage",
    "max(-A r, -A clip(r, 1 - low, 1 + high)), but 0 on a share clip_cov_ratio of the tokens, "
    "drawn where lb < (A - mean A)(log pi - mean log pi) < ub",
    "arXiv 2505.22617",
    ARES_LOSS_BATCH,
    clip_cov
};
const ares_loss ares_loss_kl_cov = {
    "kl_cov",
    "the unclipped surrogate, with a KL penalty on the tokens of largest covariance",
    "-A r, + ppo_kl_coef |log r| on the share kl_cov_ratio of the tokens with the largest (A - "
    "mean A)(log pi - mean log pi)",
    "arXiv 2505.22617",
    ARES_LOSS_BATCH,
    kl_cov
};
