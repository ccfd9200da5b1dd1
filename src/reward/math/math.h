/*
 * Math answers: what is extracted, how it is normalised, and when two answers are the same (the project's rewards
 * specification, sections 2 to 5 and 9, which restates the graders of slime, verl, MathRuler and Math-Verify).
 *
 * All functions are pure and bounded by counted work: a budget is steps, never time. Texts are UTF-8 as they come; invalid
 * bytes are characters that equal only themselves. Results live in the arena given.
 */
#ifndef ARES_REWARD_MATH_H
#define ARES_REWARD_MATH_H

#include "ares/core.h"

typedef enum { MATH_TARGET, MATH_REFERENCE } math_mode; /* exact by our rules; with the original's defects, for comparisons */

typedef struct math_budget {
    int64_t steps;       /* left; a function that finds none left says "not equal" */
    bool exhausted;
} math_budget;
enum { MATH_STEPS = 4000000, MATH_MAX_BYTES = 2000, MATH_MAX_DEPTH = 100 };

/* ------------------------------------------------------------------ judge.c, normalize.c, latex.c */
/* The deepscaler judge: mathd equality, or element by element (4.1 to 4.5). decided_by (may be NULL): "mathd", "text", "elements", "matrix", "no". */
bool math_equal(ares_view given, ares_view truth, math_mode mode, math_budget *budget, ares_arena *arena, const char **decided_by);

/* ------------------------------------------------------------------ value.c (4.6; the reference's 4.4) */
/* Whether two normalised element texts have the same value: exact rationals, else both sides at fixed trial points. */
bool math_same_value(ares_view a, ares_view b, math_budget *budget, ares_arena *arena);
/* The original's judgement of (truth)-(given), defects included. */
bool math_same_value_reference(ares_view given, ares_view truth, math_budget *budget, ares_arena *arena);

/* ------------------------------------------------------------------ verify.c: Math-Verify's semantics (section 9) */
/* gold and response as they are; extraction included. extracted (may be NULL): what was taken from the response. */
bool math_verify(ares_view gold, ares_view response, math_budget *budget, ares_arena *arena, ares_view *extracted);
#endif
