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

/* Sums over this rank's rows; discarded answers cost their tokens, and count nowhere else. */
typedef struct row_sums {
    summary score, reward; /* over answers: the rows of an episode's turns are one */
    summary advantage, response, prompt, returns, values;
    double clipped, written; /* answers of the policy that length has ended, and all of them */
    double full;             /* prompts of the greatest length */
    double accuracy, judged; /* sum, and answers that have one */
    double entropy, tokens;  /* of tokens with mask 1 */
    double total;            /* tokens of all rows, the prompts of each included */
} row_sums;

static void see_row(row_sums *y, const ares_data_config *cfg, const ares_batch *b, int64_t r)
{
    const ares_sample *s = &b->samples[r];
    double length = (double)(b->row_start[r + 1] - b->row_start[r]);
    y->total += s->prompt_len + length;
    if (!ares_batch_row_counts(b, r)) return;
    for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
        if (!b->response_mask[i]) continue;
        see(&y->advantage, (double)b->advantages[i]);
        if (b->returns) see(&y->returns, (double)b->returns[i]);
        if (b->values) see(&y->values, (double)b->values[i]);
        y->entropy += (double)b->entropies[i];
        y->tokens++;
    }
    see(&y->response, length);
    see(&y->prompt, s->prompt_len);
    y->full += s->prompt_len >= cfg->max_prompt_length;
}

/* The row after those of the same episode; a row without a number is one by itself. */
static int64_t episode_end(const ares_batch *b, int64_t r, int64_t group_end)
{
    int64_t end = r + 1, episode = b->samples[r].episode;
    while (episode && end < group_end && b->samples[end].episode == episode) end++;
    return end;
}

/*
 * The answer whose rows are [first, end). Each row of an episode has the score of all of it, or,
 * with scores of turns, its own; copies of a row (algorithm.batch_adjust_mode) add nothing.
 */
static void see_answer(row_sums *y, const ares_batch *b, int64_t first, int64_t end)
{
    const ares_sample *s = &b->samples[first];
    double score = 0, penalty = 0; /* penalty: the KL of all its rows */
    bool seen = false;
    for (int64_t r = first; r < end; r++) {
        if (!ares_batch_row_counts(b, r)) continue;
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

static void see_answers(row_sums *y, const ares_batch *b)
{
    for (int64_t g = 0; g < b->groups; g++)
        for (int64_t r = b->group_start[g], end; r < b->group_start[g + 1]; r = end) {
            end = episode_end(b, r, b->group_start[g + 1]);
            see_answer(y, b, r, end);
        }
}

/* Groups whose scores are not all equal; masked answers count nowhere. */
static int put_mixed_groups(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    double mixed = 0, compared = 0;
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
    double equal = compared - mixed;
    ARES_TRY(ares_world_sum_f64(t->run.world, &equal, 1));
    if (equal > 0) ares_metrics_set(m, "rollout/equal_groups", equal);
    return put_mean(t, m, "rollout/mixed_groups_frac", mixed, compared);
}

/* The mean of each reward that a score is made of, and what rewards count themselves; no
 * conversation has them. */
static int put_rewards(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
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
    return ares_reward_report(t->reward, t->run.world, "", m);
}

int report_batch(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
{
    row_sums y = { 0 };
    ares_rollout_stats stats;
    for (int64_t r = 0; r < b->rows; r++) see_row(&y, &t->run.cfg->data, b, r);
    see_answers(&y, b);
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
    /* reward/accuracy is over all answers, those of dropped groups included (collect.c) */
    ARES_TRY(put_mean(t, m, "reward/batch_accuracy", y.accuracy, y.judged));
    ARES_TRY(put_rewards(t, b, m));
    ARES_TRY(put_mean(t, m, "rollout/entropy", y.entropy, y.tokens));
    ARES_TRY(put_mixed_groups(t, b, m));
    ARES_TRY(ares_world_sum_f64(t->run.world, &y.total, 1));
    ares_metrics_set(m, "perf/total_num_tokens", y.total);
    ares_rollout_get_stats(t->rollout, &stats);
    ares_metrics_set(m, "rollout/preemptions", (double)stats.preemptions);
    ares_metrics_set(m, "rollout/forward_passes", (double)stats.steps);
    if (t->run.device.k->graph_begin) {
        ares_metrics_set(m, "rollout/graph_steps", (double)stats.graph_steps);
        ares_metrics_set(m, "rollout/refused_graphs", (double)stats.refused_graphs);
    }
    ARES_TRY(report_sources(t, b, m));
    return report_lengths(t, b, m);
}
