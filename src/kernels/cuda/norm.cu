/* Layer norm and RMS norm on a card, forward and backward. */
#include "device.cuh"

/*
 * Layer norm: one block per row, and for the gradients of weight and bias one block per 32 columns
 * of a chunk of the rows (cuda_columns).
 */

enum { ROW_THREADS = 256 };

/* y = (x - mean) rstd w + bias, the variance from a second look at the row, as on the CPU. */
template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS) norm_row(ares_layer_norm_args a)
{
    int64_t row = blockIdx.x;
    int32_t k = a.k;
    const T *x = (const T *)a.x + row * a.ldx;
    T *y = (T *)a.y + row * a.ldy;
    float sum = 0.0f, squares = 0.0f;
    for (int32_t i = threadIdx.x; i < k; i += ROW_THREADS) sum += cuda_get(x + i);
    float mean = cuda_block_sum(sum) / (float)k;
    for (int32_t i = threadIdx.x; i < k; i += ROW_THREADS) {
        float v = cuda_get(x + i) - mean;
        squares = fmaf(v, v, squares);
    }
    float rstd = 1.0f / sqrtf(cuda_block_sum(squares) / (float)k + a.eps);
    if (a.mean && threadIdx.x == 0) a.mean[row] = mean;
    if (a.rstd && threadIdx.x == 0) a.rstd[row] = rstd;
    for (int32_t i = threadIdx.x; i < k; i += ROW_THREADS)
        cuda_put(y + i, fmaf((cuda_get(x + i) - mean) * rstd, a.w[i], a.bias[i]));
}

/* With x^ = (x - mean) rstd and g = w dy: dx += rstd (g - mean(g) - x^ mean(g x^)). */
template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS) norm_row_back(ares_layer_norm_args a)
{
    int64_t row = blockIdx.x;
    int32_t k = a.k;
    const T *x = (const T *)a.x + row * a.ldx, *dy = (const T *)a.dy + row * a.lddy;
    T *dx = (T *)a.dx + row * a.lddx;
    float mean = a.mean[row], rstd = a.rstd[row], sum = 0.0f, product = 0.0f;
    for (int32_t i = threadIdx.x; i < k; i += ROW_THREADS) {
        float g = cuda_get(dy + i) * a.w[i];
        sum += g;
        product = fmaf(g, (cuda_get(x + i) - mean) * rstd, product);
    }
    float shift = cuda_block_sum(sum) / (float)k, pull = cuda_block_sum(product) / (float)k;
    for (int32_t i = threadIdx.x; i < k; i += ROW_THREADS) {
        float hat = (cuda_get(x + i) - mean) * rstd, g = cuda_get(dy + i) * a.w[i] - shift;
        cuda_put(dx + i, fmaf(fmaf(-hat, pull, g), rstd, cuda_get(dx + i)));
    }
}

/* dw = sum of x^ dy and dbias = sum of dy, over the rows of this block's chunk. */
template <typename T> static __global__ void vectors_back(ares_layer_norm_args a, cuda_columns s)
{
    enum { WEIGHT, BIAS, SUMS };
    int32_t column = (int32_t)(blockIdx.x * 32 + threadIdx.x);
    const T *x = (const T *)a.x, *dy = (const T *)a.dy;
    int64_t first = blockIdx.y * s.each, end = ARES_MIN(first + s.each, (int64_t)a.rows);
    float sum[SUMS] = { 0.0f, 0.0f };
    if (column < a.k)
        for (int64_t r = first + threadIdx.y; r < end; r += 32) {
            float g = cuda_get(dy + r * a.lddy + column);
            sum[WEIGHT] =
                fmaf((cuda_get(x + r * a.ldx + column) - a.mean[r]) * a.rstd[r], g, sum[WEIGHT]);
            sum[BIAS] += g;
        }
    /* only the last block of a column has the sums of all chunks, added in their order */
    if (!cuda_sum_columns(sum, column, a.k, s)) return;
    if (a.dw) a.dw[column] += sum[WEIGHT];
    if (a.dbias) a.dbias[column] += sum[BIAS];
}

static void layer_norm(ares_device *d, const ares_layer_norm_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "layer_norm", CUDA_BY_TYPE(c, norm_row), (unsigned)a->rows, ROW_THREADS, 0, *a);
}

static void layer_norm_backward(ares_device *d, const ares_layer_norm_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "layer_norm_backward", CUDA_BY_TYPE(c, norm_row_back), (unsigned)a->rows,
                ROW_THREADS, 0, *a);
    cuda_columns s = {};
    dim3 grid;
    bool trains = a->dw || a->dbias;
    if (trains && a->rows && cuda_columns_open(c, a->rows, a->k, 2, &s, &grid))
        cuda_launch(c, "layer_norm_backward: weight and bias", CUDA_BY_TYPE(c, vectors_back), grid,
                    dim3(32, 32), 0, *a, s);
}

/*
 * Root mean square norm: one block per row, and for the weight's gradient one block per 32 columns
 * of a chunk of the rows (cuda_columns).
 */

/* f(w) of column i */
static __device__ float weight_at(const ares_rms_norm_args &a, int32_t i)
{
    return a.plus_one ? 1.0f + a.w[i] : a.w[i];
}

/* Where row r begins. */
static __device__ int64_t row_at(const ares_rms_norm_args &a, int64_t r, int64_t ld)
{
    return a.heads ? r / a.heads * ld + r % a.heads * a.k : r * ld;
}

template <typename T> static __global__ void rms_row(ares_rms_norm_args a)
{
    int64_t row = blockIdx.x;
    int32_t k = a.k;
    const T *x = (const T *)a.x + row_at(a, row, a.ldx);
    T *y = (T *)a.y + row_at(a, row, a.ldy);
    const T *to = a.residual ? (const T *)a.residual + row_at(a, row, a.ldr) : NULL;
    float sum = 0.0f;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x) {
        float v = cuda_get(x + i);
        sum = fmaf(v, v, sum);
    }
    float scale = 1.0f / sqrtf(cuda_block_sum(sum) / (float)k + a.eps);
    if (a.rstd && threadIdx.x == 0) a.rstd[row] = scale;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x) {
        float v = cuda_get(x + i);
        float norm = __fmul_rn(v * scale, weight_at(a, i));
        /* the norm is rounded as one alone would be, then the sum */
        cuda_put(y + i, to ? cuda_get(to + i) + cuda_rounded<T>(norm) : norm);
        /* sum = x + bias, as ares_rms_norm_args says */
        if (a.bias)
            cuda_put((T *)a.sum + row_at(a, row, a.ldx) + i, v + cuda_get((const T *)a.bias + i));
    }
}

/* dx += rstd * (g - x * rstd^2 / k * sum(g x)) with g = f(w) dy */
template <typename T> static __global__ void rms_row_back(ares_rms_norm_args a)
{
    int64_t row = blockIdx.x;
    int32_t k = a.k;
    const T *x = (const T *)a.x + row_at(a, row, a.ldx),
            *dy = (const T *)a.dy + row_at(a, row, a.lddy);
    T *dx = (T *)a.dx + row_at(a, row, a.lddx);
    float scale = a.rstd[row], sum = 0.0f;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x)
        sum = fmaf(cuda_get(dy + i) * weight_at(a, i), cuda_get(x + i), sum);
    float pull = cuda_block_sum(sum) * (scale * scale) / (float)k;
    for (int32_t i = threadIdx.x; i < k; i += blockDim.x)
        cuda_put(dx + i, fmaf(fmaf(-cuda_get(x + i), pull, cuda_get(dy + i) * weight_at(a, i)),
                              scale, cuda_get(dx + i)));
}

/* dw += sum of x rstd dy over the rows of this block's chunk; the last block adds the chunks. */
template <typename T> static __global__ void weight_back(ares_rms_norm_args a, cuda_columns s)
{
    int32_t column = (int32_t)(blockIdx.x * 32 + threadIdx.x);
    const T *x = (const T *)a.x, *dy = (const T *)a.dy;
    int64_t first = blockIdx.y * s.each, end = ARES_MIN(first + s.each, (int64_t)a.rows);
    float sum[1] = { 0.0f };
    if (column < a.k)
        for (int64_t r = first + threadIdx.y; r < end; r += 32)
            sum[0] = fmaf(cuda_get(x + row_at(a, r, a.ldx) + column) * a.rstd[r],
                          cuda_get(dy + row_at(a, r, a.lddy) + column), sum[0]);
    if (cuda_sum_columns(sum, column, a.k, s)) a.dw[column] += sum[0];
}

/* Norms of heads are narrow and many: a warp each. */
static unsigned threads_for(int32_t k)
{
    return k <= 256 ? 32 : 256;
}

static void rms_norm(ares_device *d, const ares_rms_norm_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "rms_norm", CUDA_BY_TYPE(c, rms_row), (unsigned)a->rows, threads_for(a->k), 0,
                *a);
}

static void rms_norm_backward(ares_device *d, const ares_rms_norm_args *a)
{
    cuda_context *c = cuda_enter(d);
    cuda_launch(c, "rms_norm_backward", CUDA_BY_TYPE(c, rms_row_back), (unsigned)a->rows,
                threads_for(a->k), 0, *a);
    cuda_columns s = {};
    dim3 grid;
    if (a->dw && a->rows && cuda_columns_open(c, a->rows, a->k, 1, &s, &grid))
        cuda_launch(c, "rms_norm_backward: weight", CUDA_BY_TYPE(c, weight_back), grid,
                    dim3(32, 32), 0, *a, s);
}

void cuda_fill_norm(ares_kernels *k)
{
    k->layer_norm = layer_norm;
    k->layer_norm_backward = layer_norm_backward;
    k->rms_norm = rms_norm;
    k->rms_norm_backward = rms_norm_backward;
}
