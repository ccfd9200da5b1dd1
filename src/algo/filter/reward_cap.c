/*
 * A cap on the mean reward by data source (docs/filters.md#caps-by-data-source): groups of zeros
 * are dropped, and groups whose mean is above the cap. As in slime's example, scores are added in
 * sample order and compared without a tolerance: three scores of 0.1 are above a cap of 0.1. A
 * group whose source has no cap stays, also one of zeros.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/algo_filter.h"

static bool wanted(const ares_filter_config *cfg)
{
    return strcmp(cfg->dynamic_sampling, "reward_cap") == 0;
}

static unsigned needs(const ares_filter_config *cfg)
{
    (void)cfg;
    return ARES_FILTER_SCORE;
}

static int under_cap(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v)
{
    (void)cfg;
    for (int64_t i = 0; i < g->groups; i++) {
        int64_t first = g->group_start[i], n = g->group_start[i + 1] - first, zeros = 0;
        const char *source = g->source && g->source[i] ? g->source[i] : "unknown", *why = NULL;
        double cap = g->cap ? g->cap[i] : NAN, sum = 0;
        if (!v[i].keep || isnan(cap)) continue;
        for (int64_t r = 0; r < n; r++) {
            sum += g->score[first + r];
            zeros += g->score[first + r] == 0;
        }
        /* "all_zero_math": the source is part of the reason, as each has its own cap */
        if (zeros == n) why = "all_zero";
        else if (sum / (double)n > cap) why = "reward_cap";
        if (!why) continue;
        v[i].keep = false;
        (void)snprintf(v[i].reason, sizeof v[i].reason, "%s_%s", why, source);
    }
    return ARES_OK;
}

/* The cap of a source; NaN: it has none, or the lists do not fit each other. */
double ares_reward_cap(const char *const *names, int64_t n_names, const double *caps,
                       int64_t n_caps, const char *source)
{
    if (!source || n_names != n_caps) return NAN;
    for (int64_t i = 0; i < n_names; i++)
        if (strcmp(names[i], source) == 0) return caps[i];
    return NAN;
}

const ares_filter ares_filter_reward_cap = {
    "reward_cap",
    "mean reward at most its source's cap, and not all zeros",
    "mean <= cap of the data source, and a score that is not 0",
    "slime, curriculum example",
    "algorithm.dynamic_sampling_filter=reward_cap",
    wanted,
    needs,
    under_cap,
    NULL,
    NULL
};
