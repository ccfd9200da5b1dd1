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
 * whose slot block i - 1 has left (docs/design.md#weights-in-host-memory). A block of which a part
 * is frozen is two regions and takes both slots, so that nothing comes ahead of it.
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

bool ares_params_by_region(const ares_params *ps)
{
    return ps->slots != NULL;
}

static weight_slot *slot_of(const ares_params *ps, int r)
{
    for (int i = 0; i < WEIGHT_SLOTS; i++)
        if (ps->slots->slot[i].region == r) return &ps->slots->slot[i];
    return NULL;
}

/*
 * A slot that nobody holds, an empty one first; NULL: there is none. but: a region that shall stay
 * where it is; -1: none
 */
static weight_slot *free_slot(const ares_params *ps, int but)
{
    weight_slot *found = slot_of(ps, -1);
    for (int i = 0; i < WEIGHT_SLOTS && !found; i++) {
        weight_slot *s = &ps->slots->slot[i];
        if (!s->holds && s->region != but) found = s;
    }
    return found;
}

/* This rank's part of a region, in a slot. */
static char *own_place(const weight_slot *s, const ares_region *r)
{
    return (char *)s->memory + (size_t)r->own_first * ares_dtype_bytes(r->dtype);
}

static void bring(ares_params *ps, const weight_slot *s, const ares_region *from)
{
    void *to = from->in_parts ? own_place(s, from) : s->memory;
    ps->device->k->bring(ps->device, to, from->host, kept_bytes(from));
}

static void brought(ares_params *ps)
{
    if (ps->device->k->brought) ps->device->k->brought(ps->device);
}

/* What is launched from here on finds all slots filled. */
static void arrive(ares_params *ps)
{
    bool whole = false;
    for (int i = 0; i < WEIGHT_SLOTS; i++) {
        weight_slot *s = &ps->slots->slot[i];
        if (!s->on_its_way) continue;
        if (ps->regions[s->region].in_parts) ares_group_join(ps->share.group, s->ticket);
        else whole = true;
        s->on_its_way = false;
    }
    if (whole) brought(ps);
}

static void begin_fill(ares_params *ps, weight_slot *s, int r)
{
    const ares_region *from = &ps->regions[r];
    if (s->on_its_way) arrive(ps); /* for nobody; from the ranks and from the host in any order */
    s->region = r;
    s->on_its_way = true;
    if (from->host) bring(ps, s, from);
    if (!from->in_parts) return;
    const void *mine = from->host ? own_place(s, from) : from->own_weights;
    if (from->host) brought(ps); /* before the others read it */
    s->ticket = ares_group_gather(ps->share.group, mine, s->memory, kept_bytes(from));
}
/* Sets the pointers of a region and its parameters; NULL: the weights have left the device. */
static void point_at(ares_params *ps, int r, void *weights)
{
    size_t each = ares_dtype_bytes(ps->regions[r].dtype);
    ps->regions[r].weights = weights;
    if (!ps->regions[r].in_parts || ps->regions[r].host) /* otherwise its part stays where it is */
        ps->regions[r].own_weights =
            weights ? (char *)weights + (size_t)ps->regions[r].own_first * each : NULL;
    for (int i = 0; i < ps->n; i++)
        if (ps->list[i].region == r)
            ps->list[i].weight.data =
                weights ? (char *)weights + (size_t)ps->list[i].at * each : NULL;
}

static void prefetch_but(ares_params *ps, int r, int but)
{
    if (!region_apart(&ps->regions[r]) || slot_of(ps, r)) return;
    weight_slot *s = free_slot(ps, but);
    if (s) begin_fill(ps, s, r);
}

void region_prefetch(ares_params *ps, int r)
{
    prefetch_but(ps, r, -1);
}

void ares_region_load(ares_params *ps, int r)
{
    if (!region_apart(&ps->regions[r])) return;
    weight_slot *s = slot_of(ps, r);
    if (!s) {
        s = free_slot(ps, -1);
        ARES_ASSERT(s); /* a pass holds one block at a time */
        begin_fill(ps, s, r);
    }
    if (s->on_its_way) arrive(ps);
    if (s->holds++ == 0) point_at(ps, r, s->memory);
}

void ares_region_load_own(ares_params *ps, int r)
{
    const ares_region *from = &ps->regions[r];
    if (!from->in_parts || !from->host || slot_of(ps, r)) {
        ares_region_load(ps, r);
        return;
    }
    weight_slot *s = free_slot(ps, -1);
    ARES_ASSERT(s);
    if (s->on_its_way) arrive(ps); /* for nobody */
    bring(ps, s, from);
    brought(ps);
    s->region = r;
    s->holds = 1;
    point_at(ps, r, s->memory);
}

void block_load(ares_params *ps, const ares_block_regions *in)
{
    if (in->trained >= 0) ares_region_load(ps, in->trained);
    if (in->frozen >= 0) ares_region_load(ps, in->frozen);
}

void block_prefetch(ares_params *ps, const ares_block_regions *in)
{
    if (in->trained >= 0) region_prefetch(ps, in->trained);
    if (in->frozen >= 0) prefetch_but(ps, in->frozen, in->trained);
}

void block_unload(ares_params *ps, const ares_block_regions *in)
{
    if (in->trained >= 0) ares_region_unload(ps, in->trained);
    if (in->frozen >= 0) ares_region_unload(ps, in->frozen);
}

void ares_region_unload(ares_params *ps, int r)
{
    if (!region_apart(&ps->regions[r])) return;
    weight_slot *s = slot_of(ps, r);
    ARES_ASSERT(s && s->holds > 0);
    if (--s->holds) return;
    s->region = -1;
    point_at(ps, r, NULL);
}

void ares_region_store(ares_params *ps, int r)
{
    const ares_region *to = &ps->regions[r];
    weight_slot *ahead = ps->slots ? slot_of(ps, r) : NULL;
    if (ahead && !ahead->holds) ahead->region = -1;
    if (to->host)
        ps->device->k->store(ps->device, to->host, to->in_parts ? to->own_weights : to->weights,
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
    int of; /* a region, ps->n_regions: a look-up apart from the head, or NOBODY */
    ares_ticket leaving;
} grad_slot;

struct ares_grad_slots {
    grad_slot slot[GRAD_SLOTS];
};

/* Elements of the largest region whose gradient comes and goes. */
static int64_t largest(const ares_params *ps)
{
    int64_t n = 0;
    for (int i = 0; i < ps->n_regions; i++)
        if (ps->regions[i].in_parts) n = ARES_MAX(n, ps->regions[i].elements);
    return n;
}

/* Whether whole gradients of matrices are there only during their backward. */
static bool in_parts(const ares_params *ps)
{
    return ps->share.how == ARES_SHARE_ALL;
}

/* Whether sums of rounds have memory of their own: a rank alone goes on with one chain. */
static bool adds_rounds(const ares_params *ps)
{
    return ps->share.by_round && !in_parts(ps) && ares_group_size(ps->share.group) > 1;
}

/* Norms, biases and a tower's matrices are one chain over all rounds. */
static bool sums_rounds(const ares_params *ps, const ares_region *r)
{
    return adds_rounds(ps) && r->decay && !r->tower;
}

bool region_trained(const ares_params *ps, int r)
{
    return ps->trainable && r < ps->n_regions;
}

/* Elements of a matrix that one rank adds up for its group. */
static int64_t slice_of(const ares_params *ps, const ares_region *r)
{
    return r->elements / ares_group_size(ps->share.group);
}

/* Elements of the look-up's own gradient, which a tied head's takes in once per step; 0: none. */
static int64_t of_look_up(const ares_params *ps)
{
    bool apart = ps->tied && !in_parts(ps) && region_trained(ps, ps->embed->region);
    return apart ? ps->embed->elements : 0;
}

/* Sets the pointers of a region and its parameters; grad NULL: the gradient has no place now. */
static void point_grads_at(ares_params *ps, int r, float *grad)
{
    ps->regions[r].grad = grad;
    for (int i = 0; i < ps->n; i++)
        if (ps->list[i].region == r) ps->list[i].grad.data = grad ? grad + ps->list[i].at : NULL;
    if (ps->embed && r == ps->embed->region && (!ps->tied || in_parts(ps)))
        ps->embed_grad.data = ps->embed->grad.data;
}

/* Divides the arena among regions. */
static void give_memory(ares_params *ps)
{
    float *g = ps->grads;
    if (ps->embed) ps->embed_grad = ps->embed->grad;
    for (int i = 0; i < ps->n_regions; i++) {
        ares_region *r = &ps->regions[i];
        r->own_grad = r->in_parts ? g : g + r->own_first;
        if (!r->in_parts) point_grads_at(ps, i, g);
        g += kept(r);
        if (!sums_rounds(ps, r)) continue;
        r->round_sum = g;
        if (ps->share.how == ARES_SHARE_STATES) r->own_grad = g;
        g += slice_of(ps, r);
    }
    if (of_look_up(ps)) ps->embed_grad.data = g;
    if (!in_parts(ps)) return;
    if (!ps->grad_slots) ps->grad_slots = ares_calloc(1, sizeof *ps->grad_slots);
    for (int i = 0; i < GRAD_SLOTS; i++)
        ps->grad_slots->slot[i] = (grad_slot){ .memory = g + i * largest(ps), .of = NOBODY };
}
static grad_slot *grad_slot_of(const ares_params *ps, int of)
{
    grad_slot *s = ps->grad_slots->slot, *end = s + GRAD_SLOTS;
    while (s < end && s->of != of) s++;
    return s < end ? s : NULL;
}

/* Zeroed memory for so many elements; of two free slots the one that has waited longer. */
static float *take(ares_params *ps, int of, int64_t elements)
{
    grad_slot *found = NULL;
    for (int i = 0; i < GRAD_SLOTS; i++) {
        grad_slot *s = &ps->grad_slots->slot[i];
        if (s->of == NOBODY && (!found || s->leaving < found->leaving)) found = s;
    }
    ARES_ASSERT(found); /* at most the head's and one more are there at once */
    ares_group_join(ps->share.group, found->leaving);
    ps->device->k->zero(ps->device, found->memory, (size_t)elements * sizeof(float));
    found->of = of;
    return found->memory;
}

void ares_region_grad(ares_params *ps, int r)
{
    if (!region_trained(ps, r) || ps->regions[r].grad) return;
    point_grads_at(ps, r, take(ps, r, ps->regions[r].elements));
}

int ares_params_zero_grad(ares_params *ps)
{
    size_t bytes = ps->grads_bytes;
    ARES_ASSERT(ps->trainable);
    if (!ares_phase_holds(ps->device, &ps->of_training)) {
        ps->grads = ares_phase_take(ps->device, ARES_PHASE_TRAIN, &ps->of_training, bytes);
        if (!ps->grads)
            return ares_device_full(ps->device, "model", "gradients", bytes, false, NULL);
        give_memory(ps);
    }
    if (ps->grad_slots) bytes = (size_t)(ps->grad_slots->slot[0].memory - (float *)ps->grads) * 4;
    ps->device->k->zero(ps->device, ps->grads, bytes);
    for (int i = 0; i < GRAD_SLOTS && ps->grad_slots; i++) { /* of a pass that went no further */
        grad_slot *s = &ps->grad_slots->slot[i];
        if (s->of != NOBODY && s->of < ps->n_regions) point_grads_at(ps, s->of, NULL);
        s->of = NOBODY;
    }
    return ARES_OK;
}

void ares_params_join_embed_grad(ares_params *ps)
{
    if (of_look_up(ps))
        ps->device->k->add(ps->device, ps->embed->grad.data, ps->embed_grad.data,
                           ps->embed->elements);
}

/* The whole gradient goes to the ranks that own its parts, and its slot is free. */
static void leave(ares_params *ps, int region)
{
    ares_region *r = &ps->regions[region];
    grad_slot *s = grad_slot_of(ps, region);
    if (!s) return; /* it has left */
    s->leaving = ares_group_sum_scatter(ps->share.group, r->grad, r->own_grad, r->own, true);
    s->of = NOBODY;
    point_grads_at(ps, region, NULL);
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

void ares_region_sum(ares_params *ps, int region)
{
    const ares_region *r = &ps->regions[region];
    const ares_model_share *s = &ps->share;
    ares_group *g = s->group;
    if (!g) return;
    if (!r->decay) {
        sum_small(g, r->grad, r->elements);
        sum_small(s->replicas, r->grad, r->elements);
        return;
    }
    /* first inside the group, unless rounds have summed it already, then over the replicas */
    if (r->in_parts) {
        leave(ps, region);
        for (int i = 0; i < GRAD_SLOTS; i++) ares_group_join(g, ps->grad_slots->slot[i].leaving);
    } else if (r->round_sum) {
        if (s->how == ARES_SHARE_NONE)
            ares_group_join(g, ares_group_gather(g, r->round_sum, r->grad,
                                                 (size_t)slice_of(ps, r) * sizeof(float)));
    } else if (s->how == ARES_SHARE_NONE) sum_everywhere(g, r->grad, r->elements);
    else ares_group_join(g, ares_group_sum_scatter(g, r->grad, r->own_grad, r->own, false));
    sum_everywhere(s->replicas, r->own_grad, r->own);
}

void ares_params_end_round(ares_params *ps)
{
    ares_device *d = ps->device;
    ares_ticket last = 0;
    if (!adds_rounds(ps)) return;
    ares_params_join_embed_grad(ps);
    for (int i = 0; i < ps->n_regions; i++) {
        const ares_region *r = &ps->regions[i];
        if (r->round_sum)
            last = ares_group_sum_scatter(ps->share.group, r->grad, r->round_sum, slice_of(ps, r),
                                          true);
    }
    ares_group_join(ps->share.group, last);
    for (int i = 0; i < ps->n_regions; i++) {
        const ares_region *r = &ps->regions[i];
        if (r->round_sum) d->k->zero(d, r->grad, (size_t)r->elements * sizeof(float));
    }
    if (of_look_up(ps)) d->k->zero(d, ps->embed_grad.data, (size_t)of_look_up(ps) * sizeof(float));
}

void gradients_leave(ares_params *ps, int region)
{
    if (in_parts(ps) && ps->trainable) leave(ps, region);
}

void gradients_begin_look_up(ares_params *ps)
{
    int r = ps->embed->region;
    if (!in_parts(ps)) return;
    /* of a tied model the head's is there, and stays apart until both are complete */
    if (ps->regions[r].grad) ps->embed_grad.data = take(ps, ps->n_regions, ps->embed->elements);
    else ares_region_grad(ps, r);
}

void gradients_end_look_up(ares_params *ps)
{
    int r = ps->embed->region;
    if (!in_parts(ps)) return;
    grad_slot *apart = grad_slot_of(ps, ps->n_regions);
    if (apart) {
        ps->device->k->add(ps->device, ps->regions[r].grad, apart->memory, ps->embed->elements);
        apart->of = NOBODY;
    }
    leave(ps, r);
}

/*
 * Optimizer states in host memory: AdamW finds them on the device stretch by stretch, in one of two
 * windows, while the next stretch comes to the other (docs/design.md#weights-in-host-memory).
 */

enum {
    WINDOWS = 2,
    STRETCH = 1 << 21, /* elements: copies of 8 MB hide what beginning one costs */
    KINDS = 3          /* ps, v, master */
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
static void bring_states(ares_params *ps, int region, int64_t first)
{
    struct ares_windows *w = ps->windows;
    const ares_region *r = &ps->regions[region];
    for (int i = 0; i < KINDS; i++)
        if (home(r, first, i))
            ps->device->k->bring(ps->device, place(w, w->turn, r, first, i), home(r, first, i),
                                 array_bytes(r, stretch(r, first)));
    w->region = region;
    w->first = first;
}

bool ares_states_next(ares_params *ps, int region, ares_states *s)
{
    const ares_region *r = &ps->regions[region];
    struct ares_windows *w = ps->windows;
    int64_t first = s->first + s->n;
    if (!r->own) return false; /* an adapter has no norms and biases */
    if (!w) {
        *s = (ares_states){ 0, r->own, r->master, r->m, r->v };
        return first == 0;
    }
    ares_states written = *s;
    bool last = first == r->own;
    if (!last && (w->region != region || w->first != first)) bring_states(ps, region, first);
    if (!last && ps->device->k->brought) ps->device->k->brought(ps->device);
    /* `brought` need not wait for it, and what comes next takes its window */
    void *of[KINDS] = { written.m, written.v, written.master };
    for (int i = 0; i < KINDS && written.n; i++)
        if (of[i])
            ps->device->k->store(ps->device, home(r, written.first, i), of[i],
                                 array_bytes(r, written.n));
    if (last) return false;
    *s = (ares_states){ .first = first, .n = stretch(r, first) };
    s->m = place(w, w->turn, r, first, 0);
    s->v = place(w, w->turn, r, first, 1);
    s->master = r->master ? place(w, w->turn, r, first, 2) : NULL;
    w->turn++;
    w->region = -1;
    first += s->n; /* what comes next, of the next region where this one ends */
    if (first < r->own) bring_states(ps, region, first);
    else if (region + 1 < ps->n_regions) bring_states(ps, region + 1, 0);
    return true;
}
/* The master of a weight begins as the weight. */
static void begin_master(ares_params *ps, int region)
{
    ares_device *d = ps->device;
    const ares_region *r = &ps->regions[region];
    bool apart = !r->own_weights; /* on the host */
    ares_states s = { 0 };
    if (apart) ares_region_load_own(ps, region);
    while (ares_states_next(ps, region, &s)) {
        const char *from =
            (const char *)r->own_weights + (size_t)s.first * ares_dtype_bytes(r->dtype);
        d->k->convert(d, s.master, ARES_F32, from, r->dtype, s.n);
    }
    if (apart) ares_region_unload(ps, region);
}

int ares_params_optimizer_alloc(ares_params *ps, ares_dtype of_short)
{
    ares_device *d = ps->device;
    bool host = ps->share.states_on_host;
    ARES_ASSERT(ps->trainable && !ps->states && of_short != ARES_F16);
    size_t bytes = 0;
    for (int i = 0; i < ps->n_regions; i++) {
        ares_region *r = &ps->regions[i];
        r->states = has_master(r) ? of_short : ARES_F32;
        bytes += array_bytes(r, r->own) * (has_master(r) ? 3 : 2);
    }
    if (host) {
        struct ares_windows *w = ps->windows = ares_calloc(1, sizeof *w);
        w->region = -1;
        for (int i = 0; i < ps->n_regions; i++) {
            const ares_region *r = &ps->regions[i];
            w->bytes = ARES_MAX(w->bytes, KINDS * array_bytes(r, stretch(r, 0)));
        }
        for (int i = 0; i < WINDOWS; i++)
            if (!(w->memory[i] = d->k->alloc(d, w->bytes)))
                return ares_device_full(d, "model", "optimizer states that come piece by piece",
                                        w->bytes, false, NULL);
    }
    ps->states = host ? d->k->alloc_host(d, bytes) : d->k->alloc(d, bytes);
    ps->states_bytes = ps->states ? bytes : 0;
    if (!ps->states) return ares_device_full(d, "model", "optimizer states", bytes, host, NULL);
    char *s = ps->states;
    for (int i = 0; i < ps->n_regions; i++) {
        ares_region *r = &ps->regions[i];
        size_t one = array_bytes(r, r->own);
        r->m = s;
        r->v = s + one;
        r->master = has_master(r) ? s + 2 * one : NULL;
        s += (has_master(r) ? 3 : 2) * one;
    }
    for (int i = 0; i < ps->n_regions && of_short == ARES_F32; i++)
        if (ps->regions[i].master) begin_master(ps, i);
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

int regions_count(const ares_params *ps)
{
    return ps->n_regions + ps->n_frozen;
}

int ares_params_shards(const ares_params *ps)
{
    const ares_model_share *s = &ps->share;
    return s->group && s->how != ARES_SHARE_NONE ? ares_group_size(s->group) : 1;
}

int ares_params_ranks(const ares_params *ps)
{
    return ares_group_size(ps->share.group) * ares_group_size(ps->share.replicas);
}

int ares_params_sync(const ares_params *ps)
{
    const ares_model_share *s = &ps->share;
    int rc = s->group ? ares_group_sync(s->group) : ps->device->k->sync(ps->device);
    int across = s->replicas ? ares_group_sync(s->replicas) : ARES_OK;
    return rc == ARES_OK ? across : rc;
}

/*
 * Parts are equal, and a chunk of the gradient's norm lies in one of them. Padding depends on the
 * number of ranks alone, whoever shares: replicas cut the part that they have among them, too.
 */
static void lay_out(ares_params *ps)
{
    int64_t shards = ares_params_shards(ps), padded = ares_params_ranks(ps) * ARES_SUM_CHUNK;
    for (int i = 0; i < ps->n; i++) {
        ares_param *p = &ps->list[i];
        ares_region *r = &ps->regions[p->region];
        if (!p->adjacent) r->elements = rounded_up(r->elements, ALIGN);
        p->at = r->elements;
        r->elements += p->elements;
        r->dtype = p->weight.dtype;
        r->decay = p->rank > 1;
    }
    for (int i = 0; i < regions_count(ps); i++) {
        ares_region *r = &ps->regions[i];
        r->in_parts = r->decay && ps->share.how == ARES_SHARE_ALL && !r->tower;
        r->elements = rounded_up(r->elements, r->decay ? padded : ALIGN);
        r->own = r->elements;
        if (!r->decay || shards == 1) continue;
        r->own = r->elements / shards;
        r->own_first = r->own * ares_group_rank(ps->share.group);
    }
}

int64_t ares_region_chunks(const ares_region *r)
{
    return (r->elements + ARES_SUM_CHUNK - 1) / ARES_SUM_CHUNK;
}

/* Norms and biases stay on the device: whoever computes reads them. */
static bool on_host(const ares_params *ps, const ares_region *r)
{
    return ps->share.weights_on_host && r->decay;
}

/* Products read biases in the type of activations. */
static bool has_act(const ares_params *ps, const ares_region *r)
{
    return !r->decay && ps->device->k->act != ARES_F32;
}

/* Divides the arenas among regions, and those among their parameters. */
void regions_give_memory(ares_params *ps)
{
    char *w = ps->weights, *host = ps->host_weights;
    for (int i = 0; i < regions_count(ps); i++) {
        ares_region *r = &ps->regions[i];
        size_t each = ares_dtype_bytes(r->dtype);
        if (on_host(ps, r)) {
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
    for (int i = 0; i < regions_count(ps); i++)
        if (has_act(ps, &ps->regions[i])) {
            ps->regions[i].act = w;
            w += (size_t)ps->regions[i].elements * sizeof(uint16_t);
        }
    for (int i = 0; i < ps->n; i++) {
        ares_param *p = &ps->list[i];
        const ares_region *r = &ps->regions[p->region];
        if (r->weights)
            p->weight.data = (char *)r->weights + (size_t)p->at * ares_dtype_bytes(r->dtype);
        if (p->rank == 1) p->act = r->act ? (uint16_t *)r->act + p->at : p->weight.data;
    }
}

int regions_allocate(ares_params *ps, bool trainable)
{
    ares_device *d = ps->device;
    bool all = ps->share.how == ARES_SHARE_ALL;
    int64_t gradients = 0; /* elements */
    ARES_ASSERT(!all || ps->share.group);
    ps->trainable = trainable;
    lay_out(ps);
    for (int i = 0; i < regions_count(ps); i++) {
        ares_region *r = &ps->regions[i];
        *(on_host(ps, r) ? &ps->host_weights_bytes : &ps->weights_bytes) += kept_bytes(r);
        if (has_act(ps, r)) ps->weights_bytes += (size_t)r->elements * sizeof(uint16_t);
        if (i >= ps->n_regions || !trainable) continue;
        ps->n_squares += ares_region_chunks(r);
        gradients += kept(r) + (sums_rounds(ps, r) ? slice_of(ps, r) : 0);
    }
    if (trainable) {
        gradients += of_look_up(ps) + (all ? GRAD_SLOTS * largest(ps) : 0);
        ps->grads_bytes = (size_t)gradients * sizeof(float);
    }
    if (ps->slice) return ARES_OK; /* ares_model_slice_take */
    ps->weights = d->k->alloc(d, ps->weights_bytes);
    if (trainable) ps->grad_squares = d->k->alloc(d, (size_t)ps->n_squares * sizeof(double));
    if (!ps->weights || (trainable && !ps->grad_squares))
        return ares_device_full(d, "model", "weights", ps->weights_bytes, false, NULL);
    if (ps->host_weights_bytes) ps->host_weights = d->k->alloc_host(d, ps->host_weights_bytes);
    if (ps->host_weights_bytes && !ps->host_weights)
        return ares_device_full(d, "model", "weights", ps->host_weights_bytes, true, NULL);
    regions_give_memory(ps);
    if (!ps->host_weights && !all) return ARES_OK;
    struct ares_slots *s = ps->slots = ares_calloc(1, sizeof *s);
    for (int i = 0; i < regions_count(ps); i++) {
        const ares_region *r = &ps->regions[i];
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

void regions_release(ares_params *ps)
{
    ares_device *d = ps->device;
    if (ps->slots) {
        arrive(ps); /* before its memory is anybody else's */
        for (int i = 0; i < WEIGHT_SLOTS; i++)
            d->k->release(d, ps->slots->slot[i].memory, ps->slots->bytes);
        ares_free(ps->slots);
    }
    ares_phase_give_back(d, &ps->of_training);
    ares_free(ps->grad_slots);
    d->k->release_host(d, ps->host_weights, ps->host_weights_bytes);
    if (ps->slice) ares_phase_give_back(d, &ps->of_rollout);
    else d->k->release(d, ps->weights, ps->weights_bytes);
    d->k->release(d, ps->grad_squares, (size_t)ps->n_squares * sizeof(double));
    for (int i = 0; i < WINDOWS && ps->windows; i++)
        d->k->release(d, ps->windows->memory[i], ps->windows->bytes);
    if (ps->windows) d->k->release_host(d, ps->states, ps->states_bytes);
    else d->k->release(d, ps->states, ps->states_bytes);
    ares_free(ps->windows);
    ares_free(ps->regions);
}

int regions_refresh(ares_params *ps)
{
    ares_device *d = ps->device;
    for (int i = 0; i < WEIGHT_SLOTS && ps->slots; i++) { /* what they hold is out of date */
        ARES_ASSERT(!ps->slots->slot[i].holds);
        ps->slots->slot[i].region = -1;
    }
    if (d->k->act == ARES_F32) return ARES_OK;
    for (int i = 0; i < regions_count(ps); i++) {
        const ares_region *r = &ps->regions[i];
        if (r->act) d->k->convert(d, r->act, d->k->act, r->weights, ARES_F32, r->elements);
    }
    return d->k->sync(d);
}
