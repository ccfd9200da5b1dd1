/*
 * Functions of this room on a device: its twin where the device is a card and has one, else the
 * CPU. After a fault the CPU computes too, and names it.
 */
#include "twin.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "adv/adv.h"
#include "loss/loss.h"
#include "stats.h"

const algo_twins *twin_table_of(const ares_device *d)
{
    typedef const algo_twins *table_fn(void);
    table_fn *table;
    *(void **)&table = ares_device_symbol(d, "ares_cuda_algo_twins");
    return table ? table() : NULL;
}

/* ---------------------------------------------------------------- calls */

int twin_loss_compute(const algo_twins *twins, ares_device *d, const ares_loss *loss,
                      const ares_loss_args *a, const ares_kl_args *k)
{
    if (twins) return twins->loss(d, &(twin_loss_args){ .loss = loss, .args = a, .kl = k });
    ARES_TRY(loss->compute(a));
    return loss_terms(a, k);
}

int twin_loss_terms(const algo_twins *twins, ares_device *d, const ares_loss_args *a,
                    const ares_kl_args *k)
{
    if (twins) return twins->loss(d, &(twin_loss_args){ .args = a, .kl = k });
    return loss_terms(a, k);
}

int twin_value_loss(const algo_twins *twins, ares_device *d, const ares_value_args *a)
{
    return twins ? twins->value(d, a) : value_loss(a);
}

/* Row starts from 0. */
static twin_rows rows_from(const ares_batch *b, int64_t row, int64_t end, int64_t *start)
{
    for (int64_t r = row; r <= end; r++) start[r - row] = b->row_start[r] - b->row_start[row];
    return (twin_rows){ .rows = end - row, .row_start = start };
}

int twin_rollout_weights(const algo_twins *twins, ares_device *d, const ares_loss_config *cfg,
                         const ares_batch *b, int64_t row, int64_t end, float *weight,
                         ares_loss_sums *sums)
{
    if (!twins || strcmp(cfg->rollout_is, "none") == 0 || !b->rollout_log_probs)
        return rollout_weights(cfg, b, row, end, weight, sums);
    int64_t first = b->row_start[row],
            *start = ares_malloc((size_t)(end - row + 1) * sizeof *start);
    twin_rollout_weights_args t = { .cfg = cfg,
                                    .of = rows_from(b, row, end, start),
                                    .log_prob = b->old_log_probs + first,
                                    .rollout_log_prob = b->rollout_log_probs + first,
                                    .mask = b->response_mask + first,
                                    .weight = weight,
                                    .sums = sums };
    int rc = twins->rollout_weights(d, &t);
    ares_free(start);
    return rc == TWIN_FAULT ? rollout_weights(cfg, b, row, end, weight, sums) : rc;
}

int twin_kl_column(const algo_twins *twins, ares_device *d, const ares_kl *kl, ares_batch *b)
{
    if (!twins || !kl->value || !b->old_log_probs || !b->ref_log_probs || b->kl)
        return kl_column(kl, b);
    float *out = ares_malloc((size_t)(b->tokens + 1) * sizeof *out);
    int rc = twins->kl(d, kl, b->tokens, b->old_log_probs, b->ref_log_probs, b->response_mask, out);
    if (rc == TWIN_FAULT) rc = kl_column(kl, b);
    else if (rc == ARES_OK) {
        ARES_PUT(b, kl);
        memcpy(b->kl, out, (size_t)b->tokens * sizeof *out);
    }
    ares_free(out);
    return rc;
}

int twin_adv_compute(const algo_twins *twins, ares_device *d, const ares_adv *adv,
                     const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    bool bi_level = ares_adv_sees_turns(adv, cfg);
    if (!twins || (adv != &ares_adv_gae && !bi_level)) return adv->compute(cfg, world, b);
    adv_estimate p;
    const uint8_t *ends = NULL;
    ARES_TRY(adv_open(&p, adv, cfg, world, b));
    if (bi_level) ARES_TRY(adv_turn_ends(&p, &ends));
    twin_gae_args t = { .of = { b->rows, b->row_start },
                        .rewards = b->token_level_rewards,
                        .values = b->values,
                        .mask = b->response_mask,
                        .turn_ends = ends,
                        .gamma = cfg->gamma,
                        .lam = cfg->lam,
                        .high_level_gamma = cfg->high_level_gamma,
                        .advantages = p.token,
                        .returns = p.returned };
    ARES_TRY(twins->gae(d, &t));
    ARES_TRY(stats_masked_whiten(world, p.token, b->response_mask, b->tokens));
    return adv_close(&p);
}

int twin_windows(const algo_twins *twins, ares_device *d, const twin_windows_args *t)
{
    if (twins) return twins->windows(d, t);
    const int64_t *start = t->of.row_start;
    int64_t longest = 0;
    for (int64_t r = 0; r < t->of.rows; r++) longest = ARES_MAX(longest, start[r + 1] - start[r]);
    double *h = ares_malloc((size_t)(2 * longest + 1) * sizeof *h), *window = h + longest;
    for (int64_t r = 0; r < t->of.rows; r++) {
        int64_t from = start[r], n = start[r + 1] - from;
        for (int64_t i = 0; i < n; i++) h[i] = (double)t->entropy[from + i];
        if (t->threshold) t->threshold[r] = entropy_sample_threshold(h, n, t->w, t->q);
        if (!t->window && !t->mask && !t->hwe) continue;
        int64_t windows = entropy_windows(h, n, t->w, window);
        hwe_marked hwe =
            hwe_mark(window, windows, n, t->tau, t->candidates ? t->candidates + from : NULL,
                     t->mask ? t->mask + from : NULL);
        if (t->hwe) t->hwe[r] = hwe;
        for (int64_t i = 0; i < n && t->window; i++)
            t->window[from + i] = i < windows ? window[i] : 0;
    }
    ares_free(h);
    return ARES_OK;
}

/* ---------------------------------------------------------------- a card's sums */

void ares_card_sums_init(ares_card_sums *s)
{
    static_assert(SUM_WIDTH <= ARES_COUNT(s->sum), "ares_card_sums has room for every sum");
    *s = (ares_card_sums){ .fault = UINT64_MAX };
    s->sum[SUM_MIN] = INFINITY;
    s->sum[SUM_MAX] = -INFINITY;
}

void ares_card_sums_add(const ares_card_sums *s, ares_loss_sums *to)
{
#define ADD(name) to->name += s->sum[SUM_##name];
    TWIN_LOSS_SUMS(ADD)
#undef ADD
    to->ratio_min = ARES_MIN(to->ratio_min, s->sum[SUM_MIN]);
    to->ratio_max = ARES_MAX(to->ratio_max, s->sum[SUM_MAX]);
    for (int i = 0; i < ARES_LOSS_BINS; i++) to->bins[i] += (double)s->bins[i];
}

void ares_card_value_sums_add(const ares_card_sums *s, ares_value_sums *to)
{
    int i = 0;
#define ADD(name) to->name += s->sum[i++];
    TWIN_VALUE_SUMS(ADD)
#undef ADD
}

/* Found by the card, but not by the CPU, whose exponentials differ in their last bit. */
static int unnamed(const char *what)
{
    return ares_fail(ARES_ENUMERIC, "loss: %s: the device met a number that is not finite", what);
}

int ares_loss_fault(const ares_loss *loss, const ares_loss_args *host, const ares_kl_args *k)
{
    ares_loss_args a = *host;
    ares_loss_sums sums;
    ares_kl_args kl = k ? *k : (ares_kl_args){ 0 };
    float *d = ares_calloc((size_t)a.n + 1, sizeof *d);
    ares_loss_sums_init(&sums);
    a.sums = &sums, a.d_log_prob = d, a.d_entropy = NULL;
    kl.out = kl.d_full = NULL;
    int rc = loss ? loss_check(&a, loss->name) : ARES_OK;
    if (rc == ARES_OK) rc = loss_terms(&a, k ? &kl : NULL);
    ares_free(d);
    return rc == ARES_OK ? unnamed(loss ? loss->name : "terms") : rc;
}

int ares_value_fault(const ares_value_args *host)
{
    ares_value_args a = *host;
    ares_value_sums sums = { 0 };
    float *d = ares_calloc((size_t)a.n + 1, sizeof *d);
    a.sums = &sums, a.d_value = d;
    int rc = value_loss(&a);
    ares_free(d);
    return rc == ARES_OK ? unnamed("value") : rc;
}

/* ---------------------------------------------------------------- of a device */

int ares_loss_compute(ares_device *d, const ares_loss *loss, const ares_loss_args *a,
                      const ares_kl_args *k)
{
    return twin_loss_compute(twin_table_of(d), d, loss, a, k);
}
int ares_loss_terms(ares_device *d, const ares_loss_args *a, const ares_kl_args *k)
{
    return twin_loss_terms(twin_table_of(d), d, a, k);
}
int ares_value_loss_on(ares_device *d, const ares_value_args *a)
{
    return twin_value_loss(twin_table_of(d), d, a);
}
int ares_rollout_weights_on(ares_device *d, const ares_loss_config *cfg, const ares_batch *b,
                            int64_t row, int64_t end, float *weight, ares_loss_sums *sums)
{
    return twin_rollout_weights(twin_table_of(d), d, cfg, b, row, end, weight, sums);
}
int ares_kl_column_on(ares_device *d, const ares_kl *kl, ares_batch *b)
{
    return twin_kl_column(twin_table_of(d), d, kl, b);
}
int ares_adv_compute(ares_device *d, const ares_adv *adv, const ares_algorithm_config *cfg,
                     ares_world *world, ares_batch *b)
{
    return twin_adv_compute(twin_table_of(d), d, adv, cfg, world, b);
}
