#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(fail_writes_the_message_and_returns_its_code)
{
    CHECK_EQ(ares_fail(ARES_EIO, "file: '%s': gone", "a"), ARES_EIO);
    CHECK_STR(ares_error_message(), "file: 'a': gone");
    ares_error_clear();
    CHECK_STR(ares_error_message(), "");
}

TEST(fail_in_puts_the_place_before_the_cause)
{
    (void)ares_fail(ARES_EFORMAT, "no key '%s'", "x");
    CHECK_EQ(ares_fail_in(ARES_EFORMAT, "data: train.jsonl:%d", 7), ARES_EFORMAT);
    CHECK_STR(ares_error_message(), "data: train.jsonl:7: no key 'x'");
}

TEST(a_message_may_be_part_of_the_next_one)
{
    (void)ares_fail(ARES_EIO, "inner");
    (void)ares_fail(ARES_EIO, "outer (%s)", ares_error_message());
    CHECK_STR(ares_error_message(), "outer (inner)");
}

TEST(a_message_that_does_not_fit_ends_with_dots_and_in_whole_characters)
{
    /* a two-byte character before, across and after the cut */
    for (size_t extra = 0; extra < 4; extra++) {
        ares_str text = { 0 };
        for (size_t i = 0; i < extra; i++) ares_str_add_char(&text, 'x');
        while (text.len < 70000) ares_str_add_z(&text, "\xC3\xA4");
        (void)ares_fail(ARES_EIO, "%s", text.data);
        for (int again = 0; again < 3;
             again++) { /* alone, after a place, and after a place that fills the buffer */
            const char *message = ares_error_message();
            size_t len = strlen(message);
            CHECK(len > 30000 && len < 40000);
            CHECK_STR(message + len - 3, "...");
            CHECK_EQ((unsigned char)message[len - 4], 0xA4);
            (void)ares_fail_in(ARES_EIO, "%s", again == 0 ? "place" : text.data);
        }
        ares_str_fini(&text);
    }
}

static void *other_thread(void *seen)
{
    *(bool *)seen = strcmp(ares_error_message(), "") == 0;
    (void)ares_fail(ARES_EIO, "of the other thread");
    return NULL;
}

TEST(every_thread_has_its_own_message)
{
    bool empty = false;
    pthread_t thread;
    (void)ares_fail(ARES_EIO, "of this thread");
    REQUIRE(pthread_create(&thread, NULL, other_thread, &empty) == 0);
    pthread_join(thread, NULL);
    CHECK(empty);
    CHECK_STR(ares_error_message(), "of this thread");
}

TEST(exit_codes_tell_wrong_use_from_failure)
{
    CHECK_EQ(ares_error_exit_code(ARES_OK), 0);
    CHECK_EQ(ares_error_exit_code(ARES_EUSE), 2);
    CHECK_EQ(ares_error_exit_code(ARES_ECONFIG), 2);
    CHECK_EQ(ares_error_exit_code(ARES_EIO), 1);
    CHECK_EQ(ares_error_exit_code(ARES_ESTATE), 1);
    CHECK_EQ(ares_error_exit_code(ARES_EINTERRUPTED), 130);
}

/* What `body` writes to stderr, read through a pipe, which holds all of the short lines. */
static void captured(ares_str *out, void (*body)(void))
{
    int ends[2], kept = dup(STDERR_FILENO);
    REQUIRE(pipe(ends) == 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    body();
    dup2(kept, STDERR_FILENO);
    close(kept);
    char text[4096];
    for (ssize_t n; (n = read(ends[0], text, sizeof text)) > 0;) ares_str_add(out, text, (size_t)n);
    close(ends[0]);
}

static void log_as_ranks(void)
{
    ares_log_set(ARES_LOG_INFO, 0);
    ares_log(ARES_LOG_DEBUG, "hidden");
    ares_info("step %d", 1);
    ares_log_set(ARES_LOG_INFO, 3);
    ares_info("hidden on rank 3");
    ares_warn("odd");
    ares_log(ARES_LOG_ERROR, "bad");
    ares_log_set(ARES_LOG_INFO, 0);
}

TEST(ranks_other_than_0_log_warnings_and_errors_with_their_rank)
{
    ares_str out = { 0 };
    captured(&out, log_as_ranks);
    CHECK_STR(out.data, "step 1\n[rank 3] warning: odd\n[rank 3] error: bad\n");
    ares_str_fini(&out);
}

TEST(an_assertion_aborts_with_file_and_line)
{
    int ends[2], status = 0;
    REQUIRE(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        ARES_ASSERT(1 + 1 == 3);
        _exit(0);
    }
    close(ends[1]);
    char text[512] = "";
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    waitpid(pid, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK_CONTAINS(text, "test_error.c:");
    CHECK_CONTAINS(text, "1 + 1 == 3 does not hold");
}
