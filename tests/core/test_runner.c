/* The runner itself: a test that hangs, and tests that a file names. */
#include "test.h"

#include <signal.h>
#include <unistd.h>

/*
 * The test once more in a program whose limits are 0.3 s: there it hangs. What it starts there
 * holds the output open.
 */
TEST(a_test_that_hangs_is_named_and_what_it_started_ends_with_it)
{
    char self[4096];
    ares_str out = { 0 };
    if (getenv("ARES_TEST_HANGS")) test_shell(NULL, "sleep 1000 & wait");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    REQUIRE(n > 0);
    self[n] = 0;
    int rc = test_shell(
        &out, "ARES_TEST_PATIENCE=0.005 ARES_TEST_HANGS=1 '%s' a_test_that_hangs 3>&1", self);
    CHECK_EQ(rc, 128 + SIGALRM);
    CHECK_CONTAINS(out.data, "FAIL a_test_that_hangs_is_named_and_what_it_started_ends_with_it: "
                             "took more than ");
    CHECK_CONTAINS(out.data, ": 0 passed, 1 failed, 0 skipped");
    ares_str_fini(&out);
}

#define HANGS "a_test_that_hangs_is_named_and_what_it_started_ends_with_it"
#define NAMES "a_file_names_the_tests_that_run_or_that_do_not"
TEST(a_file_names_the_tests_that_run_or_that_do_not)
{
    char self[4096];
    ares_str out = { 0 };
    const char *both = test_file("both"), *gone = test_file("gone");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    REQUIRE(n > 0);
    self[n] = 0;
    static const char two[] = "# two\n" HANGS "\n" NAMES "\n", none[] = "a_file_names\n";
    REQUIRE_OK(ares_file_write(both, two, sizeof two - 1));
    REQUIRE_OK(ares_file_write(gone, none, sizeof none - 1));

    CHECK_EQ(test_shell(&out, "'%s' --list --only %s test_runner", self, both), 0);
    CHECK_STR(out.data, HANGS "\n" NAMES "\n");
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "'%s' --list --except %s", self, both), 0);
    CHECK(out.data && !strstr(out.data, "a_file_names") && !strstr(out.data, "a_test_that_hangs"));
    CHECK_CONTAINS(out.data, "_"); /* the others */

    /* a name that no test has is a failure, whatever else would run */
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "'%s' --except %s =a_file_names", self, gone), 2);
    CHECK_CONTAINS(out.data, "there is no test 'a_file_names'");
    CHECK_EQ(test_shell(NULL, "'%s' --list =a_file_names", self), 0);
    CHECK_EQ(test_shell(NULL, "'%s' =a_file_names", self), 1);
    ares_str_fini(&out);
}
