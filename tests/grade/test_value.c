/* Equal values of two expressions: exact where possible, tight elsewhere, bounded always. */
#include "test.h"
#include "work.h"

#include <stdio.h>

#include "math/math.h"

static bool same_within(ares_view a, ares_view b, int64_t *steps)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    bool same = math_same_value(a, b, &budget, &arena);
    if (steps) *steps = MATH_STEPS - budget.steps;
    ares_arena_fini(&arena);
    return same;
}
static bool same(const char *a, const char *b)
{
    return same_within(ares_view_of(a), ares_view_of(b), NULL);
}
static bool reference(const char *given, const char *truth)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    bool equal =
        math_same_value_reference(ares_view_of(given), ares_view_of(truth), &budget, &arena);
    ares_arena_fini(&arena);
    return equal;
}

typedef struct pair {
    const char *a, *b;
    bool equal;
} pair;
static void check_pairs(const pair *pairs, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_MSG(same(pairs[i].a, pairs[i].b) == pairs[i].equal, "'%s' and '%s'", pairs[i].a,
                  pairs[i].b);
        CHECK_MSG(same(pairs[i].b, pairs[i].a) == pairs[i].equal, "'%s' and '%s'", pairs[i].b,
                  pairs[i].a);
        CHECK_MSG(same(pairs[i].a, pairs[i].a) && same(pairs[i].b, pairs[i].b),
                  "'%s' or '%s' is not itself", pairs[i].a, pairs[i].b);
    }
}

TEST(rationals_are_compared_exactly)
{
    static const pair pairs[] = {
        { "1/2", "0.5", true },
        { "1/3", "0.3333333333333333333333333333333333", false },
        { "1+1/2", "1.5", true },
        { "-1/2", "1/-2", true },
        { "1/2/2", "1/4", true },
        { "1/(2/2)", "1", true },
        { "2^3^2", "512", true },
        { "(2^3)^2", "64", true },
        { "-2^2", "-4", true },
        { "(-2)^2", "4", true },
        { "2**3", "8", true },
        { "2^-1", "0.5", true },
        { "2^--1", "2", true },
        { "--5", "5", true },
        { "3*-2", "-6", true },
        { "3!", "6", true },
        { "3!!", "720", true },
        { "2^3!", "64", true },
        { "(1+2)!", "6", true },
        { "30!", "265252859812191058636308480000000", true },
        { "31!", "8222838654177922817725562880000000", false },
        { "0!", "1", true },
        { "(-1)!", "1", false },
        { "binomial(5,2)", "10", true },
        { "binomial(5,7)", "0", true },
        { "binomial(1/2,2)", "-1/8", true },
        { "1e3", "1000", true },
        { "1.5e-2", "3/200", true },
        { "2e+3", "2000", true },
        { "2(3)", "6", true },
        { "(2)3", "6", true },
        { "1/2(4)", "2", true },
        { ".5", "1/2", true },
        { "5.", "5", true },
        { "1.2.3", "1.23", false },
        { "10000000000000000000000000000000000000000", "10000000000000000000000000000000000000001",
          false }, /* equal as floats of 113 bits */
        { "0.1+0.2", "0.3", true },
        { "1/0", "2/0", false },
        { "0/0", "0", false },
        { "0^0", "1", true },
        { "0^-1", "0", false },
        { "5-5", "0", true },
    };
    check_pairs(pairs, ARES_COUNT(pairs));
}

TEST(roots_and_pi_are_not_their_decimals)
{
    static const pair pairs[] = {
        { "sqrt(12)", "2sqrt(3)", true },
        { "1/sqrt(2)", "sqrt(2)/2", true },
        { "sqrt(2)*sqrt(2)", "2", true },
        { "1.41421356237", "sqrt(2)", false },
        { "1.4142135623730950488017", "sqrt(2)", false },
        { "3.14159265358979", "pi", false },
        { "1/(sqrt(2)+1)", "sqrt(2)-1", true },
        { "sqrt(3+2sqrt(2))", "1+sqrt(2)", true },
        { "root(8,3)", "2", true },
        { "root(8,3)", "sqrt(8)", false },
        { "root(2,-1)", "1/2", true },
        { "root(x,2)", "sqrt(x)", true },
        { "5^(1/2)", "sqrt(5)", true },
        { "4pi/3", "4/3pi", true },
        { "2pi", "pi*2", true },
        { "22/7", "pi", false },
        { "0.5pi", "pi/2", true },
        { "pi^2", "pi*pi", true },
        { "sqrt(-1)", "sqrt(-1)+0", false },
        { "root(-8,3)", "-2", false },
        { "(-8)^(1/3)", "-2", false },
        { "sqrt2", "sqrt(2)", false },
        { "sin(pi/6)", "1/2", true },
        { "cos(0)", "1", true },
        { "tan(pi/4)", "1", true },
        { "arctan(1)", "pi/4", true },
        { "ln(8)/ln(2)", "3", true },
        { "exp(1)", "2.718281828459045", false },
        { "ln(exp(2))", "2", true },
        { "ln(0)", "ln(-1)", false },
        { "arcsin(2)", "arcsin(3)", false },
        { "log(2)", "ln(2)", true },
        { "sec(1)", "1/cos(1)", true },
        { "csc(1)", "1/sin(1)", true },
        { "cot(1)", "1/tan(1)", true },
        { "arccos(0)", "pi/2", true },
    };
    check_pairs(pairs, ARES_COUNT(pairs));
}

TEST(letters_are_variables_and_signs_of_roots_count)
{
    static const pair pairs[] = {
        { "x+1", "1+x", true },
        { "x^2+2x+1", "(x+1)^2", true },
        { "xy", "yx", true },
        { "x-y", "y-x", false },
        { "x", "y", false },
        { "sqrt(x^2)", "x", false },
        { "sqrt(x)^2", "x", true },
        { "x^3", "x*x*x", true },
        { "x(x+1)", "x^2+x", true },
        { "1/2x", "x/2", true },
        { "1/(2x)", "x/2", false },
        { "2^(x+1)", "2^x+1", false },
        { "2^(x+1)", "2*2^x", true },
        { "(x^2-1)/(x-1)", "x+1", true },
        { "x+10^-12", "x", false },
        { "x", "x+0y", true },
        { "xyz", "zyx", false },
        { "xyz", "xyz", true },
        { "x+y+z-z", "x+y", false },
        { "no", "on", true },
        { "yes", "no", false },
        { "sin(x)^2+cos(x)^2", "1", true },
        { "ln(x^2)", "2ln(x)", true },
        { "x!", "x!+0", false },
        { "\xce\xb8+1", "1+\xce\xb8", true },
        { "2\xce\xb8", "\xce\xb8*2", true },
        { "\xce\xb8", "\xce\xb1", false },
        { "x2", "2x", true },
        { "i^2", "-1", false },
        { "e", "2.71828", false },
    };
    check_pairs(pairs, ARES_COUNT(pairs));
}

TEST(infinities_have_signs_and_no_arithmetic)
{
    static const pair pairs[] = { { "inf", "+inf", true },    { "-inf", "inf", false },
                                  { "-(inf)", "-inf", true }, { "--inf", "inf", true },
                                  { "inf+1", "inf", false },  { "2inf", "inf", false },
                                  { "inf", "1/0", false } };
    check_pairs(pairs, ARES_COUNT(pairs));
}

TEST(what_the_grammar_lacks_is_equal_only_as_text)
{
    static const pair pairs[] = {
        { "1,2", "1,3", false },
        { "3:4", "3/4", false },
        { "x=5", "5", false },
        { "45\xc2\xb0", "45", false },
        { "\xc2\xb1"
          "2",
          "2", false },
        { "1;2", "1,2", false },
        { "", "0", false },
        { "(", ")", false },
        { "()", "0", false },
        { "2+", "2", false },
        { "*2", "2", false },
        { "|3|", "3", false },
        { "\xff", "\xfe", false },
        { "[1]", "1", false },
        { "binomial(5)", "5", false },
        { "binomial(5,2,1)", "10", false },
        { "1//2", "0", false },
        { "x_1", "x", false },
        { "1\xc3\xb7"
          "2",
          "0.5", false },
    };
    check_pairs(pairs, ARES_COUNT(pairs));
    CHECK(!same_within((ares_view){ "1\0", 2 }, ARES_VIEW("1"), NULL));
}

TEST(the_original_has_its_own_rules)
{
    static const pair pairs[] = {
        /* given, truth */
        { "x+1", "1+x", true },
        { "2^10", "1024", false },
        { "2^3", "8", true },
        { "x^(2)", "x*x", false },
        { "x^2^3", "x^8", false },
        { "xyz", "xyz", false },
        { "pi*2", "2pi", true },
        { "pi*x", "x*pi", false },
        { "1/3", "0.333333333333333", false },
        { "17/50", "0.34", true },
        { "0.1+0.2", "0.3", false },
        { "1/3", "0.3333333333333333333333333333", false },
        { "0.5x", "x/2", true },
        { "0.1pi", "pi/10", true },
        { "sqrt(12)", "2sqrt(3)", true },
        { "sqrt2", "sqrt(2)", false },
        { "sqrt(x^2)", "x", false },
        { "ln(4)", "2ln(2)", true },
        { "mu", "um", false },
        { "no", "on", true },
        { "sin(x)", "sin(x)", false },
        { "05", "0", true },
        { "x=1", "1", false },
        { "binomial(5,2)", "10", false },
        { "1/2x", "x/2", true },
        { "x(x+1)", "x^2+x", true },
        { "ab(a)", "a^2b", true },
    };
    for (int i = 0; i < ARES_COUNT(pairs); i++)
        CHECK_MSG(reference(pairs[i].a, pairs[i].b) == pairs[i].equal, "given '%s', truth '%s'",
                  pairs[i].a, pairs[i].b);
}

/*
 * A random expression of small rationals as text, and its value by this test's own fractions; false
 * when those would overflow.
 */
typedef struct fraction {
    __int128 n, d;
} fraction;
static __int128 gcd(__int128 a, __int128 b)
{
    return b ? gcd(b, a % b) : a < 0 ? -a : a;
}
static bool reduce(fraction *f)
{
    if (f->d == 0) return false;
    __int128 g = gcd(f->n, f->d);
    if (f->d < 0) g = -g;
    f->n /= g;
    f->d /= g;
    const __int128 limit = (__int128)1 << 50;
    return f->n < limit && f->n > -limit && f->d < limit;
}
typedef struct draw {
    ares_rng_key key;
    uint64_t at;
} draw;
static uint64_t below(draw *d, uint64_t n)
{
    return ares_rng_below(d->key, d->at++, n);
}

static bool random_expression(draw *d, int depth, ares_str *text, fraction *out)
{
    uint64_t kind = depth == 0 ? 0 : below(d, 6);
    fraction a, b;
    if (kind == 0) {
        int64_t n = (int64_t)below(d, 20);
        int64_t tenths = below(d, 3) == 0 ? (int64_t)below(d, 10) : -1;
        *out = tenths < 0 ? (fraction){ n, 1 } : (fraction){ n * 10 + tenths, 10 };
        if (tenths < 0) ares_str_addf(text, "%lld", (long long)n);
        else ares_str_addf(text, "%lld.%lld", (long long)n, (long long)tenths);
        return reduce(out);
    }
    if (kind == 5) {
        ares_str_add_z(text, "-(");
        if (!random_expression(d, depth - 1, text, &a)) return false;
        ares_str_add_char(text, ')');
        *out = (fraction){ -a.n, a.d };
        return true;
    }
    static const char *const signs[] = { "", "+", "-", "*", "/" };
    ares_str_add_char(text, '(');
    if (!random_expression(d, depth - 1, text, &a)) return false;
    ares_str_add_z(text, ")");
    ares_str_add_z(text, signs[kind]);
    ares_str_add_z(text, "(");
    if (!random_expression(d, depth - 1, text, &b)) return false;
    ares_str_add_char(text, ')');
    *out = kind == 1   ? (fraction){ a.n * b.d + b.n * a.d, a.d * b.d }
           : kind == 2 ? (fraction){ a.n * b.d - b.n * a.d, a.d * b.d }
           : kind == 3 ? (fraction){ a.n * b.n, a.d * b.d }
                       : (fraction){ a.n * b.d, a.d * b.n };
    return reduce(out);
}

TEST(random_expressions_equal_their_fraction_and_no_neighbour)
{
    ares_str text = { 0 };
    int tried = 0;
    for (uint64_t i = 0; tried < 2000 && i < 40000; i++) {
        draw d = { ares_rng_sub(ares_rng_root(7, ARES_RNG_TEST), i, 0), 0 };
        fraction f;
        ares_str_clear(&text);
        if (!random_expression(&d, 4, &text, &f)) continue;
        tried++;
        char value[80], beside[96], product[4000];
        snprintf(value, sizeof value, "%lld/%lld", (long long)f.n, (long long)f.d);
        snprintf(beside, sizeof beside, "%lld/%lld", (long long)f.n * 1000 + 1,
                 (long long)f.d * 1000);
        snprintf(product, sizeof product, "x*(%s)", text.data);
        CHECK_MSG(same(text.data, value) && same(value, text.data), "%s is not %s", text.data,
                  value);
        CHECK_MSG(!same(text.data, beside), "%s is not %s", text.data, beside);
        char scaled[100];
        snprintf(scaled, sizeof scaled, "%sx", value);
        /* the same at trial points */
        CHECK_MSG(same(product, scaled), "%s is not %s", product, scaled);
    }
    CHECK_EQ(tried, 2000);
    ares_str_fini(&text);
}

/* The budget bounds the steps, and a step bounds the work. */
static void check_bounded(ares_view a, ares_view b)
{
    int64_t steps;
    int64_t before = work_done();
    CHECK_MSG(!same_within(a, b, &steps), "'%.40s' equals '%.40s'", a.data, b.data);
    CHECK(steps <= MATH_STEPS);
    CHECK_MSG(work_done() - before < 1000000, "'%.40s': %lld units of work, %lld steps", a.data,
              (long long)(work_done() - before), (long long)steps);
}

TEST(hostile_expressions_end_within_their_budget)
{
    static const char *const hostile[] = { "9^9^9^9",
                                           "9^9^9^9^9^9^9^9",
                                           "((9^999)^999)^999",
                                           "(9^1000)^1000",
                                           "2^99999999999999999999",
                                           "1e999999999",
                                           "1e-999999999",
                                           "999999999!",
                                           "30!!!!!",
                                           "binomial(10^100,1000)",
                                           "binomial(999999999,999999999)",
                                           "binomial(0.1,1000)",
                                           "root(2,1000)",
                                           "root(2,99999999999999)",
                                           "exp(exp(exp(9)))",
                                           "exp(-exp(9))",
                                           "sin(10^1000)",
                                           "tan(9^9^3)",
                                           "ln(exp(999))",
                                           "sqrt(10^1000)",
                                           "(x^999)^999",
                                           "x^x^x^x^x^x^x",
                                           "0.0000000001^1000",
                                           "(1/3)^1000^1" };
    int64_t before = ares_peak_memory_bytes();
    for (int i = 0; i < ARES_COUNT(hostile); i++)
        check_bounded(ares_view_of(hostile[i]), ARES_VIEW("0.7"));
    static const char *const units[] = {
        "(",  ")",        "1",        "9^",         "-",       "sqrt(",      "x^",
        "1/", "(9^999)*", "(9^999)+", "(1/9^999)+", "sin(x)+", "sin(9^99)*", "binomial(0.1,1000)+",
        "3!", "x^1.5+",   "\xce\xb8", "2**",        "!",       "."
    };
    ares_str text = { 0 }, deep = { 0 };
    for (int u = 0; u < ARES_COUNT(units); u++) {
        for (size_t size = 1900; size <= 100000; size *= 50) {
            ares_str_clear(&text);
            while (text.len < size) ares_str_add_z(&text, units[u]);
            ares_str_add_z(&text, "2");
            check_bounded(ares_str_view(&text), ARES_VIEW("0.7"));
            check_bounded(ARES_VIEW("y"), ares_str_view(&text));
        }
    }
    for (int i = 0; i < 10000; i++) ares_str_add_char(&deep, '(');
    ares_str_add_char(&deep, '1');
    for (int i = 0; i < 10000; i++) ares_str_add_char(&deep, ')');
    check_bounded(ares_str_view(&deep), ARES_VIEW("1"));
#ifndef __SANITIZE_ADDRESS__
    CHECK_MSG(ares_peak_memory_bytes() - before < 64 << 20, "%lld bytes more",
              (long long)(ares_peak_memory_bytes() - before));
#else
    (void)before;
#endif
    ares_str_fini(&text);
    ares_str_fini(&deep);
}

TEST(a_budget_of_nothing_decides_nothing)
{
    ares_arena arena = { 0 };
    for (int64_t steps = 0; steps < 300; steps += 7) {
        math_budget budget = { .steps = steps };
        bool equal = math_same_value(ARES_VIEW("(x+1)^2"), ARES_VIEW("x^2+2x+1"), &budget, &arena);
        CHECK(equal == !budget.exhausted || !equal);
    }
    math_budget none = { 0 };
    CHECK(!math_same_value(ARES_VIEW("1/2"), ARES_VIEW("0.5"), &none, &arena) && none.exhausted);
    ares_arena_fini(&arena);
}

TEST(trial_points_have_the_same_bits_everywhere)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    value_program p;
    value_names names = { 0 };
    value_float f;
    value_init(&p, &arena);
    value_parse(&p, ARES_VIEW("sin(x)+exp(y)/root(7,3)-x^0.3"), false, &budget);
    REQUIRE(!p.failed);
    value_collect_names(&p, &names);
    value_float_init(&f);
    CHECK(value_at(&p, &names, 1, &budget, &f) == VALUE_INVALID); /* x is -1.5 */
    CHECK(value_at(&p, &names, 2, &budget, &f) == VALUE_DONE);
    char text[64];
    mpfr_snprintf(text, sizeof text, "%.28Ra", f.v);
    CHECK_STR(text, "0xc.803f73bbd81bc7a10bc645391240p+0");
    mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE);
    value_free(&p);
    ares_arena_fini(&arena);
}
