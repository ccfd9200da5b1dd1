/* Numbers and boxes in text, for the verifiers that read them. */
#ifndef ARES_GRADE_BOXES_H
#define ARES_GRADE_BOXES_H

#include "ares/grade.h"

/*
 * A decimal number in its plainest spelling: sign, digits, point, no thousands separators, no zeros
 * that say nothing.
 */
typedef struct verify_number {
    char text[128];
} verify_number;
/*
 * The last number of a text ("-1,234.50" and "$7" are numbers; "3.2.1" is read as its pieces);
 * false when there is none, or it is too long.
 */
bool verify_last_number(ares_view text, verify_number *out);
/* The whole text as one number. */
bool verify_whole_number(ares_view text, verify_number *out);
/*
 * Content of the last \boxed{...} (or \fbox{...}) up to the brace that closes it, escaped braces
 * counted like others; NULL data when there is none, or the last one never closes. A box in a box
 * is the last one. (aepo.md 3.5)
 */
ares_view verify_last_boxed(ares_view text);
/* appends a string member to details */
void verify_detail(ares_verify_out *out, const char *key, ares_view value);
double verify_think_boxed(ares_view text); /* <think>..</think>..\boxed{..}.. : 1 or 0 */
/*
 * accuracy, no_answer and what was extracted of the last \boxed{} of a response, graded as
 * MathRuler does. (math_format.c)
 */
int verify_boxed_accuracy(const ares_verify_in *in, ares_verify_out *out, ares_view *extracted);
/* fails where the number of tokens is not known */
int verify_need_length(const ares_verify_in *in, const char *who);
#endif
