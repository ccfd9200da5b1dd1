/*
 * Private to the aten table: what its files share. The table computes with libtorch, through at.h,
 * on the CPU: the second complete implementation of every entry, and the proof, on a machine
 * without a card, of the calls that a card takes from libtorch (device.c). Activations are f32 or
 * bf16, as the device was opened; whatever is summed is f32, and a result is rounded once.
 *
 * Its numbers agree with the native table within the error of its types, not in bits: libtorch
 * chooses orders of summation by the size of a product, so a row alone and the same row among
 * others differ in the last bits. Hence the rollout's log-probs differ from the update's
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
 *   at_add_(aten_vector(d, y, n), aten_vector(d, x, n));
 *   aten_leave(d, s);
 */
at_scope *aten_enter(ares_device *d, const char *entry);
void aten_leave(ares_device *d, at_scope *s);
/* The same, on a CPU, of operations that autograd goes back through. */
at_scope *aten_enter_graph(ares_device *d, const char *entry);
/* The device's own table, under this one: memory, the sampler, what libtorch does not serve. */
const ares_kernels *aten_under(const ares_device *d);

/* Puts a copy of the device's table on it, for entries of ours to replace. */
ares_kernels *aten_put_on(ares_device *d);
/* d becomes the device again that it was. */
void ares_aten_close(ares_device *d);

/* Host memory for logits, kept from call to call: a larger request returns other memory. */
typedef enum { ATEN_LOGITS, ATEN_PROBABILITIES, ATEN_REFERENCE, ATEN_SLOTS } aten_slot;
float *aten_scratch(ares_device *d, aten_slot slot, int64_t floats);

/* ------------------------------------------------------------------ views */

static inline at_dtype aten_type(ares_dtype type)
{
    ARES_ASSERT(type != ARES_F16);
    return type == ARES_F32 ? AT_F32 : AT_BF16;
}
/* x[elements] of activations; their view [rows][columns], rows at distance ld, and as f32 */
static inline void *aten_at(const ares_device *d, const void *x, int64_t elements)
{
    return (char *)x + elements * (int64_t)ares_dtype_bytes(d->k->act);
}
at_tensor aten_acts(const ares_device *d, const void *x, int64_t rows, int64_t columns, int64_t ld);
at_tensor aten_wide(const ares_device *d, const void *x, int64_t rows, int64_t columns, int64_t ld);
/* f32 [rows][columns], f32 [n] */
at_tensor aten_rows(const ares_device *d, const float *x, int64_t rows, int64_t columns,
                    int64_t ld);
at_tensor aten_vector(const ares_device *d, const float *x, int64_t n);
at_tensor aten_ids(const ares_device *d, const int32_t *ids, int64_t n);
/* A weight [n][k] in its own type */
at_tensor aten_matrix(const ares_device *d, const ares_matrix *w);

/* ------------------------------------------------------------------ the paged cache */

/* Segment i has `rows` rows, which see the keys [first, end) of its sequence. */
typedef struct aten_seen {
    int32_t rows;
    int64_t first, end;
} aten_seen;
static inline aten_seen aten_seen_by(const ares_attention_args *a, int32_t i)
{
    const ares_segments *seg = &a->seg;
    aten_seen g = { .rows = seg->host_start[i + 1] - seg->host_start[i] };
    int32_t prefix = seg->host_prefix_len ? seg->host_prefix_len[i] : 0;
    g.end = prefix + g.rows;
    g.first = a->window > 0 ? ARES_MAX(0, prefix + 1 - a->window) : 0;
    return g;
}
/*
 * Attends to the segments of several rows (pieces of prompts), whose keys `gather` lays side by
 * side. It may write 0 to the rows of out of other segments: attend to those after it.
 */
typedef void aten_gather_fn(ares_device *d, const ares_gather_args *a);
void aten_attend_pieces(ares_device *d, const ares_attention_args *a, aten_gather_fn *gather);

/* ------------------------------------------------------------------ the entries */

/* What each file puts into the complete table. */
void aten_fill_attention(ares_kernels *k);
void aten_fill_products(ares_kernels *k);
void aten_fill_rows(ares_kernels *k);
void aten_fill_experts(ares_kernels *k);
void aten_fill_nets(ares_kernels *k);
/* Those that a card takes as well. */
void aten_linear(ares_device *d, const ares_linear_args *args, int n);
void aten_linear_backward(ares_device *d, const ares_linear_backward_args *args, int n);
void aten_attention(ares_device *d, const ares_attention_args *a);
void aten_attention_backward(ares_device *d, const ares_attention_args *a);

#endif
