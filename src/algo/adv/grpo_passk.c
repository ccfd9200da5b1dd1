/*
 * Pass@k training (arXiv 2503.19595, in the form of verl and EasyR1): only the best answer of a
 * group has an advantage, by how much its score exceeds the second best; divided by std + 1e-6 with
 * norm_adv_by_std_in_grpo. Where several answers are best, all advantages are 0.
 */
#include <math.h>

#include "adv.h"

static void best_alone(const adv_estimate *p, const adv_group *g, double *advantage)
{
    int64_t best = 0;
    double second = -INFINITY;
    for (int64_t i = 1; i < g->n; i++)
        if (g->score[i] > g->score[best]) best = i;
    for (int64_t i = 0; i < g->n; i++)
        if (i != best) second = fmax(second, g->score[i]);
    if (g->n < 2) return; /* there is no second */
    advantage[best] =
        (g->score[best] - second) / (p->cfg->norm_adv_by_std_in_grpo ? g->std + 1e-6 : 1);
}

static int grpo_passk(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    return adv_of_groups(&ares_adv_grpo_passk, cfg, world, b, best_alone);
}

const ares_adv ares_adv_grpo_passk = { "grpo_passk",
                                       "lead of the group's best answer, for it alone",
                                       "A = (best - second) / (std + 1e-6), others 0",
                                       "arXiv 2503.19595",
                                       ARES_NEEDS_GROUPS,
                                       grpo_passk,
                                       "algorithm.norm_adv_by_std_in_grpo" };
