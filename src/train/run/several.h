/* What several answers to each prompt of a validation are worth together. (several.c) */
#ifndef ARES_TRAIN_RUN_SEVERAL_H
#define ARES_TRAIN_RUN_SEVERAL_H

#include "ares/data_trajectory.h"
#include "trainer.h"

enum { SEVERAL_KS = 16 }; /* 1, 2, 4 .. and n */

/* Sums over prompts; zeroed before. */
typedef struct several {
    double mean, prompts;
    double pass[SEVERAL_KS], passed[SEVERAL_KS]; /* sum, and prompts with so many answers */
    double best[SEVERAL_KS];
    double maj[SEVERAL_KS], voted;
} several;

/* Answers to one prompt, of which those that were not judged count nowhere. */
void several_add(several *x, const ares_trainer *t, const ares_group *g);
/*
 * A collective: <prefix>pass@k, mean@n, best@k/mean and maj@k/mean, for k = 1, 2, 4 .. and n
 * (docs/curriculum.md#several-answers); nothing where n is 1.
 */
int several_put(const several *x, ares_world *world, int64_t n, const char *prefix,
                ares_metrics *m);
#endif
