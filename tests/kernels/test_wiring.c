/*
 * What a card takes from libtorch, on the CUDA half of libtorch itself but without a card: under it
 * lie a runtime and a cuBLAS that compute nothing (tests/gpu/libtorch), and under the table the
 * CPU's memory. Shown is that libtorch takes every call as it is made, on the device's stream,
 * without a wait, and in a second round without memory; not one number.
 */
#include "ares/at.h"
#include "ares/kernels.h"
#include "aten/aten.h"
#include "gpu/libtorch/runtime.h"
#include "test.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ares_aten_take(ares_device *d, void (**trim)(void));

enum { ROWS = ARES_GRAPH_ROWS + 8, N = 16, HEADS = 2, SHARED = 8, ARRAYS = 14 };

/* Two rows of a prompt that the second segment sees too; its keys are listed. */
static ares_attention_args attention(char *const *at)
{
    static const int32_t start[] = { 0, ROWS - SHARED, ROWS };
    static int32_t key_start[] = { 0, ROWS - SHARED, ROWS + SHARED }, key_row[ROWS + SHARED];
    for (int i = 0; i < ROWS + SHARED; i++)
        key_row[i] = i < ROWS - SHARED ? i : (i - (ROWS - SHARED)) % (2 * SHARED);
    return (ares_attention_args){ .seg = { .n = 2,
                                           .rows = ROWS,
                                           .keys = ROWS + SHARED,
                                           .start = start,
                                           .max_rows = ROWS - SHARED,
                                           .max_keys = ROWS - SHARED,
                                           .key_start = key_start,
                                           .key_row = key_row },
                                  .n_heads = HEADS,
                                  .n_kv_heads = 1,
                                  .head_dim = N,
                                  .scale = 1,
                                  .causal = true,
                                  .q = at[0],
                                  .ldq = HEADS * N,
                                  .k = at[1],
                                  .v = at[2],
                                  .ldkv = N,
                                  .out = at[3],
                                  .ldo = HEADS * N,
                                  .lse = (float *)(void *)at[4],
                                  .d_out = at[5],
                                  .dq = at[6],
                                  .lddq = HEADS * N,
                                  .dk = at[7],
                                  .dv = at[8],
                                  .lddkv = N };
}

/* Over the paged cache: a row alone, then a piece of a prompt. The rest is our kernels' work. */
static int gathered, alone;
static void count_gathered(ares_device *d, const ares_gather_args *a)
{
    (void)d;
    gathered += a->n;
}
static void count_alone(ares_device *d, const ares_attention_args *a)
{
    (void)d;
    alone += a->rows_alone;
}
/* Gradients of keys that two segments see: of k, and of v. */
static int summed;
static void count_summed(ares_device *d, const ares_sum_keys_args *a)
{
    (void)d;
    summed += a->width == N && a->gradient && a->seg.keys == ROWS + SHARED;
}
static void attend_paged(ares_device *d, char *const *at)
{
    static const int32_t start[] = { 0, 1, ROWS }, prefix_len[] = { 4, SHARED };
    ares_attention_args a = attention(at);
    a.cache = at[13];
    a.seg = (ares_segments){ .n = 2,
                             .rows = ROWS,
                             .host_start = start,
                             .host_prefix_len = prefix_len,
                             .max_rows = ROWS - 1,
                             .max_keys = ROWS - 1 + SHARED };
    gathered = alone = 0;
    d->k->attention(d, &a);
    CHECK_EQ(gathered, 1);
    CHECK_EQ(alone, 1);
}

/* All entries that a card takes, in the forms of a model's blocks. */
static void take_all(ares_device *d, char *const *at)
{
    const ares_kernels *k = d->k;
    ares_attention_args a = attention(at);
    for (a.window = 0; a.window <= 16; a.window += 16) {
        k->attention(d, &a);
        summed = 0;
        k->attention_backward(d, &a);
        CHECK_EQ(summed, 2);
    }
    attend_paged(d, at);
}

static void wiring(void)
{
    fake_expect_fn *expect;
    fake_counts_fn *counts;
    *(void **)&expect = dlsym(RTLD_DEFAULT, "ares_fake_expect");
    *(void **)&counts = dlsym(RTLD_DEFAULT, "ares_fake_counts");
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    const ares_kernels *own = d.k;
    ares_kernels under = *own;
    under.act = ARES_BF16;
    under.layout = ARES_ROWS;
    under.gather_kv = count_gathered;
    under.sum_keys = count_summed;
    under.attention = count_alone;
    _Alignas(64) char stream[64]; /* libtorch looks at the low bits of its address */
    char *at[ARRAYS];
    d.k = &under;
    d.index = 0;
    d.stream = stream;
    void (*trim)(void);
    expect(d.stream);
    if (CHECK_OK(ares_aten_take(&d, &trim))) {
        CHECK(d.aten && d.k != &under);
        fake_counts first = counts();
        CHECK(first.products == 0 && first.launches > 0 && first.allocations > 0);
        CHECK_EQ(first.elsewhere, 0);
        for (int i = 0; i < ARRAYS; i++) at[i] = under.alloc(&d, ROWS * HEADS * N * sizeof(float));
        for (int round = 0; round < 2; round++) {
            expect(d.stream);
            take_all(&d, at);
            CHECK_OK(d.k->sync(&d));
        }
        fake_counts second = counts();
        CHECK(second.products == 0 && second.launches > 0);
        CHECK_EQ(second.elsewhere, 0);
        CHECK_EQ(second.waits, 0);
        CHECK_EQ(second.allocations, 0);
        for (int i = 0; i < ARRAYS; i++) under.release(&d, at[i], ROWS * HEADS * N * sizeof(float));
        trim();
        ares_aten_close(&d);
    }
    CHECK(d.k == &under && !d.aten);
    d.k = own;
    d.index = -1;
    d.stream = NULL;
    ares_device_close(&d);
}

TEST(libtorch_takes_all_calls_of_a_card)
{
    if (dlsym(RTLD_DEFAULT, "ares_fake_expect")) {
        wiring();
        return;
    }
    if (access("/dev/nvidiactl", F_OK) == 0) SKIP("there is a CUDA device");
    if (access(ARES_BINARY_DIR "/libares_fake_cuda.so", R_OK) != 0)
        SKIP("this build has no CUDA toolkit, or has sanitizers");
    if (at_cuda_open() != ARES_OK && strstr(ares_error_message(), "does not load"))
        SKIP(ares_error_message());
    ares_str out = { 0 };
    int rc = test_shell(&out,
                        "LD_PRELOAD='%s/libares_fake_cuda.so' LD_LIBRARY_PATH='%s/fake':"
                        "$LD_LIBRARY_PATH '%s/test_kernels' libtorch_takes_all_calls_of_a_card",
                        ARES_BINARY_DIR, ARES_BINARY_DIR, ARES_BINARY_DIR);
    CHECK_MSG(rc == 0 && strstr(out.data, "1 passed, 0 failed"), "exit code %d\n%s", rc, out.data);
    ares_str_fini(&out);
}
