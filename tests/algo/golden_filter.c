/* Group filters, the decisions of resampling loops, and what evens out batches. */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/algo/control/aepo.h"
#include "../../src/algo/filter/filter.h"
#include "../../src/algo/stats.h"
#include "../../src/config/internal.h"
#include "ares/algo.h"
#include "ares/algo_filter.h"

/* The options' defaults, everything off. */
static ares_filter_config config_of(void)
{
    return (ares_filter_config){ .filter_key = "accuracy",
                                 .informative_by = "acc",
                                 .dynamic_sampling = "none",
                                 .rv_strategy = "none",
                                 .rv_type = "largest",
                                 .rv_metric = "reward_variance",
                                 .rv_include_zero = true,
                                 .rv_prob_mode = "softmax",
                                 .loss_scaling = "none" };
}

/* One group of scores, judged. */
static void check_group(golden *g, const ares_filter_config *cfg, const double *scores, int64_t n,
                        const char *source, double cap)
{
    const int64_t start[] = { 0, n };
    ares_groups groups = {
        .groups = 1, .group_start = start, .score = scores, .source = &source, .cap = &cap
    };
    ares_verdict v;
    if (!golden_ok(g, ares_filter_groups(cfg, &groups, &v))) return;
    golden_equal(g, "keep", v.keep, golden_want(g, "keep"));
    golden_text(g, "reason", v.keep ? (ares_view){ NULL, 0 } : ares_view_of(v.reason),
                golden_want(g, "reason"));
}

static double number_or_nan(const ares_json *v)
{
    return v->type == ARES_JSON_NULL ? NAN : golden_value(v);
}

GOLDEN(curriculum, reward_cap_filter)
{
    int64_t n;
    const double *scores = golden_flat(g, golden_in(g, "rewards"), &n);
    ares_filter_config cfg = config_of();
    cfg.dynamic_sampling = "reward_cap";
    check_group(g, &cfg, scores, n, golden_z(g, "source"), number_or_nan(golden_in(g, "cap")));
}

GOLDEN(curriculum, reward_cap_filter_config)
{
    int64_t n;
    const double *scores = golden_flat(g, golden_in(g, "rewards"), &n);
    const ares_json *names = golden_in(g, "source_names"), *caps = golden_in(g, "caps"),
                    *of = golden_in(g, "group_source");
    const char **name = ares_arena_alloc(g->arena, (size_t)(names->count + 1) * sizeof *name);
    double *cap = ares_arena_alloc(g->arena, (size_t)(caps->count + 1) * sizeof *cap);
    for (int64_t i = 0; i < names->count; i++) name[i] = names->items[i].text.data;
    for (int64_t i = 0; i < caps->count; i++) {
        if (caps->items[i].type == ARES_JSON_STRING) { /* a schedule */
            golden_unknown(g);
            return;
        }
        cap[i] = number_or_nan(&caps->items[i]);
    }
    const char *source = of->type == ARES_JSON_NULL ? NULL : of->text.data;
    ares_filter_config cfg = config_of();
    cfg.dynamic_sampling = "reward_cap";
    check_group(g, &cfg, scores, n, source,
                ares_reward_cap(name, names->count, cap, caps->count, source));
}

GOLDEN(curriculum, reward_cap_filter_scheduled)
{
    int64_t n;
    const double *scores = golden_flat(g, golden_in(g, "rewards"), &n);
    double cap;
    scheduled s;
    if (!golden_ok(g,
                   scheduled_parse(g->arena, golden_in(g, "cap_config"), ARES_SCHEDULE_CAP, &s)) ||
        !golden_ok(g, ares_scheduled_at(&s, (int64_t)golden_number(g, "step"), &cap)))
        return;
    golden_near(g, "cap", cap, golden_want(g, "cap"));
    ares_filter_config cfg = config_of();
    cfg.dynamic_sampling = "reward_cap";
    check_group(g, &cfg, scores, n, golden_z(g, "source"), cap);
}

GOLDEN(curriculum, nonzero_std_filter)
{
    int64_t n;
    const double *scores = golden_flat(g, golden_in(g, "rewards"), &n);
    ares_filter_config cfg = config_of();
    cfg.dynamic_sampling = "nonzero_std";
    check_group(g, &cfg, scores, n, NULL, NAN);
}

GOLDEN(dapo, group_is_informative)
{
    int64_t n;
    const double *correct = golden_flat(g, golden_in(g, "correct"), &n);
    const ares_json *valid = ares_json_get(g->inputs, "valid");
    uint8_t *v = valid ? ares_arena_alloc(g->arena, (size_t)n + 1) : NULL;
    for (int64_t i = 0; v && i < n; i++) v[i] = golden_value(&valid->items[i]) != 0;
    golden_equal(g, "informative", group_informative(correct, v, n), g->expected);
}

GOLDEN(dapo, metric_group_filter)
{
    int64_t n;
    const double *values = golden_flat(g, golden_in(g, "values"), &n);
    golden_equal(g, "keep", group_spread(values, NULL, n, golden_number(g, "tolerance")),
                 g->expected);
}

/* Rows of a uid, in order of first mention, brought together. */
GOLDEN(aepo, online_filter)
{
    const ares_json *uid = golden_in(g, "uid"), *means = golden_want(g, "group_mean");
    int64_t n, groups = 0, at = 0, kept = 0;
    const double *scores = golden_flat(g, golden_in(g, "scores"), &n);
    int64_t *start = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *start),
            *order = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *order);
    int64_t *group = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *group);
    double *x = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *x),
           *indices = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *indices);
    for (int64_t i = 0; i < n; i++) group[i] = -1;
    for (int64_t i = 0; i < n; i++) {
        if (group[i] >= 0) continue;
        start[groups] = at;
        for (int64_t j = i; j < n; j++) {
            if (!ares_view_eq(uid->items[j].text, uid->items[i].text)) continue;
            group[j] = groups;
            order[at] = j;
            x[at++] = scores[j];
        }
        start[++groups] = at;
    }
    ares_filter_config cfg = config_of();
    cfg.online_filtering = true;
    cfg.filter_low = golden_number(g, "low");
    cfg.filter_high = golden_number(g, "high");
    ares_groups all = {
        .groups = groups, .group_start = start, .accuracy = x, .score = x, .overall = x
    };
    ares_verdict *v = ares_arena_alloc(g->arena, (size_t)(groups + 1) * sizeof *v);
    if (!golden_ok(g, ares_filter_groups(&cfg, &all, v))) return;
    for (int64_t i = 0; i < n; i++)
        if (v[group[i]].keep) indices[kept++] = (double)i;
    golden_numbers(g, "kept", indices, kept, golden_want(g, "kept"));
    for (int64_t i = 0; i < groups; i++) {
        const ares_json *want = ares_json_find(means, uid->items[order[start[i]]].text);
        if (want) golden_near(g, "group_mean", group_metric("reward", &all, i), want);
        else golden_fail(g, "group_mean has no such group");
    }
}

/* ---------------------------------------------------------------- RAGEN's selection */
GOLDEN(agentic, rollout_filter_select)
{
    int64_t n;
    const double *scores = golden_flat(g, golden_in(g, "scores"), &n);
    ares_filter_config cfg = config_of();
    cfg.rv_strategy = golden_z(g, "strategy");
    cfg.rv_type = golden_z(g, "type");
    cfg.rv_value = golden_number(g, "value");
    cfg.rv_include_zero = golden_number(g, "include_zero") != 0;
    cfg.rv_prob_mode = golden_z(g, "top_p_prob_mode");
    cfg.rv_eps = golden_number(g, "selection_eps");
    if (strcmp(cfg.rv_strategy, "top_f") == 0) cfg.rv_strategy = "top_k"; /* the option's alias */
    int64_t *chosen = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *chosen), zero = 0,
            candidates = 0;
    double *probability = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *probability),
           *ranks = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *ranks);
    double *mask = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *mask);
    int64_t k = rv_select(&cfg, scores, n, chosen, probability);
    for (int64_t i = 0; i < k; i++) {
        ranks[i] = (double)chosen[i];
        mask[chosen[i]] = 1;
    }
    for (int64_t i = 0; i < n; i++) zero += fabs(scores[i]) <= 1e-10;
    candidates = cfg.rv_include_zero ? n : n - zero;
    golden_numbers(g, "selected", ranks, k, golden_want(g, "selected_in_rank_order"));
    golden_numbers(g, "kept", mask, n, golden_want(g, "kept_mask"));
    golden_equal(g, "kept_count", k, golden_want(g, "kept_count"));
    const ares_json *want = ares_json_get(g->expected, "softmax_probs_of_candidates");
    if (want) golden_numbers(g, "probabilities", probability, candidates, want);
}

GOLDEN(agentic, group_reward_statistics)
{
    const ares_json *rewards = golden_in(g, "rewards_by_group");
    int64_t n, groups = rewards->count,
               *start = ares_arena_calloc(g->arena, (size_t)groups + 1, sizeof *start);
    ares_groups all = { .groups = groups,
                        .group_start = start,
                        .score = golden_flat(g, rewards, &n) };
    double *std = ares_arena_alloc(g->arena, (size_t)(groups + 1) * sizeof *std),
           *mean = ares_arena_alloc(g->arena, (size_t)(groups + 1) * sizeof *mean),
           *sum = ares_arena_alloc(g->arena, (size_t)(groups + 1) * sizeof *sum),
           *kept = ares_arena_calloc(g->arena, (size_t)groups + 1, sizeof *kept);
    for (int64_t i = 0; i < groups; i++) start[i + 1] = start[i] + rewards->items[i].count;
    for (int64_t i = 0; i < groups; i++) {
        std[i] = group_metric("reward_variance", &all, i);
        mean[i] = group_metric("reward", &all, i);
        sum[i] = group_metric("reward_sum", &all, i);
    }
    golden_numbers(g, "std", std, groups, golden_want(g, "std_bessel"));
    golden_numbers(g, "mean", mean, groups, golden_want(g, "mean"));
    golden_numbers(g, "sum", sum, groups, golden_want(g, "sum"));
    golden_near(g, "in_group_reward_std", stats_mean(std, groups),
                golden_want(g, "metric_in_group_reward_std"));
    golden_near(g, "in_group_reward_mean", stats_mean(mean, groups),
                golden_want(g, "metric_in_group_reward_mean"));
    ares_filter_config cfg = config_of();
    cfg.rv_strategy = "top_p";
    cfg.rv_value = 0.9;
    cfg.rv_include_zero = false;
    ares_verdict *v = ares_arena_alloc(g->arena, (size_t)(groups + 1) * sizeof *v);
    if (!golden_ok(g, ares_filter_groups(&cfg, &all, v))) return;
    int64_t k = 0;
    for (int64_t i = 0; i < groups; i++)
        if (v[i].keep) kept[k++] = (double)i;
    golden_numbers(g, "chosen", kept, k, golden_want(g, "chosen_groups_softmax_0p9_excl_zero"));
}

GOLDEN(agentic, filter_loss_scaling_factor)
{
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json_member *m = &g->expected->members[i];
        const char *mode = ares_arena_copy(g->arena, m->key.data, m->key.len);
        golden_near(g, mode,
                    ares_filter_loss_scale(mode, (int64_t)golden_number(g, "kept_groups"),
                                           (int64_t)golden_number(g, "total_groups")),
                    m->value);
    }
}

GOLDEN(agentic, batch_adjust_target_size)
{
    const ares_json *ranks = golden_in(g, "n_gpus");
    int64_t n, size = (int64_t)golden_number(g, "group_size"),
               mini = (int64_t)golden_number(g, "ppo_mini_batch_size");
    const double *kept = golden_flat(g, golden_in(g, "kept_groups"), &n);
    for (int64_t r = 0; r < ranks->count; r++) {
        char key[32];
        (void)snprintf(key, sizeof key, "n_gpus=%lld", (long long)ranks->items[r].integer);
        const ares_json *want = golden_want(g, key);
        int64_t divisor = ares_batch_adjust_divisor((int64_t)golden_number(g, "env_groups"), mini,
                                                    ranks->items[r].integer);
        double *copy = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *copy),
               *drop = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *drop);
        golden_equal(g, "divisor", divisor, ares_json_get(want, "divisor"));
        for (int64_t i = 0; i < n; i++) {
            copy[i] = (double)ares_batch_adjust_target(true, (int64_t)kept[i] * size, divisor);
            drop[i] = (double)ares_batch_adjust_target(false, (int64_t)kept[i] * size, divisor);
        }
        golden_numbers(g, "copy", copy, n, ares_json_get(want, "copy"));
        golden_numbers(g, "delete", drop, n, ares_json_get(want, "delete"));
    }
}

/* ---------------- loops: groups end one at a time, as the case lists their outcomes */
GOLDEN(curriculum, oversampling_loop)
{
    const ares_json *outcomes = golden_in(g, "completion_outcomes"),
                    *dropped = golden_want(g, "dropped");
    ares_oversampling s;
    ares_map *reasons = ares_map_new();
    int64_t k = 0, fetched = 1, count;
    double *kept = ares_arena_alloc(g->arena, (size_t)(outcomes->count + 1) * sizeof *kept);
    bool ok = golden_ok(
        g, ares_oversampling_init(&s, (int64_t)golden_number(g, "rollout_batch_size"),
                                  (int64_t)golden_number(g, "over_sampling_batch_size"),
                                  (int64_t)golden_number_or(g, "max_fetches_per_rollout", 0)));
    while (ok && !ares_oversampling_done(&s) && s.finished < outcomes->count) {
        do ok = golden_ok(g, ares_oversampling_fetch(&s, &fetched));
        while (ok && fetched);
        ares_view outcome = outcomes->items[s.finished].text;
        int64_t before = 0;
        if (ok && ares_oversampling_finish(&s, ares_view_is(outcome, "keep")))
            kept[k++] = (double)(s.finished - 1);
        if (!ares_view_is(outcome, "keep")) {
            (void)ares_map_get(reasons, outcome, &before);
            ares_map_put(reasons, outcome, before + 1);
        }
    }
    golden_equal(g, "get_samples_calls", s.fetches, golden_want(g, "get_samples_calls"));
    golden_equal(g, "submitted", s.submitted, golden_want(g, "submitted"));
    golden_equal(g, "completed", s.finished, golden_want(g, "completed"));
    golden_equal(g, "unfinished", s.submitted - s.finished, golden_want(g, "unfinished"));
    golden_numbers(g, "kept", kept, k, golden_want(g, "kept"));
    for (int64_t i = 0; i < dropped->count; i++) {
        count = 0;
        (void)ares_map_get(reasons, dropped->members[i].key, &count);
        golden_equal(g, "dropped", count, dropped->members[i].value);
    }
    ares_map_free(reasons);
}

GOLDEN(dapo, dynamic_sampling)
{
    const ares_json *rounds = golden_in(g, "correct_counts_per_round"),
                    *want = golden_want(g, "rounds");
    int64_t size = (int64_t)golden_number(g, "group_size"), n, all = 0;
    for (int64_t r = 0; r < rounds->count; r++) all += rounds->items[r].count;
    ares_resampling s = { .target = (int64_t)golden_number(g, "rollout_batch_size"),
                          .batch = (int64_t)golden_number(g, "gen_batch_size"),
                          .max_resample = (int64_t)golden_number(g, "max_resample") };
    size_t room = (size_t)(all + s.target + 1);
    int64_t *kept = ares_arena_alloc(g->arena, room * sizeof *kept),
            *dropped = ares_arena_alloc(g->arena, room * sizeof *dropped),
            *batch = ares_arena_alloc(g->arena, room * sizeof *batch);
    double *x = ares_arena_alloc(g->arena, room * sizeof *x);
    int64_t done = 0;
    while ((n = ares_resampling_draw(&s)) > 0 && done < rounds->count) {
        bool *informative = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *informative);
        double *right = ares_arena_calloc(g->arena, (size_t)size + 1, sizeof *right);
        ares_resampling before = s;
        golden_equal(g, "drawn", n, ares_json_get(&want->items[done], "drawn"));
        if (rounds->items[done].count < n) {
            golden_fail(g, "round %lld: %lld prompts are asked for, the case has %lld",
                        (long long)done, (long long)n, (long long)rounds->items[done].count);
            return;
        }
        for (int64_t i = 0; i < n; i++) {
            for (int64_t k = 0; k < size; k++)
                right[k] = (double)k < golden_value(&rounds->items[done].items[i]);
            informative[i] = group_informative(right, NULL, size);
        }
        ares_resampling_add(&s, informative, n, kept, dropped);
        golden_equal(g, "kept_new", s.kept - before.kept,
                     ares_json_get(&want->items[done], "kept_new"));
        golden_equal(g, "surplus", s.surplus - before.surplus,
                     ares_json_get(&want->items[done], "surplus"));
        done++;
    }
    golden_equal(g, "rounds", s.rounds,
                 &(ares_json){ .type = ARES_JSON_INT,
                               .integer = want->count,
                               .number = (double)want->count });
    golden_equal(g, "total_drawn", s.drawn, golden_want(g, "total_drawn"));
    int64_t count, masked;
    const char *outcome;
    const ares_json *name = golden_want(g, "outcome");
    int rc = ares_resampling_finish(&s, golden_z(g, "on_exhausted"), kept, dropped, batch, &count,
                                    &masked, &outcome);
    for (int64_t i = 0; i < s.kept; i++) x[i] = (double)kept[i];
    golden_numbers(g, "kept", x, s.kept, golden_want(g, "kept"));
    if (rc != ARES_OK) {
        golden_text(g, "outcome", ares_view_of("error"), name);
        return;
    }
    golden_text(g, "outcome", ares_view_of(outcome), name);
    for (int64_t i = 0; i < count; i++) x[i] = (double)batch[i];
    golden_numbers(g, "batch", x, count, golden_want(g, "batch"));
    const ares_json *hidden = ares_json_get(g->expected, "masked");
    if (hidden) golden_numbers(g, "masked", x + masked, count - masked, hidden);
}

/* ---------------------------------------------------------------- pass@k */
GOLDEN(curriculum, pass_at_k)
{
    int64_t n, size = (int64_t)golden_number(g, "group_size");
    const double *rewards = golden_flat(g, golden_in(g, "rewards"), &n);
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json_member *m = &g->expected->members[i];
        int64_t k = strtoll(m->key.data + strlen("pass@"), NULL, 10);
        double *chance = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *chance);
        for (int64_t p = 0; p < n / size; p++) {
            int64_t right = 0;
            for (int64_t r = p * size; r < (p + 1) * size; r++) right += rewards[r] == 1;
            chance[p] = ares_pass_at_k(size, right, k);
        }
        golden_near(g, "pass@k", stats_mean(chance, n / size), m->value);
    }
    golden_equal(g, "number of k", ares_pass_at_k_count(size),
                 &(ares_json){ .type = ARES_JSON_INT,
                               .integer = g->expected->count,
                               .number = (double)g->expected->count });
}

GOLDEN(curriculum, round_half_even)
{
    golden_near(g, "rounded", round_half_even(golden_number(g, "x")), g->expected);
}
