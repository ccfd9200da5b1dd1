/*
 * Rows of the embedding by token id. For the gradient, each row has a block; the block of an id's
 * first row adds all rows of that id in order, so its bits are the CPU's, and the other blocks of
 * that id return.
 */
#include "device.cuh"

template <typename T> static __device__ float widened(T x);
template <> __device__ float widened(float x)
{
    return x;
}
template <> __device__ float widened(uint16_t x)
{
    return cuda_from_bf16(x);
}

template <typename T>
static __global__ void look_up(const T *e, int32_t k, const int32_t *ids, float *y, int64_t ldy)
{
    int64_t row = blockIdx.x, from = (int64_t)ids[row] * k;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x) y[row * ldy + i] = widened(e[from + i]);
}

void cuda_embedding(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                    int64_t ldy)
{
    cuda_context *c = cuda_enter(d);
    ARES_ASSERT(e->layout == ARES_ROWS && e->dtype != ARES_F16);
    if (e->dtype == ARES_F32)
        cuda_launch(c, "embedding", look_up<float>, (unsigned)n, CUDA_THREADS, 0,
                    (const float *)e->data, e->k, ids, (float *)y, ldy);
    else
        cuda_launch(c, "embedding", look_up<uint16_t>, (unsigned)n, CUDA_THREADS, 0,
                    (const uint16_t *)e->data, e->k, ids, (float *)y, ldy);
}

static __global__ void add_rows(float *de, int32_t k, const int32_t *ids, int32_t n,
                                const float *dy, int64_t lddy)
{
    __shared__ uint32_t same[CUDA_THREADS / 32]; /* one bit per row: whether it has this id */
    int32_t own = blockIdx.x, id = ids[own];
    bool later = false;
    for (int32_t r = threadIdx.x; r < own; r += CUDA_THREADS) later = later || ids[r] == id;
    if (__syncthreads_or(later)) return;
    for (int32_t first = own; first < n; first += CUDA_THREADS) {
        int32_t r = first + threadIdx.x;
        uint32_t bits = __ballot_sync(0xffffffffu, r < n && ids[r] == id);
        if (threadIdx.x % 32 == 0) same[threadIdx.x / 32] = bits;
        __syncthreads();
        for (int32_t w = 0; w < CUDA_THREADS / 32; w++)
            for (bits = same[w]; bits; bits &= bits - 1) {
                const float *from = dy + (first + w * 32 + __ffs((int)bits) - 1) * lddy;
                for (int32_t i = threadIdx.x; i < k; i += CUDA_THREADS)
                    de[(int64_t)id * k + i] += from[i];
            }
        __syncthreads();
    }
}

void cuda_embedding_backward(ares_device *d, const ares_matrix *de, const int32_t *ids, int32_t n,
                             const void *dy, int64_t lddy)
{
    ARES_ASSERT(de->layout == ARES_ROWS && de->dtype == ARES_F32);
    cuda_launch(cuda_enter(d), "embedding_backward", add_rows, (unsigned)n, CUDA_THREADS, 0,
                (float *)de->data, de->k, ids, n, (const float *)dy, lddy);
}
