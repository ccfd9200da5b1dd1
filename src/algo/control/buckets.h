/*
 * Difficulty, targets and alphas of AEPO as pure functions in double (buckets.c;
 * docs/aepo.md#difficulty-targets-and-alphas).
 */
#ifndef ARES_ALGO_CONTROL_BUCKETS_H
#define ARES_ALGO_CONTROL_BUCKETS_H

#include "ares/algo_control.h"

/* easy from 2.0 / 3 on, medium from 1.0 / 3 on, else hard */
ares_difficulty difficulty_of(double accuracy);
/* ARES_DIFFICULTY_NONE when name is none of the three */
ares_difficulty difficulty_find(ares_view name);
double round_half_even(double x);
/* Target number of HWE tokens of a difficulty: coef x the mean over its prompts, rounded. */
int64_t aepo_target(double mean, double coef);
typedef struct aepo_prompt {
    ares_view gid;
    int64_t samples;
    double accuracy, hwe, length; /* sums over its samples */
    ares_difficulty difficulty;   /* written */
} aepo_prompt;
/*
 * By difficulty: the number of prompts, and means over prompts of their samples' mean number of HWE
 * tokens, accuracy and length.
 */
typedef struct aepo_buckets {
    int64_t prompts[ARES_DIFFICULTIES];
    double hwe[ARES_DIFFICULTIES], accuracy[ARES_DIFFICULTIES], length[ARES_DIFFICULTIES];
} aepo_buckets;
void aepo_bucket(aepo_prompt *prompts, int64_t n, aepo_buckets *out);
/*
 * The weight of the entropy score and the target of each difficulty, and one step of them: alphas
 * move by the old targets, then, with renew, the targets are replaced. A difficulty without prompts
 * keeps both; one without a target keeps its alpha and gets a target. coef: by difficulty.
 */
typedef struct aepo_aims {
    double alpha[ARES_DIFFICULTIES];
    int64_t target[ARES_DIFFICULTIES];
    bool target_known[ARES_DIFFICULTIES];
} aepo_aims;
typedef struct aepo_rates {
    double lr, min, max;
    const double *coef;
    bool renew;
} aepo_rates;
void aepo_aim(const aepo_rates *rates, const aepo_buckets *buckets, aepo_aims *aims);
/*
 * Prompts that have become too easy: all answers right, with fewer HWE tokens than m + ratio
 * (target_easy - m), where m is the smallest mean number of an easy prompt. prompts: after
 * aepo_bucket; drop [n] is written.
 */
void aepo_too_easy(const aepo_prompt *prompts, int64_t n, double target_easy, double ratio,
                   bool *drop);
/*
 * Accuracy by number of HWE tokens: 3 bins between 4 equally spaced edges from the smallest to the
 * largest number, truncated to integers; half-open, the last closed; n >= 1. The accuracy of an
 * empty bin is NaN.
 */
typedef struct accuracy_bins {
    int64_t edges[4], count[3];
    double accuracy[3];
} accuracy_bins;
void accuracy_by_hwe(const int64_t *hwe, const double *accuracy, int64_t n, accuracy_bins *out);
#endif
