/*
 * The goals of docs/performance.md#goals-on-a-card as JSON lines, each the best of many runs: G7
 * sampling (with top-k and top-p, and without the lm_head), G12 the loss pass with KL and all sums,
 * G13 window entropy with a percentile per row. kernel_s: time of the kernels alone, by the card's
 * clock; call_s: time of the whole call, with the copies of host arrays to the card and back.
 *
 *   bench_algo_cuda [DEVICE]      cuda
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../src/algo/twin.h"
#include "../src/kernels/layout.h"
#include "ares/algo.h"
#include "ares/algo_loss.h"

enum { RUNS = 30, VOCAB = 151936 };

static float *numbers(int64_t n, double scale, double shift)
{
    float *x = ares_malloc((size_t)n * sizeof *x), some[4096];
    ares_rng_key key = ares_rng_root(1, ARES_RNG_TEST);
    for (int i = 0; i < 4096; i++)
        some[i] = (float)(scale * ares_rng_normal(key, (uint64_t)i) + shift);
    for (int64_t i = 0; i < n; i++) x[i] = some[(uint64_t)i * 2654435761u >> 7 & 4095];
    return x;
}

/* bytes 0: the goal is a time, not a rate */
static void line(const char *goal, const char *what, double kernel_s, double call_s, double bytes)
{
    printf("{\"goal\":\"%s\",\"what\":\"%s\",\"kernel_s\":%.4g,\"call_s\":%.4g", goal, what,
           kernel_s, call_s);
    if (bytes > 0)
        printf(",\"bytes\":%.4g,\"bytes_per_s\":%.4g", bytes,
               bytes / (isnan(kernel_s) ? call_s : kernel_s));
    printf("}\n");
    (void)fflush(stdout);
}
static void keep(double *best, double s)
{
    *best = s < *best ? s : *best;
}

/* Seconds of one call of fn, after a sync. */
typedef void call(ares_device *d, void *ctx);
static double timed(ares_device *d, call *fn, void *ctx)
{
    double best = INFINITY;
    for (int i = 0; i < RUNS; i++) {
        (void)d->k->sync(d);
        double t = ares_now_s();
        fn(d, ctx);
        if (d->k->sync(d) != ARES_OK) return NAN;
        keep(&best, ares_now_s() - t);
    }
    return best;
}
static void *up(ares_device *d, const void *host, size_t bytes)
{
    void *p = d->k->alloc(d, bytes);
    ARES_ASSERT(p);
    if (host) d->k->copy_in(d, p, host, bytes);
    return p;
}

/* ---------------------------------------------------------------- G12 */
static int losses(ares_device *d, const algo_twins *twins)
{
    enum { N = 1 << 20, ROWS = 1024 };
    static const char *const names[] = { "default", "cispo", "gspo", "gmpo" };
    float *x[7], *out = up(d, NULL, N * sizeof *out);
    for (int i = 0; i < ARES_COUNT(x); i++) {
        float *host = numbers(N, 0.1, i < 3 ? -1 : 0.5);
        x[i] = up(d, host, N * sizeof *host);
        ares_free(host);
    }
    uint8_t *ones = ares_malloc(N), *mask;
    int64_t start[ROWS + 1];
    memset(ones, 1, N);
    mask = up(d, ones, N);
    for (int r = 0; r <= ROWS; r++) start[r] = (int64_t)r * (N / ROWS);
    ares_card_sums sums;
    ares_card_sums_init(&sums);
    const ares_loss_card card = { .row_start = up(d, start, sizeof start),
                                  .sums = up(d, &sums, sizeof sums) };
    ares_loss_config cfg = { .clip_ratio_low = 0.2,
                             .clip_ratio_high = 0.3,
                             .clip_ratio_dual = NAN,
                             .entropy_coeff = 0,
                             ARES_LOSS_DEFAULTS };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        double kernel = INFINITY, whole = INFINITY;
        for (int run = 0; run < RUNS; run++) {
            ares_loss_args a = { .cfg = &cfg,
                                 .n = N,
                                 .log_prob = x[0],
                                 .old_log_prob = x[1],
                                 .advantage = x[3],
                                 .weight = x[4],
                                 .mask = mask,
                                 .entropy = x[5],
                                 .d_log_prob = out,
                                 .end = ROWS,
                                 .row_start = start,
                                 .card = &card };
            ares_kl_args k = { .kl = ares_kl_find("low_var_kl"),
                               .coef = 0.01,
                               .ref_log_prob = x[2] };
            twin_loss_args t = { .loss = ares_loss_find(names[i]), .args = &a, .kl = &k };
            double begin = ares_now_s();
            ARES_TRY(twins->loss(d, &t));
            ARES_TRY(d->k->sync(d));
            keep(&whole, ares_now_s() - begin);
            keep(&kernel, twins->kernel_s(d));
        }
        /* six columns and the mask read, the derivative read and written */
        line("G12", names[i], kernel, whole, (double)N * (6 * 4 + 2 * 4 + 1));
    }
    for (int i = 0; i < ARES_COUNT(x); i++) d->k->release(d, x[i], N * sizeof(float));
    d->k->release(d, out, N * sizeof *out), d->k->release(d, mask, N);
    d->k->release(d, (void *)(uintptr_t)card.row_start, sizeof start);
    d->k->release(d, card.sums, sizeof sums);
    ares_free(ones);
    return ARES_OK;
}

/* ---------------------------------------------------------------- G13, and advantages beside it */
static int rows(ares_device *d, const algo_twins *twins)
{
    enum { N = 1 << 22, MOST = 4096 };
    float *h = numbers(N, 0.5, 2), *values = numbers(N, 1, 0);
    double *window = ares_malloc((size_t)N * sizeof *window),
           *returned = ares_malloc((size_t)N * sizeof *returned), threshold[MOST];
    uint8_t *mask = ares_malloc(N);
    int64_t start[MOST + 1];
    static const int64_t shape[][2] = { { 1024, 1024 }, { 256, 4096 }, { 4096, 256 } },
                         w[] = { 4, 64 };
    memset(mask, 1, N);
    for (int i = 0; i < ARES_COUNT(shape) * ARES_COUNT(w); i++) {
        int64_t n = shape[i / 2][0], length = shape[i / 2][1];
        double kernel = INFINITY, whole = INFINITY;
        char what[64];
        for (int64_t r = 0; r <= n; r++) start[r] = r * length;
        for (int run = 0; run < RUNS; run++) {
            twin_windows_args t = { .of = { n, start },
                                    .entropy = h,
                                    .w = w[i % 2],
                                    .q = 80,
                                    .tau = 2,
                                    .window = window,
                                    .threshold = threshold,
                                    .mask = mask };
            double begin = ares_now_s();
            ARES_TRY(twins->windows(d, &t));
            keep(&whole, ares_now_s() - begin);
            keep(&kernel, twins->kernel_s(d));
        }
        (void)snprintf(what, sizeof what, "windows of %lld, %lld rows of %lld", (long long)w[i % 2],
                       (long long)n, (long long)length);
        line("G13", what, kernel, whole, (double)(n * length) * (4 + 8 + 1));
    }
    memset(mask, 1, N);
    for (int64_t r = 0; r <= 1024; r++) start[r] = r * 4096;
    double kernel = INFINITY, whole = INFINITY;
    for (int run = 0; run < RUNS; run++) {
        twin_gae_args t = { .of = { 1024, start },
                            .rewards = h,
                            .values = values,
                            .mask = mask,
                            .gamma = 0.99,
                            .lam = 0.95,
                            .advantages = window,
                            .returns = returned };
        double begin = ares_now_s();
        ARES_TRY(twins->gae(d, &t));
        keep(&whole, ares_now_s() - begin);
        keep(&kernel, twins->kernel_s(d));
    }
    line("", "gae, 1024 rows of 4096", kernel, whole, (double)N * (2 * 4 + 1 + 2 * 8));
    ares_free(h), ares_free(values), ares_free(window), ares_free(returned), ares_free(mask);
    return ARES_OK;
}

/* ---------------------------------------------------------------- G7 */
static void sampling(ares_device *d, void *ctx)
{
    d->k->sample(d, ctx);
}
static void product(ares_device *d, void *ctx)
{
    d->k->linear(d, ctx, 1);
}

static void samples(ares_device *d)
{
    enum { B = 256, K = 896 };
    float *from = numbers((int64_t)VOCAB * K, 0.1, 0), *x = numbers((int64_t)B * K, 1, 0),
          setting[3][B];
    uint16_t *weight = ares_malloc((size_t)VOCAB * K * sizeof *weight);
    int32_t top_k[B];
    ares_rng_key key[B];
    for (int64_t i = 0; i < (int64_t)VOCAB * K; i++) weight[i] = kernels_f32_to_bf16(from[i]);
    for (int r = 0; r < B; r++) {
        setting[0][r] = 0.8f, setting[1][r] = 1.0f, setting[2][r] = 0.95f;
        top_k[r] = 50;
        key[r] = ares_rng_sub(ares_rng_root(1, ARES_RNG_SAMPLE), (uint64_t)r, 0);
    }
    ares_matrix w = { up(d, weight, (size_t)VOCAB * K * 2), ARES_BF16, ARES_ROWS, VOCAB, K };
    float *x_up = up(d, x, (size_t)B * K * sizeof *x),
          *y = up(d, NULL, (size_t)B * VOCAB * sizeof *y);
    ares_linear_args l = { .m = B, .x = x_up, .ldx = K, .w = &w, .y = y, .ldy = VOCAB };
    float *set = up(d, setting, sizeof setting), *out = up(d, NULL, 3 * B * sizeof *out);
    int32_t *set_k = up(d, top_k, sizeof top_k);
    ares_rng_key *set_key = up(d, key, sizeof key);
    double bare = timed(d, product, &l);
    line("G7", "the lm_head alone, B = 256", NAN, bare, 0);
    for (int i = 0; i < 4; i++) {
        ares_sample_args s = { .rows = B,
                               .vocab = VOCAB,
                               .x = x_up,
                               .ldx = K,
                               .w = &w,
                               .temperature = set,
                               .top_p = set + (1 + i % 2) * B,
                               .top_k = i / 2 ? set_k : NULL,
                               .key = set_key,
                               .token = (int32_t *)out,
                               .log_prob = out + B,
                               .entropy = out + 2 * B };
        char what[64];
        (void)snprintf(what, sizeof what, "over the lm_head, B = 256%s%s",
                       i % 2 ? ", top_p 0.95" : "", i / 2 ? ", top_k 50" : "");
        double all = timed(d, sampling, &s);
        line("G7", what, all - bare, all, 0);
    }
    d->k->release(d, w.data, (size_t)VOCAB * K * 2), d->k->release(d, x_up, (size_t)B * K * 4),
        d->k->release(d, y, (size_t)B * VOCAB * 4);
    d->k->release(d, set, sizeof setting), d->k->release(d, out, 3 * B * sizeof *out);
    d->k->release(d, set_k, sizeof top_k), d->k->release(d, set_key, sizeof key);
    ares_free(from), ares_free(x), ares_free(weight);
}

int main(int argc, char **argv)
{
    ares_device d;
    int rc = ares_device_open(argc > 1 ? argv[1] : "cuda", 0, &d);
    const algo_twins *twins = rc == ARES_OK ? twin_table_of(&d) : NULL;
    if (!twins) {
        (void)fprintf(stderr, "%s\n",
                      rc == ARES_OK
                          ? "bench_algo_cuda: this device has no twins; give cuda or cuda:N"
                          : ares_error_message());
        return 2;
    }
    rc = losses(&d, twins);
    if (rc == ARES_OK) rc = rows(&d, twins);
    if (rc == ARES_OK) {
        samples(&d);
        rc = d.k->sync(&d);
    }
    if (rc != ARES_OK) (void)fprintf(stderr, "%s\n", ares_error_message());
    ares_device_close(&d);
    return rc != ARES_OK;
}
