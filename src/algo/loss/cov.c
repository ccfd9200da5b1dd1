/*
 * Losses that treat tokens of large covariance of log-prob and advantage apart: clip_cov and
 * kl_cov, and how these tokens are found over all ranks.
 */
#include "entry.h"

/*
 * loss_type clip_cov (paper: loss.h): of the tokens with cov in (clip_cov_lb, clip_cov_ub) that
 * PPO's clip has not taken already, max(1, floor(clip_cov_ratio N)) are drawn at random and left
 * out of loss and gradient; the others are PPO without a dual clip. Clip fractions: clip_high
 * counts the tokens chosen (verl's pg_clipfrac), clip_low those that PPO's clip took.
 */

ARES_LOSS_FN ares_token_term clip_cov_token(const loss_token *x, const loss_settings *s)
{
    const double no_bound = (double)INFINITY;
    ares_token_term e = ares_ppo_token(x->log_ratio, x->advantage, s->low, s->high, no_bound);
    e.clip_low = e.clip_high;
    e.clip_high = x->chosen;
    if (x->chosen) {
        e.loss = e.gradient = 0;
        e.clipped = x->advantage != 0;
    }
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

/*
 * loss_type kl_cov (paper: loss.h): the max(1, floor(kl_cov_ratio N)) tokens of the largest
 * covariance carry ppo_kl_coef |log pi - log old| on top of the unclipped -A ratio. clip_high
 * counts them (verl's pg_clipfrac).
 */

ARES_LOSS_FN ares_token_term kl_cov_token(const loss_token *x, const loss_settings *s)
{
    double log_ratio = x->log_ratio;
    ares_token_term e = { 0, 0, ares_loss_exp(ares_loss_bound(log_ratio)), x->chosen, 0, 0 };
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

#ifndef LOSS_FORMULAS_ONLY /* the CPU's side: which tokens are chosen */
#include <math.h>
#include <string.h>

int loss_select(const uint64_t *key, int64_t n, int64_t k, ares_world *w, uint64_t *threshold)
{
    int64_t total = n;
    ARES_TRY(ares_world_sum_i64(w, &total, 1));
    *threshold = UINT64_MAX;
    if (total <= k) return ARES_OK;
    uint64_t prefix = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        int64_t count[256] = { 0 };
        for (int64_t i = 0; i < n; i++)
            if (shift == 56 || key[i] >> (shift + 8) == prefix) count[key[i] >> shift & 255]++;
        ARES_TRY(ares_world_sum_i64(w, count, 256));
        uint64_t digit = 0;
        while (k > count[digit]) k -= count[digit++];
        prefix = prefix << 8 | digit;
    }
    *threshold = prefix;
    return ARES_OK;
}

uint64_t loss_ordered(double x)
{
    uint64_t bits;
    x += 0.0;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

/* The random number of a token: of (key, update, draw, sample, position) alone. */
static uint64_t loss_lot(const ares_loss_args *a, int64_t row, int64_t position)
{
    const ares_sample *s = a->samples ? &a->samples[a->row + row] : NULL;
    ares_rng_key key = ares_rng_sub(a->key, a->update, s ? (uint64_t)s->draw : 0);
    return ares_rng_u64(ares_rng_sub(key, s ? (uint64_t)s->index : (uint64_t)row, 0),
                        (uint64_t)position);
}

/* Which tokens clip_cov and kl_cov single out: see loss.h. */

typedef struct means {
    double tokens, advantage, log_prob;
} means;

static double covariance(const ares_loss_args *a, const means *m, int64_t t)
{
    return ((double)a->advantage[t] - m->advantage) * ((double)a->log_prob[t] - m->log_prob);
}

/*
 * chosen [n]: nonzero on the candidates; becomes 1 on the k of smallest key over all ranks and 0
 * elsewhere. Among candidates of the k-th key the random numbers of loss_lot decide.
 */
static int choose(const ares_loss_args *a, const uint64_t *key, int64_t k, uint8_t *chosen)
{
    uint64_t *some = ares_malloc((size_t)(a->n + 1) * sizeof *some), threshold, lots;
    int64_t n = 0, sure = 0; /* sure: candidates below the k-th key, which need no lot */
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

/* How many of the tokens a ratio is: at least one. */
static int64_t share(double ratio, double tokens)
{
    double k = ratio * tokens;
    return k < 1 ? 1 : (int64_t)k;
}

/* Checks the input; m: means over the mini-batch of all ranks; *any: whether it has a token. */
static int open_choice(const ares_loss_args *a, const char *name, means *m, bool *any)
{
    *any = false;
    ARES_TRY(ares_world_share_error(a->world, loss_check(a, name)));
    double sums[3] = { 0 };
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        sums[0] += 1;
        sums[1] += (double)a->advantage[t];
        sums[2] += (double)a->log_prob[t];
    }
    ARES_TRY(ares_world_sum_f64(a->world, sums, 3));
    *m = (means){ sums[0], sums[1] / sums[0], sums[2] / sums[0] };
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
#endif
