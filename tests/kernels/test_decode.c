/*
 * Decoding on a card: rows alone on the paged cache, among pieces of prompts, against plain f64
 * loops over the same numbers, in f32 and in bf16. Seen to fail: with a merge that leaves out the
 * last chunk, with values beyond the last key that are not zeroed.
 */
#include "host.h"
#include "kernels_test.h"

#include <stdlib.h>
#include <string.h>

static bool card_open_as(ares_device *d, ares_dtype act)
{
    const char *required = getenv("ARES_REQUIRE_CUDA");
    int rc = ares_device_open_table("cuda", "native", act, 1, d);
    if (rc == ARES_OK || (required && *required)) return CHECK_OK(rc);
    test_skip(ares_error_message());
    return false;
}
static bool card_open(ares_device *d)
{
    return card_open_as(d, ARES_F32);
}

enum { SEGMENTS = 7 };
/* Keys before a segment's rows, and its rows. */
typedef struct lengths {
    int keys_max, stride,
        blocks; /* stride: of the block table; blocks: a number without factor 37 */
    int prefix[SEGMENTS], own[SEGMENTS];
} lengths;
static const lengths of_some_chunks = { 700,
                                        24,
                                        120,
                                        { 0, 5, 255, 40, 256, 600, 511 },
                                        { 1, 1, 1, 7, 1, 1, 1 } },
                     /* 8,192 keys are 32 runs of 4 parts; of more keys, runs have more */
    of_long_rows = {
        17000, 532, 1500, { 8192, 5, 8191, 40, 9300, 600, 16895 }, { 1, 1, 1, 7, 1, 1, 1 }
    };
typedef struct problem {
    const lengths *of;
    int heads, kv_heads, dim, window, rows, start[SEGMENTS + 1];
    float *q, *k, *v, *want; /* q, want [rows][heads dim]; k, v [segments][keys_max][kv dim] */
    int32_t *table;          /* [segments][stride] */
} problem;

/* As stored in bf16, where `bf16`. */
static void rounded(float *x, int64_t n, bool bf16)
{
    for (int64_t i = 0; bf16 && i < n; i++) x[i] = kernels_bf16_to_f32(kernels_f32_to_bf16(x[i]));
}

static void reference(problem *p)
{
    const int *prefix = p->of->prefix, *own = p->of->own, keys_max = p->of->keys_max;
    double *prob = ares_malloc((size_t)keys_max * sizeof *prob);
    for (int s = 0; s < SEGMENTS; s++)
        for (int i = 0; i < own[s]; i++)
            for (int h = 0; h < p->heads; h++) {
                int at = prefix[s] + i,
                    from = p->window && at >= p->window ? at + 1 - p->window : 0;
                const float *q = p->q + ((int64_t)(p->start[s] + i) * p->heads + h) * p->dim;
                int64_t kv = h / (p->heads / p->kv_heads), width = p->kv_heads * p->dim;
                const float *k = p->k + s * keys_max * width + kv * p->dim,
                            *v = p->v + s * keys_max * width + kv * p->dim;
                double max = -INFINITY, sum = 0;
                for (int j = from; j <= at; j++) {
                    prob[j] = 0;
                    for (int d = 0; d < p->dim; d++) prob[j] += (double)q[d] * k[j * width + d];
                    prob[j] /= sqrt(p->dim);
                    max = fmax(max, prob[j]);
                }
                for (int j = from; j <= at; j++) sum += prob[j] = exp(prob[j] - max);
                for (int d = 0; d < p->dim; d++) {
                    double out = 0;
                    for (int j = from; j <= at; j++) out += prob[j] / sum * v[j * width + d];
                    p->want[((int64_t)(p->start[s] + i) * p->heads + h) * p->dim + d] = (float)out;
                }
            }
    ares_free(prob);
}

static problem problem_new(const lengths *of, int heads, int kv_heads, int dim, int window,
                           bool bf16)
{
    problem p = { .of = of, .heads = heads, .kv_heads = kv_heads, .dim = dim, .window = window };
    const int *prefix = of->prefix, *own = of->own;
    int next = 0;
    p.table = ares_calloc((size_t)(SEGMENTS * of->stride), sizeof *p.table);
    for (int s = 0; s < SEGMENTS; s++) {
        p.start[s + 1] = p.start[s] + own[s];
        for (int c = 0; c * ARES_KV_BLOCK < prefix[s] + own[s]; c++)
            p.table[s * of->stride + c] = next++ * 37 % of->blocks;
    }
    ARES_ASSERT(next <= of->blocks);
    p.rows = p.start[SEGMENTS];
    int64_t wide = (int64_t)p.rows * heads * dim,
            keys = (int64_t)SEGMENTS * of->keys_max * kv_heads * dim;
    p.q = normals(1, wide, 1.0), p.k = normals(2, keys, 1.0), p.v = normals(3, keys, 1.0);
    rounded(p.q, wide, bf16), rounded(p.k, keys, bf16), rounded(p.v, keys, bf16);
    p.want = filled(wide, NAN);
    reference(&p);
    return p;
}

/* n numbers on the device in its type of activations. */
static void *put(ares_device *d, const float *x, int64_t n)
{
    void *to = d->k->alloc(d, (size_t)n * sizeof(float)), *wide = d->k->alloc(d, (size_t)n * 4);
    d->k->copy_in(d, wide, x, (size_t)n * sizeof(float));
    d->k->convert(d, to, d->k->act, wide, ARES_F32, n);
    d->k->release(d, wide, (size_t)n * sizeof(float));
    return to;
}
static int32_t *put_ints(ares_device *d, const int32_t *x, int n)
{
    int32_t *to = d->k->alloc(d, (size_t)n * sizeof *x);
    d->k->copy_in(d, to, x, (size_t)n * sizeof *x);
    return to;
}

/* Segments whose arrays are the host's, with their queries; out: their rows. */
static void attend_segments(ares_device *d, const problem *p, void *cache, ares_segments seg,
                            const float *q, float *out)
{
    int64_t width = (int64_t)p->heads * p->dim, wide = seg.rows * width;
    ares_segments_measure(&seg);
    seg.start = put_ints(d, seg.start, seg.n + 1);
    seg.prefix_len = put_ints(d, seg.prefix_len, seg.n);
    seg.block_table = put_ints(d, seg.block_table, seg.n * (int)seg.table_stride);
    float *blank = filled(wide, 77.0f);
    void *query = put(d, q, wide), *there = put(d, blank, wide);
    d->k->attention(d, &(ares_attention_args){ .seg = seg,
                                               .n_heads = p->heads,
                                               .n_kv_heads = p->kv_heads,
                                               .head_dim = p->dim,
                                               .scale = 1.0f / sqrtf((float)p->dim),
                                               .causal = true,
                                               .window = p->window,
                                               .q = query,
                                               .ldq = width,
                                               .cache = cache,
                                               .out = there,
                                               .ldo = width });
    float *f32 = d->k->alloc(d, (size_t)wide * sizeof(float));
    d->k->convert(d, f32, ARES_F32, there, d->k->act, wide);
    d->k->copy_out(d, out, f32, (size_t)wide * sizeof(float));
    void *all[] = { (void *)(uintptr_t)seg.start,
                    (void *)(uintptr_t)seg.prefix_len,
                    (void *)(uintptr_t)seg.block_table,
                    query,
                    there,
                    f32 };
    for (int i = 0; i < ARES_COUNT(all); i++) d->k->release(d, all[i], 0);
    ares_free(blank);
}

/* Segments [from, to) of the problem, in `out`. */
static void attend(ares_device *d, const problem *p, void *cache, int from, int to, float *out)
{
    int32_t start[SEGMENTS + 1];
    for (int i = 0; i <= to - from; i++) start[i] = p->start[from + i] - p->start[from];
    attend_segments(d, p, cache,
                    (ares_segments){ .n = to - from,
                                     .rows = start[to - from],
                                     .start = start,
                                     .prefix_len = p->of->prefix + from,
                                     .block_table = p->table + from * p->of->stride,
                                     .table_stride = p->of->stride },
                    p->q + (int64_t)p->start[from] * p->heads * p->dim, out);
}

static void *fill_cache(ares_device *d, const problem *p)
{
    const int *prefix = p->of->prefix, *own = p->of->own, keys_max = p->of->keys_max,
              stride = p->of->stride;
    int64_t width = (int64_t)p->kv_heads * p->dim;
    int32_t *slots = ares_malloc((size_t)keys_max * sizeof *slots);
    size_t bytes =
        (size_t)(p->of->blocks * 2 * ARES_KV_BLOCK * width) * ares_dtype_bytes(d->k->act);
    void *cache = d->k->alloc(d, bytes);
    /* what an earlier use of the memory may have left where no key is: NaN in either type */
    char *nan = ares_malloc(bytes);
    memset(nan, 0xff, bytes);
    d->k->copy_in(d, cache, nan, bytes);
    ares_free(nan);
    for (int s = 0; s < SEGMENTS; s++) {
        int n = prefix[s] + own[s];
        for (int j = 0; j < n; j++)
            slots[j] = p->table[s * stride + j / ARES_KV_BLOCK] * ARES_KV_BLOCK + j % ARES_KV_BLOCK;
        void *k = put(d, p->k + s * keys_max * width, n * width),
             *v = put(d, p->v + s * keys_max * width, n * width);
        int32_t *there = put_ints(d, slots, n);
        store_keys(d, n, p->kv_heads, p->dim, k, v, width, there, cache);
        d->k->release(d, k, 0), d->k->release(d, v, 0), d->k->release(d, there, 0);
    }
    ares_free(slots);
    return cache;
}

/* All segments together against the reference, and each alone against all together. */
static void check_rows(ares_device *d, problem *p, double bound)
{
    int64_t width = (int64_t)p->heads * p->dim, wide = p->rows * width;
    float *out = filled(wide, NAN), *again = filled(wide, NAN);
    void *cache = fill_cache(d, p);
    attend(d, p, cache, 0, SEGMENTS, out);
    double most = 0;
    for (int64_t j = 0; j < wide; j++) {
        double error = fabs((double)out[j] - (double)p->want[j]);
        if (!(error <= most)) most = isnan(error) ? INFINITY : error;
    }
    CHECK_MSG(most < bound, "%d heads of %d, window %d, %s: off by %g", p->heads, p->dim, p->window,
              d->k->act == ARES_BF16 ? "bf16" : "f32", most);
    for (int s = 0; s < SEGMENTS; s++) attend(d, p, cache, s, s + 1, again + p->start[s] * width);
    CHECK_MEM(again, out, (size_t)wide * sizeof(float));
    float *all[] = { p->q, p->k, p->v, p->want, out, again };
    for (int j = 0; j < ARES_COUNT(all); j++) ares_free(all[j]);
    ares_free(p->table);
    d->k->release(d, cache, 0);
    CHECK_OK(d->k->sync(d));
}

typedef struct shape {
    int heads, kv_heads, dim, window;
} shape;

/*
 * In f32 and in bf16. Bounds: in f32 some ulps of a sum over 600 keys. In bf16 the result is
 * rounded (2^-9 of it), and on tensor cores each share before it meets its value (2^-9 of a mean of
 * |v|, below 1): 8e-3.
 */
static void check_shapes(const lengths *of, const shape *shapes, int n)
{
    ares_device d;
    for (int i = 0; i < 2 * n; i++) {
        const shape *s = &shapes[i / 2];
        bool bf16 = i % 2;
        if (!card_open_as(&d, bf16 ? ARES_BF16 : ARES_F32)) return;
        problem p = problem_new(of, s->heads, s->kv_heads, s->dim, s->window, bf16);
        check_rows(&d, &p, bf16 ? 8e-3 : 3e-6);
        ares_device_close(&d);
    }
}

TEST_GPU(rows_alone_on_the_cache_agree_with_an_f64_reference_in_any_batch)
{
    static const shape shapes[] = {
        { 14, 2, 64, 0 }, { 4, 4, 16, 0 }, { 20, 1, 24, 300 }, { 3, 1, 128, 40 }
    };
    check_shapes(&of_some_chunks, shapes, ARES_COUNT(shapes));
}

/*
 * Rows whose keys are more than 32 runs of 4 parts: beside short ones and
 * alone, with a window that begins inside a part, too. Seen to fail with runs as long as the
 * batch's longest row makes them, and where a run's outputs are not scaled to a later maximum.
 */
TEST_GPU(rows_of_many_parts_agree_with_an_f64_reference_in_any_batch)
{
    static const shape shapes[] = { { 4, 2, 16, 0 }, { 2, 1, 24, 0 }, { 2, 1, 16, 8500 } };
    check_shapes(&of_long_rows, shapes, ARES_COUNT(shapes));
}

/*
 * n rows that decode, each of which reads the keys of a segment of the problem. keys: before each
 * row; tables [n]: whose; q, out [n][heads dim]
 */
static void attend_rows(ares_device *d, const problem *p, void *cache, int n, const int32_t *keys,
                        const int *tables, const float *q, float *out)
{
    int32_t *start = ares_malloc(((size_t)n + 1) * sizeof *start), stride = p->of->stride,
            *table = ares_malloc((size_t)(n * stride) * sizeof *table);
    for (int r = 0; r <= n; r++) start[r] = r;
    for (int r = 0; r < n; r++)
        memcpy(table + r * stride, p->table + tables[r] * stride, (size_t)stride * sizeof *table);
    attend_segments(d, p, cache,
                    (ares_segments){ .n = n,
                                     .rows = n,
                                     .start = start,
                                     .prefix_len = keys,
                                     .block_table = table,
                                     .table_stride = stride },
                    q, out);
    ares_free(start), ares_free(table);
}

/*
 * Where rows are few a thread block has one part of 64 keys, and the last one adds those of a run;
 * in a large batch it has the whole run, of several rows where these have the same keys. In both
 * types, on tensor cores with every number of columns per warp and without; with 1, 2, 3, 4, 7 and
 * 14 query heads per KV head. Neighbours read one table, two, or two that differ in one block, and
 * see all of a run or a part. Seen to fail where tables, or their first entries alone, are taken
 * for equal, where runs that are not whole are shared, where a window's first key or a run's end is
 * not compared, where a row has the runs of the one before it, and where the block that adds a
 * run's parts begins with the second.
 */
TEST_GPU(a_row_has_the_bits_in_a_large_batch_that_it_has_alone)
{
    static const shape shapes[] = { { 14, 2, 64, 0 }, { 2, 1, 128, 0 }, { 3, 1, 256, 333 },
                                    { 4, 2, 32, 0 },  { 14, 1, 64, 0 }, { 4, 4, 16, 300 },
                                    { 4, 1, 16, 0 },  { 2, 1, 24, 0 } };
    /* of segments 5 and 6: 10 and 8 parts, 3 and 2 runs, and fewer; 265 blocks are many */
    static const int32_t lengths[2][4] = { { 575, 600, 590, 300 }, { 511, 511, 255, 256 } };
    enum { MOST = 93, MIXED = 0 };
    for (int i = 0; i <= ARES_COUNT(shapes); i++) {
        const shape *h = &shapes[i ? i - 1 : ARES_COUNT(shapes) - 1];
        int many = h->kv_heads == 1 ? MOST : (MOST + 1) / 2, tables[MOST];
        ares_device d;
        if (!card_open_as(&d, i ? ARES_BF16 : ARES_F32)) return;
        problem p = problem_new(&of_some_chunks, h->heads, h->kv_heads, h->dim, h->window, i > 0);
        int64_t width = (int64_t)p.heads * p.dim;
        int32_t keys[MOST];
        float *q = normals(11, many * width, 1.0), *out = filled(many * width, NAN),
              *alone = filled(width, NAN);
        for (int r = 0; r < many; r++) {
            int kind = r / 7 % 3, other = kind == 1;
            tables[r] = other ? 6 : kind == 2 && r % 2 ? MIXED : 5; /* 7 rows of a table, and 8 */
            keys[r] = lengths[other][r < many / 2 ? r % 4 : 0];
        }
        void *cache = fill_cache(&d, &p);
        int32_t stride = p.of->stride, *mixed = p.table + MIXED * stride;
        memcpy(mixed, p.table + 5 * stride, (size_t)stride * sizeof *mixed);
        mixed[5] = p.table[6 * stride + 5]; /* a block inside the first run */
        attend_rows(&d, &p, cache, many, keys, tables, q, out);
        for (int r = 0; r < many; r += r < 28 ? 1 : 5) {
            attend_rows(&d, &p, cache, 1, keys + r, tables + r, q + r * width, alone);
            if (!CHECK_MEM(out + r * width, alone, (size_t)width * sizeof *out)) break;
        }
        float *all[] = { p.q, p.k, p.v, p.want, q, out, alone };
        for (int j = 0; j < ARES_COUNT(all); j++) ares_free(all[j]);
        ares_free(p.table);
        ares_device_close(&d);
    }
}

/*
 * Two rows of 7 query heads per KV head that have the same 512 keys bring them once. Of 511 keys
 * those of the last run, which is not whole, are brought by each.
 */
TEST_GPU(rows_with_the_same_keys_bring_them_once_per_16_query_heads)
{
    enum { MANY = 68, BYTES = 2 * 64 * 2 * 2 }; /* of a key and its value, of 2 KV heads */
    ares_device d;
    int64_t (*count)(const char *, const char *);
    if (!card_open_as(&d, ARES_BF16)) return;
    *(void **)&count = ares_device_symbol(&d, "ares_emulate_count");
    if (!count) {
        ares_device_close(&d);
        SKIP("a card does not count what its kernels read; the emulator does");
    }
    problem p = problem_new(&of_some_chunks, 14, 2, 64, 0, true);
    int64_t width = (int64_t)p.heads * p.dim, brought[3];
    float *q = normals(11, MANY * width, 1.0), *out = filled(MANY * width, NAN);
    void *cache = fill_cache(&d, &p);
    for (int i = 0; i < 3; i++) { /* two tables by turns, one; one with a key less */
        int32_t keys[MANY];
        int tables[MANY];
        for (int r = 0; r < MANY; r++) {
            keys[r] = 511 - (i == 2);
            tables[r] = i || r % 2 ? 6 : 5;
        }
        int64_t before = count("brought bytes", NULL);
        attend_rows(&d, &p, cache, MANY, keys, tables, q, out);
        brought[i] = count("brought bytes", NULL) - before;
    }
    CHECK_EQ(brought[0], MANY * 512 * BYTES);
    CHECK_EQ(brought[1], MANY / 2 * 512 * BYTES);
    CHECK_EQ(brought[2], (MANY / 2 * 256 + MANY * 255) * BYTES);
    float *all[] = { p.q, p.k, p.v, p.want, q, out };
    for (int j = 0; j < ARES_COUNT(all); j++) ares_free(all[j]);
    ares_free(p.table);
    ares_device_close(&d);
}

/*
 * Of the whole device, which only the emulator tells to the byte: 32 runs per row and head, however
 * long a row is, and a quarter more; rows are enough for a block per run. Seen to fail with a run
 * per 4 parts, 66 of them.
 */
TEST_GPU(what_runs_of_keys_leave_for_their_merge_does_not_grow_with_the_longest_row)
{
    enum { DIM = 64, HEADS = 16 };
    ares_device d;
    if (!card_open(&d)) return;
    if (!ares_device_symbol(&d, "ares_emulate_count")) {
        ares_device_close(&d);
        SKIP("a card does not tell its memory to the byte; the emulator does");
    }
    problem p = problem_new(&of_long_rows, HEADS, 2, DIM, 0, false);
    float *out = filled((int64_t)p.rows * HEADS * DIM, NAN);
    void *cache = fill_cache(&d, &p);
    CHECK_OK(d.k->sync(&d)); /* what has been released is given back */
    double grown = -ares_device_memory_bytes(&d), left = SEGMENTS * HEADS * 32 * (DIM + 2) * 4;
    attend(&d, &p, cache, 0, SEGMENTS, out);
    CHECK_OK(d.k->sync(&d));
    grown += ares_device_memory_bytes(&d);
    CHECK_MSG(grown < 1.5 * left, "%.0f bytes, and %.0f are left for the merge", grown, left);
    float *all[] = { p.q, p.k, p.v, p.want, out };
    for (int j = 0; j < ARES_COUNT(all); j++) ares_free(all[j]);
    ares_free(p.table);
    d.k->release(&d, cache, 0);
    ares_device_close(&d);
}

/* ------------------------------------------------------------------ what lies before it */

enum { ROWS = 5, SLOTS = 3 * ARES_KV_BLOCK };
typedef struct heads {
    int q, kv, dim;
    bool bias, norm, plus_one, still; /* still: without rotation */
    bool of_v;                        /* only v has a bias */
} heads;

/*
 * Rows [q, k, v] as the kernels that do each step alone leave them, which training calls: those of
 * the CPU, rounded after each step where `bf16`.
 */
static void step_by_step(const heads *h, bool bf16, float *x, const float *bias, const float *norm,
                         const float *angles)
{
    ares_device cpu;
    int64_t wide = (h->q + 2 * h->kv) * h->dim, n = ROWS * wide;
    REQUIRE_OK(ares_device_open("cpu", 1, &cpu));
    for (int64_t i = 0; h->bias && i < n; i++)
        if (!h->of_v || i % wide >= (h->q + h->kv) * h->dim) x[i] += bias[i % wide];
    rounded(x, n, bf16);
    for (int k = 0; h->norm && k < 2; k++) {
        int count = k ? h->kv : h->q;
        float *at = x + (k ? h->q * h->dim : 0);
        cpu.k->rms_norm(&cpu, &(ares_rms_norm_args){ .rows = ROWS * count,
                                                     .k = h->dim,
                                                     .heads = count,
                                                     .x = at,
                                                     .ldx = wide,
                                                     .w = norm + k * h->dim,
                                                     .plus_one = h->plus_one,
                                                     .eps = 1e-6f,
                                                     .y = at,
                                                     .ldy = wide });
    }
    rounded(x, n, bf16);
    cpu.k->rope(&cpu, ROWS, h->q + h->kv, h->dim, 0, x, wide, h->still ? NULL : angles, false);
    rounded(x, n, bf16);
    ares_device_close(&cpu);
}

/*
 * Bounds: in f32 some ulps of numbers below 8; in bf16 a step that the card rounds to the other
 * neighbour (2^-8 of it), met by a rotation: 1/64 of the largest. Seen to fail without the bias of
 * v, and with the norm of q at the heads of k.
 */
TEST_GPU(bias_norms_rotation_and_store_in_one_launch_are_the_steps_one_by_one)
{
    static const heads cases[] = { { 4, 2, 64, .bias = true },
                                   { 6, 2, 128, .bias = true, .norm = true },
                                   { 3, 3, 16, .norm = true },
                                   { .q = 5, .kv = 1, .dim = 24 },
                                   { 4, 2, 64, .bias = true, .norm = true, .plus_one = true },
                                   { 4, 1, 32, .norm = true, .still = true },
                                   { 3, 1, 64, .bias = true, .of_v = true, .still = true },
                                   { 3, 1, 64, .bias = true, .of_v = true } };
    static const int32_t slots[ROWS] = { 3, 95, 32, 64, 31 };
    for (int i = 0; i < 2 * ARES_COUNT(cases); i++) {
        const heads *h = &cases[i / 2];
        bool bf16 = i % 2;
        ares_device d;
        if (!card_open(&d)) return;
        const ares_kernels *f32 = d.k;
        ares_kernels table = *f32;
        table.act = bf16 ? ARES_BF16 : ARES_F32;
        d.k = &table;
        int64_t q = h->q * h->dim, kv = h->kv * h->dim, wide = q + 2 * kv, n = ROWS * wide,
                cached = 2 * SLOTS * kv;
        float *x = normals(11, n, 1.5), *bias = normals(12, wide, 1.0),
              *norm = normals(13, 2 * h->dim, 0.3), *angles = filled(ROWS * h->dim, 0),
              *got = filled(n, NAN), *cache = filled(cached, NAN);
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < h->dim / 2; j++) {
                angles[r * h->dim + j] = cosf((float)(r * (j + 1)));
                angles[r * h->dim + h->dim / 2 + j] = sinf((float)(r * (j + 1)));
            }
        for (int j = 0; j < 2 * h->dim && !h->plus_one; j++) norm[j] += 1.0f;
        rounded(x, n, bf16), rounded(bias, wide, bf16);
        char *rows = put(&d, x, n), *added = put(&d, bias, wide), *kept = put(&d, cache, cached);
        size_t each = ares_dtype_bytes(d.k->act), angle_bytes = (size_t)(ROWS * h->dim) * 4,
               norm_bytes = (size_t)(2 * h->dim) * 4;
        float *turned = d.k->alloc(&d, angle_bytes), *weights = d.k->alloc(&d, norm_bytes),
              *wide_rows = d.k->alloc(&d, (size_t)n * 4),
              *wide_cache = d.k->alloc(&d, (size_t)cached * 4);
        int32_t *there = put_ints(&d, slots, ROWS);
        d.k->copy_in(&d, turned, angles, angle_bytes);
        d.k->copy_in(&d, weights, norm, norm_bytes);
        d.k->rope_store(&d, &(ares_rope_store_args){
                                .rows = ROWS,
                                .n_heads = h->q,
                                .n_kv_heads = h->kv,
                                .head_dim = h->dim,
                                .qkv = rows,
                                .ld = wide,
                                .q_bias = h->bias && !h->of_v ? added : NULL,
                                .k_bias = h->bias && !h->of_v ? added + (size_t)q * each : NULL,
                                .v_bias = h->bias ? added + (size_t)(q + kv) * each : NULL,
                                .q_norm = h->norm ? weights : NULL,
                                .k_norm = h->norm ? weights + h->dim : NULL,
                                .plus_one = h->plus_one,
                                .eps = 1e-6f,
                                .cos_sin = h->still ? NULL : turned,
                                .slots = there,
                                .cache = kept });
        d.k->convert(&d, wide_rows, ARES_F32, rows, d.k->act, n);
        d.k->convert(&d, wide_cache, ARES_F32, kept, d.k->act, cached);
        d.k->copy_out(&d, got, wide_rows, (size_t)n * 4);
        d.k->copy_out(&d, cache, wide_cache, (size_t)cached * 4);
        step_by_step(h, bf16, x, bias, norm, angles);
        double off = 0, most = 0;
        for (int r = 0; r < ROWS; r++)
            for (int64_t j = 0; j < wide; j++) {
                int64_t of_v = j >= q + kv, head = j < q ? 0 : (j - q) / h->dim % h->kv;
                const float *block =
                    cache + (slots[r] / ARES_KV_BLOCK * h->kv + head) * 2 * ARES_KV_BLOCK * h->dim;
                float have =
                    j < q ? got[r * wide + j]
                          : block[(of_v * ARES_KV_BLOCK + slots[r] % ARES_KV_BLOCK) * h->dim +
                                  j % h->dim];
                double error = fabs((double)have - (double)x[r * wide + j]);
                if (!(error <= off)) off = isnan(error) ? INFINITY : error;
                most = fmax(most, fabs(x[r * wide + j]));
            }
        CHECK_MSG(off <= most * (bf16 ? 1.0 / 64 : 1e-6), "%d heads of %d, %s: off by %g of %g",
                  h->q, h->dim, bf16 ? "bf16" : "f32", off, most);
        void *on[] = { rows, added, kept, turned, weights, wide_rows, wide_cache, there };
        for (int j = 0; j < ARES_COUNT(on); j++) d.k->release(&d, on[j], 0);
        float *all[] = { x, bias, norm, angles, got, cache };
        for (int j = 0; j < ARES_COUNT(all); j++) ares_free(all[j]);
        CHECK_OK(d.k->sync(&d));
        d.k = f32;
        ares_device_close(&d);
    }
}

/* ------------------------------------------------------------------ biases */

/* n numbers on the device, as f32 on the host. */
static float *taken(ares_device *d, const void *x, int64_t n)
{
    float *wide = d->k->alloc(d, (size_t)n * 4), *to = filled(n, NAN);
    d->k->convert(d, wide, ARES_F32, x, d->k->act, n);
    d->k->copy_out(d, to, wide, (size_t)n * 4);
    d->k->release(d, wide, (size_t)n * 4);
    return to;
}

static double farthest(const float *a, const float *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        double error = fabs((double)a[i] - (double)b[i]);
        if (!(error <= most)) most = isnan(error) ? INFINITY : error;
    }
    return most;
}

/*
 * A sum with a bias rounds once: the same bits as on the host. Norm and gated activation of numbers
 * below 8 are products of a few roundings: ulps in f32, 2^-8 of 32 in bf16. Seen to fail with the
 * bias of gate added to up, and with a norm that reads x after it has the bias.
 */
TEST_GPU(norm_and_gate_add_the_biases_of_the_products_around_them)
{
    enum { WIDTH = 304, ALL = ROWS * WIDTH };
    for (int kind = 0; kind < 4; kind++) {
        bool bf16 = kind % 2;
        ares_device d, cpu;
        if (!card_open_as(&d, bf16 ? ARES_BF16 : ARES_F32)) return;
        REQUIRE_OK(ares_device_open("cpu", 1, &cpu));
        float *x = normals(21, ALL, 1), *gu = normals(22, 2 * ALL, 1), *w = normals(23, WIDTH, 1),
              *bias = normals(24, 2 * WIDTH, 1), *y = filled(ALL, NAN), *sum = filled(ALL, NAN);
        rounded(x, ALL, bf16), rounded(gu, 2 * ALL, bf16), rounded(bias, 2 * WIDTH, bf16);
        char *x_on = put(&d, x, ALL), *gu_on = put(&d, gu, 2 * ALL),
             *bias_on = put(&d, bias, 2 * WIDTH), *y_on = put(&d, y, ALL);
        char *up_bias = bias_on + WIDTH * ares_dtype_bytes(d.k->act);
        float *w_on = d.k->alloc(&d, WIDTH * 4);
        d.k->copy_in(&d, w_on, w, WIDTH * 4);
        ares_rms_norm_args norm = { .rows = ROWS,
                                    .k = WIDTH,
                                    .x = x,
                                    .ldx = WIDTH,
                                    .w = w,
                                    .eps = 1e-6f,
                                    .y = y,
                                    .ldy = WIDTH };
        cpu.k->rms_norm(&cpu, &norm);
        norm.x = x_on, norm.w = w_on, norm.y = y_on, norm.bias = bias_on, norm.sum = x_on;
        d.k->rms_norm(&d, &norm);
        for (int i = 0; i < ALL; i++) sum[i] = x[i] + bias[i % WIDTH];
        rounded(sum, ALL, bf16);
        float *got = taken(&d, y_on, ALL), *got_sum = taken(&d, x_on, ALL);
        CHECK(farthest(got, y, ALL) < (bf16 ? 0.125 : 1e-5));
        CHECK_MEM(got_sum, sum, ALL * sizeof *sum);
        ares_free(got), ares_free(got_sum);

        size_t each = ares_dtype_bytes(d.k->act);
        ares_gate_mul_args act = { .f = kind / 2 ? ARES_GELU_TANH : ARES_SILU,
                                   .rows = ROWS,
                                   .k = WIDTH,
                                   .gate = gu_on,
                                   .up = gu_on + WIDTH * each,
                                   .ldgu = 2 * WIDTH,
                                   .gate_bias = bias_on,
                                   .up_bias = up_bias,
                                   .y = y_on,
                                   .ldy = WIDTH };
        d.k->gate_mul(&d, &act);
        for (int i = 0; i < 2 * ALL; i++) gu[i] += bias[i % (2 * WIDTH)];
        rounded(gu, 2 * ALL, bf16);
        act.gate = gu, act.up = gu + WIDTH, act.gate_bias = act.up_bias = NULL, act.y = y;
        cpu.k->gate_mul(&cpu, &act);
        got = taken(&d, y_on, ALL);
        CHECK(farthest(got, y, ALL) < (bf16 ? 0.125 : 1e-5));
        float *all[] = { x, gu, w, bias, y, sum, got };
        void *on[] = { x_on, gu_on, bias_on, y_on, w_on };
        for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
        for (int i = 0; i < ARES_COUNT(on); i++) d.k->release(&d, on[i], 0);
        CHECK_OK(d.k->sync(&d));
        ares_device_close(&d), ares_device_close(&cpu);
    }
}

/* ------------------------------------------------------------------ what the last step leaves */

/*
 * Angles of one position, and of three: the first of a head turn by time, the next by row, the rest
 * by column, in the cosines as in the sines. Seen to fail with rows and columns exchanged, and
 * where the sines are taken for angles of the column alone.
 */
TEST_GPU(a_step_takes_tokens_changes_of_tables_and_angles_of_one_or_three_positions)
{
    enum { DIM = 16, HALF = DIM / 2, PLACES = 40, BLOCKS_LEFT = 6 };
    static const int32_t from[ROWS] = { -1, 2, 0, -1, 4 }, token[ROWS] = { 70, 71, 72, 73, 74 },
                         ids[ROWS] = { 5, 6, 7, 8, 9 }, want_ids[ROWS] = { 5, 72, 70, 8, 74 },
                         time[ROWS] = { 0, 39, 7, 7, 21 }, row[ROWS] = { 3, 38, 7, 8, 0 },
                         column[ROWS] = { 1, 37, 7, 6, 30 }, change[][2] = { { 4, 11 }, { 0, 12 } },
                         changes = 2, table[BLOCKS_LEFT] = { 1, 2, 3, 4, 5, 6 },
                         want_table[BLOCKS_LEFT] = { 12, 2, 3, 4, 11, 6 };
    const int by_time = 2, by_row = 3;
    ares_device d;
    if (!card_open(&d)) return;
    float *angles = normals(31, PLACES * DIM, 1);
    for (int axes = 1; axes <= 3; axes += 2) {
        void *on[] = { put_ints(&d, from, ROWS),         put_ints(&d, token, ROWS),
                       put_ints(&d, ids, ROWS),          put_ints(&d, time, ROWS),
                       put_ints(&d, row, ROWS),          put_ints(&d, column, ROWS),
                       put_ints(&d, change[0], 4),       put_ints(&d, &changes, 1),
                       put_ints(&d, table, BLOCKS_LEFT), d.k->alloc(&d, PLACES * DIM * 4),
                       d.k->alloc(&d, ROWS * DIM * 4) };
        d.k->copy_in(&d, on[9], angles, PLACES * DIM * 4);
        d.k->advance(&d, &(ares_advance_args){ .rows = ROWS,
                                               .head_dim = DIM,
                                               .from = on[0],
                                               .token = on[1],
                                               .ids = on[2],
                                               .positions = on[3],
                                               .positions_h = axes == 3 ? on[4] : NULL,
                                               .positions_w = axes == 3 ? on[5] : NULL,
                                               .by_time = by_time,
                                               .by_row = by_row,
                                               .change = on[6],
                                               .changes = on[7],
                                               .table = on[8],
                                               .angles = on[9],
                                               .cos_sin = on[10] });
        float got[ROWS][DIM];
        int32_t got_ids[ROWS], got_table[BLOCKS_LEFT];
        d.k->copy_out(&d, got, on[10], sizeof got);
        d.k->copy_out(&d, got_ids, on[2], sizeof got_ids);
        d.k->copy_out(&d, got_table, on[8], sizeof got_table);
        CHECK_OK(d.k->sync(&d));
        CHECK_MEM(got_ids, want_ids, sizeof got_ids);
        CHECK_MEM(got_table, want_table, sizeof got_table);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < DIM; i++) {
                int angle = i < HALF ? i : i - HALF;
                int32_t at = axes == 1 || angle < by_time ? time[r]
                             : angle < by_time + by_row   ? row[r]
                                                          : column[r];
                CHECK_MSG(got[r][i] == angles[at * DIM + i], "%d axes, row %d, number %d", axes, r,
                          i);
            }
        for (int i = 0; i < ARES_COUNT(on); i++) d.k->release(&d, on[i], 0);
    }
    ares_free(angles);
    ares_device_close(&d);
}
