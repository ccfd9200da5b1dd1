/*
 * Speed of attention as JSON lines: training forward and backward, prefill, pictures and decode,
 * one line per case, the best of many runs. FLOPs count the products of visible pairs only (4 D
 * forward, 10 D backward), so that work on masked halves of blocks lowers the result.
 *
 *   bench_attention [THREADS]
 */
#include "ares/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static float *numbers(int64_t n)
{
    float *x = ares_malloc((size_t)n * sizeof(float));
    ares_rng_key key = ares_rng_root(1, ARES_RNG_TEST);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(2.0 * ares_rng_uniform(key, (uint64_t)(i % 65536)) - 1.0);
    return x;
}

typedef void call(ares_device *d, const ares_attention_args *a);
static double best_us(call *f, ares_device *d, const ares_attention_args *a)
{
    double best = 1e9;
    for (int i = 0, most = 200; i < most; i++) {
        double t = ares_now_s();
        f(d, a);
        t = ares_now_s() - t;
        if (i > 0 && t < best) best = t;
        if (t > 0.02) most = 20;
    }
    return best * 1e6;
}

static void line(const ares_device *d, const char *name, int threads, double us, double flops,
                 double tokens)
{
    printf("{\"bench\":\"%s\",\"kernels\":\"%s\",\"threads\":%d,\"us\":%.1f,\"gflops\":%.1f,\"us_"
           "per_token\":"
           "%.3f}\n",
           name, d->k->name, threads, us, flops / us / 1e3, us / tokens);
    fflush(stdout);
}

/*
 * `groups` prompts of `prompt` tokens and their answers of `answer` tokens each; with shared
 * prompts or as whole sequences.
 */
static void train(ares_device *d, int threads, const char *name, int groups, int prompt,
                  int answers, int answer, bool shared, int heads, int kv, int dim)
{
    int n = 0, most = groups * (answers + 1), rows = 0;
    int32_t *start = ares_calloc((size_t)most + 1, 4), *len = ares_calloc((size_t)most, 4),
            *at = ares_calloc((size_t)most, 4);
    double pairs = 0.0;
    for (int g = 0; g < groups; g++) {
        int first = rows;
        if (shared) {
            start[++n] = rows += prompt;
            pairs += prompt * (prompt + 1) / 2.0;
        }
        for (int i = 0; i < answers; i++) {
            len[n] = shared ? prompt : 0;
            at[n] = first;
            start[++n] = rows += shared ? answer : prompt + answer;
            pairs += answer * (prompt + (answer + 1) / 2.0) +
                     (shared ? 0.0 : prompt * (prompt + 1) / 2.0);
        }
    }
    int64_t wide = (int64_t)heads * dim, narrow = (int64_t)kv * dim;
    float *q = numbers(rows * wide), *o = numbers(rows * wide), *d_out = numbers(rows * wide),
          *dq = numbers(rows * wide), *lse = numbers((int64_t)rows * heads);
    float *k = numbers(rows * narrow), *v = numbers(rows * narrow), *dk = numbers(rows * narrow),
          *dv = numbers(rows * narrow);
    ares_attention_args a = {
        .seg = { .n = n, .start = start, .prefix_len = len, .prefix_row = at },
        .n_heads = heads,
        .n_kv_heads = kv,
        .head_dim = dim,
        .scale = 1.0f / sqrtf((float)dim),
        .causal = true,
        .q = q,
        .ldq = wide,
        .k = k,
        .v = v,
        .ldkv = narrow,
        .out = o,
        .ldo = wide,
        .lse = lse,
        .d_out = d_out,
        .dq = dq,
        .lddq = wide,
        .dk = dk,
        .dv = dv,
        .lddkv = narrow
    };
    char text[128];
    snprintf(text, sizeof text, "attention_forward %s", name);
    line(d, text, threads, best_us(d->k->attention, d, &a), pairs * heads * dim * 4, rows);
    snprintf(text, sizeof text, "attention_backward %s", name);
    line(d, text, threads, best_us(d->k->attention_backward, d, &a), pairs * heads * dim * 10,
         rows);
    void *all[] = { start, len, at, q, o, d_out, dq, lse, k, v, dk, dv };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
}

/* A picture of a vision tower: every patch sees all of its segment. */
static void picture(ares_device *d, int threads, const char *name, int segments, int each,
                    int heads, int dim)
{
    int32_t *start = ares_calloc((size_t)segments + 1, 4);
    for (int i = 0; i <= segments; i++) start[i] = i * each;
    int64_t rows = (int64_t)segments * each, wide = (int64_t)heads * dim;
    float *qkv = numbers(rows * 3 * wide), *o = numbers(rows * wide), *d_out = numbers(rows * wide),
          *d_qkv = numbers(rows * 3 * wide), *lse = numbers(rows * heads);
    ares_attention_args a = { .seg = { .n = segments, .start = start },
                              .n_heads = heads,
                              .n_kv_heads = heads,
                              .head_dim = dim,
                              .scale = 1.0f / sqrtf((float)dim),
                              .q = qkv,
                              .ldq = 3 * wide,
                              .k = qkv + wide,
                              .v = qkv + 2 * wide,
                              .ldkv = 3 * wide,
                              .out = o,
                              .ldo = wide,
                              .lse = lse,
                              .d_out = d_out,
                              .dq = d_qkv,
                              .lddq = 3 * wide,
                              .dk = d_qkv + wide,
                              .dv = d_qkv + 2 * wide,
                              .lddkv = 3 * wide };
    double pairs = (double)rows * each;
    char text[128];
    snprintf(text, sizeof text, "attention_forward %s", name);
    line(d, text, threads, best_us(d->k->attention, d, &a), pairs * heads * dim * 4, (double)rows);
    snprintf(text, sizeof text, "attention_backward %s", name);
    line(d, text, threads, best_us(d->k->attention_backward, d, &a), pairs * heads * dim * 10,
         (double)rows);
    void *all[] = { start, qkv, o, d_out, d_qkv, lse };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
}

static void decode(ares_device *d, int threads, const char *name, int batch, int context, int heads,
                   int kv, int dim)
{
    int stride = (context + 32) / 32;
    int32_t *start = ares_calloc((size_t)batch + 1, 4), *len = ares_calloc((size_t)batch, 4),
            *table = ares_calloc((size_t)(batch * stride), 4);
    for (int b = 0; b < batch; b++) {
        start[b + 1] = b + 1;
        len[b] = context - 1;
        for (int i = 0; i < stride; i++) table[b * stride + i] = b * stride + i;
    }
    int64_t wide = (int64_t)heads * dim;
    float *q = numbers(batch * wide), *o = numbers(batch * wide),
          *cache = numbers((int64_t)batch * stride * kv * 64 * dim);
    ares_attention_args a = { .seg = { .n = batch,
                                       .start = start,
                                       .prefix_len = len,
                                       .block_table = table,
                                       .table_stride = stride },
                              .n_heads = heads,
                              .n_kv_heads = kv,
                              .head_dim = dim,
                              .scale = 0.125f,
                              .causal = true,
                              .q = q,
                              .ldq = wide,
                              .cache = cache,
                              .out = o,
                              .ldo = wide };
    char text[128];
    snprintf(text, sizeof text, "attention_decode %s", name);
    line(d, text, threads, best_us(d->k->attention, d, &a),
         (double)batch * context * heads * dim * 4, batch);
    void *all[] = { start, len, table, q, o, cache };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
}

int main(int argc, char **argv)
{
    ares_device d;
    if (ares_device_open("cpu", argc > 1 ? atoi(argv[1]) : 0, &d) != ARES_OK) {
        fprintf(stderr, "%s\n", ares_error_message());
        return 1;
    }
    int threads = ares_pool_threads(d.pool);
    train(&d, threads, "tiny 16x8 32+64 shared", 16, 32, 8, 64, true, 4, 2, 32);
    train(&d, threads, "smol 4x8 47+32 shared", 4, 47, 8, 32, true, 9, 3, 64);
    train(&d, threads, "smol 4x8 47+32 whole", 4, 47, 8, 32, false, 9, 3, 64);
    train(&d, threads, "smol 8x512", 8, 511, 1, 1, false, 9, 3, 64);
    train(&d, threads, "qwen 0.5b 2x1024", 2, 1023, 1, 1, false, 14, 2, 64);
    train(&d, threads, "dim 128 1x2048", 1, 2047, 1, 1, false, 16, 8, 128);
    picture(&d, threads, "picture 1x1024 dim 80", 1, 1024, 16, 80);
    picture(&d, threads, "picture 1x4096 dim 80", 1, 4096, 16, 80);
    picture(&d, threads, "picture 64x64 dim 80", 64, 64, 16, 80);
    decode(&d, threads, "tiny B=1 ctx 128", 1, 128, 4, 2, 32);
    decode(&d, threads, "tiny B=64 ctx 128", 64, 128, 4, 2, 32);
    decode(&d, threads, "smol B=1 ctx 128", 1, 128, 9, 3, 64);
    decode(&d, threads, "smol B=64 ctx 128", 64, 128, 9, 3, 64);
    decode(&d, threads, "smol B=64 ctx 1024", 64, 1024, 9, 3, 64);
    ares_device_close(&d);
    return 0;
}
