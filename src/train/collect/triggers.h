#ifndef ARES_TRAIN_COLLECT_TRIGGERS_H
#define ARES_TRAIN_COLLECT_TRIGGERS_H

#include "trainer.h"

/* Reads and checks worker.rollout.trigger_tokens_file before anything loads; faults go to cfg. */
void triggers_check(ares_config *cfg, const ares_rollout_config *r);
/* Fills t->triggers from the file, if there is one. Warns of words that are no single token. */
int triggers_load(ares_trainer *t);
/*
 * The candidates among a sample's tokens, in the arena, after `before` of an earlier sample that
 * are left for the caller; NULL without trigger words.
 */
uint8_t *triggers_mark(const ares_trainer *t, const ares_completion *c, size_t before,
                       ares_arena *arena);
#endif
