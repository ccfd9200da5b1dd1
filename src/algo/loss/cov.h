/*
 * What clip_cov.c and kl_cov.c share (Cui et al., "The entropy mechanism of reinforcement
 * learning", arXiv 2505.22617, equations 11 to 13, and verl's clip_cov and kl_cov). Both look for
 * the tokens whose share of the covariance of log-prob and advantage is large:
 *
 *   cov_t = (A_t - mean A)(log pi_t - mean log pi)
 *
 * with means over the masked tokens of the mini-batch and no gradient through them. verl takes
 * means, shares and selections of a micro-batch; here they are of the mini-batch over all ranks, so
 * that no micro-batch size changes them, and the lots that clip_cov draws belong to the tokens.
 */
#ifndef ARES_ALGO_LOSS_COV_H
#define ARES_ALGO_LOSS_COV_H

#include "ares/algo_loss.h"

/*
 * ares_loss.choose: chosen [n], zeroed, becomes 1 on the tokens that the loss singles out; *any:
 * whether any rank has a token. Checks its input; a collective. (cov.c)
 */
int loss_choose_clip_cov(const ares_loss_args *a, uint8_t *chosen, bool *any);
int loss_choose_kl_cov(const ares_loss_args *a, uint8_t *chosen, bool *any);
#endif
