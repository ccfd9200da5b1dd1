/*
 * Short series on short intervals; no tables, no fused multiply-add (-ffp-contract=off keeps the
 * compiler from making any).
 */
#include "elementary.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/*
 * x = 2^e m with m in [sqrt 1/2, sqrt 2), and ln m = 2 artanh(s), s = (m - 1) / (m + 1). |s| <
 * 0.172, so terms after s^23 are below the last bit.
 */
double core_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) m *= 0.5, e++;
    static const double odd[] = { 1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                                  1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23 };
    double s = (m - 1) / (m + 1), s2 = s * s, series = 0;
    for (int i = 10; i >= 0; i--) series = (series + odd[i]) * s2;
    return e * 0.6931471805599453 + (2 * s + 2 * s * series);
}

/*
 * x = k ln 2 + r, |r| < 0.35. ln 2 is split in two parts, the first with so few bits that its
 * product with k is exact.
 */
double core_exp(double x)
{
    double k = floor(x * 1.4426950408889634 + 0.5);
    double r = (x - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;
    double sum = 1;
    for (int i = 14; i >= 1; i--) sum = 1 + sum * r / i;
    return ldexp(sum, (int)k);
}

/*
 * x is folded into y of [0, 1/2]; up to 1/4 the series of cos(pi y), above it that of
 * sin(pi (1/2 - y)), so that either is short.
 */
double core_cos_pi(double x)
{
    double y = fmod(fabs(x), 2);
    if (y > 1) y = 2 - y;
    double sign = y > 0.5 ? -1 : 1;
    if (y > 0.5) y = 1 - y;
    int first = y > 0.25; /* 0: cosine, terms 2 4 6 ...; 1: sine, terms 3 5 7 ... */
    double t = 3.141592653589793 * (first ? 0.5 - y : y), sum = 1;
    for (int i = 16 + first; i >= 2 + first; i -= 2) sum = 1 - sum * t * t / (i * (i - 1));
    return sign * (first ? sum * t : sum);
}
