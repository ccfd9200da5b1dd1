/*
 * Two estimators that compare the answers of a group: grpo, and grpo_passk, which rewards only
 * the best.
 */
#include "adv.h"

#include <math.h>

/*
 * Group relative policy optimization (DeepSeekMath, arXiv 2402.03300, section 4.1): A = (s - mean)
 * / (std + 1e-6), the same for every token of a response. std divides by n - 1 and eps is 1e-6, as
 * in verl. Without the division: Dr. GRPO (arXiv 2503.20783). A group of equal scores gives exactly
 * 0.
 *
 * Two weights of RAGEN (docs/update.md#weights-of-a-group): a group's std divided by the largest of
 * the batch, and the mean length of the batch's responses divided by the response's.
 */

static void standardise(const adv_estimate *p, const adv_group *g, double *advantage)
{
    adv_mean_free(p, g, advantage);
    for (int64_t i = 0; i < g->n; i++)
        advantage[i] = g->std == 0                       ? 0
                       : p->cfg->norm_adv_by_std_in_grpo ? advantage[i] / (g->std + 1e-6)
                                                         : advantage[i];
}

static void deviation(const adv_estimate *p, const adv_group *g, double *advantage)
{
    (void)p;
    for (int64_t i = 0; i < g->n; i++) advantage[i] = g->std;
}

static int grpo(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    adv_estimate p;
    ARES_TRY(adv_open(&p, &ares_adv_grpo, cfg, world, b));
    adv_groups(&p, standardise);
    if (cfg->soft_advantage_reweight) { /* times the group's std / the batch's largest */
        double *row = p.row, largest = 0,
               *std = ares_arena_calloc(&b->arena, (size_t)b->rows + 1, sizeof *std);
        p.row = std; /* adv_groups writes the deviations there */
        adv_groups(&p, deviation);
        p.row = row;
        for (int64_t r = 0; r < b->rows; r++) largest = fmax(largest, std[r]);
        ARES_TRY(ares_world_max_f64(world, &largest, 1));
        for (int64_t r = 0; r < b->rows; r++) row[r] *= std[r] / (largest + 1e-6);
    }
    if (cfg->grpo_advantage_length_weight) { /* divided by length / mean length of the batch */
        double sums[2] = { 0, 0 }; /* tokens, answers; whole numbers: exact in any order */
        for (int64_t r = 0; r < b->rows; r++) {
            sums[0] += p.length[r];
            /* an empty answer counts, a discarded one does not */
            sums[1] += ares_batch_row_counts(b, r);
        }
        ARES_TRY(ares_world_sum_f64(world, sums, 2));
        for (int64_t r = 0; r < b->rows; r++)
            if (p.length[r] > 0) p.row[r] /= p.length[r] / (sums[0] / sums[1]);
    }
    adv_spread(&p);
    return adv_close(&p);
}

const ares_adv ares_adv_grpo = {
    "grpo",
    "reward standardised within its group",
    "A = (s - mean) / (std + 1e-6)",
    "arXiv 2402.03300, 4.1",
    ARES_NEEDS_GROUPS,
    grpo,
    "algorithm.norm_adv_by_std_in_grpo algorithm.soft_advantage_reweight "
    "algorithm.grpo_advantage_length_weight"
};

/*
 * Pass@k training (arXiv 2503.19595, in the form of verl and EasyR1): only the best answer of a
 * group has an advantage, by how much its score exceeds the second best; divided by std + 1e-6 with
 * norm_adv_by_std_in_grpo. Where several answers are best, all advantages are 0.
 */

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
