/*
 * The optimal token baseline (as in verl's compute_optimal_token_baseline_advantage): a baseline
 * for every place t of a response, the mean of the group's returns there, weighted by how much the
 * tokens so far would move the policy:
 *
 *     G_t = r_t + r_{t+1} + ...        W_t = sum_{j <= t} rho_j^2 (1 - 2 pi_j + sum_v pi_jv^2)
 *     A_t = G_t - sum_i G_it W_it / (sum_i W_it + 1e-8)
 *
 * over the responses i of the group that the policy wrote a token of at t. The factor of W is the
 * squared norm of the gradient of a token's log-prob by the logits; rho is the weight of
 * rollout_is, 1 without it. Equal returns are their own baseline exactly (verl's 1e-8 acts on their
 * distances here), so that they teach nothing.
 */
#include <math.h>

#include "adv.h"
#include "stats.h"

/* Sums of a row's rewards from each token on, and of W up to it; 0 where the mask is 0. */
static void walk(const adv_estimate *p, int64_t r, double *weight)
{
    const ares_batch *b = p->b;
    double sum = 0;
    for (int64_t t = b->row_start[r + 1] - 1; t >= b->row_start[r]; t--) {
        if (b->response_mask[t]) sum += (double)b->token_level_rewards[t];
        p->returned[t] = sum;
    }
    sum = 0;
    for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
        if (!b->response_mask[t]) continue;
        double rho = b->rollout_is_weights ? (double)b->rollout_is_weights[t] : 1,
               pi = ares_f64_exp((double)b->old_log_probs[t]);
        sum += rho * rho * (1 - 2 * pi + (double)b->sum_pi_squared[t]);
        weight[t] = sum;
    }
}

/* The baseline of rows [first, end) at place t, counted from their first tokens. */
static double baseline_at(const adv_estimate *p, int64_t first, int64_t end, int64_t t,
                          const double *weight)
{
    const ares_batch *b = p->b;
    exact_sum above = { 0 }, all = { 0 };
    double least = INFINITY;
    for (int64_t pass = 0; pass < 2; pass++) /* the least return, then distances from it */
        for (int64_t r = first; r < end; r++) {
            int64_t i = b->row_start[r] + t;
            if (i >= b->row_start[r + 1] || !b->response_mask[i]) continue;
            if (pass == 0) least = fmin(least, p->returned[i]);
            else {
                exact_add(&above, (p->returned[i] - least) * weight[i]);
                exact_add(&all, weight[i]);
            }
        }
    return isfinite(least) ? least + exact_value(&above) / (exact_value(&all) + 1e-8) : 0;
}

static int optimal_token_baseline(const ares_algorithm_config *cfg, ares_world *world,
                                  ares_batch *b)
{
    adv_estimate p;
    ARES_TRY(adv_open(&p, &ares_adv_optimal_token_baseline, cfg, world, b));
    ARES_TRY(ARES_NEED(b, "adv: optimal_token_baseline", old_log_probs));
    ARES_TRY(ARES_NEED(b, "adv: optimal_token_baseline", sum_pi_squared));
    double *weight = ares_arena_calloc(&b->arena, (size_t)b->tokens + 1, sizeof *weight);
    for (int64_t r = 0; r < b->rows; r++) walk(&p, r, weight);
    for (int64_t g = 0; g < b->groups; g++) {
        int64_t first = b->group_start[g], end = b->group_start[g + 1], longest = 0;
        for (int64_t r = first; r < end; r++)
            longest = ARES_MAX(longest, b->row_start[r + 1] - b->row_start[r]);
        for (int64_t t = 0; t < longest; t++) {
            /* an answer that is alone in its group is compared with 0 */
            double baseline = end - first > 1 ? baseline_at(&p, first, end, t, weight) : 0;
            for (int64_t r = first; r < end; r++)
                if (b->row_start[r] + t < b->row_start[r + 1])
                    p.token[b->row_start[r] + t] = p.returned[b->row_start[r] + t] - baseline;
        }
    }
    return adv_close(&p);
}

const ares_adv ares_adv_optimal_token_baseline = {
    "optimal_token_baseline",
    "returns less a baseline of their place, weighted by how far the tokens so far move the policy",
    "A_t = G_t - sum_i G_it W_it / sum_i W_it, W_t = sum_{j <= t} (1 - 2 pi_j + sum_v pi_jv^2)",
    "verl",
    ARES_NEEDS_GROUPS | ARES_NEEDS_SUM_PI_SQUARED,
    optimal_token_baseline,
    NULL
};
