/*
 * The test runner: tests register themselves, checks print both values and go on.
 *
 *   TEST(grpo_gives_zero_to_a_group_of_equal_rewards) { CHECK_NEAR(advantage, 0.0, 0.0); }
 *   TEST_SLOW(...) TEST_MPI(...) TEST_GPU(...)     the same with a label; ctest runs each label on
 *                                         its own
 *
 * Every check is an expression that is true when it held: `if (!CHECK_OK(rc)) return;` ends a test
 * whose rest would make no sense, and REQUIRE and REQUIRE_OK say the same in a word. The second
 * argument of a comparison is the expected value.
 *
 *   test_core [--list] [--label L] [--without L,L] [NAME ...]
 *       NAME: a part of a test's name or of its file's; --label: only tests of that label;
 *           --without: none of these
 *   last line: `test_core: N passed, N failed, N skipped`; exit status 1 when a test failed or
 *       nothing matched a NAME
 *
 * A test that leaves libtorch handles behind (at_live_count) has failed. One that hangs ends the
 * program, which says `FAIL name: took more than 60 s`, and what it has started by test_shell ends
 * with it. The limits: a test without a label has 60 s (300 s with a sanitizer), one with a label
 * 300 s, a slow one 1800 s. ARES_TEST_PATIENCE=4 multiplies them all: for a busy machine.
 */
#ifndef ARES_TEST_H
#define ARES_TEST_H

#include "ares/core.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct test_case {
    const char *name, *file, *labels;
    int line;
    void (*run)(void);
    struct test_case *next;
} test_case;

void test_register(test_case *t);

#define TEST_LABELLED(name_, labels_)                                                          \
    static void test_body_##name_(void);                                                       \
    __attribute__((constructor)) static void test_add_##name_(void)                            \
    {                                                                                          \
        static test_case t = { #name_, __FILE__, labels_, __LINE__, test_body_##name_, NULL }; \
        test_register(&t);                                                                     \
    }                                                                                          \
    static void test_body_##name_(void)

#define TEST(name) TEST_LABELLED(name, "")
#define TEST_SLOW(name) TEST_LABELLED(name, "slow") /* more than some seconds */
#define TEST_MPI(name) TEST_LABELLED(name, "mpi")   /* starts ranks */
#define TEST_GPU(name) TEST_LABELLED(name, "gpu")   /* wants a CUDA device; SKIP without */

/* A comma-separated list of labels is fine: TEST_LABELLED(name, "mpi,slow"). */

#define CHECK(cond) test_check((cond), #cond, __FILE__, __LINE__)
#define CHECK_MSG(cond, ...) \
    test_check_msg((cond), #cond, __FILE__, __LINE__, __VA_ARGS__) /* printf what helps */
#define CHECK_EQ(a, b)                                                                            \
    test_eq((long long)(a), (long long)(b), #a, #b, __FILE__, __LINE__) /* integers, enums, bools \
                                                                         */
#define CHECK_NEAR(a, b, tol) \
    test_near((double)(a), (double)(b), (double)(tol), #a, #b, __FILE__, __LINE__)
/* NUL-terminated; NULL is a value */
#define CHECK_STR(a, b) test_str((a), (b), #a, #b, __FILE__, __LINE__)
#define CHECK_VIEW(a, z) \
    test_view((a), ares_view_of(z), #a, #z, __FILE__, __LINE__) /* ares_view against text */
#define CHECK_MEM(a, b, bytes) \
    test_mem((a), (b), (size_t)(bytes), #a, #b, __FILE__, __LINE__) /* bit for bit */
#define CHECK_CONTAINS(text, part) test_contains((text), (part), #text, __FILE__, __LINE__)
#define CHECK_OK(rc) test_ok((rc), #rc, __FILE__, __LINE__) /* prints ares_error_message */
#define CHECK_FAIL(rc, code, part) test_fails((rc), (code), #code, (part), #rc, __FILE__, __LINE__)

#define REQUIRE(cond)             \
    do {                          \
        if (!CHECK(cond)) return; \
    } while (0)
#define REQUIRE_OK(rc)             \
    do {                           \
        if (!CHECK_OK(rc)) return; \
    } while (0)
#define SKIP(why)       \
    do {                \
        test_skip(why); \
        return;         \
    } while (0)

bool test_check(bool held, const char *expr, const char *file, int line);
bool test_check_msg(bool held, const char *expr, const char *file, int line, const char *format,
                    ...) ARES_PRINTF(5, 6);
bool test_eq(long long a, long long b, const char *ea, const char *eb, const char *file, int line);
/* |a - b| <= tol, or both the same infinity or both NaN */
bool test_near(double a, double b, double tol, const char *ea, const char *eb, const char *file,
               int line);
bool test_str(const char *a, const char *b, const char *ea, const char *eb, const char *file,
              int line);
bool test_view(ares_view a, ares_view b, const char *ea, const char *eb, const char *file,
               int line);
bool test_mem(const void *a, const void *b, size_t n, const char *ea, const char *eb,
              const char *file, int line);
bool test_contains(const char *text, const char *part, const char *expr, const char *file,
                   int line);
bool test_ok(int rc, const char *expr, const char *file, int line);
bool test_fails(int rc, int code, const char *code_name, const char *part, const char *expr,
                const char *file, int line);
void test_skip(const char *why);
/*
 * An instruction set of the kernels ("avx2", "avx512"). Where the CPU lacks it, the test goes on
 * with the others and counts as skipped: not all was shown that it promises.
 * ARES_TEST_WITHOUT_ISA=avx2,avx512 has a CPU that lacks these.
 */
bool test_has_isa(const char *isa);
/* says nothing and skips nothing: for a test that takes the best there is */
bool test_isa_here(const char *isa);

/* --- where things are */

/* A file of the source tree: test_source("tests/tiny"). Lives until the test ends. */
const char *test_source(const char *relative);
/*
 * An empty folder of this test's own, removed when the test ends. The same one on every call within
 * a test.
 */
const char *test_dir(void);
/* test_dir() + "/" + name. Lives until the test ends. */
const char *test_file(const char *name);
/* build/ares-train of the build this test belongs to. */
const char *test_program(void);
/*
 * models/SmolLM2-135M-Instruct, or NULL after skipping the test (failing it when CI=true): `if
 * (!dir) return;`
 */
const char *test_smollm2(void);

/*
 * Runs a shell command, adds its stdout and stderr to out (may be NULL), gives its exit status (128
 * + signal).
 */
int test_shell(ares_str *out, const char *format, ...) ARES_PRINTF(2, 3);
/*
 * This test program again, under mpirun with so many ranks, running only the tests named; output
 * and status as above. The tests named see test_in_mpi() true and do the work of a rank; without it
 * they should SKIP or start themselves.
 */
int test_mpirun(ares_str *out, int ranks, const char *test_name);
bool test_in_mpi(void);

#endif
