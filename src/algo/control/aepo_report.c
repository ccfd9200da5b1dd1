/*
 * Metrics of AEPO by difficulty, under the names of ARES (docs/aepo.md#metrics). A difficulty
 * without samples has none.
 */
#include <math.h>
#include <stdio.h>

#include "aepo.h"

void aepo_metric(ares_metrics *m, const char *prefix, int difficulty, const char *suffix,
                 double value)
{
    char name[96];
    snprintf(name, sizeof name, "%s/%s%s", prefix, ares_difficulty_names[difficulty], suffix);
    ares_metrics_set(m, name, value);
}

void aepo_report_state(const aepo *s, ares_metrics *m, const char *prefix)
{
    char name[64];
    snprintf(name, sizeof name, "%s/tau", prefix);
    if (s->tau_known) ares_metrics_set(m, name, s->tau);
    snprintf(name, sizeof name, "%s/target", prefix);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        if (s->aims.target_known[d]) aepo_metric(m, name, d, "", (double)s->aims.target[d]);
}

/* Under our names and under those of ARES. */
void aepo_report_validation(const aepo *s, ares_metrics *m)
{
    aepo_report_state(s, m, "val/aepo");
    if (s->tau_known) ares_metrics_set(m, "val/self.high_entropy_token_threshold", s->tau);
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        if (s->aims.target_known[d])
            aepo_metric(m, "val/self.expected_high_entropy_token_num", d, "",
                        (double)s->aims.target[d]);
}

typedef struct sums {
    int64_t n;
    double accuracy, length, hwe, invalid, longest, shortest;
} sums;

/*
 * Under the published name, with _ for its spaces, and under ours. The published metric is NaN for
 * an empty bin; ours is left out.
 */
static void report_bins(const control_gathered *all, int difficulty, int64_t n, ares_metrics *m)
{
    if (n < 3) return;
    ares_arena arena = { 0 };
    int64_t *hwe = ares_arena_alloc(&arena, (size_t)n * sizeof *hwe), at = 0;
    double *accuracy = ares_arena_alloc(&arena, (size_t)n * sizeof *accuracy);
    for (int64_t i = 0; i < all->n_samples; i++) {
        const control_sample *s = &all->samples[i];
        if (s->difficulty != difficulty) continue;
        hwe[at] = s->hwe;
        accuracy[at++] = (double)s->accuracy;
    }
    accuracy_bins bins;
    accuracy_by_hwe(hwe, accuracy, n, &bins);
    for (int i = 0; i < 3; i++) {
        char suffix[32];
        snprintf(suffix, sizeof suffix, "/accuracy/bin%d", i + 1);
        aepo_metric(m, "entropy_vs_acc", difficulty, suffix, bins.accuracy[i]);
        snprintf(suffix, sizeof suffix, "/count/bin%d", i + 1);
        aepo_metric(m, "entropy_vs_acc", difficulty, suffix, (double)bins.count[i]);
        snprintf(suffix, sizeof suffix, "/bin%d", i + 1);
        if (bins.count[i]) aepo_metric(m, "aepo/acc_by_hwe", difficulty, suffix, bins.accuracy[i]);
    }
    ares_arena_fini(&arena);
}

static void report_difficulty(const aepo *s, const control_gathered *all, int d, const sums *y,
                              ares_metrics *m)
{
    double n = (double)y->n, accuracy = y->accuracy / n, length = y->length / n;
    aepo_metric(m, "reward", d, "/accuracy", accuracy);
    aepo_metric(m, "reward", d, "/count", n);
    aepo_metric(m, "train", d, "/acc_mean", accuracy);
    aepo_metric(m, "train", d, "/len_mean", length);
    if (s->baseline_known[d] && s->steps % 10 == 0) {
        aepo_metric(m, "progress", d, "/dacc", accuracy - s->baseline_accuracy[d]);
        aepo_metric(m, "progress", d, "/dlen", length - s->baseline_length[d]);
    }
    aepo_metric(m, "response_length", d, "/mean", length);
    aepo_metric(m, "response_length", d, "/max", y->longest);
    aepo_metric(m, "response_length", d, "/min", y->shortest);
    aepo_metric(m, "response_length", d, "/count", n);
    aepo_metric(m, "reasoning_tokens_statistics", d, "/valid_mean", y->hwe / n);
    aepo_metric(m, "reasoning_tokens_statistics", d, "/invalid_mean", y->invalid / n);
    aepo_metric(m, "reasoning_tokens_statistics", d, "/count", n);
    report_bins(all, d, y->n, m);
}

void aepo_report_batch(const aepo *s, const control_gathered *all, ares_metrics *m)
{
    sums by[ARES_DIFFICULTIES] = { 0 };
    double tokens = 0, hwe = 0;
    for (int64_t i = 0; i < all->n_samples; i++) {
        const control_sample *x = &all->samples[i];
        sums *y = &by[x->difficulty];
        double length = x->length;
        y->longest = y->n ? fmax(y->longest, length) : length;
        y->shortest = y->n ? fmin(y->shortest, length) : length;
        y->n++;
        y->accuracy += (double)x->accuracy;
        y->length += length;
        y->hwe += x->hwe;
        y->invalid += x->invalid;
        tokens += length;
        hwe += x->hwe;
    }
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        if (by[d].n) report_difficulty(s, all, d, &by[d], m);
    aepo_report_state(s, m, "aepo");
    for (int d = ARES_EASY; d < ARES_DIFFICULTIES; d++)
        aepo_metric(m, "aepo/alpha", d, "", s->aims.alpha[d]);
    if (tokens > 0) ares_metrics_set(m, "aepo/hwe_frac", hwe / tokens);
    ares_metrics_set(m, "epoch/skip_gid_count", (double)ares_map_count(s->skip));
}
