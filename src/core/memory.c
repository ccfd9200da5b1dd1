/*
 * Host memory. The program cannot go on without it, so running out aborts. Running out of device
 * memory is an error like others, and is not handled here.
 */
#include "ares/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void out_of_memory(size_t bytes)
{
    fprintf(stderr, "ares: out of host memory: %zu bytes refused\n", bytes);
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

void *ares_pages_new(size_t bytes)
{
    void *p =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) out_of_memory(bytes);
    /* huge pages: fewer TLB misses while weights and caches are read; a kernel may refuse */
    if (bytes >= ((size_t)4 << 20)) (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

void ares_pages_free(void *p, size_t bytes)
{
    if (p) munmap(p, bytes ? bytes : 1);
}
