/*
 * Decoding over the paged cache: attention of segments with one row, and the cache itself. In a
 * block of the cache, each KV head has its 32 rows of keys, then its 32 rows of values.
 *
 * Keys are divided into parts of PART from position 0, and the parts that a row sees into at most
 * RUNS runs of equal length. A run's parts are added one after the other, then the runs are merged
 * in their order (FlashDecoding, docs/cards.md#decoding-on-a-card). Both divisions follow from the
 * row's own keys, so a row gives the same bits in any batch and in every repeat. A thread block
 * computes one run of one segment for up to 16 query heads of a KV head, so that keys and values
 * are read once for all of them; where that would be few blocks, it computes one part, and the last
 * block of the run to end adds the run's parts as one block would have. The last block of a segment
 * merges.
 *
 * Neighbouring segments whose keys of a run are the same rows of the cache (answers that share a
 * prompt) share its thread block as far as their query heads fill the 16: the first of them
 * computes the run for all. Each head's numbers are those of its own row, as before.
 *
 * With bf16 and a head_dim of whole 16s, keys and values come to shared memory by copies of 16
 * bytes that run beside the threads, STAGES - 1 parts ahead, and scores and outputs are products on
 * tensor cores.
 */
#include "device.cuh"

enum { PART = 64, HEADS = 16, THREADS = 128, WARPS = THREADS / 32 };
enum { BLOCKS = PART / ARES_KV_BLOCK }; /* of the cache, for a part */
enum { SCORES = PART + 8 };             /* distance of rows in shared memory */
enum { RUN = 4, RUNS = 32 };            /* parts of a run at least; runs of a row at most */
enum {
    FEW_BLOCKS = 2 * 132
}; /* two for each processor of an H200: with fewer, a block has a part */

/* ------------------------------------------------------------------ what a thread block computes
 */

typedef struct run {
    int s, h, head;    /* segment, the first where several share the block; KV head; query head */
    int own, heads;    /* query heads of a segment from there on, and of all its segments */
    int from, to;      /* the row sees keys [from, to) */
    int part, end;     /* parts of this block: those from part to end are to come */
    int runs, each;    /* runs of the segment, and parts of each but the last */
    int place, number; /* where this block leaves its result, and its run's number */
    int first, blocks; /* the place of the run's first block, and how many blocks it has */
} run;

/* Query heads of a KV head are divided into tiles of 16. */
static __host__ __device__ int head_tiles(const ares_attention_args &a)
{
    return (a.n_heads / a.n_kv_heads + HEADS - 1) / HEADS;
}

/*
 * What this block has of segment s. By parts: it has one part. False for a block without work, or
 * a segment of several rows.
 */
static __device__ bool find_run(const ares_attention_args &a, bool by_parts, int s, run *p)
{
    int group = a.n_heads / a.n_kv_heads, tiles = head_tiles(a), tile = (int)blockIdx.y % tiles;
    p->s = s;
    p->to = (a.seg.prefix_len ? a.seg.prefix_len[s] : 0) + 1;
    p->h = (int)blockIdx.y / tiles;
    p->head = p->h * group + tile * HEADS;
    p->own = p->heads = ARES_MIN(group - tile * HEADS, (int)HEADS);
    if (a.seg.start[s + 1] - a.seg.start[s] != 1) return false;
    p->from = a.window > 0 && p->to > a.window ? p->to - a.window : 0;
    int first = p->from / PART, parts = (p->to - 1) / PART + 1 - first, z = (int)blockIdx.z;
    p->each = ARES_MAX((parts + RUNS - 1) / RUNS, (int)RUN);
    p->runs = (parts + p->each - 1) / p->each;
    p->number = by_parts ? z / p->each : z;
    p->place = z;
    p->first = by_parts ? p->number * p->each : z;
    p->blocks = by_parts ? ARES_MIN(parts - p->first, p->each) : 1;
    p->part = first + (by_parts ? z : z * p->each);
    p->end = by_parts ? p->part + 1 : ARES_MIN(p->part + p->each, first + parts);
    return z < (by_parts ? parts : p->runs);
}

/* Keys of a part that the row sees, or that lie before those. */
static __device__ int keys_in(const run &p, int part)
{
    return ARES_MIN(p.to - part * PART, (int)PART);
}

/* Whether p and q, of one place in the grid, have the same keys and see all of them. */
static __device__ bool same_keys(const ares_attention_args &a, const run &p, const run &q)
{
    if (p.part != q.part || p.end != q.end || ARES_MAX(p.from, q.from) > p.part * PART ||
        ARES_MIN(p.to, q.to) < p.end * PART)
        return false;
    const int32_t *blocks = a.seg.block_table + p.part * BLOCKS;
    int64_t stride = a.seg.table_stride;
    int other = 0;
    for (int i = (int)threadIdx.x; i < (p.end - p.part) * BLOCKS; i += THREADS)
        other |= blocks[p.s * stride + i] != blocks[q.s * stride + i];
    return !__syncthreads_or(other);
}

/*
 * Adds the segments after p's that share this block; of 16 / n neighbours with n query heads each.
 * False where a segment before it has done so.
 */
static __device__ bool share_run(const ares_attention_args &a, run *p)
{
    int most = HEADS * a.n_kv_heads / a.n_heads, end = p->s - p->s % ARES_MAX(most, 1) + most;
    run other;
    if (most < 2) return true;
    if (p->s % most && find_run(a, false, p->s - 1, &other) && same_keys(a, *p, other))
        return false;
    for (int s = p->s + 1; s < ARES_MIN(end, (int)gridDim.x); s++) {
        if (!find_run(a, false, s, &other) || !same_keys(a, *p, other)) break;
        p->heads += p->own;
    }
    return true;
}

/* ------------------------------------------------------------------ shared memory */

typedef struct room {
    float *score;             /* [HEADS][SCORES]; of tensor cores: bf16 beside it */
    uint16_t *share;          /* [HEADS][SCORES]: exp(score - max) for tensor cores */
    float *max, *sum;         /* [HEADS] of the part */
    float *run_max, *run_sum; /* [HEADS] of the parts before */
    float *out, *q;  /* [HEADS][dim], without tensor cores; out: in the end with them, too */
    uint16_t *q16;   /* [HEADS][dim + 8], with them */
    uint16_t *stage; /* [stages][keys, values][PART][dim + 8] */
    int32_t *table;  /* blocks of the cache that hold this block's keys */
} room;

/* Bytes of a room, whose arrays begin at `at`: with tensor cores where stages > 0. */
static __host__ __device__ size_t divide(char *at, int dim, int stages, int blocks, room *m)
{
    char *p = at;
    size_t rows = (size_t)HEADS * SCORES, numbers = (size_t)HEADS * (size_t)dim,
           padded = (size_t)(dim + 8);
    m->stage = (uint16_t *)p, p += (size_t)stages * 2 * PART * padded * sizeof(uint16_t);
    m->q16 = (uint16_t *)p, p += stages ? HEADS * padded * sizeof(uint16_t) : 0;
    m->share = (uint16_t *)p, p += stages ? rows * sizeof(uint16_t) : 0;
    m->score = (float *)p, p += rows * sizeof(float);
    m->max = (float *)p, p += HEADS * sizeof(float);
    m->sum = (float *)p, p += HEADS * sizeof(float);
    m->run_max = (float *)p, p += HEADS * sizeof(float);
    m->run_sum = (float *)p, p += HEADS * sizeof(float);
    m->q = (float *)p, p += stages ? 0 : numbers * sizeof(float);
    /* the stages hold nothing any more when the outputs come */
    m->out = stages ? (float *)m->stage : (float *)p, p += stages ? 0 : numbers * sizeof(float);
    m->table = (int32_t *)p, p += (size_t)blocks * sizeof(int32_t);
    return (size_t)(p - at);
}

/* Of this block's parts; those beyond the row's last key are not read, and name a block that is. */
static __device__ void load_table(const ares_attention_args &a, const run &p, const room &m)
{
    const int32_t *table = a.seg.block_table + (int64_t)p.s * a.seg.table_stride;
    int there = (p.to + ARES_KV_BLOCK - 1) / ARES_KV_BLOCK;
    for (int i = (int)threadIdx.x; i < (p.end - p.part) * BLOCKS; i += THREADS) {
        int at = p.part * BLOCKS + i;
        m.table[i] = table[at < there ? at : p.part * BLOCKS];
    }
}
/* The query of the block's head j. */
template <typename T>
static __device__ const T *query(const ares_attention_args &a, const run &p, int j)
{
    int64_t row = a.seg.start[p.s + j / p.own], head = p.head + j % p.own;
    return (const T *)a.q + row * a.ldq + head * a.head_dim;
}
/* Key `key` of part `part`; `first` is the block's first part. The values lie 32 rows later. */
template <typename T>
static __device__ const T *key_row(const ares_attention_args &a, const run &p, const room &m,
                                   int part, int first, int key)
{
    int64_t block = m.table[((part - first) * PART + key) / ARES_KV_BLOCK];
    return (const T *)a.cache +
           ((block * a.n_kv_heads + p.h) * 2 * ARES_KV_BLOCK + key % ARES_KV_BLOCK) *
               (int64_t)a.head_dim;
}

/* ------------------------------------------------------------------ softmax, parts */

/* Scores of a part to exp(score - max), a warp per head. MMA: as bf16, beside them. */
template <bool MMA>
static __device__ void softmax(const ares_attention_args &a, const run &p, const room &m, int part)
{
    enum { PER_LANE = PART / 32 };
    int lane = (int)threadIdx.x % 32, n = keys_in(p, part);
    for (int j = (int)threadIdx.x / 32; j < p.heads; j += WARPS) {
        float e[PER_LANE], max = -INFINITY, sum = 0.0f, *row = m.score + j * SCORES;
        for (int i = 0; i < PER_LANE; i++) {
            int key = i * 32 + lane;
            bool seen = key < n && part * PART + key >= p.from;
            e[i] = seen ? row[key] * a.scale : -INFINITY;
            max = fmaxf(max, e[i]);
        }
        max = cuda_warp_max(max);
        float base = max == -INFINITY ? 0.0f : max;
        for (int i = 0; i < PER_LANE; i++) {
            e[i] = expf(e[i] - base);
            sum += e[i];
            if (MMA) cuda_put(m.share + j * SCORES + i * 32 + lane, e[i]);
            else row[i * 32 + lane] = e[i];
        }
        sum = cuda_warp_sum(sum);
        if (lane == 0) {
            m.max[j] = max;
            m.sum[j] = sum;
        }
    }
}

/* Two results of one head with respect to the larger of their maxima. */
typedef struct weights {
    float max, before, now;
} weights;
static __device__ weights weights_of(float before, float now)
{
    float max = fmaxf(before, now);
    return { max, expf(before - max), expf(now - max) };
}
static __device__ float added(const weights &w, float before, float now)
{
    return fmaf(now, w.now, before * w.before);
}

/* The maxima and sums of a run with those of the part at hand. */
static __device__ void add_sums(const room &m, bool first)
{
    int j = (int)threadIdx.x;
    if (j >= HEADS) return;
    weights w = weights_of(m.run_max[j], m.max[j]);
    m.run_sum[j] = first ? m.sum[j] : added(w, m.run_sum[j], m.sum[j]);
    m.run_max[j] = first ? m.max[j] : w.max;
}

/* ------------------------------------------------------------------ what blocks leave */

/* What a block leaves for the merge, per head: [dim] outputs, max, sum. */
static __device__ float *left_at(const ares_attention_args &a, const run &p, float *partial,
                                 int place, int j)
{
    int64_t head = (int64_t)p.s * a.n_heads + p.head + j;
    return partial + (head * gridDim.z + place) * (a.head_dim + 2);
}

template <typename T>
static __device__ void finish(const ares_attention_args &a, const run &p, int j, int d, float out,
                              float max, float sum)
{
    int64_t row = a.seg.start[p.s], head = p.head + j;
    cuda_put((T *)a.out + row * a.ldo + head * a.head_dim + d, out / sum);
    if (a.lse && d == 0) a.lse[row * a.n_heads + head] = max + logf(sum);
}

/* Adds what the blocks of a run have left, one part after the other, at the place of the first. */
static __device__ void add_parts(const ares_attention_args &a, const run &p, float *partial)
{
    int dim = a.head_dim;
    for (int i = (int)threadIdx.x; i < p.own * dim; i += THREADS) {
        int j = i / dim, d = i % dim;
        float *first = left_at(a, p, partial, p.first, j), out = first[d], max = first[dim];
        for (int b = 1; b < p.blocks; b++) {
            const float *next = left_at(a, p, partial, p.first + b, j);
            weights w = weights_of(max, next[dim]);
            out = added(w, out, next[d]);
            max = w.max;
        }
        first[d] = out;
    }
    __syncthreads(); /* all have read the first part's max */
    int j = (int)threadIdx.x;
    if (j >= p.own) return;
    float *first = left_at(a, p, partial, p.first, j), max = first[dim], sum = first[dim + 1];
    for (int b = 1; b < p.blocks; b++) {
        const float *next = left_at(a, p, partial, p.first + b, j);
        weights w = weights_of(max, next[dim]);
        sum = added(w, sum, next[dim + 1]);
        max = w.max;
    }
    first[dim] = max;
    first[dim + 1] = sum;
}

template <typename T>
static __device__ void merge(const ares_attention_args &a, const run &p, float *partial, int each)
{
    int dim = a.head_dim;
    for (int i = (int)threadIdx.x; i < p.own * dim; i += THREADS) {
        int j = i / dim, d = i % dim;
        float max = -INFINITY, sum = 0.0f, out = 0.0f;
        for (int r = 0; r < p.runs; r++) max = fmaxf(max, left_at(a, p, partial, r * each, j)[dim]);
        for (int r = 0; r < p.runs; r++) {
            const float *left = left_at(a, p, partial, r * each, j);
            float weight = expf(left[dim] - max);
            sum = fmaf(left[dim + 1], weight, sum);
            out = fmaf(left[d], weight, out);
        }
        finish<T>(a, p, j, d, out, max, sum);
    }
}

/* The outputs, maxima and sums in m from head `head` on, which are p's: to the row, or left. */
template <typename T>
static __device__ void leave(const ares_attention_args &a, const run &p, const room &m, int head,
                             bool by_parts, float *partial, unsigned *ticket)
{
    int dim = a.head_dim, j = (int)threadIdx.x;
    bool alone = p.runs == 1 && p.blocks == 1;
    const float *out = m.out + head * dim, *max = m.run_max + head, *sum = m.run_sum + head;
    for (int i = j; i < p.own * dim; i += THREADS)
        if (alone) finish<T>(a, p, i / dim, i % dim, out[i], max[i / dim], sum[i / dim]);
        else left_at(a, p, partial, p.place, i / dim)[i % dim] = out[i];
    if (alone) return;
    if (j < p.own) {
        float *left = left_at(a, p, partial, p.place, j);
        left[dim] = max[j];
        left[dim + 1] = sum[j];
    }
    /* a ticket for the segment, and by parts one for each run */
    ticket += (p.s * gridDim.y + blockIdx.y) * (by_parts ? 1 + RUNS : 1);
    if (p.blocks > 1) {
        if (!cuda_is_last(ticket + 1 + p.number, (unsigned)p.blocks)) return;
        add_parts(a, p, partial);
    }
    if (p.runs > 1 && !cuda_is_last(ticket, (unsigned)p.runs)) return;
    if (p.runs == 1) __syncthreads(); /* the parts are added */
    merge<T>(a, p, partial, by_parts ? p.each : 1);
}
template <typename T>
static __device__ void leave_all(const ares_attention_args &a, const run &p, const room &m,
                                 bool by_parts, float *partial, unsigned *ticket)
{
    for (int head = 0; head < p.heads; head += p.own) {
        run of; /* what is no segment's own is p's */
        if (find_run(a, by_parts, p.s + head / p.own, &of))
            leave<T>(a, of, m, head, by_parts, partial, ticket);
    }
}

/* ------------------------------------------------------------------ on CUDA cores */

template <typename T>
static __global__ void __launch_bounds__(THREADS, 4)
    decode(ares_attention_args a, bool by_parts, int blocks, float *partial, unsigned *ticket)
{
    CUDA_SHARED(char, shared);
    run p;
    room m;
    if (!find_run(a, by_parts, (int)blockIdx.x, &p) || (!by_parts && !share_run(a, &p))) return;
    int dim = a.head_dim, first = p.part;
    divide(shared, dim, 0, blocks, &m);
    load_table(a, p, m);
    for (int i = (int)threadIdx.x; i < HEADS * dim; i += THREADS)
        m.q[i] = i / dim < p.heads ? cuda_get(query<T>(a, p, i / dim) + i % dim) : 0.0f;
    for (int part = first; part < p.end; part++) {
        int n = keys_in(p, part);
        __syncthreads();
        /* a thread computes whole keys, for all heads at once */
        for (int key = (int)threadIdx.x; key < n; key += THREADS) {
            const T *k = key_row<T>(a, p, m, part, first, key);
            float sum[HEADS];
            for (int j = 0; j < HEADS; j++) sum[j] = 0.0f;
            for (int d = 0; d < dim; d++) {
                float x = cuda_get(k + d);
#pragma unroll
                for (int j = 0; j < HEADS; j++) sum[j] = fmaf(m.q[j * dim + d], x, sum[j]);
            }
            for (int j = 0; j < HEADS; j++) m.score[j * SCORES + key] = sum[j];
        }
        __syncthreads();
        softmax<false>(a, p, m, part);
        __syncthreads();
        /* then whole columns, keys in order */
        for (int d = (int)threadIdx.x; d < dim; d += THREADS) {
            float sum[HEADS];
            for (int j = 0; j < HEADS; j++) sum[j] = 0.0f;
            for (int key = 0; key < n; key++) {
                float x = cuda_get(key_row<T>(a, p, m, part, first, key) + ARES_KV_BLOCK * dim + d);
#pragma unroll
                for (int j = 0; j < HEADS; j++) sum[j] = fmaf(m.score[j * SCORES + key], x, sum[j]);
            }
            for (int j = 0; j < p.heads; j++) {
                float *out = m.out + j * dim + d;
                *out = part == first ? sum[j]
                                     : added(weights_of(m.run_max[j], m.max[j]), *out, sum[j]);
            }
        }
        __syncthreads(); /* all have read what was before */
        add_sums(m, part == first);
    }
    __syncthreads();
    leave_all<T>(a, p, m, by_parts, partial, ticket);
}

/* ------------------------------------------------------------------ on tensor cores */

/* Begins the copies of a part, if it is one of the block's, and ends a group in any case. */
static __device__ void bring_part(const ares_attention_args &a, const run &p, const room &m,
                                  int part, int first, int stages)
{
    int dim = a.head_dim, padded = dim + 8, n = keys_in(p, part),
        column = (int)threadIdx.x % 8 * 8; /* 8 threads to a row */
    uint16_t *keys = m.stage + (int64_t)((part - first) % stages) * 2 * PART * padded,
             *values = keys + PART * padded;
    for (int key = (int)threadIdx.x / 8; part < p.end && key < PART; key += THREADS / 8) {
        const uint16_t *from = key_row<uint16_t>(a, p, m, part, first, key);
        for (int d = column; d < dim; d += 64) {
            cuda_copy_begin(keys + key * padded + d, from + d, key < n);
            cuda_copy_begin(values + key * padded + d, from + ARES_KV_BLOCK * dim + d, key < n);
        }
    }
    cuda_copy_group();
}

/* Products of the queries with 16 keys of the part, per warp. */
static __device__ void score_16(const uint16_t *keys, int dim, const room &m)
{
    int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 * 16, padded = dim + 8,
        row = lane / 4, column = first + lane % 4 * 2;
    const uint16_t *q = m.q16 + lane % 16 * padded + lane / 16 * 8,
                   *k = keys + (first + lane / 16 * 8 + lane % 8) * padded + lane / 8 % 2 * 8;
    float low[4] = { 0.0f, 0.0f, 0.0f, 0.0f }, high[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    for (int d = 0; d < dim; d += 16) {
        uint32_t of_q[4], of_k[4];
        cuda_load_tiles<false>(of_q, q + d);
        cuda_load_tiles<false>(of_k, k + d);
        cuda_mma(low, of_q, of_k[0], of_k[1]);
        cuda_mma(high, of_q, of_k[2], of_k[3]);
    }
    for (int i = 0; i < 4; i++) {
        float *to = m.score + (row + i / 2 * 8) * SCORES + column + i % 2;
        to[0] = low[i];
        to[8] = high[i];
    }
}

/*
 * TILES of 8 columns of the outputs per warp: tile i of warp w begins at column 8 (w + 4 i). A lane
 * holds those of heads lane / 4 and lane / 4 + 8.
 */
template <int TILES>
static __global__ void __launch_bounds__(THREADS, 4)
    decode_16(ares_attention_args a, bool by_parts, int blocks, float *partial, unsigned *ticket)
{
    enum { STAGES = TILES <= 2 ? 3 : 2 };
    CUDA_SHARED(char, shared);
    run p;
    room m;
    if (!find_run(a, by_parts, (int)blockIdx.x, &p) || (!by_parts && !share_run(a, &p))) return;
    int dim = a.head_dim, padded = dim + 8, first = p.part, lane = (int)threadIdx.x % 32,
        warp = (int)threadIdx.x / 32, head = lane / 4;
    divide(shared, dim, STAGES, blocks, &m);
    load_table(a, p, m);
    for (int j = warp; j < HEADS; j += WARPS) {
        const uint16_t *q = j < p.heads ? query<uint16_t>(a, p, j) : NULL;
        for (int d = lane; d < dim; d += 32) m.q16[j * padded + d] = q ? q[d] : (uint16_t)0;
    }
    __syncthreads();
    for (int i = 0; i < STAGES - 1; i++) bring_part(a, p, m, first + i, first, STAGES);
    float out[TILES][4];
    for (int part = first; part < p.end; part++) {
        cuda_copy_wait<STAGES - 2>();
        __syncthreads(); /* the part is there for all, and the one before is not read any more */
        if (part > first) add_sums(m, part == first + 1);
        bring_part(a, p, m, part + STAGES - 1, first, STAGES);
        const uint16_t *keys = m.stage + (int64_t)((part - first) % STAGES) * 2 * PART * padded,
                       *values = keys + PART * padded;
        score_16(keys, dim, m);
        __syncthreads();
        softmax<true>(a, p, m, part);
        __syncthreads();
        uint32_t share[PART / 16][4];
        for (int i = 0; i < PART / 16; i++)
            cuda_load_tiles<false>(share[i], m.share + lane % 16 * SCORES + 16 * i + lane / 16 * 8);
        weights of[2];
        for (int i = 0; i < 2; i++)
            of[i] = weights_of(part > first ? m.run_max[head + 8 * i] : 0.0f, m.max[head + 8 * i]);
        for (int i = 0; i < TILES; i++) {
            int column = 8 * (warp + WARPS * i);
            if (column >= dim) break;
            float now[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
            for (int k = 0; k < PART; k += 32) {
                uint32_t v[4];
                cuda_load_tiles<true>(v, values + (k + lane) * padded + column);
                cuda_mma(now, share[k / 16], v[0], v[1]);
                cuda_mma(now, share[k / 16 + 1], v[2], v[3]);
            }
            for (int j = 0; j < 4; j++)
                out[i][j] = part > first ? added(of[j / 2], out[i][j], now[j]) : now[j];
        }
    }
    cuda_copy_wait<0>();
    __syncthreads();
    add_sums(m, p.end == first + 1);
    for (int i = 0; i < TILES; i++)
        for (int j = 0; j < 4; j++) {
            int column = 8 * (warp + WARPS * i) + lane % 4 * 2 + j % 2;
            if (column < dim) m.out[(head + j / 2 * 8) * dim + column] = out[i][j];
        }
    __syncthreads();
    leave_all<uint16_t>(a, p, m, by_parts, partial, ticket);
}

bool cuda_decodes(const ares_attention_args *a)
{
    return a->cache && a->causal && a->seg.max_keys > 0;
}

void cuda_decode(ares_device *d, const ares_attention_args *a)
{
    cuda_context *c = cuda_enter(d);
    int dim = a->head_dim, most = a->seg.max_keys, seen = a->window > 0 ? a->window : most,
        /* of a row that sees so many keys, the first of which may lie inside a part */
        parts = ARES_MIN((seen + PART - 2) / PART + 1, (most + PART - 1) / PART),
        runs = ARES_MIN((parts + RUN - 1) / RUN, (int)RUNS), heads = a->n_kv_heads * head_tiles(*a),
        each = ARES_MAX((parts + RUNS - 1) / RUNS, (int)RUN);
    bool by_parts = (int64_t)a->seg.n * heads * runs <= FEW_BLOCKS;
    int blocks = (by_parts ? 1 : each) * BLOCKS; /* of the cache, for a thread block */
    dim3 grid((unsigned)a->seg.n, (unsigned)heads, (unsigned)(by_parts ? parts : runs));
    float *partial = NULL;
    unsigned *ticket = NULL;
    if (grid.z > 1) {
        size_t left = (size_t)a->seg.n * (size_t)a->n_heads * grid.z;
        ticket = cuda_tickets(c, (size_t)grid.x * grid.y * (by_parts ? 1 + RUNS : 1));
        partial = (float *)cuda_scratch(c, CUDA_PARTS, left * (size_t)(dim + 2) * sizeof(float));
        if (!ticket || !partial) return;
    }
    bool tensor = d->k->act == ARES_BF16 && dim % 16 == 0 && cuda_in_16s<uint16_t>(a->cache, dim);
    room m;
    size_t shared = divide(NULL, dim, !tensor ? 0 : dim <= 64 ? 3 : 2, blocks, &m);
    cuda_launch(c, "attention: decode",
                !tensor      ? CUDA_BY_TYPE(c, decode)
                : dim <= 32  ? decode_16<1>
                : dim <= 64  ? decode_16<2>
                : dim <= 128 ? decode_16<4>
                             : decode_16<8>,
                grid, THREADS, shared, *a, by_parts, blocks, partial, ticket);
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
