#ifndef ARES_TRAIN_OPTIONS_ALIASES_H
#define ARES_TRAIN_OPTIONS_ALIASES_H

#include "ares/config.h"

/* Declares the names that other trainers have for options. */
void train_add_aliases(ares_config *cfg);
#endif
