/* algo: advantage estimators, batch -> advantages and returns (src/algo/adv). */
#ifndef ARES_ALGO_ADV_H
#define ARES_ALGO_ADV_H

#include "ares/algo.h"

/*
 * Reads token_level_rewards and response_mask of whole groups, values for ARES_NEEDS_VALUES (and
 * turn_ends where a row has several turns), the samples' baseline for ARES_NEEDS_BASELINE. Writes
 * advantages and returns, 0 where the mask is 0. Computes in double; neither the order of rows and
 * groups nor the number of ranks changes a bit. compute is a collective, because sums over the
 * batch include all ranks.
 *
 * A row's score is the sum of its rewards. A row without a token of mask 1 is a discarded answer
 * (docs/dapo.md#answers-beyond-the-limit) and is left out of its group's statistics; a group left
 * with fewer than two answers gets advantages of 0. The rows of one episode count once. In a group
 * that has only one answer in all, the score is compared with 0 at a standard deviation of 1, as in
 * verl (vapor: the advantage is 0); ares_adv_check refuses to sample such groups. A number that is
 * not finite, a mask that is neither 0 nor 1, a group without rows and columns of different lengths
 * are errors that name the place.
 */
enum { ARES_NEEDS_GROUPS = 1, ARES_NEEDS_VALUES = 2, ARES_NEEDS_BASELINE = 4 };
typedef struct ares_adv {
    const char *name, *doc, *formula, *paper;
    unsigned needs;
    /* world NULL: one rank */
    int (*compute)(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b);
    const char *reads; /* options that only entries which name them read, by blanks; NULL: none */
} ares_adv;
const ares_adv *ares_adv_find(const char *name); /* NULL and a message with the choices */
const char *const *ares_adv_names(int *n);
/*
 * Whether an estimator looks at the turns of a row; where a row is one turn, it gives what gae
 * gives.
 */
bool ares_adv_sees_turns(const ares_adv *adv, const ares_algorithm_config *cfg);
/* Reports options that make no sense together, or for this estimator. n: samples per prompt. */
void ares_adv_check(ares_config *cfg, const ares_algorithm_config *a, int64_t n);
#endif
