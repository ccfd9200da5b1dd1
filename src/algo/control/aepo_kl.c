/* The AEPO control's part in the KL: each token's weight before the update, each difficulty's factor after it (aepo.md 5.3, 5.4). */
#include <string.h>

#include "aepo.h"

static bool second_chance(const aepo *s, const ares_sample *x, double soft_cost)
{
    const aepo_actor_config *a = &s->options->actor;
    return a->enable_second_chance_kl && soft_cost >= a->second_chance_soft_cost_min && (!a->second_chance_easy_only || x->difficulty == ARES_EASY) &&
           (!a->second_chance_incorrect_only || x->accuracy < 0.5F);
}

void aepo_write_kl_weight(const aepo *s, ares_batch *b, const double *soft_cost, ares_arena *arena)
{
    static const double by_difficulty[ARES_DIFFICULTIES] = { 1, 2, 1, 0.5 };
    const aepo_options *o = s->options;
    bool dynamic = o->actor.dynamic_kl_loss, window = strcmp(o->algorithm.hwe_kl_scope, "window") == 0;
    bool weighs = dynamic || o->algorithm.difficulty_aware_kl_penalty || o->actor.enable_second_chance_kl;
    if (ares_kl_acts(s->env.algorithm) == ARES_KL_NOWHERE || !weighs) return;
    ARES_PUT(b, kl_weight);
    uint8_t *wide = ares_arena_alloc(arena, (size_t)b->tokens + 1);
    for (int64_t r = 0; r < b->rows; r++) {
        const ares_sample *x = &b->samples[r];
        int64_t at = b->row_start[r], n = b->row_start[r + 1] - at;
        double factor = s->controller == AEPO_KL_DUAL_ASCENT ? s->lambda[x->difficulty] : s->controller == AEPO_KL_LOG_SPACE ? s->beta[x->difficulty].beta : 1;
        if (o->algorithm.difficulty_aware_kl_penalty) factor *= by_difficulty[x->difficulty];
        if (second_chance(s, x, soft_cost[r])) factor *= o->actor.second_chance_kl_relax;
        const uint8_t *relax = dynamic ? b->hwe + at : NULL;
        if (dynamic && window) {
            ares_hwe_widen(relax, n, o->rollout.window_size, wide);
            relax = wide;
        }
        ares_kl_weigh(factor, o->algorithm.hwe_kl_scale, relax, b->response_mask + at, n, b->kl_weight + at);
    }
}

/* Sums over the samples of groups [group, end) by difficulty. */
static void kl_by_difficulty(const control_gathered *all, int64_t group, int64_t end, double *sum, int64_t *count)
{
    memset(sum, 0, ARES_DIFFICULTIES * sizeof *sum);
    memset(count, 0, ARES_DIFFICULTIES * sizeof *count);
    for (int64_t g = group; g < end; g++)
        for (int64_t i = all->groups[g].first; i < all->groups[g].first + all->groups[g].count; i++) {
            sum[all->samples[i].difficulty] += all->samples[i].kl;
            count[all->samples[i].difficulty]++;
        }
}

static void step_lambdas(aepo *s, const double *sum, const int64_t *count)
{
    enum { LEAST_SAMPLES = 8 }; /* a mean over fewer says little */
    const double *budget = AEPO_BY_DIFFICULTY(s->options, kl_budget);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        if (count[d] >= LEAST_SAMPLES) s->lambda[d] = ares_kl_lambda_step(s->lambda[d], sum[d] / (double)count[d], budget[d], s->options->algorithm.kl_lambda_lr);
}

/* One update for every optimizer step, of the prompts it was made of. */
static void step_betas(aepo *s, const control_gathered *all)
{
    const aepo_algorithm_config *a = &s->options->algorithm;
    const double *target = AEPO_BY_DIFFICULTY(s->options, kl_target);
    int64_t size = s->env.mini_batch > 0 ? s->env.mini_batch : all->n_groups, count[ARES_DIFFICULTIES];
    double sum[ARES_DIFFICULTIES];
    for (int64_t g = 0; g < all->n_groups; g += size) {
        kl_by_difficulty(all, g, ARES_MIN(g + size, all->n_groups), sum, count);
        s->beta_updates++;
        for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
            ares_log_beta_config cfg = { .target = target[d], .lr = a->kl_beta_lr, .clip = a->kl_beta_clip, .ema = a->kl_beta_ema, .deadzone = a->kl_beta_deadzone,
                                         .min = a->kl_beta_min, .max = a->kl_beta_max, .interval = a->kl_beta_update_interval };
            if (count[d]) ares_log_beta_step(&cfg, s->beta_updates, sum[d] / (double)count[d], &s->beta[d]);
        }
    }
}

int aepo_adapt_kl(aepo *s, const ares_batch *b, ares_metrics *m, ares_arena *arena, control_gathered *all)
{
    double *kl = ares_arena_calloc(arena, (size_t)b->rows + 1, sizeof *kl), sum[ARES_DIFFICULTIES];
    int64_t count[ARES_DIFFICULTIES];
    control_sample *local = ares_arena_calloc(arena, (size_t)b->rows + 1, sizeof *local);
    ARES_TRY(ares_world_agree(s->env.world, control_row_kl(b, s->env.algorithm, aepo_who, kl)));
    for (int64_t r = 0; r < b->rows; r++) local[r] = (control_sample){ .index = b->samples[r].index, .difficulty = b->samples[r].difficulty, .kl = kl[r] };
    ARES_TRY(control_gather(s->env.world, b, local, all));
    kl_by_difficulty(all, 0, all->n_groups, sum, count);
    if (s->controller == AEPO_KL_DUAL_ASCENT) step_lambdas(s, sum, count);
    if (s->controller == AEPO_KL_LOG_SPACE) step_betas(s, all);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES && m; d++) {
        if (count[d]) aepo_metric(m, "aepo/kl", d, "", sum[d] / (double)count[d]);
        if (s->controller == AEPO_KL_DUAL_ASCENT) aepo_metric(m, "aepo/kl_lambda", d, "", s->lambda[d]);
        if (s->controller == AEPO_KL_LOG_SPACE) aepo_metric(m, "aepo/kl_beta", d, "", s->beta[d].beta);
    }
    return ARES_OK;
}
