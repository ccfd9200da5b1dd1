/*
 * What all advantage estimators share. An entry opens an estimate of the batch, which checks
 * everything it will read, writes an advantage per token in double, and closes the estimate:
 *
 *     adv_estimate p;
 *     ARES_TRY(adv_open(&p, &ares_adv_rloo, cfg, world, b));
 *     adv_groups(&p, leave_one_out);
 *     adv_spread(&p);
 *     return adv_close(&p);
 *
 * A row whose mask is 0 everywhere is a discarded answer: the scores of its group are compared
 * without it (docs/dapo.md#answers-beyond-the-limit).
 */
#ifndef ARES_ALGO_ADV_PRIVATE_H
#define ARES_ALGO_ADV_PRIVATE_H

#include "ares/algo.h"

/* clang-format off */
#define ADV_LIST(X) \
    X(gae) X(bi_level_gae) X(grpo) X(grpo_passk) X(rloo) X(reinforce_plus_plus) \
    X(reinforce_plus_plus_baseline) X(remax) X(opo) X(gpg) \
    X(optimal_token_baseline) X(vapor)
/* clang-format on */
#define ADV_DECLARE(name) extern const ares_adv ares_adv_##name;
ADV_LIST(ADV_DECLARE)
const ares_adv *const *adv_list(int *n);

typedef struct adv_estimate {
    const ares_adv *adv;
    const ares_algorithm_config *cfg;
    ares_world *world;
    ares_batch *b;
    /* [rows]: sum of token_level_rewards over all tokens, and number of tokens of mask 1 */
    double *score, *length;
    double *row;              /* [rows]: written by adv_groups, read by adv_spread */
    double *token, *returned; /* [tokens]: advantages and returns for adv_close; zeroed */
} adv_estimate;
int adv_open(adv_estimate *p, const ares_adv *adv, const ares_algorithm_config *cfg,
             ares_world *world, ares_batch *b);

/*
 * The answers of a group that are compared, without the discarded ones. Where the group was drawn
 * with a single answer, mean is 0 and std 1, as in verl.
 */
typedef struct adv_group {
    int64_t n;
    const double *score, *length; /* [n] */
    double mean, std;             /* std divides by n - 1 */
} adv_group;
typedef void adv_group_fn(const adv_estimate *p, const adv_group *g, double *advantage); /* [n] */
void adv_groups(adv_estimate *p, adv_group_fn *fn);
/*
 * Whether a row has a part in its group: the policy wrote a token of it. One that rollout_rs has
 * rejected as a whole still has, as in verl.
 */
bool adv_counts(const adv_estimate *p, int64_t row);
/* Every token of mask 1 gets its row's advantage, also as its return. */
void adv_spread(adv_estimate *p);
/*
 * Writes the columns advantages and returns. Before that it does to the advantages what options ask
 * of every estimator: normalises them, sets them to 0, corrects them for the sampler.
 */
int adv_close(adv_estimate *p);

/* A whole estimator: fn gives each answer of a group its advantage. */
int adv_of_groups(const ares_adv *adv, const ares_algorithm_config *cfg, ares_world *world,
                  ares_batch *b, adv_group_fn *fn);
/* score less the group's mean */
void adv_mean_free(const adv_estimate *p, const adv_group *g, double *advantage);
/*
 * A_t <- A_t min(exp(old_log_probs - rollout_log_probs), clip) (RLinf;
 * docs/dapo.md#when-the-sampler-is-not-the-trainer). adv_close does it where
 * importance_sampling_fix is set.
 */
int adv_importance_fix(ares_batch *b, double clip);
#endif
