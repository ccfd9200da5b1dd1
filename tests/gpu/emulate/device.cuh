/*
 * Replaces src/kernels/cuda/device.cuh where there is no card: the C++ compiler compiles
 * src/algo/cuda against it, and its kernels run here, one block after the other, with a fiber per
 * thread of the block. Barriers, shuffles, votes and shared memory work as on a card; a barrier
 * that not every thread reaches ends the program with a message. It checks what the kernels
 * compute, not how fast.
 */
#ifndef ARES_CUDA_DEVICE_CUH
#define ARES_CUDA_DEVICE_CUH

#include "ares/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __shared__ static /* blocks run one after the other */
#define __launch_bounds__(n)

typedef struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
} dim3;
extern dim3 threadIdx, blockIdx, blockDim, gridDim; /* of the running fiber */

/* ------------------------------------------------------------------ fibers (emulate.cpp) */
enum { EMULATE_WARP, EMULATE_BLOCK };
/* Waits until every thread of the warp, or the block, that has not ended waits here. */
void emulate_wait(int level);
uint64_t *emulate_lane(int lane); /* the word that a lane of this warp shows to the others */
void emulate_grid(const char *operation, unsigned blocks, unsigned threads, void (*body)(void *),
                  void *ctx);

static inline void __syncthreads(void)
{
    emulate_wait(EMULATE_BLOCK);
}
template <typename T> static inline T emulate_from(T v, int lane)
{
    uint64_t word = 0;
    static_assert(sizeof v <= sizeof word, "one word per lane");
    memcpy(&word, &v, sizeof v);
    *emulate_lane((int)threadIdx.x % 32) = word;
    emulate_wait(EMULATE_WARP);
    memcpy(&v, emulate_lane(lane), sizeof v);
    emulate_wait(EMULATE_WARP); /* every lane has read */
    return v;
}
template <typename T> static inline T __shfl_sync(unsigned, T v, int lane)
{
    return emulate_from(v, lane % 32);
}
template <typename T> static inline T __shfl_xor_sync(unsigned, T v, int mask)
{
    return emulate_from(v, ((int)threadIdx.x % 32) ^ mask);
}
template <typename T> static inline unsigned __match_any_sync(unsigned, T v)
{
    unsigned same = 0;
    *emulate_lane((int)threadIdx.x % 32) = (uint64_t)v;
    emulate_wait(EMULATE_WARP);
    for (int i = 0; i < 32; i++) same |= (unsigned)(*emulate_lane(i) == (uint64_t)v) << i;
    emulate_wait(EMULATE_WARP);
    return same;
}
template <typename T, typename V> static inline T atomicAdd(T *p, V v)
{
    T old = *p;
    *p = (T)(old + (T)v);
    return old;
}
template <typename T, typename V> static inline T atomicMin(T *p, V v)
{
    T old = *p;
    *p = (T)v < old ? (T)v : old;
    return old;
}
template <typename T, typename V> static inline T atomicMax(T *p, V v)
{
    T old = *p;
    *p = (T)v > old ? (T)v : old;
    return old;
}
template <typename T, typename V> static inline T atomicExch(T *p, V v)
{
    T old = *p;
    *p = (T)v;
    return old;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline long long __double_as_longlong(double x)
{
    long long u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline double __longlong_as_double(long long u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---------------- the device's memory is the host's */
typedef int cudaError_t, cudaStream_t;
typedef struct cudaEvent *cudaEvent_t;
enum { cudaSuccess };
enum cuda_slot { CUDA_TWIN, CUDA_SLOTS };
typedef struct cuda_context {
    bool failed;
    cudaStream_t stream;
    char *memory;
} cuda_context;
cuda_context *cuda_enter(ares_device *d);
/*
 * New memory of exactly so many bytes on every call, all bits set: a sanitizer finds accesses
 * beyond it, a test finds what was never written.
 */
void *cuda_scratch(cuda_context *c, cuda_slot slot, size_t bytes);
static inline bool cuda_check(cuda_context *, cudaError_t error, const char *)
{
    return error == cudaSuccess;
}
static inline bool cuda_in(cuda_context *, void *device, const void *host, size_t bytes)
{
    memcpy(device, host, bytes);
    return true;
}
static inline bool cuda_out(cuda_context *, void *host, const void *device, size_t bytes)
{
    memcpy(host, device, bytes);
    return true;
}
static inline cudaError_t cudaMemsetAsync(void *p, int v, size_t bytes, cudaStream_t)
{
    memset(p, v, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    *e = (cudaEvent_t)e;
    return cudaSuccess;
}
static inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    return cudaSuccess;
}
static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t)
{
    *ms = 0;
    return cudaSuccess;
}

template <typename T> struct cuda_same {
    typedef T type;
};
template <typename F> static void emulate_body(void *f)
{
    (*(F *)f)();
}
template <typename... P>
void cuda_launch(cuda_context *, const char *operation, void (*kernel)(P...), dim3 grid, dim3 block,
                 size_t, typename cuda_same<P>::type... args)
{
    auto body = [=]() { kernel(args...); };
    emulate_grid(operation, grid.x, block.x, emulate_body<decltype(body)>, &body);
}

enum { CUDA_THREADS = 256 };
#define CUDA_EACH(i, n)                                                       \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (int64_t)gridDim.x * blockDim.x)

#endif
