/*
 * The CUDA side of a group of ranks: what both parts share, NCCL, then the group's stream, copies
 * and sums. dist/group.c finds these functions by name.
 */
#include "device.cuh"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ares/dist.h"

/* A rank's side of a group on a card: what both ways between cards share. */

/*
 * Ticket t uses event t % EVENTS, and so does ticket t + EVENTS. Joining t after that waits for the
 * later ticket, which is safe because it follows t in the same stream.
 */
enum { EVENTS = 64 };

typedef struct group_context {
    cudaStream_t stream;
    cudaEvent_t launched[EVENTS]; /* what the device had when the call began */
    cudaEvent_t done[EVENTS];
    ares_ticket tickets, finished; /* made, and seen to be done */
    bool calling;                  /* between begin and end */
    /* of NCCL; NULL: the group is not connected */
    struct ncclComm *comm;
    cuda_beside beside;
} group_context;

static inline group_context *group_of(const ares_dist_side *s)
{
    return (group_context *)s->context;
}

/* nccl.cu */
void group_card(ares_device *d, uint8_t uuid[16]);
int group_find(int *version);
int group_id(uint8_t id[128]);
int group_connect(ares_dist_side *s, const uint8_t id[128]);
void group_disconnect(ares_dist_side *s);
int group_gather(ares_dist_side *s, const void *mine, void *all, size_t bytes);
int group_exchange(ares_dist_side *s, const void *to_each, size_t apart, void *from_each,
                   size_t bytes);
void group_abort(ares_dist_side *s);

/*
 * Ranks with a card each: NCCL moves bytes between them and adds nothing. libnccl.so.2 is opened
 * when the first group asks for it, and what is called of it is declared here, so that a build
 * needs no nccl.h. A communicator never blocks the host (blocking = 0): a call may be in progress
 * when it returns, and is asked about until it is queued.
 */

/* ------------------------------------------------------------------ the library */

/* As in nccl.h of 2.19; later versions take this configuration for what its version says. */
enum { SUCCESS = 0, IN_PROGRESS = 7, BYTE = 0, LEAST_VERSION = 21900, CLOSE_MS = 3000 };
static const unsigned MAGIC = 0xcafebeef;
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
} nccl_config;
typedef struct nccl_id {
    uint8_t bytes[128];
} nccl_id;
typedef struct ncclComm *nccl_comm;

#define NCCL_FUNCTIONS(X)                                                                    \
    X(int, ncclGetVersion, (int *version))                                                   \
    X(int, ncclGetUniqueId, (nccl_id * id))                                                  \
    X(int, ncclCommInitRankConfig, (nccl_comm *, int, nccl_id, int rank, nccl_config *))     \
    X(int, ncclCommFinalize, (nccl_comm))                                                    \
    X(int, ncclCommDestroy, (nccl_comm))                                                     \
    X(int, ncclCommAbort, (nccl_comm))                                                       \
    X(int, ncclCommGetAsyncError, (nccl_comm, int *state))                                   \
    X(const char *, ncclGetErrorString, (int result))                                        \
    X(const char *, ncclGetLastError, (nccl_comm))                                           \
    X(int, ncclAllGather, (const void *, void *, size_t, int type, nccl_comm, cudaStream_t)) \
    X(int, ncclSend, (const void *, size_t, int type, int peer, nccl_comm, cudaStream_t))    \
    X(int, ncclRecv, (void *, size_t, int type, int peer, nccl_comm, cudaStream_t))          \
    X(int, ncclGroupStart, (void))                                                           \
    X(int, ncclGroupEnd, (void))
#define POINTER(type, name, parameters) static type(*name) parameters;
NCCL_FUNCTIONS(POINTER)

/* Beside libtorch, where it was installed with its wheel: site-packages/nvidia/nccl/lib. */
static int beside_torch(struct dl_phdr_info *object, size_t, void *path)
{
    const char *torch = strstr(object->dlpi_name, "/torch/lib/libtorch");
    if (!torch) return 0;
    snprintf((char *)path, PATH_MAX, "%.*s/nvidia/nccl/lib/libnccl.so.2",
             (int)(torch - object->dlpi_name), object->dlpi_name);
    return 1;
}

/* Looks up all functions; false: one is missing, and why says which. */
static bool find_functions(void *library, char *why, size_t size)
{
#define FIND(type, name, parameters)                       \
    *(void **)&name = dlsym(library, #name);               \
    if (!name) {                                           \
        snprintf(why, size, "libnccl.so.2 has no " #name); \
        return false;                                      \
    }
    NCCL_FUNCTIONS(FIND)
    return true;
}

int group_find(int *version)
{
    static char why[512];
    /* asked once per process: the answer does not change */
    static int found; /* its version; -1: nothing to use */
    if (found == 0) {
        /* what ARES_NCCL_LIB names, the one beside libtorch, made for its CUDA, or the system's */
        const char *named = getenv("ARES_NCCL_LIB");
        char path[PATH_MAX];
        bool is_named = named && *named;
        void *library = NULL; /* never closed: it has threads */
        if (!is_named && dl_iterate_phdr(beside_torch, path))
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) library = dlopen(is_named ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
        if (!library)
            snprintf(why, sizeof why, "%s%s", is_named ? "ARES_NCCL_LIB: " : "", dlerror());
        found = -1;
        if (library && find_functions(library, why, sizeof why)) {
            int is = 0;
            (void)ncclGetVersion(&is);
            if (is >= LEAST_VERSION) found = is;
            else
                snprintf(why, sizeof why, "libnccl.so.2 is NCCL %d.%d.%d; 2.19 or later is needed",
                         is / 10000, is / 100 % 100, is % 100);
        }
    }
    *version = found;
    return found > 0 ? ARES_OK : ares_fail(ARES_EUNSUPPORTED, "%s", why);
}

/* ------------------------------------------------------------------ results */

/* With NCCL's own last message, which names the cause where the code alone is "unhandled". */
static int fail(group_context *g, int result, const char *call)
{
    const char *more = ncclGetLastError(g ? g->comm : NULL);
    return ares_fail(ARES_EDIST, "dist: NCCL: %s: %s%s%s", call, ncclGetErrorString(result),
                     more && *more ? ": " : "", more ? more : "");
}

/* Calls of a communicator that does not block end with IN_PROGRESS while they go on. */
static bool good(int result)
{
    return result == SUCCESS || result == IN_PROGRESS;
}

/* Whether the card has passed the event. */
static bool done(cudaEvent_t e)
{
    return cudaEventQuery(e) != cudaErrorNotReady; /* a failure is found by who waits */
}

/* As ares_dist_side.pause has it; 0: nothing of the group is under way. */
static ares_ticket card_at(group_context *g)
{
    while (g->finished < g->tickets && done(g->done[(g->finished + 1) % EVENTS])) g->finished++;
    ares_ticket at = g->finished + 1;
    if (at > g->tickets) return 0;
    /* the event of a ticket that is EVENTS older is a later one's, and would say nothing */
    return at + EVENTS <= g->tickets + g->calling || done(g->launched[at % EVENTS]) ? at : -at;
}

/*
 * Waits until a call of NCCL is queued. Where the other ranks do not come, s->pause ends the run
 * and this does not return.
 */
static int settle(ares_dist_side *s, int result, const char *call)
{
    group_context *g = group_of(s);
    while (result == IN_PROGRESS) {
        int asked = ncclCommGetAsyncError(g->comm, &result);
        if (asked != SUCCESS) result = asked;
        if (result == IN_PROGRESS) s->pause(s->owner, 0);
    }
    s->resume(s->owner);
    return result == SUCCESS ? ARES_OK : fail(g, result, call);
}

/* ------------------------------------------------------------------ waits for the card */

static ares_dist_side *side_of(cuda_beside *b)
{
    return (ares_dist_side *)b->side;
}
static bool under_way(cuda_beside *b)
{
    return card_at(group_of(side_of(b))) != 0;
}
static void pause(cuda_beside *b)
{
    ares_dist_side *s = side_of(b);
    group_context *g = group_of(s);
    ares_ticket at = card_at(g);
    int state = SUCCESS, asked = ncclCommGetAsyncError(g->comm, &state);
    bool wrong = asked != SUCCESS || !good(state);
    if (wrong) {
        (void)fail(g, asked != SUCCESS ? asked : state, "on the card");
        s->fail(s->owner);
    }
    if (at != 0) s->pause(s->owner, at);
}
static void waited(cuda_beside *b)
{
    side_of(b)->resume(side_of(b)->owner);
}

/* ------------------------------------------------------------------ a group */

void group_card(ares_device *d, uint8_t uuid[16])
{
    cuda_context *c = cuda_enter(d);
    static cudaDeviceProp properties; /* one device per process */
    if (cuda_check(c, cudaGetDeviceProperties(&properties, c->index), "properties of the card"))
        memcpy(uuid, properties.uuid.bytes, 16);
}

int group_id(uint8_t id[128])
{
    nccl_id made;
    int result = ncclGetUniqueId(&made);
    if (result != SUCCESS) return fail(NULL, result, "ncclGetUniqueId");
    memcpy(id, made.bytes, sizeof made.bytes);
    return ARES_OK;
}

int group_connect(ares_dist_side *s, const uint8_t id[128])
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    nccl_id with;
    nccl_config config = { sizeof config, MAGIC,   LEAST_VERSION, 0,      INT_MIN,
                           INT_MIN,       INT_MIN, NULL,          INT_MIN };
    memcpy(with.bytes, id, sizeof with.bytes);
    int result = ncclCommInitRankConfig(&g->comm, s->size, with, s->rank, &config);
    ARES_TRY(settle(s, result, "ncclCommInitRankConfig"));
    g->beside = { under_way, pause, waited, s, c->beside };
    c->beside = &g->beside;
    return ARES_OK;
}

void group_disconnect(ares_dist_side *s)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    if (!g->comm) return;
    for (cuda_beside **b = &c->beside; *b; b = &(*b)->next)
        if (*b == &g->beside) {
            *b = g->beside.next;
            break;
        }
    /*
     * Waits for the other ranks to close the group too, so that no rank takes memory away that
     * another still receives from; only for CLOSE_MS, because this rank may be closing alone after
     * a failure.
     */
    int result = ncclCommFinalize(g->comm);
    for (int ms = 0; result == IN_PROGRESS && ms < CLOSE_MS; ms++) {
        int asked = ncclCommGetAsyncError(g->comm, &result);
        if (asked != SUCCESS) result = asked;
        if (result == IN_PROGRESS) usleep(1000);
    }
    (void)(result == SUCCESS ? ncclCommDestroy(g->comm) : ncclCommAbort(g->comm));
    g->comm = NULL;
}

void group_abort(ares_dist_side *s)
{
    group_context *g = group_of(s);
    if (g && g->comm) (void)ncclCommAbort(g->comm);
}

/* ------------------------------------------------------------------ between ranks */

int group_gather(ares_dist_side *s, const void *mine, void *all, size_t bytes)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    if (c->failed) return cuda_sync(s->device);
    if (bytes == 0) return ARES_OK;
    return settle(s, ncclAllGather(mine, all, bytes, BYTE, g->comm, g->stream), "ncclAllGather");
}

int group_exchange(ares_dist_side *s, const void *to_each, size_t apart, void *from_each,
                   size_t bytes)
{
    cuda_context *c = cuda_enter(s->device);
    group_context *g = group_of(s);
    if (c->failed) return cuda_sync(s->device);
    if (bytes == 0) return ARES_OK;
    int result = ncclGroupStart();
    for (int r = 0; r < s->size && good(result); r++) {
        if (r == s->rank) continue;
        result =
            ncclSend((const char *)to_each + (size_t)r * apart, bytes, BYTE, r, g->comm, g->stream);
        if (good(result))
            result =
                ncclRecv((char *)from_each + (size_t)r * bytes, bytes, BYTE, r, g->comm, g->stream);
    }
    if (good(result)) result = ncclGroupEnd();
    return settle(s, result, "ncclSend and ncclRecv");
}

/*
 * A rank's side of a group on a card: a stream beside the device's, events between the two, copies
 * and sums.
 */

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

static const ares_dist_ops table = {
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

extern "C" const ares_dist_ops *ares_cuda_dist_ops(void);
const ares_dist_ops *ares_cuda_dist_ops(void)
{
    return &table;
}
