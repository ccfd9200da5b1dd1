/* Mean and deviation of a group. */
#include "test.h"

#include <math.h>

#include "ares/algo.h"
#include "stats.h"

TEST(mean_and_std_are_those_of_the_sample)
{
    const double x[] = { 2, 4, 4, 4, 5, 5, 7, 9 };
    double mean = stats_mean(x, 8);
    CHECK_NEAR(mean, 5, 0);
    CHECK_NEAR(stats_std(x, 8, mean), sqrt(32.0 / 7), 1e-15);
    CHECK_NEAR(stats_mean(NULL, 0), 0, 0);
    CHECK_NEAR(stats_std(x, 1, 2), 0, 0);
    CHECK_NEAR(stats_std(NULL, 0, 0), 0, 0);
}

TEST(equal_values_deviate_by_nothing)
{
    for (int n = 1; n <= 200; n++) {
        double x[200];
        for (int i = 0; i < n; i++) x[i] = 0.1;
        double mean = stats_mean(x, n);
        if (!CHECK_NEAR(mean, 0.1, 0) || !CHECK_NEAR(stats_std(x, n, mean), 0, 0)) return;
    }
}

TEST(the_order_of_values_changes_no_bit)
{
    ares_rng_key key = ares_rng_root(7, ARES_RNG_TEST);
    enum { N = 100 };
    double x[N], y[N];
    int64_t order[N];
    for (int i = 0; i < N; i++) {
        x[i] = ares_rng_normal(key, (uint64_t)i) * (i % 7 ? 1.0 : 1e6);
        order[i] = i;
    }
    double mean = stats_mean(x, N), std = stats_std(x, N, mean);
    for (uint64_t k = 0; k < 50; k++) {
        ares_rng_shuffle(ares_rng_sub(key, k, 1), order, N);
        for (int i = 0; i < N; i++) y[i] = x[order[i]];
        double m = stats_mean(y, N), s = stats_std(y, N, mean);
        CHECK_MEM(&m, &mean, sizeof m);
        CHECK_MEM(&s, &std, sizeof s);
    }
}

/*
 * Against long double with its 64 digits where that is enough, and against what is known where it
 * is not.
 */
TEST(an_exact_sum_is_exact)
{
    exact_sum s = { 0 };
    CHECK_NEAR(exact_value(&s), 0, 0);
    const double cases[][4] = {
        { 1e300, 1, -1e300, 1 },        /* 2 */
        { 0x1p-1074, 0, 0, 0x1p-1074 }, /* the smallest subnormal */
        { 0x1.fffffffffffffp1023, 0, -0x1.fffffffffffffp1023, 0x1p-1074 },
        { -3, 1e16, 1, -1e16 },       /* -2 */
        { 1, 0x1p-53, 0, 0 },         /* a tie: to even, 1 */
        { 1, 0x1p-53, 0x1p-1074, 0 }, /* just above the tie */
        { -1, -0x1p-53, -0x1p-1074, 0 },
        { 0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023, 0 },
    };
    const double expected[] = { 2,
                                0x1p-1073,
                                0x1p-1074,
                                -2,
                                1,
                                0x1.0000000000001p0,
                                -0x1.0000000000001p0,
                                0x1.fffffffffffffp1023 };
    for (int c = 0; c < ARES_COUNT(cases); c++) {
        s = (exact_sum){ 0 };
        for (int i = 0; i < 4; i++) exact_add(&s, cases[c][i]);
        CHECK_NEAR(exact_value(&s), expected[c], 0);
    }
    ares_rng_key key = ares_rng_root(8, ARES_RNG_TEST);
    long double sum = 0;
    s = (exact_sum){ 0 };
    /* 24 digits within a factor of 2^30: a long double holds the sum */
    for (uint64_t i = 0; i < 10000; i++) {
        double x = (double)(float)ares_rng_normal(key, i);
        if (fabs(x) < 0x1p-10) continue;
        exact_add(&s, x);
        sum += (long double)x;
    }
    CHECK_NEAR(exact_value(&s), (double)sum, 0);
}

TEST(parts_of_an_exact_sum_add_up_to_the_whole)
{
    ares_rng_key key = ares_rng_root(9, ARES_RNG_TEST);
    enum { N = 3000 };
    exact_sum whole = { 0 }, parts[3] = { { { 0 }, 0 } }, sum = { 0 };
    for (uint64_t i = 0; i < N; i++) {
        double x = ldexp(ares_rng_normal(key, i), (int)ares_rng_below(key, N + i, 400) - 200);
        exact_add(&whole, x);
        exact_add(&parts[i % 3], x);
    }
    /* carries, as before ranks are added */
    for (int p = 0; p < 3; p++) CHECK_OK(exact_ranks(&parts[p], 1, NULL));
    for (int i = 0; i < EXACT_LIMBS; i++)
        for (int p = 0; p < 3; p++) sum.limb[i] += parts[p].limb[i];
    double a = exact_value(&whole), b = exact_value(&sum);
    CHECK_MEM(&a, &b, sizeof a);
}

TEST(masked_moments_are_those_of_the_reference)
{
    const double x[] = { 1, 2, 3, 9, 4, 5, 9, 9 };
    const uint8_t mask[] = { 1, 1, 1, 0, 1, 1, 0, 0 };
    stats_moments m;
    REQUIRE_OK(stats_masked_moments(NULL, x, mask, 8, &m));
    CHECK_NEAR(m.count, 5, 0);
    CHECK_NEAR(m.mean, 3, 0);
    CHECK_NEAR(m.var, 2.5, 0);
    CHECK_NEAR(m.population_var, 2, 0);
    const uint8_t none[8] = { 0 };
    double y[8];
    for (int i = 0; i < 8; i++) y[i] = x[i];
    REQUIRE_OK(stats_masked_whiten(NULL, y, none, 8));
    for (int i = 0; i < 8; i++) CHECK(y[i] == 0);
}

/* On two ranks one has a single value, or none. AdamW would make a whole step of any remainder. */
static void check_equal(ares_world *w, bool first)
{
    enum { N = 120 };
    static const double values[] = { -1, 0.1, 1e-30, -1234.5678901, 1.0 / 3 };
    for (int v = 0; v < ARES_COUNT(values); v++)
        for (int n = 1; n <= N; n++) {
            double whitened[N], normalized[N];
            uint8_t mask[N];
            int64_t last = first ? n : n % 2, changed = 0;
            for (int i = 0; i < N; i++) {
                mask[i] = i < last;
                whitened[i] = normalized[i] = mask[i] ? values[v] : 7;
            }
            CHECK_OK(stats_masked_whiten(w, whitened, mask, N));
            CHECK_OK(stats_masked_normalize(w, normalized, mask, N));
            for (int i = 0; i < N; i++) changed += whitened[i] != 0 || normalized[i] != 0;
            if (!CHECK_MSG(changed == 0, "%d values of %g: %lld are not 0", n, values[v],
                           (long long)changed))
                return;
        }
}

TEST(equal_values_and_a_lone_one_are_whitened_and_normalized_to_exactly_0)
{
    check_equal(NULL, true);
}

TEST_MPI(equal_values_on_two_ranks_are_whitened_and_normalized_to_exactly_0)
{
    if (!test_as_ranks(2, "equal_values_on_two_ranks_are_whitened_and_normalized_to_exactly_0"))
        return;
    ares_world *w;
    REQUIRE_OK(ares_world_open(&w));
    check_equal(w, ares_world_rank(w) == 0);
    ares_world_close(w);
}

/* 1 - C(wrong, k) / C(n, k), the chance that k of n answers hold a right one. */
TEST(the_chance_of_a_right_answer_among_k_is_that_of_drawing_without_replacement)
{
    static const struct {
        int64_t n, correct, k;
        double chance;
    } cases[] = { { 4, 1, 1, 0.25 }, { 4, 1, 2, 0.5 }, { 5, 2, 2, 0.7 }, { 4, 0, 1, 0 },
                  { 4, 0, 3, 0 },    { 4, 4, 1, 1 },   { 4, 2, 3, 1 },   { 6, 3, 3, 0.95 },
                  { 8, 1, 8, 1 },    { 1, 0, 1, 0 },   { 16, 1, 8, 0.5 } };
    for (int i = 0; i < ARES_COUNT(cases); i++)
        CHECK_NEAR(ares_pass_at_k(cases[i].n, cases[i].correct, cases[i].k), cases[i].chance,
                   1e-15);
}

/* All n^k sequences of draws: the greatest value, and the value of the vote that most have; then
 * the means of their squares. */
static void enumerate(const double *values, const int32_t *votes, int n, int k, double best[2],
                      double maj[2])
{
    int sequences = 1;
    best[0] = best[1] = maj[0] = maj[1] = 0;
    for (int i = 0; i < k; i++) sequences *= n;
    for (int s = 0; s < sequences; s++) {
        int drawn[8], count[8] = { 0 }, winner = -1;
        double greatest = -INFINITY;
        for (int i = 0, rest = s; i < k; i++, rest /= n) {
            drawn[i] = rest % n;
            greatest = fmax(greatest, values[drawn[i]]);
            count[votes[drawn[i]]]++;
        }
        for (int i = 0; i < k; i++) /* in the order of drawing: the first of a tie stays */
            if (winner < 0 || count[votes[drawn[i]]] > count[votes[drawn[winner]]]) winner = i;
        best[0] += greatest / sequences;
        best[1] += greatest * greatest / sequences;
        maj[0] += values[drawn[winner]] / sequences;
        maj[1] += values[drawn[winner]] * values[drawn[winner]] / sequences;
    }
}

TEST(best_and_majority_of_k_draws_have_mean_and_deviation_of_all_draws)
{
    static const struct {
        int n;
        double values[6];
        int32_t votes[6];
    } cases[] = { { 4, { 1, 0, 0, 1 }, { 0, 1, 1, 0 } },
                  { 5, { 1, 0, 0, 0, 1 }, { 0, 1, 2, 1, 0 } },
                  { 6, { 0.5, 0, -1, 0, 2, 0.5 }, { 0, 1, 2, 1, 4, 0 } },
                  { 3, { 1, 0.25, 0 }, { 0, 0, 1 } }, /* a vote with two values */
                  { 1, { 0.75 }, { 0 } } };
    for (int i = 0; i < ARES_COUNT(cases); i++)
        for (int k = 1; k <= 6; k++) {
            double best[2], maj[2], std;
            enumerate(cases[i].values, cases[i].votes, cases[i].n, k, best, maj);
            CHECK_NEAR(ares_best_at_k(cases[i].values, cases[i].n, k, &std), best[0], 1e-12);
            CHECK_NEAR(std * std, best[1] - best[0] * best[0], 1e-12);
            CHECK_NEAR(ares_maj_at_k(cases[i].values, cases[i].votes, cases[i].n, k, &std), maj[0],
                       1e-12);
            CHECK_NEAR(std * std, maj[1] - maj[0] * maj[0], 1e-12);
        }
}
