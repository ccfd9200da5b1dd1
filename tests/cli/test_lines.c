/* The verbs that read lines and write lines, run as users run them. */
#include "test.h"

#include <stdio.h>

#define TOKENIZER "tests/golden/tokenizer/smollm2_style"

/*
 * Runs ares-train with these words on this standard input; checks exit code and stdout. stderr is
 * checked by its own tests.
 */
static void check_lines(const char *words, const char *input, int code, const char *expected)
{
    ares_str out = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    CHECK_OK(ares_file_write(test_file("in"), input, strlen(input)));
    int rc = test_shell(&out, "'%s' %s < '%s' 2>/dev/null", test_program(), words, test_file("in"));
    CHECK_MSG(rc == code, "%s: exit code %d, expected %d", words, rc, code);
    CHECK_STR(out.data ? out.data : "", expected);
    ares_str_fini(&out);
}

static void check_message(const char *words, int code, const char *message)
{
    ares_str out = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    int rc = test_shell(&out, "'%s' %s </dev/null 2>&1 >/dev/null", test_program(), words);
    CHECK_MSG(rc == code, "%s: exit code %d, expected %d", words, rc, code);
    CHECK_CONTAINS(out.data ? out.data : "", message);
    ares_str_fini(&out);
}

static const char *with_tokenizer(const char *verb, const char *more)
{
    static char words[1024];
    snprintf(words, sizeof words, "%s --model '%s' %s", verb, test_source(TOKENIZER), more);
    return words;
}

TEST(grade_answers_every_line_in_its_place)
{
    check_lines("grade --verifier number",
                "{\"response\":\"7 + 5 = "
                "12\",\"ground_truth\":\"12\"}\n{\"response\":\"13\",\"ground_truth\":12}\n{"
                "\"response\":\"none\",\"ground_truth\":\"#### 1,000\"}",
                0,
                "{\"score\":1.0,\"extracted\":\"12\"}\n{\"score\":0.0,\"extracted\":\"13\"}\n{"
                "\"score\":0.0}\n");
    check_lines("grade --verifier boxed",
                "{\"response\":\"\\\\boxed{x+1}\",\"ground_truth\":\"x + 1\"}\n", 0,
                "{\"score\":1.0,\"extracted\":\"x+1\"}\n");
    check_lines("grade --verifier exact ignore_case=true",
                "{\"response\":\"PARIS\",\"ground_truth\":\"Paris\"}\n", 0, "{\"score\":1.0}\n");
    check_lines("grade --verifier format 'pattern=[a-z]+'",
                "{\"response\":\"abc\"}\n{\"response\":\"abc1\"}\n{\"response\":\"abc\","
                "\"finished\":false}\n",
                0, "{\"score\":1.0}\n{\"score\":0.0}\n{\"score\":0.0}\n");
    /* what one line says holds for no other */
    check_lines("grade --verifier format 'pattern=[a-z]+'",
                "{\"response\":\"a\",\"finished\":false}\n{\"response\":\"b\",\"finished\":true}\n{"
                "\"response\":\"c\"}\n",
                0, "{\"score\":0.0}\n{\"score\":1.0}\n{\"score\":1.0}\n");
    check_lines("grade --verifier length safe_length=4 max_length=8 len_reward_penalty=1",
                "{\"response\":\"x\",\"response_tokens\":4,\"response_length\":8}\n"
                "{\"response\":\"x\",\"response_length\":8,\"output_ids\":[1,2,3,4,5]}\n"
                "{\"response\":\"x\",\"response_length\":6,\"output_ids\":null}\n"
                "{\"response\":\"x\",\"response_length\":3}\n",
                0, "{\"score\":-1.0}\n{\"score\":-0.25}\n{\"score\":-0.5}\n{\"score\":0.0}\n");
    check_lines("grade --verifier number", "", 0, "");
}

TEST(grade_continues_after_a_bad_line)
{
    check_lines("grade --verifier number",
                "{\"response\":\"1\",\"ground_truth\":\"1\"}\nnonsense\n{\"ground_truth\":\"1\"}\n{"
                "\"response\":\"1\"}\n{\"response\":\"1\",\"ground_truth\":\"1\"}\n",
                1,
                "{\"score\":1.0,\"extracted\":\"1\"}\n{\"error\":\"line 2:1:1: not JSON: 'n' where "
                "a value should be\"}\n{\"error\":\"grade: the line has no 'response'\"}\n"
                "{\"score\":0.0,\"error\":\"reward: number: ground truth '' holds no "
                "number\"}\n{\"score\":1.0,\"extracted\":\"1\"}\n");
}

TEST(grade_dispatches_by_row)
{
    check_lines("grade --verifier auto",
                "{\"response\":\"it is "
                "5\",\"ground_truth\":5,\"rm_type\":\"number\"}\n{\"response\":\"\\\\boxed{it is "
                "5}\",\"ground_truth\":\"5\",\"metadata\":{\"rm_type\":\"boxed_number\"}}\n",
                0,
                "{\"score\":1.0,\"judged_by\":\"number\",\"extracted\":\"5\"}\n{\"score\":1.0,"
                "\"judged_by\":\"boxed_number\",\"extracted\":\"5\"}\n");
    check_lines("grade --verifier auto rm_type=exact 'types.exact={ignore_case: true}'",
                "{\"response\":\"A\",\"ground_truth\":\"a\"}\n", 0,
                "{\"score\":1.0,\"judged_by\":\"exact\"}\n");
    check_lines("grade --verifier auto",
                "{\"response\":\"5\",\"ground_truth\":\"5\",\"rm_type\":\"nubmer\"}\n{\"response\":"
                "\"5\",\"ground_truth\":\"\",\"rm_type\":\"number\"}\n",
                1,
                "{\"error\":\"reward: auto: rm_type = 'nubmer': no such verifier; did you mean "
                "'number'?\"}\n"
                "{\"score\":0.0,\"judged_by\":\"number\",\"error\":\"reward: number: ground truth "
                "'' holds no number\"}\n");
    check_message("grade --verifier auto rm_type=nubmer", 2, "no such verifier");
    check_message("grade --verifier boxed_nubmer", 2, "did you mean 'number'?");
}

TEST(grade_knows_the_length_and_the_tokens_of_a_response)
{
    check_lines("grade --verifier length safe_length=4 max_length=8 len_reward_penalty=1",
                "{\"response\":\"x\",\"response_length\":6}\n{\"response\":\"x\",\"response_"
                "tokens\":4}\n{\"response\":\"x\",\"output_ids\":[1,2,3,4,5,6,7]}\n",
                0, "{\"score\":-0.5}\n{\"score\":0.0}\n{\"score\":-0.75}\n");
    check_lines("grade --verifier repetition",
                "{\"response\":\"x\",\"output_ids\":[1,1,1,1]}\n{\"response\":\"x\",\"output_ids\":"
                "[1,-1]}\n{\"response\":\"x\",\"output_ids\":5}\n",
                1,
                "{\"score\":-0.5}\n{\"error\":\"grade: output_ids[1]: not a token "
                "id\"}\n{\"error\":\"grade: no list 'output_ids'\"}\n");
    check_lines("grade --verifier length", "{\"response\":\"x\"}\n", 1,
                "{\"score\":0.0,\"error\":\"reward: length: the response's number of tokens is not "
                "known (in lines: 'response_length' or 'output_ids')\"}\n");
}

/* What a line may have, and what stands for what is absent, null or of another type. */
TEST(grade_reads_every_form_of_a_line)
{
    static const struct {
        const char *words, *line, *answer;
    } cases[] = {
        /* none, and null, are no ground truth; an empty one is one that nothing meets */
        { "math", "{\"response\":\"\\\\boxed{5}\"}",
          "{\"score\":0.0,\"error\":\"reward: math: the row has no ground truth\"}" },
        { "gsm8k", "{\"response\":\"#### 5\",\"ground_truth\":null}",
          "{\"score\":0.0,\"error\":\"reward: gsm8k: the row has no ground truth\"}" },
        { "gsm8k", "{\"response\":\"#### 5\",\"ground_truth\":\"\"}",
          "{\"score\":0.0,\"extracted\":\"5\",\"decided_by\":\"no\"}" },
        { "exact", "{\"response\":null,\"ground_truth\":\"\"}", "{\"score\":1.0}" },
        { "exact", "{\"response\":7,\"ground_truth\":7.0}", "{\"score\":0.0}" },
        { "exact", "{\"response\":\"[1]\",\"ground_truth\":[1]}",
          "{\"error\":\"reward: exact: the ground truth [1] is a list or an object, and this "
          "verifier "
          "compares a text; name the answer inside it by a path, as in data.answer_key=KEY.KEY or "
          "KEY[0]\"}" },
        { "exact", "{\"response\":\"{}\",\"ground_truth\":{}}",
          "{\"error\":\"reward: exact: the ground truth {} is a list or an object, and this "
          "verifier "
          "compares a text; name the answer inside it by a path, as in data.answer_key=KEY.KEY or "
          "KEY[0]\"}" },
        { "exact", "{\"response\":\"[1]\",\"ground_truth\":\"[1]\"}", "{\"score\":1.0}" },
        { "exact", "{\"response\":\"a\",\"ground_truth\":\"a\",\"finished\":0}",
          "{\"error\":\"key 'finished' is an integer, not true or false\"}" },
        { "length safe_length=4 max_length=8 len_reward_penalty=1",
          "{\"response\":\"x\",\"response_tokens\":\"4\"}",
          "{\"error\":\"key 'response_tokens' is a string, not an integer of 64 bits\"}" },
        { "length safe_length=4 max_length=8 len_reward_penalty=1",
          "{\"response\":\"x\",\"response_tokens\":4,\"response_length\":6.5}",
          "{\"error\":\"key 'response_length' is a number, not an integer of 64 bits\"}" },
        { "length safe_length=4 max_length=8 len_reward_penalty=1",
          "{\"response\":\"x\",\"response_tokens\":6}", "{\"score\":-0.5}" },
    };
    ares_str out = { 0 };
    char words[200];
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        snprintf(words, sizeof words, "grade --verifier %s", cases[i].words);
        ares_str_clear(&out);
        ares_str_addf(&out, "%s\n", cases[i].answer);
        check_lines(words, cases[i].line, strstr(cases[i].answer, "\"error\"") != NULL, out.data);
    }
    ares_str_fini(&out);
}

/* The truth of a row of data, and what of a line a reward of one's own is told. */
TEST(grade_finds_the_truth_of_a_row_for_a_reward_of_ones_own)
{
    static const char judge[] =
        "import json, sys\n"
        "for l in sys.stdin:\n"
        "    x = json.loads(l)\n"
        "    print(json.dumps({'score': 1, 'told': [x['response'], x['ground_truth'], x['prompt'],"
        " x.get('row'), x.get('finished')]}), flush=True)\n";
    static const struct {
        const char *line, *told;
    } cases[] = {
        { "{\"ground_truth\":\"g\",\"answer\":\"a\"}",
          "[\"g\",\"g\",\"\",{\"ground_truth\":\"g\",\"answer\":\"a\"}" },
        { "{\"ground_truth\":\"\",\"answer\":\"a\",\"reward_model\":{\"ground_truth\":\"m\"}}",
          "[\"a\",\"a\"," },
        { "{\"answer\":null,\"reward_model\":{\"ground_truth\":\"m\"},\"response\":\"r\"}",
          "[\"r\",\"m\"," },
        { "{\"reward_model\":\"m\",\"response\":\"r\"}", "[\"r\",\"\"," },
        { "{\"row\":{\"k\":1},\"answer\":\"a\",\"response\":\"\",\"prompt\":\"p\"}",
          "[\"\",\"a\",\"p\",{\"k\":1}" },
        { "{\"row\":3,\"answer\":\"a\",\"prompt\":[1]}", "[\"a\",\"a\",\"[1]\",{\"row\":3," },
    };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str input = { 0 }, out = { 0 };
    CHECK_OK(ares_file_write(test_file("judge.py"), judge, sizeof judge - 1));
    for (int i = 0; i < ARES_COUNT(cases); i++) ares_str_addf(&input, "%s\n", cases[i].line);
    CHECK_OK(ares_file_write(test_file("in"), input.data, input.len));
    CHECK_EQ(test_shell(&out, "'%s' grade --command \"python3 '%s'\" < '%s' 2>&1", test_program(),
                        test_file("judge.py"), test_file("in")),
             0);
    char *at = out.data;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char *end = at ? strchr(at, '\n') : NULL;
        if (!CHECK(end != NULL)) break;
        *end = 0;
        const char *told = strstr(at, "\"told\":");
        if (CHECK(told)) CHECK_CONTAINS(told, cases[i].told);
        at = end + 1;
    }
    static const struct {
        const char *line, *why;
    } bad[] = {
        { "{\"answer\":\"a\",\"finished\":7}", "key 'finished' is an integer, not true or false" },
        { "{\"answer\":\"a\",\"output_ids\":[-1]}", "grade: output_ids[0]: not a token id" },
    };
    for (int i = 0; i < ARES_COUNT(bad); i++) {
        CHECK_OK(ares_file_write(test_file("in"), bad[i].line, strlen(bad[i].line)));
        ares_str_clear(&out);
        CHECK_EQ(test_shell(&out, "'%s' grade --command \"python3 '%s'\" --input '%s' 2>&1",
                            test_program(), test_file("judge.py"), test_file("in")),
                 1);
        CHECK_CONTAINS(out.data, bad[i].why);
    }
    ares_str_fini(&input);
    ares_str_fini(&out);
}

TEST(grade_lists_its_verifiers_as_the_documents_do)
{
    ares_str list = { 0 }, help = { 0 }, page = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    CHECK_EQ(test_shell(&list, "'%s' grade --list", test_program()), 0);
    CHECK_EQ(test_shell(&help, "'%s' grade --help", test_program()), 0);
    REQUIRE_OK(ares_file_read(test_source("docs/rewards.md"), &page));
    CHECK_CONTAINS(list.data, "| `auto` |");
    /* docs/rewards.md: paste the output of `ares-train grade --list` */
    CHECK_CONTAINS(page.data, list.data);
    CHECK_CONTAINS(help.data, "gpqa");
    ares_str_fini(&list);
    ares_str_fini(&help);
    ares_str_fini(&page);
}

TEST(grade_refuses_a_wrong_command_line)
{
    check_message("grade", 2, "grade: --verifier, or --command of your own, is missing");
    check_message("grade --verifier nubmer", 2,
                  "did you mean 'number'? (choices: exact, number, boxed, ");
    check_message("grade --verifer number", 2, "did you mean '--verifier'?");
    check_message("grade --verifier format 'pattern=('", 2, "missing closing parenthesis");
    check_message("grade --verifier number pattern=x", 2, "pattern");
    check_message("grade --verifier number --input /none.jsonl", 1,
                  "grade: /none.jsonl: No such file or directory");
    check_message("grad", 2, "did you mean 'grade'?");
}

TEST(tokenize_and_detokenize_are_inverse)
{
    ares_str ids = { 0 }, text = { 0 };
    const char *input = "\"What is 7 + 5?\"\n\"\xc3\xa9\\u0000\xf0\x9f\x98\x80\"\n\"\"\n";
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    CHECK_OK(ares_file_write(test_file("in"), input, strlen(input)));
    CHECK_EQ(test_shell(&ids, "'%s' tokenize --model '%s' --no-special-tokens --input '%s'",
                        test_program(), test_source(TOKENIZER), test_file("in")),
             0);
    CHECK_OK(ares_file_write(test_file("ids"), ids.data, ids.len));
    CHECK_EQ(test_shell(&text, "'%s' detokenize --model '%s' < '%s'", test_program(),
                        test_source(TOKENIZER), test_file("ids")),
             0);
    CHECK_STR(text.data,
              "{\"text\":\"What is 7 + "
              "5?\"}\n{\"text\":\"\xc3\xa9\\u0000\xf0\x9f\x98\x80\"}\n{\"text\":\"\"}\n");
    ares_str_fini(&ids);
    ares_str_fini(&text);
}

/* Every line with its own ids and offsets; bos and eos stand around a text unless they are not
 * asked for. */
TEST(tokenize_and_detokenize_keep_lines_apart)
{
    static const char *const input = "\"ab\"\n\"\"\n\"b\"\n";
    char words[700];
    const char *model = test_source("tests/golden/tokenizer/bos_eos");
    snprintf(words, sizeof words, "tokenize --model '%s' --offsets", model);
    check_lines(words, input, 0,
                "{\"ids\":[400,64,65,401],\"offsets\":[[0,0],[0,1],[1,2],[0,0]]}\n"
                "{\"ids\":[400,401],\"offsets\":[[0,0],[0,0]]}\n"
                "{\"ids\":[400,65,401],\"offsets\":[[0,0],[0,1],[0,0]]}\n");
    snprintf(words, sizeof words, "tokenize --no-special-tokens --model '%s'", model);
    check_lines(words, input, 0, "{\"ids\":[64,65]}\n{\"ids\":[]}\n{\"ids\":[65]}\n");
    snprintf(words, sizeof words, "detokenize --model '%s'", model);
    check_lines(words,
                "{\"ids\":[400,64,401],\"skip_special_tokens\":true}\n{\"ids\":[400,65]}\n"
                "{\"ids\":[65,401],\"skip_special_tokens\":false}\n",
                0, "{\"text\":\"a\"}\n{\"text\":\"<s>b\"}\n{\"text\":\"b</s>\"}\n");
}

TEST(tokenize_gives_offsets_in_code_points)
{
    ares_str out = { 0 };
    ares_arena arena = { 0 };
    const ares_json *line;
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    CHECK_EQ(test_shell(&out,
                        "echo '\"\xc3\xa9\xc3\xa9 77\"' | '%s' tokenize --model '%s' --offsets "
                        "--no-special-tokens",
                        test_program(), test_source(TOKENIZER)),
             0);
    REQUIRE_OK(ares_json_parse(&arena, ares_str_view(&out), "line", &line));
    const ares_json *ids = ares_json_get(line, "ids"), *offsets = ares_json_get(line, "offsets");
    REQUIRE(ids && offsets && ids->count == offsets->count && ids->count > 1);
    CHECK_EQ(offsets->items[0].items[0].integer, 0);
    CHECK_EQ(offsets->items[offsets->count - 1].items[1].integer, 5);
    ares_arena_fini(&arena);
    ares_str_fini(&out);
}

TEST(lines_that_are_no_texts_or_ids_have_their_error_in_place)
{
    check_lines(with_tokenizer("tokenize", ""), "5\n\"\xff\"\n", 1,
                "{\"error\":\"tokenize: not a JSON string\"}\n{\"error\":\"line 2:1:2: not JSON: a "
                "string holds bytes that are not UTF-8\"}\n");
    check_lines(
        with_tokenizer("detokenize", ""), "{}\n{\"ids\":[-1]}\n{\"ids\":[]}\n{\"ids\":[1.5]}\n", 1,
        "{\"error\":\"detokenize: no list 'ids'\"}\n{\"error\":\"detokenize: ids[0]: not a token "
        "id\"}\n{\"text\":\"\"}\n{\"error\":\"detokenize: ids[0]: not a token id\"}\n");
    static const char lines[] = "\"a\"\n5\n\"b\"\n{}\n";
    char words[600];
    const char *file = test_file("lines");
    CHECK_OK(ares_file_write(file, lines, sizeof lines - 1));
    snprintf(words, sizeof words, "--input '%s'", file);
    check_message(with_tokenizer("tokenize", words), 1,
                  "2 of 4 lines are bad, the first is line 2 (");
    check_message("tokenize", 2, "tokenize: --model is missing");
    check_message("detokenize --model /none", 1, "/none");
    check_message(with_tokenizer("tokenize", "--ofsets"), 2, "--ofsets");
}

TEST(render_goes_through_templates_and_format_prompts)
{
    char words[600];
    const char *chat = test_file("chat.jinja"), *format = test_file("format.jinja");
    static const char template[] = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor "
                                   "%}{% if add_generation_prompt %}[assistant]{% endif %}";
    CHECK_OK(ares_file_write(chat, template, sizeof template - 1));
    CHECK_OK(ares_file_write(format, "{{ content | trim }} Think.", 27));
    snprintf(words, sizeof words, "render --model '%s'", chat);
    check_lines(words,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"add_generation_prompt\":"
                "true}\n{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}\n",
                0, "{\"text\":\"[user]Hi[assistant]\"}\n{\"text\":\"[user]Hi\"}\n");
    check_lines(words,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                "\"content\":\"b \"}],\"continue_final_message\":true}\n"
                "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"continue_final_message\":"
                "true,\"add_generation_prompt\":true}\n",
                1,
                "{\"text\":\"[user]a[assistant]b \"}\n"
                "{\"error\":\"template: continue_final_message and add_generation_prompt exclude "
                "each other: the first continues the last message, the second begins a new one; "
                "set one of them\"}\n");
    /* a line has its own spans and variables; characters count, not bytes */
    static const char spoken[] =
        "{{ head }}{% for m in messages %}{% if m.role == 'a' %}{% generation %}{{ m.content }};"
        "{% endgeneration %}{% else %}<{{ m.content }}>{% endif %}{% endfor %}";
    CHECK_OK(ares_file_write(chat, spoken, sizeof spoken - 1));
    snprintf(words, sizeof words, "render --spans --model '%s'", chat);
    check_lines(
        words,
        "{\"messages\":[{\"role\":\"u\",\"content\":\"\xc3\xa9\"},{\"role\":\"a\",\"content\":"
        "\"bc\"},{\"role\":\"u\",\"content\":\"d\"},{\"role\":\"a\",\"content\":\"\xc3\xa9\"}],"
        "\"head\":\"H\"}\n{\"messages\":[{\"role\":\"u\",\"content\":\"x\"}]}\n"
        "{\"messages\":[{\"role\":\"a\",\"content\":\"xyz\"}]}\n",
        0,
        "{\"text\":\"H<\xc3\xa9>bc;<d>\xc3\xa9;\",\"assistant_spans\":[[4,7],[10,12]]}\n"
        "{\"text\":\"<x>\",\"assistant_spans\":[]}\n"
        "{\"text\":\"xyz;\",\"assistant_spans\":[[0,4]]}\n");
    snprintf(words, sizeof words, "render --template '%s'", format);
    check_lines(words, "{\"content\":\"  Why?\\n\"}\n{\"content\":\"And?\"}\n", 0,
                "{\"text\":\"Why? Think.\"}\n{\"text\":\"And? Think.\"}\n");
    check_message("render", 2, "give --model or --template");
    check_message("render --template /none.jinja", 1, "/none.jinja");
}

TEST(rows_of_packed_files_are_rendered_like_lines)
{
    static const char *const packed[] = { "rows.jsonl.gz", "rows.jsonl.zst", "snappy.parquet" };
    ares_str lines = { 0 };
    char rows[500], template[500];
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    (void)snprintf(rows, sizeof rows, "%s", test_source("tests/golden/rows"));
    (void)snprintf(template, sizeof template, "%s", test_file("question.jinja"));
    CHECK_OK(ares_file_write(template, "{{ question }} is {{ answer }}", 30));
    CHECK_EQ(test_shell(&lines, "'%s' render --template '%s' --input '%s/rows.jsonl'",
                        test_program(), template, rows),
             0);
    CHECK_CONTAINS(lines.data ? lines.data : "", "{\"text\":\"1+1 is 2\"}\n");
    for (int i = 0; i < ARES_COUNT(packed); i++) {
        ares_str out = { 0 };
        int rc = test_shell(&out, "'%s' render --template '%s' --input '%s/%s' 2>&1",
                            test_program(), template, rows, packed[i]);
        /* a build may leave out what unpacks them, and says what to do */
        if (rc == 0 || !strstr(out.data, "this build")) {
            CHECK_EQ(rc, 0);
            CHECK_STR(out.data, lines.data);
        }
        ares_str_fini(&out);
    }
    /* the end of a damaged file is told, after the rows before it */
    ares_str out = { 0 };
    int rc = test_shell(&out,
                        "cd '%s' && head -c 300 '%s/rows.jsonl.gz' > cut.gz && '%s' render "
                        "--template '%s' --input cut.gz 2>&1",
                        test_file("."), rows, test_program(), template);
    CHECK_EQ(rc, 1);
    if (!strstr(out.data, "this build")) CHECK_CONTAINS(out.data, "cut.gz");
    ares_str_fini(&out);
    ares_str_fini(&lines);
}

/* transformers 5 makes another tokenizer of Llama 2's files than they say. */
TEST(a_tokenizer_that_transformers_reads_otherwise_is_told_of)
{
    static const char *const names[] = { "llama2_small", "mistral_small" };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    for (int i = 0; i < ARES_COUNT(names); i++) {
        ares_str out = { 0 };
        const char *dir = test_file(names[i]);
        CHECK_EQ(test_shell(&out,
                            "cp -r '%s/%s' '%s' && sed -i 's/PreTrainedTokenizerFast/"
                            "LlamaTokenizerFast/' '%s/tokenizer_config.json' && echo '\"a\"' | "
                            "'%s' tokenize --model '%s' 2>&1",
                            test_source("tests/golden/tokenizer"), names[i], dir, dir,
                            test_program(), dir),
                 0);
        CHECK_CONTAINS(out.data, "{\"ids\":[1,");
        bool told = strstr(out.data, "does not read the normalizer of a LlamaTokenizer");
        CHECK_EQ(told, i == 0);
        ares_str_fini(&out);
    }
}
