/* Finds the answer in a text: its last number, its last \boxed{}. */
#ifndef ARES_GRADE_FIND_ANSWER_H
#define ARES_GRADE_FIND_ANSWER_H

#include "ares/grade.h"

/*
 * A decimal number in one spelling per value: sign, digits, point; without thousands separators,
 * leading zeros and trailing zeros of the fraction.
 */
typedef struct grade_number {
    char text[128];
} grade_number;
/*
 * The last number of a text ("-1,234.50" and "$7" are numbers; "3.2.1" is read as its pieces);
 * false when there is none, or it is too long.
 */
bool grade_last_number(ares_view text, grade_number *out);
/* The whole text as one number. */
bool grade_whole_number(ares_view text, grade_number *out);
/*
 * Content of the last \boxed{...} (or \fbox{...}) up to the brace that closes it, escaped braces
 * counted like others; NULL data when there is none, or the last one never closes. Of a box in a
 * box the inner one counts (docs/rewards.md#mathruler).
 */
ares_view grade_last_boxed(ares_view text);
#endif
