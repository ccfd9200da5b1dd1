/* The kernels' tests say which instruction sets they left out: this program as if on a lesser CPU.
 */
#include "kernels_test.h"

static void run_without(const char *lacking, const char *tests, ares_str *out)
{
    ares_str_clear(out);
    CHECK_EQ(test_shell(out, "ARES_TEST_WITHOUT_ISA=%s '%s/test_kernels' %s", lacking,
                        ARES_BINARY_DIR, tests),
             0);
}

TEST(a_test_that_leaves_an_instruction_set_out_says_so_and_counts_as_skipped)
{
    ares_str out = { 0 };
    run_without("avx512", "test_gate_mul", &out);
    CHECK_CONTAINS(out.data, "SKIP gate_mul_");
    CHECK_CONTAINS(out.data, ": avx512 left out: this machine's CPU lacks it\n");
    CHECK(!strstr(out.data, "ok   "));
    CHECK_CONTAINS(out.data, "test_kernels: 0 passed, 0 failed, 3 skipped");
    run_without("avx2,avx512", "square_sums_and_add", &out);
    CHECK_CONTAINS(out.data, ": avx2 left out");
    CHECK_CONTAINS(out.data, ": avx512 left out");
    /* one line per test, whatever number it left out */
    CHECK_CONTAINS(out.data, "0 passed, 0 failed, 1 skipped");
    ares_str_fini(&out);
}

/* Tests that take the best instruction set there is need none in particular. */
TEST(a_test_of_any_instruction_set_skips_none)
{
    ares_str out = { 0 };
    run_without("avx512", "linear_meets_f64 other_sequences_and", &out);
    CHECK_CONTAINS(out.data, "2 passed, 0 failed, 0 skipped");
    ares_str_fini(&out);
}
