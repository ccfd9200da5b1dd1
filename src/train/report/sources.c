/*
 * Metrics by data set (docs/curriculum.md#metrics), named and computed as in slime's
 * examples/curriculum_learning/custom_log.py. There a reason of a dropped group is looked for by
 * its beginning, so that drops of `math2` also count for `math`; here names are compared as a
 * whole.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/repetition.h"
#include "report/report.h"
#include "report/sources.h"

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void put(ares_metrics *m, const char *source, const char *name, double value)
{
    char key[200];
    (void)snprintf(key, sizeof key, "rollout/%s%s%s", source, *source ? "/" : "", name);
    ares_metrics_set(m, key, value);
}

/* mean, median, max and min of x [n], which is sorted; the mean is of its order before. */
static void put_statistics(ares_metrics *m, const char *source, const char *name, double *x,
                           int64_t n)
{
    char key[100];
    double sum = 0;
    if (!n) return;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    qsort(x, (size_t)n, sizeof *x, ascending);
    const struct {
        const char *name;
        double value;
    } list[] = { { "mean", sum / (double)n },
                 { "median", n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2 },
                 { "max", x[n - 1] },
                 { "min", x[0] } };
    for (int i = 0; i < ARES_COUNT(list); i++) {
        (void)snprintf(key, sizeof key, "%s/%s", name, list[i].name);
        put(m, source, key, list[i].value);
    }
}

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
    (void)ares_metrics_get(m, key, &all); /* groups beyond the batch included */
    for (int i = 0; i < ARES_COUNT(reasons); i++) {
        double n = drops(m, reasons[i], source);
        (void)snprintf(key, sizeof key, "filter_ratio_%s", reasons[i]);
        if (n > 0 && samples > 0) put(m, source, key, n / samples);
        (void)snprintf(key, sizeof key, "drop_rate_%s", reasons[i]);
        put(m, source, key, all > 0 ? n / all : 0);
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
    if (!isnan(caps[part])) put(m, name, "reward_cap", caps[part]);
    put(m, name, "sample_count", (double)samples);
    if (!last) return ARES_OK;
    put(m, name, "weight", last->weight);
    put(m, name, "rollout_step", (double)last->step);
    return ARES_OK;
}

/* Groups whose rewards are all the same, by that reward. */
static void count_equal_groups(const source_sample *x, int64_t n, ares_metrics *m)
{
    char key[100];
    for (int64_t i = 0, end; i < n; i = end) {
        bool equal = true;
        for (end = i; end < n && x[end].place == x[i].place; end++)
            equal = equal && x[end].reward == x[i].reward;
        (void)snprintf(key, sizeof key, "rollout/zero_std/count_%.1f", x[i].reward);
        if (equal) ares_metrics_add(m, key, 1);
    }
}

/*
 * What the rollout made of its time, all ranks together; a rank has one GPU. slime's names, which
 * take all tokens of an answer, and those of the policy alone ("effective").
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
    count_equal_groups(x, n, m);
    for (int64_t i = 0; i < c->n && rc == ARES_OK; i++)
        rc = put_source(c, i, x, n, numbers, caps, m);
    ares_free(numbers);
    ares_free(caps);
    return rc;
}

static int by_place(const void *a, const void *b)
{
    const source_sample *x = a, *y = b;
    return x->place != y->place ? (x->place > y->place) - (x->place < y->place)
                                : (x->index > y->index) - (x->index < y->index);
}

int report_sources(const ares_trainer *t, const ares_batch *b, ares_metrics *m)
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
        qsort(x, (size_t)n, sizeof *x, by_place);
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
