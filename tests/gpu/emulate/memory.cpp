/*
 * Device memory: pieces of one range of addresses, each between two pages that nobody may touch,
 * never used twice, filled with 0xff (NaN) when new. The host may touch none of it; kernels and
 * copies open it while they run. Who touches what he must not is told where and by whom, and so is
 * who hands an address of host memory to a kernel.
 */
#include "emulate.h"

#include <errno.h>
#include <map>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t RANGE = (size_t)1 << 40,
                    FILLED = (size_t)64 << 20; /* of a large piece, its beginning */

typedef struct piece {
    size_t bytes;
    char *map;
    size_t whole;
} piece;
static std::map<char *, piece> pieces;
static std::map<char *, size_t> pinned;
static char *range, *range_at;
static size_t used;
static int opened;

/* Of the card: 16 GiB, or what ARES_EMULATE_MEMORY=CARD:BYTES says of this one. */
static size_t card_bytes(void)
{
    const char *said = getenv("ARES_EMULATE_MEMORY");
    int card;
    size_t bytes;
    return said && sscanf(said, "%d:%zu", &card, &bytes) == 2 && card == emulate_card()
               ? bytes
               : (size_t)16 << 30;
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The piece that p lies in, or NULL. */
static const std::pair<char *const, piece> *piece_of(const void *p)
{
    auto after = pieces.upper_bound((char *)p);
    if (after == pieces.begin()) return NULL;
    auto at = std::prev(after);
    return (char *)p < at->first + at->second.bytes ? &*at : NULL;
}
bool emulate_near_device(const void *p, size_t bytes)
{
    return range && (char *)p < range + RANGE && (char *)p + bytes > range;
}
bool emulate_on_device(const void *p, size_t bytes)
{
    const auto *at = piece_of(p);
    return at && (size_t)((char *)p - at->first) + bytes <= at->second.bytes;
}
bool emulate_pinned(const void *p, size_t bytes)
{
    auto after = pinned.upper_bound((char *)p);
    if (after == pinned.begin()) return false;
    auto at = std::prev(after);
    return (char *)p + bytes <= at->first + at->second;
}

void emulate_memory_open(void)
{
    if (opened++ == 0)
        for (const auto &p : pieces) mprotect(p.second.map, p.second.whole, PROT_READ | PROT_WRITE);
}
void emulate_memory_close(void)
{
    if (--opened == 0)
        for (const auto &p : pieces) mprotect(p.second.map, p.second.whole, PROT_NONE);
}

/* ---------------- who touched it */

static struct sigaction before;
static void on_fault(int number, siginfo_t *info, void *context)
{
    char *at = (char *)info->si_addr;
    if (emulate_near_device(at, 1) || *emulate_running()) {
        const auto *p = piece_of(at);
        auto after = pieces.upper_bound(at);
        fprintf(stderr, "emulate: %s touches ",
                *emulate_running() ? emulate_running() : "the host");
        if (p)
            fprintf(stderr, "byte %zu of %zu of device memory\n", (size_t)(at - p->first),
                    p->second.bytes);
        else if (emulate_near_device(at, 1) && after != pieces.begin())
            fprintf(stderr, "%zd bytes beyond %zu bytes of device memory (or freed memory)\n",
                    at - std::prev(after)->first - (ssize_t)std::prev(after)->second.bytes,
                    std::prev(after)->second.bytes);
        else fprintf(stderr, "address %p, which is no memory of the device\n", (void *)at);
    }
    sigaction(number, &before, NULL);
    (void)context;
}

/*
 * A kernel of a card cannot read the host's memory, the emulator's can: so its arguments must hold
 * no such address. A word that is no address of mapped memory is a number. A test whose libtorch
 * computes in host memory allows it.
 */
extern "C" {
void ares_emulate_allow_host(bool allowed);
}
static bool host_allowed;
void ares_emulate_allow_host(bool allowed)
{
    host_allowed = allowed;
}
void emulate_argument(const char *operation, int number, const void *argument, size_t bytes)
{
    for (size_t at = 0; !host_allowed && at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, (const char *)argument + at, sizeof word);
        if (word < 65536 || word >> 47 || emulate_near_device((void *)word, 1)) continue;
        void *page = (void *)(word / page_bytes() * page_bytes());
        if (msync(page, 1, MS_ASYNC) != 0 && errno == ENOMEM) continue; /* nothing lies there */
        emulate_end("%s: argument %d (of %zu bytes, at byte %zu) is %p, an address of the host",
                    operation, number, bytes, at, (void *)word);
    }
}

/* ---------------- allocation */

static void reserve(void)
{
    if (range) return;
    range =
        (char *)mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) emulate_end("no addresses for device memory");
    range_at = range + page_bytes();
    struct sigaction act = {};
    act.sa_sigaction = on_fault;
    act.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &act, &before);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    emulate_lock lock;
    reserve();
    *p = NULL;
    if (!emulate_allowed()) return emulate_error(cudaErrorStreamCaptureUnsupported);
    size_t page = page_bytes(), body = (bytes + 255) / 256 * 256,
           whole = (body + page - 1) / page * page;
    if (bytes == 0) return cudaSuccess;
    if (used + whole > card_bytes() || whole + page > (size_t)(range + RANGE - range_at))
        return emulate_error(cudaErrorMemoryAllocation);
    char *map = range_at, *at = map + whole - body;
    range_at += whole + page;
    used += whole;
    if (mprotect(map, whole, PROT_READ | PROT_WRITE))
        return emulate_error(cudaErrorMemoryAllocation);
    (void)madvise(map, whole, MADV_HUGEPAGE); /* fewer pages to open and close */
    memset(map, 0xff, whole < FILLED ? whole : FILLED);
    if (!opened) mprotect(map, whole, PROT_NONE);
    pieces[at] = { bytes, map, whole };
    *p = at;
    return cudaSuccess;
}

/* Waits for the whole device first, as CUDA does. */
cudaError_t cudaFree(void *p)
{
    emulate_lock lock;
    if (!p) return cudaSuccess;
    if (!emulate_allowed()) return emulate_error(cudaErrorStreamCaptureUnsupported);
    auto at = pieces.find((char *)p);
    if (at == pieces.end()) return emulate_error(cudaErrorInvalidValue);
    emulate_finish_all();
    used -= at->second.whole;
    mprotect(at->second.map, at->second.whole, PROT_NONE);
    madvise(at->second.map, at->second.whole, MADV_DONTNEED);
    pieces.erase(at);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    emulate_lock lock;
    *total = card_bytes();
    *left = *total - used;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    emulate_lock lock;
    *p = NULL;
    if (!emulate_allowed()) return emulate_error(cudaErrorStreamCaptureUnsupported);
    if (bytes == 0) return cudaSuccess;
    void *at = NULL;
    if (posix_memalign(&at, page_bytes(), bytes)) return emulate_error(cudaErrorMemoryAllocation);
    memset(at, 0xff, bytes);
    pinned[(char *)at] = bytes;
    *p = at;
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}
cudaError_t cudaFreeHost(void *p)
{
    emulate_lock lock;
    if (!p) return cudaSuccess;
    if (!emulate_allowed()) return emulate_error(cudaErrorStreamCaptureUnsupported);
    if (!pinned.erase((char *)p)) return emulate_error(cudaErrorInvalidValue);
    emulate_finish_all();
    free(p);
    return cudaSuccess;
}
