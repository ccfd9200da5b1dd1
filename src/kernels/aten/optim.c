/*
 * Whole arrays: AdamW, sums of squares, addition. libtorch's fused AdamW serves, whose step is
 * this step. The kahan variant rounds to bf16 after each operation on a whole tensor, as the native
 * one does.
 */
#include "aten.h"

#include <math.h>

enum { CHUNK = 16 * ARES_SUM_CHUNK }; /* bounds the temporaries */

/* Elements [first, first + n) */
static void fused(const ares_device *d, const ares_adamw_args *a, int64_t first, int64_t n)
{
    float *w = a->master ? a->master : a->w, *m = a->m, *v = a->v;
    at_tensor of_w = aten_vector(d, w + first, n), of_grad = aten_vector(d, a->grad + first, n),
              of_m = aten_vector(d, m + first, n), of_v = aten_vector(d, v + first, n),
              step = at_full((double)a->step, AT_F32, AT_SCALAR);
    /* given as an argument, the scale would be multiplied into the caller's gradient too */
    if (a->grad_scale != 1) of_grad = at_mul_s(of_grad, a->grad_scale);
    const at_value in[] = { AT_TS(&of_w, 1),     AT_TS(&of_grad, 1),
                            AT_TS(&of_m, 1),     AT_TS(&of_v, 1),
                            AT_TS(NULL, 0),      AT_TS(&step, 1),
                            AT_DOUBLE(a->lr),    AT_DOUBLE(a->beta1),
                            AT_DOUBLE(a->beta2), AT_DOUBLE(a->weight_decay),
                            AT_DOUBLE(a->eps),   AT_FLAG(false), /* amsgrad */
                            AT_FLAG(false) };                    /* maximize */
    at_call("aten::_fused_adamw_", "", in, ARES_COUNT(in), NULL, 0);
    if (!a->master) return;
    char *rounded = (char *)a->w + first * (int64_t)ares_dtype_bytes(a->dtype);
    at_copy_(at_view(rounded, aten_type(a->dtype), d->index, (const int64_t[]){ n },
                     (const int64_t[]){ 1 }, 1),
             of_w);
}

static at_tensor rounded(at_tensor x)
{
    return at_to(at_to(x, AT_BF16), AT_F32);
}

/* Elements [first, first + n) of an array of bf16. */
static at_tensor short_vector(const ares_device *d, void *x, int64_t first, int64_t n)
{
    return at_view((uint16_t *)x + first, AT_BF16, d->index, (const int64_t[]){ n },
                   (const int64_t[]){ 1 }, 1);
}

/* Elements [first, first + n); the formula is in cpu/adamw.c */
static void kahan(const ares_device *d, const ares_adamw_args *a, int64_t first, int64_t n)
{
    double m_scale = 1.0 / (1.0 - pow(a->beta1, (double)a->step)),
           v_scale = 1.0 / sqrt(1.0 - pow(a->beta2, (double)a->step));
    at_tensor of_w = short_vector(d, a->w, first, n), of_m = short_vector(d, a->m, first, n),
              of_v = short_vector(d, a->v, first, n), of_c = short_vector(d, a->master, first, n),
              g = at_mul_s(aten_vector(d, a->grad + first, n), a->grad_scale);
    at_tensor w = rounded(at_mul_s(at_to(of_w, AT_F32), 1.0 - a->lr * a->weight_decay)),
              m = rounded(at_add(rounded(at_mul_s(at_to(of_m, AT_F32), a->beta1)),
                                 at_mul_s(g, 1.0 - a->beta1))),
              v = rounded(at_add(rounded(at_mul_s(at_to(of_v, AT_F32), a->beta2)),
                                 at_mul(at_mul_s(g, 1.0 - a->beta2), g)));
    at_tensor under = rounded(at_add_s(rounded(at_mul_s(rounded(at_sqrt(v)), v_scale)), a->eps)),
              c = rounded(at_sub(at_to(of_c, AT_F32), at_mul_s(at_div(m, under), a->lr * m_scale))),
              next = rounded(at_add(w, c));
    at_copy_(of_m, m);
    at_copy_(of_v, v);
    at_copy_(of_c, at_add(c, rounded(at_sub(w, next))));
    at_copy_(of_w, next);
}

void aten_adamw(ares_device *d, const ares_adamw_args *a)
{
    ARES_ASSERT(a->step >= 1 && a->dtype != ARES_F16 && (a->master || a->dtype == ARES_F32) &&
                (!a->kahan || a->dtype == ARES_BF16));
    for (int64_t i = 0; i < a->n; i += CHUNK) {
        at_scope *s = aten_enter(d, "adamw");
        if (!s) return;
        (a->kahan ? kahan : fused)(d, a, i, ARES_MIN(CHUNK, a->n - i));
        aten_leave(d, s);
    }
}

/* Of `chunks` chunks of n elements each. */
static void sums(const ares_device *d, const float *x, int64_t chunks, int64_t n, double *of_chunk)
{
    at_tensor wide = at_to(aten_rows(d, x, chunks, n, n), AT_F64);
    at_copy_(
        at_view(of_chunk, AT_F64, d->index, (const int64_t[]){ chunks }, (const int64_t[]){ 1 }, 1),
        at_sum_dim(at_mul(wide, wide), 1, false));
}

void aten_square_sums(ares_device *d, const float *x, int64_t n, double *of_chunk)
{
    int64_t whole = n / ARES_SUM_CHUNK, left = n % ARES_SUM_CHUNK;
    for (int64_t c = 0; c < whole; c += CHUNK / ARES_SUM_CHUNK) {
        at_scope *s = aten_enter(d, "square_sums");
        if (!s) return;
        sums(d, x + c * ARES_SUM_CHUNK, ARES_MIN(CHUNK / ARES_SUM_CHUNK, whole - c), ARES_SUM_CHUNK,
             of_chunk + c);
        aten_leave(d, s);
    }
    at_scope *s = left ? aten_enter(d, "square_sums") : NULL;
    if (!s) return;
    sums(d, x + whole * ARES_SUM_CHUNK, 1, left, of_chunk + whole);
    aten_leave(d, s);
}

void aten_add(ares_device *d, float *y, const float *x, int64_t n)
{
    at_scope *s = n > 0 ? aten_enter(d, "add") : NULL;
    if (!s) return;
    at_add_(aten_vector(d, y, n), aten_vector(d, x, n));
    aten_leave(d, s);
}
