/*
 * Gated delta nets as JSON lines: the recurrence forward and backward at 128 x 128, in nanoseconds
 * a token and value head, beside the machine's limit of multiply-adds; with a layer's convolution
 * at 512, 2,048 and 8,192 tokens of one sequence, and the memory that a backward reads. FLOPs are 7
 * k_dim v_dim forward (decay, m, the update, o) and 21 backward (the forward again and 14).
 *
 *   bench_delta [THREADS]
 */
#include <stdio.h>
#include <stdlib.h>

#include "ares/kernels.h"
#include "limit.h"

enum {
    KEYS = 16,
    HEADS = 32,
    DIM = 128,
    KERNEL = 4,
    VALUES = HEADS * DIM,
    WIDTH = 2 * KEYS * DIM + VALUES
};

static float *numbers(int64_t n)
{
    float *x = ares_malloc((size_t)n * sizeof *x);
    ares_rng_key key = ares_rng_root(1, ARES_RNG_TEST);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(2.0 * ares_rng_uniform(key, (uint64_t)(i % 65536)) - 1.0);
    return x;
}

/* Seconds of the fastest of some runs, more of short ones. The first one brings the pages. */
#define FASTEST(best, work)                           \
    for (int run = 0, most = 40; run < most; run++) { \
        double began = bench_seconds(d->pool);        \
        work;                                         \
        began = bench_seconds(d->pool) - began;       \
        if (run) best = ARES_MIN(best, began);        \
        if (began > 0.05) most = began > 0.5 ? 3 : 8; \
    }

static void line(const ares_device *d, const char *what, int32_t tokens, double s, double flops,
                 double bytes)
{
    double each = (double)tokens * HEADS;
    printf("{\"bench\":\"%s\",\"kernels\":\"%s\",\"threads\":%d,\"tokens\":%d,\"ms\":%.2f,"
           "\"ns_per_token_and_head\":%.0f,\"gflops\":%.1f,\"mib\":%.1f}\n",
           what, d->k->name, ares_pool_threads(d->pool), tokens, s * 1e3, s / each * 1e9,
           each * DIM * DIM * flops / s / 1e9, bytes / 1048576.0);
    fflush(stdout);
}

static void layer(ares_device *d, int32_t tokens)
{
    const int32_t start[] = { 0, tokens };
    int64_t kept = tokens / ARES_DELTA_KEPT * (int64_t)HEADS * DIM * DIM, rows = tokens;
    float *x = numbers(rows * WIDTH), *y = numbers(rows * WIDTH), *dy = numbers(rows * WIDTH),
          *a = numbers(rows * 2 * HEADS), *da = numbers(rows * 2 * HEADS),
          *w = numbers(WIDTH * KERNEL), *dw = numbers(WIDTH * KERNEL),
          *vectors = numbers(4 * HEADS), *gates = numbers(rows * 2 * HEADS),
          *norms = numbers(rows * 2 * KEYS), *states = numbers(kept + 1),
          *o = numbers(rows * VALUES), *d_o = numbers(rows * VALUES);
    const ares_segments seg = { .n = 1, .rows = tokens, .start = start };
    const ares_matrix of_w = { w, ARES_F32, ARES_ROWS, WIDTH, KERNEL },
                      of_dw = { dw, ARES_F32, ARES_ROWS, WIDTH, KERNEL };
    ares_conv_args conv = { .seg = seg,
                            .width = WIDTH,
                            .kernel = KERNEL,
                            .x = x,
                            .ldx = WIDTH,
                            .w = &of_w,
                            .y = y,
                            .ldy = WIDTH,
                            .dy = dy,
                            .lddy = WIDTH,
                            .dx = y,
                            .lddx = WIDTH,
                            .dw = &of_dw };
    ares_delta_args delta = { .seg = seg,
                              .k_heads = KEYS,
                              .v_heads = HEADS,
                              .k_dim = DIM,
                              .v_dim = DIM,
                              .qkv = y,
                              .ldqkv = WIDTH,
                              .a = a,
                              .b = a + HEADS,
                              .ldab = 2 * HEADS,
                              .a_log = vectors,
                              .dt_bias = vectors + HEADS,
                              .gates = gates,
                              .norms = norms,
                              .kept = states,
                              .o = o,
                              .ldo = VALUES,
                              .d_o = d_o,
                              .lddo = VALUES,
                              .dqkv = dy,
                              .lddqkv = WIDTH,
                              .da = da,
                              .db = da + HEADS,
                              .lddab = 2 * HEADS,
                              .da_log = vectors + 2 * HEADS,
                              .d_dt_bias = vectors + 3 * HEADS };
    double forward = 1e9, backward = 1e9, conv_forward = 1e9, conv_backward = 1e9,
           bytes = (double)(rows * (2 * WIDTH + 2 * VALUES + 8 * HEADS) + kept) * sizeof(float);
    FASTEST(conv_forward, d->k->conv(d, &conv))
    FASTEST(forward, d->k->delta(d, &delta))
    FASTEST(backward, d->k->delta_backward(d, &delta))
    FASTEST(conv_backward, d->k->conv_backward(d, &conv))
    line(d, "delta_forward", tokens, forward, 7, bytes);
    line(d, "delta_backward", tokens, backward, 21, bytes);
    line(d, "conv_forward", tokens, conv_forward, 0, bytes);
    line(d, "conv_backward", tokens, conv_backward, 0, bytes);
    float *all[] = { x, y, dy, a, da, w, dw, vectors, gates, norms, states, o, d_o };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
}

int main(int argc, char **argv)
{
    ares_device d;
    if (ares_device_open("cpu", argc > 1 ? atoi(argv[1]) : 0, &d) != ARES_OK) {
        fprintf(stderr, "%s\n", ares_error_message());
        return 1;
    }
    bench_limit(d.pool, 3);
    layer(&d, 512);
    layer(&d, 2048);
    layer(&d, 8192);
    ares_device_close(&d);
    return 0;
}
