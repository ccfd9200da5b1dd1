/* Memory: from the system, and arenas that are emptied as a whole. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ares/core.h"

/*
 * Host memory. The program cannot go on without it, so running out aborts. Running out of device
 * memory is an error like others, also where the device is the CPU: ares_pages_try.
 */

static const double GIB = 1073741824.0;

/* Says how much was asked for and what limits the process, and aborts. */
static void out_of_memory(size_t bytes)
{
    struct rlimit most;
    char of[64] = "";
    if (getrlimit(RLIMIT_AS, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur > 0)
        snprintf(of, sizeof of, ", whose limit is %.2f GiB (ulimit -v)",
                 (double)most.rlim_cur / GIB);
    log_last_words("core: %zu bytes of host memory were refused to process %d%s; 'ares-train plan' "
                   "says what a run needs, and which options need less",
                   bytes, (int)getpid(), of);
    abort();
}

/* Never NULL, also for 0 bytes. */
void *ares_malloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) out_of_memory(bytes);
    return p;
}

void *ares_calloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size ? size : 1);
    if (!p) out_of_memory(count * size);
    return p;
}

void *ares_realloc(void *p, size_t bytes)
{
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q) out_of_memory(bytes);
    return q;
}

void ares_free(void *p)
{
    free(p);
}

char *ares_strdup(const char *s)
{
    size_t len = strlen(s) + 1;
    return memcpy(ares_malloc(len), s, len);
}

/* Zeroed pages straight from the system: large buffers of weights and caches. NULL: refused. */
void *ares_pages_try(size_t bytes)
{
    void *p =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    /* huge pages: fewer TLB misses while weights and caches are read; a kernel may refuse */
    if (bytes >= ((size_t)4 << 20)) (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

void *ares_pages_new(size_t bytes)
{
    void *p = ares_pages_try(bytes);
    if (!p) out_of_memory(bytes);
    return p;
}

void ares_pages_free(void *p, size_t bytes)
{
    if (p) munmap(p, bytes ? bytes : 1);
}

/*
 * Bump allocation in chunks. A reset keeps the chunks, so a step that resembles the previous one
 * needs no memory from the system.
 */

/* `data` holds `size` bytes, of which the first `used` are given away. */
struct ares_arena_chunk {
    struct ares_arena_chunk *next;
    size_t size, used;
    _Alignas(16) char data[];
};

void *ares_arena_alloc(ares_arena *a, size_t bytes)
{
    ARES_ASSERT(bytes < SIZE_MAX / 2);
    bytes = (bytes + 15) & ~(size_t)15; /* every allocation is aligned for any type */
    if (!a->head || a->head->size - a->head->used < bytes) {
        struct ares_arena_chunk **at = &a->spare, *chunk;
        while (*at && (*at)->size < bytes) at = &(*at)->next;
        if ((chunk = *at)) *at = chunk->next; /* the first spare chunk that is large enough */
        else {
            if (a->chunk_bytes == 0) a->chunk_bytes = 1024; /* many arenas hold only one row */
            size_t size = ARES_MAX(bytes, a->chunk_bytes);
            chunk = ares_malloc(sizeof *chunk + size);
            chunk->size = size;
            if (a->chunk_bytes < (size_t)4 << 20) a->chunk_bytes *= 2; /* up to 4 MiB */
        }
        chunk->used = 0;
        chunk->next = a->head;
        a->head = chunk;
    }
    void *p = a->head->data + a->head->used;
    a->head->used += bytes;
    a->used += bytes;
    return p;
}

/* Chunks are used again, so fresh memory is not zero by itself. */
void *ares_arena_calloc(ares_arena *a, size_t count, size_t size)
{
    size_t bytes;
    ARES_ASSERT(!__builtin_mul_overflow(count, size, &bytes));
    return memset(ares_arena_alloc(a, bytes), 0, bytes);
}

/* A NUL follows the copy, so that it is also a C string. */
char *ares_arena_copy(ares_arena *a, const char *data, size_t len)
{
    char *p = ares_arena_alloc(a, len + 1);
    if (len) memcpy(p, data, len);
    p[len] = 0;
    return p;
}

/* Formats twice: first for the length. */
char *ares_arena_printf(ares_arena *a, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    ARES_ASSERT(n >= 0);
    char *p = ares_arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return p;
}

/* All memory becomes free at once; pointers into the arena are then dangling. */
void ares_arena_reset(ares_arena *a)
{
    while (a->head) {
        struct ares_arena_chunk *chunk = a->head;
        a->head = chunk->next;
        chunk->next = a->spare;
        a->spare = chunk;
    }
    a->used = 0;
}

/* Gives the memory back to the system. */
void ares_arena_fini(ares_arena *a)
{
    ares_arena_reset(a);
    while (a->spare) {
        struct ares_arena_chunk *chunk = a->spare;
        a->spare = chunk->next;
        ares_free(chunk);
    }
    *a = (ares_arena){ 0 };
}
