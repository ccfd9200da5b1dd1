#ifndef ARES_TRAIN_OPTIONS_SHARING_H
#define ARES_TRAIN_OPTIONS_SHARING_H

#include "ares/train.h"

/* Refuses what the ranks of a run, world of them, cannot share. */
void sharing_check(ares_config *cfg, const ares_train_config *c, int world);
/* As worker.*.fsdp and worker.*.offload ask; group: of all ranks; NULL: one. */
ares_model_share sharing_of_actor(const ares_train_config *c, ares_group *group);
ares_model_share sharing_of_critic(const ares_train_config *c, ares_group *group);
ares_model_share sharing_of_reference(const ares_train_config *c, ares_group *group);
#endif
