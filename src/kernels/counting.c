/*
 * A device that only counts: what opens on it allocates as on the device it stands for, so that the
 * memory of a run is known before there is any (docs/ranks.md#what-a-run-needs). Addresses are
 * reserved and hold nothing: whoever reads or writes one by mistake faults at once.
 */
#include <string.h>
#include <sys/mman.h>

#include "count.h"
#include "counting.h"

/* Memory of the host: none of a card's, and all there is of a CPU. */
static void *reserve_host(ares_device *d, size_t bytes)
{
    (void)d;
    void *p = mmap(NULL, ARES_MAX(bytes, 1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
static void release_host(ares_device *d, void *p, size_t bytes)
{
    (void)d;
    if (p) munmap(p, ARES_MAX(bytes, 1));
}

static void *reserve(ares_device *d, size_t bytes)
{
    void *p = reserve_host(d, bytes);
    if (p) kernels_count(d, bytes, 0);
    return p;
}
static void release(ares_device *d, void *p, size_t bytes)
{
    if (p) kernels_count(d, 0, bytes);
    release_host(d, p, bytes);
}

static void copy_in(ares_device *d, void *device, const void *host, size_t bytes)
{
    (void)d, (void)device, (void)host, (void)bytes;
}
static void copy_out(ares_device *d, void *host, const void *device, size_t bytes)
{
    (void)d, (void)host, (void)device, (void)bytes;
}
static void convert(ares_device *d, void *to, ares_dtype to_type, const void *from,
                    ares_dtype from_type, int64_t n)
{
    (void)d, (void)to, (void)to_type, (void)from, (void)from_type, (void)n;
}
static void zero(ares_device *d, void *p, size_t bytes)
{
    (void)d, (void)p, (void)bytes;
}
static int sync(ares_device *d)
{
    (void)d;
    return ARES_OK;
}
/* Its presence tells that steps of decoding are launched ahead, for which buffers are kept. */
static void advance(ares_device *d, const ares_advance_args *a)
{
    (void)d, (void)a;
}

void ares_device_open_counting(const char *name, const char *table, ares_dtype act,
                               double total_bytes, ares_device *out)
{
    bool card = strncmp(name, "cuda", 4) == 0, aten = strcmp(table, "aten") == 0;
    ares_kernels *k = ares_calloc(1, sizeof *k);
    *k = (ares_kernels){ .name = "counting",
                         .layout = card || aten ? ARES_ROWS : ARES_PANEL32,
                         .act = card || aten ? act : ARES_F32,
                         .alloc = reserve,
                         .release = release,
                         .copy_in = copy_in,
                         .alloc_host = card ? reserve_host : reserve,
                         .release_host = card ? release_host : release,
                         .bring = copy_in,
                         .store = copy_out,
                         .copy_out = copy_out,
                         .convert = convert,
                         .zero = zero,
                         .sync = sync,
                         .advance = card ? advance : NULL };
    *out = (ares_device){ .k = k, .scratch = k, .index = card ? 0 : -1, .counting = true };
    out->total_bytes = total_bytes;
}

void kernels_counting_close(ares_device *d)
{
    ares_free(d->scratch);
}
