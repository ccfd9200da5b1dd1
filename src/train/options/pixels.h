#ifndef ARES_TRAIN_OPTIONS_PIXELS_H
#define ARES_TRAIN_OPTIONS_PIXELS_H

#include "ares/data.h"

/* Refuses limits of pictures that exclude each other. */
void pixels_check(ares_config *cfg, const ares_data_config *d);
#endif
