/*
 * Private to reward: finding, normalising and comparing math answers, and the edits of texts they
 * need.
 */
#ifndef ARES_REWARD_MATH_MATH_H
#define ARES_REWARD_MATH_MATH_H

#include "ares/core.h"

/*
 * Math answers: what is extracted, how it is normalised, and when two answers are the same.
 * Restates the graders of slime, verl, MathRuler and Math-Verify (docs/rewards.md).
 *
 * All functions are pure and bounded by counted work: a budget is steps, never time. Texts are
 * UTF-8 as they come; an invalid byte is a character that equals only itself. Results live in the
 * arena given.
 */

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
 * normal_forms.c: linear scans. data is NULL when there is nothing; "the last 300" and "the last
 * 100" count characters.
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

/* ---------------- normal forms: normal_forms.c, normalize.c, normal_forms.c */
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
ares_view math_dapo_normal(ares_view text, ares_arena *arena);
bool math_same_hendrycks(ares_view a, ares_view b, ares_arena *arena);

/* ---------------- judgements: normalize.c, value.c */
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

/*
 * Small edits of texts, character by character. Every function returns a view of its argument or of
 * the arena.
 */

static inline bool edit_digit(char c)
{
    return c >= '0' && c <= '9';
}
static inline bool edit_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static inline ares_view edit_from(ares_view t, size_t i)
{
    return (ares_view){ t.data + i, t.len - i };
}
static inline ares_view edit_cut(ares_view t, size_t from, size_t to)
{
    return (ares_view){ t.data + from, to - from };
}
/* Whether the literal stands at i. */
bool edit_at(ares_view t, size_t i, const char *literal);
/* Bytes of the character at i: a well-formed UTF-8 sequence, else 1. */
size_t edit_char(ares_view t, size_t i);
/* Bytes of the Unicode white space character at i; 0 when there is none. */
size_t edit_space(ares_view t, size_t i);
/* Whether a letter of any alphabet stands at i. */
bool edit_alpha(ares_view t, size_t i);
ares_view edit_trim(ares_view t); /* Unicode white space */
/* The last n characters. */
ares_view edit_tail(ares_view t, size_t n);
/* Replaces every occurrence, left to right; replacements are not searched again. */
ares_view edit_replace(ares_view t, const char *from, const char *to, ares_arena *arena);
ares_view edit_delete(ares_view t, const char *literal, ares_arena *arena);
ares_view edit_join(ares_view a, ares_view b, ares_view c, ares_arena *arena);
ares_view edit_lower(ares_view t, ares_arena *arena);
int64_t edit_count(ares_view t, const char *literal);     /* non-overlapping */
int64_t edit_find_last(ares_view t, const char *literal); /* -1 when absent */
/*
 * The index after the brace that closes the one at i (escaped braces count too); 0 when none does.
 */
size_t edit_closing_brace(ares_view t, size_t i);
/* The inner text of a t that is \text{...} in one line, else t. */
ares_view edit_unwrap_text(ares_view t);

/* An output that grows in the arena. */
typedef struct edit_out {
    char *data;
    size_t len, cap;
    ares_arena *arena;
} edit_out;
void edit_add(edit_out *o, ares_view t);
void edit_add_z(edit_out *o, const char *z);
static inline ares_view edit_view(const edit_out *o)
{
    return (ares_view){ o->data ? o->data : "", o->len };
}

/* LaTeX -> the plain text that elements are judged as (docs/rewards.md#from-latex-to-text). */

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

/*
 * Matrix environments in an answer: where they stand, their cells, and the text around them
 * (docs/rewards.md#target-and-reference).
 */

typedef struct matrix {
    size_t from, to;  /* bytes of the text: from \begin to after \end{..} */
    ares_view body;   /* cells, trimmed, without a row end after the last row */
    bool determinant; /* vmatrix, as many rows as columns */
} matrix;

#endif
