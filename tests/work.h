/*
 * Counted work instead of a clock: the code that a test bounds is compiled again for the test's
 * program, so that every basic block that runs is counted (-fsanitize-coverage=trace-pc;
 * ares_count_work in cmake/AresTests.cmake), and the bytes that it passes to the C library too. The
 * count depends only on the input, not on other processes. It does not include the work of PCRE2
 * and GMP, which the budgets of the verifiers bound.
 */
#ifndef TESTS_WORK_H
#define TESTS_WORK_H

#include <stdint.h>

/*
 * Work of this thread so far: basic blocks, plus one per 16 bytes of the C library. Limits in the
 * tests are five times the count of a release build, because a build that inlines less has more
 * blocks; quadratic work exceeds them a thousandfold.
 */
int64_t work_done(void);
/* bytes that this thread has allocated so far, freed ones included */
int64_t work_allocated(void);
#endif
