/* What all ranks must have been started with, told before they work together. (same_start.c) */
#ifndef ARES_TRAIN_RUN_SAME_START_H
#define ARES_TRAIN_RUN_SAME_START_H

#include "ares/train.h"

/* Collectives, which fail on all ranks where one has read other files than rank 0. */
int same_files(ares_config *cfg, const ares_train_config *c, ares_world *world);
int same_checkpoint(const char *dir, ares_world *world);
#endif
