/*
 * Group policy gradient (arXiv 2504.02546, as in verl's compute_gpg_outcome_advantage with f_norm
 * 1): A = alpha (s - mean), where alpha = responses / max(1, responses with a score other than 0),
 * over the whole batch and all ranks. Answers that were left out count in neither.
 */
#include "adv.h"

static int gpg(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    adv_estimate p;
    ARES_TRY(adv_open(&p, &ares_adv_gpg, cfg, world, b));
    adv_groups(&p, adv_mean_free);
    int64_t count[2] = { 0, 0 };
    for (int64_t r = 0; r < b->rows; r++) {
        if (!adv_counts(&p, r)) continue;
        count[0]++;
        count[1] += p.score[r] != 0;
    }
    ARES_TRY(ares_world_sum_i64(world, count, 2));
    for (int64_t r = 0; r < b->rows; r++)
        p.row[r] *= (double)count[0] / (double)ARES_MAX(count[1], 1);
    adv_spread(&p);
    return adv_close(&p);
}

const ares_adv ares_adv_gpg = {
    "gpg",
    "reward less its group's mean, scaled up by the share of zero scores",
    "A = (B / nonzero) (s - mean)",
    "arXiv 2504.02546",
    ARES_NEEDS_GROUPS,
    gpg,
    NULL
};
