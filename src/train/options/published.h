#ifndef ARES_TRAIN_OPTIONS_PUBLISHED_H
#define ARES_TRAIN_OPTIONS_PUBLISHED_H

#include "ares/train.h"

/* The key of worker.actor.model.override_config that has an effect. */
#define PUBLISHED_POSITIONS "max_position_embeddings"

void published_declare(ares_config *cfg, ares_train_config *out);
/* faults go to cfg; options that are set and have no effect are logged */
void published_check(ares_config *cfg, const ares_train_config *c, int world);
#endif
