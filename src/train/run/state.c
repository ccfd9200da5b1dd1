/*
 * Checkpoints hold everything that a run depends on: <run>/checkpoints/step_000123/{model/,
 * optimizer.safetensors, state.json, controls.json}, with a critic also critic/ and
 * critic_optimizer.safetensors; and one rolling_000123 to go on from after a crash, a signal or a
 * failed step (docs/design.md#checkpoints). When a checkpoint is saved changes no result: a rolling
 * one is never the best one. Order and samples are functions of seeds and counters, so with the
 * weights in the storage type, the optimizer's states and the counters below a resumed run equals
 * the uninterrupted one, bit for bit.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "controls.h"
#include "state.h"

enum { STATE_VERSION = 2 };

static const char *const tokenizer_files[] = {
    "tokenizer.json",      "tokenizer_config.json",   "vocab.json",
    "merges.txt",          "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "generation_config.json"
};

int ares_train_copy_tokenizer(const char *from, const char *to)
{
    ares_str path = { 0 }, data = { 0 };
    int rc = ARES_OK;
    for (int i = 0; i < ARES_COUNT(tokenizer_files) && rc == ARES_OK; i++) {
        if (!ares_file_exists(ares_path_join(&path, from, tokenizer_files[i]))) continue;
        ares_str_clear(&data);
        rc = ares_file_read(path.data, &data);
        if (rc == ARES_OK)
            rc =
                ares_file_write(ares_path_join(&path, to, tokenizer_files[i]), data.data, data.len);
    }
    ares_str_fini(&path);
    ares_str_fini(&data);
    return rc;
}

static uint64_t data_hash(const ares_dataset *d)
{
    uint64_t h = ARES_FNV1A; /* over the id, prompt and answer of every row */
    for (int64_t i = 0; d && i < ares_dataset_count(d); i++) {
        const ares_row *row = ares_dataset_row(d, i);
        const ares_view parts[] = { ares_view_of(row->gid ? row->gid : ""), row->prompt_text,
                                    row->ground_truth };
        for (int k = 0; k < ARES_COUNT(parts); k++)
            h = ares_fnv1a(ares_fnv1a(h, parts[k].data, parts[k].len), "\xff", 1);
    }
    return h;
}

train_origin train_origin_of(const training *t)
{
    train_origin o;
    snprintf(o.data, sizeof o.data, "%016llx", (unsigned long long)data_hash(t->train));
    snprintf(o.model, sizeof o.model, "%016llx", (unsigned long long)t->model_weights);
    return o;
}

/* A model in words: "llama, 30 layers of 576, 49152 ids". States fit where the words are equal. */
static void describe_model(const ares_model_config *c, ares_str *out)
{
    ares_str_addf(out, "%s, %d layers of %d, %d ids", c->model_type, c->layers, c->hidden,
                  c->vocab);
}

/* begun: the state that the current step began with; NULL: the state as it is. */
static int write_state(const training *t, const step_begin *begun, const char *path)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "version", STATE_VERSION);
    cJSON_AddNumberToObject(o, "step", (double)t->step);
    cJSON_AddNumberToObject(o, "total_steps", (double)t->total_steps);
    cJSON_AddNumberToObject(o, "optimizer_steps", (double)t->policy->optim.updates);
    cJSON_AddNumberToObject(o, "prompts_drawn", (double)(begun ? begun->drawn : t->loader.drawn));
    cJSON_AddNumberToObject(o, "training_rows", (double)t->loader.rows);
    train_origin origin = train_origin_of(t);
    if (t->train) cJSON_AddStringToObject(o, "training_data", origin.data);
    cJSON_AddStringToObject(o, "model_weights", origin.model);
    ares_str model = { 0 };
    describe_model(&t->model->cfg, &model);
    cJSON_AddStringToObject(o, "model", model.data);
    cJSON_AddStringToObject(o, "optimizer", t->cfg->optim.strategy);
    if (t->critic) cJSON_AddStringToObject(o, "critic_optimizer", t->cfg->critic_optim.strategy);
    ares_str_fini(&model);
    cJSON_AddNumberToObject(o, "data_seed", (double)t->cfg->data.seed);
    cJSON_AddNumberToObject(o, "sampling_seed", (double)t->cfg->rollout.seed);
    cJSON_AddNumberToObject(o, "best_score", t->best_score);
    cJSON_AddNumberToObject(o, "best_step", (double)t->best_step);
    cJSON_AddNumberToObject(o, "validated_score", t->validated_score);
    cJSON_AddNumberToObject(o, "validated_step", (double)t->validated_step);
    cJSON_AddNumberToObject(o, "skipped_updates",
                            (double)(begun ? begun->skipped : t->policy->optim.skipped));
    if (t->critic)
        cJSON_AddNumberToObject(o, "critic_optimizer_steps", (double)t->critic->optim.updates);
    if (t->critic)
        cJSON_AddNumberToObject(o, "critic_skipped_updates",
                                (double)(begun ? begun->critic_skipped : t->critic->optim.skipped));
    /* pairs: [row, the last epoch that it is part of] */
    cJSON *skipped = cJSON_AddArrayToObject(o, "skipped_rows");
    for (int64_t i = 0; i < t->loader.rows; i++)
        if (t->loader.skipped[i] != ARES_LOADER_KEPT)
            cJSON_AddItemToArray(
                skipped,
                cJSON_CreateDoubleArray((double[]){ (double)i, (double)t->loader.skipped[i] }, 2));
    char *text = cJSON_Print(o);
    int rc = ares_file_write(path, text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(o);
    return rc;
}

/* A file apart from state.json: its numbers must load bit for bit, and ids of rows may be many. */
static int write_controls(const training *t, const step_begin *begun, const char *path)
{
    if (!t->controls) return ARES_OK;
    ares_str json = { 0 };
    if (begun) ares_str_add_view(&json, ares_str_view(&begun->controls));
    else controls_save(t->controls, &json);
    ares_str_add_char(&json, '\n');
    int rc = ares_file_write(path, json.data, json.len);
    ares_str_fini(&json);
    return rc;
}

typedef int load_controls(ares_controls *c, const ares_json *json, const char *path);
static int read_controls(training *t, const char *path, load_controls *load)
{
    if (!t->controls) return ARES_OK;
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *json;
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), path, &json);
    if (rc == ARES_OK) rc = load(t->controls, json, path);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
    return rc;
}

static int write_files(training *t, state_kind kind, const step_begin *begun, const char *dir)
{
    ares_str path = { 0 };
    int rc = ares_model_save(t->model, ares_path_join(&path, dir, "model"));
    if (rc == ARES_OK) rc = ares_train_copy_tokenizer(t->model_dir.data, path.data);
    bool states = kind == STATE_ROLLING || !t->cfg->trainer.save_model_only;
    if (rc == ARES_OK && states)
        rc = ares_model_optimizer_save(t->model,
                                       ares_path_join(&path, dir, "optimizer.safetensors"));
    if (rc == ARES_OK && t->critic)
        rc = ares_model_save(t->critic->model, ares_path_join(&path, dir, "critic"));
    if (rc == ARES_OK && t->critic && states)
        rc = ares_model_optimizer_save(t->critic->model,
                                       ares_path_join(&path, dir, "critic_optimizer.safetensors"));
    if (rc == ARES_OK) rc = write_controls(t, begun, ares_path_join(&path, dir, "controls.json"));
    if (rc == ARES_OK) rc = write_state(t, begun, ares_path_join(&path, dir, "state.json"));
    ares_str_fini(&path);
    return rc;
}

static void forget(state_save *s)
{
    ares_str_fini(&s->dir);
    ares_str_fini(&s->temporary);
}

void state_abandon(state_save *s)
{
    if (s->temporary.len) ares_checkpoint_abandon(s->temporary.data);
    forget(s);
}

static int write_all(training *t, state_kind kind, const step_begin *begun, state_save *s)
{
    int rc = ARES_OK;
    *s = (state_save){ .kind = kind };
    snprintf(s->name, sizeof s->name, "%s_%06lld", kind == STATE_ROLLING ? "rolling" : "step",
             (long long)t->step);
    ares_path_join(&s->dir, t->run_dir.data, "checkpoints");
    if (ares_world_rank(t->world) == 0) {
        rc = ares_checkpoint_begin(s->dir.data, s->name, &s->temporary);
        if (rc == ARES_OK) rc = write_files(t, kind, begun, s->temporary.data);
        if (rc == ARES_OK) rc = ares_checkpoint_seal(s->temporary.data);
    }
    rc = ares_world_agree(t->world, rc);
    if (rc != ARES_OK) state_abandon(s);
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

int state_write(training *t, state_kind kind, state_save *s)
{
    if (kind == STATE_REGULAR) judge(t);
    return write_all(t, kind, NULL, s);
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
    if (ares_world_rank(t->world) == 0) {
        rc = ares_checkpoint_commit(s->dir.data, s->name, s->temporary.data);
        if (rc == ARES_OK) rc = remove_old(t, s);
    }
    forget(s);
    return ares_world_agree(t->world, rc);
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

/* ------------------------------------------------------------------ a step that fails */
void state_begin_step(training *t)
{
    step_begin *b = &t->begun;
    b->drawn = t->loader.drawn;
    b->rows_skipped = t->loader.n_skipped;
    b->updates = t->policy->optim.updates;
    b->skipped = t->policy->optim.skipped;
    b->critic_updates = t->critic ? t->critic->optim.updates : 0;
    b->critic_skipped = t->critic ? t->critic->optim.skipped : 0;
    ares_str_clear(&b->controls);
    if (t->controls && ares_world_rank(t->world) == 0) controls_save(t->controls, &b->controls);
}

bool state_unmoved(const training *t)
{
    const step_begin *b = &t->begun;
    return t->policy->optim.updates == b->updates &&
           (!t->critic || t->critic->optim.updates == b->critic_updates) &&
           t->loader.n_skipped == b->rows_skipped;
}

int state_save_begun(training *t, state_save *s)
{
    ARES_TRY(write_all(t, STATE_ROLLING, &t->begun, s));
    return state_commit(t, s);
}

/* ------------------------------------------------------------------ going on */
/* A number of state.json, or a failure that names it. */
static int get(const cJSON *o, const char *path, const char *key, double *out)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!cJSON_IsNumber(v))
        return ares_fail(ARES_EFORMAT, "train: %s: no number '%s'; the checkpoint is damaged", path,
                         key);
    *out = v->valuedouble;
    return ARES_OK;
}

static bool differs(const cJSON *o, const char *key, const char *own)
{
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(saved) && strcmp(saved->valuestring, own) != 0;
}

/*
 * weights: the fingerprint of the configured model, which must be the one that the run began with;
 * NULL: it may be another.
 */
static int check_model(const training *t, const cJSON *o, const char *path, const char *weights,
                       const char *force)
{
    bool other_weights = weights && differs(o, "model_weights", weights);
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(o, "model");
    ares_model_config configured;
    ares_str name = { 0 };
    ARES_TRY(ares_model_config_load(t->model_dir.data, &configured));
    describe_model(&configured, &name);
    int rc = ARES_OK;
    if (differs(o, "model", name.data) && force)
        rc = ares_fail(ARES_ESTATE,
                       "train: %s: the state is of another model (%s) than "
                       "worker.actor.model.model_path = '%s' (%s); restore the option, or %s",
                       path, saved->valuestring, t->cfg->actor.model_path, name.data, force);
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

static const char *force_of(const training *t)
{
    return t->cfg->trainer.force ? NULL : "pass --force to go on nevertheless";
}

/*
 * A strategy can only read its own states, so --force does not help here. Older states do not name
 * the critic's strategy.
 */
static int check_strategy(const cJSON *o, const char *path, const char *key, const char *role,
                          const ares_optim_config *cfg)
{
    if (!differs(o, key, cfg->strategy)) return ARES_OK;
    return ares_fail(ARES_ESTATE,
                     "train: %s: the states are those of worker.%s.optim.strategy = '%s', not of "
                     "'%s'; set it back",
                     path, role, cJSON_GetObjectItemCaseSensitive(o, key)->valuestring,
                     cfg->strategy);
}

/* The state must be of these rows and of the configured model, unless --force is given. */
static int check_origin(const training *t, const cJSON *o, const char *path, int64_t rows)
{
    const char *force = force_of(t);
    train_origin own = train_origin_of(t);
    bool other_rows = rows != t->loader.rows,
         other_data = t->train && differs(o, "training_data", own.data);
    if (force && other_rows)
        return ares_fail(ARES_ESTATE,
                         "train: %s: the run had %lld training rows, the data set has %lld now; "
                         "restore data.train_files, or %s",
                         path, (long long)rows, (long long)t->loader.rows, force);
    if (force && other_data)
        return ares_fail(ARES_ESTATE,
                         "train: %s: the state is of another data set than data.train_files (its "
                         "rows differ in id, prompt or answer); restore the files, or %s",
                         path, force);
    if (other_rows || other_data)
        ares_log(ARES_LOG_WARN, "train: %s: the state is of another data set", path);
    ARES_TRY(check_strategy(o, path, "optimizer", "actor", &t->cfg->optim));
    if (t->critic)
        ARES_TRY(check_strategy(o, path, "critic_optimizer", "critic", &t->cfg->critic_optim));
    return check_model(t, o, path, own.model, force);
}

/* A number that older states do not have. */
static double get_or(const cJSON *o, const char *key, double otherwise)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNumber(v) ? v->valuedouble : otherwise;
}

static int check_version(const cJSON *o, const char *path)
{
    double version = 0;
    ARES_TRY(get(o, path, "version", &version));
    if (version != STATE_VERSION)
        return ares_fail(ARES_EUNSUPPORTED,
                         "train: %s: version %g of the state; this program reads %d", path, version,
                         STATE_VERSION);
    return ARES_OK;
}

static int apply(training *t, const cJSON *o, const char *path)
{
    double step = 0, updates = 0, drawn = 0, rows = 0, best_score = 0, best_step = 0;
    ARES_TRY(check_version(o, path));
    ARES_TRY(get(o, path, "step", &step));
    ARES_TRY(get(o, path, "optimizer_steps", &updates));
    ARES_TRY(get(o, path, "prompts_drawn", &drawn));
    ARES_TRY(get(o, path, "training_rows", &rows));
    ARES_TRY(get(o, path, "best_score", &best_score));
    ARES_TRY(get(o, path, "best_step", &best_step));
    ARES_TRY(check_origin(t, o, path, (int64_t)rows));
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o, "skipped_rows"))
    {
        const cJSON *row_of = cJSON_GetArrayItem(item, 0), *epoch = cJSON_GetArrayItem(item, 1);
        if (!cJSON_IsNumber(row_of) || !cJSON_IsNumber(epoch) || row_of->valuedouble < 0 ||
            row_of->valuedouble >= rows)
            return ares_fail(ARES_EFORMAT,
                             "train: %s: 'skipped_rows' holds no pairs of a row and an epoch; the "
                             "checkpoint is damaged",
                             path);
        if ((int64_t)row_of->valuedouble < t->loader.rows)
            ares_loader_restore(&t->loader, (int64_t)row_of->valuedouble,
                                (int64_t)epoch->valuedouble);
    }
    double critic_updates = 0;
    if (t->critic) {
        ARES_TRY(get(o, path, "critic_optimizer_steps", &critic_updates));
        t->critic->optim.updates = (int64_t)critic_updates;
        t->critic->optim.skipped = (int64_t)get_or(o, "critic_skipped_updates", 0);
        t->critic->step = (int64_t)step;
    }
    t->step = (int64_t)step;
    /* the actor's schedule begins with its first update */
    t->policy->step = ARES_MAX(0, t->step - t->cfg->trainer.critic_warmup);
    t->policy->optim.updates = (int64_t)updates;
    t->policy->optim.skipped = (int64_t)get_or(o, "skipped_updates", 0);
    t->loader.drawn = (int64_t)drawn;
    t->best_score = best_score;
    t->best_step = (int64_t)best_step;
    t->validated_score = get_or(o, "validated_score", 0);
    t->validated_step = (int64_t)get_or(o, "validated_step", -1);
    return ARES_OK;
}

typedef int apply_state(training *t, const cJSON *o, const char *path);
static int read_state(training *t, const char *checkpoint, apply_state *apply_to)
{
    ares_str path = { 0 }, text = { 0 };
    int rc = ares_file_read(ares_path_join(&path, checkpoint, "state.json"), &text);
    if (rc == ARES_OK) {
        cJSON *o = cJSON_ParseWithLength(text.data, text.len);
        rc = o ? apply_to(t, o, path.data)
               : ares_fail(ARES_EFORMAT, "train: %s: not JSON; the checkpoint is damaged",
                           path.data);
        cJSON_Delete(o);
    }
    ares_str_fini(&path);
    ares_str_fini(&text);
    return rc;
}

int state_resume(training *t, const char *checkpoint)
{
    ares_str path = { 0 };
    int rc = ARES_OK;
    if (!ares_file_exists(ares_path_join(&path, checkpoint, "optimizer.safetensors")))
        rc = ares_fail(
            ARES_ESTATE,
            "train: %s holds a model without optimizer states (trainer.save_model_only); begin a "
            "new run from it: worker.actor.model.model_path=%s",
            checkpoint, checkpoint);
    if (rc == ARES_OK) rc = ares_model_optimizer_load(t->model, path.data);
    if (rc == ARES_OK && t->critic)
        rc = ares_model_optimizer_load(
            t->critic->model, ares_path_join(&path, checkpoint, "critic_optimizer.safetensors"));
    if (rc == ARES_OK)
        rc = read_controls(t, ares_path_join(&path, checkpoint, "controls.json"), controls_load);
    if (rc == ARES_OK) rc = read_state(t, checkpoint, apply);
    ares_str_fini(&path);
    return ares_world_agree(t->world, rc);
}

/* ------------------------------------------------------------------ validation alone */
static int apply_look(training *t, const cJSON *o, const char *path)
{
    double step = 0;
    ARES_TRY(check_version(o, path));
    ARES_TRY(get(o, path, "step", &step));
    ARES_TRY(check_model(t, o, path, NULL, force_of(t)));
    t->step =
        (int64_t)step; /* part of the samples' keys: the answers are those that training got here */
    return ARES_OK;
}

int state_look(training *t, const char *checkpoint)
{
    ares_str path = { 0 };
    int rc = read_state(t, checkpoint, apply_look);
    if (rc == ARES_OK && ares_file_exists(ares_path_join(&path, checkpoint, "controls.json")))
        rc = read_controls(t, path.data, controls_look);
    ares_str_fini(&path);
    return ares_world_agree(t->world, rc);
}
