/*
 * cublasLtMatmul as loops: inputs in f32 or bf16, products summed in f32 in the order of k; with
 * foreign rounding in 4 parts along k, by multiply-adds, merged from the last to the first. What
 * cuBLASLt refuses is refused, and so is what it would do in silence: sums in the type of a bf16
 * result where it splits a product, which the preference must forbid; an algorithm that was found
 * for another shape, or for addresses with a larger alignment; a workspace that it lacks.
 */
#include <cublasLt.h>

#include "emulate.h"

#include <algorithm>
#include <cuda_bf16.h>
#include <string.h>
#include <vector>

struct cublasLtContext {
    int none;
};
struct cublasLtProduct {
    cublasOperation_t op_a, op_b;
    uint32_t epilogue;
    const void *bias;
};
struct cublasLtLayout {
    cudaDataType type;
    int64_t rows, columns, ld;
};
struct cublasLtPreference {
    uint64_t workspace;
    uint32_t reductions, alignment[4]; /* of a, b, c, d */
};
/* What an algorithm is for; it fills the 8 words of cublasLtMatmulAlgo_t. */
typedef struct algorithm {
    uint32_t alignment[4], shape;
    uint32_t workspace;
    uint64_t unused[5];
} algorithm;

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                   : "CUBLAS_STATUS_INVALID_VALUE";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new cublasLtContext();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, cublasComputeType_t compute,
                                        cudaDataType scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    *product = new cublasLtProduct{ CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL };
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    delete product;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t set(void *to, size_t wanted, const void *value, size_t bytes)
{
    if (bytes != wanted) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&product->op_a, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&product->op_b, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&product->epilogue, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&product->bias, 8, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    if (rows == 0 || columns == 0 || ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    *layout = new cublasLtLayout{ type, (int64_t)rows, (int64_t)columns, ld };
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference =
        new cublasLtPreference{ 0, CUBLASLT_REDUCTION_SCHEME_MASK, { 256, 256, 256, 256 } };
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(&preference->workspace, 8, value, bytes);
    if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return set(&preference->reductions, 4, value, bytes);
    return set(&preference->alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], 4, value,
               bytes);
}

/* A column-major matrix of rows x columns, perhaps transposed where it lies. */
typedef struct operand {
    const void *data;
    cudaDataType type;
    bool transposed;
    int64_t ld;
} operand;
static float number_at(const void *data, cudaDataType type, int64_t i)
{
    return type == CUDA_R_32F ? ((const float *)data)[i] : (float)((const __nv_bfloat16 *)data)[i];
}
/* Copies it so that number (row, column) lies at row * by_row + column * by_column. */
static std::vector<float> packed(const operand &o, int rows, int columns, int64_t by_row,
                                 int64_t by_column)
{
    std::vector<float> out((size_t)rows * (size_t)columns);
    for (int64_t c = 0; c < columns; c++)
        for (int64_t r = 0; r < rows; r++)
            out[(size_t)(r * by_row + c * by_column)] =
                number_at(o.data, o.type, o.transposed ? r * o.ld + c : c * o.ld + r);
    return out;
}

typedef struct product {
    operand a, b;
    int m, n, k;
    float alpha, beta;
    const void *add, *bias; /* add: times beta, not read where that is 0 */
    int64_t ld_add;
    void *d;
    cudaDataType type;
    int64_t ld;
} product;
static void multiply(const product &p)
{
    std::vector<float> a = packed(p.a, p.m, p.k, 1, p.m), b = packed(p.b, p.k, p.n, 1, p.k),
                       sum((size_t)p.m), part((size_t)p.m);
    int64_t each = (p.k + 3) / 4;
    for (int64_t j = 0; j < p.n; j++) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int64_t t = 0; t < p.k && !emulate_foreign; t++) {
            const float *column = &a[(size_t)(t * p.m)], by = b[(size_t)(j * p.k + t)];
            for (int64_t i = 0; i < p.m; i++) sum[(size_t)i] += column[i] * by;
        }
        for (int64_t q = 3; q >= 0 && emulate_foreign; q--) {
            std::fill(part.begin(), part.end(), 0.0f);
            for (int64_t t = q * each; t < std::min<int64_t>(p.k, (q + 1) * each); t++) {
                const float *column = &a[(size_t)(t * p.m)], by = b[(size_t)(j * p.k + t)];
                for (int64_t i = 0; i < p.m; i++)
                    part[(size_t)i] = fmaf(column[i], by, part[(size_t)i]);
            }
            for (int64_t i = 0; i < p.m; i++) sum[(size_t)i] += part[(size_t)i];
        }
        for (int64_t i = 0; i < p.m; i++) {
            int64_t at = j * p.ld + i;
            float x = p.alpha * sum[(size_t)i];
            /* with beta = 0 there is nothing to read: it may be NaN */
            if (p.beta != 0) x += p.beta * number_at(p.add, p.type, j * p.ld_add + i);
            if (p.bias) x += number_at(p.bias, p.type, i);
            if (p.type == CUDA_R_32F) ((float *)p.d)[at] = x;
            else ((__nv_bfloat16 *)p.d)[at] = __nv_bfloat16(x);
        }
    }
}

static bool on_card(const void *p, const cublasLtLayout *l)
{
    size_t each = l->type == CUDA_R_32F ? 4 : 2;
    return emulate_on_device(p, (size_t)((l->columns - 1) * l->ld + l->rows) * each);
}
/* Of a, b, c and d and of how they are multiplied; 0: they do not fit together. */
static uint32_t shape_of(const cublasLtProduct *p, const cublasLtLayout *const layout[4])
{
    const cublasLtLayout *a = layout[0], *b = layout[1], *c = layout[2], *d = layout[3];
    bool turn_a = p->op_a == CUBLAS_OP_T, turn_b = p->op_b == CUBLAS_OP_T;
    if ((turn_a ? a->columns : a->rows) != d->rows ||
        (turn_b ? b->rows : b->columns) != d->columns ||
        (turn_a ? a->rows : a->columns) != (turn_b ? b->columns : b->rows) || c->rows != d->rows ||
        c->columns != d->columns)
        return 0;
    uint64_t h = 1 + turn_a + 2u * turn_b + 4u * (p->epilogue == CUBLASLT_EPILOGUE_BIAS);
    for (int i = 0; i < 4; i++) {
        const int64_t of[] = { layout[i]->type, layout[i]->rows, layout[i]->columns,
                               layout[i]->ld };
        for (int64_t x : of) h = (h ^ (uint64_t)x) * 0x100000001B3u;
    }
    return (uint32_t)(h ^ h >> 32) | 1u;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    const cublasLtLayout *const layout[4] = { a, b, c, d };
    bool f32 = a->type == CUDA_R_32F && b->type == CUDA_R_32F && d->type == CUDA_R_32F,
         bf16 = a->type == CUDA_R_16BF && b->type == CUDA_R_16BF;
    *n = 0;
    algorithm chosen = {};
    chosen.shape = shape_of(product, layout);
    if (requested < 1 || !chosen.shape) return CUBLAS_STATUS_INVALID_VALUE;
    if ((!f32 && !bf16) || c->type != d->type ||
        (d->type == CUDA_R_16BF &&
         preference->reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(chosen.alignment, preference->alignment, sizeof chosen.alignment);
    chosen.workspace = preference->workspace < 1 << 20 ? 0 : 1 << 20;
    static_assert(sizeof chosen == sizeof found->algo, "it fills the words");
    memcpy(&found->algo, &chosen, sizeof chosen);
    found->workspaceSize = chosen.workspace;
    found->state = CUBLAS_STATUS_SUCCESS;
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t how, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t of_a, const void *b,
                              cublasLtMatrixLayout_t of_b, const void *beta, const void *c,
                              cublasLtMatrixLayout_t of_c, void *d, cublasLtMatrixLayout_t of_d,
                              const cublasLtMatmulAlgo_t *chosen, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    emulate_lock lock;
    const cublasLtLayout *const layout[4] = { of_a, of_b, of_c, of_d };
    const void *const at[4] = { a, b, c, d };
    algorithm algo;
    memcpy(&algo, chosen, sizeof algo);
    if (algo.shape != shape_of(how, layout)) return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)at[i] % algo.alignment[i] || !on_card(at[i], layout[i]))
            return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes < algo.workspace || (bytes && !emulate_on_device(workspace, bytes)))
        return CUBLAS_STATUS_INVALID_VALUE;
    bool adds_bias = how->epilogue == CUBLASLT_EPILOGUE_BIAS;
    size_t each = of_d->type == CUDA_R_32F ? 4 : 2;
    if (adds_bias && !emulate_on_device(how->bias, (size_t)of_d->rows * each))
        return CUBLAS_STATUS_INVALID_VALUE;
    product p = { .a = { a, of_a->type, how->op_a == CUBLAS_OP_T, of_a->ld },
                  .b = { b, of_b->type, how->op_b == CUBLAS_OP_T, of_b->ld },
                  .m = (int)of_d->rows,
                  .n = (int)of_d->columns,
                  .k = (int)(how->op_a == CUBLAS_OP_T ? of_a->rows : of_a->columns),
                  .alpha = *(const float *)alpha,
                  .beta = *(const float *)beta,
                  .add = c,
                  .bias = adds_bias ? how->bias : NULL,
                  .ld_add = of_c->ld,
                  .d = d,
                  .type = of_d->type,
                  .ld = of_d->ld };
    cudaStreamCaptureStatus status;
    cudaStreamIsCapturing(stream, &status);
    emulate_count(status == cudaStreamCaptureStatusActive ? "capture" : "launch", "gemm", 1);
    emulate_push(stream, [=]() { multiply(p); });
    return CUBLAS_STATUS_SUCCESS;
}
