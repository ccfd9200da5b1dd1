/*
 * What the twins of algo share: their memory, copies of host arrays, sums of a block. Compiled
 * without contraction into FMAs, as the C is.
 */
#ifndef ARES_ALGO_CUDA_TWIN_CUH
#define ARES_ALGO_CUDA_TWIN_CUH

#include "device.cuh"
#include "twin.h"

enum {
    TWIN_THREADS = 256,
    TWIN_WARPS = TWIN_THREADS / 32,
    TWIN_BLOCKS = 528, /* 4 on each multiprocessor of an H100 */
    /*
     * Blocks that a multiprocessor must hold of a kernel with many f64 values per thread. It leaves
     * 128 registers per thread; without it ptxas aims lower and spills some of them to memory.
     */
    TWIN_HELD = 2
};
#define TWIN_ALL 0xffffffffu

/* One call's device memory, taken from the front. */
typedef struct twin_memory {
    ares_device *d;
    cuda_context *c; /* NULL after a recorded failure */
    char *at, *end;
} twin_memory;
/* bytes: of all that will be taken; arrays: how many. */
twin_memory twin_open(ares_device *d, size_t bytes, int arrays);
void *twin_bytes(twin_memory *m, size_t bytes);
/* Before and after the launches, for the clock of kernel_s. */
void twin_begin(twin_memory *m);
void twin_end(twin_memory *m);
int twin_close(twin_memory *m); /* waits for the device; returns its first failure */

template <typename T> static inline T *twin_take(twin_memory *m, int64_t n)
{
    return (T *)twin_bytes(m, (size_t)n * sizeof(T));
}
template <typename T> static inline T *twin_zeros(twin_memory *m, int64_t n)
{
    T *p = twin_take<T>(m, n);
    if (p && n)
        cuda_check(m->c, cudaMemsetAsync(p, 0, (size_t)n * sizeof(T), m->c->stream), "zero");
    return p;
}
/* A copy of x [n]; NULL for NULL. */
template <typename T> static inline T *twin_up(twin_memory *m, const T *x, int64_t n)
{
    T *p = x ? twin_take<T>(m, n) : NULL;
    if (p && n) cuda_in(m->c, p, x, (size_t)n * sizeof(T));
    return p;
}
template <typename T>
static inline bool twin_down(twin_memory *m, T *host, const T *device, int64_t n)
{
    return !host || n == 0 || cuda_out(m->c, host, device, (size_t)n * sizeof(T));
}

static inline unsigned twin_blocks(int64_t n)
{
    return (unsigned)(n < TWIN_BLOCKS ? n : (int64_t)TWIN_BLOCKS);
}

static __device__ inline bool twin_finite(double x)
{
    return x - x == 0;
}

static __device__ inline double twin_warp_sum(double v)
{
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(TWIN_ALL, v, step);
    return v;
}
/* The sum over a block of TWIN_THREADS, in one tree; every thread gets it. */
static __device__ inline double twin_block_sum(double v)
{
    __shared__ double of_warp[TWIN_WARPS];
    __syncthreads(); /* the result of an earlier call may still be read */
    v = twin_warp_sum(v);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < TWIN_WARPS; i++) sum += of_warp[i];
    return sum;
}
static __device__ inline double twin_block_max(double v) /* ignores NaN */
{
    __shared__ double of_warp[TWIN_WARPS];
    __syncthreads();
    for (int step = 16; step; step /= 2) {
        double other = __shfl_xor_sync(TWIN_ALL, v, step);
        v = other > v ? other : v;
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    double most = of_warp[0];
    for (int i = 1; i < TWIN_WARPS; i++) most = of_warp[i] > most ? of_warp[i] : most;
    return most;
}
/* Notes the first place of an input that cannot be computed with. */
template <typename U> static __device__ inline void twin_fault(U *fault, int64_t t)
{
    atomicMin((unsigned long long *)fault, (unsigned long long)t);
}
static __device__ inline void twin_count(uint64_t *to, unsigned n)
{
    atomicAdd((unsigned long long *)to, (unsigned long long)n);
}

/*
 * Whether this block is the last of its launch to come here: then what the others wrote before they
 * came is there to read.
 */
static __device__ inline bool twin_last_block(ares_card_sums *s)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd((unsigned long long *)&s->blocks, 1ull) == gridDim.x - 1;
    __syncthreads();
    if (last) __threadfence();
    if (last && threadIdx.x == 0) s->blocks = 0; /* for the next launch */
    return last;
}
/*
 * Adds the first n of the `width` sums of every block to the card's, a warp per sum: lane i adds
 * the blocks i, i + 32 ... in order, and the lanes meet in one tree.
 */
static __device__ inline void twin_add_blocks(const double *partial, int width, int n,
                                              ares_card_sums *to)
{
    for (int i = (int)threadIdx.x / 32; i < n; i += TWIN_WARPS) {
        double sum = 0;
        for (unsigned b = threadIdx.x % 32; b < gridDim.x; b += 32)
            sum += partial[(int64_t)b * width + i];
        sum = twin_warp_sum(sum);
        if (threadIdx.x % 32 == 0) to->sum[i] += sum;
    }
}
enum : unsigned long long { TWIN_NO_FAULT = ~0ull };

/* The twins, by file. */
int cuda_algo_loss(ares_device *d, const twin_loss_args *t);
int cuda_algo_value(ares_device *d, const ares_value_args *a);
int cuda_algo_kl(ares_device *d, const ares_kl *kl, int64_t n, const float *log_prob,
                 const float *ref_log_prob, const uint8_t *mask, float *out);
int cuda_algo_rollout_weights(ares_device *d, const twin_rollout_weights_args *t);
int cuda_algo_gae(ares_device *d, const twin_gae_args *t);
int cuda_algo_windows(ares_device *d, const twin_windows_args *t);

#endif
