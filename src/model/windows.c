/*
 * Optimizer states in host memory: AdamW finds them on the device stretch by stretch, in one of two
 * windows, while the next stretch comes to the other (docs/design.md#weights-in-host-memory).
 */
#include "region.h"

enum {
    WINDOWS = 2,
    STRETCH = 1 << 21, /* elements: copies of 8 MB hide what beginning one costs */
    KINDS = 3          /* m, v, master */
};

struct ares_windows {
    char *memory[WINDOWS];
    size_t bytes; /* of one */
    int64_t turn; /* stretches that have been handed out */
    int region;   /* what is on its way to the window of this turn; -1: nothing */
    int64_t first;
};

/* A weight of 16 bits lacks what the third state adds. */
static bool has_master(const ares_region *r)
{
    return r->dtype != ARES_F32;
}

static size_t array_bytes(const ares_region *r, int64_t n)
{
    return (size_t)n * ares_dtype_bytes(r->states);
}

static int64_t stretch(const ares_region *r, int64_t first)
{
    return ARES_MIN(STRETCH, r->own - first);
}

static int windows_open(ares_model *m)
{
    ares_device *d = m->device;
    struct ares_windows *w = m->windows = ares_calloc(1, sizeof *w);
    w->region = -1;
    for (int i = 0; i < m->n_regions; i++) {
        const ares_region *r = &m->regions[i];
        w->bytes = ARES_MAX(w->bytes, KINDS * array_bytes(r, stretch(r, 0)));
    }
    for (int i = 0; i < WINDOWS; i++)
        if (!(w->memory[i] = d->k->alloc(d, w->bytes)))
            return ares_device_full(d, "model", "optimizer states that come piece by piece",
                                    w->bytes, false, NULL);
    return ARES_OK;
}

void windows_close(ares_model *m)
{
    ares_device *d = m->device;
    for (int i = 0; i < WINDOWS && m->windows; i++)
        d->k->release(d, m->windows->memory[i], m->windows->bytes);
    if (m->windows) d->k->release_host(d, m->states, m->states_bytes);
    else d->k->release(d, m->states, m->states_bytes);
    ares_free(m->windows);
}

/* Where the arrays of a stretch lie in a window. */
static char *place(const struct ares_windows *w, int64_t turn, const ares_region *r, int64_t first,
                   int kind)
{
    return w->memory[turn % WINDOWS] + (size_t)kind * array_bytes(r, stretch(r, first));
}

/* And in host memory; NULL: the region has no such states. */
static char *home(const ares_region *r, int64_t first, int kind)
{
    char *of[KINDS] = { r->m, r->v, r->master };
    return of[kind] ? of[kind] + array_bytes(r, first) : NULL;
}

static void bring(ares_model *m, int region, int64_t first)
{
    struct ares_windows *w = m->windows;
    const ares_region *r = &m->regions[region];
    for (int i = 0; i < KINDS; i++)
        if (home(r, first, i))
            m->device->k->bring(m->device, place(w, w->turn, r, first, i), home(r, first, i),
                                array_bytes(r, stretch(r, first)));
    w->region = region;
    w->first = first;
}

/* What was written of a stretch goes back to the host, which finds it there after a sync. */
static void store(ares_model *m, const ares_region *r, const ares_states *s)
{
    void *of[KINDS] = { s->m, s->v, s->master };
    for (int i = 0; i < KINDS; i++)
        if (of[i])
            m->device->k->store(m->device, home(r, s->first, i), of[i], array_bytes(r, s->n));
}

/* The stretch after (region, first), of the next region where this one ends. */
static void bring_next(ares_model *m, int region, int64_t first)
{
    if (first < m->regions[region].own) bring(m, region, first);
    else if (region + 1 < m->n_regions) bring(m, region + 1, 0);
}

bool ares_states_next(ares_model *m, int region, ares_states *s)
{
    const ares_region *r = &m->regions[region];
    struct ares_windows *w = m->windows;
    int64_t first = s->first + s->n;
    if (!w) {
        *s = (ares_states){ 0, r->own, r->master, r->m, r->v };
        return first == 0;
    }
    ares_states written = *s;
    bool last = first == r->own;
    if (!last && (w->region != region || w->first != first)) bring(m, region, first);
    if (!last && m->device->k->brought) m->device->k->brought(m->device);
    /* `brought` need not wait for it, and what comes next takes its window */
    if (written.n) store(m, r, &written);
    if (last) return false;
    *s = (ares_states){ .first = first, .n = stretch(r, first) };
    s->m = place(w, w->turn, r, first, 0);
    s->v = place(w, w->turn, r, first, 1);
    s->master = r->master ? place(w, w->turn, r, first, 2) : NULL;
    w->turn++;
    w->region = -1;
    bring_next(m, region, first + s->n);
    return true;
}

static void lay_out(ares_model *m)
{
    char *s = m->states;
    for (int i = 0; i < m->n_regions; i++) {
        ares_region *r = &m->regions[i];
        size_t one = array_bytes(r, r->own);
        r->m = s;
        r->v = s + one;
        r->master = has_master(r) ? s + 2 * one : NULL;
        s += (has_master(r) ? 3 : 2) * one;
    }
}

/* The master of a weight begins as the weight. */
static void begin_master(ares_model *m, int region)
{
    ares_device *d = m->device;
    const ares_region *r = &m->regions[region];
    bool apart = !r->own_weights; /* on the host */
    ares_states s = { 0 };
    if (apart) ares_region_hold_own(m, region);
    while (ares_states_next(m, region, &s)) {
        const char *from =
            (const char *)r->own_weights + (size_t)s.first * ares_dtype_bytes(r->dtype);
        d->k->convert(d, s.master, ARES_F32, from, r->dtype, s.n);
    }
    if (apart) ares_region_drop(m, region);
}

int ares_model_optimizer_alloc(ares_model *m, ares_dtype of_short)
{
    ares_device *d = m->device;
    bool host = m->share.states_on_host;
    ARES_ASSERT(m->trainable && !m->states && of_short != ARES_F16);
    size_t bytes = 0;
    for (int i = 0; i < m->n_regions; i++) {
        ares_region *r = &m->regions[i];
        r->states = has_master(r) ? of_short : ARES_F32;
        bytes += array_bytes(r, r->own) * (has_master(r) ? 3 : 2);
    }
    if (host) ARES_TRY(windows_open(m));
    m->states = host ? d->k->alloc_host(d, bytes) : d->k->alloc(d, bytes);
    m->states_bytes = m->states ? bytes : 0;
    if (!m->states) return ares_device_full(d, "model", "optimizer states", bytes, host, NULL);
    lay_out(m);
    for (int i = 0; i < m->n_regions && of_short == ARES_F32; i++)
        if (m->regions[i].master) begin_master(m, i);
    return d->k->sync(d);
}
