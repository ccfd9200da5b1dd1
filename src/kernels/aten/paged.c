/*
 * The paged cache on the CPU: in one layer a block holds the keys of its 32 slots, then their
 * values, [blocks][2][32][n_kv_heads * head_dim]. libtorch knows no block tables, so the keys that
 * a segment sees are gathered. Segments of one row (decoding) are attended to together; pieces.c
 * has the others, here and on a card.
 */
#include "aten.h"

#include <math.h>
#include <string.h>

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

/* The CPU's twin of gather_kv. */
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

/* Floats of keys that are gathered at once at most: 64 MiB. But never less than a segment. */
static const int64_t GATHERED = 1 << 24;

/* How many segments from the i-th on have one row and fit together, padded to the longest. */
static int32_t one_row_segments(const ares_attention_args *a, int32_t i, int64_t *longest)
{
    int32_t count = 0;
    *longest = 0;
    for (; i + count < a->seg.n; count++) {
        aten_seen g = aten_seen_by(a, i + count);
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

void aten_attention_paged(ares_device *d, const ares_attention_args *a)
{
    aten_attend_pieces(d, a, gather_kv);
    for (int32_t i = 0; i < a->seg.n;) {
        int64_t longest;
        int32_t count = one_row_segments(a, i, &longest);
        if (count > 0) attend_rows(d, a, i, count, longest);
        i += ARES_MAX(count, 1);
    }
}
