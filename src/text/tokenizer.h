/* A loaded tokenizer: made by tokenizer_load.c, used by tokenizer.c. */
#ifndef ARES_TEXT_TOKENIZER_H
#define ARES_TEXT_TOKENIZER_H

#include <stdatomic.h>

#include "ares/text.h"
#include "split.h"

typedef struct token_info {
    ares_view text;  /* as the vocabulary spells it; data NULL: no such id */
    ares_view bytes; /* that it contributes to a decoded text */
    bool special;
} token_info;

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
    FORMS_MOST = 8,
    STEPS_MOST = 32,
    POST_MOST = 8,
    SCRATCH_KEPT = 16,
    TOKEN_ID_END = 1 << 24
};

struct ares_tokenizer {
    ares_arena arena; /* texts, and tokenizer_config.json */
    ares_map *vocab;  /* of the model: token -> id */
    ares_map *added;  /* content -> index in added_tokens */
    ares_map *words;  /* bytes of each vocabulary token -> id, for ignore_merges */
    added_token *added_tokens;
    int64_t added_count;
    token_info *tokens; /* [token_count] */
    int64_t token_count, token_cap;
    unicode_form forms[FORMS_MOST];
    split_step steps[STEPS_MOST];
    post_step post[POST_MOST];
    int form_count, step_count, post_count;
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
/*
 * Reads tokenizer_config.json, special_tokens_map.json and chat_template.jinja of a directory,
 * where present (tokenizer_config.c).
 */
int tokenizer_read_config(ares_tokenizer *t, const char *dir);
/*
 * Adds a token as the library does: the id it has in the vocabulary, else the next free one.
 * (tokenizer_read.c)
 */
int32_t tokenizer_add_token(ares_tokenizer *t, added_token token);
/* {"content": .., "lstrip": ..} -> token; `where` is for errors. */
int tokenizer_read_added(const char *where, const ares_json *json, added_token *token);

/* ---------------- what decoding and spans share (tokenizer.c) */
/* Ends a text: half a character becomes U+FFFD. */
void decoder_finish(ares_decoder *d, ares_str *out);
#endif
