/* Options of the filters that make no sense together. */
#include <string.h>

#include "filter.h"

void ares_filter_check(ares_config *cfg, const ares_filter_config *f, int64_t n)
{
    bool fraction = strcmp(f->rv_strategy, "top_k_abs") != 0 && strcmp(f->rv_strategy, "none") != 0;
    if (f->online_filtering && !(f->filter_low < f->filter_high))
        ares_config_fault(cfg, "algorithm.filter_low",
                          "no mean lies above it and below filter_high = %g", f->filter_high);
    if (f->online_filtering && n < 2 && f->filter_low >= 0 && f->filter_high <= 1)
        ares_config_fault(cfg, "algorithm.online_filtering",
                          "one answer is right or wrong, so no mean lies between the bounds; set "
                          "worker.rollout.n to 2 or more");
    if (f->informative && n < 2)
        ares_config_fault(
            cfg, "algorithm.filter_groups.enable",
            "one answer is never both right and wrong; set worker.rollout.n to 2 or more");
    ares_filter_config of_draws, of_batch;
    ares_filter_stages(f, &of_draws, &of_batch);
    if (strcmp(f->resample_mode, "same_prompt") == 0 &&
        (ares_filter_needs(&of_draws) & ARES_FILTER_RANKS))
        ares_config_fault(
            cfg, "algorithm.dynamic_sampling.mode",
            "rollout_filter_* compares the groups of a draw with each other; set new_prompts, "
            "or max_resample: 0");
    if (strcmp(f->dynamic_sampling, "nonzero_std") == 0 && n < 2)
        ares_config_fault(cfg, "algorithm.dynamic_sampling_filter",
                          "one answer has no deviation; set worker.rollout.n to 2 or more");
    if (ares_filter_rv.wanted(f) && n < 2 && strstr(f->rv_metric, "_variance"))
        ares_config_fault(
            cfg, "worker.rollout.rollout_filter_metric",
            "one answer has no deviation; set worker.rollout.n to 2 or more, or another metric");
    if (f->keep_when_insufficient && strcmp(f->dynamic_sampling, "nonzero_std") != 0)
        ares_config_fault(cfg, "algorithm.keep_when_insufficient",
                          "belongs to algorithm.dynamic_sampling_filter: nonzero_std");
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
