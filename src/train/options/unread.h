#ifndef ARES_TRAIN_OPTIONS_UNREAD_H
#define ARES_TRAIN_OPTIONS_UNREAD_H

#include "ares/train.h"

/*
 * Warns of options that a user has set to something else than their default and that nothing of the
 * run reads. reward: NULL where none can be opened. (unread.c)
 */
void unread_tell(ares_config *cfg, const ares_train_config *c, const ares_reward *reward);
#endif
