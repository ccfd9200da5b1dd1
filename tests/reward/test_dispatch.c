/* Rows that name their verifier, the published reward functions, and what metrics say of both. */
#include "test.h"

#include <math.h>
#include <stdio.h>

#include "../../src/reward/math/math.h"
#include "../../src/reward/verifier.h"
#include "internal.h"

#include "ares/reward.h"

enum { MOST = 300 };
typedef struct manager {
    ares_config *config;
    ares_reward_config options;
    ares_pool *pool;
    ares_reward *reward;
    ares_arena arena;
    ares_reward_item items[MOST];
    float parts[MOST][4];
    ares_metrics *metrics;
} manager;

static int open_manager(manager *m, int threads, const char *const *words)
{
    *m = (manager){ .config = ares_config_new(),
                    .pool = ares_pool_new(threads),
                    .metrics = ares_metrics_new() };
    ares_config_add_options(m->config, "worker.reward", ares_reward_options, &m->options);
    for (; *words; words++) {
        char word[2048];
        snprintf(word, sizeof word, "worker.reward.%s", *words);
        ares_config_override(m->config, word);
    }
    ares_config_resolve(m->config);
    return ares_reward_open(m->config, &m->options, m->pool, &m->reward);
}
#define OPEN(m, threads, ...) \
    open_manager((m), (threads), (const char *const[]){ __VA_ARGS__, NULL })

static void close_manager(manager *m)
{
    ares_reward_close(m->reward);
    ares_pool_free(m->pool);
    ares_config_free(m->config);
    ares_metrics_free(m->metrics);
    ares_arena_fini(&m->arena);
}

static void submit(manager *m, int i, const char *response, const char *truth, const char *row)
{
    m->items[i] = (ares_reward_item){ .in = { .response = ares_view_of(response),
                                              .ground_truth = ares_view_of(truth),
                                              .stopped = true,
                                              .response_tokens = (int64_t)strlen(response) },
                                      .parts = m->parts[i] };
    if (row) CHECK_OK(ares_json_parse(&m->arena, ares_view_of(row), "row", &m->items[i].in.row));
    ares_reward_submit(m->reward, &m->items[i]);
}

static void finish(manager *m)
{
    ares_metrics_clear(m->metrics);
    ares_reward_wait(m->reward);
    CHECK_OK(ares_reward_report(m->reward, NULL, "", m->metrics));
}

static double metric(const manager *m, const char *name)
{
    double v = NAN;
    CHECK_MSG(ares_metrics_get(m->metrics, name, &v), "no metric %s", name);
    return v;
}

TEST(each_row_is_judged_by_the_verifier_it_names)
{
    manager m;
    REQUIRE_OK(OPEN(&m, 2,
                    "rewards=[{name: auto, weight: 2}, {name: length, weight: 1, safe_length: 4, "
                    "max_length: 8, len_reward_penalty: 1}]"));
    submit(&m, 0, "it is 5", "5", "{\"rm_type\":\"number\"}"); /* 7 "tokens" */
    submit(&m, 1, "it 6", "5", "{\"rm_type\":\"number\"}");
    submit(&m, 2, "PARI", "PARI",
           "{\"metadata\":{\"rm_type\":\" exact \"},\"rm_type\":\"number\"}");
    submit(&m, 3, "Rome", "ROME", "{\"rm_type\":\"exact\"}");
    finish(&m);
    const double scores[] = { 2 - 0.75, 0, 2, 0 };
    for (int i = 0; i < 4; i++) CHECK_NEAR(m.items[i].score, scores[i], 1e-7);
    CHECK(m.items[0].accuracy == 1 && m.items[1].accuracy == 0 && m.parts[0][0] == 1);
    CHECK_NEAR(metric(&m, "reward/number/mean"), 0.5, 0);
    CHECK_NEAR(metric(&m, "reward/number/accuracy"), 0.5, 0);
    CHECK_NEAR(metric(&m, "reward/exact/mean"), 0.5, 0);
    CHECK_NEAR(metric(&m, "reward/length/mean"), -0.75 / 4, 1e-12);
    CHECK_NEAR(metric(&m, "reward/length_penalty"), -0.75 / 4, 1e-12);
    CHECK_NEAR(metric(&m, "reward/failed/auto"), 0, 0);
    close_manager(&m);
}

TEST(a_data_source_stands_for_a_verifier)
{
    manager m;
    REQUIRE_OK(
        OPEN(&m, 1, "rewards=[{name: auto, sources: {mine: number, 'a/b c': boxed_number}}]"));
    submit(&m, 0, "it is 5", "5", "{\"data_source\":\"mine\"}");
    submit(&m, 1, "it is \\boxed{x = 5} or 6", "5", "{\"data_source\":\"a/b c\"}");
    submit(&m, 2, "5", "5", "{\"data_source\":\"exact\"}");
    submit(&m, 3, "6", "5", "{\"data_source\":\"mine\",\"rm_type\":\"random\"}"); /* rm_type wins */
    finish(&m);
    CHECK(m.items[0].score == 1 && m.items[1].score == 1 && m.items[2].score == 1);
    CHECK(isnan(m.items[3].accuracy));
    CHECK_NEAR(metric(&m, "reward/boxed_number/accuracy"), 1, 0);
    close_manager(&m);
    REQUIRE_OK(OPEN(&m, 1, "rewards=[{name: auto, rm_type: number}]"));
    submit(&m, 0, "it is 5", "5", NULL);
    submit(&m, 1, "it is 5", "5", "{\"data_source\":\"train.jsonl\"}");
    submit(&m, 2, "it is 5", "it is 5", "{\"rm_type\":\"  \",\"metadata\":{\"rm_type\":null}}");
    finish(&m);
    for (int i = 0; i < 3; i++) CHECK(m.items[i].score == 1 && !m.items[i].failed);
    close_manager(&m);
}

TEST(the_name_of_a_row_comes_from_its_metadata_first)
{
    static const struct {
        const char *row, *fallback, *name;
    } cases[] = {
        { "{\"metadata\":{\"rm_type\":\"a\"},\"rm_type\":\"b\"}", "c", "a" },
        { "{\"rm_type\":\"b\",\"data_source\":\"d\"}", "c", "b" },
        { "{\"data_source\":\"d\"}", "c", "c" },
        { "{\"data_source\":\"d\"}", NULL, "d" },
        { "{\"data_source\":\"openai/gsm8k\"}", NULL, "gsm8k" },
        { "{\"data_source\":\"openai/gsm8k\"}", "c", "c" },
        { "{\"data_source\":\"aime2024\"}", NULL, "dapo" },
        { "{}", NULL, "" },
        { "{\"rm_type\":\"\"}", " c ", "c" },
    };
    ares_arena arena = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const ares_json *row;
        REQUIRE_OK(ares_json_parse(&arena, ares_view_of(cases[i].row), "row", &row));
        CHECK_VIEW(auto_rm_type(row, NULL, cases[i].fallback), cases[i].name);
    }
    CHECK_EQ(auto_rm_type(NULL, NULL, NULL).len, 0);
    ares_arena_fini(&arena);
}

TEST(a_ground_truth_of_parts_reaches_only_those_who_read_it)
{
    static const struct {
        const char *verifier;
        bool reads;
    } cases[] = { { "exact", false }, { "gsm8k", false }, { "boxed_math", false },
                  { "f1", false },    { "ifeval", true }, { "format_think", true },
                  { "random", true } };
    ares_verify_in in = { .response = ARES_VIEW("10"),
                          .ground_truth =
                              ARES_VIEW("{\"instruction_id\":[\"punctuation:no_comma\"]}"),
                          .structured = true };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_judge *j;
        ares_verify_out out = { .accuracy = NAN };
        REQUIRE_OK(ares_judge_new(cases[i].verifier, &j));
        judge_use_defaults(j);
        int rc = ares_judge_run(j, &in, &out);
        if (cases[i].reads) CHECK_OK(rc);
        else CHECK_FAIL(rc, ARES_ECONFIG, "no_comma\"]} is a list or an object");
        ares_str_fini(&out.details);
        ares_judge_free(j);
    }
}

TEST(the_last_box_is_judged_in_the_responses_place)
{
    static const struct {
        const char *text, *box;
    } cases[] = {
        { "\\boxed{1} \\boxed{2}", "2" },
        { "\\boxed{\\frac{1}{2}}", "\\frac{1}{2}" },
        { "\\boxed{1} \\boxed{2", NULL },
        { "\\boxed 5", NULL },
        { "\\boxed {5}", NULL },
        { "\\boxed{1} \\boxed 5", NULL },
        { "\\fbox{5}", NULL },
        { "\\boxed{}", "" },
        { "\\boxed{ 5 }", " 5 " },
        { "none", NULL },
        { "\\boxed{\\boxed{5}}", "5" },
        { "", NULL },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_view box = verifier_last_boxed(ares_view_of(cases[i].text), BOX_BRACE_NEEDED);
        CHECK_MSG((box.data != NULL) == (cases[i].box != NULL), "a box in '%s'", cases[i].text);
        if (cases[i].box) CHECK_VIEW(box, cases[i].box);
    }
}

TEST(rows_that_cannot_be_judged_are_scored_by_policy_and_counted)
{
    manager m;
    ares_log_set(ARES_LOG_ERROR, 0);
    REQUIRE_OK(OPEN(&m, 2, "rewards=[{name: auto, failure_score: -3}]", "on_failure=score"));
    submit(&m, 0, "5", "5", "{\"rm_type\":\"number\"}");
    submit(&m, 1, "5", "no number", "{\"rm_type\":\"number\"}");
    submit(&m, 2, "5", "5", "{}");
    submit(&m, 3, "5", "5", "{\"rm_type\":\"nubmer\"}");
    submit(&m, 4, "5", "5", "{\"rm_type\":\"auto\"}");  /* auto does not dispatch to itself */
    submit(&m, 5, "5", "5", "{\"rm_type\":\"regex\"}"); /* without its pattern */
    submit(&m, 6, "none", "5", "{\"rm_type\":\"boxed_exact\"}");
    submit(&m, 7, "5", "5", NULL);
    finish(&m);
    const double scores[] = { 1, -3, -3, -3, -3, -3, 0, -3 };
    for (int i = 0; i < 8; i++)
        CHECK_MSG(m.items[i].score == (float)scores[i], "item %d: %g, expected %g", i,
                  (double)m.items[i].score, scores[i]);
    CHECK(!m.items[0].failed && m.items[1].failed && isnan(m.items[1].accuracy) &&
          !m.items[6].failed);
    CHECK_NEAR(metric(&m, "reward/failed/number"), 1, 0);
    CHECK_NEAR(metric(&m, "reward/failed/auto"), 4, 0);
    CHECK_NEAR(metric(&m, "reward/failed/regex"), 1, 0);
    CHECK_NEAR(metric(&m, "reward/number/mean"), 1, 0);
    CHECK_NEAR(metric(&m, "reward/extract_fail_rate"), 1.0 / 8, 1e-12);
    close_manager(&m);
}

TEST(a_row_without_a_verifier_is_told_why)
{
    static const struct {
        const char *row, *reason;
    } cases[] = {
        { "{\"rm_type\":5}", "the row's rm_type is not a string" },
        { "{\"metadata\":{\"rm_type\":[]},\"data_source\":\"x\"}",
          "the row's rm_type is not a string" },
        { "{\"metadata\":{\"rm_type\":5},\"rm_type\":\"nubmer\"}", "rm_type = 'nubmer': no such" },
        { "{\"rm_type\":null}", "the row has neither rm_type nor data_source" },
        { "{\"data_source\":\"x\"}", "data_source = 'x': stands for no verifier" },
    };
    ares_judge *judge;
    ares_arena arena = { 0 };
    REQUIRE_OK(ares_judge_new("auto", &judge));
    judge_use_defaults(judge);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const ares_json *row;
        ares_verify_out out = { .accuracy = NAN };
        REQUIRE_OK(ares_json_parse(&arena, ares_view_of(cases[i].row), "row", &row));
        ares_verify_in in = { .response = ARES_VIEW("5"),
                              .ground_truth = ARES_VIEW("5"),
                              .row = row };
        CHECK_EQ(ares_judge_run(judge, &in, &out), ARES_ECONFIG);
        CHECK_CONTAINS(ares_error_message(), cases[i].reason);
    }
    ares_arena_fini(&arena);
    ares_judge_free(judge);
}

TEST(a_row_whose_type_is_no_text_is_not_judged_as_one_without_a_type)
{
    manager m;
    REQUIRE_OK(OPEN(&m, 1, "rewards=[{name: auto, rm_type: exact}]"));
    submit(&m, 0, "5", "5", "{\"metadata\":{\"rm_type\":5}}");
    submit(&m, 1, "5", "5", "{\"metadata\":{\"rm_type\":null}}");
    finish(&m);
    CHECK(m.items[0].failed && m.items[0].score == 0);
    CHECK(!m.items[1].failed && m.items[1].score == 1);
    close_manager(&m);
}

TEST(options_of_dispatched_verifiers_are_given_by_name)
{
    manager m;
    REQUIRE_OK(OPEN(
        &m, 1,
        "rewards=[{name: auto, types: {regex: {pattern: 'b+'}, exact: {ignore_case: true}}}]"));
    submit(&m, 0, "abc", "", "{\"rm_type\":\"regex\"}");
    submit(&m, 1, "ABC", "abc", "{\"rm_type\":\"exact\"}");
    submit(&m, 2, "\\boxed{ABC}", "abc", "{\"rm_type\":\"boxed_exact\"}");
    finish(&m);
    for (int i = 0; i < 3; i++) CHECK(m.items[i].score == 1);
    close_manager(&m);
}

static void check_refused(const char *words, const char *more, const char *message)
{
    manager m;
    CHECK_FAIL(OPEN(&m, 1, words, more), ARES_ECONFIG, message);
    close_manager(&m);
}

TEST(dispatch_that_makes_no_sense_is_a_fault_of_the_configuration)
{
    check_refused("rewards=[{name: exact}, {name: auto, rm_type: nubmer}]", NULL,
                  "worker.reward.rewards.1.rm_type = 'nubmer': no such verifier");
    check_refused("rewards=[{name: auto, types: {nubmer: {}}}]", NULL,
                  "worker.reward.rewards.0.types = {nubmer: {}}: 'nubmer' is no verifier");
    check_refused("rewards=[{name: auto, types: {auto: {}}}]", NULL, "'auto' is no verifier");
    check_refused("rewards=[{name: auto, types: {exact: {ignore_cse: true}}}]", NULL, "ignore_cse");
    check_refused("rewards=[{name: auto, types: {regex: {pattern: '('}}}]", NULL,
                  "missing closing parenthesis");
    check_refused("rewards=[{name: auto, sources: {x: nubmer}}]", NULL,
                  "worker.reward.rewards.0.sources = {x: nubmer}: data_source 'x' names no");
    check_refused("rewards=[{name: boxed_nubmer}]", NULL, "did you mean 'number'?");
    check_refused("accuracy=nubmer", NULL, "did you mean 'number'?");
    check_refused("rewards=[{name: regex}]", NULL, "pattern");
}

TEST(results_do_not_depend_on_the_number_of_threads)
{
    static const char *const rows[] = { "{\"rm_type\":\"number\"}",
                                        "{\"rm_type\":\"boxed\"}",
                                        "{\"rm_type\":\"random\"}",
                                        "{\"rm_type\":\"f1\"}",
                                        "{}",
                                        "{\"rm_type\":\"boxed_number\"}" };
    static char text[MOST][80], truth[MOST][16];
    float before[MOST] = { 0 };
    double values[64] = { 0 };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < MOST; i++) {
        snprintf(text[i], sizeof text[i], "so \\boxed{%d} or %d, the word %d", i % 7, i % 5, i % 3);
        snprintf(truth[i], sizeof truth[i], "%d", i % 4);
    }
    for (int threads = 1; threads <= 4; threads++) {
        manager m;
        REQUIRE_OK(OPEN(&m, threads,
                        "rewards=[{name: auto, weight: 0.7}, {name: random, weight: 0.3, seed: 5}]",
                        "accuracy=number"));
        for (int i = 0; i < MOST; i++) submit(&m, i, text[i], truth[i], rows[i % ARES_COUNT(rows)]);
        finish(&m);
        for (int i = 0; i < MOST; i++) {
            if (threads == 1) before[i] = m.items[i].score;
            CHECK_MEM(&m.items[i].score, &before[i], sizeof(float));
        }
        REQUIRE(ares_metrics_count(m.metrics) < ARES_COUNT(values));
        for (int k = 0; k < ares_metrics_count(m.metrics); k++) {
            double v = ares_metrics_value(m.metrics, k);
            if (threads == 1) values[k] = v;
            CHECK_MEM(&v, &values[k], sizeof v);
        }
        close_manager(&m);
    }
}

TEST(accuracy_is_that_of_the_verifier_named)
{
    manager m;
    REQUIRE_OK(OPEN(&m, 1, "rewards=[{name: exact}, {name: boxed}]", "accuracy=boxed"));
    submit(&m, 0, "\\boxed{5}", "5", NULL);
    finish(&m);
    CHECK(m.items[0].accuracy == 1 && m.parts[0][0] == 0 && m.items[0].score == 1);
    close_manager(&m);
    /* not among the rewards */
    REQUIRE_OK(OPEN(&m, 1, "rewards=[{name: exact}]", "accuracy=number"));
    submit(&m, 0, "it is 5", "5", NULL);
    finish(&m);
    CHECK(m.items[0].accuracy == 1 && m.items[0].score == 0);
    CHECK_EQ(ares_reward_count(m.reward), 1);
    CHECK_NEAR(metric(&m, "reward/number/accuracy"), 1, 0);
    close_manager(&m);
    REQUIRE_OK(OPEN(&m, 1, "rewards=[{name: length}, {name: exact}]", "skip_special_tokens=true"));
    submit(&m, 0, "5", "5", NULL);
    finish(&m);
    CHECK(m.items[0].accuracy == 1); /* the first reward that judges right and wrong */
    close_manager(&m);
    static const char *const both[] = { "rewards=[{name: exact}, {name: boxed}]",
                                        "rewards=[{name: boxed}, {name: exact}]" };
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(OPEN(&m, 1, both[i], "skip_special_tokens=true"));
        submit(&m, 0, "\\boxed{5}", "5", NULL);
        finish(&m);
        CHECK(m.items[0].accuracy == (float)i && m.items[0].score == 1);
        close_manager(&m);
    }
    REQUIRE_OK(OPEN(&m, 1, "skip_special_tokens=true")); /* no rewards given: exact */
    submit(&m, 0, "5", "5", NULL);
    finish(&m);
    CHECK(m.items[0].score == 1);
    CHECK_STR(ares_reward_name(m.reward, 0), "exact");
    close_manager(&m);
}

/* ---------------------------------------------------------------- published reward functions */
static double function_score(const char *function, const char *kwargs, const char *response,
                             const char *truth, double *accuracy)
{
    manager m;
    double score = NAN;
    if (CHECK_OK(OPEN(&m, 1, function, kwargs))) {
        submit(&m, 0, response, truth, NULL);
        finish(&m);
        score = (double)m.items[0].score;
        *accuracy = (double)m.items[0].accuracy;
    }
    close_manager(&m);
    return score;
}

TEST(published_reward_functions_go_by_name_and_by_path)
{
    double a;
    CHECK_NEAR(function_score("reward_function=math", NULL, "<think>x</think> \\boxed{5}", "5", &a),
               1, 1e-7);
    CHECK_NEAR(a, 1, 0);
    CHECK_NEAR(function_score("reward_function=./examples/reward_function/math.py:compute_score",
                              "reward_function_kwargs={format_weight: 0.25}", "\\boxed{5}", "5",
                              &a),
               0.75, 1e-7);
    /* cleaned */
    CHECK_NEAR(
        function_score("reward_function=math", NULL, " < think >x</ think > \\boxed{6}", "5", &a),
        0.1, 1e-7);
    CHECK_NEAR(a, 0, 0);
    /* without a box the answer is None */
    CHECK_NEAR(function_score("reward_function=math", NULL, "5", "None", &a), 0.9, 1e-7);
    CHECK_NEAR(function_score("reward_function=r1v.py:compute_score", NULL,
                              "<think>x</think>\n<answer> 5 </answer>", "5", &a),
               1, 1e-7);
    CHECK_NEAR(function_score("reward_function=r1v", NULL, " 5 ", "5", &a), 0.5, 1e-7);
    /* no line breaks in an answer */
    CHECK_NEAR(function_score("reward_function=r1v", NULL, "<answer>6\n</answer><answer>5</answer>",
                              "5", &a),
               0.5, 1e-7);
    const char *dapo = "reward_function_kwargs={max_response_length: 20, overlong_buffer_length: "
                       "10, overlong_penalty_factor: 0.5}";
    CHECK_NEAR(function_score("reward_function=dapo", dapo, "\\boxed{5}", "5", &a), 1, 1e-7);
    CHECK_NEAR(a, 1, 0);
    /* 18 tokens */
    CHECK_NEAR(function_score("reward_function=dapo", dapo, "\\boxed{6} and more", "5", &a),
               -1 - 0.5 * 0.8, 1e-6);
    CHECK_NEAR(a, 0, 0);
}

/* Right and wrong are worth other numbers than the function's own, and both answers are too long.
 */
TEST(a_score_that_is_replaced_keeps_the_penalty_of_length)
{
    manager m;
    REQUIRE_OK(OPEN(&m, 1, "reward_function=dapo",
                    "reward_function_kwargs={max_response_length: 20, overlong_buffer_length: 10, "
                    "overlong_penalty_factor: 0.5}",
                    "correct=3", "incorrect=-2"));
    submit(&m, 0, "\\boxed{5} and more", "5", NULL); /* 18 tokens */
    submit(&m, 1, "\\boxed{6} and more", "5", NULL);
    finish(&m);
    for (int i = 0; i < 2; i++) {
        CHECK_NEAR(m.items[i].score, (i ? -2 : 3) - 0.5 * 0.8, 1e-6);
        CHECK_NEAR(m.items[i].unshaped, i ? -2 : 3, 0);
        CHECK_NEAR(m.items[i].accuracy, !i, 0);
    }
    close_manager(&m);
}

TEST(reward_functions_that_are_none_are_refused)
{
    check_refused("reward_function=mth", NULL, "did you mean 'math'?");
    check_refused("reward_function=my/own.py:compute_score", NULL, "there is no such file");
    check_refused("reward_function=my/math.py", NULL, "there is no such file");
    check_refused("reward_function=math.py", NULL, "there is no such file");
    check_refused("reward_function=my/math.py:main", NULL, "there is no such file");
    check_refused("reward_function=math:compute", NULL, "there is no such file");
    check_refused("reward_function=math", "reward_type=sequential",
                  "reward_function 'math' is batch");
    check_refused("reward_function=r1v", "reward_type=batch",
                  "reward_function 'r1v' is sequential");
    check_refused("reward_function=math", "reward_function_kwargs={format_wieght: 1}",
                  "format_wieght");
    check_refused("reward_function=dapo", NULL, "max_response_length");
    check_refused("reward_function=math", "rewards=[{name: exact}]", "set one of them");
}

/* safe_length adds a penalty of length: another one is refused, wherever it stands in the list. */
TEST(the_penalty_of_length_is_given_once)
{
    static const char twice[] =
        "add {name: length} themselves; leave the penalty of length here out";
    manager m;
    check_refused("rewards=[{name: length}, {name: exact}]", "safe_length=4", twice);
    check_refused("rewards=[{name: exact}, {name: length}]", "len_reward_penalty=0.2", twice);
    REQUIRE_OK(OPEN(&m, 1, "rewards=[{name: exact}, {name: format}]", "safe_length=4"));
    CHECK_EQ(ares_reward_count(m.reward), 3);
    CHECK_STR(ares_reward_name(m.reward, 2), "length");
    close_manager(&m);
}

/* ---------------------------------------------------------------- sums */
TEST(sums_are_means_totals_and_nevers)
{
    tally *t = tally_new();
    ares_metrics *m = ares_metrics_new();
    double v;
    for (int round = 0; round < 2; round++) { /* a report clears the sums */
        tally_add(t, TALLY_MEAN, 3, 2, "a/%s", "mean");
        tally_add(t, TALLY_MEAN, 1, 2, "a/mean");
        tally_add(t, TALLY_MEAN, 0, 0, "nothing");
        tally_add(t, TALLY_TOTAL, 2, 1, "total");
        tally_add(t, TALLY_TOTAL, 3, 1, "total");
        tally_add(t, TALLY_NEVER, 0, 1, "never");
        tally_add(t, TALLY_NEVER, 1, 1, "once");
        CHECK_OK(tally_report(t, NULL, "val/", m));
    }
    CHECK(ares_metrics_get(m, "val/a/mean", &v) && v == 1);
    CHECK(ares_metrics_get(m, "val/total", &v) && v == 5);
    CHECK(ares_metrics_get(m, "val/never", &v) && v == 1);
    CHECK(ares_metrics_get(m, "val/once", &v) && v == 0);
    CHECK_EQ(ares_metrics_count(m), 4);
    ares_metrics_free(m);
    tally_free(t);
}

TEST(dapo_tells_its_accuracy_from_0_to_1)
{
    static const char *const words[2][2] = {
        { "reward_function=dapo", "reward_function_kwargs={max_response_length: 100, "
                                  "overlong_buffer_length: 10, overlong_penalty_factor: 1}" },
        { "rewards=[{name: dapo}]", NULL }
    };
    for (int i = 0; i < 2; i++) {
        manager m;
        REQUIRE_OK(OPEN(&m, 1, words[i][0], words[i][1]));
        submit(&m, 0, i ? "Answer: 5" : "\\boxed{5}", "5", NULL);
        submit(&m, 1, i ? "Answer: 6" : "\\boxed{6}", "5", NULL);
        submit(&m, 2, "none", "5", NULL);
        submit(&m, 3, "none", "5", NULL);
        finish(&m);
        CHECK_NEAR(metric(&m, "reward/accuracy_normalized"), 0.25, 1e-15);
        close_manager(&m);
    }
}

TEST(a_right_answer_below_the_best_wrong_one_of_its_group_is_inverted)
{
    static const struct {
        float accuracy, score;
        bool discarded;
    } rows[2][5] = {
        { { 1, 1.0F, false },
          { 1, 0.9F, false },
          { 0, 1.0F, false },
          { 0, 0.2F, false },
          { 0, 5, true } }, /* only the second is below the best other; a tie is not */
        { { 1, 0.4F, false },
          { 1, 0.6F, false },
          { 0.5F, 0.5F, false },
          { 1, 0, true },
          /* an accuracy of 0.5 is not right; a response that was not judged is neither */
          { NAN, 9, false } },
    };
    manager m;
    ares_batch b;
    REQUIRE_OK(OPEN(&m, 1, "reward_function=aepo"));
    ares_batch_init(&b);
    for (int g = 0; g < 2; g++) {
        ares_batch_begin_group(&b);
        for (int i = 0; i < 5; i++)
            ares_batch_add_row(&b,
                               &(ares_sample){ .draw = g,
                                               .index = i,
                                               .accuracy = rows[g][i].accuracy,
                                               .score = rows[g][i].score },
                               1);
    }
    ARES_PUT(&b, response_mask);
    for (int64_t r = 0; r < b.rows; r++) b.response_mask[r] = !rows[r / 5][r % 5].discarded;
    ares_reward_shape(m.reward, &b);
    finish(&m);
    CHECK_NEAR(metric(&m, "reward/inverted_frac"), 2.0 / 4, 1e-15);
    ares_batch_fini(&b);
    close_manager(&m);
}

/*
 * Two entries shape, each times its weight. What shaping would add (asked for by filters before the
 * controls have seen the batch) is the same.
 */
TEST(a_shaping_reward_adds_its_entropy_score_times_its_weight_also_on_trial)
{
    static const float first[] = { 0.75F, -1 };
    manager m;
    ares_batch b;
    REQUIRE_OK(OPEN(&m, 1,
                    "rewards=[{name: exact}, {name: aepo, weight: 0.5}, {name: boxed, weight: 8}, "
                    "{name: aepo, as: less, weight: -0.125}]"));
    ares_batch_init(&b);
    ares_batch_begin_group(&b);
    for (int i = 0; i < 2; i++)
        ares_batch_add_row(&b,
                           &(ares_sample){ .index = i,
                                           .difficulty = ARES_HARD,
                                           .hwe_count = 9,
                                           .hwe_target = 3,
                                           .entropy_alpha = 0.5F,
                                           .accuracy = i ? 0 : 1,
                                           .score = first[i] },
                           1);
    ARES_PUT(&b, response_mask);
    memset(b.response_mask, 1, (size_t)b.tokens);
    double plain[2], sum = 0;
    for (int i = 0; i < 2; i++) {
        plain[i] = entropy_score(ARES_HARD, i ? 0 : 1, 9, 3, 0.5).entropy_score;
        CHECK(plain[i] > 0.1);
        sum += plain[i];
        CHECK_NEAR(ares_reward_shaping(m.reward, &b.samples[i]), 0.375 * plain[i], 1e-15);
    }
    ares_reward_shape(m.reward, &b);
    for (int i = 0; i < 2; i++)
        CHECK_NEAR(b.samples[i].score, (double)first[i] + 0.375 * plain[i], 1e-6);
    finish(&m);
    CHECK_NEAR(metric(&m, "reward/high_entropy_token_num_score"), sum / 2, 1e-15); /* no weight */
    ares_batch_fini(&b);
    close_manager(&m);
}
