/*
 * Reading a tokenizer's files. In order: what the readers share; the steps before and after the
 * model; roles of tokens and the chat template; last vocabulary and merges, and the function that
 * reads it all.
 */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the readers share: errors that name a file and key, and adding tokens */
typedef struct tokenizer_loader {
    ares_tokenizer *t;
    const char *path; /* of the file being read */
    bool byte_level;  /* a ByteLevel pre-tokenizer has been read */
} tokenizer_loader;

/* "text: <file>: <key> = '<value>': <what>" */
static int tokenizer_bad(const tokenizer_loader *l, int code, const char *key, ares_view value,
                         const char *what)
{
    return ares_fail(code, "text: %s: %s = '%.*s': %s", l->path, key, (int)ARES_MIN(value.len, 80),
                     value.data ? value.data : "", what);
}

/* rc, with "text: <file>: <key>" added to the message of an error. */
static int tokenizer_in_file(const tokenizer_loader *l, const char *key, int rc)
{
    return rc == ARES_OK ? rc : ares_fail_in(rc, "text: %s: %s", l->path, key);
}

/* The string "type" of an object; data NULL: there is none. */
static ares_view tokenizer_type_of(const ares_json *json)
{
    const ares_json *type = ares_json_get(json, "type");
    return type && type->type == ARES_JSON_STRING ? type->text : (ares_view){ NULL, 0 };
}

/* Whether the value is missing or null. */
static bool tokenizer_is_absent(const ares_json *json)
{
    return !json || json->type == ARES_JSON_NULL;
}

/* `where` is the key that errors name; absent: the value of a missing key. */
static int tokenizer_get_bool(const tokenizer_loader *l, const char *where, const ares_json *json,
                              const char *key, bool absent, bool *out)
{
    return tokenizer_in_file(l, where, ares_json_get_bool(json, key, absent, out));
}

/* ---- tokens */
/* Makes room for the token `id`; new tokens are zeroed. */
static void tokenizer_grow(ares_tokenizer *t, int64_t id)
{
    if (id < t->token_count) return;
    /* doubling, because ids mostly come in order */
    if (id >= t->token_cap) {
        t->token_cap = ARES_MAX(id + 1, t->token_cap * 2);
        t->tokens = ares_realloc(t->tokens, (size_t)t->token_cap * sizeof *t->tokens);
    }
    memset(t->tokens + t->token_count, 0, (size_t)(id + 1 - t->token_count) * sizeof *t->tokens);
    t->token_count = id + 1;
}

/*
 * What the ByteLevel decoder turns a token into: the bytes that its characters stand for, or its
 * own text where some are not of the byte alphabet.
 */
static ares_view tokenizer_bytes_of(ares_arena *arena, ares_view text)
{
    const unsigned char *begin = (const unsigned char *)text.data, *end = begin + text.len;
    /* ASCII only: the text is its own bytes, and need not be copied */
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

/* The byte that <0xE4> stands for, read as the library does; -1: another token. */
static int byte_of_token(ares_view text)
{
    static const char digits[] = "0123456789abcdef";
    if (text.len != 6 || !ares_view_starts(text, ARES_VIEW("<0x")) || text.data[5] != '>')
        return -1;
    int byte = 0;
    for (int i = 3; i < 5; i++) {
        char c = text.data[i];
        const char *digit = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c) : NULL;
        /* "<0x+A>" is a number to the library, too */
        if (i == 3 && c == '+') continue;
        if (!digit) return -1;
        byte = byte * 16 + (int)(digit - digits);
    }
    return byte;
}

/* A token of this text, which lives in the arena. */
static token_info tokenizer_token(ares_tokenizer *t, ares_view text, bool special)
{
    token_info token = { .text = text, .bytes = text, .special = special };
    if (!t->sentencepiece.on) {
        token.bytes = tokenizer_bytes_of(&t->arena, text);
        return token;
    }
    ares_str made = { 0 };
    for (int k = 0; k < t->sentencepiece.replaced_count; k++) {
        ares_view from = t->sentencepiece.replaced[k][0], to = t->sentencepiece.replaced[k][1],
                  in = token.bytes;
        size_t at = 0;
        int64_t hit = -1;
        ares_str_clear(&made);
        for (; (hit = ares_view_find(in, from, at)) >= 0; at = (size_t)hit + from.len) {
            ares_str_add(&made, in.data + at, (size_t)hit - at);
            ares_str_add_view(&made, to);
        }
        if (at == 0) continue;
        ares_str_add(&made, in.data + at, in.len - at);
        token.bytes = (ares_view){ ares_arena_copy(&t->arena, made.data, made.len), made.len };
    }
    ares_str_fini(&made);
    int byte = t->sentencepiece.byte_fallback ? byte_of_token(token.bytes) : -1;
    if (byte < 0) return token;
    char c = (char)byte;
    token.bytes = (ares_view){ ares_arena_copy(&t->arena, &c, 1), 1 };
    token.is_byte = true;
    return token;
}

/*
 * Adds a token as the library does, and returns its id: that of an added token or vocabulary entry
 * of the same text, else the next free one.
 */
static int32_t tokenizer_add_token(ares_tokenizer *t, added_token token)
{
    int64_t known = -1, id = 0;
    bool again = ares_map_get(t->added, token.content, &known);
    if (again) {
        id = t->added_tokens[known].id;
    } else if (!ares_map_get(t->vocab, token.content, &id)) {
        /* the next free id, as the library counts: after the vocabulary and all added tokens */
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
        /* the capacity is a power of two: the list is full when the count is a power of two */
        if ((t->added_count & (t->added_count - 1)) == 0)
            t->added_tokens = ares_realloc(t->added_tokens,
                                           (size_t)ARES_MAX(t->added_count * 2, 16) * sizeof token);
        ares_map_put(t->added, token.content, t->added_count);
        t->added_tokens[t->added_count++] = token;
    }
    tokenizer_grow(t, id);
    t->tokens[id] = tokenizer_token(t, token.content, token.special);
    t->tokens[id].added = true;
    return token.id;
}

/*
 * What happens to a text before and after the model: normalizer, pre-tokenizer, decoder and
 * post-processor of a tokenizer.json, or the steps that a tokenizer_class stands for.
 */

/* {"type": "Replace", "pattern": {"String": ..}, "content": ..}: what is replaced, and by what. */
static int read_replace(const tokenizer_loader *l, const char *key, const ares_json *json,
                        size_t most, ares_view *from, ares_view *to)
{
    const ares_json *pattern = ares_json_get(json, "pattern"),
                    *string = ares_json_get(pattern, "String"),
                    *content = ares_json_get(json, "content");
    if (ares_json_get(pattern, "Regex"))
        return ares_fail(ARES_EUNSUPPORTED,
                         "text: %s: %s.pattern: Replace by a Regex is not supported; write it as "
                         "{\"String\": ..}, which matches its text alone",
                         l->path, key);
    if (!string || string->type != ARES_JSON_STRING || !content ||
        content->type != ARES_JSON_STRING)
        return ares_fail(ARES_EFORMAT,
                         "text: %s: %s: Replace without a pattern {\"String\": ..} or a 'content'",
                         l->path, key);
    if (content->text.len > most)
        return ares_fail(ARES_ELIMIT,
                         "text: %s: %s.content: %zu bytes; at most %zu are supported, give it a "
                         "shorter text",
                         l->path, key, content->text.len, most);
    ares_arena *a = &l->t->arena;
    *from =
        (ares_view){ ares_arena_copy(a, string->text.data, string->text.len), string->text.len };
    *to =
        (ares_view){ ares_arena_copy(a, content->text.data, content->text.len), content->text.len };
    return ARES_OK;
}

/* ---- normalizer */
/* One step or a Sequence of them; depth counts Sequences inside one another. */
static int read_normalizer(const tokenizer_loader *l, const ares_json *json, int depth)
{
    static const char *const names[] = { "NFC", "NFD", "NFKC", "NFKD" };
    ares_tokenizer *t = l->t;
    if (tokenizer_is_absent(json)) return ARES_OK;
    ares_view type = tokenizer_type_of(json);
    if (ares_view_is(type, "Sequence") && depth < 8) {
        const ares_json *list = ares_json_get(json, "normalizers");
        for (int64_t i = 0; list && list->type == ARES_JSON_ARRAY && i < list->count; i++)
            ARES_TRY(read_normalizer(l, &list->items[i], depth + 1));
        return ARES_OK;
    }
    normal_step step = { .kind = NORMAL_FORM };
    int form = 0;
    while (form < ARES_COUNT(names) && !ares_view_is(type, names[form])) form++;
    if (form < ARES_COUNT(names)) {
        step.form = (unicode_form)form;
    } else if (ares_view_is(type, "Replace")) {
        step.kind = NORMAL_REPLACE;
        ARES_TRY(read_replace(l, "normalizer", json, TEXT_MOST, &step.pattern, &step.text));
    } else if (ares_view_is(type, "Prepend")) {
        step.kind = NORMAL_PREPEND;
        const ares_json *text = ares_json_get(json, "prepend");
        if (!text || text->type != ARES_JSON_STRING)
            return ares_fail(ARES_EFORMAT, "text: %s: normalizer: Prepend without a text 'prepend'",
                             l->path);
        if (text->text.len > TEXT_MOST)
            return ares_fail(ARES_ELIMIT,
                             "text: %s: normalizer.prepend: %zu bytes; at most %d are supported, "
                             "give it a shorter text",
                             l->path, text->text.len, TEXT_MOST);
        step.text = (ares_view){ ares_arena_copy(&t->arena, text->text.data, text->text.len),
                                 text->text.len };
    } else {
        return tokenizer_bad(l, ARES_EUNSUPPORTED, "normalizer.type", type,
                             "not supported (choices: NFC, NFD, NFKC, NFKD, Replace, Prepend, "
                             "Sequence); use a model whose tokenizer has no other");
    }
    if (t->normal_count == NORMALS_MOST)
        return tokenizer_bad(l, ARES_ELIMIT, "normalizer", type, "too many steps");
    t->normals[t->normal_count++] = step;
    return ARES_OK;
}

/* ---- pre-tokenizer */
/* Takes over the pattern of the step. */
static int add_step(const tokenizer_loader *l, split_step step)
{
    ares_tokenizer *t = l->t;
    if (t->step_count == STEPS_MOST) {
        pattern_free(step.pattern);
        return ares_fail(ARES_ELIMIT, "text: %s: pre_tokenizer: more than %d steps", l->path,
                         STEPS_MOST);
    }
    t->steps[t->step_count++] = step;
    return ARES_OK;
}

/* A step that splits by a regular expression, or by a literal text. */
static int add_pattern(const tokenizer_loader *l, ares_view source, bool literal,
                       split_behavior behavior, bool invert)
{
    split_step step = { .kind = STEP_PATTERN, .behavior = behavior, .invert = invert };
    /* a known pattern matches all of a text, so that these ask for its words */
    bool words = !literal && (behavior == SPLIT_ISOLATED || (behavior == SPLIT_REMOVED && invert));
    if (words && (step.scan = scan_find(source)) != SCAN_NONE) {
        step.kind = STEP_WORDS;
        return add_step(l, step);
    }
    ares_str where = { 0 };
    /* the pattern names this place in its errors */
    ares_str_addf(&where, "%s: pre_tokenizer.pattern", l->path);
    int rc = pattern_new(where.data, source, literal, &step.pattern);
    ares_str_fini(&where);
    return rc == ARES_OK ? add_step(l, step) : rc;
}

/* A ByteLevel pre-tokenizer. pattern: what it splits by; NULL: it does not split. */
static int add_byte_level(tokenizer_loader *l, bool add_prefix_space, const char *pattern)
{
    if (l->byte_level)
        return ares_fail(ARES_EUNSUPPORTED,
                         "text: %s: pre_tokenizer: a second ByteLevel is not supported", l->path);
    l->byte_level = true;
    if (add_prefix_space)
        ARES_TRY(add_step(l, (split_step){ .kind = STEP_PREFIX, .mark = ARES_VIEW(" ") }));
    return pattern ? add_pattern(l, ares_view_of(pattern), false, SPLIT_ISOLATED, false) : ARES_OK;
}

/*
 * Metaspace: a mark for every space, one more before the text or its parts, and cuts before marks.
 * The older key add_prefix_space: false is prepend_scheme: never.
 */
static int add_metaspace(const tokenizer_loader *l, const ares_json *json)
{
    ares_view mark, scheme;
    bool split, add_prefix_space;
    ARES_TRY(tokenizer_in_file(l, "pre_tokenizer",
                               ares_json_get_string(json, "replacement", "\xe2\x96\x81", &mark)));
    ARES_TRY(tokenizer_in_file(l, "pre_tokenizer",
                               ares_json_get_string(json, "prepend_scheme", "always", &scheme)));
    ARES_TRY(tokenizer_get_bool(l, "pre_tokenizer", json, "split", true, &split));
    ARES_TRY(
        tokenizer_get_bool(l, "pre_tokenizer", json, "add_prefix_space", true, &add_prefix_space));
    const unsigned char *p = (const unsigned char *)mark.data;
    if (!mark.len || (unicode_next(&p), p != (const unsigned char *)mark.data + mark.len))
        return tokenizer_bad(l, ARES_EFORMAT, "pre_tokenizer.replacement", mark,
                             "not one character; SentencePiece's is U+2581");
    bool always = ares_view_is(scheme, "always"), first = ares_view_is(scheme, "first"),
         never = ares_view_is(scheme, "never");
    if (!always && !first && !never)
        return tokenizer_bad(l, ARES_EFORMAT, "pre_tokenizer.prepend_scheme", scheme,
                             "unknown (choices: always, first, never)");
    if (!add_prefix_space && !never)
        return tokenizer_bad(l, ARES_EFORMAT, "pre_tokenizer.prepend_scheme", scheme,
                             "contradicts add_prefix_space: false; set it to never, or leave "
                             "add_prefix_space out");
    mark.data = ares_arena_copy(&l->t->arena, mark.data, mark.len);
    /* whether a changed piece begins where the text does */
    l->t->keeps_places |= first && (l->t->normal_count || l->t->step_count);
    if (!never)
        ARES_TRY(
            add_step(l, (split_step){ .kind = STEP_PREFIX, .mark = mark, .first_only = first }));
    if (!ares_view_is(mark, " "))
        ARES_TRY(add_step(l, (split_step){ .kind = STEP_MARK_SPACES, .mark = mark }));
    return split ? add_pattern(l, mark, true, SPLIT_MERGED_WITH_NEXT, false) : ARES_OK;
}

/* Appends the steps of a pre-tokenizer or of a Sequence of them. */
static int read_pre_tokenizer(tokenizer_loader *l, const ares_json *json, int depth)
{
    if (tokenizer_is_absent(json)) return ARES_OK;
    ares_view type = tokenizer_type_of(json);
    if (ares_view_is(type, "Sequence") && depth < 8) {
        const ares_json *list = ares_json_get(json, "pretokenizers");
        for (int64_t i = 0; list && list->type == ARES_JSON_ARRAY && i < list->count; i++)
            ARES_TRY(read_pre_tokenizer(l, &list->items[i], depth + 1));
        return ARES_OK;
    }
    if (ares_view_is(type, "ByteLevel")) {
        bool add_prefix_space, use_regex;
        ARES_TRY(tokenizer_get_bool(l, "pre_tokenizer", json, "add_prefix_space", true,
                                    &add_prefix_space));
        ARES_TRY(tokenizer_get_bool(l, "pre_tokenizer", json, "use_regex", true, &use_regex));
        return add_byte_level(l, add_prefix_space, use_regex ? GPT2_PATTERN : NULL);
    }
    /* steps after ByteLevel read characters of the byte alphabet */
    if (l->byte_level && !l->t->mapped) {
        l->t->mapped = true;
        ARES_TRY(add_step(l, (split_step){ .kind = STEP_BYTE_ALPHABET }));
    }
    if (ares_view_is(type, "Split")) {
        /* {"type": "Split", "pattern": .., "behavior": .., "invert": ..} */
        static const char *const behaviors[] = { "Isolated", "Removed", "MergedWithPrevious",
                                                 "MergedWithNext", "Contiguous" };
        ares_view name;
        bool invert;
        int behavior;
        ARES_TRY(tokenizer_in_file(l, "pre_tokenizer",
                                   ares_json_get_string(json, "behavior", "", &name)));
        ARES_TRY(tokenizer_get_bool(l, "pre_tokenizer", json, "invert", false, &invert));
        for (behavior = 0; behavior < ARES_COUNT(behaviors); behavior++)
            if (ares_view_is(name, behaviors[behavior])) break;
        if (behavior == ARES_COUNT(behaviors))
            return tokenizer_bad(l, ARES_EFORMAT, "pre_tokenizer.behavior", name,
                                 "unknown (choices: Isolated, Removed, MergedWithPrevious, "
                                 "MergedWithNext, Contiguous)");
        const ares_json *pattern = ares_json_get(json, "pattern");
        const ares_json *regex = ares_json_get(pattern, "Regex"),
                        *string = ares_json_get(pattern, "String");
        const ares_json *source = regex ? regex : string;
        if (!source || source->type != ARES_JSON_STRING)
            return ares_fail(
                ARES_EFORMAT,
                "text: %s: pre_tokenizer.pattern: neither {\"Regex\": ..} nor {\"String\": ..}",
                l->path);
        return add_pattern(l, source->text, !regex, (split_behavior)behavior, invert);
    }
    if (ares_view_is(type, "Digits")) {
        bool individual;
        ARES_TRY(
            tokenizer_get_bool(l, "pre_tokenizer", json, "individual_digits", false, &individual));
        return add_step(l,
                        (split_step){ .kind = STEP_NUMERIC,
                                      .behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS });
    }
    if (ares_view_is(type, "WhitespaceSplit"))
        return add_step(l, (split_step){ .kind = STEP_SPACE, .behavior = SPLIT_REMOVED });
    if (ares_view_is(type, "Metaspace") && !l->byte_level) return add_metaspace(l, json);
    return tokenizer_bad(
        l, ARES_EUNSUPPORTED, "pre_tokenizer.type", type,
        "not supported (choices: ByteLevel, Metaspace, Split, Digits, WhitespaceSplit, Sequence)");
}

/* ---- decoder */
#define DECODERS                                                                                \
    "not supported (choices: ByteLevel; or a Sequence of Replace, ByteFallback, Fuse and then " \
    "Strip)"

/*
 * Checks that decoding is what ares_decoder_add does: with a ByteLevel pre-tokenizer ByteLevel,
 * which a Fuse after it does not change; else Replace, ByteFallback, Fuse and Strip in this order,
 * where all but Fuse may be missing.
 */
static int tokenizer_read_decoder(const tokenizer_loader *l, const ares_json *json)
{
    ares_tokenizer *t = l->t;
    ares_view type = tokenizer_is_absent(json) ? ARES_VIEW("null") : tokenizer_type_of(json);
    const ares_json *list = json;
    int64_t n = 1;
    if (ares_view_is(type, "Sequence")) {
        list = ares_json_get(json, "decoders");
        if (!list || list->type != ARES_JSON_ARRAY || list->count == 0)
            return tokenizer_bad(l, ARES_EUNSUPPORTED, "decoder.type", type, DECODERS);
        n = list->count;
        list = list->items;
        type = tokenizer_type_of(list);
    }
    if (l->byte_level) {
        if (ares_view_is(type, "ByteLevel") &&
            (n == 1 || (n == 2 && ares_view_is(tokenizer_type_of(&list[1]), "Fuse"))))
            return ARES_OK;
        return tokenizer_bad(l, ARES_EUNSUPPORTED, "decoder.type", type,
                             "not supported with a ByteLevel pre-tokenizer (choices: ByteLevel)");
    }
    if (ares_view_is(type, "ByteLevel"))
        return ares_fail(ARES_EUNSUPPORTED,
                         "text: %s: pre_tokenizer: no ByteLevel in it, which decoder.type = "
                         "'ByteLevel' belongs to; use the pre_tokenizer that the model was "
                         "trained with",
                         l->path);
    bool fused = false, stripped = false;
    for (int64_t i = 0; i < n; i++) {
        type = i || !tokenizer_is_absent(json) ? tokenizer_type_of(&list[i]) : type;
        if (ares_view_is(type, "Replace") && !t->sentencepiece.byte_fallback && !fused) {
            ares_view from, to;
            if (t->sentencepiece.replaced_count == REPLACED_MOST)
                return ares_fail(ARES_ELIMIT,
                                 "text: %s: decoder: more than %d Replace; leave out "
                                 "those that change no token",
                                 l->path, REPLACED_MOST);
            ARES_TRY(read_replace(l, "decoder", &list[i], REPLACED_BYTES, &from, &to));
            if (!from.len) continue; /* matches nothing */
            t->sentencepiece.replaced[t->sentencepiece.replaced_count][0] = from;
            t->sentencepiece.replaced[t->sentencepiece.replaced_count++][1] = to;
        } else if (ares_view_is(type, "ByteFallback") && !t->sentencepiece.byte_fallback &&
                   !fused) {
            t->sentencepiece.byte_fallback = true;
        } else if (ares_view_is(type, "Fuse") && !fused) {
            fused = true;
        } else if (ares_view_is(type, "Strip") && fused && !stripped) {
            int64_t start, stop;
            ares_view content;
            stripped = true;
            ARES_TRY(tokenizer_in_file(l, "decoder",
                                       ares_json_get_string(&list[i], "content", " ", &content)));
            ARES_TRY(
                tokenizer_in_file(l, "decoder", ares_json_get_i64(&list[i], "start", 0, &start)));
            ARES_TRY(
                tokenizer_in_file(l, "decoder", ares_json_get_i64(&list[i], "stop", 0, &stop)));
            const unsigned char *p = (const unsigned char *)content.data;
            if (!content.len ||
                (unicode_next(&p), p != (const unsigned char *)content.data + content.len))
                return tokenizer_bad(l, ARES_EFORMAT, "decoder.content", content,
                                     "Strip takes one character");
            if (start < 0 || start > INT32_MAX || stop != 0)
                return ares_fail(ARES_EUNSUPPORTED,
                                 "text: %s: decoder: Strip of %lld characters at the start and "
                                 "%lld at the end is not supported; set 'stop' to 0",
                                 l->path, (long long)start, (long long)stop);
            t->sentencepiece.strip.data = ares_arena_copy(&t->arena, content.data, content.len);
            t->sentencepiece.strip.len = content.len;
            t->sentencepiece.strip_most = (int)start;
        } else {
            return tokenizer_bad(l, ARES_EUNSUPPORTED, "decoder.type", type, DECODERS);
        }
    }
    if (!fused) return tokenizer_bad(l, ARES_EUNSUPPORTED, "decoder.type", type, DECODERS);
    return ARES_OK;
}

/* ---- post-processor */
static int new_post(const tokenizer_loader *l, post_step **step)
{
    if (l->t->post_count == POST_MOST)
        return ares_fail(ARES_ELIMIT, "text: %s: post_processor: more than %d steps", l->path,
                         POST_MOST);
    *step = &l->t->post[l->t->post_count++];
    return ARES_OK;
}

/* A step that trims offsets, if trim_offsets asks for it. */
static int add_trim(const tokenizer_loader *l, const ares_json *json)
{
    post_step *step = NULL;
    bool trim, prefix;
    ARES_TRY(tokenizer_get_bool(l, "post_processor", json, "trim_offsets", true, &trim));
    ARES_TRY(tokenizer_get_bool(l, "post_processor", json, "add_prefix_space", true, &prefix));
    if (!trim) return ARES_OK;
    ARES_TRY(new_post(l, &step));
    step->trim = true;
    step->add_prefix_space = prefix;
    return ARES_OK;
}

/* Whether a JSON value is the id of a token that the file has. */
static int check_id(const tokenizer_loader *l, const ares_json *id)
{
    int64_t n = l->t->token_count;
    if (id && id->type == ARES_JSON_INT && !id->big && id->integer >= 0 && id->integer < n &&
        l->t->tokens[id->integer].text.data)
        return ARES_OK;
    return tokenizer_bad(l, ARES_EFORMAT, "post_processor",
                         id && (id->type == ARES_JSON_INT) ? id->text : (ares_view){ 0 },
                         "the id is not that of a token");
}

/* Appends the ids of a special token of the template to a list in the arena. */
static int append_ids(const tokenizer_loader *l, const ares_json *ids, int32_t **list,
                      int64_t *count)
{
    if (!ids || ids->type != ARES_JSON_ARRAY)
        return ares_fail(
            ARES_EFORMAT,
            "text: %s: post_processor.special_tokens: a token of the template has no 'ids'",
            l->path);
    /* lists are short: each is copied when it grows */
    int32_t *grown =
        ares_arena_alloc(&l->t->arena, (size_t)(*count + ids->count + 1) * sizeof *grown);
    if (*count) memcpy(grown, *list, (size_t)*count * sizeof *grown);
    *list = grown;
    for (int64_t i = 0; i < ids->count; i++) {
        ARES_TRY(check_id(l, &ids->items[i]));
        grown[(*count)++] = (int32_t)ids->items[i].integer;
    }
    return ARES_OK;
}

/* TemplateProcessing: the special tokens before and after the one Sequence of "single". */
static int read_template(const tokenizer_loader *l, const ares_json *json)
{
    const ares_json *single = ares_json_get(json, "single"),
                    *specials = ares_json_get(json, "special_tokens");
    if (!single || single->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT,
                         "text: %s: post_processor.single: no list of SpecialToken and Sequence",
                         l->path);
    post_step *step = NULL;
    int sequences = 0;
    ARES_TRY(new_post(l, &step));
    for (int64_t i = 0; i < single->count; i++) {
        const ares_json *special = ares_json_get(&single->items[i], "SpecialToken");
        const ares_json *sequence = ares_json_get(&single->items[i], "Sequence");
        const ares_json *id = ares_json_get(special ? special : sequence, "id");
        if (!id || id->type != ARES_JSON_STRING)
            return ares_fail(ARES_EFORMAT,
                             "text: %s: post_processor.single %lld: neither SpecialToken nor "
                             "Sequence with an id",
                             l->path, (long long)i + 1);
        /* "single" is [CLS] A [SEP]: the one sequence A divides before from after */
        if (!special) {
            if (!ares_view_is(id->text, "A") || sequences++)
                return tokenizer_bad(l, ARES_EUNSUPPORTED, "post_processor.single", id->text,
                                     "not supported; one Sequence, A, is");
            continue;
        }
        const ares_json *entry = ares_json_find(specials, id->text);
        if (!entry)
            return tokenizer_bad(l, ARES_EFORMAT, "post_processor.single", id->text,
                                 "not among special_tokens");
        if (sequences)
            ARES_TRY(append_ids(l, ares_json_get(entry, "ids"), &step->after, &step->after_count));
        else
            ARES_TRY(
                append_ids(l, ares_json_get(entry, "ids"), &step->before, &step->before_count));
    }
    if (!sequences)
        return ares_fail(ARES_EUNSUPPORTED, "text: %s: post_processor.single: no Sequence A",
                         l->path);
    return ARES_OK;
}

/* <cls> A <sep>, each given as ["text", id] */
static int read_cls_sep(const tokenizer_loader *l, const ares_json *json)
{
    const ares_json *ends[2] = { ares_json_get(json, "cls"), ares_json_get(json, "sep") };
    post_step *step = NULL;
    ARES_TRY(new_post(l, &step));
    for (int i = 0; i < 2; i++) {
        if (!ends[i] || ends[i]->type != ARES_JSON_ARRAY || ends[i]->count != 2)
            return ares_fail(ARES_EFORMAT,
                             "text: %s: post_processor: cls and sep must be [text, id]", l->path);
        ARES_TRY(check_id(l, &ends[i]->items[1]));
        int32_t *id = ares_arena_alloc(&l->t->arena, sizeof *id);
        *id = (int32_t)ends[i]->items[1].integer;
        if (i) step->after = id, step->after_count = 1;
        else step->before = id, step->before_count = 1;
    }
    return ARES_OK;
}

/* What is added to the ids: special tokens at both ends, or trimmed offsets. */
static int read_post_processor(const tokenizer_loader *l, const ares_json *json, int depth)
{
    if (tokenizer_is_absent(json)) return ARES_OK;
    ares_view type = tokenizer_type_of(json);
    if (ares_view_is(type, "Sequence") && depth < 8) {
        const ares_json *list = ares_json_get(json, "processors");
        for (int64_t i = 0; list && list->type == ARES_JSON_ARRAY && i < list->count; i++)
            ARES_TRY(read_post_processor(l, &list->items[i], depth + 1));
        return ARES_OK;
    }
    if (ares_view_is(type, "ByteLevel")) return add_trim(l, json);
    if (ares_view_is(type, "TemplateProcessing")) return read_template(l, json);
    if (ares_view_is(type, "BertProcessing")) return read_cls_sep(l, json);
    if (ares_view_is(type, "RobertaProcessing")) {
        ARES_TRY(add_trim(l, json));
        return read_cls_sep(l, json);
    }
    return tokenizer_bad(
        l, ARES_EUNSUPPORTED, "post_processor.type", type,
        "not supported (choices: ByteLevel, TemplateProcessing, RobertaProcessing, "
        "BertProcessing, Sequence)");
}

/*
 * The files beside tokenizer.json: roles of tokens, added tokens and the chat template. A token may
 * be named in seven places; transformers 5 adds those that tokenizer.json lacks, in the order
 * below, and so do we, since the order gives new tokens their ids
 * (docs/model.md#one-fact-several-files).
 */

/* A JSON object; *out is NULL where there is no such file. */
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

/* {"content": .., "lstrip": ..} -> token; `where` is for errors. */
static int tokenizer_read_added(const char *where, const ares_json *json, added_token *token)
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

/* A token is written as its text or as {"content": text}; data NULL: it is neither. */
ares_view tokenizer_token_text(const ares_json *json)
{
    if (json && json->type == ARES_JSON_OBJECT) json = ares_json_get(json, "content");
    return json && json->type == ARES_JSON_STRING ? json->text : (ares_view){ NULL, 0 };
}

/* for qsort: ids in order, as the library adds them */
static int by_id(const void *a, const void *b)
{
    int32_t x = ((const added_token *)a)->id, y = ((const added_token *)b)->id;
    return ARES_CMP(x, y);
}

/* ---------------- tokenizer_config.json with special_tokens_map.json */
static const char *const token_keys[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token" };

/* Whether the key has a text, or a list or object that is not empty. */
static bool is_filled(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type != ARES_JSON_NULL && (v->type == ARES_JSON_STRING || v->count > 0);
}

/* Gives a key a value, in the place of an older one; members has space for it. */
static void set(ares_json *o, ares_view key, const ares_json *value)
{
    for (int64_t i = 0; i < o->count; i++)
        if (ares_view_eq(o->members[i].key, key)) {
            ((ares_json_member *)o->members)[i].value = value;
            return;
        }
    ((ares_json_member *)o->members)[o->count++] = (ares_json_member){ key, value };
}

/* A JSON string in the arena; text is borrowed. */
static const ares_json *new_text(ares_arena *arena, const char *text)
{
    ares_json *json = ares_arena_calloc(arena, 1, sizeof *json);
    *json = (ares_json){ .type = ARES_JSON_STRING, .text = ares_view_of(text) };
    return json;
}

/* Whether tokenizer_class is this class or its fast variant. */
static bool is_class(const ares_json *config, const char *name)
{
    ares_view class = tokenizer_token_text(ares_json_get(config, "tokenizer_class"));
    return class.data && ares_view_starts(class, ares_view_of(name));
}

/*
 * Classes that, where there is a list of added tokens, take the vocabulary from tokenizer.json and
 * no added tokens.
 */
static bool reads_list_alone(const ares_json *config)
{
    return is_class(config, "Qwen2Tokenizer") || is_class(config, "GPT2Tokenizer");
}

/* tokenizer_config.json, completed by special_tokens_map.json and by defaults of the class. */
int tokenizer_config_read(const char *dir, ares_arena *arena, bool tell, const ares_json **out)
{
    ares_str path = { 0 };
    const ares_json *config, *map = NULL, *model = NULL;
    int rc = read_json(arena, ares_path_join(&path, dir, "tokenizer_config.json"), &config);
    if (rc == ARES_OK)
        rc = read_json(arena, ares_path_join(&path, dir, "special_tokens_map.json"), &map);
    if (rc == ARES_OK) rc = read_json(arena, ares_path_join(&path, dir, "config.json"), &model);
    ares_str_fini(&path);
    *out = NULL;
    /* a model directory without both has no such tokens */
    if (rc != ARES_OK || (!config && !map)) return rc;

    int64_t n = (config ? config->count : 0) + (map ? map->count : 0) + 4; /* class and 3 tokens */
    ares_json_member *members = ares_arena_calloc(arena, (size_t)n, sizeof *members);
    ares_json *o = ares_arena_calloc(arena, 1, sizeof *o);
    *o = (ares_json){ .type = ARES_JSON_OBJECT, .members = members };
    for (int64_t i = 0; config && i < config->count; i++)
        set(o, config->members[i].key, config->members[i].value);
    /* with its own list of added tokens, tokenizer_config.json is complete: the map is not read */
    const ares_json *extra = ares_json_get(config, "extra_special_tokens");
    bool whole = is_filled(config, "added_tokens_decoder"),
         names = extra && extra->type == ARES_JSON_OBJECT && extra->count,
         lists = !names && (is_filled(config, "additional_special_tokens") ||
                            is_filled(config, "extra_special_tokens"));
    for (int64_t i = 0; map && i < map->count; i++) {
        ares_view key = map->members[i].key;
        const ares_json *value = map->members[i].value;
        ares_view a = tokenizer_token_text(ares_json_find(config, key)),
                  b = tokenizer_token_text(value);
        /* no warning for a token that the map alone names: it is taken from there */
        if (tell && b.data && (a.data ? !ares_view_eq(a, b) : whole))
            ares_warn("text: %s: %.*s is '%.*s' in special_tokens_map.json and %s%.*s%s in "
                      "tokenizer_config.json; %s holds, as in transformers 5",
                      dir, (int)ARES_MIN(key.len, 60), key.data, (int)ARES_MIN(b.len, 60), b.data,
                      a.data ? "'" : "", a.data ? (int)ARES_MIN(a.len, 60) : 4,
                      a.data ? a.data : "none", a.data ? "'" : "",
                      whole ? "tokenizer_config.json" : "special_tokens_map.json");
        if (!whole && !(lists && ares_view_is(key, "additional_special_tokens")))
            set(o, key, value);
    }
    /*
     * transformers 5 takes Qwen2Tokenizer for any model of model_type qwen2, and where no class is
     * named for the others of that family. Two classes have tokens of their own for keys that are
     * missing; null is none.
     */
    static const char *const family[] = { "qwen2", "qwen3", "qwen2_vl", "qwen2_5_vl" };
    ares_view type = tokenizer_token_text(ares_json_get(model, "model_type"));
    for (int i = 0; i < ARES_COUNT(family); i++)
        if (type.data && ares_view_is(type, family[i]) &&
            (i == 0 || !is_filled(o, "tokenizer_class")))
            set(o, ARES_VIEW("tokenizer_class"), new_text(arena, "Qwen2Tokenizer"));
    bool qwen2 = is_class(o, "Qwen2Tokenizer"), gpt2 = is_class(o, "GPT2Tokenizer");
    const char *keys[] = { "unk_token", "eos_token", qwen2 ? "pad_token" : "bos_token" };
    for (int i = 0; i < ARES_COUNT(keys) && (qwen2 || gpt2); i++)
        if (!ares_json_get(o, keys[i]))
            set(o, ares_view_of(keys[i]), new_text(arena, "<|endoftext|>"));
    *out = o;
    return ARES_OK;
}

/* ---------------- tokens that tokenizer.json may lack */
/* The list of extra_special_tokens, or else of the older additional_special_tokens; NULL: none. */
static const ares_json *listed(const ares_json *config)
{
    static const char *const keys[] = { "extra_special_tokens", "additional_special_tokens" };
    for (int i = 0; i < ARES_COUNT(keys); i++) {
        const ares_json *list = ares_json_get(config, keys[i]);
        if (list && list->type == ARES_JSON_ARRAY && list->count) return list;
    }
    return NULL;
}

/* Whether the list of extra or additional special tokens has the token. */
static bool in_list(const ares_json *config, ares_view text)
{
    const ares_json *list = listed(config);
    for (int64_t i = 0; list && i < list->count; i++) {
        ares_view token = tokenizer_token_text(&list->items[i]);
        if (token.data && ares_view_eq(token, text)) return true;
    }
    return false;
}

/* bos_token, image_token ... */
static bool is_token_key(ares_view key)
{
    return key.len > 6 && memcmp(key.data + key.len - 6, "_token", 6) == 0;
}

/* Whether a key of its own names the token. */
static bool is_named(const ares_json *config, ares_view text)
{
    const ares_json *extra = ares_json_get(config, "extra_special_tokens");
    for (int64_t i = 0; extra && extra->type == ARES_JSON_OBJECT && i < extra->count; i++) {
        ares_view value = tokenizer_token_text(extra->members[i].value);
        if (value.data && ares_view_eq(value, text)) return true;
    }
    for (int64_t i = 0; i < config->count; i++) {
        ares_view key = config->members[i].key,
                  value = tokenizer_token_text(config->members[i].value);
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
        /* for errors: the file and the key in it */
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
        /* a token with a role is special, whatever its list says */
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
        /* in order of ids, so that each gets the id that it asks for */
        qsort(tokens, (size_t)n, sizeof *tokens, by_id);
        for (int64_t i = 0; i < n; i++) {
            int64_t known;
            if (reads_list_alone(t->config) && ares_map_get(t->added, tokens[i].content, &known))
                t->added_tokens[known].special = false;
            int32_t wanted = tokens[i].id, id = tokenizer_add_token(t, tokens[i]);
            /* the vocabulary has it under another id, or another id was the next free one */
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

/*
 * Adds the token that a value names, unless it is known. A string is a special token, found in the
 * text as it is; an object says itself how it is found, and is special if it has a key of its own.
 * key NULL: the value stands in a list.
 */
static int add_named(ares_tokenizer *t, const char *dir, const ares_view *key,
                     const ares_json *value)
{
    added_token token = { .content = tokenizer_token_text(value), .special = true };
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
    for (int64_t i = 0; extra && extra->type == ARES_JSON_OBJECT && i < extra->count; i++)
        ARES_TRY(add_named(t, dir, &extra->members[i].key, extra->members[i].value));
    const ares_json *list = listed(o);
    for (int64_t i = 0; list && i < list->count; i++)
        ARES_TRY(add_named(t, dir, NULL, &list->items[i]));
    return ARES_OK;
}

/* [{"name": .., "template": ..}, ..]: the template of this name; NULL: there is none. */
const ares_json *tokenizer_template_named(const ares_json *list, const char *name)
{
    for (int64_t i = 0; list && list->type == ARES_JSON_ARRAY && i < list->count; i++) {
        const ares_json *label = ares_json_get(&list->items[i], "name"),
                        *text = ares_json_get(&list->items[i], "template");
        if (label && text && label->type == ARES_JSON_STRING && text->type == ARES_JSON_STRING &&
            ares_view_is(label->text, name))
            return text;
    }
    return NULL;
}

/*
 * The template of the processor's file wins over that of the tokenizer's file, and that over the
 * key of tokenizer_config.json; a warning tells of two that differ.
 */
static int read_chat_template(ares_tokenizer *t, const char *dir)
{
    ares_str path = { 0 }, text = { 0 };
    const ares_json *json;
    /* first: the file whose template holds; second: one that differs */
    const char *first = "chat_template.json", *second = NULL;
    int rc = read_json(&t->arena, ares_path_join(&path, dir, first), &json);
    ares_view holds = tokenizer_token_text(ares_json_get(json, "chat_template")), other = { 0 };
    if (rc == ARES_OK && ares_file_exists(ares_path_join(&path, dir, "chat_template.jinja"))) {
        rc = ares_file_read(path.data, &text);
        other = (ares_view){ ares_arena_copy(&t->arena, text.data ? text.data : "", text.len),
                             text.len };
        second = "chat_template.jinja";
        if (!holds.data) holds = other, first = second, second = NULL;
    }
    if (!second && (other = tokenizer_token_text(ares_json_get(t->config, "chat_template"))).data)
        second = "tokenizer_config.json";
    if (rc == ARES_OK && holds.data && second && !ares_view_eq(holds, other))
        ares_warn("text: %s: the chat templates of %s and %s differ; that of %s holds", dir, first,
                  second, first);
    t->chat_template = holds;
    ares_str_fini(&path);
    ares_str_fini(&text);
    return rc;
}

/*
 * Reads tokenizer_config.json, special_tokens_map.json and chat_template.jinja of a directory,
 * where present.
 */
static int tokenizer_read_config(ares_tokenizer *t, const char *dir)
{
    static const char *const roles[ROLE_COUNT] = { "bos_token", "eos_token", "pad_token",
                                                   "unk_token" };
    /* stands for a missing file, until the roles have been read */
    static const ares_json none = { .type = ARES_JSON_OBJECT };
    ares_str path = { 0 };
    const ares_json *list = NULL, *read;
    ARES_TRY(tokenizer_config_read(dir, &t->arena, true, &read));
    t->config = read ? read : &none;
    /* the list in the configuration wins over added_tokens.json */
    bool decoder = is_filled(t->config, "added_tokens_decoder");
    ares_path_join(&path, dir, decoder ? "tokenizer_config.json" : "added_tokens.json");
    int rc = ARES_OK;
    if (decoder && reads_list_alone(t->config)) {
        /* tokens of tokenizer.json that the class does not take from there */
        const ares_json *listed = ares_json_get(t->config, "added_tokens_decoder");
        for (int64_t i = 0; i < t->added_count; i++) {
            ares_view content = t->added_tokens[i].content;
            bool known = false;
            for (int64_t k = 0; !known && k < listed->count; k++) {
                ares_view text = tokenizer_token_text(listed->members[k].value);
                known = text.data && ares_view_eq(text, content);
            }
            if (!known)
                ares_warn("text: %s: '%.*s' is a token of tokenizer.json (id %d), but not of "
                          "added_tokens_decoder in tokenizer_config.json, from which alone "
                          "transformers 5 "
                          "takes this class's tokens; add it there",
                          dir, (int)ARES_MIN(content.len, 60), content.data, t->added_tokens[i].id);
        }
    }
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
    /* the class makes its tokenizer of the vocabulary, with Metaspace in place of Prepend */
    for (int k = 0; rc == ARES_OK && k < t->normal_count; k++)
        if (t->normals[k].kind == NORMAL_PREPEND && is_class(t->config, "LlamaTokenizer"))
            ares_warn("text: %s: tokenizer.json holds; transformers 5 does not read the normalizer "
                      "of a LlamaTokenizer, and gives texts that begin with a space or follow a "
                      "special token other ids. To have its ids here, too, save the tokenizer with "
                      "it: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
                      dir);
    ares_str_fini(&path);
    for (int i = 0; i < ROLE_COUNT; i++)
        t->role_tokens[i] = tokenizer_token_text(ares_json_get(t->config, roles[i]));
    t->config = read;
    return rc == ARES_OK ? read_chat_template(t, dir) : rc;
}

/*
 * tokenizer.json, or vocab.json with merges.txt, to a tokenizer: vocabulary, merges, added tokens.
 * Everything that a file asks for is either done as the library does it, or an error that names the
 * key; nothing is ignored.
 */

/* ---- vocabulary */
/* Reads {token: id}. No two tokens may have one id; ids may be left out between others. */
static int read_vocab(const tokenizer_loader *l, const char *key, const ares_json *vocab)
{
    ares_tokenizer *t = l->t;
    if (tokenizer_is_absent(vocab) || vocab->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "text: %s: %s: not an object of tokens and ids", l->path,
                         key);
    for (int64_t i = 0; i < vocab->count; i++) {
        const ares_json_member *m = &vocab->members[i];
        /* an id beyond TOKEN_ID_END would make the table of tokens huge */
        if (m->value->type != ARES_JSON_INT || m->value->big || m->value->integer < 0 ||
            m->value->integer >= TOKEN_ID_END)
            return ares_fail(ARES_EFORMAT, "text: %s: %s['%.*s']: not an id in [0, %d)", l->path,
                             key, (int)ARES_MIN(m->key.len, 80), m->key.data, TOKEN_ID_END);
        int64_t id = m->value->integer;
        if (id < t->token_count && t->tokens[id].text.data)
            return ares_fail(ARES_EFORMAT, "text: %s: %s['%.*s']: id %lld is also that of '%.*s'",
                             l->path, key, (int)ARES_MIN(m->key.len, 80), m->key.data,
                             (long long)id, (int)ARES_MIN(t->tokens[id].text.len, 80),
                             t->tokens[id].text.data);
        tokenizer_grow(t, id);
        ares_view text = { ares_arena_copy(&t->arena, m->key.data, m->key.len), m->key.len };
        t->tokens[id] = tokenizer_token(t, text, false);
        ares_map_put(t->vocab, text, id);
    }
    return ARES_OK;
}

/*
 * One merge: the ids of left, of right and of both joined. key and at, counted from 1, say where it
 * stands, for errors. guess: an id that may be that of both joined.
 */
static int read_merge(const tokenizer_loader *l, const char *key, int64_t at, ares_view left,
                      ares_view right, int64_t guess, bpe_merge *merge)
{
    const ares_tokenizer *t = l->t;
    ares_view joined = guess < t->token_count ? t->tokens[guess].text : (ares_view){ 0 };
    int64_t a = 0, b = 0, c = guess;
    int rc = ARES_OK;
    ares_str text = { 0 };
    /* texts and ids are one to one, so that the right guess is what the look-up would find */
    if (!joined.data || joined.len != left.len + right.len || !ares_view_starts(joined, left) ||
        memcmp(joined.data + left.len, right.data, right.len) != 0) {
        ares_str_add_view(&text, left);
        ares_str_add_view(&text, right);
        joined = ares_str_view(&text);
        c = -1;
    }
    ares_view missing = !ares_map_get(t->vocab, left, &a)              ? left
                        : !ares_map_get(t->vocab, right, &b)           ? right
                        : c < 0 && !ares_map_get(t->vocab, joined, &c) ? joined
                                                                       : (ares_view){ 0 };
    if (missing.data)
        rc = ares_fail(ARES_EFORMAT, "text: %s: %s %lld: '%.*s' is not in the vocabulary", l->path,
                       key, (long long)at, (int)ARES_MIN(missing.len, 80), missing.data);
    *merge = (bpe_merge){ (int32_t)a, (int32_t)b, (int32_t)c };
    ares_str_fini(&text);
    return rc;
}

/* "left right", with exactly one space. */
static bool split_pair(ares_view line, ares_view *left, ares_view *right)
{
    int64_t space = ares_view_find(line, ARES_VIEW(" "), 0);
    if (space < 0 || ares_view_find(line, ARES_VIEW(" "), (size_t)space + 1) >= 0) return false;
    *left = (ares_view){ line.data, (size_t)space };
    *right = (ares_view){ line.data + space + 1, line.len - (size_t)space - 1 };
    return true;
}

/* A merge is ["left", "right"], or "left right" in older files. */
static int read_merges_json(const tokenizer_loader *l, const ares_json *json, bpe_merge **out,
                            int64_t *count)
{
    if (tokenizer_is_absent(json) || json->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "text: %s: model.merges: not a list of merges", l->path);
    *count = 0;
    if (json->count > MERGES_MOST)
        return ares_fail(ARES_ELIMIT, "text: %s: model.merges: %lld merges; %d are supported",
                         l->path, (long long)json->count, MERGES_MOST);
    int rc = ARES_OK;
    *out = ares_calloc((size_t)json->count + 1, sizeof **out);
    for (int64_t i = 0; rc == ARES_OK && i < json->count; i++) {
        const ares_json *item = &json->items[i];
        ares_view left = { 0 }, right = { 0 };
        bool pair = item->type == ARES_JSON_ARRAY && item->count == 2 &&
                    item->items[0].type == ARES_JSON_STRING &&
                    item->items[1].type == ARES_JSON_STRING;
        /* read_merge looks both up, and the token that they make */
        if (pair) left = item->items[0].text, right = item->items[1].text;
        else pair = item->type == ARES_JSON_STRING && split_pair(item->text, &left, &right);
        if (!pair)
            rc = ares_fail(ARES_EFORMAT, "text: %s: model.merges %lld: not two tokens", l->path,
                           (long long)i + 1);
        else /* most vocabularies number tokens in the order of the merges */
            rc = read_merge(l, "model.merges", i + 1, left, right, i ? (*out)[i - 1].id + 1 : 0,
                            &(*out)[i]);
    }
    *count = json->count;
    return rc;
}

/* ---- the model */
/*
 * The token of each byte, then the tables of bpe.c. byte_fallback: bytes of characters that have no
 * token have tokens like <0xE4>.
 */
static void make_model(ares_tokenizer *t, bool byte_fallback, bpe_config *config)
{
    if (t->sentencepiece.on) config->characters = t->vocab;
    for (int byte = 0; byte < 256; byte++) {
        char text[32];
        int64_t id = -1;
        int n = t->sentencepiece.on ? snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte)
                                    : unicode_put(unicode_of_byte[byte], (unsigned char *)text);
        /* -1: the vocabulary lacks the byte */
        if ((t->sentencepiece.on && !byte_fallback) ||
            !ares_map_get(t->vocab, (ares_view){ text, (size_t)n }, &id))
            id = -1;
        config->byte_id[byte] = (int32_t)id;
    }
    t->model = bpe_new(config);
}

/* An error unless the model is one that we run. */
static int check_model(const tokenizer_loader *l, const ares_json *model)
{
    if (tokenizer_is_absent(model)) return ares_fail(ARES_EFORMAT, "text: %s: no 'model'", l->path);
    ares_view type = tokenizer_type_of(model);
    if (type.data ? !ares_view_is(type, "BPE") : !ares_json_get(model, "merges"))
        return tokenizer_bad(l, ARES_EUNSUPPORTED, "model.type", type,
                             "not supported (choices: BPE)");
    /* a probability of leaving merges out in training */
    double dropout;
    ARES_TRY(tokenizer_in_file(l, "model", ares_json_get_double(model, "dropout", 0, &dropout)));
    if (dropout != 0)
        return tokenizer_bad(l, ARES_EUNSUPPORTED, "model.dropout",
                             ares_json_get(model, "dropout")->text,
                             "random merges are not supported; set it to null");
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    for (int i = 0; i < ARES_COUNT(affixes); i++) {
        ares_view affix;
        ARES_TRY(
            tokenizer_in_file(l, "model", ares_json_get_string(model, affixes[i], "", &affix)));
        /* "##ing" and "low</w>": of other kinds of BPE */
        if (affix.len)
            return tokenizer_bad(l, ARES_EUNSUPPORTED, affixes[i], affix,
                                 "not supported; only BPE without affixes is");
    }
    return ARES_OK;
}

/* Vocabulary and merges of tokenizer.json to a bpe. */
static int read_model(const tokenizer_loader *l, const ares_json *model)
{
    ares_tokenizer *t = l->t;
    bool ignore_merges, byte_fallback;
    bpe_config config = { .unk_id = -1 };
    ARES_TRY(tokenizer_get_bool(l, "model", model, "ignore_merges", false, &ignore_merges));
    ARES_TRY(tokenizer_get_bool(l, "model", model, "fuse_unk", false, &config.fuse_unk));
    ARES_TRY(tokenizer_get_bool(l, "model", model, "byte_fallback", false, &byte_fallback));
    ARES_TRY(read_vocab(l, "model.vocab", ares_json_get(model, "vocab")));
    ares_view unk;
    ARES_TRY(tokenizer_in_file(l, "model", ares_json_get_string(model, "unk_token", "", &unk)));
    int64_t unk_id = -1;
    /* only an error where a byte would need it */
    bool unk_missing = ares_json_get(model, "unk_token") &&
                       ares_json_get(model, "unk_token")->type == ARES_JSON_STRING &&
                       !ares_map_get(t->vocab, unk, &unk_id);
    config.unk_id = t->unk_id = (int32_t)unk_id;
    bpe_merge *merges = NULL;
    int rc = read_merges_json(l, ares_json_get(model, "merges"), &merges, &config.merge_count);
    if (rc == ARES_OK) {
        /* only then: the map costs memory */
        if (ignore_merges && t->sentencepiece.on) {
            config.whole_words = t->vocab;
        } else if (ignore_merges) {
            /* bytes -> id of the tokens whose characters are all of the byte alphabet */
            ares_map *words = ares_map_new();
            for (int64_t i = 0; i < ares_map_count(t->vocab); i++) {
                ares_view text = ares_map_key(t->vocab, i);
                bool in_alphabet = text.len > 0;
                for (const unsigned char *p = (const unsigned char *)text.data, *end = p + text.len;
                     p < end;)
                    in_alphabet &= unicode_byte_of(unicode_next(&p)) >= 0;
                int64_t id = ares_map_value(t->vocab, i);
                if (in_alphabet) ares_map_put(words, t->tokens[id].bytes, id);
            }
            config.whole_words = t->words = words;
        }
        config.merges = merges;
        make_model(t, byte_fallback, &config);
        bool whole = true; /* every byte has a token */
        for (int byte = 0; byte < 256; byte++) whole &= config.byte_id[byte] >= 0;
        if (!whole && unk_missing)
            rc = tokenizer_bad(l, ARES_EFORMAT, "model.unk_token", unk,
                               "not in the vocabulary, and some bytes have no token");
        else if (!whole && byte_fallback && !t->sentencepiece.on)
            rc = ares_fail(ARES_EUNSUPPORTED,
                           "text: %s: model.byte_fallback = 'true': not supported with a ByteLevel "
                           "pre-tokenizer where bytes have no token of their own; set it to false, "
                           "and such bytes become unk_token",
                           l->path);
    }
    ares_free(merges);
    return rc;
}

/* ---- files */
static int read_added_tokens(const tokenizer_loader *l, const ares_json *list)
{
    if (tokenizer_is_absent(list)) return ARES_OK;
    if (list->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "text: %s: added_tokens: not a list", l->path);
    ares_str where = { 0 };
    int rc = ARES_OK;
    for (int64_t i = 0; rc == ARES_OK && i < list->count; i++) {
        added_token token;
        int64_t wanted = -1;
        ares_str_clear(&where);
        ares_str_addf(&where, "%s: added_tokens %lld", l->path, (long long)i + 1);
        rc = tokenizer_read_added(where.data, &list->items[i], &token);
        if (rc == ARES_OK)
            rc = tokenizer_in_file(l, "added_tokens",
                                   ares_json_get_i64(&list->items[i], "id", -1, &wanted));
        if (rc != ARES_OK || token.content.len == 0) continue;
        int32_t id = tokenizer_add_token(l->t, token);
        if (wanted != id)
            ares_warn("text: %s: '%.*s' gets id %d, not %lld: a new token takes the next free id",
                      where.data, (int)ARES_MIN(token.content.len, 60), token.content.data, id,
                      (long long)wanted);
    }
    ares_str_fini(&where);
    return rc;
}

/*
 * In the order in which the parts need each other: the pre-tokenizer says whether a text is bytes
 * or characters, the decoder what tokens decode to, and added tokens look ids up in the vocabulary.
 */
static int read_tokenizer_json(tokenizer_loader *l, const ares_json *root)
{
    if (root->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "text: %s: not a JSON object", l->path);
    const ares_json *model = ares_json_get(root, "model");
    ARES_TRY(check_model(l, model));
    ARES_TRY(read_normalizer(l, ares_json_get(root, "normalizer"), 0));
    ARES_TRY(read_pre_tokenizer(l, ares_json_get(root, "pre_tokenizer"), 0));
    l->t->sentencepiece.on = !l->byte_level;
    ARES_TRY(tokenizer_read_decoder(l, ares_json_get(root, "decoder")));
    ARES_TRY(read_model(l, model));
    ARES_TRY(read_added_tokens(l, ares_json_get(root, "added_tokens")));
    return read_post_processor(l, ares_json_get(root, "post_processor"), 0);
}

/* The older pair of files, vocab.json and merges.txt. */
static int read_vocab_and_merges(tokenizer_loader *l, const char *dir, const ares_json *vocab,
                                 ares_view merges_text, const char *merges_path)
{
    ares_tokenizer *t = l->t;
    bpe_config config = { .unk_id = -1 };
    bpe_merge *merges = NULL;
    ARES_TRY(read_vocab(l, "vocabulary", vocab));
    l->path = merges_path;
    /* merges.txt: a merge per line, after a first line that may name the version */
    int rc = ARES_OK;
    int64_t cap = 0, line_number = 0;
    for (size_t at = 0; rc == ARES_OK && at < merges_text.len;) {
        int64_t end = ares_view_find(merges_text, ARES_VIEW("\n"), at);
        size_t stop = end < 0 ? merges_text.len : (size_t)end;
        ares_view line = { merges_text.data + at, stop - at }, left, right;
        at = stop + 1;
        line_number++;
        /* files written on Windows */
        if (line.len && line.data[line.len - 1] == '\r') line.len--;
        if (line_number == 1 && ares_view_starts(line, ARES_VIEW("#version"))) continue;
        if (!split_pair(line, &left, &right)) {
            rc = ares_fail(ARES_EFORMAT, "text: %s:%lld: not two tokens separated by a space",
                           l->path, (long long)line_number);
            break;
        }
        if (config.merge_count == MERGES_MOST) {
            rc = ares_fail(ARES_ELIMIT, "text: %s:%lld: more than %d merges", l->path,
                           (long long)line_number, MERGES_MOST);
            break;
        }
        if (config.merge_count == cap) {
            cap = cap ? cap * 2 : 4096;
            merges = ares_realloc(merges, (size_t)cap * sizeof *merges);
        }
        int64_t guess = config.merge_count ? merges[config.merge_count - 1].id + 1 : 0;
        rc = read_merge(l, "line", line_number, left, right, guess, &merges[config.merge_count++]);
    }
    config.merges = merges;
    if (rc == ARES_OK) make_model(t, false, &config);
    ares_free(merges);
    ARES_TRY(rc);
    ARES_TRY(tokenizer_read_config(t, dir)); /* it has the added tokens */
    /*
     * vocab.json and merges.txt do not say how text is split; tokenizer_class decides it. Two
     * families of models are published in this form; others have a tokenizer.json or can be saved
     * with one.
     */
    ares_view class = { NULL, 0 };
    bool prefix = false;
    ARES_TRY(ares_json_get_string(t->config, "tokenizer_class", "", &class));
    ARES_TRY(ares_json_get_bool(t->config, "add_prefix_space", false, &prefix));
    /* the fast variants, "Qwen2TokenizerFast", begin with these names */
    bool qwen2 = ares_view_starts(class, ARES_VIEW("Qwen2Tokenizer"));
    if (!qwen2 && !ares_view_starts(class, ARES_VIEW("GPT2Tokenizer")))
        return ares_fail(ARES_EUNSUPPORTED,
                         "text: %s/tokenizer_config.json: tokenizer_class = '%.*s': vocab.json and "
                         "merges.txt do not say how text is split; save the tokenizer as "
                         "tokenizer.json (choices without it: Qwen2Tokenizer, GPT2Tokenizer)",
                         dir, (int)class.len, class.data ? class.data : "");
    if (!qwen2) return add_byte_level(l, prefix, GPT2_PATTERN);
    /* as the class does it in transformers: NFC, its pattern, no GPT-2 pattern */
    t->normals[t->normal_count++] = (normal_step){ .kind = NORMAL_FORM, .form = UNICODE_NFC };
    ARES_TRY(add_pattern(l, ARES_VIEW(QWEN2_PATTERN), false, SPLIT_ISOLATED, false));
    return add_byte_level(l, prefix, NULL);
}

/* Once all tokens are known: the added tokens to find in a text, and the ids of the roles. */
static int finish(ares_tokenizer *t)
{
    text_scratch *s = text_scratch_new();
    int rc = ARES_OK;
    t->raw_set = added_set_new();
    t->normalized_set = added_set_new();
    /* where two tokens have one text, the special one is put first and holds */
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < t->added_count; i++) {
            const added_token *token = &t->added_tokens[i];
            /* round 0: special tokens, round 1: the others */
            if (token->special != (round == 0)) continue;
            piece p = {
                (const unsigned char *)token->content.data, token->content.len, NULL, -1, true, 0
            };
            s->source = p.at;
            s->source_len = p.len;
            for (int k = 0; rc == ARES_OK && token->normalized && k < t->normal_count; k++)
                rc = split_normalize(&t->normals[k], s, &p);
            ares_view text = { (const char *)p.at, p.len };
            /* the normalizer leaves nothing of it to be found */
            if (p.len == 0) continue;
            added_set_put(token->normalized ? t->normalized_set : t->raw_set, text, token);
            if (p.in_source) continue;
            /* the id decodes to the normal form, and is special if that text is */
            text.data = ares_arena_copy(&t->arena, text.data, text.len);
            int64_t other;
            bool special = ares_map_get(t->added, text, &other) && t->added_tokens[other].special;
            t->tokens[token->id] = tokenizer_token(t, text, special);
            t->tokens[token->id].added = true;
        }
    }
    text_scratch_free(s);
    ARES_TRY(rc);
    t->spellings = ares_malloc(((size_t)t->token_count + 1) * sizeof *t->spellings);
    for (int64_t i = 0; i < t->token_count; i++) {
        const token_info *token = &t->tokens[i];
        spelling *to = &t->spellings[i];
        *to = (spelling){ .len = SPELLED_ELSEWHERE };
        if (!token->text.data || token->special || token->bytes.len > sizeof to->bytes) continue;
        to->len = (unsigned char)token->bytes.len;
        memcpy(to->bytes, token->bytes.data, token->bytes.len);
    }
    for (int i = 0; i < ROLE_COUNT; i++) {
        int64_t id = -1;
        /* the model has no such role */
        if (!t->role_tokens[i].data) id = -1;
        else if (ares_map_get(t->added, t->role_tokens[i], &id)) id = t->added_tokens[id].id;
        else if (!ares_map_get(t->vocab, t->role_tokens[i], &id)) id = -1;
        t->role_ids[i] = (int32_t)id;
    }
    return ARES_OK;
}

static int load(ares_tokenizer *t, const char *given)
{
    bool is_dir = ares_dir_exists(given);
    ares_str path = { 0 }, merges_path = { 0 }, text = { 0 }, merges = { 0 };
    ares_arena arena = { 0 };
    const ares_json *root = NULL;
    tokenizer_loader l = { .t = t };
    const char *main_path = is_dir ? ares_path_join(&path, given, "tokenizer.json") : given;
    /* the two older files instead of one */
    bool pair = is_dir && !ares_file_exists(main_path);
    if (pair) {
        main_path = ares_path_join(&path, given, "vocab.json");
        ares_path_join(&merges_path, given, "merges.txt");
    }
    int rc = ARES_OK;
    if (pair && (!ares_file_exists(main_path) || !ares_file_exists(merges_path.data)))
        rc = ares_file_exists(ares_path_join(&merges_path, given, "tokenizer.model"))
                 ? ares_fail(ARES_EUNSUPPORTED,
                             "text: %s: tokenizer.model alone is not supported; save it as "
                             "tokenizer.json: python3 -c \"from transformers import AutoTokenizer; "
                             "AutoTokenizer.from_pretrained('%s').save_pretrained('%s')\"",
                             given, given, given)
                 : ares_fail(ARES_EIO,
                             "text: %s: no tokenizer in it (tokenizer.json, or vocab.json and "
                             "merges.txt)",
                             given);
    l.path = main_path;
    if (rc == ARES_OK) rc = ares_file_read(main_path, &text);
    if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), main_path, &root);
    if (rc == ARES_OK && pair) {
        rc = ares_file_read(merges_path.data, &merges);
        if (rc == ARES_OK && unicode_valid((unsigned char *)merges.data, merges.len) < merges.len)
            rc = ares_fail(ARES_EFORMAT, "text: %s: not UTF-8", merges_path.data);
        if (rc == ARES_OK)
            rc = read_vocab_and_merges(&l, given, root, ares_str_view(&merges), merges_path.data);
    } else if (rc == ARES_OK) {
        rc = read_tokenizer_json(&l, root);
        /* a file alone has no roles and no chat template */
        if (rc == ARES_OK && is_dir) rc = tokenizer_read_config(t, given);
    }
    ares_arena_fini(&arena);
    ares_str_fini(&path);
    ares_str_fini(&merges_path);
    ares_str_fini(&text);
    ares_str_fini(&merges);
    return rc == ARES_OK ? finish(t) : rc;
}

/* Empty maps, so that lookups work before anything is read. */
static ares_tokenizer *new_tokenizer(void)
{
    ares_tokenizer *t = ares_calloc(1, sizeof *t);
    t->vocab = ares_map_new();
    t->added = ares_map_new();
    t->unk_id = -1;
    return t;
}

/* Gives the tokenizer to the caller, or frees it after an error. */
static int hand_out(int rc, ares_tokenizer *t, ares_tokenizer **out)
{
    *out = rc == ARES_OK ? t : NULL;
    if (rc != ARES_OK) ares_tokenizer_free(t);
    return rc;
}

/* path: a model directory, or a tokenizer.json. */
int ares_tokenizer_load(const char *path, ares_tokenizer **out)
{
    ares_tokenizer *t = new_tokenizer();
    return hand_out(load(t, path), t, out);
}

/* A tokenizer.json in memory, for tests and fuzzing; name: for errors. */
int tokenizer_parse(const char *name, ares_view json, ares_tokenizer **out)
{
    ares_tokenizer *t = new_tokenizer();
    ares_arena arena = { 0 };
    const ares_json *root;
    int rc = ares_json_parse(&arena, json, name, &root);
    if (rc == ARES_OK) rc = read_tokenizer_json(&(tokenizer_loader){ .t = t, .path = name }, root);
    if (rc == ARES_OK) rc = finish(t);
    ares_arena_fini(&arena);
    return hand_out(rc, t, out);
}
