/* What the kernels' tests share: devices by instruction set, numbers from a seed, comparisons. */
#ifndef KERNELS_TEST_H
#define KERNELS_TEST_H

#include "ares/kernels.h"
#include "host.h"
#include "test.h"

#include <math.h>

static const char *const isas[] = { "plain", "avx2", "avx512" };
enum { ISAS = 3 };

/*
 * A CPU device of one instruction set; false, and the test counts as skipped, where the machine
 * lacks it.
 */
static inline bool device_of(const char *isa, int threads, ares_device *d)
{
    if (!test_has_isa(isa) || !CHECK_OK(ares_device_open("cpu", threads, d))) return false;
    d->k = kernels_cpu(isa);
    return true;
}

static inline const char *best_isa(void)
{
    return test_isa_here("avx512") ? "avx512" : test_isa_here("avx2") ? "avx2" : "plain";
}

/* n normal numbers times scale; the same for the same seed. */
static inline float *normals(uint64_t seed, int64_t n, double scale)
{
    float *x = ares_malloc((size_t)(n ? n : 1) * sizeof(float));
    ares_rng_key key = ares_rng_root(seed, ARES_RNG_TEST);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(scale * ares_rng_normal(key, (uint64_t)i));
    return x;
}
static inline float *filled(int64_t n, float value)
{
    float *x = ares_malloc((size_t)(n ? n : 1) * sizeof(float));
    for (int64_t i = 0; i < n; i++) x[i] = value;
    return x;
}

/* |got - want| <= bound everywhere; bound [n]. A failure reports the worst entry. */
static inline bool within(const char *what, const float *got, const double *want,
                          const double *bound, int64_t n)
{
    int64_t worst = -1;
    double most = 1.0;
    for (int64_t i = 0; i < n; i++) {
        double ratio = fabs(got[i] - want[i]) / (bound[i] + 1e-300);
        if (!(ratio <= most)) {
            most = ratio;
            worst = i;
            if (isnan(ratio)) break;
        }
    }
    if (worst < 0) return true;
    return CHECK_MSG(false, "%s[%lld] = %.9g, should be %.9g within %.3g", what, (long long)worst,
                     got[worst], want[worst], bound[worst]);
}

#endif
