/*
 * A whole update of tiny models, and its oracle: two groups of unlike rows with a shared prompt,
 * tokens of an environment among the policy's, a temperature; libtorch walks each row by itself,
 * unpacked, from the plain formulas in f64. A test gives the loss.
 */
#ifndef ARES_TEST_GRADIENT_H
#define ARES_TEST_GRADIENT_H

#include <math.h>
#include <stdio.h>

#include "ares/at.h"
#include "roles.h"
#include "test.h"

enum { GROUPS = 2, PER_GROUP = 3, ROWS = GROUPS * PER_GROUP, PARAMS_MAX = 64 };
static const int prompt_len[GROUPS] = { 7, 12 };
static const int response_len[ROWS] = { 5, 1, 17, 9, 4, 11 };
static const double scores[ROWS] = { 1, 0, 0.25, -1, 0.5, 0.5 };

typedef struct run {
    ares_device device;
    ares_model *model;
    actor actor;
    ares_batch batch;
    ares_train_config cfg;
    ares_metrics *metrics;
    int32_t prompts[GROUPS][16];
} run;

static double draw(uint64_t index)
{
    return ares_rng_normal(ares_rng_root(2024, ARES_RNG_TEST), index);
}
static int32_t draw_id(const ares_model *m, uint64_t index)
{
    return (int32_t)ares_rng_below(ares_rng_root(7, ARES_RNG_TEST), index, (uint64_t)m->cfg.vocab);
}

static void fill_batch(run *r)
{
    ares_batch *b = &r->batch;
    ares_batch_init(b);
    b->kl_coef = 1.5 * r->cfg.algorithm.kl_coef; /* as a controller leaves it */
    for (int g = 0; g < GROUPS; g++) {
        for (int i = 0; i < prompt_len[g]; i++)
            r->prompts[g][i] = draw_id(r->model, (uint64_t)(1000 * g + i));
        ares_batch_begin_group(b);
        for (int i = 0; i < PER_GROUP; i++)
            ares_batch_add_row(b,
                               &(ares_sample){ .draw = g,
                                               .index = i,
                                               .place = g,
                                               .prompt = r->prompts[g],
                                               .prompt_len = prompt_len[g] },
                               response_len[g * PER_GROUP + i]);
    }
    ARES_PUT(b, responses), ARES_PUT(b, response_mask), ARES_PUT(b, token_level_rewards);
    ARES_PUT(b, weight_versions);
    for (int64_t t = 0; t < b->tokens; t++) {
        b->responses[t] = draw_id(r->model, 5000 + (uint64_t)t);
        b->response_mask[t] = t % 6 != 4; /* an environment's words now and then */
    }
    for (int64_t row = 0; row < b->rows; row++)
        b->token_level_rewards[b->row_start[row + 1] - 1] = (float)scores[row];
}

/* Log-probs of a policy near this one: far enough for every clip to act somewhere. */
static void near_policy(const run *r, float *out, const float *now, uint64_t seed, double spread)
{
    for (int64_t t = 0; t < r->batch.tokens; t++)
        out[t] = now[t] + (float)(spread * draw(seed + (uint64_t)t));
}

/*
 * Of runs that are opened from here on: where weights lie; whether derivatives of 0 are computed
 * with, and blocks again; threads.
 */
static bool weights_on_host, computes_zeros, computes_again;
static int threads = 2;

static bool run_open(run *r, const char *variant, const char *avg_mode, bool share)
{
    static const double betas[] = { 0.9, 0.999 };
    static char path[500];
    snprintf(path, sizeof path, "%s/%s", test_source("tests/golden/models"), variant);
    *r = (run){ .cfg = { .data = { .max_response_length = 20 },
                         .algorithm = { .adv_estimator = "grpo",
                                        .norm_adv_by_std_in_grpo = true,
                                        .use_kl_loss = true,
                                        .kl_penalty = "low_var_kl",
                                        .kl_coef = 0.1 },
                         .loss = { .loss_type = "default",
                                   .clip_ratio_low = 0.2,
                                   .clip_ratio_high = 0.28,
                                   .clip_ratio_dual = 3,
                                   .loss_avg_mode = avg_mode,
                                   ARES_LOSS_DEFAULTS,
                                   .entropy_coeff = 0.05 },
                         .actor = { .global_batch_size = GROUPS,
                                    .mini_batch_unit = "prompts",
                                    .max_token_len = share ? 40 : 1000,
                                    .share_prompts = share,
                                    .skip_zero_gradients = !computes_zeros,
                                    .gradient_checkpointing = computes_again,
                                    .ppo_epochs = 1,
                                    .max_grad_norm = 1 },
                         .optim = { .strategy = "adamw",
                                    .lr = 1e-3,
                                    .betas = { betas, 2 },
                                    .eps = 1e-8,
                                    .scheduler = "constant",
                                    .warmup_steps = 0 },
                         .rollout = { .temperature = 0.8 } } };
    const ares_model_share where = { .weights_on_host = weights_on_host };
    ares_model_options opt = { TEST_TYPES, .trainable = true, .share = &where };
    if (!CHECK_OK(ares_device_open("cpu", threads, &r->device)) ||
        !CHECK_OK(ares_model_load(path, &r->device, &opt, &r->model)))
        return false;
    r->metrics = ares_metrics_new();
    fill_batch(r);
    ares_batch *b = &r->batch;
    if (!CHECK_OK(actor_open(&r->actor, &r->cfg, r->model, NULL, NULL, NULL, 1)) ||
        !CHECK_OK(ares_adv_find("grpo")->compute(&r->cfg.algorithm, NULL, b)))
        return false;
    ARES_PUT(b, rollout_log_probs), ARES_PUT(b, old_log_probs), ARES_PUT(b, ref_log_probs);
    if (!CHECK_OK(ares_train_log_probs(r->model, NULL, r->actor.learner.workspace, NULL, &r->cfg, b,
                                       0, b->rows, b->rollout_log_probs, NULL)))
        return false;
    near_policy(r, b->old_log_probs, b->rollout_log_probs, 20000, 0.8);
    near_policy(r, b->ref_log_probs, b->rollout_log_probs, 30000, 0.3);
    return true;
}

/* From here on updates are those of all ranks, whose gradients add up. A collective. */
static inline void run_join(run *r, ares_world *w)
{
    r->actor.learner.world = w;
    CHECK_OK(ares_group_open(w, &r->device, ares_world_size(w), 1, &r->model->params.share.group));
}

static void run_close(run *r)
{
    ares_group *g = r->model->params.share.group;
    actor_close(&r->actor);
    ares_batch_fini(&r->batch);
    ares_metrics_free(r->metrics);
    ares_model_free(r->model);
    ares_group_close(g);
    ares_device_close(&r->device);
}

/* ---------------------------------------------------------------- the oracle */

typedef struct oracle {
    const run *r;
    at_dtype dtype;
    at_tensor leaf[PARAMS_MAX]; /* by the parameter's place in the model's list */
} oracle;

static at_tensor of(const oracle *o, const ares_param *p)
{
    return p ? o->leaf[p - o->r->model->params.list] : NULL;
}
static at_tensor blob(const oracle *o, const float *x, int64_t n)
{
    return at_clone(at_to(at_from_blob((void *)x, AT_F32, AT_DIMS(n)), o->dtype));
}
static at_tensor project(const oracle *o, const ares_linear *l, at_tensor x)
{
    return at_linear(x, of(o, l->w), of(o, l->bias));
}

static at_tensor norm(const oracle *o, const ares_param *w, at_tensor x)
{
    return at_mul(at_mul(x, at_rsqrt(at_add_s(at_mean_dim(at_mul(x, x), -1, true),
                                              (double)o->r->model->cfg.rms_norm_eps))),
                  of(o, w));
}

/* [n, heads * dim] -> [heads, n, dim], normalised where the family does, turned by position. */
static at_tensor heads_of(const oracle *o, at_tensor x, int heads, const ares_param *head_norm,
                          int n)
{
    const ares_model_config *c = &o->r->model->cfg;
    int half = c->head_dim / 2;
    double *angle = ares_malloc((size_t)(n * half) * sizeof *angle);
    for (int p = 0; p < n; p++)
        for (int i = 0; i < half; i++)
            angle[p * half + i] = p * pow(c->rope.theta, -2.0 * i / c->head_dim);
    for (int i = 0; i < n * half; i++)
        angle[i] = (double)(float)angle[i]; /* transformers rounds angles to f32 */
    double *table = ares_malloc((size_t)(2 * n * half) * sizeof *table);
    for (int i = 0; i < n * half; i++) {
        table[i] = cos(angle[i]);
        table[n * half + i] = sin(angle[i]);
    }
    at_tensor turns =
                  at_to(at_clone(at_from_blob(table, AT_F64, AT_DIMS(2, n, 1, half))), o->dtype),
              cosines = at_select(turns, 0, 0), sines = at_select(turns, 0, 1);
    ares_free(angle), ares_free(table);
    x = at_reshape(x, AT_DIMS(n, heads, c->head_dim));
    if (head_norm) x = norm(o, head_norm, x);
    at_tensor a = at_narrow(x, 2, 0, half), b = at_narrow(x, 2, half, half);
    at_tensor turned[] = { at_sub(at_mul(a, cosines), at_mul(b, sines)),
                           at_add(at_mul(b, cosines), at_mul(a, sines)) };
    return at_transpose(at_cat(turned, 2, 2), 0, 1);
}

static at_tensor block(const oracle *o, int layer, at_tensor x, int n)
{
    const ares_model_config *c = &o->r->model->cfg;
    const ares_model_layer *l = &o->r->model->layer[layer];
    int window = c->layer[layer] & ARES_LAYER_WINDOW ? c->window : n,
        group = c->heads / c->kv_heads;
    uint8_t *hidden = ares_calloc((size_t)(n * n), 1);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) hidden[i * n + j] = j > i || j <= i - window;
    at_tensor mask = at_clone(at_from_blob(hidden, AT_BOOL, AT_DIMS(n, n)));
    ares_free(hidden);
    at_tensor h = norm(o, l->norm[ARES_BEFORE_ATTENTION], x),
              q = heads_of(o, project(o, &l->q, h), c->heads, l->q_norm, n);
    at_tensor kv[] = {
        heads_of(o, project(o, &l->k, h), c->kv_heads, l->k_norm, n),
        at_transpose(at_reshape(project(o, &l->v, h), AT_DIMS(n, c->kv_heads, c->head_dim)), 0, 1)
    };
    for (int i = 0; i < 2; i++)
        kv[i] = at_reshape(
            at_expand(at_unsqueeze(kv[i], 1), AT_DIMS(c->kv_heads, group, n, c->head_dim)),
            AT_DIMS(c->heads, n, c->head_dim));
    at_tensor weights = at_softmax(
        at_masked_fill(at_mul_s(at_matmul(q, at_transpose(kv[0], 1, 2)), 1 / sqrt(c->head_dim)),
                       mask, -INFINITY),
        -1);
    x = at_add(x, project(o, &l->o,
                          at_reshape(at_transpose(at_matmul(weights, kv[1]), 0, 1),
                                     AT_DIMS(n, c->heads * c->head_dim))));
    h = norm(o, l->norm[ARES_BEFORE_MLP], x);
    return at_add(
        x, project(o, &l->down, at_mul(at_silu(project(o, &l->gate, h)), project(o, &l->up, h))));
}

static inline double tokens_of(const ares_batch *b, int64_t row)
{
    double n = 0;
    for (int64_t t = b->row_start[row]; t < b->row_start[row + 1]; t++) n += b->response_mask[t];
    return n;
}

/* Log-probs [response, vocab] of one row, under the leaves of o. */
static at_tensor row_log_p(const oracle *o, int row)
{
    const run *r = o->r;
    const ares_batch *b = &r->batch;
    int group = row / PER_GROUP, prompt = prompt_len[group], response = response_len[row],
        n = prompt + response - 1;
    int32_t ids[64];
    memcpy(ids, r->prompts[group], (size_t)prompt * sizeof *ids);
    memcpy(ids + prompt, b->responses + b->row_start[row], (size_t)response * sizeof *ids);
    at_tensor x =
        at_embedding(of(o, r->model->embed), at_clone(at_from_blob(ids, AT_I32, AT_DIMS(n))));
    for (int layer = 0; layer < r->model->cfg.layers; layer++) x = block(o, layer, x, n);
    x = norm(o, r->model->final_norm, at_narrow(x, 0, prompt - 1, response));
    at_tensor logits = at_mul_s(at_matmul(x, at_transpose(of(o, r->model->lm_head), 0, 1)),
                                (double)(float)(1 / r->cfg.rollout.temperature));
    return at_log_softmax(logits, 1);
}
static at_tensor taken(const oracle *o, int row, at_tensor log_p)
{
    const ares_batch *b = &o->r->batch;
    at_tensor target = at_to(at_clone(at_from_blob(b->responses + b->row_start[row], AT_I32,
                                                   AT_DIMS(response_len[row], 1))),
                             AT_I64);
    return at_squeeze(at_gather(log_p, 1, target), 1);
}
static inline at_tensor entropy_of(at_tensor log_p)
{
    return at_neg(at_sum_dim(at_mul(at_exp(log_p), log_p), 1, false));
}

/* The weights of a model as leaves (of the oracle's run's order of parameters). */
static void leaves_of(oracle *o, const ares_model *m, bool trained)
{
    for (int i = 0; i < m->params.n; i++) {
        const ares_param *p = &m->params.list[i];
        int64_t n = p->shape[0] * (p->rank == 2 ? p->shape[1] : 1);
        float *rows = ares_malloc((size_t)n * sizeof *rows);
        ares_matrix_unpack(&p->weight, rows, ARES_F32);
        o->leaf[i] = blob(o, rows, n);
        if (p->rank == 2) o->leaf[i] = at_reshape(o->leaf[i], AT_DIMS(p->shape[0], p->shape[1]));
        if (trained) at_requires_grad_(o->leaf[i], true);
        ares_free(rows);
    }
}

/*
 * Every parameter's gradient of a loss, row-major, one after the other, and every token's log-prob.
 */
typedef at_tensor total_loss(const oracle *o, const void *ctx);
static bool differentiate(const run *r, at_dtype dtype, total_loss *total, const void *ctx,
                          double *gradients, double *log_probs)
{
    at_scope *s = at_scope_open("update");
    oracle o = { .r = r, .dtype = dtype };
    leaves_of(&o, r->model, true);
    at_tensor loss = total(&o, ctx), found[PARAMS_MAX];
    at_grad(loss, NULL, o.leaf, r->model->params.n, false, found);
    for (int i = 0; i < r->model->params.n && !at_scope_failed(); i++) {
        at_read(found[i], AT_F64, gradients);
        gradients += at_numel(found[i]);
    }
    for (int row = 0; row < ROWS && !at_scope_failed(); row++)
        at_read(taken(&o, row, row_log_p(&o, row)), AT_F64, log_probs + r->batch.row_start[row]);
    return CHECK_OK(at_scope_close(s, NULL));
}

/* What an update is held against: made before it, under the weights that it starts from. */
typedef struct truth {
    double *exact, *single; /* gradients in f64, and by the same walk in f32 */
    double log_prob_error;  /* the largest of any token with mask 1, of either walk in f32 */
} truth;

static inline bool truth_of(const run *r, total_loss *total, const void *ctx, truth *out)
{
    const ares_batch *b = &r->batch;
    size_t n = (size_t)ares_params_count(&r->model->params), tokens = (size_t)b->tokens;
    double *exact = ares_calloc(2 * tokens, sizeof *exact), *single = exact + tokens;
    *out = (truth){ ares_calloc(n, sizeof(double)), ares_calloc(n, sizeof(double)), 0 };
    bool known = differentiate(r, AT_F64, total, ctx, out->exact, exact) &&
                 differentiate(r, AT_F32, total, ctx, out->single, single);
    for (int64_t t = 0; t < b->tokens; t++) {
        if (!b->response_mask[t]) continue;
        double own = fabs((double)b->rollout_log_probs[t] - exact[t]);
        out->log_prob_error = fmax(out->log_prob_error, fmax(own, fabs(single[t] - exact[t])));
    }
    ares_free(exact);
    return known;
}

static inline void truth_fini(truth *t)
{
    ares_free(t->exact);
    ares_free(t->single);
}

/*
 * The gradients of an update that was made, against the oracle's in f64. Allowed is a multiple of
 * what the same walk in f32 is off, and a share of the largest element. That share holds the error
 * of the log-probs: the derivative of a token's term is multiplied by ratio = exp(log_prob - old),
 * so an error e of one log-prob changes all that this token gives to every gradient by the factor 1
 * + e. Where a token dominates, every gradient is off by that factor at once, and libtorch's f32
 * walk does not tell how far: its own log-prob of that token may happen to be nearer.
 */
static inline void check_gradients(const run *r, const char *what, const truth *t)
{
    const double *exact = t->exact, *single = t->single;
    for (int i = 0; i < r->model->params.n; i++) {
        const ares_param *p = &r->model->params.list[i];
        int64_t n = p->shape[0] * (p->rank == 2 ? p->shape[1] : 1);
        float *mine = ares_malloc((size_t)n * sizeof *mine);
        ares_matrix_unpack(&p->grad, mine, ARES_F32);
        double off = 0, theirs = 0, largest = 0;
        for (int64_t e = 0; e < n; e++) {
            off = fmax(off, fabs((double)mine[e] - exact[e]));
            theirs = fmax(theirs, fabs(single[e] - exact[e]));
            largest = fmax(largest, fabs(exact[e]));
        }
        CHECK_MSG(off <= 8 * theirs + (t->log_prob_error + 1e-6) * largest,
                  "%s: %s is off by %.3g of %.3g (libtorch's f32: %.3g; log-probs: %.3g)", what,
                  p->name, off, largest, theirs, t->log_prob_error);
        exact += n, single += n;
        ares_free(mine);
    }
}
#endif
