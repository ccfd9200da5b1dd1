/*
 * The CUDA device: opening it, its memory and its first failure. The program finds the functions in
 * extern "C" by name (kernels/device.c). ares_fail, ares_abort and ares_f64_pow are the program's
 * own and are found when the library is loaded.
 */
#include "../count.h"
#include "device.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cuda_context *cuda_enter(ares_device *d)
{
    cuda_context *c = (cuda_context *)d->scratch;
    cuda_check(c, cudaSetDevice(c->index), "cudaSetDevice");
    return c;
}

static void fail(cuda_context *c, const char *operation, const char *why)
{
    if (c->failed) return;
    c->failed = true;
    snprintf(c->message, sizeof c->message, "%s: %s", operation, why);
}
bool cuda_check(cuda_context *c, cudaError_t error, const char *operation)
{
    if (error != cudaSuccess) {
        fail(c, operation, cudaGetErrorString(error));
        (void)cudaGetLastError(); /* clears an error that is not sticky */
    }
    return !c->failed;
}
bool cuda_check_blas(cuda_context *c, cublasStatus_t status, const char *operation)
{
    if (status != CUBLAS_STATUS_SUCCESS) fail(c, operation, cublasGetStatusString(status));
    return !c->failed;
}

/* Waits. A failure it finds may come from any kernel launched since the last wait. */
static bool wait(cuda_context *c)
{
    cudaError_t error = cudaStreamSynchronize(c->stream);
    if (error != cudaSuccess && !c->failed) {
        char operation[128];
        snprintf(operation, sizeof operation, "in or before %s (CUDA_LAUNCH_BLOCKING=1 finds it)",
                 c->last);
        cuda_check(c, error, operation);
    }
    return !c->failed;
}

void *cuda_scratch(cuda_context *c, cuda_slot slot, size_t bytes)
{
    if (c->failed) return NULL;
    if (c->slot[slot].bytes >= bytes && c->slot[slot].p) return c->slot[slot].p;
    if (!wait(c) || !cuda_check(c, cudaFree(c->slot[slot].p), "free scratch")) return NULL;
    c->slot[slot].p = NULL;
    c->slot[slot].bytes = 0;
    bytes = (bytes + bytes / 4 + 65535) / 65536 * 65536;
    char operation[64];
    snprintf(operation, sizeof operation, "scratch of %.2f GiB", (double)bytes / 1073741824.0);
    if (!cuda_check(c, cudaMalloc(&c->slot[slot].p, bytes), operation)) return NULL;
    c->slot[slot].bytes = bytes;
    return c->slot[slot].p;
}

bool cuda_in(cuda_context *c, void *device, const void *host, size_t bytes)
{
    /* from pageable memory the call returns when the bytes have been read */
    return !c->failed &&
           cuda_check(c, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, c->stream),
                      "copy in");
}
bool cuda_out(cuda_context *c, void *host, const void *device, size_t bytes)
{
    if (c->failed) return false;
    cuda_check(c, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, c->stream),
               "copy out");
    return wait(c);
}

/* ------------------------------------------------------------------ memory */

void *cuda_alloc(ares_device *d, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    void *p = NULL;
    cudaError_t error = cudaMalloc(&p, bytes ? bytes : 1);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* the caller says what did not fit */
        return NULL;
    }
    if (!cuda_check(c, error, "alloc")) return NULL;
    cuda_check(c, cudaMemsetAsync(p, 0, bytes ? bytes : 1, c->stream), "zero new memory");
    kernels_count(d, bytes, 0);
    return p;
}
void cuda_release(ares_device *d, void *p, size_t bytes)
{
    if (!p) return;
    kernels_count(d, 0, bytes);
    cuda_context *c = cuda_enter(d);
    wait(c); /* kernels may still use it */
    cuda_check(c, cudaFree(p), "free");
}
void cuda_copy_in(ares_device *d, void *device, const void *host, size_t bytes)
{
    cuda_in(cuda_enter(d), device, host, bytes);
}
void cuda_copy_out(ares_device *d, void *host, const void *device, size_t bytes)
{
    cuda_out(cuda_enter(d), host, device, bytes);
}
void cuda_copy(ares_device *d, void *to, const void *from, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    if (!c->failed)
        cuda_check(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream),
                   "copy");
}
void cuda_zero(ares_device *d, void *p, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    if (!c->failed) cuda_check(c, cudaMemsetAsync(p, 0, bytes, c->stream), "zero");
}
int cuda_sync(ares_device *d)
{
    cuda_context *c = cuda_enter(d);
    if (wait(c)) return ARES_OK;
    c->failed = false;
    return ares_fail(ARES_EDEVICE, "kernels: cuda:%d: %s", c->index, c->message);
}

/* ------------------------------------------------------------------ opening and closing */

/* Also for a context whose opening failed: gives back what it has. */
static void close_context(cuda_context *c)
{
    for (int i = 0; i < CUDA_SLOTS; i++) (void)cudaFree(c->slot[i].p);
    if (c->blas) (void)cublasDestroy(c->blas);
    if (c->stream) (void)cudaStreamDestroy(c->stream);
    free(c);
}

extern "C" {
int ares_cuda_open(ares_device *d, int index, char *message, size_t size);
void ares_cuda_close(ares_device *d);
const char *ares_cuda_card(int index);
double ares_cuda_memory_bytes(int index);
}

const char *ares_cuda_card(int index)
{
    static cudaDeviceProp properties; /* one device per process */
    return cudaGetDeviceProperties(&properties, index) == cudaSuccess ? properties.name : NULL;
}

double ares_cuda_memory_bytes(int index)
{
    size_t left, total;
    return cudaSetDevice(index) == cudaSuccess && cudaMemGetInfo(&left, &total) == cudaSuccess
               ? (double)(total - left)
               : 0;
}

/* Fills d->scratch and d->stream. A failure's text goes into message: no table is in use yet. */
int ares_cuda_open(ares_device *d, int index, char *message, size_t size)
{
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        snprintf(message, size, "no CUDA device: %s",
                 error != cudaSuccess ? cudaGetErrorString(error) : "the driver shows none");
        return ARES_EDEVICE;
    }
    if (index >= devices) {
        snprintf(message, size, "no such device (the driver shows %d: cuda:0 to cuda:%d)", devices,
                 devices - 1);
        return ARES_EDEVICE;
    }
    cuda_context *c = (cuda_context *)calloc(1, sizeof *c);
    ARES_ASSERT(c);
    c->index = index;
    c->last = "opening";
    cuda_check(c, cudaSetDevice(index), "cudaSetDevice");
    if (!c->failed)
        cuda_check(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking),
                   "cudaStreamCreate");
    if (!c->failed) cuda_check_blas(c, cublasCreate(&c->blas), "cublasCreate");
    if (!c->failed) cuda_check_blas(c, cublasSetStream(c->blas, c->stream), "cublasSetStream");
    if (!c->failed)
        cuda_check_blas(c, cublasSetAtomicsMode(c->blas, CUBLAS_ATOMICS_NOT_ALLOWED),
                        "cublasSetAtomicsMode");
    if (c->failed) {
        snprintf(message, size, "%s", c->message);
        close_context(c);
        return ARES_EDEVICE;
    }
    d->scratch = c;
    d->stream = c->stream;
    return ARES_OK;
}

void ares_cuda_close(ares_device *d)
{
    cuda_context *c = (cuda_context *)d->scratch;
    (void)cudaSetDevice(c->index);
    (void)cudaStreamSynchronize(c->stream);
    close_context(c);
    d->scratch = d->stream = NULL;
}
