/*
 * Rows of the embedding by token id. For the gradient, each row has a block; the block of an id's
 * first row adds all rows of that id in order, so its bits are the CPU's, and the other blocks of
 * that id return.
 */
#include "activation.cuh"

template <typename E, typename T>
static __global__ void look_up(const void *e, int32_t k, const int32_t *ids, void *y, int64_t ldy)
{
    int64_t row = blockIdx.x, from = (int64_t)ids[row] * k;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x)
        cuda_put((T *)y + row * ldy + i, cuda_get((const E *)e + from + i));
}

void cuda_embedding(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                    int64_t ldy)
{
    cuda_context *c = cuda_enter(d);
    bool wide = e->dtype == ARES_F32, of_wide = c->act == ARES_F32;
    ARES_ASSERT(e->layout == ARES_ROWS && e->dtype != ARES_F16 && (of_wide || !wide));
    cuda_launch(c, "embedding",
                !of_wide ? look_up<uint16_t, uint16_t>
                : wide   ? look_up<float, float>
                         : look_up<uint16_t, float>,
                (unsigned)n, CUDA_THREADS, 0, e->data, e->k, ids, y, ldy);
}

template <typename E, typename T>
static __global__ void add_rows(void *de, int32_t k, const int32_t *ids, int32_t n, const void *dy,
                                int64_t lddy)
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
                const T *from = (const T *)dy + (first + w * 32 + __ffs((int)bits) - 1) * lddy;
                for (int32_t i = threadIdx.x; i < k; i += CUDA_THREADS) {
                    E *to = (E *)de + (int64_t)id * k + i;
                    cuda_put(to, cuda_get(to) + cuda_get(from + i));
                }
            }
        __syncthreads();
    }
}

void cuda_embedding_backward(ares_device *d, const ares_matrix *de, const int32_t *ids, int32_t n,
                             const void *dy, int64_t lddy)
{
    cuda_context *c = cuda_enter(d);
    ARES_ASSERT(de->layout == ARES_ROWS && (de->dtype == ARES_F32 || de->dtype == c->act));
    cuda_launch(c, "embedding_backward",
                c->act == ARES_F32       ? add_rows<float, float>
                : de->dtype == ARES_BF16 ? add_rows<uint16_t, uint16_t>
                                         : add_rows<float, uint16_t>,
                (unsigned)n, CUDA_THREADS, 0, de->data, de->k, ids, n, dy, lddy);
}
