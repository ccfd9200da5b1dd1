/* LaTeX -> the plain text that elements are judged as (docs/rewards.md#from-latex-to-text). */
#ifndef ARES_GRADE_MATH_LATEX_H
#define ARES_GRADE_MATH_LATEX_H

#include "edit.h"

/* The character that a control word stands for (name without backslash), or NULL. */
const char *latex_symbol(ares_view name, math_mode mode);
/*
 * Bytes of the control sequence at i ("\" and letters, or "\" and one character); *name is what
 * follows the backslash.
 */
size_t latex_control(ares_view t, size_t i, ares_view *name);
static inline size_t latex_blanks(ares_view t, size_t i)
{
    while (i < t.len && (t.data[i] == ' ' || t.data[i] == '\n' || t.data[i] == '\t')) i++;
    return i;
}
bool latex_is(ares_view name, const char *const *words, int n);
#define LATEX_IS(name, ...)                              \
    latex_is(name, (const char *const[]){ __VA_ARGS__ }, \
             ARES_COUNT(((const char *const[]){ __VA_ARGS__ })))

/*
 * The target's conversion: fractions grouped, roots with their index, exponents grouped, repeating
 * decimals exact. False when the text cannot be converted.
 */
bool latex_to_text(ares_view t, math_budget *budget, ares_arena *arena, ares_view *out);
/*
 * What pylatexenc 2.10 makes of it in the original: \frac{a}{b} is a/b, the index of a root is
 * lost, unknown words vanish.
 */
bool latex_to_text_reference(ares_view t, math_budget *budget, ares_arena *arena, ares_view *out);
#endif
