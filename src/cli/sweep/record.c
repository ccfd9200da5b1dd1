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
/* The runs of this command, and those of earlier ones in the same folder. */
struct sweep_record {
    const sweep_run **runs; /* [n] in the order in which they came */
    const char **names;     /* [n_names] of all parameters; first this command's, in its order */
    int n, n_names;
};

static void write_text(ares_str *out, const char *key, const char *value)
{
    ares_json_key(out, key);
    if (value) ares_json_write_string(out, ares_view_of(value));
    else ares_json_write_null(out);
}

/* NULL: the run's command had no such parameter. */
static const char *value_of(const sweep *s, const sweep_run *r, int name)
{
    bool own = r >= s->runs && r < s->runs + s->n;
    return own && name >= s->n_parameters ? NULL : r->values[name];
}

static bool varies(const sweep *s, int name)
{
    const struct sweep_record *all = s->record;
    const char *first = value_of(s, all->runs[0], name);
    for (int i = 1; i < all->n; i++) {
        const char *value = value_of(s, all->runs[i], name);
        if (!value != !first || (value && strcmp(value, first) != 0)) return true;
    }
    return false;
}

/*
 * What a curve of the figure is called: the values of the parameters that vary; their names too
 * where there are several.
 */
static void write_variant(const sweep *s, const sweep_run *r, ares_str *out)
{
    const struct sweep_record *all = s->record;
    int several = 0;
    ares_str text = { 0 };
    for (int i = 0; i < all->n_names; i++) several += varies(s, i);
    for (int i = 0; i < all->n_names; i++) {
        const char *value = value_of(s, r, i);
        if (!value || !varies(s, i)) continue;
        if (several == 1) ares_str_add_z(&text, value);
        else
            ares_str_addf(&text, "%s%s = %s", text.len ? ", " : "",
                          sweep_shown_name(all->names, all->n_names, i), value);
    }
    write_text(out, "variant", text.len ? text.data : s->name);
    ares_str_fini(&text);
}

static void write_run(const sweep *s, const sweep_run *r, ares_str *out)
{
    ares_json_begin(out, '{');
    write_text(out, "run", r->name);
    write_variant(s, r, out);
    ares_json_begin(ares_json_key(out, "values"), '{');
    for (int i = 0; i < s->record->n_names; i++)
        if (value_of(s, r, i)) write_text(out, s->record->names[i], value_of(s, r, i));
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

static const char *this_folder(sweep *s)
{
    char path[4096];
    return getcwd(path, sizeof path) ? ares_arena_copy(&s->arena, path, strlen(path)) : "";
}

int sweep_write_manifest(sweep *s)
{
    const struct sweep_record *all = s->record;
    ares_str json = { 0 }, text = { 0 };
    ares_json_begin(&json, '{');
    write_text(&json, "sweep", s->name);
    /* paths of runs are relative to this folder */
    write_text(&json, "from", this_folder(s));
    ares_json_begin(ares_json_key(&json, "parameters"), '[');
    for (int i = 0; i < all->n_names; i++)
        if (varies(s, i)) ares_json_write_string(&json, ares_view_of(all->names[i]));
    ares_json_end(&json, ']');
    ares_json_begin(ares_json_key(&json, "runs"), '[');
    for (int i = 0; i < all->n; i++) write_run(s, all->runs[i], &json);
    ares_json_end(&json, ']');
    ares_json_end(&json, '}');
    ares_json_indent(&text, ares_str_view(&json), 2);
    ares_str_add_char(&text, '\n');
    int rc = ares_file_write_atomic(sweep_manifest(s), text.data, text.len);
    ares_str_fini(&json);
    ares_str_fini(&text);
    return rc;
}

/* ---------------- what earlier commands wrote */
static const char *text_of(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type == ARES_JSON_STRING ? v->text.data : NULL;
}

static void take_earlier(sweep_run *r, const ares_json *item)
{
    if (ares_json_get_double(item, "wall_s", 0, &r->wall_s) != ARES_OK) r->wall_s = 0;
    r->gpu = text_of(item, "gpu");
}

static int name_at(struct sweep_record *all, const char *name)
{
    for (int i = 0; i < all->n_names; i++)
        if (strcmp(all->names[i], name) == 0) return i;
    all->names[all->n_names] = name;
    return all->n_names++;
}

/* Another command's run stays; `from`: the folder that its paths are relative to. */
static void keep(sweep *s, const ares_json *item, const char *from, int most_names)
{
    const char *name = text_of(item, "run"), *dir = text_of(item, "run_dir"),
               *log = text_of(item, "log"), *state = text_of(item, "state");
    const ares_json *values = ares_json_get(item, "values"), *seed = ares_json_get(item, "seed");
    if (!name || !dir) return;
    if (from && *dir != '/' && strcmp(from, this_folder(s)) != 0)
        dir = ares_arena_printf(&s->arena, "%s/%s", from, dir);
    if (!ares_dir_exists(dir)) return;
    sweep_run *r = ares_arena_calloc(&s->arena, 1, sizeof *r);
    const char **texts = ares_arena_calloc(&s->arena, (size_t)most_names, sizeof *texts);
    *r = (sweep_run){ .name = name, .run_dir = dir, .log = log, .values = texts };
    r->seed = seed && seed->type == ARES_JSON_INT ? seed->integer : -1;
    for (int i = 0; state && i < ARES_COUNT(states); i++)
        if (strcmp(states[i], state) == 0) r->state = (sweep_state)i;
    for (int64_t i = 0; values && i < values->count; i++) {
        const char *key = values->members[i].key.data;
        texts[name_at(s->record, key)] = text_of(values, key);
    }
    take_earlier(r, item);
    s->record->runs[s->record->n++] = r;
}

/* runs: of the manifest; NULL: there is none. */
static void make_record(sweep *s, const ares_json *runs, const char *from)
{
    ares_map *own = ares_map_new();
    int64_t earlier = runs ? runs->count : 0, names = s->n_parameters + 1, at;
    struct sweep_record *all = s->record = ares_arena_calloc(&s->arena, 1, sizeof *all);
    bool *listed = ares_arena_calloc(&s->arena, (size_t)s->n + 1, sizeof *listed);
    for (int64_t i = 0; i < earlier; i++) {
        const ares_json *values = ares_json_get(&runs->items[i], "values");
        names += values ? values->count : 0;
    }
    all->runs = ares_arena_calloc(&s->arena, (size_t)(s->n + earlier + 1), sizeof(sweep_run *));
    all->names = ares_arena_calloc(&s->arena, (size_t)names, sizeof(char *));
    for (int i = 0; i < s->n_parameters; i++) name_at(all, s->parameters[i].name);
    for (int i = 0; i < s->n; i++) ares_map_put(own, ares_view_of(s->runs[i].name), i);
    for (int64_t i = 0; i < earlier; i++) {
        const char *name = text_of(&runs->items[i], "run");
        if (!name || !ares_map_get(own, ares_view_of(name), &at)) {
            keep(s, &runs->items[i], from, (int)names);
            continue;
        }
        if (listed[at]) continue;
        if (!s->runs[at].begins_anew) take_earlier(&s->runs[at], &runs->items[i]);
        listed[at] = true;
        all->runs[all->n++] = &s->runs[at];
    }
    for (int i = 0; i < s->n; i++)
        if (!listed[i]) all->runs[all->n++] = &s->runs[i];
    ares_map_free(own);
}

int sweep_read_manifest(sweep *s)
{
    const char *path = sweep_manifest(s);
    ares_str text = { 0 };
    const ares_json *all = NULL, *runs = NULL;
    bool there = ares_file_exists(path);
    int rc = there ? ares_file_read(path, &text) : ARES_OK;
    const char *copy = ares_arena_copy(&s->arena, text.data ? text.data : "", text.len);
    ares_str_fini(&text);
    if (rc != ARES_OK) return rc;
    if (there &&
        ares_json_parse(&s->arena, ares_view_trim(ares_view_of(copy)), path, &all) == ARES_OK)
        runs = ares_json_get(all, "runs");
    if (runs && runs->type != ARES_JSON_ARRAY) runs = NULL;
    if (there && !runs)
        ares_log(ARES_LOG_WARN,
                 "sweep: %s cannot be read; it is written anew, and times of earlier attempts and "
                 "runs of other commands are lost",
                 path);
    ares_error_clear();
    make_record(s, runs, all ? text_of(all, "from") : NULL);
    return ARES_OK;
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
    ares_say("%s", line.data);
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
