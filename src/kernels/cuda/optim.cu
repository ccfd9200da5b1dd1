/* Whole arrays: AdamW (the CPU's formula, term by term), sums of squares, addition. */
#include "device.cuh"

#include <math.h>

/* What depends only on the options and the step, computed in f64 and rounded once. */
typedef struct adamw_terms {
    float grad_scale, beta1, rest1, beta2, rest2, m_scale, v_scale, eps, decay, lr, keep;
} adamw_terms;

/* w: the f32 weights, or the master, which is then copied to short_w or long_w (else NULL). */
static __global__ void adamw(int64_t n, float *w, uint16_t *short_w, float *long_w,
                             const float *grad, float *m, float *v, adamw_terms t)
{
    CUDA_EACH(i, n)
    {
        float g = grad[i] * t.grad_scale;
        float m1 = m[i] = fmaf(t.beta1, m[i], t.rest1 * g);
        float v1 = v[i] = fmaf(t.beta2, v[i], t.rest2 * g * g);
        /* the step of the bias-corrected moments, and the decay of w, in one FMA with w */
        float step = m1 * t.m_scale / fmaf(sqrtf(v1), t.v_scale, t.eps);
        float x = w[i] = fmaf(-t.lr, fmaf(t.decay, w[i], step), w[i]);
        if (short_w) short_w[i] = cuda_to_bf16(x);
        if (long_w) long_w[i] = x;
    }
}

/* To bf16 and back. */
static __device__ float rounded(float x)
{
    return cuda_from_bf16(cuda_to_bf16(x));
}

/* All arrays but grad are bf16. The intrinsics keep nvcc from fusing what torch rounds twice. */
static __global__ void adamw_kahan(int64_t n, uint16_t *w, uint16_t *left_out, const float *grad,
                                   uint16_t *m, uint16_t *v, adamw_terms t)
{
    CUDA_EACH(i, n)
    {
        float g = __fmul_rn(grad[i], t.grad_scale), c = cuda_from_bf16(left_out[i]),
              x = rounded(__fmul_rn(cuda_from_bf16(w[i]), t.keep));
        float m1 = rounded(__fadd_rn(rounded(__fmul_rn(cuda_from_bf16(m[i]), t.beta1)),
                                     __fmul_rn(g, t.rest1))),
              v1 = rounded(__fadd_rn(rounded(__fmul_rn(cuda_from_bf16(v[i]), t.beta2)),
                                     __fmul_rn(__fmul_rn(g, t.rest2), g)));
        m[i] = cuda_to_bf16(m1);
        v[i] = cuda_to_bf16(v1);
        float under = rounded(__fadd_rn(rounded(__fmul_rn(rounded(sqrtf(v1)), t.v_scale)), t.eps));
        c = rounded(fmaf(-__fmul_rn(t.lr, t.m_scale), m1 / under, c));
        float next = rounded(__fadd_rn(x, c));
        /* what bf16 could not hold of x + c is kept for the next step */
        left_out[i] = cuda_to_bf16(__fadd_rn(c, rounded(__fsub_rn(x, next))));
        w[i] = cuda_to_bf16(next);
    }
}

static void adamw_step(ares_device *d, const ares_adamw_args *a)
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
    /* kahan: a->master holds what the weights lost to rounding, in bf16 */
    if (a->kahan) {
        cuda_launch(cuda_enter(d), "adamw", adamw_kahan, cuda_blocks(a->n), CUDA_THREADS, 0, a->n,
                    (uint16_t *)a->w, (uint16_t *)a->master, a->grad, (uint16_t *)a->m,
                    (uint16_t *)a->v, t);
        return;
    }
    float *w = (float *)(a->master ? a->master : a->w);
    cuda_launch(cuda_enter(d), "adamw", adamw, cuda_blocks(a->n), CUDA_THREADS, 0, a->n, w,
                a->dtype == ARES_BF16 ? (uint16_t *)a->w : NULL,
                a->master && a->dtype == ARES_F32 ? (float *)a->w : NULL, a->grad, (float *)a->m,
                (float *)a->v, t);
}

/* ------------------------------------------------------------------ whole arrays */

/* y += x */
static __global__ void add_to(float *y, const float *x, int64_t n)
{
    CUDA_EACH(i, n) y[i] += x[i];
}
static void add(ares_device *d, float *y, const float *x, int64_t n)
{
    cuda_launch(cuda_enter(d), "add", add_to, cuda_blocks(n), CUDA_THREADS, 0, y, x, n);
}

/* One block sums a chunk: each thread its elements in order, then one tree over the threads. */
static __global__ void sum_chunks(const float *x, int64_t n, double *of_chunk)
{
    __shared__ double tree[CUDA_THREADS];
    int64_t first = (int64_t)blockIdx.x * ARES_SUM_CHUNK,
            end = n < first + ARES_SUM_CHUNK ? n : first + ARES_SUM_CHUNK;
    double sum = 0.0;
    for (int64_t i = first + threadIdx.x; i < end; i += CUDA_THREADS)
        sum += (double)x[i] * (double)x[i];
    tree[threadIdx.x] = sum;
    for (int half = CUDA_THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
    }
    if (threadIdx.x == 0) of_chunk[blockIdx.x] = tree[0];
}
static void square_sums(ares_device *d, const float *x, int64_t n, double *of_chunk)
{
    unsigned chunks = (unsigned)((n + ARES_SUM_CHUNK - 1) / ARES_SUM_CHUNK);
    cuda_launch(cuda_enter(d), "square_sums", sum_chunks, chunks, CUDA_THREADS, 0, x, n, of_chunk);
}

void cuda_fill_optim(ares_kernels *k)
{
    k->adamw = adamw_step;
    k->add = add;
    k->square_sums = square_sums;
}
