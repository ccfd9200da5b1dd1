/*
 * The table at the end of a run. It is made from the run's files, so that a resumed run prints the
 * same as an uninterrupted one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "run.h"

enum { QUESTIONS = 10, COLUMN = 44 };

/* A code point of a text. */
typedef struct glyph {
    size_t at, n; /* its bytes: first, count */
    int width;    /* columns that it takes on a terminal */
} glyph;

/* Writes the code points of a UTF-8 text to out; a byte that is invalid counts as one. */
static int64_t glyphs_of(ares_view text, glyph *out)
{
    int64_t count = 0;
    for (size_t i = 0; i < text.len; i += out[count++].n) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.data + i,
                                              (utf8proc_ssize_t)(text.len - i), &c);
        out[count] =
            (glyph){ i, n > 0 ? (size_t)n : 1, n <= 0 || c < ' ' ? 1 : utf8proc_charwidth(c) };
    }
    return count;
}

/*
 * Prints a text on one line, in `width` columns. An answer that is too long loses its middle,
 * because its beginning and end say the most; any other text loses its end.
 */
static void write_cell(FILE *out, ares_view text, int width, bool answer)
{
    glyph *g = ares_calloc(text.len + 1, sizeof *g);
    int64_t n = glyphs_of(text, g), head = n, tail = n;
    int used = 0;
    for (int64_t i = 0; i < n; i++) used += g[i].width;
    if (used > width - 1) {
        /* the dots take a column, and a blank follows */
        int available = width - 2, left = 0, right = 0;
        for (head = 0; left + g[head].width <= (answer ? available - available / 2 : available);
             head++)
            left += g[head].width;
        while (right + g[tail - 1].width <= available - left) right += g[--tail].width;
        used = left + right + 1;
    }
    for (int64_t i = 0; i < n; i++) {
        if (i == head) fputs("…", out);
        if (i >= head && i < tail) continue;
        const char *c = text.data + g[i].at;
        if ((unsigned char)*c < ' ') fputc(' ', out);
        else if (g[i].n == 1 && (unsigned char)*c >= 0x80) fputc('?', out);
        else fwrite(c, 1, g[i].n, out);
    }
    fprintf(out, "%*s", ARES_MAX(0, width - used), "");
    ares_free(g);
}

/* Reads QUESTIONS rows at most, spread evenly over a validation file; texts go to the arena. */
static int read_rows(const char *path, ares_arena *arena, const ares_json **rows)
{
    ares_str text = { 0 };
    if (!ares_file_exists(path) || ares_file_read(path, &text) != ARES_OK) {
        ares_str_fini(&text);
        return 0;
    }
    int64_t lines = 0, line = 0;
    int n = 0;
    for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
    const char *at = ares_arena_copy(arena, text.data, text.len), *end = at + text.len;
    for (int64_t wanted = ARES_MIN(lines, QUESTIONS); n < wanted; line++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) break;
        if (line == n * lines / wanted) {
            if (ares_json_parse(arena, (ares_view){ at, (size_t)(line_end - at) }, path,
                                &rows[n]) != ARES_OK)
                break;
            n++;
        }
        at = line_end + 1;
    }
    ares_str_fini(&text);
    return n;
}

static ares_view text_of(const ares_json *row, const char *key)
{
    const ares_json *v = ares_json_get(row, key);
    return v && v->type == ARES_JSON_STRING ? ares_view_trim(v->text) : (ares_view){ "", 0 };
}

/* Some questions of the validation, with the answers before training and after the last step. */
static void write_questions(FILE *out, const char *run_dir, int64_t last_step)
{
    ares_arena arena = { 0 };
    ares_str path = { 0 };
    const ares_json *before[QUESTIONS], *after[QUESTIONS];
    char name[64];
    int n =
        read_rows(ares_path_join(&path, run_dir, "validation/step_000000.jsonl"), &arena, before);
    snprintf(name, sizeof name, "validation/step_%06lld.jsonl", (long long)last_step);
    n = ARES_MIN(n, read_rows(ares_path_join(&path, run_dir, name), &arena, after));
    if (n && last_step) {
        fprintf(out, "\n%-36s%-*s%s\n", "question", COLUMN, "before", "after");
        for (int i = 0; i < n; i++) {
            write_cell(out, text_of(after[i], "question"), 36, false);
            write_cell(out, text_of(before[i], "response"), COLUMN, true);
            write_cell(out, text_of(after[i], "response"), COLUMN, true);
            fputc('\n', out);
        }
    }
    ares_arena_fini(&arena);
    ares_str_fini(&path);
}

/*
 * The last row of metrics.jsonl, or the first, which is NULL where no validation was made before
 * the first step.
 */
static const ares_json *metrics_row(const char *run_dir, bool last, ares_arena *arena)
{
    ares_str path = { 0 }, text = { 0 };
    const ares_json *row = NULL;
    int64_t step = -1;
    if (ares_file_exists(ares_path_join(&path, run_dir, "metrics.jsonl")) &&
        ares_file_read(path.data, &text) == ARES_OK && text.len) {
        size_t begin = last ? text.len - 1 : 0, end;
        while (last && begin > 0 && text.data[begin - 1] != '\n') begin--;
        for (end = begin; end < text.len && text.data[end] != '\n';) end++;
        ares_view line = { ares_arena_copy(arena, text.data + begin, end - begin), end - begin };
        if (ares_json_parse(arena, line, "metrics.jsonl", &row) != ARES_OK ||
            ares_json_get_i64(row, "step", -1, &step) != ARES_OK || (!last && step != 0))
            row = NULL;
    }
    ares_str_fini(&path);
    ares_str_fini(&text);
    return row;
}

/*
 * Whether a metric stands in the table: results of validation. Thresholds and targets of controls
 * are no results; of the metrics over several answers, mean@n and pass@k are enough.
 */
static bool is_shown(const char *key)
{
    static const char *const others[] = { "/std@", "/best@", "/worst@", "/maj@" };
    if (strncmp(key, "val/", 4) != 0 || strncmp(key, "val/aepo/", 9) == 0 ||
        strncmp(key, "val/self.", 9) == 0)
        return false;
    for (int i = 0; i < ARES_COUNT(others); i++)
        if (strstr(key, others[i])) return false;
    return true;
}

static void write_summary(FILE *out, const char *run_dir, const char *verdicts)
{
    ares_arena arena = { 0 };
    ares_str path = { 0 }, name = { 0 };
    const ares_json *before = metrics_row(run_dir, false, &arena),
                    *after = metrics_row(run_dir, true, &arena);
    int64_t step = 0;
    if (ares_checkpoint_latest(ares_path_join(&path, run_dir, "checkpoints"), &name) == ARES_OK &&
        name.len)
        sscanf(name.data, "step_%lld", (long long *)&step);
    write_questions(out, run_dir, step);
    bool title = false;
    for (int64_t i = 0; after && i < after->count; i++) {
        const char *key = after->members[i].key.data;
        double value = after->members[i].value->number;
        if (!is_shown(key)) continue;
        const ares_json *old = before && step ? ares_json_get(before, key) : NULL;
        if (strcmp(strrchr(key, '/'), "/failed_frac") == 0 && value == 0 &&
            (!old || old->number == 0))
            continue; /* nothing failed */
        if (!title) fprintf(out, "\n%-44s%10s%10s\n", "validation", "before", "after");
        title = true;
        if (old) fprintf(out, "%-44s%10.3f%10.3f\n", key, old->number, value);
        else fprintf(out, "%-44s%10s%10.3f\n", key, "", value);
    }
    fprintf(out, "\nrun directory  %s\n", run_dir);
    if (name.len) {
        ares_str_clear(&path);
        ares_str_addf(&path, "%s/checkpoints/%s/adapter", run_dir, name.data);
        if (ares_dir_exists(path.data)) fprintf(out, "adapter        %s\n", path.data);
        else fprintf(out, "model          %s/checkpoints/%s/model\n", run_dir, name.data);
    }
    fprintf(out, "metrics        %s/metrics.jsonl\n", run_dir);
    if (ares_file_exists(ares_path_join(&path, run_dir, "report.html")))
        fprintf(out, "report         %s\n", path.data);
    if (verdicts) fprintf(out, "\n%s", verdicts);
    ares_arena_fini(&arena);
    ares_str_fini(&path);
    ares_str_fini(&name);
}

int run_summary(const char *run_dir, const char *verdicts)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    ARES_ASSERT(out);
    write_summary(out, run_dir, verdicts);
    ares_error_clear(); /* a missing file leaves its part of the table out */
    ARES_ASSERT(fclose(out) == 0);
    fwrite(text, 1, len, stdout);
    fflush(stdout);
    ares_str path = { 0 };
    int rc = ares_file_write_atomic(ares_path_join(&path, run_dir, "summary.txt"), text, len);
    ares_str_fini(&path);
    free(text);
    return rc;
}
