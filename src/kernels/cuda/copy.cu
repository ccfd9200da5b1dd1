/*
 * Copies between the host and the card. A caller's memory is pageable and may be reused on return,
 * so both ways lead through pinned memory of our own, in pieces. On the way in, small copies lie
 * side by side in a piece, and a piece is written again only when an event says that the card has
 * read it: a copy waits only for one that is a whole ring older. On the way out the host empties
 * one piece while the card fills the other. Memory that alloc_host gave is pinned: the card copies
 * from it and to it on a stream of its own. Blocks of the paged cache are copied by a kernel.
 */
#include "device.cuh"

#include <string.h>

static const size_t PIECE = (size_t)4 << 20; /* bytes */
enum { ALIGN = 64 };

bool cuda_ring_open(cuda_context *c, cuda_ring *r)
{
    cuda_check(c, cudaMallocHost(&r->memory, CUDA_PIECES * PIECE), "pinned host memory");
    for (int i = 0; i < CUDA_PIECES && !c->failed; i++)
        cuda_check(c, cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming), "event");
    return !c->failed;
}

void cuda_ring_close(cuda_ring *r)
{
    for (int i = 0; i < CUDA_PIECES; i++)
        if (r->done[i]) (void)cudaEventDestroy(r->done[i]);
    (void)cudaFreeHost(r->memory);
}

static char *piece_of(const cuda_ring *r, int64_t i)
{
    return r->memory + (size_t)(i % CUDA_PIECES) * PIECE;
}

/* Goes on with the next piece, which the card has read by now. */
static void next_piece(cuda_context *c, cuda_ring *r)
{
    cuda_check(c, cudaEventRecord(r->done[r->now], c->stream), "copy in");
    r->now = (r->now + 1) % CUDA_PIECES;
    r->used = 0;
    cuda_wait_event(c, r->done[r->now]); /* at once where it was never recorded */
}

bool cuda_in(cuda_context *c, void *device, const void *host, size_t bytes)
{
    cuda_ring *r = &c->in;
    for (size_t at = 0, n; at < bytes && !c->failed; at += n) {
        if (r->used == PIECE) next_piece(c, r);
        char *pinned = piece_of(r, r->now) + r->used;
        n = ARES_MIN(bytes - at, PIECE - r->used);
        memcpy(pinned, (const char *)host + at, n);
        cuda_check(
            c, cudaMemcpyAsync((char *)device + at, pinned, n, cudaMemcpyHostToDevice, c->stream),
            "copy in");
        r->used += (n + ALIGN - 1) / ALIGN * ALIGN;
    }
    return !c->failed;
}

/* Bytes of piece i of a copy of so many. */
static size_t piece_bytes(int64_t i, size_t bytes)
{
    return ARES_MIN(bytes - (size_t)i * PIECE, PIECE);
}

static void fill_piece(cuda_context *c, int64_t i, const void *device, size_t bytes)
{
    cudaEvent_t done = c->out.done[i % CUDA_PIECES];
    cuda_check(c,
               cudaMemcpyAsync(piece_of(&c->out, i), (const char *)device + (size_t)i * PIECE,
                               piece_bytes(i, bytes), cudaMemcpyDeviceToHost, c->stream),
               "copy out");
    if (!c->failed) cuda_check(c, cudaEventRecord(done, c->stream), "copy out");
}

bool cuda_out(cuda_context *c, void *host, const void *device, size_t bytes)
{
    int64_t pieces = (int64_t)((bytes + PIECE - 1) / PIECE);
    for (int64_t i = 0; i <= pieces && !c->failed; i++) {
        if (i < pieces) fill_piece(c, i, device, bytes);
        if (i == 0 || c->failed) continue;
        if (!cuda_wait_event(c, c->out.done[(i - 1) % CUDA_PIECES])) break;
        memcpy((char *)host + (size_t)(i - 1) * PIECE, piece_of(&c->out, i - 1),
               piece_bytes(i - 1, bytes));
    }
    return !c->failed;
}

/* ------------------------------------------------------------------ beside the kernels */

static bool open_copies(cuda_context *c)
{
    return cuda_check(c, cudaStreamCreateWithFlags(&c->copies, cudaStreamNonBlocking),
                      "cudaStreamCreate") &&
           cuda_check(c, cudaEventCreateWithFlags(&c->copies_begin, cudaEventDisableTiming),
                      "event") &&
           cuda_check(c, cudaEventCreateWithFlags(&c->copies_end, cudaEventDisableTiming), "event");
}

void cuda_copies_close(cuda_context *c)
{
    if (c->copies_begin) (void)cudaEventDestroy(c->copies_begin);
    if (c->copies_end) (void)cudaEventDestroy(c->copies_end);
    if (c->copies) (void)cudaStreamDestroy(c->copies);
}

void cuda_copies_join(cuda_context *c)
{
    if (!c->copies) return; /* there has never been one */
    if (!c->failed) cuda_check(c, cudaEventRecord(c->copies_end, c->copies), "copies");
    if (!c->failed) cuda_check(c, cudaStreamWaitEvent(c->stream, c->copies_end, 0), "copies");
    c->storing = false;
}

void *cuda_alloc_host(ares_device *d, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    void *p = NULL;
    if (!c->copies && !open_copies(c)) return NULL;
    if (cudaMallocHost(&p, bytes ? bytes : 1) != cudaSuccess) {
        (void)cudaGetLastError(); /* the caller says what did not fit */
        return NULL;
    }
    return memset(p, 0, bytes);
}

void cuda_release_host(ares_device *d, void *p, size_t bytes)
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

void cuda_bring(ares_device *d, void *device, const void *host, size_t bytes)
{
    copy_beside(cuda_enter(d), device, host, bytes, cudaMemcpyHostToDevice, "bring");
}

void cuda_store(ares_device *d, void *host, const void *device, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    copy_beside(c, host, device, bytes, cudaMemcpyDeviceToHost, "store");
    c->storing = true;
}

void cuda_brought(ares_device *d)
{
    cuda_copies_join(cuda_enter(d));
}

/* ------------------------------------------------------------------ blocks of the paged cache */

/* What travels with the launch, so that no copy goes before it: nearly the 4 KiB that it may hold
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

void cuda_copy_blocks(ares_device *d, const ares_copy_blocks_args *a)
{
    cuda_context *c = cuda_enter(d);
    int64_t vectors = (int64_t)(a->block_bytes / sizeof(uint4));
    ARES_ASSERT(a->block_bytes % sizeof(uint4) == 0);
    for (int32_t first = 0; first < a->n; first += PAIRS) {
        int32_t n = ARES_MIN(a->n - first, (int32_t)PAIRS);
        block_pairs p;
        memcpy(p.block, a->block + 2 * first, 2 * (size_t)n * sizeof *p.block);
        cuda_launch(c, "copy_blocks", copy_pairs, cuda_blocks(n * a->layers * vectors),
                    CUDA_THREADS, 0, a->cache, a->layers, a->layer_bytes, vectors, n, p);
    }
}
