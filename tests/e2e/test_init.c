/* Model directories that ares-train init writes, as other programs read them. */
#include <string.h>

#include "e2e.h"

/* The chat template in a file of a model in this test's folder, in the arena. */
static ares_view chat_template(ares_arena *arena, const char *file)
{
    ares_str text = { 0 };
    const ares_json *json = NULL, *found = NULL;
    CHECK_OK(ares_file_read(test_file(file), &text));
    if (ares_json_parse(arena, ares_str_view(&text), file, &json) == ARES_OK)
        found = ares_json_get(json, "chat_template");
    ares_view own =
        found
            ? ares_view_of(ares_arena_printf(arena, "%.*s", (int)found->text.len, found->text.data))
            : ARES_VIEW("");
    CHECK_MSG(found != NULL, "%s", file);
    ares_str_fini(&text);
    return own;
}

/* transformers looks for a processor's template beside the tokenizer's file, not in it. */
TEST(a_fresh_vision_model_has_its_template_where_processors_look_for_it)
{
    static const char *const archs[] = { "qwen2_vl", "qwen2_5_vl" };
    for (int i = 0; i < ARES_COUNT(archs); i++) {
        ares_arena arena = { 0 };
        CHECK_EQ(e2e_program(NULL, "init --arch %s --hidden 32 --layers 1 --heads 2 --out '%s'",
                             archs[i], test_file("sees")),
                 0);
        CHECK_EQ(e2e_program(NULL,
                             "init --arch %s --hidden 32 --layers 1 --heads 2 --tokenizer '%s' "
                             "--out '%s'",
                             archs[i], test_file("sees"), test_file("copy")),
                 0);
        ares_view own = chat_template(&arena, "sees/tokenizer_config.json");
        CHECK(own.len > 100);
        CHECK(ares_view_eq(chat_template(&arena, "sees/chat_template.json"), own));
        CHECK(ares_view_eq(chat_template(&arena, "copy/chat_template.json"), own));
        CHECK_OK(ares_dir_remove(test_file("sees")));
        CHECK_OK(ares_dir_remove(test_file("copy")));
        ares_arena_fini(&arena);
    }
}

TEST(a_fresh_hybrid_has_the_kinds_of_layers_that_it_is_asked_for)
{
    static const struct {
        const char *words, *part;
    } cases[] = {
        { "--arch qwen3_5_text --layer-types linear_attention,conv",
          "--layer-types = 'conv': unknown" },
        { "--arch qwen3_5_text --layer-types linear_attention,", "choices: linear_attention" },
        { "--arch qwen3_5_text --layers 3 --layer-types full_attention,linear_attention",
          "--layers = 3, and --layer-types names 2" },
        { "--arch qwen3 --layer-types full_attention", "take --arch qwen3_5_text" },
        { "--arch qwen3_5_text --linear-key-heads 3",
          "a delta net's 4 value heads are no multiple of its 3 key heads" },
        { "--arch qwen3 --linear-value-heads 4", "has no delta nets; take qwen3_5_text" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&out);
        CHECK_EQ(e2e_program(&out, "init %s --out '%s'", cases[i].words, test_file("none")), 2);
        CHECK_CONTAINS(out.data, cases[i].part);
    }
    CHECK(!ares_dir_exists(test_file("none")));
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen3_5_text --hidden 32 --heads 4 --kv-heads 2 "
                         "--layer-types full_attention,linear_attention,linear_attention "
                         "--linear-key-heads 3 --linear-value-heads 6 --linear-head-dim 12 "
                         "--out '%s'",
                         test_file("hybrid")),
             0);
    ares_str_clear(&out);
    CHECK_OK(ares_file_read(test_file("hybrid/config.json"), &out));
    CHECK_EQ(test_shell(NULL,
                        "tr -d ' \\n' < '%s' | grep -q "
                        "'\"layer_types\":\\[\"full_attention\",\"linear_attention\","
                        "\"linear_attention\"\\]'",
                        test_file("hybrid/config.json")),
             0);
    CHECK_CONTAINS(out.data, "\"num_hidden_layers\": 3");
    CHECK_CONTAINS(out.data, "\"linear_num_key_heads\": 3");
    CHECK_CONTAINS(out.data, "\"linear_num_value_heads\": 6");
    CHECK_CONTAINS(out.data, "\"linear_key_head_dim\": 12");
    CHECK_CONTAINS(out.data, "\"linear_value_head_dim\": 12");
    ares_str_fini(&out);
}
