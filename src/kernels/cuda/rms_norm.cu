/*
 * Root mean square norm: one block per row, and for the weight's gradient one block per 32 columns,
 * each summed in 32 strands of rows.
 */
#include "device.cuh"

/* Where row r begins. */
static __device__ int64_t row_at(const ares_rms_norm_args &a, int64_t r, int64_t ld)
{
    return a.heads ? r / a.heads * ld + r % a.heads * a.k : r * ld;
}

static __global__ void norm_row(ares_rms_norm_args a)
{
    int64_t row = blockIdx.x;
    int32_t k = a.k;
    const float *x = (const float *)a.x + row_at(a, row, a.ldx), *w = a.w;
    float *y = (float *)a.y + row_at(a, row, a.ldy), sum = 0.0f;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x) sum = fmaf(x[i], x[i], sum);
    float scale = 1.0f / sqrtf(cuda_block_sum(sum) / (float)k + a.eps);
    if (a.rstd && threadIdx.x == 0) a.rstd[row] = scale;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x) y[i] = x[i] * scale * w[i];
}

/* dx += rstd * (w dy - x * rstd^2 / k * sum(w dy x)) */
static __global__ void norm_row_back(ares_rms_norm_args a)
{
    int64_t row = blockIdx.x;
    int32_t k = a.k;
    const float *x = (const float *)a.x + row_at(a, row, a.ldx),
                *dy = (const float *)a.dy + row_at(a, row, a.lddy), *w = a.w;
    float *dx = (float *)a.dx + row_at(a, row, a.lddx), scale = a.rstd[row], sum = 0.0f;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x) sum = fmaf(dy[i] * w[i], x[i], sum);
    float pull = cuda_block_sum(sum) * (scale * scale) / (float)k;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x)
        dx[i] = fmaf(fmaf(-x[i], pull, dy[i] * w[i]), scale, dx[i]);
}

static __global__ void weight_back(ares_rms_norm_args a)
{
    __shared__ float tile[32 * 33];
    int32_t column = (int32_t)(blockIdx.x * 32 + threadIdx.x);
    const float *x = (const float *)a.x, *dy = (const float *)a.dy;
    float sum = 0.0f;
    if (column < a.k)
        for (int64_t r = threadIdx.y; r < a.rows; r += 32)
            sum = fmaf(x[row_at(a, r, a.ldx) + column] * a.rstd[r],
                       dy[row_at(a, r, a.lddy) + column], sum);
    sum = cuda_column_tree(tile, sum);
    if (threadIdx.y == 0 && column < a.k) a.dw[column] += sum;
}

/* Norms of heads are narrow and many: a warp each. */
static unsigned threads_for(int32_t k)
{
    return k <= 256 ? 32 : 256;
}

void cuda_rms_norm(ares_device *d, const ares_rms_norm_args *a)
{
    cuda_launch(cuda_enter(d), "rms_norm", norm_row, (unsigned)a->rows, threads_for(a->k), 0, *a);
}

void cuda_rms_norm_backward(ares_device *d, const ares_rms_norm_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "rms_norm_backward", norm_row_back, (unsigned)a->rows, threads_for(a->k), 0, *a);
    if (a->dw && a->rows)
        cuda_launch(c, "rms_norm_backward: weight", weight_back, (unsigned)(a->k + 31) / 32,
                    dim3(32, 32), 0, *a);
}
