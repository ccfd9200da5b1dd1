/*
 * The words of the split patterns that most models have, found without a regular expression:
 * GPT-2's, and that of cl100k, Llama 3 and Qwen. Other patterns run in PCRE2 (pattern.c). The
 * alternatives of a pattern are tried in its order; tests hold both ways to the same words.
 */
#include <pthread.h>
#include <string.h>

#include "tokenizer.h"
#include "unicode_class.h"

/* The classes of the patterns: \p{L}, \p{N}, \s, and all others. */
enum { OTHER, LETTER, NUMBER, SPACE };
static uint8_t classes[0x110000]; /* by code point */
static pthread_once_t classes_once = PTHREAD_ONCE_INIT;

static void fill_classes(void)
{
    for (int i = 0; i < ARES_COUNT(unicode_letters); i++)
        memset(classes + unicode_letters[i][0], LETTER,
               unicode_letters[i][1] - unicode_letters[i][0] + 1);
    for (int i = 0; i < ARES_COUNT(unicode_numbers); i++)
        memset(classes + unicode_numbers[i][0], NUMBER,
               unicode_numbers[i][1] - unicode_numbers[i][0] + 1);
    for (uint32_t c = 0; c <= 0x3000; c++)
        if (unicode_is_space(c)) classes[c] = SPACE;
}

scan_kind scan_find(ares_view source)
{
    static const char *const sources[] = { [SCAN_GPT2] = GPT2_PATTERN,
                                           [SCAN_ONE_DIGIT] = QWEN2_PATTERN,
                                           [SCAN_THREE_DIGITS] = CL100K_PATTERN("\\p{N}{1,3}") };
    for (int kind = SCAN_GPT2; kind < ARES_COUNT(sources); kind++)
        if (ares_view_is(source, sources[kind])) {
            pthread_once(&classes_once, fill_classes);
            return (scan_kind)kind;
        }
    return SCAN_NONE;
}

/* The class of the character at p in valid UTF-8; *n: its bytes. */
static inline uint8_t class_at(const unsigned char *p, int *n)
{
    uint32_t c = p[0];
    if (c < 0x80) return *n = 1, classes[c];
    if (c < 0xe0) return *n = 2, classes[(c & 0x1f) << 6 | (p[1] & 0x3f)];
    if (c < 0xf0)
        return *n = 3, classes[(c & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f)];
    *n = 4;
    return classes[(c & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 | (uint32_t)(p[2] & 0x3f) << 6 |
                   (p[3] & 0x3f)];
}

/* The end of the run of characters of this class that p stands in. */
static inline const unsigned char *run(const unsigned char *p, const unsigned char *end,
                                       uint8_t class)
{
    for (int n; p < end && class_at(p, &n) == class; p += n) {}
    return p;
}

/* The same for letters: eight of ASCII at once. */
static inline const unsigned char *letters(const unsigned char *p, const unsigned char *end)
{
    const uint64_t ones = 0x0101010101010101u, high = ones * 0x80;
    for (uint64_t x; end - p >= 8; p += 8) {
        memcpy(&x, p, 8);
        /* in lower case; a carry into the high bit of a byte says that it reaches a, or passes z */
        uint64_t low = (x | ones * 0x20) & ~high;
        uint64_t letter = (low + ones * (0x80 - 'a')) & ~(low + ones * (0x7f - 'z')) & ~x & high;
        if (letter == high) continue;
        p += __builtin_ctzll(letter ^ high) / 8;
        if (*p < 0x80) return p;
        break;
    }
    return run(p, end, LETTER);
}

/* The end of 's, 't, 're, 've, 'm, 'll or 'd at p; NULL: none is there. */
static const unsigned char *contraction(scan_kind kind, const unsigned char *p,
                                        const unsigned char *end)
{
    if (end - p < 2) return NULL;
    bool fold = kind != SCAN_GPT2; /* also in capitals */
    unsigned char a = p[1], b = end - p > 2 ? p[2] : 0;
    /* the long s, U+017F, folds to s */
    if (fold && a == 0xc5 && b == 0xbf) return p + 3;
    if (fold && a < 0x80) a |= 0x20;
    if (fold && b < 0x80) b |= 0x20;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
    if ((b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l')) return p + 3;
    return NULL;
}

const unsigned char *scan_word(scan_kind kind, const unsigned char *p, const unsigned char *end)
{
    int n, next_n = 0;
    uint8_t class = class_at(p, &n);
    if (class == LETTER) return letters(p + n, end);
    const unsigned char *next = p + n;
    int next_class = next < end ? class_at(next, &next_n) : -1;
    bool gpt2 = kind == SCAN_GPT2, is_break = *p == '\n' || *p == '\r';
    if (*p == '\'') {
        const unsigned char *stop = contraction(kind, p, end);
        if (stop) return stop;
    }
    /* [^\r\n\p{L}\p{N}]?\p{L}+, in GPT-2's: " ?" before it */
    if (next_class == LETTER && (gpt2 ? *p == ' ' : class != NUMBER && !is_break))
        return letters(next + next_n, end);
    if (class == NUMBER) {
        if (gpt2) return run(next, end, NUMBER);
        for (int more = kind == SCAN_THREE_DIGITS ? 2 : 0;
             more && next < end && class_at(next, &next_n) == NUMBER; more--)
            next += next_n;
        return next;
    }
    if (gpt2 && *p == ' ' && next_class == NUMBER) return run(next, end, NUMBER);
    if (class == OTHER || (*p == ' ' && next_class == OTHER)) {
        p = run(next, end, OTHER);
        while (!gpt2 && p < end && (*p == '\n' || *p == '\r')) p++;
        return p;
    }
    /*
     * White space: up to its last line break, except in GPT-2's; else without its last character,
     * which the next word may begin with, unless it is the only one or the text ends here.
     */
    const unsigned char *start = p, *last = p, *after_break = NULL;
    for (next = p; next < end && class_at(next, &n) == SPACE; next += n) {
        last = next;
        if (*next == '\n' || *next == '\r') after_break = next + 1;
    }
    if (after_break && !gpt2) return after_break;
    return next == end || last == start ? next : last;
}
