/* Which tokens clip_cov and kl_cov single out: see cov.h. */
#include "cov.h"

#include <math.h>

#include "ppo.h"
#include "select.h"
#include "walk.h"

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
    return ((double)a->advantage[t] - m->advantage) * ((double)a->log_prob[t] - m->log_prob);
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
        for (int64_t from = loss_row_start(a, r), t = from; t < loss_row_start(a, r + 1); t++)
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

/* Means of the mini-batch; *any: whether there is a token on any rank. Checks the input. */
static int open_choice(const ares_loss_args *a, const char *name, means *m, bool *any)
{
    *any = false;
    ARES_TRY(ares_world_agree(a->world, loss_check(a, name)));
    ARES_TRY(means_of(a, m));
    *any = m->tokens > 0;
    return ARES_OK;
}

int loss_choose_clip_cov(const ares_loss_args *a, uint8_t *chosen, bool *any)
{
    const ares_loss_config *cfg = a->cfg;
    double low = 1 - cfg->clip_ratio_low, high = 1 + cfg->clip_ratio_high;
    means m;
    ARES_TRY(open_choice(a, "clip_cov", &m, any));
    if (!*any) return ARES_OK;
    uint64_t *key = ares_calloc((size_t)(a->n + 1), sizeof *key);
    for (int64_t r = 0; r < loss_rows(a); r++)
        for (int64_t from = loss_row_start(a, r), t = from; t < loss_row_start(a, r + 1); t++) {
            if (!a->mask[t]) continue;
            double cov = covariance(a, &m, t);
            bool between = cov > cfg->clip_cov_lb && cov < cfg->clip_cov_ub;
            chosen[t] = between && !ares_ppo_token(loss_log_ratio(a, t), (double)a->advantage[t],
                                                   low, high, HUGE_VAL)
                                        .clip_high;
            key[t] = loss_lot(a, r, t - from);
        }
    int rc = choose(a, key, share(cfg->clip_cov_ratio, m.tokens), chosen);
    ares_free(key);
    return rc;
}

int loss_choose_kl_cov(const ares_loss_args *a, uint8_t *chosen, bool *any)
{
    means m;
    ARES_TRY(open_choice(a, "kl_cov", &m, any));
    if (!*any || !(a->cfg->kl_cov_ratio > 0)) return ARES_OK;
    uint64_t *key = ares_calloc((size_t)(a->n + 1), sizeof *key);
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        chosen[t] = 1;
        key[t] = ~loss_ordered(covariance(a, &m, t)); /* the largest first */
    }
    int rc = choose(a, key, share(a->cfg->kl_cov_ratio, m.tokens), chosen);
    ares_free(key);
    return rc;
}
