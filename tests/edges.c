/*
 * Which edges between basic blocks of src a program takes, for scripts/sanitized.py, which links
 * this into each program and library of a build whose src calls it at every block (GCC's
 * -fsanitize-coverage=trace-pc). With ARES_EDGES=FOLDER, FOLDER/<program> is a table of edges that
 * all processes of a test share and that lies in a file: what a process has taken is there however
 * it ends. An edge is two 32-bit places in the program: of the block that the thread was in before,
 * which may be in a function that has returned meanwhile (0: none), and of the block it comes to.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))
enum { EDGES = 1 << 20 }; /* places of the table; a full one ends the program */

extern const char __ehdr_start[] HIDDEN; /* the program's or library's first byte */
static _Atomic uint64_t *table;
static _Thread_local uint32_t before;

__attribute__((constructor(101))) static void edges_open(void)
{
    char path[2 * 4096 + 2], program[4096];
    const char *folder = getenv("ARES_EDGES");
    Dl_info self;
    if (!folder || !dladdr((void *)edges_open, &self)) return;
    const char *name = self.dli_fname; /* of a program: the word that started it */
    ssize_t n = strstr(name, ".so") ? -1 : readlink("/proc/self/exe", program, sizeof program - 1);
    if (n > 0) {
        program[n] = '\0';
        name = program;
    }
    const char *base = strrchr(name, '/');
    snprintf(path, sizeof path, "%s/%s", folder, base ? base + 1 : name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return;
    size_t bytes = EDGES * sizeof *table;
    void *map = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0)
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED) table = map;
}

HIDDEN void __sanitizer_cov_trace_pc(void)
{
    if (!table) return;
    uint32_t here = (uint32_t)((const char *)__builtin_return_address(0) - __ehdr_start);
    uint64_t edge = (uint64_t)before << 32 | here;
    before = here;
    uint32_t at = (uint32_t)((edge * 0x9e3779b97f4a7c15u) >> 32);
    for (uint32_t i = 0; i < EDGES; i++) {
        _Atomic uint64_t *place = &table[(at + i) % EDGES];
        uint64_t there = atomic_load_explicit(place, memory_order_relaxed);
        if (there == edge) return;
        if (there == 0 && atomic_compare_exchange_strong(place, &there, edge)) return;
        if (there == edge) return; /* another thread was first */
    }
    abort();
}
