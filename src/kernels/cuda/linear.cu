/*
 * Products by cuBLAS in f32 (TF32 off). It has no product of f32 rows with bf16 weights, so such a
 * weight is converted to f32, which is exact, piece by piece into scratch: the speed is that of
 * f32. The order over k is cuBLAS's: the same for the same shapes, not the CPU's chain.
 */
#include "device.cuh"

static const int64_t PIECE_FLOATS = 1 << 25;

static __global__ void widen(const uint16_t *from, float *to, int64_t n)
{
    CUDA_EACH(i, n) to[i] = cuda_from_bf16(from[i]);
}

/* Calls f(rows [n][k] in f32, first row, n) for consecutive pieces of W. */
template <typename F> static void each_piece(cuda_context *c, const ares_matrix *w, F f)
{
    ARES_ASSERT(w->layout == ARES_ROWS && w->dtype != ARES_F16);
    if (w->dtype == ARES_F32) {
        f((const float *)w->data, 0, w->n);
        return;
    }
    int64_t rows = PIECE_FLOATS / w->k;
    rows = rows < 1 ? 1 : rows > w->n ? w->n : rows;
    for (int64_t first = 0; first < w->n; first += rows) {
        int64_t n = ARES_MIN(rows, w->n - first);
        float *piece = (float *)cuda_scratch(c, CUDA_WEIGHT, (size_t)(rows * w->k) * sizeof(float));
        if (!piece) return;
        cuda_launch(c, "linear: widen", widen, cuda_blocks(n * w->k), CUDA_THREADS, 0,
                    (const uint16_t *)w->data + first * w->k, piece, n * w->k);
        f(piece, first, (int32_t)n);
    }
}

/* Column-major, as cuBLAS has it: y [rows x columns] = op_a(a) op_b(b) + beta y, steps summed. */
typedef struct gemm_args {
    cublasOperation_t op_a, op_b;
    int rows, columns, steps;
    const float *a;
    int64_t lda;
    const float *b;
    int64_t ldb;
    float beta;
    float *y;
    int64_t ldy;
} gemm_args;

static void gemm(cuda_context *c, const gemm_args &g)
{
    const float one = 1.0f;
    if (c->failed) return;
    c->last = "linear: product";
    cuda_check_blas(c,
                    cublasGemmEx(c->blas, g.op_a, g.op_b, g.rows, g.columns, g.steps, &one, g.a,
                                 CUDA_R_32F, (int)g.lda, g.b, CUDA_R_32F, (int)g.ldb, &g.beta, g.y,
                                 CUDA_R_32F, (int)g.ldy, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                    c->last);
}

void cuda_product(cuda_context *c, const float *x, int64_t ldx, const ares_matrix *w, int32_t m,
                  float *y, int64_t ldy, bool accumulate)
{
    each_piece(c, w, [&](const float *rows, int64_t first, int32_t n) {
        gemm(c, { .op_a = CUBLAS_OP_T,
                  .op_b = CUBLAS_OP_N,
                  .rows = n,
                  .columns = m,
                  .steps = w->k,
                  .a = rows,
                  .lda = w->k,
                  .b = x,
                  .ldb = ldx,
                  .beta = accumulate ? 1.0f : 0.0f,
                  .y = y + first,
                  .ldy = ldy });
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
        cuda_product(c, (const float *)a->x, a->ldx, a->w, a->m, (float *)a->y, a->ldy, in_place);
        const float *residual = in_place ? NULL : (const float *)a->residual;
        if (a->bias || residual)
            cuda_launch(c, "linear: bias and residual", add_bias_residual,
                        cuda_blocks((int64_t)a->m * a->w->n), CUDA_THREADS, 0, a->m, a->w->n,
                        (const float *)a->bias, residual, a->ldr, (float *)a->y, a->ldy);
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
        each_piece(c, a->w, [&](const float *rows, int64_t first, int32_t n) {
            gemm(c, { .op_a = CUBLAS_OP_N,
                      .op_b = CUBLAS_OP_N,
                      .rows = a->w->k,
                      .columns = a->m,
                      .steps = n,
                      .a = rows,
                      .lda = a->w->k,
                      .b = (const float *)a->dy + first,
                      .ldb = a->lddy,
                      .beta = a->accumulate || first > 0 ? 1.0f : 0.0f,
                      .y = (float *)a->dx,
                      .ldy = a->lddx });
        });
    if (a->dw) {
        ARES_ASSERT(a->dw->layout == ARES_ROWS && a->dw->dtype == ARES_F32);
        gemm(c, { .op_a = CUBLAS_OP_N,
                  .op_b = CUBLAS_OP_T,
                  .rows = a->dw->k,
                  .columns = a->dw->n,
                  .steps = a->m,
                  .a = (const float *)a->x,
                  .lda = a->ldx,
                  .b = (const float *)a->dy,
                  .ldb = a->lddy,
                  .beta = 1.0f,
                  .y = (float *)a->dw->data,
                  .ldy = a->dw->k });
    }
    if (a->dbias)
        cuda_launch(c, "linear: bias gradient", sum_columns, (unsigned)(a->w->n + 31) / 32,
                    dim3(32, 32), 0, a->m, a->w->n, (const float *)a->dy, a->lddy, a->dbias);
}
