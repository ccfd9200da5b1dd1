/* A model, its passes over rows of a batch, and its updates: the same for every role. */
#include "roles/learner.h"

#include <math.h>

int learner_check_storage(const char *role, ares_dtype storage, const ares_device *d)
{
    if (d->k->act == ARES_F32 || storage == ARES_BF16) return ARES_OK;
    return ares_fail(
        ARES_ECONFIG,
        "config: worker.%s.fsdp.torch_dtype = 'fp32': this device computes in bf16, as "
        "worker.actor.fsdp.torch_dtype asks; set worker.%s.fsdp.torch_dtype=bf16",
        role, role);
}

int learner_open(learner *l, ares_model *m, const learner_options *o)
{
    *l = (learner){ .role = o->role, .model = m, .world = o->world };
    if (!o->optim) return ares_workspace_new(m, ARES_KEEP_NOTHING, &l->workspace);
    ARES_TRY(optim_init(&l->optim, o->optim, o->total_steps));
    ARES_TRY(optim_alloc_states(&l->optim, m));
    return ares_workspace_new(m, o->gradient_checkpointing ? ARES_KEEP_INPUTS : ARES_KEEP_ALL,
                              &l->workspace);
}

static void close_columns(learner *l)
{
    columns_close(&l->targets);
    columns_close(&l->stats);
    columns_close(&l->columns);
}

void learner_close(learner *l)
{
    if (!l->model) return;
    ares_device *d = l->model->device;
    d->k->release(d, l->scratch, l->scratch_bytes);
    ares_workspace_free(l->workspace);
    close_columns(l);
    ares_arena_fini(&l->arena);
    *l = (learner){ 0 };
}

int learner_reserve(learner *l, size_t bytes)
{
    ares_device *d = l->model->device;
    if (bytes <= l->scratch_bytes) return ARES_OK;
    d->k->release(d, l->scratch, l->scratch_bytes);
    l->scratch_bytes = bytes;
    l->scratch = d->k->alloc(d, bytes);
    if (!l->scratch) l->scratch_bytes = 0;
    return l->scratch ? ARES_OK
                      : ares_fail(ARES_ELIMIT,
                                  "%s: %zu bytes do not fit on the device; lower "
                                  "worker.%s.max_token_len_per_device",
                                  l->role, bytes, l->role);
}

int learner_forward(learner *l, const ares_batch *b, const ares_micro_set *rows, bool share_prompts,
                    learner_pass *out)
{
    *out = (learner_pass){ 0 };
    const int32_t *targets;
    ares_arena_reset(&l->arena);
    ares_pack_build(b, rows, share_prompts, &l->arena, &out->packed, &targets);
    if (!out->packed.n_out) return ARES_OK;
    size_t bytes = (size_t)out->packed.n_out * sizeof *targets;
    ARES_TRY(columns_open(&l->targets, l->model->device, l->role, bytes, 1));
    int32_t *on = columns_place(&l->targets, (int32_t *)(uintptr_t)targets, bytes);
    columns_in(&l->targets, on, targets, bytes);
    out->targets = on;
    return ares_model_forward(l->model, l->workspace, &out->packed, &out->hidden);
}

int learner_forward_rows(learner *l, const ares_batch *b, const ares_micro_batch *m,
                         bool share_prompts, learner_pass *out)
{
    const ares_micro_set rows = { 1, m, m->tokens, m->out };
    return learner_forward(l, b, &rows, share_prompts, out);
}

ares_head_args learner_head(const learner *l, const learner_pass *p, double temperature)
{
    return (ares_head_args){ .rows = p->packed.n_out,
                             .vocab = l->model->cfg.vocab,
                             .x = p->hidden,
                             .ldx = l->model->cfg.hidden,
                             .w = ares_model_head(l->model),
                             .target = p->targets,
                             .inv_temperature = ares_inv_temperature((float)temperature) };
}

int learner_reserve_backward(learner *l, int32_t rows)
{
    return learner_reserve(l, (size_t)rows * (size_t)l->model->cfg.hidden *
                                  ares_dtype_bytes(l->model->device->k->act));
}

int learner_head_backward(learner *l, ares_head_args *h)
{
    ARES_TRY(learner_reserve_backward(l, h->rows));
    h->dx = l->scratch;
    h->lddx = l->model->cfg.hidden;
    h->dw = ares_model_head_grad(l->model);
    return ARES_OK;
}

int learner_backward(learner *l, const learner_pass *p, void *d_hidden)
{
    return ares_model_backward(l->model, l->workspace, &p->packed, d_hidden);
}

learner_scoring learner_scoring_of(const ares_train_config *cfg)
{
    return (learner_scoring){ .max_token_len = cfg->actor.max_token_len,
                              .share_prompts = cfg->actor.share_prompts,
                              .temperature = cfg->rollout.temperature };
}

/* What the head finds of n rows: log-probs, entropies and log-sum-exps, on the device. */
static void head_writes(ares_head_args *h, float *stats, size_t n)
{
    h->log_prob = stats;
    h->entropy = stats + n;
    h->lse = stats + 2 * n;
}

static int score(learner *l, const learner_scoring *s, const ares_batch *b,
                 const ares_micro_set *rows, float *stats, size_t n)
{
    ares_device *d = l->model->device;
    learner_pass p;
    ARES_TRY(learner_forward(l, b, rows, s->share_prompts, &p));
    if (!p.packed.n_out) return ARES_OK;
    ares_head_args h = learner_head(l, &p, s->temperature);
    head_writes(&h, stats, n);
    d->k->head(d, &h);
    return columns_ready(&l->stats);
}

/* stats [3][n]: of the sets, one after the other, on the host once all have been computed. */
static int score_all(learner *l, const learner_scoring *s, const ares_batch *b,
                     const ares_micro_set *sets, int64_t n_sets, float *stats, size_t n)
{
    ares_device *d = l->model->device;
    size_t bytes = 3 * n * sizeof *stats;
    ARES_TRY(columns_open(&l->stats, d, l->role, bytes, 1));
    float *on = columns_place(&l->stats, stats, bytes);
    for (int64_t i = 0, at = 0; i < n_sets; at += sets[i++].out)
        ARES_TRY(score(l, s, b, &sets[i], on + at, n));
    columns_out(&l->stats, &(column_part){ stats, on, 2 * n * sizeof *stats }, 1);
    return d->k->sync(d);
}

int learner_log_probs(learner *l, const learner_scoring *s, const ares_batch *b, int64_t row,
                      int64_t end, float *log_probs, float *entropies)
{
    ares_arena plan = { 0 };
    ares_micro_set *sets;
    int64_t sets_n, n = b->row_start[end] - b->row_start[row], first = b->row_start[row];
    int rc = ares_pack_sets(b, row, end, s->max_token_len, s->share_prompts, &plan, &sets, &sets_n);
    float *stats = ares_arena_alloc(&plan, ((size_t)n * 3 + 1) * sizeof *stats);
    if (rc == ARES_OK) rc = score_all(l, s, b, sets, sets_n, stats, (size_t)n);
    for (int64_t i = 0, at = 0; rc == ARES_OK && i < sets_n; at += sets[i++].out) {
        if (log_probs) ares_pack_scatter(b, &sets[i], stats + at, first, log_probs);
        if (entropies) ares_pack_scatter(b, &sets[i], stats + n + at, first, entropies);
    }
    ares_arena_fini(&plan);
    return rc;
}

int ares_train_log_probs(ares_model *m, ares_workspace *w, const ares_train_config *cfg,
                         const ares_batch *b, int64_t row, int64_t end, float *log_probs,
                         float *entropies)
{
    learner l = { .role = "actor", .model = m, .workspace = w };
    learner_scoring s = learner_scoring_of(cfg);
    int rc = learner_log_probs(&l, &s, b, row, end, log_probs, entropies);
    close_columns(&l);
    ares_arena_fini(&l.arena);
    return rc;
}

/* The coefficients of a loss that is linear in the log-probs. */
typedef struct linear_loss {
    ares_device *device;
    const float *d_log_prob;
} linear_loss;

static void linear_losses(void *ctx, int32_t row, int32_t n, const float *log_prob,
                          const float *entropy, float *c_log_prob, float *c_entropy)
{
    (void)log_prob;
    (void)entropy;
    (void)c_entropy;
    const linear_loss *x = ctx;
    x->device->k->copy(x->device, c_log_prob, x->d_log_prob + row, (size_t)n * sizeof(float));
}

/* Of the rows of the last pass, whose log-probs lie at `on` on the device. */
static int linear_sum(learner *l, const float *d_log_prob, const float *on, float *log_prob,
                      size_t n, double *sum)
{
    ares_device *d = l->model->device;
    columns_out(&l->stats, &(column_part){ log_prob, on, n * sizeof *on }, 1);
    ARES_TRY(d->k->sync(d));
    for (size_t i = 0; i < n; i++)
        if (d_log_prob[i] != 0) /* others may have probability 0 */
            *sum += (double)d_log_prob[i] * (double)log_prob[i];
    return ARES_OK;
}

int learner_add_gradients(learner *l, const learner_scoring *s, const ares_batch *b,
                          const ares_micro_batch *m, const float *d_log_prob, double *sum)
{
    ares_device *d = l->model->device;
    learner_pass p;
    ARES_TRY(learner_forward_rows(l, b, m, s->share_prompts, &p));
    if (!p.packed.n_out) return ARES_OK;
    size_t n = (size_t)p.packed.n_out, bytes = n * 3 * sizeof(float);
    float *stats = ares_arena_calloc(&l->arena, n * 3, sizeof *stats);
    ARES_TRY(columns_open(&l->stats, d, l->role, bytes + n * sizeof *stats, 2));
    float *on = columns_place(&l->stats, stats, bytes),
          *d_on = columns_place(&l->stats, (float *)(uintptr_t)d_log_prob, n * sizeof *stats);
    columns_in(&l->stats, d_on, d_log_prob, n * sizeof *stats);
    linear_loss loss = { d, d_on };
    ares_head_args h = learner_head(l, &p, s->temperature);
    head_writes(&h, on, n);
    ARES_TRY(learner_head_backward(l, &h));
    d->k->head_fused(d, &h, linear_losses, &loss);
    ARES_TRY(learner_backward(l, &p, l->scratch));
    return sum ? linear_sum(l, d_log_prob, on, stats, n, sum) : ARES_OK;
}

double learner_lr(const learner *l)
{
    return optim_lr(&l->optim, l->step);
}

int learner_step(learner *l, int rc, double max_grad_norm, const char *what, double *norm)
{
    if (rc == ARES_ENUMERIC) {
        optim_skip(&l->optim, l->world, what);
        *norm = NAN;
        return ARES_OK;
    }
    if (rc == ARES_OK)
        rc = optim_step(&l->optim, l->model, l->world, learner_lr(l), max_grad_norm, what, norm);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", what);
}
