/* Sums of group statistics. Values are sorted first, so that the order of rows (and of ranks) changes no bit. */
#include "ares/algo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double sorted_sum(const float *x, int64_t n, double shift, bool square)
{
    float few[64], *sorted = n <= 64 ? few : ares_malloc((size_t)n * sizeof *sorted);
    if (n) memcpy(sorted, x, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)sorted[i] - shift;
        sum += square ? d * d : d;
    }
    if (sorted != few) ares_free(sorted);
    return sum;
}

double ares_mean(const float *x, int64_t n) { return n ? sorted_sum(x, n, 0, false) / (double)n : 0; }

double ares_std(const float *x, int64_t n, double mean) { return n < 2 ? 0 : sqrt(sorted_sum(x, n, mean, true) / (double)(n - 1)); }
