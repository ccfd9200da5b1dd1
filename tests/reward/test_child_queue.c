/* Users' programs that misbehave in many ways. Each is a line of shell or Python. */
#include "test.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "clock.h"
#include "internal.h"
#include "work.h"

enum { MOST = 400 };
static reward_call results[MOST];
static bool timed_out;

/* A child of this shell script; lines "0", "1" ... are sent to it by ask. */
static reward_child *child_of(const char *script, double timeout_s, int64_t memory_bytes)
{
    char *argv[] = { "sh", "-c", (char *)script, NULL };
    reward_child_options o = {
        .name = "test", .argv = argv, .timeout_s = timeout_s, .memory_bytes = memory_bytes
    };
    ares_log_set(ARES_LOG_ERROR, 0); /* `why` is checked in place of the manager's warnings */
    return reward_child_new(&o);
}

static void ask(reward_child *c, int n)
{
    char line[32];
    memset(results, 0x55, sizeof results);
    timed_out = false;
    for (int i = 0; i < n; i++) {
        snprintf(line, sizeof line, "%d", i);
        reward_child_send(c, ares_view_of(line), &results[i], NULL);
    }
    reward_child_wait(&c, 1, &timed_out);
}

static void ask_once(const char *script, int n, double timeout_s, int64_t memory_bytes)
{
    reward_child *c = child_of(script, timeout_s, memory_bytes);
    ask(c, n);
    reward_child_free(c);
}

/* Frees what the first n answers said. */
static void forget(int n)
{
    for (int i = 0; i < n; i++) ares_free(results[i].said);
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
    reward_child_wait(&c, 1, &timed_out); /* no line was sent */
    reward_child_free(c);
    reward_child_free(NULL);
}

/* Answers may arrive in pieces of different sizes: 64 KiB are allowed for them. */
TEST(a_program_that_is_asked_for_ever_takes_no_more_memory)
{
    int64_t first = 0, most = 0;
    reward_child *c = child_of("exec cat", 60, 0);
    for (int batch = 0; batch < 200; batch++) {
        int64_t before = work_allocated();
        ask(c, 100);
        int64_t taken = work_allocated() - before;
        if (batch == 0) first = taken;
        most = ARES_MAX(most, taken);
    }
    check_score(99, 99);
    CHECK_MSG(most < first + (64 << 10), "a batch took %lld bytes, the first one %lld",
              (long long)most, (long long)first);
    reward_child_free(c);
}

TEST(answers_may_be_objects_with_an_accuracy_and_blank_lines_are_none)
{
    ask_once("read x; echo; echo ' {\"score\": 0.1, \"accuracy\": 1, \"other\": []} '; read x; "
             "echo '{\"score\":2}'; cat >/dev/null",
             2, 60, 0);
    check_score(0, 0.1);
    CHECK_NEAR(results[0].accuracy, 1, 0);
    CHECK_STR(results[0].said, "{\"score\":0.1,\"accuracy\":1,\"other\":[]}");
    check_score(1, 2);
    CHECK(isnan(results[1].accuracy));
    forget(2);
}

TEST(truth_values_are_numbers_and_an_accuracy_may_be_null)
{
    ask_once("read x; echo '{\"score\": true, \"accuracy\": false}'; read x; echo true; read x; "
             "echo '{\"score\": 0.5, \"accuracy\": null}'; cat >/dev/null",
             3, 60, 0);
    check_score(0, 1);
    CHECK_NEAR(results[0].accuracy, 0, 0);
    check_score(1, 1);
    check_score(2, 0.5);
    CHECK(!results[1].said && isnan(results[2].accuracy));
    forget(3);
}

TEST(an_accuracy_of_another_type_is_a_failure)
{
    static const char *const wrong[] = { "\"1\"", "[]", "{}" };
    for (int k = 0; k < ARES_COUNT(wrong); k++) {
        char script[200];
        snprintf(script, sizeof script,
                 "read x; echo '{\"score\": 1, \"accuracy\": %s}'; cat >/dev/null", wrong[k]);
        ask_once(script, 1, 60, 0);
        check_failed(0, "its accuracy is neither a number nor true or false");
        CHECK(!results[0].said);
    }
}

TEST(long_lines_in_and_out_of_small_pipes_do_not_lock_up)
{
    ares_str line = { 0 };
    reward_child *c = child_of("while read x; do printf '%60000s%d\\n' '' ${#x}; done", 60, 0);
    for (int i = 0; i < 1000000; i++) ares_str_add_char(&line, 'x');
    for (int i = 0; i < 5; i++) reward_child_send(c, ares_str_view(&line), &results[i], NULL);
    reward_child_wait(&c, 1, &timed_out);
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

/* The file that a program of a test creates when it hangs (clock.h). */
static const char *hangs(void)
{
    const char *file = test_file("hangs");
    clock_hang_file(file);
    return file;
}

TEST(a_hang_costs_one_line_and_the_clock_is_told)
{
    char script[600];
    snprintf(script, sizeof script,
             "while read x; do [ $x = 1 ] && touch '%s' && sleep 1000; echo $x; done", hangs());
    ask_once(script, 4, 900, 0);
    clock_hang_file(NULL);
    check_score(0, 0);
    check_failed(1, "gave no answer within 900 s");
    check_score(2, 2);
    check_score(3, 3);
    CHECK(timed_out);
}

/*
 * The answer to line 1 comes after the time-out, when its file is gone; it must not be taken for
 * the answer to line 2.
 */
TEST(a_late_answer_is_nobodys)
{
    char script[600];
    const char *file = hangs();
    snprintf(script, sizeof script,
             "while read x; do if [ $x = 1 ]; then touch '%s'; while [ -e '%s' ]; do :; done; echo "
             "77; fi; echo $x; done",
             file, file);
    reward_child *c = child_of(script, 900, 0);
    ask(c, 6);
    clock_hang_file(NULL);
    check_failed(1, "gave no answer");
    for (int i = 0; i < 6; i++)
        if (i != 1) check_score(i, i);
    reward_child_free(c);
}

/*
 * Three answers of 600 s each: none is late, though together they would be. A fourth takes 1200 s,
 * in two parts.
 */
TEST(the_time_out_is_of_one_answer_and_begins_with_the_answer_before_it)
{
    char script[600];
    const char *file = test_file("slow");
    snprintf(script, sizeof script,
             "slow() { touch '%s'; while [ -e '%s' ]; do :; done; }\n"
             "while read x; do slow; [ $x = 3 ] && slow; echo $x; done",
             file, file);
    clock_slow_file(file, 600);
    reward_child *c = child_of(script, 900, 0);
    ask(c, 5);
    clock_slow_file(NULL, 0);
    for (int i = 0; i < 5; i++)
        if (i != 3) check_score(i, i);
    check_failed(3, "gave no answer within 900 s");
    CHECK(timed_out);
    reward_child_free(c);
}

TEST(garbage_costs_the_line_it_answers)
{
    static const char *const garbage[] = { "hello", "\"0.5\"", "[1]",   "{}",   "{\"score\":\"1\"}",
                                           "NaN",   "1e999",   "1e300", "null", "1 2" };
    for (int k = 0; k < ARES_COUNT(garbage); k++) {
        char script[200];
        snprintf(script, sizeof script,
                 "while read x; do if [ $x = 1 ]; then echo '%s'; else echo $x; fi; done",
                 garbage[k]);
        ask_once(script, 3, 60, 0);
        check_score(0, 0);
        check_failed(1, "answered '");
        check_failed(1, "expected a number or {\"score\": number}");
        check_score(2, 2);
    }
}

/* json.dumps of Python writes them. */
TEST(a_field_that_is_not_json_is_named)
{
    ask_once("while read x; do echo '{\"score\": 1, \"length\": NaN}'; done", 1, 60, 0);
    check_failed(0, "it is no JSON: ");
    check_failed(0, "NaN");
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
    /* does not fit in the pipe, so it is not sent whole */
    for (int i = 0; i < 200000; i++) ares_str_add_char(&line, 'x');
    for (int i = 0; i < 3; i++) reward_child_send(c, ares_str_view(&line), &results[i], NULL);
    reward_child_wait(&c, 1, &timed_out);
    for (int i = 0; i < 3; i++) check_failed(i, "wrote more answers than lines were sent");
    reward_child_free(c);
    ares_str_fini(&line);
}

/*
 * Two answers to the last line of a batch, the second between the batches: it must not become the
 * first answer of the next batch.
 */
TEST(what_is_left_over_of_a_batch_does_not_reach_the_next)
{
    char script[1200];
    const char *go = test_file("go"), *said = test_file("said");
    snprintf(script, sizeof script,
             "while read x; do echo $x; if [ $x = 2 ]; then while [ ! -e '%s' ]; do :; done; echo "
             "99; touch '%s'; fi; done",
             go, said);
    reward_child *c = child_of(script, 60, 0);
    for (int batch = 0; batch < 5; batch++) {
        ask(c, 3);
        for (int i = 0; i < 3; i++) check_score(i, i);
        CHECK_OK(ares_file_write(go, "", 0));
        /* a stray line that came later would look like an answer */
        while (!ares_file_exists(said)) usleep(1000);
        unlink(go);
        unlink(said);
    }
    reward_child_free(c);
}

TEST(what_comes_with_the_last_answer_of_a_batch_does_not_reach_the_next)
{
    reward_child *c =
        child_of("while read x; do [ $x = 2 ] && printf '2\\n99\\n' || echo $x; done", 60, 0);
    for (int batch = 0; batch < 5; batch++) {
        ask(c, 3);
        for (int i = 0; i < 3; i++) check_score(i, i);
    }
    reward_child_free(c);
}

TEST(a_child_that_ends_between_batches_is_started_again_without_blame)
{
    char script[600];
    const char *pid = test_file("pid");
    snprintf(script, sizeof script, "echo $$ > '%s'; for i in 0 1 2; do read x; echo $x; done",
             pid);
    reward_child *c = child_of(script, 60, 0);
    for (int batch = 0; batch < 3; batch++) {
        ask(c, 3);
        /* it ends before the next batch */
        while (test_shell(NULL, "grep -q '^State:.Z' /proc/$(cat '%s')/status", pid) != 0)
            usleep(1000);
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
    ask_once("exec >&-; sleep 1000", 1, 900, 0);
    check_failed(0, "closed its output");
    CHECK(!timed_out);
    ask_once("read x; exec <&-; echo 5; sleep 0.3; exit 3", 2, 60, 0); /* reads one, then no more */
    check_score(0, 5);
    check_failed(1, "ended with exit code 3");
}

TEST(the_last_words_of_a_program_are_part_of_the_reason)
{
    ask_once("read x; echo first >&2; printf 'ValueError:\\tx\\n\\n' >&2; exit 1", 1, 60, 0);
    CHECK_STR(results[0].why, "ended with exit code 1: ValueError: x");
}

TEST(an_error_costs_its_response_and_the_program_goes_on)
{
    ask_once("read x; echo '{\"error\": \"KeyError: a\"}'; read x; echo 2; cat >/dev/null", 2, 60,
             0);
    check_failed(0, "says: KeyError: a");
    check_score(1, 2);
}

static reward_child *several(const char *script, int64_t processes, bool batch)
{
    char *argv[] = { "sh", "-c", (char *)script, NULL };
    reward_child_options o = {
        .name = "test", .argv = argv, .timeout_s = 900, .processes = processes, .batch = batch
    };
    ares_log_set(ARES_LOG_ERROR, 0);
    return reward_child_new(&o);
}

/* No process answers before all three have been asked. */
TEST(processes_are_asked_side_by_side_and_answers_keep_their_order)
{
    char script[600];
    const char *dir = test_file("here");
    CHECK_OK(ares_dir_make(dir));
    snprintf(script, sizeof script,
             "while read x; do touch '%s'/$$; until [ $(ls '%s' | wc -l) = 3 ]; do sleep 0.01; "
             "done; echo $x; done",
             dir, dir);
    reward_child *c = several(script, 3, false);
    for (int batch = 0; batch < 2; batch++) {
        ask(c, 7);
        for (int i = 0; i < 7; i++) check_score(i, i);
    }
    reward_child_free(c);
}

TEST(a_crash_of_one_process_is_not_that_of_the_others)
{
    reward_child *c = several("while read x; do [ $x = 4 ] && exit 3; echo $x; done", 2, false);
    ask(c, 6);
    for (int i = 0; i < 6; i++)
        if (i == 4) check_failed(4, "ended with exit code 3");
        else check_score(i, i);
    reward_child_free(c);
}

TEST(a_batch_is_one_line_and_its_answers_are_in_order)
{
    reward_child *c = several("read x; [ \"$x\" = '[0,1,2]' ] && echo '[5, {\"score\": 6, "
                              "\"accuracy\": true}, \"x\"]'; read x; echo \"$x\"; cat >/dev/null",
                              1, true);
    ask(c, 3);
    check_score(0, 5);
    check_score(1, 6);
    CHECK_NEAR(results[1].accuracy, 1, 0);
    check_failed(2, "answered '\"x\"'; expected a number"); /* the others count */
    forget(3);
    ask(c, 2);
    check_score(0, 0);
    check_score(1, 1);
    reward_child_free(c);
    c = several("while read x; do echo $x; done", 3, true);
    ask(c, 8);
    for (int i = 0; i < 8; i++) check_score(i, i);
    reward_child_free(c);
}

TEST(a_batch_that_fails_is_asked_again_one_by_one)
{
    static const char *const fails[] = { "exit 3", "echo '[1]'", "echo 7" };
    for (int k = 0; k < ARES_COUNT(fails); k++) {
        char script[200];
        snprintf(script, sizeof script,
                 "while read x; do case $x in *,*|*2*) %s; ;; *) echo $x;; esac; done", fails[k]);
        reward_child *c = several(script, 1, true);
        ask(c, 4);
        for (int i = 0; i < 4; i++)
            if (i != 2) check_score(i, i);
        CHECK(k == 1 ? !results[2].failed && results[2].score == 1 : results[2].failed);
        reward_child_free(c);
    }
}

TEST(a_process_has_more_time_for_its_first_answer)
{
    char *argv[] = { "sh", "-c", "sleep 0.4; while read x; do echo $x; done", NULL };
    reward_child_options o = {
        .name = "test", .argv = argv, .timeout_s = 0.1, .start_timeout_s = 900
    };
    reward_child *c = reward_child_new(&o);
    ask(c, 1);
    check_score(0, 0);
    reward_child_free(c);
}

TEST(a_program_that_is_not_there_fails_every_line)
{
    char *argv[] = { "/no/such/program", NULL };
    reward_child_options o = { .name = "test", .argv = argv, .timeout_s = 10 };
    reward_child *c = reward_child_new(&o);
    ask(c, 3);
    for (int i = 0; i < 3; i++)
        check_failed(i, "cannot be started: /no/such/program: No such file or directory");
    reward_child_free(c);
    argv[0] = "python3 my.py"; /* not a list of words */
    c = reward_child_new(&o);
    ask(c, 1);
    check_failed(0, "a command is a list of words, as in [python3, my.py]");
    reward_child_free(c);
}

TEST(memory_is_limited)
{
    ask_once("exec python3 -c '\nimport sys\nfor l in sys.stdin:\n    if l == \"1\\n\": x = "
             "bytearray(1 << 30)\n    print(int(l), flush=True)\n' 2>/dev/null",
             3, 60, 256 << 20);
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
    /* 15 failures in a row do not end the queue */
    ask_once("while read x; do [ $((x % 16)) = 15 ] && echo $x || exit 1; done", 64, 60, 0);
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

/*
 * Grandchildren live in the child's process group. After a kill they may take a moment to
 * disappear.
 */
TEST(nothing_is_left_running)
{
    char script[600];
    const char *pids = test_file("pid");
    snprintf(script, sizeof script,
             "sleep 1000 & echo $! > '%s'; while read x; do [ $x = 1 ] && touch '%s' && sleep "
             "1000; echo $x; done",
             pids, hangs());
    for (int hang = 0; hang < 2; hang++) {
        ask_once(script, hang + 1, 900, 0);
        CHECK_EQ(failures(hang + 1), hang);
        while (alive(pids)) usleep(1000); /* the test runner ends a test that waits forever */
    }
    clock_hang_file(NULL);
    reward_child *c = child_of("sleep 1000", 1000, 0); /* freed with unanswered lines */
    reward_child_send(c, ARES_VIEW("x"), &results[0], NULL);
    reward_child_free(c);
}
