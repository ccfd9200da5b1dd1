/*
 * The critic: a copy of the starting policy with a value head, its values and its update (PPO;
 * docs/update.md#critic). The value of response token t is read where t's log-prob is: from the
 * hidden state before it. Mini-batches and their counts are as in the actor's update.
 */
#include "run/run.h"
#include "trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/algo_loss.h"

/* The adapter and its head, on the policy's frozen model where it starts from that. */
static int open_adapter(critic *c, training *t, const ares_model_options *opt, const char *weights,
                        ares_adapter **out)
{
    const ares_train_config *cfg = c->cfg;
    const char *path = cfg->critic.model_path;
    bool same = t->adapter && (!path || strcmp(path, cfg->actor.model_path) == 0);
    const ares_model_share base = sharing_of_base(*opt->share),
                           share = sharing_of_adapter(*opt->share);
    ares_model_options frozen = { .storage = opt->storage,
                                  .arithmetic = opt->arithmetic,
                                  .share = &base };
    ares_str dir = { 0 }, start = { 0 };
    ares_lora_options lora = cfg->critic_lora;
    lora.adapter_path = rundir_starting_adapter(cfg, &cfg->critic_lora, "critic", &start);
    int rc = ARES_OK;
    if (!same) {
        if (!path) path = cfg->actor.model_path;
        rc = ares_model_load(path, &t->device, &frozen, &c->own);
        if (rc == ARES_OK) rc = ares_model_find(path, &dir);
    }
    if (rc == ARES_OK)
        rc = ares_adapter_new(same ? t->model : c->own, same ? t->model_dir.data : dir.data,
                              &(ares_adapter_options){ .lora = &lora,
                                                       .checkpoint = weights,
                                                       .seed = (uint64_t)cfg->rollout.seed,
                                                       .trainable = true,
                                                       .value_head = true,
                                                       .value_seed = (uint64_t)cfg->rollout.seed,
                                                       .share = &share },
                              out);
    ares_str_fini(&dir);
    ares_str_fini(&start);
    return rc;
}

/* Whether a checkpoint has an adapter or a whole critic must be what the run has. */
static int check_kind(const char *weights, bool lora)
{
    ares_str path = { 0 };
    bool has = ares_file_exists(ares_path_join(&path, weights, "adapter_config.json"));
    ares_str_fini(&path);
    if (has == lora) return ARES_OK;
    return ares_fail(ARES_ESTATE,
                     "train: %s: the run of this checkpoint trains %s, and "
                     "worker.critic.model.lora asks for %s; set it back, or give the run another "
                     "trainer.experiment_name",
                     weights, has ? "an adapter of the critic" : "all weights of the critic",
                     lora ? "an adapter" : "all weights");
}

int critic_open(critic *c, training *t, const char *weights)
{
    const ares_train_config *cfg = t->cfg;
    /* in the order of preference: the run's own critic, the named one, the starting policy */
    const char *path = weights                  ? weights
                       : cfg->critic.model_path ? cfg->critic.model_path
                                                : cfg->actor.model_path;
    const ares_model_share share = sharing_of_critic(cfg, &t->groups);
    ares_model_options opt = { .storage = training_type(cfg->critic.dtype),
                               .arithmetic = training_type(cfg->critic.arithmetic),
                               .trainable = true,
                               .trained = cfg->critic.trainable,
                               .value_head = true,
                               .value_seed = (uint64_t)cfg->rollout.seed,
                               .share = &share };
    ares_adapter *adapter = NULL;
    *c = (critic){ .cfg = cfg };
    if (weights) ARES_TRY(check_kind(weights, ares_lora_wanted(&cfg->critic_lora)));
    ARES_TRY(learner_check_storage("critic", opt.storage, &t->device));
    if (ares_lora_wanted(&cfg->critic_lora)) ARES_TRY(open_adapter(c, t, &opt, weights, &adapter));
    else ARES_TRY(ares_model_load(path, &t->device, &opt, &c->own));
    c->value = adapter ? adapter->value : c->own->value;
    c->value_bias = adapter ? adapter->value_bias : c->own->value_bias;
    int rc = learner_open(
        &c->learner, c->own ? c->own : t->model,
        &(learner_options){ .role = "critic",
                            .world = t->world,
                            .adapter = adapter,
                            .optim = &cfg->critic_optim,
                            .total_steps = t->total_steps,
                            .gradient_checkpointing = cfg->critic.gradient_checkpointing,
                            .skip_zero = cfg->actor.skip_zero_gradients,
                            .round_tokens = cfg->critic.round_tokens });
    c->learner.adapter = adapter; /* closed with it, also after a failure */
    return rc;
}

void critic_close(critic *c)
{
    ares_adapter *adapter = c->learner.adapter;
    learner_close(&c->learner);
    ares_adapter_free(adapter);
    ares_model_free(c->own);
}

/* The value head over a pass. value: scratch, [n_out] of the device's type; to: f32 [n_out]. */
static void value_of(const critic *c, const learner_pass *p, void *value, float *to)
{
    const ares_model *model = c->learner.model;
    ares_device *d = model->device;
    int32_t n = p->packed.n_out;
    ares_linear_args a = { .m = n,
                           .x = p->hidden,
                           .ldx = model->cfg.hidden,
                           .w = &c->value->weight,
                           .bias = c->value_bias->act,
                           .y = value,
                           .ldy = 1 };
    d->k->linear(d, &a, 1);
    d->k->convert(d, to, ARES_F32, value, d->k->act, n);
}

/* Bytes of the values of so many rows, in the device's type. */
static size_t value_bytes(const critic *c, int32_t rows)
{
    return (size_t)rows * ares_dtype_bytes(c->learner.model->device->k->act);
}

/*
 * The forward of a round. *value: scratch for the values of its largest micro-batch; with keep, the
 * passes also get their d_hidden.
 */
static int forward(critic *c, const ares_batch *b, const ares_micro_set *sets, int64_t n, bool keep,
                   learner_pass *p, void **value)
{
    learner *l = &c->learner;
    int32_t most = 0;
    ARES_TRY(learner_forward_round(l, b, sets, n, c->cfg->critic.share_prompts, keep, p));
    for (int64_t i = 0; i < n; i++) most = ARES_MAX(most, p[i].packed.n_out);
    return learner_share_error(
        l, NULL, learner_reserve_round(l, p, keep ? n : 0, value_bytes(c, most), value));
}

int critic_reserve(critic *c, int32_t rows, int64_t n)
{
    return learner_reserve_backward(&c->learner, rows, n, value_bytes(c, rows));
}

size_t critic_expect(critic *c, int32_t rows, int64_t n)
{
    return learner_expect_backward(&c->learner, rows, n, value_bytes(c, rows));
}

int critic_values(critic *c, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "values", response_mask));
    ARES_PUT(b, values);
    learner *l = &c->learner;
    ares_device *d = l->model->device;
    ares_micro_set *sets;
    int64_t n;
    size_t bytes = ((size_t)b->tokens + 1) * sizeof(float);
    float *values = ares_arena_alloc(&b->arena, bytes);
    int rc = ares_pack_sets(b, 0, b->rows, c->cfg->critic.max_token_len,
                            c->cfg->critic.share_prompts, &b->arena, &sets, &n);
    if (rc == ARES_OK) rc = dc_open(&l->stats, d, l->role, bytes, 1);
    ARES_TRY(learner_share_error(l, NULL, rc));
    float *on = dc_place(&l->stats, values, bytes), *at_round = on; /* set by set */
    learner_scored rounds;
    ARES_TRY(learner_cut_scored(l, NULL, sets, n, learner_by_region(l, NULL), &b->arena, &rounds));
    for (int64_t i = 0; i < rounds.n; i++) {
        int64_t first = rounds.first[i], end = rounds.first[i + 1];
        learner_pass *p = ares_arena_alloc(&b->arena, (size_t)(end - first + 1) * sizeof *p);
        void *value;
        ARES_TRY(forward(c, b, sets + first, end - first, false, p, &value));
        learner_hold_head(l);
        for (; first < end; at_round += sets[first++].out, p++)
            if (p->packed.n_out) value_of(c, p, value, at_round);
        learner_drop_head(l);
    }
    dc_download(&l->stats, &(column_part){ values, on, (size_t)b->tokens * sizeof *on }, 1);
    ARES_TRY(learner_sync(l));
    for (int64_t i = 0, at = 0; i < n; at += sets[i++].out)
        ares_pack_scatter(b, &sets[i], values + at, 0, b->values);
    for (int64_t t = 0; t < b->tokens; t++) /* tokens that the policy did not write have no value */
        if (!b->response_mask[t]) b->values[t] = 0;
    return ARES_OK;
}

/* Numbers by token of the batch that an update reads and writes. */
#define CRITIC_COLUMNS(X) \
    X(float, old_value)   \
    X(float, target)      \
    X(uint8_t, mask)      \
    X(float, weight)      \
    X(float, value)       \
    X(float, d_value)
typedef struct critic_columns {
#define CRITIC_COLUMN(type, name) type *name;
    CRITIC_COLUMNS(CRITIC_COLUMN)
#undef CRITIC_COLUMN
} critic_columns;

typedef struct value_update {
    critic *critic;
    ares_batch *batch;
    critic_columns host, col; /* on the host, and where the device computes with them */
    ares_card_sums *card;     /* a card's sums; NULL on the CPU, whose losses add to sums */
    ares_value_sums sums;
    /* optimizer steps that were taken, mini-batches without a token, updates left out */
    int64_t updates, empties, skipped;
    double lr;    /* of these steps */
    double norms; /* of the gradients, summed over the steps taken */
} value_update;

/*
 * Begins an update: its learning rate, its columns on the host and their places on the device, with
 * those that are read copied there.
 */
static int prepare(value_update *u)
{
    learner *l = &u->critic->learner;
    ares_batch *b = u->batch;
    device_columns *c = &l->columns;
    size_t n = (size_t)b->tokens + 1, bytes = sizeof(ares_card_sums);
    int count = 1;
    u->lr = learner_lr(l);
    u->host = (critic_columns){ .old_value = b->values,
                                .target = b->returns,
                                .mask = b->response_mask,
                                .weight = ares_arena_calloc(&b->arena, n, sizeof(float)),
                                .value = ares_arena_calloc(&b->arena, n, sizeof(float)),
                                .d_value = ares_arena_calloc(&b->arena, n, sizeof(float)) };
#define COUNT(type, name) bytes += n * sizeof(type), count++;
    CRITIC_COLUMNS(COUNT)
#undef COUNT
    ARES_TRY(dc_open(c, l->model->device, l->role, bytes, count));
#define PLACE(type, name) u->col.name = dc_place(c, u->host.name, n * sizeof(type));
    CRITIC_COLUMNS(PLACE)
#undef PLACE
    dc_upload(c, u->col.old_value, u->host.old_value, (n - 1) * sizeof(float));
    dc_upload(c, u->col.target, u->host.target, (n - 1) * sizeof(float));
    dc_upload(c, u->col.mask, u->host.mask, n - 1);
    if (!dc_shared(c))
        u->card = dc_place(c, ares_arena_calloc(&b->arena, 1, sizeof *u->card), sizeof *u->card);
    return ARES_OK;
}

/* The arguments of the loss over rows [row, end). c: u->host or u->col */
static ares_value_args args_of(value_update *u, const critic_columns *c, int64_t row, int64_t end)
{
    const ares_batch *b = u->batch;
    int64_t t = b->row_start[row];
    return (ares_value_args){ .n = b->row_start[end] - t,
                              .value = c->value + t,
                              .old_value = c->old_value + t,
                              .target = c->target + t,
                              .weight = c->weight + t,
                              .mask = c->mask + t,
                              .cliprange_value = u->critic->cfg->critic.cliprange_value,
                              .d_value = c->d_value + t,
                              .sums = &u->sums,
                              .first = t,
                              .row_start = b->row_start,
                              .row = row,
                              .end = end,
                              .card = u->card };
}

/* The values of a micro-batch, their loss, and the derivatives of its hidden states. */
static int value_loss(value_update *u, const ares_micro_batch *m, const learner_pass *p,
                      void *value)
{
    critic *c = u->critic;
    learner *l = &c->learner;
    ares_model *model = l->model;
    ares_device *d = model->device;
    const ares_value_args a = args_of(u, &u->col, m->row, m->end);
    int32_t width = model->cfg.hidden, n = p->packed.n_out;
    if (!n) return ARES_OK;
    value_of(c, p, value, u->col.value + a.first);
    ARES_TRY(dc_sync_if_host(&l->columns));
    ARES_TRY(ares_value_loss_on(d, &a));
    d->k->convert(d, value, d->k->act, a.d_value, ARES_F32, n); /* value is scratch by now */
    ares_linear_backward_args back = { .m = n,
                                       .dy = value,
                                       .lddy = 1,
                                       .w = &c->value->weight,
                                       .dx = p->d_hidden,
                                       .lddx = width,
                                       .x = p->hidden,
                                       .ldx = width,
                                       .dw = c->value->grad.data ? &c->value->grad : NULL,
                                       .dbias = c->value_bias->grad.data };
    d->k->linear_backward(d, &back, 1);
    return ARES_OK;
}

/*
 * After the losses of rows [row, end) on a card: adds their sums, in one wait, or fails with the
 * CPU's message where the loss has met a number that it cannot compute with.
 */
static int finish(value_update *u, int64_t row, int64_t end)
{
    learner *l = &u->critic->learner;
    ares_device *d = l->model->device;
    ares_card_sums sums;
    if (!u->card) return ARES_OK;
    dc_download(&l->columns, &(column_part){ &sums, u->card, sizeof sums }, 1);
    ARES_TRY(d->k->sync(d));
    if (sums.fault == UINT64_MAX) {
        ares_card_value_sums_add(&sums, &u->sums);
        return ARES_OK;
    }
    const ares_value_args a = args_of(u, &u->host, row, end);
    dc_download(&l->columns,
                &(column_part){ u->host.value + a.first, u->col.value + a.first,
                                (size_t)a.n * sizeof(float) },
                1);
    ARES_TRY(d->k->sync(d));
    return ares_value_fault(&a);
}

/* Forward, loss and backward of rows [row, end): micro-batch by micro-batch, or all together. */
static int pass_over(value_update *u, int64_t row, int64_t end)
{
    critic *c = u->critic;
    learner *l = &c->learner;
    const ares_critic_config *cfg = &c->cfg->critic;
    ares_arena *arena = &u->batch->arena;
    ares_micro_batch *plan = ares_arena_alloc(arena, (size_t)(end - row + 1) * sizeof *plan);
    int64_t i = 0,
            n = ares_pack_plan(u->batch, row, end, cfg->max_token_len, cfg->share_prompts, plan);
    do {
        int64_t k = learner_micro_batches_per_round(l, NULL, n - i);
        learner_pass *p = ares_arena_alloc(arena, (size_t)(k + 1) * sizeof *p);
        const ares_micro_batch *m = plan + i;
        void *value;
        ARES_TRY(forward(c, u->batch, learner_sets_of(m, k, arena), k, true, p, &value));
        int rc = ARES_OK;
        ares_region_grad(&l->model->params, ares_model_head_region(l->model));
        learner_hold_head(l);
        for (int64_t j = 0; j < k && rc == ARES_OK; j++) rc = value_loss(u, &m[j], &p[j], value);
        learner_drop_head(l);
        ARES_TRY(learner_share_error(l, NULL, rc));
        ARES_TRY(learner_backward_round(l, p, k));
        i += k;
    } while (i < n);
    return ARES_OK;
}

/* One optimizer step, over rows [row, end). fills: they only fill the batch, and count nowhere. */
static int mini_batch(value_update *u, int64_t row, int64_t end, bool fills)
{
    critic *c = u->critic;
    learner *l = &c->learner;
    ares_batch *b = u->batch;
    char what[80];
    double norm;
    ares_value_sums before = u->sums;
    snprintf(what, sizeof what, "critic: step %lld, optimizer step %lld", (long long)l->step + 1,
             (long long)l->optim.updates + 1);
    ares_agg_counts counts = { 0 };
    ares_agg_count(b, row, end, &counts);
    double totals[2] = { counts.tokens, counts.rows };
    ARES_TRY(ares_world_sum_f64(l->world, totals, 2));
    if (totals[0] == 0) { /* no rank has a token to learn from */
        u->empties += !fills;
        return ARES_OK;
    }
    counts = (ares_agg_counts){ totals[0], totals[1], (double)c->cfg->data.max_response_length };
    ARES_TRY(ares_agg_weights(c->cfg->critic.loss_avg_mode, b, row, end, &counts,
                              u->host.weight + b->row_start[row]));
    int64_t t = b->row_start[row];
    size_t bytes = (size_t)(b->row_start[end] - t) * sizeof(float);
    if (bytes) l->model->device->k->zero(l->model->device, u->col.d_value + t, bytes);
    dc_upload(&l->columns, u->col.weight + t, u->host.weight + t, bytes);
    ares_card_sums sums; /* a card's begin at 0 */
    ares_card_sums_init(&sums);
    if (u->card) dc_upload(&l->columns, u->card, &sums, sizeof sums);
    ARES_TRY(learner_zero_grad(l, NULL));
    learner_rounds rounds;
    int rc = learner_cut_rounds(l, b, row, end, c->cfg->critic.share_prompts, &b->arena, &rounds);
    for (int64_t i = 0; rc == ARES_OK && i < rounds.n; i++)
        rc = learner_end_round(l, pass_over(u, rounds.round[i].row, rounds.round[i].end));
    if (rc == ARES_OK) rc = finish(u, row, end);
    rc = ares_world_share_error(l->world, rc);
    ARES_TRY(learner_step(l, rc, c->cfg->critic.max_grad_norm, what, &norm));
    if (isnan(norm)) { /* the update was left out, on every rank, and counts in no metric */
        u->sums = before;
        u->skipped++;
        return ARES_OK;
    }
    u->norms += norm;
    u->updates++;
    return ARES_OK;
}

/* 1 - var(returns - values) / (var(returns) + 1e-5), over the tokens of all ranks, as in verl. */
static int explained_variance(const critic *c, const ares_batch *b, ares_metrics *m)
{
    double s[5] = { 0 }; /* tokens; sums of returns and errors; their squared deviations */
    for (int64_t t = 0; t < b->tokens; t++) {
        if (!b->response_mask[t]) continue;
        s[0]++;
        s[1] += (double)b->returns[t];
        s[2] += (double)b->returns[t] - (double)b->values[t];
    }
    ARES_TRY(ares_world_sum_f64(c->learner.world, s, 3));
    /* a second pass, around the means: differences of large sums would lose digits */
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

/* ppo_epochs passes over the mini-batches. */
static int train(value_update *u, const mini_batches *minis)
{
    const critic *c = u->critic;
    const ares_critic_config *cfg = &c->cfg->critic;
    mini_batches_expect(minis, cfg->ppo_epochs, cfg->max_token_len, cfg->share_prompts);
    ARES_TRY(ares_world_share_error(c->learner.world, prepare(u)));
    for (int64_t epoch = 0; epoch < cfg->ppo_epochs; epoch++)
        for (int64_t k = 0; k < minis->n; k++)
            ARES_TRY(mini_batch(u, minis->start[k], minis->start[k + 1], k >= minis->counted));
    return ARES_OK;
}

int critic_update(critic *c, ares_batch *b, ares_metrics *m)
{
    ARES_TRY(ARES_NEED(b, "update_critic", values));
    ARES_TRY(ARES_NEED(b, "update_critic", returns));
    const mini_batch_size size = mini_batch_size_of_critic(c->cfg);
    mini_batches minis;
    ARES_TRY(mini_batches_cut(&size, b, c->learner.world, &minis));
    value_update u = { .critic = c, .batch = minis.batch };
    int rc = train(&u, &minis);
    mini_batches_fini(&minis);
    ARES_TRY(rc);
    c->learner.step++;
    double s[4] = { u.sums.loss, u.sums.tokens, u.sums.clip, u.sums.value };
    ARES_TRY(ares_world_sum_f64(c->learner.world, s, 4));
    if (u.empties) ares_metrics_set(m, "critic/empty_minibatches", (double)u.empties);
    ares_metrics_set(m, "critic/skipped_updates", (double)u.skipped);
    ares_metrics_set(m, "critic/lr", u.lr);
    if (u.updates == 0) return explained_variance(c, b, m);
    ares_metrics_set(m, "critic/vf_loss", s[0] / (double)u.updates);
    ares_metrics_set(m, "critic/vf_clipfrac", s[2] / s[1]);
    ares_metrics_set(m, "critic/vpred_mean", s[3] / s[1]);
    ares_metrics_set(m, "critic/grad_norm", u.norms / (double)u.updates);
    return explained_variance(c, b, m);
}
