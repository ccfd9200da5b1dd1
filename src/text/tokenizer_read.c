/* What the readers of a tokenizer's files share: values with faults that name them, and tokens. */
#include <string.h>

#include "tokenizer_load.h"

int tokenizer_bad(const tokenizer_loader *l, int code, const char *key, ares_view value,
                  const char *what)
{
    return ares_fail(code, "text: %s: %s = '%.*s': %s", l->path, key, (int)ARES_MIN(value.len, 80),
                     value.data ? value.data : "", what);
}

int tokenizer_in_file(const tokenizer_loader *l, const char *key, int rc)
{
    return rc == ARES_OK ? rc : ares_fail_in(rc, "text: %s: %s", l->path, key);
}

ares_view tokenizer_type_of(const ares_json *json)
{
    const ares_json *type = ares_json_get(json, "type");
    return type && type->type == ARES_JSON_STRING ? type->text : (ares_view){ NULL, 0 };
}

bool tokenizer_is_absent(const ares_json *json)
{
    return !json || json->type == ARES_JSON_NULL;
}

int tokenizer_get_bool(const tokenizer_loader *l, const char *where, const ares_json *json,
                       const char *key, bool absent, bool *out)
{
    return tokenizer_in_file(l, where, ares_json_get_bool(json, key, absent, out));
}

/* ---- tokens */
void tokenizer_grow(ares_tokenizer *t, int64_t id)
{
    if (id < t->token_count) return;
    if (id >= t->token_cap) {
        t->token_cap = ARES_MAX(id + 1, t->token_cap * 2);
        t->tokens = ares_realloc(t->tokens, (size_t)t->token_cap * sizeof *t->tokens);
    }
    memset(t->tokens + t->token_count, 0, (size_t)(id + 1 - t->token_count) * sizeof *t->tokens);
    t->token_count = id + 1;
}

ares_view tokenizer_bytes_of(ares_arena *arena, ares_view text)
{
    const unsigned char *begin = (const unsigned char *)text.data, *end = begin + text.len;
    bool same = true;
    size_t n = 0;
    for (const unsigned char *p = begin; p < end; n++) {
        uint32_t c = unicode_next(&p);
        int byte = unicode_byte_of(c);
        if (byte < 0) return text;
        same &= c < 0x80;
    }
    if (same) return text;
    char *bytes = ares_arena_alloc(arena, n + 1);
    n = 0;
    for (const unsigned char *p = begin; p < end;)
        bytes[n++] = (char)unicode_byte_of(unicode_next(&p));
    return (ares_view){ bytes, n };
}

int32_t tokenizer_add_token(ares_tokenizer *t, added_token token)
{
    int64_t known = -1, id = 0;
    bool again = ares_map_get(t->added, token.content, &known);
    if (again) {
        id = t->added_tokens[known].id;
    } else if (!ares_map_get(t->vocab, token.content, &id)) {
        id = ares_map_count(t->vocab);
        for (int64_t i = 0; i < t->added_count; i++)
            id = ARES_MAX(id, (int64_t)t->added_tokens[i].id + 1);
    }
    token.id = (int32_t)id;
    token.content.data = ares_arena_copy(&t->arena, token.content.data, token.content.len);
    if (again) {
        token.special |= t->added_tokens[known].special;
        t->added_tokens[known] = token;
    } else {
        if ((t->added_count & (t->added_count - 1)) == 0)
            t->added_tokens = ares_realloc(t->added_tokens,
                                           (size_t)ARES_MAX(t->added_count * 2, 16) * sizeof token);
        ares_map_put(t->added, token.content, t->added_count);
        t->added_tokens[t->added_count++] = token;
    }
    tokenizer_grow(t, id);
    t->tokens[id] =
        (token_info){ token.content, tokenizer_bytes_of(&t->arena, token.content), token.special };
    return token.id;
}
