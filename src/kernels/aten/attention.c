/*
 * Attention by libtorch. In order: pieces of prompts over the paged cache; the paged cache on the
 * CPU; packed segments with their gradients.
 */
#include "aten.h"

#include <math.h>
#include <string.h>

/*
 * Attention over the paged cache of segments with several rows, pieces of prompts, on the CPU and
 * on a card: their keys are gathered from their blocks, and libtorch attends to all of them in one
 * call. A segment of one row between two of them is a sequence without keys there, so that the rows
 * of all stay one block and no launch is added.
 */

/*
 * Numbers of keys that are gathered at once at most, and as many of values: in bf16 128 MiB, of 64
 * K keys where a key has 512 numbers. A segment is never divided.
 */
static const int64_t PIECE_GATHERED = 1 << 25;

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
        if (p.n && (p.keys + keys) * numbers > PIECE_GATHERED) break;
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

void aten_attend_pieces(ares_device *d, const ares_attention_args *a, aten_gather_fn *gather)
{
    pieces p = { 0 };
    while ((p = next_pieces(a, p.first + p.n)).n) {
        at_scope *s = aten_enter(d, "attention");
        if (!s) return;
        at_tensor q = rows_of(d, a, &p, a->q, a->ldq), kv[2], start[2], lse;
        for (int i = 0; i < 2; i++) {
            kv[i] = at_empty_beside(q, aten_type(d->k->act),
                                    AT_DIMS(p.keys, a->n_kv_heads, a->head_dim));
            start[i] = at_empty_beside(q, AT_I32, AT_DIMS(p.n + 1));
        }
        ares_gather_args of = { .seg = a->seg,
                                .first = p.first,
                                .n = p.n,
                                .most_keys = (int32_t)p.most_keys,
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
                              .most_q = p.most_rows,
                              .most_k = p.most_keys,
                              .causal = a->causal,
                              .window = a->window,
                              .scale = a->scale };
        if (of.k_start) gather(d, &of); /* the last of them: there is memory for all */
        at_copy_(rows_of(d, a, &p, a->out, a->ldo),
                 at_attend_varlen(q, kv[0], kv[1], &lengths, &lse));
        aten_leave(d, s);
    }
}

/*
 * The paged cache on the CPU: in one layer a block holds the keys of its 32 slots, then their
 * values, [blocks][2][32][n_kv_heads * head_dim]. libtorch knows no block tables, so the keys that
 * a segment sees are gathered. Segments of one row (decoding) are attended to together; next_pieces
 * has the others, here and on a card.
 */

/* ------------------------------------------------------------------ the cache */

/* Row of a slot's keys in a layer as [rows][n_kv_heads * head_dim]; its values lie 32 rows on. */
static int64_t cache_row(int64_t slot)
{
    return slot / ARES_KV_BLOCK * (2 * ARES_KV_BLOCK) + slot % ARES_KV_BLOCK;
}

/* The rows of some slots, and in *most one more than the highest. */
static at_tensor cache_rows(const int64_t *slots, int64_t n, int64_t *most)
{
    at_tensor rows = at_zeros(AT_I64, AT_DIMS(n));
    int64_t *row = at_data(rows);
    *most = 0;
    for (int64_t i = 0; row && i < n; i++) {
        row[i] = cache_row(slots[i]);
        *most = ARES_MAX(*most, row[i] + 1);
    }
    return rows;
}

static void store_kv(ares_device *d, int32_t rows, int32_t n_kv, int32_t head_dim, const void *k,
                     const void *v, int64_t ldkv, const int32_t *slots, void *cache, bool bf16)
{
    ARES_ASSERT(!bf16); /* this table's cache is of the type of activations */
    at_scope *s = rows > 0 ? aten_enter(d, "store_kv") : NULL;
    if (!s) return;
    int64_t width = (int64_t)n_kv * head_dim, most,
            *wide = ares_malloc((size_t)rows * sizeof *wide);
    for (int32_t r = 0; r < rows; r++) wide[r] = slots[r];
    at_tensor to = cache_rows(wide, rows, &most);
    for (int i = 0; i < 2; i++)
        at_index_copy_(
            aten_acts(d, aten_at(d, cache, i * ARES_KV_BLOCK * width), most, width, width), 0, to,
            aten_acts(d, i ? v : k, rows, width, ldkv));
    ares_free(wide);
    aten_leave(d, s);
}

/* The slots of keys [first, end) of a segment; gives their number. */
static int64_t slots_of(const ares_attention_args *a, int32_t segment, int64_t first, int64_t end,
                        int64_t *slots)
{
    const int32_t *table = a->seg.block_table + (int64_t)segment * a->seg.table_stride;
    for (int64_t key = first; key < end; key++)
        *slots++ = (int64_t)table[key / ARES_KV_BLOCK] * ARES_KV_BLOCK + key % ARES_KV_BLOCK;
    return end - first;
}

/* Keys (part 0) or values (part 1) [n][n_kv_heads * head_dim] of slots */
static at_tensor gather(const ares_device *d, const ares_attention_args *a, const int64_t *slots,
                        int64_t n, int part)
{
    int64_t width = (int64_t)a->n_kv_heads * a->head_dim, most;
    at_tensor rows = cache_rows(slots, n, &most);
    return at_index_select(
        aten_acts(d, aten_at(d, a->cache, part * ARES_KV_BLOCK * width), most, width, width), 0,
        rows);
}

/* ------------------------------------------------------------------ pieces of prompts */

/* Keys or values of slot after slot; gives what lies after them. */
static char *copy_slots(const ares_device *d, const ares_gather_args *a, const int64_t *slots,
                        int64_t n, int part, char *to)
{
    int64_t width = (int64_t)a->n_kv_heads * a->head_dim;
    size_t bytes = (size_t)width * ares_dtype_bytes(d->k->act);
    for (int64_t i = 0; i < n; i++, to += bytes)
        memcpy(to,
               aten_at(d, a->cache, (cache_row(slots[i]) + (int64_t)part * ARES_KV_BLOCK) * width),
               bytes);
    return to;
}

/* On the CPU. */
static void gather_kv(ares_device *d, const ares_gather_args *a)
{
    const ares_attention_args of = { .seg = a->seg, .window = a->window };
    int64_t *slots = ares_malloc((size_t)a->most_keys * sizeof *slots);
    char *k = a->k, *v = a->v;
    a->q_start[0] = a->k_start[0] = 0;
    for (int32_t i = 0; i < a->n; i++) {
        aten_seen g = aten_seen_by(&of, a->first + i);
        int64_t n = g.rows > 1 ? slots_of(&of, a->first + i, g.first, g.end, slots) : 0;
        k = copy_slots(d, a, slots, n, 0, k);
        v = copy_slots(d, a, slots, n, 1, v);
        a->q_start[i + 1] = a->q_start[i] + g.rows;
        a->k_start[i + 1] = a->k_start[i] + (int32_t)n;
    }
    ares_free(slots);
}

/* ------------------------------------------------------------------ decoding */

/* Most floats of keys that are gathered at once (64 MiB); a longer segment is gathered alone. */
static const int64_t GATHERED = 1 << 24;

/* Rows of one KV head's queries as [count][n_kv_heads][n_heads / n_kv_heads][head_dim] */
static at_tensor groups_of(const ares_device *d, const ares_attention_args *a, const void *x,
                           int64_t ld, int64_t first, int64_t count)
{
    int64_t group = a->n_heads / a->n_kv_heads, dim = a->head_dim;
    return at_view(aten_at(d, x, first * ld), aten_type(d->k->act), -1,
                   (const int64_t[]){ count, a->n_kv_heads, group, dim },
                   (const int64_t[]){ ld, group * dim, dim, 1 }, 4);
}

/*
 * One row each of consecutive segments: a batch of gathered keys, padded to n. The query heads of a
 * KV head stand as the rows of its attention, so that its keys are read once.
 */
static void attend_rows(ares_device *d, const ares_attention_args *a, int32_t i, int32_t count,
                        int64_t n)
{
    at_scope *s = aten_enter(d, "attention");
    if (!s) return;
    int64_t first = a->seg.host_start[i], *slots = ares_malloc((size_t)(count * n) * sizeof *slots);
    at_tensor k, v, lse, mask = at_zeros(AT_F32, AT_DIMS(count, 1, 1, n));
    float *m = at_data(mask);
    for (int32_t r = 0; r < count; r++) {
        aten_seen g = aten_seen_by(a, i + r);
        int64_t *own = slots + r * n, keys = slots_of(a, i + r, g.first, g.end, own);
        for (; keys < n; keys++) { /* any key that exists, not seen */
            own[keys] = own[0];
            if (m) m[r * n + keys] = -INFINITY;
        }
    }
    const int64_t shape[] = { count, n, a->n_kv_heads, a->head_dim };
    k = at_transpose(at_reshape(gather(d, a, slots, count * n, 0), shape, 4), 1, 2);
    v = at_transpose(at_reshape(gather(d, a, slots, count * n, 1), shape, 4), 1, 2);
    at_tensor out =
        at_attend(groups_of(d, a, a->q, a->ldq, first, count), k, v, mask, a->scale, &lse);
    at_copy_(groups_of(d, a, a->out, a->ldo, first, count), out);
    ares_free(slots);
    aten_leave(d, s);
}

/*
 * Attention of packed segments and its gradients, one call for all segments, the same on the CPU
 * and on a card. A segment's keys must lie in consecutive rows: where segments share rows of
 * another (a prompt), the keys are gathered by key_row first. The paged cache is above.
 */

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
        aten_attend_pieces(d, a, gather_kv);
        for (int32_t i = 0; i < a->seg.n;) {
            /* as many segments of one row from the i-th on as fit, padded to the longest */
            int64_t longest = 0;
            int32_t count = 0;
            for (; i + count < a->seg.n; count++) {
                aten_seen g = aten_seen_by(a, i + count);
                int64_t keys = ARES_MAX(longest, g.end - g.first);
                if (g.rows != 1 ||
                    (count && (count + 1) * keys * a->n_kv_heads * a->head_dim > GATHERED))
                    break;
                longest = keys;
            }
            if (count > 0) attend_rows(d, a, i, count, longest);
            i += ARES_MAX(count, 1);
        }
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

/* Each key's gradient to its row: summed in f32 where several segments see it, and rounded once. */
static void put_keys(ares_device *d, const ares_attention_args *a, at_tensor gradient, void *to)
{
    if (gathers(a) && aten_under(d)->sum_keys) {
        /*
         * libtorch's index_add_ of a fixed order sorts the rows first, in some 20 launches on a
         * card; the kernel of libares_cuda.so is one.
         */
        int32_t width = a->n_kv_heads * a->head_dim;
        const void *from = at_data(at_reshape(gradient, AT_DIMS(a->seg.keys, width)));
        ares_sum_keys_args sum = {
            .seg = a->seg, .width = width, .gradient = from, .to = to, .ld = a->lddkv
        };
        if (from) aten_under(d)->sum_keys(d, &sum);
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

void aten_fill_attention(ares_kernels *k)
{
    k->store_kv = store_kv;
    k->attention = aten_attention;
    k->attention_backward = aten_attention_backward;
}
