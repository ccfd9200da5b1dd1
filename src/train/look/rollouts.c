/*
 * The answers of a run for its page, in two passes: the first takes the numbers of every row from
 * the lines as they stand, so that its memory is a few words per group and its time that of
 * reading; the second reads the groups that the page has room for. In the page an answer's columns
 * are base64 of little-endian arrays: half floats, piece numbers of 2 or 3 bytes, ids of 3.
 */
#include "look.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST_TEXT = 200000, VALIDATION_BYTES = 2 << 20, MISFITS = 20 };

/* ---------------------------------------------------------------- lines, without their trees */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && is_blank(*p)) p++;
    return p;
}

static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++) p += *p == '\\';
    return p < end ? p + 1 : end;
}

static const char *skip_value(const char *p, const char *end)
{
    if (p < end && *p == '"') return skip_string(p, end);
    if (p < end && (*p == '[' || *p == '{')) {
        for (int64_t depth = 0; p < end;) {
            if (*p == '"') {
                p = skip_string(p, end);
                continue;
            }
            depth += (*p == '[' || *p == '{') - (*p == ']' || *p == '}');
            p++;
            if (!depth) return p;
        }
        return end;
    }
    while (p < end && *p != ',' && *p != '}' && !is_blank(*p)) p++;
    return p;
}

/*
 * The values of some members of an object as they are written, out [n]; empty: it has no such
 * member. false: the line is no object.
 */
static bool scan(ares_view line, const char *const *keys, int n, ares_view *out)
{
    const char *p = line.data, *end = p + line.len;
    while (end > p && is_blank(end[-1])) end--;
    for (int i = 0; i < n; i++) out[i] = (ares_view){ "", 0 };
    if (end - p < 2 || *p != '{' || end[-1] != '}') return false;
    for (p = skip_blanks(p + 1, end); p < end && *p != '}';) {
        const char *key = p + 1, *after = skip_string(p, end), *colon = skip_blanks(after, end);
        if (*p != '"' || colon >= end || *colon != ':') return false;
        const char *value = skip_blanks(colon + 1, end);
        size_t len = (size_t)(after - 1 - key);
        p = skip_value(value, end);
        for (int i = 0; i < n; i++)
            if (strlen(keys[i]) == len && memcmp(keys[i], key, len) == 0)
                out[i] = (ares_view){ value, (size_t)(p - value) };
        p = skip_blanks(p, end);
        if (p < end && *p == ',') p = skip_blanks(p + 1, end);
    }
    return p + 1 == end;
}

static double number_of(ares_view text, double absent)
{
    double x;
    return ares_parse_double(text, &x) ? x : absent;
}

/* Lines of a file, each with its place in it. */
typedef struct lines {
    FILE *in;
    char *text;
    size_t room;
    int64_t at, next, number; /* bytes before the line, and before the next one; from 1 */
} lines;

static bool lines_open(lines *x, const char *path)
{
    const char *why;
    int fd = ares_file_open(path, &why);
    *x = (lines){ .in = fd >= 0 ? fdopen(fd, "r") : NULL };
    if (fd >= 0 && !x->in) close(fd);
    return x->in != NULL;
}

/* false: the end. A line without \n is torn. */
static bool lines_next(lines *x, ares_view *line, bool *torn)
{
    ssize_t n = getline(&x->text, &x->room, x->in);
    if (n <= 0) return false;
    x->at = x->next;
    x->next += n;
    x->number++;
    *torn = x->text[n - 1] != '\n';
    *line = (ares_view){ x->text, (size_t)n };
    return true;
}

static void lines_close(lines *x)
{
    if (x->in) fclose(x->in);
    free(x->text);
}

/* ---------------------------------------------------------------- first pass */

#define FIELD_LIST(X) \
    X(draw)           \
    X(sample) X(turn) X(row) X(response) X(score) X(accuracy) X(advantage) X(n_tokens) X(discarded)
#define FIELD_ID(name) F_##name,
#define FIELD_NAME(name) #name,
enum { FIELD_LIST(FIELD_ID) FIELDS };
static const char *const fields[] = { FIELD_LIST(FIELD_NAME) };

/* Numbers of the answers of a step. */
typedef struct step_answers {
    double *score, *length;
    look_answer *answer;
    int64_t n_scores, n, room;
} step_answers;

/* The 10th and the 90th percentile of x [n], which is sorted. */
static void band_of(double *x, int64_t n, double out[2])
{
    out[0] = out[1] = NAN;
    if (!n) return;
    ares_sort_f64(x, n);
    for (int i = 0; i < 2; i++) {
        double at = (i ? 0.9 : 0.1) * (double)(n - 1);
        int64_t k = (int64_t)at;
        out[i] = x[k] + (at - (double)k) * (x[ARES_MIN(k + 1, n - 1)] - x[k]);
    }
}

static look_group *group_of(look_rollouts *r, int64_t *room)
{
    if (r->n == *room) {
        *room = ARES_MAX(256, 2 * *room);
        r->groups = ares_realloc(r->groups, (size_t)*room * sizeof *r->groups);
    }
    r->groups[r->n] = (look_group){ .accuracy = 0 };
    return &r->groups[r->n++];
}

/* A file's rows into groups and numbers. Rows of a group stand together. */
static void scan_step(ares_arena *arena, ares_look *l, look_rollouts *r, int64_t step,
                      const char *path, step_answers *a, int64_t *room)
{
    lines in;
    ares_view line, v[FIELDS];
    bool torn;
    double low = 0, high = 0, right = 0, judged = 0;
    look_group *g = NULL;
    int64_t draw = -1, place = 0;
    a->n = a->n_scores = 0;
    if (!lines_open(&in, path)) {
        look_note(arena, l, "rollouts/step_%06lld.jsonl: not readable, and left out",
                  (long long)step);
        return;
    }
    while (lines_next(&in, &line, &torn)) {
        if (torn || !scan(line, fields, FIELDS, v)) {
            look_note(arena, l,
                      torn ? "rollouts/step_%06lld.jsonl:%lld: the last line has no end and is "
                             "left out"
                           : "rollouts/step_%06lld.jsonl:%lld: no JSON object in this line: read "
                             "up to there",
                      (long long)step, (long long)in.number);
            break;
        }
        int64_t of = (int64_t)number_of(v[F_draw], number_of(v[F_row], 0));
        if (!g || of != draw) {
            g = group_of(r, room);
            *g = (look_group){ .step = step,
                               .offset = in.at,
                               .row = (int64_t)number_of(v[F_row], -1),
                               .place = place++,
                               .accuracy = NAN };
            draw = of;
            low = high = number_of(v[F_advantage], 0);
            right = judged = 0;
        }
        g->bytes = in.next - g->offset;
        g->rows++;
        double advantage = number_of(v[F_advantage], 0), accuracy = number_of(v[F_accuracy], NAN),
               score = number_of(v[F_score], NAN);
        low = fmin(low, advantage);
        high = fmax(high, advantage);
        g->spread = (float)(high - low);
        if (!isnan(accuracy)) right += accuracy, judged++;
        if (judged > 0) g->accuracy = (float)(right / judged);
        if (a->n == a->room) {
            a->room = ARES_MAX(256, 2 * a->room);
            a->score = ares_realloc(a->score, (size_t)a->room * sizeof *a->score);
            a->length = ares_realloc(a->length, (size_t)a->room * sizeof *a->length);
            a->answer = ares_realloc(a->answer, (size_t)a->room * sizeof *a->answer);
        }
        if (!isnan(score)) a->score[a->n_scores++] = score;
        a->length[a->n] = number_of(v[F_n_tokens], 0);
        a->answer[a->n] = (look_answer){ of, (int64_t)number_of(v[F_sample], 0),
                                         (int64_t)number_of(v[F_turn], 0), 0 };
        a->answer[a->n].text =
            ares_fnv1a(ares_fnv1a(ARES_FNV1A, &a->answer[a->n].turn, sizeof a->answer[a->n].turn),
                       v[F_response].data, v[F_response].len);
        a->n++;
    }
    lines_close(&in);
}

void look_rollouts_scan(ares_arena *arena, ares_look *l, look_rollouts *r)
{
    int64_t *steps, room = 0, files = look_files(arena, l->dir, "rollouts", &steps), at = 0;
    size_t rows = (size_t)(l->rows + 1);
    double *share = ares_arena_alloc(arena, rows * sizeof *share);
    step_answers a = { 0 };
    ares_str path = { 0 };
    bool any = false;
    *r = (look_rollouts){ .score = ares_arena_alloc(arena, rows * sizeof *r->score),
                          .length = ares_arena_alloc(arena, rows * sizeof *r->length) };
    for (int64_t i = 0; i < l->rows; i++)
        share[i] = r->score[i][0] = r->score[i][1] = r->length[i][0] = r->length[i][1] = NAN;
    for (int64_t f = 0; f < files; f++) {
        /* a file of a step without a row of metrics: the step has not ended, or was made again */
        while (at < l->rows && l->step[at] < (double)steps[f]) at++;
        if (at == l->rows || l->step[at] != (double)steps[f]) continue;
        scan_step(arena, l, r, steps[f], look_file(&path, l->dir, "rollouts", steps[f]), &a, &room);
        band_of(a.score, a.n_scores, r->score[at]);
        band_of(a.length, a.n, r->length[at]);
        share[at] = look_distinct(a.answer, a.n);
        any = any || !isnan(share[at]);
    }
    if (any) look_add(arena, l, ARES_LOOK_DISTINCT, share);
    ares_error_clear();
    ares_free(a.score);
    ares_free(a.length);
    ares_free(a.answer);
    ares_str_fini(&path);
}

void look_rollouts_fini(look_rollouts *r)
{
    ares_free(r->groups);
    *r = (look_rollouts){ 0 };
}

/* ---------------------------------------------------------------- the choice */

typedef struct turn_of_group {
    int64_t round, rank; /* rank: of its step: first, last, then the others in order */
    int64_t group;
} turn_of_group;

/* Widest spread first, then as drawn. */
static int by_spread(const void *a, const void *b)
{
    const look_group *x = *(const look_group *const *)a, *y = *(const look_group *const *)b;
    int c = ARES_CMP(y->spread, x->spread);
    return c ? c : ARES_CMP(x->place, y->place);
}

/* The order in which groups get room: in each round a group of every step. */
static turn_of_group *turns_of(look_rollouts *r)
{
    turn_of_group *t = ares_malloc((size_t)(r->n + 1) * sizeof *t);
    look_group **of_step = ares_malloc((size_t)(r->n + 1) * sizeof(look_group *));
    int64_t steps = 0, last = r->n ? r->groups[r->n - 1].step : 0;
    for (int64_t i = 0, end; i < r->n; i = end, steps++) {
        for (end = i; end < r->n && r->groups[end].step == r->groups[i].step; end++)
            of_step[end - i] = &r->groups[end];
        qsort(of_step, (size_t)(end - i), sizeof *of_step, by_spread);
        int64_t rank = steps == 0 ? 0 : r->groups[i].step == last ? 1 : steps + 1;
        for (int64_t k = 0; k < end - i; k++)
            t[i + k] = (turn_of_group){ k, rank, of_step[k] - r->groups };
    }
    ares_sort_records(t, r->n, sizeof *t);
    ares_free(of_step);
    return t;
}

/* ---------------------------------------------------------------- an answer in the page */

static bool is_number(const ares_json *v)
{
    return v && (v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT);
}

static void write_number(ares_str *out, const char *key, const ares_json *v)
{
    ares_json_key(out, key);
    if (is_number(v)) ares_json_write_rounded(out, v->number, 6);
    else ares_json_write_null(out);
}

/* A text, cut where it is too long for a page. */
static void write_text(ares_str *out, const char *key, const ares_json *v)
{
    ares_view text = v && v->type == ARES_JSON_STRING ? v->text : (ares_view){ "", 0 };
    size_t whole = text.len;
    if (key) ares_json_key(out, key);
    if (text.len > LONGEST_TEXT) {
        ares_str cut = { 0 };
        text.len = LONGEST_TEXT;
        while (text.len && ((unsigned char)text.data[text.len] & 0xc0) == 0x80) text.len--;
        ares_str_add_view(&cut, text);
        ares_str_addf(&cut, " […] cut here: %zu bytes in the run's file", whole);
        ares_json_write_string(out, ares_str_view(&cut));
        ares_str_fini(&cut);
    } else ares_json_write_string(out, text);
}

static bool is_true(const ares_json *row, const char *key)
{
    const ares_json *v = ares_json_get(row, key);
    return v && v->type == ARES_JSON_BOOL && v->boolean;
}

/* A column of numbers as half floats; false: it is no list of n. absent is fine. */
static bool pack_halfs(ares_str *out, const char *key, const ares_json *column, int64_t n)
{
    if (!column) return true;
    if (column->type != ARES_JSON_ARRAY || column->count != n) return false;
    ares_str bytes = { 0 };
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = look_half(is_number(&column->items[i]) ? column->items[i].number : NAN);
        ares_str_add_char(&bytes, (char)(h & 0xff));
        ares_str_add_char(&bytes, (char)(h >> 8));
    }
    ares_str_add_char(ares_json_key(out, key), '"');
    look_add_base64(out, bytes.data, bytes.len);
    ares_str_add_char(out, '"');
    ares_str_fini(&bytes);
    return true;
}

static void pack_ints(ares_str *out, const char *key, const int64_t *x, int64_t n, int width)
{
    ares_str bytes = { 0 };
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < width; k++) ares_str_add_char(&bytes, (char)(x[i] >> (8 * k) & 0xff));
    ares_str_add_char(ares_json_key(out, key), '"');
    look_add_base64(out, bytes.data, bytes.len);
    ares_str_add_char(out, '"');
    ares_str_fini(&bytes);
}

/*
 * Runs stay runs: [first, count] that lie within the n tokens, or (levels) [value, count] from the
 * first token on.
 */
static bool copy_runs(ares_str *out, const char *key, const ares_json *runs, int64_t n, bool levels)
{
    if (!runs) return true;
    if (runs->type != ARES_JSON_ARRAY) return false;
    double at = 0;
    for (int64_t i = 0; i < runs->count; i++) {
        const ares_json *run = &runs->items[i];
        if (run->type != ARES_JSON_ARRAY || run->count != 2 || !is_number(&run->items[1]))
            return false;
        double first = levels || !is_number(&run->items[0]) ? at : run->items[0].number,
               count = run->items[1].number;
        if (!(first >= at) || !(count >= 0) || !(first + count <= (double)n)) return false;
        at = first + count;
    }
    ares_json_write(ares_json_key(out, key), runs);
    return true;
}

/* The columns of a row as "tok"; false: they do not fit together, or the pieces need wider numbers.
 */
static bool write_columns(look_pieces *p, const ares_json *row, ares_str *out)
{
    static const struct {
        const char *key, *as;
    } numbers[] = { { "entropies", "e" }, { "logprobs", "lp" }, { "ref_logprobs", "rp" },
                    { "ratio", "r" },     { "kl", "k" },        { "values", "v" } };
    static const struct {
        const char *key, *as;
        bool levels;
    } runs[] = { { "hwe", "h", false },
                 { "clipped", "c", false },
                 { "trained", "m", false },
                 { "kl_weight", "w", true },
                 { "advantages", "a", true } };
    const ares_json *pieces = ares_json_get(row, "pieces"), *ids = ares_json_get(row, "token_ids");
    int64_t n = pieces->count;
    int64_t *x = ares_malloc((size_t)(n + 1) * sizeof *x);
    bool ok = !ids || (ids->type == ARES_JSON_ARRAY && ids->count == n);
    ares_json_begin(ares_json_key(out, "tok"), '{');
    for (int64_t i = 0; ok && i < n; i++) {
        ok = pieces->items[i].type == ARES_JSON_STRING;
        if (ok && !ares_map_get(p->known, pieces->items[i].text, &x[i])) {
            size_t before = p->json.len;
            x[i] = ares_map_count(p->known);
            ares_map_put(p->known, pieces->items[i].text, x[i]);
            write_text(&p->json, NULL, &pieces->items[i]);
            p->bytes += 2 * (p->json.len - before); /* escapes of the page may make it longer */
        }
    }
    if (ok) pack_ints(out, "p", x, n, p->width);
    for (int k = 0; ok && k < ARES_COUNT(numbers); k++)
        ok = pack_halfs(out, numbers[k].as, ares_json_get(row, numbers[k].key), n);
    for (int k = 0; ok && k < ARES_COUNT(runs); k++)
        ok = copy_runs(out, runs[k].as, ares_json_get(row, runs[k].key), n, runs[k].levels);
    for (int64_t i = 0; ids && ok && i < n; i++) x[i] = ids->items[i].integer;
    if (ids && ok) pack_ints(out, "i", x, n, 3);
    ares_json_end(out, '}');
    ares_free(x);
    return ok;
}

static void write_answer(look_pieces *p, const ares_json *row, ares_str *out)
{
    const ares_json *rewards = ares_json_get(row, "rewards"),
                    *pieces = ares_json_get(row, "pieces"), *turn = ares_json_get(row, "turn"),
                    *ends = ares_json_get(row, "turn_ends"),
                    *spans = ares_json_get(row, "trained_text");
    ares_json_begin(out, '{');
    write_number(out, "score", ares_json_get(row, "score"));
    write_number(out, "acc", ares_json_get(row, "accuracy"));
    write_number(out, "adv", ares_json_get(row, "advantage"));
    write_number(out, "n", ares_json_get(row, "n_tokens"));
    ares_json_write_bool(ares_json_key(out, "finished"), is_true(row, "finished"));
    if (is_true(row, "discarded")) ares_json_write_bool(ares_json_key(out, "discarded"), true);
    if (is_true(row, "failed")) ares_json_write_bool(ares_json_key(out, "failed"), true);
    if (turn) {
        write_number(out, "turn", turn);
        write_number(out, "sample", ares_json_get(row, "sample"));
    }
    if (rewards && rewards->type == ARES_JSON_OBJECT && rewards->count > 1) {
        ares_json_begin(ares_json_key(out, "rewards"), '{');
        for (int64_t i = 0; i < rewards->count; i++) {
            ares_json_key_view(out, rewards->members[i].key);
            if (is_number(rewards->members[i].value))
                ares_json_write_rounded(out, rewards->members[i].value->number, 4);
            else ares_json_write_null(out);
        }
        ares_json_end(out, '}');
    }
    if (ends && ends->type == ARES_JSON_ARRAY) ares_json_write(ares_json_key(out, "ends"), ends);
    size_t before = out->len;
    bool columns = pieces && pieces->type == ARES_JSON_ARRAY && pieces->count;
    if (columns && !write_columns(p, row, out)) {
        out->len = before;
        out->data[before] = 0;
        p->unequal++;
        columns = false;
    }
    if (!columns) {
        write_text(out, "text", ares_json_get(row, "response"));
        before = out->len;
        if (!copy_runs(out, "spans", spans, INT32_MAX, false)) {
            out->len = before;
            out->data[before] = 0;
        }
    }
    ares_json_end(out, '}');
}

/* A group's lines, read again, as a member of "groups"; false: they are not what they were. */
static bool write_group(const ares_look *l, const look_group *g, look_pieces *p, ares_str *out)
{
    ares_str path = { 0 }, text = { 0 };
    ares_arena arena = { 0 };
    const char *why;
    bool ok = true, begun = false;
    int fd = ares_file_open(look_file(&path, l->dir, "rollouts", g->step), &why);
    ares_str_reserve(&text, (size_t)g->bytes + 1);
    ok = fd >= 0 && pread(fd, text.data, (size_t)g->bytes, g->offset) == (ssize_t)g->bytes;
    if (fd >= 0) close(fd);
    const char *at = text.data, *end = at + (ok ? g->bytes : 0), *stop;
    for (; ok && at < end && (stop = memchr(at, '\n', (size_t)(end - at))); at = stop + 1) {
        const ares_json *row;
        ares_arena_reset(&arena);
        ok = ares_json_parse(&arena, (ares_view){ at, (size_t)(stop - at) }, path.data, &row) ==
             ARES_OK;
        if (ok && !begun) {
            const ares_json *level = ares_json_get(row, "difficulty"),
                            *truth = ares_json_get(row, "ground_truth");
            ares_json_begin(out, '{');
            ares_json_write_i64(ares_json_key(out, "step"), g->step);
            ares_json_write_i64(ares_json_key(out, "row"), g->row);
            ares_json_write_i64(ares_json_key(out, "place"), g->place);
            write_text(out, "prompt", ares_json_get(row, "prompt"));
            if (truth && truth->type == ARES_JSON_STRING && truth->text.len)
                write_text(out, "truth", truth);
            write_text(out, "source", ares_json_get(row, "data_source"));
            if (level) write_text(out, "level", level);
            ares_json_begin(ares_json_key(out, "answers"), '[');
            begun = true;
        }
        if (ok) write_answer(p, row, out);
    }
    if (begun) {
        ares_json_end(out, ']');
        ares_json_end(out, '}');
    }
    ares_error_clear();
    ares_arena_fini(&arena);
    ares_str_fini(&path);
    ares_str_fini(&text);
    return ok && begun;
}

int64_t look_rollouts_write(ares_arena *arena, ares_look *l, look_rollouts *r, int64_t room,
                            look_pieces *p, ares_str *out)
{
    turn_of_group *turns = turns_of(r);
    ares_str one = { 0 }, escaped = { 0 };
    int64_t written = 0, misfits = 0, changed = 0, begun = (int64_t)out->len;
    size_t pieces = p->bytes;
    ares_json_begin(out, '[');
    for (int64_t i = 0; i < r->n && misfits < MISFITS && !p->full; i++) {
        look_group *g = &r->groups[turns[i].group];
        ares_str_clear(&one);
        ares_str_clear(&escaped);
        if (!write_group(l, g, p, &one)) {
            changed++;
            continue;
        }
        if (p->width == 2 && ares_map_count(p->known) >= 65536) p->full = true;
        look_escape(&escaped, ares_str_view(&one));
        int64_t used = (int64_t)out->len - begun + (int64_t)(p->bytes - pieces);
        if (written && used + (int64_t)escaped.len > room) {
            misfits++; /* a smaller one may fit */
            continue;
        }
        ares_json_splice(out, ares_str_view(&escaped));
        g->shown = true;
        written++;
    }
    ares_json_end(out, ']');
    if (changed)
        look_note(arena, l, "rollouts: %lld groups are not readable, and left out",
                  (long long)changed);
    ares_str_fini(&one);
    ares_str_fini(&escaped);
    ares_free(turns);
    return r->n - written;
}

/* ---------------------------------------------------------------- validation */

/* A line of a validation file. */
typedef struct val_row {
    int64_t question, place; /* they order rows: of a question those before, then those after */
    int64_t offset, bytes;
    double accuracy;
} val_row;

#define VAL_LIST(X) X(data_set) X(row) X(question) X(accuracy)
#define VAL_ID(name) V_##name,
enum { VAL_LIST(VAL_ID) VAL_FIELDS };
static const char *const val_fields[] = { VAL_LIST(FIELD_NAME) };

typedef struct val_order {
    int64_t last, place; /* last: 0 for questions that changed sides */
    int64_t first, end;  /* of its rows */
} val_order;

/* Adds the rows of a question with what is read of them again. */
static bool write_question(const char *const *paths, const val_row *v, int64_t n, int64_t after,
                           ares_str *out)
{
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    bool ok = true, begun = false;
    int when = 0;
    for (int64_t i = 0; i < n && ok; i++) {
        const ares_json *row;
        const char *why;
        int of = v[i].place >= after, fd = ares_file_open(paths[of], &why);
        ares_arena_reset(&arena);
        ares_str_reserve(&text, (size_t)v[i].bytes + 1);
        ok =
            fd >= 0 && pread(fd, text.data, (size_t)v[i].bytes, v[i].offset) == (ssize_t)v[i].bytes;
        if (fd >= 0) close(fd);
        ok = ok && ares_json_parse(&arena, (ares_view){ text.data, (size_t)v[i].bytes }, paths[of],
                                   &row) == ARES_OK;
        if (!ok) break;
        if (!begun) {
            const ares_json *set = ares_json_get(row, "data_set");
            ares_json_begin(out, '{');
            write_text(out, "q", ares_json_get(row, "question"));
            write_text(out, "truth", ares_json_get(row, "ground_truth"));
            if (set) write_text(out, "level", set);
            ares_json_begin(ares_json_key(out, "a"), '[');
            ares_json_begin(out, '[');
            begun = true;
        }
        for (; when < of; when++) {
            ares_json_end(out, ']');
            ares_json_begin(out, '[');
        }
        ares_json_begin(out, '[');
        write_text(out, NULL, ares_json_get(row, "response"));
        static const char *const numbers[] = { "score", "accuracy", "n_tokens" };
        for (int k = 0; k < ARES_COUNT(numbers); k++) {
            const ares_json *x = ares_json_get(row, numbers[k]);
            if (is_number(x)) ares_json_write_rounded(out, x->number, 6);
            else ares_json_write_null(out);
        }
        ares_json_write_bool(out, is_true(row, "finished"));
        ares_json_end(out, ']');
    }
    if (begun) {
        for (; when < (paths[1] ? 1 : 0); when++) {
            ares_json_end(out, ']');
            ares_json_begin(out, '[');
        }
        ares_json_end(out, ']');
        ares_json_end(out, ']');
        ares_json_end(out, '}');
    }
    ares_arena_fini(&arena);
    ares_str_fini(&text);
    return ok && begun;
}

int64_t look_validation_write(const ares_look *l, ares_str *out)
{
    ares_arena arena = { 0 };
    ares_map *known = ares_map_new();
    ares_str path = { 0 }, key = { 0 }, one = { 0 };
    int64_t *steps, files = look_files(&arena, l->dir, "validation", &steps), n = 0, room = 0,
                    after = INT64_MAX, all = 0, left_out = 0, whens = files > 1 ? 2 : files;
    const char *paths[2] = { NULL, NULL };
    val_row *v = NULL;
    for (int64_t when = 0; when < whens; when++) {
        lines in;
        ares_view line, x[VAL_FIELDS];
        bool torn;
        look_file(&path, l->dir, "validation", steps[when ? files - 1 : 0]);
        paths[when] = ares_arena_copy(&arena, path.data, path.len);
        if (when) after = n;
        if (!lines_open(&in, path.data)) continue;
        while (lines_next(&in, &line, &torn) && !torn && scan(line, val_fields, VAL_FIELDS, x)) {
            int64_t q;
            ares_str_clear(&key);
            ares_str_add_view(&key, x[V_data_set]);
            ares_str_add_char(&key, '\n');
            ares_str_add_view(&key, x[V_row].len ? x[V_row] : x[V_question]);
            if (!ares_map_get(known, ares_str_view(&key), &q)) {
                q = ares_map_count(known);
                ares_map_put(known, ares_str_view(&key), q);
            }
            if (n == room) v = ares_realloc(v, (size_t)(room = 2 * room + 256) * sizeof *v);
            v[n] = (val_row){ q, n, in.at, in.next - in.at, number_of(x[V_accuracy], NAN) };
            all += v[n++].bytes;
        }
        lines_close(&in);
    }
    /* those that changed sides first, where not all have room */
    int64_t questions = 0;
    val_order *order = ares_malloc((size_t)(ares_map_count(known) + 1) * sizeof *order);
    if (n) ares_sort_records(v, n, sizeof *v);
    for (int64_t i = 0, end; i < n; i = end) {
        double sum[2] = { 0 }, count[2] = { 0 };
        for (end = i; end < n && v[end].question == v[i].question; end++) {
            int when = v[end].place >= after;
            if (isnan(v[end].accuracy)) continue;
            sum[when] += v[end].accuracy;
            count[when]++;
        }
        bool changed = count[0] > 0 && count[1] > 0 &&
                       (sum[0] / count[0] >= 0.5) != (sum[1] / count[1] >= 0.5);
        order[questions] = (val_order){ all > VALIDATION_BYTES && !changed, questions, i, end };
        questions++;
    }
    ares_sort_records(order, questions, sizeof *order);
    ares_json_begin(out, '{');
    ares_json_begin(ares_json_key(out, "steps"), '[');
    for (int64_t when = 0; when < whens; when++)
        ares_json_write_i64(out, steps[when ? files - 1 : 0]);
    ares_json_end(out, ']');
    ares_json_write_i64(ares_json_key(out, "n"), questions);
    ares_json_begin(ares_json_key(out, "rows"), '[');
    size_t begun = out->len;
    for (int64_t i = 0; i < questions; i++) {
        ares_str_clear(&one);
        if (!write_question(paths, v + order[i].first, order[i].end - order[i].first, after,
                            &one) ||
            (i && out->len - begun + one.len > VALIDATION_BYTES)) {
            left_out++;
            continue;
        }
        ares_str_clear(&key);
        look_escape(&key, ares_str_view(&one));
        ares_json_splice(out, ares_str_view(&key));
    }
    ares_json_end(out, ']');
    ares_json_write_i64(ares_json_key(out, "left_out"), left_out);
    ares_json_end(out, '}');
    ares_error_clear();
    ares_free(v);
    ares_free(order);
    ares_map_free(known);
    ares_str_fini(&path);
    ares_str_fini(&key);
    ares_str_fini(&one);
    ares_arena_fini(&arena);
    return questions;
}
