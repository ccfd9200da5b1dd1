/*
 * Optimizer states <-> a safetensors file: <parameter>.m, .v and, for models stored in bf16,
 * .master; row-major f32, so that any number of ranks and any layout can load it. States of 16 bits
 * are widened, which loses nothing. Vectors are f32 in memory for every storage type: their .master
 * is the weight itself, which the model's files round.
 */
#include "param.h"
#include "region.h"
#include "save.h"

int ares_model_optimizer_save(const ares_model *m, const char *path, const ares_writers *by,
                              uint64_t *sum)
{
    ARES_ASSERT(m->states);
    save_file file = save_states(m, path);
    uint64_t own = 0;
    ARES_TRY(save_agree(by, save_tensors(m, &file, by, &own), &own));
    if (sum) *sum = own;
    return ARES_OK;
}

typedef struct loading {
    ares_model *m;
    const ares_safetensors *s;
    piece_kind kind;
} loading;

static int load_piece(void *ctx, const piece *x)
{
    const loading *l = ctx;
    return piece_put(l->m, x, save_find(l->s, x->p, l->kind)->data, ARES_F32);
}

static int check(const ares_model *m, const ares_safetensors *s, piece_kind kind, const char *path)
{
    for (int i = 0; i < m->n_params; i++) {
        const ares_param *p = &m->params[i];
        if (!pieces_exist(m, p, kind)) continue;
        const ares_tensor_info *t = save_find(s, p, kind);
        if (!t || !t->is_float || t->dtype != ARES_F32 || !param_has_shape(p, t))
            return ares_fail(ARES_EFORMAT,
                             "model: %s: the states of '%s' are missing or of another shape; the "
                             "checkpoint belongs to another model or storage type",
                             path, p->name);
    }
    return ARES_OK;
}

int ares_model_optimizer_load(ares_model *m, const char *path)
{
    static const piece_kind kinds[] = { OF_M, OF_V, OF_MASTER };
    ares_safetensors *s;
    int rc = ARES_OK;
    ARES_ASSERT(m->states);
    ARES_TRY(ares_safetensors_open(path, &s));
    for (int k = 0; k < ARES_COUNT(kinds) && rc == ARES_OK; k++) {
        loading l = { m, s, kinds[k] };
        rc = check(m, s, kinds[k], path);
        if (rc == ARES_OK) rc = pieces_held(m, kinds[k], load_piece, &l);
    }
    ares_safetensors_close(s);
    return rc == ARES_OK ? regions_refresh(m) : rc; /* some .master are weights */
}
