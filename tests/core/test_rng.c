#include "internal.h"
#include "test.h"

#include <math.h>

/* Random123 1.14, kat_vectors, philox4x32 with 10 rounds. */
TEST(philox_gives_the_known_answers)
{
    static const uint32_t cases[3][10] = {
        { 0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
        { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
          0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
        { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
          0x94fdcceb, 0x5001e420, 0x24126ea1 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        uint32_t out[4];
        ares_philox(cases[i], cases[i] + 4, out);
        CHECK_MEM(out, cases[i] + 6, sizeof out);
    }
}

/* Changing these numbers changes every run that somebody wants to repeat. */
TEST(keyed_draws_stay_what_they_are)
{
    ares_rng_key key = ares_rng_sub(ares_rng_root(42, ARES_RNG_SAMPLE), 3, 4);
    double normal = ares_rng_normal(key, 2);
    ares_str text = { 0 };
    ares_str_addf(&text, "%016llx %llu %a %a", (unsigned long long)ares_rng_u64(key, 0),
                  (unsigned long long)ares_rng_below(key, 1, 1000003), ares_rng_uniform(key, 2),
                  normal);
    CHECK_STR(text.data, "b295293ab403f317 290586 0x1.b35083c256b8p-8 -0x1.3ceefd1457fbap+1");
    ares_str_fini(&text);
}

TEST(keys_differ_in_every_coordinate)
{
    ares_map *seen = ares_map_new();
    int made = 0;
    for (uint64_t seed = 0; seed < 4; seed++)
        for (uint32_t purpose = 1; purpose < 5; purpose++)
            for (uint64_t a = 0; a < 10; a++)
                for (uint64_t b = 0; b < 10; b++) {
                    ares_rng_key key = ares_rng_sub(ares_rng_root(seed << 32, purpose), a, b << 32);
                    ares_map_put(seen, (ares_view){ (char *)&key, sizeof key }, made++);
                }
    CHECK_EQ(ares_map_count(seen), made);
    ares_map_free(seen);
}

TEST(below_is_even_and_in_range)
{
    ares_rng_key key = ares_rng_root(7, ARES_RNG_TEST);
    int counts[7] = { 0 };
    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t x = ares_rng_below(key, i, 7);
        if (!CHECK(x < 7)) return;
        counts[x]++;
    }
    for (int i = 0; i < 7; i++) CHECK_NEAR(counts[i], 10000, 460); /* 5 standard deviations */
    /*
     * With n just above 2^63 nearly half of the draws are rejected; the mean is n / 2 only if the
     * rejection is correct.
     */
    double sum = 0;
    for (uint64_t i = 0; i < 20000; i++)
        sum += (double)ares_rng_below(key, i, ((uint64_t)1 << 63) + 1) * 0x1p-63;
    CHECK_NEAR(sum / 20000, 0.5, 0.011);
    CHECK_EQ(ares_rng_below(key, 3, 1), 0);
}

TEST(uniforms_never_reach_0_or_1)
{
    ares_rng_key key = ares_rng_root(8, ARES_RNG_TEST);
    double sum = 0, least = 1, most = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = ares_rng_uniform(key, i);
        sum += u;
        least = fmin(least, u);
        most = fmax(most, u);
    }
    CHECK(least > 0 && least < 1e-4);
    CHECK(most < 1 && most > 1 - 1e-4);
    CHECK_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(normals_have_the_moments_and_tails_of_a_normal)
{
    ares_rng_key key = ares_rng_root(9, ARES_RNG_TEST);
    enum { N = 400000 };
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    int beyond[5] = { 0 };
    for (uint64_t i = 0; i < N; i++) {
        double z = ares_rng_normal(key, i);
        m1 += z, m2 += z * z, m3 += z * z * z, m4 += z * z * z * z;
        for (int k = 1; k < 5; k++) beyond[k] += fabs(z) > k;
    }
    CHECK_NEAR(m1 / N, 0, 5 * sqrt(1.0 / N));
    CHECK_NEAR(m2 / N, 1, 5 * sqrt(2.0 / N));
    CHECK_NEAR(m3 / N, 0, 5 * sqrt(15.0 / N));
    CHECK_NEAR(m4 / N, 3, 5 * sqrt(96.0 / N));
    for (int k = 1; k < 5; k++) {
        double p = erfc(k / sqrt(2));
        CHECK_NEAR(beyond[k], N * p, 5 * sqrt(N * p));
    }
}

/* The normal distribution function, by libm's erfc, must give back the uniform number. */
TEST(normals_invert_the_distribution_function)
{
    ares_rng_key key = ares_rng_root(10, ARES_RNG_TEST);
    double worst = 0;
    for (uint64_t i = 0; i < 50000; i++) {
        double u = ares_rng_uniform(key, i), z = ares_rng_normal(key, i);
        worst = fmax(worst, fabs(0.5 * erfc(-z / sqrt(2)) - u) / fmin(u, 1 - u));
    }
    CHECK_NEAR(worst, 0, 2e-14);
}

TEST(shuffles_are_permutations_and_even)
{
    int64_t items[5], places[5][5] = { { 0 } };
    for (uint64_t i = 0; i < 20000; i++) {
        for (int k = 0; k < 5; k++) items[k] = k;
        ares_rng_shuffle(ares_rng_root(i, ARES_RNG_SHUFFLE), items, 5);
        int seen = 0;
        for (int k = 0; k < 5; k++) seen |= 1 << items[k], places[items[k]][k]++;
        if (!CHECK_EQ(seen, 31)) return;
    }
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++) CHECK_NEAR(places[a][b], 4000, 290); /* 5 standard deviations */
}

TEST(elementary_functions_agree_with_libm)
{
    ares_rng_key key = ares_rng_root(11, ARES_RNG_TEST);
    double log_worst = 0, exp_worst = 0, cos_worst = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = ares_rng_uniform(key, i), x = (u - 0.5) * 1300;
        log_worst = fmax(log_worst, fabs(core_log(u) - log(u)) / fmax(fabs(log(u)), 1e-3));
        exp_worst = fmax(exp_worst, fabs(core_exp(x) / exp(x) - 1));
        cos_worst = fmax(cos_worst,
                         fabs(core_cos_pi(u * 8 - 4) - cos(3.14159265358979323846 * (u * 8 - 4))));
    }
    CHECK_NEAR(log_worst, 0, 5e-16);
    CHECK_NEAR(exp_worst, 0, 1e-15);
    CHECK_NEAR(cos_worst, 0, 2e-15); /* libm's argument pi x is rounded */
    CHECK_NEAR(core_exp(0), 1, 0);
    CHECK_NEAR(core_log(1), 0, 0);
    CHECK_NEAR(core_cos_pi(0), 1, 0);
    CHECK_NEAR(core_cos_pi(0.5), 0, 0);
    CHECK_NEAR(core_cos_pi(1), -1, 0);
    CHECK_NEAR(core_cos_pi(-1.5), 0, 0);
}
