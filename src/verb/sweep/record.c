/*
 * What a sweep writes down: sweep.json (its runs, for `compare` and for the next sweep), a line for
 * each result, and the summary with the lines of all runs. Everything but the summary is replaced
 * whole; the summary grows by one write per result.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runs.h"
#include "sweep.h"

static const char *const states[] = { "waiting", "running", "done", "failed", "stopped" };

const char *sweep_manifest(sweep *s)
{
    return ares_arena_printf(&s->arena, "%s/sweep.json", s->dir);
}

/* ---------------------------------------------------------------- sweep.json */
static void write_text(ares_str *out, const char *key, const char *value)
{
    ares_json_key(out, key);
    if (value) ares_json_write_string(out, ares_view_of(value));
    else ares_json_write_null(out);
}

static void write_run(const sweep *s, const sweep_run *r, ares_str *out)
{
    ares_json_begin(out, '{');
    write_text(out, "run", r->name);
    write_text(out, "variant", r->variant);
    ares_json_begin(ares_json_key(out, "values"), '{');
    for (int i = 0; i < s->n_parameters; i++) write_text(out, s->parameters[i].name, r->values[i]);
    ares_json_end(out, '}');
    if (r->seed >= 0) ares_json_write_i64(ares_json_key(out, "seed"), r->seed);
    else write_text(out, "seed", NULL);
    write_text(out, "run_dir", r->run_dir);
    write_text(out, "log", r->log);
    write_text(out, "state", states[r->state]);
    ares_json_write_rounded(ares_json_key(out, "wall_s"), r->wall_s, 6);
    write_text(out, "gpu", r->gpu);
    ares_json_end(out, '}');
}

int sweep_write_manifest(sweep *s)
{
    ares_str json = { 0 }, text = { 0 };
    char from[4096];
    if (!getcwd(from, sizeof from)) from[0] = 0;
    ares_json_begin(&json, '{');
    write_text(&json, "sweep", s->name);
    /* paths of runs are relative to this folder */
    write_text(&json, "from", from);
    ares_json_begin(ares_json_key(&json, "parameters"), '[');
    for (int i = 0; i < s->n_parameters; i++)
        if (s->parameters[i].values.count > 1)
            ares_json_write_string(&json, ares_view_of(s->parameters[i].name));
    ares_json_end(&json, ']');
    ares_json_begin(ares_json_key(&json, "runs"), '[');
    for (int i = 0; i < s->n; i++) write_run(s, &s->runs[i], &json);
    ares_json_end(&json, ']');
    ares_json_end(&json, '}');
    ares_json_indent(&text, ares_str_view(&json), 2);
    ares_str_add_char(&text, '\n');
    int rc = ares_file_write_atomic(sweep_manifest(s), text.data, text.len);
    ares_str_fini(&json);
    ares_str_fini(&text);
    return rc;
}

static void take_earlier(sweep *s, sweep_run *r, const ares_json *runs)
{
    for (int64_t i = 0; i < runs->count; i++) {
        const ares_json *name = ares_json_get(&runs->items[i], "run"),
                        *gpu = ares_json_get(&runs->items[i], "gpu");
        if (!name || name->type != ARES_JSON_STRING || !ares_view_is(name->text, r->name)) continue;
        if (ares_json_get_double(&runs->items[i], "wall_s", 0, &r->wall_s) != ARES_OK)
            r->wall_s = 0;
        if (gpu && gpu->type == ARES_JSON_STRING)
            r->gpu = ares_arena_copy(&s->arena, gpu->text.data, gpu->text.len);
        return;
    }
}

int sweep_read_manifest(sweep *s)
{
    const char *path = sweep_manifest(s);
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *all, *runs = NULL;
    if (!ares_file_exists(path)) return ARES_OK;
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK &&
        ares_json_parse(&arena, ares_view_trim(ares_str_view(&text)), path, &all) == ARES_OK)
        runs = ares_json_get(all, "runs");
    if (rc == ARES_OK && (!runs || runs->type != ARES_JSON_ARRAY))
        ares_log(ARES_LOG_WARN,
                 "sweep: %s cannot be read; it is written anew, and times of "
                 "earlier attempts are lost",
                 path);
    else if (rc == ARES_OK)
        for (int i = 0; i < s->n; i++)
            if (!s->runs[i].begins_anew) take_earlier(s, &s->runs[i], runs);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return rc;
}

/* ---------------------------------------------------------------- results */
static void add_seconds(ares_str *out, const char *name, const runs_run *r, const char *metric,
                        const char *second)
{
    ares_arena arena = { 0 };
    double sum = 0;
    int64_t n = 0;
    for (const char *m = metric; m; m = m == metric ? second : NULL) {
        runs_series p = runs_series_of(&arena, r, m);
        for (int64_t i = 0; i < p.n; i++) sum += p.value[i];
        n += p.n;
    }
    if (n) ares_str_addf(out, " | %s=%.2fs", name, sum);
    else ares_str_addf(out, " | %s=N/As", name);
    ares_arena_fini(&arena);
}

/* "entropy=0.1 | train_time=8.00s | ... | status=success\n" */
static void describe(const sweep_run *r, ares_str *out)
{
    static const char *const step = "timing_s/step", *const validation = "timing_s/validation";
    ares_arena arena = { 0 };
    runs_run run = { 0 };
    /* a run that failed before its first step has no metrics */
    if (runs_read(&arena, "sweep", r->run_dir, &run) != ARES_OK) run = (runs_run){ 0 };
    ares_str_add_z(out, r->fields);
    add_seconds(out, "train_time", &run, step, NULL);
    add_seconds(out, "eval_time", &run, validation, NULL);
    add_seconds(out, "total_time", &run, step, validation);
    ares_str_addf(out, " | wall_time=%.0fs | gpu=%s | status=%s", r->wall_s, r->gpu ? r->gpu : "-",
                  r->state == SWEEP_DONE ? "success" : "fail");
    if (r->state == SWEEP_DONE && run.stopped) ares_str_addf(out, " | stopped=%s", run.stopped);
    ares_str_add_char(out, '\n');
    ares_arena_fini(&arena);
}

int sweep_make_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return ARES_OK;
    ares_str folder = { 0 };
    ares_str_add(&folder, path, (size_t)(slash - path));
    int rc = ares_dir_make(folder.data);
    ares_str_fini(&folder);
    return rc;
}

static int append(const char *path, const ares_str *text)
{
    ARES_TRY(sweep_make_folder_of(path));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    bool written = fd >= 0 && write(fd, text->data, text->len) == (ssize_t)text->len;
    written = (fd < 0 || close(fd) == 0) && written;
    return written ? ARES_OK
                   : ares_fail(ARES_EIO, "sweep: %s: cannot be written: %s", path, strerror(errno));
}

int sweep_record(sweep *s, const sweep_run *r)
{
    ares_str line = { 0 };
    describe(r, &line);
    int rc = sweep_make_folder_of(r->result);
    if (rc == ARES_OK) rc = ares_file_write_atomic(r->result, line.data, line.len);
    if (rc == ARES_OK && r->why) ares_str_addf(&line, "  error: %s\n", r->why);
    if (rc == ARES_OK) rc = append(s->summary, &line);
    printf("%s", line.data);
    fflush(stdout);
    ares_str_fini(&line);
    return rc;
}

/* ---------------------------------------------------------------- repair */
/* Whether a run's result is there and whole; then it is in `line`. */
static bool has_result(const sweep_run *r, ares_str *line)
{
    ares_view fields = ares_view_of(r->fields);
    if (!ares_file_exists(r->result) || ares_file_read(r->result, line) != ARES_OK) return false;
    ares_view text = ares_str_view(line);
    return text.len && text.data[text.len - 1] == '\n' && ares_view_starts(text, fields) &&
           !memchr(text.data, '\n', text.len - 1) &&
           ares_view_find(text, ARES_VIEW(" | status=success"), fields.len) > 0;
}

/* The summary without a torn last line. */
static int read_summary(const char *path, ares_str *all)
{
    if (!ares_file_exists(path)) return ARES_OK;
    ARES_TRY(ares_file_read(path, all));
    size_t whole = all->len;
    while (whole && all->data[whole - 1] != '\n') whole--;
    if (whole == all->len) return ARES_OK;
    printf("repaired: %s ended in the middle of a line\n", path);
    all->len = whole;
    return ares_file_write_atomic(path, all->data ? all->data : "", all->len);
}

static int repair_run(sweep *s, const sweep_run *r, const ares_str *summary)
{
    ares_str line = { 0 };
    int rc = ARES_OK;
    if (!has_result(r, &line)) {
        ares_str_clear(&line);
        describe(r, &line);
        printf("repaired: %s was missing or half-written\n", r->result);
        rc = sweep_make_folder_of(r->result);
        if (rc == ARES_OK) rc = ares_file_write_atomic(r->result, line.data, line.len);
    }
    if (rc == ARES_OK && ares_view_find(ares_str_view(summary), ares_str_view(&line), 0) < 0)
        rc = append(s->summary, &line);
    ares_str_fini(&line);
    return rc;
}

int sweep_repair(sweep *s)
{
    ares_str summary = { 0 };
    int rc = read_summary(s->summary, &summary);
    for (int i = 0; i < s->n && rc == ARES_OK; i++)
        if (s->runs[i].state == SWEEP_DONE) rc = repair_run(s, &s->runs[i], &summary);
    ares_str_fini(&summary);
    return rc;
}
