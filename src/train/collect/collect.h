#ifndef ARES_TRAIN_COLLECT_COLLECT_H
#define ARES_TRAIN_COLLECT_COLLECT_H

#include "trainer.h"

/*
 * Fills a batch with the groups of the step that this rank trains on: samples with their scores,
 * and the columns of stage gen. (collect.c)
 */
int collect_groups(ares_trainer *t, ares_batch *b, ares_metrics *m);
#endif
