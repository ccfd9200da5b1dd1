/*
 * Checkpoints of a run, written and read in one file. First the fingerprints of data and model
 * that a checkpoint records, then what is written and when, then how a run or a validation reads
 * it again.
 */
#include "run.h"
#include "trainer.h"
#include "vapor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fingerprints by which a state of other data or of another model is recognised. */

/* Adds a row's images and videos to a hash: which they are, and their sizes. */
static uint64_t row_media_hash(uint64_t h, const ares_data_config *c, const ares_row *row)
{
    const char *const keys[] = { c->prompt_key, c->image_key, c->video_key };
    ares_str text = { 0 };
    for (int k = 0; k < ARES_COUNT(keys); k++) {
        const ares_json *v = keys[k] ? ares_row_at(row->json, keys[k]) : NULL;
        if (v) ares_json_write(&text, v);
        ares_str_add_char(&text, '\xff');
    }
    for (int32_t i = 0; i < row->row_media->n_places; i++) {
        const ares_grid *g = &row->row_media->places[i].medium->grid;
        ares_str_addf(&text, "%dx%dx%d ", g->t, g->h, g->w);
    }
    h = ares_fnv1a(h, text.data, text.len);
    ares_str_fini(&text);
    return h;
}

train_origin train_origin_of(const training *t)
{
    train_origin o;
    uint64_t h = ARES_FNV1A; /* over the id, prompt, images and answer of every row */
    for (int64_t i = 0; i < ares_source_count(&t->source); i++) {
        const ares_row *row = ares_source_row(&t->source, i);
        const ares_view parts[] = { ares_view_of(row->gid ? row->gid : ""), row->prompt_text,
                                    row->ground_truth };
        for (int k = 0; k < ARES_COUNT(parts); k++)
            h = ares_fnv1a(ares_fnv1a(h, parts[k].data, parts[k].len), "\xff", 1);
        if (row->row_media) h = row_media_hash(h, &t->cfg->data, row);
    }
    snprintf(o.data, sizeof o.data, "%016llx", (unsigned long long)h);
    snprintf(o.model, sizeof o.model, "%016llx", (unsigned long long)t->model_weights);
    o.adapter[0] = 0;
    if (t->first_adapter)
        snprintf(o.adapter, sizeof o.adapter, "%016llx", (unsigned long long)t->first_adapter);
    snprintf(o.teacher, sizeof o.teacher, "%016llx", (unsigned long long)t->teacher_weights);
    return o;
}

/* A model in words: "llama, 30 layers of 576, 49152 ids". States fit where the words are equal. */
static void origin_describe_model(const ares_model_config *c, ares_str *out)
{
    ares_str_addf(out, "%s, %d layers of %d, %d ids", c->model_type, c->layers, c->hidden,
                  c->vocab);
}

/*
 * Checkpoints hold everything that a run depends on: <run>/checkpoints/step_000123/{model/,
 * optimizer.safetensors, state.json, source.json, controls.json}, with a critic also critic/ and
 * critic_optimizer.safetensors, with a reference that moves reference/, with stored answers the
 * reference's log-probs of them (stored_answers.safetensors); and one rolling_000123 to go on from
 * after a crash, a signal or a failed step (docs/design.md#checkpoints). The time of a save changes
 * no result: a rolling checkpoint is never the best one. Order and samples are functions of seeds
 * and counters, so that with the weights in the storage type, the optimizer's states and the
 * counters below a resumed run equals the uninterrupted one, bit for bit.
 */

enum { OF_TOKENIZER = 8 }; /* so many are the tokenizer's; the others come with the model */
const char *const state_tokenizer_files[] = { "tokenizer.json",
                                              "tokenizer_config.json",
                                              "vocab.json",
                                              "merges.txt",
                                              "special_tokens_map.json",
                                              "added_tokens.json",
                                              "chat_template.jinja",
                                              "chat_template.json",
                                              "generation_config.json",
                                              "preprocessor_config.json",
                                              "processor_config.json",
                                              "video_preprocessor_config.json",
                                              NULL };

/* Copies a file into a folder, where there is one. */
static int copy_file(const char *from, const char *dir, const char *name)
{
    ares_str path = { 0 }, data = { 0 };
    int rc = ARES_OK;
    if (ares_file_exists(from)) {
        rc = ares_file_read(from, &data);
        if (rc == ARES_OK)
            rc = ares_file_write(ares_path_join(&path, dir, name), data.data, data.len);
    }
    ares_str_fini(&path);
    ares_str_fini(&data);
    return rc;
}

/* tokenizer: a directory, or a tokenizer.json; NULL: the model's own. model NULL: that alone */
static int copy_files(const char *model, const char *tokenizer, const char *to)
{
    ares_str path = { 0 };
    int rc = ARES_OK;
    for (int i = 0; state_tokenizer_files[i] && rc == ARES_OK; i++) {
        const char *name = state_tokenizer_files[i],
                   *from = i < OF_TOKENIZER && tokenizer ? tokenizer : model;
        if (!from) continue;
        if (ares_dir_exists(from)) rc = copy_file(ares_path_join(&path, from, name), to, name);
        else if (i == 0) rc = copy_file(from, to, name);
    }
    ares_str_fini(&path);
    return rc;
}

int ares_train_copy_tokenizer(const char *from, const char *to)
{
    return copy_files(from, NULL, to);
}

/* Writes JSON and a line break to a file. */
static int write_line(const ares_str *json, const char *path)
{
    ares_str line = { 0 };
    ares_str_add_view(&line, ares_str_view(json));
    ares_str_add_char(&line, '\n');
    int rc = ares_file_write(path, line.data, line.len);
    ares_str_fini(&line);
    return rc;
}

/* Written as text, because JSON's numbers are exact up to 2^53 only. */
static void write_sum(ares_str *o, const char *key, uint64_t sum)
{
    char text[17];
    if (!sum) return;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    ares_json_write_string(ares_json_key(o, key), ares_view_of(text));
}

/* Sums over a model's files (ares_params_sum); 0: not written, or written by an older program. */
typedef struct model_sums {
    uint64_t weights, states;
} model_sums;

typedef struct state_sums {
    model_sums model, critic;
} state_sums;

/* As options name it. */
static const char *name_of(ares_dtype type)
{
    return type == ARES_BF16 ? "bf16" : "fp32";
}

/* The version of state.json that this program writes and reads. */
enum { STATE_VERSION = 3 };

/* state.json: counters, seeds and fingerprints of a run. at: counters at the step to go on from */
static int write_state(const training *t, const step_begin *at, const state_sums *sums,
                       const char *path)
{
    train_origin origin = train_origin_of(t);
    ares_str o = { 0 }, model = { 0 }, text = { 0 };
    ares_json_begin(&o, '{');
    ares_json_write_i64(ares_json_key(&o, "version"), STATE_VERSION);
    ares_json_write_i64(ares_json_key(&o, "step"), t->step);
    ares_json_write_i64(ares_json_key(&o, "total_steps"), t->total_steps);
    ares_json_write_i64(ares_json_key(&o, "optimizer_steps"), t->policy->optim.updates);
    if (ares_source_count(&t->source))
        ares_json_write_string(ares_json_key(&o, "training_data"), ares_view_of(origin.data));
    ares_json_write_string(ares_json_key(&o, "model_weights"), ares_view_of(origin.model));
    if (t->adapter)
        ares_json_write_string(ares_json_key(&o, "first_adapter"), ares_view_of(origin.adapter));
    if (t->teacher_weights)
        ares_json_write_string(ares_json_key(&o, "teacher_weights"), ares_view_of(origin.teacher));
    origin_describe_model(&t->model->cfg, &model);
    ares_json_write_string(ares_json_key(&o, "model"), ares_str_view(&model));
    ares_json_write_string(ares_json_key(&o, "optimizer"), ares_view_of(t->cfg->optim.strategy));
    ares_json_write_string(ares_json_key(&o, "storage"),
                           ares_view_of(name_of(training_storage(t->cfg))));
    if (t->critic) {
        ares_json_write_string(ares_json_key(&o, "critic_optimizer"),
                               ares_view_of(t->cfg->critic_optim.strategy));
        ares_json_write_string(ares_json_key(&o, "critic_storage"),
                               ares_view_of(name_of(training_type(t->cfg->critic.dtype))));
    }
    ares_json_write_i64(ares_json_key(&o, "data_seed"), t->cfg->data.seed);
    ares_json_write_i64(ares_json_key(&o, "sampling_seed"), t->cfg->rollout.seed);
    ares_json_write_double(ares_json_key(&o, "best_score"), t->best_score);
    ares_json_write_i64(ares_json_key(&o, "best_step"), t->best_step);
    ares_json_write_double(ares_json_key(&o, "validated_score"), t->validated_score);
    ares_json_write_i64(ares_json_key(&o, "validated_step"), t->validated_step);
    ares_json_write_i64(ares_json_key(&o, "skipped_updates"), at->skipped);
    if (t->critic) {
        ares_json_write_i64(ares_json_key(&o, "critic_optimizer_steps"), t->critic->optim.updates);
        ares_json_write_i64(ares_json_key(&o, "critic_skipped_updates"), at->critic_skipped);
    }
    write_sum(&o, "weights_sum", sums->model.weights);
    write_sum(&o, "states_sum", sums->model.states);
    if (t->critic) {
        write_sum(&o, "critic_weights_sum", sums->critic.weights);
        write_sum(&o, "critic_states_sum", sums->critic.states);
    }
    if (t->exact.steps) exactness_save(&t->exact, ares_json_key(&o, "exactness"));
    ares_json_end(&o, '}');
    ares_json_indent(&text, ares_str_view(&o), 1);
    int rc = write_line(&text, path);
    ares_str_fini(&o);
    ares_str_fini(&model);
    ares_str_fini(&text);
    return rc;
}

/* A role's model, or its adapter, whose model is not copied. */
static int save_trained(const learner *l, const char *dir, const char *name, const ares_writers *by,
                        uint64_t *sum)
{
    ares_str path = { 0 };
    (void)ares_path_join(&path, dir, name);
    int rc = l->adapter ? ares_adapter_save(l->adapter, path.data, by, sum)
                        : ares_model_save(l->model, path.data, by, sum);
    ares_str_fini(&path);
    return rc;
}

/* The tensors, which all ranks write together. behind: writes them later; NULL: written now */
static int write_tensors(const training *t, state_kind kind, const char *dir,
                         ares_write_queue *behind, state_sums *sums)
{
    const ares_writers by = { t->world, t->same_files, behind };
    const learner *critic = t->critic;
    bool states = kind == STATE_ROLLING || !t->cfg->trainer.save_model_only;
    ares_str path = { 0 };
    int rc =
        save_trained(t->policy, dir, t->adapter ? "adapter" : "model", &by, &sums->model.weights);
    if (rc == ARES_OK && states)
        rc = ares_params_optimizer_save(learner_params(t->policy),
                                        ares_path_join(&path, dir, "optimizer.safetensors"), &by,
                                        &sums->model.states);
    if (rc == ARES_OK && critic)
        rc = save_trained(critic, dir, "critic", &by, &sums->critic.weights);
    if (rc == ARES_OK && critic && states)
        rc = ares_params_optimizer_save(learner_params(critic),
                                        ares_path_join(&path, dir, "critic_optimizer.safetensors"),
                                        &by, &sums->critic.states);
    if (rc == ARES_OK && t->moved_reference)
        rc =
            ares_model_save(t->moved_reference, ares_path_join(&path, dir, "reference"), &by, NULL);
    if (rc == ARES_OK && t->moved_teacher)
        rc = ares_model_save(t->moved_teacher, ares_path_join(&path, dir, "teacher"), &by, NULL);
    ares_str_fini(&path);
    return rc;
}

/* The files that rank 0 writes alone. */
static int write_files(training *t, state_kind kind, const step_begin *at, const state_sums *sums,
                       const char *dir)
{
    ares_str path = { 0 }, line = { 0 };
    bool states = kind == STATE_ROLLING || !t->cfg->trainer.save_model_only;
    int rc = ARES_OK;
    if (!t->adapter)
        rc = copy_files(t->model_dir.data, t->cfg->actor.tokenizer_path,
                        ares_path_join(&path, dir, "model"));
    else if (strcmp(t->tokenizer_dir.data, t->model_dir.data) != 0)
        rc = copy_files(NULL, t->tokenizer_dir.data, ares_path_join(&path, dir, "adapter"));
    if (rc == ARES_OK && !t->adapter) rc = ares_model_save_eos(t->model, path.data);
    if (rc == ARES_OK && t->vapor && t->vapor->ref && states)
        rc = vapor_save(t->vapor, ares_path_join(&path, dir, "stored_answers.safetensors"));
    if (rc == ARES_OK && t->controls)
        rc = write_line(&at->controls, ares_path_join(&path, dir, "controls.json"));
    if (rc == ARES_OK) { /* long where answers wait to go on, so write_line does not copy it */
        ares_source_snapshot_write(&at->source, &line);
        ares_str_add_char(&line, '\n');
        rc = ares_file_write(ares_path_join(&path, dir, "source.json"), line.data, line.len);
    }
    if (rc == ARES_OK) rc = write_state(t, at, sums, ares_path_join(&path, dir, "state.json"));
    ares_str_fini(&path);
    ares_str_fini(&line);
    return rc;
}

static void forget(state_save *s)
{
    ares_str_fini(&s->dir);
    ares_str_fini(&s->temporary);
}

bool state_is_written(const state_save *s)
{
    return !s->behind || ares_write_queue_done(s->behind);
}

void state_abandon(state_save *s)
{
    char *message = ares_strdup(ares_error_message());
    if (ares_write_queue_end(s->behind) != ARES_OK) (void)ares_fail(ARES_EIO, "%s", message);
    ares_free(message);
    s->behind = NULL;
    if (s->temporary.len && s->lead) ares_checkpoint_abandon(s->temporary.data);
    forget(s);
}

/* Runs after rank 0's other jobs: makes the folders durable, with the files that it wrote alone. */
static int seal_late(void *ctx)
{
    char *temporary = ctx;
    int rc = ares_checkpoint_seal(temporary);
    ares_free(temporary);
    return rc;
}

/* Writes a checkpoint under its temporary name. A collective. beside: while the run goes on */
static int write_all(training *t, state_kind kind, bool beside, const step_begin *at, state_save *s)
{
    *s = (state_save){ .kind = kind, .lead = ares_world_rank(t->world) == 0, .step = t->step };
    /* else ranks send their parts to rank 0, which they cannot do while they train */
    beside = beside && (t->same_files || ares_world_size(t->world) == 1);
    if (beside) s->behind = ares_write_queue_new();
    snprintf(s->name, sizeof s->name, "%s_%06lld", kind == STATE_ROLLING ? "rolling" : "step",
             (long long)t->step);
    ares_path_join(&s->dir, t->run_dir.data, "checkpoints");
    state_sums sums = { 0 };
    int rc = ares_checkpoint_begin(s->dir.data, s->name, s->lead, &s->temporary);
    rc = ares_world_share_error(t->world, rc);
    if (rc == ARES_OK) rc = write_tensors(t, kind, s->temporary.data, s->behind, &sums);
    if (rc == ARES_OK) {
        if (s->lead) rc = write_files(t, kind, at, &sums, s->temporary.data);
        if (s->lead && rc == ARES_OK && !beside) rc = ares_checkpoint_seal(s->temporary.data);
        rc = ares_world_share_error(t->world, rc);
    }
    if (rc != ARES_OK) state_abandon(s);
    else if (beside) { /* a rank's part of the tensors is on its disk once its own jobs are done */
        if (s->lead) ares_write_queue_post(s->behind, seal_late, ares_strdup(s->temporary.data));
        ares_write_queue_begin(s->behind);
    }
    return rc;
}

/* Copies the counters that a step changes before its update, and on rank 0 controls and source. */
static void remember(const training *t, step_begin *b)
{
    b->rows_skipped = ares_source_skipped(&t->source);
    b->updates = t->policy->optim.updates;
    b->skipped = t->policy->optim.skipped;
    b->critic_updates = t->critic ? t->critic->optim.updates : 0;
    b->critic_skipped = t->critic ? t->critic->optim.skipped : 0;
    ares_str_clear(&b->controls);
    ares_source_snapshot_fini(&b->source);
    if (ares_world_rank(t->world) != 0) return;
    if (t->controls) controls_save(t->controls, &b->controls);
    ares_source_take_snapshot(&t->source, &b->source);
}

int state_write(training *t, state_kind kind, bool beside, state_save *s)
{
    step_begin now = { 0 };
    /*
     * A regular checkpoint is compared with the best one by the latest validation, even where that
     * was made at an earlier step: EasyR1's rule.
     */
    if (kind == STATE_REGULAR && t->validated_step >= 0 &&
        !(t->best_step >= 0 && t->validated_score <= t->best_score)) {
        t->best_score = t->validated_score;
        t->best_step = t->step;
    }
    remember(t, &now);
    int rc = write_all(t, kind, beside, &now, s);
    step_begin_fini(&now);
    return rc;
}

int state_commit(training *t, state_save *s)
{
    int rc = ARES_OK;
    if (s->behind) {
        rc = ares_write_queue_end(s->behind);
        s->behind = NULL;
        rc = ares_world_share_error(t->world, rc);
        if (rc != ARES_OK) state_abandon(s);
        ARES_TRY(rc);
    }
    if (ares_world_rank(t->world) == 0) {
        char best[32];
        int64_t limit = t->cfg->trainer.save_limit;
        bool rolling = s->kind == STATE_ROLLING;
        snprintf(best, sizeof best, "step_%06lld", (long long)t->best_step);
        const char *spare[] = { t->best_step >= 0 ? best : s->name, NULL };
        rc = ares_checkpoint_commit(s->dir.data, s->name, s->temporary.data);
        /* the new one is complete: the checkpoints that it replaces are removed */
        if (rc == ARES_OK && (rolling || !t->cfg->trainer.save_model_only))
            rc = ares_checkpoint_drop_rolling(s->dir.data, rolling ? s->name : NULL);
        if (rc == ARES_OK && !rolling)
            rc = ares_checkpoint_prune(s->dir.data, limit > 0 ? (int)limit : 0, spare);
    }
    forget(s);
    return ares_world_share_error(t->world, rc);
}

int64_t state_written_bytes(const training *t, bool states, int ranks, int64_t *part)
{
    const ares_params *own = t->adapter ? &t->adapter->params : &t->model->params;
    int64_t of_critic = 0, bytes = ares_params_save_bytes(own, states, ranks, part);
    if (t->critic)
        bytes += ares_params_save_bytes(learner_params(t->critic), states, ranks, &of_critic);
    if (t->moved_reference)
        bytes += ares_params_save_bytes(&t->moved_reference->params, false, ranks, NULL);
    if (t->moved_teacher)
        bytes += ares_params_save_bytes(&t->moved_teacher->params, false, ranks, NULL);
    *part = ARES_MAX(*part, of_critic);
    return bytes;
}

void state_validated(training *t, const ares_metrics *m)
{
    double score;
    /* best by accuracy where a shaper adds to the reward; else by reward, or by negative loss */
    if (!(t->best_by_accuracy && ares_metrics_get(m, "val/accuracy", &score)) &&
        !ares_metrics_get(m, "val/reward_score", &score)) {
        if (!ares_metrics_get(m, "val/loss", &score)) return;
        score = -score;
    }
    t->validated_score = score;
    t->validated_step = t->step;
}

/* ---------------------------------------------------------------- a step that fails */
void state_begin_step(training *t)
{
    remember(t, &t->begun);
}

bool state_unmoved(const training *t)
{
    const step_begin *b = &t->begun;
    return t->policy->optim.updates == b->updates &&
           (!t->critic || t->critic->optim.updates == b->critic_updates) &&
           ares_source_skipped(&t->source) == b->rows_skipped;
}

int state_save_begun(training *t, state_save *s)
{
    ARES_TRY(write_all(t, STATE_ROLLING, false, &t->begun, s));
    return state_commit(t, s);
}

/* A checkpoint is read again: by a run that goes on, or for a validation alone. */

/* The text of a file, parsed; both lie in the arena. */
static int read_json(const char *path, ares_arena *arena, const ares_json **out)
{
    ares_str text = { 0 };
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) {
        const char *copy = ares_arena_copy(arena, text.data ? text.data : "", text.len);
        rc = ares_json_parse(arena, (ares_view){ copy, text.len }, path, out);
        if (rc != ARES_OK) ares_fail_in(rc, "train: the checkpoint is damaged");
    }
    ares_str_fini(&text);
    return rc;
}

typedef int load_controls(controls *c, const ares_json *json, const char *path);
static int read_controls(training *t, const char *path, load_controls *load)
{
    ares_arena arena = { 0 };
    const ares_json *json;
    int rc = read_json(path, &arena, &json);
    if (rc == ARES_OK) rc = load(t->controls, json, path);
    ares_arena_fini(&arena);
    return rc;
}

static bool is_number(const ares_json *v)
{
    return v && (v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT);
}

/* Reads a number of state.json, which must be there. */
static int get(const ares_json *o, const char *path, const char *key, double *out)
{
    const ares_json *v = ares_json_get(o, key);
    if (!is_number(v))
        return ares_fail(ARES_EFORMAT, "train: %s: no number '%s'; the checkpoint is damaged", path,
                         key);
    *out = v->number;
    return ARES_OK;
}

/* Whether the state has another text under the key; older states may have none. */
static bool differs(const ares_json *o, const char *key, const char *own)
{
    const ares_json *saved = ares_json_get(o, key);
    return saved && saved->type == ARES_JSON_STRING && !ares_view_is(saved->text, own);
}

/*
 * weights: the fingerprint of the configured model, which must be the one that the run began with;
 * NULL: it may be another. force: how to go on nevertheless; NULL: --force is given, warn only
 */
static int check_model(const training *t, const ares_json *o, const char *path, const char *weights,
                       const char *force)
{
    bool other_weights = weights && differs(o, "model_weights", weights);
    const ares_json *saved = ares_json_get(o, "model");
    ares_model_config configured;
    ares_str name = { 0 };
    ARES_TRY(ares_model_config_load(t->model_dir.data, &configured));
    origin_describe_model(&configured, &name);
    int rc = ARES_OK;
    if (differs(o, "model", name.data) && force)
        rc = ares_fail(ARES_ESTATE,
                       "train: %s: the state is of another model (%s) than "
                       "worker.actor.model.model_path = '%s' (%s); restore the option, or %s",
                       path, saved->text.data, t->cfg->actor.model_path, name.data, force);
    else if (other_weights && force)
        rc = ares_fail(ARES_ESTATE,
                       "train: %s: the run began with other weights than are in "
                       "worker.actor.model.model_path = '%s' now (%s); restore them, or %s",
                       path, t->cfg->actor.model_path, t->model_dir.data, force);
    else if (differs(o, "model", name.data) || other_weights)
        ares_log(ARES_LOG_WARN, "train: %s: the state is of another model", path);
    ares_str_fini(&name);
    return rc;
}

/* The end of a refusal that --force would lift; NULL: it is given. */
static const char *force_of(const training *t)
{
    if (t->replays) return "name where they are (a verification compares with nothing else)";
    return t->cfg->trainer.force ? NULL : "pass --force to go on nevertheless";
}

/*
 * A strategy can only read its own states, so --force does not help here. Older states do not name
 * the critic's strategy.
 */
static int check_strategy(const ares_json *o, const char *path, const char *key, const char *role,
                          const ares_optim_config *cfg)
{
    if (!differs(o, key, cfg->strategy)) return ARES_OK;
    return ares_fail(ARES_ESTATE,
                     "train: %s: the states are those of worker.%s.optim.strategy = '%s', not of "
                     "'%s'; set it back",
                     path, role, ares_json_get(o, key)->text.data, cfg->strategy);
}

/*
 * Weights in fp32 have no copy of their own for the optimizer, and the files of those in bf16 are
 * rounded, so neither is read as the other. Older states do not say it.
 */
static int check_storage(const ares_json *o, const char *path, const char *key, const char *role,
                         ares_dtype own)
{
    if (!differs(o, key, name_of(own))) return ARES_OK;
    const char *saved = ares_json_get(o, key)->text.data;
    return ares_fail(ARES_ESTATE,
                     "train: %s: the states are those of worker.%s.fsdp.torch_dtype = '%s', not of "
                     "'%s'; set it back (where it is not set, worker.%s.arithmetic), or begin a "
                     "new run (trainer.experiment_name) from its weights "
                     "(worker.actor.model.model_path)",
                     path, role, saved, name_of(own), role);
}

/* 0: an older program wrote the state, without sums. */
static uint64_t sum_of(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type == ARES_JSON_STRING ? strtoull(v->text.data, NULL, 16) : 0;
}

/*
 * The adapter that a run began with is its reference, and stays where it was: in a run that may
 * have gone on, or in a folder that was written anew.
 */
static int check_first_adapter(training *t, const ares_json *o, const char *path, const char *own,
                               const char *force)
{
    const char *now = t->cfg->actor_lora.adapter_path;
    if (!differs(o, "first_adapter", own)) return ARES_OK;
    if (now && !*own) { /* it is gone, and no reference reads it, or the options were refused */
        t->first_adapter = sum_of(o, "first_adapter");
        return ARES_OK;
    }
    if (force)
        return ares_fail(ARES_ESTATE,
                         "train: %s: the run began with another adapter than is in "
                         "worker.actor.model.lora.adapter_path = '%s' now, and compares its policy "
                         "with that; restore it (of a run that went on, name the checkpoint), or "
                         "%s",
                         path, now ? now : "null", force);
    ares_log(ARES_LOG_WARN, "train: %s: the run began with another adapter", path);
    return ARES_OK;
}

/* The state must be of these rows and of the configured model, unless --force is given. */
static int check_origin(training *t, const ares_json *o, const char *path)
{
    const char *force = force_of(t);
    train_origin own = train_origin_of(t);
    bool other_data = ares_source_count(&t->source) && differs(o, "training_data", own.data);
    if (force && other_data)
        return ares_fail(ARES_ESTATE,
                         "train: %s: the state is of another data set than data.train_files (its "
                         "rows differ in id, prompt, images or answer); restore the files, or %s",
                         path, force);
    if (other_data) ares_log(ARES_LOG_WARN, "train: %s: the state is of another data set", path);
    ARES_TRY(check_strategy(o, path, "optimizer", "actor", &t->cfg->optim));
    if (!t->adapter) ARES_TRY(check_storage(o, path, "storage", "actor", training_storage(t->cfg)));
    if (t->critic) {
        ares_dtype type = training_type(t->cfg->critic.dtype);
        ARES_TRY(check_strategy(o, path, "critic_optimizer", "critic", &t->cfg->critic_optim));
        if (!ares_lora_wanted(&t->cfg->critic_lora))
            ARES_TRY(check_storage(o, path, "critic_storage", "critic", type));
    }
    if (t->adapter) ARES_TRY(check_first_adapter(t, o, path, own.adapter, force));
    if (t->teacher_weights && differs(o, "teacher_weights", own.teacher)) {
        if (force)
            return ares_fail(ARES_ESTATE,
                             "train: %s: the run began with another teacher than is in "
                             "distillation.teacher_model.model_path = '%s' now; restore it (of a "
                             "run that went on, name the checkpoint), or %s",
                             path, t->cfg->distillation.teacher_path, force);
        ares_log(ARES_LOG_WARN, "train: %s: the run began with another teacher", path);
    }
    return check_model(t, o, path, own.model, force);
}

/* Reads a number that older states do not have. */
static double get_or(const ares_json *o, const char *key, double otherwise)
{
    const ares_json *v = ares_json_get(o, key);
    return is_number(v) ? v->number : otherwise;
}

/* Fails where another version of this program wrote the state. */
static int check_version(const ares_json *o, const char *path)
{
    double version = 0;
    ARES_TRY(get(o, path, "version", &version));
    if (version != STATE_VERSION)
        return ares_fail(ARES_EUNSUPPORTED,
                         "train: %s: version %g of the state; this program reads version %d: begin "
                         "a new run (trainer.experiment_name) from its weights "
                         "(worker.actor.model.model_path)",
                         path, version, STATE_VERSION);
    return ARES_OK;
}

/*
 * Fails where a part of a checkpoint is missing: it was saved by a run without that part, or lost.
 * The run's own checkpoint wins over trainer.load_checkpoint_path, so the way out is a new run.
 */
static int is_there(const char *checkpoint, const char *path, const char *why)
{
    if (ares_file_exists(path)) return ARES_OK;
    return ares_fail(ARES_ESTATE,
                     "train: %s: no such file; %s; begin a new run (trainer.experiment_name) from "
                     "another checkpoint (trainer.load_checkpoint_path), or from the weights of "
                     "this one (worker.actor.model.model_path=%s)",
                     path, why, checkpoint);
}

/* path: written; the file of the optimizer's states */
static int states_are_there(const char *checkpoint, ares_str *path)
{
    return is_there(checkpoint, ares_path_join(path, checkpoint, "optimizer.safetensors"),
                    "the checkpoint is a model without optimizer states (trainer.save_model_only), "
                    "or damaged");
}

/* The place in the training data, from source.json. */
static int load_source(training *t, const char *checkpoint)
{
    ares_str path = { 0 };
    ares_arena arena = { 0 };
    const ares_json *json;
    ares_path_join(&path, checkpoint, "source.json");
    int rc = is_there(checkpoint, path.data, "the checkpoint is damaged");
    if (rc == ARES_OK) rc = read_json(path.data, &arena, &json);
    if (rc == ARES_OK) {
        rc = ares_source_load(&t->source, json, t->cfg->trainer.force);
        if (rc != ARES_OK) ares_fail_in(rc, "train: %s", path.data);
    }
    ares_arena_fini(&arena);
    ares_str_fini(&path);
    return rc;
}

/* Warns where the learning rate changes because the run is longer or shorter than it was. */
static void tell_of_length(const training *t, const char *role, const learner *l, double total)
{
    optim then;
    int64_t length = (int64_t)total, step = l->step, end = ARES_MAX(length, t->total_steps);
    if (ares_world_rank(t->world) != 0 || length < 1 || length == t->total_steps ||
        optim_init(&then, l->optim.cfg, length) != ARES_OK)
        return;
    while (step < end && optim_lr(&l->optim, step) == optim_lr(&then, step)) step++;
    if (step == end) return;
    ares_log(ARES_LOG_WARN,
             "train: the run has %lld steps, and had %lld when the checkpoint was saved: the "
             "learning rate of worker.%s (%s, with its warm-up) goes on with %g instead of %g%s",
             (long long)t->total_steps, (long long)length, role, l->optim.cfg->scheduler,
             optim_lr(&l->optim, step), optim_lr(&then, step),
             step > l->step ? ", some steps from here" : "");
}

/* Checks the state, and takes its counters: for a run that goes on. */
static int apply(training *t, const ares_json *o, const char *checkpoint, const char *path,
                 state_sums *sums)
{
    *sums = (state_sums){ { sum_of(o, "weights_sum"), sum_of(o, "states_sum") },
                          { sum_of(o, "critic_weights_sum"), sum_of(o, "critic_states_sum") } };
    double step = 0, updates = 0, best_score = 0, best_step = 0;
    ARES_TRY(check_version(o, path));
    ARES_TRY(get(o, path, "step", &step));
    ARES_TRY(get(o, path, "optimizer_steps", &updates));
    ARES_TRY(get(o, path, "best_score", &best_score));
    ARES_TRY(get(o, path, "best_step", &best_step));
    ARES_TRY(load_source(t, checkpoint));
    ARES_TRY(check_origin(t, o, path));
    double critic_updates = 0;
    if (t->critic) {
        ARES_TRY(get(o, path, "critic_optimizer_steps", &critic_updates));
        t->critic->optim.updates = (int64_t)critic_updates;
        t->critic->optim.skipped = (int64_t)get_or(o, "critic_skipped_updates", 0);
        t->critic->step = (int64_t)step;
    }
    t->step = (int64_t)step;
    /* the actor's learning rate begins with its first update, after the critic's warm-up */
    t->policy->step = ARES_MAX(0, t->step - t->cfg->trainer.critic_warmup);
    t->policy->optim.updates = (int64_t)updates;
    t->policy->optim.skipped = (int64_t)get_or(o, "skipped_updates", 0);
    t->best_score = best_score;
    t->best_step = (int64_t)best_step;
    t->validated_score = get_or(o, "validated_score", 0);
    t->validated_step = (int64_t)get_or(o, "validated_step", -1);
    exactness_load(&t->exact, ares_json_get(o, "exactness"));
    double total = get_or(o, "total_steps", 0);
    tell_of_length(t, "actor", t->policy, total);
    if (t->critic) tell_of_length(t, "critic", t->critic, total);
    return ARES_OK;
}

typedef int apply_state(training *t, const ares_json *o, const char *checkpoint, const char *path,
                        state_sums *sums);
static int read_state(training *t, const char *checkpoint, apply_state *apply_to, state_sums *sums)
{
    ares_str path = { 0 };
    ares_arena arena = { 0 };
    const ares_json *o;
    int rc = read_json(ares_path_join(&path, checkpoint, "state.json"), &arena, &o);
    if (rc == ARES_OK) rc = apply_to(t, o, checkpoint, path.data, sums);
    ares_arena_fini(&arena);
    ares_str_fini(&path);
    return rc;
}

/* A collective: what was loaded must be what was saved. */
static int check_sum(const training *t, const learner *l, const model_sums *saved,
                     const char *checkpoint, const char *weights, const char *states)
{
    model_sums own;
    ARES_TRY(ares_params_sum(learner_params(l), t->world, &own.weights, &own.states));
    const char *damaged = saved->weights && own.weights != saved->weights ? weights
                          : saved->states && own.states != saved->states  ? states
                                                                          : NULL;
    if (damaged && !t->cfg->trainer.force)
        return ares_fail(ARES_EFORMAT,
                         "train: %s: %s does not hold the numbers that were saved, by the sum in "
                         "state.json: it is damaged or was changed%s",
                         checkpoint, damaged,
                         t->replays ? ""
                                    : "; name another checkpoint (trainer.load_checkpoint_path), "
                                      "or pass --force to go on nevertheless");
    if (damaged && ares_world_rank(t->world) == 0)
        ares_log(ARES_LOG_WARN, "train: %s: %s does not hold the numbers that were saved",
                 checkpoint, damaged);
    return ARES_OK;
}

/* What only an update reads: the optimizers' states, and what a reference said of stored answers.
 */
static int load_states(training *t, const char *checkpoint)
{
    ares_str path = { 0 };
    int rc = states_are_there(checkpoint, &path);
    if (rc == ARES_OK) rc = ares_params_optimizer_load(learner_params(t->policy), path.data);
    if (rc == ARES_OK && t->critic) {
        rc = is_there(checkpoint, ares_path_join(&path, checkpoint, "critic_optimizer.safetensors"),
                      "the checkpoint is of a run without a critic, or damaged");
        if (rc == ARES_OK) rc = ares_params_optimizer_load(learner_params(t->critic), path.data);
    }
    if (rc == ARES_OK && t->vapor)
        rc = vapor_load(t->vapor, ares_path_join(&path, checkpoint, "stored_answers.safetensors"));
    ares_str_fini(&path);
    return rc;
}

int state_resume(training *t, const char *checkpoint)
{
    ares_str path = { 0 };
    state_sums sums = { 0 };
    /*
     * A replay makes no update. But of weights in bf16 the vectors are f32 in memory, and only the
     * optimizer's file has all their bits.
     */
    bool bf16 = training_storage(t->cfg) == ARES_BF16 && !t->adapter,
         of_critic = t->critic && training_type(t->cfg->critic.dtype) == ARES_BF16,
         states = !t->replays || bf16 || of_critic;
    int rc = states ? load_states(t, checkpoint) : ARES_OK;
    if (rc == ARES_OK && t->controls)
        rc = is_there(checkpoint, ares_path_join(&path, checkpoint, "controls.json"),
                      "the checkpoint is of a run without the controls of this one, or damaged");
    if (rc == ARES_OK && t->controls) rc = read_controls(t, path.data, controls_load);
    if (rc == ARES_OK) rc = read_state(t, checkpoint, apply, &sums);
    ares_str_fini(&path);
    ARES_TRY(ares_world_share_error(t->world, rc));
    if (!states) sums.model.states = sums.critic.states = 0;
    ARES_TRY(check_sum(t, t->policy, &sums.model, checkpoint, t->adapter ? "adapter/" : "model/",
                       "optimizer.safetensors"));
    if (!t->critic) return ARES_OK;
    return check_sum(t, t->critic, &sums.critic, checkpoint, "critic/",
                     "critic_optimizer.safetensors");
}

/* ------------------------------------------------------------------ before a run */
static int apply_fit(training *t, const ares_json *o, const char *checkpoint, const char *path,
                     state_sums *unused)
{
    (void)checkpoint, (void)unused;
    ARES_TRY(check_version(o, path));
    if (!t->cfg->trainer.val_only) {
        ARES_TRY(check_strategy(o, path, "optimizer", "actor", &t->cfg->optim));
        if (!ares_lora_wanted(&t->cfg->actor_lora))
            ARES_TRY(check_storage(o, path, "storage", "actor", training_storage(t->cfg)));
    }
    return check_model(t, o, path, NULL, force_of(t));
}

int state_fits(training *t, const char *checkpoint)
{
    ares_str path = { 0 };
    int rc = t->cfg->trainer.val_only ? ARES_OK : states_are_there(checkpoint, &path);
    if (rc == ARES_OK) rc = read_state(t, checkpoint, apply_fit, NULL);
    ares_str_fini(&path);
    return rc;
}

/* ------------------------------------------------------------------ validation alone */
static int apply_look(training *t, const ares_json *o, const char *checkpoint, const char *path,
                      state_sums *unused)
{
    (void)checkpoint, (void)unused;
    double step = 0;
    ARES_TRY(check_version(o, path));
    ARES_TRY(get(o, path, "step", &step));
    ARES_TRY(check_model(t, o, path, NULL, force_of(t)));
    /* part of the samples' keys, so that the answers are the same as those of training here */
    t->step = (int64_t)step;
    return ARES_OK;
}

int state_look(training *t, const char *checkpoint)
{
    ares_str path = { 0 };
    int rc = read_state(t, checkpoint, apply_look, NULL);
    if (rc == ARES_OK && t->controls &&
        ares_file_exists(ares_path_join(&path, checkpoint, "controls.json")))
        rc = read_controls(t, path.data, controls_look);
    ares_str_fini(&path);
    return ares_world_share_error(t->world, rc);
}
