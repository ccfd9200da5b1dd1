/*
 * Split patterns: written for Oniguruma (Ruby syntax, as the `tokenizers` library runs them), run
 * by PCRE2. What would mean something else there is rewritten, or refused with its place.
 */
#ifndef ARES_TEXT_PATTERN_H
#define ARES_TEXT_PATTERN_H

#include "ares/core.h"

typedef struct pattern pattern;
typedef struct pattern_scratch pattern_scratch; /* one a thread at a time */

/* where: "file: key", for messages. literal: the source is a plain string. */
int pattern_new(const char *where, ares_view source, bool literal, pattern **out);
void pattern_free(pattern *p);
pattern_scratch *pattern_scratch_new(void);
void pattern_scratch_free(pattern_scratch *s);

/* The pattern in PCRE2's words, appended to out. */
int pattern_translate(const char *where, ares_view source, ares_str *out);

/*
 * The next match in text [len], valid UTF-8. Begin with it = {0}; then it.start and it.end are the
 * match. Returns 1, 0 at the end, or a failure. An empty match right behind the last one is passed
 * over.
 */
typedef struct pattern_match {
    size_t start, end, from;
    bool any;
} pattern_match;
int pattern_next(const pattern *p, pattern_scratch *s, const unsigned char *text, size_t len,
                 pattern_match *it);

#endif
