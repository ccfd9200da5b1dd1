/*
 * rollout_is: weights for a sampler whose log-probs differ from the trainer's, because rollout uses
 * bf16, other kernels or older weights (formulas: rollout_weight.h).
 */
#include "rollout_weight.h"

#include <math.h>
#include <string.h>

#include "plain.h"

static int token_error(const ares_batch *b, int64_t row, int64_t t, float old, float rollout)
{
    return ares_fail(ARES_ENUMERIC,
                     "loss: rollout_is: row %lld, token %lld has old_log_prob %g and "
                     "rollout_log_prob %g: must be finite where the mask is 1",
                     (long long)row, (long long)(t - b->row_start[row]), (double)old,
                     (double)rollout);
}

int rollout_weights(const ares_loss_config *cfg, const ares_batch *b, int64_t row, int64_t end,
                    float *weight, ares_loss_sums *sums)
{
    bool by_token = strcmp(cfg->rollout_is, "token") == 0,
         mean = strcmp(cfg->rollout_is, "geometric") == 0,
         none = strcmp(cfg->rollout_is, "none") == 0;
    bool mask = strcmp(cfg->rollout_is_mode, "mask") == 0;
    double upper = cfg->rollout_is_threshold,
           lower = ares_is_null_f64(cfg->rollout_is_threshold_lower)
                       ? 1 / upper
                       : cfg->rollout_is_threshold_lower;
    int64_t first = b->row_start[row];
    if (!none) ARES_TRY(ARES_NEED(b, "update_actor", rollout_log_probs));
    for (int64_t r = row; r < end; r++) {
        double sum = 0, n = 0;
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1] && !none; t++) {
            if (!b->response_mask[t]) continue;
            double x = (double)b->old_log_probs[t] - (double)b->rollout_log_probs[t];
            if (!isfinite(x))
                return token_error(b, r, t, b->old_log_probs[t], b->rollout_log_probs[t]);
            sum += x;
            n++;
        }
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            weight[t - first] = b->response_mask[t] ? 1 : 0;
            if (none || !b->response_mask[t]) continue;
            double x = by_token ? (double)b->old_log_probs[t] - (double)b->rollout_log_probs[t]
                       : mean   ? sum / n
                                : sum;
            double w = ares_rollout_weight(x, mask, lower, upper),
                   whole = ares_loss_exp(ares_loss_bound(x));
            weight[t - first] = (float)w;
            if (!sums) continue;
            sums->weight_tokens += 1;
            sums->weight += w;
            sums->weight_cut += w < whole || w > whole;
        }
    }
    return ARES_OK;
}
