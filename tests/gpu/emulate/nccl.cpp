/*
 * libnccl_fake.so: the functions of NCCL that the product calls, between processes of one machine
 * that use emulated cards. Operations are queued on emulated streams and run when somebody waits
 * for them: the host of a process, or another rank, for which a thread works that runs only what is
 * needed. Ranks meet in a file of shared memory that the id names; what one sends lies there until
 * all have read it.
 *
 * It does what shows a mistake: a communicator never blocks, and a call on one that is still in
 * progress fails; an operation is queued only once the program has asked often enough; memory that
 * receives holds NaN bytes from the moment an operation begins until it ends; operations that do
 * not match between ranks never end, as on cards.
 *
 *   ARES_FAKE_NCCL_VERSION   what ncclGetVersion gives (22703)
 *   ARES_FAKE_NCCL_FAIL      RANK:N: the communicator of that rank fails at its operation N, from 1
 */
#include "emulate.h"

#include <atomic>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

typedef enum ncclResult_t {
    ncclSuccess = 0,
    ncclSystemError = 2,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclInProgress = 7
} ncclResult_t;
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;
typedef struct ncclConfig_t { /* as far as it is looked at */
    size_t size;
    unsigned magic, version;
    int blocking;
} ncclConfig_t;

/* ------------------------------------------------------------------ what ranks share */

enum { RANKS = 16, SLOTS = 2 };
static const size_t SLOT_BYTES = (size_t)256 << 20; /* taken as it is used */

/* One operation of a rank: a gather, or what it sends to each other rank and expects of it. */
typedef struct deal {
    bool gather;
    size_t sends[RANKS], expects[RANKS], at[RANKS]; /* at: where it lies in the slot */
} deal;
/*
 * A rank may begin operation n + 1 only when it has ended n, for which all others had begun n and
 * thus ended n - 1: two slots are enough.
 */
typedef struct shared_rank {
    std::atomic<int> card; /* plus one; 0: has not come */
    std::atomic<int64_t> begun, wanted;
    std::atomic<bool> leaves;
    deal deals[SLOTS];
} shared_rank;
typedef struct shared {
    shared_rank rank[RANKS];
} shared;

static char *slot_of(shared *s, int rank, int64_t n)
{
    return (char *)s + sizeof *s + ((size_t)rank * SLOTS + (size_t)(n % SLOTS)) * SLOT_BYTES;
}
static size_t shared_bytes(int ranks)
{
    return sizeof(shared) + (size_t)ranks * SLOTS * SLOT_BYTES;
}

/* ------------------------------------------------------------------ a communicator */

typedef struct transfer { /* one call: a gather, a send or a receive */
    bool gather, send;
    const char *from;
    char *to;
    size_t bytes;
    int peer;
    cudaStream_t stream;
} transfer;
typedef struct ncclComm {
    int size, rank;
    char name[128];
    shared *memory;
    int64_t queued, ended;
    cudaStream_t stream;
    std::vector<transfer> calls; /* of the group that is open, or of the operation in progress */
    int state;                   /* an ncclResult_t */
    enum { NOTHING, JOINING, QUEUEING, LEAVING } doing;
    int64_t fails_at;
    bool aborted;
    char error[128];
} ncclComm;

static std::vector<ncclComm *> &comms = *new std::vector<ncclComm *>; /* the worker outlives exit */
static std::vector<ncclComm *> &grouped = *new std::vector<ncclComm *>;
static int depth;
static char last_error[128];

static ncclResult_t fail(ncclComm *c, ncclResult_t result, const char *why)
{
    snprintf(c ? c->error : last_error, sizeof last_error, "%s", why);
    if (c) c->state = result;
    return result;
}

/* ------------------------------------------------------------------ operations */

static bool is_memory(const void *p, size_t bytes)
{
    return emulate_on_device(p, bytes);
}

/* The slots that operation n of this rank receives, before anything has come. */
static void spoil(const ncclComm *c, const std::vector<transfer> &calls)
{
    for (const transfer &t : calls)
        for (int r = 0; r < c->size; r++)
            if (t.gather && r != c->rank) memset(t.to + (size_t)r * t.bytes, 0xff, t.bytes);
            else if (!t.gather && !t.send && t.peer == r) memset(t.to, 0xff, t.bytes);
}

static void begin(ncclComm *c, int64_t n, const std::vector<transfer> &calls)
{
    shared_rank *mine = &c->memory->rank[c->rank];
    deal *d = &mine->deals[n % SLOTS];
    size_t used = 0;
    memset(d, 0, sizeof *d);
    for (const transfer &t : calls) {
        if (used + t.bytes > SLOT_BYTES) emulate_end("nccl_fake: %zu bytes in one call", t.bytes);
        d->gather = d->gather || t.gather;
        if (t.gather || t.send) {
            memcpy(slot_of(c->memory, c->rank, n) + used, t.from, t.bytes);
            for (int r = 0; r < c->size; r++)
                if (t.gather || t.peer == r) d->sends[r] = t.bytes, d->at[r] = used;
            used += t.bytes;
        }
        for (int r = 0; r < c->size; r++)
            if (t.gather || (!t.send && t.peer == r)) d->expects[r] = t.bytes;
    }
    spoil(c, calls);
    mine->begun = n;
}

/* Whether all have come with a matching operation; one that does not match never ends. */
static bool all_are_here(ncclComm *c, int64_t n)
{
    shared_rank *ranks = c->memory->rank;
    const deal *mine = &ranks[c->rank].deals[n % SLOTS];
    for (int r = 0; r < c->size; r++) {
        int64_t wanted = ranks[r].wanted;
        while (wanted < n && !ranks[r].wanted.compare_exchange_weak(wanted, n)) {
            /* wanted is what another rank has written */
        }
    }
    for (int r = 0; r < c->size; r++) {
        const deal *other = &ranks[r].deals[n % SLOTS];
        if (ranks[r].begun < n) return false;
        if (r != c->rank &&
            (other->gather != mine->gather || other->sends[c->rank] != mine->expects[r] ||
             other->expects[c->rank] != mine->sends[r]))
            return false;
    }
    return true;
}

static void receive(ncclComm *c, int64_t n, const std::vector<transfer> &calls)
{
    for (const transfer &t : calls)
        for (int r = 0; r < c->size; r++) {
            const char *slot = slot_of(c->memory, r, n);
            const deal *d = &c->memory->rank[r].deals[n % SLOTS];
            if (t.gather) memmove(t.to + (size_t)r * t.bytes, slot + d->at[c->rank], t.bytes);
            else if (!t.send && t.peer == r) memcpy(t.to, slot + d->at[c->rank], t.bytes);
        }
}

static bool attempt(ncclComm *c, int64_t n, const std::vector<transfer> &calls)
{
    if (c->aborted) return true;
    if (c->ended + 1 < n || c->state == ncclSystemError) return false;
    if (c->fails_at == n) {
        fail(c, ncclSystemError, "the fake was told to fail");
        return false;
    }
    bool fresh = c->memory->rank[c->rank].begun < n;
    if (fresh) emulate_memory_open();
    if (fresh) begin(c, n, calls);
    if (fresh) emulate_memory_close();
    if (!all_are_here(c, n)) return false;
    emulate_memory_open();
    receive(c, n, calls);
    emulate_memory_close();
    c->ended = n;
    return true;
}

/* Runs what other ranks need of this process while its host is busy elsewhere. */
static void work_for_others(void)
{
    for (;;) {
        {
            emulate_lock lock;
            for (ncclComm *c : comms) {
                shared_rank *mine = &c->memory->rank[c->rank];
                int64_t wanted = mine->wanted < c->queued ? mine->wanted.load() : c->queued;
                if (c->aborted || mine->begun >= wanted) continue;
                while (mine->begun < wanted && emulate_advance(c->stream)) {
                    /* until it has begun what they need, or must wait itself */
                }
            }
        }
        usleep(300);
    }
}

/* ------------------------------------------------------------------ progress of calls */

static void queue_calls(ncclComm *c)
{
    int64_t n = ++c->queued;
    std::vector<transfer> calls = std::move(c->calls);
    c->calls.clear();
    c->stream = calls[0].stream;
    emulate_push_attempt(c->stream, [c, n, calls]() { return attempt(c, n, calls); });
}

static bool all_of(ncclComm *c, bool (*has)(const shared_rank *r))
{
    for (int r = 0; r < c->size; r++)
        if (!has(&c->memory->rank[r])) return false;
    return true;
}

static void join(ncclComm *c)
{
    if (!all_of(c, [](const shared_rank *r) { return r->card > 0; })) return;
    shm_unlink(c->name); /* it lives on as long as it is mapped */
    c->state = ncclSuccess;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && c->memory->rank[r].card == c->memory->rank[c->rank].card)
            fail(c, ncclInvalidUsage, "Duplicate GPU detected");
}

/* One question brings a call further, or does not. */
static void progress(ncclComm *c)
{
    if (c->state != ncclInProgress || emulate_draw(2)) return;
    if (c->doing == ncclComm::JOINING) join(c);
    else if (c->doing == ncclComm::QUEUEING) {
        queue_calls(c);
        c->state = ncclSuccess;
    } else if (all_of(c, [](const shared_rank *r) { return r->leaves.load(); }))
        c->state = ncclSuccess;
}

static ncclResult_t start(ncclComm *c, decltype(ncclComm::doing) what)
{
    c->doing = what;
    c->state = ncclInProgress;
    return ncclInProgress;
}

static ncclResult_t close_group(void)
{
    std::vector<ncclComm *> now = std::move(grouped);
    grouped.clear();
    for (ncclComm *c : now) start(c, ncclComm::QUEUEING);
    return now.empty() ? ncclSuccess : ncclInProgress;
}

static ncclResult_t call(ncclComm *c, transfer t)
{
    emulate_lock lock;
    if (c->state == ncclInProgress)
        return fail(c, ncclInvalidArgument, "a call on a communicator that is in progress");
    if (c->state != ncclSuccess) return (ncclResult_t)c->state;
    const char *device = t.gather || t.send ? t.from : t.to;
    if (!is_memory(device, t.bytes) || (t.gather && !is_memory(t.to, t.bytes * (size_t)c->size)) ||
        (!t.gather && (t.peer < 0 || t.peer >= c->size)))
        return fail(c, ncclInvalidArgument, "no memory of the device, or no such rank");
    if (c->calls.empty()) grouped.push_back(c);
    c->calls.push_back(t);
    return depth == 0 ? close_group() : ncclSuccess;
}

/* ------------------------------------------------------------------ the functions */

extern "C" {
ncclResult_t ncclGetVersion(int *version)
{
    const char *v = getenv("ARES_FAKE_NCCL_VERSION");
    *version = v ? atoi(v) : 22703;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclInProgress: return "NCCL operation in progress";
    }
    return "unknown result code";
}
const char *ncclGetLastError(ncclComm *c)
{
    return c ? c->error : last_error;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int made;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/ares_nccl_%d_%d", getpid(), made++);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm **out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    emulate_lock lock;
    static bool works;
    *out = NULL;
    if (config->magic != 0xcafebeef || config->version < 21900 || config->blocking != 0)
        return fail(NULL, ncclInvalidArgument, "the fake wants a configuration that never blocks");
    if (size < 1 || size > RANKS || rank < 0 || rank >= size || emulate_card() < 0)
        return fail(NULL, ncclInvalidArgument, "ranks or card");
    ncclComm *c = *out = new ncclComm();
    c->size = size;
    c->rank = rank;
    memcpy(c->name, id.internal, sizeof c->name);
    int file = shm_open(c->name, O_RDWR | O_CREAT, 0600);
    void *map = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)shared_bytes(size)) == 0)
        map = mmap(NULL, shared_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                   file, 0);
    if (file >= 0) close(file);
    if (map == MAP_FAILED) return fail(c, ncclSystemError, strerror(errno));
    c->memory = (shared *)map;
    int of = -1;
    long long at = 0;
    const char *fails = getenv("ARES_FAKE_NCCL_FAIL");
    if (fails && sscanf(fails, "%d:%lld", &of, &at) == 2 && of == rank) c->fails_at = at;
    c->memory->rank[rank].card = emulate_card() + 1;
    comms.push_back(c);
    if (!works) std::thread(work_for_others).detach();
    works = true;
    return start(c, ncclComm::JOINING);
}

ncclResult_t ncclCommGetAsyncError(ncclComm *c, ncclResult_t *state)
{
    {
        emulate_lock lock;
        progress(c);
        *state = (ncclResult_t)c->state;
    }
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm *c)
{
    emulate_lock lock;
    if (c->state != ncclSuccess) return (ncclResult_t)c->state;
    if (c->ended < c->queued) return fail(c, ncclInvalidUsage, "operations are under way");
    c->memory->rank[c->rank].leaves = true;
    return start(c, ncclComm::LEAVING);
}

static void forget(ncclComm *c)
{
    for (size_t i = 0; i < comms.size(); i++)
        if (comms[i] == c) comms.erase(comms.begin() + (long)i);
}
ncclResult_t ncclCommDestroy(ncclComm *c)
{
    emulate_lock lock;
    if (c->state == ncclInProgress || !c->memory->rank[c->rank].leaves)
        return fail(c, ncclInvalidUsage, "destroyed before it was finalized");
    forget(c);
    munmap(c->memory, shared_bytes(c->size));
    delete c;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm *c)
{
    emulate_lock lock;
    c->aborted = true; /* what is queued ends without a result, and reads c */
    forget(c);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    emulate_lock lock;
    depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void)
{
    emulate_lock lock;
    return --depth == 0 ? close_group() : ncclSuccess;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, int, ncclComm *c,
                           cudaStream_t stream)
{
    return call(c, { true, false, (const char *)from, (char *)to, n, -1, stream });
}
ncclResult_t ncclSend(const void *from, size_t n, int, int peer, ncclComm *c, cudaStream_t stream)
{
    return call(c, { false, true, (const char *)from, NULL, n, peer, stream });
}
ncclResult_t ncclRecv(void *to, size_t n, int, int peer, ncclComm *c, cudaStream_t stream)
{
    return call(c, { false, false, NULL, (char *)to, n, peer, stream });
}
}
