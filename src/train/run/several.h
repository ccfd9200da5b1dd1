/* What several answers to each prompt of a validation are worth together. (several.c) */
#ifndef ARES_TRAIN_RUN_SEVERAL_H
#define ARES_TRAIN_RUN_SEVERAL_H

#include "ares/data_trajectory.h"
#include "trainer.h"

enum { SEVERAL_KS = 16 }; /* 1, 2, 4 .. and n */

/* passed: prompts with so many answers */
typedef struct several_at_k {
    double pass, passed, best, best_std, worst, worst_std, maj, maj_std;
} several_at_k;

/* Sums over prompts; zeroed before. */
typedef struct several {
    double mean, std, prompts, voted;
    several_at_k at[SEVERAL_KS];
} several;

/* Answers to one prompt, of which those that were not judged count nowhere. */
void several_add(several *x, const ares_trainer *t, const ares_group *g);
/*
 * A collective: <prefix>mean@n, std@n, pass@k, and mean and std of best@k, worst@k and maj@k, for k
 * = 1, 2, 4 .. and n (docs/curriculum.md#several-answers); nothing where n is 1.
 */
int several_put(const several *x, ares_world *world, int64_t n, const char *prefix,
                ares_metrics *m);
#endif
