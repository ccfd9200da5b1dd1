/*
 * Where parameters lie: the matrices of the embedding, of each block and of the head are a flat
 * array each, the norms and biases of the whole model are one more. Weights, gradients and
 * optimizer states have the same layout, so that what is elementwise (AdamW, sums over ranks) and
 * the gradient's norm visit regions, not parameters.
 */
#include "region.h"

#include <stdio.h>

/* In elements: 256 bytes of 16-bit numbers, so a parameter starts on its own cache lines. */
enum { ALIGN = 128 };

static int64_t rounded_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

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

bool region_of_tower(const ares_model *m, int i)
{
    if (!m->tower.patches) return false;
    int first = m->tower.patches->region;
    return i >= first && i <= first + m->cfg.vision.depth;
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
static void cut(const ares_model *m, ares_region *r)
{
    r->elements = rounded_up(r->elements, r->decay ? ares_model_ranks(m) * ARES_SUM_CHUNK : ALIGN);
    r->own = r->elements;
    if (!r->decay || ares_model_shards(m) == 1) return;
    r->own = r->elements / ares_model_shards(m);
    r->own_first = r->own * ares_group_rank(m->share.group);
}

static void lay_out(ares_model *m)
{
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
        cut(m, r);
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
            host += (size_t)(r->in_parts ? r->own : r->elements) * each;
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
    ARES_ASSERT(!all || m->share.group);
    m->trainable = trainable;
    lay_out(m);
    for (int i = 0; i < regions_count(m); i++) {
        ares_region *r = &m->regions[i];
        size_t bytes = (size_t)(r->in_parts ? r->own : r->elements) * ares_dtype_bytes(r->dtype);
        *(on_host(m, r) ? &m->host_weights_bytes : &m->weights_bytes) += bytes;
        if (has_act(m, r)) m->weights_bytes += (size_t)r->elements * sizeof(uint16_t);
        if (i >= m->n_regions) continue;
        m->n_squares += trainable ? ares_region_chunks(r) : 0;
    }
    if (trainable) m->grads_bytes = (size_t)gradients_elements(m) * sizeof(float);
    if (m->slice) return ARES_OK; /* ares_model_slice_take */
    m->weights = d->k->alloc(d, m->weights_bytes);
    if (trainable) m->grad_squares = d->k->alloc(d, (size_t)m->n_squares * sizeof(double));
    if (!m->weights || (trainable && !m->grad_squares))
        return ares_device_full(d, "model", "weights", m->weights_bytes, false, NULL);
    if (m->host_weights_bytes) m->host_weights = d->k->alloc_host(d, m->host_weights_bytes);
    if (m->host_weights_bytes && !m->host_weights)
        return ares_device_full(d, "model", "weights", m->host_weights_bytes, true, NULL);
    regions_give_memory(m);
    return m->host_weights || all ? slots_open(m) : ARES_OK;
}

void regions_release(ares_model *m)
{
    ares_device *d = m->device;
    slots_close(m);
    gradients_close(m);
    d->k->release_host(d, m->host_weights, m->host_weights_bytes);
    if (m->slice) ares_phase_give_back(d, &m->of_rollout);
    else d->k->release(d, m->weights, m->weights_bytes);
    d->k->release(d, m->grad_squares, (size_t)m->n_squares * sizeof(double));
    windows_close(m);
    ares_free(m->regions);
}

int regions_refresh(ares_model *m)
{
    ares_device *d = m->device;
    slots_forget(m);
    if (d->k->act == ARES_F32) return ARES_OK;
    for (int i = 0; i < regions_count(m); i++) {
        const ares_region *r = &m->regions[i];
        if (r->act) d->k->convert(d, r->act, d->k->act, r->weights, ARES_F32, r->elements);
    }
    return d->k->sync(d);
}
