/*
 * Options whose value follows the step: what a run does with them, when it is resumed too, and what
 * is refused.
 */
#include <math.h>
#include <stdio.h>

#include "e2e.h"

#define LR "'worker.actor.optim.lr=1e-3 * (step + 1)' "
#define COEFFICIENTS                                                                               \
    "algorithm.disable_kl=false algorithm.use_kl_loss=true 'algorithm.kl_coef=lambda s: 0.5 if s " \
    "< 2 else 0.1' "                                                                               \
    "worker.actor.entropy_coeff=x.weight_scheduler.exponential_decay "

static int run_of(ares_str *out, const char *run, int steps, const char *words)
{
    ares_str_clear(out);
    return e2e_program(out, "--config '%s' trainer.max_steps=%d trainer.logger=[file] %s",
                       e2e_train_words(run), steps, words);
}

TEST(options_with_schedules_have_the_value_of_each_step)
{
    ares_str out = { 0 };
    CHECK_EQ(run_of(&out, "run", 4, LR COEFFICIENTS "trainer.save_freq=1"), 0);
    for (int step = 0; step < 4; step++) {
        CHECK_NEAR(e2e_metric("run", step + 1, "actor/lr"), 1e-3 * (step + 1), 1e-15);
        CHECK_EQ(e2e_metric("run", step + 1, "actor/kl_coef"), step < 2 ? 0.5 : 0.1);
    }
    /* a constant of the same value gives the same first step, and another one another */
    CHECK_EQ(run_of(&out, "same", 1,
                    "worker.actor.optim.lr=1e-3 algorithm.disable_kl=false "
                    "algorithm.use_kl_loss=true algorithm.kl_coef=0.5 "
                    "worker.actor.entropy_coeff=1"),
             0);
    CHECK_EQ(run_of(&out, "other", 1,
                    "worker.actor.optim.lr=1e-3 algorithm.disable_kl=false "
                    "algorithm.use_kl_loss=true algorithm.kl_coef=0.5 "
                    "worker.actor.entropy_coeff=0.5"),
             0);
    double loss = e2e_metric("run", 1, "actor/loss");
    CHECK_EQ(e2e_metric("same", 1, "actor/loss"), loss);
    CHECK(e2e_metric("other", 1, "actor/loss") != loss);
    /* going on from the second step is as not having stopped */
    CHECK(e2e_go_back("run", "whole", 2));
    CHECK_EQ(run_of(&out, "run", 4, LR COEFFICIENTS "trainer.save_freq=1"), 0);
    e2e_same_runs("whole", "run", 4);
    /* the resolved configuration is one */
    CHECK_EQ(test_shell(&out, "grep -F '1e-3 * (step + 1)' '%s/config.yaml'", test_file("run")), 0);
    CHECK_EQ(e2e_program(&out, "--config '%s/config.yaml' trainer.run_dir='%s' --check",
                         test_file("run"), test_file("again")),
             0);
    ares_str_fini(&out);
}

TEST(the_learning_rate_of_sft_may_follow_an_expression)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out,
                         "sft --config '%s' trainer.max_steps=3 trainer.logger=[file] "
                         "'worker.actor.optim.lr=1e-3 / (1 + step)'",
                         e2e_sft_words("run")),
             0);
    for (int step = 0; step < 3; step++)
        CHECK_NEAR(e2e_metric("run", step + 1, "actor/lr"), 1e-3 / (1 + step), 1e-15);
    ares_str_fini(&out);
}

TEST(a_schedule_that_makes_no_sense_is_refused_where_it_stands)
{
    static const struct {
        const char *words, *says;
    } cases[] = {
        { "'algorithm.kl_coef=0.9 - steps'", "column 7: unknown name" },
        { "algorithm.kl_coef=increasing_wieght", "did you mean 'increasing_weight'?" },
        { "'algorithm.kl_coef=step - 1'", "is -1 at step 0; must be in [0,)" },
        { "'worker.actor.optim.lr=1 / step'", "at step 0: division by zero" },
        { "algorithm.disable_kl=false 'algorithm.kl_coef=step / 10'",
          "is 0 at step 0, and 0 switches the KL off" },
        { "algorithm.disable_kl=false 'algorithm.kl_coef=0.1 + step' algorithm.kl_type=adaptive",
          "cannot both move it" },
        { "'algorithm.high_level_gamma=0.5 + step'", "must be a number" },
        { "worker.actor.optim.lr_scheduler_type=cosine worker.actor.optim.lr_warmup_ratio=1",
          "warmup_steps = 1: must be shorter than the whole run of 1 steps" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_EQ(run_of(&out, "run", 1, cases[i].words), 2);
        CHECK_CONTAINS(out.data, cases[i].says);
    }
    CHECK(!ares_file_exists(test_file("run")));
    ares_str_fini(&out);
}

/* What the step began with is saved, and a run with a better schedule goes on from there. */
TEST(a_schedule_that_fails_at_a_later_step_ends_the_run_with_its_state_saved)
{
    static const struct {
        const char *words, *says;
    } cases[] = {
        { "'worker.actor.optim.lr=1e-3 / (2 - step)'", "at step 2: division by zero" },
        { "'worker.actor.optim.lr=1e-3 * (1.5 - step)'", "is -0.0005 at step 2; must be in [0,)" },
        { "algorithm.disable_kl=false algorithm.use_kl_loss=true 'algorithm.kl_coef=0.2 * (2 - "
          "step)'",
          "its schedule gives 0 at step 2" },
    };
    ares_str out = { 0 };
    char run[32];
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        snprintf(run, sizeof run, "run%d", i);
        CHECK_EQ(run_of(&out, run, 4, cases[i].words), 2);
        CHECK_CONTAINS(out.data, cases[i].says);
        CHECK_EQ(e2e_metric(run, 2, "step"), 2);
        CHECK(isnan(e2e_metric(run, 3, "step")));
        CHECK_EQ(test_shell(NULL, "ls -d '%s'/checkpoints/rolling_*2", test_file(run)), 0);
    }
    ares_str_fini(&out);
}
