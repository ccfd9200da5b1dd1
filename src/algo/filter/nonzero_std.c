/*
 * Keeps groups whose scores differ (docs/filters.md#groups-of-equal-scores): std with divisor n - 1
 * above 1e-6. With keep_when_insufficient a group of equal scores stays as long as dropping it
 * would leave fewer groups in play than the batch takes.
 */
#include <stdio.h>
#include <string.h>

#include "filter.h"

static bool wanted(const ares_filter_config *cfg)
{
    return strcmp(cfg->dynamic_sampling, "nonzero_std") == 0;
}

static unsigned needs(const ares_filter_config *cfg)
{
    (void)cfg;
    return ARES_FILTER_SCORE;
}

static int deviating(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v)
{
    int64_t in_play = g->in_play;
    for (int64_t i = 0; i < g->groups; i++) {
        if (!v[i].keep || group_metric("reward_variance", g, i) > 1e-6) continue;
        /* in_play: groups that may still become part of the batch */
        if (cfg->keep_when_insufficient && in_play <= g->target) continue;
        in_play--;
        v[i].keep = false;
        /* with the score that all answers have: "zero_std_1.0" are groups of right answers */
        (void)snprintf(v[i].reason, sizeof v[i].reason, "zero_std_%.1f",
                       g->score[g->group_start[i]]);
    }
    return ARES_OK;
}

static void check(ares_config *cfg, const ares_filter_config *f, const ares_filter_run *run)
{
    if (wanted(f) && run->n < 2)
        ares_config_fault(cfg, "algorithm.dynamic_sampling_filter",
                          "one answer has no deviation; set worker.rollout.n to 2 or more");
    if (f->keep_when_insufficient && !wanted(f))
        ares_config_fault(cfg, "algorithm.keep_when_insufficient",
                          "belongs to algorithm.dynamic_sampling_filter: nonzero_std");
}

const ares_filter ares_filter_nonzero_std = { "nonzero_std",
                                              "scores that differ within the group",
                                              "std > 1e-6",
                                              "slime",
                                              "algorithm.dynamic_sampling_filter=nonzero_std",
                                              wanted,
                                              needs,
                                              deviating,
                                              check,
                                              "algorithm.keep_when_insufficient" };
