/*
 * Optimizer states <-> a safetensors file: <parameter>.m, .v and, for models stored in bf16,
 * .master; row-major f32, so that any number of ranks and any layout can load it. States of 16 bits
 * are widened, which loses nothing. Vectors are f32 in memory for every storage type: their .master
 * is the weight itself, which the model's files round.
 */
#include <stdio.h>

#include "region.h"
#include "transfer.h"

static const char *const suffixes[] = { "m", "v", "master" };

/* A state as a matrix of the parameter's layout; data NULL where there is no such state. */
static ares_matrix state(const ares_model *m, const ares_param *p, int which)
{
    const ares_region *r = &m->regions[p->region];
    char *of_region = which == 0 ? r->m : which == 1 ? r->v : r->master;
    ares_matrix s = p->weight;
    s.dtype = r->states;
    if (of_region) s.data = of_region + (size_t)p->at * ares_dtype_bytes(r->states);
    else if (m->cfg.file_dtype == ARES_F32) s.data = NULL;
    return s;
}

static void state_name(char *out, size_t size, const ares_param *p, int which)
{
    snprintf(out, size, "%s.%s", p->name, suffixes[which]);
}

int ares_model_optimizer_save(const ares_model *m, const char *path)
{
    ares_safetensors_writer *w;
    char name[128];
    ARES_ASSERT(m->states);
    ARES_TRY(ares_safetensors_create(path, &w));
    for (int i = 0; i < m->n_params; i++)
        for (int k = 0; k < 3; k++) {
            if (!state(m, &m->params[i], k).data) continue;
            state_name(name, sizeof name, &m->params[i], k);
            ares_safetensors_declare(w, name, ARES_F32, m->params[i].rank, m->params[i].shape);
        }
    int rc = ARES_OK;
    for (int i = 0; i < m->n_params && rc == ARES_OK; i++) {
        const ares_param *p = &m->params[i];
        size_t bytes = (size_t)p->weight.n * (size_t)p->weight.k * sizeof(float);
        float *rows = ares_malloc(bytes);
        for (int k = 0; k < 3 && rc == ARES_OK; k++) {
            ares_matrix s = state(m, p, k);
            if (!s.data) continue;
            rc = model_get(m, &s, rows, ARES_F32);
            if (rc == ARES_OK) rc = ares_safetensors_write(w, rows, bytes);
        }
        ares_free(rows);
    }
    int finished = ares_safetensors_finish(w);
    return rc != ARES_OK ? rc : finished;
}

int ares_model_optimizer_load(ares_model *m, const char *path)
{
    ares_safetensors *s;
    char name[128];
    ARES_ASSERT(m->states);
    ARES_TRY(ares_safetensors_open(path, &s));
    int rc = ARES_OK;
    for (int i = 0; i < m->n_params && rc == ARES_OK; i++) {
        const ares_param *p = &m->params[i];
        for (int k = 0; k < 3 && rc == ARES_OK; k++) {
            ares_matrix to = state(m, p, k);
            if (!to.data) continue;
            state_name(name, sizeof name, p, k);
            const ares_tensor_info *t = ares_safetensors_find(s, name);
            if (!t || !t->is_float || t->dtype != ARES_F32 || t->rank != p->rank ||
                t->shape[0] != p->shape[0] || (p->rank == 2 && t->shape[1] != p->shape[1]))
                rc = ares_fail(ARES_EFORMAT,
                               "model: %s: tensor '%s' is missing or of another shape; the "
                               "checkpoint belongs to another model or storage type",
                               path, name);
            else rc = model_put(m, &to, t->data, ARES_F32);
        }
    }
    ares_safetensors_close(s);
    return rc == ARES_OK ? regions_refresh(m) : rc; /* some .master are weights */
}
