/*
 * RAGEN's filter by reward variance (docs/filters.md#selection-by-reward-variance): the groups of a
 * batch are ranked by a metric, and those at one end stay. Computed in double where RAGEN has
 * float32; cumulative masses are compared with a tolerance of 1e-12.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/kernels.h"
#include "filter.h"

typedef struct ranked {
    double value;
    int64_t index;
} ranked;

static int descending(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->value != y->value ? ARES_CMP(y->value, x->value) : ARES_CMP(x->index, y->index);
}

static int ascending(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->value != y->value ? ARES_CMP(x->value, y->value) : ARES_CMP(x->index, y->index);
}

/* Back to the order of groups in the batch. */
static int by_index(const void *a, const void *b)
{
    int64_t x = ((const ranked *)a)->index, y = ((const ranked *)b)->index;
    return ARES_CMP(x, y);
}

/*
 * The number of first candidates of c [n], ranked best first, whose softmax reaches rv_value
 * together. Where the smallest values are best, the softmax is that of their negatives, so the
 * exponent is -|value - best| both ways. probability [n] is written.
 */
static int64_t softmax_prefix(const ares_filter_config *cfg, const ranked *c, int64_t n,
                              double *probability)
{
    double sum = 0, mass = 0;
    for (int64_t i = 0; i < n; i++)
        sum += probability[i] = ares_f64_exp(-fabs(c[i].value - c[0].value));
    for (int64_t i = 0; i < n; i++) probability[i] /= sum;
    for (int64_t i = 0; i < n; i++)
        if ((mass += probability[i]) >= cfg->rv_value - 1e-12) return i + 1;
    return n;
}

/* The same by the values' own shares of their sum, less rv_eps; 0 where nothing reaches it. */
static int64_t linear_prefix(const ares_filter_config *cfg, const ranked *c, int64_t n)
{
    double sum = 0, mass = 0;
    for (int64_t i = 0; i < n; i++) sum += c[i].value;
    double threshold = cfg->rv_value * sum - cfg->rv_eps;
    if (threshold <= 0) return 0;
    for (int64_t i = 0; i < n && c[i].value > 0; i++)
        if ((mass += c[i].value) >= threshold) return i + 1;
    return 0;
}

/* A share of few groups may be less than one of them. */
static int64_t at_least_one(double k, int64_t n)
{
    return k >= (double)n ? n : k < 1 ? 1 : (int64_t)k;
}

int64_t rv_select(const ares_filter_config *cfg, const double *metric, int64_t n, int64_t *out,
                  double *probability)
{
    const char *by = cfg->rv_strategy;
    bool largest = strcmp(cfg->rv_type, "largest") == 0;
    ranked *c = ares_malloc(((size_t)n + 1) * sizeof *c);
    double *mass = ares_malloc(((size_t)n + 1) * sizeof *mass);
    int64_t candidates = 0, k;
    for (int64_t i = 0; i < n; i++)
        if (cfg->rv_include_zero || fabs(metric[i]) > 1e-10)
            c[candidates++] = (ranked){ metric[i], i };
    /* equal values by index, so that the choice is the same everywhere */
    qsort(c, (size_t)candidates, sizeof *c, largest ? descending : ascending);
    if (candidates == 0) k = 0;
    else if (strcmp(by, "top_p") == 0 && strcmp(cfg->rv_prob_mode, "softmax") == 0) {
        k = softmax_prefix(cfg, c, candidates, mass);
        if (probability) { /* in the order of their indices */
            /* at [n]: the rank of each candidate from 1 on; 0: no candidate */
            int64_t *at = ares_calloc((size_t)n + 1, sizeof *at), place = 0;
            for (int64_t i = 0; i < candidates; i++) at[c[i].index] = i + 1;
            for (int64_t i = 0; i < n; i++)
                if (at[i]) probability[place++] = mass[at[i] - 1];
            ares_free(at);
        }
        if (cfg->rv_value >= 1) k = candidates;
    } else if (strcmp(by, "top_p") == 0)
        k = cfg->rv_value >= 1 ? candidates : linear_prefix(cfg, c, candidates);
    else if (strcmp(by, "top_k") == 0)
        k = at_least_one(floor(cfg->rv_value * (double)n), candidates);
    else if (strcmp(by, "top_k_abs") == 0) k = at_least_one(floor(cfg->rv_value), candidates);
    else if (strcmp(by, "min_p") == 0) { /* those within the factor rv_value of the best */
        double bound = largest ? c[0].value * cfg->rv_value - 1e-10
                               : c[0].value / (cfg->rv_value + 1e-10) + 1e-10;
        k = 0;
        while (k < candidates && (largest ? c[k].value >= bound : c[k].value <= bound)) k++;
    } else k = candidates;
    /* min_p, and top_p of everything, give the groups by index and not by rank (filter.h) */
    if (strcmp(by, "min_p") == 0 || (strcmp(by, "top_p") == 0 && cfg->rv_value >= 1))
        qsort(c, (size_t)k, sizeof *c, by_index);
    for (int64_t i = 0; i < k; i++) out[i] = c[i].index;
    ares_free(mass);
    ares_free(c);
    return k;
}

static bool wanted(const ares_filter_config *cfg)
{
    bool all = strcmp(cfg->rv_strategy, "top_p") == 0 && cfg->rv_value >= 1 && cfg->rv_include_zero;
    return strcmp(cfg->rv_strategy, "none") != 0 && !all;
}

static unsigned needs(const ares_filter_config *cfg)
{
    unsigned column = strncmp(cfg->rv_metric, "entropy", 7) == 0 ? ARES_FILTER_ENTROPY
                      : strcmp(cfg->rv_metric, "length") == 0    ? ARES_FILTER_LENGTH
                                                                 : ARES_FILTER_SCORE;
    return column | ARES_FILTER_RANKS;
}

/* Groups that another filter has dropped are not ranked. */
static int rank_groups(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v)
{
    double *metric = ares_malloc(((size_t)g->groups + 1) * sizeof *metric);
    int64_t *group = ares_malloc(((size_t)g->groups + 1) * sizeof *group),
            *kept = ares_malloc(((size_t)g->groups + 1) * sizeof *kept), n = 0;
    for (int64_t i = 0; i < g->groups; i++) {
        if (!v[i].keep) continue;
        metric[n] = group_metric(cfg->rv_metric, g, i);
        group[n++] = i;
        v[i].keep = false;
        (void)snprintf(v[i].reason, sizeof v[i].reason, "rv_%s", cfg->rv_strategy);
    }
    /* metric has the groups still kept, so kept holds places among these */
    int64_t k = rv_select(cfg, metric, n, kept, NULL);
    for (int64_t i = 0; i < k; i++) v[group[kept[i]]] = (ares_verdict){ .keep = true };
    ares_free(kept);
    ares_free(group);
    ares_free(metric);
    return ARES_OK;
}

static void check(ares_config *cfg, const ares_filter_config *f, const ares_filter_run *run)
{
    bool fraction = strcmp(f->rv_strategy, "top_k_abs") != 0 && strcmp(f->rv_strategy, "none") != 0;
    if (wanted(f) && run->n < 2 && strstr(f->rv_metric, "_variance"))
        ares_config_fault(
            cfg, "worker.rollout.rollout_filter_metric",
            "one answer has no deviation; set worker.rollout.n to 2 or more, or another metric");
    if (fraction && f->rv_value > 1)
        ares_config_fault(cfg, "worker.rollout.rollout_filter_value",
                          "%s takes a share, at most 1; for a number of groups set "
                          "rollout_filter_strategy to top_k_abs",
                          f->rv_strategy);
    if (strcmp(f->rv_strategy, "top_k_abs") == 0 && f->rv_value < 1)
        ares_config_fault(cfg, "worker.rollout.rollout_filter_value",
                          "top_k_abs keeps that many groups; set 1 or more");
    if (fraction && strcmp(f->rv_strategy, "top_p") != 0 && f->rv_value == 0)
        ares_config_fault(cfg, "worker.rollout.rollout_filter_value",
                          "%s of 0 says nothing; set a share above 0", f->rv_strategy);
}

const ares_filter ares_filter_rv = {
    "rv",
    "groups ranked by the deviation of their rewards",
    "the first groups whose softmax(std) reach rollout_filter_value (top_p); a share, a number, or "
    "those near the best",
    "RAGEN, arXiv 2504.20073",
    "worker.rollout.rollout_filter_value=0.9",
    wanted,
    needs,
    rank_groups,
    check,
    "worker.rollout.rollout_filter_type "
    "worker.rollout.rollout_filter_metric "
    "worker.rollout.rollout_filter_include_zero "
    "worker.rollout.rollout_filter_top_p_prob_mode"
};
