/*
 * Row by row and whole arrays by libtorch: norms, rotations and activations; then AdamW and sums.
 */
#include "aten.h"

#include <math.h>

/* What is computed row by row, in f32: norms, rotations, activations. */

/*
 * The rows of a norm as [rows / heads][heads][k], and one number for each; the second in x and dx,
 * where heads may lie apart.
 */
static at_tensor norm_rows(const ares_device *d, const ares_rms_norm_args *a, const void *x,
                           int64_t ld)
{
    int64_t heads = ARES_MAX(a->heads, 1);
    return at_view(x, aten_type(d->k->act), d->index,
                   (const int64_t[]){ a->rows / heads, heads, a->k },
                   (const int64_t[]){ ld, a->k, 1 }, 3);
}
static at_tensor norm_inputs(const ares_device *d, const ares_rms_norm_args *a, const void *x,
                             int64_t ld)
{
    int64_t heads = ARES_MAX(a->heads, 1), apart = a->x_head ? a->x_head : a->k;
    return at_view(x, aten_type(d->k->act), d->index,
                   (const int64_t[]){ a->rows / heads, heads, a->k },
                   (const int64_t[]){ ld, apart, 1 }, 3);
}
static at_tensor norm_factors(const ares_device *d, const ares_rms_norm_args *a)
{
    int64_t heads = ARES_MAX(a->heads, 1);
    return at_view(a->rstd, AT_F32, d->index, (const int64_t[]){ a->rows / heads, heads, 1 },
                   (const int64_t[]){ heads, 1, 1 }, 3);
}

/* f(w) */
static at_tensor norm_weight(const ares_device *d, const ares_rms_norm_args *a)
{
    at_tensor w = aten_vector(d, a->w, a->k);
    return a->plus_one ? at_add_s(w, 1) : w;
}

static void rms_norm(ares_device *d, const ares_rms_norm_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "rms_norm") : NULL;
    if (!s) return;
    at_tensor x = at_to(norm_inputs(d, a, a->x, a->ldx), AT_F32), w = norm_weight(d, a),
              rstd = at_rsqrt(at_add_s(at_mean_dim(at_mul(x, x), 2, true), a->eps)),
              y = norm_rows(d, a, a->y, a->ldy);
    if (!a->residual) at_mul_out(y, at_mul(x, rstd), w);
    else /* the norm is rounded, then the sum */
        at_copy_(y, at_add(norm_rows(d, a, a->residual, a->ldr),
                           at_to(at_mul(at_mul(x, rstd), w), aten_type(d->k->act))));
    if (a->rstd) at_copy_(norm_factors(d, a), rstd);
    aten_leave(d, s);
}

/* With x^ = x rstd and g = w dy: dx += rstd (g - x^ mean(g x^)), dw += sum over rows of x^ dy. */
static void rms_norm_backward(ares_device *d, const ares_rms_norm_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "rms_norm_backward") : NULL;
    if (!s) return;
    at_tensor x = at_to(norm_inputs(d, a, a->x, a->ldx), AT_F32),
              dy = at_to(norm_rows(d, a, a->dy, a->lddy), AT_F32), w = norm_weight(d, a),
              rstd = norm_factors(d, a), hat = at_mul(x, rstd), product = at_mul(hat, dy);
    if (a->dw)
        at_add_(aten_vector(d, a->dw, a->k),
                at_sum_dim(at_reshape(product, AT_DIMS(a->rows, a->k)), 0, false));
    at_tensor mean = at_mean_dim(at_mul_(product, w), 2, true), g = at_mul(dy, w);
    at_mul_(at_sub_(g, at_mul_(hat, mean)), rstd);
    at_add_(norm_inputs(d, a, a->dx, a->lddx), g);
    aten_leave(d, s);
}

static void layer_norm(ares_device *d, const ares_layer_norm_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "layer_norm") : NULL;
    if (!s) return;
    at_tensor x = aten_wide(d, a->x, a->rows, a->k, a->ldx), mean = at_mean_dim(x, 1, true),
              centred = at_sub(x, mean),
              rstd = at_rsqrt(
                  at_add_s(at_mean_dim(at_mul(centred, centred), 1, true), (double)a->eps));
    at_mul_(at_mul_(centred, rstd), aten_vector(d, a->w, a->k));
    at_copy_(aten_acts(d, a->y, a->rows, a->k, a->ldy),
             at_add_(centred, aten_vector(d, a->bias, a->k)));
    if (a->mean) at_copy_(aten_rows(d, a->mean, a->rows, 1, 1), mean);
    if (a->rstd) at_copy_(aten_rows(d, a->rstd, a->rows, 1, 1), rstd);
    aten_leave(d, s);
}

/* With x^ = (x - mean) rstd and g = w dy: dx += rstd (g - mean(g) - x^ mean(g x^)). */
static void layer_norm_backward(ares_device *d, const ares_layer_norm_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "layer_norm_backward") : NULL;
    if (!s) return;
    at_tensor dy = aten_wide(d, a->dy, a->rows, a->k, a->lddy),
              rstd = aten_rows(d, a->rstd, a->rows, 1, 1),
              hat = at_mul_(at_sub(aten_wide(d, a->x, a->rows, a->k, a->ldx),
                                   aten_rows(d, a->mean, a->rows, 1, 1)),
                            rstd),
              product = at_mul(hat, dy), w = aten_vector(d, a->w, a->k), g = at_mul(dy, w);
    if (a->dw) at_add_(aten_vector(d, a->dw, a->k), at_sum_dim(product, 0, false));
    if (a->dbias) at_add_(aten_vector(d, a->dbias, a->k), at_sum_dim(dy, 0, false));
    at_tensor shift = at_mean_dim(g, 1, true), pull = at_mean_dim(at_mul_(product, w), 1, true);
    at_sub_(at_sub_(g, shift), at_mul_(hat, pull));
    at_add_(aten_acts(d, a->dx, a->rows, a->k, a->lddx), at_mul_(g, rstd));
    aten_leave(d, s);
}

/* x is turned in place, so both halves are computed before either is written. */
static void rope(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, int32_t turned,
                 void *x, int64_t ldx, const float *cos_sin, bool inverse)
{
    at_scope *s = rows > 0 && cos_sin ? aten_enter(d, "rope") : NULL;
    if (!s) return;
    if (!turned) turned = head_dim;
    int64_t half = turned / 2;
    const int64_t of_x[] = { rows, heads, half }, steps[] = { ldx, head_dim, 1 };
    at_dtype type = aten_type(d->k->act);
    at_tensor a = at_view(x, type, d->index, of_x, steps, 3),
              b = at_view(aten_at(d, x, half), type, d->index, of_x, steps, 3),
              c = at_unsqueeze(aten_rows(d, cos_sin, rows, half, turned), 1),
              sine = at_unsqueeze(aten_rows(d, cos_sin + half, rows, half, turned), 1);
    if (inverse) sine = at_neg(sine);
    at_tensor turned_a = at_sub_(at_mul(a, c), at_mul(b, sine)),
              turned_b = at_add_(at_mul(b, c), at_mul(a, sine));
    at_copy_(a, turned_a);
    at_copy_(b, turned_b);
    aten_leave(d, s);
}

/*
 * What the sigmoid is taken of: x for SiLU, x times (1 + cube x^2) for the tanh form, and so for
 * its derivative; 1.702 x for the quick one.
 */
static at_tensor inner(ares_activation f, at_tensor x, double cube)
{
    if (f == ARES_QUICK_GELU) return at_mul_s(x, 1.702);
    return at_mul_(at_mul_s(x, (double)ARES_GELU_TANH_BY),
                   at_add_s(at_mul_s(at_mul(x, x), cube), 1));
}

/* f(x), of f32 */
static at_tensor activated(ares_activation f, at_tensor x)
{
    if (f == ARES_SILU) return at_silu(x);
    if (f == ARES_SIGMOID) return at_sigmoid(x);
    if (f == ARES_GELU) return at_gelu(x);
    return at_mul(x, at_sigmoid(inner(f, x, (double)ARES_GELU_TANH_CUBE)));
}

/* dx = f'(x) dy; dx may be the memory of x. With s = sigmoid(u): (x s)' = s + x u' s (1 - s). */
static void activated_back(at_tensor dx, ares_activation f, at_tensor x, at_tensor dy)
{
    if (f == ARES_SILU) at_silu_backward_out(dx, dy, x);
    else if (f == ARES_GELU) at_gelu_backward_out(dx, dy, x);
    else if (f == ARES_SIGMOID) {
        at_tensor sigma = at_sigmoid(x);
        at_mul_out(dx, at_mul(sigma, at_add_s(at_neg(sigma), 1)), dy);
    } else {
        double cube = (double)ARES_GELU_TANH_CUBE;
        at_tensor by = inner(f, x, 3 * cube), sigma = at_sigmoid(inner(f, x, cube)),
                  rest = at_mul_(by, at_add_s(at_neg(sigma), 1));
        at_mul_out(dx, at_mul_(sigma, at_add_s(rest, 1)), dy);
    }
}

static void gate_mul(ares_device *d, const ares_gate_mul_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "gate_mul") : NULL;
    if (!s) return;
    /* the activation in f32, rounded once with the product */
    at_mul_out(aten_acts(d, a->y, a->rows, a->k, a->ldy),
               activated(a->f, aten_wide(d, a->gate, a->rows, a->k, a->ldgu)),
               aten_acts(d, a->up, a->rows, a->k, a->ld_up ? a->ld_up : a->ldgu));
    aten_leave(d, s);
}

static void gate_mul_backward(ares_device *d, const ares_gate_mul_args *a)
{
    at_scope *s = a->rows > 0 ? aten_enter(d, "gate_mul_backward") : NULL;
    if (!s) return;
    int64_t ld_up = a->ld_up ? a->ld_up : a->ldgu, ld_d_up = a->ld_up ? a->ld_up : a->lddgu;
    at_tensor gate = aten_wide(d, a->gate, a->rows, a->k, a->ldgu),
              up = aten_wide(d, a->up, a->rows, a->k, ld_up),
              dy = aten_wide(d, a->dy, a->rows, a->k, a->lddy), of_gate = activated(a->f, gate),
              d_of_gate = at_mul(dy, up);
    if (a->y) at_mul_out(aten_acts(d, a->y, a->rows, a->k, a->ldy), of_gate, up);
    /* gate and up have been read for all that follows: they may be overwritten */
    activated_back(aten_acts(d, a->d_gate, a->rows, a->k, a->lddgu), a->f, gate, d_of_gate);
    at_mul_out(aten_acts(d, a->d_up, a->rows, a->k, ld_d_up), of_gate, dy);
    aten_leave(d, s);
}

/* Activations visit each number once, so the array is one row; flat_wide gives it as f32. */
static at_tensor flat(const ares_device *d, const ares_activation_args *a, const void *x)
{
    return aten_acts(d, x, 1, a->n, a->n);
}
static at_tensor flat_wide(const ares_device *d, const ares_activation_args *a, const void *x)
{
    return aten_wide(d, x, 1, a->n, a->n);
}

static void activation(ares_device *d, const ares_activation_args *a)
{
    at_scope *s = a->n > 0 ? aten_enter(d, "activation") : NULL;
    if (!s) return;
    at_copy_(flat(d, a, a->y), activated(a->f, flat_wide(d, a, a->x)));
    aten_leave(d, s);
}

static void activation_backward(ares_device *d, const ares_activation_args *a)
{
    at_scope *s = a->n > 0 ? aten_enter(d, "activation_backward") : NULL;
    if (!s) return;
    activated_back(flat(d, a, a->dx), a->f, flat_wide(d, a, a->x), flat_wide(d, a, a->dy));
    aten_leave(d, s);
}

/*
 * Whole arrays: AdamW, sums of squares, addition. libtorch's fused AdamW serves, whose step is
 * this step. The kahan variant rounds to bf16 after each operation on a whole tensor, as the native
 * one does.
 */

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
    /* the model reads the rounded copy, of another type or of the same */
    if (!a->master) return;
    char *rounded = (char *)a->w + first * (int64_t)ares_dtype_bytes(a->dtype);
    at_copy_(at_view(rounded, aten_type(a->dtype), d->index, (const int64_t[]){ n },
                     (const int64_t[]){ 1 }, 1),
             of_w);
}

/* To bf16 and back, after each operation: where the native kernel rounds. */
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

/* Elements [first, first + n); the formula is in cpu/optim.c */
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

static void adamw(ares_device *d, const ares_adamw_args *a)
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
    /* squares of f32 are exact in f64 */
    at_tensor wide = at_to(aten_rows(d, x, chunks, n, n), AT_F64);
    at_copy_(
        at_view(of_chunk, AT_F64, d->index, (const int64_t[]){ chunks }, (const int64_t[]){ 1 }, 1),
        at_sum_dim(at_mul(wide, wide), 1, false));
}

static void square_sums(ares_device *d, const float *x, int64_t n, double *of_chunk)
{
    int64_t whole = n / ARES_SUM_CHUNK, left = n % ARES_SUM_CHUNK;
    for (int64_t c = 0; c < whole; c += CHUNK / ARES_SUM_CHUNK) {
        at_scope *s = aten_enter(d, "square_sums");
        if (!s) return;
        sums(d, x + c * ARES_SUM_CHUNK, ARES_MIN(CHUNK / ARES_SUM_CHUNK, whole - c), ARES_SUM_CHUNK,
             of_chunk + c);
        aten_leave(d, s);
    }
    /* the last chunk is shorter and cannot be part of the [chunks][n] view above */
    at_scope *s = left ? aten_enter(d, "square_sums") : NULL;
    if (!s) return;
    sums(d, x + whole * ARES_SUM_CHUNK, 1, left, of_chunk + whole);
    aten_leave(d, s);
}

static void add(ares_device *d, float *y, const float *x, int64_t n)
{
    at_scope *s = n > 0 ? aten_enter(d, "add") : NULL;
    if (!s) return;
    at_add_(aten_vector(d, y, n), aten_vector(d, x, n));
    aten_leave(d, s);
}

void aten_fill_rows(ares_kernels *k)
{
    k->rms_norm = rms_norm;
    k->rms_norm_backward = rms_norm_backward;
    k->layer_norm = layer_norm;
    k->layer_norm_backward = layer_norm_backward;
    k->rope = rope;
    k->gate_mul = gate_mul;
    k->gate_mul_backward = gate_mul_backward;
    k->activation = activation;
    k->activation_backward = activation_backward;
    k->adamw = adamw;
    k->square_sums = square_sums;
    k->add = add;
}
