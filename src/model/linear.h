/* Products of a layer and RMS norms, of the text part and of the tower. */
#ifndef ARES_MODEL_LINEAR_H
#define ARES_MODEL_LINEAR_H

#include "ares/model.h"

static inline const float *param_vector(const ares_param *p)
{
    return p ? p->weight.data : NULL;
}
static inline float *param_vector_grad(const ares_param *p)
{
    return p ? p->grad.data : NULL;
}
/* Activation number n of x. */
static inline void *acts_at(const ares_device *d, const void *x, int64_t n)
{
    return (char *)(uintptr_t)x + (size_t)n * ares_dtype_bytes(d->k->act);
}
static inline const void *linear_bias(const ares_linear *l)
{
    return l->bias ? l->bias->act : NULL;
}

/* y = l(x) + residual, which may be NULL; rows of x and of the residual have no gaps. */
ares_linear_args linear_args(int32_t rows, const ares_linear *l, const void *x,
                             const void *residual, void *y, int64_t ldy);
/* The gradients of y = l(x): the weight's where x is given, x's where dx is given. */
void linear_backward(ares_device *d, const ares_linear *l, int32_t rows, const void *dy,
                     int64_t lddy, const void *x, void *dx, bool accumulate);
/*
 * The gradients of products of the same x, whose results lie side by side in rows of dy: dx is
 * written. Adjacent weights are one product, so that nothing rounds dx on the way.
 */
void linears_backward(ares_device *d, const ares_linear *const *l, int n, int32_t rows,
                      const void *dy, int64_t lddy, const void *x, void *dx);
/* dx += the gradient of x, of rows of k, and the weight's gradient; rstd is the forward's. */
void rms_norm_backward(ares_device *d, const ares_param *w, int32_t rows, int32_t k, const void *dy,
                       const void *x, const float *rstd, void *dx);
#endif
