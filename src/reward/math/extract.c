/*
 * Where the answer stands in a response. Linear scans, from the end where the last match counts;
 * nothing is copied.
 */
#include "edit.h"

#include <string.h>

static const ares_view none = { NULL, 0 };

/*
 * The index of the brace that brings the depth back to 0, counted from `at`; -1 when none does. As
 * in the original, braces before the box's own count too.
 */
static int64_t box_end(ares_view t, size_t at)
{
    int64_t depth = 0;
    for (size_t i = at; i < t.len; i++) {
        if (t.data[i] == '{') depth++;
        else if (t.data[i] == '}' && --depth == 0) return (int64_t)i;
    }
    return -1;
}

static ares_view box_from(ares_view t, int64_t at)
{
    if (at < 0 || !edit_at(t, (size_t)at, "\\boxed{")) return none;
    int64_t end = box_end(t, (size_t)at);
    return end < 0 ? none : edit_cut(t, (size_t)at + 7, (size_t)end);
}

ares_view math_last_boxed(ares_view t)
{
    return box_from(t, edit_find_last(t, "\\boxed"));
}

ares_view math_last_boxed_hendrycks(ares_view t)
{
    int64_t spaced = edit_find_last(t, "\\boxed "), at = edit_find_last(t, "\\boxed");
    if (spaced >= 0) {
        ares_view rest = edit_from(t, (size_t)spaced + 7);
        const char *dollar = rest.len ? memchr(rest.data, '$', rest.len) : NULL;
        return dollar ? edit_cut(rest, 0, (size_t)(dollar - rest.data)) : rest;
    }
    return box_from(t, at);
}

ares_view math_last_boxed_strict(ares_view t)
{
    ares_view tail = edit_tail(edit_tail(t, 300), 100);
    return box_from(tail, edit_find_last(tail, "\\boxed{"));
}

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

static bool in_number(char c)
{
    return edit_digit(c) || c == '.' || c == ',';
}

/* The end of "-" and a run of digits, points and commas at i; i when there is none. */
static size_t number_end(ares_view t, size_t i)
{
    size_t from = i < t.len && t.data[i] == '-' ? i + 1 : i, end = from;
    while (end < t.len && in_number(t.data[end])) end++;
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

/*
 * The index after "answer", white space and ":" at i, in any case; 0 when they do not stand there.
 */
static size_t answer_colon(ares_view t, size_t i)
{
    static const char word[] = "answer";
    size_t n;
    for (size_t k = 0; k < 6; k++, i++)
        if (i >= t.len || (t.data[i] | 32) != word[k]) return 0;
    while (i < t.len && (n = edit_space(t, i)) > 0) i += n;
    return i < t.len && t.data[i] == ':' ? i + 1 : 0;
}

ares_view math_dapo_answer(ares_view t)
{
    ares_view found = none;
    t = edit_tail(t, 300);
    for (size_t i = 0, at; i < t.len;) {
        if (!(at = answer_colon(t, i))) {
            i++;
            continue;
        }
        size_t from = at, n, last_blank = t.len;
        while (from < t.len && (n = edit_space(t, from)) > 0) {
            if (t.data[from] != '\n') last_blank = from;
            from += n;
        }
        /* only white space follows: its last character that is no newline is the answer */
        if (from == t.len) from = last_blank;
        size_t end = from;
        while (end < t.len && t.data[end] != '\n') end++;
        if (end > from) found = edit_cut(t, from, end);
        i = end > from ? end : i + 1;
    }
    return found;
}
