/*
 * The learner of the server of Tinker's API (ares/serve_tinker.h): LoRA adapters, each with
 * gradients and optimizer states of its own, over the learner's passes. One learner has the
 * buffers; a call puts its adapter into it. A datum says its targets apart from its tokens, maybe
 * several per position, so it is packed here: the head reads row i once for each target of position
 * i. Log-probs and derivatives pass through the host, where the loss is.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "learner.h"

typedef struct trained {
    ares_adapter *adapter;
    optim optim; /* its count of updates alone */
} trained;

typedef struct server {
    learner learner;
    char *base_dir;
    int64_t max_token_len;
    ares_optim_config optim; /* how states are kept */
} server;

/* The learner's passes are with this adapter from now on. */
static void take_up(server *s, const trained *t)
{
    s->learner.adapter = t->adapter;
    s->learner.adapted = (ares_adapted){ t->adapter, INT32_MAX };
    (void)ares_workspace_adapt(s->learner.workspace, t->adapter->rank);
}

/* ---------------- adapters */

/* lora: a new one; dir: that of a folder. With states and gradients that are 0. */
static int open_adapter(server *s, const ares_tinker_lora *lora, const char *dir, trained *out)
{
    static const ares_json null = { .type = ARES_JSON_NULL };
    ares_arena arena = { 0 };
    ares_str names = { 0 };
    const ares_json *targets = &null;
    ares_lora_options o = { .rank = lora ? lora->rank : 0,
                            .alpha = lora ? 32 : 64, /* 64: the file's */
                            .exclude_modules = &null,
                            .rank_pattern = &null,
                            .alpha_pattern = &null,
                            .layers_to_transform = &null,
                            .layers_pattern = &null,
                            .init = "kaiming",
                            .adapter_path = dir,
                            .seed = ARES_NULL_I64 };
    int rc = ARES_OK;
    if (lora) {
        static const char *const attn[] = { "q_proj", "k_proj", "v_proj", "o_proj" },
                                 *const mlp[] = { "gate_proj", "up_proj", "down_proj" };
        ares_json_begin(&names, '[');
        for (int i = 0; lora->attn && i < ARES_COUNT(attn); i++)
            ares_json_write_string(&names, ares_view_of(attn[i]));
        for (int i = 0; lora->mlp && i < ARES_COUNT(mlp); i++)
            ares_json_write_string(&names, ares_view_of(mlp[i]));
        if (lora->unembed) ares_json_write_string(&names, ARES_VIEW("lm_head"));
        ares_json_end(&names, ']');
        rc = ares_json_parse(&arena, ares_str_view(&names), "target_modules", &targets);
    }
    o.target_modules = targets;
    const ares_adapter_options opt = { .lora = &o,
                                       .seed = lora ? lora->seed : 0,
                                       .trainable = true };
    *out = (trained){ 0 };
    if (rc == ARES_OK) rc = ares_adapter_new(s->learner.model, s->base_dir, &opt, &out->adapter);
    if (rc == ARES_OK) rc = optim_init(&out->optim, &s->optim, 1);
    if (rc == ARES_OK) rc = optim_alloc_states(&out->optim, &out->adapter->params);
    if (rc == ARES_OK) rc = ares_params_zero_grad(&out->adapter->params);
    if (rc != ARES_OK) {
        ares_adapter_free(out->adapter);
        out->adapter = NULL;
    }
    ares_str_fini(&names);
    ares_arena_fini(&arena);
    return rc;
}

static int create(void *ctx, const ares_tinker_lora *lora, void **model)
{
    trained *t = ares_calloc(1, sizeof *t);
    int rc = open_adapter(ctx, lora, NULL, t);
    if (rc != ARES_OK) {
        ares_free(t);
        return rc;
    }
    *model = t;
    return ARES_OK;
}

static void free_model(void *ctx, void *model)
{
    server *s = ctx;
    trained *t = model;
    if (s->learner.adapter == t->adapter) s->learner.adapter = NULL;
    ares_adapter_free(t->adapter);
    ares_free(t);
}

/* ---------------- log-probs and gradients */

/* Data [first, end) as one pass. */
typedef struct pass {
    const ares_tinker_datum *data;
    int64_t first, end;
    int32_t rows, n_out;
} pass;

/* The datums from `first` on that fit into a pass, one at least. */
static pass next_pass(const server *s, const ares_tinker_datum *data, int64_t n, int64_t first)
{
    pass p = { .data = data, .first = first, .end = first };
    while (p.end < n) {
        int64_t rows = data[p.end].n, out = rows * data[p.end].k;
        if (p.end > first && (p.rows + rows > s->max_token_len || p.n_out + out > s->max_token_len))
            break;
        p.rows += (int32_t)rows;
        p.n_out += (int32_t)out;
        p.end++;
    }
    return p;
}

/* Each datum is a segment, whose last target is the token that is not fed. */
static int pack(server *s, const pass *p, learner_pass *out)
{
    learner *l = &s->learner;
    ares_arena *a = &l->arena;
    size_t rows = (size_t)p->rows, n_out = (size_t)p->n_out, n = (size_t)(p->end - p->first);
    int32_t *ids = ares_arena_alloc(a, 2 * rows * sizeof *ids), *positions = ids + rows;
    int32_t *start = ares_arena_alloc(a, (2 * n + 1) * sizeof *start), *length = start + n + 1;
    int32_t *out_rows = ares_arena_alloc(a, 2 * n_out * sizeof *out_rows),
            *targets = out_rows + n_out;
    int32_t row = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        const ares_tinker_datum *d = &p->data[p->first + (int64_t)i];
        start[i] = row;
        length[i] = d->n + 1;
        for (int32_t k = 0; k < d->n; k++, row++) {
            ids[row] = d->tokens[k];
            positions[row] = k;
            for (int32_t j = 0; j < d->k; j++, at++) {
                out_rows[at] = row;
                targets[at] = d->targets[k * d->k + j];
            }
        }
    }
    start[n] = row;
    *out =
        (learner_pass){ .packed = { .rows = p->rows,
                                    .ids = ids,
                                    .positions = positions,
                                    .length = length,
                                    .n_out = p->n_out,
                                    .out_rows = out_rows,
                                    .seg = { .n = (int32_t)n, .rows = p->rows, .start = start } } };
    ARES_TRY(dc_open(&l->targets, l->model->device, l->role, n_out * sizeof *targets, 1));
    int32_t *on = dc_place(&l->targets, targets, n_out * sizeof *targets);
    dc_upload(&l->targets, on, targets, n_out * sizeof *targets);
    out->targets = on;
    return ARES_OK;
}

/* The head runs in two halves: the loss is on the host, and may need all of a datum at once. */
static int run_pass(server *s, const pass *p, float *const *log_probs, ares_tinker_derive *derive,
                    void *own)
{
    learner *l = &s->learner;
    ares_device *d = l->model->device;
    size_t n = (size_t)p->n_out, bytes = n * sizeof(float);
    learner_pass x;
    ares_arena_reset(&l->arena);
    ARES_TRY(pack(s, p, &x));
    ARES_TRY(learner_forward_packed(l, &x, derive != NULL));
    float *host = ares_arena_alloc(&l->arena, 4 * bytes + 1), *c = host + 3 * n;
    ARES_TRY(dc_open(&l->stats, d, l->role, 4 * bytes, 2));
    float *stats = dc_place(&l->stats, host, 3 * bytes), *on = dc_place(&l->stats, c, bytes);
    if (derive) ARES_TRY(learner_reserve_round(l, &x, 1, 0, NULL));
    learner_hold_head(l);
    ares_head_args h = learner_head(l, &x, 1);
    h.log_prob = stats;
    h.entropy = stats + n;
    h.lse = stats + 2 * n;
    if (derive) learner_head_backward(l, &x, &h);
    d->k->head(d, &h);
    dc_download(&l->stats, &(column_part){ host, stats, bytes }, 1);
    int rc = d->k->sync(d);
    for (int64_t i = p->first, at = 0; rc == ARES_OK && i < p->end; i++) {
        int64_t cells = (int64_t)p->data[i].n * p->data[i].k;
        memcpy(log_probs[i], host + at, (size_t)cells * sizeof *host);
        if (derive) derive(own, i, c + at);
        at += cells;
    }
    if (rc == ARES_OK && derive) {
        dc_upload(&l->stats, on, c, bytes);
        h.c_log_prob = on;
        d->k->head_backward(d, &h);
    }
    learner_drop_head(l);
    if (rc == ARES_OK && derive) rc = learner_backward_round(l, &x, 1);
    return rc == ARES_OK ? learner_sync(l) : rc;
}

static int forward(void *ctx, void *model, const ares_tinker_datum *data, int64_t n,
                   float *const *log_probs, ares_tinker_derive *derive, void *own)
{
    server *s = ctx;
    trained *t = model;
    int rc = ARES_OK;
    take_up(s, t);
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        rc = ares_model_check_ids(s->learner.model, data[i].tokens, data[i].n, NULL);
        if (rc != ARES_OK) return ares_fail_in(rc, "datum %lld", (long long)i);
    }
    for (int64_t i = 0; i < n && rc == ARES_OK;) {
        pass p = next_pass(s, data, n, i);
        rc = run_pass(s, &p, log_probs, derive, own);
        i = p.end;
    }
    if (rc == ARES_OK || !derive) return rc;
    char *message = ares_strdup(ares_error_message()); /* the one to be told */
    (void)ares_params_zero_grad(&t->adapter->params);
    rc = ares_fail(rc, "%s", message);
    ares_free(message);
    return rc;
}

static int step(void *ctx, void *model, const ares_tinker_adam *adam, double *grad_norm)
{
    trained *t = model;
    (void)ctx;
    int rc = optim_step_given(&t->optim, &t->adapter->params, adam, grad_norm);
    if (rc == ARES_OK) t->adapter->version++;
    int cleared = ares_params_zero_grad(&t->adapter->params);
    return rc == ARES_OK ? cleared : rc;
}

/* ---------------- files */

/* optimizer.json has how many steps were taken, which no tensor says. */
static int save(void *ctx, void *model, const char *dir, bool optimizer)
{
    const trained *t = model;
    ares_str path = { 0 };
    char text[40];
    (void)ctx;
    int rc = ares_adapter_save(t->adapter, dir, NULL, NULL);
    if (optimizer) {
        snprintf(text, sizeof text, "{\"steps\":%lld}\n", (long long)t->optim.updates);
        ares_path_join(&path, dir, "optimizer.safetensors");
        if (rc == ARES_OK)
            rc = ares_params_optimizer_save(&t->adapter->params, path.data, NULL, NULL);
        ares_path_join(&path, dir, "optimizer.json");
        if (rc == ARES_OK) rc = ares_file_write(path.data, text, strlen(text));
    }
    ares_str_fini(&path);
    return rc == ARES_OK ? ares_checkpoint_seal(dir) : rc;
}

static int save_snapshot(void *ctx, const ares_adapter *snapshot, const char *dir)
{
    (void)ctx;
    ARES_TRY(ares_adapter_save(snapshot, dir, NULL, NULL));
    return ares_checkpoint_seal(dir);
}

static int load_optimizer(trained *t, const char *dir)
{
    ares_arena arena = { 0 };
    ares_str path = { 0 }, text = { 0 };
    const ares_json *o = NULL;
    ares_path_join(&path, dir, "optimizer.safetensors");
    int rc = ares_params_optimizer_load(&t->adapter->params, path.data);
    ares_path_join(&path, dir, "optimizer.json");
    if (rc == ARES_OK) rc = ares_file_read(path.data, &text);
    if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), path.data, &o);
    if (rc == ARES_OK) rc = ares_json_get_i64(o, "steps", 0, &t->optim.updates);
    ares_str_fini(&path);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return rc;
}

static int load(void *ctx, void *model, const char *dir, bool optimizer)
{
    server *s = ctx;
    trained *t = model, next;
    ARES_TRY(open_adapter(s, NULL, dir, &next));
    int rc = optimizer ? load_optimizer(&next, dir) : ARES_OK;
    if (rc != ARES_OK) {
        ares_adapter_free(next.adapter);
        return rc;
    }
    if (s->learner.adapter == t->adapter) s->learner.adapter = NULL;
    ares_adapter_free(t->adapter);
    *t = next;
    return ARES_OK;
}

static int snapshot(void *ctx, void *model, ares_adapter **out)
{
    server *s = ctx;
    return ares_adapter_copy(((trained *)model)->adapter, s->learner.model, out);
}

static int load_snapshot(void *ctx, const char *dir, ares_adapter **out)
{
    server *s = ctx;
    return ares_adapter_load(s->learner.model, s->base_dir, dir, out);
}

static void free_snapshot(void *ctx, ares_adapter *snapshot)
{
    (void)ctx;
    ares_adapter_free(snapshot);
}

/* ---------------- opening */

int ares_train_tinker_open(ares_model *m, const char *base_dir, int64_t max_token_len,
                           ares_tinker_learner *out)
{
    server *s = ares_calloc(1, sizeof *s);
    ARES_ASSERT(ares_phases_bytes(m->device) == 0 && !m->params.trainable);
    s->base_dir = ares_strdup(base_dir);
    s->max_token_len = max_token_len;
    s->optim = (ares_optim_config){
        .strategy = "adamw", .scheduler = "constant", .warmup_steps = 0, .min_lr_ratio = (double)NAN
    };
    s->learner = (learner){ .role = "actor", .model = m, .skip_zero = true };
    *out = (ares_tinker_learner){ .ctx = s,
                                  .create = create,
                                  .forward = forward,
                                  .step = step,
                                  .save = save,
                                  .load = load,
                                  .snapshot = snapshot,
                                  .save_snapshot = save_snapshot,
                                  .load_snapshot = load_snapshot,
                                  .free_snapshot = free_snapshot,
                                  .free_model = free_model };
    int rc = ares_workspace_new(m, ARES_KEEP_ALL, &s->learner.workspace);
    if (rc != ARES_OK) ares_train_tinker_close(out);
    else ares_workspace_skip_zero(s->learner.workspace, s->learner.skip_zero);
    return rc;
}

void ares_train_tinker_close(ares_tinker_learner *l)
{
    server *s = l->ctx;
    if (!s) return;
    learner_close(&s->learner);
    ares_free(s->base_dir);
    ares_free(s);
    *l = (ares_tinker_learner){ 0 };
}
