/*
 * The twins of the functions that touch every token, which libares_cuda.so exports as one table
 * (cuda/), and the choice between a twin and the CPU (twin.c).
 *
 * The arrays of the two losses lie on the device; their twins launch and do not wait. Those of the
 * others are on the host, as the batch's are: such a twin copies its inputs to the device and its
 * outputs back, and both are complete when it returns. The per-token formulas are those of
 * src/algo/loss, compiled by both compilers. Sums are made in f64 in an order given by the shape of
 * the input, without floating-point atomics, so the same call gives the same bits again. Where a
 * comment says "the CPU's bits", the twin gives the same bits as the CPU; elsewhere they differ by
 * the order of a sum or by the device's exp, a few units in the last place of a double.
 *
 * Every twin returns ARES_OK, TWIN_FAULT, or the device's failure, those of losses ARES_OK alone:
 * the caller finds a fault in the card's sums, a failure at sync. After TWIN_FAULT and after a
 * failure nothing was written.
 */
#ifndef ARES_ALGO_TWIN_PRIVATE_H
#define ARES_ALGO_TWIN_PRIVATE_H

#include "ares/algo.h"
#include "ares/algo_loss.h"
#include "stats.h"

/* An input that cannot be computed with; the CPU's function then finds and names its place. */
enum { TWIN_FAULT = 1 };

/* Members of ares_loss_sums that a loss on a card adds up, in the order of ares_card_sums.sum. */
/* clang-format off */
#define TWIN_LOSS_SUMS(X) \
    X(loss) X(kl) X(kl_plain) X(kl_tokens) X(kl_clamped) X(entropy) X(entropy_plain) \
    X(entropy_tokens) X(tokens) X(clip_high) X(clip_low) X(neg_log_ratio) X(k2) X(k3) X(ratio) \
    X(ratio_clipped) X(ratio_off) X(loss_abs) X(saturated) X(entropy_right) X(tokens_right) \
    X(entropy_wrong) X(tokens_wrong)
/* clang-format on */
#define TWIN_SUM_NUMBER(name) SUM_##name,
/* after them the bounds of the ratio, which do not add up */
enum { TWIN_LOSS_SUMS(TWIN_SUM_NUMBER) SUM_COUNT, SUM_MIN = SUM_COUNT, SUM_MAX, SUM_WIDTH };
#define TWIN_VALUE_SUMS(X) X(loss) X(tokens) X(clip) X(value) /* the same of ares_value_sums */

/*
 * One pass: the loss, its derivatives, loss_terms and every sum of ares_loss_sums but those of
 * rollout_is, in one launch.
 */
typedef struct twin_loss_args {
    const ares_loss *loss; /* not ARES_LOSS_PAIRS; NULL: the terms alone */
    const ares_loss_args *args;
    const ares_kl_args *kl; /* NULL: no term */
} twin_loss_args;

/* Ragged rows: row r owns [row_start[r], row_start[r + 1]) of every array here. */
typedef struct twin_rows {
    int64_t rows;
    const int64_t *row_start; /* [rows + 1], from 0 */
} twin_rows;

/*
 * Generalised advantages before whitening (adv/gae.c), the CPU's bits. turn_ends NULL: over
 * tokens only; else over turns first, then over tokens.
 */
typedef struct twin_gae_args {
    twin_rows of;
    const float *rewards, *values;
    const uint8_t *mask, *turn_ends;
    double gamma, lam, high_level_gamma;
    double *advantages, *returns; /* 0 where the mask is 0 */
} twin_gae_args;

/*
 * Window entropy of rows of entropies (stats.h), the CPU's bits, with each row's percentile of
 * the padded list and the HWE tokens at tau.
 */
typedef struct twin_windows_args {
    twin_rows of;
    const float *entropy;
    int64_t w;
    double q, tau;
    const uint8_t *candidates; /* NULL: all */
    /* These may be NULL. */
    double *window;    /* 0 after a row's last window */
    double *threshold; /* [rows] */
    uint8_t *mask;
    hwe_marked *hwe; /* [rows] */
} twin_windows_args;

typedef struct twin_rollout_weights_args {
    const ares_loss_config *cfg; /* rollout_is is not none */
    twin_rows of;
    const float *log_prob, *rollout_log_prob;
    const uint8_t *mask;
    float *weight;
    ares_loss_sums *sums; /* NULL: not wanted */
} twin_rollout_weights_args;

struct algo_twins {
    int (*loss)(ares_device *d, const twin_loss_args *t);
    int (*value)(ares_device *d, const ares_value_args *a);
    /* kl: not the exact one */
    int (*kl)(ares_device *d, const ares_kl *kl, int64_t n, const float *log_prob,
              const float *ref_log_prob, const uint8_t *mask, float *out);
    int (*rollout_weights)(ares_device *d, const twin_rollout_weights_args *t);
    int (*gae)(ares_device *d, const twin_gae_args *t);
    int (*windows)(ares_device *d, const twin_windows_args *t);
    /* seconds that the kernels of the last call took, without its copies */
    double (*kernel_s)(ares_device *d);
    /* for benchmarks: kernel_s is then of what the device was given between these two */
    void (*clock_begin)(ares_device *d);
    void (*clock_end)(ares_device *d);
};
typedef struct algo_twins algo_twins;
/* The table of a device; NULL on the CPU. */
const algo_twins *twin_table_of(const ares_device *d);

/* The functions of ares/algo_loss.h with the table to use: NULL is the CPU. Tests give one. */
int twin_loss_compute(const algo_twins *twins, ares_device *d, const ares_loss *loss,
                      const ares_loss_args *a, const ares_kl_args *k);
int twin_loss_terms(const algo_twins *twins, ares_device *d, const ares_loss_args *a,
                    const ares_kl_args *k);
int twin_value_loss(const algo_twins *twins, ares_device *d, const ares_value_args *a);
int twin_rollout_weights(const algo_twins *twins, ares_device *d, const ares_loss_config *cfg,
                         const ares_batch *b, int64_t row, int64_t end, float *weight,
                         ares_loss_sums *sums);
int twin_kl_column(const algo_twins *twins, ares_device *d, const ares_kl *kl, ares_batch *b);
int twin_adv_compute(const algo_twins *twins, ares_device *d, const ares_adv *adv,
                     const ares_algorithm_config *cfg, ares_world *world, ares_batch *b);
int twin_windows(const algo_twins *twins, ares_device *d, const twin_windows_args *t);
#endif
