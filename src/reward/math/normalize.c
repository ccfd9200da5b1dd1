/*
 * The deepscaler judge. In order: reading integers and fractions; the normal form of an answer;
 * matrices in an answer; when two answers are equal.
 */
#include "math.h"

#include <gmp.h>
#include <string.h>

/*
 * Number literals as the graders read them: a decimal with sign, point and exponent, single
 * underscores between digits, white space around it. Within 1e-7 of an integer it is that integer.
 * The target computes this exactly, the reference in binary floats, as the original does.
 */

enum { MAX_DIGITS = 309 }; /* digits of the largest double */

/* Reads digits of t from *i on, with single underscores between them; false when there are none. */
static bool digits(ares_view t, size_t *i, edit_out *out)
{
    size_t from = *i;
    while (*i < t.len && (ares_is_digit(t.data[*i]) ||
                          (t.data[*i] == '_' && *i > from && *i + 1 < t.len &&
                           ares_is_digit(t.data[*i - 1]) && ares_is_digit(t.data[*i + 1])))) {
        if (t.data[*i] != '_') edit_add(out, edit_cut(t, *i, *i + 1));
        (*i)++;
    }
    return *i > from;
}

/* digits x 10^exponent */
typedef struct decimal {
    bool negative;
    ares_view digits;
    int64_t exponent;
} decimal;

/* Reads a whole text as a decimal; false when it is none. */
static bool read_decimal(ares_view t, ares_arena *arena, decimal *d)
{
    edit_out all = { .arena = arena }, power = { .arena = arena };
    size_t i = 0;
    int64_t exponent = 0;
    t = edit_trim(t);
    d->negative = t.len && t.data[0] == '-';
    if (t.len && (t.data[0] == '-' || t.data[0] == '+')) i++;
    bool some = digits(t, &i, &all);
    size_t whole = all.len;
    if (i < t.len && t.data[i] == '.') {
        i++;
        some |= digits(t, &i, &all);
    }
    if (!some) return false;
    if (i < t.len && (t.data[i] == 'e' || t.data[i] == 'E')) {
        bool minus = i + 1 < t.len && t.data[i + 1] == '-';
        i += 1 + (i + 1 < t.len && (t.data[i + 1] == '-' || t.data[i + 1] == '+'));
        if (!digits(t, &i, &power)) return false;
        for (size_t k = 0; k < power.len; k++)
            exponent = ARES_MIN(exponent * 10 + (power.data[k] - '0'), 1000000);
        if (minus) exponent = -exponent;
    }
    d->digits = edit_view(&all);
    d->exponent = exponent - (int64_t)(all.len - whole);
    while (d->digits.len && d->digits.data[0] == '0') d->digits = edit_from(d->digits, 1);
    return i == t.len;
}

/* Whether t is a number within 1e-7 of an integer; *text: that integer. */
static bool math_integer(ares_view t, math_mode mode, ares_arena *arena, ares_view *text)
{
    decimal d;
    if (!read_decimal(t, arena, &d)) return false;
    int64_t whole = (int64_t)d.digits.len + d.exponent; /* digits before the point */
    if (whole > MAX_DIGITS) return false;
    if (!d.digits.len || whole < -7) { /* below 1e-7 */
        *text = ARES_VIEW("0");
        return true;
    }
    mpz_t n, scale, rest;
    mpz_inits(n, scale, rest, NULL);
    bool integer = true;
    if (mode == MATH_REFERENCE) {
        double x;
        char *plain = ares_arena_printf(arena, "%.*se%lld", (int)d.digits.len, d.digits.data,
                                        (long long)d.exponent);
        integer = ares_parse_double(ares_view_of(plain), &x) && x <= 1.7976931348623157e308;
        if (integer) {
            mpz_set_d(n, x);
            /* exact: a double with a fraction is below 2^53 */
            double down = mpz_get_d(n), gap = x - down;
            if (gap > 0.5) {
                mpz_add_ui(n, n, 1);
                gap = mpz_get_d(n) - x;
            }
            integer = gap <= 1e-7;
        }
    } else {
        char *plain = ares_arena_copy(arena, d.digits.data, d.digits.len);
        mpz_set_str(n, plain, 10);
        mpz_ui_pow_ui(scale, 10, (unsigned long)(d.exponent < 0 ? -d.exponent : d.exponent));
        if (d.exponent >= 0) mpz_mul(n, n, scale);
        else {
            mpz_fdiv_qr(n, rest, n, scale);
            mpz_mul_ui(rest, rest, 10000000); /* rest / scale against 1e-7 and 1 - 1e-7 */
            if (mpz_cmp(rest, scale) > 0) {
                mpz_submul_ui(rest, scale, 10000000);
                mpz_neg(rest, rest);
                integer = mpz_cmp(rest, scale) <= 0;
                mpz_add_ui(n, n, 1);
            }
        }
    }
    if (integer) {
        size_t size = mpz_sizeinbase(n, 10) + 3;
        char *out = ares_arena_alloc(arena, size);
        size_t sign = d.negative && mpz_sgn(n) ? 1 : 0;
        out[0] = '-';
        mpz_get_str(out + sign, 10, n);
        *text = ares_view_of(out);
    }
    mpz_clears(n, scale, rest, NULL);
    return integer;
}

bool math_is_integer(ares_view t, math_mode mode, ares_arena *arena)
{
    ares_view text;
    return math_integer(math_strip_thousands(t, arena), mode, arena, &text);
}

/*
 * As the original's regular expression -?[0-9]+.?/0*[1-9][0-9]*.?$ matches, in which each "." is
 * any character but a newline.
 */
bool math_is_fraction(ares_view t)
{
    size_t i = t.len && t.data[0] == '-', from = i, slash;
    while (i < t.len && ares_is_digit(t.data[i])) i++;
    if (i == from) return false;
    if (i < t.len && t.data[i] == '/' && !edit_at(t, i, "//")) slash = i;
    else {
        if (i == t.len || t.data[i] == '\n') return false;
        slash = i + edit_char(t, i); /* one arbitrary character */
        if (slash >= t.len || t.data[slash] != '/') return false;
    }
    for (i = slash + 1; i < t.len && t.data[i] == '0';) i++;
    if (i == t.len || !ares_is_digit(t.data[i])) return false;
    while (i < t.len && ares_is_digit(t.data[i])) i++;
    if (i < t.len && t.data[i] != '\n') i += edit_char(t, i);
    return i == t.len || (t.data[i] == '\n' && i + 1 == t.len);
}

/*
 * Passes that delete the comma of "digit, comma, three digits" until one finds none. The character
 * after them, which is no digit, belongs to the match: the next match begins after it.
 */
ares_view math_strip_thousands(ares_view t, ares_arena *arena)
{
    if (!edit_count(t, ",")) return t;
    for (;;) {
        edit_out out = { .arena = arena };
        for (size_t i = 0; i < t.len;) {
            bool match = i + 4 < t.len && ares_is_digit(t.data[i]) && t.data[i + 1] == ',' &&
                         ares_is_digit(t.data[i + 2]) && ares_is_digit(t.data[i + 3]) &&
                         ares_is_digit(t.data[i + 4]) &&
                         (i + 5 == t.len || !ares_is_digit(t.data[i + 5]));
            size_t end = match ? ARES_MIN(i + 6, t.len) : i + 1;
            edit_add(&out, edit_cut(t, i, i + 1));
            if (match) edit_add(&out, edit_cut(t, i + 2, end));
            i = end;
        }
        if (out.len == t.len) return edit_view(&out);
        t = edit_view(&out);
    }
}

/*
 * The form in which the deepscaler judge compares answers (docs/rewards.md#normal-form): units,
 * currency and percent signs removed, LaTeX turned into text, integers plain. Reference and target
 * differ in scale words, mixed numbers, LaTeX, and in how exactly an integer is recognised.
 */

/*
 * Deletes unit(es)?(s)? blanks (^digits)? wherever it occurs: "Monday" becomes "Mon", as in the
 * original.
 */
static ares_view delete_unit(ares_view t, const char *unit, ares_arena *arena)
{
    if (!edit_count(t, unit)) return t;
    edit_out out = { .arena = arena };
    size_t i = 0, n = strlen(unit);
    for (int64_t at; (at = ares_view_find(t, (ares_view){ unit, n }, i)) >= 0;) {
        edit_add(&out, edit_cut(t, i, (size_t)at));
        i = (size_t)at + n;
        if (edit_at(t, i, "es")) i += 2;
        if (edit_at(t, i, "s")) i++;
        while (i < t.len && t.data[i] == ' ') i++;
        if (i + 1 < t.len && t.data[i] == '^' && ares_is_digit(t.data[i + 1]))
            for (i++; i < t.len && ares_is_digit(t.data[i]);) i++;
    }
    edit_add(&out, edit_from(t, i));
    return edit_view(&out);
}

static size_t blanks(ares_view t, size_t i)
{
    while (i < t.len && t.data[i] == ' ') i++;
    return i;
}

/*
 * Deletes `first`, blanks, `second`, or keeps `first` and deletes the rest. An empty `second`
 * always matches.
 */
static ares_view delete_spaced(ares_view t, const char *first, const char *second, bool keep_first,
                               ares_arena *arena)
{
    if (!edit_count(t, first)) return t;
    edit_out out = { .arena = arena };
    for (size_t i = 0; i < t.len;) {
        size_t behind = edit_at(t, i, first) ? blanks(t, i + strlen(first)) : 0;
        if (!behind || !edit_at(t, behind, second)) {
            edit_add(&out, edit_cut(t, i, i + 1));
            i++;
            continue;
        }
        if (keep_first) edit_add_z(&out, first);
        i = behind + strlen(second);
    }
    return edit_view(&out);
}

/*
 * digit blanks digit: puts a plus in place of the blanks, so "1 1/2" is 1+1/2. A digit belongs to
 * one pair only: "1 2 3" becomes "1+2 3".
 */
static ares_view add_mixed(ares_view t, ares_arena *arena)
{
    edit_out out = { .arena = arena };
    for (size_t i = 0; i < t.len;) {
        size_t next = ares_is_digit(t.data[i]) ? blanks(t, i + 1) : 0;
        edit_add(&out, edit_cut(t, i, i + 1));
        i++;
        if (next <= i || next >= t.len || !ares_is_digit(t.data[next])) continue;
        edit_add_z(&out, "+");
        edit_add(&out, edit_cut(t, next, next + 1));
        i = next + 1;
    }
    return edit_view(&out);
}

/* ------------------------------------------------------------------ the target's own steps */

/*
 * Appends a decimal with its point moved right, exactly ("1,234.5", 6 -> "1234500000"); false when
 * the text is no number.
 */
static bool shift_point(ares_view number, int places, edit_out *out)
{
    edit_out digits = { .arena = out->arena };
    int64_t point = -1;
    for (size_t i = 0; i < number.len; i++) {
        char c = number.data[i];
        if (c == ',') continue;
        if (c == '.' && point >= 0) return false;
        if (c == '.') point = (int64_t)digits.len;
        else edit_add(&digits, edit_cut(number, i, i + 1));
    }
    if (!digits.len) return false;
    size_t whole = (point < 0 ? digits.len : (size_t)point) + (size_t)places, end, from = 0;
    while (digits.len < whole) edit_add_z(&digits, "0");
    for (end = digits.len; end > whole && digits.data[end - 1] == '0';) end--;
    while (from + 1 < whole && digits.data[from] == '0') from++;
    edit_add(out, edit_cut(edit_view(&digits), from, whole));
    if (end > whole) {
        edit_add_z(out, ".");
        edit_add(out, edit_cut(edit_view(&digits), whole, end));
    }
    return true;
}

/* "1.5 million" becomes 1500000. */
static ares_view fold_scale_words(ares_view t, ares_arena *arena)
{
    static const struct {
        const char *word;
        int places;
    } scales[] = { { "million", 6 }, { "billion", 9 }, { "trillion", 12 } };
    for (int k = 0; k < ARES_COUNT(scales); k++) {
        if (!edit_count(t, scales[k].word)) continue;
        edit_out out = { .arena = arena };
        for (size_t i = 0; i < t.len;) {
            size_t end = i;
            while (end < t.len &&
                   (ares_is_digit(t.data[end]) || t.data[end] == '.' || t.data[end] == ','))
                end++;
            size_t word = blanks(t, end);
            if (end > i && edit_at(t, word, scales[k].word) &&
                shift_point(edit_cut(t, i, end), scales[k].places, &out)) {
                i = word + strlen(scales[k].word);
            } else {
                end = ARES_MAX(end, i + 1);
                edit_add(&out, edit_cut(t, i, end));
                i = end;
            }
        }
        t = edit_view(&out);
    }
    return t;
}

/* The index after the digits at i; i when there are none. */
static size_t digits_end(ares_view t, size_t i)
{
    while (i < t.len && ares_is_digit(t.data[i])) i++;
    return i;
}

/* -1 1/2 becomes -(1+1/2), where "-" stands at the start or after one of ( [ , = < > or a blank. */
static ares_view group_negative_mixed(ares_view t, ares_arena *arena)
{
    edit_out out = { .arena = arena };
    size_t done = 0;
    for (size_t i = 0; i < t.len; i++) {
        if (t.data[i] != '-' || (i && !strchr("([,=<> ", t.data[i - 1])) || (i && !t.data[i - 1]))
            continue;
        size_t whole = digits_end(t, i + 1), a = blanks(t, whole), slash = digits_end(t, a), end;
        if (whole == i + 1 || a == whole || slash == a || slash >= t.len || t.data[slash] != '/')
            continue;
        end = digits_end(t, slash + 1);
        if (end == slash + 1) continue;
        edit_add(&out, edit_cut(t, done, i));
        edit_add_z(&out, "-(");
        edit_add(&out, edit_cut(t, i + 1, whole));
        edit_add_z(&out, "+");
        edit_add(&out, edit_cut(t, a, end));
        edit_add_z(&out, ")");
        done = end;
        i = end - 1;
    }
    if (!done) return t;
    edit_add(&out, edit_from(t, done));
    return edit_view(&out);
}

/* ------------------------------------------------------------------ the normal form */

ares_view math_normalize(ares_view t, math_mode mode, math_budget *budget, ares_arena *arena)
{
    static const char *const units[] = { "degree", "cm",   "centimeter", "meter", "mile",  "second",
                                         "minute", "hour", "day",        "week",  "month", "year",
                                         "foot",   "feet", "inch",       "yard" };
    bool target = mode == MATH_TARGET;
    ares_view text;
    budget->steps -= 64 * (int64_t)t.len; /* each step below walks the text about once */
    t = edit_unwrap_text(t);
    t = edit_replace(t, "\\%", "%", arena);
    t = edit_replace(t, "\\$", "$", arena);
    t = edit_delete(t, "$", arena);
    t = edit_delete(t, "%", arena);
    t = edit_replace(t, " or ", " , ", arena);
    t = edit_replace(t, " and ", " , ", arena);
    if (target) t = fold_scale_words(t, arena);
    else {
        t = edit_replace(t, "million", "*10^6", arena);
        t = edit_replace(t, "billion", "*10^9", arena);
        t = edit_replace(t, "trillion", "*10^12", arena);
    }
    for (int i = 0; i < ARES_COUNT(units); i++) t = delete_unit(t, units[i], arena);
    t = delete_spaced(t, "^", "\\circ", false, arena);
    if (target) t = edit_delete(t, "^{\\circ}", arena);
    if (t.len > 1 && t.data[0] == '{' && t.data[t.len - 1] == '}') t = edit_cut(t, 1, t.len - 1);
    t = delete_spaced(t, ",\\!", "", false, arena);
    if (math_integer(t, mode, arena, &text)) t = text; /* "5.0" is "5" */
    if (target) t = group_negative_mixed(t, arena);
    if (target ? edit_count(t, "\\") || edit_count(t, "^") : edit_count(t, "\\") > 0) {
        if (target ? latex_to_text(t, budget, arena, &text)
                   : latex_to_text_reference(t, budget, arena, &text))
            t = text;
    }
    t = delete_spaced(t, "-", "", true, arena);
    t = add_mixed(t, arena);
    t = edit_delete(t, " ", arena);
    t = edit_delete(t, "{", arena);
    t = edit_delete(t, "}", arena);
    t = edit_lower(t, arena);
    if (target) {
        t = edit_replace(t, "\xe2\x88\x92", "-", arena);
        t = edit_replace(t, "\xcf\x80", "pi", arena);
    }
    if (math_is_integer(t, mode, arena) &&
        math_integer(edit_delete(t, ",", arena), mode, arena, &text))
        t = text;
    return t;
}

/* ------------------------------------------------------------------ elements */

static bool bracket(char c)
{
    return c == '(' || c == ')' || c == '[' || c == ']';
}

ares_view *math_elements(ares_view t, math_mode mode, ares_arena *arena, int64_t *n)
{
    t = math_strip_thousands(t, arena);
    *n = 0;
    size_t last = t.len ? t.len - 1 : 0, characters = 0; /* "()" has no room for an element */
    for (size_t i = 0; i < t.len && characters < 3; i += edit_char(t, i)) characters++;
    ares_view *out = ares_arena_alloc(arena, ((size_t)edit_count(t, ",") + 1) * sizeof *out);
    if (!t.len) return out;
    bool bracketed = characters > 2 &&
                     (mode == MATH_REFERENCE ? bracket(t.data[0]) && bracket(t.data[last])
                                             : (t.data[0] == '(' || t.data[0] == '[') &&
                                                   (t.data[last] == ')' || t.data[last] == ']'));
    int64_t depth = 0;
    /* inside them, the reference wants no brackets, the target balanced ones */
    for (size_t i = 1; bracketed && i < last; i++) {
        if (!bracket(t.data[i])) continue;
        depth += t.data[i] == '(' || t.data[i] == '[' ? 1 : -1;
        if (mode == MATH_REFERENCE || depth < 0) bracketed = false;
    }
    if (!bracketed || depth) {
        out[(*n)++] = t;
        return out;
    }
    size_t from = 1;
    for (size_t i = 1; i <= last; i++) {
        if (i == last || (t.data[i] == ',' && depth == 0)) {
            out[(*n)++] = edit_trim(edit_cut(t, from, i));
            from = i + 1;
        } else if (bracket(t.data[i])) depth += t.data[i] == '(' || t.data[i] == '[' ? 1 : -1;
    }
    return out;
}

/*
 * pmatrix and bmatrix are read alike, because delimiters are a matter of style. Bars are not: they
 * mean the determinant. A vmatrix that is not square has no determinant and is a matrix.
 */

typedef struct matrix {
    size_t from, to;  /* bytes of the text: from \begin to after \end{..} */
    ares_view body;   /* cells, trimmed, without a row end after the last row */
    bool determinant; /* vmatrix, as many rows as columns */
} matrix;

/*
 * Skips what may follow a row's double backslash: a star, a length such as [4pt]. A bracket with
 * anything else in it, as in \\ [x], is the next cell.
 */
static size_t skip_gap(ares_view t, size_t i)
{
    if (i < t.len && t.data[i] == '*') i++;
    size_t end = latex_option_end(t, i), k = i + 1;
    if (end == i) return i;
    if (k < end && t.data[k] == '-') k++;
    for (; k < end && (ares_is_digit(t.data[k]) || t.data[k] == '.' || t.data[k] == ' ');) k++;
    return k + 3 == end && k > i + 1 && edit_letter(t.data[k]) && edit_letter(t.data[k + 1]) ? end
                                                                                             : i;
}

/* The cell from *i on; moves *i to the next one. *row: a row ends with it. False at the end. */
static bool matrix_cell(ares_view t, size_t *i, ares_view *cell, bool *row)
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

/* Whether a matrix has as many rows as columns. */
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

/* Reads the matrix that begins at i; false when none does. */
static bool read_at(ares_view t, size_t i, matrix *m)
{
    if (!edit_at(t, i, "\\begin{")) return false;
    size_t body = edit_closing_brace(t, i + 6), end;
    bool bars = false;
    if (!body) return false;
    ares_view name = edit_cut(t, i + 7, body - 1);
    bool array = ares_view_is(name, "array");
    if (!array) { /* matrix, with one of pbBvV or small before it, with a star after it */
        ares_view kind = name;
        if (kind.len && kind.data[kind.len - 1] == '*') kind.len--;
        bars = kind.len && kind.data[0] == 'v';
        if (kind.len && strchr("pbBvV", kind.data[0])) kind = edit_from(kind, 1);
        if (edit_at(kind, 0, "small")) kind = edit_from(kind, 5);
        if (!ares_view_is(kind, "matrix")) return false;
    }
    end = latex_environment_end(t, body);
    ares_view closing = edit_from(t, ARES_MIN(end + 5, t.len)); /* name} */
    if (!ares_view_starts(closing, name) || closing.len == name.len ||
        closing.data[name.len] != '}')
        return false;
    if (array || name.data[name.len - 1] == '*') body = latex_option_end(t, body);
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

/*
 * The outermost matrix environments of a text, left to right: matrix, pmatrix, bmatrix, Bmatrix,
 * vmatrix, Vmatrix, the same with "small" before "matrix" or a star after it, and array.
 */
static matrix *matrix_all(ares_view t, ares_arena *arena, int64_t *n)
{
    matrix *list = ares_arena_alloc(arena, ((size_t)edit_count(t, "\\begin{") + 1) * sizeof *list);
    *n = 0;
    for (size_t i = 0; i < t.len;) {
        if (read_at(t, i, &list[*n])) i = list[(*n)++].to;
        else i += t.data[i] == '\\' && !edit_at(t, i, "\\begin{") ? 2 : 1;
    }
    return list;
}

/*
 * The text with letters[k], in braces, in place of list[k]; a determinant's letter stands between
 * bars.
 */
static ares_view matrix_outside(ares_view t, const matrix *list, int64_t n, const char *letters,
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

/*
 * The deepscaler judge (docs/rewards.md#the-deepscaler-judge): two answers are the same when their
 * mathd forms are, or when they agree element by element; in the target, matrices agree entry by
 * entry, whatever their delimiters. An integer matches only an integer, and a fraction only the
 * same fraction.
 */

typedef struct judge {
    math_mode mode;
    bool mathruler;
    math_budget *budget;
    ares_arena *arena;
    int depth;
} judge;

static bool equal(judge *j, ares_view given, ares_view truth, const char **decided_by);

/* As many elements on both sides, the same brackets around them, and each the same. */
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
    for (int64_t i = 0; i < n_truth; i++) {
        bool same;
        if (math_is_fraction(t[i]) && math_is_fraction(g[i])) same = ares_view_eq(t[i], g[i]);
        else if (math_is_integer(t[i], j->mode, j->arena) !=
                 math_is_integer(g[i], j->mode, j->arena))
            same = false;
        else if (j->mode == MATH_REFERENCE)
            same = math_same_value_reference(g[i], t[i], j->budget, j->arena);
        else
            same = (g[i].len && ares_view_eq(g[i], t[i])) ||
                   math_same_value(g[i], t[i], j->budget, j->arena);
        if (!same) return false;
    }
    return true;
}

/* ------------------------------------------------------------------ matrices */

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
    if (n >= ARES_COUNT(letters)) return false; /* more than there are letters to stand in */
    for (int64_t k = 0; k < n; k++) {
        /* as many rows of as many cells, and each cell the same */
        size_t at_x = 0, at_y = 0;
        ares_view x, y;
        for (bool more = true, row_x, row_y; more;) {
            more = matrix_cell(a[k].body, &at_x, &x, &row_x);
            if (matrix_cell(b[k].body, &at_y, &y, &row_y) != more) return false;
            if (more && (row_x != row_y || !equal(j, x, y, NULL))) return false;
        }
    }
    memset(dots, '.', sizeof dots);
    ares_view x = matrix_outside(given, a, n, dots, j->arena),
              y = matrix_outside(truth, b, n, dots, j->arena);
    /* letters that neither text uses; e, i and u have meanings of their own */
    int64_t found = 0;
    for (const char *c = "qwzvkhjgybtrmnpfsalxcdo"; *c && found < n; c++) {
        char upper = (char)(*c - 32);
        if (!memchr(x.data, *c, x.len) && !memchr(x.data, upper, x.len) &&
            !memchr(y.data, *c, y.len) && !memchr(y.data, upper, y.len))
            letters[found++] = *c;
    }
    if (found < n) return false;
    given = matrix_outside(given, a, n, letters, j->arena);
    truth = matrix_outside(truth, b, n, letters, j->arena);
    return ares_view_eq(dropped_words(j, given), dropped_words(j, truth)) &&
           equal(j, given, truth, NULL);
}

/* ------------------------------------------------------------------ the verdict */

/* The forms are tried from the cheapest on; *by: the one that decided. */
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

/* One level of the judge: takes the work from the budget and bounds the depth of matrices. */
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
