/*
 * pmatrix and bmatrix are read alike, because delimiters are a matter of style. Bars are not: they
 * mean the determinant. A vmatrix that is not square has no determinant and is a matrix.
 */
#include "matrix.h"

#include <string.h>

/* After the bracket group at i ([t] of an array, [r] of pmatrix*), or i when there is none. */
static size_t skip_option(ares_view t, size_t i)
{
    int64_t close = i < t.len && t.data[i] == '[' ? ares_view_find(t, ARES_VIEW("]"), i) : -1;
    return close < 0 ? i : (size_t)close + 1;
}

/* Whether `name` is a matrix environment; *bars: it is a vmatrix. */
static bool names_matrix(ares_view name, bool *bars)
{
    if (name.len && name.data[name.len - 1] == '*') name.len--;
    *bars = name.len && name.data[0] == 'v';
    if (name.len && strchr("pbBvV", name.data[0])) name = edit_from(name, 1);
    if (edit_at(name, 0, "small")) name = edit_from(name, 5);
    return ares_view_is(name, "matrix");
}

/* The index of the \end of the environment whose body begins at i; t.len when there is none. */
static size_t find_end(ares_view t, size_t i)
{
    for (size_t depth = 1; i < t.len; i++) {
        if (t.data[i] != '\\') continue;
        if (edit_at(t, i, "\\begin{")) depth++;
        else if (edit_at(t, i, "\\end{") && --depth == 0) return i;
        else i++; /* \\ is one sign */
    }
    return t.len;
}

static bool square(ares_view body)
{
    int64_t rows = 0, columns = 0, cells = 0;
    size_t i = 0;
    ares_view cell;
    for (bool row; matrix_cell(body, &i, &cell, &row);) {
        cells++;
        if (!row) continue;
        if (rows++ && cells != columns) return false;
        columns = cells;
        cells = 0;
    }
    return rows == columns;
}

/* The matrix that begins at i. */
static bool read_at(ares_view t, size_t i, matrix *m)
{
    if (!edit_at(t, i, "\\begin{")) return false;
    size_t body = edit_closing_brace(t, i + 6), end;
    bool bars = false;
    if (!body) return false;
    ares_view name = edit_cut(t, i + 7, body - 1);
    bool array = ares_view_is(name, "array");
    if (!array && !names_matrix(name, &bars)) return false;
    end = find_end(t, body);
    ares_view closing = edit_from(t, ARES_MIN(end + 5, t.len)); /* name} */
    if (!ares_view_starts(closing, name) || closing.len == name.len ||
        closing.data[name.len] != '}')
        return false;
    if (array || name.data[name.len - 1] == '*') body = skip_option(t, body);
    if (array) /* skips its column specification */
        body = body < end && t.data[body] == '{' ? edit_closing_brace(t, body) : 0;
    if (!body || body > end) return false;
    *m = (matrix){ .from = i,
                   .to = end + 5 + name.len + 1,
                   .body = edit_trim(edit_cut(t, body, end)) };
    if (m->body.len >= 2 && edit_at(m->body, m->body.len - 2, "\\\\"))
        m->body = edit_trim(edit_cut(m->body, 0, m->body.len - 2));
    m->determinant = bars && square(m->body);
    return true;
}

matrix *matrix_all(ares_view t, ares_arena *arena, int64_t *n)
{
    matrix *list = ares_arena_alloc(arena, ((size_t)edit_count(t, "\\begin{") + 1) * sizeof *list);
    *n = 0;
    for (size_t i = 0; i < t.len;) {
        if (read_at(t, i, &list[*n])) i = list[(*n)++].to;
        else i += t.data[i] == '\\' && !edit_at(t, i, "\\begin{") ? 2 : 1;
    }
    return list;
}

/* Skips what may follow a row's double backslash: a star, a length such as [4pt]. */
static size_t skip_gap(ares_view t, size_t i)
{
    if (i < t.len && t.data[i] == '*') i++;
    size_t end = skip_option(t, i), k = i + 1;
    if (end == i) return i;
    if (k < end && t.data[k] == '-') k++;
    for (; k < end && (edit_digit(t.data[k]) || t.data[k] == '.' || t.data[k] == ' ');) k++;
    return k + 3 == end && k > i + 1 && edit_letter(t.data[k]) && edit_letter(t.data[k + 1]) ? end
                                                                                             : i;
}

bool matrix_cell(ares_view t, size_t *i, ares_view *cell, bool *row)
{
    size_t from = *i, braces = 0, inner = 0;
    if (from > t.len) return false;
    for (size_t k = from; k < t.len; k++) {
        bool open = braces || inner;
        if (!open && (t.data[k] == '&' || edit_at(t, k, "\\\\"))) {
            *row = t.data[k] == '\\';
            *cell = edit_trim(edit_cut(t, from, k));
            *i = *row ? skip_gap(t, k + 2) : k + 1;
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

ares_view matrix_outside(ares_view t, const matrix *list, int64_t n, const char *letters,
                         ares_arena *arena)
{
    edit_out out = { .arena = arena };
    size_t done = 0;
    for (int64_t k = 0; k < n; k++) {
        edit_add(&out, edit_cut(t, done, list[k].from));
        edit_add_z(&out, list[k].determinant ? "|{" : "{");
        edit_add(&out, (ares_view){ &letters[k], 1 });
        edit_add_z(&out, list[k].determinant ? "}|" : "}");
        done = list[k].to;
    }
    edit_add(&out, edit_from(t, done));
    return edit_view(&out);
}
