/* exp and log of a lane and the f64 functions, against wider ones of the C library. */
#include "kernels_test.h"
#include "one_lane.h"

#include <float.h>

static double ulps32(float got, double want)
{
    if (isnan(want)) return isnan(got) ? 0 : 1e9;
    if (fabs(want) > FLT_MAX)
        return (double)got == want || (isinf(got) && fabs(want) > FLT_MAX) ? 0 : 1e9;
    int e;
    frexp(want, &e);
    double ulp = ldexp(1.0, (e < -125 ? -125 : e) - 24);
    return fabs((double)got - want) / ulp;
}
static double ulps64(double got, long double want)
{
    if (isnan(want)) return isnan(got) ? 0 : 1e9;
    if (fabsl(want) > DBL_MAX) return isinf(got) ? 0 : 1e9;
    int e;
    frexpl(want, &e);
    return (double)(fabsl((long double)got - want) / ldexpl(1.0L, (e < -1021 ? -1021 : e) - 53));
}

TEST(exp_of_a_lane_is_within_about_one_ulp_and_knows_its_ends)
{
    double worst = 0;
    for (int64_t u = 0; u < 0x43000000; u += 401) /* every exponent up to 128 */
        for (int sign = 0; sign < 2; sign++) {
            uint32_t bits = (uint32_t)u | (uint32_t)sign << 31;
            float x;
            memcpy(&x, &bits, 4);
            worst = fmax(worst, ulps32(lane_exp(x), exp((double)x)));
        }
    CHECK_MSG(worst < 1.01, "worst %.3f ulp", worst);
    CHECK(lane_exp(0) == 1.0f);
    CHECK(lane_exp(-0.0f) == 1.0f);
    CHECK(lane_exp(-INFINITY) == 0.0f);
    CHECK(lane_exp(-1e30f) == 0.0f);
    CHECK(lane_exp(-103.98f) == 0.0f); /* below 2^-150 */
    CHECK(lane_exp(-103.0f) == 0x1p-149f);
    CHECK(lane_exp(INFINITY) == INFINITY);
    CHECK(lane_exp(88.8f) == INFINITY);
    CHECK(isfinite(lane_exp(88.72f)));
    CHECK(isnan(lane_exp(NAN)));
}

TEST(log_of_a_lane_is_within_one_ulp_and_knows_its_ends)
{
    double worst = 0;
    for (int64_t u = 1; u < 0x7f800000; u += 499) {
        uint32_t bits = (uint32_t)u;
        float x;
        memcpy(&x, &bits, 4);
        worst = fmax(worst, ulps32(lane_log(x), log((double)x)));
    }
    for (int i = -100000; i <= 100000; i++) { /* near 1, where the result is small */
        float x = 1.0f + (float)i * 0x1p-23f;
        worst = fmax(worst, ulps32(lane_log(x), log((double)x)));
    }
    CHECK_MSG(worst < 1.0, "worst %.3f ulp", worst);
    CHECK(lane_log(1) == 0.0f);
    CHECK(lane_log(0) == -INFINITY);
    CHECK(lane_log(-0.0f) == -INFINITY);
    CHECK(lane_log(INFINITY) == INFINITY);
    CHECK(isnan(lane_log(-1)));
    CHECK(isnan(lane_log(-INFINITY)));
    CHECK(isnan(lane_log(NAN)));
}

TEST(every_lane_of_every_instruction_set_gives_the_bits_of_one_lane)
{
    enum { N = 20000 };
    float *x = normals(1, N, 30), *one = filled(N, 1), *y = filled(N, 0);
    for (int i = 0; i < ISAS; i++) {
        ares_device d;
        if (!device_of(isas[i], 1, &d)) continue;
        d.k->gate_mul(&d,
                      &(ares_gate_mul_args){
                          .rows = 1, .k = N, .gate = x, .up = one, .ldgu = N, .y = y, .ldy = N });
        int wrong = 0;
        for (int j = 0; j < N; j++) {
            float want = x[j] * (1.0f / (1.0f + lane_exp(-x[j])));
            wrong += memcmp(&want, &y[j], 4) != 0;
        }
        CHECK_EQ(wrong, 0);
        ares_device_close(&d);
    }
    ares_free(x), ares_free(one), ares_free(y);
}

TEST(f64_functions_are_within_an_ulp)
{
    ares_rng_key key = ares_rng_root(3, ARES_RNG_TEST);
    double e = 0, l = 0, p = 0, s = 0, c = 0;
    for (uint64_t i = 0; i < 200000; i++) {
        double u = ares_rng_uniform(key, 3 * i), v = ares_rng_uniform(key, 3 * i + 1),
               w = ares_rng_uniform(key, 3 * i + 2);
        double x = (u - 0.5) * 1400, positive = ldexp(1 + u, (int)(v * 2000) - 1000);
        e = fmax(e, ulps64(ares_f64_exp(x), expl(x)));
        l = fmax(l, ulps64(ares_f64_log(positive), logl(positive)));
        l = fmax(l, ulps64(ares_f64_log(0.7 + 0.7 * w), logl(0.7L + (0.7 + 0.7 * w - 0.7L))));
        double base = 0.5 + u * 1e4 * w, power = (v - 0.5) * 60;
        p = fmax(p, ulps64(ares_f64_pow(base, power), powl(base, power)));
        double angle = (u - 0.5) * (i % 2 ? 20 : 4e6);
        s = fmax(s, (double)fabsl(ares_f64_sin(angle) - sinl(angle)));
        c = fmax(c, (double)fabsl(ares_f64_cos(angle) - cosl(angle)));
    }
    CHECK_MSG(e < 1, "exp %.3f ulp", e);
    CHECK_MSG(l < 1, "log %.3f ulp", l);
    CHECK_MSG(p < 1, "pow %.3f ulp", p);
    CHECK_MSG(s < 0x1p-53 && c < 0x1p-53, "sin %.3g cos %.3g", s, c);
    CHECK(ares_f64_exp(0) == 1 && ares_f64_exp(-INFINITY) == 0 && ares_f64_exp(710) == INFINITY &&
          isnan(ares_f64_exp(NAN)));
    CHECK(ares_f64_log(1) == 0 && ares_f64_log(0) == -INFINITY && isnan(ares_f64_log(-1)) &&
          ares_f64_log(INFINITY) == INFINITY);
    CHECK(ares_f64_pow(2, 10) == 1024 && ares_f64_pow(0.9, 1) == 0.9 &&
          ares_f64_pow(10, -3) == 1e-3 && ares_f64_pow(-2, 3) == -8);
    CHECK(ares_f64_pow(7, 0) == 1 && ares_f64_pow(0, 2) == 0 && ares_f64_pow(0, -1) == INFINITY &&
          isnan(ares_f64_pow(-2, 0.5)));
    CHECK(ares_f64_pow(2, 2000) == INFINITY && ares_f64_pow(2, -2000) == 0 &&
          ares_f64_pow(2, -1074) == 0x1p-1074);
    CHECK(ares_f64_sin(0) == 0 && ares_f64_cos(0) == 1 && isnan(ares_f64_sin(INFINITY)) &&
          isnan(ares_f64_cos(NAN)));
}
