/* What ranks share of the models that they train together, and with whom. (sharing.c) */
#ifndef ARES_TRAIN_OPTIONS_SHARING_H
#define ARES_TRAIN_OPTIONS_SHARING_H

#include "ares/train.h"

/* Refuses what the ranks of a run, world of them, cannot share. */
void sharing_check(ares_config *cfg, const ares_train_config *c, int world);

/* Ranks in neighbouring groups of one size, and the ranks with the same part in each of them. */
typedef struct sharing_cut {
    ares_group *group, *replicas;
} sharing_cut;
/* all: one group; the others as fsdp_size cuts them, each size once. */
typedef struct sharing_groups {
    ares_group *all;
    sharing_cut cut[3];
    int n;
    ares_group *tp; /* borrowed: the ranks that roll out as one; NULL: each by itself */
} sharing_groups;
/* The groups that worker.*.fsdp.fsdp_size asks for. A collective of the world, of `ranks` ranks. */
int sharing_open(sharing_groups *g, const ares_train_config *c, ares_world *world, ares_device *d,
                 int ranks);
void sharing_close(sharing_groups *g);
/*
 * How many neighbouring ranks share; fsdp_size: null, -1, and all or more than there are, as in
 * verl, are all of them.
 */
int sharing_size(int64_t fsdp_size, int ranks);
int64_t sharing_bytes(const sharing_groups *g); /* that this rank has sent in them so far */
/* As worker.*.fsdp and worker.*.offload ask. */
ares_model_share sharing_of_actor(const ares_train_config *c, const sharing_groups *g);
ares_model_share sharing_of_critic(const ares_train_config *c, const sharing_groups *g);
ares_model_share sharing_of_reference(const ares_train_config *c, const sharing_groups *g);
#endif
