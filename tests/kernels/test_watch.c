/*
 * Tiles run without the sanitizer's check at every access and check what they touch before
 * (isa.h): memory that is one number short must still be reported, and memory that is not, not.
 */
#include "kernels_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
typedef enum { NONE, X, WEIGHT, Y, DY_X, DW, VALUES, QUERIES, D_OUT, SHORT } short_of;
static const char *const what[SHORT] = { "nothing", "x", "the weight", "y",    "x of dw",
                                         "dw",      "v", "q",          "d_out" };

/* So many floats, less one where this is what is short; exactly as large as the heap says. */
static float *floats(int64_t n, bool less)
{
    return filled(n - less, 0.5f);
}

static void linear(ares_device *d, int m, short_of less)
{
    enum { N = 96, K = 40 };
    ares_matrix w = { floats(N * K, less == WEIGHT), ARES_F32, ARES_PANEL32, N, K };
    ares_linear_args a = { .m = m,
                           .x = floats((int64_t)m * K, less == X),
                           .ldx = K,
                           .w = &w,
                           .y = floats((int64_t)m * N, less == Y),
                           .ldy = N };
    d->k->linear(d, &a, 1);
}

static void linear_gradient(ares_device *d, short_of less)
{
    enum { M = 9, N = 32, K = 48 };
    ares_matrix dw = { floats(N * K, less == DW), ARES_F32, ARES_PANEL32, N, K };
    ares_linear_backward_args a = { .m = M,
                                    .dy = floats(M * N, false),
                                    .lddy = N,
                                    .x = floats(M * K, less == DY_X),
                                    .ldx = K,
                                    .dw = &dw };
    d->k->linear_backward(d, &a, 1);
}

static void attention(ares_device *d, short_of less)
{
    enum { ROWS = 20, DIM = 16 };
    int start[] = { 0, ROWS }, prefix[] = { 0 };
    ares_attention_args a = {
        .seg = { .n = 1, .start = start, .prefix_len = prefix, .prefix_row = prefix },
        .n_heads = 1,
        .n_kv_heads = 1,
        .head_dim = DIM,
        .scale = 1,
        .causal = true,
        .q = floats(ROWS * DIM, less == QUERIES),
        .ldq = DIM,
        .k = floats(ROWS * DIM, false),
        .v = floats(ROWS * DIM, less == VALUES),
        .ldkv = DIM,
        .out = floats(ROWS * DIM, false),
        .ldo = DIM,
        .lse = floats(ROWS, false),
        .d_out = floats(ROWS * DIM, less == D_OUT),
        .dq = floats(ROWS * DIM, false),
        .lddq = DIM,
        .dk = floats(ROWS * DIM, false),
        .dv = floats(ROWS * DIM, false),
        .lddkv = DIM
    };
    d->k->attention(d, &a);
    d->k->attention_backward(d, &a);
}

/* The sanitizer's words about the calls, in a process of its own; "" where it has none. */
static void report(const char *isa, int m, short_of less, ares_str *words)
{
    const char *file = test_file("report");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int to = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ares_device d;
        dup2(to, 2);
        if (!device_of(isa, 1, &d)) _exit(2);
        linear(&d, m, less);
        linear_gradient(&d, less);
        attention(&d, less);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    ares_str_clear(words);
    CHECK_OK(ares_file_read(file, words));
    CHECK_EQ(WIFEXITED(status) && WEXITSTATUS(status) == 0, words->len == 0);
}
#endif

/*
 * seen to fail: without the check of x, of the weight, of y. Attention's tiles (attention.c) touch
 * only copies in scratch, none of which can be made short from here: their checks are not seen.
 */
TEST(the_sanitizer_reports_what_lies_beyond_the_memory_of_a_tile)
{
#ifndef __SANITIZE_ADDRESS__
    test_skip("there is no address sanitizer in this build");
#else
    static const int rows[] = { 1, 13 }; /* several panels at once, halves of one */
    ares_str words = { 0 };
    for (int i = 1; i < ISAS; i++) { /* plain is watched at every access */
        if (!test_isa_here(isas[i])) continue;
        for (int less = NONE; less < SHORT; less++)
            for (int r = 0; r < (less >= X && less <= Y ? 2 : 1); r++) {
                report(isas[i], rows[r], (short_of)less, &words);
                const char *found = strstr(words.data, "ERROR: AddressSanitizer: ");
                CHECK_MSG(less == NONE ? words.len == 0 : found != NULL, "%s, %d rows, %s: %s",
                          isas[i], rows[r], what[less], words.data);
            }
    }
    ares_str_fini(&words);
#endif
}
