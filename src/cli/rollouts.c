/*
 * Reads rollouts/step_*.jsonl and validation/step_*.jsonl. A file may be half written, by a run
 * that is under way or was killed, or somebody else's: rows are checked here, so that whoever
 * prints them need not.
 */
#include "rollouts.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------- which steps there are */
/* Steps of the folder, ascending: *out [*n], in the arena. */
static int find_steps(ares_arena *arena, const char *folder, int64_t **out, int64_t *n)
{
    DIR *d = opendir(folder);
    int64_t capacity = 0, step;
    int end;
    *out = NULL;
    *n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        end = 0;
        const char *digits = e->d_name + 5;
        if (strncmp(e->d_name, "step_", 5) != 0) continue;
        end = (int)strspn(digits, "0123456789");
        if (strcmp(digits + end, ".jsonl") != 0) continue;
        if (!ares_parse_i64((ares_view){ digits, (size_t)end }, &step)) continue;
        if (*n == capacity) {
            int64_t *more = ares_arena_alloc(arena, (size_t)(capacity * 2 + 64) * sizeof *more);
            if (*n) memcpy(more, *out, (size_t)*n * sizeof *more);
            capacity = capacity * 2 + 64;
            *out = more;
        }
        (*out)[(*n)++] = step;
    }
    if (d) closedir(d);
    return d ? ARES_OK : ARES_EUSE;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* "1 to 4, 7" */
static void add_ranges(ares_str *out, const int64_t *step, int64_t n)
{
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && step[end] == step[end - 1] + 1;) end++;
        ares_str_addf(out, "%s%lld", i ? ", " : "", (long long)step[i]);
        if (end > i + 1) ares_str_addf(out, " to %lld", (long long)step[end - 1]);
    }
}

/* The path of the step's file; *step -1 becomes the last one. */
static int find_file(ares_arena *arena, const char *verb, const char *dir, const char *folder,
                     int64_t *step, const char **path)
{
    int64_t *steps, n;
    if (!ares_dir_exists(dir))
        return ares_fail(ARES_EUSE, "%s: '%s': no such directory; name that of a run", verb, dir);
    if (find_steps(arena, ares_arena_printf(arena, "%s/%s", dir, folder), &steps, &n) != ARES_OK)
        return ares_fail(ARES_EUSE,
                         strcmp(folder, "rollouts") == 0
                             ? "%s: '%s': no folder %s there; name the directory of a run"
                             : "%s: '%s': no folder %s there; the run has validated nothing "
                               "(data.val_files, trainer.val_freq)",
                         verb, dir, folder);
    if (!n) return ares_fail(ARES_EUSE, "%s: '%s': %s has no step yet", verb, dir, folder);
    qsort(steps, (size_t)n, sizeof *steps, ascending);
    if (*step < 0) *step = steps[n - 1];
    *path = ares_arena_printf(arena, "%s/%s/step_%06lld.jsonl", dir, folder, (long long)*step);
    if (ares_file_exists(*path)) return ARES_OK;
    ares_str there = { 0 };
    add_ranges(&there, steps, n);
    ares_fail(ARES_EUSE, "%s: --step = %lld: '%s' has no such step; there are %s", verb,
              (long long)*step, dir, there.data);
    ares_str_fini(&there);
    return ARES_EUSE;
}

/* ---------------- rows */
double rollouts_number(const ares_json *o, const char *key, double absent)
{
    const ares_json *x = ares_json_get(o, key);
    return x && (x->type == ARES_JSON_INT || x->type == ARES_JSON_FLOAT) ? x->number : absent;
}

ares_view rollouts_text(const ares_json *o, const char *key)
{
    const ares_json *x = ares_json_get(o, key);
    return x && x->type == ARES_JSON_STRING ? x->text : (ares_view){ "", 0 };
}

static int foreign(const char *key, const char *what)
{
    return ares_fail(ARES_EFORMAT, "'%s': %s; this is no row of a rollout, or a damaged one", key,
                     what);
}

static int expect(const ares_json *o, const char *key, ares_json_type type, const char *what)
{
    const ares_json *x = ares_json_get(o, key);
    return x && x->type == type ? ARES_OK : foreign(key, what);
}

static bool is_count(const ares_json *x)
{
    return x->type == ARES_JSON_INT && !x->big && x->integer >= 0;
}

/* Runs [first, count] in ascending order, as far as `most`. */
static int check_runs(const ares_json *row, const char *key, int64_t most)
{
    static const char what[] = "not a list of runs [first, count] within the response";
    const ares_json *runs = ares_json_get(row, key);
    int64_t at = 0;
    if (!runs) return ARES_OK;
    if (runs->type != ARES_JSON_ARRAY) return foreign(key, what);
    for (int64_t i = 0; i < runs->count; i++) {
        const ares_json *run = &runs->items[i];
        if (run->type != ARES_JSON_ARRAY || run->count != 2 || !is_count(&run->items[0]) ||
            !is_count(&run->items[1]))
            return foreign(key, what);
        int64_t first = run->items[0].integer, count = run->items[1].integer;
        if (first < at || first > most || count > most - first) return foreign(key, what);
        at = first + count;
    }
    return ARES_OK;
}

static int check_ends(const ares_json *row, int64_t most)
{
    const ares_json *ends = ares_json_get(row, "turn_ends");
    int64_t at = 0;
    if (!ends) return ARES_OK;
    bool good = ends->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; good && i < ends->count; i++) {
        good = is_count(&ends->items[i]) && ends->items[i].integer >= at &&
               ends->items[i].integer <= most;
        at = good ? ends->items[i].integer : 0;
    }
    return good ? ARES_OK : foreign("turn_ends", "not a list of places within the response");
}

static int check_turns(const ares_json *turns)
{
    if (turns->type != ARES_JSON_ARRAY) return foreign("turns", "not a list");
    for (int64_t i = 0; i < turns->count; i++) {
        const ares_json *turn = &turns->items[i];
        if (i + 1 == turns->count && rollouts_text(turn, "failure").len) continue;
        ARES_TRY(expect(turn, "response", ARES_JSON_STRING, "a turn has no such text"));
        ARES_TRY(expect(turn, "actions", ARES_JSON_ARRAY, "a turn has no such list"));
        const ares_json *actions = ares_json_get(turn, "actions");
        for (int64_t k = 0; k < actions->count; k++)
            if (actions->items[k].type != ARES_JSON_STRING)
                return foreign("actions", "not a list of texts");
    }
    return ARES_OK;
}

static int64_t characters(ares_view text)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.len; i++) n += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return n;
}

/* A row of a validation has no draw; its data set is named where it is one of several. */
static int check_row(const ares_json *row, bool validation)
{
    const char *const numbers[] = { validation ? "row" : "draw", "sample" };
    const char *const texts[] = { validation ? "question" : "data_source", "prompt", "response" };
    if (row->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "not an object; this is no row of a rollout");
    for (int i = 0; i < ARES_COUNT(numbers); i++)
        ARES_TRY(expect(row, numbers[i], ARES_JSON_INT, "no such whole number"));
    for (int i = 0; i < ARES_COUNT(texts); i++)
        ARES_TRY(expect(row, texts[i], ARES_JSON_STRING, "no such text"));
    const ares_json *turns = ares_json_get(row, "turns");
    if (turns) ARES_TRY(check_turns(turns));
    int64_t length = characters(rollouts_text(row, "response"));
    ARES_TRY(check_runs(row, "trained", INT64_MAX));
    ARES_TRY(check_runs(row, "trained_text", length));
    return check_ends(row, length);
}

/* ---------------- episodes */
static int by_number(const void *a, const void *b)
{
    static const char *const keys[] = { "draw", "row", "sample", "turn" };
    const ares_json *x = *(const ares_json *const *)a, *y = *(const ares_json *const *)b;
    int sets = strcmp(rollouts_text(x, "data_set").data, rollouts_text(y, "data_set").data);
    if (sets) return sets;
    for (int i = 0; i < ARES_COUNT(keys); i++) {
        double k = rollouts_number(x, keys[i], 0), l = rollouts_number(y, keys[i], 0);
        if (k != l) return k < l ? -1 : 1;
    }
    return 0;
}

static bool same(const ares_json *x, const ares_json *y, const char *key)
{
    return rollouts_number(x, key, 0) == rollouts_number(y, key, 0);
}

static void begin_episode(rollouts_episode *e, const ares_json **rows)
{
    const ares_json *turns = ares_json_get(rows[0], "turns");
    *e = (rollouts_episode){ .n = 1, .rows = rows };
    if (!turns) return;
    e->played = true;
    e->turns = turns->items;
    e->n_turns = turns->count;
    if (turns->count) e->failure = rollouts_text(&turns->items[turns->count - 1], "failure");
    if (e->failure.len) e->n_turns--;
    e->n_answered = e->n_turns;
    if (e->n_turns && ares_view_is(rollouts_text(&e->turns[e->n_turns - 1], "end"), "context full"))
        e->n_answered--;
}

/* rows [n] in the order of by_number */
static void make_episodes(ares_arena *arena, const ares_json **rows, int64_t n, rollouts_step *out)
{
    out->episodes = ares_arena_alloc(arena, (size_t)(n + 1) * sizeof *out->episodes);
    for (int64_t i = 0; i < n; i++) {
        rollouts_episode *e = out->n ? &out->episodes[out->n - 1] : NULL;
        const ares_json *last = e ? e->rows[e->n - 1] : NULL;
        if (!last || !same(last, rows[i], "draw") || !same(last, rows[i], "row") ||
            !same(last, rows[i], "sample") ||
            !ares_view_eq(rollouts_text(last, "data_set"), rollouts_text(rows[i], "data_set")))
            begin_episode(&out->episodes[out->n++], &rows[i]);
        else if (same(last, rows[i], "turn")) e->copies++;
        else e->rows[e->n++] = rows[i];
    }
}

static int read_rows(ares_arena *arena, const char *verb, ares_view text, bool validation,
                     rollouts_step *out)
{
    const char *at = text.data, *end = at + text.len, *line_end;
    int64_t lines = 0, n = 0;
    for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
    const ares_json **rows = ares_arena_alloc(arena, (size_t)(lines + 1) * sizeof *rows);
    for (; (line_end = memchr(at, '\n', (size_t)(end - at))); at = line_end + 1) {
        ares_view line = { at, (size_t)(line_end - at) };
        int rc = ares_json_parse_line(arena, line, out->path, n + 1, &rows[n]);
        if (rc != ARES_OK) return ares_fail_in(rc, "%s", verb);
        rc = check_row(rows[n++], validation);
        if (rc != ARES_OK) return ares_fail_in(rc, "%s: %s:%lld", verb, out->path, (long long)n);
    }
    out->half_written = at < end;
    if (!n)
        return ares_fail(ARES_EFORMAT, "%s: %s: not one whole line%s", verb, out->path,
                         out->half_written ? "; the run is writing it, or was killed" : "");
    qsort(rows, (size_t)n, sizeof *rows, by_number);
    make_episodes(arena, rows, n, out);
    return ARES_OK;
}

int rollouts_read(ares_arena *arena, const char *verb, const char *dir, bool validation,
                  int64_t step, rollouts_step *out)
{
    ares_str text = { 0 };
    *out = (rollouts_step){ .step = step };
    ARES_TRY(find_file(arena, verb, dir, validation ? "validation" : "rollouts", &out->step,
                       &out->path));
    int rc = ares_file_read(out->path, &text);
    rc = rc == ARES_OK ? read_rows(arena, verb, ares_str_view(&text), validation, out)
                       : ares_fail_in(rc, "%s", verb);
    ares_str_fini(&text);
    return rc;
}
