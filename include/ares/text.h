/*
 * text: characters to token ids and back, as the `tokenizers` library of Hugging Face converts
 * them, and spans of tags. BPE only, byte-level or SentencePiece-style (docs/model.md): whatever
 * else a file asks for is an error that names it when the file is loaded, never an approximation.
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
/* Appends an id; start and end are its offsets, which only a list with offsets keeps. */
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
 * Appends the ids of a text that goes on after the tokens that `out` has: what a tokenizer puts
 * before a text (a space, "▁") is put before this one only where it would be within the whole. No
 * token crosses the place, though one of the whole text might.
 */
int ares_tokenizer_encode_rest(const ares_tokenizer *t, ares_view text, ares_ids *out);

/*
 * Appends the text of ids [n]. Broken UTF-8 (a character cut short) becomes U+FFFD; ids outside the
 * vocabulary are left out. clean_up_tokenization_spaces of tokenizer_config.json is not applied:
 * the library does not, transformers may.
 */
int ares_tokenizer_decode(const ares_tokenizer *t, const int32_t *ids, int64_t n,
                          bool skip_special_tokens, ares_str *out);

/*
 * The bytes that a token contributes to a decoded text; they may be part of a character. Data NULL:
 * there is no such id. Of a SentencePiece-style tokenizer " the" for "▁the" and one byte for
 * <0xE4>; decoding leaves out a space where its text begins, if the file says so.
 */
ares_view ares_tokenizer_token_bytes(const ares_tokenizer *t, int32_t id);
/* Whether skip_special_tokens leaves the token out of a decoded text; false for an unknown id. */
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
 * What tokenizer_config.json and special_tokens_map.json of its directory say together, as
 * transformers 5 joins them. NULL: it has neither.
 */
const ares_json *ares_tokenizer_config(const ares_tokenizer *t);

/*
 * Decoding as tokens arrive: _add appends to `out` the text that can no longer change, so never
 * part of a character; _finish appends the rest, a broken character as U+FFFD, and frees what the
 * decoder holds. All that is appended equals ares_tokenizer_decode of all ids.
 *
 * A SentencePiece-style tokenizer decodes a run of byte tokens (<0xE4>) as one: their text comes
 * with the first other token, or with _finish. eager, which may be set after _init, gives each
 * character with its last byte instead, and keeps the leading space that such a tokenizer strips:
 * for searching in a text that grows, not for showing it. It holds no memory.
 */
typedef struct ares_decoder {
    const ares_tokenizer *tokenizer;
    bool skip_special_tokens;
    bool eager;
    unsigned char pending[8]; /* the beginning of a character */
    int pending_len, strip;   /* strip: characters that may still be left out */
    ares_str run;             /* bytes of byte tokens */
} ares_decoder;

void ares_decoder_init(ares_decoder *d, const ares_tokenizer *t, bool skip_special_tokens);
void ares_decoder_add(ares_decoder *d, int32_t id, ares_str *out);
void ares_decoder_finish(ares_decoder *d, ares_str *out);

/* ---------------- spans (tokenizer.c; docs/vapor.md#spans)
 * The range of tokens [first, end) from the first `start_tag` to the first `end_tag` after it, both
 * tags included. offsets [n] are ranges of bytes of `text`. A token that crosses the boundary of
 * the span is left out; tokens with the offsets [x, 0) (special tokens, padding) are skipped but
 * may lie inside the range. False: a tag is missing, or no token lies inside.
 */
bool ares_span_find(ares_view text, const int64_t (*offsets)[2], int64_t n, ares_view start_tag,
                    ares_view end_tag, int64_t *first, int64_t *end);
/*
 * The text between the first start_tag and the first end_tag after it, not trimmed; *inner borrows
 * it from text. False: a tag is missing.
 */
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

/*
 * template: Jinja templates, chat templates and format prompts. Templates render byte for byte as
 * jinja2 3.1 renders them with the settings of transformers; what a template asks for beyond the
 * supported subset is an error with line and column, never another text.
 *
 * Errors read "template: <template>:<line>:<column>: ..." (line and column from 1,
 * the column in code points). ARES_EFORMAT: the template is malformed, raises an exception or fails
 * as it would in jinja2; ARES_EUNSUPPORTED: jinja2 could render it, we do not; ARES_ELIMIT: it
 * exceeds a bound of ares_template_limits.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct tm;

/* ---------------- templates (jinja/) */
/* Immutable; several threads may render it at once. */
typedef struct ares_template ares_template;

/* A PLAIN template, as jinja2.Template without options reads it. name stands for it in errors. */
int ares_template_new(const char *name, ares_view source, ares_template **out);
void ares_template_free(ares_template *t);

/*
 * Bounds of one render; 0: the default, which the comment of the field gives. One step is about one
 * node of the template evaluated, or 64 bytes of text read.
 */
typedef struct ares_template_limits {
    int64_t steps;       /* 50 million */
    size_t memory_bytes; /* 512 MiB: everything a render allocates */
    size_t output_bytes; /* 64 MiB */
} ares_template_limits;

/* A half-open range of the rendered text, in bytes and in code points. */
typedef struct ares_text_span {
    int64_t byte_start, byte_end, char_start, char_end;
} ares_text_span;
/* {0} is empty */
typedef struct ares_text_spans {
    ares_text_span *items;
    int64_t n, cap;
} ares_text_spans;
void ares_text_spans_fini(ares_text_spans *s);
void ares_text_spans_clear(ares_text_spans *s);

/*
 * Appends the text to out. context is a JSON object of the variables (NULL: none); now is the time
 * that strftime_now reads (NULL: the local time); limits NULL: the defaults. spans (may be NULL)
 * receives the {% generation %} blocks in order; with it, a block inside a macro, a set block or
 * another generation block is ARES_EUNSUPPORTED, because its place in the text is not known. On
 * failure out is as it was.
 */
int ares_template_render(const ares_template *t, const ares_json *context, const struct tm *now,
                         const ares_template_limits *limits, ares_str *out, ares_text_spans *spans);

/* ---------------- format prompts (chat.c)
 * EasyR1's format prompt: a PLAIN template from a file, without the white space around it, rendered
 * with the prompt's text as the variable "content".
 */
int ares_format_prompt_load(const char *path, ares_template **out);
int ares_format_prompt_render(const ares_template *t, ares_view content, ares_str *out);

/* ---------------- chat templates (chat.c): a template and the special tokens it may name */
typedef struct ares_chat ares_chat; /* immutable after its first use, so threads may share it */

/*
 * The chat template of a model directory: the key chat_template of chat_template.json (a vision
 * model's processor has it there), chat_template.jinja, or the key chat_template of
 * tokenizer_config.json, a string or a list of {name, template}. `name` chooses one (NULL:
 * "default"); another is looked for in additional_chat_templates/<name>.jinja first. Special tokens
 * are those of ares_tokenizer_config. `path` may also be a .jinja file.
 */
int ares_chat_load(const char *path, const char *name, ares_chat **out);
/* The same from memory; tokenizer_config (may be NULL) gives the special tokens. */
int ares_chat_new(const char *name, ares_view source, const ares_json *tokenizer_config,
                  ares_chat **out);
void ares_chat_free(ares_chat *c);
/*
 * Variables for every conversation; a conversation's own value of a name wins, unless it is null.
 * Call it before the first use of the chat.
 */
void ares_chat_set_variables(ares_chat *c, const ares_json *variables);
/* Whether the name stands in the template's source; if not, it cannot read such a variable. */
bool ares_chat_reads(const ares_chat *c, ares_view name);

/*
 * Appends the text of a conversation. variables is a JSON object: "messages" and whatever else the
 * template reads ("tools", "documents", "add_generation_prompt", "enable_thinking" ...). As in
 * transformers, absent tools and documents are none, absent add_generation_prompt is false, and a
 * variable wins over a special token of the same name. The members of "chat_template_kwargs", an
 * object or its JSON, are variables too, and win over others. tools and documents that the template
 * reads must be lists of objects, or the JSON of such a list.
 *
 * "continue_final_message": true ends the text with the last message's content and leaves out what
 * the template writes after it; blanks at the end of the content are left out where the template
 * trims them. A string in place of true names another key of the message ("reasoning_content").
 * Together with add_generation_prompt, or where the template does not write that content, it is an
 * error.
 */
int ares_chat_render(const ares_chat *c, const ares_json *variables, const struct tm *now,
                     ares_str *out);
/*
 * The variable to set to true so that the text is ready for an answer, as in TRL:
 * continue_final_message where the last message is the assistant's, else add_generation_prompt.
 */
ares_view ares_chat_prompt_variable(const ares_json *messages);

/*
 * Appends the text and, to spans, the parts of it that the assistant wrote, for training on them.
 * Where the template has {% generation %} blocks, the spans are those blocks. Otherwise the span of
 * assistant message i is what the text of messages[:i+1], without the generation prompt, adds to
 * the text of messages[:i] with it. Both texts must begin the whole text, else ARES_EUNSUPPORTED
 * names the message: templates that rewrite earlier turns, such as those that drop old reasoning,
 * cannot be split in this way.
 */
int ares_chat_assistant_spans(const ares_chat *c, const ares_json *variables, const struct tm *now,
                              ares_str *out, ares_text_spans *spans);

#ifdef __cplusplus
}
#endif
#endif
