/*
 * Groups whose mean accuracy (or score) lies strictly between two bounds (AEPO;
 * docs/aepo.md#choosing-groups): not all right, not all wrong.
 */
#include <stdio.h>
#include <string.h>

#include "ares/algo_filter.h"
#include "stats.h"

/* algorithm.filter_key: accuracy, or overall (the score). */
static bool by_accuracy(const ares_filter_config *cfg)
{
    return strcmp(cfg->filter_key, "accuracy") == 0;
}
static bool wanted(const ares_filter_config *cfg)
{
    return cfg->online_filtering;
}
static unsigned needs(const ares_filter_config *cfg)
{
    return by_accuracy(cfg) ? ARES_FILTER_ACCURACY : ARES_FILTER_OVERALL;
}

/* The bounds are strict: a mean that equals one of them is dropped. */
static int within(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v)
{
    const double *x = by_accuracy(cfg) ? g->accuracy : g->overall;
    for (int64_t i = 0; i < g->groups; i++) {
        double mean = stats_mean(x + g->group_start[i], g->group_start[i + 1] - g->group_start[i]);
        if (!v[i].keep || (cfg->filter_low < mean && mean < cfg->filter_high)) continue;
        v[i].keep = false;
        /* "accuracy_low", a part of a metric's name */
        (void)snprintf(v[i].reason, sizeof v[i].reason, "%s_%s", cfg->filter_key,
                       mean <= cfg->filter_low ? "low" : "high");
    }
    return ARES_OK;
}

static void check(ares_config *cfg, const ares_filter_config *f, const ares_filter_run *run)
{
    if (!f->online_filtering) return;
    if (!(f->filter_low < f->filter_high))
        ares_config_fault(cfg, "algorithm.filter_low",
                          "no mean lies above it and below filter_high = %g", f->filter_high);
    /* the mean of one accuracy is 0 or 1, and the bounds are strict */
    if (run->n < 2 && f->filter_low >= 0 && f->filter_high <= 1)
        ares_config_fault(cfg, "algorithm.online_filtering",
                          "one answer is right or wrong, so no mean lies between the bounds; set "
                          "worker.rollout.n to 2 or more");
    if (by_accuracy(f) && !run->judges)
        ares_config_fault(cfg, "algorithm.filter_key",
                          "no reward says whether an answer is right; name one that does in "
                          "worker.reward.accuracy, or set overall");
}

const ares_filter ares_filter_accuracy_range = {
    "accuracy_range",
    "mean accuracy (or score) strictly within bounds",
    "filter_low < mean < filter_high",
    "ARES, arXiv 2510.08457",
    "algorithm.online_filtering=true",
    wanted,
    needs,
    within,
    check,
    "algorithm.filter_key algorithm.filter_low algorithm.filter_high"
};
