/*
 * Private to text: byte-pair encoding, split patterns, pieces of a text, a loaded tokenizer and
 * how it is read, and spans.
 */
#ifndef ARES_TEXT_TOKENIZER_H
#define ARES_TEXT_TOKENIZER_H

#include <stdatomic.h>

#include "ares/core.h"
#include "ares/text.h"
#include "unicode.h"

/*
 * What tokenizer_config.json and special_tokens_map.json of a directory say together, as
 * transformers 5 joins them; lives in the arena. NULL: it has neither. tell: warn where the two
 * name different tokens. (tokenizer_load.c)
 */
int tokenizer_config_read(const char *dir, ares_arena *arena, bool tell, const ares_json **out);
/* The token that a value names: a string, or an object with its text in "content". */
ares_view tokenizer_token_text(const ares_json *json);
/* The text of this name in a list of chat templates, [{name, template}]; NULL: it has none. */
const ares_json *tokenizer_template_named(const ares_json *list, const char *name);

/*
 * Byte-pair encoding of one word (pre-token): bytes, or valid UTF-8, to token ids by the file's
 * ranked merges.
 */

typedef struct bpe bpe;
typedef struct bpe_merge {
    int32_t left, right, id;
} bpe_merge;

typedef struct bpe_config {
    int32_t byte_id[256]; /* the token of each byte; -1: none */
    /*
     * borrowed for bpe_new: a vocabulary (text -> id) in which words begin as characters, and only
     * characters that it lacks as bytes, all of which must have tokens then; NULL: words are bytes
     */
    const ares_map *characters;
    /* [merge_count] in order of rank, 0 <= id < TOKEN_ID_END; of two merges of one pair the later
     * holds */
    const bpe_merge *merges;
    int64_t merge_count;
    /* borrowed: words that are not merged but taken whole (ignore_merges), bytes -> id; or NULL */
    const ares_map *whole_words;
    int32_t unk_id; /* token of a byte or character that has none; -1: it is left out */
    bool fuse_unk;  /* one unk_id for a run of them */
} bpe_config;

bpe *bpe_new(const bpe_config *config);
void bpe_free(bpe *m);

typedef struct bpe_symbol {
    int32_t id;
    uint32_t rank;       /* of the merge with the next symbol; UINT32_MAX: none */
    uint32_t len;        /* in bytes of the word */
    uint32_t mapped_len; /* in bytes of its UTF-8 in the byte alphabet */
    uint32_t prev, next; /* indices */
} bpe_symbol;

/* What one thread needs at a time, the words that it met last among it; for one bpe only. */
typedef struct bpe_scratch {
    bpe_symbol *symbols;
    uint64_t *heap;
    size_t cap, heap_cap;
    struct bpe_cache *cache;
    bool lengths; /* a word that begins as characters is answered with its symbols */
} bpe_scratch;
void bpe_scratch_fini(bpe_scratch *s);

/*
 * The tokens of a word. ids [n] live until the scratch is used again; four may be read, whatever n
 * is. symbols [n] is NULL for a word whose bytes all have tokens; else it has the lengths that the
 * library counts, without the bytes that are left out. Where words begin as characters it is there
 * if the scratch asks for lengths.
 */
typedef struct bpe_word {
    const int32_t *ids;
    const bpe_symbol *symbols;
    int64_t n;
} bpe_word;
/*
 * A word is asked for, which fetches its place in the cache, and answered some words later, when it
 * has come. limit: the end of the memory that may be read, at or after the end of the word.
 */
typedef struct bpe_query {
    const unsigned char *word;
    size_t len;
    uint64_t key[2];
    void *slot;
} bpe_query;
void bpe_ask(bpe_scratch *s, const unsigned char *word, size_t len, const unsigned char *limit,
             bpe_query *q);
bpe_word bpe_answer(const bpe *m, bpe_scratch *s, const bpe_query *q);
/*
 * Where words begin as characters: the end of the first part of the text [p, end), p < end, that
 * merges by itself as it would within the whole.
 */
const unsigned char *bpe_cut(const bpe *m, const unsigned char *p, const unsigned char *end);

/*
 * Split patterns: written for Oniguruma (Ruby syntax, which the `tokenizers` library runs), run by
 * PCRE2. What PCRE2 reads in another way is rewritten, or an error that names the place.
 */

typedef struct pattern pattern;
typedef struct pattern_scratch pattern_scratch; /* used by one thread at a time */

/* where: "file: key", for errors. literal: the source is a plain string. */
int pattern_new(const char *where, ares_view source, bool literal, pattern **out);
void pattern_free(pattern *p);
pattern_scratch *pattern_scratch_new(void);
void pattern_scratch_free(pattern_scratch *s);

/*
 * The next match in text [len], valid UTF-8: [it.start, it.end). Begin with it = {0}. Returns 1, 0
 * after the last match, or an error. An empty match right after the last match is skipped.
 */
typedef struct pattern_match {
    size_t start, end, from; /* from: where the search goes on */
    bool any;                /* there was a match before */
} pattern_match;
int pattern_next(const pattern *p, pattern_scratch *s, const unsigned char *text, size_t len,
                 pattern_match *it);

/* ---- known split patterns (scan.c) */
/* as in the sources of transformers: GPT2Tokenizer, Qwen2Tokenizer */
#define GPT2_PATTERN \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* with what stands for a number: one digit in Qwen 2, up to three in Llama 3 */
#define CL100K_PATTERN(NUMBER)                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" NUMBER "| ?[^\\s" \
    "\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2_PATTERN CL100K_PATTERN("\\p{N}")

typedef enum { SCAN_NONE, SCAN_GPT2, SCAN_ONE_DIGIT, SCAN_THREE_DIGITS } scan_kind;
/* SCAN_NONE: not a known pattern. */
scan_kind scan_find(ares_view source);
/*
 * The end of the word that begins at p < end; text is valid UTF-8. The words of a known pattern
 * leave nothing out.
 */
const unsigned char *scan_word(scan_kind kind, const unsigned char *p, const unsigned char *end);

/*
 * From a text to its pieces: added tokens are found, the rest is normalised and cut into words by
 * the pre-tokenizer's steps.
 */

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

/* Memory that one encoding needs and the next uses again. */
typedef struct text_scratch {
    ares_arena arena;
    pieces a, b; /* a step reads a and writes b, then they are exchanged */
    struct {
        size_t (*items)[2]; /* ranges of bytes of one piece */
        bool *hit;          /* whether the step matched the range */
        int64_t n, cap;
    } cuts;
    unicode_changes changes;
    pattern_scratch *pattern;
    bpe_scratch bpe;
    ares_str repaired;           /* the given text where it was not UTF-8 */
    const unsigned char *source; /* the given text */
    size_t source_len;
    int64_t counted, starts; /* code points that start before source + counted */
    bool want_offsets;
    bool want_places; /* pieces whose bytes change know where these come from */
    enum { AFTER_NOTHING, AFTER_TOKEN, AFTER_TEXT } after; /* what the given text goes on after */
} text_scratch;
text_scratch *text_scratch_new(void);
void text_scratch_free(text_scratch *s);

/* ---- added tokens (tokenizer.c) */
typedef struct added_token {
    ares_view content; /* as the file has it */
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
} added_token;
typedef struct added_set added_set; /* a trie; the leftmost match wins, of several the longest */
added_set *added_set_new(void);
/* Adds a token, found by `text`; where two have the same text, the first one holds. */
void added_set_put(added_set *set, ares_view text, const added_token *token);

/* ---- steps (tokenizer.c) */
typedef enum {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
} split_behavior;
typedef enum {
    STEP_PATTERN,
    STEP_WORDS,
    STEP_NUMERIC,
    STEP_SPACE,
    STEP_PREFIX,
    STEP_MARK_SPACES,
    STEP_BYTE_ALPHABET
} step_kind;
/*
 * PATTERN, NUMERIC and SPACE cut at what they match, WORDS into the words of a known pattern.
 * PREFIX puts the mark before a piece that begins neither with it nor with a space; MARK_SPACES
 * writes it for every space. BYTE_ALPHABET rewrites bytes as characters, only where a later step
 * reads them.
 */
typedef struct split_step {
    step_kind kind;
    split_behavior behavior;
    bool invert;
    pattern *pattern;
    scan_kind scan;  /* of WORDS */
    ares_view mark;  /* of PREFIX and MARK_SPACES: a space, or what stands for one */
    bool first_only; /* PREFIX: only where the given text begins */
} split_step;

/* A step of the normalizer: a normal form; every `pattern` becomes `text`; or `text` is put first.
 */
typedef struct normal_step {
    enum { NORMAL_FORM, NORMAL_REPLACE, NORMAL_PREPEND } kind;
    unicode_form form;
    ares_view pattern, text;
} normal_step;
/* ARES_ELIMIT: the piece would become too long. */
int split_normalize(const normal_step *step, text_scratch *s, piece *p);

/* A loaded tokenizer: made by tokenizer_load.c, used by tokenizer.c. */

typedef struct token_info {
    ares_view text;  /* as the vocabulary spells it; data NULL: no such id */
    ares_view bytes; /* its part of a decoded text */
    bool special, added;
    bool is_byte; /* <0xE4>: decoded together with the bytes around it */
} token_info;

/* What decoding copies. len SPELLED_ELSEWHERE: longer, special or no token; see token_info. */
typedef struct spelling {
    char bytes[15];
    unsigned char len;
} spelling;

/*
 * A step of the post-processor. trim: cut white space off the offsets; else put the ids `before`
 * and `after` around the result.
 */
typedef struct post_step {
    bool trim, add_prefix_space;
    int32_t *before, *after;
    int64_t before_count, after_count;
} post_step;

enum {
    ROLE_COUNT = 4,
    NORMALS_MOST = 8,
    TEXT_MOST = 256,     /* bytes of a text that a normalizer puts in */
    REPLACED_MOST = 2,   /* of a decoder, */
    REPLACED_BYTES = 16, /* and the bytes of each text that it puts in */
    STEPS_MOST = 32,
    POST_MOST = 8,
    SCRATCH_KEPT = 16,
    SPELLED_ELSEWHERE = 255,
    /* a slot of bpe.c has 21 bits for an id and 22 for a rank */
    TOKEN_ID_END = (1 << 21) - 1,
    MERGES_MOST = 1 << 22
};

struct ares_tokenizer {
    ares_arena arena;    /* texts, and tokenizer_config.json */
    ares_map *vocab;     /* of the model: token -> id */
    spelling *spellings; /* [token_count] */
    ares_map *added;     /* content -> index in added_tokens */
    ares_map *words;     /* bytes of each vocabulary token -> id, for ignore_merges */
    added_token *added_tokens;
    int64_t added_count;
    token_info *tokens; /* [token_count] */
    int64_t token_count, token_cap;
    normal_step normals[NORMALS_MOST];
    split_step steps[STEPS_MOST];
    post_step post[POST_MOST];
    int normal_count, step_count, post_count;
    /* SentencePiece-style: words begin as characters, and decoding is this; else byte-level */
    struct {
        bool on, byte_fallback;               /* byte_fallback: <0xE4> is a byte */
        ares_view replaced[REPLACED_MOST][2]; /* in every token: a pattern and its text */
        int replaced_count;
        ares_view strip; /* a character that is left out where the text begins, */
        int strip_most;  /* at most so often */
    } sentencepiece;
    int32_t unk_id;     /* of the model, or -1 */
    bool keeps_places;  /* a step reads where a changed piece comes from */
    bool mapped;        /* after the steps, pieces are in the byte alphabet */
    bool split_special; /* special tokens in a text are text (split_special_tokens) */
    added_set *raw_set, *normalized_set;
    bpe *model;
    int32_t role_ids[ROLE_COUNT];
    ares_view role_tokens[ROLE_COUNT];
    const ares_json *config;
    ares_view chat_template; /* chat_template.json, else chat_template.jinja */
    _Atomic(text_scratch *) scratch[SCRATCH_KEPT];
};

/* A tokenizer from the text of a tokenizer.json; errors call it `name` (tokenizer_load.c). */
int tokenizer_parse(const char *name, ares_view json, ares_tokenizer **out);

/* ---------------- what decoding and spans share (tokenizer.c) */
/* Appends a token's bytes to text, and tells where they are; a special token has none: [0, 0). */
void text_span_offset(ares_view bytes, bool special, ares_str *text, int64_t offset[2]);
#endif
