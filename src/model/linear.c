/* Products of a layer and RMS norms, of the text part and of the tower. */
#include "linear.h"

ares_linear_args linear_args(int32_t rows, const ares_linear *l, const void *x,
                             const void *residual, void *y, int64_t ldy)
{
    return (ares_linear_args){ .m = rows,
                               .x = x,
                               .ldx = l->w->weight.k,
                               .w = &l->w->weight,
                               .bias = linear_bias(l),
                               .residual = residual,
                               .ldr = l->w->weight.n,
                               .y = y,
                               .ldy = ldy };
}

void linear_backward(ares_device *d, const ares_linear *l, int32_t rows, const void *dy,
                     int64_t lddy, const void *x, void *dx, bool accumulate)
{
    ares_linear_backward_args a = { .m = rows,
                                    .dy = dy,
                                    .lddy = lddy,
                                    .w = &l->w->weight,
                                    .dx = dx,
                                    .lddx = l->w->weight.k,
                                    .accumulate = accumulate };
    if (x && l->w->grad.data) {
        a.x = x;
        a.ldx = l->w->weight.k;
        a.dw = &l->w->grad;
        a.dbias = param_vector_grad(l->bias);
    }
    d->k->linear_backward(d, &a);
}

static bool follows(const ares_matrix *a, const ares_matrix *b)
{
    return (!a->data && !b->data) ||
           (const char *)b->data ==
               (const char *)a->data + (size_t)(a->n * (int64_t)a->k) * ares_dtype_bytes(a->dtype);
}

/* Whether b's weight, bias and gradients lie directly after a's, so that one product reads both. */
static bool adjacent(const ares_linear *a, const ares_linear *b)
{
    return a->w->weight.layout == ARES_ROWS && follows(&a->w->weight, &b->w->weight) &&
           follows(&a->w->grad, &b->w->grad) &&
           (!a->bias || (follows(&a->bias->weight, &b->bias->weight) &&
                         follows(&a->bias->grad, &b->bias->grad)));
}

void linears_backward(ares_device *d, const ares_linear *const *l, int n, int32_t rows,
                      const void *dy, int64_t lddy, const void *x, void *dx)
{
    for (int i = 0, end; i < n; i = end) {
        ares_param w = *l[i]->w;
        for (end = i + 1; end < n && adjacent(l[end - 1], l[end]); end++) {
            w.weight.n += l[end]->w->weight.n;
            w.grad.n = w.weight.n;
        }
        linear_backward(d, &(ares_linear){ &w, l[i]->bias }, rows, dy, lddy, x, dx, i > 0);
        dy = acts_at(d, dy, w.weight.n);
    }
}

void rms_norm_backward(ares_device *d, const ares_param *w, int32_t rows, int32_t k, const void *dy,
                       const void *x, const float *rstd, void *dx)
{
    ares_rms_norm_args a = { .rows = rows,
                             .k = k,
                             .x = x,
                             .ldx = k,
                             .w = param_vector(w),
                             .rstd = (float *)rstd,
                             .dy = dy,
                             .lddy = k,
                             .dx = dx,
                             .lddx = k,
                             .dw = param_vector_grad(w) };
    d->k->rms_norm_backward(d, &a);
}
