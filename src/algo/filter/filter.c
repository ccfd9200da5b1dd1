/*
 * What group filters share: the statistics of a group, the table of filters and how a step asks
 * them, and rules between their options. Each filter has its own file.
 */
#include "filter.h"
#include "stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/algo_filter.h"

/* Statistics of one group, which the filters of this folder compare. */

double group_metric(const char *metric, const ares_groups *g, int64_t group)
{
    int64_t first = g->group_start[group], n = g->group_start[group + 1] - first;
    /* "reward_variance" -> score, "entropy_variance" -> entropy, "length" -> length */
    const double *x = strncmp(metric, "entropy", 7) == 0 ? g->entropy
                      : strcmp(metric, "length") == 0    ? g->length
                                                         : g->score;
    double mean = stats_mean(x + first, n);
    if (strcmp(metric, "reward_variance") == 0 || strcmp(metric, "entropy_variance") == 0)
        /* a deviation, which RAGEN calls variance */
        return stats_std(x + first, n, mean);
    if (strcmp(metric, "reward_sum") == 0) return mean * (double)n;
    return mean;
}

/* Neither all right nor all wrong: else all advantages of a group are 0. */
bool group_informative(const double *accuracy, const uint8_t *valid, int64_t n)
{
    int64_t right = 0, counted = 0;
    for (int64_t i = 0; i < n; i++) {
        if (valid && !valid[i]) continue;
        counted++;
        right += accuracy[i] > 0.5;
    }
    return right > 0 && right < counted;
}

bool group_spread(const double *x, const uint8_t *valid, int64_t n, double tolerance)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (valid && !valid[i]) continue;
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    return high - low > tolerance;
}

/* The table of group filters, and how a step asks them. */

#define ENTRY(name) &ares_filter_##name,
static const ares_filter *const table[] = { FILTER_LIST(ENTRY) };

ARES_OPTION_TABLE(ares_filter_options, ares_filter_config, ARES_FILTER_OPTIONS);

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

/*
 * x [rows]: a column that filters read if `wanted`. remedy, unless empty: the configuration makes
 * such numbers, and this is what to change in it.
 */
static int check_column(const char *name, const double *x, int64_t rows, bool wanted,
                        const char *remedy)
{
    if (!wanted) return ARES_OK;
    if (!x) return ares_fail(ARES_ESTATE, "filter: needs %s, which nobody has written", name);
    for (int64_t r = 0; r < rows; r++)
        if (!isfinite(x[r]))
            return ares_fail(*remedy ? ARES_ECONFIG : ARES_ENUMERIC,
                             "filter: row %lld: %s = %g: no finite number%s", (long long)r, name,
                             x[r], remedy);
    return ARES_OK;
}

/* Checks the columns that the wanted filters read, then asks these filters one after the other. */
static int select_groups(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v)
{
    unsigned needs = ares_filter_needs(cfg);
    int64_t rows = g->groups ? g->group_start[g->groups] : 0;
    ARES_TRY(check_column("score", g->score, rows, needs & ARES_FILTER_SCORE, ""));
    ARES_TRY(
        check_column("accuracy", g->accuracy, rows, needs & ARES_FILTER_ACCURACY,
                     "; choose a reward that gives an accuracy, or filter by overall (score)"));
    ARES_TRY(check_column("overall", g->overall, rows, needs & ARES_FILTER_OVERALL, ""));
    ARES_TRY(check_column("length", g->length, rows, needs & ARES_FILTER_LENGTH, ""));
    ARES_TRY(check_column("entropy", g->entropy, rows, needs & ARES_FILTER_ENTROPY, ""));
    for (int i = 0; i < ARES_COUNT(table); i++)
        if (table[i]->wanted(cfg)) ARES_TRY(table[i]->select(cfg, g, v));
    return ARES_OK;
}

int ares_filter_groups(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v)
{
    for (int64_t i = 0; i < g->groups; i++) {
        v[i] = (ares_verdict){ .keep = true };
        if (g->group_start[i + 1] <= g->group_start[i])
            return ares_fail(ARES_ESTATE, "filter: group %lld has no row", (long long)i);
    }
    /* without discarded answers, or without a filter to mislead, the groups are judged as given */
    if (!g->valid || !ares_filter_needs(cfg)) return select_groups(cfg, g, v);
    for (int64_t i = 0; i < g->groups; i++)
        v[i] = (ares_verdict){ .keep = false, .reason = "all_discarded" };
    ares_arena arena = { 0 };
    /*
     * left: the groups without their discarded answers. Those without any other answer are left
     * out; which [groups]: the original index of each group that remains
     */
    ares_groups left = *g;
    int64_t *which = ares_arena_alloc(&arena, ((size_t)g->groups + 1) * sizeof *which),
            rows = g->groups ? g->group_start[g->groups] : 0,
            *start = ares_arena_calloc(&arena, (size_t)g->groups + 1, sizeof *start);
    const char **source = ares_arena_calloc(&arena, (size_t)g->groups + 1, sizeof *source);
    double *cap = ares_arena_calloc(&arena, (size_t)g->groups + 1, sizeof *cap);
    const double **columns[] = { &left.score, &left.overall, &left.accuracy, &left.length,
                                 &left.entropy };
    for (int i = 0; i < ARES_COUNT(columns); i++) {
        if (!*columns[i]) continue;
        double *x = ares_arena_alloc(&arena, ((size_t)rows + 1) * sizeof *x);
        for (int64_t r = 0, n = 0; r < rows; r++)
            /* rows close up; start below has where each group begins now */
            if (g->valid[r]) x[n++] = (*columns[i])[r];
        *columns[i] = x;
    }
    left.groups = 0;
    for (int64_t i = 0; i < g->groups; i++) {
        int64_t n = 0, at = left.groups;
        for (int64_t r = g->group_start[i]; r < g->group_start[i + 1]; r++) n += g->valid[r];
        if (!n) continue;
        if (g->source) source[at] = g->source[i];
        if (g->cap) cap[at] = g->cap[i];
        start[at + 1] = start[at] + n;
        which[left.groups++] = i;
    }
    left.group_start = start;
    left.source = g->source ? source : NULL;
    left.cap = g->cap ? cap : NULL;
    left.valid = NULL;
    ares_verdict *of_left = ares_arena_alloc(&arena, ((size_t)left.groups + 1) * sizeof *of_left);
    for (int64_t i = 0; i < left.groups; i++) of_left[i] = (ares_verdict){ .keep = true };
    int rc = select_groups(cfg, &left, of_left);
    for (int64_t i = 0; i < left.groups; i++) v[which[i]] = of_left[i];
    ares_arena_fini(&arena);
    return rc;
}

/* whether a filter besides the ranking is wanted */
static bool replaces(const ares_filter_config *cfg)
{
    for (int i = 0; i < ARES_COUNT(table); i++)
        if (table[i] != &ares_filter_rv && table[i]->wanted(cfg)) return true;
    return false;
}

void ares_filter_stages(const ares_filter_config *cfg, ares_filter_config *of_draws,
                        ares_filter_config *of_batch)
{
    /* whether dropped groups are replaced by others */
    bool draws_again = cfg->max_resample != ARES_NULL_I64 && cfg->max_resample != 0;
    *of_draws = *of_batch = *cfg;
    /* the ranking compares all groups of a batch, so it comes last where other filters draw again
     */
    (replaces(cfg) || !draws_again ? of_draws : of_batch)->rv_strategy = "none";
    of_batch->online_filtering = of_batch->informative = false;
    of_batch->dynamic_sampling = "none";
}

const char *ares_filter_on_exhausted(const ares_filter_config *cfg)
{
    if (cfg->on_exhausted) return cfg->on_exhausted;
    /* each method's own way where the option is not set */
    if (cfg->informative) return "fill_masked";
    return ares_filter_rv.wanted(cfg) && !replaces(cfg) ? "smaller_batch" : "error";
}

void ares_filter_count(const ares_groups *g, const ares_verdict *v, ares_filter_counts *c,
                       ares_metrics *m)
{
    c->groups += g->groups;
    for (int64_t i = 0; i < g->groups; i++) {
        char name[160];
        c->kept += v[i].keep;
        int64_t first = g->group_start[i], n = g->group_start[i + 1] - first;
        c->zero += g->score &&
                   !group_spread(g->score + first, g->valid ? g->valid + first : NULL, n, 1e-10);
        if (v[i].keep || !v[i].reason[0]) continue;
        (void)snprintf(name, sizeof name, "rollout/dynamic_filter/drop_%s", v[i].reason);
        ares_metrics_add(m, name, 1);
    }
}

/* Nothing is reported for a step that made no group. */
void ares_filter_report(const ares_filter_counts *c, ares_metrics *m)
{
    if (!c->groups) return;
    ares_metrics_set(m, "rollout/filter_kept_count", (double)c->kept);
    ares_metrics_set(m, "rollout/filter_kept_ratio", (double)c->kept / (double)c->groups);
    ares_metrics_set(m, "rollout/filter_zero_count", (double)c->zero);
}

bool ares_answer_discarded(const ares_filter_config *cfg, int64_t length, int64_t max_length,
                           bool stopped)
{
    bool over = max_length != ARES_NULL_I64 && length > max_length &&
                strcmp(cfg->over_length_action, "keep") != 0;
    return over || (cfg->mask_truncated && !stopped);
}

/* A step of few groups learns less, by their share or by its square root. */
double ares_filter_loss_scale(const char *mode, int64_t kept, int64_t total)
{
    double share = total > 0 ? (double)kept / (double)total : 1;
    return strcmp(mode, "linear") == 0 ? share : strcmp(mode, "sqrt") == 0 ? sqrt(share) : 1;
}

/* Options of the filters that make no sense together. */

void ares_filter_check(ares_config *cfg, const ares_filter_config *f, const ares_filter_run *run)
{
    int n;
    const ares_filter *const *list = ares_filter_list(&n);
    for (int i = 0; i < n; i++)
        if (list[i]->check) list[i]->check(cfg, f, run);
    ares_filter_config of_draws, of_batch;
    ares_filter_stages(f, &of_draws, &of_batch);
    if (strcmp(f->resample_mode, "same_prompt") == 0 &&
        (ares_filter_needs(&of_draws) & ARES_FILTER_RANKS))
        ares_config_fault(
            cfg, "algorithm.dynamic_sampling.mode",
            "rollout_filter_* compares the groups of a draw with each other; set new_prompts, "
            "or max_resample: 0");
}
