/*
 * Word lists as hash tables in read-only memory. tools/instruction_tables.c writes them from
 * tables.json during the build; this header is what both sides share.
 */
#ifndef ARES_GRADE_INSTRUCTIONS_TABLES_H
#define ARES_GRADE_INSTRUCTIONS_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
