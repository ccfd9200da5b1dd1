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
/* Adds n <= 4 neighbouring logits at their temperature. */
static __device__ inline vocab_sums vocab_added(vocab_sums s, const float *z, int n, float scale)
{
    float max = s.max;
    for (int i = 0; i < n; i++) max = fmaxf(max, vocab_scaled(z[i], scale));
    s = vocab_moved(s, max);
    float shift = max == -INFINITY ? 0.0f : max;
    for (int i = 0; i < n; i++) {
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
/* In a chunk, thread t reads the logits 4 t to 4 t + 3, then 2048 later. */
#define VOCAB_EACH_4(i, place)                                                \
    for (int32_t i = (place).from + 4 * (int32_t)threadIdx.x; i < (place).to; \
         i += 4 * VOCAB_THREADS)
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
