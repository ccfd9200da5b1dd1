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
