/*
 * The losses of policy and critic on a card: libares_cuda.so exports them as one table
 * (cuda/loss.cu), which ares_device.losses holds. All else in this room is a pass over tokens that
 * lie on the host, once a step, and is computed by the CPU, so that a card's run has its bits
 * there.
 *
 * The arrays of both lie on the card; a call launches, does not wait, and returns ARES_OK. The
 * caller finds an input that cannot be computed with in the card's sums, and a failure of the card
 * at sync. The formulas of a token are those of formula.h, compiled by both compilers. Sums are
 * made in f64 in an order given by the shape of the input, without floating-point atomics, so the
 * same call gives the same bits again. They differ from the CPU's by the order of a sum or by the
 * card's exp, a few units in the last place of a double.
 */
#ifndef ARES_ALGO_LOSS_ON_DEVICE_H
#define ARES_ALGO_LOSS_ON_DEVICE_H

#include "ares/algo_loss.h"

/* Places of ares_loss_sums' members in ares_card_sums.sum. */
#define CARD_SUM_PLACE(name) SUM_##name,
/* after them the bounds of the ratio, which do not add up */
enum { ARES_LOSS_SUMS(CARD_SUM_PLACE) SUM_COUNT, SUM_MIN = SUM_COUNT, SUM_MAX, SUM_WIDTH };

struct ares_card_losses {
    /*
     * One launch: the loss, its derivatives, loss_terms and every sum of ares_loss_sums but those
     * of rollout_is. loss: not ARES_LOSS_PAIRS; NULL: the terms alone. k NULL: no KL
     */
    int (*loss)(ares_device *d, const ares_loss *loss, const ares_loss_args *a,
                const ares_kl_args *k);
    int (*value)(ares_device *d, const ares_value_args *a);
    /* seconds that the kernel of the last call took */
    double (*kernel_s)(ares_device *d);
    /* for benchmarks: kernel_s is then of what the device was given between these two */
    void (*clock_begin)(ares_device *d);
    void (*clock_end)(ares_device *d);
};
#endif
