/*
 * The deepscaler judge: two answers are the same when their mathd forms are, or when they agree element by element (spec 4.1),
 * with matrices entry by entry in the target (F12). An integer wants an integer, a fraction the same fraction.
 */
#include "edit.h"

#include <string.h>

typedef struct judge { math_mode mode; bool mathruler; math_budget *budget; ares_arena *arena; int depth; } judge;

static bool equal(judge *j, ares_view given, ares_view truth, const char **decided_by);

static bool same_element(judge *j, ares_view given, ares_view truth)
{
    if (math_is_fraction(truth) && math_is_fraction(given)) return ares_view_eq(truth, given);
    if (math_is_integer(truth, j->mode, j->arena) != math_is_integer(given, j->mode, j->arena)) return false;
    if (j->mode == MATH_REFERENCE) return math_same_value_reference(given, truth, j->budget, j->arena);
    return (given.len && ares_view_eq(given, truth)) || math_same_value(given, truth, j->budget, j->arena);
}

static bool same_elements(judge *j, ares_view given, ares_view truth)
{
    int64_t n_truth, n_given;
    ares_view *t = math_elements(truth, j->mode, j->arena, &n_truth), *g = math_elements(given, j->mode, j->arena, &n_given);
    if (n_truth != n_given) return false;
    if (n_truth > 1) {
        ares_view a = edit_tail(truth, 1), b = edit_tail(given, 1);
        size_t first = edit_char(truth, 0);
        if (!ares_view_eq(a, b) || first != edit_char(given, 0) || memcmp(truth.data, given.data, first) != 0) return false;
    }
    for (int64_t i = 0; i < n_truth; i++)
        if (!same_element(j, g[i], t[i])) return false;
    return true;
}

/* ------------------------------------------------------------------ matrices */

typedef struct matrix { ares_view family, body; } matrix;

/* The whole text is \begin{M} ... \end{M} of one matrix environment. */
static bool read_matrix(ares_view t, matrix *m)
{
    static const char *const families[] = { "matrix", "pmatrix", "bmatrix", "vmatrix", "Bmatrix", "Vmatrix" };
    t = edit_trim(t);
    while (t.len && t.data[0] == '$') t = edit_from(t, 1);
    while (t.len && t.data[t.len - 1] == '$') t.len--;
    t = edit_trim(t);
    if (!edit_at(t, 0, "\\begin{")) return false;
    size_t close = edit_closing_brace(t, 6), depth = 1, i = close;
    m->family = close ? edit_cut(t, 7, close - 1) : t;
    bool known = false;
    for (int k = 0; k < ARES_COUNT(families); k++) known |= ares_view_is(m->family, families[k]);
    if (!close || !known) return false;
    for (; i < t.len; i++) {
        if (t.data[i] != '\\') continue;
        if (edit_at(t, i, "\\begin{")) depth++;
        else if (edit_at(t, i, "\\end{") && --depth == 0) break;
        else i++; /* \\ is one sign */
    }
    if (i >= t.len) return false;
    m->body = edit_cut(t, close, i);
    ares_view name = edit_cut(t, i + 5, t.len);
    return name.len == m->family.len + 1 && name.data[name.len - 1] == '}' && ares_view_starts(name, m->family);
}

/* The next cell from *i on; *row: a row ends with it. False at the end. */
static bool next_cell(ares_view t, size_t *i, ares_view *cell, bool *row)
{
    size_t from = *i, braces = 0, inner = 0;
    if (from > t.len) return false;
    for (size_t k = from; k < t.len; k++) {
        bool open = braces || inner;
        if (!open && (t.data[k] == '&' || edit_at(t, k, "\\\\"))) {
            *row = t.data[k] == '\\';
            *cell = edit_trim(edit_cut(t, from, k));
            *i = k + 1 + *row;
            return true;
        }
        if (t.data[k] == '\\') {
            inner += edit_at(t, k, "\\begin{");
            inner -= inner && edit_at(t, k, "\\end{");
            k++;
        } else {
            braces += t.data[k] == '{';
            braces -= braces && t.data[k] == '}';
        }
    }
    *row = true;
    *cell = edit_trim(edit_from(t, from));
    *i = t.len + 1;
    return true;
}

static bool same_matrix(judge *j, const matrix *given, const matrix *truth)
{
    size_t a = 0, b = 0;
    ares_view x, y, g = edit_trim(given->body), t = edit_trim(truth->body);
    bool row_x, row_y;
    if (!ares_view_eq(given->family, truth->family)) return false;
    if (g.len >= 2 && edit_at(g, g.len - 2, "\\\\")) g.len -= 2; /* the last row may be closed like the others */
    if (t.len >= 2 && edit_at(t, t.len - 2, "\\\\")) t.len -= 2;
    for (;;) {
        bool more_x = next_cell(g, &a, &x, &row_x), more_y = next_cell(t, &b, &y, &row_y);
        if (more_x != more_y) return false;
        if (!more_x) return true;
        if (row_x != row_y || !equal(j, x, y, NULL)) return false;
    }
}

/* ------------------------------------------------------------------ */

static bool decide(judge *j, ares_view given, ares_view truth, const char **by)
{
    ares_view (*form)(ares_view, ares_arena *) = j->mathruler ? math_mathruler_a : math_mathd;
    *by = "mathd";
    if (ares_view_eq(form(given, j->arena), form(truth, j->arena))) return true;
    matrix a, b;
    bool matrix_a = j->mode == MATH_TARGET && read_matrix(given, &a), matrix_b = j->mode == MATH_TARGET && read_matrix(truth, &b);
    *by = "matrix";
    if (matrix_a && matrix_b && same_matrix(j, &a, &b)) return true;
    if (matrix_a || matrix_b) return false;
    ares_view g = math_normalize(given, j->mode, j->budget, j->arena), t = math_normalize(truth, j->mode, j->budget, j->arena);
    *by = "text";
    if (ares_view_eq(g, t)) return true;
    *by = "elements";
    return g.len && t.len && same_elements(j, g, t);
}

static bool equal(judge *j, ares_view given, ares_view truth, const char **decided_by)
{
    const char *by = "no";
    bool same = false, fits = given.len <= MATH_MAX_BYTES && truth.len <= MATH_MAX_BYTES;
    if (fits) j->budget->steps -= 64 * (int64_t)(given.len + truth.len);
    if (!fits || j->budget->steps < 0) j->budget->exhausted = true;
    if (!j->budget->exhausted && j->depth < MATH_MAX_DEPTH) {
        j->depth++;
        same = decide(j, given, truth, &by);
        j->depth--;
    }
    if (decided_by) *decided_by = same ? by : "no";
    return same;
}

bool math_equal(ares_view given, ares_view truth, math_mode mode, math_budget *budget, ares_arena *arena, const char **decided_by)
{
    judge j = { .mode = mode, .budget = budget, .arena = arena };
    return equal(&j, given, truth, decided_by);
}

bool math_equal_mathruler(ares_view given, ares_view truth, math_budget *budget, ares_arena *arena)
{
    judge j = { .mode = MATH_REFERENCE, .mathruler = true, .budget = budget, .arena = arena };
    return equal(&j, given, truth, NULL);
}
