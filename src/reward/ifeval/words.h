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
 * own, IF_BROKEN + byte: it has no kind and equals only itself. Functions are pure and thread-safe;
 * what they make lies in the arena, and views point into the text given or into the arena. Work is
 * linear (for lists up to a logarithm), memory at most about 24 bytes per byte of text: a caller
 * judges no text of more than IF_TEXT_MAX bytes and reports it as exhausted.
 */

enum { IF_TEXT_MAX = 1 << 20, IF_BROKEN = 0x110000 };

typedef struct if_list {
    ares_view *items;
    int64_t n;
} if_list;

/* ------------------------------------------------------------------ characters (words.c) */
uint32_t if_next_wide(const char **p, const char *end); /* if_next beyond ASCII */
/* the character at *p < end; moves *p past it */
static inline uint32_t if_next(const char **p, const char *end)
{
    unsigned char c = (unsigned char)**p;
    return c < 0x80 ? (void)++*p, (uint32_t)c : if_next_wide(p, end);
}
uint32_t if_last(ares_view v);  /* its last character; 0 when empty */
uint32_t if_first(ares_view v); /* its first character; 0 when empty */
int64_t if_length(ares_view v); /* characters */
/* byte where character i begins; v.len when there are fewer */
size_t if_offset(ares_view v, int64_t i);
/* writes c as UTF-8, a broken byte as it was; returns the bytes written */
size_t if_put(uint32_t c, char out[4]);

enum {
    IF_SPACE = 1,
    IF_PUNCT = 2,
    IF_WORD = 4,
    IF_LETTER = 8,
    IF_DIGIT = 16,
    IF_UPPER = 32,
    IF_LOWER = 64
};
extern const uint8_t if_ascii_kinds[128]; /* what each ASCII character is */
bool if_is_wide(uint32_t c, int kind);    /* one kind, beyond ASCII */
static inline bool if_is(uint32_t c, int kind)
{
    return c < 0x80 ? (if_ascii_kinds[c] & kind) != 0 : if_is_wide(c, kind);
}
/* Unicode white space and 28..31: Python's str.isspace */
static inline bool if_is_space(uint32_t c)
{
    return if_is(c, IF_SPACE);
}
/* letter or number of any script, or _ */
static inline bool if_is_word(uint32_t c)
{
    return if_is(c, IF_WORD);
}
/* categories L* */
static inline bool if_is_letter(uint32_t c)
{
    return if_is(c, IF_LETTER);
}
/* decimal digit of any script */
static inline bool if_is_digit(uint32_t c)
{
    return if_is(c, IF_DIGIT);
}
static inline bool if_is_upper(uint32_t c)
{
    return if_is(c, IF_UPPER);
}
static inline bool if_is_lower(uint32_t c)
{
    return if_is(c, IF_LOWER);
}
/* !"#$%&'()*+,-./:;<=>?@[\]^_`{|}~ */
static inline bool if_is_punct(uint32_t c)
{
    return c < 0x80 && (if_ascii_kinds[c] & IF_PUNCT);
}
bool if_is_emoji(uint32_t c);     /* an emoji on its own: U+FE0F is none */
uint32_t if_to_lower(uint32_t c); /* simple mapping */

/* ------------------------------------------------------------------ texts (words.c) */
bool if_is_blank(ares_view v);   /* nothing but white space */
bool if_upper_text(ares_view v); /* at least one cased letter, and none that is not upper case */
bool if_lower_text(ares_view v);
ares_view if_trim(ares_view v); /* without white space at both ends, the left, the right */
ares_view if_trim_left(ares_view v);
ares_view if_trim_right(ares_view v);
/* without ASCII punctuation and blanks (U+0020) at both ends, the left, the right */
ares_view if_strip(ares_view v);
ares_view if_strip_left(ares_view v);
ares_view if_strip_right(ares_view v);
ares_view if_lower(ares_view v, ares_arena *arena);
ares_view if_delete_punct(ares_view v, ares_arena *arena); /* without ASCII punctuation */
/* the ASCII characters of the NFKD form: "Chișinău" -> "Chisinau" */
ares_view if_ascii(ares_view v, ares_arena *arena);

/* runs of characters that are no white space: Python's split() */
if_list if_words(ares_view v, ares_arena *arena);
/* the pieces between separators (not empty); n >= 1 */
if_list if_split(ares_view v, ares_view separator, ares_arena *arena);

/* maximal runs of word characters: "don't" is 2 */
int64_t if_count_words(ares_view v);
/* whether exactly one side of byte `at` is a word character */
bool if_boundary(ares_view v, size_t at);
/*
 * whether the word occurs, as written, with a boundary at both ends; an empty word: at any boundary
 */
bool if_has_word(ares_view v, ares_view word);
/* occurrences that do not overlap, counted from the left; 0 for an empty part */
int64_t if_count(ares_view v, ares_view part);

/* ------------------------------------------------------------------ sentences, tokens */
/* Punkt (Kiss and Strunk 2006); views into text (sentences.c) */
if_list if_sentences(ares_view text, ares_arena *arena);
/* Treebank words; a double quote becomes `` or '' (tokens.c) */
if_list if_tokens(ares_view text, ares_arena *arena);

/* ------------------------------------------------------------------ language */
int if_syllables(ares_view word); /* 0 for a word with a digit (sentences.c) */
/* whether the first word looks like a verb (sentences.c) */
bool if_is_verb(ares_view text);
/*
 * ISO 639-1 code of one of the 30 languages of IFEval or some others, by script and frequent words;
 * NULL: the text has no letters (sentences.c)
 */
const char *if_language(ares_view text);

/* ---------------- CSV as Python's csv.reader reads it, strict off (checks_form.c) */
/*
 * An empty line is a row without fields. n = -1: a text that the reference refuses, with a lone \r
 * after an unquoted field or a field of more than 131,072 characters.
 */
typedef struct if_rows {
    if_list *items;
    int64_t n;
} if_rows;
if_rows if_csv(ares_view text, char delimiter, ares_arena *arena);

/* ------------------------------------------------------------------ word lists (words.c) */
typedef enum if_table {
    IF_STOP_WORDS,   /* lower case */
    IF_PRONOUNS,     /* lower case */
    IF_CONJUNCTIONS, /* lower case */
    IF_PERSON_NAMES, /* as written */
    IF_CAPITALS,     /* of Europe, north to south: their order is checked */
    IF_VERBS         /* lower case: plain forms and auxiliaries */
} if_table;
bool if_table_has(if_table t, ares_view word);
int if_table_count(if_table t);
ares_view if_table_item(if_table t, int i); /* in the table's own order */

/*
 * Word lists as hash tables in read-only memory. tools/instruction_tables.c writes them from
 * tables.json during the build; this header is what both sides share.
 */

typedef struct if_entry {
    const char *text;
    uint32_t value, len;
} if_entry;
typedef struct if_set {
    const if_entry *entries; /* [count] in the file's order */
    /* [mask + 1] index + 1 of an entry, 0: free; linear probing from if_hash */
    const uint16_t *slots;
    uint32_t mask, count, longest; /* longest: bytes of the longest word */
} if_set;

static inline uint32_t if_hash(const char *word, size_t len)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)word[i]) * 16777619u;
    return h ^ h >> 15;
}

const if_entry *if_set_find(const if_set *s, const char *word, size_t len); /* NULL when absent */

/*
 * Punkt's words. A word's value in if_orthography adds up where it was seen: 2, 4, 8 capitalised at
 * the start of a sentence, inside one, unknown where; 16, 32, 64 the same in lower case.
 */
extern const if_set if_abbreviations, if_collocations, if_starters, if_orthography;
extern const if_set if_syllable_counts, if_not_verbs;

/*
 * Words and letters that tell languages of one script apart. The value of a word or letter is a
 * mask of languages.
 */
enum { IF_LATIN, IF_CYRILLIC, IF_ARABIC, IF_DEVANAGARI, IF_LANGUAGE_SCRIPTS };
typedef struct if_languages {
    uint32_t first, count;
} if_languages;
extern const char *const if_language_codes[];
extern const if_languages if_script_languages[IF_LANGUAGE_SCRIPTS];
extern const if_set if_language_words, if_language_letters;
#endif
