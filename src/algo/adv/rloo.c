/* REINFORCE leave-one-out (arXiv 2402.14740): A = s less the mean of the group's other scores. */
#include "adv.h"

static void leave_one_out(const adv_estimate *p, const adv_group *g, double *advantage)
{
    /* s - (n mean - s) / (n - 1) = (s - mean) n / (n - 1), which is 0 where all are equal */
    adv_mean_free(p, g, advantage);
    for (int64_t i = 0; g->n > 1 && i < g->n; i++)
        advantage[i] *= (double)g->n / (double)(g->n - 1);
}

static int rloo(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    return adv_of_groups(&ares_adv_rloo, cfg, world, b, leave_one_out);
}

const ares_adv ares_adv_rloo = { "rloo",
                                 "reward less the mean of the group's others",
                                 "A = s_i - sum_{j != i} s_j / (n - 1)",
                                 "arXiv 2402.14740",
                                 ARES_NEEDS_GROUPS,
                                 rloo,
                                 NULL };
