/*
 * AdamW over the regions of a model: gradients are summed over ranks, one global norm is taken,
 * then every region is updated (docs/update.md#optimizers-and-learning-rates).
 */
#include "roles/optim.h"

#include <math.h>
#include <string.h>

int optim_init(optim *o, const ares_optim_config *cfg, int64_t total_steps)
{
    double warmup = cfg->warmup_steps == ARES_NULL_I64
                        ? floor(cfg->warmup_ratio * (double)total_steps)
                        : (double)cfg->warmup_steps;
    *o = (optim){ .cfg = cfg,
                  .schedule = { .name = cfg->scheduler,
                                .base = cfg->lr,
                                .min_ratio =
                                    ares_is_null_f64(cfg->min_lr_ratio) ? 0 : cfg->min_lr_ratio,
                                .warmup_steps = warmup,
                                .total_steps = (double)total_steps,
                                .cycles = 0.5 } };
    return ares_schedule_check(&o->schedule);
}

static bool in_bf16(const optim *o)
{
    return strcmp(o->cfg->strategy, "adamw_bf16") == 0;
}

int optim_alloc_states(const optim *o, ares_model *m)
{
    return ares_model_optimizer_alloc(m, in_bf16(o) ? ARES_BF16 : ARES_F32);
}

double optim_lr(const optim *o, int64_t step)
{
    ares_schedule s = o->schedule;
    s.base = o->cfg->lr; /* which may have a schedule of its own */
    return ares_schedule_at(&s, step);
}

void optim_skip(optim *o, const ares_world *world, const char *what)
{
    o->skipped++;
    o->failing = o->failing || o->skipped >= OPTIM_SKIPS_IN_A_ROW;
    if (ares_world_rank(world) == 0) /* all ranks found the same */
        ares_log(ARES_LOG_WARN,
                 "%s: %s; the update is left out, %lld in a row now; the run ends at %d", what,
                 ares_error_message(), (long long)o->skipped, OPTIM_SKIPS_IN_A_ROW);
    ares_error_clear();
}

/*
 * In a tied model the embedding's own gradient lies in no region: by now it has been added to the
 * head's.
 */
static int sum_over_ranks(ares_model *m, ares_world *world)
{
    if (ares_world_size(world) == 1) return ARES_OK;
    ares_device *d = m->device;
    bool on_host = d->index < 0;
    int64_t most = 0;
    for (int i = 0; i < m->n_regions; i++) most = ARES_MAX(most, m->regions[i].elements);
    float *host = on_host ? NULL : ares_malloc((size_t)most * sizeof *host);
    int rc = ARES_OK;
    for (int i = 0; i < m->n_regions && rc == ARES_OK; i++) {
        const ares_region *r = &m->regions[i];
        size_t bytes = (size_t)r->elements * sizeof *host;
        if (!on_host) d->k->copy_out(d, host, r->grad, bytes);
        rc = ares_world_sum_f32(world, on_host ? r->grad : host, r->elements);
        if (!on_host && rc == ARES_OK) d->k->copy_in(d, r->grad, host, bytes);
    }
    if (rc == ARES_OK) rc = d->k->sync(d);
    ares_free(host);
    return rc;
}

/* The sums of squares of all chunks of all regions, to the host. */
static int read_squares(ares_model *m, double *squares)
{
    ares_device *d = m->device;
    d->k->copy_out(d, squares, m->grad_squares, (size_t)m->n_squares * sizeof *squares);
    return d->k->sync(d);
}

int optim_norm(ares_model *m, ares_world *world, double *norm)
{
    ares_device *d = m->device;
    ares_model_join_embed_grad(m);
    ARES_TRY(sum_over_ranks(m, world));
    double *of_chunk = m->grad_squares, sum = 0;
    for (int i = 0; i < m->n_regions; i++) {
        const ares_region *r = &m->regions[i];
        d->k->square_sums(d, r->grad, r->elements, of_chunk);
        of_chunk += ares_region_chunks(r);
    }
    double *squares = ares_malloc((size_t)m->n_squares * sizeof *squares);
    int rc = read_squares(m, squares);
    for (int64_t c = 0; c < m->n_squares && rc == ARES_OK; c++) sum += squares[c];
    ares_free(squares);
    *norm = sqrt(sum);
    return rc;
}

static bool finite_sums(const double *sums, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(sums[i])) return false;
    return true;
}

/*
 * Fails with the name of the first parameter whose gradient is not finite, in the first region that
 * has one. The chunks' sums are those of optim_norm.
 */
static int not_finite(ares_model *m, double norm)
{
    ares_device *d = m->device;
    double *squares = ares_malloc((size_t)m->n_squares * sizeof *squares), *of_region = squares;
    int rc = read_squares(m, squares), r = 0;
    while (rc == ARES_OK && r < m->n_regions &&
           finite_sums(of_region, ares_region_chunks(&m->regions[r])))
        of_region += ares_region_chunks(&m->regions[r++]);
    for (int i = 0; i < m->n_params && rc == ARES_OK; i++) {
        const ares_param *p = &m->params[i];
        if (p->region != r) continue;
        int64_t chunks = (p->elements + ARES_SUM_CHUNK - 1) / ARES_SUM_CHUNK;
        d->k->square_sums(d, p->grad.data, p->elements, m->grad_squares);
        rc = read_squares(m, squares);
        if (rc == ARES_OK && !finite_sums(squares, chunks))
            rc = ares_fail(ARES_ENUMERIC,
                           "gradient norm is %g: the gradient of '%s' (%s) holds NaN or infinity",
                           norm, p->name, m->regions[r].name);
    }
    ARES_ASSERT(rc != ARES_OK); /* padding is zero, and f64 holds the sum of any finite squares */
    ares_free(squares);
    return rc;
}

int optim_step(optim *o, ares_model *m, ares_world *world, double lr, double max_grad_norm,
               const char *what, double *grad_norm)
{
    ares_device *d = m->device;
    double norm;
    ARES_TRY(optim_norm(m, world, &norm));
    *grad_norm = norm;
    if (!isfinite(norm)) {
        int rc = not_finite(m, norm);
        if (rc != ARES_ENUMERIC) return rc;
        optim_skip(o, world, what);
        *grad_norm = NAN;
        return ARES_OK;
    }
    o->skipped = 0;
    o->updates++;
    /* as torch.nn.utils.clip_grad_norm_ */
    double scale = norm > max_grad_norm ? max_grad_norm / (norm + 1e-6) : 1;
    for (int i = 0; i < m->n_regions; i++) {
        const ares_region *r = &m->regions[i];
        ares_adamw_args a = { .n = r->elements,
                              .w = r->act ? r->act : r->weights,
                              .dtype = r->act ? ARES_BF16 : r->dtype,
                              .kahan = r->states == ARES_BF16,
                              .master = r->act ? r->weights : r->master,
                              .grad = r->grad,
                              .m = r->m,
                              .v = r->v,
                              .lr = lr,
                              .beta1 = o->cfg->betas.items[0],
                              .beta2 = o->cfg->betas.items[1],
                              .eps = o->cfg->eps,
                              .weight_decay = r->decay ? o->cfg->weight_decay : 0,
                              .grad_scale = scale,
                              .step = o->updates };
        d->k->adamw(d, &a);
    }
    return d->k->sync(d);
}
