/*
 * ares-train watch: a run in a terminal, as it goes. Twice a second it looks whether metrics.jsonl,
 * run.json, DONE or the lock have changed, by size and time, which works on network file systems
 * and over ssh; then the frame is drawn anew as a whole. It writes nothing but the frame. Texts of
 * the run are shown as `show` does: no control character of theirs reaches the terminal, nor one
 * that turns the direction of writing.
 */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>

#include "ares/io.h"
#include "ares/look.h"

enum {
    LEAST_COLUMNS = 40,
    LEAST_ROWS = 12,
    ROLLOUT_TAIL = 4 << 20,   /* bytes of the end of a file of answers that are read */
    METRICS_WHOLE = 64 << 20, /* a longer metrics.jsonl is read from both ends */
    METRICS_ENDS = 16 << 20,  /* so much of each */
    ETA_STEPS = 10,
};

/* ---------------- the screen */

typedef enum { PLAIN, DIM, BOLD, RED, YELLOW, GREEN, CYAN } colour;

typedef struct screen {
    int columns, rows;
    bool utf8, coloured;
    ares_str out; /* the frame */
    int n;        /* its lines so far */
    int at;       /* columns of the last line so far */
} screen;

/* Characters that take no column or turn the direction of writing, or that the terminal may act on.
 */
static bool is_shown(int32_t c)
{
    utf8proc_category_t kind = utf8proc_category(c);
    return kind != UTF8PROC_CATEGORY_CC && kind != UTF8PROC_CATEGORY_CF &&
           kind != UTF8PROC_CATEGORY_CS && kind != UTF8PROC_CATEGORY_ZL &&
           kind != UTF8PROC_CATEGORY_ZP;
}

/* What stands for a character where the terminal shows ASCII alone. */
static const char *in_ascii(int32_t c)
{
    return c == 0x2192 ? "->" : c == 0x2212 ? "-" : c == 0xB1 ? "+-" : c == 0xD7 ? "x" : "?";
}

/* Adds a text to the line, as far as there is room for it. */
static void add(screen *s, colour with, const char *text)
{
    static const char *const codes[] = { "", "2", "1", "31", "33", "32", "36" };
    const char *at = text, *end = text + strlen(text);
    bool paints = s->coloured && with != PLAIN;
    if (paints) ares_str_addf(&s->out, "\033[%sm", codes[with]);
    while (at < end) {
        uint32_t c;
        int n = ares_utf8_next(at, end, &c), width = 1;
        const char *replaced = NULL;
        if (n < 0 || !is_shown((int32_t)c)) replaced = "?";
        else if (c >= 0x80 && !s->utf8) replaced = in_ascii((int32_t)c);
        else if (c >= 0x80) width = utf8proc_charwidth((int32_t)c);
        if (replaced) width = (int)strlen(replaced);
        if (s->at + width > s->columns) break;
        if (replaced) ares_str_add_z(&s->out, replaced);
        else ares_str_add(&s->out, at, (size_t)n);
        s->at += width;
        at += n < 0 ? -n : n;
    }
    if (paints) ares_str_add_z(&s->out, "\033[0m");
}

ARES_PRINTF(3, 4)
static void addf(screen *s, colour with, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    add(s, with, text);
}

/* Ends the line: what an older frame has there is erased. */
static void end_line(screen *s)
{
    ares_str_add_char(&s->out, '\n');
    s->n++;
    s->at = 0;
}

/* ---------------- curves */

/* A curve over the steps that have the value. */
typedef struct curve {
    const char *name;
    int64_t n;
    double *x, *y;
} curve;

static bool read_curve(ares_arena *arena, const ares_look *l, const char *name, const char *metric,
                       curve *out)
{
    const double *v = metric ? ares_look_values(l, metric) : NULL;
    *out = (curve){ .name = name };
    if (!v) return false;
    out->x = ares_arena_alloc(arena, (size_t)(l->rows + 1) * sizeof *out->x);
    out->y = ares_arena_alloc(arena, (size_t)(l->rows + 1) * sizeof *out->y);
    for (int64_t i = 0; i < l->rows; i++) {
        if (isnan(v[i])) continue;
        out->x[out->n] = l->step[i];
        out->y[out->n++] = v[i];
    }
    return out->n > 0;
}

/* The curve at n places between its first and last step: means of what lies there, else between
 * neighbours. */
static void sample(const curve *c, int n, double *y)
{
    double first = c->x[0], span = c->x[c->n - 1] - first;
    int64_t i = 0;
    for (int k = 0; k < n; k++) {
        double end = first + span * (k + 1) / n, middle = first + span * (k + 0.5) / n, sum = 0;
        int64_t from = i;
        for (; i < c->n && (c->x[i] < end || k == n - 1); i++) sum += c->y[i];
        if (i > from) y[k] = sum / (double)(i - from);
        else if (from == 0) y[k] = c->y[0];
        else if (from == c->n) y[k] = c->y[c->n - 1];
        else {
            double share = (middle - c->x[from - 1]) / (c->x[from] - c->x[from - 1]);
            y[k] = c->y[from - 1] + share * (c->y[from] - c->y[from - 1]);
        }
    }
}

/* Sets a dot of cells [rows][columns] of 2 x 4 dots, of which bit i is dot i + 1 of Braille. */
static void dot(uint8_t *cells, int columns, int x, int y)
{
    static const uint8_t bits[4][2] = { { 0, 3 }, { 1, 4 }, { 2, 5 }, { 6, 7 } };
    cells[y / 4 * columns + x / 2] |= (uint8_t)(1u << bits[y % 4][x % 2]);
}

/* Draws into cells; with ASCII a cell is one dot. */
static void draw(const curve *c, bool braille, int columns, int rows, uint8_t *cells)
{
    int wide = braille ? 2 * columns : columns, high = braille ? 4 * rows : rows, before = -1;
    double *y = ares_malloc((size_t)wide * sizeof *y), low = INFINITY, top = -INFINITY;
    memset(cells, 0, (size_t)(columns * rows));
    sample(c, wide, y);
    for (int k = 0; k < wide; k++) {
        low = fmin(low, y[k]);
        top = fmax(top, y[k]);
    }
    /* rounding alone draws no mountains */
    double least = 1e-3 * fmax(fabs(low), fabs(top)), middle = (low + top) / 2;
    if (top > low && top - low < least) {
        low = middle - least / 2;
        top = middle + least / 2;
    }
    for (int k = 0; k < wide; k++) {
        double share = top > low ? (top - y[k]) / (top - low) : 0.5;
        int at = isfinite(share) ? (int)lround(share * (high - 1)) : 0;
        /* from the height of the column before to this one, so that steep parts have no gaps */
        int row = before < 0 || !braille ? at : before, step = ARES_CMP(at, row);
        for (bool more = true; more; row += step) {
            if (braille) dot(cells, columns, k, row);
            else cells[row * columns + k] = 1;
            more = row != at;
        }
        before = at;
    }
    ares_free(y);
}

/* "+12 %", "x3.1": how the last value stands to the first. */
static void change_of(double from, double to, char text[static 16])
{
    double by = 100 * (to / from - 1);
    if (from == to || fabs(by) < 0.5) snprintf(text, 16, "same");
    else if (!isfinite(by) || from < 0) snprintf(text, 16, "%+.3g", to - from);
    else if (fabs(by) >= 1000) snprintf(text, 16, "x%.3g", to / from);
    else snprintf(text, 16, "%+.0f %%", by);
}

/* A chart of some rows: beside the curve its name, first, last and change. */
static void add_chart(screen *s, const curve *c, int rows)
{
    int label = 30, columns = s->columns - label;
    uint8_t *cells = ares_malloc((size_t)(columns * rows));
    double first = c->y[0], last = c->y[c->n - 1];
    char change[16];
    change_of(first, last, change);
    draw(c, s->utf8, columns, rows, cells);
    for (int row = 0; row < rows; row++) {
        if (rows == 1) {
            addf(s, PLAIN, "%-8s ", c->name);
            addf(s, BOLD, "%.3g", last);
            addf(s, DIM, " of %.3g %s", first, change);
        } else if (row == 0) {
            addf(s, PLAIN, "%-8s ", c->name);
            addf(s, BOLD, "%.4g", last);
        } else if (row == 1) addf(s, DIM, "%-8s %.4g at first, %s", "", first, change);
        while (s->at < label) add(s, PLAIN, " ");
        ares_str text = { 0 };
        for (int k = 0; k < columns; k++) {
            unsigned bits = cells[row * columns + k];
            if (!s->utf8) ares_str_add_char(&text, bits ? '*' : ' ');
            else /* U+2800 and the dots */
                ares_str_addf(&text, "\xe2%c%c", (char)(0xA0 | bits >> 6),
                              (char)(0x80 | (bits & 0x3F)));
        }
        add(s, CYAN, text.data);
        end_line(s);
        ares_str_fini(&text);
    }
    ares_free(cells);
}

/* ---------------- what else a frame says */

typedef struct watched {
    const char *dir;
    ares_arena arena; /* of what was read last */
    ares_look look;
    ares_look_verdicts verdicts;
    bool begun; /* there are metrics */
    bool partly;
    ares_str answers[2]; /* the last two, a line each, the older first */
    int n_answers;
    uint64_t seen; /* a hash of sizes and times of what was read */
} watched;

/* Seconds as "45 s", "3:20", "2:05:00". */
static void time_as(double seconds, char text[static 32])
{
    long s = (long)(seconds + 0.5);
    if (s < 60) snprintf(text, 32, "%ld s", s);
    else if (s < 3600) snprintf(text, 32, "%ld:%02ld", s / 60, s % 60);
    else snprintf(text, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

/* The median of the last step times; NAN: none is known. */
static double time_of_step(const ares_look *l)
{
    const double *v = ares_look_values(l, "timing_s/step");
    double last[ETA_STEPS];
    int n = 0;
    for (int64_t i = l->rows; v && i-- > 0 && n < ETA_STEPS;)
        if (!isnan(v[i])) last[n++] = v[i];
    ares_sort_f64(last, n);
    return n ? (last[(n - 1) / 2] + last[n / 2]) / 2 : (double)NAN;
}

static void add_head(screen *s, const watched *w)
{
    static const colour colours[] = { GREEN, GREEN, YELLOW, RED };
    const ares_look *l = &w->look;
    ares_str name = { 0 };
    char left[32];
    cli_add_line(&name, ares_view_of(w->dir));
    /* the end of a long name tells more than its beginning */
    int room = ARES_MAX(8, s->columns - 34);
    const char *shown = name.data;
    while ((int)strlen(shown) > room) shown++;
    while (((unsigned char)*shown & 0xC0) == 0x80) shown++;
    add(s, BOLD, shown);
    ares_str_fini(&name);
    if (!w->begun) {
        add(s, PLAIN, "  the first step has not ended");
        end_line(s);
        return;
    }
    addf(s, PLAIN, "  step %lld", (long long)l->last_step);
    if (l->planned > 0) addf(s, PLAIN, "/%lld", (long long)l->planned);
    add(s, PLAIN, "  ");
    add(s, colours[l->state], ares_look_state_name(l->state));
    double each = time_of_step(l);
    if (l->state == ARES_LOOK_RUNNING && l->planned > l->last_step && !isnan(each)) {
        time_as(each * (double)(l->planned - l->last_step), left);
        addf(s, PLAIN, "  eta %s", left);
    }
    end_line(s);
}

/* The slowest part of the last step, validation and checkpoint after it included. */
static void add_phase(screen *s, const ares_look *l)
{
    double step = NAN, most = 0, beside = 0;
    ares_view name = { 0 };
    for (int64_t row = l->rows; row-- > 0 && isnan(step);) {
        const double *v = ares_look_values(l, "timing_s/step");
        if (!v || isnan(step = v[row])) continue;
        for (int64_t k = 0; k < l->n_series; k++) {
            const ares_look_series *m = &l->series[k];
            double x = m->value[row];
            if (!ares_view_starts(m->name, ARES_VIEW("timing_s/")) ||
                ares_view_is(m->name, "timing_s/step") || isnan(x))
                continue;
            if (ares_view_is(m->name, "timing_s/validation") ||
                ares_view_is(m->name, "timing_s/save_checkpoint"))
                beside += x; /* timing_s/step has ended before them */
            if (x <= most) continue;
            most = x;
            name = m->name;
        }
    }
    if (!name.len) return;
    step += beside;
    ares_str text = { 0 };
    cli_add_line(&text, (ares_view){ name.data + 9, name.len - 9 });
    addf(s, PLAIN, "slowest: %s %.3g s, %.0f %% of a step of %.3g s", text.data, most,
         100 * most / step, step);
    end_line(s);
    ares_str_fini(&text);
}

/* Verdicts that are not good, the bad ones first, as many as there is room for. */
static void add_verdicts(screen *s, const ares_look_verdicts *v, int most)
{
    int wanted = v->count[ARES_VERDICT_BAD] + v->count[ARES_VERDICT_WARN];
    for (int i = 0; i < v->n && most > 0; i++) {
        const ares_look_verdict *e = &v->each[i];
        if (e->level != ARES_VERDICT_BAD && e->level != ARES_VERDICT_WARN) continue;
        if (most == 1 && wanted > 1) {
            addf(s, v->count[ARES_VERDICT_BAD] ? RED : YELLOW,
                 "and %d more verdicts that are not good: ares-train report", wanted);
            end_line(s);
            return;
        }
        add(s, e->level == ARES_VERDICT_BAD ? RED : YELLOW, ares_look_level_names[e->level]);
        addf(s, PLAIN, " %s: %s", e->title, e->why);
        end_line(s);
        wanted--;
        most--;
    }
}

/* What stands at the foot: that the run has died, what could not be read, or the key that ends. */
static void add_foot(screen *s, const watched *w, bool live)
{
    const ares_look *l = &w->look;
    const char *note = NULL;
    /* a last line without an end is being written */
    for (int64_t i = 0; i < l->n_notes && !note; i++)
        if (l->state != ARES_LOOK_RUNNING || !strstr(l->notes[i], "has no end")) note = l->notes[i];
    if (w->begun && l->state == ARES_LOOK_DIED)
        addf(s, RED, "has died at step %lld; the same command goes on", (long long)l->last_step);
    else if (l->state == ARES_LOOK_STOPPED && l->stopped) {
        ares_str why = { 0 };
        cli_add_line(&why, ares_view_of(l->stopped));
        addf(s, YELLOW, "stopped: %s", why.data);
        ares_str_fini(&why);
    }
    if (note) {
        ares_str text = { 0 };
        cli_add_line(&text, ares_view_of(note));
        addf(s, YELLOW, "%s%s", s->at ? "; " : "", text.data);
        ares_str_fini(&text);
    }
    if (w->partly)
        addf(s, YELLOW, "%ssteps between the first and the last are left out", s->at ? "; " : "");
    if (live && !s->at) add(s, DIM, "q ends");
    if (s->at) end_line(s);
}

static void add_frame(screen *s, const watched *w, bool live)
{
    static const struct {
        const char *name, *metric, *otherwise;
    } charts[] = {
        { "reward", "reward/overall", "critic/score/mean" },
        { "accuracy", "reward/accuracy", NULL },
        { "length", "response_length/mean", NULL },
        { "entropy", "rollout/entropy", "actor/entropy" },
        { "KL", "actor/kl", "actor/kl_loss" },
        { "loss", "train/loss", NULL }, /* of supervised runs, which have none of the above */
        { "val loss", "val/loss", NULL },
    };
    curve curves[ARES_COUNT(charts)];
    ares_arena arena = { 0 };
    int n = 0;
    ares_str_clear(&s->out);
    s->n = s->at = 0;
    if (s->columns < LEAST_COLUMNS || s->rows < LEAST_ROWS) {
        addf(s, PLAIN, "%d x %d is too small; enlarge the", s->columns, s->rows);
        end_line(s);
        addf(s, PLAIN, "window to %d x %d", LEAST_COLUMNS, LEAST_ROWS);
        end_line(s);
        return;
    }
    for (int i = 0; i < ARES_COUNT(charts); i++)
        if (read_curve(&arena, &w->look, charts[i].name, charts[i].metric, &curves[n]) ||
            read_curve(&arena, &w->look, charts[i].name, charts[i].otherwise, &curves[n]))
            n++;
    const int *count = w->verdicts.count;
    int told = count[ARES_VERDICT_BAD] + count[ARES_VERDICT_WARN];
    add_head(s, w);
    /* beside the curves: slowest phase, answers, foot; verdicts get what a line per curve leaves */
    int others = s->n + 1 + w->n_answers + 1, room = s->rows - others - n;
    int verdicts = ARES_MIN(told, ARES_MAX(1, ARES_MAX(room / 2, ARES_MIN(room, 2))));
    int each = n ? ARES_MIN(8, (s->rows - others - verdicts) / n) : 0;
    for (int i = 0; i < n; i++) add_chart(s, &curves[i], ARES_MAX(1, each));
    add_verdicts(s, &w->verdicts, verdicts);
    add_phase(s, &w->look);
    for (int i = 0; i < w->n_answers; i++) {
        add(s, PLAIN, w->answers[i].data);
        end_line(s);
    }
    add_foot(s, w, live);
    ares_arena_fini(&arena);
}

/* ---------------- reading */

static uint64_t add_stat(uint64_t h, const char *dir, const char *name)
{
    ares_str path = { 0 };
    struct stat st = { 0 };
    int64_t of[4] = { 0 };
    if (stat(ares_path_join(&path, dir, name), &st) == 0) {
        of[0] = st.st_size;
        of[1] = st.st_mtim.tv_sec;
        of[2] = st.st_mtim.tv_nsec;
        of[3] = (int64_t)st.st_ino;
    }
    ares_str_fini(&path);
    return ares_fnv1a(h, of, sizeof of);
}

/* The newest file of answers; false: there is none. */
static bool newest_rollouts(const char *dir, ares_str *path)
{
    ares_str folder = { 0 };
    long long most = -1, step;
    DIR *d = opendir(ares_path_join(&folder, dir, "rollouts"));
    for (struct dirent *e; d && (e = readdir(d));)
        if (sscanf(e->d_name, "step_%lld", &step) == 1 && ares_ends_with(e->d_name, ".jsonl"))
            most = ARES_MAX(most, step);
    if (d) closedir(d);
    ares_str_clear(path);
    ares_str_addf(path, "%s/step_%06lld.jsonl", folder.data, most);
    ares_str_fini(&folder);
    return most >= 0;
}

/* "0.9 | What is 7 + 5? | 12": score, prompt's end and response on one line. */
static bool describe_answer(ares_arena *arena, ares_view row, ares_str *out)
{
    const ares_json *o, *score;
    ares_view prompt, response;
    ares_str_clear(out);
    if (ares_json_parse(arena, row, "rollouts", &o) != ARES_OK ||
        ares_json_get_string(o, "prompt", "", &prompt) != ARES_OK ||
        ares_json_get_string(o, "response", "", &response) != ARES_OK) {
        ares_error_clear();
        return false;
    }
    score = ares_json_get(o, "score");
    if (score && (score->type == ARES_JSON_INT || score->type == ARES_JSON_FLOAT))
        ares_str_addf(out, "%.3g | ", score->number);
    enum { PROMPT = 24, RESPONSE = 2000 }; /* bytes that are shown at most */
    /* of ChatML the last thing that the user says: the template's own end is always the same */
    static const char user[] = "<|im_start|>user\n";
    int64_t says = -1, next;
    while ((next = ares_view_find(prompt, ARES_VIEW(user), (size_t)(says + 1))) >= 0) says = next;
    if (says >= 0) {
        int64_t end = ares_view_find(prompt, ARES_VIEW("<|im_end|>"), (size_t)says);
        size_t from = (size_t)says + sizeof user - 1;
        prompt = (ares_view){ prompt.data + from, (end < 0 ? prompt.len : (size_t)end) - from };
    }
    prompt = ares_view_trim(prompt);
    if (prompt.len > PROMPT) {
        size_t from = prompt.len - PROMPT;
        while (from < prompt.len && ((unsigned char)prompt.data[from] & 0xC0) == 0x80) from++;
        prompt = (ares_view){ prompt.data + from, prompt.len - from };
        ares_str_add_z(out, "..");
    }
    cli_add_line(out, prompt);
    ares_str_add_z(out, " | ");
    response.len = ARES_MIN(response.len, (size_t)RESPONSE);
    cli_add_line(out, ares_view_trim(response));
    return true;
}

/* The last two whole lines of the newest file of answers. */
static void read_answers(watched *w)
{
    ares_str path = { 0 };
    const char *why = NULL;
    w->n_answers = 0;
    int fd = newest_rollouts(w->dir, &path) ? ares_file_open(path.data, &why) : -1;
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0) {
        size_t n = (size_t)ARES_MIN(st.st_size, (off_t)ROLLOUT_TAIL);
        char *text = ares_malloc(n);
        ssize_t got = pread(fd, text, n, st.st_size - (off_t)n);
        const char *begin = text, *end = got > 0 ? memrchr(text, '\n', (size_t)got) : NULL;
        ares_view found[2];
        int lines = 0;
        while (end && lines < 2) { /* end: the line's own */
            const char *before = memrchr(begin, '\n', (size_t)(end - begin));
            if (!before && st.st_size > (off_t)n) break; /* its beginning was not read */
            const char *from = before ? before + 1 : begin;
            found[lines++] = (ares_view){ from, (size_t)(end - from) };
            end = before;
        }
        while (lines-- > 0)
            w->n_answers += describe_answer(&w->arena, found[lines], &w->answers[w->n_answers]);
        ares_free(text);
    }
    if (fd >= 0) close(fd);
    ares_str_fini(&path);
}

/* Reads the run anew where something of it has changed; *changed: it has. */
static int look(watched *w, bool *changed)
{
    static const char *const files[] = { "metrics.jsonl", "run.json", "DONE", "rollouts" };
    uint64_t seen = ARES_FNV1A;
    for (int i = 0; i < ARES_COUNT(files); i++) seen = add_stat(seen, w->dir, files[i]);
    bool held = ares_lock_held(w->dir);
    seen = ares_fnv1a(seen, &held, sizeof held);
    *changed = seen != w->seen;
    if (!*changed) return ARES_OK;
    w->seen = seen;
    ares_arena_reset(&w->arena);
    w->verdicts = (ares_look_verdicts){ 0 };
    struct stat st = { 0 };
    ares_str path = { 0 };
    (void)stat(ares_path_join(&path, w->dir, "metrics.jsonl"), &st);
    ares_str_fini(&path);
    w->partly = st.st_size > METRICS_WHOLE;
    int rc = ares_look_read(&w->arena, w->dir, w->partly ? METRICS_ENDS : 0, &w->look);
    w->begun = rc == ARES_OK;
    if (rc == ARES_OK) ares_look_judge(&w->arena, &w->look, NULL, &w->verdicts);
    else if (held) { /* its first step is under way */ ares_error_clear();
        w->look.state = ARES_LOOK_RUNNING;
        rc = ARES_OK;
    } else
        return ares_fail(rc, "watch: %s; 'ares-train runs' lists those below a folder",
                         ares_error_message());
    read_answers(w);
    return rc;
}

/* ---------------- the terminal */

static volatile sig_atomic_t resized, ended_by;
static void on_signal(int number)
{
    if (number == SIGWINCH) resized = 1;
    else ended_by = number;
}

static void measure(screen *s)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS"), *rows = getenv("LINES");
    s->columns = columns && atoi(columns) > 0 ? atoi(columns) : 80;
    s->rows = rows && atoi(rows) > 0 ? atoi(rows) : 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row) {
        s->columns = size.ws_col;
        s->rows = size.ws_row;
    }
    s->columns = ARES_MIN(s->columns, 500);
}

static int write_all(const char *text, size_t n)
{
    while (n) {
        ssize_t wrote = write(STDOUT_FILENO, text, n);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0 && errno == EAGAIN) {
            (void)poll(&(struct pollfd){ .fd = STDOUT_FILENO, .events = POLLOUT }, 1, 100);
            continue;
        }
        if (wrote <= 0) return ares_fail(ARES_EIO, "watch: stdout: %s", strerror(errno));
        text += wrote;
        n -= (size_t)wrote;
    }
    return ARES_OK;
}

/* The frame over the one before, without erasing first, so that nothing flickers. */
static int show_frame(screen *s)
{
    ares_str text = { 0 };
    ares_str_add_z(&text, "\033[H");
    int line = 0;
    for (const char *at = s->out.data, *end; at && *at && line < s->rows; at = end + 1, line++) {
        end = strchr(at, '\n');
        if (line) ares_str_add_z(&text, "\r\n");
        ares_str_add(&text, at, (size_t)(end - at));
        ares_str_add_z(&text, "\033[K");
    }
    ares_str_add_z(&text, "\033[J");
    int rc = write_all(text.data, text.len);
    ares_str_fini(&text);
    return rc;
}

/* Draws until a key or a signal ends it. The terminal is given back as it was. */
static int follow(watched *w, screen *s)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH };
    static const char begin[] = "\033[?1049h\033[?25l", end[] = "\033[?25h\033[?1049l";
    struct sigaction mine = { .sa_handler = on_signal }, before[ARES_COUNT(signals)];
    struct termios as_it_was, quiet;
    sigset_t blocked, open;
    bool keys = tcgetattr(STDIN_FILENO, &as_it_was) == 0, changed, drawn = false;
    /* signals are taken in ppoll alone, so that none is missed between two looks */
    sigemptyset(&blocked);
    for (int i = 0; i < ARES_COUNT(signals); i++) sigaddset(&blocked, signals[i]);
    sigprocmask(SIG_BLOCK, &blocked, &open);
    for (int i = 0; i < ARES_COUNT(signals); i++) {
        sigdelset(&open, signals[i]);
        sigaction(signals[i], &mine, &before[i]);
    }
    if (keys) {
        quiet = as_it_was;
        quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        quiet.c_cc[VMIN] = 1;
        quiet.c_cc[VTIME] = 0;
        quiet.c_cc[VSUSP] = _POSIX_VDISABLE; /* stopped, it would leave its screen behind */
        tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    }
    int rc = write_all(begin, sizeof begin - 1);
    for (bool quit = false; rc == ARES_OK && !quit && !ended_by;) {
        rc = look(w, &changed);
        if (rc != ARES_OK) break;
        if (changed || resized || !drawn) {
            resized = 0;
            measure(s);
            add_frame(s, w, true);
            rc = show_frame(s);
            drawn = true;
        }
        struct pollfd in = { .fd = keys ? STDIN_FILENO : -1, .events = POLLIN };
        const struct timespec half = { .tv_nsec = 500000000 };
        if (ppoll(&in, 1, &half, &open) <= 0 || !in.revents) continue;
        char key[64];
        ssize_t n = read(STDIN_FILENO, key, sizeof key);
        if (n <= 0 && errno != EINTR) keys = false; /* its terminal is gone; a signal follows */
        for (ssize_t i = 0; i < n; i++) quit = quit || key[i] == 'q' || key[i] == 'Q';
    }
    (void)write_all(end, sizeof end - 1);
    if (tcgetattr(STDIN_FILENO, &quiet) == 0 && keys) tcsetattr(STDIN_FILENO, TCSANOW, &as_it_was);
    for (int i = 0; i < ARES_COUNT(signals); i++) sigaction(signals[i], &before[i], NULL);
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
    /* Ctrl-C is one of its two ends; whoever sent another signal is told by how it died */
    if (ended_by && ended_by != SIGINT) raise(ended_by);
    return rc;
}

/* Whether the locale of this terminal is one of UTF-8, by the variables that name it. */
static bool is_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

int ares_cli_watch(int argc, char **argv)
{
    bool helped, once = false, ascii = false, changed;
    const cli_option options[] = {
        CLI_OPTION(FLAG, once, "--once", NULL,
                   "print one frame and end; so it is, too, where stdout is no terminal"),
        CLI_OPTION(FLAG, ascii, "--ascii", NULL,
                   "curves of *; so they are, too, where LC_ALL, LC_CTYPE or LANG name no UTF-8"),
    };
    const cli_command command = {
        .name = "watch",
        .usage = "RUN_DIR [--once] [--ascii]",
        .about = "Shows a run in the terminal, as it goes, also one of another process or over "
                 "ssh: step, state and time left; reward, accuracy, length, entropy and KL as "
                 "curves with their first and last values; verdicts that are not good; the slowest "
                 "phase of a step; the last two answers. It looks twice a second and writes "
                 "nothing. q or Ctrl-C ends it; NO_COLOR=1 leaves colours out.",
        .example = "ares-train watch runs/quickstart/aepo\n"
                   "ares-train watch runs/quickstart/aepo --once",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = CLI_WORDS,
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    if (argc != 2)
        return ares_fail(ARES_EUSE,
                         "watch: name one run directory ('ares-train runs' lists them; see "
                         "ares-train watch --help)");
    const char *plain = getenv("NO_COLOR"), *term = getenv("TERM");
    bool dumb = !term || !*term || strcmp(term, "dumb") == 0, terminal = isatty(STDOUT_FILENO);
    watched w = { .dir = argv[1] };
    screen s = { .utf8 = !ascii && is_utf8(), .coloured = terminal && !dumb && !(plain && *plain) };
    /* notes about the run's options would stand in the frame */
    ares_log_set(ARES_LOG_ERROR, 0);
    int rc = look(&w, &changed);
    if (rc == ARES_OK && (once || !terminal || dumb)) {
        measure(&s);
        add_frame(&s, &w, false);
        rc = cli_print("watch", &s.out);
    } else if (rc == ARES_OK) rc = follow(&w, &s);
    for (int i = 0; i < ARES_COUNT(w.answers); i++) ares_str_fini(&w.answers[i]);
    ares_str_fini(&s.out);
    ares_arena_fini(&w.arena);
    return rc;
}
