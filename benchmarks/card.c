/*
 * Parts of a step on a device beside what the device can do at most, as JSON lines: a copy and a
 * bf16 product (the limits), the sampler (G7), log-prob and entropy of every token (G8), the fused
 * head (G9), and the change of phase of memory (G19). benchmarks/gpu/report.py divides.
 *
 *   bench_card [device=cuda] [kernels=native] [dtype=bf16] [rows=16384] [vocab=151936] [hidden=896]
 * [batch=256] [mib=1024] [cube=8192] [gib=40] [repeat=10]
 *
 * A figure is the median of `repeat` calls, by events of the card, or by the clock on a CPU.
 * dtype: of activations, bf16 or fp32; mib: of the copy; cube: rows, outputs and inputs of the
 * product; gib: memory of the phases. On a CPU small sizes show that the program works.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/algo/loss/on_device.h"
#include "ares/algo_loss.h"
#include "options.h"

typedef struct options {
    const char *device, *kernels, *dtype;
    int64_t rows, vocab, hidden, batch, mib, cube, gib, repeat;
} options;

static int set(options *o, const char *word)
{
    const bench_option known[] = {
        { "device", .text = &o->device },
        { "kernels", .text = &o->kernels },
        { "dtype", .text = &o->dtype },
        { "rows", .number = &o->rows, .least = 1 },
        { "vocab", .number = &o->vocab, .least = 1 },
        { "hidden", .number = &o->hidden, .least = 1 },
        { "batch", .number = &o->batch, .least = 1 },
        { "mib", .number = &o->mib, .least = 1 },
        { "cube", .number = &o->cube, .least = 1 },
        { "gib", .number = &o->gib },
        { "repeat", .number = &o->repeat, .least = 1 },
    };
    return bench_set("bench_card", known, ARES_COUNT(known), word);
}

/* ---------------------------------------------------------------- arrays on the device */
static void *zeroed(ares_device *d, size_t bytes)
{
    void *p = d->k->alloc(d, bytes);
    if (p) return p;
    fprintf(stderr, "bench_card: %.2f GiB do not fit on the device\n",
            (double)bytes / 1073741824.0);
    exit(1);
}
static void *up(ares_device *d, const void *host, size_t bytes)
{
    void *p = zeroed(d, bytes);
    d->k->copy_in(d, p, host, bytes);
    return p;
}
/* n numbers of the type, normal with this deviation: 65,536 different ones, again and again. */
static void *numbers(ares_device *d, ares_dtype type, int64_t n, double scale)
{
    enum { SOME = 1 << 16 };
    ares_matrix w = { .dtype = type, .layout = ARES_ROWS, .n = SOME, .k = 1 };
    size_t one = ares_dtype_bytes(type), bytes = (size_t)n * one;
    float *some = ares_malloc(SOME * sizeof *some);
    char *p = zeroed(d, bytes);
    for (int i = 0; i < SOME; i++)
        some[i] = (float)(scale * ares_rng_normal(ares_rng_root(1, ARES_RNG_TEST), (uint64_t)i));
    w.data = ares_malloc(SOME * one);
    ares_matrix_pack(&w, some, ARES_F32);
    for (int64_t at = 0; at < n; at += SOME)
        d->k->copy_in(d, p + (size_t)at * one, w.data, (size_t)ARES_MIN(n - at, SOME) * one);
    ares_free(some);
    ares_free(w.data);
    return p;
}
/* In the table's layout; what lies in the padding of panels does not matter here. */
static ares_matrix weights(ares_device *d, ares_dtype type, int64_t n, int64_t k)
{
    int64_t elements = ares_matrix_elements(d->k->layout, n, k);
    return (ares_matrix){ numbers(d, type, elements, 0.02), type, d->k->layout, (int32_t)n,
                          (int32_t)k };
}
static void drop(ares_device *d, ares_matrix *w)
{
    size_t n = (size_t)ares_matrix_elements(w->layout, w->n, w->k);
    d->k->release(d, w->data, n * ares_dtype_bytes(w->dtype));
}

/* ---------------------------------------------------------------- time */
typedef void work(ares_device *d, void *ctx);

/*
 * Seconds of one call: the median of `repeat` after one to warm up, each with its own wait; NAN
 * after a failure.
 */
static double timed(ares_device *d, int64_t repeat, work *fn, void *ctx)
{
    double all[64];
    int n = 0;
    for (int64_t i = 0; i <= repeat && n < ARES_COUNT(all); i++) {
        if (d->k->sync(d) != ARES_OK) return NAN;
        double t = ares_now_s();
        if (d->losses) d->losses->clock_begin(d);
        fn(d, ctx);
        if (d->losses) d->losses->clock_end(d);
        if (d->k->sync(d) != ARES_OK) return NAN;
        t = d->losses ? d->losses->kernel_s(d) : ares_now_s() - t;
        if (i) all[n++] = t;
    }
    return bench_median(all, n);
}

static int line(const char *goal, const char *what, double seconds, double bytes, double flop)
{
    if (!isfinite(seconds)) return ARES_EDEVICE; /* the failure has been recorded */
    printf("{\"goal\":\"%s\",\"what\":\"%s\",\"seconds\":%.6g,\"bytes\":%.6g,\"flop\":%.6g}\n",
           goal, what, seconds, bytes, flop);
    (void)fflush(stdout);
    return ARES_OK;
}

/* ---------------------------------------------------------------- limits */
typedef struct copying {
    void *to, *from;
    size_t bytes;
} copying;
static void copy(ares_device *d, void *ctx)
{
    const copying *c = ctx;
    d->k->copy(d, c->to, c->from, c->bytes);
}
static void product(ares_device *d, void *ctx)
{
    d->k->linear(d, ctx, 1);
}

static int limits(ares_device *d, const options *o)
{
    copying c = { .bytes = (size_t)o->mib << 20 };
    c.to = zeroed(d, c.bytes);
    c.from = zeroed(d, c.bytes);
    ARES_TRY(line("limit", "bytes", timed(d, o->repeat, copy, &c), 2 * (double)c.bytes, 0));
    d->k->release(d, c.to, c.bytes);
    d->k->release(d, c.from, c.bytes);
    size_t one = ares_dtype_bytes(d->k->act), n = (size_t)(o->cube * o->cube);
    ares_matrix w = weights(d, d->k->act, o->cube, o->cube);
    ares_linear_args a = { .m = (int32_t)o->cube,
                           .x = numbers(d, d->k->act, (int64_t)n, 1),
                           .ldx = o->cube,
                           .w = &w,
                           .y = zeroed(d, n * one),
                           .ldy = o->cube };
    double cube = (double)o->cube;
    int rc = line("limit", "flop", timed(d, o->repeat, product, &a), 0, 2 * cube * cube * cube);
    d->k->release(d, (void *)a.x, n * one);
    d->k->release(d, a.y, n * one);
    drop(d, &w);
    return rc;
}

/* ---------------------------------------------------------------- head and sampler */
static void head(ares_device *d, void *ctx)
{
    d->k->head(d, ctx);
}
static void loss(void *ctx, int32_t row, int32_t n, const float *log_prob, const float *entropy,
                 float *c_log_prob, float *c_entropy)
{
    (void)ctx, (void)row, (void)n, (void)log_prob, (void)entropy, (void)c_log_prob, (void)c_entropy;
}
static void fused(ares_device *d, void *ctx)
{
    d->k->head_fused(d, ctx, loss, NULL);
}

/* Both leave no logits in memory: what must move is the weight and the rows. */
static int heads(ares_device *d, const options *o)
{
    size_t rows = (size_t)o->rows, act = ares_dtype_bytes(d->k->act), k = (size_t)o->hidden;
    ares_matrix w = weights(d, ARES_BF16, o->vocab, o->hidden), dw = w;
    dw.dtype = ARES_F32;
    dw.data = zeroed(d, (size_t)ares_matrix_elements(w.layout, w.n, w.k) * 4);
    int32_t *target = ares_calloc(rows, sizeof *target);
    for (size_t r = 0; r < rows; r++) target[r] = (int32_t)(r % (size_t)o->vocab);
    float *stats = zeroed(d, rows * 5 * sizeof *stats);
    ares_head_args h = { .rows = (int32_t)o->rows,
                         .vocab = (int32_t)o->vocab,
                         .x = numbers(d, d->k->act, o->rows * o->hidden, 1),
                         .ldx = o->hidden,
                         .w = &w,
                         .inv_temperature = 1,
                         .target = up(d, target, rows * sizeof *target),
                         .log_prob = stats,
                         .entropy = stats + rows,
                         .lse = stats + 2 * rows,
                         .c_log_prob = stats + 3 * rows,
                         .c_entropy = stats + 4 * rows,
                         .dx = zeroed(d, rows * k * act),
                         .lddx = o->hidden,
                         .dw = &dw };
    double flop = 2.0 * (double)o->rows * (double)o->vocab * (double)o->hidden,
           weight = (double)o->vocab * (double)o->hidden * 2, x = (double)(rows * k * act);
    ARES_TRY(line("G8", "log-prob and entropy from hidden states", timed(d, o->repeat, head, &h),
                  weight + x, flop));
    ARES_TRY(line("G9", "fused head, forward and backward", timed(d, o->repeat, fused, &h),
                  3 * weight + 2 * x, 3 * flop));
    d->k->release(d, (void *)h.x, rows * k * act);
    d->k->release(d, (void *)h.target, rows * sizeof *target);
    d->k->release(d, h.dx, rows * k * act);
    d->k->release(d, stats, rows * 5 * sizeof *stats);
    d->k->release(d, dw.data, (size_t)ares_matrix_elements(w.layout, w.n, w.k) * 4);
    drop(d, &w);
    ares_free(target);
    return ARES_OK;
}

static void sampling(ares_device *d, void *ctx)
{
    d->k->sample(d, ctx);
}

static int samples(ares_device *d, const options *o)
{
    size_t b = (size_t)o->batch;
    float *setting = ares_malloc(b * 3 * sizeof *setting);
    int32_t *top_k = ares_malloc(b * sizeof *top_k);
    ares_rng_key *key = ares_calloc(b, sizeof *key);
    ares_matrix w = weights(d, ARES_BF16, o->vocab, o->hidden);
    int rc = ARES_OK;
    for (size_t i = 0; i < b; i++) {
        setting[i] = 0.8f, setting[b + i] = 1.0f, setting[2 * b + i] = 0.95f;
        top_k[i] = 50;
        key[i] = ares_rng_sub(ares_rng_root(1, ARES_RNG_SAMPLE), i, 0);
    }
    /* the settings: temperature, top_p off and on; token, log-prob and entropy */
    float *set = up(d, setting, b * 12), *out = zeroed(d, b * 12);
    int32_t *set_k = up(d, top_k, b * sizeof *set_k);
    ares_rng_key *set_key = up(d, key, b * sizeof *key);
    ares_sample_args s = { .rows = (int32_t)o->batch,
                           .vocab = (int32_t)o->vocab,
                           .x = numbers(d, d->k->act, o->batch * o->hidden, 1),
                           .ldx = o->hidden,
                           .w = &w,
                           .temperature = set,
                           .key = set_key,
                           .token = (int32_t *)out,
                           .log_prob = out + b,
                           .entropy = out + 2 * b };
    double flop = 2.0 * (double)b * (double)o->vocab * (double)o->hidden,
           bytes = (double)o->vocab * (double)o->hidden * 2;
    ares_linear_args l = { .m = (int32_t)o->batch,
                           .x = s.x,
                           .ldx = o->hidden,
                           .w = &w,
                           .y = zeroed(d, b * (size_t)o->vocab * ares_dtype_bytes(d->k->act)),
                           .ldy = o->vocab };
    rc = line("G7", "lm_head alone", timed(d, o->repeat, product, &l), bytes, flop);
    d->k->release(d, l.y, b * (size_t)o->vocab * ares_dtype_bytes(d->k->act));
    for (int i = 0; i < 2 && rc == ARES_OK; i++) {
        s.top_p = set + (size_t)(1 + i) * b;
        s.top_k = i ? set_k : NULL;
        rc = line("G7", i ? "lm_head and sampler, top_k 50, top_p 0.95" : "lm_head and sampler",
                  timed(d, o->repeat, sampling, &s), bytes, flop);
    }
    d->k->release(d, (void *)s.x, b * (size_t)o->hidden * ares_dtype_bytes(d->k->act));
    drop(d, &w);
    d->k->release(d, set, b * 12), d->k->release(d, out, b * 12);
    d->k->release(d, set_k, b * sizeof *set_k), d->k->release(d, set_key, b * sizeof *key);
    ares_free(setting), ares_free(top_k), ares_free(key);
    return rc;
}

/* ---------------------------------------------------------------- phases */
typedef struct turns {
    ares_held cache, pass;
    size_t bytes;
} turns;
/* From rollout to training and back. */
static void both_phases(ares_device *d, void *ctx)
{
    turns *t = ctx;
    (void)ares_phase_take(d, ARES_PHASE_TRAIN, &t->pass, t->bytes);
    (void)ares_phase_take(d, ARES_PHASE_ROLLOUT, &t->cache, t->bytes);
}

static int phases(ares_device *d, const options *o)
{
    turns t = { .bytes = (size_t)o->gib << 30 };
    if (!o->gib) t.bytes = (size_t)1 << 20;
    ARES_TRY(ares_phases_open(d, t.bytes));
    double seconds = timed(d, o->repeat, both_phases, &t);
    ares_phases_close(d);
    return line("G19", "to training and back to rollout", seconds, (double)t.bytes, 0);
}

int main(int argc, char **argv)
{
    options o = { .device = "cuda",
                  .kernels = "native",
                  .dtype = "bf16",
                  .rows = 16384,
                  .vocab = 151936,
                  .hidden = 896,
                  .batch = 256,
                  .mib = 1024,
                  .cube = 8192,
                  .gib = 40,
                  .repeat = 10 };
    ares_device d = { .index = -1 };
    int rc = ARES_OK;
    for (int i = 1; i < argc && rc == ARES_OK; i++) rc = set(&o, argv[i]);
    ares_dtype act = strcmp(o.dtype, "bf16") == 0 ? ARES_BF16 : ARES_F32;
    if (rc == ARES_OK) rc = ares_device_open_table(o.device, o.kernels, act, 0, &d);
    if (rc == ARES_OK) rc = limits(&d, &o);
    if (rc == ARES_OK) rc = samples(&d, &o);
    if (rc == ARES_OK) rc = heads(&d, &o);
    if (rc == ARES_OK) rc = phases(&d, &o);
    if (rc != ARES_OK) (void)fprintf(stderr, "%s\n", ares_error_message());
    ares_device_close(&d);
    return rc != ARES_OK;
}
