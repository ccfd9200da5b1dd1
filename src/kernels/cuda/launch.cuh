/*
 * What only nvcc's language has: the start of a kernel and its dynamic shared memory. It is
 * included as <launch.cuh>, because tests/gpu/emulate has its own, in C++.
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

#endif
