/* The frozen copy of the starting policy. (reference.c) */
#ifndef ARES_TRAIN_ROLES_REFERENCE_H
#define ARES_TRAIN_ROLES_REFERENCE_H

#include "options/sharing.h"
#include "roles/learner.h"

typedef struct reference {
    learner learner;         /* its model is its own */
    ares_features *features; /* the learner's, where they are not the policy's, too; else NULL */
    const ares_train_config *cfg;
} reference;

/*
 * groups: of ranks, which may share it; NULL: one rank. weights: of a reference that has moved;
 * NULL: the model that training began from
 */
int reference_open(reference *r, const ares_train_config *cfg, ares_device *d, ares_world *world,
                   const sharing_groups *groups, const char *weights);
void reference_close(reference *r);
/* Puts column ref_log_probs. */
int reference_log_probs(reference *r, double temperature, ares_batch *b);
/* Puts column kl: the exact KL of a policy to the reference at every token with mask 1. */
int reference_kl(reference *r, learner *policy, double temperature, ares_batch *b);
#endif
