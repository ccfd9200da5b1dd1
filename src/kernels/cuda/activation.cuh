/* Numbers of the activations' type: float, or uint16_t that holds a bf16. Arithmetic is in f32. */
#ifndef ARES_KERNELS_CUDA_ACTIVATION_CUH
#define ARES_KERNELS_CUDA_ACTIVATION_CUH

#include "device.cuh"

static __device__ inline float cuda_get(const float *x)
{
    return *x;
}
static __device__ inline float cuda_get(const uint16_t *x)
{
    return cuda_from_bf16(*x);
}
static __device__ inline void cuda_put(float *to, float x)
{
    *to = x;
}
static __device__ inline void cuda_put(uint16_t *to, float x)
{
    *to = cuda_to_bf16(x);
}

template <typename T> static __device__ inline float cuda_rounded(float x);
template <> __device__ inline float cuda_rounded<float>(float x)
{
    return x;
}
template <> __device__ inline float cuda_rounded<uint16_t>(float x)
{
    return cuda_from_bf16(cuda_to_bf16(x));
}

/* Number i of a product's result, with the bias it lacks, rounded as where the product adds it. */
template <typename T>
static __device__ inline float cuda_with_bias(const T *x, const T *bias, int64_t i)
{
    return bias ? cuda_rounded<T>(cuda_get(x + i) + cuda_get(bias + i)) : cuda_get(x + i);
}

#endif
