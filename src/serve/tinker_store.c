/* Tinker's checkpoints: folders of PEFT's files and checkpoint.json, found by names of models. */
#include "tinker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const kinds[] = { "weights", "sampler_weights" };

/* The folder of a model: its id with _ for each colon. */
static void add_run(ares_str *out, ares_view model_id)
{
    for (size_t i = 0; i < model_id.len; i++)
        ares_str_add_char(out, model_id.data[i] == ':' ? '_' : model_id.data[i]);
}

const char *tinker_store_dir(ares_str *out, const char *state_dir, const tinker_path *path)
{
    ARES_ASSERT(tinker_model_id_ok(path->model_id) && tinker_name_ok(path->name));
    ares_path_join(out, state_dir, "");
    if (out->data[out->len - 1] != '/') ares_str_add_char(out, '/');
    add_run(out, path->model_id);
    ares_str_addf(out, "/%s/", kinds[path->sampler]);
    ares_str_add_view(out, path->name);
    return out->data;
}

/* An object of checkpoint.json as text; {} where there is none. */
static ares_view object_text(ares_arena *arena, const ares_json *o)
{
    ares_str text = { 0 };
    if (!o || o->type != ARES_JSON_OBJECT) return ARES_VIEW("{}");
    ares_json_write(&text, o);
    ares_view v = { ares_arena_copy(arena, text.data, text.len), text.len };
    ares_str_fini(&text);
    return v;
}

int tinker_store_read(ares_arena *arena, const char *state_dir, const tinker_path *path,
                      tinker_checkpoint *out)
{
    ares_str dir = { 0 }, file = { 0 }, text = { 0 };
    const ares_json *o = NULL, *lora;
    *out = (tinker_checkpoint){ .path = *path, .ttl_seconds = -1 };
    tinker_store_dir(&dir, state_dir, path);
    ares_path_join(&file, dir.data, "checkpoint.json");
    int rc = ARES_OK;
    if (!ares_file_exists(file.data))
        rc = ares_fail(ARES_EUSE, "there is no checkpoint tinker://%.*s/%s/%.*s",
                       (int)path->model_id.len, path->model_id.data, kinds[path->sampler],
                       (int)path->name.len, path->name.data);
    if (rc == ARES_OK) rc = ares_file_read(file.data, &text);
    if (rc == ARES_OK) rc = ares_json_parse(arena, ares_str_view(&text), file.data, &o);
    if (rc == ARES_OK) rc = ares_json_get_string(o, "base_model", "", &out->base_model);
    if (rc == ARES_OK) rc = ares_json_get_string(o, "fingerprint", "", &out->fingerprint);
    if (rc == ARES_OK) rc = ares_json_get_string(o, "time", "", &out->time);
    if (rc == ARES_OK) rc = ares_json_get_i64(o, "ttl_seconds", -1, &out->ttl_seconds);
    int64_t rank = 0;
    lora = ares_json_get(o, "lora_config");
    if (rc == ARES_OK) rc = ares_json_get_i64(lora, "rank", 0, &rank);
    if (rc == ARES_OK) rc = ares_json_get_bool(lora, "train_attn", false, &out->lora.attn);
    if (rc == ARES_OK) rc = ares_json_get_bool(lora, "train_mlp", false, &out->lora.mlp);
    if (rc == ARES_OK) rc = ares_json_get_bool(lora, "train_unembed", false, &out->lora.unembed);
    if (rc == ARES_OK && (rank < 1 || rank > INT32_MAX))
        rc = ares_fail(ARES_EFORMAT, "%s: lora_config.rank is out of range", file.data);
    out->lora.rank = (int32_t)rank;
    out->metadata = object_text(arena, ares_json_get(o, "user_metadata"));
    out->run_metadata = object_text(arena, ares_json_get(o, "run_metadata"));
    DIR *d = rc == ARES_OK ? opendir(dir.data) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (stat(ares_path_join(&file, dir.data, e->d_name), &st) == 0 && S_ISREG(st.st_mode))
            out->size_bytes += st.st_size;
    }
    if (d) closedir(d);
    out->path.model_id.data = ares_arena_copy(arena, path->model_id.data, path->model_id.len);
    out->path.name.data = ares_arena_copy(arena, path->name.data, path->name.len);
    ares_str_fini(&dir);
    ares_str_fini(&file);
    ares_str_fini(&text);
    return rc;
}

static void write_json(const tinker_checkpoint *c, ares_str *o)
{
    ares_str path = { 0 };
    ares_str_addf(&path, "tinker://%.*s/%s/%.*s", (int)c->path.model_id.len, c->path.model_id.data,
                  kinds[c->path.sampler], (int)c->path.name.len, c->path.name.data);
    ares_json_begin(o, '{');
    ares_json_write_string(ares_json_key(o, "path"), ares_str_view(&path));
    ares_json_write_string(ares_json_key(o, "base_model"), c->base_model);
    ares_json_write_string(ares_json_key(o, "fingerprint"), c->fingerprint);
    ares_json_begin(ares_json_key(o, "lora_config"), '{');
    ares_json_write_i64(ares_json_key(o, "rank"), c->lora.rank);
    ares_json_write_bool(ares_json_key(o, "train_attn"), c->lora.attn);
    ares_json_write_bool(ares_json_key(o, "train_mlp"), c->lora.mlp);
    ares_json_write_bool(ares_json_key(o, "train_unembed"), c->lora.unembed);
    ares_json_end(o, '}');
    ares_json_splice(ares_json_key(o, "user_metadata"), c->metadata);
    ares_json_splice(ares_json_key(o, "run_metadata"), c->run_metadata);
    if (c->ttl_seconds >= 0) ares_json_write_i64(ares_json_key(o, "ttl_seconds"), c->ttl_seconds);
    ares_json_write_string(ares_json_key(o, "time"), c->time);
    ares_json_end(o, '}');
    ares_str_add_char(o, '\n');
    ares_str_fini(&path);
}

int tinker_store_commit(const char *state_dir, const char *from, const tinker_checkpoint *c)
{
    ares_str json = { 0 }, path = { 0 }, to = { 0 }, folder = { 0 };
    write_json(c, &json);
    tinker_store_dir(&to, state_dir, &c->path);
    ares_str_add(&folder, to.data, to.len - c->path.name.len - 1);
    int rc =
        ares_file_write_atomic(ares_path_join(&path, from, "checkpoint.json"), json.data, json.len);
    if (rc == ARES_OK) rc = ares_dir_make_durable(folder.data);
    if (rc != ARES_OK) ares_dir_remove(from);
    else {
        /* an older one of that name is exchanged with it, and removed where the new one came from;
         * a file system that cannot exchange is without either for a moment */
        bool there = ares_dir_exists(to.data),
             done = there && renameat2(AT_FDCWD, from, AT_FDCWD, to.data, RENAME_EXCHANGE) == 0;
        if (there && !done) rc = ares_dir_remove(to.data);
        if (rc == ARES_OK && !done && rename(from, to.data) != 0)
            rc = ares_fail(ARES_EIO, "serve: %s: rename: %s", to.data, strerror(errno));
        if (rc == ARES_OK) rc = ares_path_sync(to.data);
        if (rc == ARES_OK && done) rc = ares_dir_remove(from);
    }
    ares_str_fini(&json);
    ares_str_fini(&path);
    ares_str_fini(&to);
    ares_str_fini(&folder);
    return rc;
}

int tinker_store_remove(const char *state_dir, const tinker_path *path)
{
    ares_arena arena = { 0 };
    tinker_checkpoint c;
    ares_str dir = { 0 }, aside = { 0 };
    int rc = tinker_store_read(&arena, state_dir, path, &c);
    if (rc == ARES_OK) {
        /* renamed first, so that a half of it is never taken for a checkpoint */
        tinker_store_dir(&dir, state_dir, path);
        ares_path_join(&aside, state_dir, "tmp/removed");
        rc = ares_dir_remove(aside.data);
        if (rc == ARES_OK && rename(dir.data, aside.data) != 0)
            rc = ares_fail(ARES_EIO, "serve: %s: rename: %s", dir.data, strerror(errno));
        if (rc == ARES_OK) rc = ares_path_sync(dir.data);
        if (rc == ARES_OK) rc = ares_dir_remove(aside.data);
    }
    ares_str_fini(&dir);
    ares_str_fini(&aside);
    ares_arena_fini(&arena);
    return rc;
}

/* Names of a folder in order; NULL: there is none. Each is freed, then the list. */
static int names_in(const char *dir, struct dirent ***names)
{
    *names = NULL;
    int n = scandir(dir, names, NULL, alphasort);
    return ARES_MAX(n, 0);
}

/* The checkpoints of one model. */
static void list_run(ares_arena *arena, const char *state_dir, ares_view model_id,
                     tinker_checkpoint **out, int64_t *n, int64_t *cap)
{
    ares_str dir = { 0 };
    for (int sampler = 0; sampler < 2; sampler++) {
        tinker_path any = { .model_id = model_id, .name = ARES_VIEW("x"), .sampler = sampler };
        struct dirent **names;
        tinker_store_dir(&dir, state_dir, &any);
        dir.data[dir.len - 2] = 0; /* the folder of them all */
        int count = names_in(dir.data, &names);
        for (int i = 0; i < count; i++) {
            tinker_checkpoint c;
            any.name = ares_view_of(names[i]->d_name);
            if (tinker_name_ok(any.name) &&
                tinker_store_read(arena, state_dir, &any, &c) == ARES_OK) {
                if (*n == *cap) {
                    tinker_checkpoint *more;
                    *cap = *cap * 2 + 16;
                    more = ares_arena_alloc(arena, (size_t)*cap * sizeof *more);
                    if (*n) memcpy(more, *out, (size_t)*n * sizeof *more);
                    *out = more;
                }
                (*out)[(*n)++] = c;
            }
            free(names[i]);
        }
        free(names);
    }
    ares_str_fini(&dir);
}

void tinker_store_list(ares_arena *arena, const char *state_dir, ares_view model_id,
                       tinker_checkpoint **out, int64_t *n)
{
    struct dirent **names;
    int64_t cap = 0;
    *out = NULL;
    *n = 0;
    if (model_id.len) {
        if (tinker_model_id_ok(model_id)) list_run(arena, state_dir, model_id, out, n, &cap);
        ares_error_clear();
        return;
    }
    int count = names_in(state_dir, &names);
    for (int i = 0; i < count; i++) {
        char id[256];
        snprintf(id, sizeof id, "%s", names[i]->d_name);
        for (char *c = id; *c; c++)
            if (*c == '_') *c = ':';
        if (tinker_model_id_ok(ares_view_of(id)))
            list_run(arena, state_dir, ares_view_of(id), out, n, &cap);
        free(names[i]);
    }
    free(names);
    ares_error_clear();
}
