/*
 * Decoding over the paged cache: attention of segments with one row, and the cache itself. In a
 * block of the cache, each KV head has its 32 rows of keys, then its 32 rows of values.
 *
 * Keys are divided into chunks of SPLIT from position 0, whatever the batch. A thread block
 * computes one chunk of one segment for up to 16 query heads of a KV head, so that keys and values
 * are read once for all of them; the last block of a segment to end merges the chunks in their
 * order (FlashDecoding, docs/design.md#decoding-on-a-card). So a row gives the same bits in any
 * batch and in every repeat. With bf16 and a head_dim of whole 16s, scores and outputs are products
 * on tensor cores.
 */
#include "activation.cuh"

#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;

enum { SPLIT = 256, HEADS = 16, THREADS = 128, WARPS = THREADS / 32, PER_LANE = SPLIT / 32 };
enum { SCORES = SPLIT + 8 }; /* distance of rows in shared memory */

/* ------------------------------------------------------------------ what a thread block computes
 */

typedef struct part {
    int s, h, head, heads;  /* segment, KV head, first query head and how many */
    int from;               /* the first key that the row sees */
    int first, n;           /* keys of the chunk: [first, first + n) */
    int chunk, first_chunk; /* of the segment */
    int chunks;             /* that hold keys which the row sees */
} part;

/* Query heads of a KV head are divided into tiles of 16. */
static __host__ __device__ int head_tiles(const ares_attention_args &a)
{
    return (a.n_heads / a.n_kv_heads + HEADS - 1) / HEADS;
}

/* False for a block without work: a segment of several rows, or a chunk without keys. */
static __device__ bool find_part(const ares_attention_args &a, part *p)
{
    int group = a.n_heads / a.n_kv_heads, tiles = head_tiles(a), tile = (int)blockIdx.y % tiles;
    int s = p->s = (int)blockIdx.x, to = (a.seg.prefix_len ? a.seg.prefix_len[s] : 0) + 1;
    p->h = (int)blockIdx.y / tiles;
    p->head = p->h * group + tile * HEADS;
    p->heads = ARES_MIN(group - tile * HEADS, (int)HEADS);
    if (a.seg.start[s + 1] - a.seg.start[s] != 1) return false;
    p->from = a.window > 0 && to > a.window ? to - a.window : 0;
    p->first_chunk = p->from / SPLIT;
    p->chunks = (to - 1) / SPLIT - p->first_chunk + 1;
    p->chunk = (int)blockIdx.z;
    p->first = p->chunk * SPLIT;
    p->n = ARES_MIN(to - p->first, (int)SPLIT);
    return p->chunk >= p->first_chunk && p->n > 0;
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

/* What a chunk leaves for the merge, per head: [dim] outputs, max, sum. */
static __device__ float *left_by(const ares_attention_args &a, const part &p, float *partial,
                                 int chunk, int j)
{
    int64_t head = (int64_t)p.s * a.n_heads + p.head + j;
    return partial + (head * gridDim.z + chunk) * (a.head_dim + 2);
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
    int dim = a.head_dim, end = p.first_chunk + p.chunks;
    for (int i = (int)threadIdx.x; i < p.heads * dim; i += THREADS) {
        int j = i / dim, d = i % dim;
        float max = -INFINITY, sum = 0.0f, out = 0.0f;
        for (int c = p.first_chunk; c < end; c++)
            max = fmaxf(max, left_by(a, p, partial, c, j)[dim]);
        for (int c = p.first_chunk; c < end; c++) {
            const float *left = left_by(a, p, partial, c, j);
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
    size_t floats = (size_t)HEADS * (SCORES + dim + dim + 8 + 2); /* score, out, q, max and sum */
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
    m.v16 = (__nv_bfloat16 *)(m.sum + HEADS);
    return m;
}

/* The queries, and zeros for heads that do not exist; MMA: also the last rows of values. */
template <typename T, bool MMA>
static __device__ void load(const ares_attention_args &a, const part &p, const room &m)
{
    int dim = a.head_dim, whole = p.n / 16 * 16;
    const T *q = (const T *)a.q + a.seg.start[p.s] * a.ldq + (int64_t)p.head * dim;
    for (int i = (int)threadIdx.x; i < HEADS * dim; i += THREADS) {
        int j = i / dim, d = i % dim;
        float x = j < p.heads ? cuda_get(q + i) : 0.0f;
        if (MMA) cuda_put((uint16_t *)m.q16 + j * (dim + 8) + d, x);
        else m.q[i] = x;
        if (!MMA) continue;
        bool real = whole + j < p.n;
        cuda_put((uint16_t *)m.v16 + i,
                 real ? cuda_get(key_row<T>(a, p, whole + j) + ARES_KV_BLOCK * dim + d) : 0.0f);
    }
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
    __syncthreads();
    if constexpr (MMA) scores_16(a, p, m);
    else scores<T>(a, p, m);
    __syncthreads();
    softmax<MMA>(a, p, m);
    __syncthreads();
    if constexpr (MMA) outputs_16(a, p, m);
    else outputs<T>(a, p, m);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < p.heads * dim; i += THREADS) {
        int j = i / dim, d = i % dim;
        if (p.chunks == 1) {
            finish<T>(a, p, j, d, m.out[i], m.max[j], m.sum[j]);
            continue;
        }
        float *left = left_by(a, p, partial, p.chunk, j);
        left[d] = m.out[i];
        if (d == 0) left[dim] = m.max[j], left[dim + 1] = m.sum[j];
    }
    if (p.chunks == 1) return;
    if (cuda_is_last(&ticket[blockIdx.x * gridDim.y + blockIdx.y], (unsigned)p.chunks))
        merge<T>(a, p, partial);
}

bool cuda_decodes(const ares_attention_args *a)
{
    return a->cache && a->causal && a->seg.max_keys > 0;
}

void cuda_decode(ares_device *d, const ares_attention_args *a)
{
    cuda_context *c = cuda_enter(d);
    int dim = a->head_dim, chunks = (a->seg.max_keys + SPLIT - 1) / SPLIT;
    dim3 grid((unsigned)a->seg.n, (unsigned)(a->n_kv_heads * head_tiles(*a)), (unsigned)chunks);
    float *partial = NULL;
    unsigned *ticket = NULL;
    if (chunks > 1) {
        size_t parts = (size_t)a->seg.n * (size_t)a->n_heads * (size_t)chunks;
        ticket = cuda_tickets(c, (size_t)grid.x * grid.y);
        partial = (float *)cuda_scratch(c, CUDA_PARTS, parts * (size_t)(dim + 2) * sizeof(float));
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
 * A warp per head of q, k and v. The norm sums in the order of rms_norm.cu, and each step is
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
    const float *cosines = a.cos_sin + r * dim, *sines = cosines + half;
    for (int32_t i = lane; i < half; i += 32) {
        float x = cuda_with_bias(from, bias, i), y = cuda_with_bias(from, bias, i + half);
        if (norm) {
            x = cuda_rounded<T>(x * scale * norm[i]);
            y = cuda_rounded<T>(y * scale * norm[i + half]);
        }
        cuda_put(to + i, fmaf(-y, sines[i], x * cosines[i]));
        cuda_put(to + i + half, fmaf(x, sines[i], y * cosines[i]));
    }
}

void cuda_rope_store(ares_device *d, const ares_rope_store_args *a)
{
    cuda_context *c = cuda_enter(d);
    int64_t heads = (int64_t)a->rows * (a->n_heads + 2 * a->n_kv_heads);
    ARES_ASSERT(a->head_dim % 2 == 0);
    dim3 blocks((unsigned)((heads + WARPS - 1) / WARPS));
    if (d->k->act == ARES_BF16)
        cuda_launch(c, "rope_store", store_heads<uint16_t>, blocks, THREADS, 0, *a);
    else cuda_launch(c, "rope_store", store_heads<float>, blocks, THREADS, 0, *a);
}
