/*
 * What the reward functions published with EasyR1 and ARES compute: their examples/reward_function/
 * {math,dapo,r1v}.py.
 */
#ifndef ARES_GRADE_PUBLISHED_H
#define ARES_GRADE_PUBLISHED_H

#include "ares/core.h"

/* Their arithmetic (aepo.md 3.3); accuracy of dapo is 1 or -1, overlong a length_overlong. */
double published_math(double accuracy, double format, double format_weight);
double published_dapo(double accuracy, double overlong, double overlong_penalty_factor);
double published_normalized(double accuracy); /* 1 or -1 -> 1 or 0 */
/* All white space directly before and after each '<', '>' and '/' goes (3.4). */
void published_clean(ares_view response, ares_str *out);
/* <think> .. </think> .. \boxed{ .. } .. : 1 or 0 */
double published_format(ares_view response);
/* <think> .. </think> <answer> .. </answer> and nothing else: 1 or 0 */
double published_r1v_format(ares_view response);
/*
 * The trimmed content of the last \boxed{}; "None" when there is none or it never closes, as the
 * original says (3.5).
 */
ares_view published_boxed(ares_view response);
#endif
