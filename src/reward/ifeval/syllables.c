/*
 * Syllables by SyllaPy's rules (runs of vowels, and a list of exceptions), and whether a text
 * begins with a verb.
 */
#include <string.h>

#include "tables.h"
#include "text_parts.h"

enum { SHORT = 32 }; /* bytes: no word of the tables is longer */

/* Writes an ASCII word in lower case; returns its length, 0 when it is too long or not ASCII. */
static size_t small(char out[SHORT], ares_view v)
{
    if (v.len > SHORT) return 0;
    for (size_t i = 0; i < v.len; i++) {
        if (v.data[i] & 0x80) return 0;
        out[i] = (char)if_to_lower((unsigned char)v.data[i]);
    }
    return v.len;
}

static bool is_vowel(char c)
{
    return c != 0 && strchr("aeiouyAEIOUY", c) != NULL;
}

static ares_view strip_punct(ares_view v)
{
    while (v.len && if_is_punct((unsigned char)v.data[0])) v.data++, v.len--;
    while (v.len && if_is_punct((unsigned char)v.data[v.len - 1])) v.len--;
    return v;
}

/*
 * Syllables of a word in no table: the runs of vowels, with a final e silent except in -le after a
 * consonant.
 */
static int by_rule(ares_view v)
{
    int64_t n = 0;
    for (size_t i = 0; i < v.len; i++)
        n += is_vowel(v.data[i]) && (i == 0 || !is_vowel(v.data[i - 1]));
    if ((v.data[v.len - 1] | 32) == 'e') {
        n--;
        n += v.len > 2 && (v.data[v.len - 2] | 32) == 'l' && !is_vowel(v.data[v.len - 3]);
    }
    return (int)ARES_MAX(n, 1);
}

int if_syllables(ares_view word)
{
    int sum = 0;
    const char *line = NULL; /* the rest of a compound ends with its line */
    for (;;) {               /* one turn per part of a compound: first-rest */
        word = strip_punct(if_trim(word));
        if (word.len == 0) return 0;
        if (sum == 0)
            for (const char *p = word.data, *end = p + word.len; p < end;)
                if (if_is_digit(if_next(&p, end))) return 0;
        char key[SHORT];
        const if_entry *e = if_set_find(&if_syllable_counts, key, small(key, word));
        if (e) return sum + (int)e->value;
        const char *dash = memchr(word.data, '-', word.len);
        /* the word ends in no punctuation, so dash[1] is part of it */
        if (!dash || dash[1] == '\n') return sum + by_rule(word);
        int first = if_syllables((ares_view){ word.data, (size_t)(dash - word.data) });
        if (first == 0) return 0;
        sum += first;
        ares_view rest = { dash + 1, (size_t)(word.data + word.len - dash - 1) };
        if (!line && (line = memchr(rest.data, '\n', rest.len)))
            rest.len = (size_t)(line - rest.data);
        if (!line) line = rest.data + rest.len;
        word = rest;
    }
}

bool if_is_verb(ares_view text)
{
    const char *p = text.data, *end = p + text.len, *start = end;
    while (p < end) {
        const char *at = p;
        bool inside = if_is_word(if_next(&p, end));
        if (inside && start == end) start = at;
        if (inside || start == end) continue;
        end = at;
        break;
    }
    char word[SHORT];
    size_t n = small(word, (ares_view){ start, (size_t)(end - start) });
    if (if_table_has(IF_VERBS, (ares_view){ word, n })) return true;
    return n >= 5 && memcmp(word + n - 3, "ing", 3) == 0 && !if_set_find(&if_not_verbs, word, n);
}
