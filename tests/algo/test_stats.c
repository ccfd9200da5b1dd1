/* Mean and deviation of a group. */
#include "test.h"

#include <math.h>

#include "ares/algo.h"

TEST(mean_and_std_are_those_of_the_sample)
{
    const float x[] = { 2, 4, 4, 4, 5, 5, 7, 9 };
    double mean = ares_mean(x, 8);
    CHECK_NEAR(mean, 5, 0);
    CHECK_NEAR(ares_std(x, 8, mean), sqrt(32.0 / 7), 1e-15);
    CHECK_NEAR(ares_mean(NULL, 0), 0, 0);
    CHECK_NEAR(ares_std(x, 1, 2), 0, 0);
    CHECK_NEAR(ares_std(NULL, 0, 0), 0, 0);
}

TEST(equal_values_deviate_by_nothing)
{
    for (int n = 1; n <= 200; n++) {
        float x[200];
        for (int i = 0; i < n; i++) x[i] = 0.1f;
        double mean = ares_mean(x, n);
        if (!CHECK_NEAR(mean, (double)0.1f, 0) || !CHECK_NEAR(ares_std(x, n, mean), 0, 0)) return;
    }
}

TEST(the_order_of_values_changes_no_bit)
{
    ares_rng_key key = ares_rng_root(7, ARES_RNG_TEST);
    enum { N = 100 }; /* more than the 64 that are sorted on the stack */
    float x[N], y[N];
    int64_t order[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)ares_rng_normal(key, (uint64_t)i) * (i % 7 ? 1.0f : 1e6f);
        order[i] = i;
    }
    double mean = ares_mean(x, N), std = ares_std(x, N, mean);
    for (uint64_t k = 0; k < 50; k++) {
        ares_rng_shuffle(ares_rng_sub(key, k, 1), order, N);
        for (int i = 0; i < N; i++) y[i] = x[order[i]];
        double m = ares_mean(y, N), s = ares_std(y, N, mean);
        CHECK_MEM(&m, &mean, sizeof m);
        CHECK_MEM(&s, &std, sizeof s);
    }
}
