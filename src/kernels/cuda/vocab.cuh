/* What head and sampler share: softmax statistics of a row by a block of VOCAB_THREADS threads. */
#ifndef ARES_KERNELS_CUDA_VOCAB_CUH
#define ARES_KERNELS_CUDA_VOCAB_CUH

#include "device.cuh"

enum { VOCAB_THREADS = 512 };
/* 256 MiB of logits at once, but never less than a row */
static const int64_t VOCAB_LOGITS = 1 << 26;

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
 * Called by all threads of the block: thread t reads the logits t, t + 512 ... in order. The same
 * result in every thread.
 */
static __device__ inline vocab_total vocab_total_of(const float *z, int32_t vocab,
                                                    float inv_temperature)
{
    float max = -INFINITY, sum = 0.0f, sum_z = 0.0f;
    for (int32_t i = threadIdx.x; i < vocab; i += VOCAB_THREADS)
        max = fmaxf(max, vocab_scaled(z[i], inv_temperature));
    max = cuda_block_max(max);
    float shift = max == -INFINITY ? 0.0f : max;
    for (int32_t i = threadIdx.x; i < vocab; i += VOCAB_THREADS) {
        float d = vocab_scaled(z[i], inv_temperature) - shift;
        if (d < -128.0f) d = -128.0f; /* e is 0 there and e d, too; NaN stays */
        float e = expf(d);
        sum += e;
        sum_z = fmaf(e, d, sum_z);
    }
    sum = cuda_block_sum(sum);
    sum_z = cuda_block_sum(sum_z);
    float log_sum = logf(sum);
    return { max, log_sum, log_sum - sum_z / sum };
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
