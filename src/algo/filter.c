/* The table of group filters and what they share. To add one: a file in filter/ and a word here. */
#include "ares/algo_filter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/algo.h"

#define FILTER_LIST(X) X(accuracy_range) X(informative) X(reward_cap) X(nonzero_std) X(rv)

#define DECLARE(name) extern const ares_filter ares_filter_##name;
#define ENTRY(name) &ares_filter_##name,
FILTER_LIST(DECLARE)
static const ares_filter *const table[] = { FILTER_LIST(ENTRY) };

ARES_OPTION_TABLE(ares_filter_options, ares_filter_config, ARES_FILTER_OPTIONS)

const ares_filter *const *ares_filter_list(int *n)
{
    *n = ARES_COUNT(table);
    return table;
}

unsigned ares_filter_needs(const ares_filter_config *cfg)
{
    unsigned needs = 0;
    for (int i = 0; i < ARES_COUNT(table); i++)
        if (table[i]->wanted(cfg)) needs |= table[i]->needs(cfg);
    return needs;
}

static int check_column(const char *name, const double *x, int64_t rows, bool wanted, const char *remedy)
{
    if (!wanted) return ARES_OK;
    if (!x) return ares_fail(ARES_ESTATE, "filter: needs %s, which nobody has written", name);
    for (int64_t r = 0; r < rows; r++)
        if (!isfinite(x[r])) return ares_fail(ARES_ENUMERIC, "filter: row %lld: %s = %g: no finite number%s", (long long)r, name, x[r], remedy);
    return ARES_OK;
}

int ares_filter_groups(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v)
{
    unsigned needs = ares_filter_needs(cfg);
    for (int64_t i = 0; i < g->groups; i++) {
        v[i] = (ares_verdict){ .keep = true };
        if (g->group_start[i + 1] <= g->group_start[i]) return ares_fail(ARES_ESTATE, "filter: group %lld has no row", (long long)i);
    }
    int64_t rows = g->groups ? g->group_start[g->groups] : 0;
    ARES_TRY(check_column("score", g->score, rows, needs & ARES_FILTER_SCORE, ""));
    ARES_TRY(check_column("accuracy", g->accuracy, rows, needs & ARES_FILTER_ACCURACY, "; choose a reward that gives an accuracy, or filter by overall (score)"));
    ARES_TRY(check_column("length", g->length, rows, needs & ARES_FILTER_LENGTH, ""));
    ARES_TRY(check_column("entropy", g->entropy, rows, needs & ARES_FILTER_ENTROPY, ""));
    for (int i = 0; i < ARES_COUNT(table); i++)
        if (table[i]->wanted(cfg)) ARES_TRY(table[i]->select(cfg, g, v));
    return ARES_OK;
}

void ares_filter_report(const ares_filter_config *cfg, const ares_groups *g, const ares_verdict *v, ares_metrics *m)
{
    int64_t kept = 0, zero = 0;
    for (int64_t i = 0; i < g->groups; i++) {
        char name[160];
        kept += v[i].keep;
        zero += g->score && fabs(ares_group_metric("reward_variance", g, i)) <= 1e-10;
        if (v[i].keep || !v[i].reason[0]) continue;
        (void)snprintf(name, sizeof name, "rollout/dynamic_filter/drop_%s", v[i].reason);
        ares_metrics_add(m, name, 1);
    }
    if (!g->groups || !ares_filter_needs(cfg)) return;
    ares_metrics_set(m, "rollout/filter_kept_count", (double)kept);
    ares_metrics_set(m, "rollout/filter_kept_ratio", (double)kept / (double)g->groups);
    ares_metrics_set(m, "rollout/filter_zero_count", (double)zero);
}

void ares_filter_check(ares_config *cfg, const ares_filter_config *f, int64_t n)
{
    bool fraction = strcmp(f->rv_strategy, "top_k_abs") != 0 && strcmp(f->rv_strategy, "none") != 0;
    if (f->online_filtering && !(f->filter_low < f->filter_high)) ares_config_fault(cfg, "algorithm.filter_low", "no mean lies above it and below filter_high = %g", f->filter_high);
    if (f->online_filtering && n < 2 && f->filter_low >= 0 && f->filter_high <= 1)
        ares_config_fault(cfg, "algorithm.online_filtering", "one answer is right or wrong, so no mean lies between the bounds; set worker.rollout.n to 2 or more");
    if (f->informative && n < 2) ares_config_fault(cfg, "algorithm.filter_groups.enable", "one answer is never both right and wrong; set worker.rollout.n to 2 or more");
    if (strcmp(f->resample_mode, "same_prompt") == 0 && (ares_filter_needs(f) & ARES_FILTER_RANKS))
        ares_config_fault(cfg, "algorithm.dynamic_sampling.mode", "rollout_filter_value below 1 compares the groups of a draw with each other; set new_prompts");
    if (strcmp(f->over_length_action, "drop") == 0)
        ares_config_fault(cfg, "algorithm.over_length_action", "answers keep their row; set mask, from which the same is learnt");
    if (strcmp(f->dynamic_sampling, "nonzero_std") == 0 && n < 2)
        ares_config_fault(cfg, "algorithm.dynamic_sampling_filter", "one answer has no deviation; set worker.rollout.n to 2 or more");
    if (f->keep_when_insufficient && strcmp(f->dynamic_sampling, "nonzero_std") != 0)
        ares_config_fault(cfg, "algorithm.keep_when_insufficient", "belongs to algorithm.dynamic_sampling_filter: nonzero_std");
    if (fraction && f->rv_value > 1)
        ares_config_fault(cfg, "worker.rollout.rollout_filter_value", "%s takes a share, at most 1; for a number of groups set rollout_filter_strategy to top_k_abs", f->rv_strategy);
    if (strcmp(f->rv_strategy, "top_k_abs") == 0 && f->rv_value < 1) ares_config_fault(cfg, "worker.rollout.rollout_filter_value", "top_k_abs keeps that many groups; set 1 or more");
    if (fraction && strcmp(f->rv_strategy, "top_p") != 0 && f->rv_value == 0) ares_config_fault(cfg, "worker.rollout.rollout_filter_value", "%s of 0 says nothing; set a share above 0", f->rv_strategy);
}

/* ---------------------------------------------------------------- statistics of a group */
double ares_group_metric(const char *metric, const ares_groups *g, int64_t group)
{
    int64_t first = g->group_start[group], n = g->group_start[group + 1] - first;
    const double *x = strncmp(metric, "entropy", 7) == 0 ? g->entropy : strcmp(metric, "length") == 0 ? g->length : g->score;
    double few[64], *kept = n <= ARES_COUNT(few) ? few : ares_malloc((size_t)n * sizeof *kept);
    n = ares_group_counted(g, group, x, kept);
    double mean = ares_mean(kept, n), std = ares_std(kept, n, mean);
    if (kept != few) ares_free(kept);
    if (strcmp(metric, "reward_variance") == 0 || strcmp(metric, "entropy_variance") == 0) return std;
    if (strcmp(metric, "reward_sum") == 0) return mean * (double)n;
    return mean;
}

int64_t ares_group_counted(const ares_groups *g, int64_t group, const double *x, double *out)
{
    int64_t n = 0;
    for (int64_t r = g->group_start[group]; r < g->group_start[group + 1]; r++)
        if (!g->valid || g->valid[r]) out[n++] = x[r];
    return n;
}

bool ares_group_informative(const double *accuracy, const uint8_t *valid, int64_t n)
{
    int64_t right = 0, counted = 0;
    for (int64_t i = 0; i < n; i++) {
        if (valid && !valid[i]) continue;
        counted++;
        right += accuracy[i] > 0.5;
    }
    return right > 0 && right < counted;
}

bool ares_answer_discarded(const ares_filter_config *cfg, int64_t length, int64_t max_length, bool stopped)
{
    bool over = max_length != ARES_NULL_I64 && length > max_length && strcmp(cfg->over_length_action, "keep") != 0;
    return over || (cfg->mask_truncated && !stopped);
}

bool ares_group_spread(const double *x, const uint8_t *valid, int64_t n, double tolerance)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (valid && !valid[i]) continue;
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    return high - low > tolerance;
}

double ares_reward_cap(const char *const *names, int64_t n_names, const double *caps, int64_t n_caps, const char *source)
{
    if (!source || n_names != n_caps) return NAN;
    for (int64_t i = 0; i < n_names; i++)
        if (strcmp(names[i], source) == 0) return caps[i];
    return NAN;
}

double ares_filter_loss_scale(const char *mode, int64_t kept, int64_t total)
{
    double share = total > 0 ? (double)kept / (double)total : 1;
    return strcmp(mode, "linear") == 0 ? share : strcmp(mode, "sqrt") == 0 ? sqrt(share) : 1;
}
