/*
 * Private to reward: expressions and their values, and the claims of Math-Verify, which use them.
 */
#ifndef ARES_REWARD_MATH_VALUE_H
#define ARES_REWARD_MATH_VALUE_H

#include <gmp.h>
#include <mpfr.h>

#include "math.h"

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

/* The different variables of two programs, in the order of their code points. */
enum {
    VALUE_MAX_NAMES = 16,
    VALUE_TRIALS = 8,
    VALUE_BITS = 113,
    VALUE_MAX_EXPONENT = 1000,
    VALUE_MAX_FACTORIAL = 30,
    VALUE_MAX_BITS = 1 << 16
};
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
    claim_node *nodes;
} claim_book;
void claim_book_fini(claim_book *b); /* frees the numbers of all nodes; the rest is the arena's */
claim_node *claim_new(claim_book *b, claim_kind kind);
/* Appends an item. sign: the relation's between the last item and this one; 0 for other kinds. */
void claim_add(claim_book *b, claim_node *to, claim_node *item, char sign);

/* ------------------------------------------------------------------ claim_extract.c */
/*
 * Removes units, trailing text and dollar signs, and unites different spellings, as Math-Verify
 * does.
 */
ares_view claim_normalize(ares_view text, ares_arena *arena, math_budget *budget);
/*
 * Finds what a response may be claiming (boxes, LaTeX between its signs, numbers and arithmetic in
 * prose), the most trusted first; returns how many, at most `most`.
 */
/* percent: a percent sign follows it */
typedef struct claim_candidate {
    ares_view text;
    bool percent;
} claim_candidate;
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
