/*
 * Normal forms of answers as published graders have them (MATH's "mathd", DAPO's), and where in a
 * response the answer stands.
 */
#include "math.h"

#include <string.h>

/*
 * The string normalisation of the MATH data set's graders, "mathd"
 * (docs/rewards.md#strings-of-the-math-data-set), with its oddities: \sqrt[3]{8} becomes
 * \sqrt{[}3]{8}, \frac\pi2 becomes \frac{\}{p}i2.
 */

/* \sqrt2 -> \sqrt{2}; false when nothing follows a \sqrt. */
static bool brace_roots(ares_view *t, ares_arena *arena)
{
    if (!edit_count(*t, "\\sqrt")) return true;
    edit_out out = { .arena = arena };
    size_t i = 0;
    for (int64_t at; (at = ares_view_find(*t, ARES_VIEW("\\sqrt"), i)) >= 0;) {
        size_t next = (size_t)at + 5;
        edit_add(&out, edit_cut(*t, i, next));
        if (next >= t->len || edit_at(*t, next, "\\sqrt")) return false;
        i = next;
        if (t->data[next] == '{') continue;
        i += edit_char(*t, next);
        edit_add_z(&out, "{");
        edit_add(&out, edit_cut(*t, next, i));
        edit_add_z(&out, "}");
    }
    edit_add(&out, edit_from(*t, i));
    *t = edit_view(&out);
    return true;
}

/* \frac12 -> \frac{1}{2}; false when nothing follows a \frac. */
static bool brace_fractions(ares_view *t, ares_arena *arena)
{
    if (!edit_count(*t, "\\frac")) return true;
    edit_out out = { .arena = arena };
    size_t i = 0;
    for (int64_t at; (at = ares_view_find(*t, ARES_VIEW("\\frac"), i)) >= 0;) {
        size_t next = (size_t)at + 5;
        int64_t later = ares_view_find(*t, ARES_VIEW("\\frac"), next);
        /* the two arguments must stand before the next \frac */
        size_t end = later < 0 ? t->len : (size_t)later;
        edit_add(&out, edit_cut(*t, i, next));
        if (next == end) return false;
        i = next;
        if (t->data[next] == '{') continue;
        size_t second = next + edit_char(*t, next);
        /* one argument is not enough: the whole text stays as it was */
        if (second >= end) return true;
        size_t behind = second + edit_char(*t, second);
        edit_add_z(&out, "{");
        edit_add(&out, edit_cut(*t, next, second));
        edit_add_z(&out, "}");
        if (t->data[second] != '{') edit_add_z(&out, "{");
        edit_add(&out, edit_cut(*t, second, behind));
        if (t->data[second] != '{') edit_add_z(&out, "}");
        i = behind;
    }
    edit_add(&out, edit_from(*t, i));
    *t = edit_view(&out);
    return true;
}

/* Whether the text is an integer as Python writes it: mathd compares it with str(int(text)). */
static bool canonical(ares_view t)
{
    size_t i = t.len && t.data[0] == '-';
    bool zero = t.len == 1 && t.data[0] == '0';
    if (i == t.len || (t.data[i] == '0' && !zero)) return false;
    for (; i < t.len; i++)
        if (!ares_is_digit(t.data[i])) return false;
    return true;
}

/*
 * The steps of mathd on a text that is trimmed and unwrapped already; false when one of them
 * fails. percent: also deletes every "%".
 */
static bool strip_string(ares_view t, bool percent, ares_arena *arena, ares_view *out)
{
    static const char *const gone[] = { "\\left", "\\right", "^{\\circ}", "^\\circ", "\\$" };
    t = edit_delete(t, "\n", arena);
    t = edit_delete(t, "\\!", arena);
    t = edit_replace(t, "\\\\", "\\", arena);
    t = edit_replace(t, "tfrac", "frac", arena);
    t = edit_replace(t, "dfrac", "frac", arena);
    for (int i = 0; i < ARES_COUNT(gone); i++) t = edit_delete(t, gone[i], arena);
    /* "5 \text{ cm}" -> "5 ": units on the right; the original refuses a text with two of them */
    int64_t tails = edit_count(t, "\\text{ ");
    if (tails > 1) return false;
    if (tails) t = edit_cut(t, 0, (size_t)ares_view_find(t, ARES_VIEW("\\text{ "), 0));
    t = edit_delete(t, "\\%", arena);
    if (percent) t = edit_delete(t, "%", arena);
    t = edit_replace(t, " .", " 0.", arena);
    t = edit_replace(t, "{.", "{0.", arena);
    *out = t;
    if (!t.len) return true;
    if (t.data[0] == '.') t = edit_join(ARES_VIEW("0"), t, ARES_VIEW(""), arena);
    if (edit_count(t, "=") == 1) { /* "x = 5" -> " 5", for a left side of two characters at most */
        size_t at = (size_t)ares_view_find(t, ARES_VIEW("="), 0), characters = 0;
        for (size_t i = 0; i < at && characters < 3; i += edit_char(t, i)) characters++;
        if (characters <= 2) t = edit_from(t, at + 1);
    }
    if (!brace_roots(&t, arena)) return false;
    t = edit_delete(t, " ", arena);
    if (!brace_fractions(&t, arena)) return false;
    if (ares_view_is(t, "0.5")) t = ARES_VIEW("\\frac{1}{2}");
    *out = t;
    if (edit_count(t, "/") != 1) return true;
    /* 3/4 becomes \frac{3}{4}, where both are plain integers */
    size_t slash = (size_t)ares_view_find(t, ARES_VIEW("/"), 0);
    ares_view a = edit_cut(t, 0, slash), b = edit_from(t, slash + 1);
    if (canonical(a) && canonical(b))
        *out = edit_join(edit_join(ARES_VIEW("\\frac{"), a, ARES_VIEW("}{"), arena), b,
                         ARES_VIEW("}"), arena);
    return true;
}

static ares_view normal(ares_view t, bool percent, ares_arena *arena)
{
    t = edit_trim(t);
    ares_view inner = edit_trim(edit_unwrap_text(t)), out;
    return strip_string(inner, percent, arena, &out) ? out : inner;
}

ares_view math_mathd(ares_view t, ares_arena *arena)
{
    return normal(t, false, arena);
}
ares_view math_mathruler_a(ares_view t, ares_arena *arena)
{
    return normal(t, true, arena);
}

bool math_same_hendrycks(ares_view a, ares_view b, ares_arena *arena)
{
    ares_view x, y;
    if (strip_string(a, false, arena, &x) && strip_string(b, false, arena, &y))
        return ares_view_eq(x, y);
    return ares_view_eq(a, b);
}

/*
 * DAPO's normal form of an answer, which is Minerva's
 * (docs/rewards.md#dapo-gsm8k-and-the-math-data-set).
 */

/* \word{x} -> x within a line, up to the first closing brace or the last. */
static ares_view unwrap(ares_view t, const char *opening, bool last, ares_arena *arena)
{
    if (!edit_count(t, opening)) return t;
    edit_out out = { .arena = arena };
    for (size_t i = 0; i < t.len;) {
        size_t from = i + strlen(opening), close = t.len;
        if (edit_at(t, i, opening))
            for (size_t k = from; k < t.len && t.data[k] != '\n' && (last || close == t.len); k++)
                if (t.data[k] == '}') close = k;
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
    int64_t equals = edit_find_last(t, "="); /* of x = y = 5 only the 5 counts */
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
    size_t digits = 0;
    while (digits < plain.len && ares_is_digit(plain.data[digits])) digits++;
    return edit_trim(plain.len && digits == plain.len ? plain : t); /* 1,234 is 1234 */
}

/*
 * Where the answer stands in a response. Linear scans, from the end where the last match counts;
 * nothing is copied.
 */

static const ares_view none = { NULL, 0 };

ares_view math_after_think(ares_view t)
{
    int64_t at = edit_find_last(t, "</think>");
    if (at >= 0) return edit_from(t, (size_t)at + 8);
    at = ares_view_find(t, ARES_VIEW("###Response"), 0);
    if (at < 0) return none;
    t = edit_from(t, (size_t)at + 11);
    at = ares_view_find(t, ARES_VIEW("###Response"), 0);
    return at < 0 ? t : edit_cut(t, 0, (size_t)at);
}

/* ------------------------------------------------------------------ GSM8K */

/* The end of "-" and a run of digits, points and commas at i; i when there is none. */
static size_t number_end(ares_view t, size_t i)
{
    size_t from = i < t.len && t.data[i] == '-' ? i + 1 : i, end = from;
    while (end < t.len && (ares_is_digit(t.data[end]) || t.data[end] == '.' || t.data[end] == ','))
        end++;
    return end > from ? end : i;
}

ares_view math_gsm8k_strict(ares_view t, ares_arena *arena)
{
    ares_view found = none;
    t = edit_tail(t, 300);
    for (int64_t at = 0; (at = ares_view_find(t, ARES_VIEW("#### "), (size_t)at)) >= 0;) {
        size_t from = (size_t)at + 5, end = number_end(t, from);
        if (end > from) found = edit_cut(t, from, end);
        at = end > from ? (int64_t)end : at + 1;
    }
    return found.data ? edit_delete(found, ",", arena) : none;
}

ares_view math_gsm8k_flexible(ares_view t)
{
    ares_view found = none;
    t = edit_tail(t, 300);
    /* the last match that is not a lone point, which ends a sentence */
    for (size_t i = 0; i < t.len;) {
        size_t end = number_end(t, i);
        ares_view number = edit_cut(t, i, end);
        if (number.len && (!ares_view_is(number, ".") || !found.data || ares_view_is(found, ".")))
            found = number;
        i = end > i ? end : i + 1;
    }
    return found;
}

/* ------------------------------------------------------------------ DAPO */

ares_view math_dapo_answer(ares_view t)
{
    ares_view found = none;
    t = edit_tail(t, 300);
    for (size_t i = 0; i < t.len;) {
        /* "answer" in any case, white space, ":" */
        static const char word[] = "answer";
        size_t from = i, letters = 0, n, last_blank = t.len;
        while (letters < 6 && from < t.len && (t.data[from] | 32) == word[letters])
            from++, letters++;
        while (letters == 6 && from < t.len && (n = edit_space(t, from)) > 0) from += n;
        if (letters < 6 || from == t.len || t.data[from] != ':') {
            i++;
            continue;
        }
        from++;
        while (from < t.len && (n = edit_space(t, from)) > 0) {
            if (t.data[from] != '\n') last_blank = from;
            from += n;
        }
        /* only white space follows: its last character but newlines is the answer */
        if (from == t.len) from = last_blank;
        size_t end = from;
        while (end < t.len && t.data[end] != '\n') end++;
        if (end > from) found = edit_cut(t, from, end);
        i = end > from ? end : i + 1;
    }
    return found;
}
