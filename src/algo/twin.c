/*
 * Functions of this room on a device: its twin where the device is a card and has one, else the
 * CPU. After TWIN_FAULT the CPU computes too, and names the fault.
 */
#include "twin.h"

#include <string.h>

#include "adv/adv.h"
#include "loss/plain.h"
#include "stats.h"

const algo_twins *twin_table_of(const ares_device *d)
{
    typedef const algo_twins *table_fn(void);
    table_fn *table;
    *(void **)&table = ares_device_symbol(d, "ares_cuda_algo_twins");
    return table ? table() : NULL;
}

/* ---------------------------------------------------------------- calls */

static int on_cpu(const ares_loss *loss, const ares_loss_args *a, const ares_kl_args *k)
{
    ARES_TRY(loss->compute(a));
    return ares_loss_terms(a, k);
}

int twin_loss_compute(const algo_twins *twins, ares_device *d, const ares_loss *loss,
                      const ares_loss_args *a, const ares_kl_args *k)
{
    twin_loss_args t = { .loss = loss, .args = a, .kl = k };
    if (!twins || (loss->flags & ARES_LOSS_PAIRS)) return on_cpu(loss, a, k);
    uint8_t *chosen = NULL;
    if (loss->choose) { /* which crosses ranks, and has told of faults */
        bool any;
        t.chosen = chosen = ares_calloc((size_t)(a->n + 1), 1);
        int rc = loss->choose(a, chosen, &any);
        if (rc != ARES_OK || !any) {
            ares_free(chosen);
            return rc == ARES_OK ? ares_loss_terms(a, k) : rc;
        }
    }
    int rc = twins->loss(d, &t);
    ares_free(chosen);
    return rc == TWIN_FAULT ? on_cpu(loss, a, k) : rc;
}

int twin_value_loss(const algo_twins *twins, ares_device *d, const ares_value_args *a)
{
    int rc = twins ? twins->value(d, a) : TWIN_FAULT;
    return rc == TWIN_FAULT ? value_loss(a) : rc;
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

/* ---------------------------------------------------------------- of a device */

int ares_loss_compute(ares_device *d, const ares_loss *loss, const ares_loss_args *a,
                      const ares_kl_args *k)
{
    return twin_loss_compute(twin_table_of(d), d, loss, a, k);
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
