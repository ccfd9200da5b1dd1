/*
 * AdamW over the regions of a model: gradients are summed over ranks, one global norm is taken,
 * then every region is updated (docs/update.md#optimizers-and-learning-rates).
 */
#include "learner.h"

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

int optim_alloc_states(const optim *o, ares_params *ps)
{
    bool bf16 = strcmp(o->cfg->strategy, "adamw_bf16") == 0;
    return ares_params_optimizer_alloc(ps, bf16 ? ARES_BF16 : ARES_F32);
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

/* The sums of squares of all chunks of all regions, to the host, in the device's order. */
static int read_squares(ares_params *ps, double *squares)
{
    ares_device *d = ps->device;
    d->k->copy_out(d, squares, ps->grad_squares, (size_t)ps->n_squares * sizeof *squares);
    return d->k->sync(d);
}

/*
 * The sums of squares of all regions' chunks. *squares [n_squares]: region after region, the chunks
 * of each in their order, for the caller to free. The list is the same however the ranks share the
 * model, and so is the norm, bit for bit. The last region (norms and biases) is whole on every
 * rank.
 */
static int sum_squares(ares_params *ps, double **squares)
{
    ares_device *d = ps->device;
    ares_group *g = ps->share.group;
    int shards = ares_params_shards(ps), last = ps->n_regions - 1;
    int64_t own = 0; /* chunks of a rank's parts of the other regions */
    for (int i = 0; i < last; i++) own += ps->regions[i].own / ARES_SUM_CHUNK;
    double *mine = ps->grad_squares + (shards > 1 ? ares_group_rank(g) * own : 0), *to = mine;
    for (int i = 0; i < last; i++) {
        const ares_region *r = &ps->regions[i];
        d->k->square_sums(d, r->own_grad, r->own, to);
        to += r->own / ARES_SUM_CHUNK;
    }
    d->k->square_sums(d, ps->regions[last].own_grad, ps->regions[last].own,
                      ps->grad_squares + shards * own);
    if (shards > 1)
        ares_group_join(g,
                        ares_group_gather(g, mine, ps->grad_squares, (size_t)own * sizeof *mine));
    double *by_rank = ares_malloc((size_t)ps->n_squares * sizeof *by_rank);
    *squares = ares_malloc((size_t)ps->n_squares * sizeof **squares);
    int rc = read_squares(ps, by_rank);
    if (rc == ARES_OK) rc = ares_params_sync(ps);
    /* by_rank has rank after rank, each with its chunks of all regions */
    int64_t at = 0;
    to = *squares;
    for (int i = 0; i < last && rc == ARES_OK; i++) {
        int64_t n = ps->regions[i].own / ARES_SUM_CHUNK;
        for (int s = 0; s < shards; s++, to += n)
            memcpy(to, by_rank + s * own + at, (size_t)n * sizeof *to);
        at += n;
    }
    if (rc == ARES_OK)
        memcpy(to, by_rank + shards * own, (size_t)(ps->n_squares - shards * own) * sizeof *to);
    ares_free(by_rank);
    return rc;
}

/*
 * Sums gradients over ranks; *norm is that of all of them. In a tied model, the embedding's own
 * gradient is added to the head's before. *squares: as sum_squares, to name a parameter by.
 */
static int norm_of(ares_params *ps, double *norm, double **squares)
{
    double sum = 0;
    ares_params_join_embed_grad(ps);
    for (int i = 0; i < ps->n_regions; i++) ares_region_sum(ps, i);
    int rc = sum_squares(ps, squares);
    for (int64_t c = 0; c < ps->n_squares && rc == ARES_OK; c++) sum += (*squares)[c];
    *norm = sqrt(sum);
    return rc;
}

int optim_norm(ares_params *ps, double *norm)
{
    double *squares;
    int rc = norm_of(ps, norm, &squares);
    ares_free(squares);
    return rc;
}

static bool finite_sums(const double *sums, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(sums[i])) return false;
    return true;
}

/*
 * Fails on every rank with the name of the first parameter whose gradient is not finite, in the
 * first region that has one. squares: of all chunks.
 */
static int not_finite(ares_params *ps, ares_world *world, double norm, double *squares)
{
    ares_device *d = ps->device;
    int region = 0, rc = ARES_OK;
    double *sums = squares;
    while (region < ps->n_regions - 1 &&
           finite_sums(sums, ares_region_chunks(&ps->regions[region])))
        sums += ares_region_chunks(&ps->regions[region++]);
    const ares_region *r = &ps->regions[region];
    for (int i = 0; i < ps->n && rc == ARES_OK; i++) {
        const ares_param *p = &ps->list[i];
        /* this rank's part of the parameter */
        int64_t from = ARES_MAX(p->at, r->own_first),
                end = ARES_MIN(p->at + p->elements, r->own_first + r->own);
        if (p->region != region || from >= end) continue;
        d->k->square_sums(d, r->own_grad + (from - r->own_first), end - from, ps->grad_squares);
        rc = read_squares(ps, squares);
        if (rc == ARES_OK &&
            !finite_sums(squares, (end - from + ARES_SUM_CHUNK - 1) / ARES_SUM_CHUNK))
            rc = ares_fail(ARES_ENUMERIC, "the gradient of '%s' (%s) holds NaN or infinity",
                           p->name, r->name);
    }
    rc = ares_world_share_error(world, rc);
    ARES_ASSERT(rc != ARES_OK); /* padding is zero, and f64 holds the sum of any finite squares */
    return ares_fail_in(rc, "gradient norm is %g", norm);
}

/* A stretch of an array of the type. */
static void *at(void *array, ares_dtype dtype, int64_t first)
{
    return (char *)array + (size_t)first * ares_dtype_bytes(dtype);
}

/* AdamW of a stretch of the part of a region that is this rank's. */
static void step_stretch(const optim *o, ares_params *ps, const ares_region *r,
                         const ares_states *s, double lr, double scale)
{
    void *own = at(r->own_weights, r->dtype, s->first);
    ares_adamw_args a = { .n = s->n,
                          .w = r->act ? at(r->act, ARES_BF16, s->first) : own,
                          .dtype = r->act ? ARES_BF16 : r->dtype,
                          .kahan = r->states == ARES_BF16,
                          .master = r->act ? own : s->master,
                          .grad = r->own_grad + s->first,
                          .m = s->m,
                          .v = s->v,
                          .lr = lr,
                          .beta1 = o->cfg->betas.items[0],
                          .beta2 = o->cfg->betas.items[1],
                          .eps = o->cfg->eps,
                          .weight_decay = r->decay ? o->cfg->weight_decay : 0,
                          .grad_scale = scale,
                          .step = o->updates };
    ps->device->k->adamw(ps->device, &a);
}

int optim_step(optim *o, ares_params *ps, ares_world *world, double lr, double max_grad_norm,
               const char *what, double *grad_norm)
{
    double norm, *squares;
    int rc = norm_of(ps, &norm, &squares);
    if (rc == ARES_OK && !isfinite(norm)) rc = not_finite(ps, world, norm, squares);
    ares_free(squares);
    *grad_norm = norm;
    if (rc == ARES_ENUMERIC) {
        optim_skip(o, world, what);
        *grad_norm = NAN;
        return ARES_OK;
    }
    ARES_TRY(rc);
    o->skipped = 0;
    o->updates++;
    /* as torch.nn.utils.clip_grad_norm_ */
    double scale = norm > max_grad_norm ? max_grad_norm / (norm + 1e-6) : 1;
    for (int i = 0; i < ps->n_regions; i++) {
        const ares_region *r = &ps->regions[i];
        bool apart = !r->own_weights; /* on the host */
        ares_states s = { 0 };
        if (apart) ares_region_load_own(ps, i);
        while (ares_states_next(ps, i, &s)) step_stretch(o, ps, r, &s, lr, scale);
        if (ps->share.how != ARES_SHARE_NONE && !r->in_parts && r->decay) {
            /* on a card the parts of all ranks travel while AdamW does the next region */
            ares_ticket t = ares_group_gather(ps->share.group, r->own_weights, r->weights,
                                              (size_t)r->own * ares_dtype_bytes(r->dtype));
            /* weights that go on to the host wait here, the others at the end of the step */
            if (r->host) ares_group_join(ps->share.group, t);
        }
        ares_region_store(ps, i);
        if (apart) ares_region_unload(ps, i);
    }
    return ares_params_sync(ps);
}

int optim_step_given(optim *o, ares_params *ps, const ares_tinker_adam *a, double *grad_norm)
{
    const double betas[] = { a->beta1, a->beta2 };
    const ares_optim_config cfg = { .betas = { betas, 2 },
                                    .eps = a->eps,
                                    .weight_decay = a->weight_decay };
    optim own = *o;
    own.cfg = &cfg;
    ARES_TRY(optim_norm(ps, grad_norm));
    if (!isfinite(*grad_norm)) return ares_fail(ARES_ENUMERIC, "the gradient is not finite");
    int rc = optim_step(&own, ps, NULL, a->learning_rate,
                        a->grad_clip_norm > 0 ? a->grad_clip_norm : (double)INFINITY, "optim_step",
                        grad_norm);
    o->updates = own.updates;
    return rc;
}
