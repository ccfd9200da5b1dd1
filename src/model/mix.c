/* A model that follows another one, as a reference that is moved towards the policy. */
#include "region.h"
#include "transfer.h"

static int mix(ares_model *into, const ares_model *from, int i, double share)
{
    const ares_param *p = &into->params[i];
    int64_t n = (int64_t)p->weight.n * p->weight.k;
    float *mine = ares_malloc((size_t)n * sizeof *mine),
          *other = ares_malloc((size_t)n * sizeof *other);
    int rc = model_get(into, &p->weight, mine, ARES_F32);
    if (rc == ARES_OK) rc = model_get(from, &from->params[i].weight, other, ARES_F32);
    for (int64_t k = 0; k < n && rc == ARES_OK; k++)
        mine[k] = (float)(share * (double)other[k] + (1 - share) * (double)mine[k]);
    if (rc == ARES_OK) rc = model_put(into, &p->weight, mine, ARES_F32);
    /* as it comes back from a checkpoint */
    if (rc == ARES_OK) rc = model_get(into, &p->weight, mine, into->cfg.file_dtype);
    if (rc == ARES_OK) rc = model_put(into, &p->weight, mine, into->cfg.file_dtype);
    ares_free(mine);
    ares_free(other);
    return rc;
}

int ares_model_mix(ares_model *into, const ares_model *from, double share)
{
    ARES_ASSERT(into->n_params == from->n_params);
    for (int i = 0; i < into->n_params; i++) ARES_TRY(mix(into, from, i, share));
    return regions_refresh(into);
}
