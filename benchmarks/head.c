/*
 * Speed of the vocabulary head and of the sampler as JSON lines, the best of many runs. GFLOP/s
 * count 2 x rows x vocab x k per product: one product in forward and in sampling, three in backward
 * (logits again, dx, dw), three fused (logits, dx, dw), four in forward and backward.
 *
 *   bench_head [THREADS] [run]
 *
 * run: what a training run executes, from hidden states to log-probs and exact entropies, beside
 * peers/head.py. head: old log-probs and the reference. head_fused: an update whose loss needs one
 * token at a time. head, head_backward: an update with any other loss.
 */
#include "ares/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Normal numbers, each one of 4096 that a hash (splitmix64) of its place chooses. */
static float *numbers(uint64_t which, int64_t n, float scale)
{
    float *x = ares_malloc((size_t)n * sizeof(float));
    ares_rng_key key = ares_rng_root(1, ARES_RNG_TEST);
    float some[4096];
    for (int i = 0; i < 4096; i++) some[i] = scale * (float)ares_rng_normal(key, (uint64_t)i);
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = ((which << 48) + (uint64_t)i) * 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        x[i] = some[z >> 52];
    }
    return x;
}

static void loss(void *ctx, int32_t row, int32_t n, const float *log_prob, const float *entropy,
                 float *c, float *ce)
{
    (void)ctx, (void)row, (void)log_prob, (void)entropy;
    for (int32_t i = 0; i < n; i++) c[i] = 0.01f, ce[i] = 0.001f;
}

typedef enum { FORWARD, BACKWARD, FUSED, BOTH, SAMPLE, SAMPLE_TOP_P } what;
static const char *const names[] = { "head",       "head_backward",
                                     "head_fused", "head, head_backward",
                                     "sample",     "sample top_p 0.95" };
static const int products[] = { 1, 3, 3, 4, 1, 1 };
enum { RUNS = 100 };

static void bench(ares_device *d, const char *shape, what what, int rows, int vocab, int k,
                  ares_dtype dtype)
{
    float *x = numbers(1, (int64_t)rows * k, 1.0f), *from = numbers(2, (int64_t)vocab * k, 0.1f);
    int64_t elements = ares_matrix_elements(ARES_PANEL32, vocab, k);
    ares_matrix w = { ares_pages_new((size_t)elements * 4), dtype, ARES_PANEL32, vocab, k };
    bool backward = what == BACKWARD || what == FUSED || what == BOTH;
    ares_matrix dw = { backward ? ares_pages_new((size_t)elements * 4) : NULL, ARES_F32,
                       ARES_PANEL32, vocab, k };
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
    double best = 1e9, all[RUNS], entropy = 0, begin = ares_now_s();
    int runs = 0;
    if (what == BACKWARD) d->k->head(d, &h);
    for (int i = 0; i < RUNS && (i < 5 || ares_now_s() - begin < 3.0); i++) {
        double t = ares_now_s();
        if (what == FORWARD || what == BOTH) d->k->head(d, &h);
        if (what == BACKWARD || what == BOTH) d->k->head_backward(d, &h);
        else if (what == FUSED) d->k->head_fused(d, &h, loss, NULL);
        else if (what == SAMPLE || what == SAMPLE_TOP_P) d->k->sample(d, &s);
        t = ares_now_s() - t;
        if (i == 0) continue; /* the first touches the memory */
        all[runs++] = t;
        if (t < best) best = t;
    }
    for (int r = 0; r < rows; r++) entropy += (double)h.entropy[r] / rows;
    double flops = 2.0 * rows * vocab * k * products[what],
           bytes = (double)vocab * k * (double)ares_dtype_bytes(dtype);
    printf("{\"bench\":\"%s %s rows=%d\",\"measure\":\"%s\",\"case\":\"%s\",\"kernels\":\"%s\","
           "\"threads\":%d,\"us\":%.1f,\"gflops\":%.1f,\"us_per_row\":%.3f,\"weight_gb_s\":%.1f,"
           "\"check\":%.6g,\"unit\":\"us/token\",\"all\":[",
           names[what], shape, rows, names[what], shape, d->k->name, ares_pool_threads(d->pool),
           best * 1e6, flops / best / 1e9, best * 1e6 / rows, bytes / best / 1e9, entropy);
    for (int i = 0; i < runs; i++) printf("%s%.3f", i ? "," : "", all[i] * 1e6 / rows);
    printf("]}\n");
    fflush(stdout);
    ares_pages_free(w.data, (size_t)elements * 4);
    if (dw.data) ares_pages_free(dw.data, (size_t)elements * 4);
    void *memory[] = { x, from, target, stat, dx, key };
    for (int i = 0; i < ARES_COUNT(memory); i++) ares_free(memory[i]);
}

/* SmolLM2's head, and that of Qwen2.5-0.5B, whose vocabulary is three times as large. */
static void bench_run(ares_device *d)
{
    static const what parts[] = { FORWARD, FUSED, BOTH };
    for (int i = 0; i < ARES_COUNT(parts); i++) {
        bench(d, "smol", parts[i], 1024, 49152, 576, ARES_F32);
        bench(d, "qwen", parts[i], 1024, 151936, 896, ARES_F32);
    }
}

int main(int argc, char **argv)
{
    ares_device d;
    if (ares_device_open("cpu", argc > 1 ? atoi(argv[1]) : 0, &d) != ARES_OK) {
        fprintf(stderr, "%s\n", ares_error_message());
        return 1;
    }
    if (argc > 2 && strcmp(argv[2], "run") == 0) {
        bench_run(&d);
        ares_device_close(&d);
        return 0;
    }
    static const int batch[] = { 1, 16, 64 };
    for (int i = 0; i < 3; i++) {
        bench(&d, "tiny", SAMPLE, batch[i], 512, 128, ARES_F32);
        bench(&d, "smol", SAMPLE, batch[i], 49152, 576, ARES_F32);
        bench(&d, "smol", SAMPLE_TOP_P, batch[i], 49152, 576, ARES_F32);
    }
    bench(&d, "smol bf16", SAMPLE, 1, 49152, 576, ARES_BF16);
    bench(&d, "smol", FORWARD, 1, 49152, 576, ARES_F32);
    for (what w = FORWARD; w <= BOTH; w++) {
        bench(&d, "tiny", w, 2048, 512, 128, ARES_F32);
        bench(&d, "smol", w, 1024, 49152, 576, ARES_F32);
    }
    ares_device_close(&d);
    return 0;
}
