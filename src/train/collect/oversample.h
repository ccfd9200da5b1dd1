/* Over-sampling: groups join the batch as they end. (oversample.c) */
#ifndef ARES_TRAIN_COLLECT_OVERSAMPLE_H
#define ARES_TRAIN_COLLECT_OVERSAMPLE_H

#include "collect/filter_groups.h"

/*
 * Draws prompts until the batch is full, as r->over says, and cuts what has not ended then. r->last
 * becomes all groups that have ended, as one draw, each with its number in the step as its place;
 * those that go on later are given back to the source. Sets the metrics over_sampling/... A
 * collective.
 */
int oversample(ares_trainer *t, rounds *r, ares_arena *arena, ares_metrics *m);
#endif
