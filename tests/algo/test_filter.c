/* Group filters beyond the goldens: reasons, several filters at once, what is kept when groups come in another order, bad input. */
#include "test.h"

#include <math.h>

#include "ares/algo.h"
#include "ares/algo_filter.h"

static ares_filter_config off(void)
{
    return (ares_filter_config){ .filter_key = "accuracy", .filter_low = 0.01, .filter_high = 0.99, .informative_by = "acc", .dynamic_sampling = "none", .rv_strategy = "top_p",
                                 .rv_value = 1, .rv_type = "largest", .rv_metric = "reward_variance", .rv_include_zero = true, .rv_prob_mode = "softmax", .rv_eps = 0.01, .loss_scaling = "none" };
}

static const int64_t start[] = { 0, 2, 4, 6, 8 };
static const double accuracy[] = { 1, 1, 0, 0, 1, 0, 0, 1 };

TEST(without_options_everything_stays_and_nothing_is_read)
{
    ares_filter_config cfg = off();
    ares_groups g = { .groups = 4, .group_start = start };
    ares_verdict v[4];
    CHECK_EQ(ares_filter_needs(&cfg), 0);
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    for (int i = 0; i < 4; i++) CHECK(v[i].keep && !v[i].reason[0]);
}

TEST(bounds_of_the_accuracy_range_are_strict)
{
    ares_filter_config cfg = off();
    cfg.online_filtering = true;
    ares_groups g = { .groups = 4, .group_start = start, .accuracy = accuracy };
    ares_verdict v[4];
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    CHECK(!v[0].keep && !v[1].keep && v[2].keep && v[3].keep);
    CHECK_STR(v[0].reason, "accuracy_high");
    CHECK_STR(v[1].reason, "accuracy_low");
    cfg.filter_low = 0.5;
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    CHECK(!v[2].keep);
    cfg.filter_low = -INFINITY, cfg.filter_high = INFINITY;
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    for (int i = 0; i < 4; i++) CHECK(v[i].keep);
}

TEST(a_later_filter_sees_what_an_earlier_one_left)
{
    ares_filter_config cfg = off();
    const double score[] = { 9, -9, 0, 0, 1, 0, 0, 2 }; /* the widest group is all right by accuracy */
    cfg.informative = true;
    cfg.rv_strategy = "top_k_abs";
    ares_groups g = { .groups = 4, .group_start = start, .accuracy = accuracy, .score = score };
    ares_verdict v[4];
    ares_metrics *m = ares_metrics_new();
    double dropped;
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    CHECK(!v[0].keep && !v[1].keep && !v[2].keep && v[3].keep);
    CHECK_STR(v[0].reason, "all_correct");
    CHECK_STR(v[1].reason, "all_wrong");
    CHECK_STR(v[2].reason, "rv_top_k_abs");
    ares_filter_report(&cfg, &g, v, m);
    CHECK(ares_metrics_get(m, "rollout/dynamic_filter/drop_all_wrong", &dropped) && dropped == 1);
    CHECK(ares_metrics_get(m, "rollout/filter_kept_ratio", &dropped) && dropped == 0.25);
    CHECK(ares_metrics_get(m, "rollout/filter_zero_count", &dropped) && dropped == 1);
    ares_metrics_free(m);
}

TEST(discarded_answers_do_not_make_a_group_informative)
{
    const uint8_t valid[] = { 1, 0, 1, 1 };
    CHECK(!ares_group_informative((const double[]){ 1, 0, 1, 1 }, valid, 4));
    CHECK(!ares_group_spread((const double[]){ 1, 0, 1, 1 }, valid, 4, 1e-6));
    CHECK(ares_group_informative((const double[]){ 1, 0, 0, 1 }, valid, 4));
    CHECK(!ares_group_spread((const double[]){ 0.1, 0.1, 0.1 }, NULL, 3, 1e-6));
    CHECK(!ares_group_spread(NULL, NULL, 0, 1e-6));
}

TEST(discarded_answers_have_no_part_in_a_groups_statistics)
{
    ares_filter_config cfg = off();
    const uint8_t valid[] = { 1, 1, 1, 0, 0, 1, 0, 0 };
    ares_groups g = { .groups = 4, .group_start = start, .accuracy = accuracy, .score = (const double[]){ 1, 2, 1, 0, 1, 0, 0, 1 }, .valid = valid };
    ares_verdict v[4];
    cfg.online_filtering = true;
    cfg.filter_low = 0.25, cfg.filter_high = 2;
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    CHECK(v[0].keep && !v[1].keep && !v[2].keep && !v[3].keep); /* means 1, 0, and 0 of the one wrong answer; none of no answer */
    cfg = off();
    cfg.dynamic_sampling = "nonzero_std";
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    CHECK(v[0].keep && !v[1].keep && !v[2].keep && !v[3].keep);
    CHECK_EQ(ares_group_metric("reward_sum", &g, 1), 1);
}

TEST(a_group_is_kept_when_dropping_it_would_force_another_draw)
{
    ares_filter_config cfg = off();
    cfg.dynamic_sampling = "nonzero_std";
    cfg.keep_when_insufficient = true;
    ares_groups g = { .groups = 4, .group_start = start, .score = (const double[]){ 1, 1, 0, 0, 1, 0, 2, 2 }, .in_play = 5, .target = 4 };
    ares_verdict v[4];
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    CHECK(!v[0].keep && v[1].keep && v[2].keep && v[3].keep); /* one could be spared */
    CHECK_STR(v[0].reason, "zero_std_1.0");
}

/* The same groups in another order: the same ones stay, but for ties, which go to the lower index. */
TEST(the_ranking_depends_on_no_order)
{
    enum { N = 12 };
    ares_rng_key key = ares_rng_root(5, ARES_RNG_TEST);
    static const struct { const char *strategy, *mode, *type; double value; } cases[] = {
        { "top_p", "softmax", "largest", 0.7 }, { "top_p", "linear", "largest", 0.7 }, { "top_p", "softmax", "smallest", 0.5 }, { "top_k", "softmax", "largest", 0.4 },
        { "top_k_abs", "softmax", "smallest", 5 }, { "min_p", "softmax", "largest", 0.5 },   { "min_p", "softmax", "smallest", 0.5 } };
    for (int c = 0; c < ARES_COUNT(cases); c++) {
        ares_filter_config cfg = off();
        cfg.rv_strategy = cases[c].strategy, cfg.rv_prob_mode = cases[c].mode, cfg.rv_type = cases[c].type, cfg.rv_value = cases[c].value;
        double metric[N], shuffled[N];
        int64_t chosen[N], again[N], order[N];
        bool stays[N] = { false };
        for (int i = 0; i < N; i++) metric[i] = ares_rng_uniform(key, (uint64_t)i) * 3, order[i] = i;
        int64_t k = ares_rv_select(&cfg, metric, N, chosen, NULL);
        CHECK(k > 0 && k < N);
        for (int64_t i = 0; i < k; i++) stays[chosen[i]] = true;
        ares_rng_shuffle(ares_rng_sub(key, 9, (uint64_t)c), order, N);
        for (int i = 0; i < N; i++) shuffled[i] = metric[order[i]];
        if (!CHECK_EQ(ares_rv_select(&cfg, shuffled, N, again, NULL), k)) continue;
        for (int64_t i = 0; i < k; i++) CHECK(stays[order[again[i]]]);
    }
}

TEST(what_filters_cannot_use_is_named)
{
    ares_filter_config cfg = off();
    ares_verdict v[4];
    ares_groups g = { .groups = 4, .group_start = start, .accuracy = (const double[]){ 1, 1, 0, NAN, 1, 0, 0, 1 } };
    cfg.online_filtering = true;
    CHECK_FAIL(ares_filter_groups(&cfg, &g, v), ARES_ENUMERIC, "filter: row 3: accuracy = nan");
    g.accuracy = NULL;
    CHECK_FAIL(ares_filter_groups(&cfg, &g, v), ARES_ESTATE, "filter: needs accuracy");
    g.group_start = (const int64_t[]){ 0, 2, 2, 6, 8 };
    CHECK_FAIL(ares_filter_groups(&cfg, &g, v), ARES_ESTATE, "group 1 has no row");
    ares_oversampling s;
    CHECK_FAIL(ares_oversampling_init(&s, 8, 4, 0), ARES_ECONFIG, "over_sampling_batch_size = 4");
}

TEST(a_limit_of_fetches_ends_the_loop_with_its_counts)
{
    ares_oversampling s;
    int64_t groups;
    REQUIRE_OK(ares_oversampling_init(&s, 2, 2, 2));
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(ares_oversampling_fetch(&s, &groups));
        CHECK_EQ(groups, 2);
        REQUIRE_OK(ares_oversampling_fetch(&s, &groups));
        CHECK_EQ(groups, 0);
        for (int k = 0; k < 2; k++) CHECK(!ares_oversampling_finish(&s, false));
    }
    CHECK_FAIL(ares_oversampling_fetch(&s, &groups), ARES_ELIMIT, "4 groups were fetched, 4 dropped, and 0 of 2 are kept");
}
