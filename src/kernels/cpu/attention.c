/*
 * Attention over packed or paged keys. Packed keys are first copied into scratch in the layout of
 * the cache (it costs about a hundredth of a layer), so that one loop serves both: a query row
 * meets the chunks of 32 keys in order, and its numbers do not depend on the rows beside it.
 * Packed, paged and token by token give the same bits.
 *
 * A masked key has probability 0 and adds 0 * v to a chain. That can only turn a sum of -0 into +0,
 * which the final "+ 0" does for every sum anyway. Values beyond the last key of a segment are
 * never read.
 */
#include "attention.h"

#include <math.h>

enum {
    /* queries of a task: a chunk of keys and values stays in L1 for all of them and their heads */
    QUERIES = 48,
    HEADS = 16, /* query heads of one KV head at a time */
    STRIP = 12, /* rows that go through scores, softmax and values together */
    FLOPS_PER_US = 100000
};

/*
 * Where the blocks of a segment's packed keys lie in scratch: the first `shared` ones, whole blocks
 * of its prefix, are those of segment `leader`; the others begin at block `first`.
 */
typedef struct block_range {
    int32_t leader, shared, first;
} block_range;

/* Queries of a segment from `first` on, at most QUERIES, and the heads of one KV head. */
typedef struct attention_unit {
    int32_t s, first, h;
} attention_unit;

typedef struct attention_job {
    ares_device *d;
    const ares_attention_args *a;
    const float *cache;
    float *laid_out;    /* packed: the keys and values as a cache, in scratch */
    block_range *range; /* packed: [segments] */
    attention_unit *unit;
    int64_t *first_unit; /* [tasks + 1] a task's units */
} attention_job;

static int64_t block_of(const attention_job *job, int s, int chunk)
{
    if (job->a->cache)
        return job->a->seg.block_table[(int64_t)s * job->a->seg.table_stride + chunk];
    const block_range *range = &job->range[s];
    if (chunk < range->shared) range = &job->range[range->leader];
    return range->first + chunk - range->shared;
}

/* The keys of a chunk for one KV head, transposed, and then its values. */
static const float *chunk_at(const attention_job *job, int s, int chunk, int h)
{
    const ares_attention_args *a = job->a;
    return job->cache + (block_of(job, s, chunk) * a->n_kv_heads + h) * 64 * a->head_dim;
}

static int32_t blocks_of(const ares_segments *seg, int s)
{
    int32_t prefix = segment_prefix(seg, s);
    return (prefix + segment_rows(seg, s) + 31) / 32 - prefix / 32;
}

static void lay_out_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const attention_job *job = ctx;
    const ares_attention_args *a = job->a;
    const float *k = a->k, *v = a->v;
    int s = (int)(task / a->n_kv_heads), h = (int)(task % a->n_kv_heads), dim = a->head_dim;
    int32_t keys = segment_prefix(&a->seg, s) + segment_rows(&a->seg, s);
    for (int c = job->range[s].shared; c * 32 < keys; c++) {
        float *block = job->laid_out + (block_of(job, s, c) * a->n_kv_heads + h) * 64 * dim;
        int n = keys - c * 32 < 32 ? keys - c * 32 : 32;
        if (n < 32) memset(block, 0, (size_t)dim * 32 * sizeof(float));
        gather_transposed(&a->seg, s, c * 32, n, k + h * dim, a->ldkv, dim, block);
        gather_rows(&a->seg, s, c * 32, n, v + h * dim, a->ldkv, dim, block + 32 * dim);
    }
}

/* A strip: its row r is query r of one head, or head r of one query. */
typedef struct strip {
    const float *q;
    int64_t ldq;
    float *out;
    int64_t ldo;
    float *max, *sum; /* running, of every row */
    int rows;
    int low[STRIP], high[STRIP]; /* visible keys of the chunk, each in [0, 32] */
} strip;

static size_t round_up(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* out times a factor, in rows whose bit is set. */
static void rescale_rows(const strip *s, uint32_t bits, const float *factor, int head_dim)
{
    for (; bits; bits &= bits - 1) {
        int r = __builtin_ctz(bits);
        float *out = s->out + r * s->ldo;
        v16 by = v16_set1(factor[r]);
        int d = 0;
        for (; d + 16 <= head_dim; d += 16) v16_store(out + d, v16_mul(v16_load(out + d), by));
        if (d < head_dim)
            v16_store_first(out + d, v16_mul(v16_load_first(out + d, head_dim - d), by),
                            head_dim - d);
    }
}

static void strip_chunk(strip *s, const float *keys, const float *values, int head_dim, float scale)
{
    float p[STRIP][32];
    int low = 32, high = 0;
    for (int r = 0; r < s->rows; r++) {
        if (s->low[r] < low) low = s->low[r];
        if (s->high[r] > high) high = s->high[r];
    }
    if (low >= high) return;
    tile_product((tile_args){ .c = p[0],
                              .ldc = 32,
                              .a = s->q,
                              .row = s->ldq,
                              .step = 1,
                              .b = keys,
                              .ldb = 32,
                              .steps = head_dim,
                              .fresh = true },
                 s->rows, 32);
    /* Each step for all rows, so that no row waits for a sum or maximum across its own lanes. */
    const v16 minus_infinity = v16_set1(-INFINITY), factor = v16_set1(scale);
    float top[16] = { 0 }, total[16] = { 0 }, shift[16], rescale[16];
    for (int r = 0; r < s->rows; r++) {
        v16 a = v16_mul(v16_load(p[r]), factor), b = v16_mul(v16_load(p[r] + 16), factor);
        if (s->low[r] > 0 || s->high[r] < 32) {
            uint32_t seen = keys_between(s->low[r], s->high[r]);
            a = v16_select(v16m_of(seen & 0xffff), a, minus_infinity);
            b = v16_select(v16m_of(seen >> 16), b, minus_infinity);
        }
        v16_store(p[r], a);
        v16_store(p[r] + 16, b);
        top[r] = v16_max_lane(v16_max(a, b));
    }
    v16 old = v16_load_first(s->max, s->rows), max = v16_max(v16_load(top), old);
    v16 base = v16_select(v16_eq(max, minus_infinity), v16_zero(), max),
        factors = v16_exp(v16_sub(old, base));
    v16_store(shift, base);
    v16_store(rescale, factors);
    v16_store_first(s->max, max, s->rows);
    for (int r = 0; r < s->rows; r++) {
        v16 by = v16_set1(shift[r]), a = v16_exp(v16_sub(v16_load(p[r]), by)),
            b = v16_exp(v16_sub(v16_load(p[r] + 16), by));
        v16_store(p[r], a);
        v16_store(p[r] + 16, b);
        total[r] = v16_sum(v16_add(a, b));
    }
    v16_store_first(s->sum,
                    v16_add(v16_mul(v16_load_first(s->sum, s->rows), factors), v16_load(total)),
                    s->rows);
    uint32_t moved = v16m_bits(v16m_not(v16_eq(max, old))) &
                     ((1u << s->rows) - 1); /* for the others the factor is exactly 1 */
    rescale_rows(s, moved, rescale, head_dim);
    tile_product((tile_args){ .c = s->out,
                              .ldc = s->ldo,
                              .a = p[0] + low,
                              .row = 32,
                              .step = 1,
                              .b = values + (int64_t)low * head_dim,
                              .ldb = head_dim,
                              .steps = high - low },
                 s->rows, head_dim);
}

static void finish_row(float *out, int head_dim, float sum)
{
    v16 divisor = v16_set1(sum);
    for (int d = 0; d < head_dim; d += 16) {
        int n = head_dim - d < 16 ? head_dim - d : 16;
        v16_store_first(out + d, v16_add(v16_div(v16_load_first(out + d, n), divisor), v16_zero()),
                        n);
    }
}

/*
 * Queries [first, first + n) of segment s against all keys they see, for query heads [head, head +
 * heads), which belong to KV head h.
 */
static void attend(const attention_job *job, int worker, int s, int first, int n, int h, int head,
                   int heads)
{
    const ares_attention_args *a = job->a;
    int dim = a->head_dim, prefix = segment_prefix(&a->seg, s),
        keys = prefix + segment_rows(&a->seg, s);
    int64_t row = a->seg.start[s] + first, column = (int64_t)head * dim;
    const float *q = (const float *)a->q + row * a->ldq + column;
    float *out = (float *)a->out + row * a->ldo + column;
    float max[QUERIES * HEADS], sum[QUERIES * HEADS], *to = out;

    /* Rows of a strip: queries of one head or, when they are few (decoding), heads of a query. */
    bool across = n < heads;
    int bands = across ? n : heads, rows = across ? heads : n;
    int64_t band_q = across ? a->ldq : dim, row_q = across ? dim : a->ldq,
            band_o = across ? a->ldo : dim, row_o = across ? dim : a->ldo;
    if (!across) {
        float *own =
            kernels_scratch(job->d, worker, (size_t)(2 * bands * rows * dim) * sizeof *own);
        for (int band = 0; band < bands; band++)
            for (int r = 0; r < rows; r++)
                memcpy(own + (band * rows + r) * dim, q + band * band_q + r * row_q,
                       (size_t)dim * sizeof *own);
        q = own;
        out = own + bands * rows * dim;
        row_q = row_o = dim;
        band_q = band_o = (int64_t)rows * dim;
    }
    for (int band = 0; band < bands; band++)
        for (int r = 0; r < rows; r++) {
            max[band * rows + r] = -INFINITY;
            sum[band * rows + r] = 0.0f;
            memset(out + band * band_o + r * row_o, 0, (size_t)dim * sizeof(float));
        }

    int last_seen = a->causal ? prefix + first + n : keys;
    int first_seen = a->window > 0 ? prefix + first + 1 - a->window : 0;
    for (int c = first_seen > 0 ? first_seen / 32 : 0; c * 32 < last_seen; c++) {
        const float *block = chunk_at(job, s, c, h);
        /* decoding reads each block once: fetch the next one while this one is used */
        if (across && (c + 1) * 32 < last_seen) {
            const char *next = (const char *)chunk_at(job, s, c + 1, h);
            for (int i = 0; i < 256 * dim; i += 64) __builtin_prefetch(next + i, 0, 2);
        }
        for (int band = 0; band < bands; band++)
            for (int r0 = 0; r0 < rows; r0 += STRIP) {
                strip st = { .q = q + band * band_q + r0 * row_q,
                             .ldq = row_q,
                             .out = out + band * band_o + r0 * row_o,
                             .ldo = row_o,
                             .max = max + band * rows + r0,
                             .sum = sum + band * rows + r0,
                             .rows = rows - r0 < STRIP ? rows - r0 : STRIP };
                for (int r = 0; r < st.rows; r++) {
                    int position = prefix + first + (across ? band : r0 + r);
                    int high = (a->causal ? position + 1 : keys) - c * 32,
                        low = a->window > 0 ? position + 1 - a->window - c * 32 : 0;
                    st.high[r] = high < 0 ? 0 : high > 32 ? 32 : high;
                    st.low[r] = low < 0 ? 0 : low > 32 ? 32 : low;
                }
                strip_chunk(&st, block, block + 32 * dim, dim, a->scale);
            }
    }
    for (int band = 0; band < bands; band++)
        for (int r = 0; r < rows; r++) {
            float total = sum[band * rows + r];
            finish_row(out + band * band_o + r * row_o, dim, total);
            if (!across)
                memcpy(to + band * dim + r * a->ldo, out + band * band_o + r * row_o,
                       (size_t)dim * sizeof *out);
            if (a->lse) {
                int64_t query = row + (across ? band : r);
                a->lse[query * a->n_heads + head + (across ? r : band)] =
                    max[band * rows + r] + v16_max_lane(v16_log(v16_set1(total)));
            }
        }
}

static void attend_task(void *ctx, int64_t task, int worker)
{
    const attention_job *job = ctx;
    const ares_attention_args *a = job->a;
    int group = a->n_heads / a->n_kv_heads;
    for (int64_t i = job->first_unit[task]; i < job->first_unit[task + 1]; i++) {
        const attention_unit *u = &job->unit[i];
        int left = segment_rows(&a->seg, u->s) - u->first;
        for (int g = 0; g < group; g += HEADS)
            attend(job, worker, u->s, u->first, left < QUERIES ? left : QUERIES, u->h,
                   u->h * group + g, group - g < HEADS ? group - g : HEADS);
    }
}

/* FLOPs of a block of queries for one KV head: the measure of a task's work. */
static double cost_of(const ares_attention_args *a, int s, int first)
{
    int n = segment_rows(&a->seg, s), rows = n - first < QUERIES ? n - first : QUERIES;
    double keys = segment_prefix(&a->seg, s) + (a->causal ? first + rows : n);
    if (a->window > 0 && keys > a->window + rows) keys = a->window + rows;
    return (keys + 16.0) * rows * (a->n_heads / a->n_kv_heads) * (4.0 * a->head_dim + 64.0);
}

/* Divides the units into tasks of about equal work; returns how many. */
static int64_t divide_units(const attention_job *job, int64_t units, double share)
{
    const ares_attention_args *a = job->a;
    int64_t tasks = 0;
    double load = 0.0;
    job->first_unit[0] = 0;
    for (int64_t u = 0; u < units; u++) {
        load += cost_of(a, job->unit[u].s, job->unit[u].first);
        if (load >= share || u + 1 == units) {
            job->first_unit[++tasks] = u + 1;
            load = 0.0;
        }
    }
    return tasks;
}

void ARES_K(attention)(ares_device *d, const ares_attention_args *a)
{
    const ares_segments *seg = &a->seg;
    ARES_ASSERT(a->n_heads % a->n_kv_heads == 0);
    int64_t items = 0, blocks = 0;
    for (int s = 0; s < seg->n; s++) {
        items += (segment_rows(seg, s) + QUERIES - 1) / QUERIES;
        if (!a->cache) blocks += blocks_of(seg, s);
    }
    if (items == 0) return;
    int64_t units = items * a->n_kv_heads;

    size_t blocks_bytes = round_up(scratch_attention(blocks, a->n_kv_heads, a->head_dim));
    size_t range_bytes = round_up((size_t)seg->n * sizeof(block_range)),
           unit_bytes = round_up((size_t)units * sizeof(attention_unit));
    char *scratch = kernels_scratch(d, KERNELS_SHARED,
                                    blocks_bytes + range_bytes + unit_bytes +
                                        (size_t)(units + 1) * sizeof(int64_t));
    attention_job job = { .d = d,
                          .a = a,
                          .cache = a->cache,
                          .laid_out = (void *)scratch,
                          .range = (void *)(scratch + blocks_bytes),
                          .unit = (void *)(scratch + blocks_bytes + range_bytes),
                          .first_unit =
                              (void *)(scratch + blocks_bytes + range_bytes + unit_bytes) };
    double total = 0.0;
    int64_t count = 0;
    /* head after head, so that the keys of one stay in cache for all queries of a segment */
    for (int s = 0; s < seg->n; s++)
        for (int h = 0; h < a->n_kv_heads; h++)
            for (int first = 0; first < segment_rows(seg, s); first += QUERIES) {
                job.unit[count++] = (attention_unit){ s, first, h };
                total += cost_of(a, s, first);
            }
    double share = total / (8.0 * ares_pool_threads(d->pool));
    int64_t tasks = divide_units(&job, units, share < 1e6 ? 1e6 : share);

    if (!a->cache) {
        int32_t block = 0;
        for (int s = 0; s < seg->n; s++) {
            job.range[s] = (block_range){ .leader = segment_leader(seg, s),
                                          .shared = segment_prefix(seg, s) / 32,
                                          .first = block };
            block += blocks_of(seg, s);
        }
        kernels_run(d, (double)blocks * a->n_kv_heads * a->head_dim * 64 / 4e3,
                    (int64_t)seg->n * a->n_kv_heads, lay_out_task, &job);
        job.cache = job.laid_out;
    }
    kernels_run(d, total / FLOPS_PER_US, tasks, attend_task, &job);
}
