/*
 * Private to reward: finding, normalising and comparing math answers, the edits of texts they
 * need, and expressions with their values.
 */
#ifndef ARES_REWARD_MATH_MATH_H
#define ARES_REWARD_MATH_MATH_H

#include <gmp.h>
#include <mpfr.h>

#include "ares/core.h"

/*
 * Math answers: what is extracted, how it is normalised, and when two answers are the same.
 * Restates the graders of slime, verl, MathRuler and Math-Verify (docs/rewards.md). "The original"
 * is the published Python code of the grader in question.
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
 * ---------------- the answer of a response: normal_forms.c
 * Linear scans. data is NULL when there is no answer; "the last 300" counts characters.
 */

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

/* ---------------- normal forms: normal_forms.c, normalize.c */
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
/* Whether the text is a number within 1e-7 of an integer; thousands separators are allowed. */
bool math_is_integer(ares_view text, math_mode mode, ares_arena *arena);
ares_view math_strip_thousands(ares_view text, ares_arena *arena);
/* DAPO's form (docs/rewards.md#dapo-gsm8k-and-the-math-data-set) */
ares_view math_dapo_normal(ares_view text, ares_arena *arena);
/* Whether the graders of the MATH data set find the texts equal in mathd's form, untrimmed. */
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

/* ---------------- small edits: edit.c
 * Small edits of texts, character by character. Every function returns a view of its argument or of
 * the arena.
 */

static inline bool edit_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static inline char edit_lower_char(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
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
/* The letter of any alphabet at i; 0 when there is none. */
uint32_t edit_alpha(ares_view t, size_t i);
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
/* The index after the option "[...]" at i; i when none stands there. */
size_t latex_option_end(ares_view t, size_t i);
/*
 * The index of the \end that closes the environment whose body begins at i; t.len when there is
 * none.
 */
size_t latex_environment_end(ares_view t, size_t i);
/* Whether the name is one of the words. */
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
 * Private to reward: expressions and their values, and the claims of Math-Verify, which use them.
 */

/*
 * An expression as a postfix program, and its two evaluators: exact rationals (GMP), and 113-bit
 * floats (MPFR) at fixed trial points. MPFR rounds correctly, so no bit depends on the machine
 * (docs/rewards.md#equal-values).
 *
 * Every piece of work is taken from a math_budget before it is done; a step is some tens of
 * nanoseconds.
 */

typedef enum value_kind {
    VALUE_INTEGER,  /* argument: the number */
    VALUE_LITERAL,  /* argument: index into literals */
    VALUE_VARIABLE, /* argument: its code point, or a number above all code points */
    VALUE_PI,
    VALUE_E,
    VALUE_INF,
    VALUE_NEG, /* one operand from here on */
    VALUE_FACTORIAL,
    VALUE_ABS,
    VALUE_FLOOR,
    VALUE_CEIL,
    VALUE_SQRT,
    VALUE_SIN,
    VALUE_COS,
    VALUE_TAN,
    VALUE_COT,
    VALUE_SEC,
    VALUE_CSC,
    VALUE_ARCSIN,
    VALUE_ARCCOS,
    VALUE_ARCTAN,
    VALUE_LN,
    VALUE_EXP,
    VALUE_ADD, /* two operands from here on */
    VALUE_SUB,
    VALUE_MUL,
    VALUE_DIV,
    VALUE_POW,
    VALUE_ROOT,     /* x, n */
    VALUE_BINOMIAL, /* n, k */
    VALUE_LOG_BASE, /* x, base */
} value_kind;

typedef struct value_op {
    value_kind kind;
    int32_t argument;
} value_op;
typedef struct value_program {
    ares_arena *arena;
    value_op *ops;
    int count, capacity;
    int depth, max_depth; /* operands on the stack: after the last op, and the most at any time */
    mpq_t *literals;      /* owned: value_free */
    int literal_count, literal_capacity;
    int decimals;       /* literals written with a point or an exponent */
    int decimal_digits; /* the longest of them */
    bool failed;        /* not an expression of the grammar, or beyond its limits */
} value_program;

enum {
    VALUE_MAX_NAMES = 16,
    VALUE_TRIALS = 8,
    VALUE_BITS = 113, /* of a float: the precision of IEEE binary128 */
    VALUE_MAX_EXPONENT = 1000,
    VALUE_MAX_FACTORIAL = 30,
    VALUE_MAX_BITS = 1 << 16 /* of an exact rational, numerator and denominator together */
};
/* The different variables of two programs, in the order of their code points. */
typedef struct value_names {
    int32_t name[VALUE_MAX_NAMES];
    int count;
    bool too_many;
} value_names;

/* INEXACT: the value is no rational, or one that is too large */
typedef enum value_status { VALUE_DONE, VALUE_INEXACT, VALUE_INVALID } value_status;

/* ------------------------------------------------------------------ value.c */
void value_init(value_program *p, ares_arena *arena);
void value_free(value_program *p);
void value_emit(value_program *p, value_kind kind, int32_t argument);
void value_emit_program(value_program *p, const value_program *from);
/*
 * Reads a decimal number at text[at] (digits, point, and an exponent where `scientific`) into p;
 * returns the bytes read, 0 when there is none. An exponent beyond the limits fails p.
 */
size_t value_emit_number(value_program *p, ares_view text, size_t at, bool scientific);
/*
 * Parses text into p; sets p->failed. reference: the original's grammar, in which words are sympy's
 * and numbers may stand side by side.
 */
void value_parse(value_program *p, ares_view text, bool reference, math_budget *budget);

/* ------------------------------------------------------------------ value.c */
bool value_spend(math_budget *budget, int64_t steps);
void value_collect_names(const value_program *p, value_names *names);
/* 1 or -1: the program is an infinity with this sign; 0: it is not. */
int value_infinity(const value_program *p);
value_status value_exact(const value_program *p, math_budget *budget, mpq_t out);
/* A float without heap memory; must not be copied by assignment. */
typedef struct value_float {
    mpfr_t v;
    mp_limb_t limbs[(VALUE_BITS + GMP_NUMB_BITS - 1) / GMP_NUMB_BITS];
} value_float;
void value_float_init(value_float *f);
/*
 * Evaluates p at trial 0 .. VALUE_TRIALS - 1: the k-th variable is (trial odd ? -1 : 1) x (0.37 +
 * 0.61 k + 1.13 trial). DONE or INVALID.
 */
value_status value_at(const value_program *p, const value_names *names, int trial,
                      math_budget *budget, value_float *out);
/*
 * Compares exactly where both are rational, else at the trial points; false with more than
 * max_names variables.
 */
bool value_same(const value_program *a, const value_program *b, int max_names, math_budget *budget);

/*
 * A claim is an answer as Math-Verify sees it: a LaTeX text becomes a tree of sets, tuples,
 * intervals, relations, matrices and expressions, and two trees are compared
 * (docs/rewards.md#math-verify; huggingface/Math-Verify with latex2sympy2_extended).
 */

typedef enum claim_kind {
    CLAIM_EXPRESSION,
    CLAIM_SET, /* items in any order */
    CLAIM_TUPLE,
    CLAIM_INTERVAL, /* two items, open[2] */
    CLAIM_UNION,    /* of sets, in any order */
    CLAIM_RELATION, /* a = b < c: operands, and a sign between each two */
    CLAIM_MATRIX,   /* cells row by row */
} claim_kind;

typedef struct claim_node {
    claim_kind kind;
    value_program expression;
    /*
     * number: the expression is one number, a fraction or percentage included; decimal: written
     * with a point
     */
    bool number, decimal;
    struct claim_node **items;
    int count, capacity, columns;
    bool open[2];
    /*
     * relation: '=', '!', '<', '>', 'l' (at most), 'g' (at least) after each operand but the last
     */
    char *signs;
    struct claim_node *next; /* list of all nodes of a book */
} claim_node;

/* What the answers of one comparison share: names of variables, memory, the budget. */
enum { CLAIM_MAX_NAMES = 64, CLAIM_MAX_ITEMS = 256, CLAIM_FIRST_NAME = 0x110000 };
typedef struct claim_book {
    ares_arena *arena;
    math_budget *budget;
    ares_view names[CLAIM_MAX_NAMES];
    int name_count;
    claim_node *nodes; /* all of them, whose expressions claim_verify frees */
} claim_book;
claim_node *claim_new(claim_book *b, claim_kind kind);
/* Appends an item. sign: the relation's between the last item and this one; 0 for other kinds. */
void claim_add(claim_book *b, claim_node *to, claim_node *item, char sign);

/* ------------------------------------------------------------------ claim_extract.c */
/*
 * Removes units, trailing text and dollar signs, and unites different spellings, as Math-Verify
 * does.
 */
ares_view claim_normalize(ares_view text, ares_arena *arena, math_budget *budget);
typedef struct claim_candidate {
    ares_view text;
    bool percent; /* a percent sign follows it */
} claim_candidate;
/*
 * Finds what a response may be claiming (boxes, LaTeX between its signs, numbers and arithmetic in
 * prose), the most trusted first; returns how many, at most `most`.
 */
int claim_candidates(ares_view response, claim_candidate *out, int most, ares_arena *arena,
                     math_budget *budget);

/* ------------------------------------------------------------------ claim_parse.c */
claim_node *claim_parse(claim_book *b, ares_view latex, bool percent); /* NULL: not understood */

/* ------------------------------------------------------------------ claim_same.c */
/*
 * Math-Verify's verdict on a response, extraction included. *extracted: what was taken from the
 * response; data NULL: nothing. *decided_by: "text", "value", "none" (nothing extracted), "no".
 */
bool claim_verify(ares_view gold, ares_view response, math_budget *budget, ares_arena *arena,
                  ares_view *extracted, const char **decided_by);
#endif
