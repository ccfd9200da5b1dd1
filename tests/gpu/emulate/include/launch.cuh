/* The start of a kernel where the device is emulated: its threads are fibers (fibers.cpp). */
#ifndef ARES_KERNELS_CUDA_LAUNCH_CUH
#define ARES_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#define CUDA_SHARED(type, name) type *name = (type *)emulate_shared()

template <typename... P>
static inline void cuda_start(const char *operation, void (*kernel)(P...), dim3 grid, dim3 block,
                              size_t shared, cudaStream_t stream, P... args)
{
    emulate_launch(operation, (const void *)kernel, grid, block, shared, stream,
                   [=]() { kernel(args...); });
}

#endif
