#ifndef ARES_TRAIN_OPTIONS_DEVICE_H
#define ARES_TRAIN_OPTIONS_DEVICE_H

#include "ares/train.h"

void device_check(ares_config *cfg, const ares_trainer_config *c);
/* Whether so many ranks, on that device, can decode by tensor_parallel_size. */
void device_check_parallel(ares_config *cfg, const ares_train_config *c, int world);
#endif
