/*
 * Counted work, in place of a clock: what a test bounds is compiled once more for its program so
 * that every basic block that runs is counted (-fsanitize-coverage=trace-pc; ares_count_work in
 * cmake/AresTests.cmake), and so are the bytes that it hands to the C library. The number depends
 * on the input alone, on no other process. What PCRE2 and GMP do is not in it: the budgets of the
 * verifiers bound that.
 */
#ifndef TESTS_WORK_H
#define TESTS_WORK_H

#include <stdint.h>

/*
 * By this thread so far: basic blocks, and 16 bytes of the C library each. Limits in the tests are
 * five times what a release build counts, for a build that inlines less has more blocks; quadratic
 * work is thousands of times beyond them.
 */
int64_t work_done(void);
/* bytes asked of the heap, by this thread so far; what was given back again too */
int64_t work_allocated(void);
#endif
