/*
 * Checkpoints: everything that moves the run. <run>/checkpoints/step_000123/{model/, optimizer.safetensors, state.json}.
 * With the weights in the storage type, the optimizer's states and the counters below, a resumed run is the uninterrupted
 * one, bit for bit: order and samples are functions of seeds and counters.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "controls.h"

enum { STATE_VERSION = 2 };

static const char *const tokenizer_files[] = { "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json",
                                               "chat_template.jinja", "generation_config.json" };

int ares_train_copy_tokenizer(const char *from, const char *to)
{
    ares_str path = { 0 }, data = { 0 };
    int rc = ARES_OK;
    for (int i = 0; i < ARES_COUNT(tokenizer_files) && rc == ARES_OK; i++) {
        if (!ares_file_exists(ares_path_join(&path, from, tokenizer_files[i]))) continue;
        ares_str_clear(&data);
        rc = ares_file_read(path.data, &data);
        if (rc == ARES_OK) rc = ares_file_write(ares_path_join(&path, to, tokenizer_files[i]), data.data, data.len);
    }
    ares_str_fini(&path);
    ares_str_fini(&data);
    return rc;
}

static uint64_t data_hash(const ares_dataset *d)
{
    uint64_t h = ARES_FNV1A; /* over what makes a row: its id, prompt and answer */
    for (int64_t i = 0; d && i < ares_dataset_count(d); i++) {
        const ares_row *row = ares_dataset_row(d, i);
        const ares_view parts[] = { ares_view_of(row->gid ? row->gid : ""), row->prompt_text, row->ground_truth };
        for (int k = 0; k < ARES_COUNT(parts); k++) h = ares_fnv1a(ares_fnv1a(h, parts[k].data, parts[k].len), "\xff", 1);
    }
    return h;
}

train_origin train_origin_of(const ares_trainer *t)
{
    train_origin o;
    snprintf(o.data, sizeof o.data, "%016llx", (unsigned long long)data_hash(t->train));
    snprintf(o.model, sizeof o.model, "%016llx", (unsigned long long)t->model_weights);
    return o;
}

/* What a model is, in words that differ where states do not fit: "llama, 30 layers of 576, 49152 ids". */
static void describe_model(const ares_model_config *c, ares_str *out)
{
    ares_str_addf(out, "%s, %d layers of %d, %d ids", c->model_type, c->layers, c->hidden, c->vocab);
}

static int write_state(const ares_trainer *t, const char *path)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "version", STATE_VERSION);
    cJSON_AddNumberToObject(o, "step", (double)t->step);
    cJSON_AddNumberToObject(o, "total_steps", (double)t->total_steps);
    cJSON_AddNumberToObject(o, "optimizer_steps", (double)t->actor.optim.updates);
    cJSON_AddNumberToObject(o, "prompts_drawn", (double)t->loader.drawn);
    cJSON_AddNumberToObject(o, "training_rows", (double)t->loader.rows);
    train_origin origin = train_origin_of(t);
    if (t->train) cJSON_AddStringToObject(o, "training_data", origin.data);
    cJSON_AddStringToObject(o, "model_weights", origin.model);
    ares_str model = { 0 };
    describe_model(&t->model->cfg, &model);
    cJSON_AddStringToObject(o, "model", model.data);
    cJSON_AddStringToObject(o, "optimizer", t->cfg->optim.strategy);
    ares_str_fini(&model);
    cJSON_AddNumberToObject(o, "data_seed", (double)t->cfg->data.seed);
    cJSON_AddNumberToObject(o, "sampling_seed", (double)t->cfg->rollout.seed);
    cJSON_AddNumberToObject(o, "best_score", t->best_score);
    cJSON_AddNumberToObject(o, "best_step", (double)t->best_step);
    if (t->critic) cJSON_AddNumberToObject(o, "critic_optimizer_steps", (double)t->critic->optim.updates);
    cJSON *skipped = cJSON_AddArrayToObject(o, "skipped_rows"); /* [row, the last epoch it is part of] */
    for (int64_t i = 0; i < t->loader.rows; i++)
        if (t->loader.skipped[i] != ARES_LOADER_KEPT) cJSON_AddItemToArray(skipped, cJSON_CreateDoubleArray((double[]){ (double)i, (double)t->loader.skipped[i] }, 2));
    char *text = cJSON_Print(o);
    int rc = ares_file_write(path, text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(o);
    return rc;
}

/* A file of its own: its numbers must come back bit for bit, and gids may be many. */
static int write_controls(const ares_trainer *t, const char *path)
{
    if (!t->controls) return ARES_OK;
    ares_str json = { 0 };
    controls_save(t->controls, &json);
    ares_str_add_char(&json, '\n');
    int rc = ares_file_write(path, json.data, json.len);
    ares_str_fini(&json);
    return rc;
}

static int read_controls(ares_trainer *t, const char *path)
{
    if (!t->controls) return ARES_OK;
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *json;
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), path, &json);
    if (rc == ARES_OK) rc = controls_load(t->controls, json, path);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
    return rc;
}

static int write_checkpoint(ares_trainer *t, const char *dir)
{
    ares_str path = { 0 };
    int rc = ares_model_save(t->model, ares_path_join(&path, dir, "model"));
    if (rc == ARES_OK) rc = ares_train_copy_tokenizer(t->model_dir.data, path.data);
    bool states = !t->cfg->trainer.save_model_only;
    if (rc == ARES_OK && states) rc = ares_model_optimizer_save(t->model, ares_path_join(&path, dir, "optimizer.safetensors"));
    if (rc == ARES_OK && t->critic) rc = ares_model_save(t->critic->model, ares_path_join(&path, dir, "critic"));
    if (rc == ARES_OK && t->critic && states) rc = ares_model_optimizer_save(t->critic->model, ares_path_join(&path, dir, "critic_optimizer.safetensors"));
    if (rc == ARES_OK) rc = write_controls(t, ares_path_join(&path, dir, "controls.json"));
    if (rc == ARES_OK) rc = write_state(t, ares_path_join(&path, dir, "state.json"));
    ares_str_fini(&path);
    return rc;
}

static int save(ares_trainer *t)
{
    ares_str dir = { 0 }, temporary = { 0 };
    char name[32], best[32];
    snprintf(name, sizeof name, "step_%06lld", (long long)t->step);
    snprintf(best, sizeof best, "step_%06lld", (long long)t->best_step);
    ares_path_join(&dir, t->run_dir.data, "checkpoints");
    int rc = ares_checkpoint_begin(dir.data, name, &temporary);
    if (rc == ARES_OK) {
        rc = write_checkpoint(t, temporary.data);
        if (rc == ARES_OK) rc = ares_checkpoint_seal(temporary.data);
        if (rc == ARES_OK) rc = ares_checkpoint_commit(dir.data, name, temporary.data);
        else ares_checkpoint_abandon(temporary.data);
    }
    const char *spare[] = { t->best_step >= 0 ? best : name, NULL };
    if (rc == ARES_OK) rc = ares_checkpoint_prune(dir.data, t->cfg->trainer.save_limit > 0 ? (int)t->cfg->trainer.save_limit : 0, spare);
    ares_str_fini(&dir);
    ares_str_fini(&temporary);
    return rc;
}

/* The higher the better: of answers their reward, or their accuracy where a shaped reward would judge by more; of supervised rows their loss. */
static bool validation_score(const ares_trainer *t, const ares_metrics *m, double *score)
{
    if (t->reward && ares_reward_shapes(t->reward) && ares_metrics_get(m, "val/accuracy", score)) return true;
    if (ares_metrics_get(m, "val/reward_score", score)) return true;
    if (!ares_metrics_get(m, "val/loss", score)) return false;
    *score = -*score;
    return true;
}

int ares_trainer_save(ares_trainer *t, const ares_metrics *last)
{
    double score;
    if (last && validation_score(t, last, &score) && (t->best_step < 0 || score > t->best_score)) {
        t->best_score = score;
        t->best_step = t->step;
    }
    int rc = ares_world_rank(t->world) == 0 ? save(t) : ARES_OK;
    return ares_world_agree(t->world, rc);
}

/* A whole number of state.json, or a failure that names it. */
static int get(const cJSON *o, const char *path, const char *key, double *out)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!cJSON_IsNumber(v)) return ares_fail(ARES_EFORMAT, "train: %s: no number '%s'; the checkpoint is damaged", path, key);
    *out = v->valuedouble;
    return ARES_OK;
}

static bool differs(const cJSON *o, const char *key, const char *own)
{
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsString(saved) && strcmp(saved->valuestring, own) != 0;
}

static int check_model(const ares_trainer *t, const cJSON *o, const char *path, const char *weights, const char *force)
{
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(o, "model");
    ares_model_config configured;
    ares_str name = { 0 };
    ARES_TRY(ares_model_config_load(t->model_dir.data, &configured));
    describe_model(&configured, &name);
    int rc = ARES_OK;
    if (differs(o, "model", name.data) && force)
        rc = ares_fail(ARES_ESTATE, "train: %s: the state is of another model (%s) than worker.actor.model.model_path = '%s' (%s); restore the option, or %s", path, saved->valuestring,
                       t->cfg->actor.model_path, name.data, force);
    else if (differs(o, "model_weights", weights) && force)
        rc = ares_fail(ARES_ESTATE, "train: %s: the run began with other weights than are in worker.actor.model.model_path = '%s' now (%s); restore them, or %s", path,
                       t->cfg->actor.model_path, t->model_dir.data, force);
    else if (differs(o, "model", name.data) || differs(o, "model_weights", weights)) ares_log(ARES_LOG_WARN, "train: %s: the state is of another model", path);
    ares_str_fini(&name);
    return rc;
}

/* The state must be of these rows and of the configured model, unless --force says so. */
static int check_origin(const ares_trainer *t, const cJSON *o, const char *path, int64_t rows)
{
    const char *force = t->cfg->trainer.force ? NULL : "say --force to go on all the same";
    train_origin own = train_origin_of(t);
    bool other_rows = rows != t->loader.rows, other_data = t->train && differs(o, "training_data", own.data);
    if (force && other_rows)
        return ares_fail(ARES_ESTATE, "train: %s: the run had %lld training rows, the data set has %lld now; restore data.train_files, or %s", path, (long long)rows, (long long)t->loader.rows, force);
    if (force && other_data)
        return ares_fail(ARES_ESTATE, "train: %s: the state is of another data set than data.train_files (its rows differ in id, prompt or answer); restore the files, or %s", path, force);
    if (other_rows || other_data) ares_log(ARES_LOG_WARN, "train: %s: the state is of another data set", path);
    const cJSON *optimizer = cJSON_GetObjectItemCaseSensitive(o, "optimizer");
    if (differs(o, "optimizer", t->cfg->optim.strategy))
        return ares_fail(ARES_ESTATE, "train: %s: the states are those of worker.actor.optim.strategy = '%s', not of '%s'; set it back", path, optimizer->valuestring, t->cfg->optim.strategy);
    return check_model(t, o, path, own.model, force);
}

static int apply(ares_trainer *t, const cJSON *o, const char *path)
{
    double version = 0, step = 0, updates = 0, drawn = 0, rows = 0, best_score = 0, best_step = 0;
    ARES_TRY(get(o, path, "version", &version));
    if (version != STATE_VERSION) return ares_fail(ARES_EUNSUPPORTED, "train: %s: version %g of the state; this program reads %d", path, version, STATE_VERSION);
    ARES_TRY(get(o, path, "step", &step));
    ARES_TRY(get(o, path, "optimizer_steps", &updates));
    ARES_TRY(get(o, path, "prompts_drawn", &drawn));
    ARES_TRY(get(o, path, "training_rows", &rows));
    ARES_TRY(get(o, path, "best_score", &best_score));
    ARES_TRY(get(o, path, "best_step", &best_step));
    ARES_TRY(check_origin(t, o, path, (int64_t)rows));
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o, "skipped_rows")) {
        const cJSON *row_of = cJSON_GetArrayItem(item, 0), *epoch = cJSON_GetArrayItem(item, 1);
        if (!cJSON_IsNumber(row_of) || !cJSON_IsNumber(epoch) || row_of->valuedouble < 0 || row_of->valuedouble >= rows)
            return ares_fail(ARES_EFORMAT, "train: %s: 'skipped_rows' holds no pairs of a row and an epoch; the checkpoint is damaged", path);
        if ((int64_t)row_of->valuedouble < t->loader.rows) ares_loader_restore(&t->loader, (int64_t)row_of->valuedouble, (int64_t)epoch->valuedouble);
    }
    double critic_updates = 0;
    if (t->critic) {
        ARES_TRY(get(o, path, "critic_optimizer_steps", &critic_updates));
        t->critic->optim.updates = (int64_t)critic_updates;
        t->critic->step = (int64_t)step;
    }
    t->step = (int64_t)step;
    t->actor.step = ARES_MAX(0, t->step - t->cfg->trainer.critic_warmup); /* its schedule begins with its first update */
    t->actor.optim.updates = (int64_t)updates;
    t->loader.drawn = (int64_t)drawn;
    t->best_score = best_score;
    t->best_step = (int64_t)best_step;
    return ARES_OK;
}

int ares_trainer_resume(ares_trainer *t, const char *checkpoint)
{
    ares_str path = { 0 }, text = { 0 };
    int rc = ARES_OK;
    if (!ares_file_exists(ares_path_join(&path, checkpoint, "optimizer.safetensors")))
        rc = ares_fail(ARES_ESTATE, "train: %s holds a model without optimizer states (trainer.save_model_only); begin a new run from it: worker.actor.model.model_path=%s", checkpoint, checkpoint);
    if (rc == ARES_OK) rc = ares_model_optimizer_load(t->model, path.data);
    if (rc == ARES_OK && t->critic) rc = ares_model_optimizer_load(t->critic->model, ares_path_join(&path, checkpoint, "critic_optimizer.safetensors"));
    if (rc == ARES_OK) rc = read_controls(t, ares_path_join(&path, checkpoint, "controls.json"));
    if (rc == ARES_OK) rc = ares_file_read(ares_path_join(&path, checkpoint, "state.json"), &text);
    if (rc == ARES_OK) {
        cJSON *o = cJSON_ParseWithLength(text.data, text.len);
        rc = o ? apply(t, o, path.data) : ares_fail(ARES_EFORMAT, "train: %s: not JSON; the checkpoint is damaged", path.data);
        cJSON_Delete(o);
    }
    ares_str_fini(&path);
    ares_str_fini(&text);
    return ares_world_agree(t->world, rc);
}
