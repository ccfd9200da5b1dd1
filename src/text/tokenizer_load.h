/*
 * How a tokenizer is read: tokenizer_load.c reads vocabulary, merges and added tokens,
 * tokenizer_steps.c what happens to a text before and after the model; both use tokenizer_read.c.
 */
#ifndef ARES_TEXT_TOKENIZER_LOAD_H
#define ARES_TEXT_TOKENIZER_LOAD_H

#include "tokenizer.h"

typedef struct tokenizer_loader {
    ares_tokenizer *t;
    const char *path; /* of the file being read */
    bool byte_level;  /* a ByteLevel pre-tokenizer has been read */
} tokenizer_loader;

/* ---- tokenizer_read.c */
/* "text: <file>: <key> = '<value>': <what>" */
int tokenizer_bad(const tokenizer_loader *l, int code, const char *key, ares_view value,
                  const char *what);
/* rc, with "text: <file>: <key>" added to the message of an error. */
int tokenizer_in_file(const tokenizer_loader *l, const char *key, int rc);
/* `where` is the key that errors name; absent: the value of a missing key. */
int tokenizer_get_bool(const tokenizer_loader *l, const char *where, const ares_json *json,
                       const char *key, bool absent, bool *out);
/* The string "type" of an object; data NULL: there is none. */
ares_view tokenizer_type_of(const ares_json *json);
/* Whether the value is missing or null. */
bool tokenizer_is_absent(const ares_json *json);

/* Makes room for the token `id`; new tokens are zeroed. */
void tokenizer_grow(ares_tokenizer *t, int64_t id);
/*
 * What the ByteLevel decoder turns a token into: the bytes that its characters stand for, or its
 * own text where some are not of the byte alphabet.
 */
ares_view tokenizer_bytes_of(ares_arena *arena, ares_view text);

/* ---- tokenizer_steps.c: keys of tokenizer.json */
int tokenizer_read_normalizer(const tokenizer_loader *l, const ares_json *json);
int tokenizer_read_pre_tokenizer(tokenizer_loader *l, const ares_json *json);
int tokenizer_read_decoder(const tokenizer_loader *l, const ares_json *json);
int tokenizer_read_post_processor(const tokenizer_loader *l, const ares_json *json);
/* The steps of a directory without tokenizer.json, as its tokenizer_class has them. */
int tokenizer_read_class(tokenizer_loader *l, const char *dir);

#endif
