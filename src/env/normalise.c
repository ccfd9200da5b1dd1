/* Rewards of episodes within groups, as RAGEN's context manager normalises them. */
#include <math.h>
#include <string.h>

#include "ares/env.h"

static const char *const methods[] = { "identity", "mean", "mean_std", "asym_clip" };

const char *const *ares_env_normalisations(int *n)
{
    *n = ARES_COUNT(methods);
    return methods;
}

static void normalise_group(int method, double *x, const int64_t *member, int64_t n)
{
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) mean += x[member[i]];
    mean /= (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[member[i]] - mean) * (x[member[i]] - mean);
    double std = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    for (int64_t i = 0; i < n; i++) {
        double *v = &x[member[i]];
        *v -= mean;
        if (method == ARES_ENV_MEAN) continue;
        *v = std > 1e-6 ? *v / (std + 1e-6) : 0;
        if (method == ARES_ENV_ASYM_CLIP) *v = fmin(fmax(*v, -1), 3);
    }
}

void ares_env_normalise(int method, double *x, const int64_t *group, int64_t n)
{
    if (method == ARES_ENV_IDENTITY || n == 0) return;
    ares_map *sizes = ares_map_new(); /* of the groups, by their number */
    for (int64_t i = 0; i < n; i++) {
        int64_t size = 0;
        ares_view key = { (const char *)&group[i], sizeof group[i] };
        ares_map_get(sizes, key, &size);
        ares_map_put(sizes, key, size + 1);
    }
    int64_t groups = ares_map_count(sizes), *member = ares_malloc((size_t)n * sizeof *member);
    for (int64_t g = 0; groups < n && g < groups; g++) {
        int64_t count = 0, size = ares_map_value(sizes, g);
        ares_view key = ares_map_key(sizes, g);
        for (int64_t i = 0; i < n && count < size; i++)
            if (memcmp(&group[i], key.data, sizeof group[i]) == 0) member[count++] = i;
        normalise_group(method, x, member, count);
    }
    ares_free(member);
    ares_map_free(sizes);
}
