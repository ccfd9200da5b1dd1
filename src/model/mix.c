/* A model that follows another one, as a reference that is moved towards the policy. */
#include "pieces.h"
#include "region.h"
#include "transfer.h"

typedef struct mixing {
    ares_model *into;
    const ares_model *from;
    double share;
} mixing;

static int mix_piece(void *ctx, const piece *x)
{
    const mixing *j = ctx;
    ares_dtype file = j->into->cfg.file_dtype;
    int64_t n = x->rows * x->columns;
    float *mine = ares_malloc((size_t)n * sizeof *mine),
          *other = ares_malloc((size_t)n * sizeof *other);
    ares_matrix theirs = pieces_other(j->from, x);
    int rc = model_get(j->into, &x->memory, mine, ARES_F32);
    if (rc == ARES_OK) rc = model_get(j->from, &theirs, other, ARES_F32);
    for (int64_t k = 0; k < n && rc == ARES_OK; k++)
        mine[k] = (float)(j->share * (double)other[k] + (1 - j->share) * (double)mine[k]);
    if (rc == ARES_OK) rc = model_put(j->into, &x->memory, mine, ARES_F32);
    /* as it comes back from a checkpoint */
    if (rc == ARES_OK) rc = model_get(j->into, &x->memory, mine, file);
    if (rc == ARES_OK) rc = model_put(j->into, &x->memory, mine, file);
    ares_free(mine);
    ares_free(other);
    return rc;
}

/* What one model has of a region, the other may have other parts of: it is gathered for a while. */
int ares_model_mix(ares_model *into, ares_model *from, double share)
{
    mixing j = { into, from, share };
    bool gathers = from->share.how == ARES_SHARE_ALL;
    int rc = ARES_OK;
    ARES_ASSERT(into->n_params == from->n_params && into->n_regions == from->n_regions);
    for (int i = 0; i < regions_count(into); i++) { /* a rank that has failed gathers on */
        if (gathers) ares_region_hold(from, i);
        if (rc == ARES_OK) rc = pieces_held_of(into, i, OF_WEIGHTS, mix_piece, &j);
        if (gathers) ares_region_drop(from, i);
    }
    if (rc == ARES_OK && gathers) rc = ares_model_sync(from);
    return rc == ARES_OK ? regions_refresh(into) : rc;
}
