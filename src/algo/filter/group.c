/* Statistics of one group, which the filters of this folder compare. */
#include <math.h>
#include <string.h>

#include "filter.h"
#include "stats.h"

double group_metric(const char *metric, const ares_groups *g, int64_t group)
{
    int64_t first = g->group_start[group], n = g->group_start[group + 1] - first;
    const double *x = strncmp(metric, "entropy", 7) == 0 ? g->entropy
                      : strcmp(metric, "length") == 0    ? g->length
                                                         : g->score;
    double mean = stats_mean(x + first, n);
    if (strcmp(metric, "reward_variance") == 0 || strcmp(metric, "entropy_variance") == 0)
        return stats_std(x + first, n, mean);
    if (strcmp(metric, "reward_sum") == 0) return mean * (double)n;
    return mean;
}

bool group_informative(const double *accuracy, const uint8_t *valid, int64_t n)
{
    int64_t right = 0, counted = 0;
    for (int64_t i = 0; i < n; i++) {
        if (valid && !valid[i]) continue;
        counted++;
        right += accuracy[i] > 0.5;
    }
    return right > 0 && right < counted;
}

bool group_spread(const double *x, const uint8_t *valid, int64_t n, double tolerance)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (valid && !valid[i]) continue;
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    return high - low > tolerance;
}
