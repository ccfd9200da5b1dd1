/*
 * UTF-8, character properties and normal forms. Composition and decomposition come from utf8proc;
 * the order of steps and the bookkeeping of where each character comes from follow the library,
 * because the offsets of tokens depend on it.
 */
#include "unicode.h"

#include <pthread.h>
#include <string.h>
#include <utf8proc.h>

#include "unicode_new.h"

const unicode_range *unicode_new_ranges(bool by_script, int *n)
{
    *n = by_script ? ARES_COUNT(unicode_new_scripts) : ARES_COUNT(unicode_new);
    return by_script ? unicode_new_scripts : unicode_new;
}

/* ---- the byte alphabet: printing bytes stand for themselves, the others for U+0100 and up */
#define SELF8(b) b, b + 1, b + 2, b + 3, b + 4, b + 5, b + 6, b + 7
#define SELF16(b) SELF8(b), SELF8(b + 8)
const uint16_t unicode_of_byte[256] = {
    SELF16(0x100), SELF16(0x110), 0x120,        0x21,         0x22,         0x23,
    0x24,          0x25,          0x26,         0x27,         SELF8(0x28),  SELF16(0x30),
    SELF16(0x40),  SELF16(0x50),  SELF16(0x60), SELF8(0x70),  0x78,         0x79,
    0x7a,          0x7b,          0x7c,         0x7d,         0x7e,         0x121,
    SELF16(0x122), SELF16(0x132), 0x142,        0xa1,         0xa2,         0xa3,
    0xa4,          0xa5,          0xa6,         0xa7,         0xa8,         0xa9,
    0xaa,          0xab,          0xac,         0x143,        0xae,         0xaf,
    SELF16(0xb0),  SELF16(0xc0),  SELF16(0xd0), SELF16(0xe0), SELF16(0xf0),
};

int unicode_byte_of(uint32_t c)
{
    if (c < 0x100) return unicode_of_byte[c] == c ? (int)c : -1;
    if (c <= 0x120) return (int)(c - 0x100);
    if (c <= 0x142) return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}

/* ---- UTF-8 */
int unicode_put(uint32_t c, unsigned char *out)
{
    if (c < 0x80) return out[0] = (unsigned char)c, 1;
    if (c < 0x800) {
        out[0] = (unsigned char)(0xc0 | c >> 6), out[1] = (unsigned char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (unsigned char)(0xe0 | c >> 12), out[1] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (unsigned char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (unsigned char)(0xf0 | c >> 18), out[1] = (unsigned char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (unsigned char)(0x80 | (c >> 6 & 0x3f)), out[3] = (unsigned char)(0x80 | (c & 0x3f));
    return 4;
}

int unicode_piece(const unsigned char *s, size_t len, bool *open)
{
    uint32_t c;
    int n = ares_utf8_next((const char *)s, (const char *)s + len, &c);
    *open = n < 0 && (size_t)-n == len && s[0] >= 0xc2 && s[0] <= 0xf4;
    return n;
}

size_t unicode_valid(const unsigned char *text, size_t len)
{
    size_t at = 0;
    while (at < len) {
        uint64_t word;
        if (at + 8 <= len && (memcpy(&word, text + at, 8), (word & 0x8080808080808080u) == 0)) {
            at += 8;
            continue;
        }
        /* most other characters have two or three bytes, and leads that bound nothing after them */
        unsigned char lead = text[at];
        if (len - at >= 3) {
            bool second = (text[at + 1] & 0xc0) == 0x80;
            if (lead >= 0xc2 && lead < 0xe0 && second) {
                at += 2;
                continue;
            }
            if (lead > 0xe0 && lead < 0xf0 && lead != 0xed && second &&
                (text[at + 2] & 0xc0) == 0x80) {
                at += 3;
                continue;
            }
        }
        bool open;
        int n = unicode_piece(text + at, len - at, &open);
        if (n < 0) break;
        at += (size_t)n;
    }
    return at;
}

void unicode_repair(ares_str *out, const unsigned char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t good = unicode_valid(text + at, len - at);
        ares_str_add(out, (const char *)text + at, good);
        if ((at += good) == len) break;
        bool open;
        at += (size_t)-unicode_piece(text + at, len - at, &open);
        ares_str_add(out, "\xef\xbf\xbd", 3);
    }
}

/* ---- properties */
bool unicode_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/*
 * The category of a code point that was assigned after Unicode 14; NULL: it is older, or
 * unassigned.
 */
static const char *new_category(uint32_t c)
{
    for (int i = 0; i < ARES_COUNT(unicode_new); i++)
        if (c >= unicode_new[i].first && c <= unicode_new[i].last) return unicode_new[i].name;
    return NULL;
}

bool unicode_is_numeric(uint32_t c)
{
    if (c < 0x80) return c >= '0' && c <= '9';
    /* Tolong Siki digits, of Unicode 17: the library has these too */
    if (c >= 0x11de0 && c <= 0x11de9) return true;
    int category = utf8proc_get_property((utf8proc_int32_t)c)->category;
    if (category == UTF8PROC_CATEGORY_CN) {
        const char *name = new_category(c);
        return name && name[0] == 'N';
    }
    return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
           category == UTF8PROC_CATEGORY_NO;
}

bool unicode_is_word(uint32_t c)
{
    /* Other_Alphabetic outside L, M and Nl: the circled and squared letters; Join_Control. */
    if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
        (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c ||
        c == 0x200d)
        return true;
    switch (utf8proc_get_property((utf8proc_int32_t)c)->category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    case UTF8PROC_CATEGORY_CN: {
        const char *name = new_category(c);
        return name && (name[0] == 'L' || name[0] == 'M' || strcmp(name, "Nd") == 0 ||
                        strcmp(name, "Nl") == 0);
    }
    default: return false;
    }
}

/* ---- normal forms */
/*
 * Characters that normalisation leaves alone: the library's normal forms are of an older Unicode
 * than its patterns, so marks and letters assigned since then stay as they are.
 */
static bool is_inert(uint32_t c)
{
    int low = 0, high = ARES_COUNT(unicode_inert);
    while (low < high) {
        int middle = (low + high) / 2;
        if (c > unicode_inert[middle].last) low = middle + 1;
        else high = middle;
    }
    return (low < ARES_COUNT(unicode_inert) && c >= unicode_inert[low].first) || new_category(c);
}

/* The canonical combining class; 0: a base character, or one that normalisation leaves alone. */
static uint8_t class_of(uint32_t c)
{
    uint8_t class = (uint8_t)utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
    return class && is_inert(c) ? 0 : class;
}

/* The one character that a and b compose to, or 0. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    utf8proc_int32_t pair[2] = { (utf8proc_int32_t)a, (utf8proc_int32_t)b };
    if (b == 0x11a7) return 0; /* the code point before the first Hangul final: utf8proc drops it */
    if (utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) != 1) return 0;
    return is_inert((uint32_t)pair[0]) ? 0 : (uint32_t)pair[0];
}

/* The full decomposition of c into out, with the compatibility mappings where asked; its length. */
static int decompose(uint32_t c, bool compatible, utf8proc_int32_t out[32])
{
    int last_class = 0;
    utf8proc_option_t options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE;
    if (compatible) options |= UTF8PROC_COMPAT;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, out, 32, options, &last_class);
    ARES_ASSERT(n > 0 && n <= 32); /* the longest decomposition has 18 */
    if ((n == 1 && (uint32_t)out[0] == c) || !is_inert(c)) return (int)n;
    /* a utf8proc of a newer Unicode than the library decomposes it */
    out[0] = (utf8proc_int32_t)c;
    return 1;
}

/*
 * One bit per code point that NFC may change: a mark, the second character of a pair that composes,
 * or a character that is not in NFC.
 */
enum { TOUCHED_END = 0x30000 };
static uint8_t touched[TOUCHED_END / 8];
static pthread_once_t touched_once = PTHREAD_ONCE_INIT;

/* Sets the bit of c. */
static void touch(uint32_t c)
{
    touched[c / 8] |= (uint8_t)(1u << (c & 7));
}

static void find_touched(void)
{
    for (uint32_t c = 0x1160; c <= 0x11ff; c++) touch(c); /* the vowels and finals of Hangul */
    for (uint32_t c = 0xc0; c < TOUCHED_END; c++) {
        if ((c >= 0xac00 && c <= 0xd7a3) || (c >= 0xd800 && c <= 0xdfff)) continue;
        const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)c);
        if (p->combining_class) touch(c);
        /* no canonical decomposition */
        if (p->decomp_seqindex == UINT16_MAX || p->decomp_type) continue;
        utf8proc_int32_t parts[32];
        int n = decompose(c, false, parts);
        uint32_t last = (uint32_t)parts[n - 1];
        /* where its parts compose to it again it is in NFC, and its last part may be composed */
        n = (int)utf8proc_normalize_utf32(parts, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (n == 1 && (uint32_t)parts[0] == c) touch(last);
        else touch(c);
    }
}

/* A quick check without a decomposition; false may be said of a text that is in the form. */
bool unicode_is_normal(unicode_form form, const unsigned char *text, size_t len)
{
    const unsigned char *end = text + len;
    /* all characters below are in the form, whatever stands beside them */
    uint32_t safe = form == UNICODE_NFC ? 0x300 : form == UNICODE_NFD ? 0xc0 : 0xa0;
    if (form == UNICODE_NFC) pthread_once(&touched_once, find_touched);
    for (const unsigned char *p = text; p < end;) {
        uint64_t word;
        /* eight ASCII bytes at once */
        if (end - p >= 8 && (memcpy(&word, p, 8), (word & 0x8080808080808080u) == 0)) {
            p += 8;
            continue;
        }
        uint32_t c = unicode_next(&p);
        if (c < safe) continue;
        if (form != UNICODE_NFC) return false;
        if (c >= TOUCHED_END ? class_of(c) != 0 : touched[c / 8] >> (c & 7) & 1) return false;
    }
    return true;
}

/* change: see unicode_change in unicode.h. */
static void push(unicode_changes *out, uint32_t c, int32_t change)
{
    if (out->n == out->cap) {
        out->cap = out->cap ? out->cap * 2 : 256;
        out->items = ares_realloc(out->items, (size_t)out->cap * sizeof *out->items);
    }
    out->items[out->n++] = (unicode_change){ c, change };
}

/*
 * Sorts the marks [from, n) by combining class, keeping the order of equals. By insertion, because
 * runs are short; a long run, as in a hostile text, is sorted by counting, so that the cost is not
 * quadratic.
 */
static void sort_marks(unicode_change *items, int64_t from, int64_t n, unicode_changes *scratch)
{
    if (n - from > 32) { /* counting sort over the 256 classes */
        int64_t starts[257] = { 0 };
        scratch->n = 0;
        for (int64_t i = from; i < n; i++) {
            starts[class_of(items[i].c) + 1]++;
            push(scratch, items[i].c, items[i].change);
        }
        for (int class = 1; class <= 256; class ++) starts[class] += starts[class - 1];
        for (int64_t i = 0; i < n - from; i++)
            items[from + starts[class_of(scratch->items[i].c)]++] = scratch->items[i];
        return;
    }
    for (int64_t i = from + 1; i < n; i++) {
        unicode_change x = items[i];
        int64_t at = i;
        for (; at > from && class_of(items[at - 1].c) > class_of(x.c); at--)
            items[at] = items[at - 1];
        items[at] = x;
    }
}

/* Decomposes all, sorts runs of marks, and for NFC and NFKC composes again. */
void unicode_normalize(unicode_form form, const unsigned char *text, size_t len,
                       unicode_changes *out)
{
    bool compatible = form == UNICODE_NFKC || form == UNICODE_NFKD;
    unicode_changes scratch = { 0 };
    int64_t marks = 0; /* where the run of marks at the end of out begins */
    out->n = 0;
    for (const unsigned char *p = text, *end = text + len; p < end;) {
        utf8proc_int32_t parts[32];
        int n = decompose(unicode_next(&p), compatible, parts);
        for (int i = 0; i < n; i++) {
            /* a base character ends the run of marks before it */
            if (class_of((uint32_t)parts[i]) == 0) {
                sort_marks(out->items, marks, out->n, &scratch);
                marks = out->n + 1;
            }
            push(out, (uint32_t)parts[i], i > 0);
        }
    }
    sort_marks(out->items, marks, out->n, &scratch);
    ares_free(scratch.items);
    if (form == UNICODE_NFC || form == UNICODE_NFKC) {
        /*
         * in place: a mark joins its base unless a kept mark of the same or a higher class stands
         * between them; change of the base then counts the mark
         */
        unicode_change *items = out->items;
        int64_t base = -1, kept = 0;
        int last_class = -1; /* of the marks kept since the base; -1: none */
        for (int64_t i = 0; i < out->n; i++) {
            unicode_change x = items[i];
            int class = class_of(x.c);
            uint32_t joined = base >= 0 && (last_class < 0 || last_class < class)
                                  ? compose(items[base].c, x.c)
                                  : 0;
            if (joined) {
                items[base].c = joined;
                items[base].change += x.change - 1;
                continue;
            }
            if (class == 0) base = kept, last_class = -1;
            else if (base >= 0) last_class = class;
            items[kept++] = x;
        }
        out->n = kept;
    }
}
