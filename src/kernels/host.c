/*
 * What all CPU tables share: the layout of weights and conversions of short floats; memory and
 * threads; how much scratch the kernels take; the segments of a packed batch; bytes that a
 * divided head sends.
 */
#include "host.h"

#include <string.h>

#include "ares/kernels.h"

/*
 * Weights between files (row-major, f32, bf16 or f16) and memory (rows, or panels of 32 outputs
 * with or without pairs of inputs), and the short floats.
 */

float kernels_bf16_to_f32(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
uint16_t kernels_f32_to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    /* NaN stays one: its upper bits alone might be those of an infinity */
    if (x != x) return (uint16_t)((u | 0x400000u) >> 16);
    /* to nearest; a tie goes to the even neighbour */
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
float kernels_f16_to_f32(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, rest = x & 0x7fffu, u;
    float f;
    if (rest >= 0x7c00u) { /* infinity, NaN */
        u = sign | 0x7f800000u | (rest & 0x3ffu) << 13;
    } else if (rest >= 0x400u) {
        u = sign | ((rest << 13) + (112u << 23));
    } else { /* a multiple of 2^-24 */
        f = (float)rest * 0x1p-24f;
        memcpy(&u, &f, sizeof u);
        u |= sign;
    }
    memcpy(&f, &u, sizeof f);
    return f;
}
uint16_t kernels_f32_to_f16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint32_t sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x3ffu));
    /* 65520 and above round to infinity */
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    /* below 2^-14: adding 1/2 leaves the multiple of 2^-24, to nearest even, in the low bits */
    if (mag < 0x38800000u) {
        float f;
        memcpy(&f, &mag, sizeof f);
        f += 0.5f;
        memcpy(&mag, &f, sizeof mag);
        return (uint16_t)(sign | (mag - 0x3f000000u));
    }
    return (uint16_t)(sign | ((mag + 0xfffu + (mag >> 13 & 1) - (112u << 23)) >> 13));
}

/* n numbers from element `at` on, as f32. */
static void load_row(float *out, const void *from, ares_dtype dtype, int64_t at, int64_t n)
{
    const uint16_t *h = (const uint16_t *)from + at;
    switch (dtype) {
    case ARES_F32: memcpy(out, (const float *)from + at, (size_t)n * sizeof(float)); break;
    case ARES_BF16:
        for (int64_t i = 0; i < n; i++) out[i] = kernels_bf16_to_f32(h[i]);
        break;
    case ARES_F16:
        for (int64_t i = 0; i < n; i++) out[i] = kernels_f16_to_f32(h[i]);
        break;
    }
}
/* The same back, rounded to nearest even. */
static void store_row(void *to, ares_dtype dtype, int64_t at, const float *in, int64_t n)
{
    uint16_t *h = (uint16_t *)to + at;
    switch (dtype) {
    case ARES_F32: memcpy((float *)to + at, in, (size_t)n * sizeof(float)); break;
    case ARES_BF16:
        for (int64_t i = 0; i < n; i++) h[i] = kernels_f32_to_bf16(in[i]);
        break;
    case ARES_F16:
        for (int64_t i = 0; i < n; i++) h[i] = kernels_f32_to_f16(in[i]);
        break;
    }
}

/*
 * A panel is transposed in blocks of 32 outputs by PIECE inputs, in a buffer that stays in the
 * first-level cache.
 */
enum { PIECE = 64 };

void ares_matrix_pack(const ares_matrix *w, const void *rows, ares_dtype rows_dtype)
{
    int64_t k = w->k, n = w->n;
    float row[PIECE], block[PIECE * 32];
    if (w->layout == ARES_ROWS) {
        for (int64_t at = 0; at < n * k; at += PIECE) {
            int64_t count = ARES_MIN(PIECE, n * k - at);
            load_row(row, rows, rows_dtype, at, count);
            store_row(w->data, w->dtype, at, row, count);
        }
        return;
    }
    int64_t inputs = ares_layout_inputs(w->layout, k);
    for (int64_t first = 0; first < n; first += 32)
        for (int64_t from = 0; from < k; from += PIECE) {
            int64_t count = ARES_MIN(PIECE, k - from);
            memset(block, 0, sizeof block);
            for (int64_t lane = 0; lane < ARES_MIN(32, n - first); lane++) {
                load_row(row, rows, rows_dtype, (first + lane) * k + from, count);
                for (int64_t i = 0; i < count; i++)
                    block[ares_matrix_at(w->layout, PIECE, lane, i)] = row[i];
            }
            store_row(w->data, w->dtype, first * inputs + from * 32, block,
                      ares_layout_inputs(w->layout, count) * 32);
        }
}

void ares_matrix_unpack(const ares_matrix *w, void *rows, ares_dtype rows_dtype)
{
    int64_t k = w->k, n = w->n;
    float row[PIECE], block[PIECE * 32];
    if (w->layout == ARES_ROWS) {
        for (int64_t at = 0; at < n * k; at += PIECE) {
            int64_t count = ARES_MIN(PIECE, n * k - at);
            load_row(row, w->data, w->dtype, at, count);
            store_row(rows, rows_dtype, at, row, count);
        }
        return;
    }
    /* panel by panel; lanes beyond the last output are padding and have no row */
    int64_t inputs = ares_layout_inputs(w->layout, k);
    for (int64_t first = 0; first < n; first += 32)
        for (int64_t from = 0; from < k; from += PIECE) {
            int64_t count = ARES_MIN(PIECE, k - from);
            load_row(block, w->data, w->dtype, first * inputs + from * 32,
                     ares_layout_inputs(w->layout, count) * 32);
            for (int64_t lane = 0; lane < ARES_MIN(32, n - first); lane++) {
                for (int64_t i = 0; i < count; i++)
                    row[i] = block[ares_matrix_at(w->layout, PIECE, lane, i)];
                store_row(rows, rows_dtype, (first + lane) * k + from, row, count);
            }
        }
}

/*
 * Memory and threads of a CPU device: scratch that is kept from call to call, and when it pays to
 * wake the other threads.
 */

/* One cache line per worker. */
typedef struct scratch_slot {
    void *p;
    size_t bytes;
    char pad[48];
} scratch_slot;
typedef struct scratch {
    int threads;
    /* [threads + 2]; the last are KERNELS_SHARED's and KERNELS_PACKED's */
    scratch_slot slot[];
} scratch;

void kernels_scratch_new(ares_device *d)
{
    int threads = ares_pool_threads(d->pool);
    scratch *s = ares_calloc(1, sizeof *s + ((size_t)threads + 2) * sizeof s->slot[0]);
    s->threads = threads;
    d->scratch = s;
}

void kernels_scratch_free(ares_device *d)
{
    scratch *s = d->scratch;
    for (int i = 0; i < s->threads + 2; i++) ares_pages_free(s->slot[i].p, s->slot[i].bytes);
    ares_free(s);
    d->scratch = NULL;
}

void *kernels_scratch(ares_device *d, int worker, size_t bytes)
{
    scratch *s = d->scratch;
    scratch_slot *slot = &s->slot[worker < 0 ? s->threads - 1 - worker : worker];
    ARES_ASSERT(worker >= KERNELS_PACKED && worker < s->threads);
    if (slot->bytes < bytes) {
        ares_pages_free(slot->p, slot->bytes);
        /* a quarter more, in whole 64 KiB: sizes that creep up do not allocate each time */
        slot->bytes = (bytes + bytes / 4 + 65535) / 65536 * 65536;
        slot->p = ares_pages_new(slot->bytes);
    }
    return slot->p;
}

/* A run of the pool costs about half a microsecond while its threads spin. */
static const double WORTH_WAKING_US = 2;

void kernels_run(ares_device *d, double work_us, int64_t tasks, ares_task_fn *fn, void *ctx)
{
    if (tasks > 1 && work_us >= WORTH_WAKING_US && ares_pool_threads(d->pool) > 1) {
        ares_pool_run(d->pool, tasks, fn, ctx);
        return;
    }
    for (int64_t i = 0; i < tasks; i++) fn(ctx, i, 0);
}

void *kernels_host_alloc(ares_device *d, size_t bytes)
{
    void *p = ares_pages_try(bytes);
    if (p) kernels_count(d, bytes, 0);
    return p;
}
void kernels_host_release(ares_device *d, void *p, size_t bytes)
{
    if (p) kernels_count(d, 0, bytes);
    ares_pages_free(p, bytes);
}
void kernels_host_copy(ares_device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    memmove(to, from, bytes);
}
/* block: pairs [from, to] of blocks of the cache, copied in every layer. */
void kernels_host_copy_blocks(ares_device *d, const ares_copy_blocks_args *a)
{
    for (int32_t i = 0; i < a->n; i++)
        for (int32_t l = 0; l < a->layers; l++) {
            char *layer = (char *)a->cache + l * a->layer_bytes;
            kernels_host_copy(d, layer + a->block[2 * i + 1] * (int64_t)a->block_bytes,
                              layer + a->block[2 * i] * (int64_t)a->block_bytes, a->block_bytes);
        }
}
void kernels_host_zero(ares_device *d, void *p, size_t bytes)
{
    (void)d;
    memset(p, 0, bytes);
}
void kernels_host_convert(ares_device *d, void *to, ares_dtype to_type, const void *from,
                          ares_dtype from_type, int64_t n)
{
    /* f16 is a type of files alone */
    ARES_ASSERT(to_type != ARES_F16 && from_type != ARES_F16);
    if (to_type == from_type) {
        kernels_host_copy(d, to, from, (size_t)n * ares_dtype_bytes(to_type));
        return;
    }
    if (to_type == ARES_F32)
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = kernels_bf16_to_f32(((const uint16_t *)from)[i]);
    else
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)to)[i] = kernels_f32_to_bf16(((const float *)from)[i]);
}
/* Kernels of the CPU have ended when they return. */
int kernels_host_sync(ares_device *d)
{
    (void)d;
    return ARES_OK;
}

/* What the CPU's kernels take beside a device's memory. */

size_t ares_kernels_scratch_bytes(const ares_scratch_args *a)
{
    int64_t chunks = ((int64_t)a->vocab + ARES_VOCAB_CHUNK - 1) / ARES_VOCAB_CHUNK,
            group = a->n_kv_heads ? a->n_heads / a->n_kv_heads : 0,
            sampled = ARES_MIN(a->sampled, SAMPLED_ROWS),
            filtered = a->filters ? ARES_MIN(sampled, scratch_filtered(a->vocab)) : 0;
    size_t shared = 0, own = 0;
    if (a->rows > 0 && chunks) {
        size_t back = !a->trained               ? 0
                      : a->fused && a->diverges ? scratch_diverging(a->rows, chunks)
                      : a->fused                ? scratch_head_fused(a->rows, chunks)
                                                : scratch_head_backward(a->rows, chunks);
        if (a->diverges) back = ARES_MAX(back, scratch_diverging(a->rows, chunks));
        shared = ARES_MAX(scratch_head(a->rows, chunks, a->ref), back);
        own = scratch_vocab_task(ARES_MIN(a->rows, VOCAB_ROWS), a->ref || a->diverges,
                                 a->packed_rows);
    }
    if (sampled > 0) {
        size_t lists = (size_t)(a->n_likely ? a->threads * sampled : 0);
        shared = ARES_MAX(shared, scratch_sample(sampled, chunks, filtered, a->vocab) +
                                      scratch_likely((int64_t)lists, a->n_likely));
        own =
            ARES_MAX(own, scratch_vocab_task(ARES_MIN(sampled, VOCAB_ROWS), false, a->packed_rows));
        if (a->filters) own = ARES_MAX(own, (size_t)a->vocab * sizeof(candidate));
    }
    /* the largest of what kernels take one after the other: they share the memory */
    shared = ARES_MAX(shared, scratch_attention(a->blocks, a->n_kv_heads, a->head_dim));
    if (a->trained) {
        own = ARES_MAX(own, scratch_panel(a->widest));
        own = ARES_MAX(own, scratch_attention_back(group, a->longest, a->head_dim));
    }
    if (a->k_dim)
        own = ARES_MAX(own, scratch_delta(a->k_dim, a->v_dim, a->v_per_key, a->trained, a->shares));
    /* of a product's backward, dy and x; they lie beside what is shared */
    if (a->packed_rows) {
        size_t packed = (a->trained ? 2 : 1) * scratch_packed(ARES_MIN(a->packed_rows, PACKED_ROWS),
                                                              a->packed_width, a->pair_words);
        if (a->rows > 0 && chunks && a->trained) { /* and of the head's, with logits for dy */
            int64_t rows = a->fused ? a->diverges ? scratch_diverging_rows(a->rows, chunks)
                                                  : scratch_fused_rows(a->rows, chunks)
                                    : ARES_MIN(a->rows, BACKWARD_ROWS),
                    width = a->fused ? a->vocab : scratch_backward_ld(rows, chunks) - LD_PAD;
            packed =
                ARES_MAX(packed, scratch_packed(rows, ARES_MIN(width, a->vocab), a->pair_words) +
                                     scratch_packed(rows, a->hidden, a->pair_words));
        }
        shared += packed;
    }
    return shared + (size_t)a->threads * own;
}

/* Sizes of the segments of a packed batch, and the rows of their keys. */

/* Length of the prefix of segment s, on the host. */
static int32_t prefix_of(const ares_segments *seg, int32_t s)
{
    return seg->host_prefix_len ? seg->host_prefix_len[s] : 0;
}

void ares_segments_measure(ares_segments *seg)
{
    seg->host_start = seg->start;
    seg->host_prefix_len = seg->prefix_len;
    seg->host_prefix_row = seg->prefix_row;
    seg->rows = seg->start[seg->n];
    seg->max_rows = seg->max_keys = seg->keys = 0;
    for (int32_t s = 0; s < seg->n; s++) {
        int32_t rows = seg->start[s + 1] - seg->start[s], keys = prefix_of(seg, s) + rows;
        seg->max_rows = ARES_MAX(seg->max_rows, rows);
        seg->max_keys = ARES_MAX(seg->max_keys, keys);
        seg->keys += keys;
    }
}

void ares_segments_list_keys(const ares_segments *seg, int32_t *key_start, int32_t *key_row)
{
    int32_t at = 0;
    for (int32_t s = 0; s < seg->n; s++) {
        key_start[s] = at;
        /* first the prompt's rows, which several segments may share, then its own */
        for (int32_t p = 0; p < prefix_of(seg, s); p++) key_row[at++] = seg->host_prefix_row[s] + p;
        for (int32_t r = seg->host_start[s]; r < seg->host_start[s + 1]; r++) key_row[at++] = r;
    }
    key_start[seg->n] = at;
}

/* Bytes that a rank of a divided head sends to the others; cpu/sample.c sends them. */

size_t ares_sample_sent_bytes(int32_t vocab, int32_t parts, int32_t n_likely, bool filtered)
{
    size_t tokens = (size_t)ares_vocab_part_first(vocab, parts, 1),
           chunks = (tokens + ARES_VOCAB_CHUNK - 1) / ARES_VOCAB_CHUNK;
    return chunks * sizeof(chunk_result) + (size_t)n_likely * sizeof(likely) +
           (filtered ? chunks * ARES_VOCAB_CHUNK * sizeof(float) : 0);
}
