/* Images and videos in the passes of a learner. */
#include "roles/sight.h"

static bool trained(const learner *l)
{
    return l->features && ares_features_trained(l->features);
}

int sight_show(learner *l, ares_packed *packed, int n, bool keep)
{
    size_t row = (size_t)l->model->cfg.hidden * sizeof(float);
    bool fresh = keep && trained(l);
    if (l->features && !fresh) ares_features_at(l->features, l->optim.updates);
    for (int i = 0; i < n; i++) {
        ares_packed *p = &packed[i];
        if (!p->n_features) continue;
        if (!l->features)
            return ares_fail(ARES_EUNSUPPORTED,
                             "%s: rows have images or videos, which this model does not see; leave "
                             "such rows out",
                             l->role);
        float *in = ares_arena_alloc(&l->arena, (size_t)p->n_features * row);
        ARES_TRY(fresh ? ares_features_show_fresh(l->features, p, in, &l->features_off)
                       : ares_features_show(l->features, p, in));
    }
    return ARES_OK;
}

void sight_wants(learner *l, ares_packed *packed, int n)
{
    size_t row = (size_t)l->model->cfg.hidden * ares_dtype_bytes(l->model->device->k->act);
    for (int i = 0; i < n && trained(l); i++)
        packed[i].d_features = ares_arena_alloc(&l->arena, (size_t)packed[i].n_features * row + 1);
}

int sight_backward(learner *l, const ares_packed *packed, int n)
{
    ares_model *m = l->model;
    if (!trained(l)) return ARES_OK;
    for (int i = 0; i < n; i++) {
        const ares_packed *p = &packed[i];
        if (!p->n_features) continue;
        const ares_matrix by = { p->d_features, m->device->k->act, ARES_ROWS, p->n_features,
                                 m->cfg.hidden };
        float *d = ares_malloc((size_t)p->n_features * (size_t)m->cfg.hidden * sizeof *d);
        ares_matrix_unpack(&by, d, ARES_F32);
        int rc = ares_features_backward(l->features, l->tower_keep, p, d);
        ares_free(d);
        ARES_TRY(rc);
    }
    return ARES_OK;
}

int sight_report(learner *l, learner *other, const ares_batch *b, ares_metrics *m)
{
    if (!l->features) return ARES_OK;
    int64_t tokens = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        const ares_sight *s = b->samples[r].sight;
        bool again = r > 0 && s == b->samples[r - 1].sight; /* another answer to the prompt */
        for (int32_t i = 0; s && !again && i < s->n_places; i++) tokens += s->places[i].n;
    }
    ARES_TRY(ares_world_sum_i64(l->world, &tokens, 1));
    ares_metrics_set(m, "data/image_tokens", (double)tokens);
    double seconds = ares_features_seconds(l->features); /* which begin anew */
    if (other && other->features) seconds += ares_features_seconds(other->features);
    ares_metrics_set(m, "timing_s/vision", seconds);
    if (!trained(l)) return ARES_OK;
    ARES_TRY(ares_world_max_f64(l->world, &l->features_off, 1));
    ares_metrics_set(m, "exact/vision_max_abs", l->features_off);
    l->features_off = 0;
    return ARES_OK;
}
