/*
 * The files beside tokenizer.json: roles of tokens, added tokens and the chat template. A token may
 * be named in seven places; transformers 5 adds those that tokenizer.json lacks, in the order
 * below, and so do we, since the order gives new tokens their ids
 * (docs/model.md#one-fact-several-files).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* The token that a value names: a string, or an object with its text in "content". */
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

/* ---------------- tokenizer_config.json with special_tokens_map.json */
static const char *const token_keys[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token" };

/* A value of each map, where both name a token and not the same. */
static void tell_difference(const char *dir, ares_view key, const ares_json *config,
                            const ares_json *map, const char *holds)
{
    ares_view a = token_text(config), b = token_text(map);
    if (!b.data || (a.data && ares_view_eq(a, b))) return;
    if (!a.data && strcmp(holds, "special_tokens_map.json") == 0) return;
    ares_warn("text: %s: %.*s is '%.*s' in special_tokens_map.json and %s%.*s%s in "
              "tokenizer_config.json; %s holds, as in transformers 5",
              dir, (int)ARES_MIN(key.len, 60), key.data, (int)ARES_MIN(b.len, 60), b.data,
              a.data ? "'" : "", a.data ? (int)ARES_MIN(a.len, 60) : 4, a.data ? a.data : "none",
              a.data ? "'" : "", holds);
}

static bool is_filled(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type != ARES_JSON_NULL && (v->type == ARES_JSON_STRING || v->count > 0);
}

static void set(ares_json *o, ares_view key, const ares_json *value)
{
    for (int64_t i = 0; i < o->count; i++)
        if (ares_view_eq(o->members[i].key, key)) {
            ((ares_json_member *)o->members)[i].value = value;
            return;
        }
    ((ares_json_member *)o->members)[o->count++] = (ares_json_member){ key, value };
}

static const ares_json *new_text(ares_arena *arena, const char *text)
{
    ares_json *json = ares_arena_calloc(arena, 1, sizeof *json);
    *json = (ares_json){ .type = ARES_JSON_STRING, .text = ares_view_of(text) };
    return json;
}

static bool is_class(const ares_json *config, const char *name)
{
    ares_view class = token_text(ares_json_get(config, "tokenizer_class"));
    return class.data && ares_view_starts(class, ares_view_of(name));
}

/* Classes that take from tokenizer.json the vocabulary alone where there is a list of tokens. */
static bool reads_list_alone(const ares_json *config)
{
    return is_class(config, "Qwen2Tokenizer") || is_class(config, "GPT2Tokenizer");
}

/*
 * transformers 5 takes Qwen2Tokenizer for any model of model_type qwen2, and where no class is
 * named for the others of that family. Two classes have tokens of their own for keys that are
 * missing; null is none.
 */
static void add_class_defaults(ares_arena *arena, const ares_json *model, ares_json *o)
{
    static const char *const family[] = { "qwen2", "qwen3", "qwen2_vl", "qwen2_5_vl" };
    ares_view type = token_text(ares_json_get(model, "model_type"));
    for (int i = 0; i < ARES_COUNT(family); i++)
        if (type.data && ares_view_is(type, family[i]) &&
            (i == 0 || !is_filled(o, "tokenizer_class")))
            set(o, ARES_VIEW("tokenizer_class"), new_text(arena, "Qwen2Tokenizer"));
    bool qwen2 = is_class(o, "Qwen2Tokenizer"), gpt2 = is_class(o, "GPT2Tokenizer");
    const char *keys[] = { "unk_token", "eos_token", qwen2 ? "pad_token" : "bos_token" };
    for (int i = 0; i < ARES_COUNT(keys) && (qwen2 || gpt2); i++)
        if (!ares_json_get(o, keys[i]))
            set(o, ares_view_of(keys[i]), new_text(arena, "<|endoftext|>"));
}

static int join(const char *dir, ares_arena *arena, bool tell, const ares_json **out)
{
    ares_str path = { 0 };
    const ares_json *config, *map = NULL, *model = NULL;
    int rc = read_json(arena, ares_path_join(&path, dir, "tokenizer_config.json"), &config);
    if (rc == ARES_OK)
        rc = read_json(arena, ares_path_join(&path, dir, "special_tokens_map.json"), &map);
    if (rc == ARES_OK) rc = read_json(arena, ares_path_join(&path, dir, "config.json"), &model);
    ares_str_fini(&path);
    *out = NULL;
    if (rc != ARES_OK || (!config && !map)) return rc;

    int64_t n = (config ? config->count : 0) + (map ? map->count : 0) + 4; /* class and 3 tokens */
    ares_json_member *members = ares_arena_calloc(arena, (size_t)n, sizeof *members);
    ares_json *o = ares_arena_calloc(arena, 1, sizeof *o);
    *o = (ares_json){ .type = ARES_JSON_OBJECT, .members = members };
    for (int64_t i = 0; config && i < config->count; i++)
        set(o, config->members[i].key, config->members[i].value);
    /* with its own list of added tokens, tokenizer_config.json is whole and the map is not read */
    const ares_json *extra = ares_json_get(config, "extra_special_tokens");
    bool whole = is_filled(config, "added_tokens_decoder"),
         names = extra && extra->type == ARES_JSON_OBJECT && extra->count,
         lists = !names && (is_filled(config, "additional_special_tokens") ||
                            is_filled(config, "extra_special_tokens"));
    for (int64_t i = 0; map && i < map->count; i++) {
        ares_view key = map->members[i].key;
        const ares_json *value = map->members[i].value;
        if (tell)
            tell_difference(dir, key, ares_json_find(config, key), value,
                            whole ? "tokenizer_config.json" : "special_tokens_map.json");
        if (!whole && !(lists && ares_view_is(key, "additional_special_tokens")))
            set(o, key, value);
    }
    add_class_defaults(arena, model, o);
    *out = o;
    return ARES_OK;
}

int ares_tokenizer_config_read(const char *dir, ares_arena *arena, const ares_json **out)
{
    return join(dir, arena, false, out);
}
/* ---------------- tokens that tokenizer.json may lack */
/* The tokens of extra_special_tokens, unless it is an object of names, else of the older key. */
static const ares_json *listed(const ares_json *config)
{
    static const char *const keys[] = { "extra_special_tokens", "additional_special_tokens" };
    for (int i = 0; i < ARES_COUNT(keys); i++) {
        const ares_json *list = ares_json_get(config, keys[i]);
        if (list && list->type == ARES_JSON_ARRAY && list->count) return list;
    }
    return NULL;
}

static bool in_list(const ares_json *config, ares_view text)
{
    const ares_json *list = listed(config);
    for (int64_t i = 0; list && i < list->count; i++) {
        ares_view token = token_text(&list->items[i]);
        if (token.data && ares_view_eq(token, text)) return true;
    }
    return false;
}

static bool is_token_key(ares_view key)
{
    return key.len > 6 && memcmp(key.data + key.len - 6, "_token", 6) == 0;
}

/* Whether a key of its own names the token. */
static bool is_named(const ares_json *config, ares_view text)
{
    const ares_json *extra = ares_json_get(config, "extra_special_tokens");
    for (int64_t i = 0; extra && extra->type == ARES_JSON_OBJECT && i < extra->count; i++) {
        ares_view value = token_text(extra->members[i].value);
        if (value.data && ares_view_eq(value, text)) return true;
    }
    for (int64_t i = 0; i < config->count; i++) {
        ares_view key = config->members[i].key, value = token_text(config->members[i].value);
        if (value.data && is_token_key(key) && ares_view_eq(value, text)) return true;
    }
    return false;
}

/* added_tokens_decoder, {"id": {"content": ..}}; without it added_tokens.json, {"content": id}. */
static int add_listed(ares_tokenizer *t, const char *path, const ares_json *list, bool decoder)
{
    if (!list || list->type != ARES_JSON_OBJECT || list->count == 0) return ARES_OK;
    added_token *tokens = ares_calloc((size_t)list->count, sizeof *tokens);
    int64_t n = 0;
    int rc = ARES_OK;
    for (int64_t i = 0; rc == ARES_OK && i < list->count; i++) {
        ares_view key = list->members[i].key;
        const ares_json *value = list->members[i].value;
        char where[512];
        int64_t id = -1;
        added_token *token = &tokens[n];
        snprintf(where, sizeof where, "%s: %s%.*s", path, decoder ? "added_tokens_decoder." : "",
                 (int)ARES_MIN(key.len, 40), key.data);
        if (decoder ? !ares_parse_i64(key, &id)
                    : value->type != ARES_JSON_INT || (id = value->integer, value->big))
            id = -1;
        if (id < 0 || id >= TOKEN_ID_END)
            rc = ares_fail(ARES_EFORMAT, "text: %s: the %s is not a token id", where,
                           decoder ? "key" : "value");
        else if (decoder) rc = tokenizer_read_added(where, value, token);
        else *token = (added_token){ .content = key };
        if (rc != ARES_OK || token->content.len == 0) continue;
        bool named = is_named(t->config, token->content);
        token->special |= named;
        if (!decoder) {
            if (ares_map_get(t->added, token->content, NULL)) continue; /* tokenizer.json's holds */
            token->special |= in_list(t->config, token->content);
            token->normalized = !token->special;
        }
        tokens[n++].id = (int32_t)id;
    }
    if (rc == ARES_OK) {
        qsort(tokens, (size_t)n, sizeof *tokens, by_id);
        for (int64_t i = 0; i < n; i++) {
            int64_t known;
            if (reads_list_alone(t->config) && ares_map_get(t->added, tokens[i].content, &known))
                t->added_tokens[known].special = false;
            int32_t wanted = tokens[i].id, id = tokenizer_add_token(t, tokens[i]);
            if (id != wanted)
                ares_warn("text: %s: %s'%.*s' has the id %d, not %d", path,
                          decoder ? "added_tokens_decoder: " : "",
                          (int)ARES_MIN(tokens[i].content.len, 60), tokens[i].content.data, id,
                          wanted);
        }
    }
    ares_free(tokens);
    return rc;
}

/* Tokens of tokenizer.json that a class does not look for there. */
static void tell_unlisted(const ares_tokenizer *t, const char *dir)
{
    const ares_json *decoder = ares_json_get(t->config, "added_tokens_decoder");
    for (int64_t i = 0; i < t->added_count; i++) {
        ares_view content = t->added_tokens[i].content;
        bool known = false;
        for (int64_t k = 0; !known && k < decoder->count; k++) {
            ares_view text = token_text(decoder->members[k].value);
            known = text.data && ares_view_eq(text, content);
        }
        if (!known)
            ares_warn(
                "text: %s: '%.*s' is a token of tokenizer.json (id %d), but not of "
                "added_tokens_decoder in tokenizer_config.json, from which alone transformers 5 "
                "takes this class's tokens; add it there",
                dir, (int)ARES_MIN(content.len, 60), content.data, t->added_tokens[i].id);
    }
}

/*
 * A token that only its name makes one. A string is special, and found in the text as it is; an
 * object says it itself, but what has a key of its own is special. key NULL: it stands in a list.
 */
static int add_named(ares_tokenizer *t, const char *dir, const ares_view *key,
                     const ares_json *value)
{
    added_token token = { .content = token_text(value), .special = true };
    char where[512];
    bool known = ares_map_get(t->added, token.content, NULL),
         plain = is_class(t->config, "Qwen2Tokenizer");
    if (token.content.len == 0 || (known && !plain)) return ARES_OK;
    if (plain) { /* this class makes all such tokens anew */
        tokenizer_add_token(t, token);
        return ARES_OK;
    }
    snprintf(where, sizeof where, "%s: %.*s", dir, key ? (int)ARES_MIN(key->len, 60) : 14,
             key ? key->data : "special tokens");
    if (value->type == ARES_JSON_OBJECT) ARES_TRY(tokenizer_read_added(where, value, &token));
    token.special |= key != NULL;
    tokenizer_add_token(t, token);
    return ARES_OK;
}

static int add_members(ares_tokenizer *t, const char *dir, const ares_json *o)
{
    for (int64_t i = 0; i < o->count; i++)
        ARES_TRY(add_named(t, dir, &o->members[i].key, o->members[i].value));
    return ARES_OK;
}

/*
 * The roles in the order of token_keys, other keys that end in _token ("image_token") and the names
 * of extra_special_tokens, then the list of extra, or else of additional, special tokens.
 */
static int add_all_named(ares_tokenizer *t, const char *dir)
{
    const ares_json *o = t->config, *extra = ares_json_get(o, "extra_special_tokens");
    for (int i = 0; i < ARES_COUNT(token_keys); i++) {
        const ares_json *value = ares_json_get(o, token_keys[i]);
        ares_view key = ares_view_of(token_keys[i]);
        if (value) ARES_TRY(add_named(t, dir, &key, value));
    }
    for (int64_t i = 0; i < o->count; i++)
        if (is_token_key(o->members[i].key))
            ARES_TRY(add_named(t, dir, &o->members[i].key, o->members[i].value));
    if (extra && extra->type == ARES_JSON_OBJECT) ARES_TRY(add_members(t, dir, extra));
    const ares_json *list = listed(o);
    for (int64_t i = 0; list && i < list->count; i++)
        ARES_TRY(add_named(t, dir, NULL, &list->items[i]));
    return ARES_OK;
}

/* The processor's file holds, then the tokenizer's, then the key; another text is told. */
static int read_chat_template(ares_tokenizer *t, const char *dir)
{
    ares_str path = { 0 }, text = { 0 };
    const ares_json *json;
    const char *first = "chat_template.json", *second = NULL;
    int rc = read_json(&t->arena, ares_path_join(&path, dir, first), &json);
    ares_view holds = token_text(ares_json_get(json, "chat_template")), other = { 0 };
    if (rc == ARES_OK && ares_file_exists(ares_path_join(&path, dir, "chat_template.jinja"))) {
        rc = ares_file_read(path.data, &text);
        other = (ares_view){ ares_arena_copy(&t->arena, text.data ? text.data : "", text.len),
                             text.len };
        second = "chat_template.jinja";
        if (!holds.data) holds = other, first = second, second = NULL;
    }
    if (!second && (other = token_text(ares_json_get(t->config, "chat_template"))).data)
        second = "tokenizer_config.json";
    if (rc == ARES_OK && holds.data && second && !ares_view_eq(holds, other))
        ares_warn("text: %s: the chat templates of %s and %s differ; that of %s holds", dir, first,
                  second, first);
    t->chat_template = holds;
    ares_str_fini(&path);
    ares_str_fini(&text);
    return rc;
}

int tokenizer_read_config(ares_tokenizer *t, const char *dir)
{
    static const char *const roles[ROLE_COUNT] = { "bos_token", "eos_token", "pad_token",
                                                   "unk_token" };
    static const ares_json none = { .type = ARES_JSON_OBJECT };
    ares_str path = { 0 };
    const ares_json *list = NULL, *read;
    ARES_TRY(join(dir, &t->arena, true, &read));
    t->config = read ? read : &none;
    bool decoder = is_filled(t->config, "added_tokens_decoder");
    ares_path_join(&path, dir, decoder ? "tokenizer_config.json" : "added_tokens.json");
    int rc = ARES_OK;
    if (decoder && reads_list_alone(t->config)) tell_unlisted(t, dir);
    if (decoder) list = ares_json_get(t->config, "added_tokens_decoder");
    else rc = read_json(&t->arena, path.data, &list);
    if (rc == ARES_OK) rc = add_listed(t, path.data, list, decoder);
    for (int64_t i = 0; i < t->added_count && reads_list_alone(t->config); i++) {
        added_token *token = &t->added_tokens[i];
        token->special |= is_named(t->config, token->content);
        t->tokens[token->id].special = token->special;
    }
    if (rc == ARES_OK) rc = add_all_named(t, dir);
    if (rc == ARES_OK)
        rc = ares_json_get_bool(t->config, "split_special_tokens", false, &t->split_special);
    ares_str_fini(&path);
    for (int i = 0; i < ROLE_COUNT; i++)
        t->role_tokens[i] = token_text(ares_json_get(t->config, roles[i]));
    t->config = read;
    return rc == ARES_OK ? read_chat_template(t, dir) : rc;
}
