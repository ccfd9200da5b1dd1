/*
 * Host memory. The program cannot go on without it, so running out aborts. Running out of device
 * memory is an error like others, also where the device is the CPU: ares_pages_try.
 */
#include "ares/core.h"
#include "last_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static const double GIB = 1073741824.0;

/* Bytes that this process may map at most; 0: as many as the system gives. */
static double limit_of_process(void)
{
    struct rlimit most;
    bool limited = getrlimit(RLIMIT_AS, &most) == 0 && most.rlim_cur != RLIM_INFINITY;
    return limited ? (double)most.rlim_cur : 0;
}

static void out_of_memory(size_t bytes)
{
    double limit = limit_of_process();
    char of[64] = "";
    if (limit > 0) snprintf(of, sizeof of, ", whose limit is %.2f GiB (ulimit -v)", limit / GIB);
    log_last_words("core: %zu bytes of host memory were refused to process %d%s; 'ares-train plan' "
                   "says what a run needs, and which options need less",
                   bytes, (int)getpid(), of);
    abort();
}

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
