/* What a run began with: the options in config.yaml, and their hash in DONE. */
#include "begun.h"

#include <stdio.h>
#include <string.h>

#include "ares/io.h"
#include "differ.h"

void ares_run_path(const ares_train_config *c, ares_str *path)
{
    if (c->trainer.run_dir) ares_str_add_z(path, c->trainer.run_dir);
    else ares_str_addf(path, "runs/%s/%s", c->trainer.project_name, c->trainer.experiment_name);
}

static const char *const lengths[] = { "trainer.max_steps", "trainer.total_epochs" };

static bool is_length(const char *path)
{
    for (int i = 0; i < ARES_COUNT(lengths); i++)
        if (strcmp(path, lengths[i]) == 0) return true;
    return false;
}

static bool no_result_but_length(const ares_config *cfg, const char *path)
{
    return ares_config_no_result(cfg, path) || is_length(path);
}

/*
 * Describes the lengths that differ where they do not grow. One that had none has ended in step
 * `done` (-1: it has not ended).
 */
static bool compare_lengths(differing *x, const ares_config *old, int64_t done)
{
    bool longer = false;
    for (int i = 0; i < ARES_COUNT(lengths); i++) {
        const ares_json *now = ares_config_get(x->cfg, lengths[i]),
                        *then = ares_config_get(old, lengths[i]);
        int64_t least = then && then->type == ARES_JSON_INT ? then->integer : done;
        if (now && now->type == ARES_JSON_INT && least >= 0 && now->integer > least) longer = true;
        else if (now && then) differ(x, then, now, lengths[i]);
    }
    return longer;
}

int begun_compare(const char *dir, const ares_config *cfg, rundir_declare *declare,
                  ares_str *changed, bool *longer)
{
    ares_config *old = ares_config_new();
    ares_train_config unused;
    begun_end end;
    ares_str saved = { 0 };
    differing x = { .cfg = cfg, .may = no_result_but_length, .between = ", now ", .text = changed };
    memset(&unused, 0, sizeof unused);
    declare(old, &unused);
    ares_config_load_file(old, ares_path_join(&saved, dir, "config.yaml"));
    ares_config_resolve(old);
    const ares_json *now = ares_config_get(cfg, ""), *then = ares_config_get(old, "");
    int rc = ares_config_finish(old);
    *longer = false;
    if (rc != ARES_OK) ares_fail_in(rc, "%s", saved.data);
    else if (now && then) {
        differ(&x, then, now, "");
        x.may = ares_config_no_result;
        *longer = compare_lengths(&x, old, begun_is_done(dir, &end) ? end.step : -1);
    }
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
bool begun_is_done(const char *dir, begun_end *end)
{
    ares_arena arena = { 0 };
    ares_str path = { 0 }, text = { 0 };
    const ares_json *done;
    bool there = ares_file_exists(ares_path_join(&path, dir, "DONE"));
    *end = (begun_end){ .step = -1 };
    if (there && ares_file_read(path.data, &text) == ARES_OK &&
        ares_json_parse(&arena, ares_view_trim(ares_str_view(&text)), path.data, &done) ==
            ARES_OK) {
        ares_view hash = { 0 }, stopped = { 0 };
        (void)ares_json_get_i64(done, "step", -1, &end->step);
        (void)ares_json_get_string(done, "config", "", &hash);
        (void)ares_json_get_string(done, "stopped", "", &stopped);
        (void)snprintf(end->hash, sizeof end->hash, "%.*s", (int)hash.len, hash.data);
        (void)snprintf(end->stopped, sizeof end->stopped, "%.*s", (int)stopped.len, stopped.data);
    }
    ares_error_clear();
    ares_str_fini(&path);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return there;
}

/* The step of the last whole row of metrics.jsonl; 0: there is none. */
static int64_t last_row(const char *path)
{
    ares_jsonl *r;
    const ares_json *row;
    int64_t step, last = 0;
    if (ares_jsonl_open(path, &r) != ARES_OK) return 0;
    while (ares_jsonl_next(r, &row, NULL) > 0)
        if (ares_json_get_i64(row, "step", 0, &step) == ARES_OK) last = step;
    ares_jsonl_close(r);
    return last;
}

bool begun_is_empty(const char *dir)
{
    ares_str path = { 0 }, name = { 0 };
    begun_end end;
    bool empty = !begun_is_done(dir, &end) &&
                 !ares_file_exists(ares_path_join(&path, dir, "bootstrap.json")) &&
                 last_row(ares_path_join(&path, dir, "metrics.jsonl")) == 0;
    if (empty && ares_dir_exists(ares_path_join(&path, dir, "checkpoints")))
        empty = ares_checkpoint_latest(path.data, &name) == ARES_OK &&
                (!name.len || strcmp(name.data, "step_000000") == 0 ||
                 strcmp(name.data, "rolling_000000") == 0);
    ares_error_clear();
    ares_str_fini(&path);
    ares_str_fini(&name);
    return empty;
}

int ares_run_look(const ares_config *cfg, const ares_train_config *c, ares_run_state *state,
                  ares_str *changed)
{
    ares_str dir = { 0 }, options = { 0 };
    char hash[BEGUN_HASH];
    begun_end end;
    bool longer = false;
    ares_run_path(c, &dir);
    begun_hash(cfg, hash);
    bool finished = begun_is_done(dir.data, &end),
         begun = ares_file_exists(ares_path_join(&options, dir.data, "config.yaml"));
    int rc = ARES_OK;
    *state = ARES_RUN_NONE;
    if (finished && strcmp(end.hash, hash) == 0) *state = ARES_RUN_FINISHED;
    else if (begun) {
        rc = begun_compare(dir.data, cfg, ares_train_config_declare, changed, &longer);
        *state = changed->len ? (begun_is_empty(dir.data) ? ARES_RUN_NONE : ARES_RUN_CHANGED)
                 : finished && !longer ? ARES_RUN_CHANGED
                                       : ARES_RUN_UNFINISHED;
    } else if (finished) *state = ARES_RUN_CHANGED;
    ares_str_fini(&dir);
    ares_str_fini(&options);
    return rc;
}
