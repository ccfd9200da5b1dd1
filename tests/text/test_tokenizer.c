/*
 * The tokenizer against what the `tokenizers` library gave (tests/golden/tokenizer), and what a
 * golden cannot show: decoding token by token, several threads, broken files.
 */
#include "ares/text.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "test.h"
#include "tokenizer.h"

#define GOLDEN "tests/golden/tokenizer/"

static bool same_ids(const ares_json *list, const ares_ids *ids)
{
    bool same = list->count == ids->n;
    for (int64_t i = 0; same && i < ids->n; i++) same = list->items[i].integer == ids->ids[i];
    return same;
}

static bool same_offsets(const ares_json *list, const ares_ids *ids)
{
    bool same = list->count == ids->n;
    for (int64_t i = 0; same && i < ids->n; i++)
        same = list->items[i].items[0].integer == ids->offsets[i][0] &&
               list->items[i].items[1].integer == ids->offsets[i][1];
    return same;
}

static void check_encoding(const ares_tokenizer *t, const ares_json *c, bool special,
                           const char *file)
{
    const ares_json *text = ares_json_get(c, "text"), *want = ares_json_get(c, "ids_special");
    const ares_json *places = ares_json_get(c, "offsets_special");
    if (!special || !want) want = ares_json_get(c, "ids"), places = ares_json_get(c, "offsets");
    for (int offsets = 0; offsets < 2; offsets++) {
        ares_ids ids = { .want_offsets = offsets };
        if (CHECK_OK(ares_tokenizer_encode(t, text->text, special, &ids))) {
            CHECK_MSG(same_ids(want, &ids), "%s: ids of '%s', special %d", file, text->text.data,
                      special);
            if (offsets)
                CHECK_MSG(same_offsets(places, &ids), "%s: offsets of '%s', special %d", file,
                          text->text.data, special);
        }
        ares_ids_fini(&ids);
    }
}

/* All at once and token by token: text that has come out never changes, and the end is the same. */
static void check_decoding(const ares_tokenizer *t, const ares_json *list, bool skip,
                           const ares_json *want, const char *file)
{
    ares_ids ids = { 0 };
    ares_str whole = { 0 }, pieces = { 0 };
    ares_decoder d;
    for (int64_t i = 0; i < list->count; i++)
        ares_ids_add(&ids, (int32_t)list->items[i].integer, 0, 0);
    CHECK_OK(ares_tokenizer_decode(t, ids.ids, ids.n, skip, &whole));
    CHECK_MSG(ares_view_eq(ares_str_view(&whole), want->text), "%s: '%s' for '%s'", file,
              whole.data ? whole.data : "", want->text.data);
    ares_decoder_init(&d, t, skip);
    for (int64_t i = 0; i < ids.n; i++) {
        ares_decoder_add(&d, ids.ids[i], &pieces);
        CHECK(unicode_valid((unsigned char *)pieces.data, pieces.len) == pieces.len);
    }
    ares_decoder_finish(&d, &pieces);
    CHECK(ares_view_eq(ares_str_view(&whole), ares_str_view(&pieces)));
    ares_ids_fini(&ids);
    ares_str_fini(&whole);
    ares_str_fini(&pieces);
}

static void check_golden(const char *name, int64_t cases_least)
{
    char file[128];
    snprintf(file, sizeof file, GOLDEN "%s.json", name);
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    const ares_json *root = NULL;
    ares_tokenizer *t = NULL;
    if (CHECK_OK(ares_file_read(test_source(file), &text)) &&
        CHECK_OK(ares_json_parse(&arena, ares_str_view(&text), file, &root))) {
        const char *dir = test_source(ares_json_get(root, "tokenizer")->text.data);
        const ares_json *cases = ares_json_get(root, "cases"),
                        *decodes = ares_json_get(root, "decode_cases");
        if (!ares_dir_exists(dir)) {
            test_skip("the tokenizer is not on this machine");
        } else if (CHECK_OK(ares_tokenizer_load(dir, &t))) {
            CHECK(cases->count >= cases_least);
            for (int64_t i = 0; i < cases->count; i++) {
                const ares_json *c = &cases->items[i], *ids = ares_json_get(c, "ids_special");
                check_encoding(t, c, false, file);
                check_encoding(t, c, true, file);
                if (!ids) ids = ares_json_get(c, "ids");
                check_decoding(t, ids, false, ares_json_get(c, "decoded"), file);
                check_decoding(t, ids, true, ares_json_get(c, "decoded_skip"), file);
            }
            for (int64_t i = 0; i < decodes->count; i++) {
                const ares_json *c = &decodes->items[i];
                check_decoding(t, ares_json_get(c, "ids"), false, ares_json_get(c, "decoded"),
                               file);
                check_decoding(t, ares_json_get(c, "ids"), true, ares_json_get(c, "decoded_skip"),
                               file);
            }
        }
    }
    ares_tokenizer_free(t);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
}

TEST(qwen2_is_as_the_library_has_it)
{
    check_golden("qwen2", 300);
}
TEST(qwen2_from_vocab_and_merges_is_as_the_library_has_it)
{
    check_golden("qwen2_files", 300);
}
TEST(gpt2_is_as_the_library_has_it)
{
    check_golden("gpt2", 300);
}
TEST(gpt2_from_vocab_and_merges_is_as_the_library_has_it)
{
    check_golden("gpt2_files", 300);
}
TEST(a_prefixed_space_and_trimmed_offsets_are_as_the_library_has_them)
{
    check_golden("gpt2_prefix_trim", 300);
}
TEST(llama3_with_ignored_merges_is_as_the_library_has_it)
{
    check_golden("llama3", 300);
}
TEST(smollm2_with_single_digits_is_as_the_library_has_it)
{
    check_golden("smollm2_style", 300);
}
TEST(several_splits_are_as_the_library_has_them)
{
    check_golden("split_thrice", 300);
}
TEST(bos_and_eos_are_as_the_library_has_them)
{
    check_golden("bos_eos", 300);
}
TEST(added_tokens_with_every_flag_are_as_the_library_has_them)
{
    check_golden("added", 300);
}
TEST(bytes_without_a_token_vanish_as_in_the_library)
{
    check_golden("holes", 300);
}
TEST(the_real_smollm2_is_as_the_library_has_it)
{
    check_golden("smollm2", 300);
}
TEST(the_real_qwen2_is_as_the_library_has_it)
{
    check_golden("qwen2_real", 300);
}

/* Gemma, Llama 2 and Mistral v0.3, each with a vocabulary of 700 tokens. */
TEST(a_replaced_space_and_byte_fallback_are_as_the_library_has_them)
{
    check_golden("gemma_small", 46);
    check_golden("gemma_texts", 300);
}
TEST(a_prepended_mark_and_a_stripped_space_are_as_the_library_has_them)
{
    check_golden("llama2_small", 46);
    check_golden("llama2_texts", 300);
}
TEST(a_mark_before_the_first_part_alone_is_as_the_library_has_it)
{
    check_golden("mistral_small", 46);
    check_golden("mistral_texts", 300);
}
/* Old byte tokens lost, unknown tokens not fused, marks before every part, cuts before marks. */
TEST(unknown_characters_and_cuts_at_marks_are_as_the_library_has_them)
{
    check_golden("pieces_holes", 300);
}

/* Of a text that is one token. */
static int32_t id_of(const ares_tokenizer *t, const char *text)
{
    ares_ids ids = { 0 };
    int32_t id = -1;
    if (CHECK_OK(ares_tokenizer_encode(t, ares_view_of(text), false, &ids)) && CHECK_EQ(ids.n, 1))
        id = ids.ids[0];
    ares_ids_fini(&ids);
    return id;
}

TEST(roles_and_templates_come_from_the_directory)
{
    ares_tokenizer *t;
    REQUIRE_OK(ares_file_write(test_file("tokenizer.json"), "", 0));
    ares_str json = { 0 };
    REQUIRE_OK(ares_file_read(test_source(GOLDEN "bos_eos/tokenizer.json"), &json));
    REQUIRE_OK(ares_file_write(test_file("tokenizer.json"), json.data, json.len));
    const char *config =
        "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"pad_token\": null, "
        "\"chat_template\": "
        "[{\"name\": \"default\", \"template\": \"D\"}, {\"name\": \"tool_use\", \"template\": "
        "\"T\"}], "
        "\"added_tokens_decoder\": {\"402\": {\"content\": \"<new>\", \"special\": true}}}";
    const char *map = "{\"unk_token\": \"a\", \"eos_token\": \"b\"}";
    REQUIRE_OK(ares_file_write(test_file("tokenizer_config.json"), config, strlen(config)));
    REQUIRE_OK(ares_file_write(test_file("special_tokens_map.json"), map, strlen(map)));
    REQUIRE_OK(ares_tokenizer_load(test_dir(), &t));
    CHECK_EQ(ares_tokenizer_role_id(t, ARES_TOKEN_BOS), id_of(t, "<s>"));
    CHECK_EQ(ares_tokenizer_role_id(t, ARES_TOKEN_EOS), id_of(t, "</s>"));
    CHECK_EQ(ares_tokenizer_role_id(t, ARES_TOKEN_PAD), -1);
    CHECK_EQ(ares_tokenizer_role_id(t, ARES_TOKEN_UNK), -1); /* added_tokens_decoder: no map */
    CHECK_VIEW(ares_tokenizer_chat_template(t, NULL), "D");
    CHECK_VIEW(ares_tokenizer_chat_template(t, "tool_use"), "T");
    CHECK(ares_tokenizer_chat_template(t, "other").data == NULL);
    CHECK(ares_tokenizer_config(t) != NULL);
    CHECK_EQ(id_of(t, "<new>"), ares_tokenizer_vocab_size(t) - 1);
    CHECK(ares_tokenizer_is_special(t, id_of(t, "<new>")));
    CHECK_VIEW(ares_tokenizer_token_bytes(t, id_of(t, "<new>")), "<new>");
    CHECK(ares_tokenizer_token_bytes(t, 1 << 30).data == NULL &&
          ares_tokenizer_token_bytes(t, -1).data == NULL);
    ares_tokenizer_free(t);
    REQUIRE_OK(ares_file_write(test_file("chat_template.jinja"), "J", 1));
    REQUIRE_OK(ares_tokenizer_load(test_dir(), &t));
    CHECK_VIEW(ares_tokenizer_chat_template(t, NULL), "J"); /* the file wins over the key */
    ares_tokenizer_free(t);
    ares_str_fini(&json);
}

/* Each role in both files, in one, as null, and in none. */
TEST(roles_come_from_the_map_of_special_tokens_and_else_from_the_tokenizers_config)
{
    static const struct {
        const char *config, *map;          /* NULL: no such file */
        const char *bos, *eos, *pad, *unk; /* NULL: no such token */
    } cases[] = {
        { NULL, NULL, NULL, NULL, NULL, NULL },
        { "{}", "{}", NULL, NULL, NULL, NULL },
        { "{\"bos_token\":\"a\",\"unk_token\":\"b\"}", NULL, "a", NULL, NULL, "b" },
        { NULL, "{\"bos_token\":\"a\",\"unk_token\":{\"content\":\"b\"}}", "a", NULL, NULL, "b" },
        { "{\"bos_token\":\"a\",\"pad_token\":{\"content\":\"c\"}}",
          "{\"bos_token\":\"b\",\"pad_token\":\"b\",\"eos_token\":\"d\"}", "b", "d", "b", NULL },
        { "{\"pad_token\":null}", "{\"pad_token\":\"b\"}", NULL, NULL, "b", NULL },
        { "{\"eos_token\":\"a\"}", "{\"eos_token\":null}", NULL, NULL, NULL, NULL },
        { "{\"eos_token\":\"a\",\"added_tokens_decoder\":{\"400\":{\"content\":\"<s>\"}}}",
          "{\"eos_token\":\"b\",\"pad_token\":\"c\"}", NULL, "a", NULL, NULL },
    };
    ares_str json = { 0 };
    REQUIRE_OK(ares_file_read(test_source(GOLDEN "bos_eos/tokenizer.json"), &json));
    REQUIRE_OK(ares_file_write(test_file("tokenizer.json"), json.data, json.len));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const char *const names[] = { "tokenizer_config.json", "special_tokens_map.json" },
                          *const texts[] = { cases[i].config, cases[i].map };
        for (int k = 0; k < 2; k++) {
            (void)unlink(test_file(names[k]));
            if (texts[k])
                REQUIRE_OK(ares_file_write(test_file(names[k]), texts[k], strlen(texts[k])));
        }
        ares_tokenizer *t;
        if (!CHECK_OK(ares_tokenizer_load(test_dir(), &t))) continue;
        const struct {
            ares_token_role role;
            const char *text;
        } roles[] = { { ARES_TOKEN_BOS, cases[i].bos },
                      { ARES_TOKEN_EOS, cases[i].eos },
                      { ARES_TOKEN_PAD, cases[i].pad },
                      { ARES_TOKEN_UNK, cases[i].unk } };
        for (int k = 0; k < ARES_COUNT(roles); k++)
            CHECK_MSG(ares_tokenizer_role_id(t, roles[k].role) ==
                          (roles[k].text ? id_of(t, roles[k].text) : -1),
                      "case %d, role %d: %d", i, k, ares_tokenizer_role_id(t, roles[k].role));
        ares_tokenizer_free(t);
    }
    ares_str_fini(&json);
}

/* What a tokenizer makes of the text: ids with their places, which of them are special. */
static void describe(const char *json, const char *text, ares_str *out)
{
    ares_tokenizer *t = NULL;
    ares_ids ids = { .want_offsets = true };
    ares_str_clear(out);
    if (CHECK_OK(tokenizer_parse("keys", ares_view_of(json), &t)) &&
        CHECK_OK(ares_tokenizer_encode(t, ares_view_of(text), true, &ids)))
        for (int64_t i = 0; i < ids.n; i++)
            ares_str_addf(out, "%d%s %lld-%lld, ", ids.ids[i],
                          ares_tokenizer_is_special(t, ids.ids[i]) ? "!" : "",
                          (long long)ids.offsets[i][0], (long long)ids.offsets[i][1]);
    ares_ids_fini(&ids);
    ares_tokenizer_free(t);
}

TEST(a_class_without_add_prefix_space_adds_none)
{
    static const char *const more[] = { "", ",\"add_prefix_space\":false",
                                        ",\"add_prefix_space\":true" };
    static const char vocab[] = "{\"a\":0,\"\u0120\":1,\"\u0120a\":2}",
                      merges[] = "#version: 0.2\n\u0120 a\n";
    REQUIRE_OK(ares_file_write(test_file("vocab.json"), vocab, sizeof vocab - 1));
    REQUIRE_OK(ares_file_write(test_file("merges.txt"), merges, sizeof merges - 1));
    for (int i = 0; i < 2 * ARES_COUNT(more); i++) {
        ares_tokenizer *t;
        ares_ids ids = { 0 };
        char config[128];
        int n = snprintf(config, sizeof config, "{\"tokenizer_class\":\"%s\"%s}",
                         i % 2 ? "Qwen2Tokenizer" : "GPT2Tokenizer", more[i / 2]);
        REQUIRE_OK(ares_file_write(test_file("tokenizer_config.json"), config, (size_t)n));
        REQUIRE_OK(ares_tokenizer_load(test_dir(), &t));
        CHECK_OK(ares_tokenizer_encode(t, ARES_VIEW("a"), false, &ids));
        CHECK(ids.n == 1 && ids.ids[0] == (i / 2 == 2 ? 2 : 0));
        ares_ids_fini(&ids);
        ares_tokenizer_free(t);
    }
}

/* Each key where it matters: without it, with its default, and with the other value. */
TEST(a_key_that_is_absent_has_its_default)
{
#define MODEL_OF(more)                                                                             \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"1\":2,\"2\":3,\"\u0120\":4,"        \
    "\"\u0120a\":5,\"12\":6,\"a1\":7,\"?\":8,\"ab\":9},\"merges\":[\"\u0120 a\",\"1 2\",\"a 1\"]," \
    "\"unk_token\":\"?\"" more "},\"decoder\":{\"type\":\"ByteLevel\"}"
#define BYTES_OF(more) ",\"pre_tokenizer\":{\"type\":\"ByteLevel\"" more "}"
#define PLAIN MODEL_OF("") BYTES_OF(",\"add_prefix_space\":false")
#define STEPS_OF(step)                                                    \
    MODEL_OF("")                                                          \
    ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{" step \
    "},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":" \
    "false}]}}"
#define ADDED_OF(content, more) \
    PLAIN ",\"added_tokens\":[{\"id\":10,\"content\":\"" content "\"" more "}]"
    static const struct {
        const char *json, *key, *value, *other, *text;
    } cases[] = {
        { MODEL_OF("") BYTES_OF("%s") "}", "add_prefix_space", "true", "false", "a" },
        { MODEL_OF("") BYTES_OF(",\"add_prefix_space\":false%s") "}", "use_regex", "true", "false",
          "a1" },
        { STEPS_OF("\"type\":\"Digits\"%s"), "individual_digits", "false", "true", "12" },
        { STEPS_OF("\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{\"String\":\"b\"}%s"),
          "invert", "false", "true", "ab" },
        { MODEL_OF("%s") BYTES_OF(",\"add_prefix_space\":false") "}", "fuse_unk", "false", "true",
          "zz" },
        { MODEL_OF("%s") BYTES_OF(",\"add_prefix_space\":false") "}", "ignore_merges", "false",
          "true", "ab" },
        { ADDED_OF("<x>", "%s") "}", "special", "false", "true", "<x>" },
        { ADDED_OF("<x>", "%s") "}", "lstrip", "false", "true", "a <x> a" },
        { ADDED_OF("<x>", "%s") "}", "rstrip", "false", "true", "a <x> a" },
        { ADDED_OF("<x>", "%s") "}", "single_word", "false", "true", "a<x>a" },
        { ADDED_OF("e\\u0301", "%s") ",\"normalizer\":{\"type\":\"NFC\"}}", "normalized", "true",
          "false", "\u00e9" },
        { ADDED_OF("e\\u0301", ",\"special\":true%s") ",\"normalizer\":{\"type\":\"NFC\"}}",
          "normalized", "false", "true", "\u00e9" },
        { PLAIN ",\"post_processor\":{\"type\":\"ByteLevel\"%s}}", "trim_offsets", "true", "false",
          "a a" },
        { MODEL_OF("") BYTES_OF("") ",\"post_processor\":{\"type\":\"ByteLevel\"%s}}",
          "add_prefix_space", "true", "false", "a" },
    };
    ares_str absent = { 0 }, usual = { 0 }, other = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char json[1024], member[64];
        ares_str *const out[] = { &absent, &usual, &other };
        const char *const values[] = { NULL, cases[i].value, cases[i].other };
        for (int k = 0; k < 3; k++) {
            snprintf(member, sizeof member, ",\"%s\":%s", cases[i].key, values[k] ? values[k] : "");
            snprintf(json, sizeof json, cases[i].json, values[k] ? member : "");
            describe(json, cases[i].text, out[k]);
        }
        CHECK_MSG(ares_view_eq(ares_str_view(&absent), ares_str_view(&usual)),
                  "%s (case %d): %s without it, %s with %s", cases[i].key, i, absent.data,
                  usual.data, cases[i].value);
        CHECK_MSG(!ares_view_eq(ares_str_view(&other), ares_str_view(&usual)),
                  "%s (case %d): %s whatever it is", cases[i].key, i, usual.data);
    }
    ares_str_fini(&absent);
    ares_str_fini(&usual);
    ares_str_fini(&other);
}

TEST(a_token_that_single_word_refuses_hides_those_that_begin_inside_it)
{
    static const char json[] = PLAIN ",\"added_tokens\":[{\"id\":10,\"content\":\"1<y\","
                                     "\"single_word\":true},{\"id\":11,\"content\":\"<y>\"}]}";
    ares_str out = { 0 };
    describe(json, "<y>", &out);
    CHECK_CONTAINS(out.data, "11 0-3");
    describe(json, "a1<y>", &out);
    CHECK_MSG(!strstr(out.data, "11 "), "%s", out.data);
    ares_str_fini(&out);
}

TEST(a_token_that_is_listed_again_stays_special)
{
    static const char *const more[][2] = { { ",\"special\":true", "" },
                                           { ",\"special\":true", ",\"special\":false" },
                                           { "", ",\"special\":true" },
                                           { "", "" } };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(more); i++) {
        char json[1024];
        snprintf(json, sizeof json,
                 PLAIN ",\"added_tokens\":[{\"id\":10,\"content\":\"<x>\"%s},"
                       "{\"id\":10,\"content\":\"<x>\"%s}]}",
                 more[i][0], more[i][1]);
        describe(json, "<x>", &out);
        CHECK_STR(out.data, i < 3 ? "10! 0-3, " : "10 0-3, ");
    }
    ares_str_fini(&out);
}

static void put(const char *name, const char *text)
{
    REQUIRE_OK(ares_file_write(test_file(name), text, strlen(text)));
}

static void put_golden_tokenizer(void)
{
    ares_str json = { 0 };
    REQUIRE_OK(ares_file_read(test_source(GOLDEN "bos_eos/tokenizer.json"), &json));
    REQUIRE_OK(ares_file_write(test_file("tokenizer.json"), json.data, json.len));
    ares_str_fini(&json);
}

/* How many tokens the text has in the directory of the test. */
static int64_t tokens_in(const char *text)
{
    ares_tokenizer *t;
    ares_ids ids = { 0 };
    if (!CHECK_OK(ares_tokenizer_load(test_dir(), &t))) return -1;
    CHECK_OK(ares_tokenizer_encode(t, ares_view_of(text), false, &ids));
    int64_t n = ids.n;
    ares_ids_fini(&ids);
    ares_tokenizer_free(t);
    return n;
}

TEST(a_token_named_in_any_place_is_one_id)
{
    static const char config[] = "tokenizer_config.json", map[] = "special_tokens_map.json";
    static const struct {
        const char *file, *text;
    } places[] = {
        { config, "{\"additional_special_tokens\": [\"<tool>\"]}" },
        { config, "{\"extra_special_tokens\": {\"image_token\": \"<tool>\"}}" },
        { config, "{\"extra_special_tokens\": [{\"content\": \"<tool>\"}]}" },
        { config, "{\"pad_token\": \"<tool>\"}" },
        { config, "{\"mask_token\": {\"content\": \"<tool>\", \"lstrip\": true}}" },
        { config, "{\"image_token\": \"<tool>\"}" },
        { config, "{\"added_tokens_decoder\": {\"402\": {\"content\": \"<tool>\"}}}" },
        { map, "{\"sep_token\": {\"content\": \"<tool>\"}}" },
        { map, "{\"additional_special_tokens\": [\"<tool>\"]}" },
        { "added_tokens.json", "{\"<tool>\": 402}" },
    };
    put_golden_tokenizer();
    put(config, "{}");
    put(map, "{}");
    put("added_tokens.json", "{}");
    CHECK_EQ(tokens_in("a<tool>b"), 8);
    for (int i = 0; i < ARES_COUNT(places); i++) {
        put(places[i].file, places[i].text);
        CHECK_MSG(tokens_in("a<tool>b") == 3, "place %d", i);
        put(places[i].file, "{}");
    }
    /* extra before additional; a list of added tokens makes the map mute */
    put(config,
        "{\"additional_special_tokens\": [\"<tool>\"], \"extra_special_tokens\": [\"<x>\"]}");
    CHECK_EQ(tokens_in("a<tool>b"), 8);
    put(map, "{\"sep_token\": \"<tool>\"}");
    put(config, "{\"added_tokens_decoder\": {\"402\": {\"content\": \"<x>\"}}}");
    CHECK_EQ(tokens_in("a<tool>b"), 8);
    put(config, "{\"split_special_tokens\": true}");
    CHECK_EQ(tokens_in("a<tool>b"), 8); /* named, but read as text */
    CHECK_EQ(tokens_in("<s>"), 3);
    put("added_tokens.json", "{\"<tool>\": -1}");
    ares_tokenizer *t;
    CHECK_FAIL(ares_tokenizer_load(test_dir(), &t), ARES_EFORMAT, "added_tokens.json: <tool>");
}

TEST(a_class_has_tokens_for_roles_that_are_missing_and_not_for_null)
{
    static const struct {
        const char *config, *map, *eos; /* NULL: none */
    } cases[] = {
        { "{\"tokenizer_class\": \"Qwen2Tokenizer\"}", "{}", "<|endoftext|>" },
        { "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"eos_token\": null}", "{}", NULL },
        { "{\"tokenizer_class\": \"GPT2TokenizerFast\"}", "{}", "<|endoftext|>" },
        { "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}", "{}", NULL },
        { "{\"eos_token\": \"</s>\"}", "{\"eos_token\": \"<s>\"}", "<s>" },
        { "{\"eos_token\": null}", "{\"eos_token\": \"<s>\"}", "<s>" },
        { "{\"eos_token\": \"</s>\", \"added_tokens_decoder\": {\"402\": {\"content\": \"<x>\"}}}",
          "{\"eos_token\": \"<s>\"}", "</s>" },
    };
    put_golden_tokenizer();
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_tokenizer *t;
        put("tokenizer_config.json", cases[i].config);
        put("special_tokens_map.json", cases[i].map);
        REQUIRE_OK(ares_tokenizer_load(test_dir(), &t));
        CHECK_EQ(ares_tokenizer_role_id(t, ARES_TOKEN_EOS),
                 cases[i].eos ? id_of(t, cases[i].eos) : -1);
        ares_tokenizer_free(t);
    }
    ares_tokenizer *t; /* the model says which class it is */
    put("config.json", "{\"model_type\": \"qwen2\"}");
    put("special_tokens_map.json", "{}");
    put("tokenizer_config.json", "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}");
    REQUIRE_OK(ares_tokenizer_load(test_dir(), &t));
    CHECK_EQ(ares_tokenizer_role_id(t, ARES_TOKEN_EOS), id_of(t, "<|endoftext|>"));
    ares_tokenizer_free(t);
}

/* GPT2Tokenizer and Qwen2Tokenizer of transformers 5 make their tokens anew. */
TEST(a_list_of_added_tokens_says_alone_which_are_special)
{
    static const struct {
        const char *class, *special;
        bool want;
    } cases[] = {
        { "GPT2Tokenizer", "false", false },
        { "Qwen2Tokenizer", "false", false },
        { "Qwen2Tokenizer", "true", true },
        { "PreTrainedTokenizerFast", "false", true }, /* tokenizer.json says so */
    };
    char config[300];
    put_golden_tokenizer();
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_tokenizer *t;
        (void)snprintf(config, sizeof config,
                       "{\"tokenizer_class\": \"%s\", \"unk_token\": null, \"eos_token\": null, "
                       "\"bos_token\": null, \"pad_token\": null, \"added_tokens_decoder\": "
                       "{\"400\": {\"content\": \"</s>\", \"special\": %s}}}",
                       cases[i].class, cases[i].special);
        put("tokenizer_config.json", config);
        REQUIRE_OK(ares_tokenizer_load(test_dir(), &t));
        CHECK_MSG(ares_tokenizer_is_special(t, id_of(t, "</s>")) == cases[i].want, "case %d", i);
        ares_tokenizer_free(t);
    }
}

TEST(the_old_form_of_a_directory_has_its_added_tokens)
{
    put("vocab.json", "{\"a\": 0, \"b\": 1, \"<\": 2, \"|\": 3, \">\": 4, \"ab\": 5}");
    put("merges.txt", "#version: 0.2\na b\n");
    put("tokenizer_config.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"eos_token\": null, "
                                 "\"unk_token\": null, \"pad_token\": null}");
    CHECK_EQ(tokens_in("ab<|b|>"), 6);
    put("added_tokens.json", "{\"<|b|>\": 7, \"<|a|>\": 6}");
    CHECK_EQ(tokens_in("ab<|b|>"), 2);
    ares_tokenizer *t;
    REQUIRE_OK(ares_tokenizer_load(test_dir(), &t));
    CHECK_EQ(id_of(t, "<|b|>"), 7);
    CHECK_EQ(id_of(t, "<|a|>"), 6);
    ares_tokenizer_free(t);
}

TEST(broken_utf8_reads_as_replacement_characters)
{
    ares_tokenizer *t;
    ares_ids broken = { .want_offsets = true }, repaired = { .want_offsets = true };
    REQUIRE_OK(ares_tokenizer_load(test_source(GOLDEN "qwen2"), &t));
    CHECK_OK(ares_tokenizer_encode(t, ARES_VIEW("ab\xe2\x82 c\xff"), false, &broken));
    CHECK_OK(ares_tokenizer_encode(t, ARES_VIEW("ab\uFFFD c\uFFFD"), false, &repaired));
    if (CHECK_EQ(broken.n, repaired.n)) {
        CHECK_MEM(broken.ids, repaired.ids, (size_t)broken.n * sizeof(int32_t));
        CHECK_MEM(broken.offsets, repaired.offsets, (size_t)broken.n * sizeof *broken.offsets);
    }
    ares_ids_fini(&broken);
    ares_ids_fini(&repaired);
    ares_tokenizer_free(t);
}

TEST(encoding_appends_and_long_words_agree_with_their_definition)
{
    ares_tokenizer *t;
    ares_ids ids = { .want_offsets = true };
    ares_str text = { 0 }, back = { 0 };
    REQUIRE_OK(ares_tokenizer_load(test_source(GOLDEN "gpt2"), &t));
    for (int i = 0; i < 200000; i++)
        ares_str_add_char(&text, (char)('a' + (i % 1000) * (i % 1000) % 7));
    CHECK_OK(ares_tokenizer_encode(t, ARES_VIEW("x"), false, &ids));
    int64_t before = ids.n;
    CHECK_OK(ares_tokenizer_encode(t, ares_str_view(&text), false, &ids));
    CHECK_EQ(ids.offsets[before][0], 0);
    CHECK_EQ(ids.offsets[ids.n - 1][1], 200000);
    CHECK_OK(ares_tokenizer_decode(t, ids.ids + before, ids.n - before, false, &back));
    CHECK(ares_view_eq(ares_str_view(&text), ares_str_view(&back)));
    ares_ids_fini(&ids);
    ares_str_fini(&text);
    ares_str_fini(&back);
    ares_tokenizer_free(t);
}

/* Special ones, unknown ones and halves of characters among them. */
TEST(any_ids_decode_at_once_as_one_by_one)
{
    static const char *const names[] = { "qwen2",         "gpt2",        "holes",
                                         "added",         "gemma_small", "llama2_small",
                                         "mistral_small", "pieces_holes" };
    ares_rng_key key = ares_rng_root(11, ARES_RNG_TEST);
    for (int k = 0; k < ARES_COUNT(names); k++) {
        char path[64];
        ares_tokenizer *t;
        snprintf(path, sizeof path, GOLDEN "%s", names[k]);
        REQUIRE_OK(ares_tokenizer_load(test_source(path), &t));
        uint64_t most = (uint64_t)ares_tokenizer_vocab_size(t) + 3;
        for (uint64_t i = 0; i < 200; i++) {
            int32_t ids[100];
            ares_str whole = { 0 }, parts = { 0 };
            ares_decoder d;
            /* on some rounds bytes alone, which mostly break characters */
            for (uint64_t n = 0; n < 100; n++)
                ids[n] = (int32_t)ares_rng_below(key, i << 8 | n, i % 2 ? most : 300) - 1;
            ares_str_add_z(&whole, "before \xe4\xb8");
            ares_str_add_z(&parts, "before \xe4\xb8");
            CHECK_OK(ares_tokenizer_decode(t, ids, 100, i % 3 == 0, &whole));
            ares_decoder_init(&d, t, i % 3 == 0);
            for (int n = 0; n < 100; n++) ares_decoder_add(&d, ids[n], &parts);
            ares_decoder_finish(&d, &parts);
            CHECK(ares_view_eq(ares_str_view(&whole), ares_str_view(&parts)));
            ares_str_fini(&whole);
            ares_str_fini(&parts);
        }
        ares_tokenizer_free(t);
    }
}

/* Each would take hours where the time grows with the square of the length. */
TEST(a_word_of_a_million_characters_takes_no_time_of_its_own)
{
    static const char *const units[] = { "a", "ab", " ",      "\n",           " \n",    "!",    "'",
                                         "<", "1",  "\u0430", "\u4e2d\u6587", "\u0301", "<|im_" };
    /* of the second all text between two added tokens is a word */
    static const char *const names[] = { GOLDEN "qwen2", GOLDEN "llama2_small" };
    for (int n = 0; n < ARES_COUNT(names); n++) {
        ares_tokenizer *t;
        REQUIRE_OK(ares_tokenizer_load(test_source(names[n]), &t));
        for (int k = 0; k < ARES_COUNT(units); k += n ? 2 : 1) {
            ares_str text = { 0 }, back = { 0 };
            ares_ids ids = { .want_offsets = n > 0 };
            while (text.len < 1000000) ares_str_add_z(&text, units[k]);
            CHECK_OK(ares_tokenizer_encode(t, ares_str_view(&text), false, &ids));
            CHECK_OK(ares_tokenizer_decode(t, ids.ids, ids.n, false, &back));
            CHECK(ares_view_eq(ares_str_view(&text), ares_str_view(&back)));
            ares_ids_fini(&ids);
            ares_str_fini(&text);
            ares_str_fini(&back);
        }
        ares_tokenizer_free(t);
    }
}

/* No merge crosses the places at which these texts are divided, since bytes do not merge there. */
TEST(a_text_that_goes_on_has_the_ids_that_it_has_within_the_whole)
{
    static const struct {
        const char *name, *special;
    } of[] = { { GOLDEN "gemma_small", "<bos>" },
               { GOLDEN "llama2_small", "<s>" },
               { GOLDEN "mistral_small", "[INST]" },
               { GOLDEN "pieces_holes", "</s>" },
               { GOLDEN "gpt2_prefix_trim", "<|endoftext|>" } };
    static const char *const rests[] = {
        "\u00fc the number", " the", "\n", "a", "the a%s the", "%s a", "%sa%s %s b", "\u2581a", ""
    };
    for (int k = 0; k < ARES_COUNT(of); k++) {
        ares_tokenizer *t;
        REQUIRE_OK(ares_tokenizer_load(test_source(of[k].name), &t));
        for (int i = 0; i < 3 * ARES_COUNT(rests); i++) {
            char before[64], rest[128], whole[192];
            ares_ids parts = { 0 }, once = { 0 };
            const char *form = i % 3 == 0   ? ""
                               : i % 3 == 1 ? "a\u65e5"
                                            : "the%s",
                       *x = of[k].special;
            snprintf(before, sizeof before, form, x);
            snprintf(rest, sizeof rest, rests[i / 3], x, x, x);
            snprintf(whole, sizeof whole, "%s%s", before, rest);
            CHECK_OK(ares_tokenizer_encode(t, ares_view_of(whole), false, &once));
            CHECK_OK(ares_tokenizer_encode(t, ares_view_of(before), false, &parts));
            CHECK_OK(ares_tokenizer_encode_rest(t, ares_view_of(rest), &parts));
            CHECK_MSG(parts.n == once.n &&
                          memcmp(parts.ids, once.ids, (size_t)once.n * sizeof *once.ids) == 0,
                      "%s: '%s' after '%s'", of[k].name, rest, before);
            ares_ids_fini(&parts);
            ares_ids_fini(&once);
        }
        ares_tokenizer_free(t);
    }
}

/* What a token adds to a text, and when a decoder gives it out. */
TEST(byte_tokens_come_out_as_a_run_and_eagerly_as_characters)
{
    ares_tokenizer *t;
    ares_decoder d;
    ares_str text = { 0 };
    REQUIRE_OK(ares_tokenizer_load(test_source(GOLDEN "mistral_small"), &t));
    enum { BYTE = 5, A = 364, BOS = 1 }; /* ids of <0x00>, "\u2581a" and <s> */
    CHECK_VIEW(ares_tokenizer_token_bytes(t, A), " a");
    CHECK_VIEW(ares_tokenizer_token_bytes(t, BYTE + 0xe6), "\xe6");
    CHECK_VIEW(ares_tokenizer_token_bytes(t, BOS), "<s>");
    static const int32_t ids[] = { A, BYTE + 0xc3, BOS, BYTE + 0xa9, BYTE + '!', A };
    static const size_t held[] = { 1, 1, 1, 1, 1, 6 }, eager[] = { 2, 2, 2, 4, 5, 7 };
    for (int round = 0; round < 2; round++) {
        ares_decoder_init(&d, t, true);
        d.eager = round;
        ares_str_clear(&text);
        for (int i = 0; i < ARES_COUNT(ids); i++) {
            ares_decoder_add(&d, ids[i], &text);
            CHECK_EQ(text.len, (round ? eager : held)[i]);
        }
        ares_decoder_finish(&d, &text);
        CHECK_STR(text.data, round ? " a\u00e9! a" : "a\u00e9! a");
    }
    /* one byte too many breaks the whole run; an id outside the vocabulary does not end it */
    static const int32_t broken[] = { BYTE + 'A', BYTE + 0xc3, 100000, BYTE + '(' };
    ares_str_clear(&text);
    CHECK_OK(ares_tokenizer_decode(t, broken, 4, false, &text));
    CHECK_STR(text.data, "\ufffd\ufffd\ufffd");
    ares_str_fini(&text);
    ares_tokenizer_free(t);
}

typedef struct worker {
    const ares_tokenizer *t;
    uint64_t seed, sum;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    /* every thread encodes the same texts, from another one on */
    ares_rng_key key = ares_rng_root(7, ARES_RNG_TEST);
    for (uint64_t i = 0; i < 400; i++) {
        char text[64];
        uint64_t at = (i + w->seed * 100) % 400;
        ares_ids ids = { .want_offsets = at % 2 };
        for (uint64_t k = 0; k < 64; k++)
            text[k] = "abc de\xc3\xa9\n123!"[ares_rng_below(key, at * 64 + k, 14)];
        if (ares_tokenizer_encode(w->t, (ares_view){ text, 64 }, true, &ids) != ARES_OK)
            return NULL;
        for (int64_t k = 0; k < ids.n; k++)
            w->sum += (at + 1) * (uint64_t)(k + 1) * (uint64_t)(ids.ids[k] + 1);
        ares_ids_fini(&ids);
    }
    return NULL;
}

TEST(threads_share_a_tokenizer)
{
    ares_tokenizer *t;
    pthread_t threads[4];
    worker workers[4];
    REQUIRE_OK(ares_tokenizer_load(test_source(GOLDEN "qwen2"), &t));
    for (uint64_t i = 0; i < 4; i++) {
        workers[i] = (worker){ t, i, 0 };
        REQUIRE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) CHECK(workers[i].sum == workers[0].sum && workers[i].sum != 0);
    ares_tokenizer_free(t);
}

/* ---- broken and unsupported files */
#define BODY(model, pre) \
    "{\"pre_tokenizer\": " pre ", \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": " model "}"
#define PRE "{\"type\": \"ByteLevel\"}"
#define MODEL \
    "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}"

/* A SentencePiece-style file: neither its pre-tokenizer nor its decoder is of bytes. */
#define SENTENCEPIECE(normalizer, pre, decoder)                                          \
    "{\"normalizer\": " normalizer ", \"pre_tokenizer\": " pre ", \"decoder\": " decoder \
    ", \"model\": " MODEL "}"

TEST(malformed_and_unsupported_files_are_refused_with_their_place)
{
    static const struct {
        const char *json, *part;
    } cases[] = {
        { "{", "x.json:1" },
        { "[]", "not a JSON object" },
        { "{}", "no 'model'" },
        { BODY("{\"type\": \"WordPiece\"}", PRE), "model.type = 'WordPiece'" },
        { BODY(
              "{\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"a\": 1}, \"merges\": []}",
              PRE),
          "set it to false" },
        { BODY("{\"type\": \"BPE\", \"dropout\": 0.1}", PRE), "dropout = '0.1'" },
        { BODY("{\"type\": \"BPE\", \"end_of_word_suffix\": \"</w>\"}", PRE),
          "end_of_word_suffix = '</w>'" },
        { BODY("{\"type\": \"BPE\", \"vocab\": []}", PRE), "model.vocab" },
        { BODY("{\"type\": \"BPE\", \"vocab\": {\"a\": -1}}", PRE), "['a']: not an id" },
        { BODY("{\"type\": \"BPE\", \"vocab\": {\"a\": 99999999999}}", PRE), "['a']: not an id" },
        { BODY("{\"type\": \"BPE\", \"vocab\": {\"a\": 1, \"b\": 1}}", PRE), "also that of 'a'" },
        { BODY("{\"type\": \"BPE\", \"vocab\": {\"a\": 1}}", PRE), "model.merges" },
        { BODY("{\"type\": \"BPE\", \"vocab\": {\"a\": 1}, \"merges\": [\"a a a\"]}", PRE),
          "model.merges 1: not two" },
        { BODY("{\"type\": \"BPE\", \"vocab\": {\"a\": 1}, \"merges\": [[\"a\", \"b\"]]}", PRE),
          "'b' is not in the vocabulary" },
        { BODY("{\"type\": \"BPE\", \"vocab\": {\"a\": 1}, \"merges\": [\"a a\"]}", PRE),
          "'aa' is not in the vocabulary" },
        { BODY("{\"type\": \"BPE\", \"vocab\": {\"a\": 1}, \"merges\": [], \"unk_token\": \"u\"}",
               PRE),
          "unk_token = 'u'" },
        { BODY(MODEL, "null"), "no ByteLevel" },
        { BODY(MODEL,
               "{\"type\": \"Sequence\", \"pretokenizers\": [" PRE ", {\"type\": \"Metaspace\"}]}"),
          "pre_tokenizer.type = 'Metaspace'" },
        { SENTENCEPIECE("null", "{\"type\": \"Metaspace\", \"replacement\": \"__\"}",
                        "{\"type\": \"Fuse\"}"),
          "replacement = '__'" },
        { SENTENCEPIECE("null", "{\"type\": \"Metaspace\", \"replacement\": \"\"}",
                        "{\"type\": \"Fuse\"}"),
          "replacement = ''" },
        { SENTENCEPIECE("null", "{\"type\": \"Metaspace\", \"prepend_scheme\": \"last\"}",
                        "{\"type\": \"Fuse\"}"),
          "prepend_scheme = 'last': unknown (choices: always, first, never)" },
        { SENTENCEPIECE("null", "{\"type\": \"Metaspace\", \"add_prefix_space\": false}",
                        "{\"type\": \"Fuse\"}"),
          "contradicts add_prefix_space: false" },
        { SENTENCEPIECE(
              "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a+\"}, \"content\": \"a\"}",
              "null", "{\"type\": \"Fuse\"}"),
          "normalizer.pattern: Replace by a Regex is not supported; write it as {\"String\"" },
        { SENTENCEPIECE("{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}}", "null",
                        "{\"type\": \"Fuse\"}"),
          "normalizer: Replace without" },
        { SENTENCEPIECE("{\"type\": \"Prepend\"}", "null", "{\"type\": \"Fuse\"}"),
          "Prepend without a text 'prepend'" },
        { SENTENCEPIECE("{\"type\": \"Precompiled\"}", "null", "{\"type\": \"Fuse\"}"),
          "normalizer.type = 'Precompiled': not supported (choices: NFC" },
        { SENTENCEPIECE("null", "null", "null"), "decoder.type = 'null'" },
        { SENTENCEPIECE("null", "null", "{\"type\": \"ByteFallback\"}"),
          "decoder.type = 'ByteFallback'" },
        { SENTENCEPIECE("null", "null", "{\"type\": \"Sequence\", \"decoders\": []}"),
          "decoder.type = 'Sequence'" },
        { SENTENCEPIECE("null", "null",
                        "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, "
                        "{\"type\": \"ByteFallback\"}]}"),
          "decoder.type = 'ByteFallback'" },
        { SENTENCEPIECE("null", "null",
                        "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
                        "\"pattern\": {\"Regex\": \"a\"}, \"content\": \"\"}]}"),
          "decoder.pattern: Replace by a Regex" },
        { SENTENCEPIECE("null", "null",
                        "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
                        "\"pattern\": {\"String\": \"a\"}, \"content\": "
                        "\"12345678901234567\"}]}"),
          "decoder.content: 17 bytes; at most 16" },
        { SENTENCEPIECE("null", "null",
                        "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, "
                        "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": "
                        "1}]}"),
          "set 'stop' to 0" },
        { SENTENCEPIECE("null", "null",
                        "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, "
                        "{\"type\": \"Strip\", \"content\": \"ab\", \"start\": 1}]}"),
          "decoder.content = 'ab': Strip takes one character" },
        { BODY(MODEL,
               "{\"type\": \"Split\", \"behavior\": \"X\", \"pattern\": {\"String\": \"a\"}}"),
          "behavior = 'X'" },
        { BODY(MODEL, "{\"type\": \"Split\", \"behavior\": \"Isolated\"}"),
          "pre_tokenizer.pattern" },
        { BODY(MODEL, "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": "
                      "\"a(\"}}"),
          "x.json: pre_tokenizer.pattern" },
        { "{\"normalizer\": {\"type\": \"Lowercase\"}, \"model\": " MODEL "}",
          "normalizer.type = 'Lowercase'" },
        { "{\"pre_tokenizer\": " PRE ", \"decoder\": {\"type\": \"WordPiece\"}, \"model\": " MODEL
          "}",
          "decoder.type = 'WordPiece'" },
        { "{\"pre_tokenizer\": " PRE ", \"decoder\": " PRE
          ", \"added_tokens\": [{}], \"model\": " MODEL "}",
          "added_tokens 1" },
        { "{\"pre_tokenizer\": " PRE ", \"decoder\": " PRE
          ", \"post_processor\": {\"type\": \"X\"}, \"model\": " MODEL "}",
          "post_processor.type = 'X'" },
        { "{\"pre_tokenizer\": " PRE ", \"decoder\": " PRE
          ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
          "[{\"SpecialToken\": {\"id\": \"s\"}}]}, \"model\": " MODEL "}",
          "not among special_tokens" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_tokenizer *t;
        int rc = tokenizer_parse("x.json", ares_view_of(cases[i].json), &t);
        CHECK_MSG(rc != ARES_OK && !t, "%s", cases[i].json);
        CHECK_CONTAINS(ares_error_message(), cases[i].part);
        CHECK_CONTAINS(ares_error_message(), "x.json");
    }
    ares_tokenizer *t;
    REQUIRE_OK(tokenizer_parse("x.json", ARES_VIEW(BODY(MODEL, PRE)), &t));
    ares_tokenizer_free(t);
    CHECK_FAIL(ares_tokenizer_load("/no/such/dir", &t), ARES_EIO, "/no/such/dir");
    CHECK_FAIL(ares_tokenizer_load(test_dir(), &t), ARES_EIO, "no tokenizer in it");
    REQUIRE_OK(ares_file_write(test_file("tokenizer.model"), "x", 1));
    CHECK_FAIL(ares_tokenizer_load(test_dir(), &t), ARES_EUNSUPPORTED, "save_pretrained(");
    REQUIRE_OK(ares_file_write(test_file("vocab.json"), "{\"a\": 0, \"b\": 1}", 16));
    REQUIRE_OK(ares_file_write(test_file("merges.txt"), "#version: 0.2\na\n", 16));
    CHECK_FAIL(ares_tokenizer_load(test_dir(), &t), ARES_EFORMAT, "merges.txt:2");
    REQUIRE_OK(ares_file_write(test_file("merges.txt"), "#version: 0.2\n", 14));
    CHECK_FAIL(ares_tokenizer_load(test_dir(), &t), ARES_EUNSUPPORTED, "tokenizer_class");
}

TEST(a_normalizer_that_makes_a_text_grow_without_bound_is_an_error)
{
#define GROW "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aaaaaaaa\"}"
    ares_tokenizer *t;
    ares_ids ids = { 0 };
    ares_str text = { 0 };
    REQUIRE_OK(
        tokenizer_parse("x.json",
                        ARES_VIEW(SENTENCEPIECE("{\"type\": \"Sequence\", \"normalizers\": [" GROW
                                                ", " GROW ", " GROW "]}",
                                                "null", "{\"type\": \"Fuse\"}")),
                        &t));
    CHECK_OK(ares_tokenizer_encode(t, ARES_VIEW("aba"), false, &ids));
    CHECK_EQ(ids.n, 1024); /* twice 512, and b joins the a before it */
    while (text.len < 10000) ares_str_add_z(&text, "a");
    CHECK_FAIL(ares_tokenizer_encode(t, ares_str_view(&text), false, &ids), ARES_ELIMIT,
               "at most 16 times as many");
    ares_str_fini(&text);
    ares_ids_fini(&ids);
    ares_tokenizer_free(t);
}

TEST(a_pair_of_tags_is_found_in_the_bytes_of_tokens)
{
    ares_tokenizer *t;
    ares_ids ids = { 0 };
    ares_str text = { 0 };
    int64_t offsets[64][2], first, end;
    REQUIRE_OK(ares_tokenizer_load(test_source(GOLDEN "qwen2"), &t));
    REQUIRE_OK(
        ares_tokenizer_encode(t, ARES_VIEW("\u65e5 <A>x \u00e9</A> y<|im_end|>"), false, &ids));
    REQUIRE(ids.n < 64);
    ares_span_offsets(t, ids.ids, ids.n, &text, offsets);
    CHECK_VIEW(ares_str_view(&text), "\u65e5 <A>x \u00e9</A> y");
    CHECK_EQ(offsets[ids.n - 1][1], 0);
    REQUIRE(ares_span_find(ares_str_view(&text), offsets, ids.n, ARES_VIEW("x "), ARES_VIEW("</"),
                           &first, &end));
    CHECK(offsets[first][0] >= 7 && offsets[end - 1][1] <= 13 && first < end);
    CHECK(!ares_span_find(ares_str_view(&text), offsets, ids.n, ARES_VIEW("<B>"), ARES_VIEW("</B>"),
                          &first, &end));
    ares_ids_fini(&ids);
    ares_str_fini(&text);
    ares_tokenizer_free(t);
}
