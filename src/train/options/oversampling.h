/* The options of over-sampling and of partial rollouts. (oversampling.c) */
#ifndef ARES_TRAIN_OPTIONS_OVERSAMPLING_H
#define ARES_TRAIN_OPTIONS_OVERSAMPLING_H

#include "ares/train.h"

void oversampling_declare(ares_config *cfg, ares_train_config *out);
void oversampling_check(ares_config *cfg, const ares_train_config *c);
/* Whether groups are taken as they end, instead of draw by draw. */
bool oversampling_wanted(const ares_train_config *c);
#endif
