/*
 * Advantages as scripts/golden/algo.py has them from plain formulas, rollout correction and the
 * optimal token baseline as scripts/golden/correction.py has them.
 */
#include "golden.h"

#include <math.h>
#include <string.h>

#include "ares/algo.h"
#include "ares/algo_loss.h"

static void put_f32(golden *g, const ares_batch *b, const char *key, float *column)
{
    int64_t n;
    const double *x = golden_flat(g, golden_in(g, key), &n);
    if (n != b->tokens)
        golden_fail(g, "%s has %lld numbers for %lld tokens", key, (long long)n,
                    (long long)b->tokens);
    else
        for (int64_t t = 0; t < n; t++) column[t] = (float)x[t];
}

static void put_u8(golden *g, const ares_batch *b, const char *key, uint8_t *column)
{
    int64_t n;
    const double *x = golden_flat(g, golden_in(g, key), &n);
    for (int64_t t = 0; t < ARES_MIN(n, b->tokens); t++) column[t] = x[t] != 0;
}

static void check_column(golden *g, const ares_batch *b, const char *key, const float *column)
{
    const ares_json *want = ares_json_get(g->expected, key);
    double *got = ares_arena_alloc(g->arena, (size_t)(b->tokens + 1) * sizeof *got);
    if (!want) return;
    for (int64_t t = 0; t < b->tokens; t++) got[t] = (double)column[t];
    golden_numbers(g, key, got, b->tokens, want);
}

GOLDEN(algo, advantage)
{
    const ares_json *groups = golden_in(g, "groups"), *mask = golden_in(g, "mask"),
                    *baselines = ares_json_get(g->inputs, "baselines");
    const ares_adv *adv = ares_adv_find(golden_z(g, "estimator"));
    ares_algorithm_config cfg = { .norm_adv_by_std_in_grpo =
                                      golden_number_or(g, "norm_adv_by_std_in_grpo", 1) != 0,
                                  .gamma = golden_number_or(g, "gamma", 1),
                                  .lam = golden_number_or(g, "lam", 1),
                                  .high_level_gamma = golden_number_or(g, "high_level_gamma", 1) };
    ares_batch b;
    ares_batch_init(&b);
    for (int64_t i = 0, row = 0; i < groups->count; i++) {
        ares_batch_begin_group(&b);
        for (int64_t k = 0; k < groups->items[i].integer; k++, row++)
            ares_batch_add_row(
                &b,
                &(ares_sample){ .draw = i,
                                .index = (int32_t)k,
                                .baseline =
                                    baselines ? (float)golden_value(&baselines->items[row]) : 0 },
                mask->items[row].count);
    }
    ARES_PUT(&b, response_mask);
    ARES_PUT(&b, token_level_rewards);
    put_u8(g, &b, "mask", b.response_mask);
    put_f32(g, &b, "rewards", b.token_level_rewards);
    if (ares_json_get(g->inputs, "values")) {
        ARES_PUT(&b, values);
        put_f32(g, &b, "values", b.values);
    }
    if (ares_json_get(g->inputs, "turn_ends")) {
        ARES_PUT(&b, turn_ends);
        put_u8(g, &b, "turn_ends", b.turn_ends);
    }
    if (ares_json_get(g->inputs, "sum_pi_squared")) {
        ARES_PUT(&b, old_log_probs);
        ARES_PUT(&b, sum_pi_squared);
        put_f32(g, &b, "old_log_probs", b.old_log_probs);
        put_f32(g, &b, "sum_pi_squared", b.sum_pi_squared);
    }
    if (ares_json_get(g->inputs, "rollout_is_weights")) {
        ARES_PUT(&b, rollout_is_weights);
        put_f32(g, &b, "rollout_is_weights", b.rollout_is_weights);
    }
    golden_in_single(g);
    if (golden_ok(g, adv ? adv->compute(&cfg, NULL, &b) : ARES_ECONFIG)) {
        check_column(g, &b, "advantages", b.advantages);
        check_column(g, &b, "returns", b.returns);
    }
    ares_batch_fini(&b);
}

GOLDEN_ALSO(correction, advantage, algo, advantage)

/* Weights, what is kept, and every metric rollout_corr/..., no more and no less. */
GOLDEN(correction, rollout_correction)
{
    const ares_json *groups = golden_in(g, "groups"), *mask = golden_in(g, "mask"),
                    *want = golden_want(g, "metrics"), *kept = ares_json_get(g->expected, "kept");
    bool weighs = ares_json_get(g->inputs, "rollout_is"),
         rejects = ares_json_get(g->inputs, "rollout_rs");
    ares_loss_config cfg = { ARES_LOSS_DEFAULTS };
    ares_metrics *m = ares_metrics_new();
    ares_batch b;
    int64_t told = 0;
    if (weighs) cfg.rollout_is = golden_z(g, "rollout_is");
    cfg.rollout_is_threshold = golden_number_or(g, "rollout_is_threshold", 2);
    cfg.rollout_is_batch_normalize = golden_number_or(g, "rollout_is_batch_normalize", 0) != 0;
    cfg.rollout_token_veto_threshold =
        golden_number_or(g, "rollout_token_veto_threshold", (double)NAN);
    if (rejects) {
        cfg.rollout_rs = golden_z(g, "rollout_rs");
        cfg.rollout_rs_threshold = golden_z(g, "rollout_rs_threshold");
    }
    ares_batch_init(&b);
    for (int64_t i = 0, row = 0; i < groups->count; i++) {
        ares_batch_begin_group(&b);
        for (int64_t k = 0; k < groups->items[i].integer; k++, row++)
            ares_batch_add_row(&b, &(ares_sample){ .draw = i }, mask->items[row].count);
    }
    ARES_PUT(&b, response_mask);
    ARES_PUT(&b, old_log_probs);
    ARES_PUT(&b, rollout_log_probs);
    put_u8(g, &b, "mask", b.response_mask);
    put_f32(g, &b, "old_log_probs", b.old_log_probs);
    put_f32(g, &b, "rollout_log_probs", b.rollout_log_probs);
    golden_in_single(g);
    if (golden_ok(g, ares_rollout_correct(&cfg, NULL, &b, m))) {
        check_column(g, &b, "weights", b.rollout_is_weights);
        if (kept) {
            double *mine = ares_arena_alloc(g->arena, (size_t)(b.tokens + 1) * sizeof *mine);
            for (int64_t t = 0; t < b.tokens; t++) mine[t] = b.response_mask[t];
            golden_numbers(g, "kept", mine, b.tokens, kept);
        }
        for (int64_t i = 0; i < want->count; i++) {
            ares_view key = want->members[i].key;
            const char *name = ares_arena_copy(g->arena, key.data, key.len);
            double x = NAN;
            if (!ares_metrics_get(m, name, &x)) golden_fail(g, "no metric %s", name);
            golden_near(g, name, x, want->members[i].value);
        }
        for (int i = 0; i < ares_metrics_count(m); i++)
            told += strncmp(ares_metrics_name(m, i), "rollout_corr/", 13) == 0;
        if (told != want->count)
            golden_fail(g, "%lld metrics for %lld", (long long)told, (long long)want->count);
    }
    ares_batch_fini(&b);
    ares_metrics_free(m);
}
