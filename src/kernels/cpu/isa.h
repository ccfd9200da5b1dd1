/*
 * Private to the CPU kernels: what every file of this folder shares. Each file is compiled once per
 * instruction set; ARES_K adds the set's name to its functions, and table.c lists them.
 */
#ifndef ARES_KERNELS_CPU_ISA_H
#define ARES_KERNELS_CPU_ISA_H

#include "ares/kernels.h"
#include "host.h"
#include "vec.h"

#include <math.h>

extern const ares_kernels ARES_K(kernels_table); /* table.c */

/* The table's functions, by file. */
void ARES_K(linear)(ares_device *d, const ares_linear_args *a, int n);
void ARES_K(linear_backward)(ares_device *d, const ares_linear_backward_args *a);
void ARES_K(embedding)(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                       int64_t ldy);
void ARES_K(embedding_backward)(ares_device *d, const ares_matrix *de, const int32_t *ids,
                                int32_t n, const void *dy, int64_t lddy);
void ARES_K(rms_norm)(ares_device *d, const ares_rms_norm_args *a);
void ARES_K(rms_norm_backward)(ares_device *d, const ares_rms_norm_args *a);
void ARES_K(layer_norm)(ares_device *d, const ares_layer_norm_args *a);
void ARES_K(layer_norm_backward)(ares_device *d, const ares_layer_norm_args *a);
void ARES_K(activation)(ares_device *d, const ares_activation_args *a);
void ARES_K(activation_backward)(ares_device *d, const ares_activation_args *a);
void ARES_K(rope)(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, void *x,
                  int64_t ldx, const float *cos_sin, bool inverse);
void ARES_K(silu_mul)(ares_device *d, const ares_silu_mul_args *a);
void ARES_K(silu_mul_backward)(ares_device *d, const ares_silu_mul_args *a);
void ARES_K(store_kv)(ares_device *d, int32_t rows, int32_t n_kv, int32_t head_dim, const void *k,
                      const void *v, int64_t ldkv, const int32_t *slots, void *cache);
void ARES_K(attention)(ares_device *d, const ares_attention_args *a);
void ARES_K(attention_backward)(ares_device *d, const ares_attention_args *a);
void ARES_K(head)(ares_device *d, const ares_head_args *a);
void ARES_K(head_backward)(ares_device *d, const ares_head_args *a);
void ARES_K(head_fused)(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss,
                        void *ctx);
void ARES_K(sample)(ares_device *d, const ares_sample_args *a);
void ARES_K(adamw)(ares_device *d, const ares_adamw_args *a);
void ARES_K(square_sums)(ares_device *d, const float *x, int64_t n, double *of_chunk);
void ARES_K(add)(ares_device *d, float *y, const float *x, int64_t n);

#endif
