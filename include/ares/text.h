/*
 * text: characters to token ids and back, as Hugging Face `tokenizers` gives them, and chat
 * templates. Byte-level BPE only; what a file asks for beyond that is refused by name when it is
 * loaded, never approximated.
 */
#ifndef ARES_TEXT_H
#define ARES_TEXT_H

#include "ares/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------- ids
 * A growable list of token ids; {0} is empty. With want_offsets set before encoding, offsets[i] is
 * the half-open range of code points of the given text that token i covers: [0, 0) for what the
 * post-processor adds, the range of the character for a token that holds part of one, that of the
 * base alone where NFC joined a base and its marks.
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
 * Immutable after load, shared freely between threads. `path` is a model directory (tokenizer.json,
 * or vocab.json and merges.txt with a tokenizer_class of tokenizer_config.json that names the split
 * pattern; tokenizer_config.json, special_tokens_map.json and chat_template.jinja are read where
 * present) or a tokenizer.json by itself.
 */
typedef struct ares_tokenizer ares_tokenizer;

int ares_tokenizer_load(const char *path, ares_tokenizer **out);
void ares_tokenizer_free(ares_tokenizer *t);

/*
 * Appends the ids of `text`. Added tokens (<|im_end|> ...) are recognised in it. add_special_tokens
 * lets the post-processor put bos and eos around it. Bytes that are not UTF-8 are read as U+FFFD,
 * one for each maximal broken piece, and offsets count that as one code point. Bytes without a
 * token vanish, as in the library.
 */
int ares_tokenizer_encode(const ares_tokenizer *t, ares_view text, bool add_special_tokens,
                          ares_ids *out);

/*
 * Appends the text of ids [n]. Broken UTF-8 (a cut character) becomes U+FFFD; ids outside the
 * vocabulary vanish. clean_up_tokenization_spaces of tokenizer_config.json is not applied (the
 * library does not, transformers may).
 */
int ares_tokenizer_decode(const ares_tokenizer *t, const int32_t *ids, int64_t n,
                          bool skip_special_tokens, ares_str *out);

/* The bytes that decoding joins for a token; they may be part of a character. */
ares_view ares_tokenizer_token_bytes(const ares_tokenizer *t, int32_t id);
bool ares_tokenizer_is_special(const ares_tokenizer *t, int32_t id);
/* largest id + 1, added tokens included */
int64_t ares_tokenizer_vocab_size(const ares_tokenizer *t);

/* Of tokenizer_config.json, else special_tokens_map.json; -1 where neither names one. */
typedef enum { ARES_TOKEN_BOS, ARES_TOKEN_EOS, ARES_TOKEN_PAD, ARES_TOKEN_UNK } ares_token_role;
int32_t ares_tokenizer_role_id(const ares_tokenizer *t, ares_token_role role);

/*
 * The chat template of this name (NULL or "default" for the usual one; "tool_use" ...):
 * chat_template.jinja, or the key chat_template of tokenizer_config.json, a string or a list of
 * {name, template}. Data is NULL when there is none.
 */
ares_view ares_tokenizer_chat_template(const ares_tokenizer *t, const char *name);
/*
 * tokenizer_config.json as it stands, for a template's context; NULL when the directory has none.
 */
const ares_json *ares_tokenizer_config(const ares_tokenizer *t);

/*
 * Decoding as tokens arrive: `add` appends to `out` what can no longer change, so never part of a
 * character; `finish` appends the rest, broken characters as U+FFFD. All pieces together equal
 * ares_tokenizer_decode of all ids.
 */
typedef struct ares_decoder {
    const ares_tokenizer *tokenizer;
    bool skip_special_tokens;
    unsigned char pending[8]; /* the beginning of a character */
    int pending_len;
} ares_decoder;

void ares_decoder_init(ares_decoder *d, const ares_tokenizer *t, bool skip_special_tokens);
void ares_decoder_add(ares_decoder *d, int32_t id, ares_str *out);
void ares_decoder_finish(ares_decoder *d, ares_str *out);

/* ---------------- spans (spans.c)
 * Token range [first, end) of the first `start_tag` and the first `end_tag` behind it, both tags
 * included. offsets [n] are in the unit of `text`'s length (bytes). A token that crosses the
 * boundary of the span is left out; tokens of [x, 0) (special, padding) are skipped but stay inside
 * the range. False when a tag is missing or no token lies inside.
 */
bool ares_span_find(ares_view text, const int64_t (*offsets)[2], int64_t n, ares_view start_tag,
                    ares_view end_tag, int64_t *first, int64_t *end);
/*
 * The bytes of generated ids, one token after the other, appended to text, with offsets [n] in
 * bytes; special tokens contribute nothing and get [0, 0).
 */
void ares_span_offsets(const ares_tokenizer *t, const int32_t *ids, int64_t n, ares_str *text,
                       int64_t (*offsets)[2]);

/* ---------------- chat (jinja_parse.c, jinja_eval.c, chat.c) */

#ifdef __cplusplus
}
#endif
#endif
