/*
 * The algorithms that touch every token, as JSON lines beside those of peers/algo.py:
 *
 *   loss          PPO with KL (k3) and entropy terms over 1,048,576 tokens: the loss, d log_prob,
 *                 d entropy and every sum, as an update asks for them: ares_loss_compute for
 *                 chunk after chunk of head_fused, on one thread (train/update.c)
 *   windows       window entropy of 1024 responses of 1024 tokens
 *   thresholds    the same, and each one's percentile
 *   gae           advantages and returns of [1024, 4096], whitened
 *
 *   bench_algo [loss|windows|thresholds|gae] [threads=2] [repeat=9]
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../src/algo/stats.h"
#include "ares/algo.h"
#include "ares/algo_loss.h"
#include "ares/kernels.h"

enum {
    ROWS = 1024,
    LONG = 4096,
    HEAD_ROWS = 128 /* the fewest tokens whose loss head_fused asks for at a time */
};

typedef struct bench {
    ares_device d;
    int64_t repeat;
    double all[64];
} bench;

typedef struct numbers_of {
    float *x;
    ares_rng_key key;
    float mean, std;
    int64_t n;
} numbers_of;

static void fill(void *ctx, int64_t task, int thread)
{
    const numbers_of *f = ctx;
    (void)thread;
    for (int64_t i = task * 4096; i < ARES_MIN(f->n, (task + 1) * 4096); i++)
        f->x[i] = f->mean + f->std * (float)ares_rng_normal(f->key, (uint64_t)i);
}

static float *numbers(bench *b, uint64_t which, int64_t n, float mean, float std)
{
    numbers_of f = { ares_malloc((size_t)n * sizeof(float)),
                     ares_rng_sub(ares_rng_root(11, ARES_RNG_TEST), which, 0), mean, std, n };
    ares_pool_run(b->d.pool, (n + 4095) / 4096, fill, &f);
    return f.x;
}

/* check: a number that both sides can compare. */
static void emit(const bench *b, const char *measure, double check)
{
    double best = b->all[0];
    for (int64_t i = 1; i < b->repeat; i++) best = ARES_MIN(best, b->all[i]);
    printf("{\"measure\":\"%s\",\"side\":\"ares\",\"isa\":\"%s\",\"threads\":%d,\"value\":%.6g,"
           "\"unit\":\"ms\",\"check\":%.9g,\"all\":[",
           measure, b->d.k->name, ares_pool_threads(b->d.pool), best * 1e3, check);
    for (int64_t i = 0; i < b->repeat; i++) printf("%s%.6g", i ? "," : "", b->all[i] * 1e3);
    printf("]}\n");
    fflush(stdout);
}

static int loss(bench *b)
{
    const int64_t n = (int64_t)ROWS * ROWS;
    ares_loss_config cfg = { .loss_type = "default",
                             .clip_ratio_low = 0.2,
                             .clip_ratio_high = 0.3,
                             .clip_ratio_dual = 3,
                             .loss_avg_mode = "token-mean",
                             .entropy_coeff = 0.01,
                             ARES_LOSS_DEFAULTS };
    const ares_loss *ppo = ares_loss_find("default");
    ares_loss_sums sums;
    float *log_prob = numbers(b, 0, n, -1.5f, 0.3f), *old = numbers(b, 1, n, 0, 0.1f),
          *ref = numbers(b, 2, n, 0, 0.2f), *advantage = numbers(b, 3, n, 0, 1);
    float *entropy = numbers(b, 4, n, 1, 0.2f), *weight = ares_malloc((size_t)n * sizeof(float)),
          *out = ares_malloc((size_t)n * 2 * sizeof(float));
    uint8_t *mask = ares_malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) {
        old[i] += log_prob[i], ref[i] += log_prob[i];
        mask[i] = i % 16 != 15;
        weight[i] = mask[i] ? 1.0f / (float)(n - n / 16) : 0;
    }
    ares_loss_args a = { .cfg = &cfg,
                         .n = n,
                         .log_prob = log_prob,
                         .old_log_prob = old,
                         .advantage = advantage,
                         .weight = weight,
                         .mask = mask,
                         .entropy = entropy,
                         .d_log_prob = out,
                         .d_entropy = out + n,
                         .sums = &sums };
    ares_kl_args kl = { .kl = ares_kl_find("low_var_kl"), .coef = 0.04, .ref_log_prob = ref };
    for (int64_t i = -1; i < b->repeat; i++) {
        double t = ares_now_s();
        memset(out, 0, (size_t)n * 2 * sizeof(float));
        ares_loss_sums_init(&sums);
        for (int64_t at = 0; at < n; at += HEAD_ROWS) {
            ares_loss_args chunk = a;
            ares_kl_args chunk_kl = kl;
            chunk.n = HEAD_ROWS;
            chunk.log_prob += at, chunk.old_log_prob += at, chunk.advantage += at;
            chunk.weight += at, chunk.mask += at, chunk.entropy += at;
            chunk.d_log_prob += at, chunk.d_entropy += at, chunk_kl.ref_log_prob += at;
            ARES_TRY(ares_loss_compute(&b->d, ppo, &chunk, &chunk_kl));
        }
        if (i >= 0) b->all[i] = ares_now_s() - t;
    }
    emit(b, "loss", ares_loss_total(&sums, cfg.entropy_coeff, kl.coef));
    return ARES_OK;
}

typedef struct windows_of {
    const double *h;
    double *window, *threshold;
} windows_of;

static void windows_row(void *ctx, int64_t row, int thread)
{
    const windows_of *w = ctx;
    (void)thread;
    entropy_windows(w->h + row * ROWS, ROWS, 4, w->window + row * ROWS);
}

static void threshold_row(void *ctx, int64_t row, int thread)
{
    const windows_of *w = ctx;
    (void)thread;
    w->threshold[row] = entropy_sample_threshold(w->h + row * ROWS, ROWS, 4, 95);
}

static int windows(bench *b, bool thresholds)
{
    const int64_t n = (int64_t)ROWS * ROWS;
    float *x = numbers(b, 6, n, 1, 0.3f);
    double *h = ares_malloc((size_t)n * sizeof *h), threshold[ROWS];
    windows_of w = { h, ares_calloc((size_t)n, sizeof(double)), threshold };
    for (int64_t i = 0; i < n; i++) h[i] = fabs((double)x[i]);
    for (int64_t i = -1; i < b->repeat; i++) {
        double t = ares_now_s();
        ares_pool_run(b->d.pool, ROWS, thresholds ? threshold_row : windows_row, &w);
        if (i >= 0) b->all[i] = ares_now_s() - t;
    }
    for (int r = 0; r < ROWS && !thresholds; r++) threshold[r] = w.window[r * ROWS];
    emit(b, thresholds ? "thresholds" : "windows", stats_median(threshold, ROWS));
    return ARES_OK;
}

static int gae(bench *b)
{
    const ares_adv *adv = ares_adv_find("gae");
    ares_algorithm_config cfg = { .adv_estimator = "gae", .gamma = 1, .lam = 0.95 };
    ares_batch batch;
    float *reward = numbers(b, 7, (int64_t)ROWS * LONG, 0, 0.1f),
          *value = numbers(b, 8, (int64_t)ROWS * LONG, 0, 0.5f);
    double check = 0;
    ares_batch_init(&batch);
    for (int64_t i = -1; i < b->repeat; i++) {
        ares_batch_clear(&batch);
        for (int r = 0; r < ROWS; r++) {
            ares_sample s = { .draw = r };
            ares_batch_begin_group(&batch);
            ares_batch_add_row(&batch, &s, LONG);
        }
        ARES_PUT(&batch, response_mask);
        ARES_PUT(&batch, token_level_rewards);
        ARES_PUT(&batch, values);
        memset(batch.response_mask, 1, (size_t)batch.tokens);
        memcpy(batch.token_level_rewards, reward, (size_t)batch.tokens * sizeof(float));
        memcpy(batch.values, value, (size_t)batch.tokens * sizeof(float));
        double t = ares_now_s();
        ARES_TRY(adv->compute(&cfg, NULL, &batch));
        if (i >= 0) b->all[i] = ares_now_s() - t;
    }
    for (int64_t t = 0; t < batch.tokens; t++)
        check += (double)(batch.advantages[t] * batch.advantages[t]);
    emit(b, "gae", check / (double)batch.tokens);
    return ARES_OK;
}

static int run(int argc, char **argv)
{
    bench b = { .repeat = 9 };
    int64_t threads = 0;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "threads=", 8) == 0 &&
            ares_parse_i64(ares_view_of(argv[i] + 8), &threads))
            continue;
        if (strncmp(argv[i], "repeat=", 7) == 0 &&
            ares_parse_i64(ares_view_of(argv[i] + 7), &b.repeat) && b.repeat > 0 &&
            b.repeat <= ARES_COUNT(b.all))
            continue;
        if (strchr(argv[i], '=') || only)
            return ares_fail(ARES_EUSE, "bench_algo: '%s': no such option", argv[i]);
        only = argv[i];
    }
    ARES_TRY(ares_device_open("cpu", (int)threads, &b.d));
    static const char *const names[] = { "loss", "windows", "gae", "thresholds" };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        if (only && strcmp(only, names[i]) != 0) continue;
        ARES_TRY(i == 0 ? loss(&b) : i == 2 ? gae(&b) : windows(&b, i == 3));
        if (only) return ARES_OK;
    }
    return only ? ares_fail(ARES_EUSE, "bench_algo: '%s': unknown", only) : ARES_OK;
}

int main(int argc, char **argv)
{
    if (run(argc, argv) == ARES_OK) return 0;
    fprintf(stderr, "%s\n", ares_error_message());
    return 1;
}
