/*
 * Math-Verify's judgement: first when two claims are the same, then a response against the gold
 * answer. claim_extract.c and claim_parse.c make the claims.
 */
#include "math.h"

#include <stdio.h>
#include <string.h>

/*
 * When two answers are the same for Math-Verify. The gold answer's form decides: "x = 5" against
 * "5" compares right sides, and an inequality becomes an interval only where the given answer is
 * one. Decimals are compared to six places; percentages are hundredths.
 */

static bool same(claim_book *b, const claim_node *gold, const claim_node *given, int depth);

/* ------------------------------------------------------------------ expressions */
/* The value of a program without variables: an exact rational, or that of its 113-bit float. */
static bool rational(claim_book *b, const value_program *p, mpq_t out)
{
    value_names none = { .count = 0 };
    value_status status = value_exact(p, b->budget, out);
    if (status != VALUE_INEXACT) return status == VALUE_DONE;
    value_collect_names(p, &none);
    if (none.count) return false;
    value_float f;
    value_float_init(&f);
    if (value_at(p, &none, 0, b->budget, &f) != VALUE_DONE) return false;
    mpfr_get_q(out, f.v);
    return true;
}

/* round(1000000 q), half away from zero */
static void millionths(mpq_t q)
{
    mpq_t scale;
    mpq_init(scale);
    mpq_set_ui(scale, 2000000, 1);
    mpq_mul(q, q, scale);
    bool negative = mpq_sgn(q) < 0;
    mpq_abs(q, q);
    mpz_add(mpq_numref(q), mpq_numref(q), mpq_denref(q)); /* (2x + 1) / 2, floored */
    mpz_mul_2exp(mpq_denref(q), mpq_denref(q), 1);
    mpz_fdiv_q(mpq_numref(q), mpq_numref(q), mpq_denref(q));
    mpz_set_ui(mpq_denref(q), 1);
    if (negative) mpq_neg(q, q);
    mpq_clear(scale);
}

/* Compares programs without variables: to six decimal places, or to within 1e-15. */
static bool near(claim_book *b, const value_program *x, const value_program *y, bool places)
{
    mpq_t p, q;
    mpq_inits(p, q, NULL);
    bool equal = rational(b, x, p) && rational(b, y, q);
    if (equal && places) {
        millionths(p);
        millionths(q);
        equal = mpq_equal(p, q);
    } else if (equal) {
        mpq_t bound;
        mpq_init(bound);
        mpq_set_ui(bound, 1, 1000000000000000);
        mpq_sub(p, p, q);
        mpq_abs(p, p);
        equal = mpq_cmp(p, bound) < 0;
        mpq_clear(bound);
    }
    mpq_clears(p, q, NULL);
    return equal;
}

/* Whether an expression is one variable. */
static bool symbol(const claim_node *n)
{
    return n->expression.count == 1 && n->expression.ops[0].kind == VALUE_VARIABLE;
}
/* The letters of a product of names in order, or the digits of a whole number, into text. */
static bool spelled(const claim_book *b, const claim_node *n, char *text, size_t size, size_t *len)
{
    *len = 0;
    if (n->expression.count == 1 && n->expression.ops[0].kind == VALUE_INTEGER) {
        *len = (size_t)snprintf(text, size, "%d", n->expression.ops[0].argument);
        return true;
    }
    for (int i = 0; i < n->expression.count; i++) {
        value_op op = n->expression.ops[i];
        char one;
        ares_view name = { &one, 1 };
        if (op.kind == VALUE_MUL) continue;
        if (op.kind == VALUE_E) one = 'e';
        else if (op.kind != VALUE_VARIABLE) return false;
        else if (op.argument < CLAIM_FIRST_NAME) one = (char)op.argument;
        else if (op.argument - CLAIM_FIRST_NAME < b->name_count)
            name = b->names[op.argument - CLAIM_FIRST_NAME];
        else return false;
        if (*len + name.len > size) return false;
        memcpy(text + *len, name.data, name.len);
        *len += name.len;
    }
    return *len > 0;
}

/* By name where one is a letter, by decimals where one is a decimal, else by value. */
static bool same_expression(claim_book *b, const claim_node *gold, const claim_node *given)
{
    value_names names = { .count = 0 };
    const value_program *x = &gold->expression, *y = &given->expression;
    value_collect_names(x, &names);
    value_collect_names(y, &names);
    for (int i = 0; i < names.count; i++)
        if (names.name[i] >= CLAIM_FIRST_NAME + CLAIM_MAX_NAMES) return false;
    if (symbol(gold) || symbol(given)) {
        const claim_node *name = symbol(gold) ? gold : given, *other = symbol(gold) ? given : gold;
        char a[256], c[256];
        size_t n, m;
        /* the letter e and Euler's number */
        if (other->expression.count == 1 && other->expression.ops[0].kind == VALUE_E)
            return name->expression.ops[0].argument == 'e';
        return spelled(b, gold, a, sizeof a, &n) && spelled(b, given, c, sizeof c, &m) && n == m &&
               memcmp(a, c, n) == 0;
    }
    if (value_infinity(x) || value_infinity(y)) return value_infinity(x) == value_infinity(y);
    if (names.count == 0) {
        bool one = gold->number || given->number;
        if (one && ((gold->number && gold->decimal) || (given->number && given->decimal)))
            return near(b, x, y, true);
        if (!one && near(b, x, y, false)) return true;
    }
    return value_same(x, y, VALUE_MAX_NAMES, b->budget);
}

/* ------------------------------------------------------------------ sets */
/* Whether the node has elements, by which it is compared. */
static bool set_like(const claim_node *n)
{
    return n->kind == CLAIM_SET || n->kind == CLAIM_TUPLE || n->kind == CLAIM_INTERVAL ||
           n->kind == CLAIM_UNION;
}

/* As many items on both sides, and each the same as its counterpart. */
static bool same_in_order(claim_book *b, claim_node *const *gold, int n, claim_node *const *given,
                          int m, int depth)
{
    if (n != m) return false;
    for (int i = 0; i < n; i++)
        if (!same(b, gold[i], given[i], depth)) return false;
    return true;
}

/* Each item of one finds a partner of its own in the other. */
static bool same_in_any_order(claim_book *b, claim_node *const *gold, int n,
                              claim_node *const *given, int m, int depth)
{
    if (n != m || n > CLAIM_MAX_ITEMS) return false;
    bool taken[CLAIM_MAX_ITEMS] = { false };
    for (int i = 0; i < n; i++) {
        int k = 0;
        /* usually both are in the same order */
        if (!taken[i] && same(b, gold[i], given[i], depth)) k = i;
        else
            while (k < m && (taken[k] || !same(b, gold[i], given[k], depth))) k++;
        if (k == m || b->budget->exhausted) return false;
        taken[k] = true;
    }
    return true;
}

/* The different items of n into out; returns how many. */
static int distinct(claim_book *b, const claim_node *n, claim_node **out, int depth)
{
    int count = 0;
    for (int i = 0; i < n->count; i++) {
        int k = 0;
        while (k < count && !same(b, out[k], n->items[i], depth)) k++;
        if (k == count) out[count++] = n->items[i];
        if (b->budget->exhausted) break;
    }
    return count;
}

/* Intervals by ends, unions and sets in any order, tuples in order. */
static bool same_sets(claim_book *b, const claim_node *gold, const claim_node *given, int depth)
{
    if (gold->kind == CLAIM_INTERVAL && given->kind == CLAIM_INTERVAL)
        return gold->open[0] == given->open[0] && gold->open[1] == given->open[1] &&
               same_in_order(b, gold->items, 2, given->items, 2, depth);
    if (gold->kind == CLAIM_UNION || given->kind == CLAIM_UNION)
        return gold->kind == given->kind &&
               same_in_any_order(b, gold->items, gold->count, given->items, given->count, depth);
    /* from here on an open interval (a, b) counts as the pair a, b, and one value as a set of one
     */
    claim_node *x = (claim_node *)gold, *y = (claim_node *)given;
    claim_node *const *a = set_like(gold) ? gold->items : &x, *const *c = set_like(given)
                                                                              ? given->items
                                                                              : &y;
    int n = set_like(gold) ? gold->count : 1, m = set_like(given) ? given->count : 1;
    for (int side = 0; side < 2; side++) {
        const claim_node *s = side ? given : gold;
        if (s->kind == CLAIM_INTERVAL && !(s->open[0] && s->open[1]) && (side ? n : m) == 2)
            return false;
        if (s->kind == CLAIM_INTERVAL && (side ? n : m) != 2) return false;
    }
    bool ordered = gold->kind == CLAIM_TUPLE || gold->kind == CLAIM_INTERVAL;
    if (ordered) return same_in_order(b, a, n, c, m, depth);
    claim_node *left[CLAIM_MAX_ITEMS], *right[CLAIM_MAX_ITEMS];
    if (gold->kind == CLAIM_SET) n = distinct(b, gold, left, depth), a = left;
    if (given->kind == CLAIM_SET) m = distinct(b, given, right, depth), c = right;
    return same_in_any_order(b, a, n, c, m, depth);
}

/* ------------------------------------------------------------------ relations */
/* a = b, or a = b = c: a relation with no other sign. */
static bool equation(const claim_node *n)
{
    if (n->kind != CLAIM_RELATION) return false;
    for (int i = 0; i + 1 < n->count; i++)
        if (n->signs[i] != '=') return false;
    return true;
}

/* Whether the node is made of names alone, as the left side of x = 5 or (x, y) = (1, 2). */
static bool letters_only(const claim_node *n)
{
    if (n->kind == CLAIM_TUPLE || n->kind == CLAIM_INTERVAL) {
        for (int i = 0; i < n->count; i++)
            if (!letters_only(n->items[i])) return false;
        return true;
    }
    if (n->kind != CLAIM_EXPRESSION) return false;
    for (int i = 0; i < n->expression.count; i++) {
        value_kind kind = n->expression.ops[i].kind;
        if (kind != VALUE_VARIABLE && kind != VALUE_ADD && kind != VALUE_MUL && kind != VALUE_DIV)
            return false;
    }
    return true;
}
/* x = 5, or (x, y) = (1, 2): names on the left side. */
static bool assignment(const claim_node *n)
{
    return equation(n) && letters_only(n->items[0]);
}

/* left - right; NULL when one of them is no expression. */
static claim_node *difference(claim_book *b, const claim_node *left, const claim_node *right)
{
    if (left->kind != CLAIM_EXPRESSION || right->kind != CLAIM_EXPRESSION) return NULL;
    claim_node *n = claim_new(b, CLAIM_EXPRESSION);
    value_emit_program(&n->expression, &left->expression);
    value_emit_program(&n->expression, &right->expression);
    value_emit(&n->expression, VALUE_SUB, 0);
    return n;
}

/* Whether x is y times a constant (a positive one where `positive`). */
static bool proportional(claim_book *b, const value_program *x, const value_program *y,
                         bool positive)
{
    value_names names = { .count = 0 };
    value_collect_names(x, &names);
    value_collect_names(y, &names);
    if (names.count == 0 || names.too_many) return false;
    value_float u, v, ratio, bound;
    value_float_init(&u);
    value_float_init(&v);
    value_float_init(&ratio);
    value_float_init(&bound);
    int valid = 0;
    for (int j = 0; j < VALUE_TRIALS; j++) {
        if (value_at(x, &names, j, b->budget, &u) != VALUE_DONE ||
            value_at(y, &names, j, b->budget, &v) != VALUE_DONE)
            continue;
        if (mpfr_zero_p(u.v) || mpfr_zero_p(v.v)) return false; /* the ratio says nothing */
        mpfr_div(u.v, u.v, v.v, MPFR_RNDN);
        if (valid++ == 0) {
            mpfr_set(ratio.v, u.v, MPFR_RNDN);
            if (positive && mpfr_sgn(u.v) < 0) return false;
            continue;
        }
        mpfr_sub(u.v, u.v, ratio.v, MPFR_RNDN);
        mpfr_set(bound.v, ratio.v, MPFR_RNDN);
        mpfr_div_ui(bound.v, bound.v, 1000000000000000000, MPFR_RNDN);
        if (mpfr_cmpabs(u.v, bound.v) > 0) return false;
    }
    return valid >= 3;
}

/* The sign after both sides have changed places. */
static char flipped(char sign)
{
    return sign == '<' ? '>' : sign == '>' ? '<' : sign == 'l' ? 'g' : sign == 'g' ? 'l' : sign;
}

/*
 * Whether the relations gl gs gr (gold) and hl hs hr (given) say the same: their differences are
 * equal or proportional, sides in either order.
 */
static bool same_relation(claim_book *b, const claim_node *gl, const claim_node *gr, char gs,
                          const claim_node *hl, const claim_node *hr, char hs, int depth)
{
    claim_node *x = difference(b, gl, gr), *y = difference(b, hl, hr), *z = difference(b, hr, hl);
    if (!x || !y) return gs == hs && same(b, gl, hl, depth) && same(b, gr, hr, depth);
    if (gs == hs && same_expression(b, x, y)) return true;
    if (flipped(gs) == hs && same_expression(b, x, z)) return true;
    /* a negative factor turns < and > around, so there it must be positive; = and != take any */
    bool either = gs == '=' || gs == '!';
    if (gs == hs && proportional(b, &x->expression, &y->expression, !either)) return true;
    return flipped(gs) == hs && proportional(b, &x->expression, &z->expression, !either);
}

/* x > 5 or 1 < x <= 2 as an interval; NULL when the relation is not of this form. */
static claim_node *as_interval(claim_book *b, const claim_node *n)
{
    if (n->kind != CLAIM_RELATION || n->count > 3) return NULL;
    int middle = n->count == 3 ? 1 : symbol(n->items[0]) ? 0 : 1; /* where x stands */
    if (n->items[middle]->kind != CLAIM_EXPRESSION || !symbol(n->items[middle])) return NULL;
    const claim_node *ends[2] = { NULL, NULL };
    bool open[2] = { true, true };
    for (int i = 0; i < n->count; i++) {
        if (i == middle) continue;
        char sign = i < middle ? n->signs[i] : flipped(n->signs[i - 1]); /* item sign x */
        int side = sign == '<' || sign == 'l' ? 0 : sign == '>' || sign == 'g' ? 1 : 2;
        if (side == 2 || ends[side] || n->items[i]->kind != CLAIM_EXPRESSION) return NULL;
        ends[side] = n->items[i];
        open[side] = sign == '<' || sign == '>';
    }
    claim_node *out = claim_new(b, CLAIM_INTERVAL);
    for (int side = 0; side < 2; side++) {
        claim_node *end = (claim_node *)ends[side];
        if (!end) {
            end = claim_new(b, CLAIM_EXPRESSION);
            value_emit(&end->expression, VALUE_INF, 0);
            if (side == 0) value_emit(&end->expression, VALUE_NEG, 0);
        }
        claim_add(b, out, end, 0);
        out->open[side] = open[side];
    }
    return out;
}

/* a = b = c as a = c. */
static const claim_node *shortened(claim_book *b, const claim_node *n)
{
    if (n->count == 2) return n;
    claim_node *out = claim_new(b, CLAIM_RELATION);
    claim_add(b, out, n->items[0], 0);
    claim_add(b, out, n->items[n->count - 1], '=');
    return out;
}

/*
 * Whether two nodes are the same. x = a = b counts as x = b; where only one node is an equation,
 * its right side is compared; a gold inequality becomes an interval when the given answer is a set.
 */
static bool same(claim_book *b, const claim_node *gold, const claim_node *given, int depth)
{
    if (depth > MATH_MAX_DEPTH || !value_spend(b->budget, 8)) return false;
    bool assigned = assignment(gold);
    if (assigned) gold = shortened(b, gold);
    if (assignment(given)) given = shortened(b, given);
    if (equation(given) && !equation(gold)) given = given->items[given->count - 1];
    else if (assigned && !equation(given)) gold = gold->items[gold->count - 1];

    if (gold->kind == CLAIM_RELATION && set_like(given)) {
        const claim_node *interval = as_interval(b, gold);
        if (interval) gold = interval;
    }
    if (gold->kind == CLAIM_RELATION && given->kind == CLAIM_RELATION) {
        if (gold->count != given->count) return false;
        for (int i = 0; i + 1 < gold->count; i++)
            if (!same_relation(b, gold->items[i], gold->items[i + 1], gold->signs[i],
                               given->items[i], given->items[i + 1], given->signs[i], depth + 1))
                return false;
        return true;
    }
    /* an infinite end counts as open however it is written */
    if (gold->kind == CLAIM_INTERVAL && given->kind == CLAIM_INTERVAL) {
        for (int side = 0; side < 2; side++)
            if (gold->open[side] != given->open[side] &&
                !(value_infinity(&gold->items[side]->expression) &&
                  value_infinity(&given->items[side]->expression)))
                return false;
        return same_in_order(b, gold->items, 2, given->items, 2, depth + 1);
    }
    if (set_like(gold) || set_like(given)) return same_sets(b, gold, given, depth + 1);
    if (gold->kind == CLAIM_MATRIX || given->kind == CLAIM_MATRIX) {
        if (gold->kind != given->kind || gold->columns != given->columns ||
            gold->count != given->count)
            return false;
        for (int i = 0; i < gold->count; i++)
            if (!same_expression(b, gold->items[i], given->items[i])) return false;
        return true;
    }
    if (gold->kind != CLAIM_EXPRESSION || given->kind != CLAIM_EXPRESSION) return false;
    return same_expression(b, gold, given);
}

/*
 * Math-Verify's verdict on a response: its first claim that can be parsed against the gold
 * answer's; equal texts are equal too. A gold answer without LaTeX signs around it is one answer as
 * a whole, as data sets write them.
 */

enum { MOST = 12 };

/*
 * The first candidate that parses, with its text in *text and *raw; without one NULL, with the text
 * of the first candidate.
 */
static claim_node *first_claim(claim_book *b, ares_view from, bool whole, ares_view *text,
                               ares_view *raw)
{
    claim_candidate list[MOST] = { { from, false } };
    int n = 1;
    bool signs = ares_view_find(from, ARES_VIEW("$"), 0) >= 0 ||
                 ares_view_find(from, ARES_VIEW("\\boxed"), 0) >= 0 ||
                 ares_view_find(from, ARES_VIEW("\\["), 0) >= 0 ||
                 ares_view_find(from, ARES_VIEW("\\("), 0) >= 0;
    if (!whole || signs) n = claim_candidates(from, list, MOST, b->arena, b->budget);
    *text = *raw = (ares_view){ "", 0 };
    for (int i = 0; i < n; i++) {
        ares_view t = claim_normalize(list[i].text, b->arena, b->budget);
        if (i == 0) *text = t, *raw = list[i].text;
        claim_node *node = claim_parse(b, t, list[i].percent);
        if (!node) continue;
        *text = t;
        *raw = list[i].text;
        return node;
    }
    return NULL;
}

bool claim_verify(ares_view gold, ares_view response, math_budget *budget, ares_arena *arena,
                  ares_view *extracted, const char **decided_by)
{
    claim_book book = { .arena = arena, .budget = budget };
    ares_view gold_text, given_text, raw, unused;
    const claim_node *truth = first_claim(&book, gold, true, &gold_text, &unused),
                     *given = first_claim(&book, response, false, &given_text, &raw);
    bool equal = false;
    *decided_by = "no";
    *extracted = raw.len ? raw : (ares_view){ NULL, 0 };
    if (given_text.len == 0) {
        *decided_by = "none";
    } else if (ares_view_eq(gold_text, given_text)) {
        equal = true;
        *decided_by = "text";
    } else if (truth && given && same(&book, truth, given, 0) && !budget->exhausted) {
        equal = true;
        *decided_by = "value";
    }
    /* the numbers of the nodes are GMP's; the rest is the arena's */
    for (claim_node *n = book.nodes; n; n = n->next) value_free(&n->expression);
    mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); /* a thread that ends would leak the cache */
    return equal && !budget->exhausted;
}
