/*
 * Supervised fine-tuning: which tokens are trained, that training does what it says, and what must
 * not change its bits. Most tests run the program as a user would, on a model that `init` makes:
 * the same bytes on every machine.
 */
#include "ares/train.h"
#include "sft.h"
#include "test.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char small[] =
    "--hidden 32 --layers 2 --heads 2 --kv-heads 1 --intermediate 64 --max-position 256";

/* A small random model in this test's folder. */
static const char *model_dir(void)
{
    const char *dir = test_file("model");
    if (!ares_dir_exists(dir))
        test_shell(NULL, "'%s' init --arch qwen2 %s --out '%s'", test_program(), small, dir);
    return dir;
}

static void write_text(const char *path, const char *text)
{
    CHECK_OK(ares_file_write(path, text, strlen(text)));
}

static const char *sums(void)
{
    return test_source("examples/data/sums/sft.jsonl");
}

/* ares-train sft with the usual options and more; the run's directory is test_file(name). */
static int sft(ares_str *out, const char *name, const char *rows, const char *more)
{
    return test_shell(
        out,
        "'%s' sft worker.actor.model.model_path='%s' 'data.train_files=%s' sft.batch_size=8 "
        "worker.actor.optim.lr=3e-3 trainer.run_dir='%s' trainer.max_steps=3 %s %s 2>&1",
        test_program(), model_dir(), rows, test_file(name), test_arithmetic_word(), more);
}

/* The metric of the row of a step; NaN when there is none. */
static double metric(const char *run, int64_t step, const char *name)
{
    ares_str text = { 0 }, path = { 0 };
    ares_arena arena = { 0 };
    double found = NAN;
    if (ares_file_read(ares_path_join(&path, test_file(run), "metrics.jsonl"), &text) == ARES_OK) {
        char *line = text.data;
        for (char *end; (end = strchr(line, '\n')); line = end + 1) {
            const ares_json *row, *v;
            int64_t at = -1;
            if (ares_json_parse(&arena, (ares_view){ line, (size_t)(end - line) }, "metrics",
                                &row) != ARES_OK)
                break;
            if (ares_json_get_i64(row, "step", -1, &at) != ARES_OK || at != step) continue;
            v = ares_json_get(row, name);
            if (v) found = v->number;
        }
    }
    ares_str_fini(&text);
    ares_str_fini(&path);
    ares_arena_fini(&arena);
    return found;
}

/* A file of the checkpoint of a step is the same in two runs. */
static bool same_file(const char *a, const char *b, int step, const char *file)
{
    return test_shell(NULL, "cmp '%s/checkpoints/step_%06d/%s' '%s/checkpoints/step_%06d/%s'",
                      test_file(a), step, file, test_file(b), step, file) == 0;
}

static void check_same_run(const char *a, const char *b, int step)
{
    CHECK(same_file(a, b, step, "model/model.safetensors"));
    CHECK(same_file(a, b, step, "optimizer.safetensors"));
}

/* ------------------------------------------------------------------ rows */
typedef struct rows_case {
    ares_train_config cfg;
    ares_tokenizer *tokenizer;
    ares_prompt_encoder *prompts;
    ares_model_config model;
    ares_dataset *data;
    sft_rows rows;
} rows_case;

static int encode_rows(rows_case *c, const char *tokenizer, const char *jsonl)
{
    static const char *files[1];
    files[0] = test_file("rows.jsonl");
    write_text(files[0], jsonl);
    c->cfg.sft =
        (ares_sft_config){ .batch_size = 1,
                           .max_length = c->cfg.sft.max_length ? c->cfg.sft.max_length : 200,
                           .truncation = c->cfg.sft.truncation ? c->cfg.sft.truncation : "drop",
                           .response_key = "response",
                           .messages_key = "messages" };
    c->cfg.data.prompt_key = "prompt";
    c->model = (ares_model_config){ .max_position = 256 };
    if (!c->tokenizer) {
        ARES_TRY(ares_tokenizer_load(tokenizer, &c->tokenizer));
        ARES_TRY(ares_prompt_encoder_new(&(ares_prompt_options){ .cfg = &c->cfg.data,
                                                                 .tokenizer = c->tokenizer,
                                                                 .model_dir = tokenizer },
                                         &c->prompts));
    }
    c->model.eos[c->model.n_eos++] = ares_tokenizer_role_id(c->tokenizer, ARES_TOKEN_EOS);
    const char *keys[3];
    sft_row_keys(&c->cfg, keys);
    ARES_TRY(ares_dataset_load_rows(&(ares_texts){ files, 1 }, keys, &c->data));
    sft_encoder e = { &c->cfg, c->prompts, c->tokenizer, &c->model };
    return sft_rows_encode(c->data, &e, NULL, &c->rows);
}

static void drop_rows(rows_case *c)
{
    sft_rows_fini(&c->rows);
    ares_dataset_free(c->data);
    ares_prompt_encoder_free(c->prompts);
    ares_tokenizer_free(c->tokenizer);
    *c = (rows_case){ 0 };
}

/* A row as text, what is trained in brackets. */
static const char *shown(const rows_case *c, int64_t i, ares_str *out)
{
    const sft_row *r = &c->rows.items[i];
    bool in = false;
    ares_str_clear(out);
    for (int32_t t = 0; t < r->n; t++) {
        if (in != r->trained[t]) ares_str_add_char(out, in ? ']' : '[');
        in = r->trained[t];
        ares_tokenizer_decode(c->tokenizer, r->ids + t, 1, false, out);
    }
    if (in) ares_str_add_char(out, ']');
    return out->data;
}

TEST(the_answer_and_its_end_are_trained_and_nothing_else)
{
    ares_str text = { 0 };
    rows_case c = { .cfg.data = { .apply_chat_template = true, .system_prompt = "s" } };
    CHECK_OK(encode_rows(
        &c, model_dir(),
        "{\"prompt\":\"1+1=?\",\"response\":\"2\"}\n"
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
        "\"bc\"},{\"role\":\"user\",\"content\":\"d\"},{\"role\":\"assistant\",\"content\":\"e\"},"
        "{\"role\":\"user\",\"content\":\"f\"}]}\n"
        "{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
        "\"r\"},{\"role\":\"user\",\"content\":\"s\"}],\"response\":\"t\"}\n"
        "{\"prompt\":\"1+2=?\",\"response\":\"3<|im_end|>u\"}\n"));
    REQUIRE(c.rows.count == 4);
    CHECK_STR(shown(&c, 0, &text), "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n1+1=?<|im_"
                                   "end|>\n<|im_start|>assistant\n[2<|im_end|>]");
    CHECK_EQ(c.rows.items[0].prompt, c.rows.items[0].n - 2);
    CHECK_STR(shown(&c, 1, &text),
              "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[bc<|im_end|>]\n<|im_start|>"
              "user\nd<|im_end|>\n<|im_start|>assistant\n[e<|im_end|>]");
    CHECK_STR(shown(&c, 2, &text),
              "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[r<|im_end|>]\n<|im_start|>"
              "user\ns<|im_end|>\n<|im_start|>assistant\n[t<|im_end|>]");
    CHECK_STR(shown(&c, 3, &text), /* of two ends, the last one ends the answer */
              "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n1+2=?<|im_end|>\n<|im_start|>"
              "assistant\n[3<|im_end|>u<|im_end|>]");
    drop_rows(&c);
    CHECK_OK(encode_rows(&c, model_dir(), "{\"prompt\":\"1+1=\",\"response\":\"2\"}\n"));
    REQUIRE(c.rows.count == 1);
    CHECK_STR(shown(&c, 0, &text), "1+1=[2<|im_end|>]");
    drop_rows(&c);
    ares_str_fini(&text);
}

/*
 * Sampling goes on with a prompt's last message where that is the assistant's, and so does the
 * response.
 */
TEST(a_response_goes_on_with_the_message_that_the_prompt_leaves_open)
{
    ares_str text = { 0 };
    rows_case c = { .cfg.data = { .apply_chat_template = true } };
    CHECK_OK(
        encode_rows(&c, model_dir(),
                    "{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
                    "\"content\":\"It is \"}],\"response\":\"5\"}\n"));
    REQUIRE(c.rows.count == 1);
    CHECK_STR(shown(&c, 0, &text),
              "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[It is 5<|im_end|>]");
    drop_rows(&c);
    c.cfg.data.apply_chat_template = true; /* drop_rows has cleared it */
    CHECK_FAIL(encode_rows(&c, model_dir(),
                           "{\"prompt\":[{\"role\":\"assistant\",\"content\":null}],"
                           "\"response\":\"5\"}\n"),
               ARES_EFORMAT,
               "rows.jsonl:1: the last message of 'prompt' is the assistant's and has no text");
    drop_rows(&c);
    ares_str_fini(&text);
}

/* TRL's completions, ShareGPT's conversations, and answers of weight 0. */
TEST(common_forms_of_conversations_are_read)
{
    static const struct {
        const char *row, *text;
    } cases[] = {
        { "{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
          "\"r\"},{\"role\":\"user\",\"content\":\"s\"}],"
          "\"response\":[{\"role\":\"assistant\",\"content\":\"t\"}]}",
          "user:q.assistant:r.user:s.assistant:[t]." },
        { "{\"prompt\":\"q\",\"response\":[{\"role\":\"assistant\",\"content\":\"t\"}]}",
          "user:q.assistant:[t]." },
        { "{\"messages\":[{\"from\":\"system\",\"value\":\"s\"},{\"from\":\"human\",\"value\":"
          "\"q\"},{\"from\":\"gpt\",\"value\":\"t\"},{\"from\":\"tool\",\"value\":\"5\"}]}",
          "system:s.user:q.assistant:[t]." },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0},{\"role\":"
          "\"assistant\",\"content\":\"b\",\"weight\":1},{\"role\":\"assistant\",\"content\":\"c\","
          "\"loss\":false},{\"role\":\"assistant\",\"content\":\"d\",\"loss\":1.0}]}",
          "assistant:a.assistant:[b].assistant:c.assistant:[d]." },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"q\",\"train\":false},{\"role\":"
          "\"assistant\",\"content\":\"a\",\"step_loss_mask\":0},{\"role\":\"assistant\","
          "\"content\":\"b\",\"train\":true},{\"role\":\"assistant\",\"content\":\"c\","
          "\"training\":false},{\"role\":\"assistant\",\"content\":\"d\",\"loss_mask\":1}]}",
          "user:q.assistant:a.assistant:[b].assistant:c.assistant:[d]." },
        { "{\"messages\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"t\"}],"
          "\"system\":\"s\"}",
          "system:s.user:q.assistant:[t]." },
        { "{\"messages\":null,\"prompt\":\"q\",\"response\":\"t\"}", "user:q.assistant:[t]." },
        { "{\"instruction\":\"i\",\"input\":\"\",\"output\":\"t\"}", "user:i.assistant:[t]." },
        { "{\"instruction\":\"i\",\"input\":\"j\",\"output\":\"t\"}", "user:i\nj.assistant:[t]." },
        { "{\"instruction\":\"i\",\"output\":\"t\",\"system\":\"s\",\"history\":[[\"a\",\"b\"]]}",
          "system:s.user:a.assistant:[b].user:i.assistant:[t]." },
        /* a role wins over `from`, null says nothing, and one 0 of several words is enough */
        { "{\"messages\":[{\"from\":\"human\",\"role\":\"user\",\"content\":\"q\",\"weight\":0},{"
          "\"from\":"
          "\"gpt\",\"value\":\"a\",\"weight\":null},{\"from\":\"observation\",\"value\":\"o\","
          "\"loss\":"
          "null},{\"from\":\"gpt\",\"value\":\"b\",\"weight\":1,\"loss\":0},{\"from\":\"gpt\","
          "\"value\":"
          "\"c\",\"weight\":1,\"loss\":true}]}",
          "user:q.assistant:[a].tool:o.assistant:b.assistant:[c]." },
        /* of a completion its own answers alone, and those that say so */
        { "{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"}],\"response\":[{\"role\":"
          "\"assistant\","
          "\"content\":\"t\",\"weight\":0},{\"role\":\"user\",\"content\":\"u\"},{\"role\":"
          "\"assistant\","
          "\"content\":\"v\"}]}",
          "user:q.assistant:t.user:u.assistant:[v]." },
        { "{\"prompt\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"r\"},{"
          "\"from\":"
          "\"human\",\"value\":\"s\"}],\"response\":[{\"from\":\"gpt\",\"value\":\"t\"}]}",
          "user:q.assistant:r.user:s.assistant:[t]." },
        /* messages win over a prompt and a response beside them */
        { "{\"prompt\":\"p\",\"response\":\"r\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}"
          ",{"
          "\"role\":\"assistant\",\"content\":\"t\"}]}",
          "user:q.assistant:[t]." },
    };
    const char *template = test_file("template.jinja");
    write_text(template, "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}"
                         "{% generation %}{{ m.content }}{% endgeneration %}{% else %}"
                         "{{ m.content }}{% endif %}.{% endfor %}");
    ares_str text = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        rows_case c = { .cfg.data = { .apply_chat_template = true,
                                      .override_chat_template = template } };
        if (CHECK_OK(encode_rows(&c, model_dir(), cases[i].row))) {
            ares_view whole = ares_view_of(cases[i].text), have = ares_view_of(shown(&c, 0, &text));
            CHECK_MSG(ares_view_starts(whole, have), "is '%s'", text.data);
            CHECK(have.len + 8 > whole.len); /* a row ends with its last answer */
        }
        drop_rows(&c);
    }
    ares_str_fini(&text);
}

/* A template that marks the last answer alone can train it, and cannot leave one of two out. */
TEST(a_template_must_mark_the_answers_that_weights_are_of)
{
    static const char *const rows[] = {
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\","
        "\"content\":"
        "\"b\"}]}\n",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0},{\"role\":"
        "\"assistant\",\"content\":\"b\"}]}\n",
    };
    const char *template = test_file("template.jinja");
    write_text(template, "{% for m in messages %}{% if loop.last %}{% generation %}{{ m.content }}"
                         "{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}");
    ares_str text = { 0 };
    for (int i = 0; i < 2; i++) {
        rows_case c = { .cfg.data = { .apply_chat_template = true,
                                      .override_chat_template = template } };
        int rc = encode_rows(&c, model_dir(), rows[i]);
        if (i)
            CHECK_FAIL(rc, ARES_EUNSUPPORTED,
                       "rows.jsonl:1: some of its 2 answers are not learnt from, and the chat "
                       "template marks 1");
        else if (CHECK_OK(rc)) CHECK_STR(shown(&c, 0, &text), "a;[b]");
        drop_rows(&c);
    }
    ares_str_fini(&text);
}

TEST(a_generation_block_that_closes_early_still_trains_the_end)
{
    const char *template = test_file("template.jinja");
    write_text(template, "{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.role == "
                         "'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else "
                         "%}{{ m.content }}{% endif %}<|im_end|>\n"
                         "{% endfor %}");
    ares_str text = { 0 };
    rows_case c = { .cfg.data = { .apply_chat_template = true,
                                  .override_chat_template = template } };
    CHECK_OK(encode_rows(&c, model_dir(), "{\"prompt\":\"a\",\"response\":\"bc\"}\n"));
    REQUIRE(c.rows.count == 1);
    CHECK_STR(shown(&c, 0, &text),
              "<|im_start|>user:a<|im_end|>\n<|im_start|>assistant:[bc<|im_end|>]");
    drop_rows(&c);
    ares_str_fini(&text);
}

TEST(a_template_sees_the_tools_and_documents_of_a_row)
{
    const char *template = test_file("template.jinja");
    write_text(template, "{% for t in tools %}{{ t.name }};{% endfor %}{% for d in documents %}"
                         "{{ d.text }};{% endfor %}{% for m in messages %}{% if m.role == "
                         "'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else "
                         "%}{{ m.content }}{% endif %}{% endfor %}");
    ares_str text = { 0 };
    rows_case c = { .cfg.data = { .apply_chat_template = true,
                                  .override_chat_template = template } };
    CHECK_OK(encode_rows(&c, model_dir(),
                         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
                         "\"assistant\",\"content\":\"b\"}],\"tools\":[{\"name\":\"add\"},"
                         "{\"name\":\"sub\"}],\"documents\":[{\"text\":\"page\"}]}\n"));
    REQUIRE(c.rows.count == 1);
    CHECK_STR(shown(&c, 0, &text), "add;sub;page;a[b]");
    drop_rows(&c);
    ares_str_fini(&text);
}

/* A real vocabulary joins letters across the place where the prompt ends; sampling never would. */
TEST(the_prompt_of_a_row_is_what_sampling_starts_from)
{
    const char *template = test_file("template.jinja"),
               *dir = test_source("tests/golden/tokenizer/qwen2");
    write_text(template, "{% for m in messages %}{{ m.content }}{% endfor %}");
    rows_case c = { .cfg.data = { .apply_chat_template = true,
                                  .override_chat_template = template } };
    CHECK_OK(encode_rows(&c, dir, "{\"prompt\":\"Is this t\",\"response\":\"he end?\"}\n"));
    REQUIRE(c.rows.count == 1);
    ares_ids prompt = { 0 }, whole = { 0 };
    CHECK_OK(ares_tokenizer_encode(c.tokenizer, ARES_VIEW("Is this t"), false, &prompt));
    CHECK_OK(ares_tokenizer_encode(c.tokenizer, ARES_VIEW("Is this the end?"), false, &whole));
    /* else this test shows nothing */
    CHECK(memcmp(prompt.ids, whole.ids, (size_t)prompt.n * sizeof(int32_t)) != 0);
    CHECK_EQ(c.rows.items[0].prompt, prompt.n);
    CHECK_MEM(c.rows.items[0].ids, prompt.ids, prompt.n * sizeof(int32_t));
    ares_ids_fini(&prompt);
    ares_ids_fini(&whole);
    drop_rows(&c);
}

TEST(long_rows_are_dropped_cut_or_refused)
{
    static const char rows[] =
        "{\"prompt\":\"12\",\"response\":\"34567\"}\n{\"prompt\":\"1\",\"response\":\"2\"}\n{"
        "\"prompt\":\"1234567890\",\"response\":\"2\"}\n";
    ares_str text = { 0 };
    rows_case c = { .cfg.sft = { .max_length = 5, .truncation = "drop" } };
    CHECK_OK(encode_rows(&c, model_dir(), rows));
    REQUIRE(c.rows.count == 1);
    CHECK_EQ(c.rows.dropped, 2);
    CHECK_EQ(ares_dataset_count(c.data), 1); /* ids of its source are those of its items */
    CHECK(c.rows.items[0].row == ares_dataset_row(c.data, 0));
    CHECK_EQ(c.rows.items[0].row->id, 0);
    CHECK_EQ(c.rows.items[0].row->line, 2);
    drop_rows(&c);
    c.cfg.sft = (ares_sft_config){ .max_length = 5, .truncation = "cut" };
    CHECK_OK(encode_rows(&c, model_dir(), rows));
    REQUIRE(c.rows.count == 2);
    CHECK_STR(shown(&c, 0, &text), "12[345]");
    CHECK_EQ(c.rows.cut, 1);
    CHECK_EQ(c.rows.dropped, 1);
    drop_rows(&c);
    c.cfg.sft = (ares_sft_config){ .max_length = 5, .truncation = "error" };
    CHECK_FAIL(encode_rows(&c, model_dir(), rows), ARES_ELIMIT,
               "rows.jsonl:1: row of 8 tokens exceeds sft.max_length = 5");
    drop_rows(&c);
    c.cfg.sft = (ares_sft_config){ .max_length = 2, .truncation = "drop" };
    CHECK_FAIL(encode_rows(&c, model_dir(), rows), ARES_ELIMIT,
               "all 3 rows are longer than sft.max_length = 2 (the longest has 12 tokens)");
    drop_rows(&c);
    ares_str_fini(&text);
}

TEST(a_run_says_how_many_rows_it_has_dropped_or_cut)
{
    static const struct {
        const char *options, *said;
    } cases[] = {
        { "sft.max_length=5", "data: 1 of 3 rows dropped: longer than sft.max_length = 5" },
        { "sft.max_length=5 sft.truncation=cut", "data: 1 of 3 rows cut to sft.max_length = 5 " },
        { "", NULL }
    };
    const char *rows = test_file("rows.jsonl");
    write_text(rows, "{\"prompt\":\"12\",\"response\":\"34567\"}\n"
                     "{\"prompt\":\"1\",\"response\":\"2\"}\n"
                     "{\"prompt\":\"2\",\"response\":\"3\"}\n");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        char run[32], words[200];
        snprintf(run, sizeof run, "run%d", i);
        snprintf(words, sizeof words,
                 "sft.batch_size=2 trainer.max_steps=0 data.apply_chat_template=false %s",
                 cases[i].options);
        CHECK_EQ(sft(&out, run, rows, words), 0);
        if (cases[i].said) CHECK_CONTAINS(out.data, cases[i].said);
        CHECK_EQ(strstr(out.data, " rows dropped") != NULL, i == 0);
        CHECK_EQ(strstr(out.data, " rows cut") != NULL, i == 1);
        ares_str_fini(&out);
    }
}

TEST(a_bad_row_is_named)
{
    static const struct {
        const char *rows, *message;
        bool chat;
    } cases[] = {
        { "{\"prompt\":\"1\",\"response\":\"2\"}\n{\"prompt\":\"1\",\"answer\":\"2\"}\n",
          "rows.jsonl:2: row has neither 'messages' nor 'prompt' and 'response' (keys: prompt, "
          "answer)",
          true },
        { "{\"prompt\":\"1\",\"response\":2}\n",
          "rows.jsonl:1: 'response' is neither a string nor a list of messages", true },
        { "{\"prompt\":1,\"response\":\"2\"}\n",
          "rows.jsonl:1: 'prompt' is neither a string nor a list of messages", true },
        { "[1]\n", "rows.jsonl:1: row is not a JSON object", true },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n",
          "rows.jsonl:1: no message of the assistant", true },
        { "{\"messages\":{}}\n", "rows.jsonl:1: 'messages' is no list of messages", true },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}]}\n",
          "rows.jsonl:1: a list of messages needs a chat template", false },
        { "", "rows.jsonl: no rows", false },
        { "{\"messages\":[{\"speaker\":\"user\",\"content\":\"a\"}]}\n",
          "rows.jsonl:1: 'messages'[0] is not a message: it has no string 'role' (keys: speaker, "
          "content)",
          true },
        { "{\"messages\":[{\"from\":\"alien\",\"value\":\"a\"}]}\n",
          "rows.jsonl:1: 'messages'[0]: from = 'alien' is no role", true },
        { "{\"messages\":[{\"from\":\"human\",\"text\":\"a\"}]}\n", "has no 'value'", true },
        { "{\"messages\":[{\"from\":\"system\",\"value\":\"a\"}],\"system\":\"b\"}\n",
          "rows.jsonl:1: the row has 'system', and 'messages' begins with a message of the system",
          true },
        { "{\"instruction\":\"i\",\"output\":\"t\",\"history\":[\"a\"]}\n",
          "rows.jsonl:1: 'history'[0] is not what Alpaca's rows have there", true },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0.5}]}\n",
          "rows.jsonl:1: message 0: 'weight' is neither 0 nor 1", true },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"loss\":false}]}\n",
          "rows.jsonl:1: no answer is learnt from", true },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"q\",\"loss\":1},{\"role\":"
          "\"assistant\",\"content\":\"a\"}]}\n",
          "rows.jsonl:1: message 0 is to be learnt from and is not of the assistant", true },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":\"1\"}]}\n",
          "rows.jsonl:1: message 0: 'weight' is neither 0 nor 1", true },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"train\":2}]}\n",
          "rows.jsonl:1: message 0: 'train' is neither 0 nor 1", true },
        { "{\"messages\":[{\"role\":\"system\",\"content\":\"q\",\"weight\":0},{\"role\":\"user\","
          "\"content\":\"q\",\"weight\":true},{\"role\":\"assistant\",\"content\":\"a\"}]}\n",
          "rows.jsonl:1: message 1 is to be learnt from", true },
        { "{\"messages\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"bot\",\"value\":\"a\"}]}"
          "\n",
          "rows.jsonl:1: 'messages'[1]: from = 'bot' is no role; write human, gpt", true },
        { "{\"messages\":\"a\"}\n", "rows.jsonl:1: 'messages' is no list of messages", true },
        { "{\"prompt\":[{\"from\":\"alien\",\"value\":\"a\"}],\"response\":\"b\"}\n",
          "rows.jsonl:1: 'prompt'[0]: from = 'alien' is no role", true },
        { "{\"prompt\":\"a\",\"response\":[{\"from\":\"alien\",\"value\":\"a\"}]}\n",
          "rows.jsonl:1: 'response'[0]: from = 'alien' is no role", true },
        { "{\"prompt\":[{\"role\":\"user\",\"content\":\"a\"}],\"response\":\"b\"}\n",
          "rows.jsonl:1: a list of messages needs a chat template", false },
        { "{\"prompt\":\"a\",\"response\":[{\"role\":\"assistant\",\"content\":\"b\"}]}\n",
          "rows.jsonl:1: a list of messages needs a chat template", false },
        { "{\"prompt\":\"a\"}\n", "rows.jsonl:1: row has neither 'messages' nor", true },
        { "{\"response\":\"a\"}\n", "rows.jsonl:1: row has neither 'messages' nor", false },
        { "{\"prompt\":\"a\",\"response\":null}\n", "rows.jsonl:1: ", true },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        rows_case c = { .cfg.data.apply_chat_template = cases[i].chat };
        int rc = encode_rows(&c, model_dir(), cases[i].rows);
        CHECK(rc != ARES_OK);
        CHECK_CONTAINS(ares_error_message(), cases[i].message);
        drop_rows(&c);
    }
}

/* ------------------------------------------------------------------ training */
/*
 * A conversation of several turns, and one step on it; what transformers 5.17 and PyTorch 2.11 make
 * of the same model and tokens in float64, with labels -100 on everything but the answers. Training
 * the given tokens too gives other numbers (loss 6.2144, norm 1.7013).
 */
TEST(loss_and_gradient_of_a_conversation_are_those_of_transformers)
{
    ares_str out = { 0 };
    const char *rows = test_file("talk.jsonl");
    write_text(rows, "{\"messages\":[{\"role\":\"user\",\"content\":\"a "
                     "b\"},{\"role\":\"assistant\",\"content\":\"cde\"},{\"role\":\"user\","
                     "\"content\":\"fg\"},{\"role\":\"assistant\",\"content\":\"hi\"}]}\n"
                     "{\"prompt\":\"1+1=?\",\"response\":\"2\"}\n");
    if (!CHECK_EQ(sft(&out, "run", rows, "sft.batch_size=2 trainer.max_steps=1"), 0))
        puts(out.data);
    CHECK_EQ(metric("run", 1, "train/tokens"), 9);
    CHECK_NEAR(metric("run", 1, "train/loss"), 6.166661490, 1e-6);
    CHECK_NEAR(metric("run", 1, "actor/grad_norm"), 3.053994585, 1e-6);
    ares_str_fini(&out);
}

TEST(loss_falls_and_with_lr_0_it_does_not)
{
    ares_str out = { 0 };
    char val[512];
    snprintf(val, sizeof val, "'data.val_files=%s' trainer.max_steps=30 trainer.val_freq=15",
             test_source("examples/data/sums/val.jsonl"));
    CHECK_EQ(sft(&out, "run", sums(), val), 0);
    double before = metric("run", 0, "val/loss"), after = metric("run", 30, "val/loss");
    CHECK_NEAR(before, 6.24, 0.05); /* log 512: nothing is known yet */
    CHECK_NEAR(log(metric("run", 0, "val/perplexity")), before, 1e-9);
    CHECK_MSG(after < before - 2 && metric("run", 15, "val/loss") < before - 0.5, "%g -> %g",
              before, after);
    CHECK(metric("run", 30, "train/loss") < metric("run", 1, "train/loss") - 2);
    CHECK_CONTAINS(out.data, "val/loss");
    snprintf(val + strlen(val), sizeof val - strlen(val), " worker.actor.optim.lr=0");
    CHECK_EQ(sft(&out, "still", sums(), val), 0);
    CHECK_EQ(metric("still", 30, "val/loss") == before, true);
    CHECK_EQ(metric("still", 1, "train/loss") == metric("run", 1, "train/loss"), true);
    ares_str_fini(&out);
}

/* Seen to fail with the token count of the micro-batch in place of the step's. */
TEST_BITS(micro_batches_threads_and_recomputation_change_no_bit)
{
    static const char *const others[] = {
        "worker.actor.max_token_len_per_device=1",
        "worker.actor.max_token_len_per_device=150 trainer.threads=2",
        "worker.actor.model.enable_gradient_checkpointing=true trainer.threads=1"
    };
    ares_str out = { 0 };
    CHECK_EQ(sft(&out, "run", sums(), ""), 0);
    for (int i = 0; i < ARES_COUNT(others); i++) {
        char name[32];
        snprintf(name, sizeof name, "other%d", i);
        CHECK_EQ(sft(&out, name, sums(), others[i]), 0);
        check_same_run("run", name, 3);
        CHECK_EQ(metric("run", 3, "train/loss") == metric(name, 3, "train/loss"), true);
    }
    ares_str_fini(&out);
}

/*
 * Seen to fail with the optimizer's step count not restored, and with the order of rows starting
 * over.
 */
TEST(interrupted_and_resumed_is_uninterrupted_bit_for_bit)
{
    enum { STEPS = 150 };
    ares_str out = { 0 };
    char steps[128], path[512];
    snprintf(steps, sizeof steps,
             "trainer.max_steps=%d worker.actor.optim.lr_scheduler_type=cosine", STEPS);
    CHECK_EQ(sft(&out, "whole", sums(), steps), 0);
    const char *argv[] = { test_program(),
                           "sft",
                           NULL,
                           NULL,
                           "sft.batch_size=8",
                           "worker.actor.optim.lr=3e-3",
                           NULL,
                           NULL,
                           "worker.actor.optim.lr_scheduler_type=cosine",
                           NULL };
    char words[4][512];
    snprintf(words[0], sizeof words[0], "worker.actor.model.model_path=%s", model_dir());
    snprintf(words[1], sizeof words[1], "data.train_files=%s", sums());
    snprintf(words[2], sizeof words[2], "trainer.run_dir=%s", test_file("halves"));
    snprintf(words[3], sizeof words[3], "trainer.max_steps=%d", STEPS);
    argv[2] = words[0];
    argv[3] = words[1];
    argv[6] = words[2];
    argv[7] = words[3];
    snprintf(path, sizeof path, "%s/metrics.jsonl", test_file("halves"));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(9);
        execv(argv[0], (char *const *)argv);
        _exit(9);
    }
    for (int i = 0; i < 6000 && isnan(metric("halves", 3, "train/loss")); i++) usleep(10000);
    kill(pid, SIGINT);
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 130);
    CHECK_EQ(isnan(metric("halves", STEPS, "train/loss")), true); /* it was stopped on the way */
    CHECK_EQ(sft(&out, "halves", sums(), steps), 0);
    CHECK_CONTAINS(out.data, "going on from");
    check_same_run("whole", "halves", STEPS);
    for (int s = 1; s <= STEPS; s++)
        if (!CHECK_EQ(metric("whole", s, "train/loss") == metric("halves", s, "train/loss"), true))
            break;
    CHECK(sft(&out, "halves", sums(), steps) != 0); /* done: refused */
    CHECK_CONTAINS(out.data, "is finished");
    ares_str_fini(&out);
}

TEST(another_option_is_another_run)
{
    ares_str out = { 0 };
    CHECK_EQ(sft(&out, "run", sums(), ""), 0);
    CHECK_EQ(test_shell(&out, "rm '%s/DONE'", test_file("run")), 0);
    ares_str_clear(&out);
    CHECK_EQ(sft(&out, "run", sums(), "sft.max_length=99") != 0, true);
    CHECK_CONTAINS(out.data, "holds a run with other options (sft.max_length: ");
    CHECK_CONTAINS(out.data, ", now 99); ");
    ares_str_fini(&out);
}

TEST(bad_options_are_named_at_once)
{
    ares_str out = { 0 };
    CHECK_EQ(sft(&out, "run", "[]", "sft.truncation=trim trainer.val_freq=2 trainer.device=tpu"),
             2);
    CHECK_CONTAINS(out.data, "data.train_files");
    CHECK_CONTAINS(out.data, "sft.truncation");
    CHECK_CONTAINS(out.data, "data.val_files");
    CHECK_CONTAINS(out.data, "trainer.device");
    ares_str_clear(&out);
    CHECK_EQ(sft(&out, "run", sums(), "sft.batch_size=4000") != 0, true);
    CHECK_CONTAINS(out.data, "3000 rows are fewer than sft.batch_size = 4000");
    ares_str_fini(&out);
}

TEST_MPI(two_ranks_come_close_to_one)
{
    ares_str out = { 0 };
    char words[600];
    /* 65 rows on one rank, which asks twice; none is left for the other's second time */
    CHECK_EQ(test_shell(NULL, "head -129 '%s' > '%s'", sums(), test_file("val.jsonl")), 0);
    snprintf(words, sizeof words, "--ranks 2 'data.val_files=[%s]' trainer.val_freq=3",
             test_file("val.jsonl"));
    CHECK_EQ(sft(&out, "one", sums(), words + strlen("--ranks 2")), 0);
    if (sft(&out, "two", sums(), words) != 0) {
        if (strstr(out.data, "this build has no MPI")) SKIP("built without MPI");
        CHECK_MSG(false, "%s", out.data);
    }
    CHECK_EQ(metric("one", 1, "train/tokens"), metric("two", 1, "train/tokens"));
    for (int s = 0; s <= 3; s += 3)
        CHECK_NEAR(metric("two", s, "val/loss"), metric("one", s, "val/loss"), 1e-6);
    for (int s = 1; s <= 3; s++) {
        double one = metric("one", s, "actor/grad_norm");
        CHECK_NEAR(metric("two", s, "train/loss"), metric("one", s, "train/loss"), 1e-6);
        CHECK_NEAR(metric("two", s, "actor/grad_norm"), one, 1e-5 * one);
    }
    ares_str_fini(&out);
}

/* ------------------------------------------------------------------ init */
TEST(init_makes_the_same_model_from_the_same_seed)
{
    static const char *const archs[] = { "qwen2", "qwen3 --untied",
                                         "llama --dtype bf16 --kv-heads 2 --rope-theta 500000" };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(archs); i++) {
        for (int k = 0; k < 3; k++)
            CHECK_EQ(test_shell(&out, "'%s' init %s --arch %s --seed %d --out '%s%d%d'",
                                test_program(), small, archs[i], k / 2 + 1, test_file("m"), i, k),
                     0);
        CHECK_EQ(test_shell(NULL, "cmp '%s%d0/model.safetensors' '%s%d1/model.safetensors'",
                            test_file("m"), i, test_file("m"), i),
                 0);
        CHECK(test_shell(NULL, "cmp -s '%s%d0/model.safetensors' '%s%d2/model.safetensors'",
                         test_file("m"), i, test_file("m"), i) != 0);
        ares_str_clear(&out);
        CHECK_EQ(test_shell(&out, "echo '{\"text\":\"ab\\u00e9\"}' | '%s' score --model '%s%d0'",
                            test_program(), test_file("m"), i),
                 0);
        CHECK_CONTAINS(out.data, "{\"log_probs\":[-6.");
    }
    ares_str_fini(&out);
}

TEST(init_writes_over_nothing_and_names_what_is_wrong)
{
    static const struct {
        const char *words, *message;
    } cases[] = {
        { "--arch qwen2 --out DIR", "the directory is not empty" },
        { "--arch gpt --out NEW", "model_type = 'gpt': this architecture is not built" },
        { "--out NEW", "--arch is missing" },
        { "--arch llama --out NEW --vocab 100", "the tokenizer has ids up to 258" },
        { "--arch llama --out NEW --heads 3", "--hidden = 128 is no multiple of --heads = 3" },
        { "--arch llama --out NEW --kv-heads 3", "--heads = 4 is no multiple of --kv-heads = 3" },
        { "--arch llama --out NEW --layers 0", "--layers = 0: out of range" },
        { "--arch llama --out NEW --dtype fp16", "--dtype = 'fp16': unknown" },
        { "--arch llama --out NEW --tokenizer nowhere",
          "--tokenizer = 'nowhere': no such directory" },
        { "--arch llama --out NEW --tied --untied", "exclude each other" },
        { "--arch llama --out NEW --hiden 3", "did you mean '--hidden'?" },
    };
    ares_str out = { 0 };
    const char *dir = model_dir();
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&out);
        int code = test_shell(&out,
                              "D='%s' N='%s'; set -- %s; for w; do shift; case $w in DIR) w=$D;; "
                              "NEW) w=$N;; esac; set -- \"$@\" \"$w\"; done; '%s' init \"$@\" 2>&1",
                              dir, test_file("new"), cases[i].words, test_program());
        CHECK(code == 1 || code == 2);
        CHECK_CONTAINS(out.data, cases[i].message);
        CHECK(!ares_dir_exists(test_file("new")) && !ares_dir_exists(test_file("new.partial")));
    }
    ares_str_fini(&out);
}
