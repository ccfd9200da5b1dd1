/*
 * Speed of the vocabulary head and of the sampler as JSON lines, the best of many runs. GFLOP/s
 * count 2 x rows x vocab x k per product: one product in forward and in sampling, three in backward
 * (logits again, dx, dw), three fused (logits, dx, dw).
 *
 *   bench_head [THREADS] [rows]      rows: log-prob and entropy from logits only
 */
#include "ares/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *numbers(int64_t n, float scale)
{
    float *x = ares_malloc((size_t)n * sizeof(float));
    ares_rng_key key = ares_rng_root(1, ARES_RNG_TEST);
    float some[4096];
    for (int i = 0; i < 4096; i++) some[i] = scale * (float)ares_rng_normal(key, (uint64_t)i);
    for (int64_t i = 0; i < n; i++) x[i] = some[(i * 2654435761u >> 7) % 4096];
    return x;
}

static void loss(void *ctx, int32_t row, int32_t n, const float *log_prob, const float *entropy,
                 float *c, float *ce)
{
    (void)ctx, (void)row, (void)log_prob, (void)entropy;
    for (int32_t i = 0; i < n; i++) c[i] = 0.01f, ce[i] = 0.001f;
}

typedef enum { FORWARD, BACKWARD, FUSED, SAMPLE, SAMPLE_TOP_P } what;
static const char *const names[] = { "head", "head_backward", "head_fused", "sample",
                                     "sample top_p 0.95" };
static const int products[] = { 1, 3, 3, 1, 1 };

static void bench(ares_device *d, const char *shape, what what, int rows, int vocab, int k,
                  ares_dtype dtype)
{
    float *x = numbers((int64_t)rows * k, 1.0f), *from = numbers((int64_t)vocab * k, 0.1f);
    int64_t elements = ares_matrix_elements(ARES_PANEL32, vocab, k);
    ares_matrix w = { ares_pages_new((size_t)elements * 4), dtype, ARES_PANEL32, vocab, k };
    ares_matrix dw = { what == BACKWARD || what == FUSED ? ares_pages_new((size_t)elements * 4)
                                                         : NULL,
                       ARES_F32, ARES_PANEL32, vocab, k };
    ares_matrix_pack(&w, from, ARES_F32);
    int32_t *target = ares_calloc((size_t)rows, 4);
    float *stat = ares_calloc((size_t)rows * 6, 4), *dx = ares_calloc((size_t)rows * (size_t)k, 4);
    ares_rng_key *key = ares_calloc((size_t)rows, sizeof(*key));
    for (int r = 0; r < rows; r++) {
        target[r] = r % vocab;
        stat[3 * rows + r] = 1.0f; /* temperature, and c */
        stat[4 * rows + r] = what == SAMPLE_TOP_P ? 0.95f : 1.0f;
        key[r] = ares_rng_sub(ares_rng_root(1, ARES_RNG_SAMPLE), (uint64_t)r, 0);
    }
    ares_head_args h = { .rows = rows,
                         .vocab = vocab,
                         .x = x,
                         .ldx = k,
                         .w = &w,
                         .inv_temperature = 1.0f,
                         .target = target,
                         .log_prob = stat,
                         .entropy = stat + rows,
                         .lse = stat + 2 * rows,
                         .c_log_prob = stat + 3 * rows,
                         .c_entropy = stat + 3 * rows,
                         .dx = dx,
                         .lddx = k,
                         .dw = &dw };
    ares_sample_args s = { .rows = rows,
                           .vocab = vocab,
                           .x = x,
                           .ldx = k,
                           .w = &w,
                           .temperature = stat + 3 * rows,
                           .top_p = stat + 4 * rows,
                           .key = key,
                           .token = target,
                           .log_prob = stat,
                           .entropy = stat + rows };
    double best = 1e9, begin = ares_now_s();
    if (what == BACKWARD) d->k->head(d, &h);
    for (int i = 0; i < 100 && (i < 5 || ares_now_s() - begin < 3.0); i++) {
        double t = ares_now_s();
        if (what == FORWARD) d->k->head(d, &h);
        else if (what == BACKWARD) d->k->head_backward(d, &h);
        else if (what == FUSED) d->k->head_fused(d, &h, loss, NULL);
        else d->k->sample(d, &s);
        t = ares_now_s() - t;
        if (i > 0 && t < best) best = t;
    }
    double flops = 2.0 * rows * vocab * k * products[what],
           bytes = (double)vocab * k * (double)ares_dtype_bytes(dtype);
    printf("{\"bench\":\"%s %s "
           "rows=%d\",\"kernels\":\"%s\",\"threads\":%d,\"us\":%.1f,\"gflops\":%.1f,\"us_per_row\":"
           "%.3f,"
           "\"weight_gb_s\":%.1f}\n",
           names[what], shape, rows, d->k->name, ares_pool_threads(d->pool), best * 1e6,
           flops / best / 1e9, best * 1e6 / rows, bytes / best / 1e9);
    fflush(stdout);
    ares_pages_free(w.data, (size_t)elements * 4);
    if (dw.data) ares_pages_free(dw.data, (size_t)elements * 4);
    void *all[] = { x, from, target, stat, dx, key };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
}

static void bench_rows(ares_device *d, int rows, int vocab)
{
    float *z = numbers((int64_t)rows * vocab, 3.0f), *out = ares_calloc((size_t)rows * 2, 4);
    int32_t *target = ares_calloc((size_t)rows, 4);
    double best = 1e9, all[20];
    for (int i = 0; i < 20; i++) {
        double t = ares_now_s();
        ares_logits_args a = { .rows = rows,
                               .vocab = vocab,
                               .logits = z,
                               .dtype = ARES_F32,
                               .ld = vocab,
                               .inv_temperature = 1.0f,
                               .target = target,
                               .log_prob = out,
                               .entropy = out + rows };
        d->k->token_log_prob(d, &a);
        all[i] = ares_now_s() - t;
        if (all[i] < best) best = all[i];
    }
    printf("{\"bench\":\"token_log_prob [%d, "
           "%d]\",\"kernels\":\"%s\",\"threads\":%d,\"us\":%.1f,\"us_per_row\":%.3f,\"gb_s\":%.1f,"
           "\"all\":[",
           rows, vocab, d->k->name, ares_pool_threads(d->pool), best * 1e6, best * 1e6 / rows,
           4e-9 * rows * vocab / best);
    for (int i = 0; i < 20; i++) printf("%s%.3f", i ? "," : "", all[i] * 1e6 / rows);
    printf("]}\n");
    fflush(stdout);
    ares_free(z), ares_free(out), ares_free(target);
}

int main(int argc, char **argv)
{
    ares_device d;
    if (ares_device_open("cpu", argc > 1 ? atoi(argv[1]) : 0, &d) != ARES_OK) {
        fprintf(stderr, "%s\n", ares_error_message());
        return 1;
    }
    bench_rows(&d, 1024, 151936);
    if (argc > 2 && strcmp(argv[2], "rows") == 0) return 0;
    static const int batch[] = { 1, 16, 64 };
    for (int i = 0; i < 3; i++) {
        bench(&d, "tiny", SAMPLE, batch[i], 512, 128, ARES_F32);
        bench(&d, "smol", SAMPLE, batch[i], 49152, 576, ARES_F32);
        bench(&d, "smol", SAMPLE_TOP_P, batch[i], 49152, 576, ARES_F32);
    }
    bench(&d, "smol bf16", SAMPLE, 1, 49152, 576, ARES_BF16);
    bench(&d, "smol", FORWARD, 1, 49152, 576, ARES_F32);
    for (what w = FORWARD; w <= FUSED; w++) {
        bench(&d, "tiny", w, 2048, 512, 128, ARES_F32);
        bench(&d, "smol", w, 1024, 49152, 576, ARES_F32);
    }
    ares_device_close(&d);
    return 0;
}
