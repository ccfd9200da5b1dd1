/* Byte-pair encoding of one word (pre-token): bytes to token ids by the file's ranked merges. */
#ifndef ARES_TEXT_BPE_H
#define ARES_TEXT_BPE_H

#include "ares/core.h"

typedef struct bpe bpe;
typedef struct bpe_merge {
    int32_t left, right, id;
} bpe_merge;

typedef struct bpe_config {
    int32_t byte_id[256]; /* the token of each byte; -1: none */
    /* [merge_count] in order of rank, ids >= 0; of two merges of one pair the later holds */
    const bpe_merge *merges;
    int64_t merge_count;
    /* words that are not merged but taken whole (ignore_merges): bytes -> id; NULL: none. Borrowed
     */
    const ares_map *whole_words;
    int32_t unk_id; /* token of a byte that has none; -1: such bytes are left out */
    bool fuse_unk;  /* one unk_id for a run of such bytes */
} bpe_config;

bpe *bpe_new(const bpe_config *config);
void bpe_free(bpe *m);

typedef struct bpe_symbol {
    int32_t id;
    uint32_t rank;       /* of the merge with the next symbol; UINT32_MAX: none */
    uint32_t len;        /* in bytes of the word */
    uint32_t mapped_len; /* in bytes of its UTF-8 in the byte alphabet */
    uint32_t prev, next; /* long words only */
} bpe_symbol;

typedef struct bpe_scratch {
    bpe_symbol *symbols;
    uint64_t *heap;
    size_t cap, heap_cap;
} bpe_scratch;
void bpe_scratch_fini(bpe_scratch *s);

/*
 * The tokens of a word. ids [n] live until the model is freed or the scratch is used again. symbols
 * [n] is NULL for a word whose bytes all have tokens; else it has the lengths that the library
 * counts, without the bytes that are left out.
 */
typedef struct bpe_word {
    const int32_t *ids;
    const bpe_symbol *symbols;
    int64_t n;
} bpe_word;
bpe_word bpe_encode(const bpe *m, bpe_scratch *s, const unsigned char *word, size_t len);

#endif
