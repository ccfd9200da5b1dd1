/*
 * Speed of the linear products on the shapes of SmolLM2-135M and of the tiny model as JSON lines:
 * the best of many runs, GFLOP/s, and GB/s of the weights. Every run takes other weights, so that
 * small batches read them from where a decode step would: from memory for smol, from the caches for
 * tiny.
 *
 * pairs: in bf16 arithmetic.
 *
 *   bench_linear [--threads N] [--dtype f32|bf16|pairs] [--seconds S] [--only smol|tiny] [--m M]
 *                [--op forward]
 */
#include "ares/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct shape {
    const char *model, *name;
    int32_t n, k;
} shape;
static const shape SHAPES[] = {
    { "smol", "q,o", 576, 576 },      { "smol", "k,v", 192, 576 },
    { "smol", "gate,up", 1536, 576 }, { "smol", "down", 576, 1536 },
    { "smol", "head", 49152, 576 },   { "tiny", "q,o", 128, 128 },
    { "tiny", "k,v", 64, 128 },       { "tiny", "gate,up", 384, 128 },
    { "tiny", "down", 128, 384 },     { "tiny", "head", 512, 128 },
};
static const int32_t ROWS[] = { 1, 4, 16, 64, 1024 };

static float *fresh(int64_t n)
{
    float *p = ares_pages_new((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++) p[i] = (float)((i * 2654435761u) % 1000) * 1e-3f - 0.5f;
    return p;
}

static void measure(ares_device *d, const shape *s, ares_dtype dtype, ares_layout layout, int32_t m,
                    double seconds, bool forward_only)
{
    bool smol = strcmp(s->model, "smol") == 0;
    size_t bytes = (size_t)ares_matrix_elements(layout, s->n, s->k) * ares_dtype_bytes(dtype);
    int copies = (int)ARES_MAX(1, ARES_MIN(256, (smol ? (size_t)200 << 20 : bytes) / bytes));
    char *weights = ares_pages_new(bytes * (size_t)copies);
    float *source = fresh((int64_t)s->n * s->k);
    ares_matrix w = { weights, dtype, layout, s->n, s->k };
    ares_matrix_pack(&w, source, ARES_F32);
    for (int c = 1; c < copies; c++) memcpy(weights + (size_t)c * bytes, weights, bytes);
    ares_matrix dw = { ares_pages_new(bytes * (dtype == ARES_F32 ? 1 : 2)), ARES_F32, layout, s->n,
                       s->k };
    float *x = fresh((int64_t)m * s->k), *y = fresh((int64_t)m * s->n),
          *dx = fresh((int64_t)m * s->k);
    double flops = 2.0 * m * s->n * s->k;
    static const char *const what[] = { "forward", "dx", "dw" };
    for (int op = 0; op < (!forward_only && m >= 64 && s->n <= 4096 ? 3 : 1); op++) {
        static double times[1 << 16];
        double start = ares_now_s();
        int reps = 0;
        for (int rep = 0; (ares_now_s() - start < seconds || rep < 4) && rep < ARES_COUNT(times);
             rep++) {
            w.data = weights + (size_t)(rep % copies) * bytes;
            double t = ares_now_s();
            if (op == 0)
                d->k->linear(d,
                             &(ares_linear_args){
                                 .m = m, .x = x, .ldx = s->k, .w = &w, .y = y, .ldy = s->n },
                             1);
            else
                d->k->linear_backward(d,
                                      &(ares_linear_backward_args){ .m = m,
                                                                    .dy = y,
                                                                    .lddy = s->n,
                                                                    .w = &w,
                                                                    .dx = op == 1 ? dx : NULL,
                                                                    .lddx = s->k,
                                                                    .x = x,
                                                                    .ldx = s->k,
                                                                    .dw = op == 2 ? &dw : NULL },
                                      1);
            times[reps++] = ares_now_s() - t;
        }
        qsort(times, (size_t)reps, sizeof *times, by_value);
        double best = times[0];
        printf("{\"bench\":\"linear\",\"isa\":\"%s\",\"threads\":%d,\"dtype\":\"%s\",\"model\":\"%"
               "s\",\"weight\":\"%s\","
               "\"op\":\"%s\",\"m\":%d,\"n\":%d,\"k\":%d,\"best_us\":%.2f,\"median_us\":%.2f,"
               "\"gflops\":%.1f,\"weight_gbs\":%.1f}\n",
               d->k->name, ares_pool_threads(d->pool),
               layout == ARES_PANEL32_PAIRS ? "pairs"
               : dtype == ARES_F32          ? "f32"
                                            : "bf16",
               s->model, s->name, what[op], m, s->n, s->k, best * 1e6, times[reps / 2] * 1e6,
               flops / best * 1e-9, (double)bytes / best * 1e-9);
        fflush(stdout);
    }
    ares_pages_free(weights, bytes * (size_t)copies);
    ares_pages_free(dw.data, bytes * (dtype == ARES_F32 ? 1 : 2));
    ares_pages_free(source, (size_t)s->n * s->k * 4);
    ares_pages_free(x, (size_t)m * s->k * 4);
    ares_pages_free(y, (size_t)m * s->n * 4);
    ares_pages_free(dx, (size_t)m * s->k * 4);
}

int main(int argc, char **argv)
{
    int threads = 0, only_m = 0;
    double seconds = 0.2;
    ares_dtype dtype = ARES_F32;
    ares_layout layout = ARES_PANEL32;
    const char *only = "";
    bool forward_only = false;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--threads") == 0) threads = atoi(value);
        if (strcmp(argv[i], "--dtype") == 0)
            dtype = strcmp(value, "f32") == 0 ? ARES_F32 : ARES_BF16,
            layout = strcmp(value, "pairs") == 0 ? ARES_PANEL32_PAIRS : ARES_PANEL32;
        if (strcmp(argv[i], "--seconds") == 0) seconds = atof(value);
        if (strcmp(argv[i], "--only") == 0) only = value;
        if (strcmp(argv[i], "--m") == 0) only_m = atoi(value);
        if (strcmp(argv[i], "--op") == 0) forward_only = strcmp(value, "forward") == 0;
    }
    ares_device d;
    if (ares_device_open("cpu", threads, &d) != ARES_OK) {
        fprintf(stderr, "%s\n", ares_error_message());
        return 1;
    }
    for (int s = 0; s < ARES_COUNT(SHAPES); s++)
        for (int r = 0; r < ARES_COUNT(ROWS); r++)
            if ((!*only || strcmp(only, SHAPES[s].model) == 0) && (!only_m || only_m == ROWS[r]))
                measure(&d, &SHAPES[s], dtype, layout, ROWS[r], seconds, forward_only);
    ares_device_close(&d);
    return 0;
}
