/* The usual metrics of a batch, over all ranks (docs/update.md#metrics). */
#include <math.h>
#include <stdio.h>

#include "report.h"

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

int report_batch(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    summary score = { 0 }, reward = { 0 }, advantage = { 0 }, response = { 0 }, prompt = { 0 },
            returns = { 0 }, values = { 0 };
    double clipped = 0, full = 0, accuracy = 0, judged = 0, entropy = 0, tokens = 0, mixed = 0,
           compared = 0, total = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        const ares_sample *s = &b->samples[r];
        double scores = 0, rewards = 0, length = (double)(b->row_start[r + 1] - b->row_start[r]);
        total += s->prompt_len + length;
        /* a discarded answer cost its tokens, and counts nowhere else */
        if (!ares_batch_row_counts(b, r)) continue;
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
            scores += (double)b->token_level_scores[i];
            rewards += (double)b->token_level_rewards[i];
            if (!b->response_mask[i]) continue;
            see(&advantage, (double)b->advantages[i]);
            if (b->returns) see(&returns, (double)b->returns[i]);
            if (b->values) see(&values, (double)b->values[i]);
            entropy += (double)b->entropies[i];
            tokens++;
        }
        see(&score, scores);
        see(&reward, rewards);
        see(&response, length);
        see(&prompt, s->prompt_len);
        clipped += length >= (double)t->run.cfg->data.max_response_length;
        full += s->prompt_len >= t->run.cfg->data.max_prompt_length;
        if (!isnan(s->accuracy)) {
            accuracy += (double)s->accuracy;
            judged++;
        }
    }
    /* groups that teach: not all scores equal; masked ones count nowhere */
    for (int64_t g = 0; g < b->groups; g++) {
        float low = INFINITY, high = -INFINITY;
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++) {
            if (!ares_batch_row_counts(b, r)) continue;
            low = fminf(low, b->samples[r].score);
            high = fmaxf(high, b->samples[r].score);
        }
        mixed += low < high;
        compared += low <= high;
    }
    ARES_TRY(put(t, m, "critic/score", &score));
    ARES_TRY(put(t, m, "critic/rewards", &reward));
    ARES_TRY(put(t, m, "critic/advantages", &advantage));
    if (b->returns) ARES_TRY(put(t, m, "critic/returns", &returns));
    if (b->values) ARES_TRY(put(t, m, "critic/values", &values));
    ARES_TRY(put(t, m, "response_length", &response));
    ARES_TRY(put_mean(t, m, "response_length/clip_ratio", clipped, response.count));
    ARES_TRY(put(t, m, "prompt_length", &prompt));
    ARES_TRY(put_mean(t, m, "prompt_length/clip_ratio", full, prompt.count));
    ARES_TRY(put_mean(t, m, "reward/overall", score.sum, score.count));
    /* reward/accuracy is that of all answers, the filtered ones included */
    ARES_TRY(put_mean(t, m, "reward/batch_accuracy", accuracy, judged));
    for (int i = 0; i < ares_reward_count(t->reward); i++) {
        char key[160];
        double sum = 0;
        for (int64_t r = 0; r < b->rows; r++)
            if (ares_batch_row_counts(b, r)) sum += (double)b->samples[r].reward_parts[i];
        snprintf(key, sizeof key, "reward/%s", ares_reward_name(t->reward, i));
        ARES_TRY(put_mean(t, m, key, sum, score.count));
    }
    ARES_TRY(ares_reward_report(t->reward, t->run.world, "", m));
    ARES_TRY(put_mean(t, m, "rollout/entropy", entropy, tokens));
    ARES_TRY(put_mean(t, m, "rollout/mixed_groups_frac", mixed, compared));
    ARES_TRY(ares_world_sum_f64(t->run.world, &total, 1));
    ares_metrics_set(m, "perf/total_num_tokens", total);
    ares_rollout_stats stats;
    ares_rollout_get_stats(t->rollout, &stats);
    ares_metrics_set(m, "rollout/preemptions", (double)stats.preemptions);
    ares_metrics_set(m, "rollout/forward_passes", (double)stats.steps);
    return report_lengths(t, b, m);
}
