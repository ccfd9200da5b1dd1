/*
 * text: characters to token ids and back, as the `tokenizers` library of Hugging Face converts
 * them, and spans of tags. Byte-level BPE only: whatever else a file asks for is an error that
 * names it when the file is loaded, never an approximation.
 */
#ifndef ARES_TEXT_H
#define ARES_TEXT_H

#include "ares/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------- ids
 * A growable list of token ids; {0} is empty. With want_offsets set before encoding, offsets[i] is
 * the half-open range of code points of the given text that token i covers: [0, 0) for a token that
 * the post-processor adds, the whole character for a token that holds part of it, and the base
 * character alone where NFC joined a base character and its marks.
 */
typedef struct ares_ids {
    int32_t *ids;
    int64_t (*offsets)[2]; /* NULL unless want_offsets */
    int64_t n, cap;
    bool want_offsets;
} ares_ids;

void ares_ids_fini(ares_ids *ids);
void ares_ids_clear(ares_ids *ids); /* keeps the memory and want_offsets */
void ares_ids_add(ares_ids *ids, int32_t id, int64_t start, int64_t end);

/* ---------------- tokenizer (tokenizer.c, bpe.c, unicode.c)
 * Immutable after loading, so threads may share it. `path` is a tokenizer.json, or a model
 * directory with either tokenizer.json, or vocab.json, merges.txt and a tokenizer_class in
 * tokenizer_config.json that decides the split pattern. Of a directory, tokenizer_config.json,
 * special_tokens_map.json and chat_template.jinja are read where present.
 */
typedef struct ares_tokenizer ares_tokenizer;

int ares_tokenizer_load(const char *path, ares_tokenizer **out);
void ares_tokenizer_free(ares_tokenizer *t);

/*
 * Appends the ids of `text`, in which added tokens (<|im_end|> ...) are recognised.
 * add_special_tokens: with the tokens that the post-processor puts around a text (bos, eos). Bytes
 * that are not UTF-8 are read as U+FFFD, one for each maximal broken piece, and offsets count that
 * as one code point. Bytes that have no token are left out, as in the library.
 */
int ares_tokenizer_encode(const ares_tokenizer *t, ares_view text, bool add_special_tokens,
                          ares_ids *out);

/*
 * Appends the text of ids [n]. Broken UTF-8 (a character cut short) becomes U+FFFD; ids outside the
 * vocabulary are left out. clean_up_tokenization_spaces of tokenizer_config.json is not applied:
 * the library does not, transformers may.
 */
int ares_tokenizer_decode(const ares_tokenizer *t, const int32_t *ids, int64_t n,
                          bool skip_special_tokens, ares_str *out);

/*
 * The bytes that a token contributes to a decoded text; they may be part of a character. Data NULL:
 * there is no such id.
 */
ares_view ares_tokenizer_token_bytes(const ares_tokenizer *t, int32_t id);
bool ares_tokenizer_is_special(const ares_tokenizer *t, int32_t id);
/* The largest id + 1, added tokens included. */
int64_t ares_tokenizer_vocab_size(const ares_tokenizer *t);

typedef enum { ARES_TOKEN_BOS, ARES_TOKEN_EOS, ARES_TOKEN_PAD, ARES_TOKEN_UNK } ares_token_role;
/*
 * The id of the token that tokenizer_config.json, or else special_tokens_map.json, names for the
 * role; -1: neither does.
 */
int32_t ares_tokenizer_role_id(const ares_tokenizer *t, ares_token_role role);

/*
 * The chat template of this name (NULL: "default"): that of chat_template.json,
 * chat_template.jinja, or the key chat_template of tokenizer_config.json, a string or a list of
 * {name, template}. Data NULL: there is none.
 */
ares_view ares_tokenizer_chat_template(const ares_tokenizer *t, const char *name);
/*
 * What tokenizer_config.json and special_tokens_map.json of a directory say together, as
 * transformers 5 joins them; lives in the arena. NULL: it has neither. (tokenizer_config.c)
 */
int ares_tokenizer_config_read(const char *dir, ares_arena *arena, const ares_json **out);
/* That of the tokenizer's own directory. */
const ares_json *ares_tokenizer_config(const ares_tokenizer *t);

/*
 * Decoding as tokens arrive: _add appends to `out` the text that can no longer change, so never
 * part of a character; _finish appends the rest, a broken character as U+FFFD. All that is appended
 * equals ares_tokenizer_decode of all ids.
 */
typedef struct ares_decoder {
    const ares_tokenizer *tokenizer;
    bool skip_special_tokens;
    unsigned char pending[8]; /* the beginning of a character */
    int pending_len;
} ares_decoder;

void ares_decoder_init(ares_decoder *d, const ares_tokenizer *t, bool skip_special_tokens);
void ares_decoder_add(ares_decoder *d, int32_t id, ares_str *out);

/* ---------------- spans (spans.c; docs/vapor.md#spans)
 * The range of tokens [first, end) from the first `start_tag` to the first `end_tag` after it, both
 * tags included. offsets [n] are ranges of bytes of `text`. A token that crosses the boundary of
 * the span is left out; tokens with the offsets [x, 0) (special tokens, padding) are skipped but
 * may lie inside the range. False: a tag is missing, or no token lies inside.
 */
bool ares_span_find(ares_view text, const int64_t (*offsets)[2], int64_t n, ares_view start_tag,
                    ares_view end_tag, int64_t *first, int64_t *end);
/* What stands between these tags, not trimmed; a part of text. False: a tag is missing. */
bool ares_span_text(ares_view text, ares_view start_tag, ares_view end_tag, ares_view *inner);
/*
 * Appends the bytes of ids [n], one token after the other, to text; offsets [n] receives their
 * ranges of bytes. A special token adds nothing and gets [0, 0).
 */
void ares_span_offsets(const ares_tokenizer *t, const int32_t *ids, int64_t n, ares_str *text,
                       int64_t (*offsets)[2]);

#ifdef __cplusplus
}
#endif
#endif
