/*
 * GELU by the normal distribution itself, and its two forms by a sigmoid. Phi comes from erfc by
 * the Chebyshev fit of Numerical Recipes (section 6.2), whose relative error is below 1.2e-7
 * everywhere.
 */
#include "isa.h"

enum { CHUNK = 4096 };

V16_INLINE v16 normal_cdf(v16 x)
{
    static const float fit[] = {
        0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
        -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f
    };
    const v16 one = v16_set1(1.0f);
    v16 z = v16_mul(v16_max(x, v16_neg(x)), v16_set1(0.70710678f));
    v16 t = v16_div(one, v16_fma(z, v16_set1(0.5f), one)), p = v16_set1(fit[0]);
    for (int i = 1; i < ARES_COUNT(fit); i++) p = v16_fma(p, t, v16_set1(fit[i]));
    /* e^-z^2 apart, from x itself, because the rounding of z grows in the square */
    v16 half = v16_mul(v16_mul(x, x), v16_set1(-0.5f));
    v16 tail = v16_mul(v16_mul(t, v16_set1(0.5f)), v16_mul(v16_exp(half), v16_exp(p)));
    return v16_select(v16_lt(x, v16_zero()), tail, v16_sub(one, tail));
}

/* What the sigmoid is taken of. */
V16_INLINE v16 inner(ares_activation f, v16 x)
{
    if (f == ARES_QUICK_GELU) return v16_mul(x, v16_set1(1.702f));
    v16 square = v16_mul(x, x);
    v16 cubic = v16_fma(square, v16_set1(ARES_GELU_TANH_CUBE), v16_set1(1.0f));
    return v16_mul(v16_mul(x, v16_set1(ARES_GELU_TANH_BY)), cubic);
}
/* x times its derivative. */
V16_INLINE v16 inner_slope(ares_activation f, v16 x)
{
    if (f == ARES_QUICK_GELU) return v16_mul(x, v16_set1(1.702f));
    v16 square = v16_mul(x, x);
    v16 cubic = v16_fma(square, v16_set1(3.0f * ARES_GELU_TANH_CUBE), v16_set1(1.0f));
    return v16_mul(v16_mul(x, v16_set1(ARES_GELU_TANH_BY)), cubic);
}

V16_INLINE v16 value(ares_activation f, v16 x)
{
    if (f == ARES_GELU) return v16_mul(x, normal_cdf(x));
    return v16_mul(x, v16_sigmoid(inner(f, x)));
}

V16_INLINE v16 slope(ares_activation f, v16 x)
{
    const v16 one = v16_set1(1.0f);
    if (f == ARES_GELU) {
        v16 density =
            v16_mul(v16_exp(v16_mul(v16_mul(x, x), v16_set1(-0.5f))), v16_set1(0.39894228f));
        return v16_fma(x, density, normal_cdf(x));
    }
    v16 s = v16_sigmoid(inner(f, x));
    return v16_fma(v16_mul(inner_slope(f, x), s), v16_sub(one, s), s);
}

static void forward_task(void *ctx, int64_t task, int worker)
{
    const ares_activation_args *a = ctx;
    const float *x = a->x;
    float *y = a->y;
    (void)worker;
    int64_t end = ARES_MIN(a->n, (task + 1) * CHUNK);
    for (int64_t i = task * CHUNK; i < end; i += 16) {
        int n = (int)ARES_MIN(16, end - i);
        v16_store_first(y + i, value(a->f, v16_load_first(x + i, n)), n);
    }
}

static void backward_task(void *ctx, int64_t task, int worker)
{
    const ares_activation_args *a = ctx;
    const float *x = a->x, *dy = a->dy;
    float *dx = a->dx;
    (void)worker;
    int64_t end = ARES_MIN(a->n, (task + 1) * CHUNK);
    for (int64_t i = task * CHUNK; i < end; i += 16) {
        int n = (int)ARES_MIN(16, end - i);
        v16 s = slope(a->f, v16_load_first(x + i, n));
        v16_store_first(dx + i, v16_mul(s, v16_load_first(dy + i, n)), n);
    }
}

void ARES_K(activation)(ares_device *d, const ares_activation_args *a)
{
    ares_activation_args own = *a;
    kernels_run(d, (double)a->n / 1e3, (a->n + CHUNK - 1) / CHUNK, forward_task, &own);
}
void ARES_K(activation_backward)(ares_device *d, const ares_activation_args *a)
{
    ares_activation_args own = *a;
    kernels_run(d, (double)a->n / 8e2, (a->n + CHUNK - 1) / CHUNK, backward_task, &own);
}
