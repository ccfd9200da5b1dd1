/* Penalties of length, in [-1, 0] (dapo.md section 6). */
#ifndef ARES_REWARD_VERIFY_LENGTH_H
#define ARES_REWARD_VERIFY_LENGTH_H

#include "ares/config.h"

/* 0 up to safe_length, then falling evenly to -1 at max_length and beyond. */
double length_reward(int64_t length, int64_t safe_length, int64_t max_length);
/* The same, said by the buffer before the maximum: EasyR1's soft overlong punishment. */
double length_overlong(int64_t length, int64_t max_response_length, int64_t buffer_length);
/* verl's, which goes on falling beyond the maximum. */
double length_overlong_unclamped(int64_t length, int64_t max_response_length,
                                 int64_t buffer_length);

#define LENGTH_OPTIONS(X)                                                           \
    X(i64, safe_length, "safe_length", "16384", "[0,)", "tokens without a penalty") \
    X(i64, max_length, "max_length", "20480", "[1,)", "tokens of the full penalty") \
    X(f64, len_reward_penalty, "len_reward_penalty", "0.1", "[0,)",                 \
      "the full penalty; 0 switches it off")
ARES_OPTION_STRUCT(length_options, LENGTH_OPTIONS);
#endif
