/*
 * Groups in buckets by the standard deviation of their rewards (RAGEN's gradient analysis;
 * docs/diagnostics.md#gradients-by-reward-variance).
 */
#include <stdlib.h>

#include "ares/algo_diagnostics.h"
#include "stats.h"

typedef struct ranked {
    double std;
    int64_t index;
} ranked;

static int ascending(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->std != y->std ? (x->std > y->std) - (x->std < y->std)
                            : (x->index > y->index) - (x->index < y->index);
}

static void sort(const double *std, int64_t n, int64_t *order)
{
    ranked *r = ares_malloc(((size_t)n + 1) * sizeof *r);
    for (int64_t i = 0; i < n; i++) r[i] = (ranked){ std[i], i };
    qsort(r, (size_t)n, sizeof *r, ascending);
    for (int64_t i = 0; i < n; i++) order[i] = r[i].index;
    ares_free(r);
}

int64_t ares_std_quantiles(const double *std, int64_t n, int64_t count, int64_t *order,
                           int64_t *start)
{
    int64_t buckets = ARES_MIN(count, n);
    sort(std, n, order);
    for (int64_t k = 0; k < buckets; k++) start[k] = k * (n / buckets);
    start[buckets] = n;
    return buckets;
}

int64_t ares_std_bands(const double *std, int64_t n, int64_t *order, int64_t *start)
{
    int64_t at = 0;
    sort(std, n, order);
    for (int64_t k = 0; k < ARES_STD_BANDS; k++) {
        start[k] = at;
        while (at < n && (k == ARES_STD_BANDS - 1 || std[order[at]] < (double)(k + 1))) at++;
    }
    start[ARES_STD_BANDS] = n;
    return ARES_STD_BANDS;
}

/* Whether an earlier row of the group, from `first` on, is of the same answer. */
static bool seen(const ares_batch *b, int64_t first, int64_t row)
{
    const ares_sample *s = &b->samples[row];
    for (int64_t r = first; r < row; r++) {
        const ares_sample *x = &b->samples[r];
        if (!ares_batch_row_counts(b, r) || x->episode != s->episode) continue;
        if (s->episode || x->index == s->index) return true;
    }
    return false;
}

bool ares_group_reward_std(const ares_batch *b, int64_t group, double *std)
{
    int64_t first = b->group_start[group], end = b->group_start[group + 1], n = 0;
    double *score = ares_malloc((size_t)(end - first + 1) * sizeof *score);
    for (int64_t r = first; r < end; r++)
        if (ares_batch_row_counts(b, r) && !seen(b, first, r))
            score[n++] = (double)b->samples[r].unshaped;
    *std = stats_std(score, n, stats_mean(score, n));
    ares_free(score);
    return n > 0;
}
