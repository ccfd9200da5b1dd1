/*
 * Attention of packed segments and its gradients, one call for all segments, the same on the CPU
 * and on a card. A segment's keys must lie in consecutive rows: where segments share rows of
 * another (a prompt), the keys are gathered by key_row first. The paged cache is in pieces.c and
 * paged.c.
 */
#include "aten.h"

/* Whether a segment sees rows of another. */
static bool gathers(const ares_attention_args *a)
{
    return a->seg.keys != a->seg.rows;
}

/* [rows][heads][head_dim] */
static at_tensor heads_of(const ares_device *d, const ares_attention_args *a, const void *x,
                          int64_t heads, int64_t ld)
{
    return at_view(x, aten_type(d->k->act), d->index,
                   (const int64_t[]){ a->seg.rows, heads, a->head_dim },
                   (const int64_t[]){ ld, a->head_dim, 1 }, 3);
}
static at_tensor queries(const ares_device *d, const ares_attention_args *a, const void *x,
                         int64_t ld)
{
    return heads_of(d, a, x, a->n_heads, ld);
}
/* The keys or values that the segments see, one segment's after the other's. */
static at_tensor keys(const ares_device *d, const ares_attention_args *a, const void *x)
{
    at_tensor all = heads_of(d, a, x, a->n_kv_heads, a->ldkv);
    return gathers(a) ? at_index_select(all, 0, aten_ids(d, a->seg.key_row, a->seg.keys)) : all;
}

static at_varlen lengths(const ares_device *d, const ares_attention_args *a)
{
    at_tensor start = aten_ids(d, a->seg.start, a->seg.n + 1);
    return (at_varlen){ .q_start = start,
                        .k_start = gathers(a) ? aten_ids(d, a->seg.key_start, a->seg.n + 1) : start,
                        .most_q = a->seg.max_rows,
                        .most_k = a->seg.max_keys,
                        .causal = a->causal,
                        .window = a->window,
                        .scale = a->scale };
}

/* [n_heads][rows] */
static at_tensor lse_of(const ares_device *d, const ares_attention_args *a)
{
    return aten_rows(d, a->lse, a->n_heads, a->seg.rows, a->seg.rows);
}

void aten_attention(ares_device *d, const ares_attention_args *a)
{
    if (a->cache) {
        aten_attention_paged(d, a);
        return;
    }
    at_scope *s = a->seg.rows > 0 ? aten_enter(d, "attention") : NULL;
    if (!s) return;
    at_varlen of = lengths(d, a);
    at_tensor lse, out = at_attend_varlen(queries(d, a, a->q, a->ldq), keys(d, a, a->k),
                                          keys(d, a, a->v), &of, &lse);
    at_copy_(queries(d, a, a->out, a->ldo), out);
    if (a->lse) at_copy_(lse_of(d, a), lse);
    aten_leave(d, s);
}

/*
 * The card's index_add_ of a fixed order sorts the rows first, in some 20 launches; the kernel of
 * libares_cuda.so is one.
 */
static void sum_on_card(ares_device *d, const ares_attention_args *a, at_tensor gradient, void *to)
{
    int32_t width = a->n_kv_heads * a->head_dim;
    const void *from = at_data(at_reshape(gradient, AT_DIMS(a->seg.keys, width)));
    ares_sum_keys_args sum = {
        .seg = a->seg, .width = width, .gradient = from, .to = to, .ld = a->lddkv
    };
    if (from) aten_under(d)->sum_keys(d, &sum);
}

/* Each key's gradient to its row: summed in f32 where several segments see it, and rounded once. */
static void put_keys(ares_device *d, const ares_attention_args *a, at_tensor gradient, void *to)
{
    if (gathers(a) && aten_under(d)->sum_keys) {
        sum_on_card(d, a, gradient, to);
        return;
    }
    if (gathers(a)) {
        at_tensor sum =
            at_zeros_beside(gradient, AT_F32, AT_DIMS(a->seg.rows, a->n_kv_heads, a->head_dim));
        gradient = at_index_add_(sum, 0, aten_ids(d, a->seg.key_row, a->seg.keys),
                                 at_to(gradient, AT_F32));
    }
    at_copy_(heads_of(d, a, to, a->n_kv_heads, a->lddkv), gradient);
}

void aten_attention_backward(ares_device *d, const ares_attention_args *a)
{
    at_scope *s = a->seg.rows > 0 ? aten_enter(d, "attention_backward") : NULL;
    if (!s) return;
    at_varlen of = lengths(d, a);
    at_tensor gradient[3];
    at_attend_varlen_backward(queries(d, a, a->d_out, a->ldo), queries(d, a, a->q, a->ldq),
                              keys(d, a, a->k), keys(d, a, a->v), queries(d, a, a->out, a->ldo),
                              lse_of(d, a), &of, gradient);
    at_copy_(queries(d, a, a->dq, a->lddq), gradient[0]);
    put_keys(d, a, gradient[1], a->dk);
    put_keys(d, a, gradient[2], a->dv);
    aten_leave(d, s);
}
