/* What the kernels' tests share: devices by instruction set, numbers from a seed, comparisons. */
#ifndef KERNELS_TEST_H
#define KERNELS_TEST_H

#include "ares/kernels.h"
#include "host.h"
#include "test.h"

#include <math.h>

static const char *const isas[] = { "plain", "avx2", "avx512", "neon" };
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
    return test_isa_here("avx512") ? "avx512"
           : test_isa_here("avx2") ? "avx2"
           : test_isa_here("neon") ? "neon"
                                   : "plain";
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

/*
 * Rows of k and v, activations on the device, into slots of the cache, in the way that the table
 * has.
 */
static inline void store_keys(ares_device *d, int32_t rows, int32_t n_kv, int32_t dim,
                              const void *k, const void *v, int64_t ldkv, const int32_t *slots,
                              void *cache)
{
    if (d->k->store_kv) {
        d->k->store_kv(d, rows, n_kv, dim, k, v, ldkv, slots, cache, false);
        return;
    }
    size_t each = ares_dtype_bytes(d->k->act), width = (size_t)(n_kv * dim) * each,
           angles = (size_t)(rows * dim) * sizeof(float);
    float *none = filled(rows * dim, 0.0f), *cos_sin = d->k->alloc(d, angles);
    char *pairs = d->k->alloc(d, 2 * (size_t)rows * width);
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t i = 0; i < dim / 2; i++) none[r * dim + i] = 1.0f; /* the cosine */
        size_t from = (size_t)(r * ldkv) * each, to = 2 * (size_t)r * width;
        d->k->copy(d, pairs + to, (const char *)k + from, width);
        d->k->copy(d, pairs + to + width, (const char *)v + from, width);
    }
    d->k->copy_in(d, cos_sin, none, angles);
    d->k->rope_store(d, &(ares_rope_store_args){ .rows = rows,
                                                 .n_kv_heads = n_kv,
                                                 .head_dim = dim,
                                                 .qkv = pairs,
                                                 .ld = 2 * (int64_t)n_kv * dim,
                                                 .cos_sin = cos_sin,
                                                 .slots = slots,
                                                 .cache = cache });
    d->k->release(d, cos_sin, angles);
    d->k->release(d, pairs, 2 * (size_t)rows * width);
    ares_free(none);
}

/* AdamW of n f32 weights in its step `step`; a test changes what it is about. */
static inline ares_adamw_args adamw_of(int64_t n, void *w, const float *grad, void *m, void *v,
                                       int64_t step)
{
    return (ares_adamw_args){ .n = n,
                              .w = w,
                              .dtype = ARES_F32,
                              .grad = grad,
                              .m = m,
                              .v = v,
                              .lr = 1e-3,
                              .beta1 = 0.9,
                              .beta2 = 0.99,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .grad_scale = 0.5,
                              .step = step };
}
/* The same in bf16, with the Kahan sum of what rounding leaves out in c. */
static inline ares_adamw_args adamw_kahan_of(int64_t n, void *w, void *c, const float *grad,
                                             void *m, void *v, int64_t step)
{
    ares_adamw_args a = adamw_of(n, w, grad, m, v, step);
    a.dtype = ARES_BF16, a.kahan = true, a.master = c;
    return a;
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
