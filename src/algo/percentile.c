/* Percentiles by selection, O(n), with few branches that depend on the data. */
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sort_few(double *x, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        double v = x[i];
        int64_t j = i;
        for (; j > 0 && x[j - 1] > v; j--) x[j] = x[j - 1];
        x[j] = v;
    }
}

/*
 * The k-th smallest of x [n], which is reordered. A histogram over the range finds the bin that
 * holds it, and only that bin is searched further: until few values are left no branch depends on
 * the data, where the processor would predict half of the comparisons wrongly.
 */
static double select_kth(double *x, int64_t n, int64_t k)
{
    enum { BINS = 256, FEW = 48 };
    for (int round = 0; n > FEW && round < 16; round++) {
        double low = x[0], high = x[0];
        for (int64_t i = 1; i < n; i++) low = x[i] < low ? x[i] : low;
        for (int64_t i = 1; i < n; i++) high = x[i] > high ? x[i] : high;
        double scale = (BINS - 1) / (high - low);
        if (low == high) return low;
        if (!(scale > 0 && scale < 1e300)) break;
        int64_t bins[BINS] = { 0 }, below = 0, kept = 0;
        for (int64_t i = 0; i < n; i++) bins[(int)((x[i] - low) * scale)]++;
        int bin = 0;
        while (below + bins[bin] <= k) below += bins[bin++];
        for (int64_t i = 0; i < n; i++) {
            double v = x[i];
            x[kept] = v;
            kept += (int)((v - low) * scale) == bin;
        }
        k -= below;
        n = kept;
    }
    if (n > FEW) qsort(x, (size_t)n, sizeof *x, ascending);
    else sort_few(x, n);
    return x[k];
}

/*
 * The neighbours of the k-th smallest of original [n]: its values between two values of a sorted
 * sample. They are written to x [*kept] and a second time after that; *below values are smaller.
 * false: the k-th or the next one is not among them, or they are too many.
 */
static bool neighbours(double *x, const double *original, int64_t n, int64_t k, int64_t *below,
                       int64_t *kept)
{
    enum { SAMPLE = 32 };
    double s[SAMPLE], part = (double)k / (double)n;
    int at = (int)(part * SAMPLE), margin = 2 + (int)(3 * sqrt(SAMPLE * part * (1 - part)));
    for (int i = 0; i < SAMPLE; i++) s[i] = original[i * n / SAMPLE];
    sort_few(s, SAMPLE);
    double low = at - margin < 0 ? -INFINITY : s[at - margin],
           high = at + margin >= SAMPLE ? INFINITY : s[at + margin];
    int64_t less = 0, m = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = original[i];
        x[m] = v;
        less += v < low;
        m += (v >= low) & (v <= high);
    }
    *below = less;
    *kept = m;
    if (k < less || k + 1 >= less + m || 2 * m > n) return false;
    memcpy(x + m, x, (size_t)m * sizeof *x);
    return true;
}

/* x [n] is overwritten. */
static double percentile_of(double *x, const double *original, int64_t n, double q)
{
    if (n == 0) return 0;
    double rank = (double)(n - 1) * (q / 100);
    int64_t k = (int64_t)ARES_MIN(ARES_MAX(floor(rank), 0.0), (double)(n - 1));
    double part = rank - (double)k;
    int64_t below, kept;
    if (n >= 256) {
        if (neighbours(x, original, n, k, &below, &kept)) {
            n = kept;
            k -= below;
            original = x + kept;
        } else memcpy(x, original, (size_t)n * sizeof *x);
    }
    double low = select_kth(x, n, k);
    if (part <= 0 || k + 1 >= n) return low;
    int64_t up_to = 0;
    double next = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        up_to += original[i] <= low;
        next = original[i] > low && original[i] < next ? original[i] : next;
    }
    if (up_to > k + 1) next = low; /* the value occurs more than once */
    return low + (next - low) * part;
}

double stats_percentile(const double *x, int64_t n, double q)
{
    double few[512], *copy = n <= ARES_COUNT(few) ? few : ares_malloc((size_t)n * sizeof *copy);
    if (n && n < 256) memcpy(copy, x, (size_t)n * sizeof *copy);
    double value = percentile_of(copy, x, n, q);
    if (copy != few) ares_free(copy);
    return value;
}

double stats_median(const double *x, int64_t n)
{
    return stats_percentile(x, n, 50);
}
