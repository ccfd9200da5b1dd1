/*
 * tokenizer.json, or vocab.json with merges.txt, to a tokenizer: vocabulary, merges, added tokens.
 * Everything that a file asks for is either done as the library does it, or an error that names the
 * key; nothing is ignored.
 */

#include "tokenizer_load.h"

/* ---- vocabulary */
static int read_vocab(const tokenizer_loader *l, const char *key, const ares_json *vocab)
{
    ares_tokenizer *t = l->t;
    if (tokenizer_is_absent(vocab) || vocab->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "text: %s: %s: not an object of tokens and ids", l->path,
                         key);
    for (int64_t i = 0; i < vocab->count; i++) {
        const ares_json_member *m = &vocab->members[i];
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
        t->tokens[id] = (token_info){ text, tokenizer_bytes_of(&t->arena, text), false };
        ares_map_put(t->vocab, text, id);
    }
    return ARES_OK;
}

/* One merge, of the tokens left and right; `at` is its number from 1, for errors. */
static int read_merge(const tokenizer_loader *l, const char *key, int64_t at, ares_view left,
                      ares_view right, ares_str *joined, bpe_merge *merge)
{
    ares_view missing = left;
    int64_t a = 0, b = 0, c = 0;
    ares_str_clear(joined);
    ares_str_add_view(joined, left);
    ares_str_add_view(joined, right);
    if (ares_map_get(l->t->vocab, left, &a)) {
        missing = right;
        if (ares_map_get(l->t->vocab, right, &b)) {
            missing = ares_str_view(joined);
            if (ares_map_get(l->t->vocab, missing, &c)) {
                *merge = (bpe_merge){ (int32_t)a, (int32_t)b, (int32_t)c };
                return ARES_OK;
            }
        }
    }
    return ares_fail(ARES_EFORMAT, "text: %s: %s %lld: '%.*s' is not in the vocabulary", l->path,
                     key, (long long)at, (int)ARES_MIN(missing.len, 80),
                     missing.data ? missing.data : "");
}

static bool split_pair(ares_view line, ares_view *left, ares_view *right)
{
    int64_t space = ares_view_find(line, ARES_VIEW(" "), 0);
    if (space < 0 || ares_view_find(line, ARES_VIEW(" "), (size_t)space + 1) >= 0) return false;
    *left = (ares_view){ line.data, (size_t)space };
    *right = (ares_view){ line.data + space + 1, line.len - (size_t)space - 1 };
    return true;
}

static int read_merges_json(const tokenizer_loader *l, const ares_json *json, bpe_merge **out,
                            int64_t *count)
{
    if (tokenizer_is_absent(json) || json->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "text: %s: model.merges: not a list of merges", l->path);
    ares_str joined = { 0 };
    int rc = ARES_OK;
    *out = ares_calloc((size_t)json->count + 1, sizeof **out);
    for (int64_t i = 0; rc == ARES_OK && i < json->count; i++) {
        const ares_json *item = &json->items[i];
        ares_view left = { 0 }, right = { 0 };
        bool pair = item->type == ARES_JSON_ARRAY && item->count == 2 &&
                    item->items[0].type == ARES_JSON_STRING &&
                    item->items[1].type == ARES_JSON_STRING;
        if (pair) left = item->items[0].text, right = item->items[1].text;
        else pair = item->type == ARES_JSON_STRING && split_pair(item->text, &left, &right);
        if (!pair)
            rc = ares_fail(ARES_EFORMAT, "text: %s: model.merges %lld: not two tokens", l->path,
                           (long long)i + 1);
        else rc = read_merge(l, "model.merges", i + 1, left, right, &joined, &(*out)[i]);
    }
    *count = json->count;
    ares_str_fini(&joined);
    return rc;
}

static int read_merges_text(const tokenizer_loader *l, ares_view text, bpe_merge **out,
                            int64_t *count)
{
    ares_str joined = { 0 };
    int rc = ARES_OK;
    int64_t cap = 0, line_number = 0;
    for (size_t at = 0; rc == ARES_OK && at < text.len;) {
        int64_t end = ares_view_find(text, ARES_VIEW("\n"), at);
        size_t stop = end < 0 ? text.len : (size_t)end;
        ares_view line = { text.data + at, stop - at }, left, right;
        at = stop + 1;
        line_number++;
        if (line.len && line.data[line.len - 1] == '\r') line.len--;
        if (line_number == 1 && ares_view_starts(line, ARES_VIEW("#version"))) continue;
        if (!split_pair(line, &left, &right)) {
            rc = ares_fail(ARES_EFORMAT, "text: %s:%lld: not two tokens separated by a space",
                           l->path, (long long)line_number);
            break;
        }
        if (*count == cap) {
            cap = cap ? cap * 2 : 4096;
            *out = ares_realloc(*out, (size_t)cap * sizeof **out);
        }
        rc = read_merge(l, "line", line_number, left, right, &joined, &(*out)[(*count)++]);
    }
    ares_str_fini(&joined);
    return rc;
}

/* ---- the model */
static void make_model(ares_tokenizer *t, bpe_config *config)
{
    for (int byte = 0; byte < 256; byte++) {
        unsigned char text[4];
        int64_t id = -1;
        int n = unicode_put(unicode_of_byte[byte], text);
        config->byte_id[byte] =
            ares_map_get(t->vocab, (ares_view){ (char *)text, (size_t)n }, &id) ? (int32_t)id : -1;
    }
    t->model = bpe_new(config);
}

/* Bytes -> id of the tokens whose characters are all of the byte alphabet. */
static ares_map *words_of(const ares_tokenizer *t)
{
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
    return words;
}

/* Whether the model is one that we run. */
static int check_model(const tokenizer_loader *l, const ares_json *model)
{
    if (tokenizer_is_absent(model)) return ares_fail(ARES_EFORMAT, "text: %s: no 'model'", l->path);
    ares_view type = tokenizer_type_of(model);
    if (type.data ? !ares_view_is(type, "BPE") : !ares_json_get(model, "merges"))
        return tokenizer_bad(l, ARES_EUNSUPPORTED, "model.type", type,
                             "not supported (choices: BPE)");
    bool byte_fallback;
    ARES_TRY(tokenizer_get_bool(l, "model", model, "byte_fallback", false, &byte_fallback));
    if (byte_fallback)
        return ares_fail(ARES_EUNSUPPORTED,
                         "text: %s: model.byte_fallback = 'true': only byte-level BPE is "
                         "supported, in which every byte is a token; use a model with such a "
                         "vocabulary",
                         l->path);
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
        if (affix.len)
            return tokenizer_bad(l, ARES_EUNSUPPORTED, affixes[i], affix,
                                 "not supported; only byte-level BPE without affixes is");
    }
    return ARES_OK;
}

static int read_model(const tokenizer_loader *l, const ares_json *model)
{
    ares_tokenizer *t = l->t;
    bool ignore_merges;
    bpe_config config = { .unk_id = -1 };
    ARES_TRY(check_model(l, model));
    ARES_TRY(tokenizer_get_bool(l, "model", model, "ignore_merges", false, &ignore_merges));
    ARES_TRY(tokenizer_get_bool(l, "model", model, "fuse_unk", false, &config.fuse_unk));
    ARES_TRY(read_vocab(l, "model.vocab", ares_json_get(model, "vocab")));
    ares_view unk;
    ARES_TRY(tokenizer_in_file(l, "model", ares_json_get_string(model, "unk_token", "", &unk)));
    int64_t unk_id = -1;
    bool unk_missing = ares_json_get(model, "unk_token") &&
                       ares_json_get(model, "unk_token")->type == ARES_JSON_STRING &&
                       !ares_map_get(t->vocab, unk, &unk_id);
    config.unk_id = (int32_t)unk_id;
    bpe_merge *merges = NULL;
    int rc = read_merges_json(l, ares_json_get(model, "merges"), &merges, &config.merge_count);
    if (rc == ARES_OK) {
        if (ignore_merges) t->words = words_of(t);
        config.whole_words = t->words;
        config.merges = merges;
        make_model(t, &config);
        for (int byte = 0; byte < 256 && unk_missing && rc == ARES_OK; byte++)
            if (config.byte_id[byte] < 0)
                rc = tokenizer_bad(l, ARES_EFORMAT, "model.unk_token", unk,
                                   "not in the vocabulary, and some bytes have no token");
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

static int read_tokenizer_json(tokenizer_loader *l, const ares_json *root)
{
    if (root->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "text: %s: not a JSON object", l->path);
    ARES_TRY(read_model(l, ares_json_get(root, "model")));
    ARES_TRY(tokenizer_read_normalizer(l, ares_json_get(root, "normalizer")));
    ARES_TRY(tokenizer_read_pre_tokenizer(l, ares_json_get(root, "pre_tokenizer")));
    if (!l->byte_level)
        return ares_fail(
            ARES_EUNSUPPORTED,
            "text: %s: pre_tokenizer: no ByteLevel in it; only byte-level BPE is supported",
            l->path);
    ARES_TRY(tokenizer_read_decoder(l, ares_json_get(root, "decoder")));
    ARES_TRY(read_added_tokens(l, ares_json_get(root, "added_tokens")));
    return tokenizer_read_post_processor(l, ares_json_get(root, "post_processor"));
}

static int read_vocab_and_merges(tokenizer_loader *l, const char *dir, const ares_json *vocab,
                                 ares_view merges_text, const char *merges_path)
{
    ares_tokenizer *t = l->t;
    bpe_config config = { .unk_id = -1 };
    bpe_merge *merges = NULL;
    ARES_TRY(read_vocab(l, "vocabulary", vocab));
    l->path = merges_path;
    int rc = read_merges_text(l, merges_text, &merges, &config.merge_count);
    config.merges = merges;
    if (rc == ARES_OK) make_model(t, &config);
    ares_free(merges);
    ARES_TRY(rc);
    ARES_TRY(tokenizer_read_config(t, dir)); /* it has the added tokens */
    return tokenizer_read_class(l, dir);
}

static void make_added_sets(ares_tokenizer *t)
{
    text_scratch *s = text_scratch_new();
    t->raw_set = added_set_new();
    t->normalized_set = added_set_new();
    /* of two tokens with one text the special one comes first */
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < t->added_count; i++) {
            const added_token *token = &t->added_tokens[i];
            if (token->special != (round == 0)) continue;
            piece p = {
                (const unsigned char *)token->content.data, token->content.len, NULL, -1, true, 0
            };
            for (int k = 0; token->normalized && k < t->form_count; k++)
                split_normalize(t->forms[k], s, &p);
            ares_view text = { (const char *)p.at, p.len };
            added_set_put(token->normalized ? t->normalized_set : t->raw_set, text, token);
            if (p.in_source) continue;
            /* the id decodes to the normal form, and is special if that text is */
            text.data = ares_arena_copy(&t->arena, text.data, text.len);
            int64_t other;
            bool special = ares_map_get(t->added, text, &other) && t->added_tokens[other].special;
            t->tokens[token->id] =
                (token_info){ text, tokenizer_bytes_of(&t->arena, text), special };
        }
    }
    text_scratch_free(s);
}

static void finish(ares_tokenizer *t)
{
    make_added_sets(t);
    for (int i = 0; i < ROLE_COUNT; i++) {
        int64_t id = -1;
        if (!t->role_tokens[i].data) id = -1;
        else if (ares_map_get(t->added, t->role_tokens[i], &id)) id = t->added_tokens[id].id;
        else if (!ares_map_get(t->vocab, t->role_tokens[i], &id)) id = -1;
        t->role_ids[i] = (int32_t)id;
    }
}

static int load(ares_tokenizer *t, const char *given)
{
    bool is_dir = ares_dir_exists(given);
    ares_str path = { 0 }, merges_path = { 0 }, text = { 0 }, merges = { 0 };
    ares_arena arena = { 0 };
    const ares_json *root = NULL;
    tokenizer_loader l = { .t = t };
    const char *main_path = is_dir ? ares_path_join(&path, given, "tokenizer.json") : given;
    bool pair = is_dir && !ares_file_exists(main_path);
    if (pair) {
        main_path = ares_path_join(&path, given, "vocab.json");
        ares_path_join(&merges_path, given, "merges.txt");
    }
    int rc = ARES_OK;
    if (pair && (!ares_file_exists(main_path) || !ares_file_exists(merges_path.data)))
        rc = ares_fail(
            ARES_EIO, "text: %s: no tokenizer in it (tokenizer.json, or vocab.json and merges.txt)",
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
        if (rc == ARES_OK && is_dir) rc = tokenizer_read_config(t, given);
    }
    ares_arena_fini(&arena);
    ares_str_fini(&path);
    ares_str_fini(&merges_path);
    ares_str_fini(&text);
    ares_str_fini(&merges);
    if (rc == ARES_OK) finish(t);
    return rc;
}

static ares_tokenizer *new_tokenizer(void)
{
    ares_tokenizer *t = ares_calloc(1, sizeof *t);
    t->vocab = ares_map_new();
    t->added = ares_map_new();
    return t;
}

static int hand_out(int rc, ares_tokenizer *t, ares_tokenizer **out)
{
    *out = rc == ARES_OK ? t : NULL;
    if (rc != ARES_OK) ares_tokenizer_free(t);
    return rc;
}

int ares_tokenizer_load(const char *path, ares_tokenizer **out)
{
    ares_tokenizer *t = new_tokenizer();
    return hand_out(load(t, path), t, out);
}

int tokenizer_parse(const char *name, ares_view json, ares_tokenizer **out)
{
    ares_tokenizer *t = new_tokenizer();
    ares_arena arena = { 0 };
    const ares_json *root;
    int rc = ares_json_parse(&arena, json, name, &root);
    if (rc == ARES_OK) rc = read_tokenizer_json(&(tokenizer_loader){ .t = t, .path = name }, root);
    if (rc == ARES_OK) finish(t);
    ares_arena_fini(&arena);
    return hand_out(rc, t, out);
}
