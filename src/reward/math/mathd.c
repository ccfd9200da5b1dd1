/*
 * The string normalisation of the MATH data set's graders, "mathd"
 * (docs/rewards.md#strings-of-the-math-data-set), with its oddities: \sqrt[3]{8} becomes
 * \sqrt{[}3]{8}, \frac\pi2 becomes \frac{\}{p}i2.
 */
#include "edit.h"

#include <string.h>

/*
 * Puts the character after a \sqrt into braces where none stand there. False when nothing follows a
 * \sqrt.
 */
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

static bool brace_fractions(ares_view *t, ares_arena *arena)
{
    static const char frac[] = "\\frac";
    if (!edit_count(*t, frac)) return true;
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

/* Whether the text is an integer as Python writes it. */
static bool canonical(ares_view t)
{
    size_t i = t.len && t.data[0] == '-';
    bool zero = t.len == 1 && t.data[0] == '0';
    if (i == t.len || (t.data[i] == '0' && !zero)) return false;
    for (; i < t.len; i++)
        if (!edit_digit(t.data[i])) return false;
    return true;
}

static ares_view slash(ares_view t, ares_arena *arena)
{
    if (edit_count(t, "/") != 1) return t;
    size_t at = (size_t)ares_view_find(t, ARES_VIEW("/"), 0);
    ares_view a = edit_cut(t, 0, at), b = edit_from(t, at + 1);
    if (!canonical(a) || !canonical(b)) return t;
    return edit_join(edit_join(ARES_VIEW("\\frac{"), a, ARES_VIEW("}{"), arena), b, ARES_VIEW("}"),
                     arena);
}

/*
 * mathd's steps alone: not trimmed, \text kept. False when one of them fails. percent: also deletes
 * every "%".
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
    if (edit_count(t, "=") == 1) {
        size_t at = (size_t)ares_view_find(t, ARES_VIEW("="), 0), characters = 0;
        for (size_t i = 0; i < at && characters < 3; i += edit_char(t, i)) characters++;
        if (characters <= 2) t = edit_from(t, at + 1);
    }
    if (!brace_roots(&t, arena)) return false;
    t = edit_delete(t, " ", arena);
    if (!brace_fractions(&t, arena)) return false;
    if (ares_view_is(t, "0.5")) t = ARES_VIEW("\\frac{1}{2}");
    *out = slash(t, arena);
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
