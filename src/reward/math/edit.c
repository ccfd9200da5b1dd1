/* Small edits of texts. Each walks its text once, so deleting n places costs one copy, not n. */
#include "math.h"

#include <string.h>
#include <utf8proc.h>

/* Whether the literal stands at byte i; false beyond the end too, so callers need no bounds. */
bool edit_at(ares_view t, size_t i, const char *literal)
{
    /* most places differ in the first character: callers try many literals at each of them */
    if (i < t.len && literal[0] && t.data[i] != literal[0]) return false;
    size_t n = strlen(literal);
    return i <= t.len && n <= t.len - i && memcmp(t.data + i, literal, n) == 0;
}

/* An invalid byte is a character of one byte, so that every walk moves on. */
size_t edit_char(ares_view t, size_t i)
{
    uint32_t c;
    int n = ares_utf8_next(t.data + i, t.data + t.len, &c);
    return n > 0 ? (size_t)n : 1;
}

size_t edit_space(ares_view t, size_t i)
{
    uint32_t p;
    int n = ares_utf8_next(t.data + i, t.data + t.len, &p);
    /* as str.isspace of Python, which counts the separators U+001C to U+001F */
    if (p < 0x80) return (p >= 9 && p <= 13) || (p >= 28 && p <= 32);
    bool space = p == 0x85 || p == 0xa0 || p == 0x1680 || (p >= 0x2000 && p <= 0x200a) ||
                 p == 0x2028 || p == 0x2029 || p == 0x202f || p == 0x205f || p == 0x3000;
    return n > 0 && space ? (size_t)n : 0;
}

ares_view edit_trim(ares_view t)
{
    size_t from = 0, to = t.len, n;
    while (from < to && (n = edit_space(t, from)) > 0) from += n;
    while (to > from) {
        size_t start = to - 1; /* of the last character: no white space has more than 3 bytes */
        while (start > from && to - start < 3 && ((unsigned char)t.data[start] & 0xc0) == 0x80)
            start--;
        if (edit_space(t, start) != to - start) break;
        to = start;
    }
    return edit_cut(t, from, to);
}

/* Walks back from the end: a long response costs no more than its last n characters. */
ares_view edit_tail(ares_view t, size_t n)
{
    size_t i = t.len;
    while (i && n) {
        size_t start = i - 1;
        while (start && i - start < 4 && ((unsigned char)t.data[start] & 0xc0) == 0x80) start--;
        /* an invalid byte is a character of its own */
        i = edit_char(t, start) == i - start ? start : i - 1;
        n--;
    }
    return edit_from(t, i);
}

ares_view edit_replace(ares_view t, const char *from, const char *to, ares_arena *arena)
{
    size_t n = strlen(from), m = strlen(to), count = (size_t)edit_count(t, from), w = 0, i = 0;
    if (!count) return t; /* most steps of a normal form find nothing, and copy nothing */
    char *out = ares_arena_alloc(arena, t.len + count * m + 1);
    ares_view needle = { from, n };
    for (int64_t at; (at = ares_view_find(t, needle, i)) >= 0; i = (size_t)at + n) {
        memcpy(out + w, t.data + i, (size_t)at - i);
        w += (size_t)at - i;
        memcpy(out + w, to, m);
        w += m;
    }
    memcpy(out + w, t.data + i, t.len - i);
    return (ares_view){ out, w + t.len - i };
}

ares_view edit_delete(ares_view t, const char *literal, ares_arena *arena)
{
    return edit_replace(t, literal, "", arena);
}

ares_view edit_join(ares_view a, ares_view b, ares_view c, ares_arena *arena)
{
    char *out = ares_arena_alloc(arena, a.len + b.len + c.len + 1);
    if (a.len) memcpy(out, a.data, a.len);
    if (b.len) memcpy(out + a.len, b.data, b.len);
    if (c.len) memcpy(out + a.len + b.len, c.data, c.len);
    return (ares_view){ out, a.len + b.len + c.len };
}

/* As str.isalpha of Python: the categories Lu, Ll, Lt, Lm and Lo. */
uint32_t edit_alpha(ares_view t, size_t i)
{
    uint32_t p;
    if (i >= t.len || ares_utf8_next(t.data + i, t.data + t.len, &p) < 0) return 0;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)p);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO ? p : 0;
}

/* As str.lower of Python, for which two letters need rules of their own. */
ares_view edit_lower(ares_view t, ares_arena *arena)
{
    bool in_word = false;
    edit_out out = { .arena = arena };
    for (size_t i = 0, n; i < t.len; i += n) {
        utf8proc_uint8_t bytes[4];
        uint32_t point;
        n = edit_char(t, i);
        bool letter = edit_alpha(t, i);
        if (ares_utf8_next(t.data + i, t.data + t.len, &point) < 0) {
            edit_add(&out, edit_cut(t, i, i + 1));
            in_word = false;
            continue;
        }
        /* U+0130 is the one capital whose lower case is two characters */
        if (point == 0x130) edit_add_z(&out, "i\xcc\x87");
        else if (point == 0x3a3 && in_word && !edit_alpha(t, i + n))
            edit_add_z(&out, "\xcf\x82"); /* sigma at the end of a word */
        else
            edit_add(&out, (ares_view){ (const char *)bytes,
                                        (size_t)utf8proc_encode_char(
                                            utf8proc_tolower((utf8proc_int32_t)point), bytes) });
        in_word = letter;
    }
    return edit_view(&out);
}

int64_t edit_count(ares_view t, const char *literal)
{
    int64_t count = 0;
    ares_view needle = ares_view_of(literal);
    for (int64_t at = 0; (at = ares_view_find(t, needle, (size_t)at)) >= 0;
         at += (int64_t)needle.len)
        count++;
    return count;
}

/* Reads from the end, where an answer usually stands. */
int64_t edit_find_last(ares_view t, const char *literal)
{
    size_t n = strlen(literal);
    for (size_t i = t.len >= n ? t.len - n + 1 : 0; i-- > 0;)
        if (t.data[i] == literal[0] && memcmp(t.data + i, literal, n) == 0) return (int64_t)i;
    return -1;
}

/* "{a{b}c}d" at 0 -> 7, the index of "d". */
size_t edit_closing_brace(ares_view t, size_t i)
{
    for (size_t depth = 0; i < t.len; i++) {
        depth += t.data[i] == '{';
        if (t.data[i] == '}' && depth && --depth == 0) return i + 1;
    }
    return 0;
}

/* "\\text{5 cm}" -> "5 cm"; any other text stays, also one with a newline inside the braces. */
ares_view edit_unwrap_text(ares_view t)
{
    ares_view line = t;
    /* a newline at the end is ignored */
    if (line.len && line.data[line.len - 1] == '\n') line.len--;
    if (!edit_at(line, 0, "\\text{") || line.len < 8 || line.data[line.len - 1] != '}') return t;
    line = edit_cut(line, 6, line.len - 1);
    return memchr(line.data, '\n', line.len) ? t : line;
}

/* Doubles the memory when it is full; what it leaves behind is freed with the arena. */
void edit_add(edit_out *o, ares_view t)
{
    if (o->len + t.len > o->cap) {
        size_t cap = ARES_MAX(2 * o->cap, o->len + t.len + 64);
        char *data = ares_arena_alloc(o->arena, cap);
        if (o->len) memcpy(data, o->data, o->len);
        o->data = data;
        o->cap = cap;
    }
    if (t.len) memcpy(o->data + o->len, t.data, t.len);
    o->len += t.len;
}

void edit_add_z(edit_out *o, const char *z)
{
    edit_add(o, ares_view_of(z));
}
