/*
 * The one product behind every linear layer, its gradients and the vocabulary head: serial, called
 * from inside a task.
 *
 *   y[r][c] = from[r][c] + sum over k of x[r][k] * w[k][c]        r < rows, c < cols
 *
 * as one chain of FMAs in ascending k per element, started at from (or 0), then + bias[c], then +
 * residual[r][c]. Any division of rows, cols or (through from) of k gives the same bits. Columns
 * come in panels of 32: step k of panel p is 32 numbers at w + p * w_panel + k * w_k, and all 32
 * must be readable; of y, from, bias and residual nothing beyond cols is touched. x is read at x[r
 * * x_row + k * x_k]; one of the two strides must be 1.
 */
#ifndef ARES_KERNELS_CPU_LINEAR_H
#define ARES_KERNELS_CPU_LINEAR_H

#include "host.h"
#include "isa.h"

typedef struct product_args {
    int64_t rows, k, cols;
    const float *x;
    int64_t x_row, x_k;
    const void *w;
    int64_t w_k, w_panel;
    bool bf16;         /* type of w, whose strides are in elements; needs x_k = 1 */
    const float *from; /* NULL: start at 0; may be y */
    int64_t from_row, from_panel;
    /* panel p of row r: y + r * y_row + p * y_panel */
    float *y;
    int64_t y_row, y_panel;
    const float *bias;     /* [cols] or NULL */
    const float *residual; /* NULL, or rows [cols] at distance residual_row; may be y */
    int64_t residual_row;
    const void *after; /* memory that is read next after the last panel, to prefetch; or NULL */
} product_args;

void ARES_K(product)(const product_args *a);

/*
 * Inputs [k0, k0 + 32) of outputs [n0, n1) of a weight as f32, one row per output:
 * out[(n - n0) * 32 + j] = W[n][k0 + j], 0 where k0 + j >= w->k. It is the w of the product dy W.
 */
void ARES_K(transpose_panel)(const ares_matrix *w, int64_t n0, int64_t n1, int64_t k0, float *out);

#endif
