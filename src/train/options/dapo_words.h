#ifndef ARES_TRAIN_OPTIONS_DAPO_WORDS_H
#define ARES_TRAIN_OPTIONS_DAPO_WORDS_H

#include "ares/train.h"

/* DAPO's options, and their translation into others */
void dapo_declare(ares_config *cfg, ares_train_config *out);
#endif
