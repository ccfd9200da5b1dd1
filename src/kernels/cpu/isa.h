/*
 * Private to the CPU kernels: what every file of this folder shares. Each file is compiled once per
 * instruction set; ARES_K adds the set's name to its functions, and table.c lists them.
 */
#ifndef ARES_KERNELS_CPU_ISA_H
#define ARES_KERNELS_CPU_ISA_H

#include <math.h>
#include <stdint.h>

#include "ares/core.h"
#include "ares/kernels.h"
#include "host.h"
#include "vec.h"

extern const ares_kernels ARES_K(kernels_table); /* table.c */

/* The table's functions, by file. */
void ARES_K(linear)(ares_device *d, const ares_linear_args *a, int n);
void ARES_K(linear_backward)(ares_device *d, const ares_linear_backward_args *a, int n);
void ARES_K(embedding)(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                       int64_t ldy, float scale);
void ARES_K(embedding_backward)(ares_device *d, const ares_matrix *de, const int32_t *ids,
                                int32_t n, const void *dy, int64_t lddy, float scale);
void ARES_K(rms_norm)(ares_device *d, const ares_rms_norm_args *a);
void ARES_K(rms_norm_backward)(ares_device *d, const ares_rms_norm_args *a);
void ARES_K(layer_norm)(ares_device *d, const ares_layer_norm_args *a);
void ARES_K(layer_norm_backward)(ares_device *d, const ares_layer_norm_args *a);
void ARES_K(activation)(ares_device *d, const ares_activation_args *a);
void ARES_K(activation_backward)(ares_device *d, const ares_activation_args *a);
void ARES_K(rope)(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, int32_t turned,
                  void *x, int64_t ldx, const float *cos_sin, bool inverse);
void ARES_K(gate_mul)(ares_device *d, const ares_gate_mul_args *a);
void ARES_K(gate_mul_backward)(ares_device *d, const ares_gate_mul_args *a);
void ARES_K(store_kv)(ares_device *d, int32_t rows, int32_t n_kv, int32_t head_dim, const void *k,
                      const void *v, int64_t ldkv, const int32_t *slots, void *cache, bool bf16);
void ARES_K(attention)(ares_device *d, const ares_attention_args *a);
void ARES_K(attention_backward)(ares_device *d, const ares_attention_args *a);
void ARES_K(route)(ares_device *d, const ares_route_args *a);
void ARES_K(route_backward)(ares_device *d, const ares_route_args *a);
void ARES_K(combine)(ares_device *d, const ares_combine_args *a);
void ARES_K(combine_backward)(ares_device *d, const ares_combine_args *a);
void ARES_K(conv)(ares_device *d, const ares_conv_args *a);
void ARES_K(conv_backward)(ares_device *d, const ares_conv_args *a);
void ARES_K(delta)(ares_device *d, const ares_delta_args *a);
void ARES_K(delta_backward)(ares_device *d, const ares_delta_args *a);
void ARES_K(head)(ares_device *d, const ares_head_args *a);
void ARES_K(head_backward)(ares_device *d, const ares_head_args *a);
void ARES_K(head_fused)(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss,
                        void *ctx);
void ARES_K(sample)(ares_device *d, const ares_sample_args *a);
void ARES_K(adamw)(ares_device *d, const ares_adamw_args *a);
void ARES_K(square_sums)(ares_device *d, const float *x, int64_t n, double *of_chunk);
void ARES_K(add)(ares_device *d, float *y, const float *x, int64_t n);

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
 *
 * With pairs, in bf16 arithmetic: k counts pairs of inputs, w has a 32-bit word for each, and its
 * strides are in words. x is packed, in words: of row r and pair k at x[r * x_row + k *
 * V16_DOT_STEPS] (pack_rows), or, with x_row 1, two words at x[2 r + k * V16_DOT_STEPS * x_k] for
 * the even columns and the odd ones (pack_tokens). All that reads or writes y flushes.
 */

typedef struct product_args {
    int64_t rows, k, cols;
    const float *x;
    int64_t x_row, x_k;
    const void *w;
    int64_t w_k, w_panel;
    bool bf16;         /* type of w, whose strides are in elements; needs x_k = 1 */
    bool pairs;        /* w: words of two bf16 numbers */
    const float *from; /* NULL: start at 0; may be y */
    int64_t from_row, from_panel;
    /* panel p of row r: y + r * y_row + p * y_panel */
    float *y;
    int64_t y_row, y_panel;
    const float *bias;     /* [cols] or NULL */
    const float *residual; /* NULL, or rows [cols] at distance residual_row; may be y */
    int64_t residual_row;
    float scale;       /* of the sum, before bias and residual; 0: none */
    const void *after; /* memory that is read next after the last panel, to prefetch; or NULL */
} product_args;

void ARES_K(product)(const product_args *a);

/* Words of a packed row of k numbers: no power of two, which would meet in few sets of the cache.
 */
static inline int64_t packed_words(int64_t k)
{
    return (k + 31) / 32 * 16 * V16_DOT_STEPS + 16;
}
/*
 * Rows of x as the product with pairs reads them, packed_words(k) apart. The last partner of an odd
 * k is -0: times the weight's +0 it changes no sum, not even -0.
 */
void ARES_K(pack_rows)(const float *x, int64_t ldx, int64_t rows, int64_t k, float *to);

/*
 * Inputs [k0, k0 + 32) of outputs [n0, n1) of a weight as f32, one row per output:
 * out[(n - n0) * 32 + j] = W[n][k0 + j], 0 where k0 + j >= w->k. It is the w of the product dy W.
 */
void ARES_K(transpose_panel)(const ares_matrix *w, int64_t n0, int64_t n1, int64_t k0, float *out);

/*
 * Under the address sanitizer, a tile checks as a whole what it reads and writes, and its loops run
 * without a check at every access: those were most of the time of a sanitized run. Elsewhere this
 * is nothing. The plain build keeps its checks at every access (vec.h).
 */

#if defined __SANITIZE_ADDRESS__ && !defined ARES_ISA_PLAIN
#include <sanitizer/asan_interface.h>

#define TILE_UNWATCHED __attribute__((no_sanitize("address", "undefined")))

/* The sanitizer's own: what the compiler calls before an access, and where its shadow lies. */
void __asan_loadN(void *p, uintptr_t bytes);
void __asan_storeN(void *p, uintptr_t bytes);

/* Whether the shadow, a byte for eight, is 0 throughout: all of it may be touched. */
static inline TILE_UNWATCHED bool is_open(uintptr_t p, int64_t bytes)
{
    static uintptr_t shadow;
    size_t scale;
    if (!shadow) __asan_get_shadow_mapping(&scale, &shadow);
    const char *at = (const char *)(shadow + (p >> 3)),
               *last = (const char *)(shadow + ((p + (uintptr_t)bytes - 1) >> 3));
    uint64_t word, any = 0;
    for (; last - at >= 7; at += 8) {
        __builtin_memcpy(&word, at, sizeof word);
        any |= word;
    }
    for (; at <= last; at++) any |= (uint8_t)*at;
    return any == 0;
}

/* Rows of so many elements, stride elements apart. */
static inline TILE_UNWATCHED void watch(bool writes, const void *p, int64_t rows, int64_t stride,
                                        int64_t elements, int64_t element_bytes)
{
    uintptr_t at = (uintptr_t)p;
    ARES_ASSERT(at % (uintptr_t)element_bytes == 0);
    if (stride == elements) elements *= rows, rows = 1;
    int64_t bytes = elements * element_bytes;
    for (int64_t r = 0; r < rows && bytes > 0; r++, at += (uintptr_t)(stride * element_bytes)) {
        if (is_open(at, bytes)) continue; /* else the sanitizer decides, and reports */
        if (writes) __asan_storeN((void *)at, (uintptr_t)bytes);
        else __asan_loadN((void *)at, (uintptr_t)bytes);
    }
}
#else
#define TILE_UNWATCHED
static inline void watch(bool writes, const void *p, int64_t rows, int64_t stride, int64_t elements,
                         int64_t element_bytes)
{
    (void)writes, (void)p, (void)rows, (void)stride, (void)elements, (void)element_bytes;
}
#endif
#endif
