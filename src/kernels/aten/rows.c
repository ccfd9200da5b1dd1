/* What is computed row by row: the norm, rotations, the gated activation. */
#include "aten.h"

/* The rows of a norm as [rows / heads][heads][k], and one number for each. */
static at_tensor norm_rows(const ares_rms_norm_args *a, const void *x, int64_t ld)
{
    int64_t heads = ARES_MAX(a->heads, 1);
    return at_view(x, AT_F32, (const int64_t[]){ a->rows / heads, heads, a->k },
                   (const int64_t[]){ ld, a->k, 1 }, 3);
}
static at_tensor norm_factors(const ares_rms_norm_args *a)
{
    int64_t heads = ARES_MAX(a->heads, 1);
    return at_view(a->rstd, AT_F32, (const int64_t[]){ a->rows / heads, heads, 1 },
                   (const int64_t[]){ heads, 1, 1 }, 3);
}

void aten_rms_norm(ares_device *d, const ares_rms_norm_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "rms_norm") : NULL;
    if (!s) return;
    at_tensor x = norm_rows(a, a->x, a->ldx), w = aten_vector(a->w, a->k),
              rstd = at_rsqrt(at_add_s(at_mean_dim(at_mul(x, x), 2, true), a->eps));
    at_mul_out(norm_rows(a, a->y, a->ldy), at_mul(x, rstd), w);
    if (a->rstd) at_copy_(norm_factors(a), rstd);
    aten_leave(d, s);
}

/* With x^ = x rstd and g = w dy: dx += rstd (g - x^ mean(g x^)), dw += sum over rows of x^ dy. */
void aten_rms_norm_backward(ares_device *d, const ares_rms_norm_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "rms_norm_backward") : NULL;
    if (!s) return;
    at_tensor x = norm_rows(a, a->x, a->ldx), dy = norm_rows(a, a->dy, a->lddy),
              w = aten_vector(a->w, a->k), rstd = norm_factors(a), hat = at_mul(x, rstd),
              product = at_mul(hat, dy);
    if (a->dw)
        at_add_(aten_vector(a->dw, a->k),
                at_sum_dim(at_reshape(product, AT_DIMS(a->rows, a->k)), 0, false));
    at_tensor mean = at_mean_dim(at_mul_(product, w), 2, true), g = at_mul(dy, w);
    at_mul_(at_sub_(g, at_mul_(hat, mean)), rstd);
    at_add_(norm_rows(a, a->dx, a->lddx), g);
    aten_leave(d, s);
}

void aten_rope(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, void *x, int64_t ldx,
               const float *cos_sin, bool inverse)
{
    at_scope *s = rows > 0 ? aten_enter(d, "rope") : NULL;
    if (!s) return;
    int64_t half = head_dim / 2;
    const int64_t of_x[] = { rows, heads, half }, of_angles[] = { rows, 1, half };
    const int64_t steps[] = { ldx, head_dim, 1 }, steps_angles[] = { head_dim, head_dim, 1 };
    at_tensor a = at_view(x, AT_F32, of_x, steps, 3),
              b = at_view((float *)x + half, AT_F32, of_x, steps, 3),
              c = at_view(cos_sin, AT_F32, of_angles, steps_angles, 3),
              sine = at_view(cos_sin + half, AT_F32, of_angles, steps_angles, 3);
    if (inverse) sine = at_neg(sine);
    at_tensor turned_a = at_sub_(at_mul(a, c), at_mul(b, sine)),
              turned_b = at_add_(at_mul(b, c), at_mul(a, sine));
    at_copy_(a, turned_a);
    at_copy_(b, turned_b);
    aten_leave(d, s);
}

void aten_silu_mul(ares_device *d, const ares_silu_mul_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "silu_mul") : NULL;
    if (!s) return;
    at_mul_out(aten_rows(a->y, a->rows, a->k, a->ldy),
               at_silu(aten_rows(a->gate, a->rows, a->k, a->ldgu)),
               aten_rows(a->up, a->rows, a->k, a->ldgu));
    aten_leave(d, s);
}

void aten_silu_mul_backward(ares_device *d, const ares_silu_mul_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "silu_mul_backward") : NULL;
    if (!s) return;
    at_tensor gate = aten_rows(a->gate, a->rows, a->k, a->ldgu),
              up = aten_rows(a->up, a->rows, a->k, a->ldgu),
              dy = aten_rows(a->dy, a->rows, a->k, a->lddy), silu = at_silu(gate),
              d_silu = at_mul(dy, up);
    if (a->y) at_mul_out(aten_rows(a->y, a->rows, a->k, a->ldy), silu, up);
    /* gate and up have been read for all that follows: they may be overwritten */
    at_silu_backward_out(aten_rows(a->d_gate, a->rows, a->k, a->lddgu), d_silu, gate);
    at_mul_out(aten_rows(a->d_up, a->rows, a->k, a->lddgu), silu, dy);
    aten_leave(d, s);
}
