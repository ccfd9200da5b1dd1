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

bool cuda_waited(cuda_context *c, cudaError_t error)
{
    if (error != cudaSuccess && !c->failed) {
        char operation[128];
        snprintf(operation, sizeof operation, "in or before %s (CUDA_LAUNCH_BLOCKING=1 finds it)",
                 c->last);
        cuda_check(c, error, operation);
    }
    return !c->failed;
}

/* ------------------------------------------------------------------ waits */

static bool pause_beside(cuda_context *c)
{
    bool under_way = false;
    for (cuda_beside *b = c->beside; b; b = b->next)
        if (b->under_way(b)) {
            b->pause(b);
            under_way = true;
        }
    return under_way;
}
static void waited_beside(cuda_context *c)
{
    for (cuda_beside *b = c->beside; b; b = b->next) b->waited(b);
}

/* Until the stream or event is done, or nothing is left that may never come. */
static void poll(cuda_context *c, cudaStream_t stream, cudaEvent_t event)
{
    while ((event ? cudaEventQuery(event) : cudaStreamQuery(stream)) == cudaErrorNotReady)
        if (!pause_beside(c)) break;
    waited_beside(c);
}
bool cuda_wait_stream(cuda_context *c, cudaStream_t stream)
{
    if (c->beside) poll(c, stream, NULL);
    return cuda_waited(c, cudaStreamSynchronize(stream));
}
bool cuda_wait_event(cuda_context *c, cudaEvent_t event)
{
    if (c->beside) poll(c, NULL, event);
    return cuda_waited(c, cudaEventSynchronize(event));
}

/* Waits for everything, what is stored included, and frees what was released before. */
static bool wait(cuda_context *c)
{
    if (c->storing) cuda_copies_join(c);
    if (!cuda_wait_stream(c, c->stream)) return false;
    if (c->n_released > 0 && c->beside) { /* cudaFree waits for all streams */
        while (pause_beside(c)) {
            /* its own failures end all ranks */
        }
        waited_beside(c);
    }
    while (c->n_released > 0) cuda_check(c, cudaFree(c->released[--c->n_released]), "free");
    return !c->failed;
}

/* ------------------------------------------------------------------ memory that is given back */

/* Kernels that were launched may still use it: it is freed at the next wait. */
static void release(cuda_context *c, void *p)
{
    if (c->n_released == c->released_capacity) {
        c->released_capacity = c->released_capacity * 2 + 64;
        c->released =
            (void **)ares_realloc(c->released, (size_t)c->released_capacity * sizeof *c->released);
    }
    c->released[c->n_released++] = p;
    c->releases++;
}

/*
 * cudaErrorMemoryAllocation only where the card has too little with all that was released, and what
 * another library keeps.
 */
static cudaError_t allocate(cuda_context *c, void **p, size_t bytes)
{
    cudaError_t error = cudaMalloc(p, bytes);
    if (error == cudaErrorMemoryAllocation && c->n_released > 0) {
        (void)cudaGetLastError();
        if (wait(c)) error = cudaMalloc(p, bytes);
    }
    if (error == cudaErrorMemoryAllocation && c->trim && !c->failed) {
        (void)cudaGetLastError();
        c->trim();
        error = cudaMalloc(p, bytes);
    }
    return error;
}

void *cuda_scratch(cuda_context *c, cuda_slot slot, size_t bytes)
{
    if (c->failed) return NULL;
    if (c->slot[slot].bytes >= bytes && c->slot[slot].p) return c->slot[slot].p;
    if (c->slot[slot].p) release(c, c->slot[slot].p);
    c->slot[slot].p = NULL;
    c->slot[slot].bytes = 0;
    bytes = (bytes + bytes / 4 + 65535) / 65536 * 65536;
    char operation[64];
    snprintf(operation, sizeof operation, "scratch of %.2f GiB", (double)bytes / 1073741824.0);
    if (!cuda_check(c, allocate(c, &c->slot[slot].p, bytes), operation)) return NULL;
    c->slot[slot].bytes = bytes;
    return c->slot[slot].p;
}

unsigned *cuda_tickets(cuda_context *c, size_t n)
{
    size_t had = c->slot[CUDA_TICKETS].bytes;
    unsigned *tickets = (unsigned *)cuda_scratch(c, CUDA_TICKETS, n * sizeof *tickets);
    if (tickets && c->slot[CUDA_TICKETS].bytes != had)
        cuda_check(c, cudaMemsetAsync(tickets, 0, c->slot[CUDA_TICKETS].bytes, c->stream),
                   "zero tickets");
    return c->failed ? NULL : tickets;
}

bool cuda_columns_open(cuda_context *c, int64_t rows, int32_t columns, int sums, cuda_columns *s,
                       dim3 *grid)
{
    enum { EACH = 512, MOST = 1024 }; /* rows of a chunk at least; chunks at most */
    unsigned groups = (unsigned)(columns + 31) / 32;
    s->each = ARES_MAX((rows + MOST - 1) / MOST, (int64_t)EACH);
    int64_t chunks = (rows + s->each - 1) / s->each;
    *grid = dim3(groups, (unsigned)chunks);
    if (chunks == 1) return !c->failed;
    s->parts = (float *)cuda_scratch(c, CUDA_PARTS,
                                     (size_t)(chunks * sums) * (size_t)columns * sizeof(float));
    s->tickets = cuda_tickets(c, groups);
    return s->parts && s->tickets;
}

/* ------------------------------------------------------------------ memory */

void *cuda_alloc(ares_device *d, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    void *p = NULL;
    cudaError_t error = allocate(c, &p, bytes ? bytes : 1);
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
    release(cuda_enter(d), p);
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
    for (int i = 0; i < c->n_released; i++) (void)cudaFree(c->released[i]);
    ares_free(c->released);
    cuda_ring_close(&c->in);
    cuda_ring_close(&c->out);
    cuda_fetches_close(c);
    cuda_copies_close(c);
    if (c->blas) (void)cublasDestroy(c->blas);
    (void)cudaFree(c->blas_workspace);
    if (c->stream) (void)cudaStreamDestroy(c->stream);
    free(c);
}

extern "C" {
int ares_cuda_open(ares_device *d, int index, char *message, size_t size);
void ares_cuda_close(ares_device *d);
void ares_cuda_trim_by(ares_device *d, void (*trim)(void));
const char *ares_cuda_card(int index);
double ares_cuda_memory_bytes(int index);
double ares_cuda_total_bytes(int index);
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

double ares_cuda_total_bytes(int index)
{
    size_t left, total;
    return cudaSetDevice(index) == cudaSuccess && cudaMemGetInfo(&left, &total) == cudaSuccess
               ? (double)total
               : 0;
}

/*
 * A handle whose products are the same whenever they run: sums in f32 also where cuBLAS splits a
 * product, and a workspace of our own. Without one, cuBLAS takes memory in the middle of a graph.
 */
static void open_blas(cuda_context *c)
{
    const size_t bytes = 32 << 20; /* what NVIDIA recommends for Hopper */
    cublasMath_t math =
        (cublasMath_t)(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    (void)(cuda_check_blas(c, cublasCreate(&c->blas), "cublasCreate") &&
           cuda_check_blas(c, cublasSetStream(c->blas, c->stream), "cublasSetStream") &&
           cuda_check(c, cudaMalloc(&c->blas_workspace, bytes), "cudaMalloc") &&
           cuda_check_blas(c, cublasSetWorkspace(c->blas, c->blas_workspace, bytes),
                           "cublasSetWorkspace") &&
           cuda_check_blas(c, cublasSetMathMode(c->blas, math), "cublasSetMathMode") &&
           cuda_check_blas(c, cublasSetAtomicsMode(c->blas, CUBLAS_ATOMICS_NOT_ALLOWED),
                           "cublasSetAtomicsMode"));
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
    c->act = d->k->act;
    c->last = "opening";
    cuda_check(c, cudaSetDevice(index), "cudaSetDevice");
    if (!c->failed)
        cuda_check(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking),
                   "cudaStreamCreate");
    if (!c->failed) open_blas(c);
    if (!cuda_ring_open(c, &c->in) || !cuda_ring_open(c, &c->out)) {
        snprintf(message, size, "%s", c->message);
        close_context(c);
        return ARES_EDEVICE;
    }
    d->scratch = c;
    d->stream = c->stream;
    return ARES_OK;
}

/* For a device that shares its card with another library of this process. */
void ares_cuda_trim_by(ares_device *d, void (*trim)(void))
{
    ((cuda_context *)d->scratch)->trim = trim;
}

void ares_cuda_close(ares_device *d)
{
    cuda_context *c = (cuda_context *)d->scratch;
    (void)cudaSetDevice(c->index);
    (void)cudaStreamSynchronize(c->stream);
    close_context(c);
    d->scratch = d->stream = NULL;
}
