/*
 * Products by cuBLASLt with sums in f32 (TF32 off), bias and residual added in the same call.
 * Activations and weights of bf16 are multiplied as they are, and the result is rounded once.
 * cuBLAS has no product of f32 rows with bf16 weights: there such a weight is converted to f32,
 * which is exact, piece by piece into scratch. The order over k is cuBLAS's: the same for the same
 * shapes, not the CPU's chain.
 *
 * Up to 64 rows of bf16 are a kernel of ours.
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
 * Column-major, as cuBLAS has it: y [rows x columns] = alpha op_a(a) op_b(b) + add + bias, steps
 * summed. a and b are activations; y, add and bias are so too, or f32.
 */
typedef struct gemm_args {
    cublasOperation_t op_a, op_b;
    int rows, columns, steps;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    float alpha;
    const void *add; /* perhaps y; NULL: nothing */
    int64_t ld_add;
    const void *bias; /* [rows]; NULL: none */
    void *y;
    int64_t ldy;
    ares_dtype of_y;
} gemm_args;

static cudaDataType type_of(ares_dtype t)
{
    return t == ARES_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/*
 * How cuBLASLt computes products of one shape: it chooses by the shape and by what the addresses
 * are multiples of, so that these find a plan again. Shapes of one place take turns in it.
 */
enum { PLANS = 256, MATRICES = 4 };
typedef struct product_shape {
    int32_t op_a, op_b, rows, columns, steps, in, out, adds, bias_at, at[MATRICES];
    int32_t ld[MATRICES]; /* of a, b, c, d */
} product_shape;
struct cuda_plan {
    product_shape shape;
    bool made;
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t layout[MATRICES];
    cublasLtMatmulAlgo_t algorithm;
};

static void plan_clear(cuda_plan *p)
{
    if (p->how) (void)cublasLtMatmulDescDestroy(p->how);
    for (int i = 0; i < MATRICES; i++)
        if (p->layout[i]) (void)cublasLtMatrixLayoutDestroy(p->layout[i]);
    *p = {};
}
void cuda_plans_free(cuda_context *c)
{
    for (int i = 0; c->plans && i < PLANS; i++) plan_clear(&c->plans[i]);
    free(c->plans);
    c->plans = NULL;
}

/* The largest power of 2 up to 256 that p is a multiple of. */
static int32_t multiple_of(const void *p)
{
    uintptr_t lowest = (uintptr_t)p & -(uintptr_t)p;
    return (int32_t)(lowest && lowest < 256 ? lowest : 256);
}
static cublasStatus_t plan_make(cuda_context *c, const product_shape &s, const void *bias,
                                cuda_plan *p)
{
    const int32_t rows[MATRICES] = { s.op_a == CUBLAS_OP_T ? s.steps : s.rows,
                                     s.op_b == CUBLAS_OP_T ? s.columns : s.steps, s.rows, s.rows },
                  columns[MATRICES] = { s.op_a == CUBLAS_OP_T ? s.rows : s.steps,
                                        s.op_b == CUBLAS_OP_T ? s.steps : s.columns, s.columns,
                                        s.columns };
    static const cublasLtMatmulPreferenceAttributes_t of_matrix[MATRICES] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    cublasLtMatmulPreference_t wanted = NULL;
    cublasLtMatmulHeuristicResult_t found = {};
    uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS,
             sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* of parts of a product: in f32 */
    uint64_t workspace = CUDA_BLAS_BYTES;
    int n = 0;
    cublasStatus_t rc = cublasLtMatmulDescCreate(&p->how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    auto then = [&](auto next) {
        if (rc == CUBLAS_STATUS_SUCCESS) rc = next();
    };
    auto how = [&](cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes) {
        then([&] { return cublasLtMatmulDescSetAttribute(p->how, what, value, bytes); });
    };
    auto wants = [&](cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t bytes) {
        then([&] { return cublasLtMatmulPreferenceSetAttribute(wanted, what, value, bytes); });
    };
    how(CUBLASLT_MATMUL_DESC_TRANSA, &s.op_a, sizeof s.op_a);
    how(CUBLASLT_MATMUL_DESC_TRANSB, &s.op_b, sizeof s.op_b);
    if (bias) {
        how(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        how(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    }
    then([&] { return cublasLtMatmulPreferenceCreate(&wanted); });
    wants(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    wants(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums);
    for (int i = 0; i < MATRICES; i++) {
        uint32_t at = (uint32_t)s.at[i];
        wants(of_matrix[i], &at, sizeof at);
        then([&] {
            return cublasLtMatrixLayoutCreate(&p->layout[i], (cudaDataType)(i < 2 ? s.in : s.out),
                                              (uint64_t)rows[i], (uint64_t)columns[i], s.ld[i]);
        });
    }
    then([&] {
        return cublasLtMatmulAlgoGetHeuristic(c->blas, p->how, p->layout[0], p->layout[1],
                                              p->layout[2], p->layout[3], wanted, 1, &found, &n);
    });
    if (wanted) (void)cublasLtMatmulPreferenceDestroy(wanted);
    if (rc == CUBLAS_STATUS_SUCCESS && n < 1) rc = CUBLAS_STATUS_NOT_SUPPORTED;
    p->algorithm = found.algo;
    p->shape = s;
    p->made = rc == CUBLAS_STATUS_SUCCESS;
    if (!p->made) plan_clear(p);
    return rc;
}

static void gemm(cuda_context *c, const gemm_args &g)
{
    if (c->failed || g.rows == 0 || g.columns == 0) return;
    c->last = "linear: product";
    if (!c->plans) c->plans = (cuda_plan *)calloc(PLANS, sizeof *c->plans);
    ARES_ASSERT(c->plans);
    const void *add = g.add ? g.add : g.y; /* something is named, but not read */
    product_shape s = {};
    s.op_a = g.op_a, s.op_b = g.op_b, s.rows = g.rows, s.columns = g.columns, s.steps = g.steps;
    s.in = type_of(c->act), s.out = type_of(g.of_y), s.adds = g.add != NULL;
    s.bias_at = g.bias ? multiple_of(g.bias) : 0;
    s.at[0] = multiple_of(g.a), s.at[1] = multiple_of(g.b);
    s.at[2] = multiple_of(add), s.at[3] = multiple_of(g.y);
    /* it has no preference for bias, which is read as y is written */
    if (g.bias) s.at[3] = ARES_MIN(s.at[3], s.bias_at);
    s.ld[0] = (int32_t)g.lda, s.ld[1] = (int32_t)g.ldb;
    s.ld[2] = (int32_t)(g.add ? g.ld_add : g.ldy), s.ld[3] = (int32_t)g.ldy;
    uint32_t place = 2166136261u;
    for (size_t i = 0; i < sizeof s / 4; i++) {
        uint32_t word;
        memcpy(&word, (const char *)&s + 4 * i, sizeof word);
        place = (place ^ word) * 16777619u;
    }
    cuda_plan *p = &c->plans[(place ^ place >> 16) % PLANS];
    if (!p->made || memcmp(&p->shape, &s, sizeof s)) {
        plan_clear(p);
        if (!cuda_check_blas(c, plan_make(c, s, g.bias, p), c->last)) return;
    }
    float beta = g.add ? 1.0f : 0.0f;
    if (g.bias &&
        !cuda_check_blas(c,
                         cublasLtMatmulDescSetAttribute(p->how, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                        &g.bias, sizeof g.bias),
                         c->last))
        return;
    cuda_check_blas(c,
                    cublasLtMatmul(c->blas, p->how, &g.alpha, g.a, p->layout[0], g.b, p->layout[1],
                                   &beta, add, p->layout[2], g.y, p->layout[3], &p->algorithm,
                                   c->blas_workspace, CUDA_BLAS_BYTES, c->stream),
                    c->last);
}

/* ------------------------------------------------------------------ few rows */

/*
 * Up to 64 rows of bf16, as in decoding: the time is that of reading the weights. Each is read
 * once, in loads of 16 bytes of which a warp has several under way, and multiplied by tensor cores
 * with all rows. Nothing is staged: a lane's 16 bytes of a weight are 8 neighbouring steps of k,
 * and the tile takes them, and the same of x, in any order that both share.
 *
 * A block computes 32 outputs, a warp 8 of them over one half of the block's steps; where outputs
 * are few, up to 4 blocks divide the steps. Who sums which steps follows from the weight's shape,
 * and the parts are added in their order: a row gives the same bits beside any others.
 */
enum { THIN_ROWS = 64, THIN_COLUMNS = 32, THIN_THREADS = 256, THIN_LANES = THIN_THREADS / 2 };

typedef struct thin_args {
    const uint16_t *w, *x; /* w: [n][k] */
    int64_t ldx;
    int32_t m, n, k;
    float alpha;
    const uint16_t *bias; /* [n]; NULL: none */
    const void *add;      /* [m][n] of y's type, added, perhaps y itself; NULL: none */
    int64_t ld_add;
    void *y;
    int64_t ldy;
    float *partial; /* [column blocks][step blocks][numbers of a thread][THIN_LANES] */
    unsigned *ticket;
} thin_args;

static __device__ inline uint4 sixteen_bytes(const uint16_t *p, bool there)
{
    return there ? *(const uint4 *)p : make_uint4(0, 0, 0, 0);
}

/* TILES of 16 rows; Y: float, or uint16_t that holds a bf16. */
template <int TILES, typename Y>
static __global__ void __launch_bounds__(THIN_THREADS, 2) thin(thin_args a)
{
    /* steps of 32 whose loads are under way at once */
    enum { AHEAD = TILES == 1 ? 8 : TILES == 2 ? 4 : 2, EACH = 4 * TILES };
    __shared__ float of_half[EACH * THIN_LANES];
    int32_t lane = (int32_t)threadIdx.x % 32, warp = (int32_t)threadIdx.x / 32, g = lane / 4,
            t = lane % 4, half = warp / 4, slot = (int32_t)threadIdx.x % THIN_LANES,
            first_column = (int32_t)blockIdx.x * THIN_COLUMNS + warp % 4 * 8,
            steps = (a.k + 31) / 32, parts = (int32_t)gridDim.y * 2,
            part = (int32_t)blockIdx.y * 2 + half, from = steps * part / parts * 32,
            to = steps * (part + 1) / parts * 32;
    const uint16_t *w = a.w + (int64_t)(first_column + g) * a.k + 8 * t, *x = a.x + 8 * t;
    bool column_there = first_column + g < a.n;
    float sum[TILES][4];
    for (int i = 0; i < TILES; i++)
        for (int j = 0; j < 4; j++) sum[i][j] = 0.0f;
    for (int32_t k = from; k < to; k += 32 * AHEAD) {
        uint4 weights[AHEAD], low[AHEAD][TILES], high[AHEAD][TILES];
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            int32_t at = k + 32 * s;
            bool there = at < to && at + 8 * t < a.k;
            weights[s] =
                column_there && there ? __ldcs((const uint4 *)(w + at)) : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                int32_t row = 16 * i + g;
                low[s][i] = sixteen_bytes(x + row * a.ldx + at, there && row < a.m);
                high[s][i] = sixteen_bytes(x + (row + 8) * a.ldx + at, there && row + 8 < a.m);
            }
        }
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            if (k + 32 * s >= to) break;
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                uint4 l = low[s][i], h = high[s][i], v = weights[s];
                cuda_mma(sum[i], { l.x, h.x, l.y, h.y }, v.x, v.y);
                cuda_mma(sum[i], { l.z, h.z, l.w, h.w }, v.z, v.w);
            }
        }
    }
    float *own = &sum[0][0];
    if (half)
        for (int j = 0; j < EACH; j++) of_half[j * THIN_LANES + slot] = own[j];
    __syncthreads();
    if (!half)
        for (int j = 0; j < EACH; j++) own[j] += of_half[j * THIN_LANES + slot];
    if (gridDim.y > 1) {
        float *all = a.partial + (int64_t)blockIdx.x * gridDim.y * EACH * THIN_LANES + slot;
        if (!half)
            for (int j = 0; j < EACH; j++)
                all[((int64_t)blockIdx.y * EACH + j) * THIN_LANES] = own[j];
        if (!cuda_is_last(&a.ticket[blockIdx.x], gridDim.y)) return;
        if (!half)
            for (int j = 0; j < EACH; j++) {
                own[j] = all[j * THIN_LANES];
#pragma unroll 1
                for (unsigned b = 1; b < gridDim.y; b++)
                    own[j] += all[((int64_t)b * EACH + j) * THIN_LANES];
            }
    }
    if (half) return;
    for (int i = 0; i < TILES; i++)
        for (int j = 0; j < 4; j++) {
            int32_t row = 16 * i + g + j / 2 * 8, column = first_column + 2 * t + j % 2;
            if (row >= a.m || column >= a.n) continue;
            float v = a.alpha * sum[i][j];
            if (a.bias) v += cuda_get(a.bias + column);
            if (a.add) v += cuda_get((const Y *)a.add + row * a.ld_add + column);
            cuda_put((Y *)a.y + row * a.ldy + column, v);
        }
}

/* Whether rows and weight are such that a thread's loads are of 16 bytes. */
static bool is_thin(const cuda_context *c, const ares_matrix *w, int32_t m, const void *x,
                    int64_t ldx)
{
    return c->act == ARES_BF16 && w->dtype == ARES_BF16 && m <= THIN_ROWS &&
           cuda_in_16s<uint16_t>(w->data, w->k) && cuda_in_16s<uint16_t>(x, ldx);
}
static thin_args thin_of(const void *x, int64_t ldx, const ares_matrix *w, int32_t m, void *y,
                         int64_t ldy)
{
    thin_args a = {};
    a.w = (const uint16_t *)w->data, a.x = (const uint16_t *)x, a.ldx = ldx;
    a.m = m, a.n = w->n, a.k = w->k;
    a.alpha = 1.0f;
    a.y = y, a.ldy = ldy;
    return a;
}
template <typename Y> static void launch_thin(cuda_context *c, thin_args a)
{
    enum { BLOCKS = 2 * 132, MOST = 4 }; /* two for each processor of an H200 */
    unsigned columns = (unsigned)(a.n + THIN_COLUMNS - 1) / THIN_COLUMNS,
             parts = ARES_MAX(ARES_MIN(BLOCKS / columns, (unsigned)MOST), 1u);
    int tiles = a.m <= 16 ? 1 : a.m <= 32 ? 2 : 4;
    if (parts > 1) {
        size_t numbers = (size_t)columns * parts * (size_t)(4 * tiles) * THIN_LANES;
        a.partial = (float *)cuda_scratch(c, CUDA_PARTS, numbers * sizeof *a.partial);
        a.ticket = cuda_tickets(c, columns);
        if (!a.partial || !a.ticket) return;
    }
    cuda_launch(c, "linear: few rows",
                tiles == 1   ? thin<1, Y>
                : tiles == 2 ? thin<2, Y>
                             : thin<4, Y>,
                dim3(columns, parts), THIN_THREADS, 0, a);
}

/* ------------------------------------------------------------------ products */

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

/* y [m][w->n] = alpha x Wt + add + bias. Row-major y is column-major W x^T. */
static void product(cuda_context *c, const void *x, int64_t ldx, const ares_matrix *w, int32_t m,
                    float alpha, const void *add, int64_t ld_add, const void *bias, void *y,
                    ares_dtype of_y, int64_t ldy)
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
                  .add = add ? at(add, of_y, first) : NULL,
                  .ld_add = ld_add,
                  .bias = bias ? at(bias, of_y, first) : NULL,
                  .y = at(y, of_y, first),
                  .ldy = ldy,
                  .of_y = of_y });
    });
}

void cuda_product(cuda_context *c, const void *x, int64_t ldx, const ares_matrix *w, int32_t m,
                  float *y, int64_t ldy, bool accumulate)
{
    if (m == 0) return;
    if (is_thin(c, w, m, x, ldx)) {
        thin_args t = thin_of(x, ldx, w, m, y, ldy);
        if (accumulate) t.add = y, t.ld_add = ldy;
        launch_thin<float>(c, t);
        return;
    }
    product(c, x, ldx, w, m, 1.0f, accumulate ? y : NULL, ldy, NULL, y, ARES_F32, ldy);
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
        if (is_thin(c, &w, a->m, a->x, a->ldx)) {
            thin_args t = thin_of(a->x, a->ldx, &w, a->m, a->y, a->ldy);
            t.alpha = factor(a->scale);
            t.bias = (const uint16_t *)a->bias;
            t.add = a->residual, t.ld_add = a->ldr;
            launch_thin<uint16_t>(c, t);
            continue;
        }
        ARES_ASSERT(a->residual != a->y || a->ldr == a->ldy);
        product(c, a->x, a->ldx, &w, a->m, factor(a->scale), a->residual, a->ldr, a->bias, a->y,
                c->act, a->ldy);
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
                      .add = a->accumulate || first > 0 ? a->dx : NULL,
                      .ld_add = a->lddx,
                      .bias = NULL,
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
                  .add = a->dw->data,
                  .ld_add = a->dw->k,
                  .bias = NULL,
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
