/*
 * REINFORCE++ with a baseline (arXiv 2501.03262, as in verl's
 * compute_reinforce_plus_plus_baseline_outcome_advantage): scores less their group's mean, spread
 * over the tokens and whitened over all tokens of the batch.
 */
#include <string.h>

#include "adv.h"
#include "stats.h"

static int reinforce_plus_plus_baseline(const ares_algorithm_config *cfg, ares_world *world,
                                        ares_batch *b)
{
    adv_estimate p;
    ARES_TRY(adv_open(&p, &ares_adv_reinforce_plus_plus_baseline, cfg, world, b));
    adv_groups(&p, adv_mean_free);
    adv_spread(&p);
    ARES_TRY(stats_masked_whiten(world, p.token, b->response_mask, b->tokens));
    memcpy(p.returned, p.token, (size_t)b->tokens * sizeof *p.token);
    return adv_close(&p);
}

const ares_adv ares_adv_reinforce_plus_plus_baseline = {
    "reinforce_plus_plus_baseline",
    "reward less its group's mean, whitened over the batch",
    "A = whiten(s - mean)",
    "arXiv 2501.03262",
    ARES_NEEDS_GROUPS,
    reinforce_plus_plus_baseline,
    NULL
};
