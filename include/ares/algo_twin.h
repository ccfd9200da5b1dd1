/*
 * algo on a device: the functions that touch every token, computed by a CUDA device's twin where
 * there is one, else by the CPU, with the same messages (src/algo/twin.c).
 *
 * Losses run inside a micro-batch. Their arrays with one number per token lie where the device
 * computes, as the kernels' do: in host memory on the CPU, on a card in the card's. There a call
 * launches and returns: what it sees is added to the card's sums, which the caller copies to the
 * host when it wants them; a fault is found then, and the derivatives are not to be used.
 *
 * The other functions run once in a step. Their arrays lie on the host, and they are complete on
 * return.
 */
#ifndef ARES_ALGO_TWIN_H
#define ARES_ALGO_TWIN_H

#include "ares/algo_adv.h"
#include "ares/algo_loss.h"
#include "ares/kernels.h"

/* loss->compute, then the KL and entropy terms: + coef x weight x kl and - entropy_coeff x entropy;
 * k NULL: no KL. */
int ares_loss_compute(ares_device *d, const ares_loss *loss, const ares_loss_args *a,
                      const ares_kl_args *k);
/* The terms alone, of tokens whose loss is computed elsewhere. */
int ares_loss_terms(ares_device *d, const ares_loss_args *a, const ares_kl_args *k);
/*
 * The error of a loss that met a fault on a card, with the place and the words of the CPU. The
 * arrays are the host's copies; not a collective. loss NULL: of ares_loss_terms
 */
int ares_loss_fault(const ares_loss *loss, const ares_loss_args *host, const ares_kl_args *k);
int ares_value_loss_on(ares_device *d, const ares_value_args *a);
int ares_value_fault(const ares_value_args *host);
/*
 * Weights of rollout_is (docs/dapo.md#when-the-sampler-is-not-the-trainer): weight, written, one
 * per token of rows [row, end), from row_start[row] on; 1 with rollout_is none, 0 where the mask is
 * 0. sums, which may be NULL, is added to.
 */
int ares_rollout_weights_on(ares_device *d, const ares_loss_config *cfg, const ares_batch *b,
                            int64_t row, int64_t end, float *weight, ares_loss_sums *sums);
/*
 * Writes column kl: the estimate from old_log_probs and ref_log_probs, 0 where the mask is 0. Not
 * for the exact KL.
 */
int ares_kl_column_on(ares_device *d, const ares_kl *kl, ares_batch *b);
/*
 * adv->compute. Of the estimators gae has a twin: its walk over rows is on the device, its
 * whitening on the host.
 */
int ares_adv_compute(ares_device *d, const ares_adv *adv, const ares_algorithm_config *cfg,
                     ares_world *world, ares_batch *b);

#endif
