/*
 * What no other room calls: the functions of this folder without a device (a training step calls
 * those of ares/algo_twin.h, which fall back to these), and the lists that documentation and tests
 * read.
 */
#ifndef ARES_ALGO_LOSS_PLAIN_H
#define ARES_ALGO_LOSS_PLAIN_H

#include "ares/algo_loss.h"

const ares_loss *const *loss_list(int *n); /* (table.c) */
/* A way of averaging (loss_avg_mode). */
typedef struct agg_mode {
    const char *name, *doc, *formula, *paper;
    double (*weight)(const ares_agg_counts *c, double n); /* of a token in a row of n */
} agg_mode;
const agg_mode *agg_list(int *n); /* (aggregate.c) */

/*
 * Writes column kl: the estimate from old_log_probs and ref_log_probs, 0 where the mask is 0. Not
 * for the exact KL.
 */
int kl_column(const ares_kl *kl, ares_batch *b);
/*
 * Weights of rollout_is (docs/dapo.md#when-the-sampler-is-not-the-trainer): weight, written, one
 * per token of rows [row, end), from row_start[row] on; 1 with rollout_is none, 0 where the mask is
 * 0. sums, which may be NULL, is added to.
 */
int rollout_weights(const ares_loss_config *cfg, const ares_batch *b, int64_t row, int64_t end,
                    float *weight, ares_loss_sums *sums);
/*
 * The KL (k NULL: none) and entropy terms of a loss over the same arrays: + coef x weight x kl and
 * - entropy_coeff x entropy. (terms.c)
 */
int loss_terms(const ares_loss_args *a, const ares_kl_args *k);
/* The critic's loss (value_loss.c; docs/update.md#critic). */
int value_loss(const ares_value_args *a);
#endif
