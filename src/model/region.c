/*
 * Where weights, gradients and optimizer states are, region by region. In order: weights that
 * come to the device only while in use; gradients, whole or divided among ranks; optimizer states
 * in host memory; the regions themselves.
 */
#include "internal.h"

#include <stdio.h>

#include "ares/kernels.h"

/*
 * Weights that are whole on the device only while somebody computes with them: they lie in host
 * memory, or each rank of a group has its part, on the device or in host memory. Two slots, each as
 * large as the largest region, take turns: a pass that holds block i asks ahead for block i + 1,
 * whose slot block i - 1 has left (docs/design.md#weights-in-host-memory).
 */

enum { WEIGHT_SLOTS = 2 };

typedef struct weight_slot {
    void *memory;
    int region; /* -1: none */
    int holds;  /* 0: it has come ahead, or may go */
    bool on_its_way;
    ares_ticket ticket; /* of the group that gathers it */
} weight_slot;

struct ares_slots {
    weight_slot slot[WEIGHT_SLOTS];
    size_t bytes; /* of one */
};
/* Weights of a region that this rank keeps. */
static int64_t kept(const ares_region *r)
{
    return r->in_parts ? r->own : r->elements;
}

static size_t kept_bytes(const ares_region *r)
{
    return (size_t)kept(r) * ares_dtype_bytes(r->dtype);
}

/* Whether a region's weights are whole on the device only while they are held. */
static bool region_apart(const ares_region *r)
{
    return r->host || r->in_parts;
}

bool ares_model_by_region(const ares_model *m)
{
    return m->slots != NULL;
}

static weight_slot *slot_of(const ares_model *m, int r)
{
    for (int i = 0; i < WEIGHT_SLOTS; i++)
        if (m->slots->slot[i].region == r) return &m->slots->slot[i];
    return NULL;
}

/* A slot that nobody holds, an empty one first. NULL: all are held. */
static weight_slot *free_slot(const ares_model *m)
{
    weight_slot *found = slot_of(m, -1);
    for (int i = 0; i < WEIGHT_SLOTS && !found; i++)
        if (!m->slots->slot[i].holds) found = &m->slots->slot[i];
    return found;
}

/* This rank's part of a region, in a slot. */
static char *own_place(const weight_slot *s, const ares_region *r)
{
    return (char *)s->memory + (size_t)r->own_first * ares_dtype_bytes(r->dtype);
}

static void bring(ares_model *m, const weight_slot *s, const ares_region *from)
{
    void *to = from->in_parts ? own_place(s, from) : s->memory;
    m->device->k->bring(m->device, to, from->host, kept_bytes(from));
}

static void brought(ares_model *m)
{
    if (m->device->k->brought) m->device->k->brought(m->device);
}

/* What is launched from here on finds all slots filled. */
static void arrive(ares_model *m)
{
    bool whole = false;
    for (int i = 0; i < WEIGHT_SLOTS; i++) {
        weight_slot *s = &m->slots->slot[i];
        if (!s->on_its_way) continue;
        if (m->regions[s->region].in_parts) ares_group_join(m->share.group, s->ticket);
        else whole = true;
        s->on_its_way = false;
    }
    if (whole) brought(m);
}

static void begin_fill(ares_model *m, weight_slot *s, int r)
{
    const ares_region *from = &m->regions[r];
    if (s->on_its_way) arrive(m); /* for nobody; from the ranks and from the host in any order */
    s->region = r;
    s->on_its_way = true;
    if (from->host) bring(m, s, from);
    if (!from->in_parts) return;
    const void *mine = from->host ? own_place(s, from) : from->own_weights;
    if (from->host) brought(m); /* before the others read it */
    s->ticket = ares_group_gather(m->share.group, mine, s->memory, kept_bytes(from));
}
/* Sets the pointers of a region and its parameters; NULL: the weights have left the device. */
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

void region_prefetch(ares_model *m, int r)
{
    if (!region_apart(&m->regions[r]) || slot_of(m, r)) return;
    weight_slot *s = free_slot(m);
    if (s) begin_fill(m, s, r);
}

void ares_region_load(ares_model *m, int r)
{
    if (!region_apart(&m->regions[r])) return;
    weight_slot *s = slot_of(m, r);
    if (!s) {
        s = free_slot(m);
        ARES_ASSERT(s); /* a pass holds one region at a time */
        begin_fill(m, s, r);
    }
    if (s->on_its_way) arrive(m);
    if (s->holds++ == 0) point_at(m, r, s->memory);
}

void ares_region_load_own(ares_model *m, int r)
{
    const ares_region *from = &m->regions[r];
    if (!from->in_parts || !from->host || slot_of(m, r)) {
        ares_region_load(m, r);
        return;
    }
    weight_slot *s = free_slot(m);
    ARES_ASSERT(s);
    if (s->on_its_way) arrive(m); /* for nobody */
    bring(m, s, from);
    brought(m);
    s->region = r;
    s->holds = 1;
    point_at(m, r, s->memory);
}

void ares_region_unload(ares_model *m, int r)
{
    if (!region_apart(&m->regions[r])) return;
    weight_slot *s = slot_of(m, r);
    ARES_ASSERT(s && s->holds > 0);
    if (--s->holds) return;
    s->region = -1;
    point_at(m, r, NULL);
}

void ares_region_store(ares_model *m, int r)
{
    const ares_region *to = &m->regions[r];
    weight_slot *ahead = m->slots ? slot_of(m, r) : NULL;
    if (ahead && !ahead->holds) ahead->region = -1;
    if (to->host)
        m->device->k->store(m->device, to->host, to->in_parts ? to->own_weights : to->weights,
                            kept_bytes(to));
}

/*
 * Gradients of a pass. Where ranks keep their own parts of the weights alone, so they do of the
 * gradients: a region's whole gradient is there from the beginning of its backward until the ranks
 * have added it, in one of two slots as large as the largest region. While one region's leaves, the
 * next one's is computed in the other (docs/ranks.md#sharing).
 */

enum { GRAD_SLOTS = 2, NOBODY = -1 };

typedef struct grad_slot {
    float *memory;
    int of; /* a region, m->n_regions: a look-up apart from the head, or NOBODY */
    ares_ticket leaving;
} grad_slot;

struct ares_grad_slots {
    grad_slot slot[GRAD_SLOTS];
};

/* Elements of the largest region whose gradient comes and goes. */
static int64_t largest(const ares_model *m)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_regions; i++)
        if (m->regions[i].in_parts) n = ARES_MAX(n, m->regions[i].elements);
    return n;
}

/* Whether whole gradients of matrices are there only during their backward. */
static bool in_parts(const ares_model *m)
{
    return m->share.how == ARES_SHARE_ALL;
}

/* Whether sums of rounds have memory of their own: a rank alone goes on with one chain. */
static bool adds_rounds(const ares_model *m)
{
    return m->share.by_round && !in_parts(m) && ares_group_size(m->share.group) > 1;
}

/* Whether region i is one of the matrices of a vision tower. */
static bool region_of_tower(const ares_model *m, int i)
{
    if (!m->tower.patches) return false;
    int first = m->tower.patches->region;
    return i >= first && i <= first + m->cfg.vision.depth;
}

/* Norms, biases and a tower's matrices are one chain over all rounds. */
static bool sums_rounds(const ares_model *m, const ares_region *r)
{
    return adds_rounds(m) && r->decay && !region_of_tower(m, (int)(r - m->regions));
}

/* Elements of a matrix that one rank adds up for its group. */
static int64_t slice_of(const ares_model *m, const ares_region *r)
{
    return r->elements / ares_group_size(m->share.group);
}

/* Elements of the look-up's own gradient, which a tied head's takes in once per step; 0: none. */
static int64_t of_look_up(const ares_model *m)
{
    return m->cfg.tied && !in_parts(m) ? m->embed->elements : 0;
}

/* Sets the pointers of a region and its parameters; grad NULL: the gradient has no place now. */
static void point_grads_at(ares_model *m, int r, float *grad)
{
    m->regions[r].grad = grad;
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].region == r) m->params[i].grad.data = grad ? grad + m->params[i].at : NULL;
    if (r == m->embed->region && (!m->cfg.tied || in_parts(m)))
        m->embed_grad.data = m->embed->grad.data;
}

/* Divides the arena among regions. */
static void give_memory(ares_model *m)
{
    float *g = m->grads;
    m->embed_grad = m->embed->grad;
    for (int i = 0; i < m->n_regions; i++) {
        ares_region *r = &m->regions[i];
        r->own_grad = r->in_parts ? g : g + r->own_first;
        if (!r->in_parts) point_grads_at(m, i, g);
        g += kept(r);
        if (!sums_rounds(m, r)) continue;
        r->round_sum = g;
        if (m->share.how == ARES_SHARE_STATES) r->own_grad = g;
        g += slice_of(m, r);
    }
    if (of_look_up(m)) m->embed_grad.data = g;
    if (!in_parts(m)) return;
    if (!m->grad_slots) m->grad_slots = ares_calloc(1, sizeof *m->grad_slots);
    for (int i = 0; i < GRAD_SLOTS; i++)
        m->grad_slots->slot[i] = (grad_slot){ .memory = g + i * largest(m), .of = NOBODY };
}
static grad_slot *grad_slot_of(const ares_model *m, int of)
{
    grad_slot *s = m->grad_slots->slot, *end = s + GRAD_SLOTS;
    while (s < end && s->of != of) s++;
    return s < end ? s : NULL;
}

/* Zeroed memory for so many elements; of two free slots the one that has waited longer. */
static float *take(ares_model *m, int of, int64_t elements)
{
    grad_slot *found = NULL;
    for (int i = 0; i < GRAD_SLOTS; i++) {
        grad_slot *s = &m->grad_slots->slot[i];
        if (s->of == NOBODY && (!found || s->leaving < found->leaving)) found = s;
    }
    ARES_ASSERT(found); /* at most the head's and one more are there at once */
    ares_group_join(m->share.group, found->leaving);
    m->device->k->zero(m->device, found->memory, (size_t)elements * sizeof(float));
    found->of = of;
    return found->memory;
}

void ares_region_grad(ares_model *m, int r)
{
    if (!m->trainable || m->regions[r].grad) return;
    point_grads_at(m, r, take(m, r, m->regions[r].elements));
}

int ares_model_zero_grad(ares_model *m)
{
    size_t bytes = m->grads_bytes;
    ARES_ASSERT(m->trainable);
    if (!ares_phase_holds(m->device, &m->of_training)) {
        m->grads = ares_phase_take(m->device, ARES_PHASE_TRAIN, &m->of_training, bytes);
        if (!m->grads) return ares_device_full(m->device, "model", "gradients", bytes, false, NULL);
        give_memory(m);
    }
    if (m->grad_slots) bytes = (size_t)(m->grad_slots->slot[0].memory - (float *)m->grads) * 4;
    m->device->k->zero(m->device, m->grads, bytes);
    for (int i = 0; i < GRAD_SLOTS && m->grad_slots; i++) { /* of a pass that went no further */
        grad_slot *s = &m->grad_slots->slot[i];
        if (s->of != NOBODY && s->of < m->n_regions) point_grads_at(m, s->of, NULL);
        s->of = NOBODY;
    }
    return ARES_OK;
}

void ares_model_join_embed_grad(ares_model *m)
{
    if (of_look_up(m) && m->trainable)
        m->device->k->add(m->device, m->lm_head->grad.data, m->embed_grad.data, m->embed->elements);
}

/* The whole gradient goes to the ranks that own its parts, and its slot is free. */
static void leave(ares_model *m, int region)
{
    ares_region *r = &m->regions[region];
    grad_slot *s = grad_slot_of(m, region);
    if (!s) return; /* it has left */
    s->leaving = ares_group_sum_scatter(m->share.group, r->grad, r->own_grad, r->own, true);
    s->of = NOBODY;
    point_grads_at(m, region, NULL);
}

/* x [n] becomes the sum over the group: each rank sums its slice, and gathers those of others. */
static void sum_everywhere(ares_group *g, float *x, int64_t n)
{
    if (ares_group_size(g) == 1) return;
    n /= ares_group_size(g);
    float *mine = x + n * ares_group_rank(g);
    (void)ares_group_sum_scatter(g, x, mine, n, false);
    ares_group_join(g, ares_group_gather(g, mine, x, (size_t)n * sizeof *mine));
}

/* Norms and biases: few numbers, which every rank sums as a whole. */
static void sum_small(ares_group *g, float *x, int64_t n)
{
    if (ares_group_size(g) > 1) ares_group_join(g, ares_group_sum(g, x, n));
}

void ares_region_sum(ares_model *m, int region)
{
    const ares_region *r = &m->regions[region];
    const ares_model_share *s = &m->share;
    ares_group *g = s->group;
    if (!g) return;
    if (!r->decay) {
        sum_small(g, r->grad, r->elements);
        sum_small(s->replicas, r->grad, r->elements);
        return;
    }
    /* first inside the group, unless rounds have summed it already, then over the replicas */
    if (r->in_parts) {
        leave(m, region);
        for (int i = 0; i < GRAD_SLOTS; i++) ares_group_join(g, m->grad_slots->slot[i].leaving);
    } else if (r->round_sum) {
        if (s->how == ARES_SHARE_NONE)
            ares_group_join(g, ares_group_gather(g, r->round_sum, r->grad,
                                                 (size_t)slice_of(m, r) * sizeof(float)));
    } else if (s->how == ARES_SHARE_NONE) sum_everywhere(g, r->grad, r->elements);
    else ares_group_join(g, ares_group_sum_scatter(g, r->grad, r->own_grad, r->own, false));
    sum_everywhere(s->replicas, r->own_grad, r->own);
}

void ares_model_end_round(ares_model *m)
{
    ares_device *d = m->device;
    ares_ticket last = 0;
    if (!adds_rounds(m)) return;
    ares_model_join_embed_grad(m);
    for (int i = 0; i < m->n_regions; i++) {
        const ares_region *r = &m->regions[i];
        if (r->round_sum)
            last =
                ares_group_sum_scatter(m->share.group, r->grad, r->round_sum, slice_of(m, r), true);
    }
    ares_group_join(m->share.group, last);
    for (int i = 0; i < m->n_regions; i++) {
        const ares_region *r = &m->regions[i];
        if (r->round_sum) d->k->zero(d, r->grad, (size_t)r->elements * sizeof(float));
    }
    if (of_look_up(m)) d->k->zero(d, m->embed_grad.data, (size_t)of_look_up(m) * sizeof(float));
}

void gradients_leave(ares_model *m, int region)
{
    if (in_parts(m)) leave(m, region);
}

void gradients_begin_look_up(ares_model *m)
{
    int r = m->embed->region;
    if (!in_parts(m)) return;
    /* of a tied model the head's is there, and stays apart until both are complete */
    if (m->regions[r].grad) m->embed_grad.data = take(m, m->n_regions, m->embed->elements);
    else ares_region_grad(m, r);
}

void gradients_end_look_up(ares_model *m)
{
    int r = m->embed->region;
    if (!in_parts(m)) return;
    grad_slot *apart = grad_slot_of(m, m->n_regions);
    if (apart) {
        m->device->k->add(m->device, m->regions[r].grad, apart->memory, m->embed->elements);
        apart->of = NOBODY;
    }
    leave(m, r);
}

/*
 * Optimizer states in host memory: AdamW finds them on the device stretch by stretch, in one of two
 * windows, while the next stretch comes to the other (docs/design.md#weights-in-host-memory).
 */

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

/* Begins to copy the states of a stretch to the window of this turn. */
static void bring_states(ares_model *m, int region, int64_t first)
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
    if (!last && (w->region != region || w->first != first)) bring_states(m, region, first);
    if (!last && m->device->k->brought) m->device->k->brought(m->device);
    /* `brought` need not wait for it, and what comes next takes its window */
    void *of[KINDS] = { written.m, written.v, written.master };
    for (int i = 0; i < KINDS && written.n; i++)
        if (of[i])
            m->device->k->store(m->device, home(r, written.first, i), of[i],
                                array_bytes(r, written.n));
    if (last) return false;
    *s = (ares_states){ .first = first, .n = stretch(r, first) };
    s->m = place(w, w->turn, r, first, 0);
    s->v = place(w, w->turn, r, first, 1);
    s->master = r->master ? place(w, w->turn, r, first, 2) : NULL;
    w->turn++;
    w->region = -1;
    first += s->n; /* what comes next, of the next region where this one ends */
    if (first < r->own) bring_states(m, region, first);
    else if (region + 1 < m->n_regions) bring_states(m, region + 1, 0);
    return true;
}
/* The master of a weight begins as the weight. */
static void begin_master(ares_model *m, int region)
{
    ares_device *d = m->device;
    const ares_region *r = &m->regions[region];
    bool apart = !r->own_weights; /* on the host */
    ares_states s = { 0 };
    if (apart) ares_region_load_own(m, region);
    while (ares_states_next(m, region, &s)) {
        const char *from =
            (const char *)r->own_weights + (size_t)s.first * ares_dtype_bytes(r->dtype);
        d->k->convert(d, s.master, ARES_F32, from, r->dtype, s.n);
    }
    if (apart) ares_region_unload(m, region);
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
    if (host) {
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
    }
    m->states = host ? d->k->alloc_host(d, bytes) : d->k->alloc(d, bytes);
    m->states_bytes = m->states ? bytes : 0;
    if (!m->states) return ares_device_full(d, "model", "optimizer states", bytes, host, NULL);
    char *s = m->states;
    for (int i = 0; i < m->n_regions; i++) {
        ares_region *r = &m->regions[i];
        size_t one = array_bytes(r, r->own);
        r->m = s;
        r->v = s + one;
        r->master = has_master(r) ? s + 2 * one : NULL;
        s += (has_master(r) ? 3 : 2) * one;
    }
    for (int i = 0; i < m->n_regions && of_short == ARES_F32; i++)
        if (m->regions[i].master) begin_master(m, i);
    return d->k->sync(d);
}

/*
 * Where parameters lie: the matrices of the embedding, of each block and of the head are a flat
 * array each, the norms and biases of the whole model are one more. Weights, gradients and
 * optimizer states have the same layout, so that what is elementwise (AdamW, sums over ranks) and
 * the gradient's norm visit regions, not parameters.
 */

/* In elements: 256 bytes of 16-bit numbers, so a parameter starts on its own cache lines. */
enum { ALIGN = 128 };

static int64_t rounded_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* For messages: AdamW names the region whose gradient is not finite. */
static void name_regions(ares_model *m)
{
    int n = 0;
    snprintf(m->regions[n++].name, sizeof m->regions->name, "the embedding");
    for (int i = 0; i < m->cfg.layers; i++)
        snprintf(m->regions[n++].name, sizeof m->regions->name, "block %d", i);
    if (!m->cfg.tied) snprintf(m->regions[n++].name, sizeof m->regions->name, "the head");
    if (m->value) snprintf(m->regions[n++].name, sizeof m->regions->name, "the value head");
    snprintf(m->regions[m->n_regions - 1].name, sizeof m->regions->name, "norms and biases");
    if (m->n_frozen)
        snprintf(m->regions[regions_count(m) - 1].name, sizeof m->regions->name,
                 "the tower's norms and biases");
    if (!m->tower.patches) return;
    n = m->tower.patches->region;
    snprintf(m->regions[n++].name, sizeof m->regions->name, "patches and merger");
    for (int i = 0; i < m->cfg.vision.depth; i++)
        snprintf(m->regions[n++].name, sizeof m->regions->name, "vision block %d", i);
}

int regions_count(const ares_model *m)
{
    return m->n_regions + m->n_frozen;
}

int ares_model_shards(const ares_model *m)
{
    const ares_model_share *s = &m->share;
    return s->group && s->how != ARES_SHARE_NONE ? ares_group_size(s->group) : 1;
}

int ares_model_ranks(const ares_model *m)
{
    return ares_group_size(m->share.group) * ares_group_size(m->share.replicas);
}

int ares_model_sync(const ares_model *m)
{
    const ares_model_share *s = &m->share;
    int rc = s->group ? ares_group_sync(s->group) : m->device->k->sync(m->device);
    int across = s->replicas ? ares_group_sync(s->replicas) : ARES_OK;
    return rc == ARES_OK ? across : rc;
}

/*
 * Parts are equal, and a chunk of the gradient's norm lies in one of them. Padding depends on the
 * number of ranks alone, whoever shares: replicas cut the part that they have among them, too.
 */
static void lay_out(ares_model *m)
{
    int64_t shards = ares_model_shards(m), padded = ares_model_ranks(m) * ARES_SUM_CHUNK;
    m->regions = ares_calloc((size_t)regions_count(m), sizeof *m->regions);
    name_regions(m);
    for (int i = 0; i < m->n_params; i++) {
        ares_param *p = &m->params[i];
        ares_region *r = &m->regions[p->region];
        if (!p->adjacent) r->elements = rounded_up(r->elements, ALIGN);
        p->at = r->elements;
        r->elements += p->elements;
        r->dtype = p->weight.dtype;
        r->decay = p->rank > 1;
    }
    for (int i = 0; i < regions_count(m); i++) {
        ares_region *r = &m->regions[i];
        r->in_parts = r->decay && m->share.how == ARES_SHARE_ALL && !region_of_tower(m, i);
        r->elements = rounded_up(r->elements, r->decay ? padded : ALIGN);
        r->own = r->elements;
        if (!r->decay || shards == 1) continue;
        r->own = r->elements / shards;
        r->own_first = r->own * ares_group_rank(m->share.group);
    }
}

int64_t ares_region_chunks(const ares_region *r)
{
    return (r->elements + ARES_SUM_CHUNK - 1) / ARES_SUM_CHUNK;
}

/* Norms and biases stay on the device: whoever computes reads them. */
static bool on_host(const ares_model *m, const ares_region *r)
{
    return m->share.weights_on_host && r->decay;
}

/* Products read biases in the type of activations. */
static bool has_act(const ares_model *m, const ares_region *r)
{
    return !r->decay && m->device->k->act != ARES_F32;
}

/* Divides the arenas among regions, and those among their parameters. */
void regions_give_memory(ares_model *m)
{
    char *w = m->weights, *host = m->host_weights;
    for (int i = 0; i < regions_count(m); i++) {
        ares_region *r = &m->regions[i];
        size_t each = ares_dtype_bytes(r->dtype);
        if (on_host(m, r)) {
            r->host = host;
            host += kept_bytes(r);
        } else if (region_apart(r)) {
            r->own_weights = w;
            w += (size_t)r->own * each;
        } else {
            r->weights = w;
            r->own_weights = w + (size_t)r->own_first * each;
            w += (size_t)r->elements * each;
        }
    }
    for (int i = 0; i < regions_count(m); i++)
        if (has_act(m, &m->regions[i])) {
            m->regions[i].act = w;
            w += (size_t)m->regions[i].elements * sizeof(uint16_t);
        }
    for (int i = 0; i < m->n_params; i++) {
        ares_param *p = &m->params[i];
        const ares_region *r = &m->regions[p->region];
        if (r->weights)
            p->weight.data = (char *)r->weights + (size_t)p->at * ares_dtype_bytes(r->dtype);
        if (p->rank == 1) p->act = r->act ? (uint16_t *)r->act + p->at : p->weight.data;
    }
}

int regions_allocate(ares_model *m, bool trainable)
{
    ares_device *d = m->device;
    bool all = m->share.how == ARES_SHARE_ALL;
    int64_t gradients = 0; /* elements */
    ARES_ASSERT(!all || m->share.group);
    m->trainable = trainable;
    lay_out(m);
    for (int i = 0; i < regions_count(m); i++) {
        ares_region *r = &m->regions[i];
        *(on_host(m, r) ? &m->host_weights_bytes : &m->weights_bytes) += kept_bytes(r);
        if (has_act(m, r)) m->weights_bytes += (size_t)r->elements * sizeof(uint16_t);
        if (i >= m->n_regions || !trainable) continue;
        m->n_squares += ares_region_chunks(r);
        gradients += kept(r) + (sums_rounds(m, r) ? slice_of(m, r) : 0);
    }
    if (trainable) {
        gradients += of_look_up(m) + (all ? GRAD_SLOTS * largest(m) : 0);
        m->grads_bytes = (size_t)gradients * sizeof(float);
    }
    if (m->slice) return ARES_OK; /* ares_model_slice_take */
    m->weights = d->k->alloc(d, m->weights_bytes);
    if (trainable) m->grad_squares = d->k->alloc(d, (size_t)m->n_squares * sizeof(double));
    if (!m->weights || (trainable && !m->grad_squares))
        return ares_device_full(d, "model", "weights", m->weights_bytes, false, NULL);
    if (m->host_weights_bytes) m->host_weights = d->k->alloc_host(d, m->host_weights_bytes);
    if (m->host_weights_bytes && !m->host_weights)
        return ares_device_full(d, "model", "weights", m->host_weights_bytes, true, NULL);
    regions_give_memory(m);
    if (!m->host_weights && !all) return ARES_OK;
    struct ares_slots *s = m->slots = ares_calloc(1, sizeof *s);
    for (int i = 0; i < regions_count(m); i++) {
        const ares_region *r = &m->regions[i];
        if (region_apart(r))
            s->bytes = ARES_MAX(s->bytes, (size_t)r->elements * ares_dtype_bytes(r->dtype));
    }
    for (int i = 0; i < WEIGHT_SLOTS; i++) {
        s->slot[i] = (weight_slot){ .memory = d->k->alloc(d, s->bytes), .region = -1 };
        if (!s->slot[i].memory)
            return ares_device_full(d, "model", "weights that come region by region", s->bytes,
                                    false, NULL);
    }
    return ARES_OK;
}

void regions_release(ares_model *m)
{
    ares_device *d = m->device;
    if (m->slots) {
        arrive(m); /* before its memory is anybody else's */
        for (int i = 0; i < WEIGHT_SLOTS; i++)
            d->k->release(d, m->slots->slot[i].memory, m->slots->bytes);
        ares_free(m->slots);
    }
    ares_phase_give_back(d, &m->of_training);
    ares_free(m->grad_slots);
    d->k->release_host(d, m->host_weights, m->host_weights_bytes);
    if (m->slice) ares_phase_give_back(d, &m->of_rollout);
    else d->k->release(d, m->weights, m->weights_bytes);
    d->k->release(d, m->grad_squares, (size_t)m->n_squares * sizeof(double));
    for (int i = 0; i < WINDOWS && m->windows; i++)
        d->k->release(d, m->windows->memory[i], m->windows->bytes);
    if (m->windows) d->k->release_host(d, m->states, m->states_bytes);
    else d->k->release(d, m->states, m->states_bytes);
    ares_free(m->windows);
    ares_free(m->regions);
}

int regions_refresh(ares_model *m)
{
    ares_device *d = m->device;
    for (int i = 0; i < WEIGHT_SLOTS && m->slots; i++) { /* what they hold is out of date */
        ARES_ASSERT(!m->slots->slot[i].holds);
        m->slots->slot[i].region = -1;
    }
    if (d->k->act == ARES_F32) return ARES_OK;
    for (int i = 0; i < regions_count(m); i++) {
        const ares_region *r = &m->regions[i];
        if (r->act) d->k->convert(d, r->act, d->k->act, r->weights, ARES_F32, r->elements);
    }
    return d->k->sync(d);
}
