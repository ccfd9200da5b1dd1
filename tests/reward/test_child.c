/* Users' programs that misbehave, in every way we could think of. Each is a line of shell or Python. */
#include "test.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "child.h"

enum { MOST = 400 };
static reward_call results[MOST];
static bool timed_out;

/* A child of this shell script; lines "0", "1" ... are sent to it by ask. */
static reward_child *child_of(const char *script, double timeout_s, int64_t memory_bytes)
{
    char *argv[] = { "sh", "-c", (char *)script, NULL };
    reward_child_options o = { .name = "test", .argv = argv, .timeout_s = timeout_s, .memory_bytes = memory_bytes };
    ares_log_set(ARES_LOG_ERROR, 0); /* what the manager would tell is checked in `why` */
    return reward_child_new(&o);
}

static void ask(reward_child *c, int n)
{
    char line[32];
    memset(results, 0x55, sizeof results);
    timed_out = false;
    for (int i = 0; i < n; i++) {
        snprintf(line, sizeof line, "%d", i);
        reward_child_send(c, ares_view_of(line), &results[i]);
    }
    reward_child_wait(c, &timed_out);
}

static void ask_once(const char *script, int n, double timeout_s, int64_t memory_bytes)
{
    reward_child *c = child_of(script, timeout_s, memory_bytes);
    ask(c, n);
    reward_child_free(c);
}

static int failures(int n)
{
    int failed = 0;
    for (int i = 0; i < n; i++) failed += results[i].failed;
    return failed;
}

static void check_failed(int i, const char *why)
{
    CHECK_MSG(results[i].failed, "line %d", i);
    CHECK_CONTAINS(results[i].why, why);
}

static void check_score(int i, double score)
{
    CHECK_MSG(!results[i].failed, "line %d: %s", i, results[i].why);
    CHECK_NEAR(results[i].score, score, 0);
}

TEST(answers_come_back_in_order_through_any_number_of_batches)
{
    reward_child *c = child_of("while read x; do echo $x.5; done", 60, 0);
    for (int batch = 0; batch < 3; batch++) {
        ask(c, 100);
        for (int i = 0; i < 100; i++) check_score(i, i + 0.5);
        CHECK(isnan(results[0].accuracy) && !timed_out);
    }
    reward_child_wait(c, &timed_out); /* nothing is asked */
    reward_child_free(c);
    reward_child_free(NULL);
}

TEST(answers_may_be_objects_with_an_accuracy_and_blank_lines_are_none)
{
    ask_once("read x; echo; echo ' {\"score\": 1e-1, \"accuracy\": 1, \"other\": []} '; read x; echo '{\"score\":2}'; cat >/dev/null", 2, 60, 0);
    check_score(0, 0.1);
    CHECK_NEAR(results[0].accuracy, 1, 0);
    check_score(1, 2);
    CHECK(isnan(results[1].accuracy));
}

TEST(long_lines_in_and_out_of_small_pipes_do_not_lock_up)
{
    ares_str line = { 0 };
    reward_child *c = child_of("while read x; do printf '%60000s%d\\n' '' ${#x}; done", 60, 0);
    for (int i = 0; i < 1000000; i++) ares_str_add_char(&line, 'x');
    for (int i = 0; i < 5; i++) reward_child_send(c, ares_str_view(&line), &results[i]);
    reward_child_wait(c, &timed_out);
    for (int i = 0; i < 5; i++) check_score(i, 1000000);
    reward_child_free(c);
    ares_str_fini(&line);
}

TEST(a_crash_costs_one_line_and_the_others_are_asked_again)
{
    ask_once("while read x; do [ $x = 3 ] && kill -SEGV $$; echo $x; done", 8, 60, 0);
    for (int i = 0; i < 8; i++)
        if (i != 3) check_score(i, i);
    check_failed(3, "ended by signal 11");
    CHECK(!timed_out);
}

TEST(a_hang_costs_one_line_and_the_clock_is_told)
{
    double start = ares_now_s();
    ask_once("while read x; do [ $x = 1 ] && sleep 100; echo $x; done", 4, 1, 0);
    check_score(0, 0);
    check_failed(1, "gave no answer within 1 s");
    check_score(2, 2);
    check_score(3, 3);
    CHECK(timed_out && ares_now_s() - start < 60);
}

/* The first time it is asked for 1 it answers after the time-out; the answer must not be taken for that of 2. */
TEST(a_late_answer_is_nobodys)
{
    char script[600];
    snprintf(script, sizeof script, "while read x; do [ $x = 1 ] && sleep 2 && echo 77; echo $x; done");
    reward_child *c = child_of(script, 0.7, 0);
    ask(c, 6);
    check_failed(1, "gave no answer");
    for (int i = 0; i < 6; i++)
        if (i != 1 && !results[i].failed) check_score(i, i); /* a busy machine may be late with others */
    reward_child_free(c);
}

TEST(garbage_costs_the_line_it_answers)
{
    static const char *const garbage[] = { "hello", "\"0.5\"", "[1]", "{}", "{\"score\":\"1\"}", "NaN", "1e999", "1e300", "{\"score\":null}", "true", "1 2" };
    for (int k = 0; k < ARES_COUNT(garbage); k++) {
        char script[200];
        snprintf(script, sizeof script, "while read x; do if [ $x = 1 ]; then echo '%s'; else echo $x; fi; done", garbage[k]);
        ask_once(script, 3, 60, 0);
        check_score(0, 0);
        check_failed(1, "answered '");
        check_failed(1, "expected a number or {\"score\": number}");
        check_score(2, 2);
    }
}

TEST(a_flood_without_a_newline_is_stopped)
{
    reward_child *c = child_of("read x; tr '\\0' x </dev/zero", 60, 0);
    ask(c, 2);
    check_failed(0, "floods its output");
    check_failed(1, "floods its output");
    CHECK(!timed_out);
    reward_child_free(c);
}

TEST(answers_to_questions_never_sent_are_refused)
{
    ares_str line = { 0 };
    reward_child *c = child_of("yes 1", 60, 0);
    for (int i = 0; i < 200000; i++) ares_str_add_char(&line, 'x'); /* does not fit in the pipe, so it is not sent whole */
    for (int i = 0; i < 3; i++) reward_child_send(c, ares_str_view(&line), &results[i]);
    reward_child_wait(c, &timed_out);
    for (int i = 0; i < 3; i++) check_failed(i, "says more than it was asked");
    reward_child_free(c);
    ares_str_fini(&line);
}

/* Two answers to the last line of a batch: the second must not become the first answer of the next batch. */
TEST(what_is_left_over_of_a_batch_does_not_reach_the_next)
{
    reward_child *c = child_of("while read x; do echo $x; [ $x = 2 ] && echo 99; done", 60, 0);
    for (int batch = 0; batch < 5; batch++) {
        ask(c, 3);
        for (int i = 0; i < 3; i++) check_score(i, i);
        usleep(200000); /* a rollout lies between two batches; a stray line that came later could not be told from an answer */
    }
    reward_child_free(c);
}

TEST(a_child_that_ends_between_batches_is_started_again_without_blame)
{
    reward_child *c = child_of("for i in 0 1 2; do read x; echo $x; done", 60, 0);
    for (int batch = 0; batch < 3; batch++) {
        ask(c, 3);
        usleep(100000);
        for (int i = 0; i < 3; i++) check_score(i, i);
    }
    reward_child_free(c);
}

TEST(an_early_end_costs_the_line_it_left_unanswered)
{
    ask_once("read x; echo $x; read x; echo $x; exit 7", 5, 60, 0);
    check_score(0, 0);
    check_score(1, 1);
    check_failed(2, "ended with exit code 7");
    check_score(3, 3);
    check_score(4, 4);
}

TEST(a_closed_output_and_a_closed_input_are_told_apart_from_a_hang)
{
    double start = ares_now_s();
    ask_once("exec >&-; sleep 100", 1, 60, 0);
    check_failed(0, "closed its output");
    CHECK(ares_now_s() - start < 30);
    ask_once("read x; exec <&-; echo 5; sleep 0.3; exit 3", 2, 60, 0); /* reads one, then no more */
    check_score(0, 5);
    check_failed(1, "ended with exit code 3");
}

TEST(a_program_that_is_not_there_fails_every_line)
{
    char *argv[] = { "/no/such/program", NULL };
    reward_child_options o = { .name = "test", .argv = argv, .timeout_s = 10 };
    reward_child *c = reward_child_new(&o);
    ask(c, 3);
    for (int i = 0; i < 3; i++) check_failed(i, "cannot be started: /no/such/program: No such file or directory");
    reward_child_free(c);
}

TEST(memory_is_limited)
{
    ask_once("exec python3 -c '\nimport sys\nfor l in sys.stdin:\n    if l == \"1\\n\": x = bytearray(1 << 30)\n    print(int(l), flush=True)\n' 2>/dev/null", 3, 60, 256 << 20);
    check_score(0, 0);
    check_failed(1, "ended with exit code 1");
    check_score(2, 2);
}

TEST(a_program_that_always_fails_is_given_up_until_the_next_batch)
{
    reward_child *c = child_of("exit 1", 60, 0);
    for (int batch = 0; batch < 2; batch++) {
        ask(c, MOST);
        CHECK_EQ(failures(MOST), MOST);
        check_failed(15, "ended with exit code 1");
        check_failed(16, "not asked: the 16 before it failed");
        check_failed(MOST - 1, "not asked");
    }
    reward_child_free(c);
    ask_once("while read x; do [ $((x % 16)) = 15 ] && echo $x || exit 1; done", 64, 60, 0); /* 15 in a row: patience */
    CHECK_EQ(failures(64), 60);
    check_score(63, 63);
}

static bool alive(const char *pid_file)
{
    ares_str s = { 0 };
    bool is = ares_file_read(pid_file, &s) != ARES_OK || kill((pid_t)atoi(s.data), 0) == 0;
    ares_str_fini(&s);
    return is;
}

/* Grandchildren live in the child's process group. Killed ones may take a moment to be gone. */
TEST(nothing_is_left_running)
{
    char script[600];
    const char *pids = test_file("pid");
    snprintf(script, sizeof script, "sleep 1000 & echo $! > '%s'; while read x; do [ $x = 1 ] && sleep 1000; echo $x; done", pids);
    for (int hang = 0; hang < 2; hang++) {
        ask_once(script, hang + 1, 1, 0);
        CHECK_EQ(failures(hang + 1), hang);
        for (int i = 0; i < 500 && alive(pids); i++) usleep(10000);
        CHECK(!alive(pids));
    }
    reward_child *c = child_of("sleep 1000", 1000, 0); /* dropped with lines unanswered */
    reward_child_send(c, ARES_VIEW("x"), &results[0]);
    reward_child_free(c);
}
