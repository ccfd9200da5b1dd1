/*
 * VAPOR's group advantage (docs/vapor.md#advantage): A = s less the group's mean, where answers
 * without a verifiable span count with a score of 0. The formula is that of grpo without the std.
 * It has its own name because a group of one answer is allowed here; its advantage is 0.
 */
#include "adv.h"

static void distance(const adv_estimate *p, const adv_group *g, double *advantage)
{
    if (g->n > 1) adv_mean_free(p, g, advantage);
}

static int vapor(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    return adv_of_groups(&ares_adv_vapor, cfg, world, b, distance);
}

const ares_adv ares_adv_vapor = {
    "vapor", "reward less its group's mean", "A = s - mean", "VAPOR", 0, vapor, NULL
};
