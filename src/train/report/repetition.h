/* Answers that say the same again and again. (repetition.c) */
#ifndef ARES_TRAIN_REPORT_REPETITION_H
#define ARES_TRAIN_REPORT_REPETITION_H

#include "ares/core.h"

/* Whether this build can tell: zlib is an optional part of it. */
bool repetition_known(void);
/*
 * Whether the text is longer than 10000 characters, of which zlib at level 9 makes the last 10000
 * more than ten times as small.
 */
bool repetition_in(ares_view text);
#endif
