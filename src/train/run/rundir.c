/*
 * Same configuration and unfinished: go on. Finished, changed or in use: refused, with what to do
 * about it.
 */
#include "rundir.h"

#include <stdio.h>
#include <string.h>

typedef struct comparison {
    const ares_config *cfg;
    ares_str changed;
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

/*
 * Appends the paths of the options that differ; sections are walked, everything else is compared
 * whole.
 */
static void differences(comparison *x, const ares_json *now, const ares_json *then,
                        const char *path)
{
    if (now->type == ARES_JSON_OBJECT && then && then->type == ARES_JSON_OBJECT) {
        ares_str inner = { 0 };
        for (int64_t i = 0; i < now->count; i++) {
            ares_str_clear(&inner);
            if (*path) ares_str_addf(&inner, "%s.", path);
            ares_str_add_view(&inner, now->members[i].key);
            differences(x, now->members[i].value, ares_json_find(then, now->members[i].key),
                        inner.data);
        }
        ares_str_fini(&inner);
        return;
    }
    if (ares_config_no_result(x->cfg, path) || (then && same(now, then))) return;
    if (x->n++ < 5) ares_str_addf(&x->changed, "%s%s", x->changed.len ? ", " : "", path);
}

/* Compares the resolved configuration with the one in the run directory. */
static int compare(const rundir *d, const ares_config *cfg, const ares_train_config *c,
                   rundir_declare *declare, const char *saved)
{
    ares_config *old = ares_config_new();
    ares_train_config unused;
    comparison x = { .cfg = cfg };
    memset(&unused, 0, sizeof unused);
    declare(old, &unused);
    ares_config_load_file(old, saved);
    ares_config_resolve(old);
    const ares_json *now = ares_config_get(cfg, ""), *then = ares_config_get(old, "");
    int rc = ares_config_finish(old);
    if (rc != ARES_OK) ares_fail_in(rc, "%s", saved);
    else if (now && then) differences(&x, now, then, "");
    if (x.n && c->trainer.force)
        ares_log(ARES_LOG_WARN, "run: %s goes on with other options than it began with: %s%s",
                 d->path.data, x.changed.data, x.n > 5 ? ", ..." : "");
    else if (x.n)
        rc = ares_fail(ARES_ESTATE,
                       "run: %s holds a run with other options (%s%s); set trainer.experiment_name "
                       "for a new run, "
                       "restore the options to go on, pass --force to go on with these, or remove "
                       "the directory",
                       d->path.data, x.changed.data, x.n > 5 ? ", ..." : "");
    ares_str_fini(&x.changed);
    ares_config_free(old);
    return rc;
}

/*
 * The newest checkpoint of a folder. One to go on from has optimizer states: where the latest is a
 * model alone (trainer.save_model_only), the rolling one has them.
 */
static int newest(const char *dir, bool go_on, ares_str *out)
{
    ares_str name = { 0 }, states = { 0 }, rolling = { 0 };
    int rc = ares_checkpoint_latest(dir, &name);
    if (rc == ARES_OK && name.len) {
        ares_path_join(&states, dir, name.data);
        ares_str_add_z(&states, "/optimizer.safetensors");
        if (go_on && !ares_file_exists(states.data)) rc = ares_checkpoint_rolling(dir, &rolling);
        if (rc == ARES_OK) ares_path_join(out, dir, rolling.len ? rolling.data : name.data);
    }
    ares_str_fini(&name);
    ares_str_fini(&states);
    ares_str_fini(&rolling);
    return rc;
}

/* trainer.load_checkpoint_path: a checkpoint, a run directory or its checkpoints/. */
static int named_checkpoint(rundir *d, const char *path, bool go_on)
{
    ares_str dir = { 0 };
    int rc = ARES_OK;
    if (ares_file_exists(ares_path_join(&dir, path, "state.json")))
        ares_str_add_z(&d->checkpoint, path);
    else {
        if (!ares_dir_exists(ares_path_join(&dir, path, "checkpoints"))) {
            ares_str_clear(&dir);
            ares_str_add_z(&dir, path);
        }
        rc = newest(dir.data, go_on, &d->checkpoint);
        if (rc == ARES_OK && !d->checkpoint.len)
            rc = ares_fail(ARES_ECONFIG,
                           "run: trainer.load_checkpoint_path = '%s': neither a checkpoint (no "
                           "state.json) nor a run with one (no checkpoints/step_...)",
                           path);
    }
    ares_str_fini(&dir);
    return rc;
}

/*
 * The run's own latest, where there is one: the same command goes on. Where a folder is named that
 * is not there, the run begins afresh, as in ARES.
 */
static int find_checkpoint(rundir *d, const ares_train_config *c)
{
    const char *named = c->trainer.load_checkpoint;
    ares_str dir = { 0 };
    int rc = newest(ares_path_join(&dir, d->path.data, "checkpoints"), true, &d->checkpoint);
    d->own = d->checkpoint.len > 0;
    if (rc == ARES_OK && d->own && !c->trainer.find_last_checkpoint)
        rc = ares_fail(
            ARES_ESTATE,
            "run: trainer.find_last_checkpoint = false: the run has %s; set "
            "trainer.experiment_name for a new run, or remove the directory to start over",
            d->checkpoint.data);
    else if (rc == ARES_OK && !d->own && named && !ares_dir_exists(named))
        ares_log(ARES_LOG_INFO,
                 "run: trainer.load_checkpoint_path = '%s': no such folder; the run begins afresh",
                 named);
    else if (rc == ARES_OK && !d->own && named) rc = named_checkpoint(d, named, true);
    ares_str_fini(&dir);
    return rc;
}

static int look(rundir *d, const ares_config *cfg, const ares_train_config *c,
                rundir_declare *declare)
{
    ares_str file = { 0 }, text = { 0 };
    int rc = ares_dir_make_durable(d->path.data);
    if (rc == ARES_OK) rc = ares_lock_take(d->path.data, &d->lock);
    if (rc == ARES_OK && ares_file_exists(ares_path_join(&file, d->path.data, "DONE")))
        rc = ares_fail(
            ARES_ESTATE,
            "run: %s is finished (its table: summary.txt there); set trainer.experiment_name for a "
            "new run, or remove the directory to start over",
            d->path.data);
    if (rc == ARES_OK && ares_file_exists(ares_path_join(&file, d->path.data, "config.yaml")))
        rc = compare(d, cfg, c, declare, file.data);
    if (rc == ARES_OK) rc = find_checkpoint(d, c);
    if (rc == ARES_OK) {
        ares_config_print(cfg, &text);
        rc = ares_file_write_atomic(ares_path_join(&file, d->path.data, "config.yaml"), text.data,
                                    text.len);
    }
    ares_str_fini(&file);
    ares_str_fini(&text);
    return rc;
}

/* Rank 0 has looked: all ranks learn the outcome. */
static int share(rundir *d, ares_world *world, int rc)
{
    ARES_TRY(ares_world_agree(world, rc));
    int64_t found[2] = { (int64_t)d->checkpoint.len, d->own };
    ARES_TRY(ares_world_max_i64(world, found, 2));
    d->own = found[1];
    if (!found[0]) return ARES_OK;
    ares_str_reserve(&d->checkpoint, (size_t)found[0] + 1);
    d->checkpoint.len = (size_t)found[0];
    return ares_world_broadcast(world, d->checkpoint.data, (size_t)found[0] + 1, 0);
}

static void open_path(rundir *d, const ares_train_config *c)
{
    *d = (rundir){ .lock = -1 };
    if (c->trainer.run_dir) ares_str_add_z(&d->path, c->trainer.run_dir);
    else ares_str_addf(&d->path, "runs/%s/%s", c->trainer.project_name, c->trainer.experiment_name);
}

int rundir_open(rundir *d, const ares_config *cfg, const ares_train_config *c,
                rundir_declare *declare, ares_world *world)
{
    open_path(d, c);
    return share(d, world, ares_world_rank(world) == 0 ? look(d, cfg, c, declare) : ARES_OK);
}

static int look_only(rundir *d, const ares_train_config *c, bool own)
{
    const char *named = c->trainer.load_checkpoint;
    ares_str dir = { 0 };
    int rc = ARES_OK;
    if (named && !ares_dir_exists(named))
        rc = ares_fail(
            ARES_ECONFIG,
            "run: trainer.load_checkpoint_path = '%s': no such folder; name a checkpoint or a run "
            "directory, or leave it out to validate worker.actor.model.model_path",
            named);
    else if (named) rc = named_checkpoint(d, named, false);
    else if (own && c->trainer.find_last_checkpoint)
        rc = newest(ares_path_join(&dir, d->path.data, "checkpoints"), false, &d->checkpoint);
    ares_str_fini(&dir);
    return rc;
}

int rundir_look(rundir *d, const ares_train_config *c, bool own, ares_world *world)
{
    open_path(d, c);
    return share(d, world, ares_world_rank(world) == 0 ? look_only(d, c, own) : ARES_OK);
}

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

static void describe_end(const ares_config *cfg, const ares_train_config *c, const rundir_end *end,
                         ares_str *out)
{
    ares_str name = { 0 };
    char hash[20];
    ares_str_addf(&name, "%s/%s", c->trainer.project_name, c->trainer.experiment_name);
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)hash_options(cfg, ares_config_get(cfg, ""), "", ARES_FNV1A));
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "run"), ares_str_view(&name));
    ares_json_write_string(ares_json_key(out, "config"), ares_view_of(hash));
    ares_json_write_i64(ares_json_key(out, "step"), end->step);
    ares_json_key(out, "stopped");
    if (end->stopped) ares_json_write_string(out, ares_view_of(end->stopped));
    else ares_json_write_null(out);
    ares_json_end(out, '}');
    ares_str_add_char(out, '\n');
    ares_str_fini(&name);
}

int rundir_finish(rundir *d, const ares_config *cfg, const ares_train_config *c,
                  const rundir_end *end)
{
    ares_str path = { 0 }, text = { 0 };
    describe_end(cfg, c, end, &text);
    int rc =
        ares_file_write_atomic(ares_path_join(&path, d->path.data, "DONE"), text.data, text.len);
    ares_str_fini(&text);
    if (rc == ARES_OK)
        rc = ares_checkpoint_drop_rolling(ares_path_join(&path, d->path.data, "checkpoints"), NULL);
    ares_str_fini(&path);
    return rc;
}

void rundir_close(rundir *d)
{
    if (d->lock >= 0) ares_lock_drop(d->lock);
    ares_str_fini(&d->path);
    ares_str_fini(&d->checkpoint);
}
