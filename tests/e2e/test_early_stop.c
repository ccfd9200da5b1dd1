/*
 * Runs that a control ends: rewards vary within groups for ten steps, and from then on every answer
 * scores 0; or no answer of a validation is right.
 */
#include <math.h>
#include <stdio.h>

#include "e2e.h"

enum { LAST = 13 }; /* ten steps that make the base, and three without variance */

/* Four prompts per step, in the order of the file. */
static const char *write_rows(void)
{
    ares_str rows = { 0 };
    for (int i = 0; i < 80; i++)
        ares_str_addf(&rows, "{\"prompt\":\"%d\",\"answer\":\"1\",\"rm_type\":\"%s\"}\n", i,
                      i < 40 ? "random" : "none");
    const char *path = e2e_write("rows.jsonl", rows.data);
    ares_str_fini(&rows);
    return path;
}

static int run_of(ares_str *out, const char *run, const char *launch, const char *more)
{
    ares_str_clear(out);
    return e2e_program(out,
                       "%s --config '%s' data.train_files='%s' data.shuffle=false "
                       "'worker.reward.rewards=[{name: auto}]' trainer.max_steps=20 "
                       "trainer.save_freq=1 algorithm.early_stop_rv_window=3 %s",
                       launch, e2e_train_words(run), write_rows(), more);
}

static void check_end(const char *run)
{
    ares_arena arena = { 0 };
    int64_t n;
    CHECK_EQ(e2e_metric(run, LAST, "train/early_stopped"), 1);
    CHECK_EQ(e2e_metric(run, LAST, "early_stopped/reward_variance_collapse"), 1);
    CHECK_EQ(e2e_metric(run, LAST, "rollout/in_group_reward_std"), 0);
    CHECK(e2e_metric(run, 10, "rollout/in_group_reward_std") > 0);
    CHECK(!isnan(e2e_metric(run, LAST - 1, "actor/lr")));
    CHECK(isnan(e2e_metric(run, LAST, "actor/lr"))); /* no update */
    (void)e2e_rows(&arena, run, "metrics.jsonl", &n);
    CHECK_EQ(n, LAST);
    const ares_json **end = e2e_rows(&arena, run, "DONE", &n);
    if (CHECK_EQ(n, 1)) {
        CHECK_EQ(ares_json_get(end[0], "step")->integer, LAST);
        CHECK_VIEW(ares_json_get(end[0], "stopped")->text, "reward_variance_collapse");
    }
    ares_arena_fini(&arena);
}

TEST(a_run_whose_rewards_stop_varying_ends_before_an_update_with_its_reason)
{
    ares_str out = { 0 };
    char words[600]; /* no step is validated but the last one */
    snprintf(words, sizeof words,
             "data.val_files='%s' trainer.val_freq=20 trainer.val_before_train=false",
             write_rows());
    CHECK_EQ(run_of(&out, "run", "", words), 0);
    CHECK_CONTAINS(out.data, "stopped in step 13 of 20: reward_variance_collapse");
    check_end("run");
    for (int step = 1; step <= LAST; step++)
        CHECK_EQ(isnan(e2e_metric("run", step, "val/reward_score")), step < LAST);
    CHECK_EQ(test_shell(NULL,
                        "cd '%s/checkpoints' && cmp step_000012/model/model.safetensors "
                        "step_000013/model/model.safetensors",
                        test_file("run")),
             0);
    /* killed before the end was written: it ends again, without another step */
    CHECK_EQ(test_shell(NULL, "rm '%s'", test_file("run/DONE")), 0);
    CHECK_EQ(run_of(&out, "run", "", words), 0);
    check_end("run");
    /* killed at the first step without variance: it ends where the whole run ended */
    CHECK(e2e_go_back("run", "whole", 11));
    CHECK_EQ(run_of(&out, "run", "", words), 0);
    check_end("run");
    e2e_same_runs("whole", "run", LAST);
    ares_str_fini(&out);
}

TEST(a_run_with_a_longer_window_or_none_goes_to_its_end)
{
    ares_str out = { 0 };
    CHECK_EQ(run_of(&out, "longer", "", "algorithm.early_stop_rv_window=11"), 0);
    CHECK_EQ(run_of(&out, "none", "", "algorithm.early_stop_rv_window=null"), 0);
    CHECK_EQ(e2e_metric("longer", 20, "rollout/in_group_reward_std"), 0);
    CHECK(isnan(e2e_metric("longer", 20, "train/early_stopped")));
    CHECK(isnan(e2e_metric("none", 20, "rollout/in_group_reward_std")));
    CHECK_EQ(test_shell(&out, "grep -c '\"stopped\":null' '%s' '%s'", test_file("longer/DONE"),
                        test_file("none/DONE")),
             0);
    ares_str_fini(&out);
}

/* Groups of two whose scores differ have a deviation of 0.5, and the filter keeps no others. */
TEST(what_is_watched_is_every_group_before_a_filter_drops_it)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' 'worker.reward.rewards=[{name: random}]' "
                         "trainer.max_steps=2 worker.rollout.n=2 trainer.max_try_make_batch=20 "
                         "algorithm.filter_groups.enable=true "
                         "algorithm.filter_groups.metric=score algorithm.early_stop_rv_window=3",
                         e2e_train_words("run")),
             0);
    for (int step = 1; step <= 2; step++) {
        double deviation = e2e_metric("run", step, "rollout/in_group_reward_std");
        CHECK_MSG(deviation > 0 && deviation < 0.5, "step %d: %g", step, deviation);
    }
    ares_str_fini(&out);
}

TEST_MPI(two_ranks_stop_in_the_same_step)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    CHECK_EQ(run_of(&out, "run", "--ranks 2", ""), 0);
    check_end("run");
    ares_str_fini(&out);
}

/* ---------------------------------------------------------------- validations without success */

/* Validations after steps 1, 2 ..; no answer of them, nor of the one before training, is right. */
static int hopeless(ares_str *out, const char *run, const char *launch, const char *more)
{
    ares_str_clear(out);
    return e2e_program(out,
                       "%s --config '%s' data.val_files='%s' trainer.val_freq=1 "
                       "worker.reward.accuracy=exact 'worker.reward.rewards=[{name: exact}]' "
                       "trainer.max_steps=8 trainer.save_freq=1 "
                       "algorithm.early_stop_low_success=0.01 "
                       "algorithm.early_stop_low_success_validations=3 %s",
                       launch, e2e_train_words(run), write_rows(), more);
}

static void check_low_success(const char *run, int64_t last)
{
    ares_arena arena = { 0 };
    int64_t n;
    CHECK_EQ(e2e_metric(run, last, "train/early_stopped"), 1);
    CHECK_EQ(e2e_metric(run, last, "early_stopped/low_validation_success"), 1);
    CHECK_EQ(e2e_metric(run, last, "val/accuracy"), 0);
    CHECK(isnan(e2e_metric(run, last - 1, "train/early_stopped")));
    CHECK(!isnan(e2e_metric(run, last, "actor/lr"))); /* its update is made */
    CHECK(isnan(e2e_metric(run, last + 1, "actor/lr")));
    const ares_json **end = e2e_rows(&arena, run, "DONE", &n);
    if (CHECK_EQ(n, 1)) {
        CHECK_EQ(ares_json_get(end[0], "step")->integer, last);
        CHECK_VIEW(ares_json_get(end[0], "stopped")->text, "low_validation_success");
    }
    ares_arena_fini(&arena);
}

TEST(a_run_whose_validations_hardly_succeed_ends_after_logging_with_its_reason)
{
    ares_str out = { 0 };
    CHECK_EQ(hopeless(&out, "run", "", ""), 0);
    CHECK_CONTAINS(out.data, "stopped in step 3 of 8: low_validation_success");
    check_low_success("run", 3);
    /* killed after the second validation: the one that shows where it goes on counts nothing */
    CHECK(e2e_go_back("run", "whole", 2));
    CHECK_EQ(hopeless(&out, "run", "", ""), 0);
    check_low_success("run", 3);
    e2e_same_runs("whole", "run", 3);
    CHECK_EQ(hopeless(&out, "seldom", "", "trainer.val_freq=2"), 0);
    check_low_success("seldom", 6);
    ares_str_fini(&out);
}

TEST(a_run_that_succeeds_now_and_then_goes_to_its_end)
{
    ares_str out = { 0 };
    CHECK_EQ(hopeless(&out, "run", "",
                      "worker.reward.accuracy=random 'worker.reward.rewards=[{name: random}]'"),
             0);
    CHECK(e2e_metric("run", 8, "val/accuracy") > 0.01);
    CHECK(isnan(e2e_metric("run", 8, "train/early_stopped")));
    CHECK_EQ(hopeless(&out, "none", "", "algorithm.early_stop_low_success=null"), 0);
    CHECK(isnan(e2e_metric("none", 8, "train/early_stopped")));
    CHECK_EQ(hopeless(&out, "unseen", "", "trainer.val_freq=-1"), 2);
    CHECK_CONTAINS(out.data, "no validation is made during training");
    CHECK_EQ(hopeless(&out, "unjudged", "",
                      "worker.reward.accuracy=null 'worker.reward.rewards=[{name: format}]'"),
             2);
    CHECK_CONTAINS(out.data, "the validation gives no accuracy");
    ares_str_fini(&out);
}

TEST_MPI(two_ranks_end_after_the_same_validation)
{
    E2E_NEEDS_MPI();
    ares_str out = { 0 };
    CHECK_EQ(hopeless(&out, "run", "--ranks 2", ""), 0);
    check_low_success("run", 3);
    ares_str_fini(&out);
}
