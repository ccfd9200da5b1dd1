/* Two phases take turns in one allocation of a device. */
#include "ares/kernels_phases.h"

enum { ALIGN = 256 };

struct ares_phases {
    char *memory;
    size_t bytes;
    size_t used;                /* in the current phase */
    size_t zeroed_to, dirty_to; /* training has written [zeroed_to, dirty_to) since it was zeroed */
    ares_phase now;
    int64_t turn; /* phases begun */
};

int ares_phases_open(ares_device *d, size_t bytes)
{
    ARES_ASSERT(!d->phases);
    struct ares_phases *p = ares_calloc(1, sizeof *p);
    *p = (struct ares_phases){ .memory = d->k->alloc(d, bytes), .bytes = bytes };
    if (!p->memory) {
        ares_free(p);
        return ares_device_full(d, "kernels", "memory for rollout and training", bytes, false,
                                NULL);
    }
    d->phases = p;
    return ARES_OK;
}

void ares_phases_close(ares_device *d)
{
    if (!d->phases) return;
    d->k->release(d, d->phases->memory, d->phases->bytes);
    ares_free(d->phases);
    d->phases = NULL;
}

size_t ares_phase_size(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t ares_phases_bytes(const ares_device *d)
{
    return d->phases ? d->phases->bytes : 0;
}

bool ares_phase_holds(const ares_device *d, const ares_held *h)
{
    return h->data && (h->turn == 0 || (d->phases && h->turn == d->phases->turn));
}

void ares_phase_give_back(ares_device *d, ares_held *h)
{
    struct ares_phases *p = d->phases;
    if (h->turn == 0) d->k->release(d, h->data, h->bytes);
    else if (ares_phase_holds(d, h) && (char *)h->data + h->bytes == p->memory + p->used)
        p->used -= h->bytes; /* what was taken last */
    *h = (ares_held){ 0 };
}

static void enter(struct ares_phases *p, ares_phase phase)
{
    if (p->turn && p->now == phase) return;
    p->now = phase;
    p->used = 0;
    p->turn++;
}

/* Rollout's memory comes from the start on: what it does not take stays dirty. */
static void zero(ares_device *d, size_t from, size_t to)
{
    struct ares_phases *p = d->phases;
    size_t first = ARES_MAX(from, p->zeroed_to), end = ARES_MIN(to, p->dirty_to);
    if (first < end) d->k->zero(d, p->memory + first, end - first);
    p->zeroed_to = ARES_MAX(p->zeroed_to, to);
}

static void write_over(struct ares_phases *p)
{
    if (p->zeroed_to >= p->dirty_to) p->dirty_to = 0;
    p->zeroed_to = 0;
    p->dirty_to = ARES_MAX(p->dirty_to, p->used);
}

void *ares_phase_take(ares_device *d, ares_phase phase, ares_held *h, size_t bytes)
{
    struct ares_phases *p = d->phases;
    if (ares_phase_holds(d, h) && h->bytes >= bytes) return h->data;
    ares_phase_give_back(d, h);
    bytes = ares_phase_size(bytes);
    if (p && bytes <= p->bytes - (p->turn && p->now == phase ? p->used : 0)) {
        enter(p, phase);
        *h = (ares_held){ p->memory + p->used, bytes, p->turn };
        p->used += bytes;
        if (phase == ARES_PHASE_TRAIN) write_over(p);
        else zero(d, p->used - bytes, p->used);
        return h->data;
    }
    h->data = d->k->alloc(d, bytes);
    h->bytes = h->data ? bytes : 0;
    return h->data;
}
