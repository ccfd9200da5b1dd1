/*
 * Decoding over the paged cache: attention of segments with one row, and the cache itself. In a
 * block of the cache, each KV head has its 32 rows of keys, then its 32 rows of values.
 *
 * Keys are divided into chunks of SPLIT from position 0, and the chunks that a row sees into at
 * most PARTS runs of equal length, whatever the batch. A thread block computes one run of one
 * segment, chunk after chunk, for up to 16 query heads of a KV head, so that keys and values are
 * read once for all of them; the last block of a segment to end merges the runs in their order
 * (FlashDecoding, docs/design.md#decoding-on-a-card). So a row gives the same bits in any batch and
 * in every repeat, and what the blocks leave for the merge does not grow beyond PARTS with the
 * longest row. With bf16 and a head_dim of whole 16s, scores and outputs are products on tensor
 * cores.
 */
#include "device.cuh"

#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;

enum { SPLIT = 256, HEADS = 16, THREADS = 128, WARPS = THREADS / 32, PER_LANE = SPLIT / 32 };
enum { SCORES = SPLIT + 8 }; /* distance of rows in shared memory */
enum { PARTS = 32 };         /* with 4 KV heads, a row alone keeps the processors of an H200 busy */

/* ------------------------------------------------------------------ what a thread block computes
 */

typedef struct part {
    int s, h, head, heads; /* segment, KV head, first query head and how many */
    int from, to;          /* the row sees keys [from, to) */
    int chunk, end;        /* chunks of the run: those from chunk to end are to come */
    int first, n;          /* keys of the chunk at hand: [first, first + n) */
    int parts;             /* runs of the segment; this one is blockIdx.z */
} part;

/* Query heads of a KV head are divided into tiles of 16. */
static __host__ __device__ int head_tiles(const ares_attention_args &a)
{
    return (a.n_heads / a.n_kv_heads + HEADS - 1) / HEADS;
}

/* False for a block without work: a segment of several rows, or a run without keys. */
static __device__ bool find_part(const ares_attention_args &a, part *p)
{
    int group = a.n_heads / a.n_kv_heads, tiles = head_tiles(a), tile = (int)blockIdx.y % tiles;
    int s = p->s = (int)blockIdx.x;
    p->to = (a.seg.prefix_len ? a.seg.prefix_len[s] : 0) + 1;
    p->h = (int)blockIdx.y / tiles;
    p->head = p->h * group + tile * HEADS;
    p->heads = ARES_MIN(group - tile * HEADS, (int)HEADS);
    if (a.seg.start[s + 1] - a.seg.start[s] != 1) return false;
    p->from = a.window > 0 && p->to > a.window ? p->to - a.window : 0;
    int first = p->from / SPLIT, end = (p->to - 1) / SPLIT + 1, chunks = end - first,
        each = (chunks + PARTS - 1) / PARTS;
    p->parts = (chunks + each - 1) / each;
    p->chunk = first + (int)blockIdx.z * each;
    p->end = ARES_MIN(p->chunk + each, end);
    return (int)blockIdx.z < p->parts;
}

static __device__ void begin_chunk(part *p)
{
    p->first = p->chunk * SPLIT;
    p->n = ARES_MIN(p->to - p->first, (int)SPLIT);
}

/* Row `key` of the chunk, among the keys of the cache; the values lie 32 rows later. */
template <typename T>
static __device__ const T *key_row(const ares_attention_args &a, const part &p, int key)
{
    int at = (p.first + key) / ARES_KV_BLOCK, row = (p.first + key) % ARES_KV_BLOCK;
    int64_t block = a.seg.block_table[(int64_t)p.s * a.seg.table_stride + at];
    return (const T *)a.cache +
           ((block * a.n_kv_heads + p.h) * 2 * ARES_KV_BLOCK + row) * (int64_t)a.head_dim;
}

/* ------------------------------------------------------------------ products on CUDA cores */

typedef struct room {
    float *score;             /* [HEADS][SCORES] */
    float *out;               /* [HEADS][dim] */
    float *max, *sum;         /* [HEADS] */
    float *run_max, *run_sum; /* [HEADS]: of the chunks before */
    float *q;                 /* [HEADS][dim], without tensor cores */
    __nv_bfloat16 *q16, *v16; /* [HEADS][dim + 8], [16][dim], with them */
} room;

/* A thread computes whole keys, for all heads at once. */
template <typename T>
static __device__ void scores(const ares_attention_args &a, const part &p, const room &m)
{
    int dim = a.head_dim;
    for (int key = (int)threadIdx.x; key < p.n; key += THREADS) {
        const T *k = key_row<T>(a, p, key);
        float sum[HEADS];
        for (int j = 0; j < HEADS; j++) sum[j] = 0.0f;
        for (int d = 0; d < dim; d++) {
            float x = cuda_get(k + d);
#pragma unroll
            for (int j = 0; j < HEADS; j++) sum[j] = fmaf(m.q[j * dim + d], x, sum[j]);
        }
        for (int j = 0; j < HEADS; j++) m.score[j * SCORES + key] = sum[j];
    }
}

/* A thread computes whole columns, for all heads at once; keys in order. */
template <typename T>
static __device__ void outputs(const ares_attention_args &a, const part &p, const room &m)
{
    int dim = a.head_dim;
    for (int d = (int)threadIdx.x; d < dim; d += THREADS) {
        float sum[HEADS];
        for (int j = 0; j < HEADS; j++) sum[j] = 0.0f;
        for (int key = 0; key < p.n; key++) {
            float x = cuda_get(key_row<T>(a, p, key) + ARES_KV_BLOCK * dim + d);
#pragma unroll
            for (int j = 0; j < HEADS; j++) sum[j] = fmaf(m.score[j * SCORES + key], x, sum[j]);
        }
        for (int j = 0; j < HEADS; j++) m.out[j * dim + d] = sum[j];
    }
}

/* ------------------------------------------------------------------ products on tensor cores */

/* 16 keys per product, which lie in one block of the cache; a warp takes every fourth. */
static __device__ void scores_16(const ares_attention_args &a, const part &p, const room &m)
{
    int dim = a.head_dim;
    for (int key = (int)threadIdx.x / 32 * 16; key < p.n; key += WARPS * 16) {
        const __nv_bfloat16 *k = key_row<__nv_bfloat16>(a, p, key);
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
        wmma::fill_fragment(sum, 0.0f);
        for (int d = 0; d < dim; d += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> q;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> keys;
            wmma::load_matrix_sync(q, m.q16 + d, (unsigned)(dim + 8));
            wmma::load_matrix_sync(keys, k + d, (unsigned)dim);
            wmma::mma_sync(sum, q, keys, sum);
        }
        wmma::store_matrix_sync(m.score + key, sum, (unsigned)SCORES, wmma::mem_row_major);
    }
}

/*
 * A warp computes every fourth 16 columns, over the keys in order. Rows of values beyond the last
 * key may hold anything, NaN included, so the last 16 are read from a copy with zeros there.
 */
static __device__ void outputs_16(const ares_attention_args &a, const part &p, const room &m)
{
    int dim = a.head_dim, whole = p.n / 16 * 16;
    const __nv_bfloat16 *probabilities = (const __nv_bfloat16 *)m.score;
    for (int d = (int)threadIdx.x / 32 * 16; d < dim; d += WARPS * 16) {
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
        wmma::fill_fragment(sum, 0.0f);
        for (int key = 0; key < p.n; key += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> share;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> values;
            wmma::load_matrix_sync(share, probabilities + key, (unsigned)(2 * SCORES));
            wmma::load_matrix_sync(values,
                                   key < whole
                                       ? key_row<__nv_bfloat16>(a, p, key) + ARES_KV_BLOCK * dim + d
                                       : m.v16 + d,
                                   (unsigned)dim);
            wmma::mma_sync(sum, share, values, sum);
        }
        wmma::store_matrix_sync(m.out + d, sum, (unsigned)dim, wmma::mem_row_major);
    }
}

/* ------------------------------------------------------------------ softmax, chunks */

/* Scores to exp(score - max), a warp per head. MMA: as bf16, in the memory of the row's scores. */
template <bool MMA>
static __device__ void softmax(const ares_attention_args &a, const part &p, const room &m)
{
    int lane = (int)threadIdx.x % 32;
    for (int j = (int)threadIdx.x / 32; j < HEADS; j += WARPS) {
        float e[PER_LANE], max = -INFINITY, sum = 0.0f, *row = m.score + j * SCORES;
        for (int i = 0; i < PER_LANE; i++) {
            int key = i * 32 + lane;
            bool seen = key < p.n && p.first + key >= p.from;
            e[i] = seen ? row[key] * a.scale : -INFINITY;
            max = fmaxf(max, e[i]);
        }
        max = cuda_warp_max(max);
        float base = max == -INFINITY ? 0.0f : max;
        for (int i = 0; i < PER_LANE; i++) {
            e[i] = expf(e[i] - base);
            sum += e[i];
        }
        sum = cuda_warp_sum(sum);
        __syncwarp(); /* every lane has read its scores */
        for (int i = 0; i < PER_LANE; i++)
            if (MMA) cuda_put((uint16_t *)row + i * 32 + lane, e[i]);
            else row[i * 32 + lane] = e[i];
        if (lane == 0) {
            m.max[j] = max;
            m.sum[j] = sum;
        }
    }
}

/* What a run leaves for the merge, per head: [dim] outputs, max, sum. */
static __device__ float *left_by(const ares_attention_args &a, const part &p, float *partial,
                                 int run, int j)
{
    int64_t head = (int64_t)p.s * a.n_heads + p.head + j;
    return partial + (head * gridDim.z + run) * (a.head_dim + 2);
}

/* Adds the chunk at hand to those of the run before it; a thread's outputs are always the same. */
static __device__ void add_chunk(const ares_attention_args &a, const part &p, const room &m,
                                 float *partial, bool first)
{
    int dim = a.head_dim;
    for (int i = (int)threadIdx.x; i < p.heads * dim; i += THREADS) {
        int j = i / dim;
        float *out = left_by(a, p, partial, (int)blockIdx.z, j) + i % dim, before, max;
        if (first) {
            *out = m.out[i];
            continue;
        }
        before = m.run_max[j], max = fmaxf(before, m.max[j]);
        *out = fmaf(m.out[i], expf(m.max[j] - max), *out * expf(before - max));
    }
    __syncthreads(); /* all have read what was before */
    int j = (int)threadIdx.x;
    if (j >= HEADS) return;
    float before = first ? -INFINITY : m.run_max[j], max = fmaxf(before, m.max[j]);
    m.run_sum[j] =
        first ? m.sum[j] : fmaf(m.sum[j], expf(m.max[j] - max), m.run_sum[j] * expf(before - max));
    m.run_max[j] = max;
}

template <typename T>
static __device__ void finish(const ares_attention_args &a, const part &p, int j, int d, float out,
                              float max, float sum)
{
    int64_t row = a.seg.start[p.s], head = p.head + j;
    cuda_put((T *)a.out + row * a.ldo + head * a.head_dim + d, out / sum);
    if (a.lse && d == 0) a.lse[row * a.n_heads + head] = max + logf(sum);
}

template <typename T>
static __device__ void merge(const ares_attention_args &a, const part &p, float *partial)
{
    int dim = a.head_dim;
    for (int i = (int)threadIdx.x; i < p.heads * dim; i += THREADS) {
        int j = i / dim, d = i % dim;
        float max = -INFINITY, sum = 0.0f, out = 0.0f;
        for (int r = 0; r < p.parts; r++) max = fmaxf(max, left_by(a, p, partial, r, j)[dim]);
        for (int r = 0; r < p.parts; r++) {
            const float *left = left_by(a, p, partial, r, j);
            float weight = expf(left[dim] - max);
            sum = fmaf(left[dim + 1], weight, sum);
            out = fmaf(left[d], weight, out);
        }
        finish<T>(a, p, j, d, out, max, sum);
    }
}

/* ------------------------------------------------------------------ the kernel */

static __host__ __device__ size_t shared_bytes(int dim)
{
    /* score, out, q, and max and sum of the chunk and of the run */
    size_t floats = (size_t)HEADS * (SCORES + dim + dim + 8 + 4);
    return floats * sizeof(float) + (size_t)(16 * dim) * sizeof(__nv_bfloat16);
}

static __device__ room divided(float *shared, int dim)
{
    room m;
    m.score = shared;
    m.out = m.score + HEADS * SCORES;
    m.q = m.out + HEADS * dim;
    m.q16 = (__nv_bfloat16 *)m.q;
    m.max = m.q + HEADS * (dim + 8);
    m.sum = m.max + HEADS;
    m.run_max = m.sum + HEADS;
    m.run_sum = m.run_max + HEADS;
    m.v16 = (__nv_bfloat16 *)(m.run_sum + HEADS);
    return m;
}

/* The queries, and zeros for heads that do not exist. */
template <typename T, bool MMA>
static __device__ void load(const ares_attention_args &a, const part &p, const room &m)
{
    int dim = a.head_dim;
    const T *q = (const T *)a.q + a.seg.start[p.s] * a.ldq + (int64_t)p.head * dim;
    for (int i = (int)threadIdx.x; i < HEADS * dim; i += THREADS) {
        int j = i / dim, d = i % dim;
        float x = j < p.heads ? cuda_get(q + i) : 0.0f;
        if (MMA) cuda_put((uint16_t *)m.q16 + j * (dim + 8) + d, x);
        else m.q[i] = x;
    }
}

/* The last rows of values of a chunk that ends inside 16. */
template <typename T>
static __device__ void load_last(const ares_attention_args &a, const part &p, const room &m)
{
    int dim = a.head_dim, whole = p.n / 16 * 16;
    if (whole == p.n) return;
    for (int i = (int)threadIdx.x; i < 16 * dim; i += THREADS) {
        int row = whole + i / dim;
        float x =
            row < p.n ? cuda_get(key_row<T>(a, p, row) + ARES_KV_BLOCK * dim + i % dim) : 0.0f;
        cuda_put((uint16_t *)m.v16 + i, x);
    }
}

/* The outputs of the chunk at hand, with its max and sum. */
template <typename T, bool MMA>
static __device__ void attend(const ares_attention_args &a, const part &p, const room &m)
{
    if constexpr (MMA) load_last<T>(a, p, m);
    __syncthreads();
    if constexpr (MMA) scores_16(a, p, m);
    else scores<T>(a, p, m);
    __syncthreads();
    softmax<MMA>(a, p, m);
    __syncthreads();
    if constexpr (MMA) outputs_16(a, p, m);
    else outputs<T>(a, p, m);
    __syncthreads();
}

template <typename T, bool MMA>
static __global__ void __launch_bounds__(THREADS, 4) /* 128 registers: with fewer some spill */
    decode(ares_attention_args a, float *partial, unsigned *ticket)
{
    CUDA_SHARED(float, shared);
    part p;
    if (!find_part(a, &p)) return;
    int dim = a.head_dim;
    room m = divided(shared, dim);
    load<T, MMA>(a, p, m);
    for (bool first = true; p.chunk < p.end; p.chunk++, first = false) {
        begin_chunk(&p);
        attend<T, MMA>(a, p, m);
        if (p.parts > 1) add_chunk(a, p, m, partial, first);
    }
    for (int i = (int)threadIdx.x; p.parts == 1 && i < p.heads * dim; i += THREADS)
        finish<T>(a, p, i / dim, i % dim, m.out[i], m.max[i / dim], m.sum[i / dim]);
    if (p.parts == 1) return;
    int j = (int)threadIdx.x; /* who has added to the run's max and sum */
    if (j < p.heads) {
        float *left = left_by(a, p, partial, (int)blockIdx.z, j);
        left[dim] = m.run_max[j];
        left[dim + 1] = m.run_sum[j];
    }
    if (cuda_is_last(&ticket[blockIdx.x * gridDim.y + blockIdx.y], (unsigned)p.parts))
        merge<T>(a, p, partial);
}

bool cuda_decodes(const ares_attention_args *a)
{
    return a->cache && a->causal && a->seg.max_keys > 0;
}

void cuda_decode(ares_device *d, const ares_attention_args *a)
{
    cuda_context *c = cuda_enter(d);
    int dim = a->head_dim, most = a->seg.max_keys, seen = a->window > 0 ? a->window : most,
        /* runs of a row that sees so many keys, the first of which may lie inside a chunk */
        parts = ARES_MIN(ARES_MIN((seen + SPLIT - 2) / SPLIT + 1, (int)PARTS),
                         (most + SPLIT - 1) / SPLIT);
    dim3 grid((unsigned)a->seg.n, (unsigned)(a->n_kv_heads * head_tiles(*a)), (unsigned)parts);
    float *partial = NULL;
    unsigned *ticket = NULL;
    if (parts > 1) {
        size_t left = (size_t)a->seg.n * (size_t)a->n_heads * (size_t)parts;
        ticket = cuda_tickets(c, (size_t)grid.x * grid.y);
        partial = (float *)cuda_scratch(c, CUDA_PARTS, left * (size_t)(dim + 2) * sizeof(float));
        if (!ticket || !partial) return;
    }
    size_t shared = shared_bytes(dim);
    if (d->k->act == ARES_F32)
        cuda_launch(c, "attention: decode", decode<float, false>, grid, THREADS, shared, *a,
                    partial, ticket);
    else if (dim % 16)
        cuda_launch(c, "attention: decode", decode<uint16_t, false>, grid, THREADS, shared, *a,
                    partial, ticket);
    else
        cuda_launch(c, "attention: decode", decode<uint16_t, true>, grid, THREADS, shared, *a,
                    partial, ticket);
}

/* ------------------------------------------------------------------ the cache */

/* The row of a slot among the keys of KV head h. */
template <typename T>
static __device__ T *slot_row(T *cache, int32_t slot, int32_t n_kv, int32_t h, int32_t dim)
{
    int64_t block = slot / ARES_KV_BLOCK, row = slot % ARES_KV_BLOCK;
    return cache + ((block * n_kv + h) * 2 * ARES_KV_BLOCK + row) * dim;
}

/*
 * A warp per head of q, k and v. The norm sums in the order of norm.cu, and each step is
 * rounded as the kernels that do it alone round it, so that rollout follows training.
 */
template <typename T>
static __global__ void __launch_bounds__(THREADS) store_heads(ares_rope_store_args a)
{
    int32_t dim = a.head_dim, half = dim / 2, heads = a.n_heads + 2 * a.n_kv_heads,
            lane = (int32_t)threadIdx.x % 32;
    int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, r = at / heads;
    if (r >= a.rows) return;
    int32_t head = (int32_t)(at % heads), h = head;
    const void *biases = a.q_bias;
    const float *norm = a.q_norm;
    bool value = head >= a.n_heads + a.n_kv_heads;
    T *from = (T *)a.qkv + r * a.ld + (int64_t)head * dim, *to = from;
    if (head >= a.n_heads) {
        h = (head - a.n_heads) % a.n_kv_heads;
        to = slot_row((T *)a.cache, a.slots[r], a.n_kv_heads, h, dim) +
             (value ? ARES_KV_BLOCK * dim : 0);
        biases = value ? a.v_bias : a.k_bias;
        norm = value ? NULL : a.k_norm;
    }
    const T *bias = biases ? (const T *)biases + (int64_t)h * dim : NULL;
    if (value) {
        for (int32_t d = lane; d < dim; d += 32) cuda_put(to + d, cuda_with_bias(from, bias, d));
        return;
    }
    float scale = 1.0f;
    if (norm) {
        float sum = 0.0f;
        for (int32_t d = lane; d < dim; d += 32) {
            float x = cuda_with_bias(from, bias, d);
            sum = fmaf(x, x, sum);
        }
        scale = 1.0f / sqrtf(cuda_warp_sum(sum) / (float)dim + a.eps);
    }
    const float *cosines = a.cos_sin ? a.cos_sin + r * dim : NULL, *sines = cosines + half;
    float one = a.plus_one ? 1.0f : -0.0f; /* adding -0 changes no number */
    for (int32_t i = lane; i < half; i += 32) {
        float x = cuda_with_bias(from, bias, i), y = cuda_with_bias(from, bias, i + half);
        if (norm) {
            x = cuda_rounded<T>(x * scale * (norm[i] + one));
            y = cuda_rounded<T>(y * scale * (norm[i + half] + one));
        }
        cuda_put(to + i, cosines ? fmaf(-y, sines[i], x * cosines[i]) : x);
        cuda_put(to + i + half, cosines ? fmaf(x, sines[i], y * cosines[i]) : y);
    }
}

static void rope_store(ares_device *d, const ares_rope_store_args *a)
{
    cuda_context *c = cuda_enter(d);
    int64_t heads = (int64_t)a->rows * (a->n_heads + 2 * a->n_kv_heads);
    ARES_ASSERT(a->head_dim % 2 == 0);
    dim3 blocks((unsigned)((heads + WARPS - 1) / WARPS));
    if (d->k->act == ARES_BF16)
        cuda_launch(c, "rope_store", store_heads<uint16_t>, blocks, THREADS, 0, *a);
    else cuda_launch(c, "rope_store", store_heads<float>, blocks, THREADS, 0, *a);
}

void cuda_fill_decode(ares_kernels *k)
{
    k->rope_store = rope_store;
}
