/*
 * Private to the aten table: what its files share. The table computes with libtorch, through at.h,
 * on the CPU; f32 as everywhere, weights of bf16 are widened at each use. It is the second complete
 * implementation of every entry: the proof, on a machine without a card, of the calls that a card
 * takes from libtorch.
 *
 * Its numbers agree with the native table within the error of f32, not in bits: libtorch chooses
 * orders of summation by the size of a product, so a row alone and the same row among others differ
 * in the last bits. Hence the rollout's log-probs differ from the update's
 * (exact/rollout_train_max_abs shows by how much).
 *
 * libtorch computes on the calling thread. The device keeps its pool for the native sampler and for
 * other code of the host.
 */
#ifndef ARES_KERNELS_ATEN_H
#define ARES_KERNELS_ATEN_H

#include "ares/at.h"
#include "ares/kernels.h"

/*
 * An entry: nothing after the device has failed, until sync reports it. Otherwise its operations
 * lie between enter, which gives their scope, and leave, which keeps the first failure.
 *
 *   at_scope *s = aten_enter(d, "add");
 *   if (!s) return;
 *   at_add_(aten_vector(y, n), aten_vector(x, n));
 *   aten_leave(d, s);
 */
at_scope *aten_enter(ares_device *d, const char *entry);
void aten_leave(ares_device *d, at_scope *s);
/* The native device under this one: host memory, pool, sampler. */
ares_device *aten_host(ares_device *d);

/* Memory for logits, kept from call to call: a larger request returns other memory. */
typedef enum { ATEN_LOGITS, ATEN_PROBABILITIES, ATEN_REFERENCE, ATEN_SLOTS } aten_slot;
float *aten_scratch(ares_device *d, aten_slot slot, int64_t floats);

/* ------------------------------------------------------------------ views */

static inline at_tensor aten_vector(const void *x, int64_t n)
{
    return at_view(x, AT_F32, (const int64_t[]){ n }, (const int64_t[]){ 1 }, 1);
}
/* [rows][columns], rows at distance ld */
static inline at_tensor aten_rows(const void *x, int64_t rows, int64_t columns, int64_t ld)
{
    return at_view(x, AT_F32, (const int64_t[]){ rows, columns }, (const int64_t[]){ ld, 1 }, 2);
}
static inline at_tensor aten_ids(const int32_t *ids, int64_t n)
{
    return at_view(ids, AT_I32, (const int64_t[]){ n }, (const int64_t[]){ 1 }, 1);
}
/* A weight [n][k] in its own type, and the same as f32: the weight itself, or a copy. */
at_tensor aten_matrix(const ares_matrix *w);
at_tensor aten_weight(const ares_matrix *w);

/* The table's functions, by file. */
void aten_linear(ares_device *d, const ares_linear_args *args, int n);
void aten_linear_backward(ares_device *d, const ares_linear_backward_args *a);
void aten_embedding(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                    int64_t ldy);
void aten_embedding_backward(ares_device *d, const ares_matrix *de, const int32_t *ids, int32_t n,
                             const void *dy, int64_t lddy);
void aten_rms_norm(ares_device *d, const ares_rms_norm_args *a);
void aten_rms_norm_backward(ares_device *d, const ares_rms_norm_args *a);
void aten_rope(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, void *x, int64_t ldx,
               const float *cos_sin, bool inverse);
void aten_silu_mul(ares_device *d, const ares_silu_mul_args *a);
void aten_silu_mul_backward(ares_device *d, const ares_silu_mul_args *a);
void aten_store_kv(ares_device *d, int32_t rows, int32_t n_kv, int32_t head_dim, const void *k,
                   const void *v, int64_t ldkv, const int32_t *slots, void *cache);
void aten_attention(ares_device *d, const ares_attention_args *a);
void aten_attention_backward(ares_device *d, const ares_attention_args *a);
void aten_head(ares_device *d, const ares_head_args *a);
void aten_head_backward(ares_device *d, const ares_head_args *a);
void aten_head_fused(ares_device *d, const ares_head_args *a, ares_head_loss_fn *loss, void *ctx);
void aten_sample(ares_device *d, const ares_sample_args *a);
void aten_adamw(ares_device *d, const ares_adamw_args *a);
void aten_square_sums(ares_device *d, const float *x, int64_t n, double *of_chunk);
void aten_add(ares_device *d, float *y, const float *x, int64_t n);

#endif
