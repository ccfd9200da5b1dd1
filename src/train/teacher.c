/*
 * The teacher of a distillation (docs/distillation.md): one more learner without an optimizer, or
 * weights that the run has open already. It goes over the student's answers in a batch of its own,
 * whose rows have the teacher's prompts and, id for id, the student's responses: so what it finds
 * of a token has the place of the student's.
 */
#include "teacher_texts.h"
#include "trainer.h"

#include <string.h>

bool teacher_wanted(const ares_train_config *c)
{
    return c->distillation.enabled && !c->trainer.val_only;
}

bool teacher_alone(const ares_train_config *c)
{
    return teacher_wanted(c) && !c->distillation.use_task_rewards;
}

static bool is_kind(const teacher *x, const char *kind)
{
    const ares_distillation_config *c = &x->cfg->distillation;
    return !c->teacher_path && strcmp(c->kind, kind) == 0;
}

/* A learner over a model of its own, or the policy's; adapter: is closed with the teacher. */
static int open_learner(teacher *x, training *t, ares_model *m, ares_adapter *adapter)
{
    x->learner = &x->own;
    return learner_open(&x->own, m,
                        &(learner_options){ .role = "teacher",
                                            .adapter = adapter,
                                            .world = t->world,
                                            .round_tokens = x->cfg->actor.round_tokens });
}

/* Loads the weights of `path`, with the adapter that lies there, too. */
static int load(teacher *x, training *t, const char *path)
{
    const ares_train_config *c = x->cfg;
    const char *dtype = c->distillation.dtype;
    const ares_model_share share = sharing_of_teacher(c, &t->groups);
    bool moves = is_kind(x, "ema");
    ares_model_options opt = { .storage =
                                   dtype && strcmp(dtype, "bf16") != 0 ? ARES_F32 : ARES_BF16,
                               .like_trained = moves && !c->actor.freeze_vision,
                               .share = &share };
    if (opt.storage == ARES_BF16) opt.arithmetic = training_type(c->actor.arithmetic);
    if (moves) opt.trained = c->actor.trainable; /* the policy is mixed into it */
    if (t->device.k->act != ARES_F32 && opt.storage != ARES_BF16)
        return ares_fail(ARES_ECONFIG,
                         "config: distillation.teacher_model.fsdp.torch_dtype = 'fp32': this "
                         "device computes in bf16, as worker.actor.fsdp.torch_dtype asks; set "
                         "distillation.teacher_model.fsdp.torch_dtype=bf16");
    ares_str dir = { 0 };
    int rc = ares_model_load(path, &t->device, &opt, &x->model);
    if (rc == ARES_OK && ares_model_adapted(path)) rc = ares_model_find(path, &dir);
    if (rc == ARES_OK && dir.len) rc = ares_adapter_load(x->model, dir.data, path, &x->adapter);
    ares_str_fini(&dir);
    return rc == ARES_OK ? open_learner(x, t, x->model, x->adapter) : rc;
}

/* The tower that it sees with: the policy's where that is frozen and the same. */
static int open_features(teacher *x, training *t)
{
    bool own = x->model &&
               (x->cfg->distillation.teacher_path || ares_model_trains_tower(t->model, t->adapter));
    if (!t->features) return ARES_OK;
    if (own)
        ARES_TRY(ares_features_new(x->model, x->adapter, &t->row_media.processor,
                                   (size_t)(x->cfg->data.vision_cache_gb * 1e9), &x->features));
    x->own.features = own ? x->features : t->features;
    return ARES_OK;
}

int teacher_check_rows(const ares_train_config *c, const ares_source *rows, bool all)
{
    const ares_distillation_config *d = &c->distillation;
    ARES_TRY(teacher_texts_check_rows(d, &c->data, rows, all));
    for (int64_t i = 0; d->lmbda < 1 && i < ares_source_count(rows); i++) {
        const ares_row *row = ares_source_row(rows, i);
        const ares_json *answer = ares_row_at(row->json, d->response_key);
        if (answer && answer->type != ARES_JSON_NULL) continue;
        return ares_fail(ARES_EFORMAT,
                         "data: %s:%lld: row has no '%s', and distillation.lmbda = %g learns from "
                         "stored answers; set distillation.response_key, or lmbda to 1",
                         row->file, (long long)row->line, d->response_key, d->lmbda);
    }
    return ARES_OK;
}

/* What it is, by the options; weights: an average's in a checkpoint. */
static int open_weights(teacher *x, training *t, reference *ref, const char *weights)
{
    const ares_train_config *c = x->cfg;
    const char *start = c->actor_lora.adapter_path;
    if (c->distillation.teacher_path) return load(x, t, c->distillation.teacher_path);
    if (is_kind(x, "live")) return open_learner(x, t, t->model, t->adapter);
    if (is_kind(x, "ema")) {
        ARES_TRY(load(x, t, weights ? weights : c->actor.model_path));
        t->moved_teacher = x->model;
        return ARES_OK;
    }
    bool same_start = !t->adapter || !start || strcmp(c->ref.adapter, "start") == 0;
    if (ref && !c->ref.model_path && same_start) { /* one copy serves both */
        x->learner = &ref->learner;
        return ARES_OK;
    }
    if (!t->adapter) return load(x, t, c->actor.model_path);
    if (start) ARES_TRY(ares_adapter_load(t->model, t->model_dir.data, start, &x->adapter));
    return open_learner(x, t, t->model, x->adapter);
}

int teacher_open_weights(teacher *x, training *t, reference *ref, const char *weights)
{
    const ares_train_config *c = t->cfg;
    const ares_distillation_config *d = &c->distillation;
    *x = (teacher){ .cfg = c, .policy = t->policy, .readable = t->model->cfg.vocab };
    x->temperature = ares_is_null_f64(d->temperature) ? c->rollout.temperature : d->temperature;
    if (x->temperature <= 0) x->temperature = 1;
    ARES_TRY(open_weights(x, t, ref, weights));
    return x->learner == &x->own ? open_features(x, t) : ARES_OK;
}

int teacher_open(teacher *x, training *t, reference *ref, const char *weights)
{
    const ares_train_config *c = t->cfg;
    teacher_limits limits;
    ARES_TRY(teacher_check(&c->distillation, t->tokenizer, &t->model->cfg, &limits));
    if (ares_source_count(&t->source)) ARES_TRY(teacher_check_rows(c, &t->source, true));
    ARES_TRY(teacher_open_weights(x, t, ref, weights));
    x->readable = limits.readable;
    x->texts = teacher_texts_new(&(teacher_texts_options){ .cfg = c,
                                                           .tokenizer = t->tokenizer,
                                                           .encoder = t->encoder,
                                                           .pool = t->device.pool,
                                                           .limits = limits });
    return ARES_OK;
}

void teacher_close(teacher *x)
{
    teacher_texts_free(x->texts);
    learner_close(&x->own);
    ares_adapter_free(x->adapter);
    ares_features_free(x->features);
    ares_model_free(x->model);
}

void teacher_batch(const ares_batch *b, ares_batch *out)
{
    for (int64_t g = 0; g < b->groups; g++) {
        ares_batch_begin_group(out);
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++) {
            const ares_sample *s = &b->samples[r];
            bool own = s->distilled && s->teacher_prompt;
            ares_batch_add_row(
                out,
                &(ares_sample){ .draw = s->draw,
                                .index = s->index,
                                .row = s->row,
                                .prompt = own ? s->teacher_prompt : s->prompt,
                                .prompt_len = own ? s->teacher_prompt_len : s->prompt_len,
                                .row_media = own ? s->teacher_row_media : s->row_media },
                b->row_start[r + 1] - b->row_start[r]);
        }
    }
    ares_column_i32 *ids = ARES_PUT(out, responses);
    ares_column_u8 *mask = ARES_PUT(out, response_mask);
    /* a row without a teacher may have ids that it has no logit for, and costs it one token */
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            ids[t] = b->samples[r].distilled ? b->responses[t] : 0;
            mask[t] = b->samples[r].distilled ? b->response_mask[t] : 0;
        }
}

/* Before its passes: the policy's tower may have moved since. */
static void follow(teacher *x)
{
    if (is_kind(x, "live") && !x->own.adapter) x->own.optim.updates = x->policy->optim.updates;
}

int teacher_log_probs(teacher *x, ares_batch *b)
{
    learner_scoring scoring = learner_scoring_of(x->cfg);
    ares_batch own;
    if (scoring.temperature <= 0) scoring.temperature = 1;
    ARES_PUT(b, teacher_log_probs);
    follow(x);
    ares_batch_init(&own);
    teacher_batch(b, &own);
    int rc = learner_log_probs(x->learner, &scoring, &own, 0, own.rows, b->teacher_log_probs, NULL);
    for (int64_t t = 0; t < b->tokens && rc == ARES_OK; t++)
        if (!own.response_mask[t]) b->teacher_log_probs[t] = 0;
    ares_batch_fini(&own);
    return rc;
}

int teacher_forward(teacher *x, const ares_batch *own, const ares_micro_batch *m, int64_t n,
                    ares_arena *arena, learner_pass *pass)
{
    bool share = x->cfg->actor.share_prompts;
    ares_micro_batch *cut = ares_arena_calloc(arena, (size_t)n + 1, sizeof *cut);
    for (int64_t i = 0; i < n; i++) { /* the same rows, whose prompts have other lengths */
        cut[i] = (ares_micro_batch){ .row = m[i].row, .end = m[i].end };
        (void)ares_pack_plan(own, m[i].row, m[i].end, INT64_MAX, share, &cut[i]);
    }
    const ares_micro_set *sets = learner_sets_of(cut, n, arena);
    follow(x);
    return learner_forward_beside(x->learner, own, sets, n, share, pass);
}

int teacher_sync(teacher *x, int64_t step)
{
    const ares_distillation_config *c = &x->cfg->distillation;
    if (!is_kind(x, "ema") || step % c->sync_steps) return ARES_OK;
    if (x->features) ares_features_forget(x->features);
    return ares_model_interpolate(x->model, x->policy->model, c->update_rate);
}
