/*
 * Math answers: what is extracted, how it is normalised, and when two answers are the same (the
 * project's rewards specification, sections 2 to 5 and 9, which restates the graders of slime,
 * verl, MathRuler and Math-Verify).
 *
 * All functions are pure and bounded by counted work: a budget is steps, never time. Texts are
 * UTF-8 as they come; invalid bytes are characters that equal only themselves. Results live in the
 * arena given.
 */
#ifndef ARES_GRADE_MATH_ANSWERS_H
#define ARES_GRADE_MATH_ANSWERS_H

#include "ares/core.h"

/* exact by our rules; with the original's defects, for comparisons */
typedef enum { MATH_TARGET, MATH_REFERENCE } math_mode;

typedef struct math_budget {
    int64_t steps; /* left; a function that finds none left says "not equal" */
    bool exhausted;
} math_budget;
enum { MATH_STEPS = 4000000, MATH_MAX_BYTES = 2000, MATH_MAX_DEPTH = 100 };

/* ---------------- extract.c: linear scans; data NULL when there is nothing; 300 and 100 count
 * characters */
/*
 * Content of the last \boxed{...}, untrimmed; none when the last \boxed is not followed by "{" or
 * never closes, whatever stands before it.
 */
ares_view math_last_boxed(ares_view text);
/* verl's for MATH: the last "\boxed 5" up to a "$", else as above */
ares_view math_last_boxed_hendrycks(ares_view text);
ares_view math_last_boxed_strict(ares_view text); /* DAPO's: within the last 100 */
/*
 * What deepscaler judges: behind the last </think>, else from the first ###Response to the second.
 */
ares_view math_after_think(ares_view text);
/* the last "#### number" of the last 300, without commas */
ares_view math_gsm8k_strict(ares_view text, ares_arena *arena);
/* the last number of the last 300, as it stands there */
ares_view math_gsm8k_flexible(ares_view text);
/* behind the last "Answer:" of the last 300, to the end of its line */
ares_view math_dapo_answer(ares_view text);

/* ---------------- mathd.c (3), normalize.c (4.2, 4.3, 4.5b), number.c, answers.c (5) */
ares_view math_mathd(ares_view text, ares_arena *arena);
/* MathRuler's first form: mathd without any "%" */
ares_view math_mathruler_a(ares_view text, ares_arena *arena);
/*
 * mathd's steps alone, not trimmed, \text kept; false when one of them fails. percent: every "%"
 * goes.
 */
bool math_strip_string(ares_view text, bool percent, ares_arena *arena, ares_view *out);
/* N(x) */
ares_view math_normalize(ares_view text, math_mode mode, math_budget *budget, ares_arena *arena);
/* Of an N(x): what stands in its brackets between commas, else all of it; none of an empty text. */
ares_view *math_elements(ares_view text, math_mode mode, ares_arena *arena, int64_t *n);
bool math_is_fraction(ares_view text);
/* thousands separators allowed */
bool math_is_integer(ares_view text, math_mode mode, ares_arena *arena);
ares_view math_strip_thousands(ares_view text, ares_arena *arena);
/* A number within 1e-7 of an integer: that integer's digits. */
bool math_integer(ares_view text, math_mode mode, ares_arena *arena, ares_view *digits);
ares_view math_dapo_normal(ares_view text, ares_arena *arena);
bool math_same_hendrycks(ares_view a, ares_view b, ares_arena *arena);

/* ------------------------------------------------------------------ judge.c */
/*
 * The deepscaler judge: mathd equality, or element by element (4.1 to 4.5). Texts beyond
 * MATH_MAX_BYTES equal nothing, and exhaust the budget. decided_by (may be NULL): "mathd", "text",
 * "elements", "matrix", "no".
 */
bool math_equal(ares_view given, ares_view truth, math_mode mode, math_budget *budget,
                ares_arena *arena, const char **decided_by);
/* MathRuler's judge (aepo.md 3.5): the reference mode, with its own first form. */
bool math_equal_mathruler(ares_view given, ares_view truth, math_budget *budget, ares_arena *arena);

/* ---------------- value.c (4.6; the reference's 4.4) */
/*
 * Whether two normalised element texts have the same value: exact rationals, else both sides at
 * fixed trial points.
 */
bool math_same_value(ares_view a, ares_view b, math_budget *budget, ares_arena *arena);
/* The original's judgement of (truth)-(given), defects included. */
bool math_same_value_reference(ares_view given, ares_view truth, math_budget *budget,
                               ares_arena *arena);

/* ---------------- verify.c: Math-Verify's semantics (section 9) */
/*
 * gold and response as they are; extraction included. extracted (may be NULL): what was taken from
 * the response.
 */
bool math_verify(ares_view gold, ares_view response, math_budget *budget, ares_arena *arena,
                 ares_view *extracted);
#endif
