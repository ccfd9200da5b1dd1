/*
 * Random numbers that are functions of a key, and the elementary functions (log, exp, cos) that
 * give the same bits on every machine.
 */
#include "internal.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ares/core.h"

/*
 * Short series on short intervals; no tables, no fused multiply-add (-ffp-contract=off keeps the
 * compiler from making any).
 */

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

/*
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011) and the distributions drawn from it. A normal number is the inverse of the normal
 * distribution (Wichura, algorithm AS 241) at a uniform one, computed with sums, products,
 * quotients, a square root and core_log only: these round alike on every machine.
 */

void ares_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0],
             k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

ares_rng_key ares_rng_root(uint64_t seed, uint32_t purpose)
{
    uint32_t out[4];
    ares_philox((uint32_t[]){ (uint32_t)seed, (uint32_t)(seed >> 32), purpose, 0 },
                (uint32_t[]){ 0x61726573u, 0x74726169u }, out);
    return (ares_rng_key){ { out[0], out[1] } };
}

ares_rng_key ares_rng_sub(ares_rng_key key, uint64_t a, uint64_t b)
{
    uint32_t out[4]; /* not the key of the draws themselves, so that no draw is also a key */
    ares_philox((uint32_t[]){ (uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32) },
                (uint32_t[]){ key.k[0] ^ 0x5BF03635u, key.k[1] ^ 0x3C6EF372u }, out);
    return (ares_rng_key){ { out[0], out[1] } };
}

static uint64_t draw(ares_rng_key key, uint64_t index, uint32_t attempt)
{
    uint32_t out[4];
    ares_philox((uint32_t[]){ (uint32_t)index, (uint32_t)(index >> 32), attempt, 0 }, key.k, out);
    return out[0] | (uint64_t)out[1] << 32;
}

uint64_t ares_rng_u64(ares_rng_key key, uint64_t index)
{
    return draw(key, index, 0);
}

/* Lemire, "Fast random integer generation in an interval", 2019; a rejected draw is repeated. */
uint64_t ares_rng_below(ares_rng_key key, uint64_t index, uint64_t n)
{
    ARES_ASSERT(n > 0);
    for (uint32_t attempt = 0;; attempt++) {
        __uint128_t product = (__uint128_t)draw(key, index, attempt) * n;
        if ((uint64_t)product >= n || (uint64_t)product >= -n % n) return (uint64_t)(product >> 64);
    }
}

/* An odd multiple of 2^-53, so never 0 or 1; p and 1 - p are equally likely. */
double ares_rng_uniform(ares_rng_key key, uint64_t index)
{
    return ((double)(draw(key, index, 0) >> 12) + 0.5) * 0x1p-52;
}

static double ratio(const double num[8], const double den[8], double r)
{
    double n = num[7], d = den[7];
    for (int i = 6; i >= 0; i--) n = n * r + num[i], d = d * r + den[i];
    return n / d;
}

static double inverse_normal(double p)
{
    static const double a[8] = { 3.3871328727963666080,   1.3314166789178437745e2,
                                 1.9715909503065514427e3, 1.3731693765509461125e4,
                                 4.5921953931549871457e4, 6.7265770927008700853e4,
                                 3.3430575583588128105e4, 2.5090809287301226727e3 };
    static const double b[8] = { 1,
                                 4.2313330701600911252e1,
                                 6.8718700749205790830e2,
                                 5.3941960214247511077e3,
                                 2.1213794301586595867e4,
                                 3.9307895800092710610e4,
                                 2.8729085735721942674e4,
                                 5.2264952788528545610e3 };
    static const double c[8] = { 1.42343711074968357734,    4.63033784615654529590,
                                 5.76949722146069140550,    3.64784832476320460504,
                                 1.27045825245236838258,    2.41780725177450611770e-1,
                                 2.27238449892691845833e-2, 7.74545014278341407640e-4 };
    static const double d[8] = { 1,
                                 2.05319162663775882187,
                                 1.67638483018380384940,
                                 6.89767334985100004550e-1,
                                 1.48103976427480074590e-1,
                                 1.51986665636164571966e-2,
                                 5.47593808499534494600e-4,
                                 1.05075007164441684324e-9 };
    static const double e[8] = { 6.65790464350110377720,    5.46378491116411436990,
                                 1.78482653991729133580,    2.96560571828504891230e-1,
                                 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                 2.71155556874348757815e-5, 2.01033439929228813265e-7 };
    static const double f[8] = { 1,
                                 5.99832206555887937690e-1,
                                 1.36929880922735805310e-1,
                                 1.48753612908506148525e-2,
                                 7.86869131145613259100e-4,
                                 1.84631831751005468180e-5,
                                 1.42151175831644588870e-7,
                                 2.04426310338993978564e-15 };
    double q = p - 0.5;
    if (fabs(q) <= 0.425) return q * ratio(a, b, 0.180625 - q * q);
    double r = sqrt(-core_log(q < 0 ? p : 1 - p));
    double z = r <= 5 ? ratio(c, d, r - 1.6) : ratio(e, f, r - 5);
    return q < 0 ? -z : z;
}

double ares_rng_normal(ares_rng_key key, uint64_t index)
{
    return inverse_normal(ares_rng_uniform(key, index));
}

void ares_rng_shuffle(ares_rng_key key, int64_t *items, int64_t n)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)ares_rng_below(key, (uint64_t)i, (uint64_t)i + 1), kept = items[i];
        items[i] = items[j];
        items[j] = kept;
    }
}
