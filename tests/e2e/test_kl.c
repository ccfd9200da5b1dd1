/*
 * Where the KL to the reference acts: nowhere at coefficient 0, whichever options use it; otherwise
 * as a term of the loss or of the reward. And which of its values are known in steps that only the
 * critic learns from.
 */
#include <math.h>
#include <stdio.h>

#include "e2e.h"

#define AEPO                                                                                       \
    "worker.reward.rewards=null worker.reward.reward_function=aepo worker.reward.accuracy=random " \
    "worker.rollout.window_size=2 "
#define GAE "algorithm.adv_estimator=gae "

static bool trains(const char *run, const char *format, const char *words, const char *more)
{
    ares_str out = { 0 };
    char all[1500];
    snprintf(all, sizeof all, format, words, more);
    int rc = e2e_program(&out, "--config '%s' trainer.max_steps=2 trainer.logger=[file] %s",
                         e2e_train_words(run), all);
    bool well = CHECK_MSG(rc == 0, "%s: %s", all, out.data ? out.data : "");
    ares_str_fini(&out);
    return well;
}

static bool same_weights(const char *a, const char *b)
{
    return test_shell(NULL,
                      "cmp '%s/checkpoints/step_000002/model/model.safetensors' "
                      "'%s/checkpoints/step_000002/model/model.safetensors'",
                      test_file(a), test_file(b)) == 0;
}

/* Checks that no reference was opened and that no metric of a KL to it is there. */
static void check_without_kl(const char *run, const char *what)
{
    ares_str out = { 0 };
    CHECK_MSG(
        test_shell(
            &out,
            "grep -oE '\"(actor/kl|critic/kl|aepo/kl|timing_s/ref)[a-z_/]*\"' '%s/metrics.jsonl'",
            test_file(run)) == 1,
        "%s: %s", what, out.data ? out.data : "");
    ares_str_fini(&out);
}

/* Every option that uses the KL: run with a coefficient of 0, and without any KL. */
static const struct {
    const char *words, *without;
} users[] = {
    { "algorithm.use_kl_loss=true", "" },
    { "algorithm.use_kl_loss=false", "" },
    { "algorithm.kl_type=adaptive", "" },
    { "algorithm.use_kl_loss=true algorithm.kl_penalty=full", "" },
    { "algorithm.use_kl_loss=false algorithm.kl_penalty=full", "" },
    { "algorithm.use_kl_loss=true " GAE, GAE },
    { "algorithm.kl_type=adaptive " GAE, GAE },
    { AEPO "algorithm.use_kl_loss=true worker.actor.dynamic_kl_loss=true", AEPO },
    { AEPO "algorithm.use_kl_loss=false worker.actor.dynamic_kl_loss=true", AEPO },
    { AEPO "algorithm.use_kl_loss=true algorithm.kl_penalty=full worker.actor.dynamic_kl_loss=true "
           "algorithm.kl_bucket_controller=log_space algorithm.difficulty_aware_kl_penalty=true",
      AEPO },
};

TEST(a_zero_coefficient_trains_without_kl_and_opens_no_reference)
{
    for (int i = 0; i < ARES_COUNT(users); i++) {
        char zero[16], none[16];
        snprintf(zero, sizeof zero, "zero%d", i);
        snprintf(none, sizeof none, "none%d", i);
        if (!trains(zero, "algorithm.disable_kl=false algorithm.kl_coef=0 %s%s", users[i].words,
                    "") ||
            !trains(none, "algorithm.disable_kl=true %s%s", users[i].without, ""))
            continue;
        check_without_kl(zero, users[i].words);
        CHECK_MSG(same_weights(zero, none), "%s: other weights than without a KL", users[i].words);
    }
}

TEST(every_spelling_of_a_zero_coefficient_is_one)
{
    static const char *const spellings[] = { "algorithm.kl_coef=0.0", "algorithm.kl_beta=0",
                                             "actor_rollout_ref.actor.kl_loss_coef=0",
                                             "algorithm.kl_ctrl.kl_coef=0" };
    if (!trains("none", "algorithm.disable_kl=true%s%s", "", "")) return;
    for (int i = 0; i < ARES_COUNT(spellings); i++)
        for (int loss = 0; loss < 2; loss++) {
            char run[32];
            snprintf(run, sizeof run, "zero%d%d", i, loss);
            if (!trains(run, "algorithm.disable_kl=false %s %s", spellings[i],
                        loss ? "algorithm.use_kl_loss=true" : ""))
                continue;
            check_without_kl(run, spellings[i]);
            CHECK_MSG(same_weights(run, "none"), "%s: other weights than without a KL",
                      spellings[i]);
        }
}

/* The metric of a difficulty, or NaN. */
static double of_difficulty(const char *run, int step, const char *prefix, int d)
{
    static const char *const names[] = { "easy", "medium", "hard" };
    char name[64];
    snprintf(name, sizeof name, "%s/%s", prefix, names[d]);
    return e2e_metric(run, step, name);
}

/* 32 samples of three difficulties, so that one of them has the 8 samples that change a factor. */
TEST(steps_without_an_actor_update_measure_no_kl_of_the_loss_and_move_no_factor)
{
    static const char *const estimators[] = { "full", "low_var_kl" }, *const advantages[] = {
        "gae", "bi_level_gae"
    };
    for (int i = 0; i < 4; i++) {
        char run[16];
        snprintf(run, sizeof run, "warm%d", i);
        if (!trains(run,
                    AEPO "algorithm.disable_kl=false algorithm.use_kl_loss=true "
                         "algorithm.kl_coef=0.01 worker.actor.dynamic_kl_loss=true "
                         "data.rollout_batch_size=8 worker.actor.global_batch_size=8 "
                         "trainer.max_steps=3 trainer.critic_warmup=2 algorithm.kl_penalty=%s "
                         "algorithm.adv_estimator=%s",
                    estimators[i % 2], advantages[i / 2]))
            continue;
        bool moved = false;
        for (int d = 0; d < 3; d++) {
            for (int step = 1; step <= 2; step++) {
                CHECK(isnan(of_difficulty(run, step, "aepo/kl", d)));
                CHECK_EQ(of_difficulty(run, step, "aepo/kl_lambda", d), 1);
            }
            double lambda = of_difficulty(run, 3, "aepo/kl_lambda", d),
                   kl = of_difficulty(run, 3, "aepo/kl", d);
            static const double budget[] = { 0.05, 0.1, 0.2 };
            CHECK_MSG(lambda == 1 || fabs(lambda - (1 + 0.01 * (kl - budget[d]))) < 1e-12,
                      "%s: lambda %g after one step of KL %g", estimators[i % 2], lambda, kl);
            moved = moved || lambda != 1;
        }
        CHECK(moved);
    }
}

TEST(kl_of_the_reward_is_measured_in_every_step)
{
    static const char *const estimators[] = { "full", "low_var_kl" };
    for (int i = 0; i < 2; i++) {
        char run[32];
        snprintf(run, sizeof run, "reward%d", i);
        if (!trains(run,
                    AEPO "algorithm.disable_kl=false algorithm.kl_coef=0.01 "
                         "worker.actor.dynamic_kl_loss=true data.rollout_batch_size=8 "
                         "worker.actor.global_batch_size=8 trainer.critic_warmup=1 "
                         "algorithm.kl_penalty=%s%s",
                    estimators[i], " " GAE))
            continue;
        bool moved = false;
        for (int step = 1; step <= 2; step++)
            CHECK(!isnan(e2e_metric(run, step, "critic/kl")) &&
                  isnan(e2e_metric(run, step, "actor/kl_loss")));
        for (int d = 0; d < 3; d++)
            moved = moved || of_difficulty(run, 1, "aepo/kl_lambda", d) != 1;
        CHECK(moved);
    }
}

/* Checks where the KL acted in step 1, and with which coefficient. */
static void check_place(const char *run, const char *what, const char *place, double coef)
{
    double loss = e2e_metric(run, 1, "actor/kl_coef"),
           reward = e2e_metric(run, 1, "critic/kl_coef");
    bool in_loss = strcmp(place, "loss") == 0, in_reward = strcmp(place, "reward") == 0;
    CHECK_MSG(in_loss ? fabs(loss - coef) < 1e-12 : isnan(loss), "%s: coefficient %g in the loss",
              what, loss);
    CHECK_MSG(in_reward ? fabs(reward - coef) < 1e-12 : isnan(reward),
              "%s: coefficient %g in the reward", what, reward);
    if (!in_loss && !in_reward) check_without_kl(run, what);
}

#define VERL "actor_rollout_ref.actor."
TEST(kl_acts_where_each_dialect_says)
{
    static const struct {
        const char *words, *place;
        double coef;
    } says[] = {
        { "algorithm.use_kl_loss=false", "reward", 1e-3 }, /* EasyR1 */
        { "algorithm.use_kl_loss=true algorithm.kl_coef=0.02", "loss", 0.02 },
        { "algorithm.use_kl_in_reward=false", "", 0 },
        { "algorithm.use_kl_in_reward=True algorithm.kl_ctrl.kl_coef=0.02", "reward", 0.02 },
        { "algorithm.kl_beta=0.02", "loss", 0.02 }, /* RLinf */
        { VERL "use_kl_loss=False", "", 0 },        /* verl and RAGEN */
        { VERL "use_kl_loss=False " VERL "kl_loss_coef=0.02 " VERL "kl_loss_type=low-var-kl", "",
          0 },
        { VERL "kl_loss_coef=0.02", "", 0 },
        { "algorithm.kl_ctrl.kl_coef=0.02", "", 0 },
        { VERL "use_kl_loss=False algorithm.use_kl_in_reward=True", "reward", 1e-3 },
        { "algorithm.use_kl_in_reward=true " VERL "use_kl_loss=False " VERL
          "kl_loss_coef=0 algorithm.kl_ctrl.kl_coef=0.02",
          "reward", 0.02 },
        { VERL "use_kl_loss=True " VERL "kl_loss_coef=0.02", "loss", 0.02 },
        { "algorithm.kl_ctrl.kl_coef=0.0 " VERL "use_kl_loss=True " VERL "kl_loss_coef=0.02",
          "loss", 0.02 },
        { VERL
          "kl_loss_coef=0.02 algorithm.kl_ctrl.kl_coef=0.0 algorithm.use_kl_in_reward=False " VERL
          "use_kl_loss=True",
          "loss", 0.02 },
    };
    for (int i = 0; i < ARES_COUNT(says); i++) {
        char run[16];
        snprintf(run, sizeof run, "says%d", i);
        if (trains(run, "algorithm.disable_kl=false trainer.max_steps=1 %s%s", says[i].words, ""))
            check_place(run, says[i].words, says[i].place, says[i].coef);
    }
}

/*
 * The keys of RAGEN's FrozenLake sweep that concern the KL: those of its preset, and those that its
 * script adds.
 */
TEST(the_frozen_lake_configuration_trains_without_kl)
{
    const char *preset = e2e_write(
        "ragen.yaml",
        "algorithm: {adv_estimator: gae, gamma: 1.0, lam: 1.0, use_kl_in_reward: False, "
        "kl_penalty: kl, kl_ctrl: {type: fixed, kl_coef: 0.0, horizon: 10000, target_kl: 0.1}}\n"
        "actor_rollout_ref: {actor: {use_kl_loss: False, kl_loss_coef: 0.001, kl_loss_type: kl, "
        "entropy_coeff: 0.0}, ref: {log_prob_micro_batch_size_per_gpu: 4}}\n");
    for (int i = 0; i < 2; i++) {
        char more[1200], run[16];
        snprintf(run, sizeof run, "lake%d", i);
        snprintf(more, sizeof more, "--config '%s' %s", preset,
                 i ? "algorithm.adv_estimator=gae " VERL "use_kl_loss=False " VERL
                     "kl_loss_type=low-var-kl " VERL "kl_loss_coef=0.001 " VERL
                     "entropy_coeff=0.001 " VERL "loss_agg_mode=token-mean " VERL
                     "entropy_from_logits_with_chunking=True"
                   : "");
        if (trains(run, "algorithm.disable_kl=false %s%s", more, "")) check_without_kl(run, run);
    }
    if (trains("sweep",
               "algorithm.disable_kl=false --config '%s' " VERL "use_kl_loss=True " VERL
               "kl_loss_coef=0.01%s",
               preset, ""))
        check_place("sweep", "the KL sweep", "loss", 0.01);
}

/* The resolved configuration of a run keeps what a dialect's word meant. */
TEST(a_resolved_file_keeps_what_a_dialect_meant)
{
    static const struct {
        const char *word, *place;
    } says[] = { { "algorithm.kl_beta=0.02", "loss" }, { VERL "use_kl_loss=False", "" } };
    for (int i = 0; i < ARES_COUNT(says); i++) {
        char first[32], again[32];
        snprintf(first, sizeof first, "first%d", i);
        snprintf(again, sizeof again, "again%d", i);
        if (!trains(first, "algorithm.disable_kl=false trainer.max_steps=1 %s%s", says[i].word, ""))
            continue;
        CHECK_EQ(e2e_program(NULL, "--config '%s/config.yaml' trainer.run_dir='%s'",
                             test_file(first), test_file(again)),
                 0);
        check_place(again, says[i].word, says[i].place, 0.02);
    }
}

TEST(an_option_that_weighs_a_kl_that_is_off_is_warned_about)
{
    static const char *const off[] = { "algorithm.use_kl_loss=true algorithm.kl_coef=0",
                                       "algorithm.use_kl_in_reward=false" };
    for (int i = 0; i < ARES_COUNT(off); i++) {
        ares_str out = { 0 };
        char run[32];
        snprintf(run, sizeof run, "warned%d", i);
        CHECK_EQ(e2e_program(&out,
                             "--config '%s' trainer.max_steps=1 trainer.logger=[file] " AEPO
                             "algorithm.disable_kl=false worker.actor.dynamic_kl_loss=true %s",
                             e2e_train_words(run), off[i]),
                 0);
        CHECK_CONTAINS(out.data, "worker.actor.dynamic_kl_loss = true: has no effect");
        check_without_kl(run, off[i]);
        ares_str_fini(&out);
    }
}
