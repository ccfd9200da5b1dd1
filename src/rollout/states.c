/* The states of sequences in the delta nets of a model, in host memory. */
#include <string.h>

#include "internal.h"

/* numbers [cap] of so many bytes, with room for more; false, and as before: the device is full. */
static bool enlarge(ares_device *d, float **numbers, size_t each, int32_t cap, int32_t to)
{
    float *more = d->k->alloc(d, (size_t)to * each);
    if (!more) return false;
    if (cap) d->k->copy(d, more, *numbers, (size_t)cap * each);
    if (cap) d->k->release(d, *numbers, (size_t)cap * each);
    *numbers = more;
    return true;
}

static size_t state_bytes(const ares_model_config *c)
{
    return (size_t)ares_net_state(c) * sizeof(float);
}
static size_t window_bytes(const ares_model_config *c) /* a kernel of 1 has none */
{
    return (size_t)ARES_MAX(ares_net_window(c), 1) * sizeof(float);
}

/* Memory for `cap` slots in every layer with a net; the new ones are free. */
static int grow(rollout_states *t, int32_t cap)
{
    const ares_model_config *c = t->cfg;
    for (int32_t i = 0; i < c->layers; i++)
        if (c->layer[i] & ARES_LAYER_NET &&
            (!enlarge(t->device, &t->states[i], state_bytes(c), t->cap, cap) ||
             !enlarge(t->device, &t->window[i], window_bytes(c), t->cap, cap)))
            return ares_device_full(t->device, "rollout", "states of delta nets",
                                    (size_t)cap * (state_bytes(c) + window_bytes(c)), false,
                                    "lower worker.rollout.max_num_seqs or state_snapshots");
    t->free_list = ares_realloc(t->free_list, (size_t)cap * sizeof *t->free_list);
    for (int32_t i = cap; i-- > t->cap;) t->free_list[t->n_free++] = i;
    t->cap = cap;
    return ARES_OK;
}

int rollout_states_init(rollout_states *t, const ares_model *m, const rollout_blocks *blocks,
                        int32_t slots, int32_t most)
{
    t->device = m->device;
    t->cfg = &m->cfg;
    t->blocks = blocks;
    t->most = most;
    t->states = ares_calloc((size_t)m->cfg.layers, sizeof *t->states);
    t->window = ares_calloc((size_t)m->cfg.layers, sizeof *t->window);
    t->snapshots = ares_calloc((size_t)most + 1, sizeof *t->snapshots);
    return grow(t, slots + most);
}

size_t rollout_states_each(const rollout_states *t)
{
    size_t layers = 0;
    for (int32_t i = 0; i < t->cfg->layers; i++) layers += (t->cfg->layer[i] & ARES_LAYER_NET) != 0;
    return layers * (state_bytes(t->cfg) + window_bytes(t->cfg));
}

void rollout_states_fini(rollout_states *t)
{
    for (int32_t i = 0; t->cfg && i < t->cfg->layers; i++) {
        if (t->states[i])
            t->device->k->release(t->device, t->states[i], (size_t)t->cap * state_bytes(t->cfg));
        if (t->window[i])
            t->device->k->release(t->device, t->window[i], (size_t)t->cap * window_bytes(t->cfg));
    }
    ares_free(t->states);
    ares_free(t->window);
    ares_free(t->free_list);
    ares_free(t->snapshots);
}

void rollout_states_reset(rollout_states *t)
{
    t->n_free = t->n_snapshots = 0;
    for (int32_t i = t->cap; i-- > 0;) t->free_list[t->n_free++] = i;
}

/* Frees the slot of a snapshot whose block is gone, or else of the one unused longest. */
static void forget_one(rollout_states *t)
{
    rollout_snapshot *gone = t->snapshots;
    for (rollout_snapshot *s = gone; s < t->snapshots + t->n_snapshots; s++) {
        bool stale = t->blocks->serial[s->block] != s->serial;
        if (stale || s->used < gone->used) gone = s;
        if (stale) break;
    }
    t->free_list[t->n_free++] = gone->slot;
    *gone = t->snapshots[--t->n_snapshots];
}

void rollout_state_take(rollout_states *t, int32_t *slot)
{
    if (!t->cfg || *slot >= 0) return;
    if (!t->n_free && t->n_snapshots) forget_one(t);
    /* parked samples want more than those that run; a process without host memory ends, as
     * everywhere */
    if (!t->n_free) ARES_ASSERT(grow(t, t->cap + t->cap / 2 + 1) == ARES_OK);
    *slot = t->free_list[--t->n_free];
}

void rollout_state_drop(rollout_states *t, int32_t *slot)
{
    if (*slot >= 0) t->free_list[t->n_free++] = *slot;
    *slot = -1;
}

void rollout_state_copy(const rollout_states *t, int32_t to, int32_t from)
{
    for (int32_t i = 0; t->cfg && i < t->cfg->layers; i++) {
        if (!t->states[i]) continue;
        int64_t state = ares_net_state(t->cfg), window = ares_net_window(t->cfg);
        memcpy(t->states[i] + to * state, t->states[i] + from * state, state_bytes(t->cfg));
        memcpy(t->window[i] + to * window, t->window[i] + from * window,
               (size_t)window * sizeof(float));
    }
}

rollout_snapshot *rollout_snapshot_find(const rollout_states *t, uint64_t serial)
{
    for (int32_t i = 0; i < t->n_snapshots; i++)
        if (t->snapshots[i].serial == serial) return &t->snapshots[i];
    return NULL;
}

void rollout_snapshot_keep(rollout_states *t, int32_t block, int32_t *slot)
{
    uint64_t serial = t->blocks->serial[block];
    rollout_snapshot *there = rollout_snapshot_find(t, serial);
    if (there) there->used = ++t->now;
    if (!there && t->most) {
        if (t->n_snapshots == t->most) forget_one(t);
        t->snapshots[t->n_snapshots++] =
            (rollout_snapshot){ .serial = serial, .block = block, .slot = *slot, .used = ++t->now };
        *slot = -1;
    }
    rollout_state_drop(t, slot);
}
