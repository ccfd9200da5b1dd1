/*
 * Characters and words of a text for the checks: characters, lists of words and pieces, small
 * scanners, and word lists.
 */
#include "words.h"
#include "ifeval.h"
#include "tables_data.h"

#include <string.h>
#include <utf8proc.h>

/*
 * Characters and simple operations on texts. ASCII comes from a table, other characters from
 * utf8proc's categories. These lack what Unicode calls Other_Lowercase and Other_Uppercase (circled
 * letters, modifier letters, Roman numerals), which is listed here.
 */

#define S IFEVAL_SPACE
#define P IFEVAL_PUNCT
#define D (IFEVAL_DIGIT | IFEVAL_WORD)
#define U (IFEVAL_UPPER | IFEVAL_LETTER | IFEVAL_WORD)
#define L (IFEVAL_LOWER | IFEVAL_LETTER | IFEVAL_WORD)
const uint8_t ifeval_ascii_kinds[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, S, S, S, S, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, S, S, S, S, S, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P,
    D, D, D, D, D, D, D, D, D, D, P, P, P, P, P, P, P, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, P, P, P, P, P | IFEVAL_WORD,
    P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, P, P, P, P, 0,
};
#undef S
#undef P
#undef D
#undef U
#undef L

uint32_t ifeval_next_wide(const char **p, const char *end)
{
    uint32_t c;
    int n = ares_utf8_next(*p, end, &c);
    if (n > 0) return *p += n, c;
    return ++*p, IFEVAL_BROKEN + c;
}

/*
 * The start of the last character of [start, end), start < end: back over at most three bytes that
 * continue a character, unless these make none that reaches to the end.
 */
static const char *back(const char *start, const char *end)
{
    const char *p = end - 1;
    if (!(*p & 0x80)) return p;
    for (int i = 0; i < 3 && p > start && (*p & 0xc0) == 0x80; i++) p--;
    const char *q = p;
    ifeval_next(&q, end);
    return q == end ? p : end - 1;
}

uint32_t ifeval_last(ares_view v)
{
    if (v.len == 0) return 0;
    const char *p = back(v.data, v.data + v.len);
    return ifeval_next(&p, v.data + v.len);
}

uint32_t ifeval_first(ares_view v)
{
    const char *p = v.data;
    return v.len ? ifeval_next(&p, p + v.len) : 0;
}

int64_t ifeval_length(ares_view v)
{
    int64_t n = 0;
    for (const char *p = v.data, *end = p + v.len; p < end; n++) ifeval_next(&p, end);
    return n;
}

/* Beyond the last character: the end of the text, as a slice in Python ends there. */
size_t ifeval_offset(ares_view v, int64_t i)
{
    const char *p = v.data, *end = p + v.len;
    for (; i > 0 && p < end; i--) ifeval_next(&p, end);
    return (size_t)(p - v.data);
}

/* The reverse of ifeval_next: a byte that was no character comes back as it was. */
size_t ifeval_put(uint32_t c, char out[4])
{
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < IFEVAL_BROKEN)
        return (size_t)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)out);
    out[0] = (char)(unsigned char)(c - IFEVAL_BROKEN);
    return 1;
}

typedef struct range {
    uint32_t first, last;
} range;
/* Other_Lowercase and Other_Uppercase of Unicode's PropList.txt, by code point */
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

/* The ranges are sorted, so the search ends at the first one beyond c. */
static bool within(const range *ranges, int n, uint32_t c)
{
    for (int i = 0; i < n && c >= ranges[i].first; i++)
        if (c <= ranges[i].last) return true;
    return false;
}

bool ifeval_is_wide(uint32_t c, int kind)
{
    if (c >= IFEVAL_BROKEN) return false;
    if (kind == IFEVAL_SPACE)
        return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
               c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    switch (kind) {
    case IFEVAL_WORD:
        return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
               (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
    case IFEVAL_LETTER: return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    case IFEVAL_DIGIT: return category == UTF8PROC_CATEGORY_ND;
    case IFEVAL_UPPER:
        return category == UTF8PROC_CATEGORY_LU || within(other_upper, ARES_COUNT(other_upper), c);
    case IFEVAL_LOWER:
        return category == UTF8PROC_CATEGORY_LL || within(other_lower, ARES_COUNT(other_lower), c);
    default: return false;
    }
}

uint32_t ifeval_to_lower(uint32_t c)
{
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    return c < IFEVAL_BROKEN ? (uint32_t)utf8proc_tolower((utf8proc_int32_t)c) : c;
}

/* ------------------------------------------------------------------ whole texts */
/*
 * Whether letters of the wanted case occur, and none of the other or of title case (U+01C5 and its
 * like): str.isupper and str.islower of Python.
 */
static bool cased_text(ares_view v, int wanted, int other)
{
    bool found = false;
    for (const char *p = v.data, *end = p + v.len; p < end;) {
        uint32_t c = ifeval_next(&p, end);
        if (ifeval_is(c, wanted)) found = true;
        else if (ifeval_is(c, other)) return false;
        else if (c >= 0x80 && c < IFEVAL_BROKEN &&
                 utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LT)
            return false;
    }
    return found;
}

bool ifeval_upper_text(ares_view v)
{
    return cased_text(v, IFEVAL_UPPER, IFEVAL_LOWER);
}
bool ifeval_lower_text(ares_view v)
{
    return cased_text(v, IFEVAL_LOWER, IFEVAL_UPPER);
}

bool ifeval_is_blank(ares_view v)
{
    return ifeval_trim_left(v).len == 0;
}

/* Whether cut_left and cut_right remove it. IFEVAL_PUNCT: ASCII punctuation and the blank. */
static bool is_trimmed(uint32_t c, int kind)
{
    return kind == IFEVAL_SPACE ? ifeval_is_space(c) : c == ' ' || ifeval_is_punct(c);
}

/* v without the characters at its beginning that is_trimmed names. */
static ares_view cut_left(ares_view v, int kind)
{
    const char *p = v.data, *end = p + v.len;
    while (p < end) {
        const char *next = p;
        if (!is_trimmed(ifeval_next(&next, end), kind)) break;
        p = next;
    }
    return (ares_view){ p, (size_t)(end - p) };
}

static ares_view cut_right(ares_view v, int kind)
{
    const char *end = v.data + v.len;
    while (end > v.data) {
        const char *last = back(v.data, end), *p = last;
        if (!is_trimmed(ifeval_next(&p, end), kind)) break;
        end = last;
    }
    return (ares_view){ v.data, (size_t)(end - v.data) };
}

ares_view ifeval_trim_left(ares_view v)
{
    return cut_left(v, IFEVAL_SPACE);
}
ares_view ifeval_trim_right(ares_view v)
{
    return cut_right(v, IFEVAL_SPACE);
}
ares_view ifeval_trim(ares_view v)
{
    return cut_right(cut_left(v, IFEVAL_SPACE), IFEVAL_SPACE);
}
ares_view ifeval_strip_left(ares_view v)
{
    return cut_left(v, IFEVAL_PUNCT);
}
ares_view ifeval_strip_right(ares_view v)
{
    return cut_right(v, IFEVAL_PUNCT);
}
ares_view ifeval_strip(ares_view v)
{
    return cut_right(cut_left(v, IFEVAL_PUNCT), IFEVAL_PUNCT);
}

ares_view ifeval_lower(ares_view v, ares_arena *arena)
{
    /* some letters of two bytes take three in lower case */
    char *out = ares_arena_alloc(arena, v.len + v.len / 2 + 4), *at = out;
    for (const char *p = v.data, *end = p + v.len; p < end;) {
        unsigned char byte = (unsigned char)*p;
        if (byte < 0x80) {
            *at++ = (char)(byte + ((ifeval_ascii_kinds[byte] & IFEVAL_UPPER) ? 32 : 0));
            p++;
        } else {
            at += ifeval_put(ifeval_to_lower(ifeval_next(&p, end)), at);
        }
    }
    return (ares_view){ out, (size_t)(at - out) };
}

ares_view ifeval_delete_punct(ares_view v, ares_arena *arena)
{
    char *out = ares_arena_alloc(arena, v.len + 1), *at = out;
    for (size_t i = 0; i < v.len; i++)
        if (!ifeval_is_punct((unsigned char)v.data[i])) *at++ = v.data[i];
    return (ares_view){ out, (size_t)(at - out) };
}

/* As NFKD and encode("ascii", "ignore") of Python: accents go, their letters stay. */
ares_view ifeval_ascii(ares_view v, ares_arena *arena)
{
    size_t cap = 2 * v.len + 32; /* a character of three bytes gives at most five ASCII ones */
    char *out = ares_arena_alloc(arena, cap), *at = out;
    for (const char *p = v.data, *end = p + v.len; p < end;) {
        uint32_t c = ifeval_next(&p, end);
        utf8proc_int32_t parts[32];
        int class = 0;
        if (c < 0x80) {
            *at++ = (char)c;
            continue;
        }
        if (c >= IFEVAL_BROKEN) continue;
        utf8proc_ssize_t n =
            utf8proc_decompose_char((utf8proc_int32_t)c, parts, ARES_COUNT(parts),
                                    UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_STABLE, &class);
        for (utf8proc_ssize_t i = 0; i < n && i < ARES_COUNT(parts); i++)
            if (parts[i] < 0x80) *at++ = (char)parts[i];
        ARES_ASSERT((size_t)(at - out) <= cap - 32 + 18);
    }
    return (ares_view){ out, (size_t)(at - out) };
}

/*
 * Lists of the words and pieces of a text, and words found in it. A list is counted first, so that
 * it takes only the memory it needs.
 */

static ifeval_list list_new(int64_t n, ares_arena *arena)
{
    return (ifeval_list){ ares_arena_alloc(arena, (size_t)ARES_MAX(n, 1) * sizeof(ares_view)), 0 };
}

/*
 * The runs of characters of a kind, or of characters not of it, into items unless that is NULL;
 * returns how many.
 */
static int64_t runs(ares_view v, int kind, bool of_kind, ares_view *items)
{
    int64_t n = 0;
    const char *start = NULL, *end = v.data + v.len;
    for (const char *p = v.data; p < end;) {
        const char *at = p;
        bool belongs = ifeval_is(ifeval_next(&p, end), kind) == of_kind;
        if (belongs && !start) start = at;
        if (belongs || !start) continue;
        if (items) items[n] = (ares_view){ start, (size_t)(at - start) };
        start = NULL;
        n++;
    }
    if (start && items) items[n] = (ares_view){ start, (size_t)(end - start) };
    return n + (start != NULL);
}

ifeval_list ifeval_words(ares_view v, ares_arena *arena)
{
    ifeval_list list = list_new(runs(v, IFEVAL_SPACE, false, NULL), arena);
    list.n = runs(v, IFEVAL_SPACE, false, list.items);
    return list;
}

int64_t ifeval_count_words(ares_view v)
{
    return runs(v, IFEVAL_WORD, true, NULL);
}

/* Writes the pieces between separators into items unless that is NULL; returns how many. */
static int64_t split(ares_view v, ares_view separator, ares_view *items)
{
    size_t from = 0;
    for (int64_t n = 0;; n++) {
        int64_t at = ares_view_find(v, separator, from);
        size_t to = at < 0 ? v.len : (size_t)at;
        if (items) items[n] = (ares_view){ v.data + from, to - from };
        if (at < 0) return n + 1;
        from = to + separator.len;
    }
}

ifeval_list ifeval_split(ares_view v, ares_view separator, ares_arena *arena)
{
    ARES_ASSERT(separator.len > 0);
    ifeval_list list = list_new(split(v, separator, NULL), arena);
    list.n = split(v, separator, list.items);
    return list;
}

/* \b of Python: one of the characters before and after is a word character, the other is not. */
bool ifeval_boundary(ares_view v, size_t at)
{
    ARES_ASSERT(at <= v.len);
    bool before = at > 0 && ifeval_is_word(ifeval_last((ares_view){ v.data, at }));
    bool behind =
        at < v.len && ifeval_is_word(ifeval_first((ares_view){ v.data + at, v.len - at }));
    return before != behind;
}

/* As \bword\b of Python: "art" is no word of "party". An empty word stands at any boundary. */
bool ifeval_has_word(ares_view v, ares_view word)
{
    if (word.len == 0) return ifeval_count_words(v) > 0;
    for (size_t from = 0;;) {
        int64_t at = ares_view_find(v, word, from);
        if (at < 0) return false;
        if (ifeval_boundary(v, (size_t)at) && ifeval_boundary(v, (size_t)at + word.len))
            return true;
        from = (size_t)at + 1;
    }
}

/* Occurrences that do not overlap: "aa" occurs once in "aaa". */
int64_t ifeval_count(ares_view v, ares_view part)
{
    return part.len ? split(v, part, NULL) - 1 : 0;
}

/* Small scanners, and sets of words, that several checks use. */

bool ifeval_has(ares_view text, const char *part)
{
    return ares_view_find(text, ares_view_of(part), 0) >= 0;
}

/* As str.endswith of Python; every text ends with an empty one. */
bool ifeval_ends(ares_view text, ares_view end)
{
    return text.len >= end.len && ares_view_eq(ifeval_from(text, text.len - end.len), end);
}

ares_view ifeval_from(ares_view v, size_t at)
{
    return (ares_view){ v.data + at, v.len - at };
}

/* As str.replace of Python; an empty part replaces nothing here. */
ares_view ifeval_replace(ares_view text, ares_view part, ares_view by, ares_arena *arena)
{
    int64_t n = ifeval_count(text, part);
    char *out = ares_arena_alloc(arena, text.len - (size_t)n * part.len + (size_t)n * by.len + 1),
         *w = out;
    size_t from = 0;
    for (int64_t at; n > 0 && (at = ares_view_find(text, part, from)) >= 0;
         from = (size_t)at + part.len) {
        w = mempcpy(w, text.data + from, (size_t)at - from);
        w = mempcpy(w, by.data, by.len);
    }
    if (text.len > from) w = mempcpy(w, text.data + from, text.len - from);
    *w = 0;
    return (ares_view){ out, (size_t)(w - out) };
}

/* The first run of characters that belong, and v moves past it; data NULL at the end. */
static ares_view next_run(ares_view *v, bool (*belongs)(uint32_t c))
{
    const char *p = v->data, *end = v->data + v->len, *from = NULL, *at = p;
    while (p < end) {
        at = p;
        bool in = belongs(ifeval_next(&p, end));
        if (in && !from) from = at;
        if (!in && from) break;
        at = p;
    }
    *v = (ares_view){ at, (size_t)(end - at) };
    return from ? (ares_view){ from, (size_t)(at - from) } : (ares_view){ NULL, 0 };
}

ares_view ifeval_next_digits(ares_view *v)
{
    return next_run(v, ifeval_is_digit);
}
ares_view ifeval_next_run(ares_view *v)
{
    return next_run(v, ifeval_is_word);
}

static bool is_no_space(uint32_t c)
{
    return !ifeval_is_space(c);
}

/* By white space alone: punctuation stays, as in " \"Yes,\" he" -> "\"Yes,\"". */
ares_view ifeval_first_word(ares_view v)
{
    return next_run(&v, is_no_space);
}

ares_view ifeval_last_word(ares_view v)
{
    ares_view last = { NULL, 0 };
    for (ares_view word; (word = next_run(&v, is_no_space)).data;) last = word;
    return last;
}

/* ---------------------------------------------------------------- sets */
/* A hash table with linear probing, at most half full; a slot is an index + 1, 0: free. */
uint32_t *ifeval_group(ifeval_list list, ares_arena *arena)
{
    size_t slots = 16;
    while (slots < (size_t)list.n * 2) slots *= 2;
    uint32_t *first = ares_arena_alloc(arena, ((size_t)list.n + 1) * sizeof *first),
             *slot = ares_arena_calloc(arena, slots, sizeof *slot);
    for (int64_t i = 0; i < list.n; i++) {
        size_t at = ifeval_hash(list.items[i].data, list.items[i].len) & (slots - 1);
        while (slot[at] && !ares_view_eq(list.items[slot[at] - 1], list.items[i]))
            at = (at + 1) & (slots - 1);
        if (!slot[at]) slot[at] = (uint32_t)i + 1;
        first[i] = slot[at] - 1;
    }
    return first;
}

/* The word lists. Their data is tables_data.h, which the build makes from tables.json. */

static const ifeval_set *const tables[] = {
    [IFEVAL_STOP_WORDS] = &stop_words,     [IFEVAL_PRONOUNS] = &pronouns,
    [IFEVAL_CONJUNCTIONS] = &conjunctions, [IFEVAL_PERSON_NAMES] = &person_names,
    [IFEVAL_CAPITALS] = &capitals,         [IFEVAL_VERBS] = &verbs,
};

const ifeval_entry *ifeval_set_find(const ifeval_set *s, const char *word, size_t len)
{
    if (len == 0 || len > s->longest) return NULL;
    for (uint32_t at = ifeval_hash(word, len) & s->mask; s->slots[at]; at = (at + 1) & s->mask) {
        const ifeval_entry *e = &s->entries[s->slots[at] - 1];
        if (e->len == len && memcmp(e->text, word, len) == 0) return e;
    }
    return NULL;
}

bool ifeval_table_has(ifeval_table t, ares_view word)
{
    return ifeval_set_find(tables[t], word.data, word.len) != NULL;
}

int ifeval_table_count(ifeval_table t)
{
    return (int)tables[t]->count;
}

ares_view ifeval_table_item(ifeval_table t, int i)
{
    ARES_ASSERT(i >= 0 && i < (int)tables[t]->count);
    const ifeval_entry *e = &tables[t]->entries[i];
    return (ares_view){ e->text, e->len };
}

/* The ranges are sorted: a binary search for the first one that ends at c or after it. */
bool ifeval_is_emoji(uint32_t c)
{
    int low = 0, high = ARES_COUNT(emoji_ranges);
    if (c < emoji_ranges[0][0]) return false;
    while (low < high) {
        int middle = (low + high) / 2;
        if (c > emoji_ranges[middle][1]) low = middle + 1;
        else high = middle;
    }
    return low < ARES_COUNT(emoji_ranges) && c >= emoji_ranges[low][0];
}
