/* The runner itself: a test that hangs. */
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
