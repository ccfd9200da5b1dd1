/* Times of a device's operations (ARES_KERNEL_TIMES), on the CPU and on a card. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ares/io.h"
#include "ares/kernels.h"
#include "test.h"

/* Three sums, and products of two shapes in two phases; what closing the device logs. */
static bool log_of(const char *device, ares_dtype act, ares_str *log)
{
    enum { N = 64 };
    ares_device d;
    float x[N] = { 1 };
    setenv("ARES_KERNEL_TIMES", "1", 1);
    int rc = ares_device_open_table(device, "native", act, 1, &d);
    unsetenv("ARES_KERNEL_TIMES");
    if (rc != ARES_OK) {
        test_skip(ares_error_message());
        ares_error_clear();
        return false;
    }
    CHECK(!d.k->graph_begin); /* a graph has no calls */
    size_t bytes = N * N * sizeof(float);
    void *w = d.k->alloc(&d, bytes), *y = d.k->alloc(&d, bytes), *from = d.k->alloc(&d, bytes);
    ares_matrix m = { w, d.k->act, d.k->layout, 32, N };
    ares_linear_args a = { .m = 2, .x = from, .ldx = N, .w = &m, .y = y, .ldy = N };
    ares_work_begin("one");
    d.k->copy_in(&d, from, x, sizeof x);
    for (int i = 0; i < 3; i++) d.k->add(&d, y, from, N);
    d.k->linear(&d, &a, 1);
    ares_work_begin("two");
    a.m = 63;
    d.k->linear(&d, &a, 1);
    ares_times_begin(&d, "by hand");
    d.k->add(&d, y, from, N); /* belongs to it */
    ares_times_end(&d);
    for (int i = 0; i < 5000; i++) d.k->zero(&d, y, 64); /* more than are recorded at once */
    CHECK_OK(d.k->sync(&d));
    d.k->release(&d, w, bytes), d.k->release(&d, y, bytes), d.k->release(&d, from, bytes);
    CHECK_OK(d.k->sync(&d));
    int own = dup(2), file = open(test_file("log"), O_CREAT | O_WRONLY, 0666);
    if (!CHECK(own >= 0 && file >= 0)) return false;
    (void)dup2(file, 2);
    ares_device_close(&d);
    (void)dup2(own, 2);
    (void)close(own), (void)close(file);
    return CHECK_OK(ares_file_read(test_file("log"), log));
}

/* Calls of an operation in a phase; -1: it has no line there. *ms: in all */
static long long calls(const ares_str *log, const char *phase, const char *what, double *ms)
{
    char line[300], name[100], now[100] = "";
    long long n;
    for (const char *at = log->data; at && *at;
         at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        size_t length = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)ARES_MIN(length, sizeof line - 1), at);
        bool operation = strncmp(line, "    ", 4) == 0;
        if (length < 60 || sscanf(line + 54, "%lld %lf", &n, ms) != 2) continue;
        snprintf(name, sizeof name, "%.*s", operation ? 50 : 52, line + (operation ? 4 : 2));
        for (size_t i = strlen(name); i > 0 && name[i - 1] == ' '; i--) name[i - 1] = 0;
        if (!operation) snprintf(now, sizeof now, "%s", name);
        if (strcmp(now, phase) == 0 && strcmp(name, what) == 0) return n;
    }
    return -1;
}

static void counts(const char *device, ares_dtype act)
{
    ares_str log = { 0 };
    double ms = -1, all;
    if (!log_of(device, act, &log)) return;
    CHECK_EQ(calls(&log, "one", "add", &ms), 3);
    CHECK(ms > 0);
    CHECK_EQ(calls(&log, "one", "linear 32x64, up to 64 rows", &ms), 1);
    CHECK_EQ(calls(&log, "two", "linear 32x64, up to 64 rows", &ms), 1);
    CHECK_EQ(calls(&log, "two", "by hand", &ms), 1);
    CHECK_EQ(calls(&log, "two", "add", &ms), -1);
    CHECK_EQ(calls(&log, "two", "zero", &ms), 5000);
    CHECK_EQ(calls(&log, "two", "two", &all), 5002);
    CHECK_MSG(ms > 0 && ms <= all, "%g of %g ms", ms, all);
    ares_str_fini(&log);
}

TEST(times_count_each_operation_by_phase)
{
    counts("cpu", ARES_F32);
}

TEST_GPU(times_count_each_operation_of_a_card_by_phase)
{
    counts("cuda", ARES_F32);
}

/* Attention on CUDA cores makes a run many times slower: nobody gets it without having asked. */
TEST_GPU(a_run_in_bf16_without_libtorch_is_refused_unless_it_is_asked_for)
{
    ares_device d;
    const char *before = getenv("ARES_TORCH_LIB");
    char *kept = before ? ares_strdup(before) : NULL;
    if (!ares_cuda_expected()) SKIP("no CUDA device on this machine");
    setenv("ARES_TORCH_LIB", "/nowhere/libares_torch.so", 1);
    CHECK_FAIL(ares_device_open_table("cuda", "native", ARES_BF16, 1, &d), ARES_EDEVICE,
               "ARES_TORCH_LIB=none computes with our own kernels");
    CHECK(!d.k);
    if (CHECK_OK(ares_device_open_table("cuda", "native", ARES_F32, 1, &d))) ares_device_close(&d);
    setenv("ARES_TORCH_LIB", "none", 1);
    if (CHECK_OK(ares_device_open_table("cuda", "native", ARES_BF16, 1, &d))) {
        CHECK(!d.aten);
        ares_device_close(&d);
    }
    if (kept) setenv("ARES_TORCH_LIB", kept, 1);
    else unsetenv("ARES_TORCH_LIB");
    ares_free(kept);
}
