/*
 * The files beside tokenizer.json: bos, eos, pad and unk, the chat template, and added tokens that
 * only tokenizer_config.json has (transformers adds them to those of tokenizer.json).
 */
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer.h"

static int read_json(ares_arena *arena, const char *path, const ares_json **out)
{
    ares_str text = { 0 };
    *out = NULL;
    if (!ares_file_exists(path)) return ARES_OK;
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) rc = ares_json_parse(arena, ares_str_view(&text), path, out);
    ares_str_fini(&text);
    ARES_TRY(rc);
    if ((*out)->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "text: %s: not a JSON object", path);
    return ARES_OK;
}

int tokenizer_read_added(const char *where, const ares_json *json, added_token *token)
{
    ares_view content = { 0 };
    *token = (added_token){ 0 };
    if (json->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "text: %s: not an object", where);
    int rc = ares_json_get_string(json, "content", NULL, &content);
    if (rc == ARES_OK) rc = ares_json_get_bool(json, "special", false, &token->special);
    if (rc == ARES_OK) rc = ares_json_get_bool(json, "lstrip", false, &token->lstrip);
    if (rc == ARES_OK) rc = ares_json_get_bool(json, "rstrip", false, &token->rstrip);
    if (rc == ARES_OK) rc = ares_json_get_bool(json, "single_word", false, &token->single_word);
    if (rc == ARES_OK)
        rc = ares_json_get_bool(json, "normalized", !token->special, &token->normalized);
    if (rc != ARES_OK) return ares_fail_in(rc, "text: %s", where);
    const ares_json *text = ares_json_get(json, "content");
    if (!text || text->type != ARES_JSON_STRING)
        return ares_fail(ARES_EFORMAT, "text: %s: no string 'content'", where);
    token->content = content;
    return ARES_OK;
}

/* The text of a token: a string, or the string "content" of an object; else data NULL. */
static ares_view token_text(const ares_json *json)
{
    if (json && json->type == ARES_JSON_OBJECT) json = ares_json_get(json, "content");
    return json && json->type == ARES_JSON_STRING ? json->text : (ares_view){ NULL, 0 };
}

static int by_id(const void *a, const void *b)
{
    int32_t x = ((const added_token *)a)->id, y = ((const added_token *)b)->id;
    return (x > y) - (x < y);
}

static int add_from_decoder(ares_tokenizer *t, const char *path)
{
    const ares_json *decoder = ares_json_get(t->config, "added_tokens_decoder");
    if (!decoder || decoder->type != ARES_JSON_OBJECT || decoder->count == 0) return ARES_OK;
    added_token *tokens = ares_calloc((size_t)decoder->count, sizeof *tokens);
    int64_t n = 0;
    int rc = ARES_OK;
    for (int64_t i = 0; rc == ARES_OK && i < decoder->count; i++) {
        ares_view key = decoder->members[i].key;
        char where[512];
        int64_t id = -1;
        snprintf(where, sizeof where, "%s: added_tokens_decoder.%.*s", path,
                 (int)ARES_MIN(key.len, 40), key.data);
        if (!ares_parse_i64(key, &id) || id < 0 || id >= TOKEN_ID_END)
            rc = ares_fail(ARES_EFORMAT, "text: %s: the key is not a token id", where);
        else rc = tokenizer_read_added(where, decoder->members[i].value, &tokens[n]);
        if (rc != ARES_OK || tokens[n].content.len == 0 ||
            ares_map_get(t->added, tokens[n].content, NULL))
            continue;
        tokens[n++].id = (int32_t)id;
    }
    if (rc == ARES_OK) {
        qsort(tokens, (size_t)n, sizeof *tokens, by_id);
        for (int64_t i = 0; i < n; i++) {
            int32_t wanted = tokens[i].id, id = tokenizer_add_token(t, tokens[i]);
            if (id != wanted)
                ares_warn("text: %s: added_tokens_decoder: '%.*s' has the id %d, not %d", path,
                          (int)ARES_MIN(tokens[i].content.len, 60), tokens[i].content.data, id,
                          wanted);
        }
    }
    ares_free(tokens);
    return rc;
}

int tokenizer_read_config(ares_tokenizer *t, const char *dir)
{
    static const char *const keys[ROLE_COUNT] = { "bos_token", "eos_token", "pad_token",
                                                  "unk_token" };
    ares_str path = { 0 };
    const ares_json *map = NULL;
    int rc = read_json(&t->arena, ares_path_join(&path, dir, "tokenizer_config.json"), &t->config);
    if (rc == ARES_OK && t->config) rc = add_from_decoder(t, path.data);
    if (rc == ARES_OK)
        rc = read_json(&t->arena, ares_path_join(&path, dir, "special_tokens_map.json"), &map);
    for (int i = 0; rc == ARES_OK && i < ROLE_COUNT; i++) {
        const ares_json *value = ares_json_get(t->config, keys[i]);
        t->role_tokens[i] = token_text(value ? value : ares_json_get(map, keys[i]));
    }
    if (rc == ARES_OK)
        rc = read_json(&t->arena, ares_path_join(&path, dir, "chat_template.json"), &map);
    const ares_json *of_processor = ares_json_get(map, "chat_template");
    if (of_processor && of_processor->type == ARES_JSON_STRING)
        t->chat_template = of_processor->text;
    else if (rc == ARES_OK && ares_file_exists(ares_path_join(&path, dir, "chat_template.jinja"))) {
        ares_str text = { 0 };
        rc = ares_file_read(path.data, &text);
        t->chat_template =
            (ares_view){ ares_arena_copy(&t->arena, text.data ? text.data : "", text.len),
                         text.len };
        ares_str_fini(&text);
    }
    ares_str_fini(&path);
    return rc;
}
