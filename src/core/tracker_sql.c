/*
 * Trackers that are SQLite files (docs/trackers.md): Trackio's, one file per project, and MLflow's.
 * Both are shared with their own programs and with other runs, so that each write is one
 * transaction that takes the lock first (BEGIN IMMEDIATE).
 *
 * MLflow's file is made in its schema of revision 7ac759974ad8 (mlflow/store/db_migrations), not in
 * today's: MLflow brings a file that lacks tables to its own newest revision when it opens it,
 * while it refuses one that another version has made complete.
 */
#include "tracker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void tracker_trackio_file(ares_str *out, const char *project)
{
    size_t start = out->len;
    const char *end = project + strlen(project);
    for (uint32_t c; project < end;) {
        int n = ares_utf8_next(project, end, &c);
        if (n > 0) { /* Python's str.isalnum */
            utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
            bool letter = kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO,
                 number = kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
            if (letter || number || c == '-' || c == '_') ares_str_add(out, project, (size_t)n);
        }
        project += abs(n);
    }
    ares_str_add_z(out, out->len == start ? "default.db" : ".db");
}

#ifdef ARES_HAVE_SQLITE
#include <sqlite3.h>

/* ---------------------------------------------------------------- SQLite */
static int sql_fail(sqlite3 *db, const char *path)
{
    return ares_fail(ARES_EIO, "io: %s: %s", path,
                     db ? sqlite3_errmsg(db) : "not enough memory for SQLite");
}

/* Whether the last failure is that others hold the file. */
static bool sql_busy(sqlite3 *db)
{
    int code = sqlite3_errcode(db) & 0xff;
    return code == SQLITE_BUSY || code == SQLITE_LOCKED;
}

static int sql_open(const char *path, int flags, sqlite3 **db)
{
    if (sqlite3_open_v2(path, db, flags, NULL) == SQLITE_OK) return ARES_OK;
    int rc = sql_fail(*db, path);
    sqlite3_close(*db);
    *db = NULL;
    return rc;
}

static int sql_run(sqlite3 *db, const char *path, const char *statements)
{
    return sqlite3_exec(db, statements, NULL, NULL, NULL) == SQLITE_OK ? ARES_OK
                                                                       : sql_fail(db, path);
}

static int sql_prepare(sqlite3 *db, const char *path, const char *text, sqlite3_stmt **out)
{
    return sqlite3_prepare_v2(db, text, -1, out, NULL) == SQLITE_OK ? ARES_OK : sql_fail(db, path);
}

/* Values of named places; a name that the statement does not have is left out. */
static void bind_text(sqlite3_stmt *s, const char *place, ares_view v)
{
    int at = sqlite3_bind_parameter_index(s, place);
    if (at) sqlite3_bind_text(s, at, v.data ? v.data : "", (int)v.len, SQLITE_TRANSIENT);
}
static void bind_z(sqlite3_stmt *s, const char *place, const char *z)
{
    bind_text(s, place, ares_view_of(z));
}
static void bind_i64(sqlite3_stmt *s, const char *place, int64_t x)
{
    int at = sqlite3_bind_parameter_index(s, place);
    if (at) sqlite3_bind_int64(s, at, x);
}
static void bind_f64(sqlite3_stmt *s, const char *place, double x)
{
    int at = sqlite3_bind_parameter_index(s, place);
    if (at) sqlite3_bind_double(s, at, x);
}

/* Runs a statement that gives no row, and makes it ready for the next values. */
static int sql_done(sqlite3 *db, const char *path, sqlite3_stmt *s)
{
    int rc = sqlite3_step(s) == SQLITE_DONE ? ARES_OK : sql_fail(db, path);
    sqlite3_reset(s);
    return rc;
}

/* The type of a column in capitals, NULL where the table or the column is not there. */
static const char *column_type(sqlite3 *db, const char *table, const char *column)
{
    const char *type = NULL;
    return sqlite3_table_column_metadata(db, NULL, table, column, &type, NULL, NULL, NULL, NULL) ==
                   SQLITE_OK
               ? (type ? type : "")
               : NULL;
}

/*
 * "insert into TABLE (..) values (..)" of those of our columns ("a b c") that the table has. A
 * column of its own that may not stay empty makes the table one that is not understood. out NULL:
 * looks alone. verb: "insert", "insert or replace"
 */
static int prepare_insert(sqlite3 *db, const char *path, const char *verb, const char *table,
                          const char *columns, sqlite3_stmt **out)
{
    ares_str names = { 0 }, places = { 0 }, text = { 0 }, unknown = { 0 };
    sqlite3_stmt *s = NULL;
    ares_str_addf(&text, "pragma table_info(%s)", table);
    int rc = sql_prepare(db, path, text.data, &s), step = SQLITE_ERROR;
    while (rc == ARES_OK && (step = sqlite3_step(s)) == SQLITE_ROW) {
        const char *column = (const char *)sqlite3_column_text(s, 1);
        bool needed = sqlite3_column_int(s, 3) && sqlite3_column_type(s, 4) == SQLITE_NULL &&
                      !sqlite3_column_int(s, 5);
        ares_str_clear(&text);
        ares_str_addf(&text, " %s ", column);
        bool ours = ares_view_find(ares_view_of(columns), ares_str_view(&text), 0) >= 0;
        if (ours) {
            ares_str_addf(&names, "%s\"%s\"", names.len ? "," : "", column);
            ares_str_addf(&places, "%s:%s", places.len ? "," : "", column);
        } else if (needed) ares_str_addf(&unknown, "%s%s", unknown.len ? ", " : "", column);
    }
    if (rc == ARES_OK && step != SQLITE_DONE) rc = sql_fail(db, path);
    sqlite3_finalize(s);
    if (rc == ARES_OK && unknown.len)
        rc = ares_fail(ARES_EUNSUPPORTED,
                       "%s: its table %s wants a value for %s, which this program does not know; "
                       "let it write to a file of its own",
                       path, table, unknown.data);
    if (rc == ARES_OK && !names.len)
        rc = ares_fail(ARES_EIO, "io: %s: its table %s is gone", path, table);
    if (rc == ARES_OK && out) {
        ares_str_clear(&text);
        ares_str_addf(&text, "%s into %s (%s) values (%s)", verb, table, names.data, places.data);
        rc = sql_prepare(db, path, text.data, out);
    }
    ares_str *all[] = { &names, &places, &text, &unknown };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_str_fini(all[i]);
    return rc;
}

/*
 * A file in which a run is written. A failure closes it: the next write opens it anew, since it may
 * have been moved, and writes the run itself again.
 */
typedef struct sql_file {
    const tracker_run *run;
    ares_str path;
    const char *pragmas; /* after opening; NULL: none */
    sqlite3 *db;
    bool begun;
} sql_file;

/* Runs `body` in a transaction that has the lock from its begin. */
typedef int sql_body(void *self, int64_t from, const tracker_row *rows, int64_t n);
static int sql_transaction(sql_file *f, sql_body *body, void *self, int64_t from,
                           const tracker_row *rows, int64_t n, int patience_ms)
{
    int rc = ARES_OK;
    if (!f->db) {
        ares_str folder = { 0 };
        ares_str_add(&folder, f->path.data,
                     (size_t)(ares_after_last(f->path.data, '/') - f->path.data));
        if (folder.len) rc = ares_dir_make(folder.data);
        ares_str_fini(&folder);
        if (rc == ARES_OK)
            rc = sql_open(f->path.data, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &f->db);
    }
    if (rc == ARES_OK) sqlite3_busy_timeout(f->db, patience_ms);
    if (rc == ARES_OK && !f->begun && f->pragmas) rc = sql_run(f->db, f->path.data, f->pragmas);
    if (rc == ARES_OK) rc = sql_run(f->db, f->path.data, "begin immediate");
    /* a statement that looks at the schema reads it anew where another program has changed it */
    if (rc == ARES_OK) rc = sql_run(f->db, f->path.data, "select count(*) from sqlite_master");
    if (rc == ARES_OK) rc = body(self, from, rows, n);
    if (rc == ARES_OK) rc = sql_run(f->db, f->path.data, "commit");
    if (rc == ARES_OK) f->begun = true;
    else {
        sqlite3_close(f->db); /* rolls back */
        f->db = NULL;
        f->begun = false;
    }
    return rc;
}

static void sql_free(sql_file *f)
{
    sqlite3_close(f->db);
    ares_str_fini(&f->path);
}

/* The steps that the run has in a table already, as keys of a map. */
static int known_steps(sql_file *f, const char *select, ares_map *steps)
{
    sqlite3_stmt *s = NULL;
    int rc = sql_prepare(f->db, f->path.data, select, &s), step = SQLITE_ERROR;
    if (rc == ARES_OK) bind_z(s, ":run", f->run->id);
    while (rc == ARES_OK && (step = sqlite3_step(s)) == SQLITE_ROW) {
        char key[32];
        snprintf(key, sizeof key, "%lld", (long long)sqlite3_column_int64(s, 0));
        ares_map_put(steps, ares_view_of(key), 1);
    }
    if (rc == ARES_OK && step != SQLITE_DONE) rc = sql_fail(f->db, f->path.data);
    sqlite3_finalize(s);
    return rc;
}

static bool is_known(const ares_map *steps, int64_t step)
{
    char key[32];
    snprintf(key, sizeof key, "%lld", (long long)step);
    return ares_map_get(steps, ares_view_of(key), NULL);
}

/* Deletes or changes rows of this run with a step of `from` or later. */
static int run_of_step(sql_file *f, const char *text, int64_t from)
{
    sqlite3_stmt *s = NULL;
    int rc = sql_prepare(f->db, f->path.data, text, &s);
    if (rc == ARES_OK) {
        bind_z(s, ":run", f->run->id);
        bind_i64(s, ":step", from);
        rc = sql_done(f->db, f->path.data, s);
    }
    sqlite3_finalize(s);
    return rc;
}

/* Calls fn for each option: a dotted name, and its value; lists and empty maps are values. */
typedef int option_fn(void *ctx, const char *name, const ares_json *value);
static int each_option(const ares_json *v, const char *path, option_fn *fn, void *ctx)
{
    if (v->type != ARES_JSON_OBJECT || (*path && !v->count)) return fn(ctx, path, v);
    ares_str inner = { 0 };
    int rc = ARES_OK;
    for (int64_t i = 0; rc == ARES_OK && i < v->count; i++) {
        ares_str_clear(&inner);
        ares_str_addf(&inner, "%s%s", path, *path ? "." : "");
        ares_str_add_view(&inner, v->members[i].key);
        rc = each_option(v->members[i].value, inner.data, fn, ctx);
    }
    ares_str_fini(&inner);
    return rc;
}

/* ---------------------------------------------------------------- Trackio
 * $TRACKIO_DIR/<project>.db (trackio/sqlite_storage.py). Trackio makes the tables that lack.
 */
static const char trackio_schema[] =
    "create table if not exists metrics (id integer primary key autoincrement, run_id text not "
    "null, timestamp text not null, run_name text not null, step integer not null, metrics text "
    "not null, log_id text, space_id text);"
    "create table if not exists configs (id integer primary key autoincrement, run_id text not "
    "null, run_name text not null, config text not null, created_at text not null, "
    "unique(run_id));"
    "create table if not exists alerts (id integer primary key autoincrement, run_id text not "
    "null, timestamp text not null, run_name text not null, title text not null, text text, level "
    "text not null default 'warn', step integer, alert_id text);"
    "create index if not exists idx_metrics_run_step on metrics(run_id, step);"
    "create index if not exists idx_metrics_run_timestamp on metrics(run_id, timestamp);"
    "create index if not exists idx_configs_run_name on configs(run_name);"
    "create index if not exists idx_alerts_run on alerts(run_id);"
    "create index if not exists idx_alerts_timestamp on alerts(timestamp);";
static const char trackio_metrics[] = " run_id timestamp run_name step metrics log_id ",
                  trackio_configs[] = " run_id run_name config created_at ",
                  trackio_alerts[] = " run_id timestamp run_name title text level step alert_id ";

typedef struct trackio {
    sql_file file;
    ares_map *steps; /* while the run is begun: those that it has */
    sqlite3_stmt *insert, *merge;
} trackio;

static void trackio_path(ares_str *out, const char *project)
{
    const char *dir = getenv("TRACKIO_DIR"), *hub = getenv("HF_HOME"),
               *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    ares_str folder = { 0 }, name = { 0 };
    if (dir && *dir) ares_str_add_z(&folder, dir);
    else if (hub && *hub) ares_str_addf(&folder, "%s/trackio", hub);
    else if (cache && *cache) ares_str_addf(&folder, "%s/huggingface/trackio", cache);
    else ares_str_addf(&folder, "%s/.cache/huggingface/trackio", home ? home : "");
    tracker_trackio_file(&name, project);
    ares_path_join(out, folder.data, name.data);
    ares_str_fini(&folder);
    ares_str_fini(&name);
}

/* Refuses tables that cannot take the run. */
static int trackio_fits(sqlite3 *db, const char *path)
{
    if (!column_type(db, "metrics", "metrics")) return ARES_OK; /* they are to be made */
    if (!column_type(db, "metrics", "run_id"))
        return ares_fail(ARES_EUNSUPPORTED,
                         "trackio: %s: of a Trackio before 0.24; open it once with a newer one "
                         "(trackio show), which brings it up to date, or set another "
                         "trainer.project_name",
                         path);
    ARES_TRY(prepare_insert(db, path, "insert", "metrics", trackio_metrics, NULL));
    return prepare_insert(db, path, "insert", "configs", trackio_configs, NULL);
}

static int look_into(const char *tracker, const char *path,
                     int (*fits)(sqlite3 *db, const char *path))
{
    sqlite3 *db;
    ARES_TRY(tracker_can_write(tracker, path));
    if (!ares_file_exists(path)) return ARES_OK;
    int rc = sql_open(path, SQLITE_OPEN_READWRITE, &db);
    if (rc == ARES_OK) {
        sqlite3_busy_timeout(db, 1000);
        rc = sql_run(db, path, "select count(*) from sqlite_master");
        if (rc != ARES_OK && sql_busy(db)) rc = ARES_OK; /* the run waits for it */
        else if (rc == ARES_OK) rc = fits(db, path);
        sqlite3_close(db);
    }
    return rc;
}

static int trackio_check(const char *project)
{
    static const char *const ends[] = {
        "_system",           "_configs",           "_traces", "_artifacts", "_artifact_versions",
        "_artifact_aliases", "_run_artifact_links"
    };
    ares_str name = { 0 }, path = { 0 };
    tracker_trackio_file(&name, project);
    name.data[name.len -= 3] = 0; /* .db */
    const char *bad = strncmp(name.data, "registry-", 9) == 0 ? "begins with registry-" : NULL;
    int rc = ARES_OK;
    for (int i = 0; i < ARES_COUNT(ends); i++)
        if (!bad && ares_ends_with(name.data, ends[i])) {
            ares_str_addf(&path, "ends in %s", ends[i]);
            bad = path.data;
        }
    if (bad)
        rc = ares_fail(ARES_ECONFIG,
                       "trackio: the project '%s' %s, which Trackio keeps for itself; set another "
                       "trainer.project_name",
                       name.data, bad);
    else {
        trackio_path(&path, project);
        rc = look_into("trackio", path.data, trackio_fits);
    }
    ares_str_fini(&name);
    ares_str_fini(&path);
    return rc;
}

static void *trackio_open(const tracker_run *run)
{
    trackio *t = ares_calloc(1, sizeof *t);
    const char *journal = getenv("TRACKIO_SQLITE_JOURNAL_MODE");
    t->file.run = run;
    /* as Trackio opens its files; its variable, where it is set, leaves the file's mode as it is */
    t->file.pragmas = journal && *journal
                          ? "pragma synchronous = normal"
                          : "pragma journal_mode = wal; pragma synchronous = normal";
    trackio_path(&t->file.path, run->project);
    return t;
}

/* A row of a step; a second one of the same step (step 0 may have two) joins the first. */
static int trackio_row(void *ctx, const tracker_row *row)
{
    trackio *t = ctx;
    sql_file *f = &t->file;
    ares_str json = { 0 }, log = { 0 };
    char time[40];
    if (t->steps && is_known(t->steps, row->step)) return ARES_OK;
    ares_json_begin(&json, '{');
    for (int i = 0; i < ares_metrics_count(row->metrics); i++)
        tracker_add_number(ares_json_key(&json, ares_metrics_name(row->metrics, i)),
                           ares_metrics_value(row->metrics, i));
    ares_json_end(&json, '}');
    bind_z(t->merge, ":run", f->run->id);
    bind_i64(t->merge, ":step", row->step);
    bind_text(t->merge, ":metrics", ares_str_view(&json));
    int rc = sql_done(f->db, f->path.data, t->merge);
    if (rc == ARES_OK && sqlite3_changes(f->db) == 0) {
        tracker_iso_time(row->time, time);
        ares_str_addf(&log, "%s-%lld", f->run->id, (long long)row->step);
        bind_z(t->insert, ":run_id", f->run->id);
        bind_z(t->insert, ":run_name", f->run->name);
        bind_z(t->insert, ":timestamp", time);
        bind_i64(t->insert, ":step", row->step);
        bind_text(t->insert, ":metrics", ares_str_view(&json));
        bind_text(t->insert, ":log_id", ares_str_view(&log));
        rc = sql_done(f->db, f->path.data, t->insert);
    }
    ares_str_fini(&json);
    ares_str_fini(&log);
    return rc;
}

static int add_option(void *ctx, const char *name, const ares_json *value)
{
    ares_json_write(ares_json_key(ctx, name), value);
    return ARES_OK;
}

/* Tables and the configuration; steps from `from` on go. */
static int trackio_begin(trackio *t, int64_t from)
{
    sql_file *f = &t->file;
    const char *path = f->path.data;
    sqlite3_stmt *s = NULL;
    ares_str config = { 0 };
    char time[40];
    bool fresh = !column_type(f->db, "metrics", "metrics");
    ARES_TRY(trackio_fits(f->db, path));
    ARES_TRY(sql_run(f->db, path, trackio_schema));
    static const char *const unique[][2] = { { "metrics", "log_id" }, { "alerts", "alert_id" } };
    for (int i = 0; i < ARES_COUNT(unique); i++) {
        char text[200];
        if (!column_type(f->db, unique[i][0], unique[i][1])) continue; /* of an older Trackio */
        snprintf(text, sizeof text,
                 "create unique index if not exists idx_%s_%s on %s(%s) where %s is not null",
                 unique[i][0], unique[i][1], unique[i][0], unique[i][1], unique[i][1]);
        ARES_TRY(sql_run(f->db, path, text));
    }
    if (fresh) ARES_TRY(sql_run(f->db, path, "pragma user_version = 2"));
    ARES_TRY(run_of_step(f, "delete from metrics where run_id = :run and step >= :step", from));
    ARES_TRY(run_of_step(f, "delete from alerts where run_id = :run and step >= :step", from));
    tracker_iso_time(f->run->started, time);
    ares_json_begin(&config, '{');
    each_option(f->run->config, "", add_option, &config);
    ares_json_write_string(ares_json_key(&config, "_Username"), ares_view_of(tracker_user()));
    ares_json_write_string(ares_json_key(&config, "_Created"), ares_view_of(time));
    ares_json_write_null(ares_json_key(&config, "_Group"));
    ares_json_end(&config, '}');
    int rc = prepare_insert(f->db, path, "insert or replace", "configs", trackio_configs, &s);
    if (rc == ARES_OK) {
        bind_z(s, ":run_id", f->run->id);
        bind_z(s, ":run_name", f->run->name);
        bind_text(s, ":config", ares_str_view(&config));
        bind_z(s, ":created_at", time);
        rc = sql_done(f->db, path, s);
    }
    sqlite3_finalize(s);
    ares_str_fini(&config);
    return rc;
}

static int trackio_body(void *self, int64_t from, const tracker_row *rows, int64_t n)
{
    trackio *t = self;
    sql_file *f = &t->file;
    int rc = f->begun ? ARES_OK : trackio_begin(t, from);
    if (rc == ARES_OK)
        rc = prepare_insert(f->db, f->path.data, "insert", "metrics", trackio_metrics, &t->insert);
    if (rc == ARES_OK)
        rc = sql_prepare(f->db, f->path.data,
                         "update metrics set metrics = json_patch(metrics, :metrics) where run_id "
                         "= :run and step = :step",
                         &t->merge);
    if (rc == ARES_OK && !f->begun && from > 0) { /* steps of metrics.jsonl that are not there */
        t->steps = ares_map_new();
        rc = known_steps(f, "select step from metrics where run_id = :run", t->steps);
        if (rc == ARES_OK) rc = tracker_history(f->run, from, trackio_row, t);
        ares_map_free(t->steps);
        t->steps = NULL;
    }
    for (int64_t i = 0; rc == ARES_OK && i < n; i++) rc = trackio_row(t, &rows[i]);
    sqlite3_finalize(t->insert);
    sqlite3_finalize(t->merge);
    t->insert = t->merge = NULL;
    return rc;
}

static int trackio_write(void *self, int64_t from, const tracker_row *rows, int64_t n,
                         int patience_ms)
{
    trackio *t = self;
    return sql_transaction(&t->file, trackio_body, t, from, rows, n, patience_ms);
}

static int trackio_tell(void *self, int64_t step, const ares_tracker_alert *a)
{
    trackio *t = self;
    sql_file *f = &t->file;
    sqlite3_stmt *both[2] = { NULL, NULL };
    ares_str id = { 0 };
    char time[40];
    int rc = sql_prepare(f->db, f->path.data,
                         "update alerts set level = :level, title = :title, text = :text, step = "
                         ":step, timestamp = :timestamp where alert_id = :alert_id and level = "
                         "'warn' and :level = 'error'",
                         &both[0]);
    if (rc == ARES_OK)
        rc = prepare_insert(f->db, f->path.data, "insert or ignore", "alerts", trackio_alerts,
                            &both[1]);
    ares_str_addf(&id, "%s-%s", f->run->id, a->rule);
    tracker_iso_time(tracker_now(), time);
    for (int k = 0; k < 2 && rc == ARES_OK; k++) {
        bind_z(both[k], ":run_id", f->run->id);
        bind_z(both[k], ":run_name", f->run->name);
        bind_z(both[k], ":timestamp", time);
        bind_z(both[k], ":title", a->title);
        bind_z(both[k], ":text", a->text);
        bind_z(both[k], ":level", a->bad ? "error" : "warn");
        bind_i64(both[k], ":step", step);
        bind_text(both[k], ":alert_id", ares_str_view(&id));
        rc = sql_done(f->db, f->path.data, both[k]);
    }
    for (int k = 0; k < 2; k++) sqlite3_finalize(both[k]);
    ares_str_fini(&id);
    return rc;
}

static const char *trackio_place(void *self)
{
    return ((trackio *)self)->file.path.data;
}

static void trackio_free(void *self)
{
    trackio *t = self;
    sql_free(&t->file);
    ares_free(t);
}

/* ---------------------------------------------------------------- MLflow
 * The constraints have the names by which MLflow's migrations find them.
 */
static const char mlflow_schema[] =
    "create table experiments (experiment_id integer not null, name varchar(256) not null, "
    "artifact_location varchar(256), lifecycle_stage varchar(32), "
    "constraint experiment_pk primary key (experiment_id), "
    "constraint experiments_lifecycle_stage check (lifecycle_stage in ('active', 'deleted')), "
    "unique (name));"
    "create table runs (run_uuid varchar(32) not null, name varchar(250), source_type "
    "varchar(20), source_name varchar(500), entry_point_name varchar(50), user_id varchar(256), "
    "status varchar(20), start_time bigint, end_time bigint, source_version varchar(50), "
    "lifecycle_stage varchar(20), artifact_uri varchar(200), experiment_id integer, "
    "constraint run_pk primary key (run_uuid), "
    "constraint source_type check (source_type in ('NOTEBOOK', 'JOB', 'LOCAL', 'UNKNOWN', "
    "'PROJECT')), "
    "constraint status check (status in ('SCHEDULED', 'FAILED', 'FINISHED', 'RUNNING')), "
    "constraint runs_lifecycle_stage check (lifecycle_stage in ('active', 'deleted')), "
    "foreign key(experiment_id) references experiments (experiment_id));"
    "create table tags (\"key\" varchar(250) not null, value varchar(5000), "
    "run_uuid varchar(32) not null, constraint tag_pk primary key (\"key\", run_uuid), "
    "foreign key(run_uuid) references runs (run_uuid));"
    "create table experiment_tags (\"key\" varchar(250) not null, value varchar(5000), "
    "experiment_id integer not null, "
    "constraint experiment_tag_pk primary key (\"key\", experiment_id), "
    "foreign key(experiment_id) references experiments (experiment_id));"
    "create table params (\"key\" varchar(250) not null, value varchar(250) not null, "
    "run_uuid varchar(32) not null, constraint param_pk primary key (\"key\", run_uuid), "
    "foreign key(run_uuid) references runs (run_uuid));"
    "create table metrics (\"key\" varchar(250) not null, value float not null, "
    "timestamp bigint not null, run_uuid varchar(32) not null, "
    "step bigint default '0' not null, is_nan boolean default '0' not null, "
    "constraint metric_pk primary key (\"key\", timestamp, step, run_uuid, value, is_nan), "
    "foreign key(run_uuid) references runs (run_uuid));"
    "create table alembic_version (version_num varchar(32) not null, "
    "constraint alembic_version_pkc primary key (version_num));"
    "insert into alembic_version values ('7ac759974ad8');";

/* Tables that are written, with the columns that we have values for. */
static const char experiment_columns[] = " experiment_id name artifact_location lifecycle_stage "
                                         "creation_time last_update_time ",
                  run_columns[] = " run_uuid name source_type source_name entry_point_name user_id "
                                  "status start_time source_version lifecycle_stage artifact_uri "
                                  "experiment_id ",
                  pair_columns[] = " key value run_uuid ",
                  metric_columns[] = " key value timestamp run_uuid step is_nan ";

enum { MLFLOW_NAME = 250, MLFLOW_PARAM = 250 }; /* bytes */

/* Names as MLflow takes them: another byte is _, and two names that would meet differ. */
typedef struct mlflow_names {
    ares_map *ours, *taken; /* ours: name -> index of safe */
    char **safe;
} mlflow_names;

typedef struct mlflow {
    sql_file file;
    mlflow_names metrics, params;
    ares_map *steps; /* while the run is begun: those that it has */
    sqlite3_stmt *insert, *latest;
    sqlite3_stmt *param;
    size_t param_bytes;
} mlflow;

static const char *mlflow_name(mlflow_names *n, const char *name)
{
    int64_t index;
    if (!n->ours) n->ours = ares_map_new(), n->taken = ares_map_new();
    if (ares_map_get(n->ours, ares_view_of(name), &index)) return n->safe[index];
    ares_str safe = { 0 };
    for (const char *c = name; *c && safe.len < MLFLOW_NAME - 10; c++) {
        bool fits = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || ares_is_digit(*c) ||
                    strchr("_-./ :", *c);
        ares_str_add_char(&safe, fits ? *c : '_');
    }
    size_t len = safe.len;
    for (int again = 2; ares_map_get(n->taken, ares_str_view(&safe), NULL); again++) {
        safe.len = len;
        ares_str_addf(&safe, "_%d", again);
    }
    index = ares_map_count(n->ours);
    ares_map_put(n->taken, ares_str_view(&safe), 1);
    ares_map_put(n->ours, ares_view_of(name), index);
    n->safe = ares_realloc(n->safe, (size_t)(index + 1) * sizeof *n->safe);
    return n->safe[index] = ares_str_take(&safe);
}

static void mlflow_names_fini(mlflow_names *n)
{
    for (int64_t i = 0; n->ours && i < ares_map_count(n->ours); i++) ares_free(n->safe[i]);
    ares_free(n->safe);
    ares_map_free(n->ours);
    ares_map_free(n->taken);
}

/* The file that MLFLOW_TRACKING_URI names; else mlflow.db here, as MLflow has it. */
static int mlflow_path(ares_str *out)
{
    const char *uri = getenv("MLFLOW_TRACKING_URI");
    ares_str_clear(out);
    if (!uri || !*uri) {
        ares_str_add_z(out, "mlflow.db");
        return ARES_OK;
    }
    static const char begin[] = "sqlite:///";
    const char *path = uri + sizeof begin - 1;
    size_t len = strncmp(uri, begin, sizeof begin - 1) == 0 ? strcspn(path, "?") : 0;
    if (!len || strncmp(path, ":memory:", 8) == 0)
        return ares_fail(ARES_ECONFIG,
                         "mlflow: MLFLOW_TRACKING_URI = '%s': only a SQLite file is written; name "
                         "one (sqlite:///mlflow.db, sqlite:////data/mlflow.db), or unset the "
                         "variable for mlflow.db in the working directory; a server can read it "
                         "(mlflow server --backend-store-uri)",
                         uri);
    ares_str_add(out, path, len);
    return ARES_OK;
}

static bool is_empty(sqlite3 *db)
{
    sqlite3_stmt *s = NULL;
    bool empty =
        sqlite3_prepare_v2(db, "select 1 from sqlite_master limit 1", -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_DONE;
    sqlite3_finalize(s);
    return empty;
}

static int mlflow_fits(sqlite3 *db, const char *path)
{
    static const struct {
        const char *table, *columns;
        bool optional;
    } tables[] = { { "experiments", experiment_columns, false },
                   { "runs", run_columns, false },
                   { "tags", pair_columns, false },
                   { "params", pair_columns, false },
                   { "metrics", metric_columns, false },
                   { "latest_metrics", metric_columns, true } };
    if (is_empty(db)) return ARES_OK;
    for (int i = 0; i < ARES_COUNT(tables); i++) {
        bool there = column_type(db, tables[i].table, i == 0 ? "name" : i == 1 ? "status" : "key");
        if (!there && !tables[i].optional)
            return ares_fail(ARES_EUNSUPPORTED,
                             "mlflow: %s: no database of MLflow (it lacks the table %s); name "
                             "another file in MLFLOW_TRACKING_URI",
                             path, tables[i].table);
        if (there)
            ARES_TRY(prepare_insert(db, path, "insert", tables[i].table, tables[i].columns, NULL));
    }
    if (!column_type(db, "metrics", "is_nan"))
        return ares_fail(ARES_EUNSUPPORTED,
                         "mlflow: %s: of an MLflow before 1.4; bring it up to date (mlflow db "
                         "upgrade sqlite:///%s)",
                         path, path);
    return ARES_OK;
}

static int mlflow_check(const char *project)
{
    ares_str path = { 0 };
    int rc = mlflow_path(&path);
    (void)project;
    if (rc == ARES_OK) rc = look_into("mlflow", path.data, mlflow_fits);
    ares_str_fini(&path);
    return rc;
}

static void *mlflow_open(const tracker_run *run)
{
    mlflow *t = ares_calloc(1, sizeof *t);
    t->file.run = run;
    (void)mlflow_path(&t->file.path); /* mlflow_check has read it */
    return t;
}

static int64_t milliseconds(double seconds)
{
    return (int64_t)floor(seconds * 1000);
}

static int mlflow_row(void *ctx, const tracker_row *row)
{
    mlflow *t = ctx;
    sql_file *f = &t->file;
    bool known = t->steps && is_known(t->steps, row->step);
    int rc = ARES_OK;
    for (int i = 0; rc == ARES_OK && i < ares_metrics_count(row->metrics); i++) {
        double x = ares_metrics_value(row->metrics, i);
        sqlite3_stmt *both[] = { t->insert, t->latest };
        /* also of steps that are there: the order of names decides what two that meet are called */
        const char *key = mlflow_name(&t->metrics, ares_metrics_name(row->metrics, i));
        for (int k = 0; k < 2 && !known && rc == ARES_OK; k++) {
            if (!both[k]) continue;
            bind_z(both[k], ":key", key);
            bind_f64(both[k], ":value", isfinite(x) ? x : 0);
            bind_i64(both[k], ":is_nan", !isfinite(x));
            bind_i64(both[k], ":timestamp", milliseconds(row->time));
            bind_i64(both[k], ":step", row->step);
            bind_z(both[k], ":run_uuid", f->run->id);
            rc = sql_done(f->db, f->path.data, both[k]);
        }
    }
    return rc;
}

static int mlflow_pair(mlflow *t, sqlite3_stmt *s, const char *key, ares_view value)
{
    bind_z(s, ":key", key);
    bind_text(s, ":value", value);
    bind_z(s, ":run_uuid", t->file.run->id);
    return sql_done(t->file.db, t->file.path.data, s);
}

/* An option as a parameter: texts as they are, the rest as JSON, cut at what the column takes. */
static int mlflow_option(void *ctx, const char *name, const ares_json *value)
{
    mlflow *t = ctx;
    ares_str text = { 0 };
    if (value->type == ARES_JSON_STRING) tracker_add_text(&text, value->text.data);
    else ares_json_write(&text, value);
    size_t len = ARES_MIN(text.len, t->param_bytes);
    while (len < text.len && len && ((unsigned char)text.data[len] & 0xC0) == 0x80) len--;
    int rc = mlflow_pair(t, t->param, mlflow_name(&t->params, name),
                         (ares_view){ text.data ? text.data : "", len });
    ares_str_fini(&text);
    return rc;
}

/* file:///<folder of the database>/mlartifacts/<experiment>, for web addresses */
static void artifact_location(const mlflow *t, ares_str *out, int64_t experiment)
{
    const char *path = t->file.path.data;
    ares_str folder = { 0 }, full = { 0 };
    ares_str_add(&folder, path, (size_t)(ares_after_last(path, '/') - path));
    char *real = realpath(folder.len ? folder.data : ".", NULL); /* with malloc */
    ares_str_addf(&full, "%s/mlartifacts/%lld", real && strcmp(real, "/") ? real : "",
                  (long long)experiment);
    ares_str_add_z(out, "file://");
    for (size_t i = 0; i < full.len; i++) {
        unsigned char c = (unsigned char)full.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || ares_is_digit((char)c);
        if (plain || strchr("/-_.~", c)) ares_str_add_char(out, (char)c);
        else ares_str_addf(out, "%%%02X", c);
    }
    free(real);
    ares_str_fini(&folder);
    ares_str_fini(&full);
}

static int add_experiment(mlflow *t, int64_t id, const char *name)
{
    sql_file *f = &t->file;
    sqlite3_stmt *s = NULL;
    ares_str place = { 0 };
    int rc = prepare_insert(f->db, f->path.data, "insert", "experiments", experiment_columns, &s);
    if (rc == ARES_OK) {
        artifact_location(t, &place, id);
        bind_i64(s, ":experiment_id", id);
        bind_z(s, ":name", name);
        bind_text(s, ":artifact_location", ares_str_view(&place));
        bind_z(s, ":lifecycle_stage", "active");
        bind_i64(s, ":creation_time", milliseconds(f->run->started));
        bind_i64(s, ":last_update_time", milliseconds(f->run->started));
        rc = sql_done(f->db, f->path.data, s);
    }
    sqlite3_finalize(s);
    ares_str_fini(&place);
    return rc;
}

/* The experiment of the project's name, made where it is not there, and where its files lie. */
static int find_experiment(mlflow *t, int64_t *id, ares_str *place)
{
    sql_file *f = &t->file;
    const char *path = f->path.data, *name = f->run->project;
    sqlite3_stmt *s = NULL;
    ares_str text = { 0 };
    int rc = ARES_OK;
    ares_str_add_z(&text, "select experiment_id, artifact_location, lifecycle_stage from "
                          "experiments where name = :name");
    if (column_type(f->db, "experiments", "workspace"))
        ares_str_add_z(&text, " and workspace = 'default'");
    for (bool made = false;; made = true) {
        rc = sql_prepare(f->db, path, text.data, &s);
        if (rc == ARES_OK) bind_z(s, ":name", name);
        int step = rc == ARES_OK ? sqlite3_step(s) : SQLITE_ERROR;
        if (step == SQLITE_ROW) {
            *id = sqlite3_column_int64(s, 0);
            const char *at = (const char *)sqlite3_column_text(s, 1),
                       *stage = (const char *)sqlite3_column_text(s, 2);
            if (at) ares_str_add_z(place, at);
            if (stage && strcmp(stage, "deleted") == 0)
                rc = ares_fail(ARES_ESTATE,
                               "%s: the experiment '%s' is deleted; restore it (mlflow experiments "
                               "restore --experiment-id %lld), or set another "
                               "trainer.project_name",
                               path, name, (long long)*id);
        }
        sqlite3_finalize(s);
        s = NULL;
        if (rc != ARES_OK || step == SQLITE_ROW || made) break;
        /* the first free number */
        rc = sql_prepare(f->db, path,
                         "select min(n) from (select 1 n union select experiment_id + 1 from "
                         "experiments) where n >= 1 and n not in (select experiment_id from "
                         "experiments)",
                         &s);
        if (rc == ARES_OK && sqlite3_step(s) != SQLITE_ROW) rc = sql_fail(f->db, path);
        *id = rc == ARES_OK ? sqlite3_column_int64(s, 0) : 0;
        sqlite3_finalize(s);
        s = NULL;
        if (rc == ARES_OK) rc = add_experiment(t, *id, name);
        if (rc != ARES_OK) break;
    }
    ares_str_fini(&text);
    return rc;
}

/* The row of the run, which an earlier process may have made. */
static int add_run(mlflow *t, int64_t experiment, const char *place)
{
    sql_file *f = &t->file;
    sqlite3_stmt *insert = NULL, *update = NULL;
    ares_str uri = { 0 };
    int rc = prepare_insert(f->db, f->path.data, "insert or ignore", "runs", run_columns, &insert);
    if (rc == ARES_OK)
        rc = sql_prepare(f->db, f->path.data,
                         "update runs set name = :name, status = 'RUNNING', end_time = null, "
                         "lifecycle_stage = 'active', experiment_id = :experiment_id, artifact_uri "
                         "= :artifact_uri where run_uuid = :run_uuid",
                         &update);
    ares_str_addf(&uri, "%s/%s/artifacts", place, f->run->id);
    sqlite3_stmt *both[] = { insert, update };
    for (int k = 0; k < 2 && rc == ARES_OK; k++) {
        bind_z(both[k], ":run_uuid", f->run->id);
        bind_z(both[k], ":name", f->run->name);
        bind_z(both[k], ":source_type", "LOCAL");
        bind_z(both[k], ":source_name", "ares-train");
        bind_z(both[k], ":entry_point_name", "");
        bind_z(both[k], ":source_version", "");
        bind_z(both[k], ":user_id", tracker_user());
        bind_z(both[k], ":status", "RUNNING");
        bind_i64(both[k], ":start_time", milliseconds(f->run->started));
        bind_z(both[k], ":lifecycle_stage", "active");
        bind_text(both[k], ":artifact_uri", ares_str_view(&uri));
        bind_i64(both[k], ":experiment_id", experiment);
        rc = sql_done(f->db, f->path.data, both[k]);
    }
    sqlite3_finalize(insert);
    sqlite3_finalize(update);
    ares_str_fini(&uri);
    return rc;
}

/* Schema, experiment, run, tags and parameters; steps from `from` on go. */
static int mlflow_begin(mlflow *t, int64_t from)
{
    sql_file *f = &t->file;
    const char *path = f->path.data;
    sqlite3_stmt *tag = NULL;
    ares_str place = { 0 };
    int64_t experiment = 0;
    if (is_empty(f->db)) {
        ARES_TRY(sql_run(f->db, path, mlflow_schema));
        ARES_TRY(add_experiment(t, 0, "Default"));
    }
    ARES_TRY(mlflow_fits(f->db, path));
    int rc = find_experiment(t, &experiment, &place);
    if (rc == ARES_OK) rc = add_run(t, experiment, place.data ? place.data : "");
    ares_str_fini(&place);
    if (rc == ARES_OK)
        rc = prepare_insert(f->db, path, "insert or replace", "tags", pair_columns, &tag);
    const struct {
        const char *key, *value;
    } tags[] = { { "mlflow.runName", f->run->name },
                 { "mlflow.user", tracker_user() },
                 { "mlflow.source.name", "ares-train" },
                 { "mlflow.source.type", "LOCAL" } };
    for (int i = 0; i < ARES_COUNT(tags) && rc == ARES_OK; i++)
        rc = mlflow_pair(t, tag, tags[i].key, ares_view_of(tags[i].value));
    sqlite3_finalize(tag);
    if (rc == ARES_OK)
        rc = prepare_insert(f->db, path, "insert or replace", "params", pair_columns, &t->param);
    if (rc == ARES_OK) { /* VARCHAR(8000) */
        const char *type = column_type(f->db, "params", "value"), *size = strchr(type, '(');
        t->param_bytes = (size_t)ARES_MAX(MLFLOW_PARAM, size ? atoi(size + 1) : 0);
        rc = each_option(f->run->config, "", mlflow_option, t);
    }
    sqlite3_finalize(t->param);
    t->param = NULL;
    if (rc == ARES_OK)
        rc = run_of_step(f, "delete from metrics where run_uuid = :run and step >= :step", from);
    return rc;
}

static int mlflow_body(void *self, int64_t from, const tracker_row *rows, int64_t n)
{
    mlflow *t = self;
    sql_file *f = &t->file;
    const char *path = f->path.data;
    int rc = f->begun ? ARES_OK : mlflow_begin(t, from);
    /* asked in each step, because MLflow may bring the file up to date at any time */
    bool latest = rc == ARES_OK && column_type(f->db, "latest_metrics", "key");
    if (rc == ARES_OK)
        rc =
            prepare_insert(f->db, path, "insert or replace", "metrics", metric_columns, &t->insert);
    if (rc == ARES_OK && latest)
        rc = prepare_insert(f->db, path, "insert or replace", "latest_metrics", metric_columns,
                            &t->latest);
    if (rc == ARES_OK && !f->begun && from > 0) {
        t->steps = ares_map_new();
        rc = known_steps(f, "select distinct step from metrics where run_uuid = :run", t->steps);
        if (rc == ARES_OK) rc = tracker_history(f->run, from, mlflow_row, t);
        ares_map_free(t->steps);
        t->steps = NULL;
    }
    if (rc == ARES_OK && !f->begun &&
        latest) { /* those of steps that went are the latest no more */
        rc = run_of_step(f, "delete from latest_metrics where run_uuid = :run", from);
        if (rc == ARES_OK)
            rc = run_of_step(f,
                             "insert or replace into latest_metrics (key, value, timestamp, step, "
                             "is_nan, run_uuid) select key, value, timestamp, step, is_nan, "
                             "run_uuid from metrics where run_uuid = :run order by step, timestamp",
                             from);
    }
    for (int64_t i = 0; rc == ARES_OK && i < n; i++) rc = mlflow_row(t, &rows[i]);
    sqlite3_finalize(t->insert);
    sqlite3_finalize(t->latest);
    t->insert = t->latest = NULL;
    return rc;
}

static int mlflow_write(void *self, int64_t from, const tracker_row *rows, int64_t n,
                        int patience_ms)
{
    mlflow *t = self;
    return sql_transaction(&t->file, mlflow_body, t, from, rows, n, patience_ms);
}

static int mlflow_end(void *self, bool finished)
{
    mlflow *t = self;
    sql_file *f = &t->file;
    sqlite3_stmt *s = NULL;
    int rc =
        sql_prepare(f->db, f->path.data,
                    "update runs set status = :status, end_time = :end where run_uuid = :run", &s);
    if (rc == ARES_OK) {
        bind_z(s, ":status", finished ? "FINISHED" : "FAILED");
        bind_i64(s, ":end", milliseconds(tracker_now()));
        bind_z(s, ":run", f->run->id);
        rc = sql_done(f->db, f->path.data, s);
    }
    sqlite3_finalize(s);
    return rc;
}

static const char *mlflow_place(void *self)
{
    return ((mlflow *)self)->file.path.data;
}

static void mlflow_free(void *self)
{
    mlflow *t = self;
    sql_free(&t->file);
    mlflow_names_fini(&t->metrics);
    mlflow_names_fini(&t->params);
    ares_free(t);
}

const tracker_kind tracker_trackio = { .name = "trackio",
                                       .check = trackio_check,
                                       .open = trackio_open,
                                       .write = trackio_write,
                                       .tell = trackio_tell,
                                       .place = trackio_place,
                                       .free = trackio_free };
const tracker_kind tracker_mlflow = { .name = "mlflow",
                                      .check = mlflow_check,
                                      .open = mlflow_open,
                                      .write = mlflow_write,
                                      .end = mlflow_end,
                                      .place = mlflow_place,
                                      .free = mlflow_free };

#else /* a build without libsqlite3: the words are refused */

static int missing_library(const char *project)
{
    (void)project;
    return ares_fail(ARES_EUNSUPPORTED,
                     "this program was built without libsqlite3, which writes the files of Trackio "
                     "and MLflow; install libsqlite3-dev (scripts/setup.sh does) and build again");
}

const tracker_kind tracker_trackio = { .name = "trackio", .check = missing_library };
const tracker_kind tracker_mlflow = { .name = "mlflow", .check = missing_library };
#endif
