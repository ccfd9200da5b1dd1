#ifndef ARES_TRAIN_OPTIONS_SLIME_WORDS_H
#define ARES_TRAIN_OPTIONS_SLIME_WORDS_H

#include "ares/train.h"

/* Words of slime's curriculum: declared and translated; then, after resolve, checked. */
void slime_declare(ares_config *cfg, ares_train_config *out);
void slime_check(ares_config *cfg, const ares_train_config *c);
#endif
