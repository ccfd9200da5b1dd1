/*
 * On-policy RL with optimal reward baseline (arXiv 2505.23585, as in verl's
 * compute_opo_outcome_advantage): the baseline is the group's mean score weighted by length, A = s
 * - sum(l s) / sum(l), not divided by a std.
 */

#include "adv.h"
#include "stats.h"

static void length_weighted(const adv_estimate *p, const adv_group *g, double *advantage)
{
    (void)p;
    exact_sum weighted = { 0 };
    double lengths = 0; /* whole numbers: exact in any order */
    for (int64_t i = 0; i < g->n; i++) {
        lengths += g->length[i];
        /* distances from the mean are summed, so that equal scores give exactly 0 */
        exact_add(&weighted, g->length[i] * (g->score[i] - g->mean));
    }
    double baseline = g->n > 1 && lengths > 0 ? g->mean + exact_value(&weighted) / lengths : 0;
    for (int64_t i = 0; i < g->n; i++) advantage[i] = g->score[i] - baseline;
}

static int opo(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    return adv_of_groups(&ares_adv_opo, cfg, world, b, length_weighted);
}

const ares_adv ares_adv_opo = { "opo",
                                "reward less the group's length-weighted mean",
                                "A = s - sum(l s) / sum(l)",
                                "arXiv 2505.23585",
                                ARES_NEEDS_GROUPS,
                                opo,
                                NULL };
