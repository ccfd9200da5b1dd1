/*
 * Memory and threads of a CPU device: scratch that is kept from call to call, and when it pays to
 * wake the other threads.
 */
#include "host.h"
#include "count.h"
#include "layout.h"

#include <string.h>

/* One cache line per worker. */
typedef struct scratch_slot {
    void *p;
    size_t bytes;
    char pad[48];
} scratch_slot;
typedef struct scratch {
    int threads;
    scratch_slot slot[]; /* [threads + 1]; the last is KERNELS_SHARED's */
} scratch;

void kernels_scratch_new(ares_device *d)
{
    int threads = ares_pool_threads(d->pool);
    scratch *s = ares_calloc(1, sizeof *s + ((size_t)threads + 1) * sizeof s->slot[0]);
    s->threads = threads;
    d->scratch = s;
}

void kernels_scratch_free(ares_device *d)
{
    scratch *s = d->scratch;
    for (int i = 0; i <= s->threads; i++) ares_pages_free(s->slot[i].p, s->slot[i].bytes);
    ares_free(s);
    d->scratch = NULL;
}

void *kernels_scratch(ares_device *d, int worker, size_t bytes)
{
    scratch *s = d->scratch;
    scratch_slot *slot = &s->slot[worker == KERNELS_SHARED ? s->threads : worker];
    ARES_ASSERT(worker >= KERNELS_SHARED && worker < s->threads);
    if (slot->bytes < bytes) {
        ares_pages_free(slot->p, slot->bytes);
        slot->bytes = (bytes + bytes / 4 + 65535) / 65536 * 65536;
        slot->p = ares_pages_new(slot->bytes);
    }
    return slot->p;
}

/* A run of the pool costs about half a microsecond while its threads spin. */
static const double WORTH_WAKING_US = 2;

void kernels_run(ares_device *d, double work_us, int64_t tasks, ares_task_fn *fn, void *ctx)
{
    if (tasks > 1 && work_us >= WORTH_WAKING_US && ares_pool_threads(d->pool) > 1) {
        ares_pool_run(d->pool, tasks, fn, ctx);
        return;
    }
    for (int64_t i = 0; i < tasks; i++) fn(ctx, i, 0);
}

void *kernels_host_alloc(ares_device *d, size_t bytes)
{
    void *p = ares_pages_try(bytes);
    if (p) kernels_count(d, bytes, 0);
    return p;
}
void kernels_host_release(ares_device *d, void *p, size_t bytes)
{
    if (p) kernels_count(d, 0, bytes);
    ares_pages_free(p, bytes);
}
void kernels_host_copy(ares_device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    memmove(to, from, bytes);
}
void kernels_host_copy_blocks(ares_device *d, const ares_copy_blocks_args *a)
{
    for (int32_t i = 0; i < a->n; i++)
        for (int32_t l = 0; l < a->layers; l++) {
            char *layer = (char *)a->cache + l * a->layer_bytes;
            kernels_host_copy(d, layer + a->block[2 * i + 1] * (int64_t)a->block_bytes,
                              layer + a->block[2 * i] * (int64_t)a->block_bytes, a->block_bytes);
        }
}
void kernels_host_zero(ares_device *d, void *p, size_t bytes)
{
    (void)d;
    memset(p, 0, bytes);
}
void kernels_host_convert(ares_device *d, void *to, ares_dtype to_type, const void *from,
                          ares_dtype from_type, int64_t n)
{
    ARES_ASSERT(to_type != ARES_F16 && from_type != ARES_F16);
    if (to_type == from_type) {
        kernels_host_copy(d, to, from, (size_t)n * ares_dtype_bytes(to_type));
        return;
    }
    if (to_type == ARES_F32)
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = kernels_bf16_to_f32(((const uint16_t *)from)[i]);
    else
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)to)[i] = kernels_f32_to_bf16(((const float *)from)[i]);
}
int kernels_host_sync(ares_device *d)
{
    (void)d;
    return ARES_OK;
}
