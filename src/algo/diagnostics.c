/*
 * What is measured of a step besides its training: how much thoughts depend on their prompts, and
 * groups in buckets by the deviation of their rewards.
 */
#include "stats.h"

#include <math.h>
#include <stdlib.h>

#include "ares/algo.h"
#include "ares/kernels.h"

/*
 * How much of a thought depends on its prompt: the mutual information of thoughts Z and prompts X,
 * estimated from the log-prob of every thought after every prompt (RAGEN's collapse metrics, after
 * arXiv 2504.20073; docs/diagnostics.md#collapse). A policy that thinks the same whatever it reads
 * has I(X; Z) = 0. Prompts count as equally likely.
 */

ARES_OPTION_TABLE(ares_collapse_options, ares_collapse_config, ARES_COLLAPSE_OPTIONS);

const int ares_collapse_looks[ARES_COLLAPSE_LOOKS] = { 1, 2, 4, 8 };
static const double STD_EPS = 1e-3; /* RAGEN's */

double collapse_zscore(double mi, double deviation)
{
    return mi / (deviation + STD_EPS);
}

void ares_collapse_measure(const ares_collapse_scores *s, double *matched, double *marginal,
                           ares_collapse *out)
{
    double squares = 0, chance = 0;
    *out = (ares_collapse){ 0 };
    for (int64_t i = 0; i < s->thoughts; i++) {
        const double *x = s->log_prob + i * s->prompts;
        matched[i] = x[s->own[i]];
        /* log of the mean over prompts of exp(log-prob), from the largest so that none overflows */
        double largest = x[0], sum = 0;
        for (int64_t j = 1; j < s->prompts; j++) largest = fmax(largest, x[j]);
        for (int64_t j = 0; j < s->prompts; j++) sum += ares_f64_exp(x[j] - largest);
        marginal[i] = isfinite(largest)
                          ? largest + ares_f64_log(sum) - ares_f64_log((double)s->prompts)
                          : largest;
    }
    double of_own = stats_mean(matched, s->thoughts), of_all = stats_mean(marginal, s->thoughts);
    for (int64_t i = 0; i < s->thoughts; i++)
        squares += (marginal[i] - of_all) * (marginal[i] - of_all);
    out->mi = of_own - of_all;
    out->mi_bound = ares_f64_log((double)s->prompts);
    out->conditional_entropy = -of_own;
    out->entropy = -of_all;
    out->marginal_std = sqrt(squares / (double)s->thoughts);
    out->zscore = collapse_zscore(out->mi, out->marginal_std);
    for (int64_t i = 0; i < s->thoughts; i++) {
        const double *x = s->log_prob + i * s->prompts;
        /* place: number of prompts likelier than the likeliest one of the own text */
        int64_t text = s->text[s->own[i]], best = -1, place = 0, alike = 0;
        for (int64_t j = 0; j < s->prompts; j++) {
            alike += s->text[j] == text;
            if (s->text[j] == text && (best < 0 || x[j] > x[best])) best = j;
        }
        for (int64_t j = 0; j < s->prompts; j++)
            place += x[j] > x[best] || (x[j] == x[best] && j < best);
        for (int k = 0; k < ARES_COLLAPSE_LOOKS; k++)
            out->accuracy[k] += place < ares_collapse_looks[k];
        chance += (double)alike / (double)s->prompts;
    }
    for (int k = 0; k < ARES_COLLAPSE_LOOKS; k++) {
        double seen = fmin(ares_collapse_looks[k], (double)s->prompts);
        out->accuracy[k] /= (double)s->thoughts;
        out->chance[k] = fmin(1, chance / (double)s->thoughts * seen);
    }
}

/*
 * Groups in buckets by the standard deviation of their rewards (RAGEN's gradient analysis;
 * docs/diagnostics.md#gradients-by-reward-variance).
 */

typedef struct ranked {
    double std;
    int64_t index;
} ranked;

static int ascending(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->std != y->std ? ARES_CMP(x->std, y->std) : ARES_CMP(x->index, y->index);
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

/* Whether an earlier row of the group (rows from `first` on) belongs to the same answer. */
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
