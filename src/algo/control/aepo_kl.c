/*
 * The KL terms of AEPO: first the arithmetic of KL weights and of KL in the reward, then what the
 * AEPO control does with it before and after an update.
 */
#include "aepo.h"

#include <math.h>
#include <string.h>

/*
 * KL by difficulty: its means, the controllers of its weight, the weight of a token
 * (docs/aepo.md#kl-by-token-and-difficulty), and KL in the reward
 * (docs/update.md#kl-to-the-reference-model).
 */

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

void ares_kl_record_rows(ares_batch *b, int64_t row, int64_t end, const float *kl,
                         const bool *passed)
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

/*
 * The AEPO control's part in the KL: each token's weight before the update, each difficulty's
 * factor after it (docs/aepo.md#kl-by-token-and-difficulty).
 */

void aepo_write_kl_weight(const aepo *s, ares_batch *b, const double *soft_cost, ares_arena *arena)
{
    static const double by_difficulty[ARES_DIFFICULTIES] = { 1, 2, 1, 0.5 };
    const aepo_options *o = s->options;
    const aepo_actor_config *a = &o->actor;
    bool window = strcmp(o->algorithm.hwe_kl_scope, "window") == 0;
    /* without the column every token weighs 1 */
    if (ares_kl_acts(s->env.algorithm) == ARES_KL_NOWHERE || !a->dynamic_kl_loss) return;
    ARES_PUT(b, kl_weight);
    uint8_t *wide = ares_arena_alloc(arena, (size_t)b->tokens + 1);
    for (int64_t r = 0; r < b->rows; r++) {
        const ares_sample *x = &b->samples[r];
        int64_t at = b->row_start[r], n = b->row_start[r + 1] - at;
        double factor = s->controller == AEPO_KL_DUAL_ASCENT ? s->lambda[x->difficulty]
                        : s->controller == AEPO_KL_LOG_SPACE ? s->beta[x->difficulty].beta
                                                             : 1;
        if (o->algorithm.difficulty_aware_kl_penalty) factor *= by_difficulty[x->difficulty];
        /* an answer that explores and fails is held back less */
        if (a->enable_second_chance_kl && soft_cost[r] >= a->second_chance_soft_cost_min &&
            (!a->second_chance_easy_only || x->difficulty == ARES_EASY) &&
            (!a->second_chance_incorrect_only || x->accuracy < 0.5F))
            factor *= a->second_chance_kl_relax;
        const uint8_t *relax = b->hwe + at;
        if (window) {
            hwe_widen(relax, n, o->rollout.window_size, wide);
            relax = wide;
        }
        kl_weigh(factor, o->algorithm.hwe_kl_scale, relax, b->response_mask + at, n,
                 b->kl_weight + at);
    }
}

/*
 * Sets kl of each row in local [rows] to the mean over the row's measurements in seen [n]. Rows
 * without any are left out. The caller has set the other members of local.
 */
static void take_means(const ares_row_kl *seen, int64_t n, int64_t rows, control_sample *local,
                       ares_arena *arena)
{
    double *times = ares_arena_calloc(arena, (size_t)rows + 1, sizeof *times);
    for (int64_t r = 0; r < rows; r++) local[r].kl = 0;
    for (int64_t i = 0; i < n; i++) {
        local[seen[i].row].kl += seen[i].kl;
        times[seen[i].row]++;
    }
    for (int64_t r = 0; r < rows; r++) {
        local[r].left_out = times[r] == 0;
        if (times[r] > 0) local[r].kl /= times[r];
    }
}

/* sum, count [ARES_DIFFICULTIES]: of the KL over the samples of all ranks. */
static int gather_kl(const aepo *s, const ares_batch *b, const control_sample *local, double *sum,
                     int64_t *count)
{
    control_gathered all;
    int rc = control_gather(s->env.world, b, local, &all);
    memset(sum, 0, ARES_DIFFICULTIES * sizeof *sum);
    memset(count, 0, ARES_DIFFICULTIES * sizeof *count);
    for (int64_t i = 0; i < all.n_samples && rc == ARES_OK; i++) {
        sum[all.samples[i].difficulty] += all.samples[i].kl;
        count[all.samples[i].difficulty]++;
    }
    control_gathered_fini(&all);
    return rc;
}

/*
 * KL in the loss is measured in all passes of the actor's update; in a step without an update
 * (trainer.critic_warmup) nothing moves.
 */
int aepo_adapt_kl(aepo *s, const ares_batch *b, ares_metrics *m, ares_arena *arena)
{
    double *kl = ares_arena_calloc(arena, (size_t)b->rows + 1, sizeof *kl), sum[ARES_DIFFICULTIES];
    int64_t count[ARES_DIFFICULTIES];
    bool in_loss = ares_kl_acts(s->env.algorithm) == ARES_KL_IN_LOSS;
    control_sample *local = ares_arena_calloc(arena, (size_t)b->rows + 1, sizeof *local);
    for (int64_t r = 0; r < b->rows; r++)
        local[r] = (control_sample){ .index = b->samples[r].index,
                                     .difficulty = b->samples[r].difficulty };
    if (s->controller == AEPO_KL_LOG_SPACE) {
        /* log_space: a step of the betas for every optimizer step of the actor, by the rows it
         * trained on */
        const aepo_algorithm_config *a = &s->options->algorithm;
        const double *target = AEPO_BY_DIFFICULTY(s->options, kl_target);
        double sums[ARES_DIFFICULTIES];
        int64_t counts[ARES_DIFFICULTIES], at = 0;
        for (int64_t u = 0; u < b->updates; u++) {
            int64_t first = at;
            while (at < b->n_row_kl && b->row_kl[at].update == u) at++;
            take_means(b->row_kl + first, at - first, b->rows, local, arena);
            ARES_TRY(gather_kl(s, b, local, sums, counts));
            s->beta_updates++;
            for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
                log_beta_config cfg = { .target = target[d],
                                        .lr = a->kl_beta_lr,
                                        .clip = a->kl_beta_clip,
                                        .ema = a->kl_beta_ema,
                                        .deadzone = a->kl_beta_deadzone,
                                        .min = a->kl_beta_min,
                                        .max = a->kl_beta_max,
                                        .interval = a->kl_beta_update_interval };
                if (counts[d])
                    log_beta_step(&cfg, s->beta_updates, sums[d] / (double)counts[d], &s->beta[d]);
            }
        }
    }
    if (in_loss) take_means(b->row_kl, b->n_row_kl, b->rows, local, arena);
    else {
        ARES_TRY(ares_world_share_error(s->env.world,
                                        control_row_kl(b, s->env.algorithm, AEPO_WHO, kl)));
        for (int64_t r = 0; r < b->rows; r++) local[r].kl = kl[r], local[r].left_out = false;
    }
    ARES_TRY(gather_kl(s, b, local, sum, count));
    enum { LEAST_SAMPLES = 8 }; /* a mean over fewer is too noisy to act on */
    const double *budget = AEPO_BY_DIFFICULTY(s->options, kl_budget);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES && s->controller == AEPO_KL_DUAL_ASCENT; d++)
        if (count[d] >= LEAST_SAMPLES)
            s->lambda[d] = kl_lambda_step(s->lambda[d], sum[d] / (double)count[d], budget[d],
                                          s->options->algorithm.kl_lambda_lr);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES && m; d++) {
        if (count[d]) aepo_metric(m, "aepo/kl", d, "", sum[d] / (double)count[d]);
        if (s->controller == AEPO_KL_DUAL_ASCENT)
            aepo_metric(m, "aepo/kl_lambda", d, "", s->lambda[d]);
        if (s->controller == AEPO_KL_LOG_SPACE)
            aepo_metric(m, "aepo/kl_beta", d, "", s->beta[d].beta);
    }
    return ARES_OK;
}
