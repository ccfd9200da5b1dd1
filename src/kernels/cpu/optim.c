/*
 * AdamW, elementwise in f32; what depends only on the step is computed once, in f64:
 *
 *   m = beta1 m + (1 - beta1) g    v = beta2 v + (1 - beta2) g^2    g = grad * grad_scale
 *   w -= lr ((m / (1 - beta1^step)) / (sqrt(v) / sqrt(1 - beta2^step) + eps) + weight_decay w)
 *
 * The kahan variant rounds where torch does with bf16 tensors: after each operation on a whole
 * tensor.
 */
#include "isa.h"

enum { CHUNK = 16384 };

typedef struct adamw_job {
    const ares_adamw_args *a;
    float grad_scale, beta1, beta2, rest1, rest2, m_scale, v_scale, eps, decay, lr, keep;
} adamw_job;

/* The new weights; *m and *v are replaced by their new values. */
V16_INLINE v16 updated(const adamw_job *j, v16 w, v16 g, v16 *m, v16 *v)
{
    g = v16_mul(g, v16_set1(j->grad_scale));
    *m = v16_fma(v16_set1(j->beta1), *m, v16_mul(v16_set1(j->rest1), g));
    *v = v16_fma(v16_set1(j->beta2), *v, v16_mul(v16_mul(v16_set1(j->rest2), g), g));
    v16 under = v16_fma(v16_sqrt(*v), v16_set1(j->v_scale), v16_set1(j->eps));
    v16 step = v16_div(v16_mul(*m, v16_set1(j->m_scale)), under);
    return v16_fnma(v16_set1(j->lr), v16_fma(v16_set1(j->decay), w, step), w);
}

static void adamw_task(void *ctx, int64_t task, int worker)
{
    const adamw_job *j = ctx;
    const ares_adamw_args *a = j->a;
    /* the step is made on f32 weights; a->w gets their rounded copy where there is a master */
    float *w = a->master ? a->master : a->w, *of_m = a->m, *of_v = a->v;
    (void)worker;
    int64_t end = ARES_MIN(a->n, (task + 1) * CHUNK);
    for (int64_t i = task * CHUNK; i < end; i += 16) {
        int n = (int)ARES_MIN(16, end - i);
        v16 m = v16_load_first(of_m + i, n), v = v16_load_first(of_v + i, n);
        v16 x = updated(j, v16_load_first(w + i, n), v16_load_first(a->grad + i, n), &m, &v);
        v16_store_first(of_m + i, m, n);
        v16_store_first(of_v + i, v, n);
        v16_store_first(w + i, x, n);
        if (a->dtype == ARES_BF16) v16_store_bf16_first((uint16_t *)a->w + i, x, n);
        if (a->master && a->dtype == ARES_F32) v16_store_first((float *)a->w + i, x, n);
    }
}

/* To bf16 and back. */
V16_INLINE v16 rounded(v16 x)
{
    uint16_t short_x[16];
    v16_store_bf16(short_x, x);
    return v16_load_bf16(short_x);
}

static void kahan_task(void *ctx, int64_t task, int worker)
{
    const adamw_job *j = ctx;
    const ares_adamw_args *a = j->a;
    uint16_t *weights = a->w, *of_m = a->m, *of_v = a->v, *of_c = a->master;
    (void)worker;
    int64_t end = ARES_MIN(a->n, (task + 1) * CHUNK);
    for (int64_t i = task * CHUNK; i < end; i += 16) {
        int n = (int)ARES_MIN(16, end - i);
        v16 g = v16_mul(v16_load_first(a->grad + i, n), v16_set1(j->grad_scale)),
            m = v16_load_bf16_first(of_m + i, n), v = v16_load_bf16_first(of_v + i, n);
        v16 c = v16_load_bf16_first(of_c + i, n),
            w = rounded(v16_mul(v16_load_bf16_first(weights + i, n), v16_set1(j->keep)));
        m = rounded(
            v16_add(rounded(v16_mul(m, v16_set1(j->beta1))), v16_mul(g, v16_set1(j->rest1))));
        v = rounded(v16_add(rounded(v16_mul(v, v16_set1(j->beta2))),
                            v16_mul(v16_mul(g, v16_set1(j->rest2)), g)));
        v16 under = rounded(v16_add(rounded(v16_mul(rounded(v16_sqrt(v)), v16_set1(j->v_scale))),
                                    v16_set1(j->eps)));
        /* the step goes into the compensation c, which holds what w lost to rounding before */
        c = rounded(v16_fnma(v16_set1(j->lr * j->m_scale), v16_div(m, under), c));
        /* Kahan: w takes what bf16 can hold of w + c, the rest stays in c */
        v16 next = rounded(v16_add(w, c));
        c = v16_add(c, rounded(v16_sub(w, next)));
        v16_store_bf16_first(of_m + i, m, n);
        v16_store_bf16_first(of_v + i, v, n);
        v16_store_bf16_first(of_c + i, c, n);
        v16_store_bf16_first(weights + i, next, n);
    }
}

void ARES_K(adamw)(ares_device *d, const ares_adamw_args *a)
{
    ARES_ASSERT(a->step >= 1 && a->dtype != ARES_F16 && (a->master || a->dtype == ARES_F32) &&
                (!a->kahan || a->dtype == ARES_BF16));
    adamw_job j = {
        .a = a,
        .grad_scale = (float)a->grad_scale,
        .beta1 = (float)a->beta1,
        .rest1 = (float)(1.0 - a->beta1),
        .beta2 = (float)a->beta2,
        .rest2 = (float)(1.0 - a->beta2),
        .m_scale = (float)(1.0 / (1.0 - ares_f64_pow(a->beta1, (double)a->step))),
        .v_scale = (float)(1.0 / sqrt(1.0 - ares_f64_pow(a->beta2, (double)a->step))),
        .eps = (float)a->eps,
        .decay = (float)a->weight_decay,
        .lr = (float)a->lr,
        .keep = (float)(1.0 - a->lr * a->weight_decay),
    };
    kernels_run(d, (double)a->n / 800, (a->n + CHUNK - 1) / CHUNK,
                a->kahan ? kahan_task : adamw_task, &j);
}
