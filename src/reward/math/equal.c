/*
 * The deepscaler judge (docs/rewards.md#the-deepscaler-judge): two answers are the same when their
 * mathd forms are, or when they agree element by element; in the target, matrices agree entry by
 * entry, whatever their delimiters. An integer matches only an integer, and a fraction only the
 * same fraction.
 */
#include "latex.h"
#include "matrix.h"

#include <string.h>

typedef struct judge {
    math_mode mode;
    bool mathruler;
    math_budget *budget;
    ares_arena *arena;
    int depth;
} judge;

static bool equal(judge *j, ares_view given, ares_view truth, const char **decided_by);

static bool same_element(judge *j, ares_view given, ares_view truth)
{
    if (math_is_fraction(truth) && math_is_fraction(given)) return ares_view_eq(truth, given);
    if (math_is_integer(truth, j->mode, j->arena) != math_is_integer(given, j->mode, j->arena))
        return false;
    if (j->mode == MATH_REFERENCE)
        return math_same_value_reference(given, truth, j->budget, j->arena);
    return (given.len && ares_view_eq(given, truth)) ||
           math_same_value(given, truth, j->budget, j->arena);
}

static bool same_elements(judge *j, ares_view given, ares_view truth)
{
    int64_t n_truth, n_given;
    ares_view *t = math_elements(truth, j->mode, j->arena, &n_truth),
              *g = math_elements(given, j->mode, j->arena, &n_given);
    if (n_truth != n_given) return false;
    if (n_truth > 1) {
        ares_view a = edit_tail(truth, 1), b = edit_tail(given, 1);
        size_t first = edit_char(truth, 0);
        if (!ares_view_eq(a, b) || first != edit_char(given, 0) ||
            memcmp(truth.data, given.data, first) != 0)
            return false;
    }
    for (int64_t i = 0; i < n_truth; i++)
        if (!same_element(j, g[i], t[i])) return false;
    return true;
}

/* ------------------------------------------------------------------ matrices */

static bool same_matrix(judge *j, const matrix *given, const matrix *truth)
{
    size_t a = 0, b = 0;
    ares_view x, y;
    bool row_x, row_y;
    for (;;) {
        bool more_x = matrix_cell(given->body, &a, &x, &row_x),
             more_y = matrix_cell(truth->body, &b, &y, &row_y);
        if (more_x != more_y) return false;
        if (!more_x) return true;
        if (row_x != row_y || !equal(j, x, y, NULL)) return false;
    }
}

/*
 * n letters that neither text uses outside its matrices; false when there are too few. e, i and u
 * are left out: they have meanings of their own.
 */
static bool free_letters(ares_view a, ares_view b, int64_t n, char letters[24])
{
    int64_t found = 0;
    for (const char *c = "qwzvkhjgybtrmnpfsalxcdo"; *c && found < n; c++) {
        const char both[] = { *c, (char)(*c - 32) };
        bool used = false;
        for (int k = 0; k < 2; k++)
            used = used || memchr(a.data, both[k], a.len) || memchr(b.data, both[k], b.len);
        if (!used) letters[found++] = *c;
    }
    return found == n;
}

/*
 * The control words that latex_to_text drops, in order: with a matrix A, \det A must not equal A.
 */
static ares_view dropped_words(judge *j, ares_view t)
{
    static const char *const harmless[] = { "left", "right", "displaystyle", "big",  "Big",
                                            "bigl", "bigr",  "Bigl",         "Bigr", "bigg",
                                            "Bigg", "biggl", "biggr" };
    edit_out out = { .arena = j->arena };
    for (size_t i = 0; i < t.len;) {
        ares_view name, text, probe;
        if (t.data[i] != '\\') {
            i++;
            continue;
        }
        i += latex_control(t, i, &name);
        if (!name.len || !edit_letter(name.data[0]) ||
            latex_is(name, harmless, ARES_COUNT(harmless)))
            continue;
        probe = edit_join(ARES_VIEW("\\"), name, ARES_VIEW("{q}{q}"), j->arena);
        if (latex_to_text(probe, j->budget, j->arena, &text) && !ares_view_is(text, "{q}{q}"))
            continue;
        edit_add(&out, name);
        edit_add_z(&out, " ");
    }
    return edit_view(&out);
}

/*
 * Both texts have n matrices: whether these agree one by one, and the texts agree with a letter in
 * the place of each matrix.
 */
static bool same_with_matrices(judge *j, ares_view given, const matrix *a, ares_view truth,
                               const matrix *b, int64_t n)
{
    char letters[24], dots[24];
    if (n >= ARES_COUNT(letters)) return false;
    for (int64_t k = 0; k < n; k++)
        if (!same_matrix(j, &a[k], &b[k])) return false;
    memset(dots, '.', sizeof dots);
    ares_view x = matrix_outside(given, a, n, dots, j->arena),
              y = matrix_outside(truth, b, n, dots, j->arena);
    if (!free_letters(x, y, n, letters)) return false;
    given = matrix_outside(given, a, n, letters, j->arena);
    truth = matrix_outside(truth, b, n, letters, j->arena);
    return ares_view_eq(dropped_words(j, given), dropped_words(j, truth)) &&
           equal(j, given, truth, NULL);
}

/* ------------------------------------------------------------------ */

static bool decide(judge *j, ares_view given, ares_view truth, const char **by)
{
    ares_view (*form)(ares_view, ares_arena *) = j->mathruler ? math_mathruler_a : math_mathd;
    *by = "mathd";
    if (ares_view_eq(form(given, j->arena), form(truth, j->arena))) return true;
    if (j->mode == MATH_TARGET) {
        int64_t n, n_truth;
        matrix *a = matrix_all(given, j->arena, &n), *b = matrix_all(truth, j->arena, &n_truth);
        *by = "matrix";
        if (n || n_truth) return n == n_truth && same_with_matrices(j, given, a, truth, b, n);
    }
    ares_view g = math_normalize(given, j->mode, j->budget, j->arena),
              t = math_normalize(truth, j->mode, j->budget, j->arena);
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

bool math_equal(ares_view given, ares_view truth, math_mode mode, math_budget *budget,
                ares_arena *arena, const char **decided_by)
{
    judge j = { .mode = mode, .budget = budget, .arena = arena };
    return equal(&j, given, truth, decided_by);
}

bool math_equal_mathruler(ares_view given, ares_view truth, math_budget *budget, ares_arena *arena)
{
    judge j = { .mode = MATH_REFERENCE, .mathruler = true, .budget = budget, .arena = arena };
    return equal(&j, given, truth, NULL);
}
