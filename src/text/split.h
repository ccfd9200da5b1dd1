/*
 * From a text to its pieces: added tokens are found, the rest is normalised and cut into words by
 * the pre-tokenizer's steps.
 */
#ifndef ARES_TEXT_SPLIT_H
#define ARES_TEXT_SPLIT_H

#include "bpe.h"
#include "pattern.h"
#include "unicode.h"

/*
 * A part of the text being encoded. Its bytes at [len] lie in the given text (in_source) or, once a
 * step has changed them, in the scratch. places[i], where offsets are wanted and bytes may have
 * changed, is the range of code points of the given text that byte i stands for.
 */
typedef struct piece {
    const unsigned char *at;
    size_t len;
    int64_t (*places)[2];
    int32_t id;     /* of an added token, or -1 */
    bool in_source; /* at points into the given text */
    int64_t index;  /* of an added token: the index of its id in the result */
} piece;
typedef struct pieces {
    piece *items;
    int64_t n, cap;
} pieces;
void pieces_add(pieces *p, piece x);

/* Memory that one encoding needs and the next uses again. */
typedef struct text_scratch {
    ares_arena arena;
    pieces a, b;
    struct {
        size_t (*items)[2];
        bool *hit;
        int64_t n, cap;
    } cuts;
    unicode_changes changes;
    pattern_scratch *pattern;
    bpe_scratch bpe;
    ares_str repaired;
    const unsigned char *source; /* the given text */
    size_t source_len;
    int64_t counted, starts; /* code points that start before source + counted */
    bool want_offsets;
} text_scratch;
text_scratch *text_scratch_new(void);
void text_scratch_free(text_scratch *s);

/* The code points of the source that bytes [from, to) of a piece stand for, to > from. */
void piece_place(text_scratch *s, const piece *p, size_t from, size_t to, int64_t place[2]);

/* ---- added tokens (added.c) */
typedef struct added_token {
    ares_view content; /* as the file has it */
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
} added_token;
typedef struct added_set added_set; /* a trie; the leftmost match wins, of several the longest */
added_set *added_set_new(void);
void added_set_free(added_set *set);
/* Of two equal texts the first holds. */
void added_set_put(added_set *set, ares_view text, const added_token *token);
/*
 * Cuts the piece at the added tokens in it and appends the parts to out; split_special: not at
 * special ones.
 */
void added_split(const added_set *set, bool split_special, const piece *p, pieces *out);

/* ---- steps (split.c) */
typedef enum {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
} split_behavior;
typedef enum {
    STEP_PATTERN,
    STEP_NUMERIC,
    STEP_SPACE,
    STEP_PREFIX_SPACE,
    STEP_BYTE_ALPHABET
} step_kind;
/*
 * PATTERN, NUMERIC and SPACE cut at what they match. PREFIX_SPACE puts a space before a piece that
 * begins with none. BYTE_ALPHABET rewrites bytes as characters, only where a later step reads them.
 */
typedef struct split_step {
    step_kind kind;
    split_behavior behavior;
    bool invert;
    pattern *pattern;
} split_step;
/* Runs a step on every piece of s->a that is not an added token; the result is s->a again. */
int split_run(const split_step *step, text_scratch *s);
/* Brings a piece into a normal form, unless it is in that form. */
void split_normalize(unicode_form form, text_scratch *s, piece *p);
/* Rewrites a piece in the byte alphabet as the bytes that it stands for. */
void split_unmap(text_scratch *s, piece *p);

#endif
