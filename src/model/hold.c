/*
 * Weights that are whole on the device only while somebody computes with them: they lie in host
 * memory, or each rank of a group has its part, on the device or in host memory. Two slots, each as
 * large as the largest region, take turns: a pass that holds block i asks ahead for block i + 1,
 * whose slot block i - 1 has left (docs/design.md#weights-in-host-memory).
 */
#include "region.h"

enum { SLOTS = 2 };

typedef struct slot {
    void *memory;
    int region; /* -1: none */
    int holds;  /* 0: it has come ahead, or may go */
    bool on_its_way;
    ares_ticket ticket; /* of the group that gathers it */
} slot;

struct ares_slots {
    slot slot[SLOTS];
    size_t bytes; /* of one */
};

static size_t weight_bytes(const ares_region *r)
{
    return (size_t)r->elements * ares_dtype_bytes(r->dtype);
}

static size_t own_bytes(const ares_region *r)
{
    return (size_t)r->own * ares_dtype_bytes(r->dtype);
}

/* What of a region the host keeps. */
static size_t host_bytes(const ares_region *r)
{
    return r->in_parts ? own_bytes(r) : weight_bytes(r);
}

bool region_apart(const ares_region *r)
{
    return r->host || r->in_parts;
}

int slots_open(ares_model *m)
{
    ares_device *d = m->device;
    struct ares_slots *s = m->slots = ares_calloc(1, sizeof *s);
    for (int i = 0; i < regions_count(m); i++)
        if (region_apart(&m->regions[i]))
            s->bytes = ARES_MAX(s->bytes, weight_bytes(&m->regions[i]));
    for (int i = 0; i < SLOTS; i++) {
        s->slot[i] = (slot){ .memory = d->k->alloc(d, s->bytes), .region = -1 };
        if (!s->slot[i].memory)
            return ares_device_full(d, "model", "weights that come region by region", s->bytes,
                                    false, NULL);
    }
    return ARES_OK;
}

bool ares_model_by_region(const ares_model *m)
{
    return m->slots != NULL;
}

static slot *slot_of(const ares_model *m, int r)
{
    for (int i = 0; i < SLOTS; i++)
        if (m->slots->slot[i].region == r) return &m->slots->slot[i];
    return NULL;
}

/* A slot that nobody holds, an empty one first. NULL: all are held. */
static slot *free_slot(const ares_model *m)
{
    slot *found = slot_of(m, -1);
    for (int i = 0; i < SLOTS && !found; i++)
        if (!m->slots->slot[i].holds) found = &m->slots->slot[i];
    return found;
}

/* This rank's part of a region, in a slot. */
static char *own_place(const slot *s, const ares_region *r)
{
    return (char *)s->memory + (size_t)r->own_first * ares_dtype_bytes(r->dtype);
}

static void bring(ares_model *m, const slot *s, const ares_region *from)
{
    void *to = from->in_parts ? own_place(s, from) : s->memory;
    m->device->k->bring(m->device, to, from->host, host_bytes(from));
}

static void brought(ares_model *m)
{
    if (m->device->k->brought) m->device->k->brought(m->device);
}

/* What is launched from here on finds all slots filled. */
static void arrive(ares_model *m)
{
    bool whole = false;
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &m->slots->slot[i];
        if (!s->on_its_way) continue;
        if (m->regions[s->region].in_parts) ares_group_join(m->share.group, s->ticket);
        else whole = true;
        s->on_its_way = false;
    }
    if (whole) brought(m);
}

static void begin_fill(ares_model *m, slot *s, int r)
{
    const ares_region *from = &m->regions[r];
    if (s->on_its_way) arrive(m); /* for nobody; from the ranks and from the host in any order */
    s->region = r;
    s->on_its_way = true;
    if (from->host) bring(m, s, from);
    if (!from->in_parts) return;
    const void *mine = from->host ? own_place(s, from) : from->own_weights;
    if (from->host) brought(m); /* before the others read it */
    s->ticket = ares_group_gather(m->share.group, mine, s->memory, own_bytes(from));
}

void slots_close(ares_model *m)
{
    if (!m->slots) return;
    arrive(m); /* before its memory is anybody else's */
    for (int i = 0; i < SLOTS; i++)
        m->device->k->release(m->device, m->slots->slot[i].memory, m->slots->bytes);
    ares_free(m->slots);
}

void slots_forget(ares_model *m)
{
    for (int i = 0; i < SLOTS && m->slots; i++) {
        ARES_ASSERT(!m->slots->slot[i].holds);
        m->slots->slot[i].region = -1;
    }
}

/* Where the weights of region r are on the device; NULL: nowhere. */
static void point_at(ares_model *m, int r, void *weights)
{
    size_t each = ares_dtype_bytes(m->regions[r].dtype);
    m->regions[r].weights = weights;
    if (!m->regions[r].in_parts || m->regions[r].host) /* otherwise its part stays where it is */
        m->regions[r].own_weights =
            weights ? (char *)weights + (size_t)m->regions[r].own_first * each : NULL;
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].region == r)
            m->params[i].weight.data =
                weights ? (char *)weights + (size_t)m->params[i].at * each : NULL;
}

void region_ahead(ares_model *m, int r)
{
    if (!region_apart(&m->regions[r]) || slot_of(m, r)) return;
    slot *s = free_slot(m);
    if (s) begin_fill(m, s, r);
}

void ares_region_hold(ares_model *m, int r)
{
    if (!region_apart(&m->regions[r])) return;
    slot *s = slot_of(m, r);
    if (!s) {
        s = free_slot(m);
        ARES_ASSERT(s); /* a pass holds one region at a time */
        begin_fill(m, s, r);
    }
    if (s->on_its_way) arrive(m);
    if (s->holds++ == 0) point_at(m, r, s->memory);
}

void ares_region_hold_own(ares_model *m, int r)
{
    const ares_region *from = &m->regions[r];
    if (!from->in_parts || !from->host || slot_of(m, r)) {
        ares_region_hold(m, r);
        return;
    }
    slot *s = free_slot(m);
    ARES_ASSERT(s);
    if (s->on_its_way) arrive(m); /* for nobody */
    bring(m, s, from);
    brought(m);
    s->region = r;
    s->holds = 1;
    point_at(m, r, s->memory);
}

void ares_region_drop(ares_model *m, int r)
{
    if (!region_apart(&m->regions[r])) return;
    slot *s = slot_of(m, r);
    ARES_ASSERT(s && s->holds > 0);
    if (--s->holds) return;
    s->region = -1;
    point_at(m, r, NULL);
}

void ares_region_store(ares_model *m, int r)
{
    const ares_region *to = &m->regions[r];
    slot *ahead = m->slots ? slot_of(m, r) : NULL;
    if (ahead && !ahead->holds) ahead->region = -1;
    if (to->host)
        m->device->k->store(m->device, to->host, to->in_parts ? to->own_weights : to->weights,
                            host_bytes(to));
}
