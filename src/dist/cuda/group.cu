/*
 * A rank's side of a group on a card: a stream beside the device's, events between the two, copies
 * and sums.
 */
#include "group.cuh"

#include <stdlib.h>

static void group_close(ares_dist_side *s)
{
    cuda_enter(s->device);
    group_context *g = group_of(s);
    if (!g) return;
    if (g->stream) (void)cuda_wait_stream((cuda_context *)s->device->scratch, g->stream);
    group_disconnect(s);
    for (int i = 0; i < EVENTS; i++) {
        if (g->launched[i]) (void)cudaEventDestroy(g->launched[i]);
        if (g->done[i]) (void)cudaEventDestroy(g->done[i]);
    }
    if (g->stream) (void)cudaStreamDestroy(g->stream);
    (void)cudaFreeHost(s->sent);
    (void)cudaFreeHost(s->arrived);
    free(g);
    s->context = NULL;
    s->sent = s->arrived = NULL;
}

static void pin(cuda_context *c, char **p, size_t bytes)
{
    if (!c->failed && bytes > 0)
        cuda_check(c, cudaMallocHost((void **)p, bytes), "pinned host memory of a group");
}

static int group_open(ares_dist_side *s)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = (group_context *)calloc(1, sizeof *g);
    ARES_ASSERT(g);
    s->context = g;
    if (!c->failed)
        cuda_check(c, cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking),
                   "stream of a group");
    for (int i = 0; i < EVENTS && !c->failed; i++)
        if (cuda_check(c, cudaEventCreateWithFlags(&g->launched[i], cudaEventDisableTiming),
                       "event"))
            cuda_check(c, cudaEventCreateWithFlags(&g->done[i], cudaEventDisableTiming), "event");
    pin(c, &s->sent, s->host_bytes);
    pin(c, &s->arrived, s->host_bytes);
    if (!c->failed) return ARES_OK;
    group_close(s);
    return cuda_sync(s->device);
}

static void group_begin(ares_dist_side *s)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    cudaEvent_t launched = g->launched[(g->tickets + 1) % EVENTS];
    g->calling = true;
    if (!c->failed) cuda_check(c, cudaEventRecord(launched, c->stream), "begin of a group");
    if (!c->failed) cuda_check(c, cudaStreamWaitEvent(g->stream, launched, 0), "begin of a group");
}

static void group_copy(ares_dist_side *s, void *to, const void *from, size_t bytes)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    if (!c->failed && bytes > 0)
        cuda_check(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, g->stream),
                   "copy of a group");
}

static void group_copy_rows(ares_dist_side *s, void *to, size_t to_apart, const void *from,
                            size_t from_apart, size_t bytes, int64_t rows)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    if (!c->failed && bytes > 0 && rows > 0)
        cuda_check(c,
                   cudaMemcpy2DAsync(to, to_apart, from, from_apart, bytes, (size_t)rows,
                                     cudaMemcpyDeviceToDevice, g->stream),
                   "copy of rows of a group");
}

static __global__ void merge_ranks(const float *own, const float *others, float *to, int64_t n,
                                   int size, int rank, bool add)
{
    CUDA_EACH(i, n)
    {
        double sum = (double)(rank == 0 ? own[i] : others[i]);
        for (int r = 1; r < size; r++) sum += (double)(r == rank ? own[i] : others[r * n + i]);
        to[i] = add ? to[i] + (float)sum : (float)sum;
    }
}
static void group_merge(ares_dist_side *s, const float *own, const float *others, float *to,
                        int64_t n, bool add)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    if (c->failed || n == 0) return;
    c->last = "merge_ranks";
    cuda_start("merge_ranks", merge_ranks, cuda_blocks(n), dim3(CUDA_THREADS), 0, g->stream, own,
               others, to, n, s->size, s->rank, add);
    cuda_check(c, cudaGetLastError(), "merge_ranks");
}

static ares_ticket group_end(ares_dist_side *s)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    ares_ticket t = ++g->tickets;
    g->calling = false;
    if (!c->failed) cuda_check(c, cudaEventRecord(g->done[t % EVENTS], g->stream), "ticket");
    return t;
}

static void group_join(ares_dist_side *s, ares_ticket t)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    ARES_ASSERT(t >= 0 && t <= g->tickets);
    if (t > 0 && !c->failed)
        cuda_check(c, cudaStreamWaitEvent(c->stream, g->done[t % EVENTS], 0), "join");
}

static int group_wait(ares_dist_side *s)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    if (!c->failed) cuda_wait_stream(c, g->stream);
    return c->failed ? cuda_sync(s->device) : ARES_OK;
}

static const ares_dist_twins table = {
    .open = group_open,
    .close = group_close,
    .begin = group_begin,
    .copy = group_copy,
    .copy_rows = group_copy_rows,
    .merge = group_merge,
    .end = group_end,
    .join = group_join,
    .wait = group_wait,
    .card = group_card,
    .find = group_find,
    .id = group_id,
    .connect = group_connect,
    .gather = group_gather,
    .exchange = group_exchange,
    .abort = group_abort,
};

extern "C" const ares_dist_twins *ares_cuda_dist_twins(void);
const ares_dist_twins *ares_cuda_dist_twins(void)
{
    return &table;
}
