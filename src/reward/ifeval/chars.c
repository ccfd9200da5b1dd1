/*
 * Characters and simple operations on texts. ASCII comes from a table, other characters from
 * utf8proc's categories. These lack what Unicode calls Other_Lowercase and Other_Uppercase (circled
 * letters, modifier letters, Roman numerals), which is listed here.
 */
#include <utf8proc.h>

#include "text_parts.h"

#define S IF_SPACE
#define P IF_PUNCT
#define D (IF_DIGIT | IF_WORD)
#define U (IF_UPPER | IF_LETTER | IF_WORD)
#define L (IF_LOWER | IF_LETTER | IF_WORD)
const uint8_t if_ascii_kinds[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, S, S, S, S, 0, 0, 0, 0,           0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, S, S, S, S, S, P, P, P, P, P, P, P, P, P, P, P,           P, P, P, P, D, D, D, D,
    D, D, D, D, D, D, P, P, P, P, P, P, P, U, U, U, U, U,           U, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, U, U, P, P, P, P, P | IF_WORD, P, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,           L, P, P, P, P, 0,
};
#undef S
#undef P
#undef D
#undef U
#undef L

uint32_t if_next_wide(const char **p, const char *end)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)*p, end - *p, &c);
    if (n > 0) return *p += n, (uint32_t)c;
    return IF_BROKEN + (unsigned char)*(*p)++;
}

/* The start of the last character of [start, end), start < end. */
static const char *back(const char *start, const char *end)
{
    const char *p = end - 1;
    if (!(*p & 0x80)) return p;
    for (int i = 0; i < 3 && p > start && (*p & 0xc0) == 0x80; i++) p--;
    const char *q = p;
    if_next(&q, end);
    return q == end ? p : end - 1;
}

uint32_t if_last(ares_view v)
{
    if (v.len == 0) return 0;
    const char *p = back(v.data, v.data + v.len);
    return if_next(&p, v.data + v.len);
}

uint32_t if_first(ares_view v)
{
    const char *p = v.data;
    return v.len ? if_next(&p, p + v.len) : 0;
}

int64_t if_length(ares_view v)
{
    int64_t n = 0;
    for (const char *p = v.data, *end = p + v.len; p < end; n++) if_next(&p, end);
    return n;
}

size_t if_offset(ares_view v, int64_t i)
{
    const char *p = v.data, *end = p + v.len;
    for (; i > 0 && p < end; i--) if_next(&p, end);
    return (size_t)(p - v.data);
}

size_t if_put(uint32_t c, char out[4])
{
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < IF_BROKEN)
        return (size_t)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)out);
    out[0] = (char)(unsigned char)(c - IF_BROKEN);
    return 1;
}

typedef struct range {
    uint32_t first, last;
} range;
static const range other_lower[] = {
    { 0xaa, 0xaa },       { 0xba, 0xba },       { 0x2b0, 0x2b8 },     { 0x2c0, 0x2c1 },
    { 0x2e0, 0x2e4 },     { 0x345, 0x345 },     { 0x37a, 0x37a },     { 0x1d2c, 0x1d6a },
    { 0x1d78, 0x1d78 },   { 0x1d9b, 0x1dbf },   { 0x2071, 0x2071 },   { 0x207f, 0x207f },
    { 0x2090, 0x209c },   { 0x2170, 0x217f },   { 0x24d0, 0x24e9 },   { 0x2c7c, 0x2c7d },
    { 0xa69c, 0xa69d },   { 0xa770, 0xa770 },   { 0xa7f8, 0xa7f9 },   { 0xab5c, 0xab5f },
    { 0x10780, 0x10780 }, { 0x10783, 0x10785 }, { 0x10787, 0x107b0 }, { 0x107b2, 0x107ba },
};
static const range other_upper[] = {
    { 0x2160, 0x216f },   { 0x24b6, 0x24cf },   { 0x1f130, 0x1f149 },
    { 0x1f150, 0x1f169 }, { 0x1f170, 0x1f189 },
};

static bool within(const range *ranges, int n, uint32_t c)
{
    for (int i = 0; i < n && c >= ranges[i].first; i++)
        if (c <= ranges[i].last) return true;
    return false;
}

bool if_is_wide(uint32_t c, int kind)
{
    if (c >= IF_BROKEN) return false;
    if (kind == IF_SPACE)
        return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
               c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    switch (kind) {
    case IF_WORD:
        return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
               (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
    case IF_LETTER: return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    case IF_DIGIT: return category == UTF8PROC_CATEGORY_ND;
    case IF_UPPER:
        return category == UTF8PROC_CATEGORY_LU || within(other_upper, ARES_COUNT(other_upper), c);
    case IF_LOWER:
        return category == UTF8PROC_CATEGORY_LL || within(other_lower, ARES_COUNT(other_lower), c);
    default: return false;
    }
}

uint32_t if_to_lower(uint32_t c)
{
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    return c < IF_BROKEN ? (uint32_t)utf8proc_tolower((utf8proc_int32_t)c) : c;
}

/* ------------------------------------------------------------------ whole texts */
static bool cased_text(ares_view v, int wanted, int other)
{
    bool found = false;
    for (const char *p = v.data, *end = p + v.len; p < end;) {
        uint32_t c = if_next(&p, end);
        if (if_is(c, wanted)) found = true;
        else if (if_is(c, other)) return false;
        else if (c >= 0x80 && c < IF_BROKEN &&
                 utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LT)
            return false;
    }
    return found;
}

bool if_upper_text(ares_view v)
{
    return cased_text(v, IF_UPPER, IF_LOWER);
}
bool if_lower_text(ares_view v)
{
    return cased_text(v, IF_LOWER, IF_UPPER);
}

bool if_is_blank(ares_view v)
{
    return if_trim_left(v).len == 0;
}

/* Whether a character is trimmed: white space, or punctuation and the blank. */
static bool is_trimmed(uint32_t c, int kind)
{
    return kind == IF_SPACE ? if_is_space(c) : c == ' ' || if_is_punct(c);
}

static ares_view cut_left(ares_view v, int kind)
{
    const char *p = v.data, *end = p + v.len;
    while (p < end) {
        const char *next = p;
        if (!is_trimmed(if_next(&next, end), kind)) break;
        p = next;
    }
    return (ares_view){ p, (size_t)(end - p) };
}

static ares_view cut_right(ares_view v, int kind)
{
    const char *end = v.data + v.len;
    while (end > v.data) {
        const char *last = back(v.data, end), *p = last;
        if (!is_trimmed(if_next(&p, end), kind)) break;
        end = last;
    }
    return (ares_view){ v.data, (size_t)(end - v.data) };
}

ares_view if_trim_left(ares_view v)
{
    return cut_left(v, IF_SPACE);
}
ares_view if_trim_right(ares_view v)
{
    return cut_right(v, IF_SPACE);
}
ares_view if_trim(ares_view v)
{
    return cut_right(cut_left(v, IF_SPACE), IF_SPACE);
}
ares_view if_strip_left(ares_view v)
{
    return cut_left(v, IF_PUNCT);
}
ares_view if_strip_right(ares_view v)
{
    return cut_right(v, IF_PUNCT);
}
ares_view if_strip(ares_view v)
{
    return cut_right(cut_left(v, IF_PUNCT), IF_PUNCT);
}

ares_view if_lower(ares_view v, ares_arena *arena)
{
    /* some letters of two bytes take three in lower case */
    char *out = ares_arena_alloc(arena, v.len + v.len / 2 + 4), *at = out;
    for (const char *p = v.data, *end = p + v.len; p < end;) {
        unsigned char byte = (unsigned char)*p;
        if (byte < 0x80) {
            *at++ = (char)(byte + ((if_ascii_kinds[byte] & IF_UPPER) ? 32 : 0));
            p++;
        } else {
            at += if_put(if_to_lower(if_next(&p, end)), at);
        }
    }
    return (ares_view){ out, (size_t)(at - out) };
}

ares_view if_delete_punct(ares_view v, ares_arena *arena)
{
    char *out = ares_arena_alloc(arena, v.len + 1), *at = out;
    for (size_t i = 0; i < v.len; i++)
        if (!if_is_punct((unsigned char)v.data[i])) *at++ = v.data[i];
    return (ares_view){ out, (size_t)(at - out) };
}

ares_view if_ascii(ares_view v, ares_arena *arena)
{
    size_t cap = 2 * v.len + 32; /* a character of three bytes gives at most five ASCII ones */
    char *out = ares_arena_alloc(arena, cap), *at = out;
    for (const char *p = v.data, *end = p + v.len; p < end;) {
        uint32_t c = if_next(&p, end);
        utf8proc_int32_t parts[32];
        int class = 0;
        if (c < 0x80) {
            *at++ = (char)c;
            continue;
        }
        if (c >= IF_BROKEN) continue;
        utf8proc_ssize_t n =
            utf8proc_decompose_char((utf8proc_int32_t)c, parts, ARES_COUNT(parts),
                                    UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_STABLE, &class);
        for (utf8proc_ssize_t i = 0; i < n && i < ARES_COUNT(parts); i++)
            if (parts[i] < 0x80) *at++ = (char)parts[i];
        ARES_ASSERT((size_t)(at - out) <= cap - 32 + 18);
    }
    return (ares_view){ out, (size_t)(at - out) };
}
