/*
 * ares-train show: first reading the rollouts of a run, which `grade` does too, then the command.
 */
#include "cli.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Reads rollouts/step_*.jsonl and validation/step_*.jsonl. A file may be half written, by a run
 * that goes on or was killed, or made by another program. Rows are checked here, so that what
 * prints them can rely on their members.
 */

/* ---------------- which steps there are */
/* The steps that the folder has files of, unsorted: *out [*n], in the arena. */
static int find_steps(ares_arena *arena, const char *folder, int64_t **out, int64_t *n)
{
    DIR *d = opendir(folder);
    int64_t capacity = 0, step;
    int end;
    *out = NULL;
    *n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        end = 0;
        const char *digits = e->d_name + 5; /* step_000012.jsonl */
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

int rollouts_steps(ares_arena *arena, const char *verb, const char *dir, const char *folder,
                   int64_t **out, int64_t *n)
{
    if (!ares_dir_exists(dir))
        return ares_fail(ARES_EUSE,
                         "%s: '%s': no such directory; name that of a run ('ares-train runs' lists "
                         "them)",
                         verb, dir);
    if (find_steps(arena, ares_arena_printf(arena, "%s/%s", dir, folder), out, n) != ARES_OK)
        return ares_fail(
            ARES_EUSE,
            strcmp(folder, "rollouts") == 0
                ? "%s: '%s': no folder %s there; name the directory of a run "
                  "whose trainer.rollout_log is text or tokens ('ares-train runs' lists runs)"
                : "%s: '%s': no folder %s there; the run has validated nothing "
                  "(data.val_files, trainer.val_freq)",
            verb, dir, folder);
    if (!*n) return ares_fail(ARES_EUSE, "%s: '%s': %s has no step yet", verb, dir, folder);
    ares_sort_i64(*out, *n);
    return ARES_OK;
}

/* The path of the step's file; *step -1 becomes the last one. */
static int find_file(ares_arena *arena, const char *verb, const char *dir, const char *folder,
                     int64_t *step, const char **path)
{
    int64_t *steps, n;
    ARES_TRY(rollouts_steps(arena, verb, dir, folder, &steps, &n));
    if (*step < 0) *step = steps[n - 1];
    *path = ares_arena_printf(arena, "%s/%s/step_%06lld.jsonl", dir, folder, (long long)*step);
    if (ares_file_exists(*path)) return ARES_OK;
    ares_str there = { 0 };
    for (int64_t i = 0, end; i < n; i = end) { /* as ranges: "1 to 4, 7" */
        for (end = i + 1; end < n && steps[end] == steps[end - 1] + 1;) end++;
        ares_str_addf(&there, "%s%lld", i ? ", " : "", (long long)steps[i]);
        if (end > i + 1) ares_str_addf(&there, " to %lld", (long long)steps[end - 1]);
    }
    ares_fail(ARES_EUSE, "%s: --step = %lld: '%s' has no such step; there are %s", verb,
              (long long)*step, dir, there.data);
    ares_str_fini(&there);
    return ARES_EUSE;
}

/* ---------------- rows */
/* A number of a row or turn; `absent`: it is not there. */
static double rollouts_number(const ares_json *o, const char *key, double absent)
{
    const ares_json *x = ares_json_get(o, key);
    return x && (x->type == ARES_JSON_INT || x->type == ARES_JSON_FLOAT) ? x->number : absent;
}

/* A text of a row or turn; empty where it is not there. */
static ares_view rollouts_text(const ares_json *o, const char *key)
{
    const ares_json *x = ares_json_get(o, key);
    return x && x->type == ARES_JSON_STRING ? x->text : (ares_view){ "", 0 };
}

/* The failure for a row that no run of ours has written. */
static int foreign(const char *key, const char *what)
{
    return ares_fail(ARES_EFORMAT, "'%s': %s; this is no row of a rollout, or a damaged one", key,
                     what);
}

/* The member must be there and of this type. */
static int expect(const ares_json *o, const char *key, ares_json_type type, const char *what)
{
    const ares_json *x = ares_json_get(o, key);
    return x && x->type == type ? ARES_OK : foreign(key, what);
}

/* A whole number from 0 on. */
static bool is_count(const ares_json *x)
{
    return x->type == ARES_JSON_INT && !x->big && x->integer >= 0;
}

/* The member must be runs [first, count] in ascending order that end at `most` or before. */
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
    if (turns) {
        /* of an episode; the last one may only say why the episode failed */
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
    }
    ares_view response = rollouts_text(row, "response");
    int64_t length = 0; /* in characters, as the runs count */
    for (size_t i = 0; i < response.len; i++)
        length += ((unsigned char)response.data[i] & 0xc0) != 0x80;
    static const char *const runs_of_tokens[] = { "trained", "clipped", "hwe" };
    for (int i = 0; i < ARES_COUNT(runs_of_tokens); i++)
        ARES_TRY(check_runs(row, runs_of_tokens[i], INT64_MAX));
    ARES_TRY(check_runs(row, "trained_text", length));
    const ares_json *ends = ares_json_get(row, "turn_ends"); /* places that do not descend */
    int64_t at = 0;
    if (!ends) return ARES_OK;
    bool good = ends->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; good && i < ends->count; i++) {
        good = is_count(&ends->items[i]) && ends->items[i].integer >= at &&
               ends->items[i].integer <= length;
        at = good ? ends->items[i].integer : 0;
    }
    return good ? ARES_OK : foreign("turn_ends", "not a list of places within the response");
}

/* ---------------- episodes */
/* By data set, prompt, sample and turn: the order of rollouts_step. */
static int by_number(const void *a, const void *b)
{
    /* rows of training have a draw, of a validation a row; missing ones count as 0 */
    static const char *const keys[] = { "draw", "row", "sample", "turn" };
    const ares_json *x = *(const ares_json *const *)a, *y = *(const ares_json *const *)b;
    int sets = strcmp(rollouts_text(x, "data_set").data, rollouts_text(y, "data_set").data);
    if (sets) return sets;
    for (int i = 0; i < ARES_COUNT(keys); i++) {
        double k = rollouts_number(x, keys[i], 0), l = rollouts_number(y, keys[i], 0);
        if (k != l) return ARES_CMP(k, l);
    }
    return 0;
}

/* Whether two rows have the same number under a key. */
static bool same(const ares_json *x, const ares_json *y, const char *key)
{
    return rollouts_number(x, key, 0) == rollouts_number(y, key, 0);
}

/* The episode that begins with this row; the turns of all its rows are in each of them. */
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

/* Parses and checks all lines, sorts them, and groups the rows of an episode. */
static int read_rows(ares_arena *arena, const char *verb, ares_view text, bool validation,
                     rollouts_step *out)
{
    const char *at = text.data, *end = at + text.len, *line_end;
    int64_t lines = 0, n = 0;
    for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
    /* a last line without an end is not parsed: the run may be writing it */
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
    /* rows of one episode, and copies of a row, are now neighbours */
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
    return ARES_OK;
}

/* step -1: the last one. */
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

/*
 * ares-train show: what a run's policy read and wrote in a step or a validation, turn by turn.
 */

enum { COLUMNS = 8 }; /* of the list, at most */

typedef struct job {
    const char *color;
    int64_t step, episode;
    bool colored, validation, tokens;
    rollouts_step of;
    ares_arena arena;
    ares_str out;
} job;

/* ---------------- texts
 * Models and programs wrote them, so all go through cli_add_safe.
 */
/* TRAINED: the loss counted it; NOTE: written by this command */
typedef enum { PLAIN, TRAINED, NOTE } paint;

/* A colour ends with each line, so that pagers keep it; without colour, marks enclose the text. */
static void add_painted(job *j, ares_view text, paint p)
{
    /* by paint: green, faint */
    static const char *const codes[] = { "", "\033[32m", "\033[2m" };
    if (!text.len) return;
    if (p == PLAIN || (!j->colored && p == NOTE)) {
        cli_add_safe(&j->out, text);
        return;
    }
    if (!j->colored) {
        ares_str_add_z(&j->out, "{+");
        cli_add_safe(&j->out, text);
        ares_str_add_z(&j->out, "+}");
        return;
    }
    for (size_t i = 0, end; i < text.len; i = end + 1) {
        for (end = i; end < text.len && text.data[end] != '\n';) end++;
        if (end > i) {
            ares_str_add_z(&j->out, codes[p]);
            cli_add_safe(&j->out, (ares_view){ text.data + i, end - i });
            ares_str_add_z(&j->out, "\033[0m");
        }
        if (end < text.len) ares_str_add_char(&j->out, '\n');
    }
}

/* Begins a new line unless the output is at one. */
static void end_line(job *j)
{
    if (j->out.len && j->out.data[j->out.len - 1] != '\n') ares_str_add_char(&j->out, '\n');
}

/* An integer as written, a float with 6 digits; "-": there is none. */
static void add_number(ares_str *out, const ares_json *x)
{
    if (x && x->type == ARES_JSON_INT) ares_str_add_view(out, x->text);
    else if (x && x->type == ARES_JSON_FLOAT) ares_str_addf(out, "%.6g", x->number);
    else ares_str_add_char(out, '-');
}

/* The number under a key. */
static void add_value(ares_str *out, const ares_json *o, const char *key)
{
    add_number(out, ares_json_get(o, key));
}

/* "; success 1, accuracy 0": the members of an object of numbers. */
static void add_members(ares_str *out, const ares_json *o, const char *before)
{
    for (int64_t i = 0; o && o->type == ARES_JSON_OBJECT && i < o->count; i++) {
        ares_str_add_z(out, i ? ", " : before);
        cli_add_line(out, o->members[i].key);
        ares_str_add_char(out, ' ');
        add_number(out, o->members[i].value);
    }
}

/* ---------------- how it went */
/* Adds how the episode ended: "won", "failed: the process has ended" ... */
static void add_end(const rollouts_episode *e, ares_str *out)
{
    ares_view end = { "", 0 };
    const ares_json *row = e->rows[0], *finished = ares_json_get(row, "finished");
    bool over = finished && finished->type == ARES_JSON_BOOL && finished->boolean;
    if (e->n_turns) end = rollouts_text(&e->turns[e->n_turns - 1], "end");
    if (e->failure.len) {
        ares_str_add_z(out, "failed: ");
        cli_add_line(out, e->failure);
    } else if (end.len) cli_add_line(out, end);
    else if (e->played) ares_str_add_z(out, over ? "over" : "no turns left");
    else ares_str_add_z(out, over ? "stopped" : "cut by the limit of length");
    if (ares_json_get(row, "discarded")) ares_str_add_z(out, ", discarded");
}

/* A number of the turns, summed over the episode. */
static double sum_of(const rollouts_episode *e, const char *key)
{
    double sum = 0;
    for (int64_t t = 0; t < e->n_turns; t++) sum += rollouts_number(&e->turns[t], key, 0);
    return sum;
}

/* ---------------- the list */

/* A validation names the data set where it is one of several. */
static void add_source(ares_str *out, const ares_json *row)
{
    ares_view set = rollouts_text(row, "data_set");
    cli_add_line(out, set.len ? set : rollouts_text(row, "data_source"));
}

/* A line for each episode or answer of the step. */
static void list(job *j)
{
    static const char *const episodes[COLUMNS] = { "episode", "tag",     "seed", "turns",
                                                   "score",   "success", "end" };
    static const char *const answers[COLUMNS] = { "episode", "source",   "row", "sample",
                                                  "score",   "accuracy", "end" };
    const rollouts_step *s = &j->of;
    /* [n][COLUMNS]; the table needs all of them for the widths */
    ares_str *cells = ares_calloc((size_t)s->n * COLUMNS, sizeof *cells);
    for (int64_t i = 0; i < s->n; i++) {
        const rollouts_episode *e = &s->episodes[i];
        const ares_json *row = e->rows[0];
        ares_str *cell = &cells[i * COLUMNS];
        ares_str_addf(&cell[0], "%lld", (long long)i + 1);
        add_source(&cell[1], row);
        add_value(&cell[2], row, ares_json_get(row, "seed") ? "seed" : "row");
        if (e->played) ares_str_addf(&cell[3], "%lld", (long long)e->n_answered);
        else add_value(&cell[3], row, "sample");
        add_value(&cell[4], row, "score");
        if (e->played)
            ares_str_add_z(&cell[5], rollouts_number(row, "accuracy", 0) == 1 ? "yes" : "no");
        else add_value(&cell[5], row, "accuracy");
        add_end(e, &cell[6]);
    }
    const char *const *heads = s->episodes[0].played ? episodes : answers; /* NULL after the last */
    int width[COLUMNS] = { 0 }, n = 0;
    for (; n < COLUMNS && heads[n]; n++) {
        width[n] = (int)strlen(heads[n]);
        for (int64_t i = 0; i < s->n; i++)
            width[n] = ARES_MAX(width[n], (int)cells[i * COLUMNS + n].len);
    }
    for (int64_t i = -1; i < s->n; i++) /* -1: the heads */
        for (int k = 0; k < n; k++) {
            const ares_str *cell = i < 0 ? NULL : &cells[i * COLUMNS + k];
            const char *text = !cell ? heads[k] : cell->data ? cell->data : "";
            ares_str_add_z(&j->out, text);
            if (k + 1 == n) ares_str_add_char(&j->out, '\n');
            else ares_str_addf(&j->out, "%*s", width[k] - (int)strlen(text) + 2, "");
        }
    for (int64_t i = 0; i < s->n * COLUMNS; i++) ares_str_fini(&cells[i]);
    ares_free(cells);
}

/* ---------------- an episode */
/*
 * Adds "[turn 2: Left || Up; 2 executed; reward -0.2; ..]" on lines of its own. sampled: what the
 * model wrote, where the row has another text; else empty.
 */
static void note_turn(job *j, const rollouts_episode *e, int64_t turn, ares_view sampled)
{
    const ares_json *t = &e->turns[turn], *actions = ares_json_get(t, "actions");
    ares_str note = { 0 };
    end_line(j);
    ares_str_addf(&note, "[turn %lld: ", (long long)turn + 1);
    for (int64_t i = 0; i < actions->count; i++) {
        if (i) ares_str_add_z(&note, " || ");
        cli_add_line(&note, actions->items[i].text);
    }
    if (!ares_json_get(t, "k")) { /* else it is a request of a program that plays by itself */
        if (!actions->count) ares_str_add_z(&note, "no action");
        ares_str_addf(&note, "; %g executed; reward ", rollouts_number(t, "executed", 0));
        add_value(&note, t, "reward");
        if (rollouts_number(t, "penalty", 0) != 0)
            ares_str_addf(&note, ", penalty %g", rollouts_number(t, "penalty", 0));
        ares_str_add_z(&note, "; ");
    }
    ares_str_addf(&note, "%g tokens", rollouts_number(t, "n_tokens", 0));
    add_members(&note, ares_json_get(t, "info"), "; ");
    ares_str_add_char(&note, ']');
    if (sampled.len) {
        ares_str_add_z(&note, "\n[it wrote: ");
        cli_add_line(&note, sampled);
        ares_str_add_char(&note, ']');
    }
    add_painted(j, ares_str_view(&note), NOTE);
    ares_str_add_char(&j->out, '\n');
    ares_str_fini(&note);
}

/* A turn that no row shows: it has left the context, or its row was deleted. */
static void show_hidden(job *j, const rollouts_episode *e, int64_t turn)
{
    end_line(j);
    ares_str_addf(&j->out, "--- turn %lld is not trained: it is in no row of the batch\n",
                  (long long)turn + 1);
    add_painted(j, rollouts_text(&e->turns[turn], "state"), PLAIN);
    end_line(j);
    add_painted(j, rollouts_text(&e->turns[turn], "response"), PLAIN);
    note_turn(j, e, turn, (ares_view){ "", 0 });
}

/* A place in a UTF-8 text: runs count characters, and the text is stored in bytes. */
typedef struct place {
    int64_t character;
    size_t byte;
} place;

/* Moves on to a character; going only forward, a text is read once. */
static void go_to(place *at, ares_view text, int64_t character)
{
    while (at->character < character && at->byte < text.len) {
        do at->byte++;
        while (at->byte < text.len && ((unsigned char)text.data[at->byte] & 0xc0) == 0x80);
        at->character++;
    }
}

/* Adds the text from *at up to the character `end`; what the runs name is painted as trained. */
static void add_until(job *j, ares_view text, const ares_json *runs, place *at, int64_t end)
{
    for (int64_t i = 0; runs && i < runs->count; i++) {
        int64_t first = runs->items[i].items[0].integer,
                after = first + runs->items[i].items[1].integer;
        /* part 0: what stands before the run; part 1: the run */
        for (int part = 0; part < 2; part++) {
            int64_t to = ARES_MIN(part ? after : first, end);
            size_t from = at->byte;
            if (to <= at->character) continue;
            go_to(at, text, to);
            add_painted(j, (ares_view){ text.data + from, at->byte - from },
                        part ? TRAINED : PLAIN);
        }
    }
    size_t from = at->byte;
    go_to(at, text, end);
    add_painted(j, (ares_view){ text.data + from, at->byte - from }, PLAIN);
}

/*
 * Whether a turn has an entry in "turn_ends" of the row that holds it. Where sampled ids were kept,
 * a turn without any has none.
 */
static bool ends_in_row(const rollouts_episode *e, const ares_json *row, int64_t turn)
{
    const ares_json *exact = ares_json_get(row, "token_exact");
    bool sampled = exact && exact->type == ARES_JSON_BOOL && exact->boolean;
    return !sampled || rollouts_number(&e->turns[turn], "n_tokens", 0) > 0;
}

/* The rows of an episode in the order of their turns; turns in no row are shown between them. */
static void show_played(job *j, const rollouts_episode *e)
{
    int64_t shown = 0; /* turns */
    for (int64_t r = 0; r < e->n; r++) {
        const ares_json *row = e->rows[r];
        bool one = ares_json_get(row, "turn") != NULL;
        int64_t last = one ? (int64_t)rollouts_number(row, "turn", 0) : e->n_answered - 1;
        last = ARES_MIN(ARES_MAX(last, -1), e->n_turns - 1);
        /*
         * "turn_ends" has a place per turn that ends in the row: count them back from the last; a
         * row without it holds all turns.
         */
        const ares_json *ends = ares_json_get(row, "turn_ends");
        int64_t left = one ? 0 : ends ? ends->count : INT64_MAX, first = one ? last : last + 1;
        while (left > 0 && first > 0) left -= ends_in_row(e, row, --first);
        for (; shown < first; shown++) show_hidden(j, e, shown);
        if (one) ares_str_addf(&j->out, "--- turn %lld\n", (long long)last + 1);
        /* the row holds turns [first, last]; a note follows each of them */
        ares_view text = rollouts_text(row, "response");
        const ares_json *runs = ares_json_get(row, "trained_text"),
                        *exact = ares_json_get(e->rows[0], "token_exact");
        /* then the row may hold a normalised text in place of what the model wrote */
        bool inexact = exact && exact->type == ARES_JSON_BOOL && !exact->boolean;
        place at = { 0 };
        int64_t turn = first;
        add_painted(j, rollouts_text(row, "prompt"), PLAIN);
        for (int64_t i = 0; ends && i < ends->count && turn <= last; i++, turn++) {
            size_t from = at.byte;
            add_until(j, text, runs, &at, ends->items[i].integer);
            while (turn < last && !ends_in_row(e, row, turn))
                note_turn(j, e, turn++, (ares_view){ "", 0 });
            ares_view segment = { text.data + from, at.byte - from },
                      wrote = ares_view_trim(rollouts_text(&e->turns[turn], "response"));
            bool other = inexact && ares_view_find(segment, wrote, 0) < 0;
            note_turn(j, e, turn, other ? wrote : (ares_view){ "", 0 });
        }
        ares_view rest = { text.data + at.byte, text.len - at.byte };
        if (ares_view_trim(rest).len) add_until(j, text, runs, &at, INT64_MAX);
        for (; turn <= last; turn++) note_turn(j, e, turn, (ares_view){ "", 0 });
        end_line(j);
        shown = ARES_MAX(shown, last + 1);
    }
    for (; shown < e->n_turns; shown++) show_hidden(j, e, shown);
}

/* A plain answer: prompt, response, and the ground truth where there is one. */
static void show_answer(job *j, const rollouts_episode *e)
{
    const ares_json *row = e->rows[0];
    ares_view truth = rollouts_text(row, "ground_truth");
    add_painted(j, rollouts_text(row, "prompt"), PLAIN);
    add_painted(j, rollouts_text(row, "response"),
                j->validation || ares_json_get(row, "discarded") ? PLAIN : TRAINED);
    end_line(j);
    if (!truth.len) return;
    ares_str note = { 0 };
    ares_str_add_z(&note, "[ground truth: ");
    cli_add_line(&note, truth);
    ares_str_add_char(&note, ']');
    add_painted(j, ares_str_view(&note), NOTE);
    ares_str_add_char(&j->out, '\n');
    ares_str_fini(&note);
}

/* Whether token i lies in the runs of the row, which check_row has seen. */
static bool in_runs(const ares_json *runs, int64_t i)
{
    for (int64_t k = 0; runs && k < runs->count; k++) {
        int64_t first = runs->items[k].items[0].integer;
        if (i >= first && i - first < runs->items[k].items[1].integer) return true;
    }
    return false;
}

/* A token's text between quotes, on one line: what JSON escapes, and no control byte. */
static void add_piece(ares_str *out, ares_view text)
{
    ares_str quoted = { 0 };
    ares_json_write_string(&quoted, text);
    cli_add_safe(out, ares_str_view(&quoted));
    ares_str_fini(&quoted);
}

/*
 * A line per token of the episode's rows: number, id, the columns that the row has, marks, and the
 * text, which comes last because its width varies.
 */
static void show_tokens(job *j, const rollouts_episode *e)
{
    static const struct {
        const char *key, *head;
    } columns[] = { { "logprobs", "log-prob" },
                    { "ref_logprobs", "reference" },
                    { "entropies", "entropy" },
                    { "ratio", "ratio" },
                    { "kl", "KL" },
                    { "values", "value" } };
    static const struct {
        const char *key;
        char mark;
    } marks[] = { { "clipped", 'c' }, { "hwe", 'h' } };
    for (int64_t r = 0; r < e->n; r++) {
        const ares_json *row = e->rows[r], *ids = ares_json_get(row, "token_ids"),
                        *pieces = ares_json_get(row, "pieces"),
                        *trained = ares_json_get(row, "trained"), *list[ARES_COUNT(columns)];
        ares_str *out = &j->out;
        if (e->n > 1)
            ares_str_addf(out, "--- row %lld of %lld\n", (long long)r + 1, (long long)e->n);
        if (!ids || ids->type != ARES_JSON_ARRAY) {
            ares_str_add_z(out, "no columns of tokens: trainer.rollout_log and "
                                "trainer.rollout_log_tokens say which rows have them\n");
            continue;
        }
        ares_str_addf(out, "%6s %7s", "token", "id");
        for (int k = 0; k < ARES_COUNT(columns); k++) {
            list[k] = ares_json_get(row, columns[k].key);
            if (list[k] && (list[k]->type != ARES_JSON_ARRAY || list[k]->count != ids->count))
                list[k] = NULL;
            if (list[k]) ares_str_addf(out, " %10s", columns[k].head);
        }
        ares_str_add_z(out, "      text\n");
        for (int64_t i = 0; i < ids->count; i++) {
            const ares_json *id = &ids->items[i];
            ares_str_addf(out, "%6lld %7lld", (long long)i,
                          id->type == ARES_JSON_INT ? (long long)id->integer : -1LL);
            for (int k = 0; k < ARES_COUNT(columns); k++) {
                const ares_json *x = list[k] ? &list[k]->items[i] : NULL;
                bool number = x && (x->type == ARES_JSON_INT || x->type == ARES_JSON_FLOAT);
                if (number) ares_str_addf(out, " %10.4g", x->number);
                else if (x) ares_str_addf(out, " %10s", "-");
            }
            ares_str_add_char(out, ' ');
            for (int k = 0; k < ARES_COUNT(marks); k++)
                ares_str_add_char(out, in_runs(ares_json_get(row, marks[k].key), i) ? marks[k].mark
                                                                                    : ' ');
            bool untrained =
                trained ? !in_runs(trained, i) : ares_json_get(row, "discarded") != NULL;
            ares_str_addf(out, "%c ", untrained ? 'u' : ' ');
            if (pieces && pieces->type == ARES_JSON_ARRAY && i < pieces->count &&
                pieces->items[i].type == ARES_JSON_STRING)
                add_piece(out, pieces->items[i].text);
            ares_str_add_char(out, '\n');
        }
    }
    ares_str_add_z(&j->out, "c: clipped, h: high window entropy, u: not trained\n");
}

/* "1 row of 513 tokens, 39 of them trained; trained text is green" */
static void add_sizes(job *j, const rollouts_episode *e)
{
    /* of all rows: an episode whose context was cut has several */
    double tokens = 0;
    int64_t trained = 0;
    ares_str *out = &j->out;
    for (int64_t r = 0; r < e->n; r++) {
        const ares_json *runs = ares_json_get(e->rows[r], "trained");
        tokens += rollouts_number(e->rows[r], "n_tokens", 0);
        for (int64_t i = 0; runs && i < runs->count; i++)
            trained += runs->items[i].items[1].integer;
    }
    ares_str_addf(out, "%lld row%s of %.0f tokens", (long long)e->n, e->n == 1 ? "" : "s", tokens);
    if (j->validation) return;
    if (e->played) ares_str_addf(out, ", %lld of them trained", (long long)trained);
    if (e->copies) ares_str_addf(out, ", and %lld copies", (long long)e->copies);
    if (j->tokens) return;
    if (e->played && !ares_json_get(e->rows[0], "trained_text"))
        ares_str_add_z(out, "; the file does not say which text was trained");
    else
        ares_str_add_z(out, j->colored ? "; trained text is green"
                                       : "; trained text stands between {+ and +}");
}

/* The lines above the text: step, episode, score and end. */
static void show_head(job *j, const rollouts_episode *e)
{
    const ares_json *row = e->rows[0];
    ares_str *out = &j->out;
    ares_str_addf(out, "%sstep %lld, episode %lld of %lld: ", j->validation ? "validation of " : "",
                  (long long)j->of.step, (long long)j->episode, (long long)j->of.n);
    bool seeded = e->played && !j->validation;
    size_t before = out->len;
    add_source(out, row);
    if (out->len > before) ares_str_add_z(out, ", ");
    ares_str_add_z(out, seeded ? "seed " : "row ");
    add_value(out, row, seeded ? "seed" : "row");
    ares_str_add_z(out, seeded ? ", id " : ", sample ");
    add_value(out, row, seeded ? "id" : "sample");
    ares_str_add_z(out, "\nscore ");
    add_value(out, row, "score");
    if (e->played)
        ares_str_addf(out, " (reward %.6g, penalty %.6g)", sum_of(e, "reward"),
                      sum_of(e, "penalty"));
    add_members(out, ares_json_get(row, "rewards"), ", ");
    ares_str_add_z(out, e->played ? ", success " : ", accuracy ");
    add_value(out, row, "accuracy");
    if (!j->validation) {
        ares_str_add_z(out, ", advantage ");
        add_value(out, row, "advantage");
    }
    ares_str_add_z(out, "; ");
    add_end(e, out);
    if (e->played)
        ares_str_addf(out, "; %lld turns, %g actions", (long long)e->n_answered,
                      sum_of(e, "executed"));
    ares_str_add_char(out, '\n');
    /* the details that rewards gave for the answer, a line for each */
    const ares_json *details = ares_json_get(row, "details");
    ares_str text = { 0 };
    for (int64_t i = 0; details && i < details->count; i++) {
        ares_str_clear(&text);
        ares_json_write(&text, details->members[i].value);
        cli_add_line(out, details->members[i].key);
        ares_str_add_z(out, ": ");
        cli_add_line(out, ares_str_view(&text));
        ares_str_add_char(out, '\n');
    }
    ares_str_fini(&text);
    add_sizes(j, e);
    ares_str_add_z(out, "\n\n");
}

/* ---------------- the verb */
/* The list of a step, or one episode of it. */
static int show(job *j, const char *dir)
{
    ARES_TRY(rollouts_read(&j->arena, "show", dir, j->validation, j->step, &j->of));
    if (j->episode > j->of.n)
        return ares_fail(ARES_EUSE,
                         "show: --episode = %lld: step %lld has no such one; there are 1 to %lld",
                         (long long)j->episode, (long long)j->of.step, (long long)j->of.n);
    if (!j->episode) {
        ares_str_addf(&j->out, "%sstep %lld of %s\n", j->validation ? "validation of " : "",
                      (long long)j->of.step, dir);
        list(j);
    } else {
        const rollouts_episode *e = &j->of.episodes[j->episode - 1];
        show_head(j, e);
        if (j->tokens) show_tokens(j, e);
        else if (e->played) show_played(j, e);
        else show_answer(j, e);
    }
    if (j->of.half_written)
        ares_warn("show: %s: its last line is half written and was left out", j->of.path);
    return cli_print("show", &j->out);
}

int ares_cli_show(int argc, char **argv)
{
    static const char *const colors[] = { "auto", "always", "never", NULL };
    job j = { .color = "auto", .step = -1 };
    bool helped;
    const cli_option options[] = {
        CLI_OPTION(I64, j.step, "--step", "N", "the step; without it the last one there is",
                   .least = 0, .most = INT64_MAX),
        CLI_OPTION(FLAG, j.validation, "--validation", NULL,
                   "of the validation of that step; step 0 is before training"),
        CLI_OPTION(I64, j.episode, "--episode", "K",
                   "the episode or answer; without it all of the step are listed", .least = 1,
                   .most = INT64_MAX),
        CLI_OPTION(FLAG, j.tokens, "--tokens", NULL,
                   "of that episode a line per token: log-prob, entropy, ratio, and what else the "
                   "run has logged"),
        CLI_OPTION(TEXT, j.color, "--color", "WHEN",
                   "auto, always or never; auto: where stdout is a terminal", .choices = colors),
    };
    const cli_command command = {
        .name = "show",
        .usage = "RUN_DIR [--validation] [--step N] [--episode K [--tokens]]",
        .about =
            "Prints an episode of a run as the model read and wrote it, with the actions, "
            "rewards and numbers of each turn, and its score and end. Text that the policy was "
            "trained on is green, or stands between {+ and +} where there is no colour. Plain "
            "answers are episodes of one turn.",
        .example = "ares-train show runs/ares/frozen_lake\n"
                   "ares-train show runs/ares/frozen_lake --step 20 --episode 3 --color always | "
                   "less -R\n"
                   "ares-train show runs/ares/frozen_lake --validation --step 0",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = CLI_WORDS,
    };
    int rc = cli_read(&command, &argc, argv, &helped);
    if (rc != ARES_OK || helped) return rc;
    if (argc != 2)
        return ares_fail(ARES_EUSE, "show: %s (see ares-train show --help)",
                         argc < 2 ? "no run directory is named"
                                  : "more than one word is given; name one run directory");
    if (j.tokens && (!j.episode || j.validation))
        return ares_fail(ARES_EUSE, "show: --tokens: %s",
                         j.validation ? "validations log no tokens; leave out --validation"
                                      : "of which answer? add --episode K");
    j.colored =
        strcmp(j.color, "always") == 0 || (strcmp(j.color, "auto") == 0 && isatty(STDOUT_FILENO));
    rc = show(&j, argv[1]);
    ares_arena_fini(&j.arena);
    ares_str_fini(&j.out);
    return rc;
}
