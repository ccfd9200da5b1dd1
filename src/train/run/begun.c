/* What a run began with: the options in config.yaml, and their hash in DONE. */
#include "begun.h"

#include <stdio.h>
#include <string.h>

enum { MOST_NAMES = 5, MOST_SHOWN = 200 };

void ares_run_path(const ares_train_config *c, ares_str *path)
{
    if (c->trainer.run_dir) ares_str_add_z(path, c->trainer.run_dir);
    else ares_str_addf(path, "runs/%s/%s", c->trainer.project_name, c->trainer.experiment_name);
}

/* ---------------------------------------------------------------- which options differ */
typedef struct comparison {
    const ares_config *cfg;
    ares_str *changed;
    int n;
} comparison;

static bool same(const ares_json *a, const ares_json *b)
{
    if (a->type != b->type) return false;
    if (a->type == ARES_JSON_BOOL) return a->boolean == b->boolean;
    if (a->type == ARES_JSON_INT || a->type == ARES_JSON_FLOAT) return a->number == b->number;
    if (a->type == ARES_JSON_STRING) return ares_view_eq(a->text, b->text);
    if (a->count != b->count) return false;
    for (int64_t i = 0; a->type == ARES_JSON_ARRAY && i < a->count; i++)
        if (!same(&a->items[i], &b->items[i])) return false;
    for (int64_t i = 0; a->type == ARES_JSON_OBJECT && i < a->count; i++) {
        const ares_json *other = ares_json_find(b, a->members[i].key);
        if (!other || !same(a->members[i].value, other)) return false;
    }
    return true;
}

/* As JSON, without the end of a long one; NULL: a map has no such member. */
static void add_value(ares_str *out, const ares_json *v)
{
    size_t start = out->len, end = start + MOST_SHOWN;
    if (!v) {
        ares_str_add_z(out, "not set");
        return;
    }
    ares_json_write(out, v);
    if (out->len <= end) return;
    while (end > start && ((unsigned char)out->data[end] & 0xC0) == 0x80) end--;
    out->len = end;
    ares_str_add_z(out, "...");
}

static void differ(comparison *x, const ares_json *now, const ares_json *then, const char *path)
{
    if (x->n++ >= MOST_NAMES) return;
    ares_str_addf(x->changed, "%s%s: ", x->changed->len ? "; " : "", path);
    add_value(x->changed, then);
    ares_str_add_z(x->changed, ", now ");
    add_value(x->changed, now);
}

static void differences(comparison *x, const ares_json *now, const ares_json *then,
                        const char *path);

static void member(comparison *x, const ares_json *now, const ares_json *then, const char *path,
                   ares_view key)
{
    ares_str inner = { 0 };
    if (*path) ares_str_addf(&inner, "%s.", path);
    ares_str_add_view(&inner, key);
    differences(x, ares_json_find(now, key), ares_json_find(then, key), inner.data);
    ares_str_fini(&inner);
}

/*
 * Appends the options that differ; sections and maps are walked, everything else is compared whole.
 */
static void differences(comparison *x, const ares_json *now, const ares_json *then,
                        const char *path)
{
    if (now && then && now->type == ARES_JSON_OBJECT && then->type == ARES_JSON_OBJECT) {
        for (int64_t i = 0; i < now->count; i++) member(x, now, then, path, now->members[i].key);
        for (int64_t i = 0; i < then->count; i++) /* what a map has lost */
            if (!ares_json_find(now, then->members[i].key))
                member(x, now, then, path, then->members[i].key);
        return;
    }
    if (ares_config_no_result(x->cfg, path) || (now && then && same(now, then))) return;
    differ(x, now, then, path);
}

int begun_compare(const char *dir, const ares_config *cfg, rundir_declare *declare,
                  ares_str *changed)
{
    ares_config *old = ares_config_new();
    ares_train_config unused;
    ares_str saved = { 0 };
    comparison x = { .cfg = cfg, .changed = changed };
    memset(&unused, 0, sizeof unused);
    declare(old, &unused);
    ares_config_load_file(old, ares_path_join(&saved, dir, "config.yaml"));
    ares_config_resolve(old);
    const ares_json *now = ares_config_get(cfg, ""), *then = ares_config_get(old, "");
    int rc = ares_config_finish(old);
    if (rc != ARES_OK) ares_fail_in(rc, "%s", saved.data);
    else if (now && then) differences(&x, now, then, "");
    if (x.n > MOST_NAMES) ares_str_add_z(changed, "; ...");
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
