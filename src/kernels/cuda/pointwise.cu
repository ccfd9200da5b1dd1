/* CUDA kernels that visit each number once, and rows of the embedding by token id. */
#include "device.cuh"

#include <math.h>

/* Kernels that visit each number once: rotation, activations, conversion. */

/* One thread per pair (i, i + half) of a head; sign -1 turns back, for the gradient. */
template <typename T>
static __global__ void rotate(int32_t rows, int32_t heads, int32_t half, void *x, int64_t ldx,
                              const float *cos_sin, float sign)
{
    CUDA_EACH(at, (int64_t)rows * heads * half)
    {
        int64_t i = at % half, h = at / half % heads, r = at / half / heads;
        T *p = (T *)x + r * ldx + h * 2 * half + i;
        float a = cuda_get(p), b = cuda_get(p + half);
        float cosine = cos_sin[r * 2 * half + i], sine = sign * cos_sin[r * 2 * half + half + i];
        cuda_put(p, fmaf(-b, sine, a * cosine));
        cuda_put(p + half, fmaf(a, sine, b * cosine));
    }
}
static void rope(ares_device *d, int32_t rows, int32_t heads, int32_t head_dim, int32_t turned,
                 void *x, int64_t ldx, const float *cos_sin, bool inverse)
{
    cuda_context *c = cuda_enter(d);
    ARES_ASSERT(head_dim % 2 == 0 && (!turned || turned == head_dim));
    if (!cos_sin) return;
    cuda_launch(c, "rope", CUDA_BY_TYPE(c, rotate),
                cuda_blocks((int64_t)rows * heads * (head_dim / 2)), CUDA_THREADS, 0, rows, heads,
                head_dim / 2, x, ldx, cos_sin, inverse ? -1.0f : 1.0f);
}

/* 0 and 1 at the ends, where expf gives infinity and 0. */
static __device__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Phi(x) */
static __device__ float normal_cdf(float x)
{
    return 0.5f * erfcf(-0.70710678f * x);
}

/* What the sigmoid is taken of, and x times its derivative. */
static __device__ float inner(ares_activation f, float x)
{
    if (f == ARES_SILU) return x;
    if (f == ARES_QUICK_GELU) return 1.702f * x;
    return ARES_GELU_TANH_BY * x * fmaf(x * x, ARES_GELU_TANH_CUBE, 1.0f);
}
static __device__ float inner_slope(ares_activation f, float x)
{
    if (f == ARES_SILU) return x;
    if (f == ARES_QUICK_GELU) return 1.702f * x;
    return ARES_GELU_TANH_BY * x * fmaf(x * x, 3.0f * ARES_GELU_TANH_CUBE, 1.0f);
}

/* f(x) */
static __device__ float activated(ares_activation f, float x)
{
    return x * (f == ARES_GELU ? normal_cdf(x) : sigmoid(inner(f, x)));
}

/* f'(x). At a saturated sigmoid its own value is the slope: inf * 0 would be NaN. */
static __device__ float slope(ares_activation f, float x)
{
    if (f == ARES_GELU) return fmaf(x, 0.39894228f * expf(-0.5f * x * x), normal_cdf(x));
    float s = sigmoid(inner(f, x));
    return s == 0.0f || s == 1.0f ? s : fmaf(inner_slope(f, x) * s, 1.0f - s, s);
}
template <typename T> static __global__ void activate(ares_activation_args a)
{
    CUDA_EACH(i, a.n)
    {
        float x = cuda_get((const T *)a.x + i);
        cuda_put((T *)a.y + i, activated(a.f, x));
    }
}
static void activation(ares_device *d, const ares_activation_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "activation", CUDA_BY_TYPE(c, activate), cuda_blocks(a->n), CUDA_THREADS, 0, *a);
}

template <typename T> static __global__ void activate_back(ares_activation_args a)
{
    CUDA_EACH(i, a.n)
    cuda_put((T *)a.dx + i,
             slope(a.f, cuda_get((const T *)a.x + i)) * cuda_get((const T *)a.dy + i));
}
static void activation_backward(ares_device *d, const ares_activation_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "activation_backward", CUDA_BY_TYPE(c, activate_back), cuda_blocks(a->n),
                CUDA_THREADS, 0, *a);
}

/* y = f(gate + bias) (up + bias) */
template <typename T> static __global__ void gated(ares_gate_mul_args a)
{
    const T *gate = (const T *)a.gate, *up = (const T *)a.up;
    CUDA_EACH(at, (int64_t)a.rows * a.k)
    {
        int64_t r = at / a.k, i = at % a.k;
        float g = cuda_with_bias(gate + r * a.ldgu, (const T *)a.gate_bias, i),
              u = cuda_with_bias(up + r * a.ldgu, (const T *)a.up_bias, i);
        cuda_put((T *)a.y + r * a.ldy + i, activated(a.f, g) * u);
    }
}
static void gate_mul(ares_device *d, const ares_gate_mul_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "gate_mul", CUDA_BY_TYPE(c, gated), cuda_blocks((int64_t)a->rows * a->k),
                CUDA_THREADS, 0, *a);
}

/* d_up = dy f(gate), d_gate = dy up f'(gate); y is made again if asked. */
template <typename T> static __global__ void gated_back(ares_gate_mul_args a)
{
    const T *gate = (const T *)a.gate, *up = (const T *)a.up;
    CUDA_EACH(at, (int64_t)a.rows * a.k)
    {
        int64_t r = at / a.k, i = at % a.k;
        float g = cuda_get(gate + r * a.ldgu + i), u = cuda_get(up + r * a.ldgu + i),
              e = cuda_get((const T *)a.dy + r * a.lddy + i), of_g = activated(a.f, g);
        cuda_put((T *)a.d_up + r * a.lddgu + i, e * of_g);
        cuda_put((T *)a.d_gate + r * a.lddgu + i, e * u * slope(a.f, g));
        if (a.y) cuda_put((T *)a.y + r * a.ldy + i, of_g * u);
    }
}
static void gate_mul_backward(ares_device *d, const ares_gate_mul_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "gate_mul_backward", CUDA_BY_TYPE(c, gated_back),
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
static void convert(ares_device *d, void *to, ares_dtype to_type, const void *from,
                    ares_dtype from_type, int64_t n)
{
    ARES_ASSERT(to_type != ARES_F16 && from_type != ARES_F16);
    if (to_type == from_type) d->k->copy(d, to, from, (size_t)n * ares_dtype_bytes(to_type));
    else if (to_type == ARES_F32)
        cuda_launch(cuda_enter(d), "convert", widen, cuda_blocks(n), CUDA_THREADS, 0, (float *)to,
                    (const uint16_t *)from, n);
    else
        cuda_launch(cuda_enter(d), "convert", narrow, cuda_blocks(n), CUDA_THREADS, 0,
                    (uint16_t *)to, (const float *)from, n);
}

/*
 * Rows of the embedding by token id. For the gradient, each row has a block; the block of an id's
 * first row adds all rows of that id in order, so its bits are the CPU's, and the other blocks of
 * that id return.
 */

template <typename E, typename T>
static __global__ void look_up(const void *e, int32_t k, const int32_t *ids, void *y, int64_t ldy,
                               float scale)
{
    int64_t row = blockIdx.x, from = (int64_t)ids[row] * k;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x)
        cuda_put((T *)y + row * ldy + i, scale * cuda_get((const E *)e + from + i));
}

static void embedding(ares_device *d, const ares_matrix *e, const int32_t *ids, int32_t n, void *y,
                      int64_t ldy, float scale)
{
    cuda_context *c = cuda_enter(d);
    bool wide = e->dtype == ARES_F32, of_wide = c->act == ARES_F32;
    ARES_ASSERT(e->layout == ARES_ROWS && e->dtype != ARES_F16 && (of_wide || !wide));
    cuda_launch(c, "embedding",
                !of_wide ? look_up<uint16_t, uint16_t>
                : wide   ? look_up<float, float>
                         : look_up<uint16_t, float>,
                (unsigned)n, CUDA_THREADS, 0, e->data, e->k, ids, y, ldy,
                scale != 0.0f ? scale : 1.0f);
}

template <typename E, typename T>
static __global__ void add_rows(void *de, int32_t k, const int32_t *ids, int32_t n, const void *dy,
                                int64_t lddy, float scale)
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
                    cuda_put(to, cuda_get(to) + __fmul_rn(scale, cuda_get(from + i)));
                }
            }
        __syncthreads();
    }
}

static void embedding_backward(ares_device *d, const ares_matrix *de, const int32_t *ids, int32_t n,
                               const void *dy, int64_t lddy, float scale)
{
    cuda_context *c = cuda_enter(d);
    ARES_ASSERT(de->layout == ARES_ROWS &&
                (de->dtype == ARES_F32 || (de->dtype == c->act && scale == 0.0f)));
    cuda_launch(c, "embedding_backward",
                c->act == ARES_F32       ? add_rows<float, float>
                : de->dtype == ARES_BF16 ? add_rows<uint16_t, uint16_t>
                                         : add_rows<float, uint16_t>,
                (unsigned)n, CUDA_THREADS, 0, de->data, de->k, ids, n, dy, lddy,
                scale != 0.0f ? scale : 1.0f);
}

void cuda_fill_pointwise(ares_kernels *k)
{
    k->rope = rope;
    k->gate_mul = gate_mul;
    k->gate_mul_backward = gate_mul_backward;
    k->activation = activation;
    k->activation_backward = activation_backward;
    k->convert = convert;
    k->embedding = embedding;
    k->embedding_backward = embedding_backward;
}
