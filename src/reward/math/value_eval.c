/*
 * The two evaluators: loops over a postfix program with a stack of operands. Exponents, factorials
 * and sizes are bounded before the work is done. Beyond the bounds a value is invalid (an exponent
 * above 1000, 31!), or is computed in floats in place of exactly (a rational of more than 65,536
 * bits).
 */
#include "value.h"

#include <string.h>

bool value_spend(math_budget *budget, int64_t steps)
{
    if (budget->steps < steps) budget->steps = 0, budget->exhausted = true;
    else budget->steps -= steps;
    return !budget->exhausted;
}

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
static int64_t bits(mpq_srcptr q)
{
    return (int64_t)(mpz_sizeinbase(mpq_numref(q), 2) + mpz_sizeinbase(mpq_denref(q), 2));
}

/* Multiplying and reducing cost at most the product of the sizes in words. */
static int64_t cost(mpq_srcptr a, mpq_srcptr b)
{
    return 4 + (bits(a) / 64 + 1) * (bits(b) / 64 + 1) / 8;
}

static bool small(mpq_srcptr q, long *n)
{
    if (mpz_cmp_ui(mpq_denref(q), 1) != 0 || !mpz_fits_slong_p(mpq_numref(q))) return false;
    *n = mpz_get_si(mpq_numref(q));
    return true;
}

/* a = a^e */
static value_status exact_power(mpq_ptr a, mpq_srcptr e, math_budget *budget)
{
    long n;
    mpz_srcptr over = mpq_denref(e);
    if (mpz_cmp_ui(over, 1) != 0) return VALUE_INEXACT;
    if (!small(e, &n) || n > VALUE_MAX_EXPONENT || n < -VALUE_MAX_EXPONENT) return VALUE_INVALID;
    unsigned long times = (unsigned long)(n < 0 ? -n : n);
    int64_t size = bits(a) * (int64_t)times;
    if (size > VALUE_MAX_BITS) return VALUE_INEXACT;
    if (n < 0 && mpq_sgn(a) == 0) return VALUE_INVALID;
    if (!value_spend(budget, 8 + size * size / (64 * 64 * 8))) return VALUE_INVALID;
    if (n < 0) mpq_inv(a, a);
    /* powers of numbers in lowest terms are in lowest terms */
    mpz_pow_ui(mpq_numref(a), mpq_numref(a), times);
    mpz_pow_ui(mpq_denref(a), mpq_denref(a), times);
    return VALUE_DONE;
}

/* n = binomial(n, k): n any rational, k a whole number */
static value_status exact_binomial(mpq_ptr n, mpq_srcptr k, math_budget *budget)
{
    long times, whole;
    if (!small(k, &times) || times > VALUE_MAX_EXPONENT) return VALUE_INVALID;
    if (times < 0) {
        mpq_set_ui(n, 0, 1);
        return VALUE_DONE;
    }
    if (bits(n) * times > VALUE_MAX_BITS) return VALUE_INEXACT;
    if (!value_spend(budget, 16 + times * (bits(n) / 64 + 1) * times / 8)) return VALUE_INVALID;
    if (small(n, &whole)) {
        mpz_bin_ui(mpq_numref(n), mpq_numref(n), (unsigned long)times);
        return VALUE_DONE;
    }
    return VALUE_INEXACT;
}

static value_status exact_one(value_kind kind, mpq_ptr a, math_budget *budget)
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
    default: return VALUE_INEXACT;
    }
}

static value_status exact_two(value_kind kind, mpq_ptr a, mpq_srcptr b, math_budget *budget)
{
    if (kind == VALUE_POW) return exact_power(a, b, budget);
    if (kind == VALUE_BINOMIAL) return exact_binomial(a, b, budget);
    if (kind == VALUE_ROOT || kind == VALUE_LOG_BASE) return VALUE_INEXACT;
    if (kind == VALUE_DIV && mpq_sgn(b) == 0) return VALUE_INVALID;
    if (bits(a) + bits(b) > VALUE_MAX_BITS) return VALUE_INEXACT;
    if (!value_spend(budget, cost(a, b))) return VALUE_INVALID;
    (kind == VALUE_ADD   ? mpq_add
     : kind == VALUE_SUB ? mpq_sub
     : kind == VALUE_MUL ? mpq_mul
                         : mpq_div)(a, a, b);
    return VALUE_DONE;
}

static bool rational_kind(value_kind kind)
{
    return kind <= VALUE_LITERAL || (kind >= VALUE_NEG && kind <= VALUE_CEIL) ||
           (kind >= VALUE_ADD && kind <= VALUE_POW) || kind == VALUE_BINOMIAL;
}

value_status value_exact(const value_program *p, math_budget *budget, mpq_t out)
{
    if (p->failed || p->count == 0) return VALUE_INVALID;
    for (int i = 0; i < p->count; i++)
        if (!rational_kind(p->ops[i].kind)) return VALUE_INEXACT;
    if (!value_spend(budget, 2 * p->count)) return VALUE_INVALID;
    mpq_t *stack = ares_arena_alloc(p->arena, (size_t)p->max_depth * sizeof *stack);
    for (int i = 0; i < p->max_depth; i++) mpq_init(stack[i]);
    value_status status = VALUE_DONE;
    int n = 0;
    for (int i = 0; i < p->count && status == VALUE_DONE; i++) {
        value_op op = p->ops[i];
        if (op.kind == VALUE_INTEGER) mpq_set_si(stack[n++], op.argument, 1);
        else if (op.kind == VALUE_LITERAL) mpq_set(stack[n++], p->literals[op.argument]);
        else if (op.kind < VALUE_ADD) status = exact_one(op.kind, stack[n - 1], budget);
        else n--, status = exact_two(op.kind, stack[n - 1], stack[n], budget);
    }
    if (status == VALUE_DONE) mpq_set(out, stack[0]);
    for (int i = 0; i < p->max_depth; i++) mpq_clear(stack[i]);
    return status;
}

/* ------------------------------------------------------------------ floats */
#define RN MPFR_RNDN
/* the range of IEEE binary128 */
enum { FLOAT_STEPS = 4, FUNCTION_STEPS = 200, MAX_FLOAT_EXPONENT = 16384 };

void value_float_init(value_float *f)
{
    mpfr_custom_init(f->limbs, VALUE_BITS);
    mpfr_custom_init_set(f->v, MPFR_ZERO_KIND, 0, VALUE_BITS, f->limbs);
}

static void set_variable(mpfr_ptr out, const value_names *names, int32_t name, int trial)
{
    int k = 0;
    while (k < names->count && names->name[k] != name) k++;
    long hundredths = 37 + 61 * k + 113 * trial;
    mpfr_set_si(out, trial % 2 ? -hundredths : hundredths, RN);
    mpfr_div_ui(out, out, 100, RN);
}

/* ln, sin and the other functions of one argument; false outside their domain. */
static bool function(value_kind kind, mpfr_ptr a)
{
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
    default: return value_spend(budget, FUNCTION_STEPS) && function(kind, a);
    }
}

static bool float_power(mpfr_ptr a, mpfr_srcptr e, math_budget *budget)
{
    if (mpfr_cmp_si(e, VALUE_MAX_EXPONENT) > 0 || mpfr_cmp_si(e, -VALUE_MAX_EXPONENT) < 0)
        return false;
    if (mpfr_zero_p(a) && mpfr_sgn(e) < 0) return false;
    if (mpfr_integer_p(e))
        return value_spend(budget, 16) && (mpfr_pow_si(a, a, mpfr_get_si(e, RN), RN), true);
    if (mpfr_sgn(a) < 0 || !value_spend(budget, 2 * FUNCTION_STEPS)) return false;
    return mpfr_pow(a, a, e, RN), true;
}

static bool float_root(mpfr_ptr a, mpfr_srcptr n, math_budget *budget)
{
    if (!mpfr_integer_p(n) || mpfr_zero_p(n) || mpfr_cmp_si(n, VALUE_MAX_EXPONENT) > 0 ||
        mpfr_cmp_si(n, -VALUE_MAX_EXPONENT) < 0)
        return false;
    long k = mpfr_get_si(n, RN);
    if (mpfr_sgn(a) < 0 || (k < 0 && mpfr_zero_p(a)) || !value_spend(budget, FUNCTION_STEPS))
        return false;
    mpfr_rootn_ui(a, a, (unsigned long)(k < 0 ? -k : k), RN);
    if (k < 0) mpfr_ui_div(a, 1, a, RN);
    return true;
}

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

static bool float_log_base(mpfr_ptr a, mpfr_srcptr base, math_budget *budget)
{
    if (mpfr_sgn(a) <= 0 || mpfr_sgn(base) <= 0 || mpfr_cmp_ui(base, 1) == 0 ||
        !value_spend(budget, 2 * FUNCTION_STEPS))
        return false;
    value_float under;
    value_float_init(&under);
    mpfr_log(under.v, base, RN);
    mpfr_log(a, a, RN);
    return mpfr_div(a, a, under.v, RN), true;
}

static bool float_two(value_kind kind, mpfr_ptr a, mpfr_srcptr b, math_budget *budget)
{
    switch (kind) {
    case VALUE_ADD: return mpfr_add(a, a, b, RN), true;
    case VALUE_SUB: return mpfr_sub(a, a, b, RN), true;
    case VALUE_MUL: return mpfr_mul(a, a, b, RN), true;
    case VALUE_DIV:
        if (mpfr_zero_p(b)) return false;
        return mpfr_div(a, a, b, RN), true;
    case VALUE_POW: return float_power(a, b, budget);
    case VALUE_ROOT: return float_root(a, b, budget);
    case VALUE_BINOMIAL: return float_binomial(a, b, budget);
    case VALUE_LOG_BASE: return float_log_base(a, b, budget);
    default: return false;
    }
}

static bool finite(mpfr_srcptr a)
{
    return mpfr_zero_p(a) || (mpfr_number_p(a) && mpfr_get_exp(a) <= MAX_FLOAT_EXPONENT);
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
        case VALUE_VARIABLE: set_variable(stack[n++].v, names, op.argument, trial); break;
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
        if (!valid || !finite(stack[n - 1].v)) return VALUE_INVALID;
        if (!mpfr_zero_p(stack[n - 1].v) && mpfr_get_exp(stack[n - 1].v) < -MAX_FLOAT_EXPONENT)
            mpfr_set_zero(stack[n - 1].v, 1);
    }
    mpfr_set(out->v, stack[0].v, RN);
    return VALUE_DONE;
}

/* |a - b| <= 1e-24 max(1, |a|, |b|); a is overwritten. */
static bool close(mpfr_ptr a, mpfr_ptr b)
{
    value_float bound;
    value_float_init(&bound);
    mpfr_set_ui(bound.v, 1, RN);
    if (mpfr_cmpabs(a, bound.v) > 0) mpfr_abs(bound.v, a, RN);
    if (mpfr_cmpabs(b, bound.v) > 0) mpfr_abs(bound.v, b, RN);
    mpfr_div_ui(bound.v, bound.v, 1000000000000, RN);
    mpfr_div_ui(bound.v, bound.v, 1000000000000, RN);
    mpfr_sub(a, a, b, RN);
    return mpfr_cmpabs(a, bound.v) <= 0;
}

/*
 * Whether |a - b| <= 1e-24 max(1, |a|, |b|) at all points where both are valid, which must be at
 * least three (one without variables).
 */
static bool same_at_trials(const value_program *a, const value_program *b, const value_names *names,
                           math_budget *budget)
{
    int valid = 0, trials = names->count ? VALUE_TRIALS : 1;
    bool same = true;
    value_float x, y;
    value_float_init(&x);
    value_float_init(&y);
    for (int j = 0; j < trials && same; j++) {
        if (value_at(a, names, j, budget, &x) != VALUE_DONE ||
            value_at(b, names, j, budget, &y) != VALUE_DONE)
            continue;
        valid++;
        same = close(x.v, y.v);
    }
    mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); /* a thread that ends would leak the cache */
    return same && !budget->exhausted && valid >= (names->count ? 3 : 1);
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
    if (names.count == 0) {
        mpq_t x, y;
        mpq_inits(x, y, NULL);
        value_status left = value_exact(a, budget, x),
                     right = left == VALUE_DONE ? value_exact(b, budget, y) : left;
        bool same = right == VALUE_DONE && mpq_equal(x, y);
        mpq_clears(x, y, NULL);
        if (right != VALUE_INEXACT) return same && !budget->exhausted;
    }
    return same_at_trials(a, b, &names, budget);
}
