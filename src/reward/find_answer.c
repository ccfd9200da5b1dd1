/* Exact by construction: numbers are compared as normalised text, never as floating point. */
#include "find_answer.h"

#include <string.h>

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/*
 * Normalises the number that begins at s[0] (digits, separators, point) and returns the bytes read;
 * 0 when it is too long to keep.
 */
static size_t scan(const char *s, size_t n, bool negative, grade_number *out)
{
    size_t i = 0, w = 0;
    char whole[120];
    size_t digits = 0;
    /* 1,234,567: a comma before every three digits, one to three before the first */
    bool grouped = false;
    for (; i < n; i++) {
        if (digit(s[i])) {
            /* leading zeros */
            if (digits == 0 && s[i] == '0' && i + 1 < n && digit(s[i + 1])) continue;
            if (digits == sizeof whole) return 0;
            whole[digits++] = s[i];
        } else if (!(s[i] == ',' && i > 0 && (grouped || i <= 3) && i + 3 < n && digit(s[i - 1]) &&
                     digit(s[i + 1]) && digit(s[i + 2]) && digit(s[i + 3]) &&
                     (i + 4 >= n || !digit(s[i + 4]))))
            break;
        else grouped = true;
    }
    size_t fraction = 0, from = i + 1;
    if (i + 1 < n && s[i] == '.' && digit(s[i + 1])) {
        i++;
        while (i < n && digit(s[i])) i++;
        fraction = i - from;
        while (fraction && s[from + fraction - 1] == '0') fraction--;
    }
    if (digits + fraction + 3 > sizeof out->text) return 0;
    while (digits > 1 && whole[0] == '0') memmove(whole, whole + 1, --digits);
    if (digits == 0) whole[digits++] = '0';
    bool zero = digits == 1 && whole[0] == '0' && fraction == 0;
    if (negative && !zero) out->text[w++] = '-';
    memcpy(out->text + w, whole, digits);
    w += digits;
    if (fraction) {
        out->text[w++] = '.';
        memcpy(out->text + w, s + from, fraction);
        w += fraction;
    }
    out->text[w] = 0;
    return i;
}

/*
 * Whether a number begins at i: a digit, or a point before one. The sign before it is read
 * separately.
 */
static bool starts(ares_view t, size_t i)
{
    return digit(t.data[i]) || (t.data[i] == '.' && i + 1 < t.len && digit(t.data[i + 1]) &&
                                (i == 0 || !digit(t.data[i - 1])));
}

/*
 * A minus (ASCII or U+2212) belongs to the number unless it stands between two operands, as in
 * "7-2" or "7 - 2".
 */
static bool negative_before(ares_view t, size_t i)
{
    while (i && (t.data[i - 1] == '$')) i--;
    size_t sign;
    if (i >= 1 && t.data[i - 1] == '-') sign = i - 1;
    else if (i >= 3 && memcmp(t.data + i - 3, "\xe2\x88\x92", 3) == 0) sign = i - 3;
    else return false;
    return sign == 0 || (!digit(t.data[sign - 1]) && t.data[sign - 1] != ')');
}

bool grade_last_number(ares_view t, grade_number *out)
{
    bool found = false;
    grade_number candidate;
    for (size_t i = 0; i < t.len;) {
        if (!starts(t, i)) {
            i++;
            continue;
        }
        size_t used = scan(t.data + i, t.len - i, negative_before(t, i), &candidate);
        found = used > 0;
        if (found) *out = candidate;
        if (!used) /* skip the rest of the number that is too long */
            while (i < t.len && (digit(t.data[i]) || t.data[i] == ',' || t.data[i] == '.')) i++;
        i += used;
    }
    return found;
}

bool grade_whole_number(ares_view t, grade_number *out)
{
    t = ares_view_trim(t);
    bool wide = ares_view_starts(t, ARES_VIEW("\xe2\x88\x92")),
         negative = wide || (t.len && t.data[0] == '-');
    if (wide) t = (ares_view){ t.data + 3, t.len - 3 };
    else if (t.len && (t.data[0] == '-' || t.data[0] == '+'))
        t = (ares_view){ t.data + 1, t.len - 1 };
    if (t.len && t.data[0] == '$') t = (ares_view){ t.data + 1, t.len - 1 };
    return t.len && starts(t, 0) && scan(t.data, t.len, negative, out) == t.len;
}

/* Where the brace opens of a box that begins at i; 0 if none begins there. */
static size_t box_at(ares_view t, size_t i)
{
    static const char *const words[] = { "\\boxed", "\\fbox" };
    for (int k = 0; k < ARES_COUNT(words); k++) {
        size_t n = strlen(words[k]), open = i + n;
        if (open >= t.len || memcmp(t.data + i, words[k], n) != 0) continue;
        while (open < t.len && t.data[open] == ' ') open++;
        if (open < t.len && t.data[open] == '{') return open;
    }
    return 0;
}

ares_view grade_last_boxed(ares_view t)
{
    for (size_t i = t.len; i-- > 0;) {
        size_t open = t.data[i] == '\\' ? box_at(t, i) : 0, depth = 0;
        if (!open) continue;
        for (size_t j = open; j < t.len; j++) {
            depth += t.data[j] == '{';
            if (t.data[j] == '}' && --depth == 0)
                return (ares_view){ t.data + open + 1, j - open - 1 };
        }
        break; /* the last box counts, and it never closes */
    }
    return (ares_view){ NULL, 0 };
}
