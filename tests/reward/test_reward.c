/* The manager: weights, users' rewards, counted failures, the examples. */
#include "clock.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ares/reward.h"

/* `function` starts this program again, as it would start ares-train. */
__attribute__((constructor)) static void serve_function(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "__reward") == 0)
        _exit(ares_reward_child_main(argc - 1, argv + 1) == ARES_OK ? 0 : 1);
}

#ifdef __SANITIZE_ADDRESS__
#define MEMORY "memory_mb: 1099511627776" /* shadow memory is address space too */
#else
#define MEMORY "memory_mb: 1024"
#endif

enum { MOST = 200 };
typedef struct manager {
    ares_config *config;
    ares_reward_config options;
    ares_pool *pool;
    ares_reward *reward;
    ares_reward_item items[MOST];
    float parts[MOST][4];
    ares_metrics *metrics;
} manager;

static int open_manager(manager *m, const char *rewards, const char *extra, int threads)
{
    char word[4096];
    *m = (manager){ .config = ares_config_new(),
                    .pool = ares_pool_new(threads),
                    .metrics = ares_metrics_new() };
    ares_config_add_options(m->config, "worker.reward", ares_reward_options, &m->options);
    snprintf(word, sizeof word, "worker.reward.rewards=%s", rewards);
    ares_config_override(m->config, word);
    if (extra) ares_config_override(m->config, extra);
    ares_config_resolve(m->config);
    return ares_reward_open(m->config, &m->options, m->pool, &m->reward);
}

static void close_manager(manager *m)
{
    ares_reward_close(m->reward);
    ares_pool_free(m->pool);
    ares_config_free(m->config);
    ares_metrics_free(m->metrics);
}

static void submit(manager *m, int i, const char *response, const char *truth, bool stopped)
{
    m->items[i] = (ares_reward_item){ .in = { .response = ares_view_of(response),
                                              .ground_truth = ares_view_of(truth),
                                              .stopped = stopped },
                                      .parts = m->parts[i] };
    ares_reward_submit(m->reward, &m->items[i]);
}

/* One step: wait for all, and report. */
static void finish(manager *m)
{
    ares_reward_wait(m->reward);
    CHECK_OK(ares_reward_report(m->reward, NULL, "", m->metrics));
}

static double metric(const manager *m, const char *name)
{
    double v = NAN;
    CHECK_MSG(ares_metrics_get(m->metrics, name, &v), "no metric %s", name);
    return v;
}

static const char *compile(const char *source, const char *name)
{
    ares_str out = { 0 };
    const char *object = test_file(name);
    CHECK_EQ(test_shell(&out, "cc -O2 -fPIC -shared -o '%s' '%s'", object, source), 0);
    ares_str_fini(&out);
    return object;
}

TEST(rewards_add_up_by_weight)
{
    manager m;
    REQUIRE_OK(open_manager(
        &m, "[{name: number, weight: 0.9}, {name: format, weight: 0.1, pattern: '.*!'}]", NULL, 1));
    CHECK_EQ(ares_reward_count(m.reward), 2);
    CHECK_STR(ares_reward_name(m.reward, 1), "format");
    submit(&m, 0, "it is 5!", "5", true);
    submit(&m, 1, "it is 5", "5", true);
    submit(&m, 2, "it is 6!", "5", true);
    submit(&m, 3, "it is 5!", "5", false);
    finish(&m);
    const double scores[] = { 1, 0.9, 0.1, 0.9 };
    for (int i = 0; i < 4; i++) CHECK_NEAR(m.items[i].score, scores[i], 1e-7);
    CHECK(m.parts[0][0] == 1 && m.parts[0][1] == 1 && m.parts[2][0] == 0 && m.parts[2][1] == 1);
    CHECK(m.items[0].accuracy == 1 && m.items[2].accuracy == 0 && !m.items[0].failed);
    CHECK(metric(&m, "reward/failed/number") == 0 && metric(&m, "reward/exhausted") == 0 &&
          metric(&m, "reward/extract_fail_rate") == 0);
    CHECK_NEAR(metric(&m, "reward/number/mean"), 0.75, 1e-12);
    CHECK_NEAR(metric(&m, "reward/number/accuracy"), 0.75, 1e-12);
    CHECK_NEAR(metric(&m, "reward/format/mean"), 0.5, 1e-12);
    /* built-in verifiers depend on no clock */
    CHECK(!ares_metrics_get(m.metrics, "reward/replayable", &(double){ 0 }));
    close_manager(&m);
}

TEST(a_part_of_a_score_leaves_its_name_to_an_entry)
{
    manager m;
    REQUIRE_OK(open_manager(&m, "[{name: aepo}, {name: format, pattern: '.*5.*', finished: false}]",
                            NULL, 1));
    submit(&m, 0, "\\boxed{5}", "5", true);
    finish(&m);
    CHECK_NEAR(metric(&m, "reward/aepo/format"), 0, 0); /* no <think> */
    CHECK_NEAR(metric(&m, "reward/format/mean"), 1, 0);
    CHECK(!ares_metrics_get(m.metrics, "reward/format", &(double){ 0 }));
    close_manager(&m);
    REQUIRE_OK(open_manager(&m, "[{name: aepo}]", NULL, 1));
    submit(&m, 0, "\\boxed{5}", "5", true);
    finish(&m);
    CHECK_NEAR(metric(&m, "reward/format"), 0, 0);
    close_manager(&m);
    /* the part of an entry that has the entry's own name stands under it */
    REQUIRE_OK(open_manager(&m, "[{name: aepo, as: format}]", NULL, 1));
    submit(&m, 0, "\\boxed{5}", "5", true);
    finish(&m);
    CHECK_NEAR(metric(&m, "reward/format"), 0, 0);
    CHECK_NEAR(metric(&m, "reward/format/mean"), 1, 0);
    close_manager(&m);
}

TEST(an_unfinished_response_gets_its_own_score_where_one_is_set)
{
    manager m;
    REQUIRE_OK(open_manager(&m, "[{name: number}]", "worker.reward.unfinished_score=-1", 1));
    submit(&m, 0, "5", "5", true);
    submit(&m, 1, "5", "5", false);
    finish(&m);
    CHECK(m.items[0].score == 1 && m.items[1].score == -1 && m.parts[1][0] == 1);
    CHECK(m.items[0].unshaped == 1 && m.items[1].unshaped == -1);
    close_manager(&m);
}

static void check_config_refused(const char *rewards, const char *message)
{
    manager m;
    CHECK_FAIL(open_manager(&m, rewards, NULL, 1), ARES_ECONFIG, message);
    CHECK_CONTAINS(ares_error_message(), "worker.reward.rewards");
    close_manager(&m);
}

TEST(a_ground_truth_that_cannot_be_used_costs_one_score_and_is_counted)
{
    manager m;
    ares_log_set(ARES_LOG_ERROR, 0);
    REQUIRE_OK(open_manager(&m, "[{name: number, failure_score: -0.5, weight: 2}, {name: boxed}]",
                            "worker.reward.on_failure=score", 2));
    submit(&m, 0, "5", "none", true);
    submit(&m, 1, "5", "5", true);
    finish(&m);
    /* boxed judges it wrong */
    CHECK(m.items[0].score == -1 && m.parts[0][0] == -0.5f && m.items[0].failed &&
          m.items[0].accuracy == 0);
    CHECK(m.items[1].score == 2 && !m.items[1].failed);
    CHECK_NEAR(metric(&m, "reward/failed/number"), 1, 0);
    CHECK_NEAR(metric(&m, "reward/failed/boxed"), 0, 0);
    /* over the responses that could be judged */
    CHECK_NEAR(metric(&m, "reward/number/mean"), 1, 0);
    CHECK_NEAR(metric(&m, "reward/extract_fail_rate"), 1, 0);
    close_manager(&m);
}

TEST(a_run_that_ends_early_waits_for_nobody_and_keeps_its_message)
{
    manager m;
    REQUIRE_OK(open_manager(
        &m, "[{name: number}, {command: [sh, -c, 'while read x; do echo 1; done']}]", NULL, 2));
    ares_fail(ARES_ENUMERIC, "the cause");
    submit(&m, 0, "5", "5", true);
    ares_reward_wait(m.reward);
    CHECK_STR(ares_error_message(), "the cause");
    for (int i = 0; i < 50; i++) submit(&m, i, "5", "5", true);
    close_manager(&m); /* with responses that nobody waited for */
}

TEST(entries_that_make_no_sense_are_faults_of_the_configuration)
{
    check_config_refused("[]", "no reward; name one");
    check_config_refused("[{weight: 1}]", "needs a name");
    check_config_refused("[number]", "an entry is a map");
    check_config_refused("[{name: nubmer}]", "did you mean 'number'?");
    check_config_refused("[{name: number, wieght: 2}]", "wieght");
    check_config_refused("[{name: number, pattern: x}]", "pattern");
    check_config_refused("[{name: number, processes: 2}]", "a verifier runs in this process");
    check_config_refused("[{name: number, timeout_s: 20}]", "timeout_s: has no effect");
    check_config_refused("[{name: format, pattern: '('}]", "missing closing parenthesis");
    check_config_refused("[{function: 'x.so'}]", "write FILE.so:SYMBOL");
    check_config_refused("[{function: '/none/x.so:f'}]", "no such file");
    check_config_refused("[{function: '/none/x.so:f', command: [x]}]",
                         "worker.reward.rewards.0 = {function: ");
    check_config_refused("[{function: '/none/x.so:f', command: [x]}]",
                         "...: function and command exclude each other");
    check_config_refused("[{command: [x], timeout_s: 0}]", "timeout_s");
    check_config_refused("[{command: [x], memory_mb: 1}]", "memory_mb");
}

TEST(rewards_may_give_an_accuracy_where_one_judges_or_is_named_or_is_a_process)
{
    static const struct {
        const char *rewards, *extra;
        bool judges;
    } cases[] = { { "[{name: exact}]", NULL, true },
                  { "[{name: random}, {name: number, weight: 0}]", NULL, true },
                  { "[{name: random}, {name: repetition}]", NULL, false },
                  { "[{name: random}]", "worker.reward.accuracy=random", true },
                  { "[{name: random}]", "worker.reward.accuracy=exact", true },
                  { "[{name: random}, {command: [cat]}]", NULL, true },
                  { "[{name: auto}]", NULL, true } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        manager m;
        if (CHECK_OK(open_manager(&m, cases[i].rewards, cases[i].extra, 1)))
            CHECK_MSG(ares_reward_judges(m.reward) == cases[i].judges, "%s, %s", cases[i].rewards,
                      cases[i].extra ? cases[i].extra : "");
        close_manager(&m);
    }
}

/* All faults of a configuration are reported in one run. */
TEST(rewards_open_beside_faults_of_other_options_and_leave_them_noted)
{
    manager m = { .config = ares_config_new() };
    ares_config_add_options(m.config, "worker.reward", ares_reward_options, &m.options);
    ares_config_override(m.config, "worker.reward.rewards=[{name: exact}]");
    ares_config_resolve(m.config);
    ares_config_fault(m.config, "worker.reward.accuracy", "an earlier fault");
    if (CHECK_OK(ares_reward_open(m.config, &m.options, NULL, &m.reward)))
        CHECK(ares_reward_judges(m.reward));
    CHECK_EQ(ares_config_fault_count(m.config), 1);
    ares_reward_close(m.reward);
    ares_config_free(m.config);
}

TEST(entries_that_would_share_a_metric_are_refused_until_they_are_called_otherwise)
{
    manager m;
    check_config_refused("[{name: number}, {name: exact}, {name: number, weight: 2}]",
                         "worker.reward.rewards.0.name = 'number': another entry is called "
                         "'number', too");
    check_config_refused("[{name: exact, as: number}, {name: number}]", "as: other_number");
    check_config_refused("[{command: [./a/judge]}, {command: [./b/judge]}]", "'judge', too");
    check_config_refused("[{command: [x], name: accuracy}]",
                         "reward/accuracy is a metric of every run");
    check_config_refused("[{command: [overall]}]", "as: my_overall");
    check_config_refused("[{name: number, as: batch_accuracy}]", "reward/batch_accuracy is");
    /* the entry that the options of length stand for has a name, too */
    CHECK_FAIL(open_manager(&m, "[{name: number, as: length}]", "worker.reward.safe_length=4", 1),
               ARES_ECONFIG, "'length', too");
    close_manager(&m);
    REQUIRE_OK(open_manager(&m, "[{name: number}, {name: number, as: again, weight: 2}]", NULL, 1));
    CHECK_STR(ares_reward_name(m.reward, 1), "again");
    submit(&m, 0, "5", "5", true);
    submit(&m, 1, "5", "none", true);
    finish(&m);
    CHECK_NEAR(m.items[0].score, 3, 0);
    CHECK_NEAR(metric(&m, "reward/again/mean"), 1, 0);
    CHECK_NEAR(metric(&m, "reward/number/mean"), 1, 0);
    CHECK_NEAR(metric(&m, "reward/failed/again"), 1, 0);
    close_manager(&m);
}

/* Functions of one name, and of the names of metrics that every run has; nothing is started. */
TEST(functions_that_would_share_a_metric_are_told_apart)
{
    static const struct {
        const char *words[3], *names[3], *why;
    } cases[] = {
        { { "reward_funcs=[a.py:f, b.py:g]" }, { "f", "g" }, NULL },
        { { "reward_funcs=[a.py:f, b.py:f, a.py:g]" }, { "f", "b.py.f", "g" }, NULL },
        { { "reward_funcs=[m.a.f, n.f]" }, { "f", "n.f" }, NULL },
        { { "reward_funcs=[a.py:accuracy, a.py:overall]" },
          { "a.py.accuracy", "a.py.overall" },
          NULL },
        { { "reward_funcs=[accuracy_reward, a.py:accuracy_reward]" },
          { "accuracy_reward", "a.py.accuracy_reward" },
          NULL },
        { { "reward_funcs=[think_format_reward, a.py:f]", "reward_weights=[2, 3]" },
          { "think_format_reward", "f" },
          NULL },
        { { "reward_funcs=[a.py:length]" }, { "length" }, NULL },
        { { "reward_funcs=[a.py:length]", "safe_length=4" }, { "a.py.length", "length" }, NULL },
        { { "reward_funcs=[a.py:f, b.py:f, sub/b.py:f]" },
          { NULL },
          "'SUB/b.py:f': another function is called 'b.py.f', too" },
        { { "reward_function=a.py" }, { "a" }, NULL },
        { { "reward_function=accuracy.py" }, { "accuracy.py" }, NULL },
        { { "reward_function=accuracy.py:f" }, { "f" }, NULL },
        { { "reward_funcs=[a.py:f]", "reward_weights=[1, 2]" },
          { NULL },
          "2 weights for 1 functions" },
        { { "reward_funcs=[f]" },
          { NULL },
          "'f': neither accuracy_reward nor think_format_reward" },
        { { "reward_funcs=[a.py]" }, { NULL }, "write MODULE.NAME or FILE.py:NAME" },
        { { "reward_funcs=[a.py:f]", "reward_function=a.py" },
          { NULL },
          "worker.reward.reward_function says what is rewarded; set one of them" },
        { { "reward_funcs=[a.py:f]", "rewards=[{name: exact}]" },
          { NULL },
          "worker.reward.reward_funcs says what is rewarded; set one of them" },
    };
    char here[300], sub[320], word[600];
    snprintf(here, sizeof here, "%s", test_file("x"));
    *strrchr(here, '/') = 0;
    snprintf(sub, sizeof sub, "%s/sub", here);
    REQUIRE_OK(ares_dir_make(sub));
    for (int i = 0; i < 4; i++) {
        static const char *const files[] = { "a.py", "b.py", "sub/b.py", "accuracy.py" };
        CHECK_OK(ares_file_write(test_file(files[i]), "f = 1\n", 6));
    }
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_config *cfg = ares_config_new();
        ares_reward_config options;
        ares_reward *reward = NULL;
        ares_config_add_options(cfg, "worker.reward", ares_reward_options, &options);
        for (int k = 0; k < 3 && cases[i].words[k]; k++) {
            const char *at = cases[i].words[k];
            size_t n = (size_t)snprintf(word, sizeof word, "worker.reward.");
            for (; *at; at++) { /* files stand in this test's folder */
                bool file = (strncmp(at, "a.py", 4) == 0 || strncmp(at, "b.py", 4) == 0 ||
                             strncmp(at, "sub/", 4) == 0 || strncmp(at, "accuracy.py", 11) == 0) &&
                            strchr("[=, ", at[-1]);
                if (file) n += (size_t)snprintf(word + n, sizeof word - n, "%s/", here);
                word[n++] = *at;
                word[n] = 0;
            }
            ares_config_override(cfg, word);
        }
        ares_config_resolve(cfg);
        int rc = ares_reward_open(cfg, &options, NULL, &reward);
        if (cases[i].why) {
            const char *why =
                strstr(cases[i].why, "SUB") ? strchr(cases[i].why, ':') : cases[i].why;
            CHECK_FAIL(rc, ARES_ECONFIG, why);
        } else if (CHECK_OK(rc))
            for (int k = 0; k < 3; k++) {
                CHECK_EQ(k < ares_reward_count(reward), cases[i].names[k] != NULL);
                if (cases[i].names[k] && k < ares_reward_count(reward))
                    CHECK_STR(ares_reward_name(reward, k), cases[i].names[k]);
            }
        ares_reward_close(reward);
        ares_config_free(cfg);
    }
}

/* Every option of a process beside a verifier, and in the ways that it may be right. */
TEST(options_of_processes_are_of_processes)
{
    static const struct {
        const char *entry, *why; /* NULL: it is taken */
    } cases[] = {
        { "{name: exact, timeout_s: 9}", "timeout_s: has no effect: a verifier runs in this" },
        { "{name: exact, start_timeout_s: 9}", "start_timeout_s: has no effect" },
        { "{name: exact, processes: 2}", "processes: has no effect" },
        { "{name: exact, batch: true}", "batch: has no effect" },
        { "{name: exact, memory_mb: 19}", "memory_mb: has no effect" },
        { "{name: exact, form: verl}", "kwargs and form are of Python functions" },
        { "{name: exact, kwargs: {a: 1}}", "kwargs and form are of Python functions" },
        { "{command: [cat], form: verl}", "kwargs and form are of Python functions" },
        { "{command: [cat], timeout_s: 9, processes: 2, batch: true, memory_mb: 99}", NULL },
        { "{command: [cat], function: A.py}", "function and command exclude each other" },
        { "{command: [cat], function: 'A.so:f'}", "function and command exclude each other" },
        { "{function: 'A.so:f', batch: true}",
          "a C function is asked one by one; leave batch out" },
        { "{function: 'A.so:f', form: trl}", "kwargs and form are of Python functions" },
        { "{function: 'A.so:f', timeout_s: 9}", NULL },
        { "{function: 'A.so:'}", "write FILE.so:SYMBOL" },
        { "{function: A.so}", "write FILE.so:SYMBOL" },
        { "{function: 'B.so:f'}", "no such file" },
        { "{function: A.py, form: trl, kwargs: {a: 1}, batch: true, memory_mb: 99}", NULL },
        { "{function: B.py}", "No such file" },
        { "7", "an entry is a map, as in {name: exact, weight: 1}" },
        { "", "no reward; name one" },
    };
    char list[1200];
    CHECK_OK(ares_file_write(test_file("A.py"), "f = 1\n", 6));
    CHECK_OK(ares_file_write(test_file("A.so"), "", 0));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        manager m;
        size_t n = (size_t)snprintf(list, sizeof list, "[");
        for (const char *at = cases[i].entry; *at; at++) {
            if (at[0] && strchr("AB", at[0]) && at[1] == '.')
                n += (size_t)snprintf(list + n, sizeof list - n, "%s/", test_dir());
            list[n++] = *at;
        }
        snprintf(list + n, sizeof list - n, "]");
        int rc = open_manager(&m, list, NULL, 1);
        if (cases[i].why) CHECK_FAIL(rc, ARES_ECONFIG, cases[i].why);
        else CHECK_OK(rc);
        close_manager(&m);
    }
}

TEST(what_could_not_be_judged_has_no_score_unless_the_policy_gives_it_one)
{
    manager m;
    ares_log_set(ARES_LOG_ERROR, 0);
    REQUIRE_OK(open_manager(&m,
                            "[{name: number}, {command: [sh, -c, 'read x; echo 1; read x; echo "
                            "boom >&2; exit 3'], name: judge}]",
                            NULL, 1));
    CHECK(!ares_reward_last_failure(m.reward));
    for (int i = 0; i < 2; i++) submit(&m, i, "5", "5", true);
    finish(&m);
    CHECK(!m.items[0].failed && m.items[0].score == 2);
    CHECK(m.items[1].failed && m.parts[1][0] == 1 && isnan(m.parts[1][1]));
    CHECK_STR(ares_reward_last_failure(m.reward), "judge: ended with exit code 3: boom");
    close_manager(&m);
    check_config_refused("[{name: number, failure_score: -1}]",
                         "set worker.reward.on_failure=score, or leave failure_score out");
}

/* {"score": null}: a reward may leave a response to the others. */
TEST(a_reward_may_leave_a_response_to_the_others)
{
    static const char abstains[] =
        "{command: [sh, -c, 'while read x; do echo \"{\\\"score\\\": null}\"; done'], name: none}";
    manager m;
    char rewards[300];
    double v;
    ares_log_set(ARES_LOG_ERROR, 0);
    snprintf(rewards, sizeof rewards, "[{name: number, weight: 2}, %s]", abstains);
    REQUIRE_OK(open_manager(&m, rewards, NULL, 1));
    submit(&m, 0, "5", "5", true);
    finish(&m);
    CHECK(!m.items[0].failed && m.items[0].score == 2 && isnan(m.parts[0][1]));
    CHECK(!ares_metrics_get(m.metrics, "reward/none/mean", &v));
    CHECK_NEAR(metric(&m, "reward/failed/none"), 0, 0);
    close_manager(&m);
    snprintf(rewards, sizeof rewards, "[%s]", abstains);
    REQUIRE_OK(open_manager(&m, rewards, NULL, 1));
    submit(&m, 0, "5", "5", true);
    finish(&m);
    CHECK(m.items[0].failed);
    CHECK_CONTAINS(ares_reward_last_failure(m.reward), "no reward has a score");
    close_manager(&m);
}

TEST(a_failing_command_is_counted_and_scored_by_its_policy)
{
    manager m;
    double replayable;
    ares_log_set(ARES_LOG_ERROR, 0);
    char rewards[600];
    const char *hangs = test_file("hangs");
    clock_hang_file(hangs);
    snprintf(
        rewards, sizeof rewards,
        "[{command: [sh, -c, 'while read x; do case $x in *bad*) exit 3;; *slow*) touch %s; sleep "
        "1000;; esac; echo 2; done'], name: mine, weight: 0.5, timeout_s: 900, start_timeout_s: 0, "
        "failure_score: -4}]",
        hangs);
    REQUIRE_OK(open_manager(&m, rewards, "worker.reward.on_failure=score", 1));
    submit(&m, 0, "good", "", true);
    submit(&m, 1, "bad", "", true);
    submit(&m, 2, "good", "", true);
    finish(&m);
    CHECK(m.items[0].score == 1 && m.items[1].score == -2 && m.items[2].score == 1 &&
          m.parts[1][0] == -4);
    CHECK(!m.items[0].failed && m.items[1].failed && isnan(m.items[1].accuracy));
    CHECK_NEAR(metric(&m, "reward/failed/mine"), 1, 0);
    CHECK_NEAR(metric(&m, "reward/replayable"), 1, 0);
    submit(&m, 0, "slow", "", true);
    ares_reward_wait(m.reward);
    submit(&m, 0, "good", "", true);
    finish(&m); /* in the same step a score decided by a time-out stays reported */
    CHECK_NEAR(metric(&m, "reward/failed/mine"), 1, 0);
    CHECK_NEAR(metric(&m, "reward/replayable"), 0, 0);
    ares_metrics_clear(m.metrics);
    submit(&m, 0, "good", "", true);
    finish(&m);
    CHECK_NEAR(metric(&m, "reward/failed/mine"), 0, 0);
    CHECK(ares_metrics_get(m.metrics, "reward/replayable", &replayable) && replayable == 1);
    clock_hang_file(NULL);
    close_manager(&m);
}

TEST(a_command_is_named_after_its_script)
{
    static const struct {
        const char *command, *name;
    } cases[] = { { "[python3, my_reward.py]", "my_reward" },
                  { "[/usr/bin/python3.11, -u, dir/judge.v2.py, a.json]", "judge.v2" },
                  { "[uv, run, --python, 3.11, python, -m, judges.math]", "judges.math" },
                  { "[bash, -c, 'cd x.y && ./z.sh']", "bash" },
                  { "[env, A=1, node, judge.js]", "judge" },
                  { "[./judge, rules.json]", "judge" } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        manager m;
        char rewards[200];
        snprintf(rewards, sizeof rewards, "[{command: %s}]", cases[i].command);
        REQUIRE_OK(open_manager(&m, rewards, NULL, 1));
        CHECK_STR(ares_reward_name(m.reward, 0), cases[i].name);
        close_manager(&m);
    }
}

/* Answers of one object that has everything, and of one whose names are no metrics. */
TEST(what_a_program_says_beside_its_score_is_kept)
{
    manager m;
    double v;
    ares_arena arena = { 0 };
    ares_log_set(ARES_LOG_ERROR, 0);
    REQUIRE_OK(open_manager(
        &m,
        "[{name: number}, {command: [sh, -c, 'read x; echo \"{\\\"score\\\": 1, \\\"accuracy\\\": "
        "true, \\\"steps\\\": 3, \\\"cites\\\": false, \\\"mean\\\": 7, \\\"a b\\\": 1, "
        "\\\"why\\\": [\\\"x\\\"]}\"; read x; echo \"{\\\"score\\\": 0, \\\"steps\\\": "
        "5}\"; read x; exit 3'], name: judge}]",
        NULL, 1));
    for (int i = 0; i < 3; i++) {
        submit(&m, i, "5", "5", true);
        m.items[i].arena = &arena;
    }
    finish(&m);
    CHECK_NEAR(metric(&m, "reward/judge/steps"), 4, 0);
    CHECK_NEAR(metric(&m, "reward/judge/cites"), 0, 0);
    CHECK_NEAR(metric(&m, "reward/judge/accuracy"), 1, 0);
    CHECK_NEAR(metric(&m, "reward/judge/mean"), 0.5, 0); /* of the scores */
    CHECK(!ares_metrics_get(m.metrics, "reward/judge/a b", &v) &&
          !ares_metrics_get(m.metrics, "reward/judge/why", &v));
    CHECK_STR(m.items[0].details.data,
              "{\"judge\":{\"score\":1,\"accuracy\":true,\"steps\":3,\"cites\":false,"
              "\"mean\":7,\"a b\":1,\"why\":[\"x\"]}}");
    CHECK_STR(m.items[2].details.data, "{\"judge\":{\"failure\":\"ended with exit code 3\"}}");
    close_manager(&m);
    ares_arena_fini(&arena);
}

/* The first that has a text; a number or a list of that name is a field like others. */
TEST(the_feedback_of_the_first_program_that_gives_one_is_kept)
{
    manager m;
    ares_arena arena = { 0 };
    ares_log_set(ARES_LOG_ERROR, 0);
    REQUIRE_OK(open_manager(
        &m,
        "[{command: [sh, -c, 'read x; echo 1; read x; echo \"{\\\"score\\\": 0, "
        "\\\"feedback\\\": 3}\"; read x; echo \"{\\\"score\\\": 0, \\\"feedback\\\": "
        "\\\"no unit\\\"}\"; read x; exit 3'], name: first}, "
        "{command: [sh, -c, 'while read x; do echo \"{\\\"score\\\": 0, \\\"feedback\\\": "
        "\\\"too \\\\u0000 late\\\"}\"; done'], name: second}]",
        NULL, 1));
    for (int i = 0; i < 4; i++) {
        submit(&m, i, "5", "5", true);
        m.items[i].arena = &arena;
    }
    finish(&m);
    CHECK_EQ(m.items[0].feedback.len, 10);
    CHECK(ares_view_is(m.items[2].feedback, "no unit"));
    CHECK(m.items[1].feedback.len == 10 &&
          memcmp(m.items[1].feedback.data, "too \0 late", 10) == 0);
    CHECK_EQ(m.items[3].feedback.len, 10); /* the one that failed says nothing */
    close_manager(&m);
    ares_arena_fini(&arena);
}

TEST(the_numbers_of_a_program_that_become_metrics_are_bounded)
{
    manager m;
    double v;
    int there = 0;
    ares_log_set(ARES_LOG_ERROR, 0);
    REQUIRE_OK(open_manager(&m,
                            "[{command: [sh, -c, 'i=0; while read x; do i=$((i + 1)); echo "
                            "\"{\\\"score\\\": 1, \\\"f$i\\\": $i}\"; done'], name: judge}]",
                            NULL, 1));
    for (int i = 0; i < 40; i++) submit(&m, i, "5", "5", true);
    finish(&m);
    for (int i = 1; i <= 40; i++) {
        char name[40];
        snprintf(name, sizeof name, "reward/judge/f%d", i);
        there += ares_metrics_get(m.metrics, name, &v);
    }
    CHECK_EQ(there, 32);
    close_manager(&m);
}

TEST(a_command_reads_the_texts_and_the_row)
{
    manager m;
    ares_arena arena = { 0 };
    const ares_json *row;
    char rewards[1024];
    snprintf(rewards, sizeof rewards,
             "[{command: [sh, -c, 'tee \"%s\" | while read x; do echo 1; done'], name: spy}]",
             test_file("seen"));
    REQUIRE_OK(open_manager(&m, rewards, NULL, 1));
    REQUIRE_OK(ares_json_parse(&arena, ARES_VIEW("{\"q\":\"\xc3\xa9\",\"n\":1.0}"), "row", &row));
    m.items[0] = (ares_reward_item){ .in = { .response = ARES_VIEW("a\n\"b\"\0\xff"),
                                             .ground_truth = ARES_VIEW("5"),
                                             .prompt = ARES_VIEW("p"),
                                             .row = row },
                                     .parts = m.parts[0] };
    ares_reward_submit(m.reward, &m.items[0]);
    finish(&m);
    ares_str seen = { 0 };
    while (!seen.len || seen.data[seen.len - 1] != '\n') { /* tee writes its file last */
        ares_str_clear(&seen);
        CHECK_OK(ares_file_read(test_file("seen"), &seen));
        usleep(1000);
    }
    CHECK_STR(seen.data,
              "{\"response\":\"a\\n\\\"b\\\"\\u0000\xef\xbf\xbd\",\"ground_truth\":\"5\","
              "\"prompt\":\"p\",\"finished\":false,\"response_length\":0,\"row\":{\"q\":"
              "\"\xc3\xa9\",\"n\":1.0}}\n");
    ares_str_fini(&seen);
    ares_arena_fini(&arena);
    close_manager(&m);
}

TEST(scores_do_not_depend_on_the_number_of_threads)
{
    float before[MOST] = { 0 };
    char text[MOST][64], truth[MOST][16];
    for (int i = 0; i < MOST; i++) {
        snprintf(text[i], sizeof text[i], "so \\boxed{%d} or %d", i % 7, i % 5);
        snprintf(truth[i], sizeof truth[i], "%d", i % 3);
    }
    for (int threads = 1; threads <= 3; threads++) {
        manager m;
        REQUIRE_OK(open_manager(
            &m,
            "[{name: number, weight: 0.3}, {name: boxed, weight: 0.7}, {name: format, weight: "
            "0.01, pattern: '.*[02468]'}, {name: format, as: odd, pattern: '.*[13579]', weight: "
            "0.02}]",
            NULL, threads));
        for (int i = 0; i < MOST; i++) submit(&m, i, text[i], truth[i], true);
        finish(&m);
        for (int i = 0; i < MOST; i++) {
            if (threads == 1) before[i] = m.items[i].score;
            CHECK_MEM(&m.items[i].score, &before[i], sizeof(float));
        }
        close_manager(&m);
    }
}

static const char misbehaving[] =
    "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "double f(const char *response, const char *truth, const char *row)\n{\n"
    "    printf(\"to be seen by nobody\\n\");\n    fflush(stdout);\n"
    "    if (!strcmp(response, \"crash\")) abort();\n    if (!strcmp(response, \"nan\")) return "
    "NAN;\n    if (!strcmp(response, \"leave\")) exit(0);\n"
    "    return (double)strlen(response) + 10 * (double)strlen(truth) + 100 * "
    "(double)strlen(row);\n}\n";

TEST(a_function_runs_beside_us_and_its_faults_cost_one_score)
{
    manager m;
    char rewards[1024];
    const char *source = test_file("f.c");
    ares_log_set(ARES_LOG_ERROR, 0);
    CHECK_OK(ares_file_write(source, misbehaving, sizeof misbehaving - 1));
    snprintf(rewards, sizeof rewards,
             "[{function: '%s:f', name: f, failure_score: -1, timeout_s: 60, " MEMORY "}]",
             compile(source, "f.so"));
    REQUIRE_OK(open_manager(&m, rewards, "worker.reward.on_failure=score", 1));
    static const char *const responses[] = { "abc", "crash", "", "nan", "leave", "abcd" };
    const double scores[] = { 423, -1, 420, -1, -1, 424 }; /* "null" has four letters */
    for (int i = 0; i < 6; i++) submit(&m, i, responses[i], "12", true);
    finish(&m);
    for (int i = 0; i < 6; i++) CHECK_NEAR(m.items[i].score, scores[i], 0);
    CHECK_NEAR(metric(&m, "reward/failed/f"), 3, 0);
    close_manager(&m);
    /* no such symbol */
    snprintf(rewards, sizeof rewards, "[{function: '%s:g', name: g, timeout_s: 60, " MEMORY "}]",
             test_file("f.so"));
    REQUIRE_OK(open_manager(&m, rewards, NULL, 1));
    submit(&m, 0, "x", "", true);
    finish(&m);
    CHECK(m.items[0].failed);
    close_manager(&m);
}

/* ---------------- Python functions, in the forms of three trainers */
static void check_python(const char *name, const char *source, const char *word, double right,
                         double wrong)
{
    manager m;
    ares_arena arena = { 0 };
    const ares_json *row;
    char words[700];
    ares_log_set(ARES_LOG_ERROR, 0);
    const char *file = test_file(name);
    CHECK_OK(ares_file_write(file, source, strlen(source)));
    REQUIRE_OK(ares_json_parse(&arena,
                               ARES_VIEW("{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"}],"
                                         "\"data_source\":\"sums\",\"solution\":\"5\","
                                         "\"reward_model\":{\"ground_truth\":\"5\"},"
                                         "\"extra_info\":{\"index\":3}}"),
                               "row", &row));
    snprintf(words, sizeof words, word, file);
    m = (manager){ .config = ares_config_new(),
                   .pool = ares_pool_new(1),
                   .metrics = ares_metrics_new() };
    ares_config_add_options(m.config, "worker.reward", ares_reward_options, &m.options);
    ares_config_override(m.config, words);
    ares_config_override(m.config, "worker.reward.reward_function_kwargs={bonus: 2}");
    ares_config_resolve(m.config);
    REQUIRE_OK(ares_reward_open(m.config, &m.options, m.pool, &m.reward));
    static const char *const responses[] = { "5", "6", "raise" };
    static const int32_t id = 7;
    for (int i = 0; i < 3; i++) {
        m.items[i] = (ares_reward_item){ .in = { .response = ares_view_of(responses[i]),
                                                 .ground_truth = ARES_VIEW("5"),
                                                 .stopped = true,
                                                 .row = row,
                                                 .ids = &id,
                                                 .response_tokens = 1 },
                                         .parts = m.parts[i] };
        ares_reward_submit(m.reward, &m.items[i]);
    }
    finish(&m);
    CHECK_MSG(!m.items[0].failed && m.items[0].score == (float)right, "%s: %g, %s", name,
              (double)m.items[0].score, ares_reward_last_failure(m.reward));
    CHECK_NEAR(m.items[1].score, wrong, 1e-6);
    CHECK_MSG(m.items[2].failed, "%s", name);
    CHECK_CONTAINS(ares_reward_last_failure(m.reward), "says: ValueError: no");
    close_manager(&m);
    ares_arena_fini(&arena);
}

TEST(python_functions_run_in_the_forms_of_three_trainers)
{
    static const char verl[] =
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0):\n"
        "    print('seen', data_source)\n"
        "    if solution_str == 'raise': raise ValueError('no')\n"
        "    assert data_source == 'sums' and extra_info['index'] == 3\n"
        "    return {'score': bonus + (solution_str == ground_truth), 'acc': solution_str == "
        "ground_truth}\n";
    static const char later[] =
        "import asyncio\n"
        "async def judge(data_source, solution_str, ground_truth, extra_info, bonus):\n"
        "    await asyncio.sleep(0)\n"
        "    if solution_str == 'raise': raise ValueError('no')\n"
        "    return bonus + float(solution_str == ground_truth)\n";
    static const char batch[] =
        "REWARD_NAME, REWARD_TYPE = 'own', 'batch'\n"
        "def main(reward_inputs, bonus=0):\n"
        "    if any(x['response'] == 'raise' for x in reward_inputs): raise ValueError('no')\n"
        "    return [{'overall': bonus + (x['response'] == x['ground_truth']), 'format': "
        "x['response_length']} for x in reward_inputs]\n";
    static const char one[] = "REWARD_TYPE = 'sequential'\n"
                              "def compute_score(reward_input, bonus=0):\n"
                              "    if reward_input['response'] == 'raise': raise ValueError('no')\n"
                              "    return {'overall': bonus + (reward_input['response'] == "
                              "reward_input['ground_truth'])}\n";
    static const char trl[] =
        "def own(prompts, completions, completion_ids, solution, **kwargs):\n"
        "    texts = [c[0]['content'] for c in completions]\n"
        "    if 'raise' in texts: raise ValueError('no')\n"
        "    assert prompts[0][0]['content'] == 'q' and len(completion_ids) == len(texts)\n"
        "    kwargs['log_extra']('text', texts)\n"
        "    return [float(t == s) for t, s in zip(texts, solution)]\n";
    check_python("verl.py", verl, "worker.reward.reward_function=%s", 3, 2);
    check_python("later.py", later, "worker.reward.reward_function=%s:judge", 3, 2);
    check_python("batch.py", batch, "worker.reward.reward_function=%s:main", 3, 2);
    check_python("one.py", one, "worker.reward.reward_function=%s", 3, 2);
    check_python("trl.py", trl, "worker.reward.reward_funcs=[%s:own]", 1, 0);
    check_python("verl.py", verl,
                 "worker.reward.rewards=[{function: %s:compute_score, kwargs: {bonus: 4}, "
                 "processes: 2}]",
                 5, 4);
}

/* An option that names the entry wins, then the module, then the function, then the file. */
TEST(a_function_of_python_is_named_by_its_module_or_itself)
{
    static const struct {
        const char *source, *rewards, *name;
    } cases[] = {
        { "REWARD_NAME = \"own\"\nREWARD_TYPE = \"batch\"\n", "[{function: '%s:f'}]", "own" },
        { "x = 1\nREWARD_NAME='own' # a name\n", "[{function: '%s:main'}]", "own" },
        { "REWARD_NAME = 'own'\n", "[{function: '%s:f', as: other}]", "other" },
        { "REWARD_NAME = 'a/b'\nREWARD_NAMES = 'own'\n", "[{function: '%s:f'}]", "f" },
        { "REWARD_NAME = 'accuracy'\n", "[{function: '%s:main'}]", "named" },
        { "REWARD_NAME = ''\nREWARD_NAME = name\nREWARD_NAME", "[{function: '%s:f'}]", "f" },
        { "", "[{function: '%s:compute_score'}]", "named" },
        { "", "[{function: '%s'}]", "named" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        manager m;
        char rewards[400];
        const char *file = test_file("named.py");
        CHECK_OK(ares_file_write(file, cases[i].source, strlen(cases[i].source)));
        snprintf(rewards, sizeof rewards, cases[i].rewards, file);
        REQUIRE_OK(open_manager(&m, rewards, NULL, 1));
        CHECK_STR(ares_reward_name(m.reward, 0), cases[i].name);
        close_manager(&m);
    }
}

/* What a function says of three responses: the score where it has one. */
static void ask_python(manager *m, const char *source, const char *row_text, const char *truth)
{
    static ares_arena arena;
    const ares_json *row;
    char rewards[300];
    const char *file = test_file("asked.py");
    CHECK_OK(ares_file_write(file, source, strlen(source)));
    REQUIRE_OK(ares_json_parse(&arena, ares_view_of(row_text), "row", &row));
    snprintf(rewards, sizeof rewards, "[{function: '%s:f', timeout_s: 60}]", file);
    REQUIRE_OK(open_manager(m, rewards, NULL, 1));
    static const char *const responses[] = { "a", "b", "c" };
    for (int i = 0; i < 3; i++) {
        m->items[i] = (ares_reward_item){ .in = { .response = ares_view_of(responses[i]),
                                                  .ground_truth = ares_view_of(truth),
                                                  .stopped = true,
                                                  .row = row,
                                                  .response_tokens = 1 },
                                          .parts = m->parts[i] };
        ares_reward_submit(m->reward, &m->items[i]);
    }
    finish(m);
}

TEST(a_python_function_gets_the_ground_truth_that_was_chosen)
{
    static const struct {
        const char *row, *truth, *told;
    } cases[] = {
        /* data.answer_key names another key than verl's */
        { "{\"reward_model\":{\"ground_truth\":\"A\"},\"extra_info\":{\"answer\":\"B\"}}", "B",
          "'B'" },
        { "{\"reward_model\":{\"ground_truth\":[\"A\"]}}", "B", "'B'" },
        /* verl's own key: a list stays one, a number a number */
        { "{\"reward_model\":{\"ground_truth\":[\"A\",2]}}", "[\"A\",2]", "['A', 2]" },
        { "{\"reward_model\":{\"ground_truth\":1.5}}", "1.5", "1.5" },
        { "{\"reward_model\":{\"ground_truth\":\"7\"}}", "7", "'7'" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        manager m;
        char source[300];
        snprintf(source, sizeof source,
                 "def f(data_source, solution_str, ground_truth, extra_info):\n"
                 "    return float(repr(ground_truth) == repr(%s))\n",
                 cases[i].told);
        ask_python(&m, source, cases[i].row, cases[i].truth);
        CHECK_MSG(m.items[0].score == 1, "case %d: %g", i, (double)m.items[0].score);
        close_manager(&m);
    }
}

TEST(what_a_python_function_answers_is_never_dropped)
{
    static const struct {
        const char *source, *why, *row;
    } cases[] = {
        { "def f(reward_inputs): return [{'overall': 1.0}]\n", "1 scores for 3 responses", "{}" },
        { "def f(completions, **kw): return [1.0]\n", "1 scores for 3 responses", "{}" },
        { "def f(solution_str, **kw): return {'score': 1, 'accuracy': float('nan')}\n",
          "'accuracy' is nan", "{}" },
        { "def f(solution_str, **kw): return 1.0\n", "extra_info is no map: 'text'",
          "{\"extra_info\":\"text\"}" },
    };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        manager m;
        ask_python(&m, cases[i].source, cases[i].row, "5");
        for (int k = 0; k < 3; k++) CHECK_MSG(m.items[k].failed, "case %d", i);
        CHECK_CONTAINS(ares_reward_last_failure(m.reward), cases[i].why);
        close_manager(&m);
    }
    /* verl calls with keywords */
    static const char *const keywords[] = { "def f(**kw): return len(kw)\n",
                                            "def f(data_source, **kw): return 1 + len(kw)\n" };
    for (int i = 0; i < ARES_COUNT(keywords); i++) {
        manager m;
        ask_python(&m, keywords[i], "{}", "5");
        CHECK_NEAR(m.items[2].score, 4, 0);
        close_manager(&m);
    }
}

TEST(python_functions_that_cannot_be_called_are_told_apart)
{
    manager m;
    char rewards[300];
    ares_log_set(ARES_LOG_ERROR, 0);
    check_config_refused("[{function: '/none/x.py:f'}]", "/none/x.py");
    check_config_refused("[{name: exact, kwargs: {a: 1}}]", "kwargs and form are of Python");
    static const struct {
        const char *source, *why;
    } cases[] = { { "import no_such_module\n", "ModuleNotFoundError: No module named" },
                  { "x = 1\n", "has no function 'f'" },
                  { "def f(a, b): pass\n", "cannot be seen; say form" } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const char *file = test_file("bad.py");
        CHECK_OK(ares_file_write(file, cases[i].source, strlen(cases[i].source)));
        snprintf(rewards, sizeof rewards, "[{function: '%s:f'}]", file);
        REQUIRE_OK(open_manager(&m, rewards, NULL, 1));
        submit(&m, 0, "5", "5", true);
        finish(&m);
        CHECK(m.items[0].failed);
        CHECK_CONTAINS(ares_reward_last_failure(m.reward), cases[i].why);
        close_manager(&m);
    }
}

TEST(the_example_of_a_function_works)
{
    manager m;
    char rewards[1024], text[1200];
    memset(text, 'x', sizeof text);
    text[600] = 0;
    snprintf(rewards, sizeof rewards,
             "[{name: number, weight: 0.9}, {function: '%s:length_reward', name: length, weight: "
             "0.1, timeout_s: 60, " MEMORY "}]",
             compile(test_source("examples/reward_function/length.c"), "length.so"));
    REQUIRE_OK(open_manager(&m, rewards, NULL, 2));
    submit(&m, 0, "5", "5", true);
    submit(&m, 1, text, "5", true);
    finish(&m);
    CHECK_NEAR(m.items[0].score, 1, 1e-7);
    CHECK_NEAR(m.items[1].score, 0.05, 1e-7);
    CHECK_NEAR(metric(&m, "reward/failed/length"), 0, 0);
    close_manager(&m);
}

TEST(the_example_of_a_command_works)
{
    manager m;
    char rewards[1024];
    snprintf(rewards, sizeof rewards,
             "[{command: [python3, '%s'], name: last_word, timeout_s: 60, memory_mb: 2048}]",
             test_source("examples/reward_command/reward.py"));
    REQUIRE_OK(open_manager(&m, rewards, NULL, 1));
    submit(&m, 0, "The capital is Paris.", "Paris", true);
    submit(&m, 1, "The capital is London.", "Paris", true);
    submit(&m, 2, "", "Paris", true);
    finish(&m);
    CHECK(m.items[0].score == 1 && m.items[1].score == 0 && m.items[2].score == 0 &&
          m.items[0].accuracy == 1);
    CHECK_NEAR(metric(&m, "reward/failed/last_word"), 0, 0);
    close_manager(&m);
}

TEST(the_examples_configurations_are_ones)
{
    static const char *const files[] = { "examples/reward_function/config.yaml",
                                         "examples/reward_command/config.yaml" };
    for (int i = 0; i < 2; i++) {
        manager m = { .config = ares_config_new() };
        ares_config_add_options(m.config, "worker.reward", ares_reward_options, &m.options);
        ares_config_load_file(m.config, test_source(files[i]));
        ares_config_resolve(m.config);
        /* the shared object is not compiled there, which is the only fault */
        int rc = ares_reward_open(m.config, &m.options, NULL, &m.reward);
        if (rc != ARES_OK)
            CHECK_MSG(i == 0 && ares_config_fault_count(m.config) == 1 &&
                          strstr(ares_error_message(), "length.so:length_reward': no such file"),
                      "%s", ares_error_message());
        close_manager(&m);
    }
}

TEST(ares_train_serves_functions_too)
{
    manager m;
    char rewards[1024];
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    snprintf(
        rewards, sizeof rewards,
        "[{command: ['%s', __reward, '%s', length_reward], name: length, timeout_s: 60, " MEMORY
        "}]",
        test_program(), compile(test_source("examples/reward_function/length.c"), "length.so"));
    REQUIRE_OK(open_manager(&m, rewards, NULL, 1));
    submit(&m, 0, "5", "5", true);
    finish(&m);
    CHECK(m.items[0].score == 1 && !m.items[0].failed);
    close_manager(&m);
}

/*
 * DAPO: scores of right and wrong answers; a reward without an accuracy and a penalty of length
 * stay as they are.
 */
TEST(right_and_wrong_have_the_configured_worth)
{
    static const struct {
        const char *word;
        float right, wrong;
    } cases[] = { { "worker.reward.correct=null", 2.25f, 0.25f },
                  { "worker.reward.correct=3", 6.25f, -1.75f },
                  { "worker.reward.incorrect=0", 2.25f, 0.25f },
                  { "worker.reward.scale=5", 10.25f, -9.75f } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        manager m;
        CHECK_OK(open_manager(
            &m,
            "[{name: exact, weight: 2}, {name: format, finished: false, weight: 0.5}, {name: "
            "overlong, weight: 0.5, max_response_length: 8, overlong_buffer_length: 4}]",
            cases[i].word, 1));
        for (int k = 0; k < 2; k++) {
            m.items[k] = (ares_reward_item){ .in = { .response = ares_view_of(k ? "5" : "4"),
                                                     .ground_truth = ARES_VIEW("4"),
                                                     .response_tokens = 6 },
                                             .parts = m.parts[k] };
            ares_reward_submit(m.reward, &m.items[k]);
        }
        finish(&m);
        CHECK_EQ(m.items[0].score, cases[i].right);
        CHECK_EQ(m.items[1].score, cases[i].wrong);
        CHECK_EQ(m.items[0].unshaped, cases[i].right + 0.25f);
        CHECK_EQ(m.items[1].unshaped, cases[i].wrong + 0.25f);
        CHECK_EQ(ares_reward_max_length(m.reward), 8);
        double right, wrong, penalty; /* without the format, at the full penalty */
        CHECK(ares_reward_worth(m.reward, &right, &wrong, &penalty));
        CHECK_EQ(right, (double)cases[i].right - 0.25);
        CHECK_EQ(wrong, (double)cases[i].wrong - 0.25);
        CHECK_EQ(penalty, 0.5);
        close_manager(&m);
    }
}
