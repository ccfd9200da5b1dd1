/*
 * Kernels: the threads of a block as fibers of one host thread. A thread runs until it ends or must
 * wait for others; a thread that never waits costs no switch, because its fiber goes on with the
 * next one. In which order the threads and blocks run is drawn: a missing barrier then gives other
 * bits with some seed.
 */
#include "emulate.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

enum { THREADS = 1024, WARPS = THREADS / 32, STACK = 64 * 1024, NONE = THREADS };

/*
 * A fiber starts by its context; later switches use the compiler's own setjmp, which saves three
 * registers and leaves the others to the function around it.
 */
typedef void *place[5];
typedef struct fiber {
    ucontext_t context;
    place at;
    bool begun;
    unsigned thread;
} fiber;
typedef struct warp {
    unsigned fresh, ready, waits; /* a bit per lane: not begun, can go on, waits for lanes */
} warp;

static fiber *fibers[THREADS], *idle[THREADS], *of_thread[THREADS], *self;
static unsigned made, idles;
static place home;

static const char *the_operation;
static const std::function<void()> *the_thread;
static warp warps[WARPS];
static uint3 index_of[THREADS];
static unsigned lanes_of[THREADS]; /* the mask a lane waits with */
static emulate_kind kind_of[THREADS];
static unsigned threads, alive, arrived, at_warp;
static int brought, total, total_threads; /* of a barrier of the block: so far, and its result */
static bool upwards;
static uint64_t words[2][THREADS];
static uint8_t turn[THREADS];

static char *dynamic, *dynamic_map;
static size_t dynamic_bytes, dynamic_whole;
extern char __start_emulate_shared[] OWN, __stop_emulate_shared[] OWN;

const char *emulate_running(void)
{
    static char text[256];
    if (!the_operation) return "";
    snprintf(text, sizeof text, "%s: block %u,%u,%u: thread %u,%u,%u", the_operation, blockIdx.x,
             blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    return text;
}
void emulate_end(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("emulate: ", stderr);
    vfprintf(stderr, format, list);
    fprintf(stderr, " (ARES_EMULATE_SEED=%llu)\n", (unsigned long long)emulate_seed());
    va_end(list);
    abort();
}

/* ------------------------------------------------------------------ which thread runs next */

static unsigned bit_of(unsigned bits)
{
    return upwards ? (unsigned)__builtin_ctz(bits) : 31 - (unsigned)__builtin_clz(bits);
}

/* Of this warp while one of its lanes can run, then of the next; NONE when no thread is left. */
static unsigned next_thread(void)
{
    unsigned n = (threads + 31) / 32, w = at_warp;
    for (unsigned i = 0; i < n; i++) {
        unsigned bits = warps[w].fresh | warps[w].ready;
        if (bits) {
            at_warp = w;
            unsigned lane = bit_of(bits);
            warps[w].fresh &= ~(1u << lane);
            warps[w].ready &= ~(1u << lane);
            return w * 32 + lane;
        }
        w = upwards ? (w + 1 == n ? 0 : w + 1) : (w ? w : n) - 1;
    }
    if (alive == 0) return NONE;
    unsigned lanes = 0;
    for (unsigned w = 0; w < n; w++) lanes += (unsigned)__builtin_popcount(warps[w].waits);
    emulate_end("%s: block %u,%u,%u: %u threads wait at a barrier of the block and %u at one of "
                "their warp; the others never reach it (%u have ended)",
                the_operation, blockIdx.x, blockIdx.y, blockIdx.z, arrived, lanes, threads - alive);
}

static void release_block(void)
{
    total = brought;
    total_threads = (int)arrived;
    brought = 0;
    arrived = 0;
    for (unsigned i = 0; i < threads; i++)
        if (of_thread[i]) warps[i / 32].ready |= 1u << i % 32;
}

static void run_threads(void);
static fiber *new_fiber(void)
{
    static char *stacks;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), each = STACK + page;
    if (!stacks) {
        stacks = (char *)mmap(NULL, each * THREADS, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) emulate_end("no memory for stacks");
    }
    char *stack = stacks + each * made;
    mprotect(stack, page, PROT_NONE);
    fiber *f = fibers[made++] = (fiber *)calloc(1, sizeof *f);
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack + page;
    /* from another cache line each: at the same place of a page all would share a few lines */
    f->context.uc_stack.ss_size = STACK - made % 12 * 320;
    makecontext(&f->context, run_threads, 0);
    return f;
}

/* No part of the functions around it: __builtin_longjmp may not be in one with __builtin_setjmp. */
static __attribute__((noinline)) void go(fiber *f)
{
    self = f;
    threadIdx = index_of[f->thread];
    if (f->begun) __builtin_longjmp(f->at, 1);
    f->begun = true;
    setcontext(&f->context);
}
static __attribute__((noinline)) void go_home(void)
{
    __builtin_longjmp(home, 1);
}
/* Leaves this fiber, whose place is saved, for the thread. */
static void switch_to(unsigned thread)
{
    fiber *f = of_thread[thread];
    if (!f) {
        f = of_thread[thread] = idles ? idle[--idles] : new_fiber();
        f->thread = thread;
    }
    go(f);
}

static void thread_ends(void)
{
    of_thread[self->thread] = NULL;
    alive--;
    if (alive && arrived == alive) release_block();
}
/* What every fiber does: threads, one after the other. */
static void run_threads(void)
{
    for (;;) {
        (*the_thread)();
        thread_ends();
        unsigned t = next_thread();
        if (t != NONE && !of_thread[t]) {
            of_thread[t] = self;
            self->thread = t;
            threadIdx = index_of[t];
            continue;
        }
        idle[idles++] = self;
        if (__builtin_setjmp(self->at)) continue; /* with a new thread */
        if (t == NONE) go_home();
        else switch_to(t);
    }
}

/* ------------------------------------------------------------------ waiting */

unsigned emulate_lane(void)
{
    return self->thread % 32;
}
void *emulate_shared(void)
{
    return dynamic;
}

static __attribute__((noinline)) void leave(void)
{
    fiber *own = self;
    unsigned t = next_thread();
    if (__builtin_setjmp(own->at) == 0) switch_to(t);
}

int emulate_block(int own, int *out_threads)
{
    brought += own;
    if (++arrived == alive) {
        release_block();
        warps[self->thread / 32].ready &= ~(1u << self->thread % 32);
    } else leave();
    if (out_threads) *out_threads = total_threads;
    return total;
}

void emulate_warp(unsigned mask, emulate_kind kind)
{
    unsigned own = self->thread, first = own / 32 * 32, lane = own % 32;
    unsigned there = threads - first < 32 ? (1u << (threads - first)) - 1 : 0xffffffffu;
    warp *w = &warps[own / 32];
    if (!(mask >> lane & 1)) emulate_end("%s: its lane is not in the mask", emulate_running());
    mask &= there;
    lanes_of[own] = mask;
    kind_of[own] = kind;
    w->waits |= 1u << lane;
    if ((w->waits & mask) != mask) {
        leave();
        return;
    }
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1 && (lanes_of[first + i] != mask || kind_of[first + i] != kind))
            emulate_end("%s: lanes of its warp are at different operations or have other masks",
                        emulate_running());
    w->waits &= ~mask;
    w->ready |= mask & ~(1u << lane);
}

const uint64_t *emulate_words(unsigned mask, emulate_kind kind, uint64_t own)
{
    unsigned thread = self->thread, first = thread / 32 * 32;
    /*
     * With every lane, two places that take turns: who writes one again has passed the wait after
     * which all have read it. Lanes of a part of a warp may have taken other turns.
     */
    if (mask == 0xffffffffu) {
        uint64_t *place = words[turn[thread] ^= 1];
        place[thread] = own;
        emulate_warp(mask, kind);
        return place + first;
    }
    static uint64_t part[2][THREADS];
    static uint64_t copy[THREADS][32];
    part[0][thread] = own;
    emulate_warp(mask, kind);
    memcpy(copy[thread], part[0] + first, sizeof copy[thread]);
    emulate_warp(mask, kind);
    return copy[thread];
}

const uint32_t (*emulate_show(const uint32_t own[EMULATE_SHOWN]))[EMULATE_SHOWN]
{
    static uint32_t shown[2][THREADS][EMULATE_SHOWN];
    static uint8_t now[THREADS]; /* as the turns of emulate_words */
    unsigned thread = self->thread;
    uint32_t(*place)[EMULATE_SHOWN] = shown[now[thread] ^= 1];
    memcpy(place[thread], own, sizeof place[thread]);
    emulate_warp(0xffffffffu, EMULATE_MMA);
    return place + thread / 32 * 32;
}

/* ------------------------------------------------------------------ copies beside a thread */

typedef struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned group;
} copy;
static std::vector<copy> copies[THREADS];
static unsigned groups[THREADS]; /* that the thread has ended */

void emulate_shared_16(const void *p, const char *what)
{
    const char *at = (const char *)p;
    if ((uintptr_t)p % 16 || !dynamic || at < dynamic || at + 16 > dynamic + dynamic_bytes)
        emulate_end("%s: %s at %p: not 16 aligned bytes of dynamic shared memory",
                    emulate_running(), what, p);
}
void emulate_copy_begin(void *to, const void *from, bool there)
{
    emulate_shared_16(to, "a copy");
    if ((uintptr_t)from % 16 || (there && !emulate_on_device(from, 16)))
        emulate_end("%s: a copy from %p: not 16 aligned bytes of device memory", emulate_running(),
                    from);
    memset(to, 0xff, 16);
    if (there) *emulate_counter("brought bytes", emulate_running()) += 16;
    copies[self->thread].push_back({ to, there ? from : NULL, groups[self->thread] });
}
void emulate_copy_group(void)
{
    groups[self->thread]++;
}
void emulate_copy_wait(unsigned left)
{
    std::vector<copy> &own = copies[self->thread];
    size_t done = 0;
    for (; done < own.size() && own[done].group + left < groups[self->thread]; done++)
        if (own[done].from) memcpy(own[done].to, own[done].from, 16);
        else memset(own[done].to, 0, 16);
    own.erase(own.begin(), own.begin() + (ptrdiff_t)done);
}

/* ------------------------------------------------------------------ blocks */

/* Dynamic shared memory ends at a page that nobody may touch. */
static void new_dynamic(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    dynamic = NULL;
    dynamic_bytes = bytes;
    if (!bytes) return;
    if (whole > dynamic_whole) {
        if (dynamic_map) munmap(dynamic_map, dynamic_whole + page);
        dynamic_map = (char *)mmap(NULL, whole + page, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (dynamic_map == MAP_FAILED) emulate_end("no memory");
        mprotect(dynamic_map + whole, page, PROT_NONE);
        dynamic_whole = whole;
    }
    dynamic = dynamic_map + dynamic_whole - (bytes + 15) / 16 * 16;
}

static void run_block(void)
{
    memset(__start_emulate_shared, 0xff, (size_t)(__stop_emulate_shared - __start_emulate_shared));
    if (dynamic) memset(dynamic, 0xff, dynamic_bytes);
    alive = threads;
    arrived = 0;
    brought = 0;
    for (unsigned w = 0; w * 32 < threads; w++) {
        unsigned left = threads - w * 32;
        warps[w] = { left < 32 ? (1u << left) - 1 : 0xffffffffu, 0, 0 };
    }
    at_warp = upwards ? 0 : (threads - 1) / 32;
    if (__builtin_setjmp(home) == 0) switch_to(next_thread());
    for (unsigned i = 0; i < threads; i++)
        if (!copies[i].empty())
            emulate_end("%s: block %u,%u,%u ends while copies of thread %u are under way",
                        the_operation, blockIdx.x, blockIdx.y, blockIdx.z, i);
}

void emulate_grid(const char *operation, dim3 grid, dim3 block, size_t shared,
                  const std::function<void()> &thread)
{
    if (the_operation) emulate_end("%s: a kernel starts inside another", operation);
    the_operation = operation;
    the_thread = &thread;
    gridDim = grid;
    blockDim = block;
    threads = block.x * block.y * block.z;
    upwards = emulate_draw(2);
    for (unsigned i = 0; i < threads; i++)
        index_of[i] = { i % block.x, i / block.x % block.y, i / block.x / block.y };
    memset(turn, 0, sizeof turn);
    new_dynamic(shared);
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    bool forwards = emulate_draw(2);
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t b = forwards ? i : blocks - 1 - i;
        blockIdx = { (unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                     (unsigned)(b / grid.x / grid.y) };
        run_block();
    }
    the_operation = NULL;
}
