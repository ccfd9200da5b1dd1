/*
 * Group filters beyond the goldens: reasons, several filters at once, what is kept when groups come
 * in another order, bad input.
 */
#include "test.h"

#include <math.h>

#include "ares/algo_filter.h"
#include "filter/filter.h"

static ares_filter_config off(void)
{
    return (ares_filter_config){ .filter_key = "accuracy",
                                 .filter_low = 0.01,
                                 .filter_high = 0.99,
                                 .informative_by = "acc",
                                 .dynamic_sampling = "none",
                                 .rv_strategy = "top_p",
                                 .rv_value = 1,
                                 .rv_type = "largest",
                                 .rv_metric = "reward_variance",
                                 .rv_include_zero = true,
                                 .rv_prob_mode = "softmax",
                                 .rv_eps = 0.01,
                                 .loss_scaling = "none" };
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
    cfg.rv_include_zero = false; /* all of the mass, and no group whose deviation is 0 */
    CHECK(ares_filter_needs(&cfg) != 0);
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
    CHECK_STR(v[2].reason, "accuracy_low");
    cfg.filter_low = 0.01, cfg.filter_high = 0.5;
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    CHECK(!v[2].keep);
    CHECK_STR(v[2].reason, "accuracy_high");
    cfg.filter_low = -INFINITY, cfg.filter_high = INFINITY;
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    for (int i = 0; i < 4; i++) CHECK(v[i].keep);
}

TEST(a_later_filter_sees_what_an_earlier_one_left)
{
    ares_filter_config cfg = off();
    /* the widest group is all right by accuracy */
    const double score[] = { 9, -9, 0, 0, 1, 0, 0, 2 };
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
    ares_filter_counts c = { 0 };
    ares_filter_count(&g, v, &c, m);
    ares_filter_report(&c, m);
    CHECK(ares_metrics_get(m, "rollout/dynamic_filter/drop_all_wrong", &dropped) && dropped == 1);
    CHECK(ares_metrics_get(m, "rollout/filter_kept_ratio", &dropped) && dropped == 0.25);
    CHECK(ares_metrics_get(m, "rollout/filter_zero_count", &dropped) && dropped == 1);
    ares_metrics_free(m);
}

TEST(counts_add_up_over_draws)
{
    ares_filter_config cfg = off();
    cfg.online_filtering = true;
    ares_groups all = { .groups = 4,
                        .group_start = start,
                        .accuracy = accuracy,
                        .score = accuracy },
                first = all;
    ares_verdict v[4];
    ares_metrics *m = ares_metrics_new();
    ares_filter_counts c = { 0 };
    double x;
    first.groups = 1;
    REQUIRE_OK(ares_filter_groups(&cfg, &all, v));
    ares_filter_count(&all, v, &c, m);
    REQUIRE_OK(ares_filter_groups(&cfg, &first, v));
    ares_filter_count(&first, v, &c, m);
    ares_filter_report(&c, m);
    CHECK(ares_metrics_get(m, "rollout/filter_kept_count", &x) && x == 2);
    CHECK(ares_metrics_get(m, "rollout/filter_kept_ratio", &x) && x == 0.4);
    CHECK(ares_metrics_get(m, "rollout/filter_zero_count", &x) && x == 3);
    CHECK(ares_metrics_get(m, "rollout/dynamic_filter/drop_accuracy_high", &x) && x == 2);
    ares_metrics_free(m);
}

TEST(the_ranking_looks_last_unless_it_may_draw_again)
{
    static const struct {
        bool other;
        int64_t max_resample;
        bool last;
        const char *exhausted;
    } cases[] = { { false, ARES_NULL_I64, true, "smaller_batch" },
                  { false, 0, true, "smaller_batch" },
                  { false, 3, false, "smaller_batch" },
                  { false, -1, false, "smaller_batch" },
                  { true, 3, true, "fill_masked" },
                  { true, ARES_NULL_I64, true, "fill_masked" } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_filter_config cfg = off(), of_draws, of_batch;
        cfg.rv_value = 0.5;
        cfg.informative = cases[i].other;
        cfg.max_resample = cases[i].max_resample;
        ares_filter_stages(&cfg, &of_draws, &of_batch);
        CHECK_EQ((ares_filter_needs(&of_batch) & ARES_FILTER_RANKS) != 0, cases[i].last);
        CHECK_EQ((ares_filter_needs(&of_draws) & ARES_FILTER_RANKS) != 0, !cases[i].last);
        CHECK_EQ((ares_filter_needs(&of_draws) & ARES_FILTER_ACCURACY) != 0, cases[i].other);
        CHECK_EQ(ares_filter_needs(&of_batch) & ARES_FILTER_ACCURACY, 0);
        CHECK_STR(ares_filter_on_exhausted(&cfg), cases[i].exhausted);
        cfg.on_exhausted = "error";
        CHECK_STR(ares_filter_on_exhausted(&cfg), "error");
    }
}

TEST(discarded_answers_do_not_make_a_group_informative)
{
    const uint8_t valid[] = { 1, 0, 1, 1 };
    CHECK(!group_informative((const double[]){ 1, 0, 1, 1 }, valid, 4));
    CHECK(!group_spread((const double[]){ 1, 0, 1, 1 }, valid, 4, 1e-6));
    CHECK(group_informative((const double[]){ 1, 0, 0, 1 }, valid, 4));
    CHECK(!group_spread((const double[]){ 0.1, 0.1, 0.1 }, NULL, 3, 1e-6));
    CHECK(!group_spread(NULL, NULL, 0, 1e-6));
}

TEST(an_answer_is_discarded_that_is_too_long_or_unfinished_where_the_options_say_so)
{
    static const char *const actions[] = { "keep", "mask", "drop" };
    for (int i = 0; i < ARES_COUNT(actions); i++)
        for (int unfinished = 0; unfinished < 2; unfinished++) {
            ares_filter_config cfg = { .over_length_action = (char *)(uintptr_t)actions[i],
                                       .mask_truncated = unfinished };
            CHECK_EQ(ares_answer_discarded(&cfg, 6, 5, true), i > 0);
            CHECK(!ares_answer_discarded(&cfg, 5, 5, true));
            CHECK(!ares_answer_discarded(&cfg, 6, ARES_NULL_I64, true));
            CHECK_EQ(ares_answer_discarded(&cfg, 5, 5, false), unfinished);
        }
}

/*
 * What is discarded counts in no filter's statistics, and a group of nothing else teaches nothing.
 */
TEST(discarded_answers_count_in_no_filter)
{
    static const int64_t ends[] = { 0, 3, 6, 9 };
    static const uint8_t valid[] = { 1, 1, 0, 1, 0, 1, 0, 0, 0 };
    static const double right[] = { 1, 1, 0, 0, 1, 1, 1, 0, 1 };
    static const struct {
        const char *name;
        bool keep[3];
        const char *reason;
    } cases[] = { { "accuracy_range", { false, true, false }, "accuracy_high" },
                  { "informative", { false, true, false }, "all_correct" },
                  { "nonzero_std", { false, true, false }, "zero_std_1.0" },
                  { "rv", { false, true, false }, "rv_top_p" },
                  { "reward_cap", { false, true, false }, "reward_cap_unknown" } };
    ares_groups g = { .groups = 3,
                      .group_start = ends,
                      .accuracy = right,
                      .score = right,
                      .overall = right,
                      .valid = valid,
                      .cap = (const double[]){ 0.9, 0.9, 0.9 } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_filter_config cfg = off();
        ares_verdict v[3];
        cfg.online_filtering = i == 0;
        cfg.informative = i == 1;
        if (i == 2) cfg.dynamic_sampling = "nonzero_std";
        if (i == 3) cfg.rv_include_zero = false;
        if (i == 4) cfg.dynamic_sampling = "reward_cap";
        REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
        for (int k = 0; k < 3; k++)
            CHECK_MSG(v[k].keep == cases[i].keep[k], "%s: group %d", cases[i].name, k);
        CHECK_STR(v[0].reason, cases[i].reason);
        CHECK_STR(v[2].reason, "all_discarded");
    }
    /* nor need they have a number */
    g.accuracy = (const double[]){ 1, 1, NAN, 0, NAN, 1, 1, 0, 1 };
    ares_filter_config cfg = off();
    ares_verdict v[3];
    cfg.online_filtering = true;
    CHECK_OK(ares_filter_groups(&cfg, &g, v));
}

TEST(a_group_is_kept_when_dropping_it_would_force_another_draw)
{
    ares_filter_config cfg = off();
    cfg.dynamic_sampling = "nonzero_std";
    cfg.keep_when_insufficient = true;
    ares_groups g = { .groups = 4,
                      .group_start = start,
                      .score = (const double[]){ 1, 1, 0, 0, 1, 0, 2, 2 },
                      .in_play = 5,
                      .target = 4 };
    ares_verdict v[4];
    REQUIRE_OK(ares_filter_groups(&cfg, &g, v));
    CHECK(!v[0].keep && v[1].keep && v[2].keep && v[3].keep); /* one could be spared */
    CHECK_STR(v[0].reason, "zero_std_1.0");
}

/*
 * The same groups in another order: the same ones stay, but for ties, which go to the lower index.
 */
TEST(the_ranking_depends_on_no_order)
{
    enum { N = 12 };
    ares_rng_key key = ares_rng_root(5, ARES_RNG_TEST);
    static const struct {
        const char *strategy, *mode, *type;
        double value;
    } cases[] = { { "top_p", "softmax", "largest", 0.7 },    { "top_p", "linear", "largest", 0.7 },
                  { "top_p", "softmax", "smallest", 0.5 },   { "top_k", "softmax", "largest", 0.4 },
                  { "top_k_abs", "softmax", "smallest", 5 }, { "min_p", "softmax", "largest", 0.5 },
                  { "min_p", "softmax", "smallest", 0.5 } };
    for (int c = 0; c < ARES_COUNT(cases); c++) {
        ares_filter_config cfg = off();
        cfg.rv_strategy = cases[c].strategy, cfg.rv_prob_mode = cases[c].mode,
        cfg.rv_type = cases[c].type, cfg.rv_value = cases[c].value;
        double metric[N], shuffled[N];
        int64_t chosen[N], again[N], order[N];
        bool stays[N] = { false };
        for (int i = 0; i < N; i++)
            metric[i] = ares_rng_uniform(key, (uint64_t)i) * 3, order[i] = i;
        int64_t k = rv_select(&cfg, metric, N, chosen, NULL);
        CHECK(k > 0 && k < N);
        for (int64_t i = 0; i < k; i++) stays[chosen[i]] = true;
        ares_rng_shuffle(ares_rng_sub(key, 9, (uint64_t)c), order, N);
        for (int i = 0; i < N; i++) shuffled[i] = metric[order[i]];
        if (!CHECK_EQ(rv_select(&cfg, shuffled, N, again, NULL), k)) continue;
        for (int64_t i = 0; i < k; i++) CHECK(stays[order[again[i]]]);
    }
}

TEST(the_ranking_keeps_as_many_groups_as_its_strategy_says)
{
    /* the softmax of 4 3 2 1 0: 0.64 0.23 0.09 0.03 0.01 */
    static const double metric[] = { 2, 4, 0, 1, 3 };
    static const struct {
        const char *strategy, *mode, *type;
        double value;
        bool zeros;
        int64_t n, kept[5];
    } cases[] = {
        { "top_k", "softmax", "largest", 0.5, true, 2, { 1, 4 } },
        { "top_k", "softmax", "largest", 0.99, true, 4, { 1, 4, 0, 3 } },
        { "top_k", "softmax", "smallest", 0.4, true, 2, { 2, 3 } },
        { "top_k", "softmax", "largest", 0.05, true, 1, { 1 } }, /* at least one */
        { "top_k", "softmax", "largest", 1, false, 4, { 1, 4, 0, 3 } },
        { "top_k_abs", "softmax", "largest", 3, true, 3, { 1, 4, 0 } },
        /* a share of all groups, of which one is no candidate */
        { "top_k", "softmax", "largest", 0.8, false, 4, { 1, 4, 0, 3 } },
        { "top_k_abs", "softmax", "smallest", 9, true, 5, { 2, 3, 0, 4, 1 } },
        { "top_p", "softmax", "largest", 0.9, true, 3, { 1, 4, 0 } },
        { "top_p", "linear", "largest", 0.65, true, 2, { 1, 4 } },
        { "top_p", "linear", "largest", 0.75, true, 3, { 1, 4, 0 } },
        { "top_p", "softmax", "largest", 1, false, 4, { 0, 1, 3, 4 } },
        { "min_p", "softmax", "largest", 0.5, true, 3, { 0, 1, 4 } },
        { "min_p", "softmax", "smallest", 0.4, false, 2, { 0, 3 } },
    };
    for (int c = 0; c < ARES_COUNT(cases); c++) {
        ares_filter_config cfg = off();
        int64_t kept[5];
        cfg.rv_strategy = cases[c].strategy, cfg.rv_prob_mode = cases[c].mode,
        cfg.rv_type = cases[c].type;
        cfg.rv_value = cases[c].value, cfg.rv_include_zero = cases[c].zeros;
        int64_t n = rv_select(&cfg, metric, 5, kept, NULL);
        CHECK_MSG(n == cases[c].n, "%s of %g %s: %lld groups, expected %lld", cfg.rv_strategy,
                  cfg.rv_value, cfg.rv_type, (long long)n, (long long)cases[c].n);
        for (int64_t i = 0; i < n && n == cases[c].n; i++) CHECK_EQ(kept[i], cases[c].kept[i]);
    }
}

TEST(a_ranking_that_could_keep_nothing_or_too_much_is_refused)
{
    static const struct {
        const char *strategy;
        double value;
        int faults;
    } cases[] = {
        { "top_p", 0, 0 },     { "top_p", 1, 0 },     { "top_p", 1.5, 1 },     { "top_k", 0, 1 },
        { "top_k", 1, 0 },     { "top_k", 1.5, 1 },   { "min_p", 0, 1 },       { "min_p", 1, 0 },
        { "top_k_abs", 1, 0 }, { "top_k_abs", 7, 0 }, { "top_k_abs", 0.5, 1 }, { "none", 7, 0 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_filter_config f = off();
        ares_config *cfg = ares_config_new();
        f.resample_mode = "new_prompts";
        f.rv_strategy = cases[i].strategy, f.rv_value = cases[i].value;
        ares_filter_check(cfg, &f, &(ares_filter_run){ .n = 4, .judges = true });
        CHECK_MSG(ares_config_fault_count(cfg) == cases[i].faults,
                  "%s of %g: %d faults, expected %d", f.rv_strategy, f.rv_value,
                  ares_config_fault_count(cfg), cases[i].faults);
        ares_config_free(cfg);
    }
}

/* Without a filter no group is counted, and the advantages stay as they are. */
TEST(advantages_are_scaled_by_the_share_of_groups_that_stay)
{
    static const struct {
        const char *mode;
        int64_t kept, total;
        double want;
    } cases[] = {
        { "none", 1, 4, 1 },   { "linear", 1, 4, 0.25 }, { "sqrt", 1, 4, 0.5 },
        { "linear", 4, 4, 1 }, { "linear", 0, 4, 0 },    { "none", 0, 0, 1 },
        { "linear", 0, 0, 1 }, { "sqrt", 0, 0, 1 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++)
        CHECK_NEAR(ares_filter_loss_scale(cases[i].mode, cases[i].kept, cases[i].total),
                   cases[i].want, 0);
}

TEST(what_filters_cannot_use_is_named)
{
    ares_filter_config cfg = off();
    ares_verdict v[4];
    ares_groups g = { .groups = 4,
                      .group_start = start,
                      .accuracy = (const double[]){ 1, 1, 0, NAN, 1, 0, 0, 1 } };
    cfg.online_filtering = true;
    CHECK_FAIL(ares_filter_groups(&cfg, &g, v), ARES_ECONFIG, "filter: row 3: accuracy = nan");
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
    CHECK_FAIL(ares_oversampling_fetch(&s, &groups), ARES_ELIMIT,
               "4 groups were fetched, 4 dropped, and 0 of 2 are kept");
}
