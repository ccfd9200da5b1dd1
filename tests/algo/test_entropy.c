#include "stats.h"
#include "test.h"

#include <math.h>

static double uniform(uint64_t i)
{
    return ares_rng_uniform(ares_rng_root(7, ARES_RNG_TEST), i);
}

TEST(a_window_is_the_mean_of_the_tokens_behind_it_whatever_its_size)
{
    enum { N = 300 };
    double h[N], window[N];
    for (int i = 0; i < N; i++) h[i] = uniform((uint64_t)i) * 3;
    for (int64_t w = 1; w <= 130; w++) {
        CHECK_EQ(entropy_windows(h, N, w, window), N - w);
        for (int64_t t = 0; t < N - w; t++) {
            long double sum = 0;
            for (int64_t j = 1; j <= w; j++) sum += (long double)h[t + j];
            if (!CHECK_NEAR(window[t], (double)(sum / (long double)w), 1e-14)) return;
        }
    }
}

TEST(a_window_has_the_same_bits_in_an_answer_of_any_length)
{
    enum { N = 4000 };
    static double h[N], longest[N], window[N];
    for (int i = 0; i < N; i++) h[i] = uniform((uint64_t)i) * (i % 97 == 0 ? 1e6 : 1e-3);
    static const int64_t sizes[] = { 1, 2, 4, 8, 31, 32, 33, 64, 257 };
    for (int k = 0; k < ARES_COUNT(sizes); k++) {
        int64_t w = sizes[k];
        entropy_windows(h, N, w, longest);
        for (int64_t n = w + 1; n < N; n += 613) {
            int64_t windows = entropy_windows(h, n, w, window);
            CHECK_MEM(window, longest, (size_t)windows * sizeof *window);
        }
        if (w > 32) continue; /* and at any place in it */
        for (int64_t from = 1; from < 600; from += 37) {
            int64_t windows = entropy_windows(h + from, N - from, w, window);
            CHECK_MEM(window, longest + from, (size_t)windows * sizeof *window);
        }
    }
}

TEST(answers_shorter_than_the_window_have_none)
{
    double h[3] = { 0.5, 1.5, 2.5 }, window[3] = { -1, -1, -1 }, padded[3];
    CHECK_EQ(entropy_windows(h, 3, 3, window), 0);
    CHECK_EQ(entropy_windows(h, 3, 1000, window), 0);
    CHECK_EQ(entropy_windows(h, 1, 1, window), 0);
    CHECK_EQ(entropy_windows(NULL, 0, 4, NULL), 0);
    CHECK_NEAR(window[0], -1, 0);
    entropy_pad_windows(h, 3, window, 0, padded);
    for (int i = 0; i < 3; i++) CHECK_NEAR(padded[i], 0.5, 0);
    CHECK_NEAR(entropy_sample_threshold(h, 1, 4, 95), 0.5, 0);
    CHECK_NEAR(entropy_sample_threshold(h, 0, 4, 95), 0, 0);
    uint8_t mask[1] = { 7 };
    hwe_marked none = hwe_mark(window, 0, 1, 0, NULL, mask);
    CHECK_EQ(none.count + none.invalid, 0);
    CHECK_EQ(mask[0], 0);
}

TEST(percentiles_are_those_of_the_sorted_list)
{
    enum { N = 3000 };
    static double x[N], sorted[N];
    static const double qs[] = { 0, 5, 50, 95, 98, 99.9, 100 };
    for (int kind = 0; kind < 5; kind++)
        for (int64_t n = 1; n <= N; n = n < 130 ? n + 1 : n * 5 / 3) {
            for (int64_t i = 0; i < n; i++) {
                double u = uniform((uint64_t)(kind * N + i));
                x[i] = kind == 0   ? u
                       : kind == 1 ? floor(u * 4)
                       : kind == 2 ? exp(60 * u)
                       : kind == 3 ? 1.5
                                   : (u < 0.9 ? 1e-300 * u : u);
            }
            memcpy(sorted, x, (size_t)n * sizeof *x);
            ares_sort_f64(sorted, n);
            for (int k = 0; k < ARES_COUNT(qs); k++) {
                double rank = (double)(n - 1) * (qs[k] / 100);
                int64_t at = (int64_t)rank;
                double next = sorted[at + 1 < n ? at + 1 : at],
                       want = sorted[at] + (next - sorted[at]) * (rank - (double)at);
                if (!CHECK_NEAR(stats_percentile(x, n, qs[k]), want, 1e-15 * fabs(want))) return;
            }
        }
    CHECK_NEAR(stats_median((double[]){ 4, 1, 3, 2 }, 4), 2.5, 0);
    CHECK_NEAR(stats_median((double[]){ 9, 1, 3 }, 3), 3, 0);
}

TEST(widening_covers_the_tokens_behind_each_mark)
{
    enum { N = 200 };
    uint8_t mask[N], wide[N];
    for (int64_t w = 1; w < 9; w++) {
        for (int i = 0; i < N; i++) mask[i] = uniform((uint64_t)(w * N + i)) < 0.05;
        hwe_widen(mask, N, w, wide);
        for (int64_t t = 0; t < N; t++) {
            bool near = false;
            for (int64_t j = ARES_MAX(0, t - w); j <= t; j++) near = near || mask[j];
            CHECK_EQ(wide[t], near);
        }
    }
}

TEST(only_candidates_are_counted_and_a_tie_reaches_the_threshold)
{
    double window[4] = { 1.0, 2.0, 0.5, 3.0 };
    uint8_t candidates[6] = { 1, 0, 1, 1, 1, 1 }, mask[6];
    hwe_marked x = hwe_mark(window, 4, 6, 1.0, candidates, mask);
    CHECK_EQ(x.count, 2);
    CHECK_EQ(x.invalid, 1);
    CHECK_NEAR(x.soft_cost, 2.0, 0);
    CHECK_MEM(mask, ((uint8_t[]){ 1, 0, 0, 1, 0, 0 }), 6);
}

TEST(trigger_words_are_compared_without_marks_and_case)
{
    static const struct {
        const char *token, *word;
    } cases[] = {
        { "\xc4\xa0Wait", "wait" },
        { "\xe2\x96\x81\xc4\xa0 Hmm\t", "hmm" },
        { "Wait,", "wait," },
        { "", "" },
        { "\xc4\xa0", "" },
        { "a\xc4\xa0"
          "b",
          "a\xc4\xa1"
          "b" },
        { "\xc3\x89tat\xc2\xa0", "\xc3\xa9tat" },
        { "\xe2\x96", "\xe2\x96" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_trigger_normalize(ares_view_of(cases[i].token), &out);
        CHECK_VIEW(ares_str_view(&out), cases[i].word);
    }
    ares_str_fini(&out);
}
