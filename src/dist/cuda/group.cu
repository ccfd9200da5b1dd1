/*
 * A rank's side of a group on a card: a stream beside the device's, events between the two, copies
 * and sums.
 */
#include "device.cuh"

#include "ares/dist_twin.h"

#include <stdlib.h>

/*
 * Ticket t is event t % EVENTS. A later ticket takes it again; who then joins the earlier one waits
 * for the later, which is behind it in the same stream.
 */
enum { EVENTS = 64 };

typedef struct group_context {
    cudaStream_t stream;
    cudaEvent_t launched; /* what the device had when a call began */
    cudaEvent_t done[EVENTS];
    ares_ticket tickets;
} group_context;

static void group_close(ares_dist_side *s)
{
    cuda_enter(s->device);
    group_context *g = (group_context *)s->context;
    if (!g) return;
    if (g->stream) (void)cudaStreamSynchronize(g->stream);
    for (int i = 0; i < EVENTS; i++)
        if (g->done[i]) (void)cudaEventDestroy(g->done[i]);
    if (g->launched) (void)cudaEventDestroy(g->launched);
    if (g->stream) (void)cudaStreamDestroy(g->stream);
    (void)cudaFreeHost(s->sent);
    (void)cudaFreeHost(s->arrived);
    free(g);
    s->context = NULL;
    s->sent = s->arrived = NULL;
}

static void pin(cuda_context *c, char **p, size_t bytes)
{
    if (!c->failed)
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
    if (!c->failed)
        cuda_check(c, cudaEventCreateWithFlags(&g->launched, cudaEventDisableTiming), "event");
    for (int i = 0; i < EVENTS && !c->failed; i++)
        cuda_check(c, cudaEventCreateWithFlags(&g->done[i], cudaEventDisableTiming), "event");
    pin(c, &s->sent, s->bytes);
    pin(c, &s->arrived, s->bytes);
    if (!c->failed) return ARES_OK;
    group_close(s);
    return cuda_sync(s->device);
}

static void group_begin(ares_dist_side *s)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = (group_context *)s->context;
    if (!c->failed) cuda_check(c, cudaEventRecord(g->launched, c->stream), "begin of a group");
    if (!c->failed)
        cuda_check(c, cudaStreamWaitEvent(g->stream, g->launched, 0), "begin of a group");
}

static void group_copy(ares_dist_side *s, void *to, const void *from, size_t bytes)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = (group_context *)s->context;
    if (!c->failed && bytes > 0)
        cuda_check(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, g->stream),
                   "copy of a group");
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
                        int64_t n, int size, int rank, bool add)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = (group_context *)s->context;
    if (c->failed || n == 0) return;
    c->last = "merge_ranks";
    cuda_start("merge_ranks", merge_ranks, cuda_blocks(n), dim3(CUDA_THREADS), 0, g->stream, own,
               others, to, n, size, rank, add);
    cuda_check(c, cudaGetLastError(), "merge_ranks");
}

static ares_ticket group_end(ares_dist_side *s)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = (group_context *)s->context;
    ares_ticket t = ++g->tickets;
    if (!c->failed) cuda_check(c, cudaEventRecord(g->done[t % EVENTS], g->stream), "ticket");
    return t;
}

static void group_join(ares_dist_side *s, ares_ticket t)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = (group_context *)s->context;
    ARES_ASSERT(t >= 0 && t <= g->tickets);
    if (t > 0 && !c->failed)
        cuda_check(c, cudaStreamWaitEvent(c->stream, g->done[t % EVENTS], 0), "join");
}

static int group_wait(ares_dist_side *s)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = (group_context *)s->context;
    if (!c->failed) cuda_waited(c, cudaStreamSynchronize(g->stream));
    return c->failed ? cuda_sync(s->device) : ARES_OK;
}

static const ares_dist_twins table = {
    .open = group_open,
    .close = group_close,
    .begin = group_begin,
    .copy = group_copy,
    .merge = group_merge,
    .end = group_end,
    .join = group_join,
    .wait = group_wait,
};

extern "C" const ares_dist_twins *ares_cuda_dist_twins(void);
const ares_dist_twins *ares_cuda_dist_twins(void)
{
    return &table;
}
