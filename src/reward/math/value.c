/*
 * Numeric values of expressions. In order: evaluating a postfix program, exactly or in floats;
 * parsing a text to such a program; whether two texts have the same value.
 */
#include "math.h"

#include <string.h>

/*
 * The two evaluators: loops over a postfix program with a stack of operands. Exponents, factorials
 * and sizes are bounded before the work is done. Beyond the bounds a value is invalid (an exponent
 * above 1000, 31!), or is computed in floats in place of exactly (a rational of more than 65,536
 * bits).
 */

bool value_spend(math_budget *budget, int64_t steps)
{
    if (budget->steps < steps) budget->steps = 0, budget->exhausted = true;
    else budget->steps -= steps;
    return !budget->exhausted;
}

/* The list stays sorted, so that two programs give their variables the same trial values. */
void value_collect_names(const value_program *p, value_names *names)
{
    for (int i = 0; i < p->count; i++) {
        if (p->ops[i].kind != VALUE_VARIABLE) continue;
        int32_t name = p->ops[i].argument;
        int k = 0;
        while (k < names->count && names->name[k] < name) k++;
        if (k < names->count && names->name[k] == name) continue;
        if (names->count == VALUE_MAX_NAMES) {
            names->too_many = true;
            return;
        }
        memmove(names->name + k + 1, names->name + k,
                (size_t)(names->count - k) * sizeof *names->name);
        names->name[k] = name;
        names->count++;
    }
}

/* Only inf and its negations are an infinity; "inf + 1" is a value that cannot be computed. */
int value_infinity(const value_program *p)
{
    int sign = 1;
    if (p->failed || p->count == 0 || p->ops[0].kind != VALUE_INF) return 0;
    for (int i = 1; i < p->count; i++) {
        if (p->ops[i].kind != VALUE_NEG) return 0;
        sign = -sign;
    }
    return sign;
}

/* ------------------------------------------------------------------ exact */
/* Size of numerator and denominator together. */
static int64_t bits(mpq_srcptr q)
{
    return (int64_t)(mpz_sizeinbase(mpq_numref(q), 2) + mpz_sizeinbase(mpq_denref(q), 2));
}

/* Whether q is an integer that fits into a long. */
static bool small(mpq_srcptr q, long *n)
{
    if (mpz_cmp_ui(mpq_denref(q), 1) != 0 || !mpz_fits_slong_p(mpq_numref(q))) return false;
    *n = mpz_get_si(mpq_numref(q));
    return true;
}

/* a = kind(a), or a = a kind b for kinds of two operands (b is unused by the others). */
static value_status exact_step(value_kind kind, mpq_ptr a, mpq_srcptr b, math_budget *budget)
{
    long n;
    switch (kind) {
    case VALUE_NEG: mpq_neg(a, a); return VALUE_DONE;
    case VALUE_ABS: mpq_abs(a, a); return VALUE_DONE;
    case VALUE_FLOOR:
    case VALUE_CEIL:
        if (!value_spend(budget, 4 + bits(a) / 64 * (bits(a) / 64) / 8)) return VALUE_INVALID;
        (kind == VALUE_FLOOR ? mpz_fdiv_q : mpz_cdiv_q)(mpq_numref(a), mpq_numref(a),
                                                        mpq_denref(a));
        mpz_set_ui(mpq_denref(a), 1);
        return VALUE_DONE;
    case VALUE_FACTORIAL:
        if (!small(a, &n) || n < 0 || n > VALUE_MAX_FACTORIAL) return VALUE_INVALID;
        mpz_fac_ui(mpq_numref(a), (unsigned long)n);
        return VALUE_DONE;
    case VALUE_POW: {
        if (mpz_cmp_ui(mpq_denref(b), 1) != 0) return VALUE_INEXACT; /* 2^(1/2) */
        if (!small(b, &n) || n > VALUE_MAX_EXPONENT || n < -VALUE_MAX_EXPONENT)
            return VALUE_INVALID;
        unsigned long times = (unsigned long)(n < 0 ? -n : n);
        int64_t size = bits(a) * (int64_t)times; /* bits of the result, at most */
        if (size > VALUE_MAX_BITS) return VALUE_INEXACT;
        if (n < 0 && mpq_sgn(a) == 0) return VALUE_INVALID;
        if (!value_spend(budget, 8 + size * size / (64 * 64 * 8))) return VALUE_INVALID;
        if (n < 0) mpq_inv(a, a);
        /* powers of numbers in lowest terms are in lowest terms */
        mpz_pow_ui(mpq_numref(a), mpq_numref(a), times);
        mpz_pow_ui(mpq_denref(a), mpq_denref(a), times);
        return VALUE_DONE;
    }
    case VALUE_BINOMIAL: { /* of a over b; exact for whole numbers only */
        long times;
        if (!small(b, &times) || times > VALUE_MAX_EXPONENT) return VALUE_INVALID;
        if (times < 0) {
            mpq_set_ui(a, 0, 1);
            return VALUE_DONE;
        }
        if (bits(a) * times > VALUE_MAX_BITS) return VALUE_INEXACT;
        if (!value_spend(budget, 16 + times * (bits(a) / 64 + 1) * times / 8)) return VALUE_INVALID;
        if (!small(a, &n)) return VALUE_INEXACT;
        mpz_bin_ui(mpq_numref(a), mpq_numref(a), (unsigned long)times);
        return VALUE_DONE;
    }
    case VALUE_ADD:
    case VALUE_SUB:
    case VALUE_MUL:
    case VALUE_DIV:
        if (kind == VALUE_DIV && mpq_sgn(b) == 0) return VALUE_INVALID;
        if (bits(a) + bits(b) > VALUE_MAX_BITS) return VALUE_INEXACT;
        /* multiplying and reducing cost at most the product of the sizes in words */
        if (!value_spend(budget, 4 + (bits(a) / 64 + 1) * (bits(b) / 64 + 1) / 8))
            return VALUE_INVALID;
        (kind == VALUE_ADD   ? mpq_add
         : kind == VALUE_SUB ? mpq_sub
         : kind == VALUE_MUL ? mpq_mul
                             : mpq_div)(a, a, b);
        return VALUE_DONE;
    default: return VALUE_INEXACT; /* roots, logarithms and functions: the floats' */
    }
}

value_status value_exact(const value_program *p, math_budget *budget, mpq_t out)
{
    if (p->failed || p->count == 0) return VALUE_INVALID;
    /* the kinds that keep a rational rational; checked first, so that no work is done in vain */
    for (int i = 0; i < p->count; i++) {
        value_kind kind = p->ops[i].kind;
        if (kind > VALUE_LITERAL && (kind < VALUE_NEG || kind > VALUE_CEIL) &&
            (kind < VALUE_ADD || kind > VALUE_POW) && kind != VALUE_BINOMIAL)
            return VALUE_INEXACT;
    }
    if (!value_spend(budget, 2 * p->count)) return VALUE_INVALID;
    mpq_t *stack = ares_arena_alloc(p->arena, (size_t)p->max_depth * sizeof *stack);
    for (int i = 0; i < p->max_depth; i++) mpq_init(stack[i]);
    value_status status = VALUE_DONE;
    int n = 0;
    for (int i = 0; i < p->count && status == VALUE_DONE; i++) {
        value_op op = p->ops[i];
        if (op.kind == VALUE_INTEGER) mpq_set_si(stack[n++], op.argument, 1);
        else if (op.kind == VALUE_LITERAL) mpq_set(stack[n++], p->literals[op.argument]);
        else {
            n -= op.kind >= VALUE_ADD; /* kinds from there on take two operands */
            status =
                exact_step(op.kind, stack[n - 1], op.kind < VALUE_ADD ? NULL : stack[n], budget);
        }
    }
    if (status == VALUE_DONE) mpq_set(out, stack[0]);
    for (int i = 0; i < p->max_depth; i++) mpq_clear(stack[i]);
    return status;
}

/* ------------------------------------------------------------------ floats */
#define RN MPFR_RNDN
enum {
    FLOAT_STEPS = 4,           /* cost of one operation in steps */
    FUNCTION_STEPS = 200,      /* cost of a sine or a logarithm */
    MAX_FLOAT_EXPONENT = 16384 /* the range of IEEE binary128 */
};

void value_float_init(value_float *f)
{
    mpfr_custom_init(f->limbs, VALUE_BITS);
    mpfr_custom_init_set(f->v, MPFR_ZERO_KIND, 0, VALUE_BITS, f->limbs);
}

/* Operations with one operand; false outside their domain. */
static bool float_one(value_kind kind, mpfr_ptr a, math_budget *budget)
{
    switch (kind) {
    case VALUE_NEG: return mpfr_neg(a, a, RN), true;
    case VALUE_ABS: return mpfr_abs(a, a, RN), true;
    case VALUE_FLOOR: return mpfr_floor(a, a), true;
    case VALUE_CEIL: return mpfr_ceil(a, a), true;
    case VALUE_SQRT:
        if (mpfr_sgn(a) < 0) return false;
        return mpfr_sqrt(a, a, RN), true;
    case VALUE_FACTORIAL:
        if (!mpfr_integer_p(a) || mpfr_sgn(a) < 0 || mpfr_cmp_ui(a, VALUE_MAX_FACTORIAL) > 0)
            return false;
        return mpfr_fac_ui(a, mpfr_get_ui(a, RN), RN), true;
    default: break;
    }
    if (!value_spend(budget, FUNCTION_STEPS)) return false;
    switch (kind) {
    case VALUE_SIN: return mpfr_sin(a, a, RN), true;
    case VALUE_COS: return mpfr_cos(a, a, RN), true;
    case VALUE_TAN: return mpfr_tan(a, a, RN), true;
    case VALUE_COT: return mpfr_cot(a, a, RN), true;
    case VALUE_SEC: return mpfr_sec(a, a, RN), true;
    case VALUE_CSC: return mpfr_csc(a, a, RN), true;
    case VALUE_ARCSIN: return mpfr_asin(a, a, RN), true;
    case VALUE_ARCCOS: return mpfr_acos(a, a, RN), true;
    case VALUE_ARCTAN: return mpfr_atan(a, a, RN), true;
    case VALUE_EXP: return mpfr_exp(a, a, RN), true;
    case VALUE_LN:
        if (mpfr_sgn(a) <= 0) return false;
        return mpfr_log(a, a, RN), true;
    default: return false;
    }
}

/* n (n - 1) .. (n - k + 1) / k!, for any n and a whole k; 0 for a negative k. */
static bool float_binomial(mpfr_ptr n, mpfr_srcptr k, math_budget *budget)
{
    if (!mpfr_integer_p(k) || mpfr_cmp_si(k, VALUE_MAX_EXPONENT) > 0) return false;
    long times = mpfr_sgn(k) < 0 ? -1 : mpfr_get_si(k, RN);
    if (!value_spend(budget, 4 + times * FLOAT_STEPS * 2)) return false;
    value_float factor, product;
    value_float_init(&factor);
    value_float_init(&product);
    mpfr_set_ui(product.v, times < 0 ? 0 : 1, RN);
    for (long i = 0; i < times; i++) {
        mpfr_sub_si(factor.v, n, i, RN);
        mpfr_mul(product.v, product.v, factor.v, RN);
        mpfr_div_si(product.v, product.v, i + 1, RN);
    }
    mpfr_set(n, product.v, RN);
    return true;
}

/* a = a kind b; false where it is not defined. */
static bool float_two(value_kind kind, mpfr_ptr a, mpfr_srcptr b, math_budget *budget)
{
    switch (kind) {
    case VALUE_ADD: return mpfr_add(a, a, b, RN), true;
    case VALUE_SUB: return mpfr_sub(a, a, b, RN), true;
    case VALUE_MUL: return mpfr_mul(a, a, b, RN), true;
    case VALUE_DIV:
        if (mpfr_zero_p(b)) return false;
        return mpfr_div(a, a, b, RN), true;
    case VALUE_POW:
        if (mpfr_cmp_si(b, VALUE_MAX_EXPONENT) > 0 || mpfr_cmp_si(b, -VALUE_MAX_EXPONENT) < 0)
            return false;
        if (mpfr_zero_p(a) && mpfr_sgn(b) < 0) return false;
        if (mpfr_integer_p(b)) /* a negative a has powers too */
            return value_spend(budget, 16) && (mpfr_pow_si(a, a, mpfr_get_si(b, RN), RN), true);
        if (mpfr_sgn(a) < 0 || !value_spend(budget, 2 * FUNCTION_STEPS)) return false;
        return mpfr_pow(a, a, b, RN), true;
    case VALUE_ROOT: { /* the |b|-th root of a >= 0, inverted for a negative b */
        if (!mpfr_integer_p(b) || mpfr_zero_p(b) || mpfr_cmp_si(b, VALUE_MAX_EXPONENT) > 0 ||
            mpfr_cmp_si(b, -VALUE_MAX_EXPONENT) < 0)
            return false;
        long k = mpfr_get_si(b, RN);
        if (mpfr_sgn(a) < 0 || (k < 0 && mpfr_zero_p(a)) || !value_spend(budget, FUNCTION_STEPS))
            return false;
        mpfr_rootn_ui(a, a, (unsigned long)(k < 0 ? -k : k), RN);
        if (k < 0) mpfr_ui_div(a, 1, a, RN);
        return true;
    }
    case VALUE_BINOMIAL: return float_binomial(a, b, budget);
    case VALUE_LOG_BASE: { /* ln a / ln b */
        if (mpfr_sgn(a) <= 0 || mpfr_sgn(b) <= 0 || mpfr_cmp_ui(b, 1) == 0 ||
            !value_spend(budget, 2 * FUNCTION_STEPS))
            return false;
        value_float under;
        value_float_init(&under);
        mpfr_log(under.v, b, RN);
        mpfr_log(a, a, RN);
        return mpfr_div(a, a, under.v, RN), true;
    }
    default: return false;
    }
}

value_status value_at(const value_program *p, const value_names *names, int trial,
                      math_budget *budget, value_float *out)
{
    if (p->failed || p->count == 0 || !value_spend(budget, (int64_t)p->count * FLOAT_STEPS))
        return VALUE_INVALID;
    value_float *stack = ares_arena_alloc(p->arena, (size_t)p->max_depth * sizeof *stack);
    for (int i = 0; i < p->max_depth; i++) value_float_init(&stack[i]);
    int n = 0;
    for (int i = 0; i < p->count; i++) {
        value_op op = p->ops[i];
        bool valid = true;
        switch (op.kind) {
        case VALUE_INTEGER: mpfr_set_si(stack[n++].v, op.argument, RN); break;
        case VALUE_LITERAL: mpfr_set_q(stack[n++].v, p->literals[op.argument], RN); break;
        case VALUE_VARIABLE: {
            int k = 0;
            while (k < names->count && names->name[k] != op.argument) k++;
            /* different for every variable and trial, of either sign, and no whole number */
            long hundredths = 37 + 61 * k + 113 * trial;
            mpfr_set_si(stack[n].v, trial % 2 ? -hundredths : hundredths, RN);
            mpfr_div_ui(stack[n].v, stack[n].v, 100, RN);
            n++;
            break;
        }
        case VALUE_PI: mpfr_const_pi(stack[n++].v, RN); break;
        case VALUE_E:
            mpfr_set_ui(stack[n].v, 1, RN);
            mpfr_exp(stack[n].v, stack[n].v, RN);
            n++;
            break;
        case VALUE_INF: return VALUE_INVALID; /* arithmetic with infinity is not defined */
        default:
            if (op.kind < VALUE_ADD) valid = float_one(op.kind, stack[n - 1].v, budget);
            else n--, valid = float_two(op.kind, stack[n - 1].v, stack[n].v, budget);
        }
        if (!valid) return VALUE_INVALID;
        mpfr_ptr top = stack[n - 1].v;
        if (mpfr_zero_p(top)) continue;
        if (!mpfr_number_p(top) || mpfr_get_exp(top) > MAX_FLOAT_EXPONENT) return VALUE_INVALID;
        if (mpfr_get_exp(top) < -MAX_FLOAT_EXPONENT) mpfr_set_zero(top, 1);
    }
    mpfr_set(out->v, stack[0].v, RN);
    return VALUE_DONE;
}

bool value_same(const value_program *a, const value_program *b, int max_names, math_budget *budget)
{
    value_names names = { .count = 0 };
    if (a->failed || b->failed) return false;
    int sign = value_infinity(a);
    if (sign || value_infinity(b)) return sign == value_infinity(b);
    value_collect_names(a, &names);
    value_collect_names(b, &names);
    if (names.too_many || names.count > max_names) return false;
    if (names.count == 0) { /* exactly first; floats decide where roots or functions occur */
        mpq_t x, y;
        mpq_inits(x, y, NULL);
        value_status left = value_exact(a, budget, x),
                     right = left == VALUE_DONE ? value_exact(b, budget, y) : left;
        bool same = right == VALUE_DONE && mpq_equal(x, y);
        mpq_clears(x, y, NULL);
        if (right != VALUE_INEXACT) return same && !budget->exhausted;
    }
    /* |a - b| <= 1e-24 max(1, |a|, |b|) at all points where both are valid, of which there must be
     * three (one without variables) */
    int valid = 0, trials = names.count ? VALUE_TRIALS : 1; /* without variables all are one */
    bool same = true;
    value_float x, y, bound;
    value_float_init(&x);
    value_float_init(&y);
    value_float_init(&bound);
    for (int j = 0; j < trials && same; j++) {
        if (value_at(a, &names, j, budget, &x) != VALUE_DONE ||
            value_at(b, &names, j, budget, &y) != VALUE_DONE)
            continue;
        valid++;
        mpfr_set_ui(bound.v, 1, RN);
        if (mpfr_cmpabs(x.v, bound.v) > 0) mpfr_abs(bound.v, x.v, RN);
        if (mpfr_cmpabs(y.v, bound.v) > 0) mpfr_abs(bound.v, y.v, RN);
        mpfr_div_ui(bound.v, bound.v, 1000000000000, RN); /* 1e24 fits no unsigned long */
        mpfr_div_ui(bound.v, bound.v, 1000000000000, RN);
        mpfr_sub(x.v, x.v, y.v, RN);
        same = mpfr_cmpabs(x.v, bound.v) <= 0;
    }
    mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); /* a thread that ends would leak the cache */
    return same && !budget->exhausted && valid >= (names.count ? 3 : 1);
}

/*
 * Normalised text -> postfix program. Sums, products (factors side by side bind like "*", so 1/2x
 * is (1/2)x), signs, powers (right associative), postfix "!", brackets, functions with a bracket
 * after their name, pi, inf, single letters, decimal numbers.
 *
 * Chains of signs and of left-associative operators are loops; brackets, exponents and arguments
 * count against MATH_MAX_DEPTH.
 */

typedef struct parser {
    value_program *p;
    ares_view text;
    size_t at;
    int depth;
    bool reference;
    math_budget *budget;
} parser;

typedef struct word {
    const char *name;
    value_kind kind;
    int operands;
} word;
static const word words[] = {
    { "arcsin", VALUE_ARCSIN, 1 }, { "arccos", VALUE_ARCCOS, 1 },
    { "arctan", VALUE_ARCTAN, 1 }, { "binomial", VALUE_BINOMIAL, 2 },
    { "sqrt", VALUE_SQRT, 1 },     { "root", VALUE_ROOT, 2 },
    { "sin", VALUE_SIN, 1 },       { "cos", VALUE_COS, 1 },
    { "tan", VALUE_TAN, 1 },       { "cot", VALUE_COT, 1 },
    { "sec", VALUE_SEC, 1 },       { "csc", VALUE_CSC, 1 },
    { "log", VALUE_LN, 1 },        { "ln", VALUE_LN, 1 },
    { "exp", VALUE_EXP, 1 },       { "pi", VALUE_PI, 0 },
    { "inf", VALUE_INF, 0 },
};

/* ------------------------------------------------------------------ programs */
void value_init(value_program *p, ares_arena *arena)
{
    *p = (value_program){ .arena = arena };
}

void value_free(value_program *p)
{
    for (int i = 0; i < p->literal_count; i++) mpq_clear(p->literals[i]);
    p->literal_count = 0;
}

void value_emit(value_program *p, value_kind kind, int32_t argument)
{
    if (p->count == p->capacity) {
        int capacity = p->capacity ? 2 * p->capacity : 32;
        value_op *ops = ares_arena_alloc(p->arena, (size_t)capacity * sizeof *ops);
        if (p->count) memcpy(ops, p->ops, (size_t)p->count * sizeof *ops);
        p->ops = ops;
        p->capacity = capacity;
    }
    p->ops[p->count++] = (value_op){ kind, argument };
    /* a leaf pushes an operand, a function replaces one, an operator makes one of two */
    p->depth += kind < VALUE_NEG ? 1 : kind < VALUE_ADD ? 0 : -1;
    p->max_depth = ARES_MAX(p->max_depth, p->depth);
    if (p->depth < 1) p->failed = true;
}

/* Appends a literal with the value 0. */
static mpq_ptr literal(value_program *p)
{
    if (p->literal_count == p->literal_capacity) {
        int capacity = p->literal_capacity ? 2 * p->literal_capacity : 8;
        mpq_t *literals = ares_arena_alloc(p->arena, (size_t)capacity * sizeof *literals);
        /* GMP numbers may be moved in memory */
        if (p->literal_count)
            memcpy(literals, p->literals, (size_t)p->literal_count * sizeof *literals);
        p->literals = literals;
        p->literal_capacity = capacity;
    }
    mpq_init(p->literals[p->literal_count]);
    value_emit(p, VALUE_LITERAL, p->literal_count);
    return p->literals[p->literal_count++];
}

void value_emit_program(value_program *p, const value_program *from)
{
    for (int i = 0; i < from->count; i++) {
        if (from->ops[i].kind == VALUE_LITERAL)
            mpq_set(literal(p), from->literals[from->ops[i].argument]);
        else value_emit(p, from->ops[i].kind, from->ops[i].argument);
    }
    p->decimals += from->decimals;
    p->decimal_digits = ARES_MAX(p->decimal_digits, from->decimal_digits);
    p->failed |= from->failed;
}

/* ------------------------------------------------------------------ numbers */
/*
 * The exponent after the digits of a number; *end: where it stands, then after it. Without one *end
 * stays.
 */
static int read_exponent(value_program *p, ares_view text, size_t *end)
{
    size_t j = *end;
    if (j >= text.len || (text.data[j] != 'e' && text.data[j] != 'E')) return 0;
    j++;
    bool negative = j < text.len && text.data[j] == '-';
    if (j < text.len && (text.data[j] == '-' || text.data[j] == '+')) j++;
    if (j >= text.len || !ares_is_digit(text.data[j])) return 0;
    int exponent = 0;
    for (; j < text.len && ares_is_digit(text.data[j]); j++)
        exponent = exponent > VALUE_MAX_EXPONENT ? exponent : exponent * 10 + (text.data[j] - '0');
    if (exponent > VALUE_MAX_EXPONENT) p->failed = true, exponent = 0;
    *end = j;
    return negative ? -exponent : exponent;
}

size_t value_emit_number(value_program *p, ares_view text, size_t at, bool scientific)
{
    size_t i = at, digits = 0, point = 0; /* point: digits after the decimal point */
    bool pointed = false;
    int32_t whole = 0;
    for (; i < text.len; i++) {
        if (ares_is_digit(text.data[i])) {
            if (digits++ < 9) whole = whole * 10 + (text.data[i] - '0');
            point += pointed;
        } else if (text.data[i] == '.' && !pointed) {
            pointed = true;
        } else {
            break;
        }
    }
    if (digits == 0) return 0;
    ares_view written = { text.data + at, i - at };
    int exponent = scientific ? read_exponent(p, text, &i) : 0;
    bool powered = i - at > written.len;
    if (!pointed && !powered && digits <= 9) {
        value_emit(p, VALUE_INTEGER, whole);
        return i - at;
    }
    if (digits > MATH_MAX_BYTES) {
        p->failed = true;
        return i - at;
    }
    /* digits without their point, times ten to the power of scale, exactly: 1.5e3 is 15 x 10^2 */
    int64_t scale = (int64_t)exponent - (int64_t)point;
    mpq_ptr q = literal(p);
    char *plain = ares_arena_alloc(p->arena, written.len + 1);
    size_t n = 0;
    for (size_t k = 0; k < written.len; k++)
        if (written.data[k] != '.') plain[n++] = written.data[k];
    plain[n] = 0;
    mpz_set_str(mpq_numref(q), plain, 10);
    mpz_t ten;
    mpz_init(ten);
    mpz_ui_pow_ui(ten, 10, (unsigned long)(scale < 0 ? -scale : scale));
    if (scale < 0) mpz_set(mpq_denref(q), ten);
    else mpz_mul(mpq_numref(q), mpq_numref(q), ten);
    mpz_clear(ten);
    mpq_canonicalize(q);
    if (pointed || powered) {
        p->decimals++;
        p->decimal_digits = ARES_MAX(p->decimal_digits, (int)digits);
    }
    return i - at;
}

/* ------------------------------------------------------------------ the grammar */
/* The current character; 0 at the end. */
static char peek(const parser *s)
{
    return s->at < s->text.len ? s->text.data[s->at] : 0;
}
/* Marks the program as failed; false, for the caller to return. */
static bool fail(parser *s)
{
    s->p->failed = true;
    return false;
}
static bool sum(parser *s);

/* "(", operands with commas between them, ")" */
static bool bracketed(parser *s, int operands)
{
    if (peek(s) != '(' || ++s->depth > MATH_MAX_DEPTH) return fail(s);
    for (int i = 0; i < operands; i++) {
        s->at++; /* "(" or "," */
        if (!sum(s) || peek(s) != (i + 1 < operands ? ',' : ')')) return fail(s);
    }
    s->at++;
    s->depth--;
    return true;
}

/*
 * The word at the current place, functions only before a bracket; NULL when there is none. *bytes:
 * of the name (letters, digits, "_") that begins here. Our own rules take the first word that fits,
 * so "pir" is pi times r. The reference's tokenizer takes the whole name at once: a name that is
 * not known as a whole is read letter by letter.
 */
static const word *word_here(const parser *s, size_t *bytes)
{
    size_t end = s->at;
    while (end < s->text.len && (edit_letter(s->text.data[end]) ||
                                 ares_is_digit(s->text.data[end]) || s->text.data[end] == '_'))
        end++;
    *bytes = end - s->at;
    for (int i = 0; i < ARES_COUNT(words); i++) {
        const word *w = &words[i];
        if (!edit_at(s->text, s->at, w->name)) continue;
        size_t n = strlen(w->name);
        bool called = s->at + n < s->text.len && s->text.data[s->at + n] == '(';
        if (s->reference && (n != *bytes || w->kind == VALUE_INF || w->operands > 1)) continue;
        if (w->operands == 0 || called) return w;
    }
    return NULL;
}

/* A bracket, a number, a word (a function or a constant), or a letter as a variable. */
static bool primary(parser *s)
{
    char c = peek(s);
    if (!value_spend(s->budget, 1)) return fail(s);
    if (c == '(') return bracketed(s, 1);
    if (ares_is_digit(c) || c == '.') {
        /* the reference reads "05" as 0 and 5 */
        if (s->reference && c == '0' && s->at + 1 < s->text.len &&
            ares_is_digit(s->text.data[s->at + 1])) {
            size_t end = s->at;
            while (end < s->text.len && ares_is_digit(s->text.data[end])) end++;
            if (end == s->text.len || (s->text.data[end] != '.' && s->text.data[end] != 'e')) {
                s->at++;
                value_emit(s->p, VALUE_INTEGER, 0);
                return true;
            }
        }
        size_t n = value_emit_number(s->p, s->text, s->at, true);
        s->at += n;
        return n && !s->p->failed ? true : fail(s);
    }
    if (edit_letter(c)) {
        size_t bytes = 0;
        const word *w = word_here(s, &bytes);
        if (!w && s->reference) {
            /* reads a name that sympy does not know as the product of its letters and numbers */
            ares_view name = { s->text.data + s->at, bytes };
            /* sympy takes these Greek names for one symbol */
            static const char *const whole[] = { "mu", "nu", "xi" };
            for (int i = 0; i < ARES_COUNT(whole); i++) {
                if (!ares_view_is(name, whole[i])) continue;
                value_emit(s->p, VALUE_VARIABLE, 0x110000 + i);
                s->at += bytes;
                return true;
            }
            /* "x_1" is one symbol of sympy, and "oo" its infinity: neither is read here */
            if (memchr(name.data, '_', name.len) || ares_view_is(name, "oo")) return fail(s);
            size_t end = s->at + bytes, factors = 0;
            while (s->at < end) {
                if (ares_is_digit(peek(s))) {
                    size_t stop = s->at;
                    while (stop < end && ares_is_digit(s->text.data[stop])) stop++;
                    s->at +=
                        value_emit_number(s->p, (ares_view){ s->text.data, stop }, s->at, false);
                } else {
                    value_emit(s->p, VALUE_VARIABLE, peek(s));
                    s->at++;
                }
                if (factors++) value_emit(s->p, VALUE_MUL, 0);
            }
            return true;
        }
        if (!w) {
            value_emit(s->p, VALUE_VARIABLE, c);
            s->at++;
            return true;
        }
        s->at += strlen(w->name);
        if (w->operands && !bracketed(s, w->operands)) return false;
        value_emit(s->p, w->kind, 0);
        return true;
    }
    /* a letter outside ASCII is one variable */
    uint32_t wide = (unsigned char)c >= 0x80 ? edit_alpha(s->text, s->at) : 0;
    if (!wide) return fail(s);
    value_emit(s->p, VALUE_VARIABLE, (int32_t)wide);
    s->at += edit_char(s->text, s->at);
    return true;
}

/* Skips the signs before an operand; true when together they are negative. */
static bool signs(parser *s)
{
    bool negative = false;
    for (; peek(s) == '-' || peek(s) == '+'; s->at++) negative ^= peek(s) == '-';
    return negative;
}

/* An operand with its "!" and its power: 2^-1, x**2, and 2^3^2 as 2^9. */
static bool power(parser *s)
{
    if (!primary(s)) return false;
    for (; peek(s) == '!'; s->at++) value_emit(s->p, VALUE_FACTORIAL, 0);
    if (edit_at(s->text, s->at, "**")) s->at++; /* Python's sign of a power */
    else if (peek(s) != '^') return true;
    s->at++;
    bool negative = signs(s);
    if (++s->depth > MATH_MAX_DEPTH || !power(s)) return fail(s);
    s->depth--;
    if (negative) value_emit(s->p, VALUE_NEG, 0);
    value_emit(s->p, VALUE_POW, 0);
    return true;
}

/* Signs bind looser than powers: -2^2 is -4. */
static bool operand(parser *s)
{
    bool negative = signs(s);
    if (!power(s)) return false;
    if (negative) value_emit(s->p, VALUE_NEG, 0);
    return true;
}

/* Operands with "*" or "/" between them, or side by side. */
static bool product(parser *s)
{
    if (!operand(s)) return false;
    for (;;) {
        char c = peek(s);
        bool number_before =
            s->at > 0 && (ares_is_digit(s->text.data[s->at - 1]) || s->text.data[s->at - 1] == '.');
        if (c == '*' || c == '/') {
            s->at++;
            if (!operand(s)) return false;
            value_emit(s->p, c == '*' ? VALUE_MUL : VALUE_DIV, 0);
        } else if (c == '(' || edit_letter(c) || (unsigned char)c >= 0x80 ||
                   ((ares_is_digit(c) || c == '.') && (s->reference || !number_before))) {
            if (!power(s)) return false;
            value_emit(s->p, VALUE_MUL, 0);
        } else {
            return true;
        }
    }
}

/* Products with signs between them, from left to right. */
static bool sum(parser *s)
{
    if (!product(s)) return false;
    while (peek(s) == '+' || peek(s) == '-') {
        char c = peek(s);
        s->at++;
        if (!product(s)) return false;
        value_emit(s->p, c == '+' ? VALUE_ADD : VALUE_SUB, 0);
    }
    return true;
}

void value_parse(value_program *p, ares_view text, bool reference, math_budget *budget)
{
    parser s = { .p = p, .text = text, .reference = reference, .budget = budget };
    if (text.len == 0 || text.len > MATH_MAX_BYTES || !sum(&s) || s.at != text.len)
        p->failed = true;
}

/*
 * Whether two normalised texts have the same value (docs/rewards.md#equal-values): by our rules,
 * and as the original judges, which is sympy's parse of (truth)-(given) with its own refusals; here
 * the evaluators decide whether that is zero.
 */

bool math_same_value(ares_view a, ares_view b, math_budget *budget, ares_arena *arena)
{
    if (a.len > MATH_MAX_BYTES || b.len > MATH_MAX_BYTES) return false;
    if (ares_view_eq(a, b)) return true;
    value_program x, y;
    value_init(&x, arena);
    value_init(&y, arena);
    value_parse(&x, a, false, budget);
    if (!x.failed) value_parse(&y, b, false, budget);
    bool same = !x.failed && !y.failed && value_same(&x, &y, 2, budget);
    value_free(&x);
    value_free(&y);
    return same;
}

/* ------------------------------------------------------------------ the original */
/*
 * Collects the different letters of the text, the words sqrt and frac aside; a third one refuses
 * it.
 */
static void count_letters(ares_view t, int32_t seen[3], int *count)
{
    for (size_t i = 0; i < t.len;) {
        ares_view rest = { t.data + i, t.len - i };
        if (ares_view_starts(rest, ARES_VIEW("sqrt")) ||
            ares_view_starts(rest, ARES_VIEW("frac"))) {
            i += 4;
            continue;
        }
        int32_t c = (int32_t)edit_alpha(t, i);
        i += edit_char(t, i);
        if (!c) continue;
        int k = 0;
        while (k < *count && seen[k] != c) k++;
        if (k == *count && k < 3) seen[(*count)++] = c;
    }
}

/*
 * Whether the original refuses the text: for "^{", "^(", ^digits^, or "^" followed by two digits.
 */
static bool refused(ares_view t)
{
    for (size_t i = 0; i + 1 < t.len; i++) {
        if (t.data[i] != '^') continue;
        char c = t.data[i + 1];
        if (c == '{' || c == '(') return true;
        size_t end = i + 1;
        while (end < t.len && t.data[end] >= '0' && t.data[end] <= '9') end++;
        if (end >= i + 3 || (end == i + 2 && end < t.len && t.data[end] == '^')) return true;
    }
    return false;
}

/*
 * The original's decimals are binary floats: literals are rounded first, and a difference of
 * rationals is zero when both sides round to the same float.
 */
static void round_literals(value_program *p, mpfr_ptr rounded)
{
    for (int i = 0; i < p->literal_count; i++) {
        if (mpz_cmp_ui(mpq_denref(p->literals[i]), 1) == 0) continue;
        mpfr_set_q(rounded, p->literals[i], MPFR_RNDN);
        mpfr_get_q(p->literals[i], rounded);
    }
}

bool math_same_value_reference(ares_view given, ares_view truth, math_budget *budget,
                               ares_arena *arena)
{
    int32_t seen[3];
    int letters = 0;
    if (given.len > MATH_MAX_BYTES || truth.len > MATH_MAX_BYTES) return false;
    count_letters(truth, seen, &letters);
    count_letters(given, seen, &letters);
    if (letters > 2 || refused(truth) || refused(given)) return false;
    value_program x, y;
    value_init(&x, arena);
    value_init(&y, arena);
    value_parse(&x, truth, true, budget);
    if (!x.failed) value_parse(&y, given, true, budget);
    bool same = false;
    if (!x.failed && !y.failed) {
        bool decided = false;
        if (x.decimals + y.decimals) {
            /* whether x and y round to the same float of as many digits as their literals have */
            int digits = ARES_MAX(x.decimal_digits, y.decimal_digits);
            /* as sympy: a double up to 15 digits, beyond them as many bits as the digits need */
            mpfr_prec_t precision =
                digits <= 15 ? 53 : (mpfr_prec_t)((digits + 1) * 3.3219280948873626 + 0.5);
            mpq_t a, b;
            mpfr_t p, q;
            mpq_inits(a, b, NULL);
            mpfr_inits2(precision, p, q, (mpfr_ptr)0);
            /* with roots or letters, decimals stay exact */
            decided = value_exact(&x, budget, a) == VALUE_DONE &&
                      value_exact(&y, budget, b) == VALUE_DONE;
            if (decided) {
                round_literals(&x, p);
                round_literals(&y, p);
                decided = value_exact(&x, budget, a) == VALUE_DONE &&
                          value_exact(&y, budget, b) == VALUE_DONE;
            }
            mpfr_set_q(p, a, MPFR_RNDN);
            mpfr_set_q(q, b, MPFR_RNDN);
            same = decided && mpfr_equal_p(p, q);
            mpfr_clears(p, q, (mpfr_ptr)0);
            mpq_clears(a, b, NULL);
        }
        if (!decided) same = value_same(&x, &y, VALUE_MAX_NAMES, budget);
    }
    value_free(&x);
    value_free(&y);
    return same && !budget->exhausted;
}
