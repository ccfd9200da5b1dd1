/*
 * Checkpoints hold everything that a run depends on: <run>/checkpoints/step_000123/{model/,
 * optimizer.safetensors, state.json, source.json, controls.json}, with a critic also critic/ and
 * critic_optimizer.safetensors, with a reference that moves reference/, with stored answers what
 * the reference said of them (stored_answers.safetensors); and one rolling_000123 to go on from
 * after a crash, a signal or a failed step (docs/design.md#checkpoints). When a checkpoint is saved
 * changes no result: a rolling one is never the best one. Order and samples are functions of seeds
 * and counters, so with the weights in the storage type, the optimizer's states and the counters
 * below a resumed run equals the uninterrupted one, bit for bit.
 */
#include <stdio.h>

#include "controls.h"
#include "origin.h"
#include "state.h"
#include "vapor/vapor.h"

enum { OF_TOKENIZER = 8 }; /* the first of them; the others come with the model */
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

/* tokenizer: a directory, or a tokenizer.json; NULL: the model's own. */
static int copy_files(const char *model, const char *tokenizer, const char *to)
{
    ares_str path = { 0 };
    int rc = ARES_OK;
    for (int i = 0; state_tokenizer_files[i] && rc == ARES_OK; i++) {
        const char *name = state_tokenizer_files[i],
                   *from = i < OF_TOKENIZER && tokenizer ? tokenizer : model;
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

static int write_line(const ares_str *json, const char *path)
{
    ares_str line = { 0 };
    ares_str_add_view(&line, ares_str_view(json));
    ares_str_add_char(&line, '\n');
    int rc = ares_file_write(path, line.data, line.len);
    ares_str_fini(&line);
    return rc;
}

/* Answers that wait make it long, so it is made here and copied nowhere. */
static int write_source(const ares_source_snapshot *source, const char *path)
{
    ares_str line = { 0 };
    ares_source_snapshot_write(source, &line);
    ares_str_add_char(&line, '\n');
    int rc = ares_file_write(path, line.data, line.len);
    ares_str_fini(&line);
    return rc;
}

/* As text: JSON's numbers are exact up to 2^53 only. */
static void write_sum(ares_str *o, const char *key, uint64_t sum)
{
    char text[17];
    if (!sum) return;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    ares_json_write_string(ares_json_key(o, key), ares_view_of(text));
}

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
    origin_describe_model(&t->model->cfg, &model);
    ares_json_write_string(ares_json_key(&o, "model"), ares_str_view(&model));
    ares_json_write_string(ares_json_key(&o, "optimizer"), ares_view_of(t->cfg->optim.strategy));
    if (t->critic)
        ares_json_write_string(ares_json_key(&o, "critic_optimizer"),
                               ares_view_of(t->cfg->critic_optim.strategy));
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
    ares_json_end(&o, '}');
    ares_json_indent(&text, ares_str_view(&o), 1);
    int rc = write_line(&text, path);
    ares_str_fini(&o);
    ares_str_fini(&model);
    ares_str_fini(&text);
    return rc;
}

/* The tensors, which all ranks write together. behind: NULL: at once */
static int write_tensors(const training *t, state_kind kind, const char *dir, ares_behind *behind,
                         state_sums *sums)
{
    const ares_writers by = { t->world, t->same_files, behind };
    const ares_model *critic = t->critic ? t->critic->model : NULL;
    bool states = kind == STATE_ROLLING || !t->cfg->trainer.save_model_only;
    ares_str path = { 0 };
    int rc =
        ares_model_save(t->model, ares_path_join(&path, dir, "model"), &by, &sums->model.weights);
    if (rc == ARES_OK && states)
        rc =
            ares_model_optimizer_save(t->model, ares_path_join(&path, dir, "optimizer.safetensors"),
                                      &by, &sums->model.states);
    if (rc == ARES_OK && critic)
        rc = ares_model_save(critic, ares_path_join(&path, dir, "critic"), &by,
                             &sums->critic.weights);
    if (rc == ARES_OK && critic && states)
        rc = ares_model_optimizer_save(critic,
                                       ares_path_join(&path, dir, "critic_optimizer.safetensors"),
                                       &by, &sums->critic.states);
    if (rc == ARES_OK && t->moved_reference)
        rc =
            ares_model_save(t->moved_reference, ares_path_join(&path, dir, "reference"), &by, NULL);
    ares_str_fini(&path);
    return rc;
}

/* What rank 0 writes alone. */
static int write_files(training *t, state_kind kind, const step_begin *at, const state_sums *sums,
                       const char *dir)
{
    ares_str path = { 0 };
    bool states = kind == STATE_ROLLING || !t->cfg->trainer.save_model_only;
    int rc = copy_files(t->model_dir.data, t->cfg->actor.tokenizer_path,
                        ares_path_join(&path, dir, "model"));
    if (rc == ARES_OK) rc = ares_model_save_eos(t->model, path.data);
    if (rc == ARES_OK && t->vapor && t->vapor->ref && states)
        rc = vapor_save(t->vapor, ares_path_join(&path, dir, "stored_answers.safetensors"));
    if (rc == ARES_OK && t->controls)
        rc = write_line(&at->controls, ares_path_join(&path, dir, "controls.json"));
    if (rc == ARES_OK) rc = write_source(&at->source, ares_path_join(&path, dir, "source.json"));
    if (rc == ARES_OK) rc = write_state(t, at, sums, ares_path_join(&path, dir, "state.json"));
    ares_str_fini(&path);
    return rc;
}

static void forget(state_save *s)
{
    ares_str_fini(&s->dir);
    ares_str_fini(&s->temporary);
}

bool state_is_written(const state_save *s)
{
    return !s->behind || ares_behind_done(s->behind);
}

void state_abandon(state_save *s)
{
    char *message = ares_strdup(ares_error_message());
    if (ares_behind_end(s->behind) != ARES_OK) (void)ares_fail(ARES_EIO, "%s", message);
    ares_free(message);
    s->behind = NULL;
    if (s->temporary.len && s->lead) ares_checkpoint_abandon(s->temporary.data);
    forget(s);
}

/* After what rank 0 has written itself: the folders, and files that need no sum over ranks. */
static int seal_late(void *ctx)
{
    char *temporary = ctx;
    int rc = ares_checkpoint_seal(temporary);
    ares_free(temporary);
    return rc;
}

/* Each rank's part of the tensors is on its disk when its own jobs are done. */
static void go_on(state_save *s)
{
    if (s->lead) ares_behind_post(s->behind, seal_late, ares_strdup(s->temporary.data));
    ares_behind_begin(s->behind);
}

static int write_all(training *t, state_kind kind, bool beside, const step_begin *at, state_save *s)
{
    *s = (state_save){ .kind = kind, .lead = ares_world_rank(t->world) == 0, .step = t->step };
    beside = beside && (t->same_files || ares_world_size(t->world) == 1);
    if (beside) s->behind = ares_behind_new();
    snprintf(s->name, sizeof s->name, "%s_%06lld", kind == STATE_ROLLING ? "rolling" : "step",
             (long long)t->step);
    ares_path_join(&s->dir, t->run_dir.data, "checkpoints");
    state_sums sums = { 0 };
    int rc = ares_checkpoint_begin(s->dir.data, s->name, s->lead, &s->temporary);
    rc = ares_world_agree(t->world, rc);
    if (rc == ARES_OK) rc = write_tensors(t, kind, s->temporary.data, s->behind, &sums);
    if (rc == ARES_OK) {
        if (s->lead) rc = write_files(t, kind, at, &sums, s->temporary.data);
        if (s->lead && rc == ARES_OK && !beside) rc = ares_checkpoint_seal(s->temporary.data);
        rc = ares_world_agree(t->world, rc);
    }
    if (rc != ARES_OK) state_abandon(s);
    else if (beside) go_on(s);
    return rc;
}

/*
 * A regular checkpoint is compared with the best one by the latest validation, even where that was
 * made at an earlier step: EasyR1's rule.
 */
static void judge(training *t)
{
    if (t->validated_step < 0 || (t->best_step >= 0 && t->validated_score <= t->best_score)) return;
    t->best_score = t->validated_score;
    t->best_step = t->step;
}

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
    ares_source_look(&t->source, &b->source);
}

int state_write(training *t, state_kind kind, bool beside, state_save *s)
{
    step_begin now = { 0 };
    if (kind == STATE_REGULAR) judge(t);
    remember(t, &now);
    int rc = write_all(t, kind, beside, &now, s);
    step_begin_fini(&now);
    return rc;
}

/* Removes the checkpoints that the new one replaces, after it is complete. */
static int remove_old(const training *t, const state_save *s)
{
    char best[32];
    bool rolling = s->kind == STATE_ROLLING;
    snprintf(best, sizeof best, "step_%06lld", (long long)t->best_step);
    const char *spare[] = { t->best_step >= 0 ? best : s->name, NULL };
    if (rolling || !t->cfg->trainer.save_model_only)
        ARES_TRY(ares_checkpoint_drop_rolling(s->dir.data, rolling ? s->name : NULL));
    if (rolling) return ARES_OK;
    return ares_checkpoint_prune(
        s->dir.data, t->cfg->trainer.save_limit > 0 ? (int)t->cfg->trainer.save_limit : 0, spare);
}

int state_commit(training *t, state_save *s)
{
    int rc = ARES_OK;
    if (s->behind) {
        rc = ares_behind_end(s->behind);
        s->behind = NULL;
        rc = ares_world_agree(t->world, rc);
        if (rc != ARES_OK) state_abandon(s);
        ARES_TRY(rc);
    }
    if (ares_world_rank(t->world) == 0) {
        rc = ares_checkpoint_commit(s->dir.data, s->name, s->temporary.data);
        if (rc == ARES_OK) rc = remove_old(t, s);
    }
    forget(s);
    return ares_world_agree(t->world, rc);
}

int64_t state_copied_bytes(const training *t, int ranks, int64_t *part)
{
    bool states =
        !t->cfg->trainer.save_model_only || !ares_is_null_f64(t->cfg->trainer.save_minutes);
    int64_t of_critic = 0, bytes = ares_model_save_bytes(t->model, states, ranks, part);
    if (t->critic) bytes += ares_model_save_bytes(t->critic->model, states, ranks, &of_critic);
    if (t->moved_reference) bytes += ares_model_save_bytes(t->moved_reference, false, ranks, NULL);
    *part = ARES_MAX(*part, of_critic);
    return bytes;
}

/*
 * The higher the better: the reward of the answers, or their accuracy where a shaper adds to the
 * reward; the negative loss of supervised rows.
 */
static bool validation_score(const training *t, const ares_metrics *m, double *score)
{
    if (t->best_by_accuracy && ares_metrics_get(m, "val/accuracy", score)) return true;
    if (ares_metrics_get(m, "val/reward_score", score)) return true;
    if (!ares_metrics_get(m, "val/loss", score)) return false;
    *score = -*score;
    return true;
}

void state_validated(training *t, const ares_metrics *m)
{
    double score;
    if (!validation_score(t, m, &score)) return;
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
