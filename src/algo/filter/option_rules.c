/* Options of the filters that make no sense together. */
#include <string.h>

#include "filter.h"

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
