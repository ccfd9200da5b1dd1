/* Advantages as scripts/golden/algo.py has them from plain formulas. */
#include "golden.h"

#include "ares/algo.h"

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
    golden_in_single(g);
    if (golden_ok(g, adv ? adv->compute(&cfg, NULL, &b) : ARES_ECONFIG)) {
        check_column(g, &b, "advantages", b.advantages);
        check_column(g, &b, "returns", b.returns);
    }
    ares_batch_fini(&b);
}
