/*
 * Attention over the paged cache of batches that mix rows alone (decoding) with pieces of prompts:
 * the aten table, whose code is the card's, against the native table of the CPU; and what a card
 * does of it, the gathering of keys, against plain loops. Seen to fail: with a window that begins
 * one key later, with rows alone attended to first, with groups without a limit, with a gathering
 * that starts at a whole block, and with sums of lengths that leave out a segment.
 */
#include "aten/aten.h"
#include "host.h"
#include "kernels_test.h"
#include "torch/scarce.h"

#include <stdlib.h>
#include <string.h>

enum { SEGMENTS = 8, STRIDE = 8, BLOCKS = 30, SLOTS = BLOCKS * ARES_KV_BLOCK };

/* The rows of each segment, and the keys before them. A segment may share blocks with the first. */
typedef struct batch {
    int32_t n, rows[SEGMENTS], prefix[SEGMENTS], shared[SEGMENTS]; /* shared: blocks */
} batch;
static const batch batches[] = {
    /* as planned: samples that run, then prompts; of one a part is in the cache */
    { 5, { 1, 1, 1, 40, 9 }, { 70, 31, 32, 0, 75 }, { 0 } },
    /* prompts with a common beginning, one of which lacks its last row only */
    { 4, { 33, 1, 7, 2 }, { 64, 64, 64, 95 }, { 0, 2, 2, 2 } },
    /* samples that lost their blocks between those that did not */
    { 8, { 5, 1, 1, 64, 1, 2, 1, 1 }, { 0, 9, 100, 30, 0, 62, 63, 127 }, { 0 } },
    { 2, { 3, 31 }, { 97, 1 }, { 0 } },
    { 3, { 1, 1, 1 }, { 0, 32, 90 }, { 0 } },
};
static const struct {
    int heads, kv_heads, dim, window;
} shapes[] = { { 6, 2, 16, 0 }, { 4, 1, 24, 20 }, { 3, 3, 8, 1 }, { 8, 2, 64, 64 } };

typedef struct problem {
    int32_t start[SEGMENTS + 1], table[SEGMENTS * STRIDE];
    int64_t wide, width; /* of a row of q, and of k */
    float *q, *k, *v;    /* k, v [SLOTS][width]: of every slot of the cache */
} problem;

static problem problem_new(const batch *b, int heads, int kv_heads, int dim, bool bf16)
{
    problem p = { .wide = heads * dim, .width = kv_heads * dim };
    int32_t next = 0;
    for (int32_t s = 0; s < b->n; s++) {
        p.start[s + 1] = p.start[s] + b->rows[s];
        for (int32_t c = 0; c * ARES_KV_BLOCK < b->prefix[s] + b->rows[s]; c++)
            p.table[s * STRIDE + c] = c < b->shared[s] ? p.table[c] : next++ * 7 % BLOCKS;
    }
    ARES_ASSERT(next <= BLOCKS);
    int64_t rows = p.start[b->n] * p.wide, keys = SLOTS * p.width;
    p.q = normals(1, rows, 1.0), p.k = normals(2, keys, 1.0), p.v = normals(3, keys, 1.0);
    for (int64_t i = 0; bf16 && i < rows; i++)
        p.q[i] = kernels_bf16_to_f32(kernels_f32_to_bf16(p.q[i]));
    for (int64_t i = 0; bf16 && i < keys; i++) {
        p.k[i] = kernels_bf16_to_f32(kernels_f32_to_bf16(p.k[i]));
        p.v[i] = kernels_bf16_to_f32(kernels_f32_to_bf16(p.v[i]));
    }
    return p;
}
static void problem_free(problem *p)
{
    float *all[] = { p->q, p->k, p->v };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
}

/* n numbers on the device in its type of activations, and back. */
static void *put(ares_device *d, const float *x, int64_t n)
{
    size_t bytes = (size_t)n * sizeof *x;
    void *to = d->k->alloc(d, bytes), *f32 = d->k->alloc(d, bytes);
    d->k->copy_in(d, f32, x, bytes);
    d->k->convert(d, to, d->k->act, f32, ARES_F32, n);
    d->k->release(d, f32, bytes);
    return to;
}
static float *get(ares_device *d, const void *x, int64_t n)
{
    size_t bytes = (size_t)n * sizeof(float);
    float *host = filled(n, NAN);
    void *f32 = d->k->alloc(d, bytes);
    d->k->convert(d, f32, ARES_F32, x, d->k->act, n);
    d->k->copy_out(d, host, f32, bytes);
    d->k->release(d, f32, bytes);
    return host;
}
static int32_t *put_ints(ares_device *d, const int32_t *x, int64_t n)
{
    int32_t *to = d->k->alloc(d, (size_t)n * sizeof *x);
    d->k->copy_in(d, to, x, (size_t)n * sizeof *x);
    return to;
}

/* What lies on a device: released together. */
typedef struct place {
    ares_segments seg;
    void *q, *cache, *out;
} place;

static place place_new(ares_device *d, const batch *b, const problem *p, int kv_heads, int dim)
{
    place at = {
        .seg = { .n = b->n, .start = p->start, .prefix_len = b->prefix, .table_stride = STRIDE }
    };
    ares_segments_measure(&at.seg);
    at.seg.start = put_ints(d, p->start, b->n + 1);
    at.seg.prefix_len = put_ints(d, b->prefix, b->n);
    at.seg.block_table = put_ints(d, p->table, SEGMENTS * STRIDE);
    float *blank = filled(at.seg.rows * p->wide, 77.0f);
    at.q = put(d, p->q, at.seg.rows * p->wide);
    at.out = put(d, blank, at.seg.rows * p->wide);
    ares_free(blank);
    at.cache = d->k->alloc(d, (size_t)(2 * SLOTS * p->width) * ares_dtype_bytes(d->k->act));
    int32_t all[SLOTS];
    for (int32_t i = 0; i < SLOTS; i++) all[i] = i;
    int32_t *slots = put_ints(d, all, SLOTS);
    void *k = put(d, p->k, SLOTS * p->width), *v = put(d, p->v, SLOTS * p->width);
    store_keys(d, SLOTS, kv_heads, dim, k, v, p->width, slots, at.cache);
    d->k->release(d, k, 0), d->k->release(d, v, 0), d->k->release(d, slots, 0);
    return at;
}
static void place_free(ares_device *d, place *at)
{
    void *all[] = { (void *)(uintptr_t)at->seg.start,
                    (void *)(uintptr_t)at->seg.prefix_len,
                    (void *)(uintptr_t)at->seg.block_table,
                    at->q,
                    at->cache,
                    at->out };
    for (int i = 0; i < ARES_COUNT(all); i++) d->k->release(d, all[i], 0);
}

static ares_attention_args attention_of(const place *at, int heads, int kv_heads, int dim,
                                        int window)
{
    return (ares_attention_args){ .seg = at->seg,
                                  .n_heads = heads,
                                  .n_kv_heads = kv_heads,
                                  .head_dim = dim,
                                  .scale = 1.0f / sqrtf((float)dim),
                                  .causal = true,
                                  .window = window,
                                  .q = at->q,
                                  .ldq = heads * dim,
                                  .cache = at->cache,
                                  .out = at->out,
                                  .ldo = heads * dim };
}

/* Computes one batch on a device; gives its out. */
typedef void attend_fn(ares_device *d, const ares_attention_args *a);
static float *attended(ares_device *d, attend_fn *attend, const batch *b, const problem *p,
                       int shape)
{
    place at = place_new(d, b, p, shapes[shape].kv_heads, shapes[shape].dim);
    ares_attention_args a = attention_of(&at, shapes[shape].heads, shapes[shape].kv_heads,
                                         shapes[shape].dim, shapes[shape].window);
    attend(d, &a);
    float *out = get(d, at.out, at.seg.rows * p->wide);
    place_free(d, &at);
    return out;
}
static void as_the_table_does(ares_device *d, const ares_attention_args *a)
{
    d->k->attention(d, a);
}

/*
 * Bounds: in f32 some ulps of numbers below 4; in bf16 the result is rounded, and each share before
 * it meets its value: 2^-8 of as much.
 */
static void check_against_native(ares_device *d, attend_fn *attend)
{
    ares_device cpu;
    bool bf16 = d->k->act == ARES_BF16;
    REQUIRE_OK(ares_device_open("cpu", 1, &cpu));
    for (int i = 0; i < ARES_COUNT(batches) * ARES_COUNT(shapes); i++) {
        const batch *b = &batches[i / ARES_COUNT(shapes)];
        int shape = i % ARES_COUNT(shapes);
        problem p =
            problem_new(b, shapes[shape].heads, shapes[shape].kv_heads, shapes[shape].dim, bf16);
        float *want = attended(&cpu, as_the_table_does, b, &p, shape),
              *got = attended(d, attend, b, &p, shape);
        double most = 0;
        for (int64_t j = 0; j < p.start[b->n] * p.wide; j++) {
            double error = fabs((double)got[j] - (double)want[j]);
            if (!(error <= most)) most = isnan(error) ? INFINITY : error;
        }
        CHECK_MSG(most < (bf16 ? 16e-3 : 3e-6), "batch %d, shape %d: off by %g",
                  i / ARES_COUNT(shapes), shape, most);
        ares_free(want), ares_free(got);
        problem_free(&p);
    }
    CHECK_OK(d->k->sync(d));
    ares_device_close(&cpu);
}

TEST(aten_attends_to_pieces_of_prompts_beside_rows_alone_as_the_native_table_does)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        ares_device d;
        REQUIRE_OK(ares_device_open_table("cpu", "aten", bf16 ? ARES_BF16 : ARES_F32, 1, &d));
        check_against_native(&d, as_the_table_does);
        ares_device_close(&d);
    }
}

/*
 * Three segments that see 24,000 keys each, of 512 numbers, where 65,536 may be gathered at once.
 * All their blocks are a few, again and again. Bound: sums of 24,000 f32 in two orders.
 */
TEST(aten_gathers_no_more_keys_at_once_than_the_limit)
{
    enum { KEYS = 24000, HEADS = 4, DIM = 128, WIDTH = HEADS * DIM, LONG = KEYS / 32, ROWS = 2 };
    static const int32_t rows[] = { ROWS, ROWS, ROWS }, prefix[] = { 23990, 23998, 23984 };
    float *out[2];
    batch b = { 3, { 0 }, { 0 }, { 0 } };
    problem p = problem_new(&b, HEADS, HEADS, DIM, false);
    float *q = normals(4, 3 * ROWS * WIDTH, 1.0);
    int32_t *table = ares_malloc(3 * LONG * sizeof *table), start[] = { 0, 2, 4, 6 };
    for (int32_t i = 0; i < 3 * LONG; i++) table[i] = i * 11 % BLOCKS;
    for (int native = 0; native < 2; native++) {
        ares_device d;
        REQUIRE_OK(ares_device_open_table("cpu", native ? "native" : "aten", ARES_F32, 1, &d));
        place at = place_new(&d, &b, &p, HEADS, DIM);
        ares_attention_args a = attention_of(&at, HEADS, HEADS, DIM, 0);
        out[native] = filled(3 * ROWS * WIDTH, NAN);
        a.seg = (ares_segments){ .n = ARES_COUNT(rows),
                                 .start = start,
                                 .prefix_len = prefix,
                                 .block_table = table,
                                 .table_stride = LONG };
        ares_segments_measure(&a.seg);
        a.q = q, a.out = out[native];
        scarce(0, 0); /* only counts */
        d.k->attention(&d, &a);
        if (!native) CHECK(scarce_largest() > 0 && scarce_largest() <= (4 << 25));
        CHECK_OK(d.k->sync(&d));
        place_free(&d, &at);
        ares_device_close(&d);
    }
    for (int i = 0; i < 3 * ROWS * WIDTH; i++)
        if (!CHECK_NEAR(out[0][i], out[1][i], 2e-5)) break;
    ares_free(out[0]), ares_free(out[1]), ares_free(q), ares_free(table);
    problem_free(&p);
}

/* ------------------------------------------------------------------ what a card does of it */

static bool card_open(ares_device *d, ares_dtype act)
{
    const char *required = getenv("ARES_REQUIRE_CUDA");
    int rc = ares_device_open_table("cuda", "native", act, 1, d);
    if (rc == ARES_OK || (required && *required)) return CHECK_OK(rc);
    test_skip(ares_error_message());
    return false;
}

/* Segments [first, first + n) of a batch: the lengths, and the gathered rows bit for bit. */
static void check_gathered(ares_device *d, const batch *b, int kv_heads, int dim, int window,
                           int32_t first, int32_t n)
{
    enum { BEYOND = 3 }; /* rows after the last key */
    problem p = problem_new(b, kv_heads, kv_heads, dim, d->k->act == ARES_BF16);
    place at = place_new(d, b, &p, kv_heads, dim);
    int32_t q_start[SEGMENTS + 1] = { 0 }, k_start[SEGMENTS + 1] = { 0 }, got[SEGMENTS + 1],
                               most = 0;
    int64_t all = SEGMENTS * STRIDE * ARES_KV_BLOCK * p.width, row = 0;
    float *k = filled(all, 77.0f), *v = filled(all, 77.0f);
    void *k_there = put(d, k, all), *v_there = put(d, v, all);
    for (int32_t i = 0; i < n; i++) {
        int32_t s = first + i, prefix = b->prefix[s],
                from = window && prefix >= window ? prefix + 1 - window : 0,
                keys = b->rows[s] > 1 ? prefix + b->rows[s] - from : 0;
        q_start[i + 1] = q_start[i] + b->rows[s];
        k_start[i + 1] = k_start[i] + keys;
        most = ARES_MAX(most, keys);
        for (int32_t j = from; j < from + keys; j++, row++) {
            int64_t slot =
                p.table[s * STRIDE + j / ARES_KV_BLOCK] * ARES_KV_BLOCK + j % ARES_KV_BLOCK;
            for (int64_t x = 0; x < p.width; x++) {
                k[row * p.width + x] = p.k[slot * p.width + x];
                v[row * p.width + x] = p.v[slot * p.width + x];
            }
        }
    }
    int32_t *q_there = put_ints(d, got, n + 1), *lengths = put_ints(d, got, n + 1);
    d->k->gather_kv(d, &(ares_gather_args){ .seg = at.seg,
                                            .first = first,
                                            .n = n,
                                            .most_keys = most,
                                            .window = window,
                                            .n_kv_heads = kv_heads,
                                            .head_dim = dim,
                                            .cache = at.cache,
                                            .k = k_there,
                                            .v = v_there,
                                            .q_start = q_there,
                                            .k_start = lengths });
    size_t bytes = (size_t)(n + 1) * sizeof *got;
    d->k->copy_out(d, got, q_there, bytes);
    CHECK_MEM(got, q_start, bytes);
    d->k->copy_out(d, got, lengths, bytes);
    CHECK_MEM(got, k_start, bytes);
    int64_t checked = ARES_MIN((row + BEYOND) * p.width, all);
    float *have_k = get(d, k_there, checked), *have_v = get(d, v_there, checked);
    CHECK_MEM(have_k, k, (size_t)checked * sizeof *k);
    CHECK_MEM(have_v, v, (size_t)checked * sizeof *v);
    void *there[] = { k_there, v_there, q_there, lengths };
    for (int i = 0; i < ARES_COUNT(there); i++) d->k->release(d, there[i], 0);
    float *host[] = { k, v, have_k, have_v };
    for (int i = 0; i < ARES_COUNT(host); i++) ares_free(host[i]);
    place_free(d, &at);
    problem_free(&p);
}

TEST_GPU(keys_of_pieces_are_gathered_from_their_blocks_bit_for_bit)
{
    /* rows of 16 bytes and of others */
    static const int dims[] = { 16, 24, 6, 2 }, windows[] = { 0, 1, 20, 64 };
    for (int bf16 = 0; bf16 < 2; bf16++) {
        ares_device d;
        if (!card_open(&d, bf16 ? ARES_BF16 : ARES_F32)) return;
        for (int i = 0; i < ARES_COUNT(batches) * 4; i++) {
            const batch *b = &batches[i / 4];
            check_gathered(&d, b, 1 + i % 3, dims[i % 4], windows[i / 4 % 4], 0, b->n);
            check_gathered(&d, b, 2, dims[i / 4 % 4], windows[i % 4], 1, b->n - 1);
        }
        CHECK_OK(d.k->sync(&d));
        ares_device_close(&d);
    }
}

TEST_GPU(rows_alone_leave_the_rows_of_pieces_as_they_are)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        ares_device d;
        if (!card_open(&d, bf16 ? ARES_BF16 : ARES_F32)) return;
        for (int i = 0; i < ARES_COUNT(batches); i++) {
            const batch *b = &batches[i];
            problem p = problem_new(b, 6, 2, 16, bf16);
            float *want = attended(&d, as_the_table_does, b, &p, 0);
            place at = place_new(&d, b, &p, 2, 16);
            ares_attention_args a = attention_of(&at, 6, 2, 16, 0);
            a.rows_alone = true;
            d.k->attention(&d, &a);
            float *got = get(&d, at.out, at.seg.rows * p.wide);
            for (int32_t s = 0; s < b->n; s++)
                for (int64_t j = p.start[s] * p.wide; j < p.start[s + 1] * p.wide; j++)
                    if (!CHECK_NEAR(got[j], b->rows[s] == 1 ? want[j] : 77.0f, 0)) break;
            ares_free(want), ares_free(got);
            place_free(&d, &at);
            problem_free(&p);
        }
        CHECK_OK(d.k->sync(&d));
        ares_device_close(&d);
    }
}

/* ---------------- both together, on the emulator, whose kernels write memory of the host, too */

static void gather_and_wait(ares_device *d, const ares_gather_args *a)
{
    aten_under(d)->gather_kv(d, a);
    (void)aten_under(d)->sync(d);
}
static void as_a_card_does(ares_device *d, const ares_attention_args *a)
{
    size_t bytes = (size_t)(a->seg.rows * a->ldq) * ares_dtype_bytes(d->k->act);
    ares_attention_args pieces = *a, alone = *a;
    void *q = ares_malloc(bytes);
    d->k->copy_out(d, q, a->q, bytes);
    pieces.q = q;
    pieces.out = ares_calloc(1, bytes);
    aten_attend_pieces(d, &pieces, gather_and_wait);
    d->k->copy_in(d, a->out, pieces.out, bytes);
    alone.rows_alone = true;
    d->k->attention(d, &alone);
    ares_free(q), ares_free(pieces.out);
}

void ares_aten_close(ares_device *d);

TEST_GPU(pieces_by_libtorch_and_rows_alone_by_the_card_agree_with_the_native_table)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        ares_device d;
        if (!card_open(&d, bf16 ? ARES_BF16 : ARES_F32)) return;
        void (*allow_host)(bool) = NULL;
        *(void **)&allow_host = ares_device_symbol(&d, "ares_emulate_allow_host");
        if (!allow_host) {
            ares_device_close(&d);
            SKIP("a card's kernels do not write memory of the host; the emulator's do");
        }
        allow_host(true);
        int index = d.index;
        aten_put_on(&d);
        d.index = -1; /* where libtorch computes */
        check_against_native(&d, as_a_card_does);
        d.index = index;
        ares_aten_close(&d);
        ares_device_close(&d);
    }
}
