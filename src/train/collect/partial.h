/* Answers that go on in a later step: what they may still write, and what is trained. (partial.c)
 */
#ifndef ARES_TRAIN_COLLECT_PARTIAL_H
#define ARES_TRAIN_COLLECT_PARTIAL_H

#include "ares/core.h"

/* Tokens that an answer may still write; 0: it is cut off by length. */
int32_t partial_budget(int32_t max_response_length, int32_t had);
/*
 * The mask of an answer's had + n tokens: the first `had` are of earlier steps, and keep theirs
 * unless mask_offpolicy leaves them out.
 */
void partial_mask(uint8_t *mask, int32_t had, int32_t n, bool mask_offpolicy);
#endif
