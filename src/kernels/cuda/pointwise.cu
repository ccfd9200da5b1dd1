/* Kernels that visit each number once: rotation, SwiGLU, AdamW, sums and updates of arrays. */
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

/* ---------------- AdamW: the CPU's formula, term by term */

typedef struct adamw_terms {
    float grad_scale, beta1, rest1, beta2, rest2, m_scale, v_scale, eps, decay, lr, keep;
} adamw_terms;

static __global__ void adamw(int64_t n, float *w, uint16_t *short_w, float *long_w,
                             const float *grad, float *m, float *v, adamw_terms t)
{
    CUDA_EACH(i, n)
    {
        float g = grad[i] * t.grad_scale;
        float m1 = m[i] = fmaf(t.beta1, m[i], t.rest1 * g);
        float v1 = v[i] = fmaf(t.beta2, v[i], t.rest2 * g * g);
        float step = m1 * t.m_scale / fmaf(sqrtf(v1), t.v_scale, t.eps);
        float x = w[i] = fmaf(-t.lr, fmaf(t.decay, w[i], step), w[i]);
        if (short_w) short_w[i] = cuda_to_bf16(x);
        if (long_w) long_w[i] = x;
    }
}

static __device__ float rounded(float x)
{
    return cuda_from_bf16(cuda_to_bf16(x));
}

static __global__ void adamw_kahan(int64_t n, uint16_t *w, float *left_out, const float *grad,
                                   float *m, float *v, adamw_terms t)
{
    CUDA_EACH(i, n)
    {
        float g = __fmul_rn(grad[i], t.grad_scale), c = left_out[i],
              x = rounded(__fmul_rn(cuda_from_bf16(w[i]), t.keep));
        float m1 = m[i] =
            rounded(__fadd_rn(rounded(__fmul_rn(m[i], t.beta1)), __fmul_rn(g, t.rest1)));
        float v1 = v[i] = rounded(
            __fadd_rn(rounded(__fmul_rn(v[i], t.beta2)), __fmul_rn(__fmul_rn(g, t.rest2), g)));
        float under = rounded(__fadd_rn(rounded(__fmul_rn(rounded(sqrtf(v1)), t.v_scale)), t.eps));
        c = rounded(fmaf(-__fmul_rn(t.lr, t.m_scale), m1 / under, c));
        float next = rounded(__fadd_rn(x, c));
        left_out[i] = rounded(__fadd_rn(c, rounded(__fsub_rn(x, next))));
        w[i] = cuda_to_bf16(next);
    }
}

void cuda_adamw(ares_device *d, const ares_adamw_args *a)
{
    ARES_ASSERT(a->step >= 1 && a->dtype != ARES_F16 && (a->master || a->dtype == ARES_F32));
    adamw_terms t = {
        .grad_scale = (float)a->grad_scale,
        .beta1 = (float)a->beta1,
        .rest1 = (float)(1.0 - a->beta1),
        .beta2 = (float)a->beta2,
        .rest2 = (float)(1.0 - a->beta2),
        .m_scale = (float)(1.0 / (1.0 - ares_f64_pow(a->beta1, (double)a->step))),
        .v_scale = (float)(1.0 / sqrt(1.0 - ares_f64_pow(a->beta2, (double)a->step))),
        .eps = (float)a->eps,
        .decay = (float)a->weight_decay,
        .lr = (float)a->lr,
        .keep = (float)(1.0 - a->lr * a->weight_decay),
    };
    if (a->kahan) {
        cuda_launch(cuda_enter(d), "adamw", adamw_kahan, cuda_blocks(a->n), CUDA_THREADS, 0, a->n,
                    (uint16_t *)a->w, a->master, a->grad, a->m, a->v, t);
        return;
    }
    float *w = a->master ? a->master : (float *)a->w;
    cuda_launch(cuda_enter(d), "adamw", adamw, cuda_blocks(a->n), CUDA_THREADS, 0, a->n, w,
                a->dtype == ARES_BF16 ? (uint16_t *)a->w : NULL,
                a->master && a->dtype == ARES_F32 ? (float *)a->w : NULL, a->grad, a->m, a->v, t);
}

/* ------------------------------------------------------------------ whole arrays */

static __global__ void add_to(float *y, const float *x, int64_t n)
{
    CUDA_EACH(i, n) y[i] += x[i];
}
void cuda_add(ares_device *d, float *y, const float *x, int64_t n)
{
    cuda_launch(cuda_enter(d), "add", add_to, cuda_blocks(n), CUDA_THREADS, 0, y, x, n);
}

/* Chunks of a fixed size: one block sums each in f64, then one block adds the chunks' sums. */
enum { SUM_CHUNK = 65536 };

static __device__ void block_total(double sum, double *to)
{
    __shared__ double tree[CUDA_THREADS];
    tree[threadIdx.x] = sum;
    for (int half = CUDA_THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *to = tree[0];
}
static __global__ void sum_chunks(const float *x, int64_t n, double *of_chunk)
{
    int64_t first = (int64_t)blockIdx.x * SUM_CHUNK,
            end = n < first + SUM_CHUNK ? n : first + SUM_CHUNK;
    double sum = 0.0;
    for (int64_t i = first + threadIdx.x; i < end; i += CUDA_THREADS)
        sum += (double)x[i] * (double)x[i];
    block_total(sum, of_chunk + blockIdx.x);
}
static __global__ void sum_sums(const double *of_chunk, int64_t chunks, double *total)
{
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < chunks; i += CUDA_THREADS) sum += of_chunk[i];
    block_total(sum, total);
}

/* NaN after a failure of the device, which sync reports. */
double cuda_sum_squares(ares_device *d, const float *x, int64_t n)
{
    cuda_context *c = cuda_enter(d);
    int64_t chunks = (n + SUM_CHUNK - 1) / SUM_CHUNK;
    double total = 0.0,
           *sums = (double *)cuda_scratch(c, CUDA_SUMS, (size_t)(chunks + 1) * sizeof(double));
    if (n == 0) return 0.0;
    cuda_launch(c, "sum_squares", sum_chunks, (unsigned)chunks, CUDA_THREADS, 0, x, n, sums + 1);
    cuda_launch(c, "sum_squares", sum_sums, 1u, CUDA_THREADS, 0, sums + 1, chunks, sums);
    return cuda_out(c, &total, sums, sizeof total) ? total : (double)NAN;
}
