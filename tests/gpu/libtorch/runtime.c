/*
 * A CUDA runtime and a cuBLAS of one card that compute nothing and whose memory is the host's. Put
 * before the real ones (LD_PRELOAD) they let libtorch's CUDA half run on a machine without a card,
 * from its check of arguments to the launch. tests/kernels/test_wiring.c counts what arrives here.
 */
#include "runtime.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

static fake_counts counts;
static cudaStream_t expected;

fake_expect_fn ares_fake_expect;
fake_counts_fn ares_fake_counts;
void ares_fake_expect(void *stream)
{
    counts = (fake_counts){ 0 };
    expected = stream;
}
fake_counts ares_fake_counts(void)
{
    return counts;
}
static cudaError_t on(cudaStream_t stream)
{
    counts.elsewhere += stream != expected;
    return cudaSuccess;
}
static cudaError_t waited(void)
{
    counts.waits++;
    return cudaSuccess;
}

/* ------------------------------------------------------------------ the card */

#define DOES_NOTHING(name, ...)    \
    cudaError_t name(__VA_ARGS__); \
    cudaError_t name(__VA_ARGS__)  \
    {                              \
        return cudaSuccess;        \
    }
DOES_NOTHING(cudaSetDevice, int device)
DOES_NOTHING(cudaGetLastError, void)
DOES_NOTHING(cudaPeekAtLastError, void)

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceFlags(unsigned *flags)
{
    *flags = 0;
    return cudaSuccess;
}
/* An H200's. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof *p);
    strcpy(p->name, "none");
    p->major = 9;
    p->multiProcessorCount = 132;
    p->totalGlobalMem = (size_t)140 << 30;
    p->warpSize = 32;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxThreadsPerBlock = 1024;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    cudaGetDeviceProperties(&p, device);
    *value = attribute == cudaDevAttrMultiProcessorCount      ? p.multiProcessorCount
             : attribute == cudaDevAttrComputeCapabilityMajor ? p.major
                                                              : 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = 0;
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t error)
{
    return "an error of the runtime that stands in";
}
const char *cudaGetErrorName(cudaError_t error)
{
    return cudaGetErrorString(error);
}

/* ------------------------------------------------------------------ memory */

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    *left = *total = (size_t)140 << 30;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    counts.allocations++;
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    memset(p, value, bytes);
    return on(stream);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    memmove(to, from, bytes);
    return on(stream);
}

/* ------------------------------------------------------------------ streams and events */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    *stream = malloc(1);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags)
{
    *flags = cudaStreamNonBlocking;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = malloc(1);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}
DOES_NOTHING(cudaThreadExchangeStreamCaptureMode, enum cudaStreamCaptureMode *mode)
DOES_NOTHING(cudaStreamQuery, cudaStream_t stream)
DOES_NOTHING(cudaStreamWaitEvent, cudaStream_t stream, cudaEvent_t event, unsigned flags)
DOES_NOTHING(cudaEventRecord, cudaEvent_t event, cudaStream_t stream)
DOES_NOTHING(cudaEventQuery, cudaEvent_t event)
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return waited();
}
cudaError_t cudaDeviceSynchronize(void)
{
    return waited();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return waited();
}

/* ------------------------------------------------------------------ kernels */

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream)
{
    counts.launches++;
    return on(stream);
}
cudaError_t __cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream);
cudaError_t __cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream)
{
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                void **arguments)
{
    return cudaLaunchKernel(kernel, config->gridDim, config->blockDim, arguments,
                            config->dynamicSmemBytes, config->stream);
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    memset(attributes, 0, sizeof *attributes);
    attributes->ptxVersion = attributes->binaryVersion = 90;
    attributes->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}
DOES_NOTHING(cudaFuncSetAttribute, const void *kernel, enum cudaFuncAttribute attribute, int value)
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *kernel, int block,
                                                          size_t shared)
{
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *kernel,
                                                                   int block, size_t shared,
                                                                   unsigned flags)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, kernel, block, shared);
}

/* ------------------------------------------------------------------ cuBLAS */

/* A handle is the stream that it was given. */
struct cublasContext {
    cudaStream_t stream;
};
static cublasStatus_t multiplied(cudaStream_t stream)
{
    counts.products++;
    return on(stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INTERNAL_ERROR;
}

#define BLAS_DOES_NOTHING(name, ...)  \
    cublasStatus_t name(__VA_ARGS__)  \
    {                                 \
        return CUBLAS_STATUS_SUCCESS; \
    }
BLAS_DOES_NOTHING(cublasSetWorkspace, cublasHandle_t handle, void *workspace, size_t bytes)
BLAS_DOES_NOTHING(cublasSetMathMode, cublasHandle_t handle, cublasMath_t mode)
BLAS_DOES_NOTHING(cublasSetPointerMode, cublasHandle_t handle, cublasPointerMode_t mode)
cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode)
{
    *mode = CUBLAS_DEFAULT_MATH;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode(cublasHandle_t handle, cublasPointerMode_t *mode)
{
    *mode = CUBLAS_POINTER_MODE_HOST;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void *alpha, const void *a,
                            cudaDataType of_a, int lda, const void *b, cudaDataType of_b, int ldb,
                            const void *beta, void *c, cudaDataType of_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
    return multiplied(handle->stream);
}
cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                           int m, int n, int k, const float *alpha, const float *a, int lda,
                           const float *b, int ldb, const float *beta, float *c, int ldc)
{
    return multiplied(handle->stream);
}

/* A product with its bias. Any algorithm will do. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    memset(found, 0, sizeof *found);
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t of_a,
                              const void *b, cublasLtMatrixLayout_t of_b, const void *beta,
                              const void *c, cublasLtMatrixLayout_t of_c, void *d,
                              cublasLtMatrixLayout_t of_d, const cublasLtMatmulAlgo_t *algorithm,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    return multiplied(stream);
}
