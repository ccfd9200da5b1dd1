/*
 * Products by cuBLAS in f32 (TF32 off). It has no product of f32 rows with bf16 weights, so such a
 * weight is widened, exactly, panel by panel into scratch: the numbers are those of the CPU, the
 * speed is that of f32. The order over k is cuBLAS's: the same for the same shapes, not the CPU's
 * chain.
 */
#include "device.cuh"

static const int64_t PANEL_FLOATS = 1 << 25;

static __global__ void widen(const uint16_t *from, float *to, int64_t n)
{
    CUDA_EACH(i, n) to[i] = cuda_from_bf16(from[i]);
}

/* Calls f(rows [n][k] in f32, first row, n) for consecutive pieces of W. */
template <typename F> static void each_panel(cuda_context *c, const ares_matrix *w, F f)
{
    ARES_ASSERT(w->layout == ARES_ROWS && w->dtype != ARES_F16);
    if (w->dtype == ARES_F32) {
        f((const float *)w->data, 0, w->n);
        return;
    }
    int64_t rows = PANEL_FLOATS / w->k;
    rows = rows < 1 ? 1 : rows > w->n ? w->n : rows;
    for (int64_t first = 0; first < w->n; first += rows) {
        int64_t n = ARES_MIN(rows, w->n - first);
        float *panel = (float *)cuda_scratch(c, CUDA_WEIGHT, (size_t)(rows * w->k) * sizeof(float));
        if (!panel) return;
        cuda_launch(c, "linear: widen", widen, cuda_blocks(n * w->k), CUDA_THREADS, 0,
                    (const uint16_t *)w->data + first * w->k, panel, n * w->k);
        f(panel, first, (int32_t)n);
    }
}

/* Column-major, as cuBLAS has it: y (rows x columns) = a b + beta y. */
static void gemm(cuda_context *c, cublasOperation_t op_a, cublasOperation_t op_b, int rows,
                 int columns, int steps, const float *a, int64_t lda, const float *b, int64_t ldb,
                 float beta, float *y, int64_t ldy)
{
    const float one = 1.0f;
    if (c->failed) return;
    c->last = "linear: product";
    cuda_check_blas(c,
                    cublasGemmEx(c->blas, op_a, op_b, rows, columns, steps, &one, a, CUDA_R_32F,
                                 (int)lda, b, CUDA_R_32F, (int)ldb, &beta, y, CUDA_R_32F, (int)ldy,
                                 CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                    c->last);
}

void cuda_product(cuda_context *c, const float *x, int64_t ldx, const ares_matrix *w, int32_t m,
                  float *y, int64_t ldy, bool accumulate)
{
    each_panel(c, w, [&](const float *rows, int64_t first, int32_t n) {
        gemm(c, CUBLAS_OP_T, CUBLAS_OP_N, n, m, w->k, rows, w->k, x, ldx, accumulate ? 1.0f : 0.0f,
             y + first, ldy);
    });
}

static __global__ void add_bias_residual(int32_t m, int32_t n, const float *bias,
                                         const float *residual, int64_t ldr, float *y, int64_t ldy)
{
    CUDA_EACH(i, (int64_t)m * n)
    {
        int64_t row = i / n, column = i % n;
        float v = y[row * ldy + column];
        if (bias) v += bias[column];
        if (residual) v += residual[row * ldr + column];
        y[row * ldy + column] = v;
    }
}

void cuda_linear(ares_device *d, const ares_linear_args *args, int count)
{
    cuda_context *c = cuda_enter(d);
    for (int i = 0; i < count; i++) {
        const ares_linear_args *a = &args[i];
        if (a->m == 0) continue;
        bool in_place = a->residual == a->y; /* the product then adds to it, before the bias */
        ARES_ASSERT(!in_place || a->ldr == a->ldy);
        cuda_product(c, a->x, a->ldx, a->w, a->m, a->y, a->ldy, in_place);
        const float *residual = in_place ? NULL : a->residual;
        if (a->bias || residual)
            cuda_launch(c, "linear: bias and residual", add_bias_residual,
                        cuda_blocks((int64_t)a->m * a->w->n), CUDA_THREADS, 0, a->m, a->w->n,
                        a->bias, residual, a->ldr, a->y, a->ldy);
    }
}

static __global__ void sum_columns(int32_t m, int32_t n, const float *dy, int64_t lddy,
                                   float *dbias)
{
    __shared__ float tile[32 * 33];
    int32_t column = (int32_t)(blockIdx.x * 32 + threadIdx.x);
    float sum = 0.0f;
    if (column < n)
        for (int64_t row = threadIdx.y; row < m; row += 32) sum += dy[row * lddy + column];
    sum = cuda_column_tree(tile, sum);
    if (threadIdx.y == 0 && column < n) dbias[column] += sum;
}

void cuda_linear_backward(ares_device *d, const ares_linear_backward_args *a)
{
    cuda_context *c = cuda_enter(d);
    if (a->m == 0) return;
    if (a->dx)
        each_panel(c, a->w, [&](const float *rows, int64_t first, int32_t n) {
            gemm(c, CUBLAS_OP_N, CUBLAS_OP_N, a->w->k, a->m, n, rows, a->w->k, a->dy + first,
                 a->lddy, a->accumulate || first > 0 ? 1.0f : 0.0f, a->dx, a->lddx);
        });
    if (a->dw) {
        ARES_ASSERT(a->dw->layout == ARES_ROWS && a->dw->dtype == ARES_F32);
        gemm(c, CUBLAS_OP_N, CUBLAS_OP_T, a->dw->k, a->dw->n, a->m, a->x, a->ldx, a->dy, a->lddy,
             1.0f, (float *)a->dw->data, a->dw->k);
    }
    if (a->dbias)
        cuda_launch(c, "linear: bias gradient", sum_columns, (unsigned)(a->w->n + 31) / 32,
                    dim3(32, 32), 0, a->m, a->w->n, a->dy, a->lddy, a->dbias);
}
