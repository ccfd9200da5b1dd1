/* What a run began with: the options in config.yaml, and their hash in DONE. */
#include "begun.h"

#include <stdio.h>
#include <string.h>

#include "differ.h"

void ares_run_path(const ares_train_config *c, ares_str *path)
{
    if (c->trainer.run_dir) ares_str_add_z(path, c->trainer.run_dir);
    else ares_str_addf(path, "runs/%s/%s", c->trainer.project_name, c->trainer.experiment_name);
}

int begun_compare(const char *dir, const ares_config *cfg, rundir_declare *declare,
                  ares_str *changed)
{
    ares_config *old = ares_config_new();
    ares_train_config unused;
    ares_str saved = { 0 };
    differing x = {
        .cfg = cfg, .may = ares_config_no_result, .between = ", now ", .text = changed
    };
    memset(&unused, 0, sizeof unused);
    declare(old, &unused);
    ares_config_load_file(old, ares_path_join(&saved, dir, "config.yaml"));
    ares_config_resolve(old);
    const ares_json *now = ares_config_get(cfg, ""), *then = ares_config_get(old, "");
    int rc = ares_config_finish(old);
    if (rc != ARES_OK) ares_fail_in(rc, "%s", saved.data);
    else if (now && then) differ(&x, then, now, "");
    ares_str_fini(&saved);
    ares_config_free(old);
    return rc;
}

/* ---------------------------------------------------------------- their hash */
/* Options that say where a run is kept, not what it does. */
static bool names_the_run(const char *path)
{
    static const char *const names[] = { "trainer.project_name", "trainer.experiment_name",
                                         "trainer.run_dir" };
    for (int i = 0; i < ARES_COUNT(names); i++)
        if (strcmp(path, names[i]) == 0) return true;
    return false;
}

/* Over path and value of every option that changes results; sections are walked. */
static uint64_t hash_options(const ares_config *cfg, const ares_json *v, const char *path,
                             uint64_t h)
{
    ares_str text = { 0 };
    if (v->type == ARES_JSON_OBJECT && v->count) {
        for (int64_t i = 0; i < v->count; i++) {
            ares_str_clear(&text);
            if (*path) ares_str_addf(&text, "%s.", path);
            ares_str_add_view(&text, v->members[i].key);
            h = hash_options(cfg, v->members[i].value, text.data, h);
        }
    } else if (!ares_config_no_result(cfg, path) && !names_the_run(path)) {
        ares_json_write(&text, v);
        h = ares_fnv1a(ares_fnv1a(h, path, strlen(path) + 1), text.data, text.len);
    }
    ares_str_fini(&text);
    return h;
}

void begun_hash(const ares_config *cfg, char hash[static BEGUN_HASH])
{
    snprintf(hash, BEGUN_HASH, "%016llx",
             (unsigned long long)hash_options(cfg, ares_config_get(cfg, ""), "", ARES_FNV1A));
}

/* ---------------------------------------------------------------- what a directory holds */
/* Whether DONE has the hash of this configuration. A DONE that cannot be read has another. */
static bool done_with(const char *done, const ares_config *cfg)
{
    char hash[BEGUN_HASH];
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    const ares_json *end;
    begun_hash(cfg, hash);
    bool same = false;
    if (ares_file_read(done, &text) == ARES_OK &&
        ares_json_parse(&arena, ares_view_trim(ares_str_view(&text)), done, &end) == ARES_OK) {
        const ares_json *saved = ares_json_get(end, "config");
        same = saved && saved->type == ARES_JSON_STRING && ares_view_is(saved->text, hash);
    }
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return same;
}

int ares_run_look(const ares_config *cfg, const ares_train_config *c, ares_run_state *state,
                  ares_str *changed)
{
    ares_str dir = { 0 }, done = { 0 }, options = { 0 };
    ares_run_path(c, &dir);
    bool finished = ares_file_exists(ares_path_join(&done, dir.data, "DONE")),
         begun = ares_file_exists(ares_path_join(&options, dir.data, "config.yaml"));
    int rc = ARES_OK;
    *state = ARES_RUN_NONE;
    if (finished && done_with(done.data, cfg)) *state = ARES_RUN_FINISHED;
    else if (begun) {
        rc = begun_compare(dir.data, cfg, ares_train_config_declare, changed);
        *state = finished || changed->len ? ARES_RUN_CHANGED : ARES_RUN_UNFINISHED;
    } else if (finished) *state = ARES_RUN_CHANGED;
    ares_str_fini(&dir);
    ares_str_fini(&done);
    ares_str_fini(&options);
    return rc;
}
