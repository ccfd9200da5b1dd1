/*
 * The test runner: tests register themselves; a check that fails prints both values, and the test
 * goes on.
 *
 *   TEST(grpo_gives_zero_to_a_group_of_equal_rewards) { CHECK_NEAR(advantage, 0.0, 0.0); }
 *   TEST_SLOW(...) TEST_MPI(...) TEST_GPU(...)     with a label; ctest runs each label by itself
 *
 * Every check is an expression, true when it held: `if (!CHECK_OK(rc)) return;` ends a test that
 * cannot go on, and REQUIRE and REQUIRE_OK do the same. The second argument of a comparison is the
 * expected value.
 *
 *   test_core [--list] [--label L] [--without L,L] [--only FILE] [--except FILE] [--jobs N]
 *             [NAME ...]
 *       NAME: a part of a test's name or of its file's, =NAME: the whole name; --label: only tests
 *       with that label; --without: no tests with these; --only, --except: the tests that a file
 *       names, one a line, or the others; --jobs: as many tests side by side, in processes that
 *       share nothing, and N times the limits below
 *   last line: `test_core: N passed, N failed, N skipped`; exit status 1 when a test failed or
 *       nothing matched a NAME
 *
 * A test that leaves libtorch handles (at_live_count) fails. A test that hangs ends the program,
 * which prints `FAIL name: took more than 60 s`; what the test started with test_shell ends too.
 * The limits: 60 s for a test without a label (300 s with a sanitizer), 300 s with a label, 1800 s
 * for a slow one. ARES_TEST_PATIENCE=4 multiplies them, for a busy machine.
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
/*
 * A test of bits in both arithmetics of products: once as `name`, once as `name_in_bf16`. Models
 * are opened with TEST_TYPES, runs with a word of test_arithmetic_word.
 */
#define TEST_BITS(name)                 \
    static void test_bits_##name(void); \
    TEST(name)                          \
    {                                   \
        test_bits_##name();             \
    }                                   \
    TEST(name##_in_bf16)                \
    {                                   \
        test_arithmetic = ARES_BF16;    \
        test_bits_##name();             \
        test_arithmetic = ARES_F32;     \
    }                                   \
    static void test_bits_##name(void)
#define TEST_TYPES                                                                \
    .storage = test_arithmetic, .arithmetic = test_arithmetic /* of model options \
                                                               */
extern ares_dtype test_arithmetic;
const char *test_arithmetic_word(void);             /* worker.actor.arithmetic=... */
#define TEST_SLOW(name) TEST_LABELLED(name, "slow") /* takes more than a few seconds */
#define TEST_MPI(name) TEST_LABELLED(name, "mpi")   /* starts ranks */
#define TEST_GPU(name) TEST_LABELLED(name, "gpu")   /* needs a CUDA device; SKIP without */

/* A comma-separated list of labels is fine: TEST_LABELLED(name, "mpi,slow"). */

#define CHECK(cond) test_check((cond), #cond, __FILE__, __LINE__)
#define CHECK_MSG(cond, ...) \
    test_check_msg((cond), #cond, __FILE__, __LINE__, __VA_ARGS__) /* then a printf message */
/* integers, enums, bools; and floating-point numbers that are the same (NaN is itself) */
#define CHECK_EQ(a, b)                                                               \
    test_is(TEST_FLOATS(a) || TEST_FLOATS(b)                                         \
                ? test_near((double)(a), (double)(b), 0, #a, #b, __FILE__, __LINE__) \
                : test_eq((long long)(a), (long long)(b), #a, #b, __FILE__, __LINE__))
#ifdef __cplusplus
#define TEST_FLOATS(x) false /* C++ has no _Generic; CHECK_EQ there is for integers */
#else
#define TEST_FLOATS(x) _Generic((x), float: 1, double: 1, default: 0)
#endif
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
static inline bool test_is(bool ok) /* a macro's result, which may go unused */
{
    return ok;
}
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
 * Whether the CPU has an instruction set of the kernels ("avx2", "avx512"). If not, the test goes
 * on with the others and counts as skipped, because it has not shown everything.
 * ARES_TEST_WITHOUT_ISA=avx2,avx512 stands for a CPU without these.
 */
bool test_has_isa(const char *isa);
/* the same without a message or a skip, for a test that uses the best one available */
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
/*
 * A folder that the tests of this program share, removed when the program ends, or that of all
 * programs in ARES_TEST_KEPT (scripts/test.sh): for what is expensive to make and never changed.
 * make(folder) is called where folder/made does not exist; tests that run side by side wait for it.
 */
const char *test_kept(const char *name, const char *made, void (*make)(const char *path));
/*
 * For programs that the test starts: the order in which emulated cards run what is queued
 * (docs/testing.md), the n-th after the one that ARES_EMULATE_SEED gave to this program; 0: that
 * one again.
 */
void test_emulated_order(int n);
/* build/ares-train of the build this test belongs to. */
const char *test_program(void);
/*
 * models/SmolLM2-135M-Instruct, or NULL after skipping the test (failing it when CI=true): `if
 * (!dir) return;`
 */
const char *test_smollm2(void);

/*
 * Runs a shell command, adds its stdout and stderr to out (may be NULL), and returns its exit
 * status (128 + signal).
 */
int test_shell(ares_str *out, const char *format, ...) ARES_PRINTF(2, 3);
/*
 * Runs this test program again under mpirun, with that many ranks and only the named tests; output
 * and status as above. In the ranks test_in_mpi() is true and the tests do a rank's work; outside
 * mpirun they should SKIP or start themselves.
 */
int test_mpirun(ares_str *out, int ranks, const char *test_name);
bool test_in_mpi(void);
/* Whether this is a rank. If not, runs the test again as so many, and fails where they do. */
bool test_as_ranks(int ranks, const char *test_name);

#endif
