/*
 * The AEPO control. In order: what it reads from a batch (entropy windows, HWE tokens, prompts);
 * difficulty buckets with their targets and alphas; dropping easy prompts; its state and the
 * order of one step, at the end.
 */
#include "aepo.h"
#include "stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/*
 * What the AEPO control reads off a batch: windows of entropy of the policy's own tokens, each
 * row's percentile and HWE tokens, and the rows pooled by prompt.
 */

/*
 * The policy's own tokens of one row, without tool output and the like between its turns. The
 * arrays have room for the longest row of the batch.
 */
typedef struct own_tokens {
    int64_t n, *at; /* at [n]: each token's place in the batch */
    double *h, *window;
    uint8_t *candidates, *marked;
} own_tokens;

/* In the step's arena, used again for every row. */
static own_tokens room_for_a_row(const ares_batch *b, ares_arena *arena)
{
    int64_t longest = 0;
    for (int64_t r = 0; r < b->rows; r++)
        longest = ARES_MAX(longest, b->row_start[r + 1] - b->row_start[r]);
    size_t n = (size_t)longest + 1;
    return (own_tokens){ .at = ares_arena_alloc(arena, n * sizeof(int64_t)),
                         .h = ares_arena_alloc(arena, n * sizeof(double)),
                         .window = ares_arena_alloc(arena, n * sizeof(double)),
                         .candidates = ares_arena_alloc(arena, n),
                         .marked = ares_arena_alloc(arena, n) };
}

/* entropies_1 are those at temperature 1, where rollout has another. */
static void read_row(const ares_batch *b, int64_t r, own_tokens *x)
{
    const float *h = b->entropies_1 ? b->entropies_1 : b->entropies;
    x->n = 0;
    for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
        if (!b->response_mask[i]) continue;
        x->h[x->n] = (double)h[i];
        x->candidates[x->n] = b->hwe_candidates ? b->hwe_candidates[i] : 1;
        x->at[x->n++] = i;
    }
}

/* Whether the columns and numbers that AEPO reads are there and finite. */
static int aepo_check_batch(const ares_batch *b, bool need_accuracy)
{
    ARES_TRY(ARES_NEED(b, AEPO_WHO, entropies));
    ARES_TRY(ARES_NEED(b, AEPO_WHO, response_mask));
    const float *h = b->entropies_1 ? b->entropies_1 : b->entropies;
    for (int64_t r = 0; r < b->rows; r++) {
        if (!b->samples[r].row || !b->samples[r].row->gid)
            return ares_fail(ARES_ESTATE, "%s: row %lld has no global_id", AEPO_WHO, (long long)r);
        if (need_accuracy && ares_batch_row_counts(b, r) && !isfinite(b->samples[r].accuracy))
            return ares_fail(ARES_ECONFIG,
                             "%s: row %lld has the accuracy %g: no reward judges whether the "
                             "answer is right; add one to worker.reward that does",
                             AEPO_WHO, (long long)r, (double)b->samples[r].accuracy);
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++)
            if (b->response_mask[i] && !isfinite(h[i]))
                return ares_fail(ARES_ENUMERIC, "%s: entropies of row %lld, token %lld: %g",
                                 AEPO_WHO, (long long)r, (long long)(i - b->row_start[r]),
                                 (double)h[i]);
    }
    return ARES_OK;
}

void aepo_measure(const aepo *s, const ares_batch *b, ares_arena *arena, control_sample *local)
{
    own_tokens x = room_for_a_row(b, arena);
    for (int64_t r = 0; r < b->rows; r++) {
        read_row(b, r, &x);
        local[r] = (control_sample){ .index = b->samples[r].index,
                                     .difficulty = b->samples[r].difficulty,
                                     .length = (int32_t)x.n,
                                     .accuracy = b->samples[r].accuracy,
                                     .threshold = entropy_sample_threshold(
                                         x.h, x.n, s->options->rollout.window_size,
                                         s->options->algorithm.entropy_percentile) };
    }
}

void aepo_mark(const aepo *s, const ares_batch *b, ares_arena *arena, control_sample *local,
               uint8_t *column, float *window_column, double *soft_cost)
{
    own_tokens x = room_for_a_row(b, arena);
    for (int64_t r = 0; r < b->rows; r++) {
        read_row(b, r, &x);
        int64_t windows = entropy_windows(x.h, x.n, s->options->rollout.window_size, x.window);
        hwe_marked hwe = hwe_mark(x.window, windows, x.n, s->tau, x.candidates, x.marked);
        local[r].hwe = (int32_t)hwe.count;
        local[r].invalid = (int32_t)hwe.invalid;
        if (soft_cost) soft_cost[r] = hwe.soft_cost;
        for (int64_t i = 0; i < x.n && column; i++) column[x.at[i]] = x.marked[i];
        for (int64_t i = 0; i < x.n && window_column; i++)
            /* -1: fewer tokens than a window come after this one */
            window_column[x.at[i]] = i < windows ? (float)x.window[i] : -1;
    }
}

/* Groups of the same gid are one prompt. *place [n_groups] says which. */
static aepo_prompt *aepo_pool_prompts(const control_gathered *all, ares_arena *arena, int64_t *n,
                                      int64_t **place)
{
    ares_map *index = ares_map_new();
    aepo_prompt *prompts = ares_arena_calloc(arena, (size_t)all->n_groups + 1, sizeof *prompts);
    *place = ares_arena_alloc(arena, (size_t)(all->n_groups + 1) * sizeof **place);
    *n = 0;
    for (int64_t g = 0; g < all->n_groups; g++) {
        const control_group *group = &all->groups[g];
        int64_t at;
        if (!ares_map_get(index, group->gid, &at)) {
            at = (*n)++;
            ares_map_put(index, group->gid, at);
            prompts[at].gid = group->gid;
        }
        (*place)[g] = at;
        aepo_prompt *p = &prompts[at];
        p->samples += group->count;
        for (int64_t i = group->first; i < group->first + group->count; i++) {
            p->accuracy += (double)all->samples[i].accuracy;
            p->hwe += all->samples[i].hwe;
            p->length += all->samples[i].length;
        }
    }
    ares_map_free(index);
    return prompts;
}

/*
 * Difficulty buckets of AEPO: which prompts are in which, their target numbers of HWE tokens, and
 * the weights of their entropy scores (docs/aepo.md#difficulty-targets-and-alphas).
 */

/* Thirds of the accuracy over a prompt's samples; a border belongs to the easier side. */
ares_difficulty difficulty_of(double accuracy)
{
    return accuracy >= 2.0 / 3.0 ? ARES_EASY : accuracy >= 1.0 / 3.0 ? ARES_MEDIUM : ARES_HARD;
}

ares_difficulty difficulty_find(ares_view name)
{
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        if (ares_view_is(name, ares_difficulty_names[d])) return (ares_difficulty)d;
    return ARES_DIFFICULTY_NONE;
}

/* As Python's round: 2.5 -> 2, 3.5 -> 4. */
double round_half_even(double x)
{
    double down = floor(x), part = x - down;
    if (part != 0.5) return part < 0.5 ? down : down + 1;
    return fmod(down, 2) == 0 ? down : down + 1;
}

/* Target number of HWE tokens of a difficulty: coef x the mean over its prompts, rounded. */
static int64_t aepo_target(double mean, double coef)
{
    return (int64_t)round_half_even(coef * mean);
}

void aepo_bucket(aepo_prompt *prompts, int64_t n, aepo_buckets *out)
{
    *out = (aepo_buckets){ 0 };
    for (int64_t i = 0; i < n; i++) {
        aepo_prompt *p = &prompts[i];
        double samples = (double)p->samples;
        ares_difficulty d = p->difficulty = difficulty_of(p->accuracy / samples);
        out->prompts[d]++;
        out->hwe[d] += p->hwe / samples;
        out->accuracy[d] += p->accuracy / samples;
        out->length[d] += p->length / samples;
    }
    for (int d = 0; d < ARES_DIFFICULTIES; d++) {
        /* means over prompts, each of which counts once for any number of samples */
        double count = (double)ARES_MAX(out->prompts[d], 1);
        out->hwe[d] /= count;
        out->accuracy[d] /= count;
        out->length[d] /= count;
    }
}

void aepo_aim(const aepo_rates *rates, const aepo_buckets *buckets, aepo_aims *aims)
{
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        /* a difficulty that the batch lacks keeps its target and alpha */
        if (!buckets->prompts[d]) continue;
        bool known = aims->target_known[d];
        if (known) {
            /*
             * By the target from before this step. The weight grows with mean - target where the
             * score is a penalty (easy, medium), with target - mean where it is a bonus (hard).
             */
            double mean = buckets->hwe[d], target = (double)aims->target[d],
                   delta = d == ARES_HARD ? target - mean : mean - target;
            aims->alpha[d] = fmin(fmax(aims->alpha[d] + rates->lr * delta, rates->min), rates->max);
        }
        /* between updates only a difficulty without a target gets one */
        if (known && !rates->renew) continue;
        aims->target[d] = aepo_target(buckets->hwe[d], rates->coef[d]);
        aims->target_known[d] = true;
    }
}

static double mean_hwe(const aepo_prompt *p)
{
    return p->hwe / (double)p->samples;
}

void accuracy_by_hwe(const int64_t *hwe, const double *accuracy, int64_t n, accuracy_bins *out)
{
    *out = (accuracy_bins){ 0 };
    int64_t least = hwe[0], most = hwe[0];
    for (int64_t i = 1; i < n; i++) {
        least = ARES_MIN(least, hwe[i]);
        most = ARES_MAX(most, hwe[i]);
    }
    /* three bins of equal width; whole numbers, as numbers of tokens are */
    for (int e = 0; e < 4; e++) out->edges[e] = least + e * (most - least) / 3;
    for (int64_t i = 0; i < n; i++) {
        int bin = hwe[i] >= out->edges[2] ? 2 : hwe[i] >= out->edges[1] ? 1 : 0;
        out->count[bin]++;
        out->accuracy[bin] += accuracy[i];
    }
    for (int i = 0; i < 3; i++)
        out->accuracy[i] = out->count[i] ? out->accuracy[i] / (double)out->count[i] : NAN;
}

/*
 * The AEPO control's dropping of prompts that have become too easy. Every group that was generated
 * is looked at, also those that filters drop. Before the first threshold there is no target, so
 * nothing is dropped.
 */

static int aepo_generated(void *state, const ares_batch *b)
{
    aepo *s = state;
    if (!s->options->algorithm.drop_easy_prompts) return ARES_OK;
    ARES_TRY(ares_world_share_error(s->env.world, aepo_check_batch(b, true)));
    if (!s->tau_known) return ARES_OK;
    s->generated = true;
    ares_arena arena = { 0 };
    control_sample *local = ares_arena_calloc(&arena, (size_t)b->rows + 1, sizeof *local);
    /* what the drop needs is copied: these rows may be gone before the step comes to it */
    aepo_mark(s, b, &arena, local, NULL, NULL, NULL);
    for (int64_t g = 0; g < b->groups; g++) {
        ares_batch_begin_group(&s->made);
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++) {
            const ares_sample *from = &b->samples[r];
            if (!ares_batch_row_counts(b, r)) continue;
            ares_batch_add_row(&s->made,
                               &(ares_sample){ .draw = from->draw,
                                               .index = from->index,
                                               .row = from->row,
                                               .accuracy = from->accuracy,
                                               .hwe_count = local[r].hwe },
                               0);
        }
    }
    ares_arena_fini(&arena);
    return ARES_OK;
}

/*
 * Drops prompts that have become too easy: all answers right, with fewer HWE tokens than m + ratio
 * (target_easy - m), where m is the smallest mean number of an easy prompt. Looks at all groups
 * that aepo_generated has seen in the step, or at the batch where it saw none.
 */
static int aepo_drop_easy(aepo *s, const control_gathered *batch, ares_arena *arena)
{
    if (!s->options->algorithm.drop_easy_prompts) return ARES_OK;
    control_gathered made = { 0 };
    if (s->generated) {
        control_sample *local = ares_arena_calloc(arena, (size_t)s->made.rows + 1, sizeof *local);
        for (int64_t r = 0; r < s->made.rows; r++) {
            const ares_sample *x = &s->made.samples[r];
            local[r] =
                (control_sample){ .index = x->index, .accuracy = x->accuracy, .hwe = x->hwe_count };
        }
        ARES_TRY(control_gather(s->env.world, &s->made, local, &made));
    }
    if (s->aims.target_known[ARES_EASY]) {
        int64_t n, *place;
        aepo_prompt *prompts = aepo_pool_prompts(s->generated ? &made : batch, arena, &n, &place);
        aepo_buckets buckets;
        aepo_bucket(prompts, n, &buckets);
        double least = INFINITY;
        for (int64_t i = 0; i < n; i++)
            if (prompts[i].difficulty == ARES_EASY) least = fmin(least, mean_hwe(&prompts[i]));
        double threshold = least + s->options->algorithm.drop_easy_ratio *
                                       ((double)s->aims.target[ARES_EASY] - least);
        for (int64_t i = 0; i < n; i++)
            if (prompts[i].accuracy == (double)prompts[i].samples &&
                mean_hwe(&prompts[i]) < threshold && !ares_map_get(s->skip, prompts[i].gid, NULL))
                ares_map_put(s->skip, prompts[i].gid, ares_map_count(s->skip));
    }
    control_gathered_fini(&made);
    ares_batch_clear(&s->made);
    s->generated = false;
    return ARES_OK;
}

static bool aepo_dropped(const void *state, int64_t i, ares_view *gid)
{
    const aepo *s = state;
    if (i >= ares_map_count(s->skip)) return false;
    *gid = ares_map_key(s->skip, i);
    return true;
}

/*
 * AEPO (ARES): its state and the order in which a step uses and changes it
 * (docs/aepo.md#one-step-in-order). HWE tokens are counted with the threshold of earlier batches
 * and alphas move by the targets of earlier batches, then threshold and targets are replaced; the
 * factors of the KL move after the update.
 */

static ARES_OPTION_TABLE(algorithm_options, aepo_algorithm_config, AEPO_ALGORITHM_OPTIONS);
static ARES_OPTION_TABLE(actor_options, aepo_actor_config, AEPO_ACTOR_OPTIONS);
static ARES_OPTION_TABLE(rollout_options, aepo_rollout_config, AEPO_ROLLOUT_OPTIONS);
static ARES_OPTION_TABLE(data_options, aepo_data_config, AEPO_DATA_OPTIONS);

/* ---------------------------------------------------------------- open and close */

static bool wanted(const void *options, const ares_control_env *env)
{
    const aepo_options *o = options;
    return o->algorithm.aepo || o->algorithm.drop_easy_prompts ||
           o->algorithm.difficulty_aware_kl_penalty || o->actor.dynamic_kl_loss ||
           o->actor.enable_second_chance_kl || o->data.bootstrap || env->entropy_reward;
}

/* Reports an option `first` whose value lies outside of the options `low` and `high`. */
static void check_bounds(ares_config *cfg, const char *first, double value, const char *low,
                         double min, const char *high, double max)
{
    if (min > max || (value >= min && value <= max)) return;
    ares_config_fault(cfg, first, "lies %s %s = %g; set a value within the bounds",
                      value < min ? "below" : "above", value < min ? low : high,
                      value < min ? min : max);
}

static void check(ares_config *cfg, const void *options, const ares_control_env *env)
{
    const aepo_options *o = options;
    const aepo_algorithm_config *a = &o->algorithm;
    const char *factor = a->difficulty_aware_kl_penalty ? "algorithm.difficulty_aware_kl_penalty"
                         : o->actor.enable_second_chance_kl ? "worker.actor.enable_second_chance_kl"
                                                            : NULL;
    if (!env->judges)
        ares_config_fault(cfg, "worker.reward.rewards",
                          "none says whether an answer is right, from which AEPO knows how "
                          "difficult a prompt is; name one that does in worker.reward.accuracy");
    if (o->actor.dynamic_kl_loss && env->algorithm->disable_kl && !env->own_kl)
        ares_config_fault(cfg, "worker.actor.dynamic_kl_loss",
                          "algorithm.disable_kl leaves no KL to weigh; set one of them to false");
    else if (factor && !o->actor.dynamic_kl_loss)
        ares_log(ARES_LOG_WARN,
                 "config: %s = true: has no effect, because worker.actor.dynamic_kl_loss = false "
                 "leaves every token's KL at weight 1",
                 factor);
    else if (o->actor.dynamic_kl_loss && ares_kl_acts(env->algorithm) == ARES_KL_NOWHERE)
        ares_log(ARES_LOG_WARN,
                 "config: worker.actor.dynamic_kl_loss = true: has no effect: algorithm.kl_coef is "
                 "0, or the KL is neither in the loss nor in the reward");
    if (a->alpha_entropy_min > a->alpha_entropy_max)
        ares_config_fault(cfg, "algorithm.alpha_entropy_min",
                          "lies above alpha_entropy_max = %g; lower it, or raise that",
                          a->alpha_entropy_max);
    if (a->kl_beta_min > a->kl_beta_max)
        ares_config_fault(cfg, "algorithm.kl_beta_min",
                          "lies above kl_beta_max = %g; lower it, or raise that", a->kl_beta_max);
    const double *alpha = AEPO_BY_DIFFICULTY(o, alpha_entropy_init);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        char first[64];
        (void)snprintf(first, sizeof first, "algorithm.alpha_entropy_init_%s",
                       ares_difficulty_names[d]);
        check_bounds(cfg, first, alpha[d], "alpha_entropy_min", a->alpha_entropy_min,
                     "alpha_entropy_max", a->alpha_entropy_max);
    }
    check_bounds(cfg, "algorithm.kl_beta_init", a->kl_beta_init, "kl_beta_min", a->kl_beta_min,
                 "kl_beta_max", a->kl_beta_max);
}

static int open_state(const void *options, const ares_control_env *env, void **state)
{
    const aepo_options *o = options;
    const double *alpha = AEPO_BY_DIFFICULTY(o, alpha_entropy_init);
    const char *name = o->algorithm.kl_bucket_controller;
    aepo_kl_controller controller = AEPO_KL_NONE;
    if (o->actor.dynamic_kl_loss &&
        (strcmp(o->algorithm.kl_type, "token_adaptive") == 0 || strcmp(name, "dual_ascent") == 0))
        controller = AEPO_KL_DUAL_ASCENT;
    else if (o->actor.dynamic_kl_loss && strcmp(name, "log_space") == 0)
        controller = AEPO_KL_LOG_SPACE;
    aepo *s = ares_calloc(1, sizeof *s);
    *s = (aepo){ .options = o,
                 .env = *env,
                 .controller = controller,
                 .difficulty = ares_map_new(),
                 .skip = ares_map_new(),
                 .bootstrap_index = ares_map_new() };
    ares_batch_init(&s->made);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        s->aims.alpha[d] = alpha[d];
        s->lambda[d] = 1;
        s->beta[d].beta = o->algorithm.kl_beta_init;
    }
    *state = s;
    return ARES_OK;
}

static void close_state(void *state)
{
    aepo *s = state;
    if (!s) return;
    ares_map_free(s->difficulty);
    ares_map_free(s->skip);
    ares_map_free(s->bootstrap_index);
    ares_free(s->bootstrap_seen);
    ares_batch_fini(&s->made);
    ares_free(s);
}

/* ---------------------------------------------------------------- tau */

/* The samples' percentiles as an array. */
static double *thresholds_of(const control_gathered *all, ares_arena *arena)
{
    double *x = ares_arena_alloc(arena, (size_t)(all->n_samples + 1) * sizeof *x);
    for (int64_t i = 0; i < all->n_samples; i++) x[i] = all->samples[i].threshold;
    return x;
}

typedef struct measurement {
    bool need_accuracy; /* a row without one is an error */
    /* the first tau is the mean of the rows' percentiles, as in validation; false: their median */
    bool first_from_mean;
    uint8_t *column; /* outputs as aepo_mark's; these three may be NULL */
    float *window_column;
    double *soft_cost;
    control_sample *local; /* [b->rows]: written */
} measurement;

/*
 * Measures the rows, makes sure of a threshold, marks the rows with it and gathers everything. No
 * sample is gathered where every answer is discarded; there may be no threshold then.
 */
static int measure_and_mark(aepo *s, const ares_batch *b, const measurement *x, ares_arena *arena,
                            control_gathered *all)
{
    int64_t rows = b->rows;
    *all = (control_gathered){ 0 };
    ARES_TRY(ares_world_sum_i64(s->env.world, &rows, 1));
    if (!rows) return ares_fail(ARES_ESTATE, "%s: the batch has no answer on any rank", AEPO_WHO);
    ARES_TRY(ares_world_share_error(s->env.world, aepo_check_batch(b, x->need_accuracy)));
    aepo_measure(s, b, arena, x->local);
    if (!s->tau_known) {
        int rc = control_gather(s->env.world, b, x->local, all);
        if (rc == ARES_OK && all->n_samples) {
            const double *thresholds = thresholds_of(all, arena);
            double sum = 0;
            for (int64_t i = 0; i < all->n_samples; i++) sum += thresholds[i];
            s->tau = x->first_from_mean ? sum / (double)all->n_samples
                                        : stats_median(thresholds, all->n_samples);
            s->tau_known = true;
        }
        control_gathered_fini(all);
        ARES_TRY(rc);
    }
    aepo_mark(s, b, arena, x->local, x->column, x->window_column, x->soft_cost);
    return control_gather(s->env.world, b, x->local, all);
}

/* Moves tau by the median of the samples, which it returns. */
static double step_tau(aepo *s, const control_gathered *all, ares_arena *arena)
{
    double median;
    s->tau =
        entropy_threshold_step(s->tau_started, s->tau, thresholds_of(all, arena), all->n_samples,
                               s->options->algorithm.entropy_threshold_ema, &median);
    s->tau_started = true;
    return median;
}

/* ---------------------------------------------------------------- prompts */

/* One step of alphas and, with renew, targets. */
static void step_aims(aepo *s, const aepo_buckets *buckets, bool renew)
{
    const aepo_algorithm_config *a = &s->options->algorithm;
    const aepo_rates rates = { .lr = a->alpha_entropy_lr,
                               .min = a->alpha_entropy_min,
                               .max = a->alpha_entropy_max,
                               .coef = AEPO_BY_DIFFICULTY(s->options, target_coef),
                               .renew = renew };
    aepo_aim(&rates, buckets, &s->aims);
}

/* ---------------------------------------------------------------- a step */

/* Writes into a sample what the reward for entropy reads. */
static void tell_sample(const aepo *s, ares_sample *x, ares_difficulty d, int32_t hwe)
{
    x->difficulty = d;
    x->hwe_count = hwe;
    x->hwe_target = (float)s->aims.target[d];
    x->entropy_alpha = (float)s->aims.alpha[d];
}

/*
 * Scores groups before the step observes them. Where there is no threshold yet, these rows give one
 * for themselves alone; where a difficulty has no target yet, the group's own mean takes its place.
 */
static int provisional(const void *state, ares_batch *b)
{
    aepo s = *(const aepo *)state; /* a copy: changes are not kept */
    ares_arena arena = { 0 };
    control_gathered all = { 0 };
    control_sample *local = ares_arena_calloc(&arena, (size_t)b->rows + 1, sizeof *local);
    int rc = measure_and_mark(&s, b, &(measurement){ .need_accuracy = true, .local = local },
                              &arena, &all);
    for (int64_t g = 0; g < b->groups && rc == ARES_OK; g++) {
        int64_t first = b->group_start[g], end = b->group_start[g + 1];
        double accuracy = 0, hwe = 0, n = 0;
        for (int64_t r = first; r < end; r++) {
            if (!ares_batch_row_counts(b, r)) continue;
            accuracy += (double)b->samples[r].accuracy;
            hwe += local[r].hwe;
            n++;
        }
        ares_difficulty d = difficulty_of(accuracy / n);
        for (int64_t r = first; r < end; r++) {
            if (!ares_batch_row_counts(b, r)) continue;
            tell_sample(&s, &b->samples[r], d, local[r].hwe);
            if (!s.aims.target_known[d])
                b->samples[r].hwe_target =
                    (float)aepo_target(hwe / n, AEPO_BY_DIFFICULTY(s.options, target_coef)[d]);
        }
    }
    control_gathered_fini(&all);
    ares_arena_fini(&arena);
    return rc;
}

static int observe_in(aepo *s, ares_batch *b, ares_metrics *m, ares_arena *arena,
                      control_gathered *all)
{
    control_sample *local = ares_arena_calloc(arena, (size_t)b->rows + 1, sizeof *local);
    double *soft_cost = ares_arena_calloc(arena, (size_t)b->rows + 1, sizeof *soft_cost);
    ARES_PUT(b, hwe);
    ARES_PUT(b, window_entropies);
    const measurement x = { .need_accuracy = true,
                            .column = b->hwe,
                            .window_column = b->window_entropies,
                            .soft_cost = soft_cost,
                            .local = local };
    ARES_TRY(measure_and_mark(s, b, &x, arena, all));
    if (!all->n_samples) { /* every answer is discarded: the state stays as it is */
        ARES_TRY(aepo_drop_easy(s, all, arena));
        if (m) aepo_report_batch(s, all, m);
        return ARES_OK;
    }
    double median = step_tau(s, all, arena);

    int64_t n, *place;
    aepo_prompt *prompts = aepo_pool_prompts(all, arena, &n, &place);
    aepo_buckets buckets;
    aepo_bucket(prompts, n, &buckets);
    for (int64_t i = 0; i < n; i++)
        ares_map_put(s->difficulty, prompts[i].gid, prompts[i].difficulty);
    ARES_TRY(aepo_drop_easy(s, all, arena));
    s->steps++;
    step_aims(s, &buckets, s->steps % s->options->algorithm.target_update_interval == 0);

    for (int64_t r = 0; r < b->rows; r++) {
        int64_t d = ARES_DIFFICULTY_NONE;
        if (!ares_batch_row_counts(b, r)) continue; /* discarded answers get nothing */
        ares_map_get(s->difficulty, ares_view_of(b->samples[r].row->gid), &d);
        tell_sample(s, &b->samples[r], (ares_difficulty)d, local[r].hwe);
    }
    aepo_write_kl_weight(s, b, soft_cost, arena);
    for (int64_t g = 0; g < all->n_groups; g++)
        for (int64_t i = 0; i < all->groups[g].count; i++)
            all->samples[all->groups[g].first + i].difficulty =
                (int32_t)prompts[place[g]].difficulty;
    if (m) {
        aepo_report_batch(s, all, m);
        for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
            if (buckets.prompts[d]) aepo_metric(m, "aepo/hwe_num", d, "", buckets.hwe[d]);
        ares_metrics_set(m, "aepo/tau_batch_median", median);
    }
    return ARES_OK;
}

static int observe(void *state, ares_batch *b, ares_metrics *m)
{
    ares_arena arena = { 0 };
    control_gathered all = { 0 };
    int rc = observe_in(state, b, m, &arena, &all);
    control_gathered_fini(&all);
    ares_arena_fini(&arena);
    return rc;
}

/* ---------------------------------------------------------------- after the update */

static int adapt(void *state, const ares_batch *b, ares_metrics *m)
{
    aepo *s = state;
    if (ares_kl_acts(s->env.algorithm) == ARES_KL_NOWHERE) return ARES_OK;
    ares_arena arena = { 0 };
    int rc = aepo_adapt_kl(s, b, m, &arena);
    ares_arena_fini(&arena);
    return rc;
}

/* ---------------------------------------------------------------- validation, bootstrap */

static int validate(void *state, ares_batch *b, ares_metrics *m)
{
    aepo *s = state, known;
    ares_arena arena = { 0 };
    control_gathered all = { 0 };
    control_sample *local = ares_arena_calloc(&arena, (size_t)b->rows + 1, sizeof *local);
    ARES_PUT(b, hwe);
    /*
     * A prompt that training has seen has the difficulty it has there. Ids that the loader made for
     * rows without one cannot be compared across data sets.
     */
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t d;
        const ares_row *row = b->samples[r].row;
        if (!row->gid_given || !ares_map_get(s->difficulty, ares_view_of(row->gid), &d))
            d = ARES_MEDIUM;
        b->samples[r].difficulty = (int32_t)d;
    }
    const measurement x = { .first_from_mean = true, .column = b->hwe, .local = local };
    int rc = measure_and_mark(s, b, &x, &arena, &all);
    /*
     * Where a difficulty has no target yet, its validation prompts give one for this validation
     * alone, as the first step's prompts will for training. Against a target of 0 almost every HWE
     * token would be penalised, and scores from before the first step could not be compared with
     * later ones.
     */
    known = *s;
    int64_t n = 0, *place;
    aepo_prompt *prompts = aepo_pool_prompts(&all, &arena, &n, &place);
    for (int64_t g = 0; g < all.n_groups; g++)
        prompts[place[g]].difficulty = (ares_difficulty)all.samples[all.groups[g].first].difficulty;
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        double sum = 0, count = 0;
        for (int64_t i = 0; i < n; i++) {
            if (prompts[i].difficulty != (ares_difficulty)d) continue;
            sum += mean_hwe(&prompts[i]);
            count++;
        }
        if (!s->aims.target_known[d] && count > 0)
            known.aims.target[d] =
                aepo_target(sum / count, AEPO_BY_DIFFICULTY(s->options, target_coef)[d]);
    }
    for (int64_t r = 0; r < b->rows && rc == ARES_OK; r++)
        tell_sample(&known, &b->samples[r], (ares_difficulty)b->samples[r].difficulty,
                    local[r].hwe);
    if (rc == ARES_OK && m) aepo_report_validation(s, m);
    control_gathered_fini(&all);
    ares_arena_fini(&arena);
    return rc;
}

static int64_t bootstrap(const void *state, int64_t *done)
{
    const aepo *s = state;
    *done = s->bootstrap_prompts;
    return s->options->data.bootstrap && !s->bootstrap_done && s->steps == 0
               ? s->options->data.bootstrap_batch_size
               : 0;
}

static int bootstrap_add(void *state, ares_batch *b, ares_metrics *m)
{
    aepo *s = state;
    ares_arena arena = { 0 };
    control_gathered all = { 0 };
    control_sample *local = ares_arena_calloc(&arena, (size_t)b->rows + 1, sizeof *local);
    int rc = measure_and_mark(s, b, &(measurement){ .need_accuracy = true, .local = local }, &arena,
                              &all);
    for (int64_t g = 0; g < all.n_groups && rc == ARES_OK; g++) {
        aepo_seen *p = aepo_bootstrap_at(s, all.groups[g].gid);
        p->samples += all.groups[g].count;
        for (int64_t i = all.groups[g].first; i < all.groups[g].first + all.groups[g].count; i++) {
            p->accuracy += (double)all.samples[i].accuracy;
            p->hwe += all.samples[i].hwe;
            p->length += all.samples[i].length;
        }
    }
    int64_t had[2] = { b->groups, b->tokens }; /* discarded answers were generated, too */
    if (rc == ARES_OK) rc = ares_world_sum_i64(s->env.world, had, 2);
    if (rc == ARES_OK) {
        s->bootstrap_prompts += had[0];
        s->bootstrap_tokens += had[1];
    }
    if (rc == ARES_OK && all.n_samples) {
        step_tau(s, &all, &arena);
        if (m) ares_metrics_set(m, "aepo/tau", s->tau);
    }
    control_gathered_fini(&all);
    ares_arena_fini(&arena);
    return rc;
}

static int bootstrap_finish(void *state, ares_metrics *m)
{
    aepo *s = state;
    int64_t n = ares_map_count(s->bootstrap_index);
    if (!s->bootstrap_prompts)
        return ares_fail(ARES_ESTATE, "%s: the bootstrap pass has seen no prompt", AEPO_WHO);
    aepo_prompt *prompts = ares_calloc((size_t)n + 1, sizeof *prompts);
    for (int64_t i = 0; i < n; i++) {
        const aepo_seen *p = &s->bootstrap_seen[i];
        prompts[i] = (aepo_prompt){ .gid = ares_map_key(s->bootstrap_index, i),
                                    .samples = p->samples,
                                    .accuracy = p->accuracy,
                                    .hwe = p->hwe,
                                    .length = p->length };
    }
    aepo_buckets buckets;
    aepo_bucket(prompts, n, &buckets);
    for (int64_t i = 0; i < n; i++)
        ares_map_put(s->difficulty, prompts[i].gid, prompts[i].difficulty);
    step_aims(s, &buckets, true);
    const double *alpha = AEPO_BY_DIFFICULTY(s->options, alpha_entropy_init);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++) {
        s->aims.alpha[d] = alpha[d];
        s->baseline_known[d] = buckets.prompts[d] > 0;
        s->baseline_accuracy[d] = buckets.accuracy[d];
        s->baseline_length[d] = buckets.length[d];
        if (!m || !buckets.prompts[d]) continue;
        aepo_metric(m, "bootstrap", d, "/count", (double)buckets.prompts[d]);
        aepo_metric(m, "bootstrap", d, "/acc_mean", buckets.accuracy[d]);
        aepo_metric(m, "bootstrap", d, "/len_mean", buckets.length[d]);
    }
    if (m) ares_metrics_set(m, "rollout/generated_tokens", (double)s->bootstrap_tokens);
    ares_free(prompts);
    ares_map_free(s->bootstrap_index); /* its results are in other members of the state */
    s->bootstrap_index = ares_map_new();
    s->bootstrap_done = true;
    if (m) aepo_report_state(s, m, "aepo");
    return ARES_OK;
}

const ares_control ares_control_aepo = {
    .name = "aepo",
    .doc = "entropy threshold, difficulty of prompts, target counts and weights of the entropy "
           "reward, KL by token",
    .formula = "tau <- ema tau + (1 - ema) median of the samples' percentiles; by difficulty: "
               "alpha <- clip(alpha + lr (HWE - target), min, max), of hard "
               "prompts by target - HWE; target <- round(coef HWE)",
    .paper = "ARES, arXiv 2510.08457",
    .option = "algorithm.aepo=true",
    .reads = "algorithm.entropy_percentile algorithm.entropy_threshold_ema "
             "algorithm.target_update_interval algorithm.target_coef_easy "
             "algorithm.target_coef_medium algorithm.target_coef_hard algorithm.alpha_entropy_lr "
             "algorithm.alpha_entropy_min algorithm.alpha_entropy_max "
             "algorithm.alpha_entropy_init_easy algorithm.alpha_entropy_init_medium "
             "algorithm.alpha_entropy_init_hard",
    .needs = ARES_CONTROL_NEEDS_GIDS,
    .sections = { { "algorithm", algorithm_options, offsetof(aepo_options, algorithm) },
                  { "worker.actor", actor_options, offsetof(aepo_options, actor) },
                  { "worker.rollout", rollout_options, offsetof(aepo_options, rollout) },
                  { "data", data_options, offsetof(aepo_options, data) } },
    .options_size = sizeof(aepo_options),
    .wanted = wanted,
    .check = check,
    .open = open_state,
    .observe = observe,
    .adapt = adapt,
    .save = aepo_save,
    .load = aepo_load,
    .close = close_state,
    .generated = aepo_generated,
    .provisional = provisional,
    .dropped = aepo_dropped,
    .validate = validate,
    .bootstrap = bootstrap,
    .bootstrap_add = bootstrap_add,
    .bootstrap_finish = bootstrap_finish,
};
