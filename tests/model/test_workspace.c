/*
 * A pass after one that got no memory gives the same numbers as before it. Seen to fail (a null
 * pointer) where the capacity of the old buffers was kept.
 */
#include <stdio.h>

#include "ares/model.h"
#include "test.h"

enum { SMALL = 20, MIDDLE = 60, LARGE = 200 };

static void *(*real_alloc)(ares_device *d, size_t bytes);
static int until_failure;   /* allocations; -1: none fails */
static size_t failed_bytes; /* of the latest request */

static void *failing_alloc(ares_device *d, size_t bytes)
{
    failed_bytes = bytes;
    if (until_failure == 0) return NULL;
    if (until_failure > 0) until_failure--;
    return real_alloc(d, bytes);
}

static int forward(ares_model *m, ares_workspace *w, int32_t n, float *out)
{
    static int32_t ids[LARGE], positions[LARGE];
    int32_t start[2] = { 0, n };
    void *hidden;
    for (int32_t i = 0; i < n; i++) ids[i] = (i * 7 + 3) % m->cfg.vocab, positions[i] = i;
    ares_packed p = { .rows = n,
                      .ids = ids,
                      .positions = positions,
                      .seg = { .n = 1, .rows = n, .start = start },
                      .n_out = n,
                      .out_rows = positions };
    ARES_TRY(ares_model_forward(m, w, &p, &hidden));
    memcpy(out, hidden, (size_t)n * (size_t)m->cfg.hidden * sizeof *out);
    return ARES_OK;
}

TEST(a_pass_after_one_without_memory_has_the_same_bits)
{
    static const ares_keep keeps[] = { ARES_KEEP_NOTHING, ARES_KEEP_INPUTS, ARES_KEEP_ALL };
    char path[600];
    snprintf(path, sizeof path, "%s/qwen2_tied", test_source("tests/golden/models"));
    for (int i = 0; i < ARES_COUNT(keeps); i++)
        for (int before = 0; before < 3;
             before++) { /* the buffer that gets no memory: by rows, the stream, by output rows */
            ares_device d;
            ares_model *m;
            ares_workspace *w;
            ares_model_options opt = { .storage = ARES_F32, .trainable = true };
            REQUIRE_OK(ares_device_open("cpu", 1, &d));
            ares_kernels k = *d.k;
            real_alloc = k.alloc;
            k.alloc = failing_alloc;
            d.k = &k;
            until_failure = -1;
            REQUIRE_OK(ares_model_load(path, &d, &opt, &m));
            REQUIRE_OK(ares_workspace_new(m, keeps[i], &w));
            size_t floats = (size_t)LARGE * (size_t)m->cfg.hidden,
                   bytes = (size_t)SMALL * (size_t)m->cfg.hidden * sizeof(float);
            float *first = ares_calloc(floats, sizeof *first),
                  *again = ares_calloc(floats, sizeof *again);
            CHECK_OK(forward(m, w, SMALL, first));
            until_failure = before;
            CHECK_FAIL(forward(m, w, LARGE, again), ARES_ELIMIT,
                       "of activations do not fit on the device");
            CHECK_FAIL(forward(m, w, LARGE, again), ARES_ELIMIT,
                       "of activations do not fit on the device");
            until_failure = -1;
            CHECK_OK(forward(m, w, SMALL, again));
            CHECK_MEM(again, first, bytes);
            CHECK_OK(forward(m, w, LARGE, again));
            CHECK_OK(forward(m, w, MIDDLE, again));
            CHECK_MEM(again, first, bytes); /* causal: the first rows are those of any length */
            ares_free(first);
            ares_free(again);
            ares_workspace_free(w);
            ares_model_free(m);
            ares_device_close(&d);
        }
}

TEST(activations_that_do_not_fit_are_told_in_gib)
{
    enum { ROWS = 1 << 18 };
    char path[600], want[100];
    ares_device d;
    ares_model *m;
    ares_workspace *w;
    ares_model_options opt = { .storage = ARES_F32 };
    (void)snprintf(path, sizeof path, "%s/qwen2_tied", test_source("tests/golden/models"));
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    ares_kernels k = *d.k;
    real_alloc = k.alloc;
    k.alloc = failing_alloc;
    d.k = &k;
    until_failure = -1;
    REQUIRE_OK(ares_model_load(path, &d, &opt, &m));
    REQUIRE_OK(ares_workspace_new(m, ARES_KEEP_NOTHING, &w));
    int32_t *ids = ares_calloc(ROWS, sizeof *ids), start[2] = { 0, ROWS }, out = 0;
    ares_packed p = { .rows = ROWS,
                      .ids = ids,
                      .positions = ids,
                      .seg = { .n = 1, .rows = ROWS, .start = start },
                      .n_out = 1,
                      .out_rows = &out };
    void *hidden;
    until_failure = 0;
    CHECK(ares_model_forward(m, w, &p, &hidden) == ARES_ELIMIT);
    double gib = (double)failed_bytes / 1073741824.0;
    CHECK(gib > 0.1);
    (void)snprintf(want, sizeof want, "model: %.2f GiB of activations do not fit", gib);
    CHECK_FAIL(ares_model_forward(m, w, &p, &hidden), ARES_ELIMIT, want);
    until_failure = -1;
    ares_free(ids);
    ares_workspace_free(w);
    ares_model_free(m);
    ares_device_close(&d);
}

TEST(a_model_and_states_that_do_not_fit_say_so_and_can_be_asked_again)
{
    char path[600];
    ares_device d;
    ares_model *m = NULL;
    ares_model_options opt = { .storage = ARES_F32, .trainable = true };
    snprintf(path, sizeof path, "%s/qwen2_tied", test_source("tests/golden/models"));
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    ares_kernels k = *d.k;
    real_alloc = k.alloc;
    k.alloc = failing_alloc;
    d.k = &k;
    for (int at = 0; at < 2; at++) { /* weights, sums of gradients' squares */
        until_failure = at;
        CHECK_FAIL(ares_model_load(path, &d, &opt, &m), ARES_ELIMIT,
                   "of weights do not fit on the device");
    }
    until_failure = -1;
    REQUIRE_OK(ares_model_load(path, &d, &opt, &m));
    until_failure = 0;
    CHECK_FAIL(ares_params_zero_grad(&m->params), ARES_ELIMIT,
               "of gradients do not fit on the device");
    until_failure = -1;
    CHECK_OK(ares_params_zero_grad(&m->params));
    until_failure = 0;
    CHECK_FAIL(ares_params_optimizer_alloc(&m->params, ARES_F32), ARES_ELIMIT,
               "of optimizer states do not fit on the device");
    CHECK_EQ(m->params.states_bytes, 0);
    until_failure = -1;
    CHECK_OK(ares_params_optimizer_alloc(&m->params, ARES_F32));
    CHECK(m->params.states && m->params.states_bytes > 0);
    ares_model_free(m);
    ares_device_close(&d);
}
