/* bfloat16 numbers, rounded to nearest even. */
#ifndef ARES_EMULATE_CUDA_BF16_H
#define ARES_EMULATE_CUDA_BF16_H

#include <cuda_runtime.h>

typedef struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x)
    {
        uint32_t u = __float_as_uint(x);
        bits = (uint16_t)((x != x ? u | 0x400000u : u + 0x7fffu + (u >> 16 & 1)) >> 16);
    }
    operator float() const
    {
        return __uint_as_float((uint32_t)bits << 16);
    }
} __nv_bfloat16;
typedef __nv_bfloat16 nv_bfloat16;
typedef struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
} __nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 x)
{
    return (float)x;
}
static inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __nv_bfloat16(x);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __nv_bfloat16(x);
}
static inline float2 __bfloat1622float2(__nv_bfloat162 x)
{
    return { (float)x.x, (float)x.y };
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return { __nv_bfloat16(x), __nv_bfloat16(y) };
}

#endif
