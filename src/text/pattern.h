/*
 * Split patterns: written for Oniguruma (Ruby syntax, which the `tokenizers` library runs), run by
 * PCRE2. What PCRE2 reads in another way is rewritten, or an error that names the place.
 */
#ifndef ARES_TEXT_PATTERN_H
#define ARES_TEXT_PATTERN_H

#include "ares/core.h"

typedef struct pattern pattern;
typedef struct pattern_scratch pattern_scratch; /* used by one thread at a time */

/* where: "file: key", for errors. literal: the source is a plain string. */
int pattern_new(const char *where, ares_view source, bool literal, pattern **out);
void pattern_free(pattern *p);
pattern_scratch *pattern_scratch_new(void);
void pattern_scratch_free(pattern_scratch *s);

/* Appends the pattern in PCRE2's syntax. */
int pattern_translate(const char *where, ares_view source, ares_str *out);

/*
 * The next match in text [len], valid UTF-8: [it.start, it.end). Begin with it = {0}. Returns 1, 0
 * after the last match, or an error. An empty match right after the last match is skipped.
 */
typedef struct pattern_match {
    size_t start, end, from;
    bool any;
} pattern_match;
int pattern_next(const pattern *p, pattern_scratch *s, const unsigned char *text, size_t len,
                 pattern_match *it);

#endif
