/*
 * The one product behind every linear layer, its gradients, the vocabulary head and attention:
 * serial, called from inside a task.
 *
 *   y[r][c] = from[r][c] + sum over k of x[r][k] * w[k][c]        r < rows, c < cols
 *
 * as one chain of FMAs in ascending k for each element, started at from (or 0), then + bias[c],
 * then + residual[r][c]. Any cut of rows, cols or (through from) of k gives the same bits. Columns
 * come in panels of 32: step k of panel p is 32 numbers at w + p * w_panel + k * w_k, and must be
 * readable in full; of y, from, bias and residual nothing beyond cols is touched. x is read at x[r
 * * x_row + k * x_k]; one of the two strides must be 1.
 */
#ifndef ARES_KERNELS_CPU_LINEAR_H
#define ARES_KERNELS_CPU_LINEAR_H

#include "isa.h"

typedef struct product_args {
    int64_t rows, k, cols;
    const float *x;
    int64_t x_row, x_k;
    const void *w;
    int64_t w_k, w_panel;
    bool bf16; /* strides in elements; bf16 wants x_k = 1 */
    const float *from;
    int64_t from_row, from_panel; /* NULL: start at 0; may be y */
    /* panel p of row r: y + r * y_row + p * y_panel */
    float *y;
    int64_t y_row, y_panel;
    const float *bias; /* [cols] or NULL */
    /* NULL, or laid out like rows of cols; may be y */
    const float *residual;
    int64_t residual_row;
    /* what will be wanted behind the last panel, or NULL; a hint */
    const void *after;
} product_args;

void ARES_K(product)(const product_args *a);

/*
 * Columns [k0, k0 + 32) of outputs [n0, n1) of a weight, n turned into rows: out[(n - n0) * 32 + j]
 * = W[n][k0 + j], f32; 0 where k0 + j >= w->k. What product wants as w for dy W.
 */
void ARES_K(transpose_panel)(const ares_matrix *w, int64_t n0, int64_t n1, int64_t k0, float *out);

#endif
