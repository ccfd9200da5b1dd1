/*
 * Log-prob and entropy of logits that exist already, of any width, and their derivatives in place.
 * Each row has a block and is read once: every thread keeps a running maximum with its two sums
 * (Milakov and Gimelshein, arXiv 1805.02867), and one tree joins them, so that a row's numbers
 * depend only on the row and its type.
 */
#include "vocab.cuh"

template <typename T> struct logit_type;
template <> struct logit_type<float> {
    static __device__ float get(float x)
    {
        return x;
    }
    static __device__ float put(float x)
    {
        return x;
    }
};
template <> struct logit_type<uint16_t> {
    static __device__ float get(uint16_t x)
    {
        return cuda_from_bf16(x);
    }
    static __device__ uint16_t put(float x)
    {
        return cuda_to_bf16(x);
    }
};

/* N logits read at once: 16 bytes where rows are aligned to them; otherwise one, as at row ends. */
template <typename T, int N> struct alignas(sizeof(T) * N) logit_pack {
    T x[N];
};

/* The maximum so far and, with e = exp(z - max), the sum of e and of e (z - max). */
typedef struct running {
    float max, sum, sum_z;
} running;

template <int N> static __device__ inline void running_add(running *r, const float *z)
{
    float top = z[0];
    for (int i = 1; i < N; i++) top = fmaxf(top, z[i]);
    if (top > r->max) {
        if (r->sum > 0) {
            float step = r->max - top, scale = expf(step);
            r->sum_z = scale * fmaf(step, r->sum, r->sum_z);
            r->sum *= scale;
        }
        r->max = top;
    }
    float shift = r->max == -INFINITY ? 0.0f : r->max;
    for (int i = 0; i < N; i++) {
        float d = z[i] - shift;
        if (d < -128.0f) d = -128.0f; /* e is 0 there and e d, too; NaN stays */
        float e = expf(d);
        r->sum += e;
        r->sum_z = fmaf(e, d, r->sum_z);
    }
}

static __device__ inline vocab_total running_meet(running r)
{
    float max = cuda_block_max(r.max),
          step = r.max == -INFINITY ? -128.0f : fmaxf(r.max - max, -128.0f), scale = expf(step);
    float sum = cuda_block_sum(scale * r.sum),
          sum_z = cuda_block_sum(scale * fmaf(step, r.sum, r.sum_z)), log_sum = logf(sum);
    return { max, log_sum, log_sum - sum_z / sum };
}

template <typename T, int N>
static __global__ void __launch_bounds__(VOCAB_THREADS)
    statistics(const T *logits, int64_t ld, int32_t vocab, float inv_temperature,
               const int32_t *target, float *log_prob, float *entropy, float *lse)
{
    int64_t row = blockIdx.x;
    const T *z = logits + row * ld;
    running r = { -INFINITY, 0.0f, 0.0f };
    int32_t whole = vocab / N * N;
    for (int32_t i = (int32_t)threadIdx.x * N; i < whole; i += VOCAB_THREADS * N) {
        logit_pack<T, N> p = *reinterpret_cast<const logit_pack<T, N> *>(z + i);
        float x[N];
        for (int k = 0; k < N; k++)
            x[k] = vocab_scaled(logit_type<T>::get(p.x[k]), inv_temperature);
        running_add<N>(&r, x);
    }
    for (int32_t i = whole + (int32_t)threadIdx.x; i < vocab; i += VOCAB_THREADS) {
        float x = vocab_scaled(logit_type<T>::get(z[i]), inv_temperature);
        running_add<1>(&r, &x);
    }
    vocab_total t = running_meet(r);
    if (threadIdx.x) return;
    log_prob[row] =
        vocab_log_prob(t, vocab_scaled(logit_type<T>::get(z[target[row]]), inv_temperature));
    entropy[row] = t.entropy;
    lse[row] = t.max + t.log_sum;
}

/*
 * As in head.cu: with p = exp(z - lse), -p (c + ce (log p + H)), plus c at the target, all times
 * inv_temperature.
 */
template <typename T>
static __global__ void __launch_bounds__(VOCAB_THREADS)
    differentiate(T *logits, int64_t ld, int32_t vocab, float inv_temperature,
                  const int32_t *target, const float *entropy, const float *lse, const float *c,
                  const float *ce)
{
    int64_t row = blockIdx.x;
    T *z = logits + row * ld;
    float weight = c[row], of_entropy = ce ? ce[row] : 0.0f, shift = lse[row], h = entropy[row];
    int32_t taken = target[row];
    for (int32_t i = (int32_t)(blockIdx.y * VOCAB_THREADS + threadIdx.x); i < vocab;
         i += (int32_t)(gridDim.y * VOCAB_THREADS)) {
        float d = vocab_scaled(logit_type<T>::get(z[i]), inv_temperature) - shift, p = expf(d);
        /* -infinity is a probability of 0 */
        float g = p == 0.0f ? 0.0f : p * fmaf(of_entropy, d + h, weight) * -inv_temperature;
        z[i] = logit_type<T>::put(i == taken ? g + weight * inv_temperature : g);
    }
}

/* Numbers per row on the device, [rows] each. c, ce: coefficients of log_prob and entropy. */
typedef struct row_numbers {
    int32_t *target;
    float *log_prob, *entropy, *lse, *c, *ce;
} row_numbers;

static bool numbers_new(cuda_context *c, const ares_logits_args *a, row_numbers *r)
{
    for (int32_t i = 0; i < a->rows; i++) ARES_ASSERT(a->target[i] >= 0 && a->target[i] < a->vocab);
    float *p =
        a->rows ? (float *)cuda_scratch(c, CUDA_ROWS, (size_t)a->rows * 6 * sizeof(float)) : NULL;
    if (!p) return false;
    int64_t n = a->rows;
    *r = { (int32_t *)p, p + n, p + 2 * n, p + 3 * n, p + 4 * n, p + 5 * n };
    return cuda_in(c, r->target, a->target, (size_t)n * sizeof *a->target);
}

template <typename T>
static void launch_statistics(cuda_context *c, const ares_logits_args *a, const row_numbers *r)
{
    enum { N = 16 / sizeof(T) };
    const T *z = (const T *)a->logits;
    bool packed = (uintptr_t)z % 16 == 0 && a->ld % N == 0;
    cuda_launch(c, "token_log_prob", packed ? statistics<T, N> : statistics<T, 1>,
                (unsigned)a->rows, VOCAB_THREADS, 0, z, a->ld, a->vocab, a->inv_temperature,
                r->target, r->log_prob, r->entropy, r->lse);
}

void cuda_token_log_prob(ares_device *d, const ares_logits_args *a)
{
    cuda_context *c = cuda_enter(d);
    row_numbers r;
    size_t bytes = (size_t)a->rows * sizeof(float);
    ARES_ASSERT(a->dtype != ARES_F16);
    if (!numbers_new(c, a, &r)) return;
    if (a->dtype == ARES_BF16) launch_statistics<uint16_t>(c, a, &r);
    else launch_statistics<float>(c, a, &r);
    cuda_out(c, a->log_prob, r.log_prob, bytes);
    if (a->entropy) cuda_out(c, a->entropy, r.entropy, bytes);
    if (a->lse) cuda_out(c, a->lse, r.lse, bytes);
}

void cuda_token_log_prob_backward(ares_device *d, const ares_logits_args *a)
{
    cuda_context *c = cuda_enter(d);
    row_numbers r;
    size_t bytes = (size_t)a->rows * sizeof(float);
    ARES_ASSERT(a->dtype != ARES_F16);
    if (!numbers_new(c, a, &r)) return;
    cuda_in(c, r.entropy, a->entropy, bytes);
    cuda_in(c, r.lse, a->lse, bytes);
    cuda_in(c, r.c, a->c_log_prob, bytes);
    if (a->c_entropy) cuda_in(c, r.ce, a->c_entropy, bytes);
    const float *ce = a->c_entropy ? r.ce : NULL;
    dim3 grid((unsigned)a->rows, 8);
    if (a->dtype == ARES_BF16)
        cuda_launch(c, "token_log_prob_backward", differentiate<uint16_t>, grid, VOCAB_THREADS, 0,
                    (uint16_t *)a->logits, a->ld, a->vocab, a->inv_temperature, r.target, r.entropy,
                    r.lse, r.c, ce);
    else
        cuda_launch(c, "token_log_prob_backward", differentiate<float>, grid, VOCAB_THREADS, 0,
                    (float *)a->logits, a->ld, a->vocab, a->inv_temperature, r.target, r.entropy,
                    r.lse, r.c, ce);
}
