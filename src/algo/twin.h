/*
 * The two losses on a card, which libares_cuda.so exports as one table (cuda/loss.cu), and the
 * choice between them and the CPU's (twin.c). All else in this room is computed by the CPU: one
 * pass over tokens that lie on the host costs less than their way to the card and back.
 *
 * Their arrays lie on the card; a call launches, does not wait, and returns ARES_OK. The caller
 * finds an input that cannot be computed with in the card's sums, and a failure of the card at
 * sync. The formulas of a token are those of src/algo/loss, compiled by both compilers. Sums are
 * made in f64 in an order given by the shape of the input, without floating-point atomics, so the
 * same call gives the same bits again. They differ from the CPU's by the order of a sum or by the
 * card's exp, a few units in the last place of a double.
 */
#ifndef ARES_ALGO_TWIN_PRIVATE_H
#define ARES_ALGO_TWIN_PRIVATE_H

#include "ares/algo.h"
#include "ares/algo_loss.h"

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

struct algo_twins {
    int (*loss)(ares_device *d, const twin_loss_args *t);
    int (*value)(ares_device *d, const ares_value_args *a);
    /* seconds that the kernel of the last call took */
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
#endif
