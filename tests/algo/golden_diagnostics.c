/* Measures of a step in agentic.json: mutual information, and groups by reward deviation. */
#include "golden.h"

#include <stdio.h>

#include "ares/algo.h"

GOLDEN(agentic, collapse_mi_metrics)
{
    const ares_json *rows = golden_in(g, "cross_log_probs_per_token_mean");
    int64_t cells, thoughts = rows->count;
    const double *x = golden_flat(g, rows, &cells),
                 *column = golden_flat(g, golden_in(g, "true_column"), &thoughts);
    int64_t prompts = cells / thoughts;
    int64_t *own = ares_arena_alloc(g->arena, (size_t)thoughts * sizeof *own),
            *text = ares_arena_alloc(g->arena, (size_t)prompts * sizeof *text);
    double *matched = ares_arena_alloc(g->arena, (size_t)thoughts * 2 * sizeof *matched),
           *marginal = matched + thoughts;
    ares_collapse m;
    for (int64_t i = 0; i < thoughts; i++) own[i] = (int64_t)column[i];
    for (int64_t j = 0; j < prompts; j++) text[j] = j;
    ares_collapse_measure(&(ares_collapse_scores){ thoughts, prompts, x, own, text }, matched,
                          marginal, &m);
    golden_numbers(g, "matched", matched, thoughts, golden_want(g, "matched"));
    golden_numbers(g, "marginal", marginal, thoughts, golden_want(g, "marginal"));
    golden_near(g, "mi", m.mi, golden_want(g, "mi_estimate"));
    golden_near(g, "bound", m.mi_bound, golden_want(g, "mi_upper_bound"));
    golden_near(g, "H(Z|X)", m.conditional_entropy, golden_want(g, "conditional_entropy_est"));
    golden_near(g, "H(Z)", m.entropy, golden_want(g, "reasoning_entropy_est"));
    golden_near(g, "deviation", m.marginal_std, golden_want(g, "marginal_std"));
    golden_near(g, "z-score", m.zscore, golden_want(g, "mi_zscore"));
    golden_near(g, "accuracy", m.accuracy[0], golden_want(g, "retrieval_accuracy"));
    golden_near(g, "chance", m.chance[0], golden_want(g, "retrieval_chance_level"));
}

/* The buckets' groups by their numbers in the case, an object of bucket_1, bucket_2 .. */
static void check_buckets(golden *g, const char *what, const int64_t *id, int64_t buckets,
                          const int64_t *order, const int64_t *start)
{
    const ares_json *want = golden_want(g, what);
    if (buckets != want->count)
        golden_fail(g, "%s: %lld buckets, expected %lld", what, (long long)buckets,
                    (long long)want->count);
    for (int64_t k = 0; k < buckets; k++) {
        char name[32];
        double got[64];
        (void)snprintf(name, sizeof name, "bucket_%lld", (long long)k + 1);
        for (int64_t i = start[k]; i < start[k + 1]; i++) got[i - start[k]] = (double)id[order[i]];
        const ares_json *groups = ares_json_get(want, name);
        if (!groups) golden_fail(g, "%s has no %s", what, name);
        else golden_numbers(g, name, got, start[k + 1] - start[k], groups);
    }
}

GOLDEN(agentic, reward_std_buckets)
{
    const ares_json *groups = golden_in(g, "group_reward_std");
    int64_t n = 0, counts, id[64], order[64], start[64];
    double std[64];
    for (int64_t number = 0; number < 64; number++) { /* in the order of their numbers */
        char key[24];
        (void)snprintf(key, sizeof key, "%lld", (long long)number);
        const ares_json *x = ares_json_get(groups, key);
        if (!x) continue;
        id[n] = number;
        std[n++] = golden_value(x);
    }
    const double *count = golden_flat(g, golden_in(g, "num_buckets"), &counts);
    for (int64_t i = 0; i < counts; i++) {
        char what[32];
        (void)snprintf(what, sizeof what, "quantile_%lld", (long long)count[i]);
        int64_t buckets = ares_std_quantiles(std, n, (int64_t)count[i], order, start);
        check_buckets(g, what, id, buckets, order, start);
    }
    check_buckets(g, "fixed_rv", id, ares_std_bands(std, n, order, start), order, start);
}
