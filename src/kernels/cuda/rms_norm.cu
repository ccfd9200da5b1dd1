/*
 * Root mean square norm, a block a row; the weight's gradient, a block for 32 columns (summed in 32
 * strands of rows).
 */
#include "device.cuh"

static __global__ void norm_row(int32_t k, const float *x, int64_t ldx, const float *w, float eps,
                                float *y, int64_t ldy, float *rstd)
{
    int64_t row = blockIdx.x;
    x += row * ldx;
    y += row * ldy;
    float sum = 0.0f;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x) sum = fmaf(x[i], x[i], sum);
    float scale = 1.0f / sqrtf(cuda_block_sum(sum) / (float)k + eps);
    if (rstd && threadIdx.x == 0) rstd[row] = scale;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x) y[i] = x[i] * scale * w[i];
}

/* dx += rstd * (w dy - x * rstd^2 / k * sum(w dy x)) */
static __global__ void norm_row_back(int32_t k, const float *dy, int64_t lddy, const float *x,
                                     int64_t ldx, const float *w, const float *rstd, float *dx,
                                     int64_t lddx)
{
    int64_t row = blockIdx.x;
    x += row * ldx;
    dy += row * lddy;
    dx += row * lddx;
    float scale = rstd[row], sum = 0.0f;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x) sum = fmaf(dy[i] * w[i], x[i], sum);
    float pull = cuda_block_sum(sum) * (scale * scale) / (float)k;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x)
        dx[i] = fmaf(fmaf(-x[i], pull, dy[i] * w[i]), scale, dx[i]);
}

static __global__ void weight_back(int32_t rows, int32_t k, const float *dy, int64_t lddy,
                                   const float *x, int64_t ldx, const float *rstd, float *dw)
{
    __shared__ float tile[32 * 33];
    int32_t column = (int32_t)(blockIdx.x * 32 + threadIdx.x);
    float sum = 0.0f;
    if (column < k)
        for (int64_t r = threadIdx.y; r < rows; r += 32)
            sum = fmaf(x[r * ldx + column] * rstd[r], dy[r * lddy + column], sum);
    sum = cuda_column_tree(tile, sum);
    if (threadIdx.y == 0 && column < k) dw[column] += sum;
}

/* norms of heads are narrow and many */
static unsigned threads_for(int32_t k)
{
    return k <= 256 ? 32 : 256;
}

void cuda_rms_norm(ares_device *d, int32_t rows, int32_t k, const float *x, int64_t ldx,
                   const float *w, float eps, float *y, int64_t ldy, float *rstd)
{
    cuda_launch(cuda_enter(d), "rms_norm", norm_row, (unsigned)rows, threads_for(k), 0, k, x, ldx,
                w, eps, y, ldy, rstd);
}

void cuda_rms_norm_backward(ares_device *d, int32_t rows, int32_t k, const float *dy, int64_t lddy,
                            const float *x, int64_t ldx, const float *w, const float *rstd,
                            float *dx, int64_t lddx, float *dw)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "rms_norm_backward", norm_row_back, (unsigned)rows, threads_for(k), 0, k, dy,
                lddy, x, ldx, w, rstd, dx, lddx);
    if (dw && rows)
        cuda_launch(c, "rms_norm_backward: weight", weight_back, (unsigned)(k + 31) / 32,
                    dim3(32, 32), 0, rows, k, dy, lddy, x, ldx, rstd, dw);
}
