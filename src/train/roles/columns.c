/* Columns on the device; all of it does nothing where the device's memory is the host's. */
#include "roles/columns.h"

#include <string.h>

enum { ALIGN = 256 };
static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

int columns_open(columns *c, ares_device *d, const char *role, size_t bytes, int arrays)
{
    c->device = d;
    c->used = 0;
    bytes += (size_t)arrays * ALIGN;
    if (columns_shared(c) || c->bytes >= bytes) return ARES_OK;
    d->k->release(d, c->block, c->bytes);
    c->block = d->k->alloc(d, bytes);
    c->bytes = c->block ? bytes : 0;
    if (c->block) return ARES_OK;
    return ares_device_full(d, role, "columns", bytes, false,
                            "lower data.rollout_batch_size or data.max_response_length");
}

void columns_close(columns *c)
{
    if (c->block) c->device->k->release(c->device, c->block, c->bytes);
    if (c->staged) c->device->k->release(c->device, c->staged, c->staged_bytes);
    ares_free(c->host_staged);
    *c = (columns){ 0 };
}

void *columns_place(columns *c, void *host, size_t bytes)
{
    if (columns_shared(c) || !host) return host;
    char *p = c->block + c->used;
    c->used += aligned(bytes);
    ARES_ASSERT(c->used <= c->bytes);
    return p;
}

void columns_in(const columns *c, void *device, const void *host, size_t bytes)
{
    if (device != host && bytes) c->device->k->copy_in(c->device, device, host, bytes);
}

static bool stage(columns *c, size_t bytes)
{
    ares_device *d = c->device;
    if (c->staged_bytes >= bytes) return true;
    if (c->staged) d->k->release(d, c->staged, c->staged_bytes);
    c->staged = d->k->alloc(d, bytes);
    c->staged_bytes = c->staged ? bytes : 0;
    c->host_staged = ares_realloc(c->host_staged, c->staged_bytes);
    return c->staged != NULL;
}

void columns_out(columns *c, const column_part *part, int n)
{
    const ares_kernels *k = c->device->k;
    size_t bytes = 0, at = 0;
    if (columns_shared(c)) return;
    for (int i = 0; i < n; i++) bytes += aligned(part[i].bytes);
    if (!stage(c, bytes)) { /* as many waits as arrays */
        for (int i = 0; i < n; i++)
            k->copy_out(c->device, part[i].host, part[i].device, part[i].bytes);
        return;
    }
    for (int i = 0; i < n; at += aligned(part[i++].bytes))
        k->copy(c->device, c->staged + at, part[i].device, part[i].bytes);
    k->copy_out(c->device, c->host_staged, c->staged, bytes);
    at = 0;
    for (int i = 0; i < n; at += aligned(part[i++].bytes))
        memcpy(part[i].host, c->host_staged + at, part[i].bytes);
}

int columns_ready(const columns *c)
{
    return columns_shared(c) ? c->device->k->sync(c->device) : ARES_OK;
}
