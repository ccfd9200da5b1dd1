/* Private to reward: what the checks of ifeval/ see of a text, and the word lists. */
#ifndef ARES_REWARD_IFEVAL_WORDS_H
#define ARES_REWARD_IFEVAL_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ares/core.h"

/*
 * What the instruction-following checks see of a text: characters, words, sentences, tokens,
 * syllables, language, CSV. Where a word or a sentence begins follows the reference (the English
 * Punkt model and word tokenizer of NLTK 3.8), oddities included.
 *
 * Texts are UTF-8 and may hold NUL. A byte that is part of no valid character is a character of its
 * own, IFEVAL_BROKEN + byte: it has no kind and equals only itself. Functions are pure and
 * thread-safe; what they make lies in the arena, and views point into the text given or into the
 * arena. Work is linear (for lists up to a logarithm), memory at most about 24 bytes per byte of
 * text: a caller judges no text of more than IFEVAL_TEXT_MAX bytes and reports it as exhausted.
 */

enum { IFEVAL_TEXT_MAX = 1 << 20, IFEVAL_BROKEN = 0x110000 };

typedef struct ifeval_list {
    ares_view *items;
    int64_t n;
} ifeval_list;

/* ------------------------------------------------------------------ characters (words.c) */
uint32_t ifeval_next_wide(const char **p, const char *end); /* ifeval_next beyond ASCII */
/* the character at *p < end; moves *p past it */
static inline uint32_t ifeval_next(const char **p, const char *end)
{
    unsigned char c = (unsigned char)**p;
    return c < 0x80 ? (void)++*p, (uint32_t)c : ifeval_next_wide(p, end);
}
uint32_t ifeval_first(ares_view v); /* its first character; 0 when empty */
uint32_t ifeval_last(ares_view v);  /* its last character; 0 when empty */
int64_t ifeval_length(ares_view v); /* characters */
/* byte where character i begins; v.len when there are fewer */
size_t ifeval_offset(ares_view v, int64_t i);
/* writes c as UTF-8, a broken byte as it was; returns the bytes written */
size_t ifeval_put(uint32_t c, char out[4]);

enum {
    IFEVAL_SPACE = 1,
    IFEVAL_PUNCT = 2,
    IFEVAL_WORD = 4,
    IFEVAL_LETTER = 8,
    IFEVAL_DIGIT = 16,
    IFEVAL_UPPER = 32,
    IFEVAL_LOWER = 64
};
extern const uint8_t ifeval_ascii_kinds[128]; /* what each ASCII character is */
bool ifeval_is_wide(uint32_t c, int kind);    /* ifeval_is beyond ASCII, for one kind */
static inline bool ifeval_is(uint32_t c, int kind)
{
    return c < 0x80 ? (ifeval_ascii_kinds[c] & kind) != 0 : ifeval_is_wide(c, kind);
}
/* Unicode white space and 28..31: Python's str.isspace */
static inline bool ifeval_is_space(uint32_t c)
{
    return ifeval_is(c, IFEVAL_SPACE);
}
/* letter or number of any script, or _ */
static inline bool ifeval_is_word(uint32_t c)
{
    return ifeval_is(c, IFEVAL_WORD);
}
/* categories L* */
static inline bool ifeval_is_letter(uint32_t c)
{
    return ifeval_is(c, IFEVAL_LETTER);
}
/* decimal digit of any script */
static inline bool ifeval_is_digit(uint32_t c)
{
    return ifeval_is(c, IFEVAL_DIGIT);
}
static inline bool ifeval_is_upper(uint32_t c)
{
    return ifeval_is(c, IFEVAL_UPPER);
}
static inline bool ifeval_is_lower(uint32_t c)
{
    return ifeval_is(c, IFEVAL_LOWER);
}
/* !"#$%&'()*+,-./:;<=>?@[\]^_`{|}~ */
static inline bool ifeval_is_punct(uint32_t c)
{
    return c < 0x80 && (ifeval_ascii_kinds[c] & IFEVAL_PUNCT);
}
bool ifeval_is_emoji(uint32_t c);     /* an emoji on its own: U+FE0F is none */
uint32_t ifeval_to_lower(uint32_t c); /* simple mapping */

/* ------------------------------------------------------------------ texts (words.c) */
bool ifeval_is_blank(ares_view v); /* nothing but white space */
/* at least one letter that has a case, and all of these in upper case */
bool ifeval_upper_text(ares_view v);
bool ifeval_lower_text(ares_view v);
/* without white space at both ends, the left, the right */
ares_view ifeval_trim(ares_view v);
ares_view ifeval_trim_left(ares_view v);
ares_view ifeval_trim_right(ares_view v);
/* without ASCII punctuation and blanks (U+0020) at both ends, the left, the right */
ares_view ifeval_strip(ares_view v);
ares_view ifeval_strip_left(ares_view v);
ares_view ifeval_strip_right(ares_view v);
ares_view ifeval_lower(ares_view v, ares_arena *arena);
ares_view ifeval_delete_punct(ares_view v, ares_arena *arena); /* without ASCII punctuation */
/* the ASCII characters of the NFKD form: "Chișinău" -> "Chisinau" */
ares_view ifeval_ascii(ares_view v, ares_arena *arena);

/* runs of characters that are no white space: Python's split() */
ifeval_list ifeval_words(ares_view v, ares_arena *arena);
/* the pieces between separators (not empty); n >= 1 */
ifeval_list ifeval_split(ares_view v, ares_view separator, ares_arena *arena);

/* maximal runs of word characters: "don't" is 2 */
int64_t ifeval_count_words(ares_view v);
/* whether exactly one side of byte `at` is a word character */
bool ifeval_boundary(ares_view v, size_t at);
/*
 * whether the word occurs, as written, with a boundary at both ends; an empty word: at any boundary
 */
bool ifeval_has_word(ares_view v, ares_view word);
/* occurrences that do not overlap, counted from the left; 0 for an empty part */
int64_t ifeval_count(ares_view v, ares_view part);

/* ------------------------------------------------------------------ sentences, tokens */
/* Punkt (Kiss and Strunk 2006); views into text (sentences.c) */
ifeval_list ifeval_sentences(ares_view text, ares_arena *arena);
/* Treebank words; a double quote becomes `` or '' (tokens.c) */
ifeval_list ifeval_tokens(ares_view text, ares_arena *arena);

/* ------------------------------------------------------------------ language */
int ifeval_syllables(ares_view word); /* 0 for a word with a digit (sentences.c) */
/* whether the first word looks like a verb (sentences.c) */
bool ifeval_is_verb(ares_view text);
/*
 * ISO 639-1 code of one of the 30 languages of IFEval or some others, by script and frequent words;
 * NULL: the text has no letters (sentences.c)
 */
const char *ifeval_language(ares_view text);

/* ---------------- CSV as Python's csv.reader reads it, strict off (checks_form.c) */
/*
 * An empty line is a row without fields. n = -1: a text that the reference refuses, with a lone \r
 * after an unquoted field or a field of more than 131,072 characters.
 */
typedef struct ifeval_rows {
    ifeval_list *items;
    int64_t n;
} ifeval_rows;
ifeval_rows ifeval_csv(ares_view text, char delimiter, ares_arena *arena);

/* ------------------------------------------------------------------ word lists (words.c) */
typedef enum ifeval_table {
    IFEVAL_STOP_WORDS,   /* lower case */
    IFEVAL_PRONOUNS,     /* lower case */
    IFEVAL_CONJUNCTIONS, /* lower case */
    IFEVAL_PERSON_NAMES, /* as written */
    IFEVAL_CAPITALS,     /* of Europe, north to south: their order is checked */
    IFEVAL_VERBS         /* lower case: plain forms and auxiliaries */
} ifeval_table;
bool ifeval_table_has(ifeval_table t, ares_view word);
int ifeval_table_count(ifeval_table t);
ares_view ifeval_table_item(ifeval_table t, int i); /* in the table's own order */

/*
 * Word lists as hash tables in read-only memory. tools/instruction_tables.c writes them from
 * tables.json during the build; this header is what both sides share.
 */

typedef struct ifeval_entry {
    const char *text;
    uint32_t value, len;
} ifeval_entry;
typedef struct ifeval_set {
    const ifeval_entry *entries; /* [count] in the file's order */
    /* [mask + 1] index + 1 of an entry, 0: free; linear probing from ifeval_hash */
    const uint16_t *slots;
    uint32_t mask, count, longest; /* longest: bytes of the longest word */
} ifeval_set;

static inline uint32_t ifeval_hash(const char *word, size_t len)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)word[i]) * 16777619u;
    return h ^ h >> 15;
}

const ifeval_entry *ifeval_set_find(const ifeval_set *s, const char *word,
                                    size_t len); /* NULL when absent */

/*
 * Punkt's words. A word's value in ifeval_orthography adds up where it was seen: 2, 4, 8
 * capitalised at the start of a sentence, inside one, unknown where; 16, 32, 64 the same in lower
 * case.
 */
extern const ifeval_set ifeval_abbreviations, ifeval_collocations, ifeval_starters,
    ifeval_orthography;
extern const ifeval_set ifeval_syllable_counts, ifeval_not_verbs;

/*
 * Words and letters that tell languages of one script apart. The value of a word or letter is a
 * mask of languages.
 */
enum { IFEVAL_LATIN, IFEVAL_CYRILLIC, IFEVAL_ARABIC, IFEVAL_DEVANAGARI, IFEVAL_LANGUAGE_SCRIPTS };
typedef struct ifeval_languages {
    uint32_t first, count;
} ifeval_languages;
extern const char *const ifeval_language_codes[];
extern const ifeval_languages ifeval_script_languages[IFEVAL_LANGUAGE_SCRIPTS];
extern const ifeval_set ifeval_language_words, ifeval_language_letters;
#endif
