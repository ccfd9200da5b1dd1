/*
 * What tests/gpu/emulate has its own of, in C++, so that it is included as <launch.cuh>: what only
 * nvcc's language has, the start of a kernel and its dynamic shared memory; and the reduction over
 * a warp, where the emulator's lanes meet once instead of five times.
 */
#ifndef ARES_KERNELS_CUDA_LAUNCH_CUH
#define ARES_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

/* In a kernel: `name` is its dynamic shared memory. One name has one type in a file. */
#define CUDA_SHARED(type, name) extern __shared__ __align__(128) type name[]

template <typename... P>
static inline void cuda_start(const char *, void (*kernel)(P...), dim3 grid, dim3 block,
                              size_t shared, cudaStream_t stream, P... args)
{
    kernel<<<grid, block, shared, stream>>>(args...);
}

/* Of all 32 lanes, by halves: v = merge(v, that of the lane 16, 8, 4, 2, 1 further). */
template <typename T, typename F> static __device__ inline T cuda_warp_tree(T v, F merge)
{
    for (int step = 16; step; step /= 2) v = merge(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

#endif
