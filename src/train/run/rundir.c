/*
 * The directory of a run. First the configuration that the run in it began with is compared with
 * the one given; then the run starts, continues or is refused.
 */
#include "run.h"

#include <stdio.h>
#include <string.h>

#include "ares/io.h"

void ares_run_path(const ares_train_config *c, ares_str *path)
{
    if (c->trainer.run_dir) ares_str_add_z(path, c->trainer.run_dir);
    else ares_str_addf(path, "runs/%s/%s", c->trainer.project_name, c->trainer.experiment_name);
}

/*
 * The configuration that the run in a directory began with: its options are in config.yaml; a run
 * that has ended left their hash in DONE.
 */

enum { STARTED_HASH = 17 }; /* 16 hexadecimal digits and a NUL */

/* The contents of DONE. */
typedef struct started_end {
    int64_t step;            /* -1: not known */
    char hash[STARTED_HASH]; /* empty: not known */
    char stopped[64];        /* the control that ended the run; empty: none did */
} started_end;

/* Reads DONE; false: there is none. */
static bool started_is_done(const char *dir, started_end *end)
{
    ares_arena arena = { 0 };
    ares_str path = { 0 }, text = { 0 };
    const ares_json *done;
    bool there = ares_file_exists(ares_path_join(&path, dir, "DONE"));
    *end = (started_end){ .step = -1 };
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

static const char *const lengths[] = { "trainer.max_steps", "trainer.total_epochs" };

/*
 * Beside an adapter no checkpoint has the model, nor the adapter that the run began with: they may
 * have moved. Their fingerprints decide (state.json).
 */
static bool may_have_moved(const ares_config *cfg, const char *path)
{
    const char *rank = ares_config_get_text(cfg, "worker.actor.model.lora.rank"),
               *start = ares_config_get_text(cfg, "worker.actor.model.lora.adapter_path");
    return (strcmp(path, "worker.actor.model.model_path") == 0 ||
            strcmp(path, "worker.actor.model.lora.adapter_path") == 0) &&
           ((rank && strcmp(rank, "0") != 0) || start);
}

static bool no_result_or_length(const ares_config *cfg, const char *path)
{
    if (may_have_moved(cfg, path)) return true;
    for (int i = 0; i < ARES_COUNT(lengths); i++)
        if (strcmp(path, lengths[i]) == 0) return true;
    return ares_config_no_result(cfg, path);
}

/*
 * Compares the resolved configuration with config.yaml of the directory. changed: gets the options
 * that differ and change results, at most five, each with its value at the start and its value now;
 * stays empty where none does. A length that grows is no such change: the run is `longer`.
 */
static int started_compare(const char *dir, const ares_config *cfg, rundir_declare *declare,
                           ares_str *changed, bool *longer)
{
    ares_config *old = ares_config_new();
    ares_train_config unused;
    started_end end;
    ares_str saved = { 0 };
    differing x = { .cfg = cfg, .may = no_result_or_length, .between = ", now ", .text = changed };
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
        /* a run without a length has ended in the step that DONE names; -1: it has not ended */
        int64_t done = started_is_done(dir, &end) ? end.step : -1;
        for (int i = 0; i < ARES_COUNT(lengths); i++) {
            now = ares_config_get(cfg, lengths[i]);
            then = ares_config_get(old, lengths[i]);
            int64_t least = then && then->type == ARES_JSON_INT ? then->integer : done;
            if (now && now->type == ARES_JSON_INT && least >= 0 && now->integer > least)
                *longer = true;
            else if (now && then) differ(&x, then, now, lengths[i]);
        }
    }
    ares_str_fini(&saved);
    ares_config_free(old);
    return rc;
}

/* ---------------------------------------------------------------- hash of options */
/* Whether the option names the run or its folder, and changes nothing that it does. */
static bool names_the_run(const char *path)
{
    static const char *const names[] = { "trainer.project_name", "trainer.experiment_name",
                                         "trainer.run_dir" };
    for (int i = 0; i < ARES_COUNT(names); i++)
        if (strcmp(path, names[i]) == 0) return true;
    return false;
}

/* Adds path and value of every option that changes results to h; sections are walked. */
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

/* A hash of the options that change results, the run's names left out. */
static void started_hash(const ares_config *cfg, char hash[static STARTED_HASH])
{
    snprintf(hash, STARTED_HASH, "%016llx",
             (unsigned long long)hash_options(cfg, ares_config_get(cfg, ""), "", ARES_FNV1A));
}

/* ---------------------------------------------------------------- state of a directory */
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

/*
 * Whether the directory holds nothing that another start would lose: no step was made, and no row
 * answered by a bootstrap pass. It may hold a validation, or a checkpoint of step 0.
 */
static bool started_is_empty(const char *dir)
{
    ares_str path = { 0 }, name = { 0 };
    started_end end;
    bool empty = !started_is_done(dir, &end) &&
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

int ares_run_inspect(const ares_config *cfg, const ares_train_config *c, ares_run_state *state,
                     ares_str *changed)
{
    ares_str dir = { 0 }, options = { 0 };
    char hash[STARTED_HASH];
    started_end end;
    bool longer = false;
    ares_run_path(c, &dir);
    started_hash(cfg, hash);
    bool finished = started_is_done(dir.data, &end),
         begun = ares_file_exists(ares_path_join(&options, dir.data, "config.yaml"));
    int rc = ARES_OK;
    *state = ARES_RUN_NONE;
    if (finished && strcmp(end.hash, hash) == 0) *state = ARES_RUN_FINISHED;
    else if (begun) {
        rc = started_compare(dir.data, cfg, ares_train_config_declare, changed, &longer);
        *state = changed->len ? (started_is_empty(dir.data) ? ARES_RUN_NONE : ARES_RUN_CHANGED)
                 : finished && !longer ? ARES_RUN_CHANGED
                                       : ARES_RUN_UNFINISHED;
    } else if (finished) *state = ARES_RUN_CHANGED;
    ares_str_fini(&dir);
    ares_str_fini(&options);
    return rc;
}

/*
 * A start in a directory: a run of the same configuration that is unfinished goes on; one that is
 * finished, changed or in use is refused, with what to do about it.
 */

/* A finished run, with the ways to go on. */
static int refuse_finished(const rundir *d, const started_end *end)
{
    if (*end->stopped)
        return ares_fail(
            ARES_ESTATE,
            "run: %s is finished: '%s' ended it in step %lld (its table: summary.txt there); set "
            "trainer.experiment_name for a new run, or remove the directory to start over",
            d->path.data, end->stopped, (long long)end->step);
    return ares_fail(
        ARES_ESTATE,
        "run: %s is finished (its table: summary.txt there); raise trainer.max_steps to train it "
        "further, set trainer.experiment_name for a new run, with "
        "trainer.load_checkpoint_path=%s to begin it with the last checkpoint of this one, or "
        "remove the directory to start over",
        d->path.data, d->path.data);
}

/*
 * Refuses a directory whose run is finished and is not to get longer, or began with other options
 * that trainer.force does not allow. A start that made no step does not count as a run.
 */
static int compare(rundir *d, const ares_config *cfg, const ares_train_config *c,
                   rundir_declare *declare)
{
    started_end end;
    ares_str changed = { 0 }, file = { 0 };
    bool finished = started_is_done(d->path.data, &end), longer = false;
    int rc = ARES_OK;
    if (ares_file_exists(ares_path_join(&file, d->path.data, "config.yaml")))
        rc = started_compare(d->path.data, cfg, declare, &changed, &longer);
    d->anew = changed.len && started_is_empty(d->path.data);
    if (rc == ARES_OK && finished && (!longer || *end.stopped)) rc = refuse_finished(d, &end);
    else if (rc == ARES_OK && d->anew && !c->trainer.force)
        ares_log(ARES_LOG_INFO, "run: %s made no step with other options; it begins anew (%s)",
                 d->path.data, changed.data);
    else if (rc == ARES_OK && changed.len && c->trainer.force) {
        ares_log(ARES_LOG_WARN, "run: %s goes on with other options than it began with: %s",
                 d->path.data, changed.data);
        ares_str_add_view(&d->forced, ares_str_view(&changed));
    } else if (rc == ARES_OK && changed.len)
        rc = ares_fail(ARES_ESTATE,
                       "run: %s holds a run with other options (%s); set trainer.experiment_name "
                       "for a new run, "
                       "restore the options to go on, pass --force to go on with these, or remove "
                       "the directory",
                       d->path.data, changed.data);
    d->anew = d->anew && !c->trainer.force;
    ares_str_fini(&changed);
    ares_str_fini(&file);
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

/*
 * Finds what trainer.load_checkpoint_path names: a checkpoint, a run directory or its checkpoints/.
 * go_on: the checkpoint must have optimizer states
 */
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

static int no_such_folder(const char *named, const char *otherwise)
{
    return ares_fail(ARES_ECONFIG,
                     "run: trainer.load_checkpoint_path = '%s': no such folder; name a checkpoint "
                     "or a run directory, or leave it out to %s worker.actor.model.model_path",
                     named, otherwise);
}

static void open_path(rundir *d, const ares_train_config *c)
{
    *d = (rundir){ .lock = -1 };
    ares_run_path(c, &d->path);
}

/* The checkpoint to go on from: the run's own latest, else trainer.load_checkpoint_path's. */
static int find_checkpoint(rundir *d, const ares_train_config *c)
{
    const char *named = c->trainer.load_checkpoint;
    ares_str dir = { 0 };
    int rc = ARES_OK;
    if (!d->anew)
        rc = newest(ares_path_join(&dir, d->path.data, "checkpoints"), true, &d->checkpoint);
    d->own = d->checkpoint.len > 0;
    if (rc == ARES_OK && d->own && !c->trainer.find_last_checkpoint)
        rc = ares_fail(
            ARES_ESTATE,
            "run: trainer.find_last_checkpoint = false: the run has %s; set "
            "trainer.experiment_name for a new run, or remove the directory to start over",
            d->checkpoint.data);
    else if (rc == ARES_OK && !d->own && named)
        rc = ares_dir_exists(named) ? named_checkpoint(d, named, true)
                                    : no_such_folder(named, "begin with");
    ares_str_fini(&dir);
    return rc;
}

int rundir_named(const ares_train_config *c, ares_str *checkpoint)
{
    const char *named = c->trainer.load_checkpoint;
    bool own = !c->trainer.val_only;
    ares_str dir = { 0 };
    rundir d;
    int rc = ARES_OK;
    if (!named) return ARES_OK;
    open_path(&d, c);
    if (own) rc = newest(ares_path_join(&dir, d.path.data, "checkpoints"), true, &d.checkpoint);
    if (rc == ARES_OK && !d.checkpoint.len) {
        rc = ares_dir_exists(named) ? named_checkpoint(&d, named, own)
                                    : no_such_folder(named, own ? "begin with" : "validate");
        ares_str_add_view(checkpoint, ares_str_view(&d.checkpoint));
    }
    ares_str_fini(&dir);
    rundir_close(&d);
    return rc;
}

const char *rundir_starting_adapter(const ares_train_config *c, const ares_lora_options *lora,
                                    const char *name, ares_str *path)
{
    const char *found = lora->adapter_path;
    rundir d;
    if (!found || ares_adapter_find(found, path) == ARES_OK) return found;
    ares_error_clear();
    open_path(&d, c);
    if (find_checkpoint(&d, c) == ARES_OK && d.checkpoint.len &&
        ares_dir_exists(ares_path_join(path, d.checkpoint.data, name)))
        found = path->data;
    ares_error_clear();
    rundir_close(&d);
    return found;
}

/* Rank 0's part of rundir_open. */
static int look(rundir *d, const ares_config *cfg, const ares_train_config *c,
                rundir_declare *declare)
{
    ARES_TRY(ares_dir_make_durable(d->path.data));
    int rc = ares_lock_take(d->path.data, &d->lock);
    if (rc == ARES_ESTATE)
        ares_fail(rc, "run: %s, or set another trainer.experiment_name", ares_error_message());
    ARES_TRY(rc);
    ARES_TRY(compare(d, cfg, c, declare));
    return find_checkpoint(d, c);
}

int rundir_claim(const rundir *d, const ares_config *cfg, ares_world *world)
{
    static const char *const of_a_start[] = { "checkpoints", "validation", "rollouts" };
    ares_str path = { 0 }, text = { 0 };
    int rc = ARES_OK;
    if (ares_world_rank(world) == 0) {
        for (int i = 0; i < ARES_COUNT(of_a_start) && d->anew && rc == ARES_OK; i++)
            rc = ares_dir_remove(ares_path_join(&path, d->path.data, of_a_start[i]));
        ares_config_print(cfg, &text);
        if (rc == ARES_OK)
            rc = ares_file_write_atomic(ares_path_join(&path, d->path.data, "config.yaml"),
                                        text.data, text.len);
        if (rc == ARES_OK && remove(ares_path_join(&path, d->path.data, "DONE")) == 0)
            rc = ares_path_sync(path.data);
        ares_str_fini(&path);
        ares_str_fini(&text);
    }
    return ares_world_share_error(world, rc);
}

/* All ranks learn what rank 0 has found. rc: rank 0's */
static int share(rundir *d, ares_world *world, int rc)
{
    ARES_TRY(ares_world_share_error(world, rc));
    int64_t found[2] = { (int64_t)d->checkpoint.len, d->own };
    ARES_TRY(ares_world_max_i64(world, found, 2));
    d->own = found[1];
    if (!found[0]) return ARES_OK;
    ares_str_reserve(&d->checkpoint, (size_t)found[0] + 1);
    d->checkpoint.len = (size_t)found[0];
    return ares_world_broadcast(world, d->checkpoint.data, (size_t)found[0] + 1, 0);
}

/*
 * Finds out whether every rank sees the directory of rank 0, which puts a file there for a moment.
 * Where one does not, checkpoints are sent to rank 0 and written there.
 */
static int probe(rundir *d, ares_world *world)
{
    char name[96] = { 0 };
    ares_str path = { 0 };
    bool lead = ares_world_rank(world) == 0;
    d->same_files = true;
    if (ares_world_size(world) == 1) return ARES_OK;
    if (lead) (void)snprintf(name, sizeof name, "seen.%.9f", ares_now_s());
    ARES_TRY(ares_world_broadcast(world, name, sizeof name, 0));
    ares_path_join(&path, d->path.data, name);
    int rc = ares_world_share_error(
        world, lead ? ares_file_write_atomic(path.data, name, strlen(name)) : ARES_OK);
    int64_t missing = !ares_file_exists(path.data);
    if (rc == ARES_OK) rc = ares_world_max_i64(world, &missing, 1);
    if (lead && rc == ARES_OK) (void)remove(path.data);
    d->same_files = !missing;
    if (rc == ARES_OK && d->checkpoint.len && !ares_dir_exists(d->checkpoint.data))
        rc = ares_fail(ARES_EIO,
                       "run: %s: rank %d does not see this checkpoint, with which the run goes on; "
                       "copy it to the same path on every machine, or use a shared directory "
                       "(trainer.run_dir)",
                       d->checkpoint.data, ares_world_rank(world));
    if (lead && missing)
        ares_log(ARES_LOG_WARN,
                 "run: %s: not all ranks see this directory of rank 0, so that checkpoints are "
                 "sent to rank 0 and written there, which is slow; a shared directory "
                 "(trainer.run_dir) is faster",
                 d->path.data);
    ares_str_fini(&path);
    return ares_world_share_error(world, rc);
}

int rundir_open(rundir *d, const ares_config *cfg, const ares_train_config *c,
                rundir_declare *declare, ares_world *world)
{
    open_path(d, c);
    ARES_TRY(share(d, world, ares_world_rank(world) == 0 ? look(d, cfg, c, declare) : ARES_OK));
    ARES_TRY(probe(d, world));
    return d->checkpoint.len ? same_checkpoint(d->checkpoint.data, world) : ARES_OK;
}

int rundir_look(rundir *d, const ares_train_config *c, bool own, ares_world *world)
{
    const char *named = c->trainer.load_checkpoint;
    ares_str dir = { 0 };
    int rc = ARES_OK;
    open_path(d, c);
    if (ares_world_rank(world) == 0) {
        if (named && !ares_dir_exists(named)) rc = no_such_folder(named, "validate");
        else if (named) rc = named_checkpoint(d, named, false);
        else if (own && c->trainer.find_last_checkpoint)
            rc = newest(ares_path_join(&dir, d->path.data, "checkpoints"), false, &d->checkpoint);
        ares_str_fini(&dir);
    }
    ARES_TRY(share(d, world, rc));
    return d->checkpoint.len ? same_checkpoint(d->checkpoint.data, world) : ARES_OK;
}

int rundir_finish(rundir *d, const ares_config *cfg, const ares_train_config *c,
                  const rundir_end *end)
{
    ares_str path = { 0 }, text = { 0 }, name = { 0 };
    char hash[STARTED_HASH];
    ares_str_addf(&name, "%s/%s", c->trainer.project_name, c->trainer.experiment_name);
    started_hash(cfg, hash);
    ares_json_begin(&text, '{');
    ares_json_write_string(ares_json_key(&text, "run"), ares_str_view(&name));
    ares_json_write_string(ares_json_key(&text, "config"), ares_view_of(hash));
    ares_json_write_i64(ares_json_key(&text, "step"), end->step);
    ares_json_key(&text, "stopped");
    if (end->stopped) ares_json_write_string(&text, ares_view_of(end->stopped));
    else ares_json_write_null(&text);
    ares_json_end(&text, '}');
    ares_str_add_char(&text, '\n');
    ares_str_fini(&name);
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
    ares_str_fini(&d->forced);
}
