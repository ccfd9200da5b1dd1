/*
 * The functions of ares/algo_twin.h with the table to use, which tests give: NULL is the CPU.
 * (twin.c)
 */
#ifndef ARES_ALGO_TWIN_PRIVATE_H
#define ARES_ALGO_TWIN_PRIVATE_H

#include "ares/algo.h"
#include "ares/algo_adv.h"
#include "ares/algo_loss.h"
#include "ares/algo_twin.h"

int twin_loss_compute(const ares_algo_twins *twins, ares_device *d, const ares_loss *loss,
                      const ares_loss_args *a, const ares_kl_args *k);
int twin_value_loss(const ares_algo_twins *twins, ares_device *d, const ares_value_args *a);
int twin_rollout_weights(const ares_algo_twins *twins, ares_device *d, const ares_loss_config *cfg,
                         const ares_batch *b, int64_t row, int64_t end, float *weight,
                         ares_loss_sums *sums);
int twin_kl_column(const ares_algo_twins *twins, ares_device *d, const ares_kl *kl, ares_batch *b);
int twin_adv_compute(const ares_algo_twins *twins, ares_device *d, const ares_adv *adv,
                     const ares_algorithm_config *cfg, ares_world *world, ares_batch *b);
#endif
