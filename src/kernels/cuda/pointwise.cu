/* Kernels that visit each number once: rotation, SwiGLU, conversion. */
#include "device.cuh"

#include <math.h>

static __global__ void rotate(int32_t rows, int32_t heads, int32_t half, float *x, int64_t ldx,
                              const float *cos_sin, float sign)
{
    CUDA_EACH(at, (int64_t)rows * heads * half)
    {
        int64_t i = at % half, h = at / half % heads, r = at / half / heads;
        float *p = x + r * ldx + h * 2 * half + i, a = p[0], b = p[half];
        float cosine = cos_sin[r * 2 * half + i], sine = sign * cos_sin[r * 2 * half + half + i];
        p[0] = fmaf(-b, sine, a * cosine);
        p[half] = fmaf(a, sine, b * cosine);
    }
}
void cuda_rope(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, void *x, int64_t ldx,
               const float *cos_sin, bool inverse)
{
    ARES_ASSERT(head_dim % 2 == 0);
    cuda_launch(cuda_enter(d), "rope", rotate, cuda_blocks((int64_t)rows * heads * (head_dim / 2)),
                CUDA_THREADS, 0, rows, heads, head_dim / 2, (float *)x, ldx, cos_sin,
                inverse ? -1.0f : 1.0f);
}

static __device__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static __global__ void swiglu(ares_silu_mul_args a)
{
    const float *gate = (const float *)a.gate, *up = (const float *)a.up;
    float *y = (float *)a.y;
    CUDA_EACH(at, (int64_t)a.rows * a.k)
    {
        int64_t r = at / a.k, i = at % a.k;
        float g = gate[r * a.ldgu + i];
        y[r * a.ldy + i] = g * sigmoid(g) * up[r * a.ldgu + i];
    }
}
void cuda_silu_mul(ares_device *d, const ares_silu_mul_args *a)
{
    cuda_launch(cuda_enter(d), "silu_mul", swiglu, cuda_blocks((int64_t)a->rows * a->k),
                CUDA_THREADS, 0, *a);
}

static __global__ void swiglu_back(ares_silu_mul_args a)
{
    const float *gate = (const float *)a.gate, *up = (const float *)a.up, *dy = (const float *)a.dy;
    float *y = (float *)a.y, *d_gate = (float *)a.d_gate, *d_up = (float *)a.d_up;
    CUDA_EACH(at, (int64_t)a.rows * a.k)
    {
        int64_t r = at / a.k, i = at % a.k;
        float g = gate[r * a.ldgu + i], u = up[r * a.ldgu + i], e = dy[r * a.lddy + i],
              s = sigmoid(g), silu = g * s;
        d_up[r * a.lddgu + i] = e * silu;
        d_gate[r * a.lddgu + i] = e * u * fmaf(silu, 1.0f - s, s);
        if (y) y[r * a.ldy + i] = silu * u;
    }
}
void cuda_silu_mul_backward(ares_device *d, const ares_silu_mul_args *a)
{
    cuda_launch(cuda_enter(d), "silu_mul_backward", swiglu_back,
                cuda_blocks((int64_t)a->rows * a->k), CUDA_THREADS, 0, *a);
}

static __global__ void widen(float *to, const uint16_t *from, int64_t n)
{
    CUDA_EACH(i, n) to[i] = cuda_from_bf16(from[i]);
}
static __global__ void narrow(uint16_t *to, const float *from, int64_t n)
{
    CUDA_EACH(i, n) to[i] = cuda_to_bf16(from[i]);
}
void cuda_convert(ares_device *d, void *to, ares_dtype to_type, const void *from,
                  ares_dtype from_type, int64_t n)
{
    ARES_ASSERT(to_type != ARES_F16 && from_type != ARES_F16);
    if (to_type == from_type) cuda_copy(d, to, from, (size_t)n * ares_dtype_bytes(to_type));
    else if (to_type == ARES_F32)
        cuda_launch(cuda_enter(d), "convert", widen, cuda_blocks(n), CUDA_THREADS, 0, (float *)to,
                    (const uint16_t *)from, n);
    else
        cuda_launch(cuda_enter(d), "convert", narrow, cuda_blocks(n), CUDA_THREADS, 0,
                    (uint16_t *)to, (const float *)from, n);
}
