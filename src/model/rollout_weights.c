/*
 * A model of this rank's outputs (docs/ranks.md#tensor-parallelism). Each matrix is cut by rows,
 * which are outputs, so a slice's parameter is a run of rows of the whole one.
 */
#include <stdio.h>
#include <string.h>

#include "internal.h"

static bool divides(const ares_model_config *c, int32_t parts)
{
    return c->heads % parts == 0 && c->kv_heads % parts == 0 && c->intermediate % parts == 0 &&
           c->hidden % parts == 0;
}
int ares_model_slice(const ares_model *whole, ares_group *tp, ares_model **out)
{
    const ares_model_options opt = { .storage = whole->embed->weight.dtype,
                                     .arithmetic = whole->arithmetic };
    ares_model_config cfg = whole->cfg;
    int32_t parts = ares_group_size(tp);
    ARES_ASSERT(!whole->tp && !cfg.value_head);
    if (cfg.experts && parts > 1)
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: worker.rollout.tensor_parallel_size = %d: experts are not divided "
                         "among ranks; set it to 1",
                         parts);
    if (!divides(&cfg, parts)) {
        char choices[64] = "1";
        size_t at = 1;
        for (int32_t n = 2; n <= cfg.kv_heads && at + 12 < sizeof choices; n++)
            if (divides(&cfg, n))
                at += (size_t)snprintf(choices + at, sizeof choices - at, ", %d", n);
        return ares_fail(ARES_ECONFIG,
                         "model: worker.rollout.tensor_parallel_size = %d: does not divide %d "
                         "heads, %d kv heads, an intermediate size of %d and a hidden size of %d "
                         "(choices: %s)",
                         parts, cfg.heads, cfg.kv_heads, cfg.intermediate, cfg.hidden, choices);
    }
    if (parts > 1 && whole->device->k->layout != ARES_PANEL32)
        return ares_fail(ARES_EUNSUPPORTED,
                         "model: %d ranks divide a model only by the CPU's native kernels, not by "
                         "those of '%s'; set worker.rollout.tensor_parallel_size to 1",
                         parts, whole->device->k->name);
    cfg.vision.depth = 0; /* features come from the whole model */
    cfg.heads /= parts;
    cfg.kv_heads /= parts;
    cfg.intermediate /= parts;
    return model_allocate(&cfg, whole->device, &opt, &(model_slice){ .tp = parts > 1 ? tp : NULL },
                          out);
}

size_t ares_model_slice_wants(const ares_model *m)
{
    return m->params.slice && !ares_phase_holds(m->device, &m->params.of_rollout)
               ? m->params.weights_bytes
               : 0;
}

int ares_model_slice_take(ares_model *m)
{
    size_t bytes = ares_model_slice_wants(m);
    if (!bytes) return ARES_OK;
    m->filled = false;
    m->params.weights =
        ares_phase_take(m->device, ARES_PHASE_ROLLOUT, &m->params.of_rollout, bytes);
    if (!m->params.weights)
        return ares_device_full(m->device, "model", "weights that rollout decodes with", bytes,
                                false, NULL);
    regions_give_memory(&m->params);
    if (!m->tp) return ARES_OK;
    /* the head's rows of this rank; a tied one is cut from the embedding, which is whole */
    ares_vocab_parts p = ares_model_head_parts(m);
    m->head = m->lm_head->weight;
    if (!m->cfg.tied) return ARES_OK;
    int32_t first = ares_vocab_part_first(m->cfg.vocab, p.parts, p.part);
    m->head.n = ares_vocab_part_first(m->cfg.vocab, p.parts, p.part + 1) - first;
    m->head.data =
        (char *)m->head.data + (size_t)(first * ares_layout_inputs(m->head.layout, m->head.k)) *
                                   ares_dtype_bytes(m->head.dtype);
    return ARES_OK;
}

void matrix_copy_rows(ares_device *d, const ares_matrix *to, const ares_matrix *from, int32_t first)
{
    size_t each = ares_dtype_bytes(to->dtype);
    bool panels = to->layout != ARES_ROWS;
    if (!panels || (first % 32 == 0 && (to->n % 32 == 0 || first + to->n == from->n))) {
        int64_t inputs = ares_layout_inputs(to->layout, to->k);
        d->k->copy(d, to->data, (const char *)from->data + (size_t)(first * inputs) * each,
                   (size_t)ares_matrix_elements(to->layout, to->n, to->k) * each);
        return;
    }
    /* panels that begin inside a panel of `from`: their lanes move one by one; on the CPU */
    for (int32_t n = 0; n < to->n; n++)
        for (int32_t k = 0; k < to->k; k++)
            memcpy((char *)to->data + (size_t)ares_matrix_at(to->layout, to->k, n, k) * each,
                   (const char *)from->data +
                       (size_t)ares_matrix_at(to->layout, to->k, first + n, k) * each,
                   each);
}

/* Whether a region of the whole model has parameters of a slice. */
static bool in_slice(const ares_model *slice, const ares_model *whole, int region)
{
    for (int i = 0; i < slice->params.n; i++)
        if (whole->params.list[i].region == region) return true;
    return false;
}

/* The slice's rows of the parameters of one region of the whole model, which is loaded. */
static void fill_region(ares_model *slice, const ares_model *whole, int region)
{
    int32_t parts = slice->tp ? ares_group_size(slice->tp) : 1,
            part = slice->tp ? ares_group_rank(slice->tp) : 0;
    for (int i = 0; i < slice->params.n; i++) {
        const ares_matrix *to = &slice->params.list[i].weight,
                          *from = &whole->params.list[i].weight;
        if (whole->params.list[i].region != region) continue;
        int32_t first = to->n == from->n ? 0 : part * to->n;
        if (!slice->cfg.tied && &slice->params.list[i] == slice->lm_head)
            first = ares_vocab_part_first(slice->cfg.vocab, parts, part);
        if (to->n) matrix_copy_rows(slice->device, to, from, first);
    }
}

int ares_model_slice_fill(ares_model *slice, ares_model *whole)
{
    ARES_TRY(ares_model_slice_take(slice));
    int regions = regions_count(&whole->params);
    for (int r = 0; r < regions; r++) {
        if (!in_slice(slice, whole, r)) continue; /* a tower's */
        ares_region_load(&whole->params, r);
        if (r + 1 < regions && in_slice(slice, whole, r + 1))
            region_prefetch(&whole->params, r + 1);
        fill_region(slice, whole, r);
        ares_region_unload(&whole->params, r);
    }
    if (whole->params.share.how == ARES_SHARE_ALL)
        ARES_TRY(ares_group_sync(whole->params.share.group));
    ARES_TRY(regions_refresh(&slice->params));
    slice->filled = true;
    return ARES_OK;
}

static void gather_parts(void *tp, const void *mine, void *all, size_t bytes)
{
    ares_group_join(tp, ares_group_gather(tp, mine, all, bytes));
}

ares_vocab_parts ares_model_head_parts(const ares_model *m)
{
    return (ares_vocab_parts){ .parts = ares_group_size(m->tp),
                               .part = ares_group_rank(m->tp),
                               .gather = gather_parts,
                               .ctx = m->tp };
}
