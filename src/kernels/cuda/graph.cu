/*
 * Decoding without waits: what one step takes from the step before, copies that are read later, and
 * launches that are kept as a graph. A graph holds addresses, so it is good only while no memory of
 * the device has been released.
 */
#include "device.cuh"

#include <stdlib.h>
#include <string.h>

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
        if (i == 0 && a.from[r] >= 0) a.ids[r] = a.token[a.from[r]];
        a.cos_sin[at] = a.angles[(int64_t)position_of(a, r, i) * a.head_dim + i];
    }
    CUDA_EACH(i, *a.changes) a.table[a.change[2 * i]] = a.change[2 * i + 1];
}
void cuda_advance(ares_device *d, const ares_advance_args *a)
{
    cuda_launch(cuda_enter(d), "advance", take_tokens, cuda_blocks((int64_t)a->rows * a->head_dim),
                CUDA_THREADS, 0, *a);
}

/* ------------------------------------------------------------------ copies that are read later */

void cuda_fetch(ares_device *d, int slot, const void *device, size_t bytes)
{
    cuda_context *c = cuda_enter(d);
    cuda_fetched_bytes *f = &c->fetched[slot];
    if (c->failed) return;
    if (f->bytes < bytes) {
        /* a copy that nobody waited for may still be under way */
        if (f->done && !cuda_wait_event(c, f->done)) return;
        (void)cudaFreeHost(f->pinned);
        f->pinned = NULL;
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

int cuda_fetched(ares_device *d, int slot, const void **host)
{
    cuda_context *c = cuda_enter(d);
    cuda_fetched_bytes *f = &c->fetched[slot];
    *host = f->pinned;
    if (!c->failed && f->done) cuda_wait_event(c, f->done);
    return c->failed ? cuda_sync(d) : ARES_OK;
}

void cuda_fetches_close(cuda_context *c)
{
    for (int i = 0; i < CUDA_FETCHES; i++) {
        if (c->fetched[i].done) (void)cudaEventDestroy(c->fetched[i].done);
        (void)cudaFreeHost(c->fetched[i].pinned);
    }
}

/* ------------------------------------------------------------------ graphs */

typedef struct kept {
    cudaGraphExec_t exec;
    int64_t releases; /* of the device, when it was made */
} kept;

/* What fails in a capture is only the graph; the launches are then done without it. */
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

bool cuda_graph_begin(ares_device *d)
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

void *cuda_graph_end(ares_device *d)
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

const char *cuda_graph_refusal(const ares_device *d)
{
    return ((const cuda_context *)d->scratch)->refusal;
}

bool cuda_graph_launch(ares_device *d, void *graph)
{
    cuda_context *c = cuda_enter(d);
    kept *k = (kept *)graph;
    if (k->releases != c->releases) return false;
    c->last = "graph";
    if (!c->failed) cuda_check(c, cudaGraphLaunch(k->exec, c->stream), "graph");
    return true;
}

void cuda_graph_free(ares_device *d, void *graph)
{
    kept *k = (kept *)graph;
    (void)cuda_enter(d);
    (void)cudaGraphExecDestroy(k->exec);
    free(k);
}
