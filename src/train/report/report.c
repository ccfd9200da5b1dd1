/*
 * The metrics of a step. In order: lengths, speed and memory; repetition in answers; metrics per
 * data set of a curriculum; the usual metrics of a batch; histograms.
 */
#include "report.h"
#include "agents/agents.h"
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/data.h"
#include "ares/io.h"

/*
 * Lengths of the batch's sequences over all ranks, and the time that the step's stages took per
 * token (docs/update.md#metrics).
 */

typedef struct row_length {
    int64_t draw, index; /* they order rows as their prompts were drawn */
    int64_t length, rank;
} row_length;

/* Model FLOPs utilisation: the share of the device's peak; 0 where the peak is not known. */
static void report_mfu(const ares_trainer *t, const char *stage, const char *name,
                       const ares_model *model, int64_t epochs, double tokens, double squares,
                       ares_metrics *m)
{
    const ares_model_config *c = &model->cfg;
    flops_config f = { c->hidden,  c->vocab,    c->layers,
                       c->heads,   c->kv_heads, llround(ares_model_config_mlp_width(c)),
                       c->head_dim };
    double seconds;
    if (!ares_metrics_get(m, stage, &seconds) || seconds <= 0) return;
    double done = train_tflops(&f, tokens, squares, seconds) * (double)epochs,
           peak = train_peak_tflops(ares_device_card(&t->run.device));
    ares_metrics_set(m, name,
                     isfinite(peak) ? done / (peak * (double)ares_world_size(t->run.world)) : 0);
}

/* global_seqlen, timing_per_token_ms, perf/mfu_.. */
static int report_lengths(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    ares_str all = { 0 };
    row_length *mine = ares_calloc((size_t)b->rows + 1, sizeof *mine);
    double response = 0, tokens = 0, squares = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        const ares_sample *s = &b->samples[r];
        int64_t n = b->row_start[r + 1] - b->row_start[r];
        mine[r] =
            (row_length){ s->draw, s->index, s->prompt_len + n, ares_world_rank(t->run.world) };
        response += (double)n;
    }
    int rc = ares_world_gather_all(t->run.world, mine, (size_t)b->rows * sizeof *mine, &all, NULL);
    ares_free(mine);
    if (rc == ARES_OK) rc = ares_world_sum_f64(t->run.world, &response, 1);
    if (rc == ARES_OK) {
        row_length *rows = (row_length *)(void *)all.data;
        int64_t n = (int64_t)(all.len / sizeof *rows);
        for (int64_t i = 0; i < n; i++)
            tokens += (double)rows[i].length,
                squares += (double)rows[i].length * (double)rows[i].length;
        if (n) { /* the balance of tokens: as the rows were drawn, and as ranks divide them */
            ares_sort_records(rows, n, sizeof *rows);
            int64_t *length = ares_malloc((size_t)n * 2 * sizeof *length), *part = length + n;
            for (int64_t i = 0; i < n; i++) {
                length[i] = rows[i].length;
                part[i] = rows[i].rank;
            }
            ares_balance_report(length, n, ares_world_size(t->run.world), part, "global_seqlen", m);
            ares_free(length);
        }
        const struct {
            const char *name;
            double tokens;
        } stages[] = { { "gen", response },         { "reward", response },    { "old", tokens },
                       { "ref", tokens },           { "values", tokens },      { "adv", tokens },
                       { "update_critic", tokens }, { "update_actor", tokens } };
        for (int i = 0; i < ARES_COUNT(stages); i++) { /* of the stages that have a time */
            char key[64];
            double seconds;
            snprintf(key, sizeof key, "timing_s/%s", stages[i].name);
            if (stages[i].tokens == 0 || !ares_metrics_get(m, key, &seconds)) continue;
            snprintf(key, sizeof key, "timing_per_token_ms/%s", stages[i].name);
            ares_metrics_set(m, key, seconds * 1000 / stages[i].tokens);
        }
        report_mfu(t, "timing_s/update_actor", "perf/mfu_actor", t->run.model,
                   t->run.cfg->actor.ppo_epochs, tokens, squares, m);
        if (t->critic)
            report_mfu(t, "timing_s/update_critic", "perf/mfu_critic", t->critic->learner.model,
                       t->run.cfg->critic.ppo_epochs, tokens, squares, m);
    }
    ares_str_fini(&all);
    return rc;
}

int report_memory(const training *t, ares_metrics *m)
{
    double process = (double)ares_peak_memory_bytes(),
           gb[3] = { process, (double)t->device.most_allocated,
                     ares_device_memory_bytes(&t->device) };
    if (t->device.index < 0) gb[2] = process; /* on the CPU, the memory of the process */
    ARES_TRY(ares_world_max_f64(t->world, gb, 3));
    ares_metrics_set(m, "perf/cpu_memory_used_gb", gb[0] / 1073741824.0);
    ares_metrics_set(m, "perf/max_memory_allocated_gb",
                     gb[1] / 1073741824.0); /* weights, gradients, states, activations, caches */
    ares_metrics_set(m, "perf/max_memory_reserved_gb",
                     gb[2] / 1073741824.0); /* with what libraries and scratch take */
    return ARES_OK;
}

/* slime's measure of repetition (slime/utils/metric_utils.py: has_repetition). */

enum { CHARACTERS = 10000, RATIO = 10 };

bool repetition_known(void)
{
    return ares_deflated_bytes(ARES_VIEW("")) >= 0;
}

bool repetition_in(ares_view text)
{
    size_t at = text.len; /* where the last characters of the UTF-8 text begin */
    for (int64_t n = CHARACTERS; at && n;) n -= ((uint8_t)text.data[--at] & 0xC0) != 0x80;
    ares_view last = { text.data + at, text.len - at };
    return at > 0 && (int64_t)last.len > RATIO * ares_deflated_bytes(last);
}

/*
 * Metrics by data set (docs/curriculum.md#metrics), named and computed as in slime's
 * examples/curriculum_learning/custom_log.py. slime finds the drops of a data set by the beginning
 * of its name, so that drops of `math2` also count for `math`; here names are compared whole.
 */

static void put_of_source(ares_metrics *m, const char *source, const char *name, double value)
{
    char key[200];
    (void)snprintf(key, sizeof key, "rollout/%s%s%s", source, *source ? "/" : "", name);
    ares_metrics_set(m, key, value);
}

/* mean, median, max and min of x [n], which gets sorted; the mean is summed in its first order */
static void put_statistics(ares_metrics *m, const char *source, const char *name, double *x,
                           int64_t n)
{
    char key[100];
    double sum = 0;
    if (!n) return;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    ares_sort_f64(x, n);
    const struct {
        const char *name;
        double value;
    } list[] = { { "mean", sum / (double)n },
                 { "median", n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2 },
                 { "max", x[n - 1] },
                 { "min", x[0] } };
    for (int i = 0; i < ARES_COUNT(list); i++) {
        (void)snprintf(key, sizeof key, "%s/%s", name, list[i].name);
        put_of_source(m, source, key, list[i].value);
    }
}

/* Groups of a data set that a filter dropped for a reason, as the filter counted them. */
static double drops(const ares_metrics *m, const char *reason, const char *source)
{
    char key[200];
    double n = 0;
    (void)snprintf(key, sizeof key, "rollout/dynamic_filter/drop_%s_%s", reason, source);
    (void)ares_metrics_get(m, key, &n);
    return n;
}

static void put_drops(ares_metrics *m, const char *source, double samples, double groups)
{
    static const char *const reasons[] = { "all_zero", "reward_cap" };
    double all = groups;
    char key[120];
    for (int i = 0; i < ARES_COUNT(reasons); i++) all += drops(m, reasons[i], source);
    (void)snprintf(key, sizeof key, "rollout/%s/judged_groups", source);
    (void)ares_metrics_get(m, key, &all); /* if known: with groups beyond the batch */
    for (int i = 0; i < ARES_COUNT(reasons); i++) {
        double n = drops(m, reasons[i], source);
        (void)snprintf(key, sizeof key, "filter_ratio_%s", reasons[i]);
        if (n > 0 && samples > 0) put_of_source(m, source, key, n / samples);
        (void)snprintf(key, sizeof key, "drop_rate_%s", reasons[i]);
        put_of_source(m, source, key, all > 0 ? n / all : 0);
    }
}

/* One data set. numbers, caps: memory for n and for all data sets. */
static int put_source(const ares_curriculum *c, int64_t part, const source_sample *x, int64_t n,
                      double *numbers, double *caps, ares_metrics *m)
{
    const char *name = c->names[part];
    const source_sample *last = NULL;
    int64_t samples = 0, groups = 0;
    for (int64_t i = 0; i < n; i++) {
        if (x[i].part != part) continue;
        groups += !last || last->place != x[i].place;
        last = &x[i];
        numbers[samples++] = x[i].length;
    }
    put_statistics(m, name, "response_len", numbers, samples);
    samples = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i].part == part) numbers[samples++] = x[i].reward;
    put_statistics(m, name, "raw_reward", numbers, samples);
    put_drops(m, name, (double)samples, (double)groups);
    ARES_TRY(ares_curriculum_caps(c, last ? last->step : 0, caps));
    if (!isnan(caps[part])) put_of_source(m, name, "reward_cap", caps[part]);
    put_of_source(m, name, "sample_count", (double)samples);
    if (!last) return ARES_OK;
    put_of_source(m, name, "weight", last->weight);
    put_of_source(m, name, "rollout_step", (double)last->step);
    return ARES_OK;
}

/*
 * Speed of the rollout over all ranks; a rank has one GPU. Under slime's names: all tokens of an
 * answer, and the policy's tokens alone ("effective").
 */
static void put_speed(const source_sample *x, int64_t n, int64_t ranks, ares_metrics *m)
{
    double seconds = 0, sum[2] = { 0 }, longest[2] = { 0 };
    if (!ares_metrics_get(m, "timing_s/gen", &seconds) || seconds <= 0) return;
    for (int64_t i = 0; i < n; i++) {
        const double length[2] = { x[i].tokens, x[i].length };
        for (int k = 0; k < 2; k++) {
            sum[k] += length[k];
            longest[k] = fmax(longest[k], length[k]);
        }
    }
    ares_metrics_set(m, "perf/rollout_time", seconds);
    ares_metrics_set(m, "perf/tokens_per_gpu_per_sec", sum[0] / seconds / (double)ranks);
    ares_metrics_set(m, "perf/effective_tokens_per_gpu_per_sec", sum[1] / seconds / (double)ranks);
    ares_metrics_set(m, "perf/longest_sample_tokens_per_sec", longest[0] / seconds);
    ares_metrics_set(m, "perf/longest_effective_sample_tokens_per_sec", longest[1] / seconds);
}

int sources_report(const ares_curriculum *c, const source_sample *x, int64_t n, ares_metrics *m)
{
    double *numbers = ares_malloc(((size_t)n + 1) * sizeof *numbers),
           *caps = ares_malloc(((size_t)c->n + 1) * sizeof *caps);
    int rc = ARES_OK;
    for (int64_t i = 0; i < n; i++) numbers[i] = x[i].length;
    put_statistics(m, "", "response_len", numbers, n);
    for (int64_t i = 0, end; i < n; i = end) { /* groups whose rewards are equal, by the reward */
        char key[100];
        bool equal = true;
        for (end = i; end < n && x[end].place == x[i].place; end++)
            equal = equal && x[end].reward == x[i].reward;
        (void)snprintf(key, sizeof key, "rollout/zero_std/count_%.1f", x[i].reward);
        if (equal) ares_metrics_add(m, key, 1);
    }
    for (int64_t i = 0; i < c->n && rc == ARES_OK; i++)
        rc = put_source(c, i, x, n, numbers, caps, m);
    ares_free(numbers);
    ares_free(caps);
    return rc;
}

/* Metrics by data set of a curriculum; none without one. A collective. */
static int report_sources(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    if (!t->run.curriculum.n) return ARES_OK;
    int64_t n = 0;
    double cut = 0, repeats = 0;
    bool compares = repetition_known();
    source_sample *mine = ares_malloc(((size_t)b->rows + 1) * sizeof *mine);
    for (int64_t r = 0; r < b->rows; r++) {
        const ares_sample *s = &b->samples[r];
        if (s->masked) continue;
        double length = 0;
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++)
            length += b->response_mask[i];
        mine[n++] = (source_sample){ .place = s->place,
                                     .index = s->index,
                                     .part = s->row->part,
                                     .step = s->source_step,
                                     .weight = s->source_weight,
                                     .reward = (double)s->unshaped,
                                     .length = length,
                                     .tokens = (double)(b->row_start[r + 1] - b->row_start[r]) };
        cut += !s->stopped;
        repeats += compares && repetition_in(s->response);
    }
    ares_str all = { 0 };
    int rc = ares_world_gather_all(t->run.world, mine, (size_t)n * sizeof *mine, &all, NULL);
    ares_free(mine);
    double sums[2] = { cut, repeats };
    if (rc == ARES_OK) rc = ares_world_sum_f64(t->run.world, sums, 2);
    if (rc == ARES_OK) {
        n = (int64_t)(all.len / sizeof *mine);
        source_sample *x = ares_malloc(((size_t)n + 1) * sizeof *x);
        if (n) memcpy(x, all.data, all.len);
        ares_sort_records(x, n, sizeof *x);
        rc = sources_report(&t->run.curriculum, x, n, m);
        put_speed(x, n, ares_world_size(t->run.world), m);
        ares_free(x);
    }
    if (rc == ARES_OK && n) {
        ares_metrics_set(m, "rollout/truncated_ratio", sums[0] / (double)n);
        if (compares) ares_metrics_set(m, "rollout/repetition_frac", sums[1] / (double)n);
    }
    ares_metrics_set(m, "rollout/step", (double)t->run.step);
    ares_str_fini(&all);
    return rc;
}

/* The usual metrics of a batch, over all ranks (docs/update.md#metrics). */

typedef struct summary {
    double sum, count, max, min;
} summary;

static void see(summary *s, double x)
{
    s->sum += x;
    s->max = s->count == 0 || x > s->max ? x : s->max;
    s->min = s->count == 0 || x < s->min ? x : s->min;
    s->count++;
}

/* Merges over ranks and writes <name>/mean, max, min. */
static int put(const ares_trainer *t, ares_metrics *m, const char *name, const summary *s)
{
    double sums[2] = { s->sum, s->count },
           bounds[2] = { s->count > 0 ? s->max : -INFINITY, s->count > 0 ? -s->min : -INFINITY };
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, 2));
    ARES_TRY(ares_world_max_f64(t->run.world, bounds, 2));
    if (sums[1] == 0) return ARES_OK;
    char key[128];
    snprintf(key, sizeof key, "%s/mean", name);
    ares_metrics_set(m, key, sums[0] / sums[1]);
    snprintf(key, sizeof key, "%s/max", name);
    ares_metrics_set(m, key, bounds[0]);
    snprintf(key, sizeof key, "%s/min", name);
    ares_metrics_set(m, key, -bounds[1]);
    return ARES_OK;
}

static int put_mean(const ares_trainer *t, ares_metrics *m, const char *name, double sum,
                    double count)
{
    double sums[2] = { sum, count };
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, 2));
    if (sums[1] > 0) ares_metrics_set(m, name, sums[0] / sums[1]);
    return ARES_OK;
}

/* Sums over this rank's rows; a discarded answer counts in `total` alone. */
typedef struct row_sums {
    summary score, reward; /* over answers: the rows of an episode's turns are one */
    summary advantage, response, prompt, returns, values;
    double clipped, written; /* answers of the policy: ended by their length; all */
    double full;             /* prompts of data.max_prompt_length tokens */
    double accuracy, judged; /* sum, and answers that have one */
    double entropy, tokens;  /* of tokens with mask 1 */
    double total;            /* tokens of all rows, the prompts of each included */
} row_sums;

/* Adds a row's tokens and lengths. */
static void see_row(row_sums *y, const ares_trainer *t, const ares_batch *b, int64_t r)
{
    const ares_sample *s = &b->samples[r];
    double length = (double)(b->row_start[r + 1] - b->row_start[r]);
    y->total += s->prompt_len + length;
    /* a stored answer is none of the policy's: distillation/ tells of it */
    if (!ares_batch_row_counts(b, r) || s->stored) return;
    for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
        if (!b->response_mask[i]) continue;
        see(&y->advantage, (double)b->advantages[i]);
        if (b->returns) see(&y->returns, (double)b->returns[i]);
        if (b->values) see(&y->values, (double)b->values[i]);
        if (!report_has_entropies(t, s)) continue;
        y->entropy += (double)b->entropies[i];
        y->tokens++;
    }
    see(&y->response, length);
    see(&y->prompt, s->prompt_len);
    y->full += s->prompt_len >= t->run.cfg->data.max_prompt_length;
}

/*
 * Adds the answer whose rows are [first, end). Each row of an episode has the episode's score, or,
 * with scores of turns, its own; copies of a row (algorithm.batch_adjust_mode) add nothing.
 */
static void see_answer(row_sums *y, const ares_batch *b, int64_t first, int64_t end)
{
    const ares_sample *s = &b->samples[first];
    double score = 0, penalty = 0; /* penalty: the KL of all its rows */
    bool seen = false;
    for (int64_t r = first; r < end; r++) {
        if (!ares_batch_row_counts(b, r) || b->samples[r].stored) continue;
        if (seen && b->samples[r].turn == b->samples[r - 1].turn) continue;
        double scores = 0, rewards = 0;
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
            scores += (double)b->token_level_scores[i];
            rewards += (double)b->token_level_rewards[i];
        }
        if (b->turn_scores || !seen) score += scores;
        penalty += scores - rewards;
        seen = true;
    }
    if (!seen) return;
    see(&y->score, score);
    see(&y->reward, score - penalty);
    y->clipped += s->turn_count ? s->turns_cut : !s->stopped;
    y->written += s->turn_count ? s->turn_count : 1;
    if (isnan(s->accuracy)) return;
    y->accuracy += (double)s->accuracy;
    y->judged++;
}

/* Groups whose scores are not all equal; masked answers do not count. */
static int put_mixed_groups(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    double mixed = 0, compared = 0;
    for (int64_t g = 0; g < b->groups; g++) {
        float low = INFINITY, high = -INFINITY;
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++) {
            if (!ares_batch_row_counts(b, r) || b->samples[r].stored) continue;
            low = fminf(low, b->samples[r].score);
            high = fmaxf(high, b->samples[r].score);
        }
        mixed += low < high;
        compared += low <= high;
    }
    double equal = compared - mixed;
    ARES_TRY(ares_world_sum_f64(t->run.world, &equal, 1));
    if (equal > 0) ares_metrics_set(m, "rollout/equal_groups", equal);
    return put_mean(t, m, "rollout/mixed_groups_frac", mixed, compared);
}

int report_batch(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    row_sums y = { 0 };
    ares_rollout_stats stats;
    for (int64_t r = 0; r < b->rows; r++) see_row(&y, t, b, r);
    for (int64_t g = 0; g < b->groups; g++) {
        int64_t last = b->group_start[g + 1];
        for (int64_t r = b->group_start[g], end; r < last; r = end) {
            int64_t episode = b->samples[r].episode; /* 0: the row is an answer by itself */
            for (end = r + 1; episode && end < last && b->samples[end].episode == episode;) end++;
            see_answer(&y, b, r, end);
        }
    }
    ARES_TRY(put(t, m, "critic/score", &y.score));
    ARES_TRY(put(t, m, "critic/rewards", &y.reward));
    ARES_TRY(put(t, m, "critic/advantages", &y.advantage));
    if (b->returns) ARES_TRY(put(t, m, "critic/returns", &y.returns));
    if (b->values) ARES_TRY(put(t, m, "critic/values", &y.values));
    ARES_TRY(put(t, m, "response_length", &y.response));
    ARES_TRY(put_mean(t, m, "response_length/clip_ratio", y.clipped, y.written));
    ARES_TRY(put(t, m, "prompt_length", &y.prompt));
    ARES_TRY(put_mean(t, m, "prompt_length/clip_ratio", y.full, y.prompt.count));
    ARES_TRY(put_mean(t, m, "reward/overall", y.score.sum, y.score.count));
    /* reward/accuracy is over all answers, those of dropped groups included (collect/collect.c) */
    ARES_TRY(put_mean(t, m, "reward/batch_accuracy", y.accuracy, y.judged));
    /* the rewards that a score is made of, then what rewards count themselves; episodes have none
     */
    for (int i = 0; i < ares_reward_count(t->reward); i++) {
        char key[160];
        double sum = 0, scored = 0;
        for (int64_t r = 0; r < b->rows; r++) {
            if (!ares_batch_row_counts(b, r) || isnan(b->samples[r].reward_parts[i])) continue;
            sum += (double)b->samples[r].reward_parts[i];
            scored++;
        }
        snprintf(key, sizeof key, "reward/%s", ares_reward_name(t->reward, i));
        ARES_TRY(put_mean(t, m, key, sum, scored));
    }
    ARES_TRY(ares_reward_report(t->reward, t->run.world, "", m));
    ARES_TRY(put_mean(t, m, "rollout/entropy", y.entropy, y.tokens));
    ARES_TRY(put_mixed_groups(t, b, m));
    ARES_TRY(ares_world_sum_f64(t->run.world, &y.total, 1));
    ares_metrics_set(m, "perf/total_num_tokens", y.total);
    ares_rollout_get_stats(t->rollout, &stats);
    ares_metrics_set(m, "rollout/preemptions", (double)stats.preemptions);
    ares_metrics_set(m, "rollout/forward_passes", (double)stats.steps);
    if (ares_rollout_drafts(t->rollout)) {
        ares_metrics_set(m, "rollout/drafted_tokens", (double)stats.drafted_tokens);
        ares_metrics_set(m, "rollout/accepted_tokens", (double)stats.accepted_tokens);
        if (stats.drafted_tokens)
            ares_metrics_set(m, "rollout/draft_accept_frac",
                             (double)stats.accepted_tokens / (double)stats.drafted_tokens);
    }
    if (t->run.device.k->graph_begin) {
        ares_metrics_set(m, "rollout/graph_steps", (double)stats.graph_steps);
        ares_metrics_set(m, "rollout/refused_graphs", (double)stats.refused_graphs);
    }
    ARES_TRY(report_sources(t, b, m));
    return report_lengths(t, b, m);
}

/*
 * Distributions as counts over fixed bins, so that ranks can add them. Bins widen quadratically,
 * because most tokens have little entropy.
 */

enum { BINS = 60 };
static const double LARGEST = 12; /* nats: the entropy of 160,000 equally likely ids */

static double edge_of(int i)
{
    return LARGEST * i * i / (BINS * BINS);
}

/* Counts tokens with mask 1 and a value of 0 or more. A collective. */
static int log_column(const ares_trainer *t, ares_tracker *tracker, const char *tag, const float *x)
{
    const ares_batch *b = &t->batch;
    double bins[BINS] = { 0 }, edge[BINS + 1];
    double count = 0;
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
            int k = 0;
            if (!b->response_mask[i] || !(x[i] >= 0) || !report_has_entropies(t, &b->samples[r]))
                continue;
            while (k < BINS - 1 && (double)x[i] >= edge_of(k + 1)) k++;
            bins[k]++;
            count++;
        }
    ARES_TRY(ares_world_sum_f64(t->run.world, bins, BINS));
    ARES_TRY(ares_world_sum_f64(t->run.world, &count, 1));
    if (count == 0) return ARES_OK; /* no text is as it was sampled */
    for (int i = 0; i <= BINS; i++) edge[i] = edge_of(i);
    return tracker ? ares_tracker_bins(tracker, t->run.step, tag, edge, bins, BINS) : ARES_OK;
}

int report_histograms(const ares_trainer *t, ares_tracker *tracker)
{
    const ares_batch *b = &t->batch;
    if (!b->entropies_1) return ARES_OK;
    ARES_TRY(log_column(t, tracker, "rollout/entropy_distribution", b->entropies_1));
    return b->window_entropies
               ? log_column(t, tracker, "rollout/window_entropy_distribution", b->window_entropies)
               : ARES_OK;
}
