/* A prompt that ends in an assistant's message: the answer continues that message. */
#include "e2e.h"

#define OPENED "<|im_start|>user\\n1 + 1?<|im_end|>\\n<|im_start|>assistant\\nIt is "
#define TALK \
    "[{\"role\":\"user\",\"content\":\"1 + 1?\"},{\"role\":\"assistant\",\"content\":\"It is \"}]"

/* The greedy answer of the model to the line. */
static void generated(ares_str *out, const char *line)
{
    const char *path = e2e_write("line.jsonl", line);
    int rc = e2e_program(
        out, "generate --model '%s' --raw --temperature 0 --max-new-tokens 6 --input '%s'",
        e2e_model(), path);
    CHECK_MSG(rc == 0, "%s: %s", line, out->data);
}

TEST(generate_continues_the_assistants_message)
{
    static const char *const same[] = { "{\"messages\":" TALK "}",
                                        "{\"messages\":" TALK ",\"continue_final_message\":true}" };
    ares_str plain = { 0 }, closed = { 0 }, text = { 0 };
    generated(&plain, "{\"prompt\":\"" OPENED "\"}");
    for (int i = 0; i < ARES_COUNT(same); i++) {
        ares_str_clear(&text);
        generated(&text, same[i]);
        CHECK_STR(text.data, plain.data);
    }
    generated(&closed, "{\"prompt\":\"" OPENED "<|im_end|>\\n<|im_start|>assistant\\n\"}");
    ares_str_clear(&text);
    generated(&text, "{\"messages\":" TALK ",\"continue_final_message\":false}");
    CHECK_STR(text.data, closed.data);
    CHECK(strcmp(closed.data, plain.data) != 0);
    ares_str_fini(&plain);
    ares_str_fini(&closed);
    ares_str_fini(&text);
}

/* Line 3 of three lines of which two or three are good. */
static void third_answer(ares_str *out, const char *second, int code)
{
    ares_str lines = { 0 };
    ares_str_addf(&lines, "{\"prompt\":\"a\"}\n%s\n{\"prompt\":\"a\"}\n", second);
    const char *path = e2e_write("lines.jsonl", lines.data);
    CHECK_EQ(test_shell(out,
                        "'%s' generate --model '%s' --raw --max-new-tokens 6 --input '%s' "
                        "2>/dev/null >'%s.out'; code=$?; tail -n 1 '%s.out'; exit $code",
                        test_program(), e2e_model(), path, path, path),
             code);
    ares_str first = { 0 };
    CHECK_EQ(test_shell(&first, "head -n 1 '%s.out'", path), 0);
    CHECK(strcmp(first.data, out->data) != 0); /* samples of another line */
    ares_str_fini(&first);
    ares_str_fini(&lines);
}

TEST(samples_of_a_line_follow_from_its_number_and_not_from_the_lines_before)
{
    ares_str good = { 0 }, bad = { 0 };
    third_answer(&good, "{\"prompt\":\"b\"}", 0);
    third_answer(&bad, "{\"prompt\":7}", 1);
    CHECK_STR(bad.data, good.data);
    ares_str_fini(&good);
    ares_str_fini(&bad);
}

TEST(a_run_answers_from_where_the_prompt_ends)
{
    ares_str out = { 0 };
    const char *rows = e2e_write("rows.jsonl", "{\"prompt\":" TALK ",\"answer\":\"2\"}\n");
    CHECK_MSG(
        e2e_program(
            &out,
            "--config '%s' data.train_files='%s' trainer.max_steps=1 data.rollout_batch_size=1 "
            "worker.actor.global_batch_size=1",
            e2e_train_words("run"), rows) == 0,
        "%s", out.data ? out.data : "");
    CHECK_EQ(test_shell(NULL, "grep -qF 'assistant\\nIt is \"' '%s'/rollouts/step_000001.jsonl",
                        test_file("run")),
             0);
    ares_str_fini(&out);
}
