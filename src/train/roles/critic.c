/*
 * The critic: a copy of the starting policy with a value head, its values and its update (PPO;
 * docs/update.md#critic). The value of response token t is read where t's log-prob is: from the
 * hidden state before it. Mini-batches and their counts are as in the actor's update.
 */
#include "roles/critic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/algo_twin.h"
#include "roles/mini_batches.h"

int critic_open(critic *c, const ares_train_config *cfg, ares_device *d, ares_world *world,
                int64_t total_steps, const char *weights)
{
    const char *path = weights                  ? weights
                       : cfg->critic.model_path ? cfg->critic.model_path
                                                : cfg->actor.model_path;
    ares_model_options opt = { .storage =
                                   cfg->critic.dtype && strcmp(cfg->critic.dtype, "bf16") == 0
                                       ? ARES_BF16
                                       : ARES_F32,
                               .trainable = true,
                               .value_head = true,
                               .value_seed = (uint64_t)cfg->rollout.seed };
    ares_model *m;
    *c = (critic){ .cfg = cfg };
    ARES_TRY(ares_model_load(path, d, &opt, &m));
    return learner_open(
        &c->learner, m,
        &(learner_options){ .role = "critic",
                            .world = world,
                            .optim = &cfg->critic_optim,
                            .total_steps = total_steps,
                            .gradient_checkpointing = cfg->critic.gradient_checkpointing });
}

void critic_close(critic *c)
{
    ares_model *m = c->learner.model;
    learner_close(&c->learner);
    ares_model_free(m);
}

/* A micro-batch in the learner's scratch: n values or their derivatives, twice, and the rest. */
typedef struct value_scratch {
    float *wide;                   /* [n] */
    void *value, *bias, *d_hidden; /* activations: [n], [1], [n][hidden] */
} value_scratch;
static value_scratch scratch_of(const learner *l, int32_t n)
{
    size_t each = ares_dtype_bytes(l->model->device->k->act), most = ((size_t)n + 15) / 16 * 16;
    char *p = l->scratch;
    return (value_scratch){ .wide = l->scratch,
                            .value = p + most * sizeof(float),
                            .bias = p + most * (sizeof(float) + each),
                            .d_hidden = p + most * (sizeof(float) + each) + 64 };
}
static size_t scratch_bytes(const learner *l, int32_t n)
{
    size_t each = ares_dtype_bytes(l->model->device->k->act), most = ((size_t)n + 15) / 16 * 16;
    return most * (sizeof(float) + each * ((size_t)l->model->cfg.hidden + 1)) + 64;
}

/* Values of the response tokens of some rows, in the order of the runs, on the host. */
static int forward(critic *c, const ares_batch *b, const ares_micro_set *rows, learner_pass *p,
                   float *values)
{
    learner *l = &c->learner;
    ares_model *model = l->model;
    ares_device *d = model->device;
    ARES_TRY(learner_forward(l, b, rows, c->cfg->critic.share_prompts, p));
    int32_t n = p->packed.n_out;
    if (!n) return ARES_OK;
    ARES_TRY(learner_reserve(l, scratch_bytes(l, n)));
    value_scratch s = scratch_of(l, n);
    d->k->convert(d, s.bias, d->k->act, model->value_bias->weight.data, ARES_F32, 1);
    ares_linear_args a = { .m = n,
                           .x = p->hidden,
                           .ldx = model->cfg.hidden,
                           .w = &model->value->weight,
                           .bias = s.bias,
                           .y = s.value,
                           .ldy = 1 };
    d->k->linear(d, &a, 1);
    d->k->convert(d, s.wide, ARES_F32, s.value, d->k->act, n);
    d->k->copy_out(d, values, s.wide, (size_t)n * sizeof *values);
    return d->k->sync(d);
}

int critic_values(critic *c, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "values", response_mask));
    ARES_PUT(b, values);
    ares_micro_set *sets;
    int64_t n;
    float *values = ares_arena_alloc(&b->arena, ((size_t)b->tokens + 1) * sizeof *values);
    ARES_TRY(ares_pack_sets(b, 0, b->rows, c->cfg->critic.max_token_len,
                            c->cfg->critic.share_prompts, &b->arena, &sets, &n));
    for (int64_t i = 0; i < n; i++) {
        learner_pass p;
        ARES_TRY(forward(c, b, &sets[i], &p, values));
        ares_pack_scatter(b, &sets[i], values, 0, b->values);
    }
    for (int64_t t = 0; t < b->tokens; t++)
        if (!b->response_mask[t]) b->values[t] = 0;
    return ARES_OK;
}

static int micro_batch(critic *c, const ares_batch *b, const ares_micro_batch *m,
                       const float *weight, ares_value_sums *sums)
{
    learner *l = &c->learner;
    ares_model *model = l->model;
    ares_device *d = model->device;
    learner_pass p = { 0 };
    float *value =
        ares_malloc((size_t)(b->row_start[m->end] - b->row_start[m->row] + 1) * 2 * sizeof *value);
    int rc = forward(c, b, &(ares_micro_set){ 1, m, m->tokens, m->out }, &p, value);
    int32_t n = rc == ARES_OK ? p.packed.n_out : 0, width = model->cfg.hidden;
    int64_t at = b->row_start[m->row];
    float *gradient = value + n;
    if (n) memset(gradient, 0, (size_t)n * sizeof *gradient);
    ares_value_args a = { .n = n,
                          .value = value,
                          .old_value = b->values + at,
                          .target = b->returns + at,
                          .weight = weight + at,
                          .mask = b->response_mask + at,
                          .cliprange_value = c->cfg->critic.cliprange_value,
                          .d_value = gradient,
                          .sums = sums,
                          .first = at,
                          .row_start = b->row_start,
                          .row = m->row,
                          .end = m->end };
    if (n) rc = ares_value_loss_on(d, &a);
    if (n && rc == ARES_OK) {
        value_scratch s = scratch_of(l, n);
        d->k->copy_in(d, s.wide, gradient, (size_t)n * sizeof *gradient);
        d->k->convert(d, s.value, d->k->act, s.wide, ARES_F32, n);
        ares_linear_backward_args back = { .m = n,
                                           .dy = s.value,
                                           .lddy = 1,
                                           .w = &model->value->weight,
                                           .dx = s.d_hidden,
                                           .lddx = width,
                                           .x = p.hidden,
                                           .ldx = width,
                                           .dw = &model->value->grad,
                                           .dbias = model->value_bias->grad.data };
        d->k->linear_backward(d, &back);
        rc = learner_backward(l, &p, s.d_hidden);
    }
    ares_free(value);
    return rc;
}

typedef struct mini_batch_result {
    bool empty;       /* no rank has a token to learn from, and no step was taken */
    double grad_norm; /* NaN: the update was left out, on every rank */
} mini_batch_result;

/* One optimizer step, over rows [row, end). */
static int mini_batch(critic *c, ares_batch *b, int64_t row, int64_t end, float *weight,
                      ares_value_sums *sums, mini_batch_result *out)
{
    learner *l = &c->learner;
    char what[80];
    ares_value_sums before = *sums;
    int rc = ARES_OK;
    snprintf(what, sizeof what, "critic: step %lld, optimizer step %lld", (long long)l->step + 1,
             (long long)l->optim.updates + 1);
    ares_agg_counts counts = { 0 };
    ares_agg_count(b, row, end, &counts);
    double totals[2] = { counts.tokens, counts.rows };
    ARES_TRY(ares_world_sum_f64(l->world, totals, 2));
    *out = (mini_batch_result){ .empty = totals[0] == 0 };
    if (out->empty) return ARES_OK;
    counts = (ares_agg_counts){ totals[0], totals[1], (double)c->cfg->data.max_response_length };
    ARES_TRY(ares_agg_weights(c->cfg->critic.loss_avg_mode, b, row, end, &counts,
                              weight + b->row_start[row]));
    ares_model_zero_grad(l->model);
    ares_micro_batch *plan = ares_arena_alloc(&b->arena, (size_t)(end - row + 1) * sizeof *plan);
    int64_t n = ares_pack_plan(b, row, end, c->cfg->critic.max_token_len,
                               c->cfg->critic.share_prompts, plan);
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) rc = micro_batch(c, b, &plan[i], weight, sums);
    rc = ares_world_agree(l->world, rc);
    ARES_TRY(learner_step(l, rc, c->cfg->critic.max_grad_norm, what, &out->grad_norm));
    if (isnan(out->grad_norm)) *sums = before;
    return ARES_OK;
}

/* 1 - var(returns - values) / var(returns), unbiased, over the tokens of all ranks. */
static int explained_variance(const critic *c, const ares_batch *b, ares_metrics *m)
{
    double s[5] = { 0 };
    for (int64_t t = 0; t < b->tokens; t++) {
        if (!b->response_mask[t]) continue;
        s[0]++;
        s[1] += (double)b->returns[t];
        s[2] += (double)b->returns[t] - (double)b->values[t];
    }
    ARES_TRY(ares_world_sum_f64(c->learner.world, s, 3));
    double target = s[1] / s[0], error = s[2] / s[0];
    for (int64_t t = 0; t < b->tokens; t++) {
        if (!b->response_mask[t]) continue;
        double x = (double)b->returns[t] - target,
               e = (double)b->returns[t] - (double)b->values[t] - error;
        s[3] += x * x;
        s[4] += e * e;
    }
    ARES_TRY(ares_world_sum_f64(c->learner.world, s + 3, 2));
    if (s[0] > 1)
        ares_metrics_set(m, "critic/vf_explained_var",
                         1 - s[4] / (s[0] - 1) / (s[3] / (s[0] - 1) + 1e-5));
    return ARES_OK;
}

/* What the mini-batches of an update were. */
typedef struct update_result {
    int64_t updates, empties, skipped;
    double norms; /* sum over the updates */
    ares_value_sums sums;
} update_result;

static int train(critic *c, const mini_batches *minis, update_result *out)
{
    ares_batch *b = minis->batch;
    float *weight = ares_arena_calloc(&b->arena, (size_t)b->tokens + 1, sizeof *weight);
    for (int64_t epoch = 0; epoch < c->cfg->critic.ppo_epochs; epoch++)
        for (int64_t k = 0; k < minis->n; k++) {
            mini_batch_result step;
            ARES_TRY(
                mini_batch(c, b, minis->start[k], minis->start[k + 1], weight, &out->sums, &step));
            out->empties += step.empty;
            if (step.empty) continue;
            out->skipped += isnan(step.grad_norm);
            if (isnan(step.grad_norm)) continue;
            out->norms += step.grad_norm;
            out->updates++;
        }
    return ARES_OK;
}

int critic_update(critic *c, ares_batch *b, ares_metrics *m)
{
    ARES_TRY(ARES_NEED(b, "update_critic", values));
    ARES_TRY(ARES_NEED(b, "update_critic", returns));
    const mini_batch_size size = mini_batch_size_of_critic(c->cfg);
    mini_batches minis;
    update_result u = { 0 };
    ARES_TRY(
        ares_world_agree(c->learner.world, mini_batches_cut(&size, b, c->learner.world, &minis)));
    double lr = learner_lr(&c->learner);
    int rc = train(c, &minis, &u);
    mini_batches_fini(&minis);
    ARES_TRY(rc);
    c->learner.step++;
    double s[4] = { u.sums.loss, u.sums.tokens, u.sums.clip, u.sums.value };
    ARES_TRY(ares_world_sum_f64(c->learner.world, s, 4));
    if (u.empties) ares_metrics_set(m, "critic/empty_minibatches", (double)u.empties);
    ares_metrics_set(m, "critic/skipped_updates", (double)u.skipped);
    ares_metrics_set(m, "critic/lr", lr);
    if (u.updates == 0) return explained_variance(c, b, m);
    ares_metrics_set(m, "critic/vf_loss", s[0] / (double)u.updates);
    ares_metrics_set(m, "critic/vf_clipfrac", s[2] / s[1]);
    ares_metrics_set(m, "critic/vpred_mean", s[3] / s[1]);
    ares_metrics_set(m, "critic/grad_norm", u.norms / (double)u.updates);
    return explained_variance(c, b, m);
}
