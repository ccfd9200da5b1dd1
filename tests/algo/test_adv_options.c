/* Options that make no sense together are told, with what to do. */
#include "faults.h"
#include "test.h"

#include <stdio.h>

#include "ares/algo.h"
#include "ares/algo_filter.h"

static bool judges = true; /* whether answers may have an accuracy */

static void check(const char *yaml, int64_t n, const char *fault)
{
    ares_algorithm_config a;
    ares_filter_config f;
    ares_config *cfg = ares_config_new();
    int names;
    const char *const *estimators = ares_adv_names(&names);
    ares_config_add_options(cfg, "algorithm", ares_algorithm_options, &a);
    ares_config_add_options(cfg, "", ares_filter_options, &f);
    ares_config_add_choices(cfg, "algorithm.adv_estimator", estimators, names);
    ares_config_load_text(cfg, "test.yaml", ares_view_of(yaml));
    ares_config_resolve(cfg);
    ares_adv_check(cfg, &a, n);
    ares_filter_check(cfg, &f, &(ares_filter_run){ .n = n, .judges = judges });
    if (!fault) CHECK_MSG(ares_config_fault_count(cfg) == 0, "%s: %s", yaml, faults_text(cfg));
    else if (CHECK_MSG(ares_config_fault_count(cfg) == 1, "%s: %d faults", yaml,
                       ares_config_fault_count(cfg)))
        CHECK_CONTAINS(faults_text(cfg), fault);
    ares_config_free(cfg);
}

TEST(defaults_and_what_estimators_take_are_accepted)
{
    check("{}", 2, NULL);
    check("algorithm: { adv_estimator: gae, gamma: 0.99, lam: 0.95, bi_level_gae: true }", 1, NULL);
    check("algorithm: { adv_estimator: reinforce_plus_plus, gamma: 0.99 }", 1, NULL);
    check("algorithm: { adv_estimator: vapor }", 1, NULL);
    check("algorithm: { adv_estimator: remax }", 1, NULL);
    check("algorithm: { online_filtering: true, filter_groups: { enable: true, metric: seq_reward "
          "} }",
          4, NULL);
    check("worker: { rollout: { rollout_filter_strategy: top_f, rollout_filter_value: 0.25, "
          "rollout_filter_metric: reward_std } }",
          4, NULL);
}

TEST(group_methods_need_two_answers)
{
    static const char *const names[] = { "grpo", "grpo_passk", "rloo",
                                         "opo",  "gpg",        "reinforce_plus_plus_baseline" };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        char yaml[96];
        (void)snprintf(yaml, sizeof yaml, "algorithm: { adv_estimator: %s }", names[i]);
        check(yaml, 1, "worker.rollout.n");
        check(yaml, 2, NULL);
    }
    check("algorithm: { adv_estimator: vapor, online_filtering: true }", 1,
          "algorithm.online_filtering");
    check("algorithm: { adv_estimator: vapor, filter_groups.enable: true }", 1,
          "algorithm.filter_groups.enable");
    check("algorithm: { adv_estimator: vapor, dynamic_sampling_filter: nonzero_std }", 1,
          "algorithm.dynamic_sampling_filter");
}

TEST(options_of_another_estimator_are_refused)
{
    check("algorithm: { adv_estimator: rloo, bi_level_gae: true }", 2,
          "set algorithm.adv_estimator to gae");
    check("algorithm: { adv_estimator: rloo, soft_advantage_reweight: true }", 2,
          "set algorithm.adv_estimator to grpo");
    check("algorithm: { adv_estimator: gae, grpo_advantage_length_weight: true }", 2,
          "set algorithm.adv_estimator to grpo");
    check("algorithm: { gamma: 0.9 }", 2, "algorithm.gamma = 0.9: grpo gives every token");
}

/* A schedule that begins with the value that a constant must have moves on from it. */
TEST(schedules_are_refused_where_constants_are)
{
    static const char late[] = "\"1 if step < 3 else 0.9\"";
    char yaml[120];
    (void)snprintf(yaml, sizeof yaml, "algorithm: { gamma: %s }", late);
    check(yaml, 2, "grpo gives every token of a response the same advantage");
    (void)snprintf(yaml, sizeof yaml, "algorithm: { adv_estimator: gae, gamma: %s, lam: %s }", late,
                   late);
    check(yaml, 2, NULL);
}

TEST(filters_by_accuracy_need_a_reward_that_judges)
{
    static const struct {
        const char *yaml, *fault;
    } cases[] = {
        { "algorithm: { online_filtering: true }", "or set overall" },
        { "algorithm: { online_filtering: true, filter_key: overall }", NULL },
        { "algorithm: { filter_groups: { enable: true } }", "or set score" },
        { "algorithm: { filter_groups: { enable: true, metric: score } }", NULL },
        { "algorithm: { dynamic_sampling_filter: nonzero_std }", NULL },
        { "worker: { rollout: { rollout_filter_value: 0.5 } }", NULL },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        judges = false;
        check(cases[i].yaml, 4, cases[i].fault);
        judges = true;
        check(cases[i].yaml, 4, NULL);
    }
}

TEST(filters_that_keep_nothing_or_say_nothing_are_refused)
{
    check("algorithm: { online_filtering: true, filter_low: 0.9, filter_high: 0.9 }", 2,
          "no mean lies above it and below filter_high = 0.9");
    check("algorithm: { keep_when_insufficient: true }", 2, "nonzero_std");
    check("worker: { rollout: { rollout_filter_value: 3 } }", 2,
          "set rollout_filter_strategy to top_k_abs");
    check("worker: { rollout: { rollout_filter_strategy: top_k_abs, rollout_filter_value: 0.5 } }",
          2, "set 1 or more");
    check("worker: { rollout: { rollout_filter_strategy: min_p, rollout_filter_value: 0 } }", 2,
          "set a share above 0");
}
