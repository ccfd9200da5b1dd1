/*
 * The form in which the deepscaler judge compares answers (docs/rewards.md#normal-form): units,
 * currency and percent signs removed, LaTeX turned into text, integers plain. Reference and target
 * differ in scale words, mixed numbers, LaTeX, and in how exactly an integer is recognised.
 */
#include "latex.h"

#include <string.h>

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
        if (i + 1 < t.len && t.data[i] == '^' && edit_digit(t.data[i + 1]))
            for (i++; i < t.len && edit_digit(t.data[i]);) i++;
    }
    edit_add(&out, edit_from(t, i));
    return edit_view(&out);
}

static ares_view delete_units(ares_view t, ares_arena *arena)
{
    static const char *const units[] = { "degree", "cm",   "centimeter", "meter", "mile",  "second",
                                         "minute", "hour", "day",        "week",  "month", "year",
                                         "foot",   "feet", "inch",       "yard" };
    for (int i = 0; i < ARES_COUNT(units); i++) t = delete_unit(t, units[i], arena);
    return t;
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

/* digit blanks digit: puts a plus in place of the blanks. A digit belongs to one pair only. */
static ares_view add_mixed(ares_view t, ares_arena *arena)
{
    edit_out out = { .arena = arena };
    for (size_t i = 0; i < t.len;) {
        size_t next = edit_digit(t.data[i]) ? blanks(t, i + 1) : 0;
        edit_add(&out, edit_cut(t, i, i + 1));
        i++;
        if (next <= i || next >= t.len || !edit_digit(t.data[next])) continue;
        edit_add_z(&out, "+");
        edit_add(&out, edit_cut(t, next, next + 1));
        i = next + 1;
    }
    return edit_view(&out);
}

/* ------------------------------------------------------------------ the target's own steps */

/* Appends a decimal with its point moved right, exactly; false when the text is no number. */
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
                   (edit_digit(t.data[end]) || t.data[end] == '.' || t.data[end] == ','))
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

static size_t digits_end(ares_view t, size_t i)
{
    while (i < t.len && edit_digit(t.data[i])) i++;
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
    bool target = mode == MATH_TARGET;
    ares_view text;
    budget->steps -= 64 * (int64_t)t.len;
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
    t = delete_units(t, arena);
    t = delete_spaced(t, "^", "\\circ", false, arena);
    if (target) t = edit_delete(t, "^{\\circ}", arena);
    if (t.len > 1 && t.data[0] == '{' && t.data[t.len - 1] == '}') t = edit_cut(t, 1, t.len - 1);
    t = delete_spaced(t, ",\\!", "", false, arena);
    if (math_integer(t, mode, arena, &text)) t = text;
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

/*
 * Whether the inside of brackets can be split at commas: the reference wants no brackets in it, the
 * target balanced ones.
 */
static bool splits(ares_view inside, math_mode mode)
{
    int64_t depth = 0;
    for (size_t i = 0; i < inside.len && depth >= 0; i++) {
        if (!bracket(inside.data[i])) continue;
        if (mode == MATH_REFERENCE) return false;
        depth += inside.data[i] == '(' || inside.data[i] == '[' ? 1 : -1;
    }
    return depth == 0;
}

ares_view *math_elements(ares_view t, math_mode mode, ares_arena *arena, int64_t *n)
{
    t = math_strip_thousands(t, arena);
    *n = 0;
    size_t last = t.len ? t.len - 1 : 0, characters = 0;
    for (size_t i = 0; i < t.len && characters < 3; i += edit_char(t, i)) characters++;
    ares_view *out = ares_arena_alloc(arena, ((size_t)edit_count(t, ",") + 1) * sizeof *out);
    if (!t.len) return out;
    bool bracketed = characters > 2 &&
                     (mode == MATH_REFERENCE ? bracket(t.data[0]) && bracket(t.data[last])
                                             : (t.data[0] == '(' || t.data[0] == '[') &&
                                                   (t.data[last] == ')' || t.data[last] == ']'));
    if (!bracketed || !splits(edit_cut(t, 1, last), mode)) {
        out[(*n)++] = t;
        return out;
    }
    size_t from = 1;
    int64_t depth = 0;
    for (size_t i = 1; i <= last; i++) {
        if (i == last || (t.data[i] == ',' && depth == 0)) {
            out[(*n)++] = edit_trim(edit_cut(t, from, i));
            from = i + 1;
        } else if (bracket(t.data[i])) depth += t.data[i] == '(' || t.data[i] == '[' ? 1 : -1;
    }
    return out;
}
