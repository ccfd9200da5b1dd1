/*
 * Math answers: what is extracted, how it is normalised, and when two answers are the same.
 * Restates the graders of slime, verl, MathRuler and Math-Verify (docs/rewards.md).
 *
 * All functions are pure and bounded by counted work: a budget is steps, never time. Texts are
 * UTF-8 as they come; an invalid byte is a character that equals only itself. Results live in the
 * arena given.
 */
#ifndef ARES_GRADE_MATH_ANSWERS_H
#define ARES_GRADE_MATH_ANSWERS_H

#include "ares/core.h"

/*
 * target: exact by our rules; reference: with the defects of the original code, to compare scores
 * with it (docs/rewards.md#target-and-reference)
 */
typedef enum { MATH_TARGET, MATH_REFERENCE } math_mode;

typedef struct math_budget {
    int64_t steps; /* steps left; a function that finds none left says "not equal" */
    bool exhausted;
} math_budget;
enum { MATH_STEPS = 4000000, MATH_MAX_BYTES = 2000, MATH_MAX_DEPTH = 100 };

/*
 * extract.c: linear scans. data is NULL when there is nothing; "the last 300" and "the last 100"
 * count characters.
 */

/*
 * Content of the last \boxed{...}, untrimmed; NULL when the last \boxed is not followed by "{" or
 * never closes, even if an earlier one does.
 */
ares_view math_last_boxed(ares_view text);
/* verl's, for the MATH data set: the text after the last "\boxed " up to a "$", else as above */
ares_view math_last_boxed_hendrycks(ares_view text);
ares_view math_last_boxed_strict(ares_view text); /* DAPO's: within the last 100 */
/*
 * What deepscaler judges: the text after the last </think>, else from the first ###Response to the
 * second.
 */
ares_view math_after_think(ares_view text);
/* the last "#### number" of the last 300, without commas */
ares_view math_gsm8k_strict(ares_view text, ares_arena *arena);
/* the last number of the last 300, commas included */
ares_view math_gsm8k_flexible(ares_view text);
/* from after the last "Answer:" of the last 300 to the end of its line */
ares_view math_dapo_answer(ares_view text);

/* ---------------- normal forms: mathd.c, normalize.c, integer.c, dapo_normal.c */
/* the form of the MATH data set's graders (docs/rewards.md#strings-of-the-math-data-set) */
ares_view math_mathd(ares_view text, ares_arena *arena);
/* MathRuler's first form: mathd's without any "%" */
ares_view math_mathruler_a(ares_view text, ares_arena *arena);
/* the form in which elements are compared (docs/rewards.md#normal-form) */
ares_view math_normalize(ares_view text, math_mode mode, math_budget *budget, ares_arena *arena);
/*
 * The elements of a text in normal form: what stands between the commas of its brackets, else the
 * whole text; none of an empty text (docs/rewards.md#elements).
 */
ares_view *math_elements(ares_view text, math_mode mode, ares_arena *arena, int64_t *n);
bool math_is_fraction(ares_view text);
/* thousands separators allowed */
bool math_is_integer(ares_view text, math_mode mode, ares_arena *arena);
ares_view math_strip_thousands(ares_view text, ares_arena *arena);
/* True for a number within 1e-7 of an integer; *digits is that integer. */
bool math_integer(ares_view text, math_mode mode, ares_arena *arena, ares_view *digits);
ares_view math_dapo_normal(ares_view text, ares_arena *arena);
bool math_same_hendrycks(ares_view a, ares_view b, ares_arena *arena);

/* ---------------- judgements: equal.c, same_value.c */
/*
 * The deepscaler judge: equal in mathd's form, or element by element
 * (docs/rewards.md#the-deepscaler-judge). Texts of more than MATH_MAX_BYTES equal nothing and
 * exhaust the budget. decided_by (may be NULL): "mathd", "text", "elements", "matrix", "no".
 */
bool math_equal(ares_view given, ares_view truth, math_mode mode, math_budget *budget,
                ares_arena *arena, const char **decided_by);
/* MathRuler's judge: the reference mode with its own first form (docs/rewards.md#mathruler). */
bool math_equal_mathruler(ares_view given, ares_view truth, math_budget *budget, ares_arena *arena);

/*
 * Whether two elements in normal form have the same value: as exact rationals, else at fixed trial
 * points (docs/rewards.md#equal-values).
 */
bool math_same_value(ares_view a, ares_view b, math_budget *budget, ares_arena *arena);
/* The original's judgement of (truth)-(given), with its defects. */
bool math_same_value_reference(ares_view given, ares_view truth, math_budget *budget,
                               ares_arena *arena);
#endif
