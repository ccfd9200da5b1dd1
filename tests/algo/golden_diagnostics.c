/* Measures of a step in agentic.json: mutual information. */
#include "golden.h"

#include "ares/algo_diagnostics.h"

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
