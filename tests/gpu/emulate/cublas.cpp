/*
 * cublasGemmEx as loops: inputs in f32 or bf16, products summed in f32 in the order of k; with
 * foreign rounding in 4 parts along k, by multiply-adds, merged from the last to the first. What
 * cuBLAS refuses is refused. Two things it would do in silence are refused as well: sums in bf16 of
 * a product that it splits, which the math mode must forbid, and memory that it takes for a graph
 * where the handle has no workspace since its stream was set.
 */
#include <cublas_v2.h>

#include "emulate.h"

#include <cuda_bf16.h>
#include <vector>

struct cublasContext {
    cudaStream_t stream;
    bool workspace, sums_in_f32;
};

const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                   : "CUBLAS_STATUS_INVALID_VALUE";
}
cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = new cublasContext();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    handle->workspace = false;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    handle->workspace = emulate_on_device(workspace, bytes);
    return handle->workspace ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    handle->sums_in_f32 = mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t)
{
    return CUBLAS_STATUS_SUCCESS;
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
    void *c;
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
            /* with beta = 0 the result is not read: it may be NaN */
            if (p.beta != 0) x += p.beta * number_at(p.c, p.type, at);
            if (p.type == CUDA_R_32F) ((float *)p.c)[at] = x;
            else ((__nv_bfloat16 *)p.c)[at] = __nv_bfloat16(x);
        }
    }
}

static bool good_operand(const operand &o, int rows, int columns)
{
    int64_t across = o.transposed ? rows : columns, along = o.transposed ? columns : rows;
    size_t each = o.type == CUDA_R_32F ? 4 : 2;
    return o.ld >= along && o.ld >= 1 &&
           emulate_on_device(o.data, (size_t)((across - 1) * o.ld + along) * each);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void *alpha, const void *a,
                            cudaDataType a_type, int lda, const void *b, cudaDataType b_type,
                            int ldb, const void *beta, void *c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t)
{
    emulate_lock lock;
    if (m < 0 || n < 0 || k < 0) return CUBLAS_STATUS_INVALID_VALUE;
    bool f32 = a_type == CUDA_R_32F && b_type == CUDA_R_32F && c_type == CUDA_R_32F,
         bf16 = a_type == CUDA_R_16BF && b_type == CUDA_R_16BF &&
                (c_type == CUDA_R_16BF || c_type == CUDA_R_32F);
    if ((!f32 && !bf16) || compute != CUBLAS_COMPUTE_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    product p = { .a = { a, a_type, op_a == CUBLAS_OP_T, lda },
                  .b = { b, b_type, op_b == CUBLAS_OP_T, ldb },
                  .m = m,
                  .n = n,
                  .k = k,
                  .alpha = *(const float *)alpha,
                  .beta = *(const float *)beta,
                  .c = c,
                  .type = c_type,
                  .ld = ldc };
    operand result = { c, c_type, false, ldc };
    if ((k > 0 && (!good_operand(p.a, m, k) || !good_operand(p.b, k, n))) ||
        !good_operand(result, m, n))
        return CUBLAS_STATUS_INVALID_VALUE;
    cudaStreamCaptureStatus status;
    cudaStreamIsCapturing(handle->stream, &status);
    if ((c_type == CUDA_R_16BF && !handle->sums_in_f32) ||
        (status == cudaStreamCaptureStatusActive && !handle->workspace))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    emulate_count(status == cudaStreamCaptureStatusActive ? "capture" : "launch", "gemm", 1);
    emulate_push(handle->stream, [=]() { multiply(p); });
    return CUBLAS_STATUS_SUCCESS;
}
