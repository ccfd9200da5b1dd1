/*
 * Attention by libtorch's, one segment after another, but segments of one row (decoding) together.
 * Its `causal` counts from the first key, so it serves a segment whose first visible key is its
 * own; where keys come before the segment's own (a shared prefix, a cache) or a window ends them,
 * the keys that the segment sees are gathered and a mask says which rows see which.
 *
 * In one layer of the paged cache a block holds the keys of its 32 slots, then their values:
 * [blocks][2][32][n_kv_heads * head_dim].
 */
#include "aten.h"

#include <math.h>

/* The keys [first, end) of a segment, the only ones that its rows see; first <= prefix. */
typedef struct segment {
    int32_t index, start, rows, prefix;
    int64_t first, end;
    at_tensor k, v; /* [1][n_kv_heads][end - first][head_dim] */
    at_tensor mask; /* [rows][end - first], -inf where a key is not seen; NULL: none needed */
    bool causal;    /* only where there is no mask */
} segment;

/* Rows [first, first + n) of x as [1][heads][n][head_dim] */
static at_tensor heads_of(at_dtype type, const void *x, int64_t first, int64_t n, int64_t heads,
                          int64_t dim, int64_t ld)
{
    const char *row = (const char *)x + first * ld * (type == AT_F32 ? 4 : 2);
    return at_view(row, type, -1, (const int64_t[]){ 1, heads, n, dim },
                   (const int64_t[]){ n * ld, dim, ld, 1 }, 4);
}

/* The same of an array of queries, or of keys */
static at_tensor queries(const ares_device *d, const ares_attention_args *a, const segment *g,
                         const void *x, int64_t ld)
{
    return heads_of(aten_type(d->k->act), x, g->start, g->rows, a->n_heads, a->head_dim, ld);
}
static at_tensor keys(const ares_device *d, const ares_attention_args *a, const void *x,
                      int64_t first, int64_t n)
{
    return heads_of(aten_type(d->k->act), x, first, n, a->n_kv_heads, a->head_dim, a->ldkv);
}

/* lse of a segment, stored as [rows][n_heads], as [1][n_heads][rows] */
static at_tensor lse_of(const ares_attention_args *a, const segment *g)
{
    return at_view(a->lse + (int64_t)g->start * a->n_heads, AT_F32, -1,
                   (const int64_t[]){ 1, a->n_heads, g->rows },
                   (const int64_t[]){ (int64_t)g->rows * a->n_heads, 1, a->n_heads }, 3);
}

/* ------------------------------------------------------------------ the paged cache */

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

void aten_store_kv(ares_device *d, int32_t rows, int32_t n_kv, int32_t head_dim, const void *k,
                   const void *v, int64_t ldkv, const int32_t *slots, void *cache)
{
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

/* k and v [batch][n_kv_heads][n][head_dim] of batch * n slots */
static void gather_paged(const ares_device *d, const ares_attention_args *a, const int64_t *slots,
                         int64_t batch, int64_t n, at_tensor *k, at_tensor *v)
{
    int64_t width = (int64_t)a->n_kv_heads * a->head_dim, most;
    at_tensor rows = cache_rows(slots, batch * n, &most), *to[] = { k, v };
    for (int i = 0; i < 2; i++) {
        at_tensor flat = aten_acts(d, aten_at(d, a->cache, i * ARES_KV_BLOCK * width), most, width,
                                   width),
                  found = at_index_select(flat, 0, rows);
        found = at_reshape(found, AT_DIMS(batch, n, a->n_kv_heads, a->head_dim));
        *to[i] = at_transpose(found, 1, 2);
    }
}

/* ------------------------------------------------------------------ segments */

/* The segment's keys in a packed array: a view, or a copy where they lie in two places. */
static at_tensor packed_keys(const ares_device *d, const ares_attention_args *a, const segment *g,
                             const void *x)
{
    at_tensor part[2];
    part[1] = keys(d, a, x, g->start, g->rows);
    if (g->first == g->prefix) return part[1];
    part[0] = keys(d, a, x, a->seg.prefix_row[g->index] + g->first, g->prefix - g->first);
    return at_cat(part, 2, 2);
}

static void make_mask(const ares_attention_args *a, segment *g)
{
    int64_t n = g->end - g->first;
    bool windowed = a->window > 0 && a->window < g->prefix + g->rows;
    if (g->rows == 1) return; /* it sees them all */
    if (!windowed && (!a->causal || g->first == g->prefix)) {
        g->causal = a->causal;
        return;
    }
    g->mask = at_zeros(AT_F32, AT_DIMS(g->rows, n));
    float *m = at_data(g->mask);
    for (int64_t i = 0; m && i < g->rows; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t key = g->first + j, position = g->prefix + i;
            if ((a->causal && key > position) || (windowed && key <= position - a->window))
                m[i * n + j] = -INFINITY;
        }
}

static segment segment_of(const ares_attention_args *a, int32_t i)
{
    const ares_segments *seg = &a->seg;
    segment g = { .index = i,
                  .start = seg->start[i],
                  .rows = seg->start[i + 1] - seg->start[i],
                  .prefix = seg->prefix_len ? seg->prefix_len[i] : 0 };
    g.end = g.prefix + g.rows;
    g.first = a->window > 0 ? ARES_MAX(0, g.prefix + 1 - a->window) : 0;
    return g;
}

static void find_keys(const ares_device *d, const ares_attention_args *a, segment *g)
{
    if (a->cache) {
        int64_t n = g->end - g->first, *slots = ares_malloc((size_t)n * sizeof *slots);
        slots_of(a, g->index, g->first, g->end, slots);
        gather_paged(d, a, slots, 1, n, &g->k, &g->v);
        ares_free(slots);
    } else {
        g->k = packed_keys(d, a, g, a->k);
        g->v = packed_keys(d, a, g, a->v);
    }
    make_mask(a, g);
}

static void attend_segment(ares_device *d, const ares_attention_args *a, int32_t i)
{
    segment g = segment_of(a, i);
    at_scope *s = g.rows > 0 ? aten_enter(d, "attention") : NULL;
    if (!s) return;
    find_keys(d, a, &g);
    at_tensor lse, out = at_attend(queries(d, a, &g, a->q, a->ldq), g.k, g.v, g.mask, g.causal,
                                   a->scale, &lse);
    at_copy_(queries(d, a, &g, a->out, a->ldo), out);
    if (a->lse) at_copy_(lse_of(a, &g), lse);
    aten_leave(d, s);
}

/* ------------------------------------------------------------------ decoding */

/* Floats of keys that are gathered at once at most: 64 MiB. But never less than a segment. */
static const int64_t GATHERED = 1 << 24;

/* How many segments from the i-th on have one row and fit together, padded to the longest. */
static int32_t one_row_segments(const ares_attention_args *a, int32_t i, int64_t *longest)
{
    int32_t count = 0;
    *longest = 0;
    for (; i + count < a->seg.n; count++) {
        segment g = segment_of(a, i + count);
        int64_t keys = ARES_MAX(*longest, g.end - g.first);
        if (g.rows != 1 || (count && (count + 1) * keys * a->n_kv_heads * a->head_dim > GATHERED))
            break;
        *longest = keys;
    }
    return count;
}

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
    int64_t first = a->seg.start[i], *slots = ares_malloc((size_t)(count * n) * sizeof *slots);
    at_tensor k, v, lse, mask = at_zeros(AT_F32, AT_DIMS(count, 1, 1, n));
    float *m = at_data(mask);
    for (int32_t r = 0; r < count; r++) {
        segment g = segment_of(a, i + r);
        int64_t *own = slots + r * n, keys = slots_of(a, g.index, g.first, g.end, own);
        for (; keys < n; keys++) { /* any key that exists, not seen */
            own[keys] = own[0];
            if (m) m[r * n + keys] = -INFINITY;
        }
    }
    gather_paged(d, a, slots, count, n, &k, &v);
    at_tensor out =
        at_attend(groups_of(d, a, a->q, a->ldq, first, count), k, v, mask, false, a->scale, &lse);
    at_copy_(groups_of(d, a, a->out, a->ldo, first, count), out);
    if (a->lse)
        at_copy_(aten_rows(d, a->lse + first * a->n_heads, count, a->n_heads, a->n_heads),
                 at_reshape(lse, AT_DIMS(count, a->n_heads)));
    ares_free(slots);
    aten_leave(d, s);
}

void aten_attention(ares_device *d, const ares_attention_args *a)
{
    for (int32_t i = 0; i < a->seg.n;) {
        int64_t longest;
        int32_t count = a->cache ? one_row_segments(a, i, &longest) : 0;
        if (count > 1) attend_rows(d, a, i, count, longest);
        else attend_segment(d, a, i);
        i += ARES_MAX(count, 1);
    }
}

/* ------------------------------------------------------------------ backward */

/* Gradients of all keys or values: where they go, or f32 sums on the way there. */
typedef struct key_sums {
    at_dtype type;
    void *p;
    int64_t ld;
} key_sums;

/* Of bf16 the sum over the segments that see a key would lose bits. */
static key_sums sums_of(const ares_device *d, const ares_attention_args *a, void *to)
{
    int64_t width = (int64_t)a->n_kv_heads * a->head_dim;
    if (d->k->act == ARES_F32 || !a->seg.prefix_len)
        return (key_sums){ aten_type(d->k->act), to, a->lddkv };
    return (key_sums){ AT_F32, ares_malloc((size_t)(a->seg.rows * width) * sizeof(float)), width };
}

static void round_sums(ares_device *d, const ares_attention_args *a, key_sums sums, void *to)
{
    int64_t width = (int64_t)a->n_kv_heads * a->head_dim;
    if (sums.p == to) return;
    at_scope *s = aten_enter(d, "attention_backward");
    if (s) {
        at_copy_(aten_acts(d, to, a->seg.rows, width, a->lddkv),
                 aten_rows(d, sums.p, a->seg.rows, width, width));
        aten_leave(d, s);
    }
    ares_free(sums.p);
}

/*
 * The gradient of a segment's keys goes to the rows where they lie: its own rows are written, those
 * of an earlier segment are added to.
 */
static void add_keys(const ares_attention_args *a, const segment *g, at_tensor gradient,
                     key_sums to)
{
    int64_t of_prefix = g->prefix - g->first;
    at_copy_(heads_of(to.type, to.p, g->start, g->rows, a->n_kv_heads, a->head_dim, to.ld),
             at_narrow(gradient, 2, of_prefix, g->rows));
    if (of_prefix)
        at_add_(heads_of(to.type, to.p, a->seg.prefix_row[g->index] + g->first, of_prefix,
                         a->n_kv_heads, a->head_dim, to.ld),
                at_narrow(gradient, 2, 0, of_prefix));
}

void aten_attention_backward(ares_device *d, const ares_attention_args *a)
{
    key_sums dk = sums_of(d, a, a->dk), dv = sums_of(d, a, a->dv);
    for (int32_t i = 0; i < a->seg.n; i++) {
        segment g = segment_of(a, i);
        at_scope *s = g.rows > 0 ? aten_enter(d, "attention_backward") : NULL;
        if (!s) continue;
        find_keys(d, a, &g);
        at_tensor gradient[3];
        at_attend_backward(queries(d, a, &g, a->d_out, a->ldo), queries(d, a, &g, a->q, a->ldq),
                           g.k, g.v, queries(d, a, &g, a->out, a->ldo), lse_of(a, &g), g.mask,
                           g.causal, a->scale, gradient);
        at_copy_(queries(d, a, &g, a->dq, a->lddq), gradient[0]);
        add_keys(a, &g, gradient[1], dk);
        add_keys(a, &g, gradient[2], dv);
        aten_leave(d, s);
    }
    round_sums(d, a, dk, a->dk);
    round_sums(d, a, dv, a->dv);
}
