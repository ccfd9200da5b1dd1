/* The threads of a block as fibers of one thread; each runs until it waits or ends. */
#include "../../../src/algo/cuda/loss.cu"
#include "../../../src/algo/cuda/rows.cu"
#include "../../../src/algo/cuda/twin.cu"

#include <setjmp.h>
#include <ucontext.h>

dim3 threadIdx, blockIdx, blockDim, gridDim;

enum { THREADS = 1024, STACK = 256 * 1024 };
typedef enum { RUNS, IN_WARP, IN_BLOCK, ENDED } state;

/* A fiber starts by its ucontext; later switches use _setjmp, which makes no system call. */
static ucontext_t fiber[THREADS];
static jmp_buf scheduler, stopped[THREADS];
static bool started[THREADS];
static state state_of[THREADS];
static char *stacks;
static uint64_t lane_word[THREADS];
static unsigned current, threads;
static void (*the_body)(void *);
static void *the_ctx;

static void enter(void)
{
    the_body(the_ctx);
    state_of[current] = ENDED;
    _longjmp(scheduler, 1);
}

void emulate_wait(int level)
{
    unsigned own = current;
    state_of[own] = level == EMULATE_WARP ? IN_WARP : IN_BLOCK;
    if (_setjmp(stopped[own]) == 0) _longjmp(scheduler, 1);
}
static void run(unsigned i)
{
    current = i;
    threadIdx = dim3(i);
    if (_setjmp(scheduler)) return;
    if (started[i]) _longjmp(stopped[i], 1);
    started[i] = true;
    setcontext(&fiber[i]);
}
uint64_t *emulate_lane(int lane)
{
    return &lane_word[current / 32 * 32 + (unsigned)lane];
}

/* Lets threads [from, to) continue once all of them that have not ended wait in `where`. */
static bool release(unsigned from, unsigned to, state where)
{
    bool any = false;
    for (unsigned i = from; i < to; i++) {
        if (state_of[i] != where && state_of[i] != ENDED) return false;
        any = any || state_of[i] == where;
    }
    for (unsigned i = from; any && i < to; i++)
        if (state_of[i] == where) state_of[i] = RUNS;
    return any;
}

static void run_block(const char *operation)
{
    for (unsigned i = 0; i < threads; i++) {
        getcontext(&fiber[i]);
        fiber[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
        fiber[i].uc_stack.ss_size = STACK;
        fiber[i].uc_link = NULL;
        makecontext(&fiber[i], enter, 0);
        state_of[i] = RUNS;
        started[i] = false;
    }
    for (;;) {
        bool moved = false, alive = false;
        /* each warp until it ends or waits for the block */
        for (unsigned warp = 0; warp < threads; warp += 32) {
            do
                for (unsigned i = warp; i < warp + 32; i++)
                    if (state_of[i] == RUNS) run(i), moved = true;
            while (release(warp, warp + 32, IN_WARP));
        }
        for (unsigned i = 0; i < threads; i++) alive = alive || state_of[i] != ENDED;
        if (!alive) return;
        if (release(0, threads, IN_BLOCK) || moved) continue;
        fprintf(stderr, "emulate: %s: block %u: threads wait at barriers that others never reach\n",
                operation, blockIdx.x);
        abort();
    }
}

void emulate_grid(const char *operation, unsigned blocks, unsigned n, void (*body)(void *),
                  void *ctx)
{
    if (!stacks) stacks = (char *)malloc((size_t)THREADS * STACK);
    ARES_ASSERT(stacks && n <= THREADS && n % 32 == 0);
    threads = n;
    the_body = body;
    the_ctx = ctx;
    gridDim = dim3(blocks);
    blockDim = dim3(n);
    for (unsigned b = 0; b < blocks; b++) {
        blockIdx = dim3(b);
        run_block(operation);
    }
}

static cuda_context context;
cuda_context *cuda_enter(ares_device *)
{
    return &context;
}
void *cuda_scratch(cuda_context *c, cuda_slot, size_t bytes)
{
    free(c->memory);
    c->memory = (char *)malloc(bytes);
    ARES_ASSERT(c->memory);
    memset(c->memory, 0xff, bytes);
    return c->memory;
}
