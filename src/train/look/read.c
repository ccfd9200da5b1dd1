/*
 * A run directory, read: metrics.jsonl as a column per metric, how the run stands, its options, and
 * its first and last validation side by side. The directory may be of a run under way, of a killed
 * or of an older program: what is there is read, and what is not is noted.
 */
#include "look.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ares/config.h"
#include "ares/io.h"

/* ---------------------------------------------------------------- metrics.jsonl */

/* Columns while they grow. */
typedef struct columns {
    ares_map *names;             /* -> index */
    double **value;              /* [names][room] */
    double *step;                /* [rows], rising */
    int64_t rows, room, n, most; /* n: columns; most: that `value` has room for */
} columns;

void look_note(ares_arena *arena, ares_look *l, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char **notes = ares_arena_alloc(arena, (size_t)(l->n_notes + 1) * sizeof *notes);
    if (l->n_notes) memcpy(notes, l->notes, (size_t)l->n_notes * sizeof *notes);
    notes[l->n_notes++] = ares_arena_printf(arena, "%s", text);
    l->notes = notes;
}

/* The row of a step, which is made where there is none. Steps that go back are rare. */
static int64_t row_of(columns *c, double step)
{
    int64_t at = c->rows;
    while (at > 0 && c->step[at - 1] > step) at--;
    if (at > 0 && c->step[at - 1] == step) return at - 1;
    if (c->rows == c->room) {
        int64_t room = ARES_MAX(64, 2 * c->room);
        c->step = ares_realloc(c->step, (size_t)room * sizeof *c->step);
        for (int64_t k = 0; k < c->n; k++)
            c->value[k] = ares_realloc(c->value[k], (size_t)room * sizeof *c->value[k]);
        c->room = room;
    }
    size_t after = (size_t)(c->rows - at) * sizeof(double);
    memmove(c->step + at + 1, c->step + at, after);
    c->step[at] = step;
    for (int64_t k = 0; k < c->n; k++) {
        memmove(c->value[k] + at + 1, c->value[k] + at, after);
        c->value[k][at] = NAN;
    }
    c->rows++;
    return at;
}

static double *column_of(columns *c, ares_view name)
{
    int64_t k;
    if (ares_map_get(c->names, name, &k)) return c->value[k];
    if (c->n == c->most) {
        c->most = ARES_MAX(64, 2 * c->most);
        c->value = ares_realloc(c->value, (size_t)c->most * sizeof *c->value);
    }
    double *value = ares_malloc((size_t)ARES_MAX(1, c->room) * sizeof *value);
    for (int64_t i = 0; i < c->rows; i++) value[i] = NAN;
    ares_map_put(c->names, name, c->n);
    return c->value[c->n++] = value;
}

static bool is_number(const ares_json *v)
{
    return v && (v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT);
}

/* Whether it may be a step: 1e308 has no integer, and no place on an axis. */
static bool is_step_number(double x)
{
    return fabs(x) <= 0x1p53; /* false of NAN, too */
}

/* The metrics of a brief reading: of verdicts (judge.c), and of what ares-train runs prints. */
static bool is_asked_metric(ares_view name)
{
#define NAME(text) { text, sizeof text - 1 }
    static const ares_view asked[] = {
        NAME("actor/entropy"),
        NAME("actor/grad_norm"),
        NAME("actor/kl"),
        NAME("actor/pg_clipfrac_higher"),
        NAME("actor/pg_clipfrac_lower"),
        NAME("actor/ppo_kl_k3"),
        NAME("actor/skipped_updates"),
        NAME("critic/score/max"),
        NAME("critic/score/mean"),
        NAME("critic/score/min"),
        NAME("exact/rollout_train_max_abs"),
        NAME("filter/generated_groups"),
        NAME("response_length/clip_ratio"),
        NAME("response_length/mean"),
        NAME("reward/accuracy"),
        NAME("reward/extract_fail_rate"),
        NAME("reward/overall"),
        NAME("rollout/entropy"),
        NAME("rollout/filter_zero_count"),
        NAME("rollout/mixed_groups_frac"),
        NAME("timing_s/step"),
        NAME("val/accuracy"),
        NAME("val/loss"),
        NAME("val/reward_score"),
    };
#undef NAME
    for (int i = 0; i < ARES_COUNT(asked); i++)
        if (name.len == asked[i].len && memcmp(name.data, asked[i].data, name.len) == 0)
            return true;
    static const char prefix[] = "reward/failed/";
    return name.len >= sizeof prefix && memcmp(name.data, prefix, sizeof prefix - 1) == 0;
}

/*
 * Takes a line of a brief reading without making a tree of it, which is most of the time of reading
 * a thousand runs: {"step":number,"name":number or null,...} as runs write it. False: it is
 * anything else, and nothing of it was taken.
 */
static bool take_brief(columns *c, ares_view line)
{
    struct {
        ares_view name;
        double value;
    } found[64];
    int n = 0;
    double step = NAN;
    const char *at = line.data, *end = at + line.len;
    if (line.len < 2 || *at != '{' || end[-1] != '}') return false;
    for (end--; at < end;) { /* at the brace or comma before a member */
        ares_view name, text;
        if (*at != (at == line.data ? '{' : ',') || ++at == end || *at++ != '"') return false;
        for (name.data = at; at < end && *at != '"'; at++)
            if (*at == '\\' || (unsigned char)*at < 0x20 || (unsigned char)*at >= 0x80)
                return false;
        name.len = (size_t)(at - name.data);
        if (end - at < 3 || at[1] != ':') return false;
        for (at = text.data = at + 2; at < end && *at != ','; at++)
            if (!ares_is_digit(*at) && *at != '.' && !strchr("-+eEnul", *at)) return false;
        text.len = (size_t)(at - text.data);
        bool is_step = name.len == 4 && memcmp(name.data, "step", 4) == 0;
        if ((!is_step && !is_asked_metric(name)) || ares_view_is(text, "null")) continue;
        double value;
        if (n == ARES_COUNT(found) || !ares_parse_double(text, &value)) return false;
        if (is_step) step = value;
        else {
            found[n].name = name;
            found[n++].value = value;
        }
    }
    if (!is_step_number(step)) return false;
    int64_t r = row_of(c, step);
    for (int i = 0; i < n; i++) column_of(c, found[i].name)[r] = found[i].value;
    return true;
}

/*
 * Lines of a text into columns; false: a line that is none, which a note tells, ends the reading.
 */
static bool take_lines(ares_arena *arena, ares_look *l, columns *c, ares_view text, int64_t line,
                       bool brief)
{
    ares_arena scratch = { 0 };
    const char *at = text.data, *end = text.data + text.len, *stop;
    bool ok = true;
    for (; ok && (stop = memchr(at, '\n', (size_t)(end - at))); at = stop + 1, line++) {
        const ares_json *row, *step;
        ares_arena_reset(&scratch);
        ares_view whole = ares_view_trim((ares_view){ at, (size_t)(stop - at) });
        if (!whole.len || (brief && take_brief(c, whole))) continue;
        if (ares_json_parse_line(&scratch, whole, "metrics.jsonl", line, &row) != ARES_OK) {
            look_note(arena, l, "%s: read up to there", ares_error_message());
            ares_error_clear();
            ok = false;
        } else if (!is_number(step = ares_json_get(row, "step")) || !is_step_number(step->number)) {
            look_note(arena, l, "metrics.jsonl:%lld: no step in this line: read up to there",
                      (long long)line);
            ok = false;
        } else {
            int64_t r = row_of(c, step->number);
            for (int64_t i = 0; i < row->count; i++)
                if (is_number(row->members[i].value) && row->members[i].value != step)
                    column_of(c, row->members[i].key)[r] = row->members[i].value->number;
        }
    }
    if (ok && at < end)
        look_note(arena, l, "metrics.jsonl:%lld: the last line has no end and is left out",
                  (long long)line);
    ares_arena_fini(&scratch);
    return ok;
}

/* The first and the last `ends` bytes of a file, the halves of lines between them left out. */
static int read_ends(const char *path, int64_t ends, ares_str *head, ares_str *tail)
{
    struct stat st;
    const char *why = NULL;
    int fd = ares_file_open(path, &why);
    if (fd < 0) return ares_fail(ARES_EIO, "file: '%s': cannot be opened: %s", path, why);
    int64_t size = fstat(fd, &st) == 0 ? (int64_t)st.st_size : 0;
    bool all = size <= 2 * ends;
    ares_str *into[2] = { head, tail };
    for (int i = 0; i < (all ? 1 : 2); i++) {
        size_t want = (size_t)(all ? size : ends);
        ares_str_reserve(into[i], want + 1);
        ssize_t n = pread(fd, into[i]->data, want, i ? (off_t)(size - ends) : 0);
        into[i]->len = n > 0 ? (size_t)n : 0;
        into[i]->data[into[i]->len] = 0;
    }
    close(fd);
    if (all) return ARES_OK;
    while (head->len && head->data[head->len - 1] != '\n') head->len--;
    const char *first = memchr(tail->data, '\n', tail->len);
    size_t cut = first ? (size_t)(first - tail->data) + 1 : tail->len;
    memmove(tail->data, tail->data + cut, tail->len - cut);
    tail->len -= cut;
    return ARES_OK;
}

static int read_metrics(ares_arena *arena, ares_look *l, const char *path, int64_t ends)
{
    columns c = { .names = ares_map_new() };
    ares_str head = { 0 }, tail = { 0 };
    int rc = ends > 0 ? read_ends(path, ends, &head, &tail) : ares_file_read(path, &head);
    if (rc == ARES_OK) {
        /* of the tail no line's number is known: errors there name the end's own lines */
        bool ok = take_lines(arena, l, &c, ares_str_view(&head), 1, ends > 0);
        if (ok && tail.len) take_lines(arena, l, &c, ares_str_view(&tail), 1, ends > 0);
        double *step = ares_arena_alloc(arena, (size_t)(c.rows + 1) * sizeof *step);
        for (int64_t i = 0; i < c.rows; i++) {
            step[i] = c.step[i];
            l->steps += step[i] > 0;
            l->last_step = ARES_MAX(l->last_step, (int64_t)step[i]);
        }
        l->rows = c.rows;
        l->step = step;
        l->n_series = c.n;
        l->series = ares_arena_alloc(arena, (size_t)(c.n + 1) * sizeof *l->series);
        for (int64_t k = 0; k < c.n; k++) {
            double *value = ares_arena_alloc(arena, (size_t)(c.rows + 1) * sizeof *value);
            if (c.rows) memcpy(value, c.value[k], (size_t)c.rows * sizeof *value);
            ares_view name = ares_map_key(c.names, k);
            l->series[k] =
                (ares_look_series){ { ares_arena_copy(arena, name.data, name.len), name.len },
                                    value };
        }
    }
    for (int64_t k = 0; k < c.n; k++) ares_free(c.value[k]);
    ares_free(c.value);
    ares_free(c.step);
    ares_map_free(c.names);
    ares_str_fini(&head);
    ares_str_fini(&tail);
    return rc;
}

const double *ares_look_values(const ares_look *l, const char *metric)
{
    for (int64_t k = 0; k < l->n_series; k++)
        if (ares_view_is(l->series[k].name, metric)) return l->series[k].value;
    return NULL;
}

double ares_look_last(const ares_look *l, const char *metric)
{
    const double *v = ares_look_values(l, metric);
    for (int64_t i = l->rows; v && i-- > 0;)
        if (!isnan(v[i])) return v[i];
    return NAN;
}

void look_add(ares_arena *arena, ares_look *l, const char *name, const double *value)
{
    ares_look_series *series = ares_arena_alloc(arena, (size_t)(l->n_series + 1) * sizeof *series);
    if (l->n_series) memcpy(series, l->series, (size_t)l->n_series * sizeof *series);
    series[l->n_series++] = (ares_look_series){ ares_view_of(name), value };
    l->series = series;
}

/* ---------------------------------------------------------------- options and state */

/*
 * config.yaml as it stands, whatever options this program knows: it is indented into the value of
 * one option that may hold anything.
 */
static const ares_option *anything(int *n)
{
    static const ares_option table[] = {
        { .path = "run", .type = ARES_OPTION_tree, .text = "{}", .constraint = "map" },
    };
    *n = ARES_COUNT(table);
    return table;
}

/*
 * Whether a brief reading keeps the line: it begins a section, or has an option that the state or a
 * verdict asks for. Items of lists are left out whole; *item: the column of the one that is left,
 * -1: none. Most of the time of reading a thousand runs would go into their other options.
 */
static bool is_asked(ares_view line, int *item)
{
    static const char *const keys[] = { "rollout_batch_size", "n",         "ppo_epochs",
                                        "global_batch_size",  "max_steps", "max_response_length",
                                        "max_grad_norm" };
    int column = 0;
    while ((size_t)column < line.len && line.data[column] == ' ') column++;
    ares_view text = ares_view_trim(line);
    if (*item >= 0 && column > *item) return false;
    *item = text.len && text.data[0] == '-' ? column : -1;
    if (!text.len || *item >= 0) return false;
    if (text.data[text.len - 1] == ':') return true;
    const char *colon = memchr(text.data, ':', text.len);
    for (int i = 0; colon && i < ARES_COUNT(keys); i++)
        if (ares_view_is((ares_view){ text.data, (size_t)(colon - text.data) }, keys[i]))
            return true;
    return false;
}

static void read_config(ares_arena *arena, ares_look *l, const char *path, bool brief)
{
    ares_str text = { 0 }, indented = { 0 }, json = { 0 };
    if (!ares_file_exists(path)) return;
    if (ares_file_read(path, &text) == ARES_OK) {
        struct {
            const ares_json *run;
        } bound = { 0 };
        ares_config *cfg = ares_config_new();
        ares_str_add_z(&indented, "run:\n");
        int item = -1;
        for (const char *at = text.data, *end = at + text.len; at < end;) {
            const char *stop = memchr(at, '\n', (size_t)(end - at));
            ares_view line = { at, (size_t)((stop ? stop + 1 : end) - at) };
            at += line.len;
            if (brief && !is_asked(line, &item)) continue;
            ares_str_add_z(&indented, "  ");
            ares_str_add_view(&indented, line);
        }
        ares_config_add_options(cfg, NULL, anything, &bound);
        ares_config_load_text(cfg, path, ares_str_view(&indented));
        ares_config_resolve(cfg);
        const ares_json *tree = ares_config_get(cfg, "run");
        if (ares_config_finish(cfg) == ARES_OK && tree && tree->type == ARES_JSON_OBJECT) {
            ares_json_write(&json, tree);
            const char *copy = ares_arena_copy(arena, json.data, json.len);
            (void)ares_json_parse(arena, (ares_view){ copy, json.len }, path, &l->config);
        }
        ares_config_free(cfg);
    }
    if (!l->config) look_note(arena, l, "config.yaml: not readable: options are not known");
    ares_error_clear();
    ares_str_fini(&text);
    ares_str_fini(&indented);
    ares_str_fini(&json);
}

/* A file of one JSON object; NULL where there is none, or it is something else. */
static const ares_json *read_object(ares_arena *arena, const char *path)
{
    ares_str text = { 0 };
    const ares_json *v = NULL;
    if (ares_file_exists(path) && ares_file_read(path, &text) == ARES_OK && text.len) {
        ares_view whole = ares_view_trim(ares_str_view(&text));
        const char *copy = ares_arena_copy(arena, whole.data, whole.len);
        if (ares_json_parse(arena, (ares_view){ copy, whole.len }, path, &v) != ARES_OK) v = NULL;
    }
    ares_error_clear();
    ares_str_fini(&text);
    return v && v->type == ARES_JSON_OBJECT ? v : NULL;
}

static const char *text_of(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type == ARES_JSON_STRING && v->text.len ? v->text.data : NULL;
}

/* DONE is JSON with "stopped" where a control ended the run; DONE of older runs is empty. */
static void read_state(ares_arena *arena, ares_look *l)
{
    ares_str path = { 0 };
    l->run = read_object(arena, ares_path_join(&path, l->dir, "run.json"));
    bool done = ares_file_exists(ares_path_join(&path, l->dir, "DONE"));
    if (done) {
        l->stopped = text_of(read_object(arena, path.data), "stopped");
        l->state = l->stopped ? ARES_LOOK_STOPPED : ARES_LOOK_FINISHED;
    } else if (ares_lock_held(l->dir)) l->state = ARES_LOOK_RUNNING;
    else {
        l->stopped = text_of(l->run, "stopped");
        l->state = l->stopped ? ARES_LOOK_STOPPED : ARES_LOOK_DIED;
    }
    /* of a run by epochs its checkpoints know the steps */
    double most = look_option_number(l, "trainer.max_steps", -1);
    if (most < 0 && l->state != ARES_LOOK_FINISHED) {
        ares_str name = { 0 };
        if (ares_checkpoint_latest(ares_path_join(&path, l->dir, "checkpoints"), &name) ==
                ARES_OK &&
            name.len) {
            ares_str_addf(&path, "/%s/state.json", name.data);
            const ares_json *total = ares_json_get(read_object(arena, path.data), "total_steps");
            if (is_number(total)) most = total->number;
        }
        ares_error_clear();
        ares_str_fini(&name);
    }
    l->planned = l->state == ARES_LOOK_FINISHED ? l->last_step : (int64_t)most;
    ares_str_fini(&path);
}

int ares_look_read(ares_arena *arena, const char *dir, int64_t ends, ares_look *out)
{
    ares_str path = { 0 };
    *out = (ares_look){ .dir = ares_arena_printf(arena, "%s", dir), .planned = -1 };
    int rc = ARES_OK;
    if (!ares_file_exists(ares_path_join(&path, dir, "metrics.jsonl")))
        rc = ares_fail(ARES_EUSE,
                       "'%s': no metrics.jsonl: not a run directory, or its first step has not "
                       "ended",
                       dir);
    else rc = read_metrics(arena, out, path.data, ends);
    if (rc == ARES_OK) {
        read_config(arena, out, ares_path_join(&path, dir, "config.yaml"), ends > 0);
        read_state(arena, out);
    }
    ares_str_fini(&path);
    return rc;
}

const ares_json *look_option(const ares_look *l, const char *path)
{
    const ares_json *at = l->config;
    for (const char *dot; at && *path; path = *dot ? dot + 1 : dot) {
        dot = strchrnul(path, '.');
        at = ares_json_find(at, (ares_view){ path, (size_t)(dot - path) });
    }
    return at;
}

bool look_option_true(const ares_look *l, const char *path)
{
    const ares_json *v = look_option(l, path);
    return v && v->type == ARES_JSON_BOOL && v->boolean;
}

double look_option_number(const ares_look *l, const char *path, double absent)
{
    const ares_json *v = look_option(l, path);
    return is_number(v) ? v->number : absent;
}

const char *ares_look_state_name(ares_look_state state)
{
    static const char *const names[] = { "running", "finished", "stopped", "died" };
    return names[state];
}

/* ---------------------------------------------------------------- files by step */

/* The steps of the files step_<digits>.jsonl of a folder, rising. Returns how many. */
int64_t look_files(ares_arena *arena, const char *dir, const char *folder, int64_t **steps)
{
    ares_str path = { 0 };
    int64_t n = 0, room = 0, *found = NULL;
    DIR *d = opendir(ares_path_join(&path, dir, folder));
    for (struct dirent *e; d && (e = readdir(d));) {
        long long step;
        char name[64];
        if (sscanf(e->d_name, "step_%lld", &step) != 1) continue;
        snprintf(name, sizeof name, "step_%06lld.jsonl", step);
        if (strcmp(name, e->d_name) != 0) continue;
        if (n == room) found = ares_realloc(found, (size_t)(room = 2 * room + 64) * sizeof *found);
        found[n++] = step;
    }
    if (d) closedir(d);
    if (n) ares_sort_i64(found, n);
    *steps = ares_arena_alloc(arena, (size_t)(n + 1) * sizeof **steps);
    if (n) memcpy(*steps, found, (size_t)n * sizeof *found);
    ares_free(found);
    ares_str_fini(&path);
    return n;
}

const char *look_file(ares_str *path, const char *dir, const char *folder, int64_t step)
{
    ares_str_clear(path);
    ares_str_addf(path, "%s/%s/step_%06lld.jsonl", dir, folder, (long long)step);
    return path->data;
}

/* ---------------------------------------------------------------- different answers */

/* The rows of a sample, which are its turns, become one; copies of a row (batch_adjust_mode) too.
 */
static int64_t join_turns(look_answer *a, int64_t n)
{
    int64_t kept = 0, end;
    ares_sort_records(a, n, sizeof *a);
    for (int64_t i = 0; i < n; i = end) {
        uint64_t text = 0;
        for (end = i; end < n && a[end].draw == a[i].draw && a[end].sample == a[i].sample; end++) {
            bool copy = false;
            for (int64_t k = i; k < end && !copy; k++) copy = a[k].turn == a[end].turn;
            if (!copy) text += a[end].text;
        }
        a[kept] = a[i];
        a[kept++].text = text;
    }
    return kept;
}

double look_distinct(look_answer *a, int64_t n)
{
    double sum = 0, groups = 0;
    int64_t end;
    n = join_turns(a, n);
    for (int64_t i = 0; i < n; i = end) {
        double distinct = 0;
        for (end = i; end < n && a[end].draw == a[i].draw; end++) {
            int64_t k = i;
            while (k < end && a[k].text != a[end].text) k++;
            distinct += k == end;
        }
        if (end - i < 2) continue;
        sum += distinct / (double)(end - i);
        groups++;
    }
    return groups > 0 ? sum / groups : NAN;
}

look_answer look_answer_of(const ares_json *row)
{
    look_answer a = { 0 };
    const ares_json *text = ares_json_get(row, "response");
    (void)ares_json_get_i64(row, "draw", 0, &a.draw);
    (void)ares_json_get_i64(row, "sample", 0, &a.sample);
    (void)ares_json_get_i64(row, "turn", 0, &a.turn);
    a.text = ares_fnv1a(ARES_FNV1A, &a.turn, sizeof a.turn);
    if (text && text->type == ARES_JSON_STRING)
        a.text = ares_fnv1a(a.text, text->text.data, text->text.len);
    return a;
}

void look_read_distinct(ares_arena *arena, ares_look *l)
{
    int64_t *steps, files = look_files(arena, l->dir, "rollouts", &steps), room = 0;
    double *share = ares_arena_alloc(arena, (size_t)(l->rows + 1) * sizeof *share);
    look_answer *a = NULL;
    ares_str path = { 0 };
    bool any = false;
    for (int64_t i = 0, f = 0; i < l->rows; i++) {
        ares_jsonl *in;
        const ares_json *row;
        int64_t n = 0;
        share[i] = NAN;
        while (f < files && (double)steps[f] < l->step[i]) f++;
        if (f == files || (double)steps[f] != l->step[i] ||
            ares_jsonl_open(look_file(&path, l->dir, "rollouts", steps[f]), &in) != ARES_OK)
            continue;
        while (ares_jsonl_next(in, &row, NULL) > 0) {
            if (n == room) a = ares_realloc(a, (size_t)(room = 2 * room + 64) * sizeof *a);
            a[n++] = look_answer_of(row);
        }
        ares_jsonl_close(in);
        share[i] = look_distinct(a, n);
        any = any || !isnan(share[i]);
    }
    ares_error_clear();
    ares_free(a);
    ares_str_fini(&path);
    if (any) look_add(arena, l, ARES_LOOK_DISTINCT, share);
}

/* ---------------------------------------------------------------- validation */

void look_interval(const double *difference, int64_t n, double *mean, double *half_width)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += difference[i];
    *mean = n ? sum / (double)n : 0;
    for (int64_t i = 0; i < n; i++) squares += (difference[i] - *mean) * (difference[i] - *mean);
    *half_width = n > 1 ? 1.96 * sqrt(squares / (double)(n - 1) / (double)n) : 0;
}

/* A question's accuracies in both validations: sums over its samples, and how many there are. */
typedef struct question {
    double sum[2], n[2];
} question;

ares_look_paired look_validation(const char *dir)
{
    ares_look_paired p = { 0 };
    ares_arena arena = { 0 };
    ares_map *known = ares_map_new();
    question *q = NULL;
    ares_str path = { 0 }, key = { 0 };
    int64_t *steps, files = look_files(&arena, dir, "validation", &steps), room = 0;
    for (int when = 0; files > 1 && when < 2; when++) {
        ares_jsonl *in;
        const ares_json *row;
        p.step[when] = steps[when ? files - 1 : 0];
        if (ares_jsonl_open(look_file(&path, dir, "validation", p.step[when]), &in) != ARES_OK)
            break;
        while (ares_jsonl_next(in, &row, NULL) > 0) {
            const ares_json *accuracy = ares_json_get(row, "accuracy");
            if (!is_number(accuracy)) continue;
            look_question(row, &key);
            int64_t at;
            if (!ares_map_get(known, ares_str_view(&key), &at)) {
                at = ares_map_count(known);
                ares_map_put(known, ares_str_view(&key), at);
                if (at == room) q = ares_realloc(q, (size_t)(room = 2 * room + 64) * sizeof *q);
                q[at] = (question){ 0 };
            }
            q[at].sum[when] += accuracy->number;
            q[at].n[when]++;
        }
        ares_jsonl_close(in);
    }
    int64_t n = ares_map_count(known);
    double *difference = ares_malloc((size_t)(n + 1) * sizeof *difference);
    for (int64_t i = 0; i < n; i++) {
        if (q[i].n[0] == 0 || q[i].n[1] == 0) continue;
        double a = q[i].sum[0] / q[i].n[0], b = q[i].sum[1] / q[i].n[1];
        p.accuracy[0] += a;
        p.accuracy[1] += b;
        difference[p.n++] = b - a;
    }
    for (int when = 0; p.n && when < 2; when++) p.accuracy[when] /= (double)p.n;
    look_interval(difference, p.n, &p.mean, &p.half_width);
    ares_error_clear();
    ares_free(difference);
    ares_free(q);
    ares_map_free(known);
    ares_str_fini(&path);
    ares_str_fini(&key);
    ares_arena_fini(&arena);
    return p;
}

/* What two rows about the same question have in common: data set and row, else its text. */
void look_question(const ares_json *row, ares_str *key)
{
    const ares_json *set = ares_json_get(row, "data_set"), *id = ares_json_get(row, "row"),
                    *text = ares_json_get(row, "question");
    ares_str_clear(key);
    if (set && set->type == ARES_JSON_STRING) ares_str_add_view(key, set->text);
    ares_str_add_char(key, '\n');
    if (id && id->type == ARES_JSON_INT) ares_str_addf(key, "%lld", (long long)id->integer);
    else if (text && text->type == ARES_JSON_STRING) ares_str_add_view(key, text->text);
}
