/*
 * The CUDA device. In order: copies between host and card; decoding without waits (kept copies,
 * graphs); opening the device, its memory and its first failure; the tables of its kernels.
 */
#include "../count.h"
#include "device.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Copies between the host and the card. A caller's memory is pageable and may be reused on return,
 * so both ways lead through pinned memory of our own, in pieces. On the way in, small copies lie
 * side by side in a piece, and a piece is written again only when an event says that the card has
 * read it: a copy waits only for one that is a whole ring older. On the way out the host empties
 * one piece while the card fills the other. Memory that alloc_host gave is pinned: the card copies
 * from it and to it on a stream of its own. Blocks of the paged cache are copied by a kernel.
 */

static bool wait_event(cuda_context *c, cudaEvent_t event);

static const size_t PIECE = (size_t)4 << 20; /* bytes */
enum { ALIGN = 64 };

static bool ring_open(cuda_context *c, cuda_ring *r)
{
    cuda_check(c, cudaMallocHost(&r->memory, CUDA_PIECES * PIECE), "pinned host memory");
    for (int i = 0; i < CUDA_PIECES && !c->failed; i++)
        cuda_check(c, cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming), "event");
    return !c->failed;
}

static void ring_close(cuda_ring *r)
{
    for (int i = 0; i < CUDA_PIECES; i++)
        if (r->done[i]) (void)cudaEventDestroy(r->done[i]);
    (void)cudaFreeHost(r->memory);
}

static char *piece_of(const cuda_ring *r, int64_t i)
{
    return r->memory + (size_t)(i % CUDA_PIECES) * PIECE;
}

/* Does not wait for the card. */
static void copy_in(ares_device *d, void *device, const void *host, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    cuda_ring *r = &c->in;
    for (size_t at = 0, n; at < bytes && !c->failed; at += n) {
        if (r->used == PIECE) { /* the next piece, once the card has read what it held before */
            cuda_check(c, cudaEventRecord(r->done[r->now], c->stream), "copy in");
            r->now = (r->now + 1) % CUDA_PIECES;
            r->used = 0;
            wait_event(c, r->done[r->now]); /* at once where it was never recorded */
        }
        char *pinned = piece_of(r, r->now) + r->used;
        n = ARES_MIN(bytes - at, PIECE - r->used);
        memcpy(pinned, (const char *)host + at, n);
        cuda_check(
            c, cudaMemcpyAsync((char *)device + at, pinned, n, cudaMemcpyHostToDevice, c->stream),
            "copy in");
        r->used += (n + ALIGN - 1) / ALIGN * ALIGN;
    }
}

/* Bytes of piece i of a copy of so many. */
static size_t piece_bytes(int64_t i, size_t bytes)
{
    return ARES_MIN(bytes - (size_t)i * PIECE, PIECE);
}

static void copy_out(ares_device *d, void *host, const void *device, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    int64_t pieces = (int64_t)((bytes + PIECE - 1) / PIECE);
    for (int64_t i = 0; i <= pieces && !c->failed; i++) {
        /* piece i travels while piece i - 1 is copied to where it belongs */
        if (i < pieces) {
            cuda_check(c,
                       cudaMemcpyAsync(piece_of(&c->out, i),
                                       (const char *)device + (size_t)i * PIECE,
                                       piece_bytes(i, bytes), cudaMemcpyDeviceToHost, c->stream),
                       "copy out");
            if (!c->failed)
                cuda_check(c, cudaEventRecord(c->out.done[i % CUDA_PIECES], c->stream), "copy out");
        }
        if (i == 0 || c->failed) continue;
        if (!wait_event(c, c->out.done[(i - 1) % CUDA_PIECES])) break;
        memcpy((char *)host + (size_t)(i - 1) * PIECE, piece_of(&c->out, i - 1),
               piece_bytes(i - 1, bytes));
    }
}

/* ------------------------------------------------------------------ beside the kernels */

/* What is launched from here on begins when all of bring and store so far is done. */
static void copies_join(cuda_context *c)
{
    if (!c->copies) return; /* there has never been one */
    /* kernels that come next wait on the card; the host does not */
    if (!c->failed) cuda_check(c, cudaEventRecord(c->copies_end, c->copies), "copies");
    if (!c->failed) cuda_check(c, cudaStreamWaitEvent(c->stream, c->copies_end, 0), "copies");
    c->storing = false;
}

static void *alloc_host(ares_device *d, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    void *p = NULL;
    if (!c->copies && /* the stream of its own, at the first call */
        !(cuda_check(c, cudaStreamCreateWithFlags(&c->copies, cudaStreamNonBlocking),
                     "cudaStreamCreate") &&
          cuda_check(c, cudaEventCreateWithFlags(&c->copies_begin, cudaEventDisableTiming),
                     "event") &&
          cuda_check(c, cudaEventCreateWithFlags(&c->copies_end, cudaEventDisableTiming), "event")))
        return NULL;
    if (cudaMallocHost(&p, bytes ? bytes : 1) != cudaSuccess) {
        (void)cudaGetLastError(); /* the caller says what did not fit */
        return NULL;
    }
    return memset(p, 0, bytes);
}

static void release_host(ares_device *d, void *p, size_t bytes)
{
    (void)bytes;
    cuda_context *c = cuda_enter(d);
    if (!p) return;
    cuda_wait_stream(c, c->copies);
    (void)cudaFreeHost(p);
}

/* A copy that begins when all copies before it, and all that was launched so far, are done. */
static void copy_beside(cuda_context *c, void *to, const void *from, size_t bytes,
                        cudaMemcpyKind kind, const char *operation)
{
    if (!c->failed) cuda_check(c, cudaEventRecord(c->copies_begin, c->stream), operation);
    if (!c->failed) cuda_check(c, cudaStreamWaitEvent(c->copies, c->copies_begin, 0), operation);
    if (!c->failed) cuda_check(c, cudaMemcpyAsync(to, from, bytes, kind, c->copies), operation);
}

static void bring(ares_device *d, void *device, const void *host, size_t bytes)
{
    copy_beside(cuda_enter(d), device, host, bytes, cudaMemcpyHostToDevice, "bring");
}

static void store(ares_device *d, void *host, const void *device, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    copy_beside(c, host, device, bytes, cudaMemcpyDeviceToHost, "store");
    c->storing = true;
}

static void brought(ares_device *d)
{
    copies_join(cuda_enter(d));
}

/* ------------------------------------------------------------------ blocks of the paged cache */

/* Pairs that fit into a kernel's arguments, of 4 KiB at most, so that no copy precedes the launch.
 */
enum { PAIRS = 500 };
typedef struct block_pairs {
    int32_t block[2 * PAIRS];
} block_pairs;

static __global__ void copy_pairs(void *cache, int32_t layers, int64_t layer_bytes,
                                  int64_t block_vectors, int32_t n, block_pairs p)
{
    CUDA_EACH(at, (int64_t)n * layers * block_vectors)
    {
        int64_t i = at % block_vectors, l = at / block_vectors % layers,
                pair = at / block_vectors / layers;
        uint4 *layer = (uint4 *)((char *)cache + l * layer_bytes);
        layer[p.block[2 * pair + 1] * block_vectors + i] =
            layer[p.block[2 * pair] * block_vectors + i];
    }
}

static void copy_blocks(ares_device *d, const ares_copy_blocks_args *a)
{
    cuda_context *c = cuda_enter(d);
    int64_t vectors = (int64_t)(a->block_bytes / sizeof(uint4));
    ARES_ASSERT(a->block_bytes % sizeof(uint4) == 0);
    for (int32_t first = 0; first < a->n; first += PAIRS) {
        int32_t n = ARES_MIN(a->n - first, (int32_t)PAIRS);
        block_pairs p = {}; /* what n leaves of it goes to the card, too */
        memcpy(p.block, a->block + 2 * first, 2 * (size_t)n * sizeof *p.block);
        cuda_launch(c, "copy_blocks", copy_pairs, cuda_blocks(n * a->layers * vectors),
                    CUDA_THREADS, 0, a->cache, a->layers, a->layer_bytes, vectors, n, p);
    }
}

/*
 * Decoding without waits: what one step takes from the step before, copies that are read later, and
 * launches that are kept as a graph. A graph holds addresses, so it is good only while no memory of
 * the device has been released.
 */

/* The position that turns number i of a row of cosines and sines. */
static __device__ int32_t position_of(const ares_advance_args &a, int64_t r, int64_t i)
{
    int64_t angle = i % (a.head_dim / 2);
    if (!a.positions_h || angle < a.by_time) return a.positions[r];
    return angle < a.by_time + a.by_row ? a.positions_h[r] : a.positions_w[r];
}

static __global__ void take_tokens(ares_advance_args a)
{
    CUDA_EACH(at, (int64_t)a.rows * a.head_dim)
    {
        int64_t r = at / a.head_dim, i = at % a.head_dim;
        /* the token that the step before sampled, of row from[r]; below 0: the host has set it */
        if (i == 0 && a.from[r] >= 0) a.ids[r] = a.token[a.from[r]];
        a.cos_sin[at] = a.angles[(int64_t)position_of(a, r, i) * a.head_dim + i];
    }
    CUDA_EACH(i, *a.changes) a.table[a.change[2 * i]] = a.change[2 * i + 1];
}
static void advance(ares_device *d, const ares_advance_args *a)
{
    cuda_launch(cuda_enter(d), "advance", take_tokens, cuda_blocks((int64_t)a->rows * a->head_dim),
                CUDA_THREADS, 0, *a);
}

/* ------------------------------------------------------------------ copies that are read later */

static void fetch(ares_device *d, int slot, const void *device, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    cuda_fetched_bytes *f = &c->fetched[slot];
    if (c->failed) return;
    if (f->bytes < bytes) {
        /* a copy that nobody waited for may still be under way */
        if (f->done && !wait_event(c, f->done)) return;
        (void)cudaFreeHost(f->pinned);
        f->pinned = NULL;
        /* twice the need, because page-locking is slow and batches grow */
        f->bytes = 2 * bytes;
        if (!cuda_check(c, cudaMallocHost(&f->pinned, f->bytes), "pinned host memory"))
            f->bytes = 0;
    }
    if (!f->done && !c->failed)
        cuda_check(c, cudaEventCreateWithFlags(&f->done, cudaEventDisableTiming), "event");
    if (c->failed) return;
    cuda_check(c, cudaMemcpyAsync(f->pinned, device, bytes, cudaMemcpyDeviceToHost, c->stream),
               "fetch");
    if (!c->failed) cuda_check(c, cudaEventRecord(f->done, c->stream), "fetch");
}

static int fetched(ares_device *d, int slot, const void **host)
{
    cuda_context *c = cuda_enter(d);
    cuda_fetched_bytes *f = &c->fetched[slot];
    *host = f->pinned;
    if (!c->failed && f->done) wait_event(c, f->done);
    return c->failed ? cuda_sync(d) : ARES_OK;
}

/* ------------------------------------------------------------------ graphs */

typedef struct kept {
    cudaGraphExec_t exec;
    int64_t releases; /* of the device, when it was made */
} kept;

/*
 * A failure in a capture only costs the graph, because the caller then launches without one: its
 * text is kept in `refusal`, and the device has not failed.
 */
static bool captured(cuda_context *c)
{
    bool good = !c->failed;
    if (!good) {
        memcpy(c->refusal, c->message, sizeof c->refusal);
        (void)cudaGetLastError(); /* or the next launch would find it */
    }
    c->failed = false;
    return good;
}

static bool graph_begin(ares_device *d)
{
    cuda_context *c = cuda_enter(d);
    bool failed = c->failed; /* before: no matter of a graph */
    if (!failed)
        cuda_check(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal),
                   "begin of a capture");
    bool begun = captured(c);
    c->failed = failed;
    return begun;
}

static void *graph_end(ares_device *d)
{
    cuda_context *c = cuda_enter(d);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cuda_check(c, cudaStreamEndCapture(c->stream, &graph), "end of a capture");
    if (!c->failed) cuda_check(c, cudaGraphInstantiate(&exec, graph, 0), "making of a graph");
    if (graph) (void)cudaGraphDestroy(graph);
    if (!captured(c)) return NULL;
    kept *k = (kept *)malloc(sizeof *k);
    ARES_ASSERT(k);
    *k = { exec, c->releases };
    return k;
}

static const char *graph_refusal(const ares_device *d)
{
    return ((const cuda_context *)d->scratch)->refusal;
}

static bool graph_launch(ares_device *d, void *graph)
{
    cuda_context *c = cuda_enter(d);
    kept *k = (kept *)graph;
    if (k->releases != c->releases) return false;
    c->last = "graph";
    if (!c->failed) cuda_check(c, cudaGraphLaunch(k->exec, c->stream), "graph");
    return true;
}

static void graph_free(ares_device *d, void *graph)
{
    kept *k = (kept *)graph;
    (void)cuda_enter(d);
    (void)cudaGraphExecDestroy(k->exec);
    free(k);
}

/*
 * The CUDA device: opening it, its memory and its first failure. The program finds the functions in
 * extern "C" by name (device.c). ares_fail, ares_abort and ares_f64_pow are the program's
 * own and are found when the library is loaded.
 */

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
    if (status != CUBLAS_STATUS_SUCCESS) fail(c, operation, cublasLtGetStatusString(status));
    return !c->failed;
}

/* As cuda_check, for the result of a wait: it may be the failure of any kernel before. */
static bool waited(cuda_context *c, cudaError_t error)
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

/*
 * Asks until the stream or event is done, or until no work of other processes is under way; then
 * the caller may block in the driver.
 */
static void poll(cuda_context *c, cudaStream_t stream, cudaEvent_t event)
{
    while ((event ? cudaEventQuery(event) : cudaStreamQuery(stream)) == cudaErrorNotReady)
        if (!pause_beside(c)) break;
    waited_beside(c);
}
bool cuda_wait_stream(cuda_context *c, cudaStream_t stream)
{
    if (c->beside) poll(c, stream, NULL);
    return waited(c, cudaStreamSynchronize(stream));
}
static bool wait_event(cuda_context *c, cudaEvent_t event)
{
    if (c->beside) poll(c, NULL, event);
    return waited(c, cudaEventSynchronize(event));
}

/* Waits for everything, what is stored included, and frees what was released before. */
static bool wait(cuda_context *c)
{
    if (c->storing) copies_join(c);
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
static void release_later(cuda_context *c, void *p)
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
 * As cudaMalloc. Where the card has too little, frees first what was released, then what another
 * library keeps of the card, and tries again after each.
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
    if (c->slot[slot].p) release_later(c, c->slot[slot].p);
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

static void *alloc(ares_device *d, size_t bytes)
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
static void release(ares_device *d, void *p, size_t bytes)
{
    if (!p) return;
    kernels_count(d, 0, bytes);
    release_later(cuda_enter(d), p);
}
static void copy(ares_device *d, void *to, const void *from, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    if (!c->failed)
        cuda_check(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream),
                   "copy");
}
static void zero(ares_device *d, void *p, size_t bytes)
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
    ring_close(&c->in);
    ring_close(&c->out);
    for (int i = 0; i < CUDA_FETCHES; i++) {
        if (c->fetched[i].done) (void)cudaEventDestroy(c->fetched[i].done);
        (void)cudaFreeHost(c->fetched[i].pinned);
    }
    for (int i = 0; i < c->n_stamps; i++) (void)cudaEventDestroy(c->stamps[i]);
    ares_free(c->stamps);
    if (c->copies_begin) (void)cudaEventDestroy(c->copies_begin);
    if (c->copies_end) (void)cudaEventDestroy(c->copies_end);
    if (c->copies) (void)cudaStreamDestroy(c->copies);
    cuda_plans_free(c);
    if (c->blas) (void)cublasLtDestroy(c->blas);
    (void)cudaFree(c->blas_workspace);
    if (c->stream) (void)cudaStreamDestroy(c->stream);
    free(c);
}

extern "C" {
int ares_cuda_open(ares_device *d, int index, char *message, size_t size);
void ares_cuda_close(ares_device *d);
void ares_cuda_trim_by(ares_device *d, void (*trim)(void));
void ares_cuda_stamp(ares_device *d, int i);
void ares_cuda_stamps(ares_device *d, int pairs, float *ms);
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
    if (!c->failed) /* a workspace of our own, so that no product takes memory */
        (void)(cuda_check_blas(c, cublasLtCreate(&c->blas), "cublasLtCreate") &&
               cuda_check(c, cudaMalloc(&c->blas_workspace, CUDA_BLAS_BYTES), "cudaMalloc"));
    if (!ring_open(c, &c->in) || !ring_open(c, &c->out)) {
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

/* For times of operations (times.c): event i is recorded behind what was launched so far. */
void ares_cuda_stamp(ares_device *d, int i)
{
    cuda_context *c = cuda_enter(d);
    if (i >= c->n_stamps && !c->failed) {
        int n = 2 * i + 64;
        c->stamps = (cudaEvent_t *)ares_realloc(c->stamps, (size_t)n * sizeof *c->stamps);
        for (; c->n_stamps < n && cuda_check(c, cudaEventCreate(c->stamps + c->n_stamps), "event");
             c->n_stamps++) {}
    }
    if (!c->failed) cuda_check(c, cudaEventRecord(c->stamps[i], c->stream), "event");
}

/* ms[p]: between the events 2 p and 2 p + 1, for which it waits; as it was after a failure. */
void ares_cuda_stamps(ares_device *d, int pairs, float *ms)
{
    cuda_context *c = cuda_enter(d);
    if (c->failed || !wait_event(c, c->stamps[2 * pairs - 1])) return;
    for (int p = 0; p < pairs && !c->failed; p++)
        cuda_check(c, cudaEventElapsedTime(ms + p, c->stamps[2 * p], c->stamps[2 * p + 1]),
                   "time between events");
}

void ares_cuda_close(ares_device *d)
{
    cuda_context *c = (cuda_context *)d->scratch;
    (void)cudaSetDevice(c->index);
    (void)cudaStreamSynchronize(c->stream);
    close_context(c);
    d->scratch = d->stream = NULL;
}

/*
 * The function tables of a CUDA device, by the type of activations. The program looks up
 * ares_cuda_kernels by its name (device.c).
 */

/* The same functions for both: each reads the type from its device (cuda_context). */
static ares_kernels filled(ares_dtype act, const char *name)
{
    ares_kernels k = {}; /* without store_kv: rope_store does it */
    k.name = name;
    k.layout = ARES_ROWS;
    k.act = act;
    k.alloc = alloc;
    k.release = release;
    k.copy_in = copy_in;
    k.alloc_host = alloc_host;
    k.release_host = release_host;
    k.bring = bring;
    k.brought = brought;
    k.store = store;
    k.copy_out = copy_out;
    k.copy = copy;
    k.copy_blocks = copy_blocks;
    k.zero = zero;
    k.sync = cuda_sync;
    k.advance = advance;
    k.fetch = fetch;
    k.fetched = fetched;
    k.graph_begin = graph_begin;
    k.graph_end = graph_end;
    k.graph_refusal = graph_refusal;
    k.graph_launch = graph_launch;
    k.graph_free = graph_free;
    cuda_fill_attention(&k);
    cuda_fill_decode(&k);
    cuda_fill_head(&k);
    cuda_fill_linear(&k);
    cuda_fill_norm(&k);
    cuda_fill_optim(&k);
    cuda_fill_pointwise(&k);
    cuda_fill_sample(&k);
    return k;
}

extern "C" {
const ares_kernels *ares_cuda_kernels(ares_dtype act);
}

const ares_kernels *ares_cuda_kernels(ares_dtype act)
{
    static const ares_kernels of_f32 = filled(ARES_F32, "cuda"),
                              of_bf16 = filled(ARES_BF16, "cuda bf16");
    return act == ARES_BF16 ? &of_bf16 : &of_f32;
}
