/* Row -> prompt, with a tokenizer of the goldens and a template that shows its variables. */
#include "test.h"

#include "../../src/data/internal.h"
#include "ares/data.h"
#include "ares/data_source.h"

static const char template[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% "
                               "if add_generation_prompt %}<assistant>{% endif %}";

static ares_tokenizer *tokenizer(void)
{
    ares_tokenizer *t = NULL;
    CHECK_OK(ares_tokenizer_load(test_source("tests/golden/tokenizer/smollm2_style"), &t));
    return t;
}

static const char *file_of(const char *name, const char *text)
{
    const char *path = test_file(name);
    CHECK_OK(ares_file_write(path, text, strlen(text)));
    return path;
}

static ares_data_config config(void)
{
    return (ares_data_config){ .prompt_key = "q",
                               .answer_key = "a",
                               .apply_chat_template = true,
                               .override_chat_template = file_of("chat.jinja", template),
                               .max_prompt_length = 512,
                               .filter_overlong_prompts = true };
}

/* Loads rows and encodes them; *d stays NULL when loading or the encoder fails. */
static int encode(const ares_data_config *cfg, const char *rows, ares_dataset **d, int64_t *dropped)
{
    const char *path = file_of("rows.jsonl", rows);
    ares_tokenizer *t = tokenizer();
    ares_pool *pool = ares_pool_new(2);
    ares_prompt_encoder *e;
    *d = NULL;
    int rc = ares_prompt_encoder_new(
        &(ares_prompt_options){ .cfg = cfg, .tokenizer = t, .model_dir = test_dir() }, &e);
    if (rc == ARES_OK && CHECK_OK(dataset_load(&(ares_texts){ &path, 1 }, cfg, false, d)))
        rc = ares_dataset_encode(*d, e, pool, dropped);
    ares_prompt_encoder_free(e);
    ares_pool_free(pool);
    ares_tokenizer_free(t);
    return rc;
}

static void check_text(const ares_data_config *cfg, const char *row, ares_view expected)
{
    ares_dataset *d;
    int64_t dropped;
    ares_str decoded = { 0 };
    if (CHECK_OK(encode(cfg, row, &d, &dropped))) {
        const ares_row *r = ares_dataset_row(d, 0);
        ares_tokenizer *t = tokenizer();
        CHECK_MSG(ares_view_eq(r->prompt_text, expected), "is '%.*s'", (int)r->prompt_text.len,
                  r->prompt_text.data);
        CHECK_OK(ares_tokenizer_decode(t, r->prompt, r->prompt_len, false, &decoded));
        CHECK_MSG(ares_view_eq(ares_str_view(&decoded), expected), "is '%s'", decoded.data);
        ares_tokenizer_free(t);
    }
    ares_dataset_free(d);
    ares_str_fini(&decoded);
}

TEST(a_string_becomes_a_user_message_after_the_system_prompt)
{
    ares_data_config cfg = config();
    check_text(&cfg, "{\"q\":\"What?\"}", ARES_VIEW("<user>What?<assistant>"));
    cfg.system_prompt = "Be brief.";
    check_text(&cfg, "{\"q\":\"What?\"}", ARES_VIEW("<system>Be brief.<user>What?<assistant>"));
}

TEST(messages_go_through_the_template_as_they_are)
{
    ares_data_config cfg = config();
    cfg.system_prompt = "Be brief.";
    cfg.format_prompt = file_of("format.jinja", "{{ content }}!");
    check_text(&cfg,
               "{\"q\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
               "\"b\"},{\"role\":\"user\",\"content\":\"c\"}]}",
               ARES_VIEW("<user>a<assistant>b<user>c<assistant>"));
}

TEST(prompts_of_sharegpt_and_alpaca_are_read)
{
    ares_data_config cfg = config();
    check_text(&cfg,
               "{\"q\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"b\"},"
               "{\"from\":\"human\",\"value\":\"c\"},{\"from\":\"gpt\",\"value\":\"d\"}],"
               "\"system\":\"s\"}",
               ARES_VIEW("<system>s<user>a<assistant>b<user>c<assistant>"));
    check_text(&cfg, "{\"instruction\":\"i\",\"input\":\"j\",\"output\":\"o\"}",
               ARES_VIEW("<user>i\nj<assistant>"));
    cfg.prompt_key = "x.turns";
    check_text(&cfg, "{\"x\":{\"turns\":[{\"from\":\"human\",\"value\":\"a\"}]}}",
               ARES_VIEW("<user>a<assistant>"));
    cfg.prompt_key = "instruction";
    check_text(&cfg, "{\"instruction\":\"i\",\"input\":\"j\",\"system\":\"s\"}",
               ARES_VIEW("<system>s<user>i\nj<assistant>"));
}

TEST(a_row_goes_whole_to_the_template)
{
    ares_data_config cfg = config();
    ares_json yes = { .type = ARES_JSON_BOOL, .boolean = true },
              more = { .type = ARES_JSON_OBJECT,
                       .count = 1,
                       .members = &(ares_json_member){ ARES_VIEW("think"), &yes } };
    cfg.chat_template_kwargs = &more;
    cfg.override_chat_template =
        file_of("whole.jinja", "{% for t in tools or [] %}{{ t.name }};{% endfor %}{{ level }}"
                               "{{ think }}{{ messages[0].content }}"
                               "{{ add_generation_prompt }}");
    check_text(&cfg,
               "{\"q\":\"a\",\"level\":3,\"tools\":\"[{\\\"name\\\":\\\"f\\\"}]\","
               "\"messages\":[],\"add_generation_prompt\":false}",
               ARES_VIEW("f;3TrueaTrue"));
    check_text(&cfg, "{\"q\":[{\"role\":\"user\",\"content\":\"a\"}],\"think\":false}",
               ARES_VIEW("FalseaTrue"));
    check_text(&cfg, "{\"q\":\"a\",\"chat_template_kwargs\":{\"level\":7}}",
               ARES_VIEW("7TrueaTrue"));
    ares_dataset *d;
    int64_t dropped;
    CHECK_FAIL(encode(&cfg, "{\"q\":\"a\",\"tools\":\"mul\"}", &d, &dropped), ARES_EFORMAT,
               "rows.jsonl:1: template: 'tools' is a text and no JSON");
    ares_dataset_free(d);
    cfg.apply_chat_template = false;
    CHECK_FAIL(encode(&cfg, "{\"q\":\"a\"}", &d, &dropped), ARES_ECONFIG,
               "data.chat_template_kwargs: there is no chat template");
}

TEST(a_prompt_that_ends_with_the_assistants_message_is_continued)
{
    ares_data_config cfg = config();
    ares_dataset *d;
    int64_t dropped;
    check_text(&cfg,
               "{\"q\":[{\"role\":\"user\",\"content\":\"1+1?\"},{\"role\":\"assistant\","
               "\"content\":\"It is \"}]}",
               ARES_VIEW("<user>1+1?<assistant>It is "));
    check_text(
        &cfg,
        "{\"q\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"tool\",\"content\":\"b\"}]}",
        ARES_VIEW("<user>a<tool>b<assistant>"));
    cfg.override_chat_template = file_of(
        "ends.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<end>\n{% endfor "
                      "%}{% if add_generation_prompt %}<assistant>{% endif %}");
    check_text(&cfg,
               "{\"q\":[{\"role\":\"user\",\"content\":\"1+1?\"},{\"role\":\"assistant\","
               "\"content\":\" It is \"}]}",
               ARES_VIEW("<user>1+1?<end>\n<assistant>It is"));
    CHECK_FAIL(encode(&cfg, "{\"q\":\"x\"}\n{\"q\":[{\"role\":\"assistant\",\"content\":null}]}\n",
                      &d, &dropped),
               ARES_EFORMAT, "rows.jsonl:2: template: messages[0].content: holds no text");
    ares_dataset_free(d);
}

TEST(the_format_prompt_wraps_strings_before_the_template_does)
{
    ares_data_config cfg = config();
    cfg.format_prompt = file_of("format.jinja", "\n{{ content | trim }} Answer in \\boxed{}.\n");
    check_text(&cfg, "{\"q\":\"  1+1?\\n\"}",
               ARES_VIEW("<user>1+1? Answer in \\boxed{}.<assistant>"));
    cfg.apply_chat_template = false;
    check_text(&cfg, "{\"q\":\"  1+1?\\n\"}", ARES_VIEW("1+1? Answer in \\boxed{}."));
}

TEST(nul_and_line_separators_survive)
{
    ares_data_config cfg = config();
    check_text(&cfg,
               "{\"q\":\"a\\u0000b\xe2\x80\xa8"
               "c\"}",
               ARES_VIEW("<user>a\0b\xe2\x80\xa8"
                         "c<assistant>"));
    cfg.apply_chat_template = false;
    check_text(&cfg,
               "{\"q\":\"a\\u0000b\xe2\x80\xa8"
               "c\"}",
               ARES_VIEW("a\0b\xe2\x80\xa8"
                         "c"));
}

/* Rows of 1 to 9 tokens: longer ones are dropped, the others move up and keep their line numbers.
 */
TEST(overlong_prompts_are_dropped_and_counted_or_an_error)
{
    ares_data_config cfg = config();
    ares_dataset *d;
    int64_t dropped = -1;
    ares_str rows = { 0 };
    cfg.apply_chat_template = false;
    const int words[] = { 9, 1, 3, 8, 2, 9 };
    for (int i = 0; i < ARES_COUNT(words); i++) {
        ares_str_add_z(&rows, "{\"q\":\"");
        for (int w = 0; w < words[i]; w++) ares_str_add_z(&rows, "7"); /* a digit is a token */
        ares_str_addf(&rows, "\",\"a\":%d}\n", i);
    }
    cfg.max_prompt_length = 3;
    CHECK_OK(encode(&cfg, rows.data, &d, &dropped));
    REQUIRE(d && ares_dataset_count(d) == 3);
    CHECK_EQ(dropped, 3);
    for (int i = 0; i < 3; i++) {
        const ares_row *r = ares_dataset_row(d, i);
        const int64_t lines[] = { 2, 3, 5 };
        CHECK(r->id == i && r->line == lines[i] && r->prompt_len == words[lines[i] - 1]);
    }
    ares_dataset_free(d);
    cfg.max_prompt_length = 9;
    CHECK_OK(encode(&cfg, rows.data, &d, &dropped));
    CHECK(dropped == 0 && ares_dataset_count(d) == 6);
    ares_dataset_free(d);
    cfg.filter_overlong_prompts = false;
    cfg.max_prompt_length = 8;
    CHECK_FAIL(encode(&cfg, rows.data, &d, &dropped), ARES_ELIMIT,
               "rows.jsonl:1: prompt of 9 tokens exceeds data.max_prompt_length = 8");
    ares_dataset_free(d);
    cfg.filter_overlong_prompts = true;
    cfg.max_prompt_length = 1;
    CHECK_OK(encode(&cfg, rows.data, &d, &dropped));
    ares_dataset_free(d);
    CHECK_FAIL(
        encode(&cfg, "{\"q\":\"77\"}\n{\"q\":\"777\"}\n", &d, &dropped), ARES_ELIMIT,
        "all 2 prompts are longer than data.max_prompt_length = 1 (the longest has 3 tokens)");
    ares_dataset_free(d);
    ares_str_fini(&rows);
}

TEST(a_prompt_that_cannot_be_made_is_named_by_file_and_line)
{
    ares_data_config cfg = config();
    ares_dataset *d;
    int64_t dropped;
    cfg.override_chat_template =
        file_of("raise.jinja", "{% if messages[0].content == 'bad' %}{{ raise_exception('no bad "
                               "words') }}{% endif %}{{ messages[0].content }}");
    CHECK_FAIL(encode(&cfg, "{\"q\":\"good\"}\n{\"q\":\"bad\"}\n", &d, &dropped), ARES_EFORMAT,
               "rows.jsonl:2: ");
    CHECK_CONTAINS(ares_error_message(), "no bad words");
    ares_dataset_free(d);
    CHECK_FAIL(encode(&cfg, "{\"q\":\"good\"}\n{\"q\":\"\"}\n", &d, &dropped), ARES_EFORMAT,
               "rows.jsonl:2: the prompt gives no tokens");
    ares_dataset_free(d);
    cfg.apply_chat_template = false;
    CHECK_FAIL(encode(&cfg, "{\"q\":[{\"role\":\"user\",\"content\":\"x\"}]}\n", &d, &dropped),
               ARES_ECONFIG, "rows.jsonl:1: a list of messages needs a chat template");
    ares_dataset_free(d);
}

TEST(options_that_lead_nowhere_are_refused_at_the_start)
{
    ares_data_config cfg = config();
    ares_dataset *d;
    int64_t dropped;
    cfg.override_chat_template = test_file("none.jinja");
    CHECK_FAIL(encode(&cfg, "{\"q\":\"x\"}", &d, &dropped), ARES_EIO, "none.jinja");
    cfg = config();
    cfg.format_prompt = test_file("none.jinja");
    CHECK_FAIL(encode(&cfg, "{\"q\":\"x\"}", &d, &dropped), ARES_EIO, "none.jinja");
    cfg = config();
    cfg.apply_chat_template = false;
    cfg.system_prompt = "x";
    CHECK_FAIL(encode(&cfg, "{\"q\":\"x\"}", &d, &dropped), ARES_ECONFIG, "data.system_prompt");
    cfg = config();
    cfg.override_chat_template = file_of("bad.jinja", "{% for %}");
    CHECK_FAIL(encode(&cfg, "{\"q\":\"x\"}", &d, &dropped), ARES_EFORMAT, "bad.jinja");
    CHECK(d == NULL);
}

/* The stored answers of rows, and all that they were encoded with. */
typedef struct stored {
    ares_tokenizer *t;
    ares_pool *pool;
    ares_prompt_encoder *e;
    ares_source rows;
    ares_pairs pairs;
} stored;

static int stored_open(stored *s, ares_data_config *cfg, bool chat, int64_t max_length,
                       const char *rows)
{
    const char *path = file_of("pairs.jsonl", rows);
    ares_dataset *d = NULL;
    int64_t dropped;
    *s = (stored){ .t = tokenizer(), .pool = ares_pool_new(1) };
    cfg->apply_chat_template = chat;
    ARES_TRY(ares_prompt_encoder_new(
        &(ares_prompt_options){ .cfg = cfg, .tokenizer = s->t, .model_dir = test_dir() }, &s->e));
    ARES_TRY(dataset_load(&(ares_texts){ &path, 1 }, cfg, false, &d));
    ARES_TRY(ares_dataset_encode(d, s->e, s->pool, &dropped));
    ARES_TRY(ares_source_of_dataset(d, &(ares_order){ .draw = 1 }, &s->rows));
    const ares_pair_options o = { .chosen_key = "y",
                                  .rejected_key = "x",
                                  .max_length = max_length,
                                  .without_span = true,
                                  .eos = ares_tokenizer_role_id(s->t, ARES_TOKEN_EOS) };
    return ares_pairs_encode(&s->rows, s->e, &o, s->pool, &s->pairs);
}

static void stored_close(stored *s)
{
    ares_pairs_fini(&s->pairs);
    ares_source_close(&s->rows);
    ares_prompt_encoder_free(s->e);
    ares_pool_free(s->pool);
    ares_tokenizer_free(s->t);
}

/* The last token of the preferred answer to each row, with or without a template. */
static void check_ends(ares_data_config *cfg, bool chat, const char *const *ends, int n)
{
    stored s;
    REQUIRE_OK(stored_open(&s, cfg, chat, 512,
                           "{\"q\":\"2+2?\",\"y\":\"four\",\"x\":\"five\"}\n"
                           "{\"q\":\"2+3?\",\"y\":\"five<|im_end|>\",\"x\":\"four\"}\n"));
    CHECK_EQ(s.pairs.counts.pairs, n);
    for (int i = 0; i < n; i++) {
        const ares_stored_answer *a = &s.pairs.pair[i].chosen;
        ares_str text = { 0 };
        if (CHECK(a->n > 0) &&
            CHECK_OK(ares_tokenizer_decode(s.t, a->ids + a->prompt_len, a->n, false, &text)))
            CHECK_STR(text.data, ends[i]);
        ares_str_fini(&text);
    }
    stored_close(&s);
}

TEST(a_stored_answer_ends_as_its_template_does_and_without_one_with_one_end_token)
{
    ares_data_config cfg = config();
    check_ends(&cfg, false, (const char *[]){ "four<|im_end|>", "five<|im_end|>" }, 2);
    check_ends(&cfg, true, (const char *[]){ "four", "five<|im_end|>" }, 2);
    cfg.override_chat_template =
        file_of("ends.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|im_end|>\n"
                              "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
    check_ends(&cfg, true, (const char *[]){ "four<|im_end|>\n", "five<|im_end|><|im_end|>\n" }, 2);
}

/* Rows are counted, whichever of their answers is too long, and one that just fits is whole. */
TEST(rows_are_counted_whose_stored_answers_are_cut)
{
    ares_data_config cfg = config();
    stored s;
    static const char rows[] = "{\"q\":\"ab\",\"y\":\"cdef\",\"x\":\"c\"}\n"
                               "{\"q\":\"a\",\"y\":\"d\",\"x\":\"cde\"}\n"
                               "{\"q\":\"abc\",\"y\":\"defg\",\"x\":\"ghijk\"}\n"
                               "{\"q\":\"a\",\"y\":\"e\",\"x\":\"f\"}\n";
    int longest[4];
    REQUIRE_OK(stored_open(&s, &cfg, false, 512, rows));
    CHECK_EQ(s.pairs.counts.shortened, 0);
    for (int i = 0; i < 4; i++) {
        const ares_pair *p = &s.pairs.pair[i];
        longest[i] = ARES_MAX(p->chosen.n, p->rejected.n) + p->chosen.prompt_len;
    }
    stored_close(&s);
    for (int length = 3; length < 12; length++) {
        int64_t cut = 0;
        REQUIRE_OK(stored_open(&s, &cfg, false, length, rows));
        for (int i = 0; i < 4; i++) {
            const ares_pair *p = &s.pairs.pair[i];
            cut += longest[i] > length;
            if (p->chosen.n) CHECK(p->chosen.prompt_len + p->chosen.n <= length);
            if (p->rejected.n) CHECK(p->rejected.prompt_len + p->rejected.n <= length);
        }
        CHECK_EQ(s.pairs.counts.shortened, cut);
        stored_close(&s);
    }
    /* what the cut makes equal is told as that alone, and not as without tags, too */
    REQUIRE_OK(stored_open(&s, &cfg, false, 2,
                           "{\"q\":\"a\",\"y\":\"7 1\",\"x\":\"7 2\"}\n"
                           "{\"q\":\"a\",\"y\":\"7\",\"x\":\"8\"}\n"));
    CHECK_EQ(s.pairs.counts.equal, 1);
    CHECK_EQ(s.pairs.counts.without_span, 1);
    CHECK_EQ(s.pairs.counts.pairs, 1);
    stored_close(&s);
}
