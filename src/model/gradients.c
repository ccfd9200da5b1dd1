/*
 * Gradients of a pass. Where ranks keep their own parts of the weights alone, so they do of the
 * gradients: a region's whole gradient is there from the beginning of its backward until the ranks
 * have added it, in one of two slots as large as the largest region. While one region's leaves, the
 * next one's is computed in the other (docs/ranks.md#sharing).
 */
#include "region.h"

#include "ares/kernels_phases.h"

enum { SLOTS = 2, NOBODY = -1 };

typedef struct slot {
    float *memory;
    int of; /* a region, m->n_regions: a look-up apart from the head, or NOBODY */
    ares_ticket leaving;
} slot;

struct ares_grad_slots {
    slot slot[SLOTS];
};

static int64_t largest(const ares_model *m)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_regions; i++)
        if (m->regions[i].in_parts) n = ARES_MAX(n, m->regions[i].elements);
    return n;
}

/* Whether whole gradients of matrices come and go. */
static bool in_parts(const ares_model *m)
{
    return m->share.how == ARES_SHARE_ALL;
}

/* Whether sums of rounds have memory of their own: a rank alone goes on with one chain. */
static bool adds_rounds(const ares_model *m)
{
    return m->share.by_round && !in_parts(m) && ares_group_size(m->share.group) > 1;
}

/* Norms, biases and a tower's matrices are one chain over all rounds. */
static bool sums_rounds(const ares_model *m, const ares_region *r)
{
    return adds_rounds(m) && r->decay && !region_of_tower(m, (int)(r - m->regions));
}

/* Of a matrix, what a rank sums in its group. */
static int64_t slice_of(const ares_model *m, const ares_region *r)
{
    return r->elements / ares_group_size(m->share.group);
}

/* A tied look-up has a gradient of its own, which the head's takes in once per step. */
static int64_t of_look_up(const ares_model *m)
{
    return m->cfg.tied && !in_parts(m) ? m->embed->elements : 0;
}

int64_t gradients_elements(const ares_model *m)
{
    int64_t n = of_look_up(m) + (in_parts(m) ? SLOTS * largest(m) : 0);
    for (int i = 0; i < m->n_regions; i++) {
        const ares_region *r = &m->regions[i];
        n += r->in_parts ? r->own : r->elements;
        n += sums_rounds(m, r) ? slice_of(m, r) : 0;
    }
    return n;
}

/* grad NULL: nowhere */
static void point_at(ares_model *m, int r, float *grad)
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
        if (!r->in_parts) point_at(m, i, g);
        g += r->in_parts ? r->own : r->elements;
        if (!sums_rounds(m, r)) continue;
        r->round_sum = g;
        if (m->share.how == ARES_SHARE_STATES) r->own_grad = g;
        g += slice_of(m, r);
    }
    if (of_look_up(m)) m->embed_grad.data = g;
    if (!in_parts(m)) return;
    if (!m->grad_slots) m->grad_slots = ares_calloc(1, sizeof *m->grad_slots);
    for (int i = 0; i < SLOTS; i++)
        m->grad_slots->slot[i] = (slot){ .memory = g + i * largest(m), .of = NOBODY };
}

static int take_memory(ares_model *m)
{
    ares_device *d = m->device;
    if (ares_phase_holds(d, &m->of_training)) return ARES_OK;
    m->grads = ares_phase_take(d, ARES_PHASE_TRAIN, &m->of_training, m->grads_bytes);
    if (!m->grads) return ares_device_full(d, "model", "gradients", m->grads_bytes, false, NULL);
    give_memory(m);
    return ARES_OK;
}

void gradients_close(ares_model *m)
{
    ares_phase_give_back(m->device, &m->of_training);
    ares_free(m->grad_slots);
}

static slot *slot_of(const ares_model *m, int of)
{
    slot *s = m->grad_slots->slot, *end = s + SLOTS;
    while (s < end && s->of != of) s++;
    return s < end ? s : NULL;
}

/* Zeroed memory for so many elements; of two free slots the one that has waited longer. */
static float *take(ares_model *m, int of, int64_t elements)
{
    slot *found = NULL;
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &m->grad_slots->slot[i];
        if (s->of == NOBODY && (!found || s->leaving < found->leaving)) found = s;
    }
    ARES_ASSERT(found); /* of the head, and of what is at hand */
    ares_group_join(m->share.group, found->leaving);
    m->device->k->zero(m->device, found->memory, (size_t)elements * sizeof(float));
    found->of = of;
    return found->memory;
}

void ares_region_grad(ares_model *m, int r)
{
    if (!m->trainable || m->regions[r].grad) return;
    point_at(m, r, take(m, r, m->regions[r].elements));
}

int ares_model_zero_grad(ares_model *m)
{
    size_t bytes = m->grads_bytes;
    ARES_ASSERT(m->trainable);
    ARES_TRY(take_memory(m));
    if (m->grad_slots) bytes = (size_t)(m->grad_slots->slot[0].memory - (float *)m->grads) * 4;
    m->device->k->zero(m->device, m->grads, bytes);
    for (int i = 0; i < SLOTS && m->grad_slots; i++) { /* of a pass that went no further */
        slot *s = &m->grad_slots->slot[i];
        if (s->of != NOBODY && s->of < m->n_regions) point_at(m, s->of, NULL);
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
    slot *s = slot_of(m, region);
    if (!s) return; /* it has left */
    s->leaving = ares_group_sum_scatter(m->share.group, r->grad, r->own_grad, r->own, true);
    s->of = NOBODY;
    point_at(m, region, NULL);
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

static void sum_small(ares_group *g, float *x, int64_t n)
{
    if (ares_group_size(g) > 1) ares_group_join(g, ares_group_sum(g, x, n));
}

/* A matrix's gradient of all ranks of the group, where no round has summed it. */
static void sum_inside(ares_model *m, int region)
{
    const ares_region *r = &m->regions[region];
    ares_group *g = m->share.group;
    if (r->in_parts) {
        leave(m, region);
        for (int i = 0; i < SLOTS; i++) ares_group_join(g, m->grad_slots->slot[i].leaving);
    } else if (r->round_sum) {
        if (m->share.how == ARES_SHARE_NONE)
            ares_group_join(g, ares_group_gather(g, r->round_sum, r->grad,
                                                 (size_t)slice_of(m, r) * sizeof(float)));
    } else if (m->share.how == ARES_SHARE_NONE) sum_everywhere(g, r->grad, r->elements);
    else ares_group_join(g, ares_group_sum_scatter(g, r->grad, r->own_grad, r->own, false));
}

void ares_region_sum(ares_model *m, int region)
{
    const ares_region *r = &m->regions[region];
    const ares_model_share *s = &m->share;
    if (!s->group) return;
    if (r->decay) {
        sum_inside(m, region);
        sum_everywhere(s->replicas, r->own_grad, r->own);
    } else {
        sum_small(s->group, r->grad, r->elements);
        sum_small(s->replicas, r->grad, r->elements);
    }
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
    slot *apart = slot_of(m, m->n_regions);
    if (apart) {
        m->device->k->add(m->device, m->regions[r].grad, apart->memory, m->embed->elements);
        apart->of = NOBODY;
    }
    leave(m, r);
}
