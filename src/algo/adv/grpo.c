/*
 * Group relative policy optimization (DeepSeekMath, arXiv 2402.03300, section 4.1): A = (s - mean) / (std + 1e-6), the
 * same for every token of a response. std divides by n - 1 and eps is 1e-6, as in verl. Without the division: Dr. GRPO
 * (arXiv 2503.20783). A group of equal scores gives exactly 0.
 */
#include "ares/algo.h"

#include <math.h>

static int group(const ares_algorithm_config *cfg, ares_batch *b, int64_t g, float *scores)
{
    int64_t row = b->group_start[g], n = b->group_start[g + 1] - row;
    if (n < 2)
        return ares_fail(ARES_ECONFIG, "adv: grpo: group %lld has %lld response; grpo compares responses, set worker.rollout.n to 2 or more", (long long)g, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t t = b->row_start[row + i]; t < b->row_start[row + i + 1]; t++) sum += (double)b->token_level_rewards[t];
        if (!isfinite(sum)) return ares_fail(ARES_ENUMERIC, "adv: grpo: row %lld: token_level_rewards add up to %g", (long long)(row + i), sum);
        scores[i] = (float)sum;
    }
    double mean = ares_mean(scores, n), std = ares_std(scores, n, mean);
    for (int64_t i = 0; i < n; i++) {
        double a = (double)scores[i] - mean;
        if (cfg->norm_adv_by_std_in_grpo) a /= std + 1e-6;
        if (std == 0) a = 0;
        for (int64_t t = b->row_start[row + i]; t < b->row_start[row + i + 1]; t++) b->advantages[t] = b->returns[t] = b->response_mask[t] ? (float)a : 0;
    }
    return ARES_OK;
}

static int grpo(const ares_algorithm_config *cfg, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "adv: grpo", token_level_rewards));
    ARES_TRY(ARES_NEED(b, "adv: grpo", response_mask));
    ARES_PUT(b, advantages);
    ARES_PUT(b, returns);
    float *scores = ares_arena_alloc(&b->arena, (size_t)(b->rows + 1) * sizeof *scores);
    for (int64_t g = 0; g < b->groups; g++) ARES_TRY(group(cfg, b, g, scores));
    return ARES_OK;
}

const ares_adv ares_adv_grpo = { "grpo", "reward standardised within its group", ARES_NEEDS_GROUPS, grpo };
