/*
 * Attention over the paged cache of segments with several rows, pieces of prompts, on the CPU and
 * on a card: their keys are gathered from their blocks, and libtorch attends to all of them in one
 * call. A segment of one row between two of them is a sequence without keys there, so that the rows
 * of all stay one block and no launch is added.
 */
#include "aten.h"

/*
 * Numbers of keys that are gathered at once at most, and as many of values: in bf16 128 MiB, of 64
 * K keys where a key has 512 numbers. A segment is never divided.
 */
static const int64_t GATHERED = 1 << 25;

/* Segments [first, first + n), of which the outer ones have several rows. n 0: none is left. */
typedef struct pieces {
    int32_t first, n;
    int64_t rows, keys, most_rows, most_keys;
} pieces;

static pieces next_pieces(const ares_attention_args *a, int32_t i)
{
    pieces p = { .first = i };
    for (; i < a->seg.n; i++) {
        aten_seen g = aten_seen_by(a, i);
        int64_t keys = g.end - g.first, numbers = (int64_t)a->n_kv_heads * a->head_dim;
        if (g.rows < 2) continue;
        if (p.n && (p.keys + keys) * numbers > GATHERED) break;
        if (!p.n) p.first = i;
        p.n = i + 1 - p.first;
        p.rows = a->seg.host_start[i + 1] - a->seg.host_start[p.first];
        p.keys += keys;
        p.most_rows = ARES_MAX(p.most_rows, g.rows);
        p.most_keys = ARES_MAX(p.most_keys, keys);
    }
    return p;
}

/* The pieces' rows of q or out */
static at_tensor rows_of(const ares_device *d, const ares_attention_args *a, const pieces *p,
                         const void *x, int64_t ld)
{
    return at_view(aten_at(d, x, a->seg.host_start[p->first] * ld), aten_type(d->k->act), d->index,
                   (const int64_t[]){ p->rows, a->n_heads, a->head_dim },
                   (const int64_t[]){ ld, a->head_dim, 1 }, 3);
}

static void attend(ares_device *d, const ares_attention_args *a, const pieces *p,
                   aten_gather_fn *gather)
{
    at_scope *s = aten_enter(d, "attention");
    if (!s) return;
    at_tensor q = rows_of(d, a, p, a->q, a->ldq), kv[2], start[2], lse;
    for (int i = 0; i < 2; i++) {
        kv[i] =
            at_empty_beside(q, aten_type(d->k->act), AT_DIMS(p->keys, a->n_kv_heads, a->head_dim));
        start[i] = at_empty_beside(q, AT_I32, AT_DIMS(p->n + 1));
    }
    ares_gather_args of = { .seg = a->seg,
                            .first = p->first,
                            .n = p->n,
                            .most_keys = (int32_t)p->most_keys,
                            .window = a->window,
                            .n_kv_heads = a->n_kv_heads,
                            .head_dim = a->head_dim,
                            .cache = a->cache,
                            .k = at_data(kv[0]),
                            .v = at_data(kv[1]),
                            .q_start = at_data(start[0]),
                            .k_start = at_data(start[1]) };
    at_varlen lengths = { .q_start = start[0],
                          .k_start = start[1],
                          .most_q = p->most_rows,
                          .most_k = p->most_keys,
                          .causal = a->causal,
                          .window = a->window,
                          .scale = a->scale };
    if (of.k_start) gather(d, &of); /* the last of them: there is memory for all */
    at_copy_(rows_of(d, a, p, a->out, a->ldo), at_attend_varlen(q, kv[0], kv[1], &lengths, &lse));
    aten_leave(d, s);
}

void aten_attend_pieces(ares_device *d, const ares_attention_args *a, aten_gather_fn *gather)
{
    pieces p = { 0 };
    while ((p = next_pieces(a, p.first + p.n)).n) attend(d, a, &p, gather);
}
