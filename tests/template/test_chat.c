/*
 * Which part of a conversation the assistant wrote, where a model directory has its template, and
 * format prompts.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ares/text.h"
#include "test.h"

#define CHATML                                                                                 \
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' " \
    "}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define TALK                                                                               \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"žluť?\"},{\"role\":\"assistant\","    \
    "\"content\":\"日本\"},{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\"," \
    "\"content\":\"<think>t</think>c\"}]}"

typedef struct talk {
    ares_chat *chat;
    ares_arena arena;
    const ares_json *variables;
    ares_str out;
    ares_text_spans spans;
} talk;

static bool talk_open(talk *t, const char *template, const char *variables)
{
    *t = (talk){ 0 };
    return CHECK_OK(ares_chat_new("t", ares_view_of(template), NULL, &t->chat)) &&
           CHECK_OK(
               ares_json_parse(&t->arena, ares_view_of(variables), "variables", &t->variables));
}

static void talk_close(talk *t)
{
    ares_chat_free(t->chat);
    ares_arena_fini(&t->arena);
    ares_str_fini(&t->out);
    ares_text_spans_fini(&t->spans);
}

/* Whether both kinds of places of span i name the same ones. */
static void check_places(const talk *t, int64_t i)
{
    const ares_text_span *s = &t->spans.items[i];
    int64_t chars[2] = { 0 };
    for (int64_t k = 0; k < s->byte_end; k++)
        for (int e = 0; e < 2; e++)
            chars[e] += k < (e ? s->byte_end : s->byte_start) && (t->out.data[k] & 0xc0) != 0x80;
    CHECK_EQ(s->char_start, chars[0]);
    CHECK_EQ(s->char_end, chars[1]);
}

static ares_view span_text(const talk *t, int64_t i)
{
    const ares_text_span *s = &t->spans.items[i];
    return (ares_view){ t->out.data + s->byte_start, (size_t)(s->byte_end - s->byte_start) };
}

TEST(variables_of_a_conversation_are_what_transformers_takes)
{
    static const char source[] = "{% for t in tools or [] %}{{ t.name }};{% endfor %}"
                                 "{{ enable_thinking }}|{{ lang }}|{{ messages|length }}";
    static const struct {
        const char *members, *text, *message; /* text NULL: it fails with the message */
    } cases[] = {
        { "", "|de|1", NULL },
        { "\"lang\":null", "|de|1", NULL },
        { "\"lang\":\"en\",\"enable_thinking\":true", "True|en|1", NULL },
        { "\"enable_thinking\":true,\"chat_template_kwargs\":{\"enable_thinking\":false}",
          "False|de|1", NULL },
        { "\"chat_template_kwargs\":\"{\\\"lang\\\":\\\"fr\\\"}\"", "|fr|1", NULL },
        { "\"chat_template_kwargs\":\"\"", "|de|1", NULL },
        { "\"tools\":[{\"name\":\"f\"}]", "f;|de|1", NULL },
        { "\"tools\":\"[{\\\"name\\\":\\\"f\\\"},{\\\"name\\\":\\\"g\\\"}]\"", "f;g;|de|1", NULL },
        { "\"tools\":\"\"", "|de|1", NULL },
        { "\"documents\":\"a column that the template does not read\"", "|de|1", NULL },
        { "\"tools\":\"mul\"", NULL, "'tools' is a text and no JSON" },
        { "\"tools\":\"{}\"", NULL, "'tools' is no list of objects" },
        { "\"tools\":[\"mul\"]", NULL, "'tools' is no list of objects" },
        { "\"chat_template_kwargs\":[1]", NULL, "'chat_template_kwargs' is no object" },
        { "\"chat_template_kwargs\":{\"messages\":[]}", NULL, "'messages' is no variable" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        talk t;
        char json[256];
        const ares_json *lang;
        snprintf(json, sizeof json, "{\"messages\":[{}]%s%s}", *cases[i].members ? "," : "",
                 cases[i].members);
        if (!talk_open(&t, source, json)) continue;
        CHECK_OK(ares_json_parse(&t.arena, ARES_VIEW("{\"lang\":\"de\"}"), "lang", &lang));
        ares_chat_set_variables(t.chat, lang);
        int rc = ares_chat_render(t.chat, t.variables, NULL, &t.out);
        if (cases[i].text) CHECK(rc == ARES_OK && CHECK_STR(t.out.data, cases[i].text));
        else CHECK_FAIL(rc, ARES_EFORMAT, cases[i].message);
        talk_close(&t);
    }
}

TEST(assistant_spans_are_what_a_turn_adds_after_the_generation_prompt)
{
    talk t;
    if (!talk_open(&t, CHATML, TALK)) return;
    ares_str_add_z(&t.out, "é|"); /* spans count from the beginning of out */
    REQUIRE_OK(ares_chat_assistant_spans(t.chat, t.variables, NULL, &t.out, &t.spans));
    REQUIRE(CHECK_EQ(t.spans.n, 2));
    CHECK_VIEW(span_text(&t, 0), "日本<|im_end|>\n");
    CHECK_VIEW(span_text(&t, 1), "<think>t</think>c<|im_end|>\n");
    CHECK_EQ(t.spans.items[0].char_start, 2 + (12 + 5 + 5 + 11) + 22);
    CHECK_EQ(t.spans.items[0].char_end - t.spans.items[0].char_start, 2 + 11);
    CHECK_EQ(t.spans.items[1].byte_end, (int64_t)t.out.len);
    for (int64_t i = 0; i < t.spans.n; i++) check_places(&t, i);
    talk_close(&t);
}

TEST(a_template_that_rewrites_earlier_turns_cannot_be_split_and_says_where)
{
    talk t;
    const char *source = "{% for m in messages %}<{{ m.role }}>{{ m.content if loop.last else "
                         "m.content.split('</think>')[-1] }}{% endfor %}"
                         "{% if add_generation_prompt %}<assistant>{% endif %}";
    const char *variables =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
        "\"<think>t</think>c\"},{\"role\":\"user\",\"content\":\"b\"}]}";
    if (!talk_open(&t, source, variables)) return;
    CHECK_FAIL(ares_chat_assistant_spans(t.chat, t.variables, NULL, &t.out, &t.spans),
               ARES_EUNSUPPORTED, "messages[1]");
    CHECK_EQ(t.out.len, 0);
    CHECK_EQ(t.spans.n, 0);
    talk_close(&t);
}

TEST(generation_blocks_are_the_assistants_spans)
{
    talk t;
    const char *source =
        "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ "
        "m.content }}!{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
    if (!talk_open(&t, source, TALK)) return;
    REQUIRE_OK(ares_chat_assistant_spans(t.chat, t.variables, NULL, &t.out, &t.spans));
    REQUIRE(CHECK_EQ(t.spans.n, 2));
    CHECK_VIEW(span_text(&t, 0), "日本!");
    CHECK_EQ(t.spans.items[0].char_start, 6 + 5 + 11);
    CHECK_EQ(t.spans.items[0].char_end, 6 + 5 + 11 + 3);
    for (int64_t i = 0; i < t.spans.n; i++) check_places(&t, i);
    CHECK_VIEW(span_text(&t, 1), "<think>t</think>c!");
    talk_close(&t);
}

TEST(a_generation_block_whose_place_is_unknown_is_refused)
{
    talk t;
    if (!talk_open(&t, "{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}",
                   "{\"messages\":[]}"))
        return;
    CHECK_FAIL(ares_chat_assistant_spans(t.chat, t.variables, NULL, &t.out, &t.spans),
               ARES_EUNSUPPORTED, "generation block inside");
    CHECK_OK(ares_chat_render(t.chat, t.variables, NULL, &t.out));
    CHECK_VIEW(ares_str_view(&t.out), "a");
    talk_close(&t);
}

static void put(const char *name, const char *text)
{
    CHECK_OK(ares_file_write(test_file(name), text, strlen(text)));
}

static void check_load_of(const char *name, const char *conversation, const char *expected)
{
    ares_chat *chat = NULL;
    ares_arena arena = { 0 };
    ares_str out = { 0 };
    const ares_json *variables;
    if (CHECK_OK(ares_json_parse(&arena, ares_view_of(conversation), "v", &variables)) &&
        CHECK_OK(ares_chat_load(test_dir(), name, &chat)) &&
        CHECK_OK(ares_chat_render(chat, variables, NULL, &out)))
        CHECK_VIEW(ares_str_view(&out), expected);
    ares_chat_free(chat);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
}

static void check_load(const char *name, const char *expected)
{
    check_load_of(name, "{\"messages\":[]}", expected);
}

TEST(a_model_directory_keeps_its_template_in_one_of_three_places)
{
    ares_chat *chat;
    CHECK_FAIL(ares_chat_load(test_dir(), NULL, &chat), ARES_EFORMAT, "no chat template");
    put("tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"default\",\"template\":\"d{{ bos_token "
        "}}\"},{\"name\":\"tool_use\",\"template\":\"t{{ eos_token }}{{ tools }}\"}],"
        "\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"pad_token\":null}");
    put("special_tokens_map.json",
        "{\"eos_token\":\"other\",\"pad_token\":{\"content\":\"<pad>\"}}");
    check_load(NULL, "d<s>");
    check_load("tool_use", "totherNone"); /* without a list of added tokens the map holds */
    CHECK_FAIL(ares_chat_load(test_dir(), "rag", &chat), ARES_EFORMAT, "'rag'");
    put("tokenizer_config.json", "{\"chat_template\":\"s{{ pad_token }}{{ bos_token }}\"}");
    check_load("default", "s<pad>");
    put("chat_template.jinja", "j{{ add_generation_prompt }}\n");
    check_load(NULL, "jFalse");
}

TEST(conversations_with_tools_take_the_template_that_is_named_for_them)
{
    static const char with[] = "{\"messages\":[],\"tools\":[{\"name\":\"f\"}]}",
                      inside[] = "{\"messages\":[],\"chat_template_kwargs\":{\"tools\":[]}}",
                      without[] = "{\"messages\":[],\"tools\":null}";
    put("tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"t{{ tools|length }}\"},"
        "{\"name\":\"default\",\"template\":\"d\"}]}");
    check_load_of(NULL, with, "t1");
    check_load_of(NULL, inside, "t0");
    check_load_of(NULL, without, "d");
    check_load_of("default", with, "d"); /* which is asked for */
    put("tokenizer_config.json", "{}");
    put("chat_template.jinja", "D");
    check_load_of(NULL, with, "D");
    CHECK_OK(ares_dir_make(test_file("additional_chat_templates")));
    put("additional_chat_templates/tool_use.jinja", "T{{ tools[0].name }}");
    check_load_of(NULL, with, "Tf");
    check_load_of(NULL, without, "D");
    ares_chat *chat = NULL;
    ares_arena arena = { 0 };
    const ares_json *own, *none;
    ares_str out = { 0 };
    REQUIRE_OK(ares_json_parse(&arena, ARES_VIEW("{\"tools\":[{\"name\":\"g\"}]}"), "v", &own));
    REQUIRE_OK(ares_json_parse(&arena, ARES_VIEW("{\"messages\":[]}"), "v", &none));
    REQUIRE_OK(ares_chat_load(test_dir(), NULL, &chat));
    ares_chat_set_variables(chat, own); /* tools of the configuration, for every conversation */
    CHECK_OK(ares_chat_render(chat, none, NULL, &out));
    CHECK_VIEW(ares_str_view(&out), "Tg");
    ares_chat_free(chat);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
}

/* Each token in both files, in one, as null, and in none; the lists of further ones alike. */
TEST(special_tokens_come_from_their_map_and_else_from_the_tokenizers_config)
{
    static const struct {
        const char *config, *map, *text; /* NULL: no such file */
    } cases[] = {
        { NULL, NULL, "--" },
        { "{}", "{}", "--" },
        { "{\"bos_token\":\"b\"}", NULL, "b--" },
        { NULL, "{\"bos_token\":\"B\",\"pad_token\":{\"content\":\"P\"}}", "B-P-" },
        { "{\"bos_token\":\"b\",\"eos_token\":{\"content\":\"e\"}}",
          "{\"bos_token\":\"B\",\"pad_token\":\"P\"}", "B-P-" },
        { "{\"bos_token\":\"b\",\"added_tokens_decoder\":{\"0\":{\"content\":\"b\"}}}",
          "{\"bos_token\":\"B\",\"pad_token\":\"P\"}", "b--" }, /* it is whole */
        { "{\"bos_token\":\"b\",\"added_tokens_decoder\":{}}", "{\"bos_token\":\"B\"}", "B--" },
        { "{\"additional_special_tokens\":[\"x\",{\"content\":\"y\"}]}",
          "{\"additional_special_tokens\":[\"z\"]}", "--xy" },
        { "{}", "{\"additional_special_tokens\":[\"z\",\"y\"]}", "--zy" },
        { "{\"additional_special_tokens\":[]}", "{}", "--" },
    };
    put("chat_template.jinja", "{{ bos_token }}-{{ unk_token }}{{ pad_token }}-"
                               "{% for t in additional_special_tokens %}{{ t }}{% endfor %}");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        (void)unlink(test_file("tokenizer_config.json"));
        (void)unlink(test_file("special_tokens_map.json"));
        if (cases[i].config) put("tokenizer_config.json", cases[i].config);
        if (cases[i].map) put("special_tokens_map.json", cases[i].map);
        check_load(NULL, cases[i].text);
    }
}

static void check_continue(const char *template, const char *variables, const char *expected)
{
    talk t;
    if (!talk_open(&t, template, variables)) return;
    ares_str_add_z(&t.out, "before|");
    CHECK_OK(ares_chat_render(t.chat, t.variables, NULL, &t.out));
    CHECK_VIEW(ares_str_view(&t.out), expected);
    talk_close(&t);
}

#define OPEN(content)                                             \
    "{\"messages\":[{\"role\":\"assistant\",\"content\":" content \
    "}],\"continue_final_message\":true}"

TEST(a_continued_message_ends_the_text)
{
    check_continue(CHATML, OPEN("\"a \""), "before|<|im_start|>assistant\na ");
    check_continue("{{ messages[0].content | trim }}<end>", OPEN("\" a \""), "before|a");
    check_continue("{{ messages[0].content | trim }}<end>", OPEN("\" \""),
                   "before|"); /* nothing but blanks */
    check_continue("{{ messages[0]['content'] }}|{{ continue_final_message is defined }}|{{ "
                   "messages[0].content }}!",
                   OPEN("\"a\""),
                   /* the last one counts, as in transformers */
                   "before|aCONTINUE_FINAL_MESSAGE_TAG |False|a");
    check_continue("{# content #}{{ messages[0] | tojson }}", OPEN("\"a\""),
                   "before|{\"role\": \"assistant\", \"content\": \"a"); /* keys keep their order */
}

static void check_not_continued(const char *template, const char *variables, const char *message)
{
    talk t;
    if (!talk_open(&t, template, variables)) return;
    CHECK_FAIL(ares_chat_render(t.chat, t.variables, NULL, &t.out), ARES_EFORMAT, message);
    CHECK_EQ(t.out.len, 0);
    talk_close(&t);
}

TEST(what_cannot_be_continued_is_an_error)
{
    check_not_continued(CHATML,
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"continue_final_"
                        "message\":true,\"add_generation_prompt\":true}",
                        "continue_final_message and add_generation_prompt exclude each other");
    check_not_continued(CHATML, "{\"messages\":[],\"continue_final_message\":true}",
                        "'messages' is empty");
    check_not_continued(CHATML,
                        "{\"messages\":[{\"role\":\"user\"}],\"continue_final_message\":true}",
                        "messages[0].content: holds no text");
    check_not_continued(CHATML, OPEN("5"), "messages[0].content: holds no text");
    check_not_continued(CHATML, OPEN("[{\"type\":\"image\"}]"),
                        "messages[0].content: holds no text");
    check_not_continued("{{ messages[0].content | upper }}", OPEN("\"a\""),
                        "does not write the final message unchanged");
    check_not_continued("{{ messages | length }} content", OPEN("\"a\""),
                        "does not write the final message unchanged");
    check_not_continued("{{ messages | length }}", OPEN("\"a\""), "does not read that key");
    check_not_continued(
        CHATML,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"continue_final_message\":1}",
        "neither true, false nor a key");
    talk t;
    if (!talk_open(&t, CHATML, OPEN("\"a\""))) return;
    CHECK_FAIL(ares_chat_assistant_spans(t.chat, t.variables, NULL, &t.out, &t.spans), ARES_EFORMAT,
               "continue_final_message");
    talk_close(&t);
}

TEST(a_conversation_needs_its_messages)
{
    talk t;
    if (!talk_open(&t, CHATML, "{\"message\":[]}")) return;
    CHECK_FAIL(ares_chat_render(t.chat, t.variables, NULL, &t.out), ARES_EFORMAT, "'messages'");
    talk_close(&t);
}

TEST(a_format_prompt_is_stripped_and_takes_the_content)
{
    ares_template *t;
    ares_str out = { 0 };
    put("math.jinja",
        "\n{{ content | trim }} Think in <think> </think>.\n{% if true %}\nBox it.{% endif %}\n\n");
    REQUIRE_OK(ares_format_prompt_load(test_file("math.jinja"), &t));
    CHECK_OK(ares_format_prompt_render(t, ARES_VIEW("  1 + 1?\n"), &out));
    CHECK_VIEW(ares_str_view(&out), "1 + 1? Think in <think> </think>.\n\nBox it.");
    ares_template_free(t);
    ares_str_fini(&out);
}
