/*
 * DAPO's normal form of an answer, which is Minerva's
 * (docs/rewards.md#dapo-gsm8k-and-the-math-data-set).
 */
#include "edit.h"

#include <string.h>

/* The index of the first or the last "}" in the rest of the line; t.len when there is none. */
static size_t closing_in_line(ares_view t, size_t from, bool last)
{
    size_t found = t.len;
    for (size_t i = from; i < t.len && t.data[i] != '\n' && (last || found == t.len); i++)
        if (t.data[i] == '}') found = i;
    return found;
}

/* \word{x} -> x within a line, up to the first closing brace or the last. */
static ares_view unwrap(ares_view t, const char *opening, bool last, ares_arena *arena)
{
    if (!edit_count(t, opening)) return t;
    edit_out out = { .arena = arena };
    for (size_t i = 0; i < t.len;) {
        size_t from = i + strlen(opening),
               close = edit_at(t, i, opening) ? closing_in_line(t, from, last) : t.len;
        bool found = close < t.len;
        edit_add(&out, found ? edit_cut(t, from, close) : edit_cut(t, i, i + 1));
        i = found ? close + 1 : i + 1;
    }
    return edit_view(&out);
}

/* Of a line with two dollar signs keeps the first two and what stands between them. */
static ares_view first_dollars(ares_view t, ares_arena *arena)
{
    if (edit_count(t, "$") < 2) return t;
    edit_out out = { .arena = arena };
    for (size_t from = 0; from <= t.len;) {
        const char *newline = from < t.len ? memchr(t.data + from, '\n', t.len - from) : NULL;
        size_t end = newline ? (size_t)(newline - t.data) : t.len;
        ares_view line = edit_cut(t, from, end);
        int64_t a = ares_view_find(line, ARES_VIEW("$"), 0),
                b = a < 0 ? -1 : ares_view_find(line, ARES_VIEW("$"), (size_t)a + 1);
        edit_add(&out, b < 0 ? line : edit_cut(line, (size_t)a, (size_t)b + 1));
        if (newline) edit_add_z(&out, "\n");
        from = end + 1;
    }
    return edit_view(&out);
}

/*
 * Puts the character after `word`, other than "{", into braces: word{c}; with `two`, also the one
 * after it in the same line: word{c}{d}.
 */
static ares_view brace(ares_view t, const char *word, bool two, ares_arena *arena)
{
    if (!edit_count(t, word)) return t;
    edit_out out = { .arena = arena };
    for (size_t i = 0; i < t.len;) {
        size_t a = i + strlen(word), b = a < t.len ? a + edit_char(t, a) : t.len;
        if (!edit_at(t, i, word) || a >= t.len || t.data[a] == '{' ||
            (two && (b >= t.len || t.data[b] == '\n'))) {
            edit_add(&out, edit_cut(t, i, i + 1));
            i++;
            continue;
        }
        size_t end = two ? b + edit_char(t, b) : b;
        edit_add_z(&out, word);
        for (size_t from = a; from < end; from = from == a && two ? b : end) {
            edit_add_z(&out, "{");
            edit_add(&out, edit_cut(t, from, from == a ? b : end));
            edit_add_z(&out, "}");
        }
        i = end;
    }
    return edit_view(&out);
}

static bool all_digits(ares_view t)
{
    for (size_t i = 0; i < t.len; i++)
        if (!edit_digit(t.data[i])) return false;
    return t.len > 0;
}

ares_view math_dapo_normal(ares_view t, ares_arena *arena)
{
    static const struct {
        const char *from, *to;
    } replaced[] = {
        { "an ", "" },          { "a ", "" },
        { ".$", "$" },          { "\\$", "" },
        { "\\ ", "" },          { " ", "" },
        { "mbox", "text" },     { ",\\text{and}", "," },
        { "\\text{and}", "," }, { "\\text{m}", "\\text{}" },
    };
    static const char *const deleted[] = {
        "square",     "ways",       "integers",  "dollars",      "mph",
        "inches",     "hours",      "km",        "units",        "\\ldots",
        "sue",        "points",     "feet",      "minutes",      "digits",
        "cents",      "degrees",    "cm",        "gm",           "pounds",
        "meters",     "meals",      "edges",     "students",     "childrentickets",
        "multiples",  "\\text{s}",  "\\text{.}", "\\text{\ns}",  "\\text{}^2",
        "\\text{}^3", "\\text{\n}", "\\text{}",  "\\mathrm{th}", "^\\circ",
        "^{\\circ}",  "\\;",        ",\\!",      "{,}",          "\"",
        "\\dots",
    };
    int64_t equals = edit_find_last(t, "=");
    if (equals >= 0) t = edit_from(t, (size_t)equals + 1);
    for (int i = 0; i < ARES_COUNT(replaced); i++)
        t = edit_replace(t, replaced[i].from, replaced[i].to, arena);
    for (int i = 0; i < ARES_COUNT(deleted); i++) t = edit_delete(t, deleted[i], arena);
    t = first_dollars(t, arena);
    t = unwrap(t, "\\text{", false, arena);
    t = unwrap(t, "\\textbf{", false, arena);
    t = unwrap(t, "\\overline{", false, arena);
    t = unwrap(t, "\\boxed{", true, arena);
    t = brace(t, "frac", true, arena);
    t = brace(t, "sqrt", false, arena);
    t = edit_delete(t, "$", arena);
    ares_view plain = edit_delete(t, ",", arena);
    return edit_trim(all_digits(plain) ? plain : t);
}
