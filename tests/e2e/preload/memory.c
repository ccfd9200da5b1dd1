/*
 * A library for LD_PRELOAD: memory that runs out in one rank. In the rank ARES_MEMORY_RANK the
 * program's request number ARES_MEMORY_AT and all later ones are refused: those for pages of the
 * system (ARES_MEMORY_KIND=pages), or those for ARES_MEMORY_LEAST bytes or more of the heap (heap).
 * Requests of libraries count as none, and none before there is a file ARES_MEMORY_AFTER. At its
 * end the program writes the number of its requests into the file ARES_MEMORY_COUNT.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static char *first, *end; /* of the program's code */
static int active, pages;
static long at, least;
static const char *after;
static _Atomic long requests;

static int find_program(struct dl_phdr_info *program, size_t size, void *ctx)
{
    (void)size, (void)ctx;
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &program->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        first = (char *)(uintptr_t)program->dlpi_addr + part->p_vaddr;
        end = first + part->p_memsz;
    }
    return 1; /* the program is the first in the list */
}

static long number(const char *name)
{
    const char *value = getenv(name);
    return value ? atol(value) : 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *kind = getenv("ARES_MEMORY_KIND");
    if (!rank || !kind || atol(rank) != number("ARES_MEMORY_RANK")) return;
    (void)dl_iterate_phdr(find_program, NULL);
    pages = strcmp(kind, "pages") == 0;
    at = number("ARES_MEMORY_AT");
    least = number("ARES_MEMORY_LEAST");
    after = getenv("ARES_MEMORY_AFTER");
    active = 1;
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("ARES_MEMORY_COUNT");
    FILE *file = active && path ? fopen(path, "w") : NULL;
    if (!file) return;
    (void)fprintf(file, "%ld\n", requests);
    (void)fclose(file);
}

static int refuses(const char *caller)
{
    int before = errno;
    if (!active || caller < first || caller >= end) return 0;
    if (after && access(after, F_OK) != 0) {
        errno = before;
        return 0;
    }
    int refused = atomic_fetch_add(&requests, 1) + 1 >= at && at > 0;
    errno = refused ? ENOMEM : before;
    return refused;
}

void *mmap(void *where, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (pages && flags & MAP_ANONYMOUS && protection != PROT_NONE &&
        refuses(__builtin_return_address(0)))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, where, bytes, protection, flags, file, offset);
}

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t bytes);
#define REFUSED(bytes) \
    (active && !pages && (bytes) >= (size_t)least && refuses(__builtin_return_address(0)))

void *malloc(size_t bytes)
{
    return REFUSED(bytes) ? NULL : __libc_malloc(bytes);
}
void *calloc(size_t count, size_t size)
{
    return REFUSED(count * size) ? NULL : __libc_calloc(count, size);
}
void *realloc(void *p, size_t bytes)
{
    return REFUSED(bytes) ? NULL : __libc_realloc(p, bytes);
}
