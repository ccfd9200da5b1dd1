/*
 * The worker's part of Tinker's server: opening and closing, the next training call, samples to the
 * engine and back, and what is overdue.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/io.h"
#include "tinker.h"
#include "tinker_state.h"

/* ---------------- opening */

int tinker_open_state(tinker *t)
{
    ares_str tmp = { 0 };
    if (t->lock_fd >= 0) return ARES_OK;
    ares_path_join(&tmp, t->o.state_dir, "tmp");
    int rc = ares_dir_make_durable(t->o.state_dir);
    if (rc == ARES_OK) rc = ares_lock_take(t->o.state_dir, &t->lock_fd);
    if (rc == ARES_OK) rc = ares_dir_remove(tmp.data); /* of a process that was killed */
    if (rc == ARES_OK) rc = ares_dir_make(tmp.data);
    ares_str_fini(&tmp);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "serve: --state-dir %s", t->o.state_dir);
}

int tinker_open(const tinker_options *o, tinker **out)
{
    tinker *t = ares_calloc(1, sizeof *t);
    uint32_t nonce[1];
    const char **names = ares_arena_alloc(&t->arena, (size_t)o->n_names * sizeof *names + 1);
    t->o = *o;
    for (int i = 0; i < o->n_names; i++)
        names[i] = ares_arena_copy(&t->arena, o->names[i], strlen(o->names[i]));
    t->o.names = names;
    t->o.model_dir = ares_arena_copy(&t->arena, o->model_dir, strlen(o->model_dir));
    t->o.arch = ares_arena_copy(&t->arena, o->arch, strlen(o->arch));
    t->o.state_dir = ares_arena_copy(&t->arena, o->state_dir, strlen(o->state_dir));
    t->lock_fd = -1;
    pthread_mutex_init(&t->lock, NULL);
    tinker_random(nonce, sizeof nonce);
    snprintf(t->nonce, sizeof t->nonce, "%08x", nonce[0]);
    tinker_grow_buckets(t);
    int rc = o->state_later ? ARES_OK : tinker_open_state(t);
    *out = t;
    if (rc == ARES_OK) return ARES_OK;
    *out = NULL;
    tinker_close(t);
    return rc;
}

/* A folder of STATE_DIR/tmp that is not there yet. */
static const char *fresh_folder(tinker *t, ares_str *out)
{
    ares_path_join(out, t->o.state_dir, "tmp/");
    ares_str_addf(out, "%llu", (unsigned long long)++t->folders);
    return out->data;
}

/* ---------------- weights of samplers: the newest of a session are in memory */

/* Without the lock in between, while the file is written. */
static void put_away(tinker *t, sampler *x)
{
    ares_str dir = { 0 };
    int rc = ARES_OK;
    if (!x->dir) {
        fresh_folder(t, &dir);
        tinker_unlock(t);
        rc = ares_dir_make(dir.data);
        if (rc == ARES_OK)
            rc = t->o.learner->save_snapshot(t->o.learner->ctx, x->adapter, dir.data);
        if (rc != ARES_OK) {
            ares_warn("serve: %s stays in memory: %s", x->id, ares_error_message());
            ares_dir_remove(dir.data); /* half a snapshot takes room that others need */
        }
        pthread_mutex_lock(&t->lock);
        if (rc == ARES_OK) {
            x->dir = ares_str_take(&dir);
            x->own_dir = true;
        }
        ares_str_fini(&dir);
    }
    if (rc != ARES_OK) return;
    t->o.learner->free_snapshot(t->o.learner->ctx, x->adapter);
    x->adapter = NULL;
}

static void put_away_old(tinker *t, const session *s)
{
    for (;;) {
        sampler *oldest = NULL;
        int n = 0;
        for (sampler *x = s->samplers; x; x = x->next) {
            if (!x->adapter) continue;
            n++;
            if (!x->active && (!oldest || x->used < oldest->used)) oldest = x;
        }
        if (n <= SNAPSHOTS_IN_MEMORY || !oldest) return;
        put_away(t, oldest);
        if (oldest->adapter) return; /* the disk is full */
    }
}

/* ---------------- samples */

/* Called by the engine, in the worker's thread. */
static void sampled(void *own, int rc, const tinker_sampled *result)
{
    future *f = own;
    tinker *t = f->of;
    ares_str out = { 0 };
    int64_t tokens = 0;
    if (rc == ARES_OK) tinker_sample_write(&f->request.sample, result, &out);
    for (int32_t i = 0; rc == ARES_OK && i < f->request.sample.n; i++)
        tokens += result->sequences[i].n;
    ares_log(ARES_LOG_DEBUG, "serve: asample %s seq_id %lld: %d samples, %lld tokens, %.0f ms: %s",
             f->sampler->id, (long long)f->seq, f->request.sample.n, (long long)tokens,
             1e3 * (t->o.now_s() - f->arrived_s), rc == ARES_OK ? "ok" : ares_error_message());
    pthread_mutex_lock(&t->lock);
    f->sampler->active--;
    tinker_take_out(&t->running, f);
    if (rc == ARES_OK) {
        f->result = out;
        f->binary = true;
        tinker_complete(t, f);
    } else {
        tinker_fail(t, f, rc, ares_error_message());
    }
    tinker_unlock(t);
}

/* Hands one to the engine. With the lock before and after. */
static void submit(tinker *t, future *f)
{
    sampler *x = f->sampler;
    int rc = ARES_OK;
    tinker_take_out(&t->sampling, f);
    tinker_push(&t->running, f);
    f->state = RUNNING;
    x->active++;
    x->used = ++t->uses;
    if (!x->base && !x->adapter) {
        ares_adapter *adapter = NULL;
        tinker_unlock(t);
        rc = t->o.learner->load_snapshot(t->o.learner->ctx, x->dir, &adapter);
        pthread_mutex_lock(&t->lock);
        x->adapter = adapter;
        if (rc == ARES_OK && !x->dead) put_away_old(t, x->session);
    }
    if (rc == ARES_OK && f->cancels) rc = ares_fail(ARES_EUSE, "it was cancelled");
    if (rc == ARES_OK) {
        tinker_unlock(t);
        rc = t->o.engine->sample(t->o.engine->ctx, x->adapter, &f->request.sample, sampled, f);
        pthread_mutex_lock(&t->lock);
    }
    if (rc == ARES_OK) return; /* and it may be done already */
    x->active--;
    tinker_take_out(&t->running, f);
    tinker_fail(t, f, rc, ares_error_message());
}

/* ---------------- training calls */

/* forward: what the derivatives of a datum need, while the learner asks for them. */
typedef struct losses {
    tinker_loss loss;
    tinker_loss_inputs *inputs; /* by datum */
    double sum;
    int64_t clipped;
} losses;

static void derive(void *own, int64_t index, float *d)
{
    losses *l = own;
    tinker_loss_of(&l->loss, &l->inputs[index], &l->sum, &l->clipped, d, NULL);
}

static int do_forward(tinker *t, model *m, future *f, ares_str *out)
{
    const tinker_forward *r = &f->request.forward;
    const ares_tinker_learner *learner = t->o.learner;
    size_t n = (size_t)r->n_data;
    ares_arena *arena = &f->arena;
    losses l = { .inputs = ares_arena_calloc(arena, n, sizeof *l.inputs) };
    ares_tinker_datum *data = ares_arena_calloc(arena, n, sizeof *data);
    float **log_probs = ares_arena_calloc(arena, n, sizeof *log_probs);
    tinker_log_probs *told = ares_arena_calloc(arena, n, sizeof *told);
    double tokens = 0;
    ARES_TRY(tinker_loss_find(r->loss_fn, r->options, r->n_options, &l.loss));
    for (size_t i = 0; i < n; i++) {
        ARES_TRY(tinker_loss_check(&l.loss, &r->data[i], (int64_t)i, t->o.vocab, t->o.context,
                                   arena, &l.inputs[i], &data[i]));
        log_probs[i] =
            ares_arena_alloc(arena, (size_t)l.inputs[i].cells * sizeof *log_probs[i] + 1);
        l.inputs[i].log_probs = log_probs[i];
        told[i] = (tinker_log_probs){
            .axes = tinker_loss_axes(&r->data[i]), .n = data[i].n, .k = data[i].k, .x = log_probs[i]
        };
        tokens += data[i].n;
    }
    ARES_TRY(learner->forward(learner->ctx, m->handle, data, r->n_data, log_probs,
                              r->forward_only ? NULL : derive, &l));
    for (size_t i = 0; r->forward_only && i < n; i++)
        tinker_loss_of(&l.loss, &l.inputs[i], &l.sum, &l.clipped, NULL, NULL);
    const tinker_metric metrics[] = { { "clipped_tokens:sum", (double)l.clipped },
                                      { "loss:sum", l.sum },
                                      { "tokens:sum", tokens } };
    bool clips = l.loss.clips && !r->forward_only;
    tinker_forward_write(told, r->n_data, metrics + !clips, 2 + clips, out);
    f->binary = true;
    return ARES_OK;
}

static int do_step(const tinker *t, const model *m, const future *f, ares_str *out)
{
    double norm;
    ARES_TRY(t->o.learner->step(t->o.learner->ctx, m->handle, &f->request.adam, &norm));
    ares_str_add_z(out, "{\"type\":\"optim_step\",\"metrics\":{\"grad_norm\":");
    ares_str_add_double(out, norm);
    ares_str_add_z(out, "}}");
    return ARES_OK;
}

/* The checkpoint that a path names, if this model, or any of this server (NULL), can have it. */
static int find_checkpoint(const tinker *t, ares_view text, const model *m, ares_arena *arena,
                           tinker_checkpoint *c)
{
    tinker_path path;
    if (!tinker_path_read(text, &path))
        return ares_fail(ARES_EUSE, "path %.*s: not tinker://MODEL_ID/weights/NAME", (int)text.len,
                         text.data);
    ARES_TRY(tinker_store_read(arena, t->o.state_dir, &path, c));
    if (!ares_view_is(c->fingerprint, t->o.fingerprint))
        return ares_fail(ARES_EUSE, "path %.*s: it was trained beside another base model",
                         (int)text.len, text.data);
    if (c->lora.rank != m->lora.rank)
        return ares_fail(ARES_EUSE, "path %.*s: its rank is %d, and the model's %d", (int)text.len,
                         text.data, c->lora.rank, m->lora.rank);
    if (c->lora.attn != m->lora.attn || c->lora.mlp != m->lora.mlp ||
        c->lora.unembed != m->lora.unembed)
        return ares_fail(ARES_EUSE,
                         "path %.*s: its train_attn, train_mlp and train_unembed are not the "
                         "model's",
                         (int)text.len, text.data);
    return ARES_OK;
}

static int do_load(const tinker *t, const model *m, void *handle, future *f, ares_str *out)
{
    const tinker_request *r = &f->request;
    tinker_checkpoint c;
    ares_str dir = { 0 };
    ARES_TRY(find_checkpoint(t, r->path, m, &f->arena, &c));
    if (r->optimizer && c.path.sampler)
        return ares_fail(ARES_EUSE,
                         "path %.*s: sampler_weights have no optimizer state; load with "
                         "optimizer false, or weights",
                         (int)r->path.len, r->path.data);
    tinker_store_dir(&dir, t->o.state_dir, &c.path);
    int rc = t->o.learner->load(t->o.learner->ctx, handle, dir.data, r->optimizer);
    ares_str_fini(&dir);
    ARES_TRY(rc);
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "type"), ARES_VIEW("load_weights"));
    ares_json_write_string(ares_json_key(out, "path"), r->path);
    ares_json_write_string(ares_json_key(out, "model_id"), ares_view_of(m->id));
    ares_json_end(out, '}');
    return ARES_OK;
}

/* create_model, or load_weights into a new one. *handle: what was made, also where loading fails.
 */
static int do_create(const tinker *t, const model *m, future *f, void **handle, ares_str *out)
{
    ARES_TRY(t->o.learner->create(t->o.learner->ctx, &m->lora, handle));
    if (f->request.call == TINKER_LOAD) return do_load(t, m, *handle, f, out);
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "type"), ARES_VIEW("create_model"));
    ares_json_write_string(ares_json_key(out, "model_id"), ares_view_of(m->id));
    ares_json_end(out, '}');
    return ARES_OK;
}

/* save_weights, and save_weights_for_sampler with a name. */
static int do_save(tinker *t, const model *m, future *f, ares_str *out)
{
    const tinker_request *r = &f->request;
    bool sampler = r->call == TINKER_SAVE_FOR_SAMPLER;
    char name[40], when[24];
    ares_str dir = { 0 }, from = { 0 }, metadata = { 0 };
    snprintf(name, sizeof name, "step-%lld", (long long)f->seq);
    tinker_time(when);
    if (r->user_metadata) ares_json_write(&metadata, r->user_metadata);
    tinker_checkpoint c = { .path = { .model_id = ares_view_of(m->id),
                                      .name = r->path.data ? r->path : ares_view_of(name),
                                      .sampler = sampler },
                            .base_model = ares_view_of(t->o.names[0]),
                            .fingerprint = ares_view_of(t->o.fingerprint),
                            .time = ares_view_of(when),
                            .lora = m->lora,
                            .ttl_seconds = r->ttl_seconds,
                            .metadata = metadata.len ? ares_str_view(&metadata) : ARES_VIEW("{}"),
                            .run_metadata = ares_view_of(m->metadata) };
    int rc = ARES_OK;
    if (!tinker_name_ok(c.path.name))
        rc = ares_fail(ARES_EUSE,
                       "path '%.*s': a checkpoint's name is 1 to 128 of A-Z a-z 0-9 . _ -",
                       (int)ARES_MIN(c.path.name.len, (size_t)200), c.path.name.data);
    if (rc == ARES_OK && !r->overwrite &&
        ares_dir_exists(tinker_store_dir(&dir, t->o.state_dir, &c.path)))
        rc = ares_fail(ARES_EUSE, "path '%.*s': there is such a checkpoint; set overwrite",
                       (int)c.path.name.len, c.path.name.data);
    if (rc == ARES_OK) rc = ares_dir_make(fresh_folder(t, &from));
    if (rc == ARES_OK) {
        rc = t->o.learner->save(t->o.learner->ctx, m->handle, from.data, !sampler);
        if (rc != ARES_OK) ares_dir_remove(from.data); /* the disk may be full of it */
    }
    if (rc == ARES_OK) rc = tinker_store_commit(t->o.state_dir, from.data, &c);
    if (rc == ARES_OK) {
        ares_str path = { 0 };
        ares_str_addf(&path, "tinker://%s/%s/%.*s", m->id, sampler ? "sampler_weights" : "weights",
                      (int)c.path.name.len, c.path.name.data);
        ares_json_begin(out, '{');
        ares_json_write_string(ares_json_key(out, "type"),
                               ares_view_of(sampler ? "save_weights_for_sampler" : "save_weights"));
        ares_json_write_string(ares_json_key(out, "path"), ares_str_view(&path));
        ares_json_end(out, '}');
        ares_str_fini(&path);
    }
    ares_str_fini(&dir);
    ares_str_fini(&from);
    ares_str_fini(&metadata);
    return rc;
}

/* With the lock, which is free while the copy is made. */
static int do_snapshot(tinker *t, const model *m, future *f, ares_str *out)
{
    const ares_tinker_learner *learner = t->o.learner;
    ares_adapter *adapter = NULL;
    tinker_unlock(t);
    int rc = learner->snapshot(learner->ctx, m->handle, &adapter);
    pthread_mutex_lock(&t->lock);
    ARES_TRY(rc);
    int64_t seq = f->request.sampler_seq_id;
    bool taken = f->session->finished;
    for (const sampler *x = f->session->samplers; x; x = x->next) taken = taken || x->seq == seq;
    if (taken) {
        learner->free_snapshot(learner->ctx, adapter);
        return ares_fail(ARES_EUSE, "sampling_session_seq_id %lld is taken", (long long)seq);
    }
    sampler *x = tinker_new_sampler(t, f->session, seq);
    x->adapter = adapter;
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "type"), ARES_VIEW("save_weights_for_sampler"));
    ares_json_write_string(ares_json_key(out, "sampling_session_id"), ares_view_of(x->id));
    ares_json_end(out, '}');
    put_away_old(t, f->session);
    return ARES_OK;
}

static void free_model(tinker *t, model *m)
{
    if (m->handle) t->o.learner->free_model(t->o.learner->ctx, m->handle);
    ares_free(m->failed);
    ares_free(m->metadata);
    ares_free(m);
}

/* The model goes, and the calls that still wait for it fail. */
static void do_unload(tinker *t, model *m, ares_str *out)
{
    model **at = &m->session->models;
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "type"), ARES_VIEW("unload_model"));
    ares_json_write_string(ares_json_key(out, "model_id"), ares_view_of(m->id));
    ares_json_end(out, '}');
    for (future *f = t->training.first, *next; f; f = next) {
        next = f->next;
        if (f->model != m) continue;
        tinker_take_out(&t->training, f);
        tinker_fail(t, f, ARES_EUSE, "the model was unloaded");
    }
    while (*at && *at != m) at = &(*at)->next;
    if (*at) *at = m->next; /* else its session has ended, and the model is on the list */
    else return;
    free_model(t, m);
}

static bool makes_model(const future *f)
{
    return f->request.call == TINKER_CREATE_MODEL ||
           (f->request.call == TINKER_LOAD && !f->request.model_id.data);
}

/* The first that may be done now, in order of arrival. */
static future *next_training(const tinker *t)
{
    for (future *f = t->training.first; f; f = f->next) {
        const model *m = f->model;
        bool alone = true;
        if (makes_model(f)) return f;
        if (!m->handle && !m->failed) continue;
        if (f->request.call != TINKER_UNLOAD && f->seq == m->next_seq) return f;
        if (f->request.call != TINKER_UNLOAD) continue;
        for (const future *g = t->training.first; g != f; g = g->next)
            alone = alone && g->model != m;
        if (alone) return f;
    }
    return NULL;
}

/* With the lock before and after. */
static void train(tinker *t, future *f)
{
    model *m = f->model;
    ares_str out = { 0 };
    void *handle = NULL;
    char *id = ares_strdup(m->id);
    int64_t datums = f->request.call == TINKER_FORWARD ? f->request.forward.n_data : 0, tokens = 0;
    for (int64_t i = 0; i < datums; i++) tokens += f->request.forward.data[i].n;
    double began = t->o.now_s();
    int rc = ARES_OK;
    tinker_take_out(&t->training, f);
    f->state = RUNNING;
    if (f->owner == m->number) m->next_seq = f->seq + 1;
    if (f->refusal) rc = ares_fail(ARES_EUSE, "%s", f->refusal);
    else if (m->failed) rc = ares_fail(ARES_EUSE, "the model could not be made: %s", m->failed);
    else if (f->request.call == TINKER_SAVE_FOR_SAMPLER && !f->request.path.data)
        rc = do_snapshot(t, m, f, &out);
    else if (f->request.call == TINKER_UNLOAD) do_unload(t, m, &out), m = NULL;
    else {
        tinker_unlock(t);
        switch (f->request.call) {
        case TINKER_FORWARD: rc = do_forward(t, m, f, &out); break;
        case TINKER_STEP: rc = do_step(t, m, f, &out); break;
        case TINKER_LOAD:
        case TINKER_CREATE_MODEL:
            rc = makes_model(f) ? do_create(t, m, f, &handle, &out)
                                : do_load(t, m, m->handle, f, &out);
            break;
        default: rc = do_save(t, m, f, &out); break;
        }
        pthread_mutex_lock(&t->lock);
        if (makes_model(f)) {
            m->handle = handle;
            if (rc != ARES_OK) m->failed = ares_strdup(ares_error_message());
        }
    }
    ares_log(ARES_LOG_DEBUG, "serve: %s %s seq_id %lld: %lld datums, %lld tokens, %.0f ms: %s",
             tinker_call_path(f->request.call), id, (long long)f->seq, (long long)datums,
             (long long)tokens, 1e3 * (t->o.now_s() - began),
             rc == ARES_OK ? "ok" : ares_error_message());
    ares_free(id);
    if (rc == ARES_OK) {
        f->result = out;
        tinker_complete(t, f);
    } else {
        ares_str_fini(&out);
        tinker_fail(t, f, rc, ares_error_message());
    }
}

/* ---------------- what is overdue */

/*
 * A call whose predecessors have not come in time fails, and the count goes on after it. It is the
 * earliest of its model.
 */
static bool give_up_waiting(tinker *t)
{
    double now = t->o.now_s();
    for (future *f = t->training.first; f; f = f->next) {
        model *m = f->model;
        bool earliest = true;
        if (f->owner != m->number || f->seq <= m->next_seq || now - f->arrived_s < TINKER_HOLD_S ||
            (!m->handle && !m->failed))
            continue;
        for (const future *g = t->training.first; g; g = g->next)
            earliest = earliest && (g->owner != m->number || g->seq >= f->seq);
        if (!earliest) continue;
        ares_fail(ARES_EUSE, "seq_id %lld came without %lld", (long long)f->seq,
                  (long long)m->next_seq);
        m->next_seq = f->seq + 1;
        tinker_take_out(&t->training, f);
        tinker_fail(t, f, ARES_EUSE, ares_error_message());
        return true;
    }
    return false;
}

/* Tells the engine of samples that nobody wants any more. */
static void cancel(tinker *t)
{
    for (future *f = t->running.first; f;) {
        if (!f->cancels) {
            f = f->next;
            continue;
        }
        f->cancels = false;
        tinker_unlock(t);
        t->o.engine->cancel(t->o.engine->ctx, f);
        pthread_mutex_lock(&t->lock);
        f = t->running.first;
    }
}

/* Frees what sessions have left. */
static void free_dead(tinker *t)
{
    for (model *m; (m = t->dead_models);) {
        t->dead_models = m->next;
        free_model(t, m);
    }
    for (sampler **at = &t->dead_samplers, *x; (x = *at);) {
        if (x->active) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        if (x->adapter) t->o.learner->free_snapshot(t->o.learner->ctx, x->adapter);
        if (x->own_dir && ares_dir_remove(x->dir) != ARES_OK)
            ares_warn("serve: %s", ares_error_message());
        ares_free(x->path);
        ares_free(x->dir);
        ares_free(x);
    }
}

int tinker_waits(tinker *t)
{
    pthread_mutex_lock(&t->lock);
    int kinds =
        (t->sampling.first ? TINKER_SAMPLING : 0) | (next_training(t) ? TINKER_TRAINING : 0);
    tinker_unlock(t);
    return kinds;
}

bool tinker_work(tinker *t, int kinds)
{
    bool done = false;
    pthread_mutex_lock(&t->lock);
    tinker_end_sessions(t, false);
    while (give_up_waiting(t)) done = true;
    cancel(t);
    free_dead(t);
    while (kinds & TINKER_SAMPLING && t->sampling.first) {
        submit(t, t->sampling.first);
        done = true;
    }
    future *f = kinds & TINKER_TRAINING ? next_training(t) : NULL;
    if (f) train(t, f);
    done = done || f;
    tinker_unlock(t);
    return done;
}

/* ---------------- closing */

void tinker_stop(tinker *t)
{
    ares_str body = { 0 };
    tinker_error_body("the server is stopping", &body);
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    tinker_answer_polls(t, -1, 503, ares_str_view(&body));
    tinker_unlock(t);
    ares_str_fini(&body);
}

void tinker_close(tinker *t)
{
    ares_str tmp = { 0 };
    if (!t) return;
    tinker_stop(t);
    pthread_mutex_lock(&t->lock);
    ARES_ASSERT(!t->running.first);
    tinker_end_sessions(t, true);
    free_dead(t);
    tinker_unlock(t);
    for (session *s; (s = t->session);) {
        t->session = s->next;
        ares_free(s);
    }
    if (t->lock_fd >= 0) {
        ares_dir_remove(ares_path_join(&tmp, t->o.state_dir, "tmp"));
        ares_lock_drop(t->lock_fd);
    }
    ares_str_fini(&tmp);
    pthread_mutex_destroy(&t->lock);
    ares_arena_fini(&t->arena);
    ares_free(t->futures);
    ares_free(t->bucket);
    ares_free(t->polls);
    ares_free(t);
}
