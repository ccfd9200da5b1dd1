/*
 * Products by cuBLAS with sums in f32 (TF32 off). Activations and weights of bf16 are multiplied as
 * they are, and the result is rounded once. cuBLAS has no product of f32 rows with bf16 weights:
 * there such a weight is converted to f32, which is exact, piece by piece into scratch. The order
 * over k is cuBLAS's: the same for the same shapes, not the CPU's chain.
 *
 * Bias and residual are what the product adds to: they are written to the result before it.
 */
#include "device.cuh"

/* 128 MiB of f32: a weight that is converted needs no more scratch than that */
static const int64_t PIECE_FLOATS = 1 << 25;

static __global__ void widen(const uint16_t *from, float *to, int64_t n)
{
    CUDA_EACH(i, n) to[i] = cuda_from_bf16(from[i]);
}

/* Calls f(rows [n][k] of the activations' type, first row, n) for consecutive pieces of W. */
template <typename F> static void each_piece(cuda_context *c, const ares_matrix *w, F f)
{
    ARES_ASSERT(w->layout == ARES_ROWS && (w->dtype == c->act || c->act == ARES_F32));
    if (w->dtype == c->act) {
        f((const void *)w->data, 0, w->n);
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
        f((const void *)piece, first, (int32_t)n);
    }
}

/*
 * Column-major, as cuBLAS has it: y [rows x columns] = alpha op_a(a) op_b(b) + beta y, steps
 * summed. a and b are activations, y is one too or f32.
 */
typedef struct gemm_args {
    cublasOperation_t op_a, op_b;
    int rows, columns, steps;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    float alpha, beta;
    void *y;
    int64_t ldy;
    ares_dtype of_y;
} gemm_args;

static cudaDataType type_of(ares_dtype t)
{
    return t == ARES_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static void gemm(cuda_context *c, const gemm_args &g)
{
    /* every product sums in f32; cuBLAS chooses its algorithm by the shapes alone */
    cudaDataType in = type_of(c->act);
    if (c->failed) return;
    c->last = "linear: product";
    cuda_check_blas(c,
                    cublasGemmEx(c->blas, g.op_a, g.op_b, g.rows, g.columns, g.steps, &g.alpha, g.a,
                                 in, (int)g.lda, g.b, in, (int)g.ldb, &g.beta, g.y, type_of(g.of_y),
                                 (int)g.ldy, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                    c->last);
}

/* Number n of x, whose numbers are of type t. */
static void *at(const void *x, ares_dtype t, int64_t n)
{
    return (char *)x + n * (int64_t)ares_dtype_bytes(t);
}

/* The factor of a product: `scale`, where 0 is none. */
static float factor(float scale)
{
    return scale != 0.0f ? scale : 1.0f;
}

/* y [m][w->n] = alpha x Wt, plus y where accumulate. Row-major y is column-major W x^T. */
static void product(cuda_context *c, const void *x, int64_t ldx, const ares_matrix *w, int32_t m,
                    float alpha, void *y, ares_dtype of_y, int64_t ldy, bool accumulate)
{
    each_piece(c, w, [&](const void *rows, int64_t first, int32_t n) {
        gemm(c, { .op_a = CUBLAS_OP_T,
                  .op_b = CUBLAS_OP_N,
                  .rows = n,
                  .columns = m,
                  .steps = w->k,
                  .a = rows,
                  .lda = w->k,
                  .b = x,
                  .ldb = ldx,
                  .alpha = alpha,
                  .beta = accumulate ? 1.0f : 0.0f,
                  .y = at(y, of_y, first),
                  .ldy = ldy,
                  .of_y = of_y });
    });
}

void cuda_product(cuda_context *c, const void *x, int64_t ldx, const ares_matrix *w, int32_t m,
                  float *y, int64_t ldy, bool accumulate)
{
    product(c, x, ldx, w, m, 1.0f, y, ARES_F32, ldy, accumulate);
}

/* y = bias + residual, either of which may be NULL; the product adds to it. */
template <typename T>
static __global__ void begin_rows(int32_t m, int32_t n, const void *bias, const void *residual,
                                  int64_t ldr, void *y, int64_t ldy)
{
    CUDA_EACH(i, (int64_t)m * n)
    {
        int64_t row = i / n, column = i % n;
        float v = bias ? cuda_get((const T *)bias + column) : 0.0f;
        if (residual) v += cuda_get((const T *)residual + row * ldr + column);
        cuda_put((T *)y + row * ldy + column, v);
    }
}

/* Whether b lies directly after n numbers of type t at a. */
static bool follows(const void *b, const void *a, int64_t n, ares_dtype t)
{
    return b == at(a, t, n);
}

/* Whether b multiplies the same rows as a, and its weight, bias and result follow those of a. */
static bool goes_on(const cuda_context *c, const ares_linear_args *a, const ares_linear_args *b)
{
    const ares_matrix *v = a->w, *w = b->w;
    return b->m == a->m && b->x == a->x && b->ldx == a->ldx && b->ldy == a->ldy && w->k == v->k &&
           b->scale == a->scale && w->dtype == v->dtype &&
           follows(w->data, v->data, (int64_t)v->n * v->k, v->dtype) &&
           follows(b->y, a->y, v->n, c->act) && !a->residual && !b->residual &&
           (a->bias ? follows(b->bias, a->bias, v->n, c->act) : !b->bias);
}

static void linear(ares_device *d, const ares_linear_args *args, int count)
{
    cuda_context *c = cuda_enter(d);
    for (int i = 0, next; i < count; i = next) {
        const ares_linear_args *a = &args[i];
        ares_matrix w = *a->w;
        /* q, k and v are one product; gate and up another */
        for (next = i + 1; next < count && goes_on(c, &args[next - 1], &args[next]); next++)
            w.n += args[next].w->n;
        if (a->m == 0) continue;
        bool in_place = a->residual && a->residual == a->y, begun = a->bias || a->residual;
        ARES_ASSERT(!in_place || a->ldr == a->ldy);
        if (a->bias || (a->residual && !in_place))
            cuda_launch(c, "linear: bias and residual", CUDA_BY_TYPE(c, begin_rows),
                        cuda_blocks((int64_t)a->m * w.n), CUDA_THREADS, 0, a->m, w.n, a->bias,
                        a->residual, a->ldr, a->y, a->ldy);
        product(c, a->x, a->ldx, &w, a->m, factor(a->scale), a->y, c->act, a->ldy, begun);
    }
}

/* The bias's gradient: columns of dy, 32 rows of threads to a column. */
template <typename T>
static __global__ void sum_rows(int32_t m, int32_t n, const void *dy, int64_t lddy, float *dbias,
                                cuda_columns s)
{
    int32_t column = (int32_t)(blockIdx.x * 32 + threadIdx.x);
    int64_t first = blockIdx.y * s.each, end = ARES_MIN(first + s.each, (int64_t)m);
    float sum[1] = { 0.0f };
    if (column < n)
        for (int64_t row = first + threadIdx.y; row < end; row += 32)
            sum[0] += cuda_get((const T *)dy + row * lddy + column);
    if (cuda_sum_columns(sum, column, n, s)) dbias[column] += sum[0];
}

static void product_backward(cuda_context *c, const ares_linear_backward_args *a)
{
    if (a->m == 0) return;
    ARES_ASSERT(a->scale == 0.0f || !a->accumulate); /* it would have to scale the old dx, too */
    if (a->dx)
        each_piece(c, a->w, [&](const void *rows, int64_t first, int32_t n) {
            gemm(c, { .op_a = CUBLAS_OP_N,
                      .op_b = CUBLAS_OP_N,
                      .rows = a->w->k,
                      .columns = a->m,
                      .steps = n,
                      .a = rows,
                      .lda = a->w->k,
                      .b = at(a->dy, c->act, first),
                      .ldb = a->lddy,
                      .alpha = factor(a->scale),
                      /* pieces of the weight after the first one add to dx */
                      .beta = a->accumulate || first > 0 ? 1.0f : 0.0f,
                      .y = a->dx,
                      .ldy = a->lddx,
                      .of_y = c->act });
        });
    if (a->dw) {
        ARES_ASSERT(a->dw->layout == ARES_ROWS && a->dw->dtype == ARES_F32);
        gemm(c, { .op_a = CUBLAS_OP_N,
                  .op_b = CUBLAS_OP_T,
                  .rows = a->dw->k,
                  .columns = a->dw->n,
                  .steps = a->m,
                  .a = a->x,
                  .lda = a->ldx,
                  .b = a->dy,
                  .ldb = a->lddy,
                  .alpha = 1.0f,
                  .beta = 1.0f,
                  .y = a->dw->data,
                  .ldy = a->dw->k,
                  .of_y = ARES_F32 });
    }
    cuda_columns s = {};
    dim3 grid;
    if (a->dbias && cuda_columns_open(c, a->m, a->w->n, 1, &s, &grid))
        cuda_launch(c, "linear: bias gradient", CUDA_BY_TYPE(c, sum_rows), grid, dim3(32, 32), 0,
                    a->m, a->w->n, a->dy, a->lddy, a->dbias, s);
}

void cuda_linear_backward(ares_device *d, const ares_linear_backward_args *args, int count)
{
    cuda_context *c = cuda_enter(d);
    for (int i = 0; i < count; i++) product_backward(c, &args[i]);
}

void cuda_fill_linear(ares_kernels *k)
{
    k->linear = linear;
    k->linear_backward = cuda_linear_backward;
}
