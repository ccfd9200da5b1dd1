/*
 * The goals of docs/performance.md#goals-on-a-card as JSON lines, each the median of many runs: G7
 * sampling from logits that lie on the card, with top-k and top-p, G12 the loss pass with KL and
 * all sums. kernel_s: time of the kernels alone, by the card's clock; call_s: time of the whole
 * call.
 *
 *   bench_algo_cuda [device=cuda] [tokens=1048576] [batch=256] [vocab=151936] [repeat=30]
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../src/algo/loss/on_device.h"
#include "ares/algo.h"
#include "ares/algo_loss.h"
#include "options.h"

typedef struct options {
    const char *device;
    int64_t tokens, batch, vocab, repeat;
} options;

static int set(options *o, const char *word)
{
    const bench_option known[] = {
        { "device", .text = &o->device },
        { "tokens", .number = &o->tokens, .least = 4096 },
        { "batch", .number = &o->batch, .least = 1 },
        { "vocab", .number = &o->vocab, .least = 1 },
        { "repeat", .number = &o->repeat, .least = 1 },
    };
    return bench_set("bench_algo_cuda", known, ARES_COUNT(known), word);
}

static float *numbers(int64_t n, double scale, double shift)
{
    float *x = ares_malloc((size_t)n * sizeof *x), some[4096];
    ares_rng_key key = ares_rng_root(1, ARES_RNG_TEST);
    for (int i = 0; i < 4096; i++)
        some[i] = (float)(scale * ares_rng_normal(key, (uint64_t)i) + shift);
    for (int64_t i = 0; i < n; i++) x[i] = some[(uint64_t)i * 2654435761u >> 7 & 4095];
    return x;
}

static void line(const char *goal, const char *what, double kernel_s, double call_s, double bytes)
{
    printf("{\"goal\":\"%s\",\"what\":\"%s\",\"kernel_s\":%.4g,\"call_s\":%.4g,\"bytes\":%.4g}\n",
           goal, what, kernel_s, call_s, bytes);
    (void)fflush(stdout);
}
typedef struct runs {
    double v[256];
    int n;
} runs;
static void keep(runs *all, double s)
{
    if (all->n < ARES_COUNT(all->v)) all->v[all->n++] = s;
}

static void *up(ares_device *d, const void *host, size_t bytes)
{
    void *p = d->k->alloc(d, bytes);
    ARES_ASSERT(p);
    if (host) d->k->copy_in(d, p, host, bytes);
    return p;
}

/* ---------------------------------------------------------------- G12 */
static int losses(ares_device *d, const options *o)
{
    enum { ROWS = 1024 };
    int64_t n = o->tokens;
    size_t bytes = (size_t)n * sizeof(float);
    static const char *const names[] = { "default", "cispo", "gspo", "gmpo" };
    float *x[7], *out = up(d, NULL, bytes);
    for (int i = 0; i < ARES_COUNT(x); i++) {
        float *host = numbers(n, 0.1, i < 3 ? -1 : 0.5);
        x[i] = up(d, host, bytes);
        ares_free(host);
    }
    uint8_t *ones = ares_malloc((size_t)n), *mask;
    int64_t start[ROWS + 1];
    memset(ones, 1, (size_t)n);
    mask = up(d, ones, (size_t)n);
    for (int r = 0; r <= ROWS; r++) start[r] = r * n / ROWS;
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
        runs kernel = { .n = 0 }, whole = { .n = 0 };
        for (int64_t run = 0; run < o->repeat; run++) {
            ares_loss_args a = { .cfg = &cfg,
                                 .n = n,
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
            double begin = ares_now_s();
            ARES_TRY(d->losses->loss(d, ares_loss_find(names[i]), &a, &k));
            ARES_TRY(d->k->sync(d));
            keep(&whole, ares_now_s() - begin);
            keep(&kernel, d->losses->kernel_s(d));
        }
        /* six columns and the mask read, the derivative read and written */
        line("G12", names[i], bench_median(kernel.v, kernel.n), bench_median(whole.v, whole.n),
             (double)n * (6 * 4 + 2 * 4 + 1));
    }
    for (int i = 0; i < ARES_COUNT(x); i++) d->k->release(d, x[i], bytes);
    d->k->release(d, out, bytes), d->k->release(d, mask, (size_t)n);
    d->k->release(d, (void *)(uintptr_t)card.row_start, sizeof start);
    d->k->release(d, card.sums, sizeof sums);
    ares_free(ones);
    return ARES_OK;
}

/* ---------------------------------------------------------------- G7 */
/* The logits are read once at least; what is drawn from each row is small beside them. */
static int samples(ares_device *d, const options *o)
{
    size_t b = (size_t)o->batch, bytes = b * (size_t)o->vocab * sizeof(float);
    float *host = numbers(o->batch * o->vocab, 3, 0),
          *setting = ares_malloc(3 * b * sizeof *setting);
    int32_t *top_k = ares_malloc(b * sizeof *top_k);
    ares_rng_key *key = ares_calloc(b, sizeof *key);
    for (size_t r = 0; r < b; r++) {
        setting[r] = 0.8f, setting[b + r] = 1.0f, setting[2 * b + r] = 0.95f;
        top_k[r] = 50;
        key[r] = ares_rng_sub(ares_rng_root(1, ARES_RNG_SAMPLE), r, 0);
    }
    float *logits = up(d, host, bytes), *given = up(d, setting, 3 * b * sizeof *setting),
          *out = up(d, NULL, 3 * b * sizeof *out);
    int32_t *given_k = up(d, top_k, b * sizeof *top_k);
    ares_rng_key *given_key = up(d, key, b * sizeof *key);
    for (int i = 0; i < 4; i++) {
        ares_sample_args s = { .rows = (int32_t)o->batch,
                               .vocab = (int32_t)o->vocab,
                               .logits = logits,
                               .temperature = given,
                               .top_p = i % 2 ? given + 2 * b : NULL,
                               .top_k = i / 2 ? given_k : NULL,
                               .key = given_key,
                               .token = (int32_t *)out,
                               .log_prob = out + b,
                               .entropy = out + 2 * b };
        runs kernel = { .n = 0 }, whole = { .n = 0 };
        char what[64];
        for (int64_t run = 0; run <= o->repeat; run++) { /* the first one takes memory */
            ARES_TRY(d->k->sync(d));
            double begin = ares_now_s();
            d->losses->clock_begin(d);
            d->k->sample(d, &s);
            d->losses->clock_end(d);
            ARES_TRY(d->k->sync(d));
            if (run) keep(&whole, ares_now_s() - begin);
            if (run) keep(&kernel, d->losses->kernel_s(d));
        }
        (void)snprintf(what, sizeof what, "sampler, %lld rows of f32 logits%s%s",
                       (long long)o->batch, i / 2 ? ", top_k 50" : "", i % 2 ? ", top_p 0.95" : "");
        line("G7", what, bench_median(kernel.v, kernel.n), bench_median(whole.v, whole.n),
             (double)bytes);
    }
    d->k->release(d, logits, bytes), d->k->release(d, given, 3 * b * sizeof *given);
    d->k->release(d, out, 3 * b * sizeof *out), d->k->release(d, given_k, b * sizeof *given_k);
    d->k->release(d, given_key, b * sizeof *given_key);
    ares_free(host), ares_free(setting), ares_free(top_k), ares_free(key);
    return ARES_OK;
}

int main(int argc, char **argv)
{
    options o = {
        .device = "cuda", .tokens = 1 << 20, .batch = 256, .vocab = 151936, .repeat = 30
    };
    ares_device d = { .index = -1 };
    int rc = ARES_OK;
    for (int i = 1; i < argc && rc == ARES_OK; i++) rc = set(&o, argv[i]);
    if (rc == ARES_OK) rc = ares_device_open_table(o.device, "native", ARES_BF16, 0, &d);
    if (rc == ARES_OK && !d.losses)
        rc = ares_fail(ARES_EUSE, "bench_algo_cuda: device = '%s': not a card; give cuda or cuda:N",
                       o.device);
    if (rc == ARES_OK) rc = losses(&d, &o);
    if (rc == ARES_OK) rc = samples(&d, &o);
    if (rc != ARES_OK) (void)fprintf(stderr, "%s\n", ares_error_message());
    ares_device_close(&d);
    return rc != ARES_OK;
}
