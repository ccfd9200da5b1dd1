/* algo: advantage estimators. */
#ifndef ARES_ALGO_ADV_H
#define ARES_ALGO_ADV_H

#include "ares/algo.h"

/* ---------------- advantages (adv.c, adv/): batch -> advantages, returns
 * In: token_level_rewards, response_mask, whole groups; values for ARES_NEEDS_VALUES (turn_ends
 * too, where a row has several turns), samples' baseline for ARES_NEEDS_BASELINE. Out: both
 * columns, 0 where the mask is 0. Everything in double; no order of rows or groups and no rank
 * count changes a bit. Sums over the batch cross ranks: compute is a collective.
 *
 * A row's score is the sum of its rewards. A row without a token of mask 1 (a discarded answer:
 * dapo.md 6.3) has no part in its group's statistics; a group left with fewer than two answers
 * learns nothing. Rows of one episode count once. A group that has only one answer is compared with
 * 0, at a deviation of 1, as in verl (vapor: gets 0); ares_adv_check refuses to sample such groups.
 * What is no number, a mask that is neither 0 nor 1, a group without rows and column lengths that
 * disagree are errors with their place.
 */
enum { ARES_NEEDS_GROUPS = 1, ARES_NEEDS_VALUES = 2, ARES_NEEDS_BASELINE = 4 };
typedef struct ares_adv {
    const char *name, *doc, *formula, *paper;
    unsigned needs;
    /* world NULL: one rank */
    int (*compute)(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b);
} ares_adv;
const ares_adv *ares_adv_find(const char *name); /* NULL and a message with the choices */
const char *const *ares_adv_names(int *n);
const ares_adv *const *ares_adv_list(int *n);
/* Faults of options that make no sense together, or for this estimator. n: samples a prompt. */
void ares_adv_check(ares_config *cfg, const ares_algorithm_config *a, int64_t n);
/*
 * A_t <- A_t min(exp(old_log_probs - rollout_log_probs), clip) (RLinf; dapo.md 2.5). compute does
 * it where importance_sampling_fix is set.
 */
int ares_adv_importance_fix(ares_batch *b, double clip);
#endif
