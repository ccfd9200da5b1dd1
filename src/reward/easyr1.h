/*
 * What the reward functions published with EasyR1 and its fork ARES compute
 * (examples/reward_function/{math,dapo,r1v}.py there; docs/rewards.md#published-reward-functions).
 */
#ifndef ARES_GRADE_EASYR1_H
#define ARES_GRADE_EASYR1_H

#include "ares/grade.h"

/* (1 - format_weight) x accuracy + format_weight x format */
double easyr1_math(double accuracy, double format, double format_weight);
/* accuracy: 1 or -1; overlong: a length_overlong */
double easyr1_dapo(double accuracy, double overlong, double overlong_penalty_factor);
double easyr1_normalized(double accuracy); /* 1 or -1 -> 1 or 0 */
/*
 * Removes all white space directly before and after each '<', '>' and '/'
 * (docs/rewards.md#cleaning-and-format).
 */
void easyr1_clean(ares_view response, ares_str *out);
/* <think> .. </think> .. \boxed{ .. } .. from the first character on: 1 or 0 */
double easyr1_think_boxed(ares_view response);
/* <think> .. </think> <answer> .. </answer> and nothing else: 1 or 0 */
double easyr1_r1v_format(ares_view response);
/*
 * The trimmed content of the last \boxed{}; "None" when there is none or it never closes, as the
 * original says (docs/rewards.md#mathruler).
 */
ares_view easyr1_boxed(ares_view response);
/* Whether two answers are equal for MathRuler; sets out->exhausted when the budget ended first. */
bool easyr1_equal(ares_view given, ares_view truth, ares_verify_out *out);
/*
 * Fills out->accuracy and out->no_answer from the last \boxed{} of the response, graded as
 * MathRuler does; *extracted is the box's content.
 */
void easyr1_boxed_accuracy(const ares_verify_in *in, ares_verify_out *out, ares_view *extracted);
#endif
