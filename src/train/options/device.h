#ifndef ARES_TRAIN_OPTIONS_DEVICE_H
#define ARES_TRAIN_OPTIONS_DEVICE_H

#include "ares/train.h"

void device_check(ares_config *cfg, const ares_trainer_config *c);
#endif
