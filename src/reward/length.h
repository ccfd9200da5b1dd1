/* Penalties of length, in [-1, 0] (docs/dapo.md#penalty-of-length). */
#ifndef ARES_GRADE_LENGTH_H
#define ARES_GRADE_LENGTH_H

#include "ares/grade.h"

/* 0 up to safe_length, then falling evenly to -1 at max_length and beyond. */
double length_reward(int64_t length, int64_t safe_length, int64_t max_length);
/*
 * The same, with the length of the ramp in place of safe_length: EasyR1's soft overlong punishment.
 */
double length_overlong(int64_t length, int64_t max_response_length, int64_t buffer_length);
#endif
