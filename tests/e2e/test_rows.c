/* Rows as other programs write them: what a run makes of each, from the file to the answers. */
#include "e2e.h"

/* One step on the rows. */
static int run_rows(ares_str *out, const char *rows, const char *words)
{
    const char *config = e2e_train_words("run");
    CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("run")), 0);
    return e2e_program(out,
                       "--config '%s' 'data.train_files=[%s]' trainer.max_steps=1 "
                       "data.rollout_batch_size=1 worker.actor.global_batch_size=1 %s",
                       config, e2e_write("rows.jsonl", rows), words);
}

static void check_run(const char *rows, const char *words)
{
    ares_str out = { 0 };
    int rc = run_rows(&out, rows, words);
    CHECK_MSG(rc == 0, "%s: exit code %d\n%s", words, rc, out.data ? out.data : "");
    ares_str_fini(&out);
}

static void check_refused(const char *rows, const char *words, const char *message)
{
    ares_str out = { 0 };
    int rc = run_rows(&out, rows, words);
    CHECK_MSG(rc == 1, "%s: exit code %d", words, rc);
    CHECK_CONTAINS(out.data, message);
    ares_str_fini(&out);
}

static void check_answers(const char *key, const char *value)
{
    ares_str values = { 0 };
    e2e_values("run/rollouts/step_000001.jsonl", key, &values);
    CHECK_CONTAINS(values.data, value);
    ares_str_fini(&values);
}

TEST(rows_of_verl_run_as_they_are)
{
    static const char rows[] =
        "{\"data_source\":\"openai/gsm8k\",\"prompt\":[{\"role\":\"user\",\"content\":\"2 + 8?\"}],"
        "\"ability\":\"math\",\"reward_model\":{\"ground_truth\":\"10\",\"style\":\"rule\"},"
        "\"extra_info\":{\"answer\":\"It is #### 10\",\"index\":0}}\n";
#define AUTO " 'worker.reward.rewards=[{name: auto}]'"
    check_run(rows, AUTO);
    check_answers("ground_truth", " 10 10");
    check_run(rows, "data.answer_key=extra_info.answer" AUTO);
    check_answers("ground_truth", " It is #### 10");
    check_refused(rows, "data.answer_key=reward_model" AUTO,
                  "is a list or an object, and this verifier compares a text");
}
