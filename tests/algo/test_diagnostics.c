/* Collapse metrics, their moving averages, and groups by the deviation of their rewards. */
#include <math.h>
#include <string.h>

#include "algo_test.h"
#include "ares/algo.h"
#include "control_test.h"
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

/* ---------------------------------------------------------------- moving averages */
static double metric(const ares_metrics *m, const char *name)
{
    double x = NAN;
    return ares_metrics_get(m, name, &x) ? x : NAN;
}

static void adapt(const ares_control *c, void *state, ares_metrics *m, double std, double mi)
{
    ares_metrics_clear(m);
    ares_metrics_set(m, "collapse_first_turn_sample/marginal_std", std);
    ares_metrics_set(m, "collapse_first_turn_sample/mi_estimate", mi);
    ares_metrics_set(m, "collapse_trajectory_sample/marginal_std_seq", 10 * std);
    ares_metrics_set(m, "collapse_trajectory_sample/mi_seq_estimate", mi);
    CHECK_OK(c->adapt(state, NULL, m));
}

TEST(deviations_are_averaged_over_steps_and_go_on_from_a_saved_state)
{
    const ares_control *c = control_named("collapse");
    static const char *const words[] = { "report.collapse.freq=5" };
    ares_config *cfg;
    void *options = control_options(c, words, 1, &cfg), *state, *resumed;
    ares_metrics *m = ares_metrics_new();
    ares_str json = { 0 };
    ares_arena arena = { 0 };
    const ares_json *saved;
    REQUIRE(options);
    CHECK(c->wanted(options, &(ares_control_env){ 0 }));
    REQUIRE_OK(c->open(options, &(ares_control_env){ 0 }, &state));
    adapt(c, state, m, 1, 0.5);
    CHECK_NEAR(metric(m, "collapse_first_turn_sample/marginal_std_ema"), 1, 0);
    CHECK_NEAR(metric(m, "collapse_first_turn_sample/mi_zscore_ema"), 0.5 / 1.001, 1e-15);
    ares_metrics_clear(m);
    CHECK_OK(c->adapt(state, NULL, m)); /* a step that measures nothing */
    CHECK(isnan(metric(m, "collapse_first_turn_sample/marginal_std_ema")));
    c->save(state, &json);
    REQUIRE_OK(ares_json_parse(&arena, ares_str_view(&json), "state", &saved));
    REQUIRE_OK(c->open(options, &(ares_control_env){ 0 }, &resumed));
    CHECK_OK(c->load(resumed, saved));
    for (int i = 0; i < 2; i++) {
        adapt(c, i ? resumed : state, m, 2, 0.5);
        CHECK_NEAR(metric(m, "collapse_first_turn_sample/marginal_std_ema"), 1.1, 1e-15);
        CHECK_NEAR(metric(m, "collapse_first_turn_sample/mi_zscore_ema"), 0.5 / 1.101, 1e-15);
        CHECK_NEAR(metric(m, "collapse_trajectory_sample/marginal_std_ema_seq"), 11, 1e-14);
        CHECK_NEAR(metric(m, "collapse_trajectory_sample/mi_zscore_ema_seq"), 0.5 / 11.001, 1e-15);
        CHECK(isnan(metric(m, "collapse_first_turn_sample/marginal_std_ema_seq")));
    }
    REQUIRE_OK(ares_json_parse(&arena, ARES_VIEW("{\"first_turn\":-1}"), "state", &saved));
    CHECK_FAIL(c->load(resumed, saved), ARES_EFORMAT, "first_turn below 0");
    c->close(state);
    c->close(resumed);
    ares_metrics_free(m);
    ares_str_fini(&json);
    ares_arena_fini(&arena);
    ares_config_free(cfg);
    ares_free(options);
}

/* ---------------------------------------------------------------- buckets */
TEST(the_last_bucket_takes_the_rest_and_no_bucket_is_empty)
{
    static const double std[] = { 0.3, 0.1, 0.2, 0.1, 0.5 };
    int64_t order[5], start[8];
    CHECK_EQ(ares_std_quantiles(std, 5, 2, order, start), 2);
    CHECK_MEM(order, ((const int64_t[]){ 1, 3, 2, 0, 4 }), sizeof order);
    CHECK_MEM(start, ((const int64_t[]){ 0, 2, 5 }), 3 * sizeof *start);
    CHECK_EQ(ares_std_quantiles(std, 5, 3, order, start), 3); /* as many in all but the last */
    CHECK_MEM(start, ((const int64_t[]){ 0, 1, 2, 5 }), 4 * sizeof *start);
    CHECK_EQ(ares_std_quantiles(std, 5, 7, order, start), 5);
    CHECK_EQ(ares_std_quantiles(std, 0, 6, order, start), 0);
}

TEST(bands_hold_their_lower_edge_and_the_last_everything_above)
{
    static const double std[] = { 5, 0.999, 1, 40, 4.5 };
    int64_t order[5], start[ARES_STD_BANDS + 1];
    CHECK_EQ(ares_std_bands(std, 5, order, start), ARES_STD_BANDS);
    CHECK_MEM(order, ((const int64_t[]){ 1, 2, 4, 0, 3 }), sizeof order);
    CHECK_MEM(start, ((const int64_t[]){ 0, 1, 2, 2, 2, 3, 5 }), sizeof start);
}

TEST(an_answer_counts_once_in_the_deviation_of_its_group)
{
    static const int64_t lengths[] = { 2 };
    double std;
    ares_batch b;
    make_batch(&b, 1, 6, lengths, 1);
    static const float score[] = { 1, 1, 3, 3, 9, 5 };
    for (int r = 0; r < 6; r++) b.samples[r].unshaped = score[r];
    b.samples[1].index = 0; /* a copy of the first */
    b.samples[2].episode = b.samples[3].episode = 7;
    memset(b.response_mask + b.row_start[4], 0, 2); /* discarded */
    CHECK(ares_group_reward_std(&b, 0, &std));
    CHECK_NEAR(std, 2, 1e-15); /* 1, 3, 5 */
    memset(b.response_mask, 0, (size_t)b.tokens);
    CHECK(!ares_group_reward_std(&b, 0, &std));
    ares_batch_fini(&b);
}
