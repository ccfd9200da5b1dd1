/*
 * AdamW over the parameter list: gradients are summed over ranks, one global norm is taken, then
 * every parameter is updated (docs/update.md#optimizers-and-learning-rates).
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

int optim_alloc_states(const optim *o, ares_model *m)
{
    ARES_TRY(ares_model_optimizer_alloc(m));
    if (strcmp(o->cfg->strategy, "adamw_bf16") != 0) return ARES_OK;
    for (int i = 0; i < m->n_params; i++) /* with adamw_bf16 these hold no master weights, but what
                                             rounding has left out so far */
        if (m->params[i].master)
            m->device->k->zero(m->device, m->params[i].master,
                               (size_t)m->params[i].elements * sizeof(float));
    return ARES_OK;
}

double optim_lr(const optim *o, int64_t step)
{
    ares_schedule s = o->schedule;
    s.base = o->cfg->lr; /* which may have a schedule of its own */
    return ares_schedule_at(&s, step);
}

/* Fails with the name of the first parameter whose gradient is not finite. */
static int not_finite(ares_model *m, double norm)
{
    ares_device *d = m->device;
    for (int i = 0; i < m->n_params; i++)
        if (!isfinite(d->k->sum_squares(d, m->params[i].grad.data, m->params[i].elements)))
            return ares_fail(ARES_ENUMERIC,
                             "gradient norm is %g: the gradient of '%s' holds NaN or infinity",
                             norm, m->params[i].name);
    return ares_fail(ARES_ENUMERIC, "gradient norm is %g: the gradients overflow", norm);
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
 * All gradients lie in one arena. In a tied model the embedding's own gradient lies at its end; by
 * now it has been added to the head's, and is left out.
 */
static int sum_over_ranks(ares_model *m, ares_world *world)
{
    if (ares_world_size(world) == 1) return ARES_OK;
    ares_device *d = m->device;
    size_t bytes =
        m->cfg.tied ? (size_t)((char *)m->embed_grad.data - (char *)m->grads) : m->grads_bytes;
    if (d->index < 0) return ares_world_sum_f32(world, m->grads, (int64_t)(bytes / sizeof(float)));
    float *host = ares_malloc(bytes);
    d->k->copy_out(d, host, m->grads, bytes);
    int rc = ares_world_sum_f32(world, host, (int64_t)(bytes / sizeof(float)));
    if (rc == ARES_OK) d->k->copy_in(d, m->grads, host, bytes);
    if (rc == ARES_OK) rc = d->k->sync(d);
    ares_free(host);
    return rc;
}

int optim_norm(ares_model *m, ares_world *world, double *norm)
{
    ares_device *d = m->device;
    ares_model_join_embed_grad(m);
    ARES_TRY(sum_over_ranks(m, world));
    double squares = 0;
    for (int i = 0; i < m->n_params; i++)
        squares += d->k->sum_squares(d, m->params[i].grad.data, m->params[i].elements);
    *norm = sqrt(squares);
    return ARES_OK;
}

int optim_step(optim *o, ares_model *m, ares_world *world, double lr, double max_grad_norm,
               const char *what, double *grad_norm)
{
    ares_device *d = m->device;
    double norm;
    ARES_TRY(optim_norm(m, world, &norm));
    *grad_norm = norm;
    if (!isfinite(norm)) {
        (void)not_finite(m, norm);
        optim_skip(o, world, what);
        *grad_norm = NAN;
        return ARES_OK;
    }
    o->skipped = 0;
    o->updates++;
    /* as torch.nn.utils.clip_grad_norm_ */
    double scale = norm > max_grad_norm ? max_grad_norm / (norm + 1e-6) : 1;
    bool kahan = strcmp(o->cfg->strategy, "adamw_bf16") == 0;
    for (int i = 0; i < m->n_params; i++) {
        ares_param *p = &m->params[i];
        ares_adamw_args a = { .n = p->elements,
                              .w = p->weight.data,
                              .dtype = p->weight.dtype,
                              .kahan = kahan && p->weight.dtype == ARES_BF16,
                              .master = p->master,
                              .grad = p->grad.data,
                              .m = p->m,
                              .v = p->v,
                              .lr = lr,
                              .beta1 = o->cfg->betas.items[0],
                              .beta2 = o->cfg->betas.items[1],
                              .eps = o->cfg->eps,
                              .weight_decay = p->decay ? o->cfg->weight_decay : 0,
                              .grad_scale = scale,
                              .step = o->updates };
        d->k->adamw(d, &a);
    }
    return d->k->sync(d);
}
