/*
 * exp, log, pow, sin and cos in f64: sums of FMAs in a fixed order, within 1 ulp (sin and cos: 1
 * ulp of 1, for |x| up to 2^30). exp and log, which losses call per token, are compiled twice: with
 * the processor's FMA instruction, and with calls of fma(), which round alike and cost three times
 * as much.
 */
#include "ares/kernels.h"

#include <math.h>
#include <string.h>

#define INLINED static inline __attribute__((always_inline))
#ifdef __x86_64__
#define WITH_FMA __attribute__((target("fma")))
#define HAS_FMA __builtin_cpu_supports("fma")
#else
#define WITH_FMA
#define HAS_FMA true
#endif

INLINED uint64_t bits_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
INLINED double from_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}
/* 2^n by its exponent's bits; n in -1022 .. 1023 */
INLINED double pow2(int64_t n)
{
    return from_bits((uint64_t)(n + 1023) << 52);
}

/* 1/i!, as far as the series below need */
static const double INVERSE_FACTORIAL[] = {
    1.0,
    1.0,
    1.0 / 2,
    1.0 / 6,
    1.0 / 24,
    1.0 / 120,
    1.0 / 720,
    1.0 / 5040,
    1.0 / 40320,
    1.0 / 362880,
    1.0 / 3628800,
    1.0 / 39916800,
    1.0 / 479001600,
    1.0 / 6227020800.0,
    1.0 / 87178291200.0,
    1.0 / 1307674368000.0,
    1.0 / 20922789888000.0,
    1.0 / 355687428096000.0,
    1.0 / 6402373705728000.0,
};
/* ln 2 in two parts, the first short enough that its product with an exponent is exact */
static const double LN2_HI = 0x1.62e42fee00000p-1, LN2_LO = 0x1.a39ef35793c76p-33;

/* e^(x + low), low much smaller than x: Taylor series to degree 14 on |r| <= ln 2 / 2 */
INLINED double exp_of_sum(double x, double low)
{
    if (!(x < 709.8)) return x != x ? x : HUGE_VAL;
    if (x < -745.2) return 0.0;
    /* adding 1.5 x 2^52 and taking it away rounds to a whole number: n = x / ln 2 */
    const double magic = 0x1.8p52;
    double n = fma(x, 0x1.71547652b82fep0, magic) - magic;
    double hi = fma(-n, LN2_HI, x), lo = fma(-n, LN2_LO, low);
    double r = hi + lo, rest = (hi - r) + lo, q = INVERSE_FACTORIAL[14];
    for (int i = 13; i >= 2; i--) q = fma(q, r, INVERSE_FACTORIAL[i]);
    double p = 1.0 + (r + (fma(r * r, q, rest)));
    /* 2^e in two factors, because results near the largest and the smallest need e beyond pow2 */
    int64_t e = (int64_t)n, half = e >> 1;
    return p * pow2(half) * pow2(e - half);
}

/*
 * ln x as a sum of two; x positive and finite. ln m = 2 artanh(s), s = (m - 1) / (m + 1) also as a
 * sum of two
 */
INLINED double log_as_sum(double x, double *low)
{
    int64_t e = 0;
    /* subnormal numbers have no leading 1 in their bits: scale them up first */
    if (x < 0x1p-1022) x *= 0x1p54, e = -54;
    /* the constant is sqrt(1/2): m lies in [sqrt(1/2), sqrt(2)), where s is small */
    int64_t n = (int64_t)(bits_of(x) - 0x3fe6a09e667f3bcdu) >> 52;
    double m = from_bits(bits_of(x) - ((uint64_t)n << 52));
    e += n;
    double f = m - 1.0, d = m + 1.0, d_low = m - (d - 1.0);
    double s = f / d, s_low = (fma(-s, d, f) - s * d_low) / d;
    double z = s * s, p = 2.0 / 27;
    for (int i = 25; i >= 3; i -= 2) p = fma(p, z, 2.0 / i);
    double tail = fma(s * z, p, 2.0 * s_low);
    double a = (double)e * LN2_HI, b = 2.0 * s;
    double sum = a + b, around = sum - a; /* two-sum: exact for any order of magnitude */
    double lost = (a - (sum - around)) + (b - around);
    double rest = fma((double)e, LN2_LO, tail) + lost;
    double hi = sum + rest;
    *low = (sum - hi) + rest;
    return hi;
}

INLINED double log_of(double x)
{
    double low;
    if (x == 0) return -HUGE_VAL;
    if (!(x > 0)) return NAN;
    if (x == HUGE_VAL) return x;
    return log_as_sum(x, &low);
}

WITH_FMA static double exp_with_fma(double x)
{
    return exp_of_sum(x, 0.0);
}
static double exp_with_calls(double x)
{
    return exp_of_sum(x, 0.0);
}
double ares_f64_exp(double x)
{
    return HAS_FMA ? exp_with_fma(x) : exp_with_calls(x);
}

WITH_FMA static double log_with_fma(double x)
{
    return log_of(x);
}
static double log_with_calls(double x)
{
    return log_of(x);
}
double ares_f64_log(double x)
{
    return HAS_FMA ? log_with_fma(x) : log_with_calls(x);
}

double ares_f64_pow(double x, double y)
{
    if (y == 0 || x == 1) return 1.0;
    if (x != x || y != y) return NAN;
    double sign = 1.0;
    if (x < 0) {
        if (y != floor(y)) return NAN;
        if (fmod(y, 2.0) != 0) sign = -1.0;
        x = -x;
    }
    if (x == 0 || x == HUGE_VAL) return sign * ((x == 0) == (y > 0) ? 0.0 : HUGE_VAL);
    if (y == HUGE_VAL || y == -HUGE_VAL) return x == 1 ? 1.0 : (x > 1) == (y > 0) ? HUGE_VAL : 0.0;
    /* the logarithm in two parts: its error would be multiplied by y */
    double low, high = log_as_sum(x, &low);
    double p = y * high;
    if (!(p < 710 && p > -746)) return sign * (p > 0 ? HUGE_VAL : 0.0);
    return sign * exp_of_sum(p, fma(y, high, -p) + y * low);
}

/* x minus the nearest multiple of pi/2, as a sum of two; returns that multiple modulo 4. */
static int quarter_turns(double x, double *r, double *low)
{
    const double magic = 0x1.8p52, half_pi = 0x1.921fb54400000p0,
                 half_pi_low = 0x1.0b4611a626331p-34;
    double n = fma(x, 0x1.45f306dc9c883p-1, magic) - magic;
    double a = fma(-n, half_pi, x); /* exact: half_pi has 33 bits */
    *r = fma(-n, half_pi_low, a);
    *low = fma(-n, half_pi_low, a - *r);
    return (int)((int64_t)n & 3);
}
/* Taylor series on |r| <= pi/4; low is what r lacks. */
static double sin_near_0(double r, double low)
{
    double z = r * r, p = INVERSE_FACTORIAL[17];
    for (int i = 15; i >= 3; i -= 2) p = fma(-p, z, INVERSE_FACTORIAL[i]);
    return r + fma(-(r * z), p, low * fma(-0.5, z, 1.0));
}
static double cos_near_0(double r, double low)
{
    double z = r * r, half = 0.5 * z, w = 1.0 - half, p = INVERSE_FACTORIAL[18];
    for (int i = 16; i >= 4; i -= 2) p = fma(-p, z, INVERSE_FACTORIAL[i]);
    return w + (((1.0 - w) - half) + fma(z * z, p, -(r * low)));
}
static double sin_of_quarters(double x, int more)
{
    double r, low;
    /* beyond 2^30 the result is rough: a remainder by 2 pi as a double has it */
    if (!(fabs(x) <= 0x1p30))
        return x - x == 0 ? sin_of_quarters(fmod(x, 0x1.921fb54442d18p2), more) : NAN;
    /* cos x = sin(x + a quarter turn) */
    int q = (quarter_turns(x, &r, &low) + more) & 3;
    double y = q & 1 ? cos_near_0(r, low) : sin_near_0(r, low);
    return q & 2 ? -y : y;
}
double ares_f64_sin(double x)
{
    return sin_of_quarters(x, 0);
}
double ares_f64_cos(double x)
{
    return sin_of_quarters(x, 1);
}
