/*
 * Two estimators of REINFORCE++: of discounted returns, and with the group's mean as a baseline.
 * Both whiten advantages over all tokens of the batch.
 */
#include "adv.h"
#include "stats.h"

#include <string.h>

/*
 * REINFORCE++ (arXiv 2501.03262): discounted returns of each token, R_t = r_t + gamma R_{t+1},
 * whitened over all tokens of the batch. As in verl, a token of mask 0 gets its return but passes
 * nothing on to the tokens before it, so a reward on such a token has no effect.
 */

static int reinforce_plus_plus(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b)
{
    adv_estimate p;
    ARES_TRY(adv_open(&p, &ares_adv_reinforce_plus_plus, cfg, world, b));
    for (int64_t r = 0; r < b->rows; r++) {
        double carried = 0;
        for (int64_t t = b->row_start[r + 1] - 1; t >= b->row_start[r]; t--) {
            p.token[t] = p.returned[t] = (double)b->token_level_rewards[t] + cfg->gamma * carried;
            carried = b->response_mask[t] ? p.token[t] : 0;
        }
    }
    ARES_TRY(stats_masked_whiten(world, p.token, b->response_mask, b->tokens));
    return adv_close(&p);
}

const ares_adv ares_adv_reinforce_plus_plus = { "reinforce_plus_plus",
                                                "discounted returns, whitened over the batch",
                                                "A = whiten(r_t + gamma R_{t+1})",
                                                "arXiv 2501.03262",
                                                0,
                                                reinforce_plus_plus,
                                                "algorithm.gamma" };

/*
 * REINFORCE++ with a baseline (arXiv 2501.03262, as in verl's
 * compute_reinforce_plus_plus_baseline_outcome_advantage): scores less their group's mean, spread
 * over the tokens and whitened over all tokens of the batch.
 */

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
