/*
 * Trackers of other programs (docs/trackers.md): the rows of a run are kept until each of its
 * trackers has written them, so that a locked file or a full disk costs no row and ends no run.
 * Then W&B's file, a LevelDB log of protocol buffers (wandb_internal.proto,
 * the log format of LevelDB with zlib's CRC-32 in place of CRC-32C).
 */
#include "tracker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* ---------------------------------------------------------------- what all kinds need */
void tracker_add_text(ares_str *out, const char *text)
{
    const char *end = text + strlen(text);
    for (uint32_t c; text < end;) {
        int n = ares_utf8_next(text, end, &c);
        if (n > 0) ares_str_add(out, text, (size_t)n);
        else ares_str_add_z(out, "\xEF\xBF\xBD");
        text += abs(n);
    }
}

void tracker_add_number(ares_str *out, double x)
{
    if (isfinite(x)) ares_json_write_double(out, x);
    else
        ares_json_write_string(out, ares_view_of(isnan(x) ? "NaN"
                                                 : x > 0  ? "Infinity"
                                                          : "-Infinity"));
}

void tracker_iso_time(double seconds, char out[static 40])
{
    time_t whole = (time_t)floor(seconds);
    struct tm tm;
    gmtime_r(&whole, &tm);
    size_t n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 40 - n, ".%06d+00:00",
             ARES_MIN(999999, (int)((seconds - (double)whole) * 1e6)));
}

const char *tracker_user(void)
{
    const struct passwd *p = getpwuid(getuid());
    const char *name = p ? p->pw_name : getenv("USER");
    return name && ares_view_is_utf8(ares_view_of(name)) ? name : "unknown";
}

int tracker_can_write(const char *tracker, const char *path)
{
    ares_str at = { 0 };
    int rc = ARES_OK;
    ares_str_add_z(&at, path);
    /* the file, else the nearest folder above it that is there */
    for (bool folder = false; rc == ARES_OK; folder = true) {
        struct stat st;
        const char *shown = at.len ? at.data : ".";
        if (stat(shown, &st) == 0) {
            const char *why = folder && !S_ISDIR(st.st_mode)    ? "is no folder"
                              : !folder && !S_ISREG(st.st_mode) ? "is no file"
                              : access(shown, folder ? W_OK | X_OK : R_OK | W_OK) != 0
                                  ? strerror(errno)
                                  : NULL;
            if (why) rc = ares_fail(ARES_EIO, "%s: %s: %s", tracker, shown, why);
            break;
        }
        if (errno != ENOENT) {
            rc = ares_fail(ARES_EIO, "%s: %s: %s", tracker, shown, strerror(errno));
            break;
        }
        while (at.len && at.data[at.len - 1] == '/') at.data[--at.len] = 0;
        while (at.len && at.data[at.len - 1] != '/') at.data[--at.len] = 0;
        while (at.len > 1 && at.data[at.len - 1] == '/') at.data[--at.len] = 0;
    }
    ares_str_fini(&at);
    return rc;
}

int tracker_history(const tracker_run *run, int64_t before, tracker_row_fn *fn, void *ctx)
{
    ares_str path = { 0 };
    ares_jsonl *r = NULL;
    const ares_json *line;
    tracker_row row = { .time = run->started, .metrics = ares_metrics_new() };
    int rc = ARES_OK;
    ares_path_join(&path, run->dir, "metrics.jsonl");
    if (before > 0 && ares_file_exists(path.data)) rc = ares_jsonl_open(path.data, &r);
    while (r && rc == ARES_OK && ares_jsonl_next(r, &line, NULL) > 0) {
        if (ares_json_get_i64(line, "step", INT64_MAX, &row.step) != ARES_OK || row.step >= before)
            break;
        ares_metrics_clear(row.metrics);
        for (int64_t i = 0; i < line->count; i++) { /* null: it was not finite */
            const ares_json *v = line->members[i].value;
            bool number = v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT;
            if (!ares_view_is(line->members[i].key, "step"))
                ares_metrics_set(row.metrics, line->members[i].key.data, number ? v->number : NAN);
        }
        rc = fn(ctx, &row);
    }
    ares_jsonl_close(r);
    ares_metrics_free(row.metrics);
    ares_str_fini(&path);
    return rc;
}

/* ---------------------------------------------------------------- all trackers of a run */
enum { PATIENCE_MS = 10000, IMPATIENCE_MS = 1000 };

static const tracker_kind *const kinds[] = { &tracker_trackio, &tracker_mlflow, &tracker_wandb };

typedef struct tracker {
    const tracker_kind *kind; /* NULL: not asked for */
    void *self;
    int64_t written; /* rows of trackers.rows that are written */
    int64_t from;    /* steps from here on are not written */
    bool failing;    /* told already */
} tracker;

struct trackers {
    tracker_run run;
    tracker one[ARES_COUNT(kinds)];
    tracker_row *rows; /* those that some tracker has still to write */
    int64_t n, cap;
};

/* Writes what is not written yet. A failure is told once, until it has passed. */
static void flush_tracker(trackers *t, tracker *x)
{
    int64_t n = t->n - x->written;
    int rc = x->kind->write(x->self, x->from, t->rows + x->written, n,
                            x->failing ? IMPATIENCE_MS : PATIENCE_MS);
    if (rc != ARES_OK && !x->failing)
        ares_log(ARES_LOG_WARN,
                 "%s: not written: %s; the run goes on, and the rows of its steps are kept for the "
                 "next one",
                 x->kind->name, ares_error_message());
    ares_error_clear();
    if (rc == ARES_OK) {
        if (x->failing && n)
            ares_log(ARES_LOG_INFO, "%s: %s: written again, %lld rows that were kept",
                     x->kind->name, x->kind->place(x->self), (long long)n);
        if (n) x->from = t->rows[t->n - 1].step + 1;
        x->written = t->n;
    }
    x->failing = rc != ARES_OK;
}

/* Forgets the rows that all trackers have written. */
static void forget(trackers *t)
{
    int64_t least = t->n;
    for (int i = 0; i < ARES_COUNT(kinds); i++)
        if (t->one[i].kind) least = ARES_MIN(least, t->one[i].written);
    for (int64_t i = 0; i < least; i++) ares_metrics_free(t->rows[i].metrics);
    memmove(t->rows, t->rows + least, (size_t)(t->n - least) * sizeof *t->rows);
    t->n -= least;
    for (int i = 0; i < ARES_COUNT(kinds); i++) t->one[i].written -= least;
}

int ares_tracker_check(const char *logger, const char *project)
{
    for (int i = 0; i < ARES_COUNT(kinds); i++)
        if (strcmp(kinds[i]->name, logger) == 0) return kinds[i]->check(project);
    return ARES_OK;
}

/* The run's names in valid UTF-8, its options, and its id. */
static int describe(tracker_run *run, const ares_tracker_run *r)
{
    ares_sha256 s;
    unsigned char hash[32];
    ares_str text = { 0 };
    char *path = realpath(r->dir, NULL); /* with malloc */
    if (!path) return ares_fail(ARES_EIO, "io: %s: %s", r->dir, strerror(errno));
    run->dir = ares_strdup(path);
    free(path);
    ares_sha256_init(&s);
    ares_sha256_add(&s, run->dir, strlen(run->dir));
    ares_sha256_end(&s, hash);
    for (int i = 0; i < 16; i++) snprintf(run->id + 2 * i, 3, "%02x", hash[i]);
    run->started = tracker_now();
    tracker_add_text(&text, r->project);
    run->project = ares_str_take(&text);
    tracker_add_text(&text, r->name);
    run->name = ares_str_take(&text);
    if (r->options && r->options->type == ARES_JSON_OBJECT)
        ares_json_write(&run->options, r->options);
    else ares_str_add_z(&run->options, "{}");
    return ares_json_parse(&run->arena, ares_str_view(&run->options), "options", &run->config);
}

int trackers_open(const ares_tracker_run *r, trackers **out)
{
    trackers *t = ares_calloc(1, sizeof *t);
    int rc = ARES_OK, asked = 0;
    *out = NULL;
    for (int64_t k = 0; k < r->n_loggers; k++)
        for (int i = 0; i < ARES_COUNT(kinds); i++)
            if (strcmp(kinds[i]->name, r->loggers[k]) == 0 && !t->one[i].kind) {
                if (rc == ARES_OK) rc = kinds[i]->check(r->project);
                t->one[i].kind = kinds[i];
                t->one[i].from = r->from_step;
                asked++;
            }
    if (rc == ARES_OK && asked) rc = describe(&t->run, r);
    for (int i = 0; rc == ARES_OK && i < ARES_COUNT(kinds); i++)
        if (t->one[i].kind) {
            t->one[i].self = t->one[i].kind->open(&t->run);
            flush_tracker(t, &t->one[i]); /* no rows yet: the run itself */
        }
    if (rc == ARES_OK && asked) *out = t;
    else trackers_close(t, false);
    return rc;
}

void trackers_log(trackers *t, int64_t step, const ares_metrics *m)
{
    if (!t) return;
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 16;
        t->rows = ares_realloc(t->rows, (size_t)t->cap * sizeof *t->rows);
    }
    tracker_row *row = &t->rows[t->n++];
    *row = (tracker_row){ .step = step, .time = tracker_now(), .metrics = ares_metrics_new() };
    for (int i = 0; i < ares_metrics_count(m); i++)
        ares_metrics_set(row->metrics, ares_metrics_name(m, i), ares_metrics_value(m, i));
    for (int i = 0; i < ARES_COUNT(kinds); i++)
        if (t->one[i].kind) flush_tracker(t, &t->one[i]);
    forget(t);
}

bool trackers_show_alerts(const trackers *t)
{
    for (int i = 0; t && i < ARES_COUNT(kinds); i++)
        if (t->one[i].kind && t->one[i].kind->tell) return true;
    return false;
}

/* One that cannot be told now is told with the next verdicts, which say it again. */
void trackers_tell(trackers *t, int64_t step, const ares_tracker_alert *a)
{
    for (int i = 0; t && i < ARES_COUNT(kinds); i++) {
        tracker *x = &t->one[i];
        if (x->kind && x->kind->tell && !x->failing && x->kind->tell(x->self, step, a) != ARES_OK)
            ares_log(ARES_LOG_WARN, "%s: an alert is not written: %s", x->kind->name,
                     ares_error_message());
    }
    ares_error_clear();
}

void trackers_close(trackers *t, bool finished)
{
    if (!t) return;
    for (int i = 0; i < ARES_COUNT(kinds); i++) {
        tracker *x = &t->one[i];
        if (!x->self) continue;
        if (t->n > x->written) {
            x->failing = false; /* the last try is a patient one, and tells why */
            flush_tracker(t, x);
        }
        if (x->written < t->n)
            ares_log(ARES_LOG_WARN, "%s: %s lacks the last %lld rows of metrics.jsonl",
                     x->kind->name, x->kind->place(x->self), (long long)(t->n - x->written));
        if (!x->failing && x->kind->end && x->kind->end(x->self, finished) != ARES_OK)
            ares_log(ARES_LOG_WARN, "%s: the end of the run is not written: %s", x->kind->name,
                     ares_error_message());
        ares_error_clear();
        x->kind->free(x->self);
    }
    for (int64_t i = 0; i < t->n; i++) ares_metrics_free(t->rows[i].metrics);
    ares_free(t->rows);
    ares_free(t->run.dir);
    ares_free(t->run.project);
    ares_free(t->run.name);
    ares_str_fini(&t->run.options);
    ares_arena_fini(&t->run.arena);
    ares_free(t);
}

/* ---------------------------------------------------------------- W&B
 * <folder>/wandb/offline-run-<time>-<id>/run-<id>.wandb: 7 bytes of header, then blocks of 32 KiB
 * that are counted from the beginning of the file. A record is cut into fragments that end with
 * their block.
 */
enum { WANDB_BLOCK = 32768, WANDB_HEAD = 7, WANDB_ID = 8 };

typedef struct wandb {
    const tracker_run *run;
    ares_str folder, path;
    int fd; /* -1: not there yet */
    int64_t size, records;
    ares_str bytes, record, item; /* of a write; kept for their memory */
    ares_metrics *last;           /* the latest value of each metric */
} wandb;

static const char *wandb_root(void)
{
    const char *dir = getenv("WANDB_DIR");
    return dir && *dir ? dir : ".";
}

static int wandb_check(const char *project)
{
    /* wandb_settings.py: characters that its web addresses could not hold, and the length */
    if (strpbrk(project, "/\\#?%:") || strlen(project) > 128)
        return ares_fail(ARES_ECONFIG,
                         "wandb: the project '%s': W&B takes names of at most 128 bytes without "
                         "/ \\ # ? %% and :; set another trainer.project_name",
                         project);
    ares_str dir = { 0 };
    ares_path_join(&dir, wandb_root(), "wandb/offline-run");
    int rc = tracker_can_write("wandb", dir.data);
    ares_str_fini(&dir);
    if (rc == ARES_OK) return ARES_OK;
    ares_str_add_z(&dir, ares_error_message());
    ares_fail(rc, "%s; set WANDB_DIR to another folder", dir.data);
    ares_str_fini(&dir);
    return rc;
}

static void *wandb_open(const tracker_run *run)
{
    wandb *w = ares_calloc(1, sizeof *w);
    w->run = run;
    w->fd = -1;
    w->last = ares_metrics_new();
    return w;
}

/* Adds w->record, in which a Record lacks only its number, to w->bytes. */
static void wandb_frame(wandb *w, int field)
{
    ares_str record = { 0 };
    proto_key(&record, 1, 0);
    proto_varint(&record, (uint64_t)++w->records);
    proto_bytes(&record, field, ares_str_view(&w->record));
    const char *at = record.data, *end = at + record.len;
    for (bool first = true; first || at < end; first = false) {
        size_t left = WANDB_BLOCK - ((size_t)w->size + w->bytes.len) % WANDB_BLOCK;
        if (left < WANDB_HEAD) { /* no room for a header: the block ends with zeros */
            proto_little(&w->bytes, 0, (int)left);
            left = WANDB_BLOCK;
        }
        size_t n = ARES_MIN((size_t)(end - at), left - WANDB_HEAD);
        bool last = at + n == end;
        ares_str_clear(&w->item);
        ares_str_add_char(&w->item, first ? last ? 1 : 2 : last ? 4 : 3);
        ares_str_add(&w->item, at, n);
        proto_little(&w->bytes, tracker_crc32(0xedb88320u, w->item.data, w->item.len), 4);
        proto_little(&w->bytes, n, 2);
        ares_str_add_view(&w->bytes, ares_str_view(&w->item));
        at += n;
    }
    ares_str_fini(&record);
    ares_str_clear(&w->record);
}

/* A member {key 1, value_json 16} of history, summary and config. */
static void wandb_item(wandb *w, ares_str *out, int field, const char *key, ares_view json)
{
    ares_str text = { 0 };
    tracker_add_text(&text, key);
    ares_str_clear(&w->item);
    proto_bytes(&w->item, 1, ares_str_view(&text));
    proto_bytes(&w->item, 16, json);
    proto_bytes(out, field, ares_str_view(&w->item));
    ares_str_fini(&text);
}

static void wandb_number(wandb *w, int field, const char *key, double x)
{
    ares_str json = { 0 };
    tracker_add_number(&json, x);
    wandb_item(w, &w->record, field, key, ares_str_view(&json));
    ares_str_fini(&json);
}

static void wandb_integer(wandb *w, int field, const char *key, int64_t x)
{
    ares_str json = { 0 };
    ares_json_write_i64(&json, x);
    wandb_item(w, &w->record, field, key, ares_str_view(&json));
    ares_str_fini(&json);
}

/* Record.history 2: HistoryRecord {item 1, step 2 {num 1}} */
static int wandb_history(void *ctx, const tracker_row *row)
{
    wandb *w = ctx;
    for (int i = 0; i < ares_metrics_count(row->metrics); i++) {
        const char *name = ares_metrics_name(row->metrics, i);
        double x = ares_metrics_value(row->metrics, i);
        wandb_number(w, 1, name, x);
        ares_metrics_set(w->last, name, x);
    }
    wandb_integer(w, 1, "_step", row->step);
    wandb_number(w, 1, "_timestamp", row->time);
    wandb_number(w, 1, "_runtime", row->time - w->run->started);
    ares_str_clear(&w->item);
    proto_key(&w->item, 1, 0);
    proto_varint(&w->item, (uint64_t)row->step);
    proto_bytes(&w->record, 2, ares_str_view(&w->item));
    wandb_frame(w, 2);
    return ARES_OK;
}

/* Whether an earlier process has left a file of this run. */
static bool wandb_is_known(const wandb *w)
{
    ares_str dir = { 0 }, end = { 0 };
    bool known = false;
    ares_path_join(&dir, wandb_root(), "wandb");
    ares_str_addf(&end, "-%.*s", WANDB_ID, w->run->id);
    DIR *d = opendir(dir.data);
    for (struct dirent *e; d && (e = readdir(d));)
        known = known || (strncmp(e->d_name, "offline-run-", 12) == 0 &&
                          ares_ends_with(e->d_name, end.data));
    if (d) closedir(d);
    ares_str_fini(&dir);
    ares_str_fini(&end);
    return known;
}

/* Makes folder and file, and puts the header and Record.run 17 into w->bytes. */
static int wandb_begin(wandb *w, int64_t from)
{
    const tracker_run *run = w->run;
    bool known = wandb_is_known(w);
    ares_str text = { 0 }, config = { 0 }, name = { 0 };
    int rc = ARES_OK;
    ares_path_join(&text, wandb_root(), "wandb");
    rc = ares_dir_make(text.data);
    /* a run that goes on within a second would find the name taken */
    for (int64_t later = 0; rc == ARES_OK && w->fd < 0; later++) {
        time_t at = (time_t)run->started + (time_t)later;
        struct tm tm;
        char stamp[32];
        localtime_r(&at, &tm);
        strftime(stamp, sizeof stamp, "%Y%m%d_%H%M%S", &tm);
        ares_str_clear(&name);
        ares_str_addf(&name, "offline-run-%s-%.*s", stamp, WANDB_ID, run->id);
        ares_path_join(&w->folder, text.data, name.data);
        if (mkdir(w->folder.data, 0755) != 0) {
            if (errno != EEXIST)
                rc = ares_fail(ARES_EIO, "io: %s: %s", w->folder.data, strerror(errno));
            continue;
        }
        ares_path_join(&name, w->folder.data, "files");
        rc = ares_dir_make(name.data);
        ares_str_clear(&name);
        ares_str_addf(&name, "run-%.*s.wandb", WANDB_ID, run->id);
        ares_path_join(&w->path, w->folder.data, name.data);
        if (rc == ARES_OK) {
            w->fd = open(w->path.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
            if (w->fd < 0) rc = ares_fail(ARES_EIO, "io: %s: %s", w->path.data, strerror(errno));
        }
    }
    ares_str_clear(&text);
    ares_str_add(&w->bytes, ":W&B\xE1\xBE\0", WANDB_HEAD);
    /* RunRecord {run_id 1, project 3, config 4 {update 1}, display_name 8, start_time 17} */
    ares_str_add(&text, run->id, WANDB_ID);
    proto_bytes(&w->record, 1, ares_str_view(&text));
    proto_bytes(&w->record, 3, ares_view_of(run->project));
    for (int64_t i = 0; i < run->config->count; i++) {
        ares_str_clear(&text);
        ares_json_write(&text, run->config->members[i].value);
        wandb_item(w, &config, 1, run->config->members[i].key.data, ares_str_view(&text));
    }
    proto_bytes(&w->record, 4, ares_str_view(&config));
    proto_bytes(&w->record, 8, ares_view_of(run->name));
    ares_str_clear(&text);
    proto_key(&text, 1, 0);
    proto_varint(&text, (uint64_t)run->started);
    proto_bytes(&w->record, 17, ares_str_view(&text));
    wandb_frame(w, 17);
    if (rc == ARES_OK && !known) rc = tracker_history(run, from, wandb_history, w);
    ares_str_fini(&text);
    ares_str_fini(&config);
    ares_str_fini(&name);
    return rc;
}

/* Appends w->bytes, or leaves the file as it was. */
static int wandb_append(wandb *w)
{
    int rc = io_write_all(w->fd, w->path.data, w->bytes.data, w->bytes.len, w->size);
    if (rc == ARES_OK) w->size += (int64_t)w->bytes.len;
    else if (ftruncate(w->fd, w->size) != 0) /* the next write covers what stayed */
        ares_log(ARES_LOG_DEBUG, "wandb: %s: %s", w->path.data, strerror(errno));
    return rc;
}

static int wandb_write(void *self, int64_t from, const tracker_row *rows, int64_t n,
                       int patience_ms)
{
    wandb *w = self;
    int64_t records = w->records;
    (void)patience_ms; /* nobody locks this file */
    ares_str_clear(&w->bytes);
    ares_str_clear(&w->record);
    int rc = w->size ? ARES_OK : wandb_begin(w, from);
    for (int64_t i = 0; rc == ARES_OK && i < n; i++) rc = wandb_history(w, &rows[i]);
    if (rc == ARES_OK) rc = wandb_append(w);
    if (rc != ARES_OK) w->records = records;
    if (rc != ARES_OK && !w->size && w->fd >= 0) { /* the next try begins anew */
        close(w->fd);
        w->fd = -1;
        ares_dir_remove(w->folder.data);
    }
    return rc;
}

/* Record.summary 3 {update 1}, then Record.exit 18 {exit_code 1, runtime 2}. */
static int wandb_end(void *self, bool finished)
{
    wandb *w = self;
    ares_str_clear(&w->bytes);
    ares_str_clear(&w->record);
    for (int i = 0; i < ares_metrics_count(w->last); i++)
        wandb_number(w, 1, ares_metrics_name(w->last, i), ares_metrics_value(w->last, i));
    wandb_frame(w, 3);
    proto_key(&w->record, 1, 0);
    proto_varint(&w->record, !finished);
    proto_key(&w->record, 2, 0);
    proto_varint(&w->record, (uint64_t)(tracker_now() - w->run->started));
    wandb_frame(w, 18);
    return wandb_append(w);
}

static const char *wandb_place(void *self)
{
    const wandb *w = self;
    return w->path.len ? w->path.data : "its file";
}

static void wandb_free(void *self)
{
    wandb *w = self;
    if (w->fd >= 0) close(w->fd);
    ares_str *all[] = { &w->folder, &w->path, &w->bytes, &w->record, &w->item };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_str_fini(all[i]);
    ares_metrics_free(w->last);
    ares_free(w);
}

const tracker_kind tracker_wandb = { .name = "wandb",
                                     .check = wandb_check,
                                     .open = wandb_open,
                                     .write = wandb_write,
                                     .end = wandb_end,
                                     .place = wandb_place,
                                     .free = wandb_free };
