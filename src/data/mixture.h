/* Weighted mixtures of data sets (source_mixture.c, curriculum.c). */
#ifndef ARES_DATA_MIXTURE_H
#define ARES_DATA_MIXTURE_H

#include "ares/data_source.h"

/* The weight of a part at a step; one that is not finite is an error. */
int curriculum_weight(const ares_curriculum *c, int64_t part, int64_t step, double *weight);
/*
 * n prompts divided by weights [parts]: each part but the last gets its share rounded half to even,
 * the last the rest; what rounding gives too much is taken back from the last parts. Weights below
 * 0 count as 0. ARES_ECONFIG where none is above 0.
 */
int mixture_distribute(const double *weights, int parts, int64_t n, int64_t *counts);
/* The order of n rows in an epoch: slime's, a shuffle by CPython's random.Random(seed + epoch). */
void mixture_order(uint64_t seed, int64_t epoch, int64_t *order, int64_t n);
#endif
