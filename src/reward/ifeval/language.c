/*
 * The language of a text: by the script of most of its letters, and where several languages share
 * the script, by whose frequent words and own letters occur most (ties: the first of the list). The
 * reference's langdetect is an n-gram classifier with random seeds; the two agree on plain texts,
 * not on short or mixed ones.
 */
#include <string.h>
#include <utf8proc.h>

#include "tables.h"
#include "text_parts.h"

enum {
    HANGUL = IF_LANGUAGE_SCRIPTS,
    KANA,
    HAN,
    THAI,
    BENGALI,
    TAMIL,
    TELUGU,
    KANNADA,
    MALAYALAM,
    GUJARATI,
    GURMUKHI,
    HEBREW,
    GREEK,
    SCRIPTS
};
static const char *const only_language[SCRIPTS] = {
    [HANGUL] = "ko",   [KANA] = "ja",   [HAN] = "zh",     [THAI] = "th",      [BENGALI] = "bn",
    [TAMIL] = "ta",    [TELUGU] = "te", [KANNADA] = "kn", [MALAYALAM] = "ml", [GUJARATI] = "gu",
    [GURMUKHI] = "pa", [HEBREW] = "he", [GREEK] = "el"
};

static const struct {
    uint32_t first, last;
    int script;
} blocks[] = {
    /* by code point */
    { 0x41, 0x24f, IF_LATIN },     { 0x250, 0x2af, IF_LATIN },    { 0x370, 0x3ff, GREEK },
    { 0x400, 0x52f, IF_CYRILLIC }, { 0x590, 0x5ff, HEBREW },      { 0x600, 0x6ff, IF_ARABIC },
    { 0x750, 0x77f, IF_ARABIC },   { 0x8a0, 0x8ff, IF_ARABIC },   { 0x900, 0x97f, IF_DEVANAGARI },
    { 0x980, 0x9ff, BENGALI },     { 0xa00, 0xa7f, GURMUKHI },    { 0xa80, 0xaff, GUJARATI },
    { 0xb80, 0xbff, TAMIL },       { 0xc00, 0xc7f, TELUGU },      { 0xc80, 0xcff, KANNADA },
    { 0xd00, 0xd7f, MALAYALAM },   { 0xe00, 0xe7f, THAI },        { 0x1100, 0x11ff, HANGUL },
    { 0x1e00, 0x1eff, IF_LATIN },  { 0x1f00, 0x1fff, GREEK },     { 0x3040, 0x30ff, KANA },
    { 0x3130, 0x318f, HANGUL },    { 0x3400, 0x4dbf, HAN },       { 0x4e00, 0x9fff, HAN },
    { 0xa960, 0xa97f, HANGUL },    { 0xac00, 0xd7ff, HANGUL },    { 0xf900, 0xfaff, HAN },
    { 0xfb1d, 0xfb4f, HEBREW },    { 0xfb50, 0xfdff, IF_ARABIC }, { 0xfe70, 0xfeff, IF_ARABIC },
    { 0xff21, 0xff5a, IF_LATIN },  { 0xff66, 0xff9d, KANA },      { 0x20000, 0x323af, HAN },
};

static int script_of(uint32_t c)
{
    int low = 0, high = ARES_COUNT(blocks);
    while (low < high) {
        int middle = (low + high) / 2;
        if (c > blocks[middle].last) low = middle + 1;
        else high = middle;
    }
    return low < ARES_COUNT(blocks) && c >= blocks[low].first ? blocks[low].script : -1;
}

/*
 * Whether c belongs to a word: a letter, or one of the marks that Indian scripts write words with.
 */
static bool in_word(uint32_t c)
{
    if (if_is_letter(c)) return true;
    if (c < 0x300 || c >= IF_BROKEN) return false;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC;
}

static void count(int64_t *scores, uint32_t languages)
{
    for (; languages; languages &= languages - 1) scores[__builtin_ctz(languages)]++;
}

const char *if_language(ares_view text)
{
    enum { LONGEST = 48 };
    int64_t letters[SCRIPTS] = { 0 }, scores[32] = { 0 };
    char word[LONGEST];
    size_t len = 0;
    for (const char *p = text.data, *end = p + text.len;;) {
        uint32_t c = p < end ? if_to_lower(if_next(&p, end)) : 0;
        if (c >= 'a' && c <= 'z') { /* the most frequent case */
            if (len < LONGEST) word[len] = (char)c;
            len++;
            letters[IF_LATIN]++;
            continue;
        }
        if (in_word(c)) {
            char bytes[4];
            size_t n = if_put(c, bytes);
            if (len + n <= LONGEST) memcpy(word + len, bytes, n);
            len += n; /* longer than LONGEST: in no list */
            int script = script_of(c);
            if (script >= 0 && if_is_letter(c)) letters[script]++;
            const if_entry *e = if_set_find(&if_language_letters, bytes, n);
            if (e) count(scores, e->value);
            continue;
        }
        const if_entry *e = len <= LONGEST ? if_set_find(&if_language_words, word, len) : NULL;
        if (e) count(scores, e->value);
        len = 0;
        if (c == 0 && p == end) break;
    }
    if (letters[KANA] * 20 >= letters[HAN] + letters[KANA])
        letters[KANA] += letters[HAN], letters[HAN] = 0;
    int script = 0;
    for (int s = 1; s < SCRIPTS; s++)
        if (letters[s] > letters[script]) script = s;
    if (letters[script] == 0) return NULL;
    if (script >= IF_LANGUAGE_SCRIPTS) return only_language[script];
    uint32_t best = if_script_languages[script].first,
             last = best + if_script_languages[script].count;
    for (uint32_t i = best + 1; i < last; i++)
        if (scores[i] > scores[best]) best = i;
    return if_language_codes[best];
}
