/*
 * What happens to a text before and after the model: normalizer, pre-tokenizer, decoder and
 * post-processor of a tokenizer.json, or the steps that a tokenizer_class stands for.
 */
#include <string.h>

#include "tokenizer_load.h"

/* ---- normalizer */
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
    for (int i = 0; i < ARES_COUNT(names); i++) {
        if (!ares_view_is(type, names[i])) continue;
        if (t->form_count == FORMS_MOST)
            return tokenizer_bad(l, ARES_ELIMIT, "normalizer", type, "too many steps");
        t->forms[t->form_count++] = (unicode_form)i;
        return ARES_OK;
    }
    return tokenizer_bad(l, ARES_EUNSUPPORTED, "normalizer.type", type,
                         "not supported (choices: NFC, NFD, NFKC, NFKD, Sequence)");
}

/* ---- pre-tokenizer */
#define GPT2_PATTERN \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define QWEN2_PATTERN                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| " \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

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

static int add_pattern(const tokenizer_loader *l, ares_view source, bool literal,
                       split_behavior behavior, bool invert)
{
    split_step step = { STEP_PATTERN, behavior, invert, NULL };
    ares_str where = { 0 };
    ares_str_addf(&where, "%s: pre_tokenizer.pattern", l->path);
    int rc = pattern_new(where.data, source, literal, &step.pattern);
    ares_str_fini(&where);
    return rc == ARES_OK ? add_step(l, step) : rc;
}

static int read_split(const tokenizer_loader *l, const ares_json *json)
{
    static const char *const behaviors[] = { "Isolated", "Removed", "MergedWithPrevious",
                                             "MergedWithNext", "Contiguous" };
    ares_view name;
    bool invert;
    int behavior;
    ARES_TRY(
        tokenizer_in_file(l, "pre_tokenizer", ares_json_get_string(json, "behavior", "", &name)));
    ARES_TRY(tokenizer_get_bool(l, "pre_tokenizer", json, "invert", false, &invert));
    for (behavior = 0; behavior < ARES_COUNT(behaviors); behavior++)
        if (ares_view_is(name, behaviors[behavior])) break;
    if (behavior == ARES_COUNT(behaviors))
        return tokenizer_bad(
            l, ARES_EFORMAT, "pre_tokenizer.behavior", name,
            "unknown (choices: Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous)");
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

/* pattern: the one to split by; NULL: other steps split. */
static int add_byte_level(tokenizer_loader *l, bool add_prefix_space, const char *pattern)
{
    if (l->byte_level)
        return ares_fail(ARES_EUNSUPPORTED,
                         "text: %s: pre_tokenizer: a second ByteLevel is not supported", l->path);
    l->byte_level = true;
    if (add_prefix_space)
        ARES_TRY(add_step(l, (split_step){ STEP_PREFIX_SPACE, SPLIT_ISOLATED, false, NULL }));
    return pattern ? add_pattern(l, ares_view_of(pattern), false, SPLIT_ISOLATED, false) : ARES_OK;
}

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
        ARES_TRY(add_step(l, (split_step){ STEP_BYTE_ALPHABET, SPLIT_ISOLATED, false, NULL }));
    }
    if (ares_view_is(type, "Split")) return read_split(l, json);
    if (ares_view_is(type, "Digits")) {
        bool individual;
        ARES_TRY(
            tokenizer_get_bool(l, "pre_tokenizer", json, "individual_digits", false, &individual));
        return add_step(l,
                        (split_step){ STEP_NUMERIC, individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS,
                                      false, NULL });
    }
    if (ares_view_is(type, "WhitespaceSplit"))
        return add_step(l, (split_step){ STEP_SPACE, SPLIT_REMOVED, false, NULL });
    return tokenizer_bad(
        l, ARES_EUNSUPPORTED, "pre_tokenizer.type", type,
        "not supported (choices: ByteLevel, Split, Digits, WhitespaceSplit, Sequence)");
}

/* ---- decoder */
int tokenizer_read_decoder(const tokenizer_loader *l, const ares_json *json)
{
    ares_view type = tokenizer_is_absent(json) ? ARES_VIEW("null") : tokenizer_type_of(json);
    if (ares_view_is(type, "Sequence")) {
        const ares_json *list = ares_json_get(json, "decoders");
        if (list && list->type == ARES_JSON_ARRAY && list->count > 0) {
            ARES_TRY(tokenizer_read_decoder(l, &list->items[0]));
            if (list->count == 1 ||
                (list->count == 2 && ares_view_is(tokenizer_type_of(&list->items[1]), "Fuse")))
                return ARES_OK;
        }
    }
    if (ares_view_is(type, "ByteLevel")) return ARES_OK;
    return tokenizer_bad(l, ARES_EUNSUPPORTED, "decoder.type", type,
                         "not supported (choices: ByteLevel)");
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

static int append_ids(const tokenizer_loader *l, const ares_json *ids, int32_t **list,
                      int64_t *count)
{
    if (!ids || ids->type != ARES_JSON_ARRAY)
        return ares_fail(
            ARES_EFORMAT,
            "text: %s: post_processor.special_tokens: a token of the template has no 'ids'",
            l->path);
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

int tokenizer_read_normalizer(const tokenizer_loader *l, const ares_json *json)
{
    return read_normalizer(l, json, 0);
}

int tokenizer_read_pre_tokenizer(tokenizer_loader *l, const ares_json *json)
{
    return read_pre_tokenizer(l, json, 0);
}

int tokenizer_read_post_processor(const tokenizer_loader *l, const ares_json *json)
{
    return read_post_processor(l, json, 0);
}

/*
 * vocab.json and merges.txt do not say how text is split; tokenizer_class decides it. Two families
 * of models are published in this form; others have a tokenizer.json or can be saved with one.
 */
int tokenizer_read_class(tokenizer_loader *l, const char *dir)
{
    ares_tokenizer *t = l->t;
    ares_view class = { NULL, 0 };
    bool prefix = false;
    ARES_TRY(ares_json_get_string(t->config, "tokenizer_class", "", &class));
    ARES_TRY(ares_json_get_bool(t->config, "add_prefix_space", false, &prefix));
    bool qwen2 = ares_view_starts(class, ARES_VIEW("Qwen2Tokenizer"));
    if (!qwen2 && !ares_view_starts(class, ARES_VIEW("GPT2Tokenizer")))
        return ares_fail(ARES_EUNSUPPORTED,
                         "text: %s/tokenizer_config.json: tokenizer_class = '%.*s': vocab.json and "
                         "merges.txt do not say how text is split; save the tokenizer as "
                         "tokenizer.json (choices without it: Qwen2Tokenizer, GPT2Tokenizer)",
                         dir, (int)class.len, class.data ? class.data : "");
    if (!qwen2) return add_byte_level(l, prefix, GPT2_PATTERN);
    t->forms[t->form_count++] = UNICODE_NFC;
    ARES_TRY(add_pattern(l, ARES_VIEW(QWEN2_PATTERN), false, SPLIT_ISOLATED, false));
    return add_byte_level(l, prefix, NULL);
}
