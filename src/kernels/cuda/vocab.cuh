/*
 * What head and sampler share: softmax statistics of a row of logits, which is read once. A row is
 * divided into chunks of VOCAB_CHUNK, whatever the number of rows; a thread block computes one, and
 * the last of a row to end merges them in their order. So head and sampler have the same bits.
 */
#ifndef ARES_KERNELS_CUDA_VOCAB_CUH
#define ARES_KERNELS_CUDA_VOCAB_CUH

#include "device.cuh"

enum { VOCAB_THREADS = 512, VOCAB_CHUNK = 8192 };
/*
 * A GiB of logits at once, but never less than a row: the gradient of the head's weight is read and
 * written once per piece, so that few rows cost more than the products (1,766 at Qwen's 151,936).
 * The tests' build says less, to see several pieces.
 */
#ifndef ARES_VOCAB_LOGITS
#define ARES_VOCAB_LOGITS (1 << 28)
#endif
static const int64_t VOCAB_LOGITS = ARES_VOCAB_LOGITS;

/* The log-prob of a logit z is (z - max) - log_sum: more precise than z minus their rounded sum. */
typedef struct vocab_total {
    float max, log_sum, entropy;
} vocab_total;

/* The product is never part of an FMA, so that a logit gives the same bits everywhere. */
static __device__ inline float vocab_scaled(float z, float inv_temperature)
{
    return __fmul_rn(z, inv_temperature);
}

/*
 * Statistics of some logits in one pass: their maximum, and sums of e = exp(z - max) and e (z -
 * max), which move along when the maximum does. Rounded step by step, so that merging a with b
 * gives the bits of merging b with a.
 */
typedef struct vocab_sums {
    float max, sum, sum_z;
} vocab_sums;
static __device__ inline vocab_sums vocab_none(void)
{
    return { -INFINITY, 0.0f, 0.0f };
}
/* The sums with respect to a higher maximum. */
static __device__ inline vocab_sums vocab_moved(vocab_sums s, float max)
{
    if (s.max == -INFINITY || s.max == max) return { max, s.sum, s.sum_z };
    float gap = s.max - max, e = expf(gap);
    return { max, __fmul_rn(s.sum, e), __fmul_rn(__fadd_rn(s.sum_z, __fmul_rn(gap, s.sum)), e) };
}
static __device__ inline vocab_sums vocab_merged(vocab_sums a, vocab_sums b)
{
    float max = fmaxf(a.max, b.max);
    a = vocab_moved(a, max);
    b = vocab_moved(b, max);
    return { max, __fadd_rn(a.sum, b.sum), __fadd_rn(a.sum_z, b.sum_z) };
}
/* Whether the logits of a row can be read 16 bytes at once. */
static __device__ inline bool vocab_whole(const float *z, int32_t vocab)
{
    return (uintptr_t)z % 16 == 0 && vocab % 4 == 0;
}
/* Logits i to i + 3 of a row of `vocab`, -infinity beyond its end: one load where it is whole. */
static __device__ inline void vocab_four(const float *z, int32_t i, int32_t vocab, bool whole,
                                         float (&x)[4])
{
    if (whole && i < vocab) {
        float4 v = *(const float4 *)(z + i);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else
        for (int j = 0; j < 4; j++) x[j] = i + j < vocab ? z[i + j] : -INFINITY;
}
/* Adds four neighbouring logits at their temperature; -infinity adds nothing. */
static __device__ inline vocab_sums vocab_added(vocab_sums s, const float (&z)[4], float scale)
{
    float max = s.max;
    for (int i = 0; i < 4; i++) max = fmaxf(max, vocab_scaled(z[i], scale));
    s = vocab_moved(s, max);
    float shift = max == -INFINITY ? 0.0f : max;
    for (int i = 0; i < 4; i++) {
        float d = vocab_scaled(z[i], scale) - shift;
        if (d < -128.0f) d = -128.0f; /* e is 0 there and e d, too; NaN stays */
        float e = expf(d);
        s.sum += e;
        s.sum_z = fmaf(e, d, s.sum_z);
    }
    return s;
}
static __device__ inline vocab_sums vocab_warp_merged(vocab_sums s, int from)
{
    for (int step = from; step; step /= 2)
        s = vocab_merged(s, { __shfl_xor_sync(0xffffffffu, s.max, step),
                              __shfl_xor_sync(0xffffffffu, s.sum, step),
                              __shfl_xor_sync(0xffffffffu, s.sum_z, step) });
    return s;
}
/* Of all threads of the block, the same in every thread. */
static __device__ inline vocab_sums vocab_block_merged(vocab_sums s)
{
    __shared__ vocab_sums of_warp[VOCAB_THREADS / 32];
    __syncthreads(); /* of_warp of the call before may still be read */
    s = vocab_warp_merged(s, 16);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = s;
    __syncthreads();
    return vocab_warp_merged(of_warp[threadIdx.x % (VOCAB_THREADS / 32)], VOCAB_THREADS / 64);
}
static __device__ inline vocab_total vocab_total_of(vocab_sums s)
{
    float log_sum = logf(s.sum);
    return { s.max, log_sum, log_sum - s.sum_z / s.sum };
}

static inline int32_t vocab_chunks(int32_t vocab)
{
    return (vocab + VOCAB_CHUNK - 1) / VOCAB_CHUNK;
}
/* The block's row and chunk of a grid of rows * chunks blocks. */
typedef struct vocab_place {
    int64_t row;
    int32_t chunk, from, to; /* logits [from, to) */
} vocab_place;
static __device__ inline vocab_place vocab_place_of(int32_t vocab, int32_t chunks)
{
    int32_t chunk = (int32_t)(blockIdx.x % (unsigned)chunks), from = chunk * VOCAB_CHUNK;
    return { blockIdx.x / (unsigned)chunks, chunk, from, ARES_MIN(vocab, from + VOCAB_CHUNK) };
}
/*
 * A thread's logits of a chunk, each read once, all loads under way together: four f begins at
 * place.from + 4 (t + f VOCAB_THREADS).
 */
enum { VOCAB_FOURS = VOCAB_CHUNK / (4 * VOCAB_THREADS) };
static __device__ inline int32_t vocab_first(const vocab_place &at, int f)
{
    return at.from + 4 * ((int32_t)threadIdx.x + f * VOCAB_THREADS);
}
static __device__ inline void vocab_read(const float *z, const vocab_place &at, int32_t vocab,
                                         float (&x)[VOCAB_FOURS][4])
{
    bool whole = vocab_whole(z, vocab);
#pragma unroll
    for (int f = 0; f < VOCAB_FOURS; f++) vocab_four(z, vocab_first(at, f), at.to, whole, x[f]);
}
static __device__ inline float vocab_log_prob(const vocab_total &t, float scaled)
{
    return (scaled - t.max) - t.log_sum;
}

/* Rows whose logits are held at once. */
static inline int32_t vocab_rows(int64_t rows, int64_t vocab)
{
    int64_t most = VOCAB_LOGITS / vocab;
    return (int32_t)(rows < most ? rows : most > 1 ? most : 1);
}
/* The first rows of W: those of tokens. */
static inline ares_matrix vocab_part(const ares_matrix *w, int32_t vocab)
{
    ares_matrix part = *w;
    part.n = vocab;
    return part;
}

#endif
