/* What a step has drawn from each data set of a curriculum. (sources.c) */
#ifndef ARES_TRAIN_REPORT_SOURCES_H
#define ARES_TRAIN_REPORT_SOURCES_H

#include "ares/data_source.h"

/* A sample that is trained on. */
typedef struct source_sample {
    int64_t place, index; /* order: of its group in the batch, of the answer in it */
    int64_t part;         /* number of its data set */
    int64_t step;         /* of the curriculum */
    double weight, reward;
    double length, tokens; /* of the answer: written by the policy, and all */
} source_sample;

/* Samples of all ranks [n], in their order; m has the counts of dropped groups already. */
int sources_report(const ares_curriculum *c, const source_sample *x, int64_t n, ares_metrics *m);
#endif
