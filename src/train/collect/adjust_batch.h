/* Rows of a step brought to whole mini-batches. (adjust_batch.c) */
#ifndef ARES_TRAIN_COLLECT_ADJUST_BATCH_H
#define ARES_TRAIN_COLLECT_ADJUST_BATCH_H

#include "trainer.h"

/*
 * Does what algorithm.batch_adjust_mode asks for, where mini-batches count rows, and writes the
 * metrics train/batch_size and train/num_mini_batches. A rank may have no row afterwards. A
 * collective.
 */
int adjust_batch(const ares_train_config *cfg, ares_world *world, int64_t step, ares_batch *b,
                 ares_metrics *m);
#endif
