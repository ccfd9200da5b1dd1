/* Collapse metrics. */
#include <math.h>

#include "ares/algo_diagnostics.h"
#include "test.h"

enum { THOUGHTS = 4, PROMPTS = 3 };

static ares_collapse measure(const double *x, const int64_t *own, const int64_t *text,
                             double *matched, double *marginal)
{
    ares_collapse out;
    ares_collapse_measure(&(ares_collapse_scores){ THOUGHTS, PROMPTS, x, own, text }, matched,
                          marginal, &out);
    return out;
}

TEST(thoughts_that_no_prompt_changes_tell_nothing_of_it)
{
    static const double x[] = { -1, -1, -1, -2, -2, -2, -3, -3, -3, -4, -4, -4 };
    static const int64_t own[] = { 0, 1, 2, 0 }, text[] = { 0, 1, 2 };
    double matched[THOUGHTS], marginal[THOUGHTS];
    ares_collapse m = measure(x, own, text, matched, marginal);
    CHECK_NEAR(m.mi, 0, 1e-15);
    CHECK_NEAR(m.zscore, 0, 1e-15);
    CHECK_NEAR(m.conditional_entropy, 2.5, 1e-15);
    CHECK_NEAR(m.marginal_std, sqrt(1.25), 1e-12); /* of a population */
    CHECK_NEAR(m.accuracy[0], 0.5, 0);             /* ties go to the first prompt */
    CHECK_NEAR(m.accuracy[1], 0.75, 0);
    CHECK_NEAR(m.accuracy[2], 1, 0); /* more looks than prompts */
    CHECK_NEAR(m.chance[1], 2.0 / 3, 1e-15);
    CHECK_NEAR(m.chance[3], 1, 0);
}

TEST(thoughts_that_only_their_prompt_allows_tell_all_of_it)
{
    static const double x[] = { -1, -900, -900, -900, -1, -900, -900, -900, -1, -1, -900, -900 };
    static const int64_t own[] = { 0, 1, 2, 0 }, text[] = { 0, 1, 2 };
    double matched[THOUGHTS], marginal[THOUGHTS];
    ares_collapse m = measure(x, own, text, matched, marginal);
    CHECK_NEAR(m.mi, log(3), 1e-12);
    CHECK_NEAR(m.mi, m.mi_bound, 1e-12);
    CHECK_NEAR(m.accuracy[0], 1, 0);
}

TEST(prompts_of_the_same_text_count_as_one_when_the_own_is_looked_for)
{
    static const double x[] = { -2, -3, -1, -1, -3, -2, -2, -1, -3, -2, -1, -3 };
    static const int64_t own[] = { 0, 0, 1, 2 }, apart[] = { 0, 1, 2 }, same[] = { 5, 1, 5 };
    double matched[THOUGHTS], marginal[THOUGHTS];
    ares_collapse m = measure(x, own, apart, matched, marginal);
    CHECK_NEAR(m.accuracy[0], 0.5, 0);
    m = measure(x, own, same, matched, marginal);
    CHECK_NEAR(m.accuracy[0], 0.75, 0);
    CHECK_NEAR(m.chance[0], (2 + 2 + 1 + 2) / 12.0, 1e-15);
}

TEST(a_thought_that_is_impossible_gives_no_number_and_no_fault)
{
    static const double x[] = {
        -INFINITY, -INFINITY, -INFINITY, -1, -2, -3, -1, -2, -3, -1, -2, -3
    };
    static const int64_t own[] = { 0, 1, 2, 0 }, text[] = { 0, 1, 2 };
    double matched[THOUGHTS], marginal[THOUGHTS];
    ares_collapse m = measure(x, own, text, matched, marginal);
    CHECK(!isfinite(m.mi));
    CHECK(isinf(marginal[0]) && isfinite(marginal[1]));
}
