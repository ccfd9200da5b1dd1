/* A run whose rows name their verifiers: what its metrics say, on one rank and on two. */
#include "e2e.h"

#include <math.h>

static const char rows[] = "{\"prompt\":\"1\",\"answer\":\"1\",\"rm_type\":\"number\"}\n"
                           /* which no answer can equal */
                           "{\"prompt\":\"2\",\"answer\":\"none\",\"rm_type\":\"number\"}\n"
                           "{\"prompt\":\"3\",\"rm_type\":\"ifbench\",\"instruction_id_list\":["
                           "\"punctuation:no_comma\"],\"kwargs\":[{}]}\n"
                           "{\"prompt\":\"4\",\"answer\":\"4\",\"rm_type\":\"random\"}\n";
#define WORDS                                                                                  \
    "data.shuffle=false trainer.max_steps=2 trainer.threads=1 'worker.reward.rewards=[{name: " \
    "auto, failure_score: -1}, {name: length, weight: 0.1, safe_length: 4, max_length: 12}]'"

static void check_run(const char *run, const char *ranks)
{
    ares_str out = { 0 };
    CHECK_MSG(e2e_program(&out, "%s --config '%s' 'data.train_files=[%s]' " WORDS, ranks,
                          e2e_train_words(run), e2e_write("rows.jsonl", rows)) == 0,
              "%s", out.data ? out.data : "");
    CHECK_CONTAINS(out.data, "ground truth 'none' holds no number; scored -1");
    /* every sample of that row fails, and the run continues */
    CHECK_NEAR(e2e_metric(run, 1, "reward/failed/number"), 4, 0);
    CHECK_NEAR(e2e_metric(run, 2, "reward/failed/number"), 4, 0);
    CHECK_NEAR(e2e_metric(run, 1, "reward/failed/auto"), 0, 0);
    CHECK_NEAR(e2e_metric(run, 1, "reward/exhausted"), 0, 0);
    CHECK_NEAR(e2e_metric(run, 1, "reward/ifbench/mean"), e2e_metric(run, 1, "if/punctuation/rate"),
               0);
    CHECK(e2e_metric(run, 1, "reward/number/accuracy") >= 0 &&
          e2e_metric(run, 1, "reward/random/mean") >= 0 &&
          e2e_metric(run, 1, "reward/length/mean") < 0);
    CHECK(isnan(e2e_metric(run, 1, "reward/random/accuracy")));
    ares_str_fini(&out);
}

TEST(a_row_that_cannot_be_judged_does_not_stop_a_run)
{
    check_run("alone", "");
}

TEST_MPI(two_ranks_report_the_rewards_that_one_does)
{
    static const char *const same[] = { "reward/number/mean",       "reward/number/accuracy",
                                        "reward/ifbench/mean",      "reward/random/mean",
                                        "reward/length/mean",       "reward/length_penalty",
                                        "reward/extract_fail_rate", "if/punctuation/rate" };
    E2E_NEEDS_MPI();
    check_run("alone", "");
    check_run("two", "--ranks 2");
    for (int i = 0; i < ARES_COUNT(same); i++)
        CHECK_NEAR(e2e_metric("two", 1, same[i]), e2e_metric("alone", 1, same[i]), 1e-9);
}

TEST(grade_gives_no_score_to_a_row_that_cannot_be_judged)
{
    static const struct {
        const char *verifier, *line, *message;
    } cases[] = {
        { "auto", "{\"response\":\"5\"}", "the row has neither rm_type nor data_source" },
        { "auto", "{\"response\":\"5\",\"rm_type\":\"nubmer\"}", "did you mean 'number'?" },
        { "ifbench", "{\"response\":\"5\",\"metadata\":{\"functions\":[\"a\"]}}", "no 'checkers'" },
        { "auto", "{\"response\":\"5\",\"rm_type\":\"format_verify\",\"functions\":[\"a\"]}",
          "no 'checkers'" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str out = { 0 };
        CHECK(e2e_program(&out, "grade --verifier %s --input '%s'", cases[i].verifier,
                          e2e_write("line.jsonl", cases[i].line)) == 1);
        CHECK_MSG(strncmp(out.data, "{\"error\":", 9) == 0, "%s", out.data);
        CHECK_CONTAINS(out.data, cases[i].message);
        ares_str_fini(&out);
    }
}
