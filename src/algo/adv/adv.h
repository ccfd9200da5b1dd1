/*
 * What all advantage estimators share. An entry opens a pass over the batch, which checks
 * everything it will read, writes an advantage per token in double, and closes the pass:
 *
 *     adv_estimate p;
 *     ARES_TRY(adv_open(&p, &ares_adv_rloo, cfg, world, b));
 *     adv_groups(&p, leave_one_out);
 *     return adv_close(&p);
 *
 * A row none of whose tokens the mask shows (an answer that was discarded) takes no part in its
 * group's statistics: the scores of the others are compared without it (dapo.md 2.3, 6.3).
 */
#ifndef ARES_ALGO_ADV_PRIVATE_H
#define ARES_ALGO_ADV_PRIVATE_H

#include "ares/algo.h"
#include "ares/algo_adv.h"

/* clang-format off */
#define ADV_LIST(X) \
    X(gae) X(bi_level_gae) X(grpo) X(grpo_passk) X(rloo) X(reinforce_plus_plus) \
    X(reinforce_plus_plus_baseline) X(remax) X(opo) X(gpg) X(vapor)
/* clang-format on */
#define ADV_DECLARE(name) extern const ares_adv ares_adv_##name;
ADV_LIST(ADV_DECLARE)

typedef struct adv_estimate {
    const ares_adv *adv;
    const ares_algorithm_config *cfg;
    ares_world *world;
    ares_batch *b;
    /* [rows]: sum of token_level_rewards, masked tokens' too; tokens of mask 1 */
    double *score, *length;
    double *row; /* [rows]: written by adv_groups; adv_spread makes tokens of it */
    /* [tokens]: the advantages, and the returns: adv_close takes both; zeroed */
    double *token, *returned;
} adv_estimate;
int adv_open(adv_estimate *p, const ares_adv *adv, const ares_algorithm_config *cfg,
             ares_world *world, ares_batch *b);

/*
 * The answers of a group that are compared. A group that has one answer in all is compared with 0,
 * at a std of 1, as in verl.
 */
typedef struct adv_group {
    int64_t n;
    const double *score, *length; /* [n] */
    double mean, std;             /* std divides by n - 1 */
} adv_group;
typedef void adv_group_fn(const adv_estimate *p, const adv_group *g, double *advantage); /* [n] */
void adv_groups(adv_estimate *p, adv_group_fn *fn);
/* Every token of a response gets its row's advantage, which is the return as well. */
void adv_spread(adv_estimate *p);
/*
 * Writes the columns, then what options do to any estimator's advantages: zero, normalised,
 * corrected for the sampler.
 */
int adv_close(adv_estimate *p);

/*
 * Turn ends of the batch; where it has none, a row is one turn, which ends on its last token of
 * mask 1. From the batch's arena. (adv/gae.c)
 */
int adv_turn_ends(const adv_estimate *p, const uint8_t **out);

/* A function of one group spread over its tokens: the whole of most estimators. */
int adv_of_groups(const ares_adv *adv, const ares_algorithm_config *cfg, ares_world *world,
                  ares_batch *b, adv_group_fn *fn);
/* score less the group's mean */
void adv_mean_free(const adv_estimate *p, const adv_group *g, double *advantage);
#endif
