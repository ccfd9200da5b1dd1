/*
 * A claim is an answer as Math-Verify sees it: a LaTeX text becomes a tree of sets, tuples,
 * intervals, relations, matrices and expressions, and two trees are compared
 * (docs/rewards.md#math-verify; huggingface/Math-Verify with latex2sympy2_extended).
 */
#ifndef ARES_GRADE_MATH_CLAIM_H
#define ARES_GRADE_MATH_CLAIM_H

#include "value.h"

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
bool claim_same(claim_book *b, const claim_node *gold, const claim_node *given);

/* ------------------------------------------------------------------ claim_verify.c */
/*
 * Math-Verify's verdict on a response, extraction included. *extracted: what was taken from the
 * response; data NULL: nothing. *decided_by: "text", "value", "none" (nothing extracted), "no".
 */
bool claim_verify(ares_view gold, ares_view response, math_budget *budget, ares_arena *arena,
                  ares_view *extracted, const char **decided_by);
#endif
