/*
 * KL by difficulty: its means, the controllers of its weight, the weight of a token
 * (docs/aepo.md#kl-by-token-and-difficulty), and KL in the reward
 * (docs/update.md#kl-to-the-reference-model).
 */
#include "kl_bucket.h"

#include <math.h>
#include <string.h>

double kl_row_mean(const float *kl, const uint8_t *mask, int64_t n)
{
    double sum = 0, count = 0;
    for (int64_t t = 0; t < n; t++) {
        if (!mask[t]) continue;
        sum += (double)kl[t];
        count++;
    }
    return count > 0 ? sum / count : 0;
}

void ares_kl_see(ares_batch *b, int64_t row, int64_t end, const float *kl, const bool *passed)
{
    ares_row_kl *all =
        ares_arena_alloc(&b->arena, (size_t)(b->n_row_kl + end - row + 1) * sizeof *all);
    if (b->n_row_kl) memcpy(all, b->row_kl, (size_t)b->n_row_kl * sizeof *all);
    b->row_kl = all;
    for (int64_t r = row; r < end && kl; r++) {
        int64_t at = b->row_start[r];
        if (!ares_batch_row_counts(b, r) || (passed && !passed[r])) continue;
        all[b->n_row_kl++] =
            (ares_row_kl){ r, b->updates,
                           kl_row_mean(kl + at, b->response_mask + at, b->row_start[r + 1] - at) };
    }
    b->updates++;
}

double kl_lambda_step(double lambda, double kl, double budget, double eta)
{
    return fmax(0, lambda + eta * (kl - budget));
}

void log_beta_step(const log_beta_config *cfg, int64_t update, double kl, log_beta *s)
{
    s->kl_ema = s->started ? (1 - cfg->ema) * kl + cfg->ema * s->kl_ema : kl;
    s->started = true;
    double error = s->kl_ema / cfg->target - 1;
    if (fabs(error) < cfg->deadzone || update % cfg->interval) return;
    s->error_ema = (1 - cfg->ema) * error + cfg->ema * s->error_ema;
    double beta = exp(log(s->beta) + cfg->lr * fmin(fmax(s->error_ema, -cfg->clip), cfg->clip));
    s->beta = fmin(fmax(beta, cfg->min), cfg->max);
}

void kl_weigh(double factor, double scale, const uint8_t *relax, const uint8_t *mask, int64_t n,
              float *weight)
{
    float plain = (float)factor, relaxed = (float)(factor * scale);
    for (int64_t t = 0; t < n; t++) weight[t] = !mask[t] ? 0 : relax && relax[t] ? relaxed : plain;
}

void ares_kl_in_reward(ares_batch *b, double coef, double sums[2])
{
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t at = b->row_start[r], end = b->row_start[r + 1];
        for (int64_t i = at; i < end; i++) {
            double weight =
                b->response_mask[i] ? coef * (b->kl_weight ? (double)b->kl_weight[i] : 1) : 0;
            double penalty = weight != 0 ? weight * (double)b->kl[i] : 0;
            b->token_level_rewards[i] = (float)((double)b->token_level_scores[i] - penalty);
        }
        if (!ares_batch_row_counts(b, r)) continue;
        sums[0] += kl_row_mean(b->kl + at, b->response_mask + at, end - at);
        sums[1]++;
    }
}
