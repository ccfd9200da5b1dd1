/*
 * Each method trains over pictures: two steps, and the second again from the checkpoint of the
 * first with memory divided differently, bit for bit. What cannot go together is refused by name.
 */
#include "vision_runs.h"

#include <math.h>
#include <stdio.h>

#include "laws.h"

#define RANDOM "'worker.reward.rewards=[{name: random}]' worker.reward.accuracy=random "
#define LENGTHS                                                                                \
    "'worker.rollout.stop_token_ids=[48, 49, 50, 51, 52, 53, 97, 98, 99, 100, 101, 102, 103, " \
    "104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115]' "
#define KL "algorithm.disable_kl=false algorithm.kl_coef=0.05 "
#define TRAINED "worker.actor.model.freeze_vision_tower=false "
#define ADAPTED TRAINED "worker.actor.model.lora.rank=3 "
#define TWO "worker.actor.global_batch_size=2 "

/* seen: a metric that the method alone writes, of step `step`; above 0 unless it is signed */
static const struct {
    const char *name, *words, *seen;
    int step;
    bool is_signed;
} methods[] = {
    { "aepo",
      LENGTHS KL TWO
      "algorithm.use_kl_loss=true worker.actor.dynamic_kl_loss=true worker.rollout.window_size=4 "
      "'worker.reward.rewards=[{name: random}, {name: aepo}]' worker.reward.accuracy=random "
      "algorithm.online_filtering=true algorithm.filter_key=accuracy algorithm.filter_low=0.01 "
      "algorithm.filter_high=0.99 algorithm.drop_easy_prompts=true data.bootstrap=true "
      "algorithm.entropy_percentile=70 algorithm.entropy_threshold_ema=0.9 algorithm.aepo=true ",
      "aepo/tau", 2, false },
    { "dapo",
      RANDOM LENGTHS TWO "worker.actor.loss_type=dapo worker.actor.clip_ratio_high=0.28 "
                         "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score "
                         "algorithm.max_resample=20 algorithm.mask_truncated=true "
                         "worker.reward.max_length=8 worker.reward.safe_length=4 "
                         "worker.reward.len_reward_penalty=0.5",
      "dapo/num_gen_rounds", 1, false },
    { "clip_cov, KL in the loss",
      RANDOM LENGTHS KL TWO
      "worker.actor.loss_type=clip_cov worker.actor.clip_cov_ratio=0.2 worker.actor.clip_cov_lb=-5 "
      "algorithm.use_kl_loss=true",
      "actor/kl_loss", 2, false },
    { "clip_cov, KL in the reward",
      RANDOM LENGTHS KL "worker.actor.loss_type=clip_cov worker.actor.clip_cov_lb=0", "critic/kl",
      2, true },
    { "exact KL in the loss",
      RANDOM LENGTHS KL TWO "algorithm.use_kl_loss=true algorithm.kl_penalty=full", "actor/kl_loss",
      2, false },
    { "exact KL in the reward", RANDOM LENGTHS KL "algorithm.kl_penalty=full", "critic/kl", 2,
      false },
    { "exact KL, trained tower",
      RANDOM LENGTHS KL TWO TRAINED "algorithm.use_kl_loss=true algorithm.kl_penalty=full",
      "actor/kl_loss", 2, false },
    { "KL in the reward, trained tower", RANDOM LENGTHS KL TRAINED "algorithm.kl_penalty=full",
      "critic/kl", 2, false },
    { "exact KL, adapted tower",
      RANDOM LENGTHS KL TWO ADAPTED "algorithm.use_kl_loss=true algorithm.kl_penalty=full",
      "actor/kl_loss", 2, false },
    { "dapo, adapted tower",
      RANDOM LENGTHS TWO ADAPTED "worker.actor.loss_type=dapo worker.actor.clip_ratio_high=0.28",
      "exact/vision_max_abs", 2, false },
    { "rloo", RANDOM LENGTHS "algorithm.adv_estimator=rloo", "actor/grad_norm", 1, false },
    { "remax", RANDOM LENGTHS "algorithm.adv_estimator=remax", "actor/grad_norm", 1, false },
    { "gspo", RANDOM LENGTHS TWO "worker.actor.loss_type=gspo", "actor/grad_norm", 1, false },
    { "two epochs, trained tower", RANDOM LENGTHS TWO TRAINED "worker.actor.ppo_epochs=2",
      "exact/vision_max_abs", 1, false },
    { "partial rollouts",
      RANDOM "data.max_response_length=30 curriculum.over_sampling_batch_size=8 "
             "curriculum.partial_rollout=true curriculum.recycle_surplus=true "
             "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m]'",
      "over_sampling/old_token_frac", 2, false },
    { "partial rollouts, trained tower",
      RANDOM TRAINED "data.max_response_length=30 curriculum.over_sampling_batch_size=8 "
                     "curriculum.partial_rollout=true curriculum.recycle_surplus=true "
                     "'worker.rollout.stop=[a, b, c, d, e, f, g, h, i, j, k, l, m]'",
      "over_sampling/old_token_frac", 2, false },
    { "validation",
      RANDOM LENGTHS TRAINED "data.val_files=$DIR/pictures.jsonl trainer.val_freq=1 "
                             "data.val_batch_size=3",
      "val/accuracy", 2, true },
    { "gradient analysis", RANDOM LENGTHS TRAINED "report.gradient_analysis.every=1",
      "actor/grad_norm", 1, false },
    { "a rate of 0", RANDOM LENGTHS TRAINED TWO "worker.actor.optim.lr=0", "actor/grad_norm", 1,
      false },
    { "bf16", RANDOM LENGTHS TRAINED "worker.actor.fsdp.torch_dtype=bf16", "actor/grad_norm", 1,
      false },
    { "products in bf16", RANDOM LENGTHS TRAINED "worker.actor.arithmetic=bf16", "actor/grad_norm",
      1, false },
};

#define CUTS                                                                  \
    "worker.actor.max_token_len_per_device=70 worker.rollout.max_num_seqs=5 " \
    "worker.rollout.max_num_batched_tokens=24 trainer.threads=2 "             \
    "data.vision_cache_gb=0 worker.actor.model.enable_gradient_checkpointing=true "

static void check_method(int i)
{
    char run[16], whole[24];
    ares_str out = { 0 };
    snprintf(run, sizeof run, "run_%d", i);
    snprintf(whole, sizeof whole, "whole_%d", i);
    const char *words = vision_words(run), *more[] = { "trainer.threads=1 ", CUTS };
    for (int part = 0; part < 2; part++) {
        if (part && !e2e_go_back(run, whole, 1)) break;
        int rc = test_shell(&out,
                            "export DIR='%s'; cd '%s' && '%s' --config '%s' trainer.save_freq=1 "
                            "trainer.save_minutes=null %s %s 2>&1",
                            test_dir(), test_source("."), test_program(), words, methods[i].words,
                            more[part]);
        if (!CHECK_MSG(rc == 0, "%s: %s", methods[i].name, out.data)) break;
        if (!part) {
            double seen = e2e_metric(run, methods[i].step, methods[i].seen);
            CHECK_MSG(methods[i].is_signed ? isfinite(seen) : seen > 0, "%s: %s = %g",
                      methods[i].name, methods[i].seen, seen);
            for (int step = 1; step <= 2; step++)
                CHECK_MSG(e2e_metric(run, step, "data/image_tokens") > 0, "%s", methods[i].name);
            laws_hold(run, 2, 0, true, methods[i].name);
        } else CHECK_MSG(e2e_same_runs(whole, run, 2), "%s", methods[i].name);
    }
    ares_str_fini(&out);
}

/* A third of them at a time, so that none takes long. */
static void check_methods(int part)
{
    for (int i = part; i < ARES_COUNT(methods); i += 3) check_method(i);
}

TEST(every_method_trains_over_pictures_and_goes_on_bit_for_bit)
{
    check_methods(0);
}
TEST(every_method_trains_over_pictures_and_goes_on_bit_for_bit_second_part)
{
    check_methods(1);
}
TEST(every_method_trains_over_pictures_and_goes_on_bit_for_bit_third_part)
{
    check_methods(2);
}

/* ---------------------------------------------------------------- VAPOR */
/* Stored answers to rows with pictures; the fifth row is text alone, the sixth has no pair. */
static const char *paired_rows(void)
{
    vision_rows();
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && sed -e '6!s/}$/,\"chosen\":\"<N>1<\\/N><S>yes<\\/S>\","
                        "\"rejected\":\"<N>1<\\/N><S>no<\\/S>\"}/' pictures.jsonl > paired.jsonl",
                        test_dir()),
             0);
    return test_file("paired.jsonl");
}

TEST(vapor_learns_from_stored_answers_about_pictures_and_goes_on_bit_for_bit)
{
    static const char *const towers[] = { "", TRAINED, ADAPTED "vapor.sync_ref_model=false" };
    for (int t = 0; t < ARES_COUNT(towers); t++) {
        char run[32], whole[32], words[900];
        snprintf(run, sizeof run, "run_%d", t);
        snprintf(whole, sizeof whole, "whole_%d", t);
        snprintf(words, sizeof words,
                 "data.train_files='%s' worker.actor.loss_type=vapor algorithm.adv_estimator=vapor "
                 "'vapor.verifiable_term_split=[<N>, </N>]' 'vapor.preference_term_split=[<S>, "
                 "</S>]' 'worker.reward.rewards=[{name: exact}]' worker.actor.ppo_epochs=2 "
                 "vapor.dpo_coef=1 vapor.sync_ref_model=true vapor.ref_model_sync_steps=2 "
                 "vapor.ref_model_mixup_alpha=0.5 trainer.max_steps=4 trainer.save_freq=1 "
                 "data.shuffle=false %s",
                 paired_rows(), towers[t]);
        if (!vision_trains(run, "%s trainer.threads=1", words)) return;
        for (int step = 1; step <= 4; step++) {
            CHECK(e2e_metric(run, step, "vapor/dpo_loss") > 0);
            CHECK_NEAR(e2e_metric(run, step, "exact/rollout_train_max_abs"), 0, 0);
        }
        for (int step = 1; step < 4; step++) {
            if (!e2e_go_back(run, whole, step)) return;
            vision_trains(run, "%s " CUTS, words);
            CHECK_MSG(e2e_same_runs(whole, run, 4), "from step %d", step);
        }
    }
}

/* The pairs' pictures are those of their rows: another picture in a row changes its pair's terms.
 */
TEST(a_stored_answer_is_judged_with_its_rows_picture)
{
    static const char words[] =
        "worker.actor.loss_type=vapor algorithm.adv_estimator=vapor "
        "'vapor.verifiable_term_split=[<N>, </N>]' 'vapor.preference_term_split=[<S>, </S>]' "
        "'worker.reward.rewards=[{name: exact}]' worker.actor.ppo_epochs=2 vapor.dpo_coef=1 "
        "trainer.max_steps=1 data.rollout_batch_size=1 worker.actor.global_batch_size=1 "
        "data.shuffle=false";
    const char *rows = paired_rows();
    vision_trains("first", "data.train_files='%s' %s", rows, words);
    vision_noise("a.png", 24, 24, 99);
    char config[300];
    snprintf(config, sizeof config, "%s/pictures_first.yaml", test_dir());
    CHECK_EQ(e2e_program(NULL, "--config '%s' data.train_files='%s' %s trainer.run_dir='%s'",
                         config, rows, words, test_file("other")),
             0);
    CHECK(isfinite(e2e_metric("first", 1, "vapor/dpo_loss")));
    CHECK(e2e_metric("other", 1, "vapor/chosen_logratio") !=
          e2e_metric("first", 1, "vapor/chosen_logratio"));
}

/* ---------------------------------------------------------------- beside training */
TEST(a_rate_of_0_leaves_every_weight_and_repeats_its_log_probs)
{
    int64_t tensors;
    vision_trains("still", TRAINED TWO "worker.actor.optim.lr=0 trainer.max_steps=3");
    CHECK_EQ(vision_changed(test_file("sees/model.safetensors"),
                            test_file("still/checkpoints/step_000003/model/model.safetensors"), "",
                            &tensors),
             0);
    CHECK(tensors > 50);
    for (int step = 1; step <= 3; step++) {
        CHECK_NEAR(e2e_metric("still", step, "exact/vision_max_abs"), 0, 0);
        CHECK(e2e_metric("still", step, "actor/grad_norm") > 0);
    }
}

TEST(eval_of_a_run_over_pictures_is_its_last_validation)
{
    ares_str out = { 0 };
    vision_rows();
    char words[300], want[64];
    snprintf(words, sizeof words,
             "data.val_files='%s' worker.rollout.val_override_config.temperature=0",
             test_file("pictures.jsonl"));
    if (!vision_trains("run", TRAINED "trainer.val_freq=2 %s", words)) return;
    CHECK_EQ(e2e_program(&out, "eval --config '%s' %s worker.actor.model.model_path='%s'",
                         vision_words("eval"), words, test_file("run")),
             0);
    snprintf(want, sizeof want, "%.4g", e2e_metric("run", 2, "val/reward_score"));
    CHECK_CONTAINS(out.data, "val/reward_score");
    const char *at = strstr(out.data, "val/reward_score");
    CHECK_NEAR(at ? strtod(at + strcspn(at, "0123456789"), NULL) : NAN,
               e2e_metric("run", 2, "val/reward_score"), 1e-3);
    ares_str_fini(&out);
}

TEST(a_model_that_sees_acts_in_environments)
{
    if (!vision_trains("acts", "'~data.train_files' '~data.rollout_batch_size' '~worker.rollout.n' "
                               "'~worker.reward.rewards' env.train.tags=Bandit env.train.groups=4 "
                               "env.train.group_size=4 env.max_turns=2 env.enable_think=false "
                               "worker.rollout.max_model_len=1500 data.max_response_length=12"))
        return;
    CHECK_NEAR(e2e_metric("acts", 1, "data/image_tokens"), 0, 0);
    CHECK(e2e_metric("acts", 1, "rollout/generated_tokens") > 0);
}

/* ---------------------------------------------------------------- a teacher */
#define TAUGHT                                                           \
    "distillation.enabled=true distillation.distillation_loss.beta=0.5 " \
    "trainer.save_freq=1 trainer.threads=1 "
#define HINTS "distillation.context=row distillation.privileged_context_key=answer "
#define NO_HINT HINTS "'distillation.teacher_prompt_template={prompt}' "

TEST(a_teacher_sees_the_pictures_of_its_students_prompt)
{
    char other[600];
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2_5_vl --hidden 32 --layers 1 --vision-layers 2 "
                         "--vision-width 32 --vision-patch 6 --seed 9 --out '%s'",
                         test_file("other")),
             0);
    snprintf(other, sizeof other, "distillation.teacher_model.model_path='%s'", test_file("other"));
    /* the tower is trained: the teacher that began with it keeps its own */
    static const char began[] =
        RANDOM "distillation.teacher_model.kind=base distillation.distillation_loss."
               "use_task_rewards=true worker.actor.model.freeze_vision_tower=false";
    REQUIRE(vision_trains("nothing_new", TAUGHT NO_HINT "trainer.max_steps=6"));
    REQUIRE(vision_trains("hint", TAUGHT HINTS "data.shuffle=false"));
    REQUIRE(vision_trains("began", TAUGHT NO_HINT "%s", began));
    REQUIRE(vision_trains("cut",
                          TAUGHT NO_HINT "%s worker.actor.max_token_len_per_device=60 "
                                         "trainer.threads=2",
                          began));
    REQUIRE(vision_trains("by_other", TAUGHT "%s", other));
    REQUIRE(vision_trains("average", TAUGHT RANDOM "trainer.max_steps=4 distillation.context=group "
                                                   "distillation.teacher_model.kind=ema "
                                                   "distillation.success_reward_threshold=0.5 "
                                                   "worker.actor.model.freeze_vision_tower=false"));
    CHECK(e2e_metric("average", 4, "distillation/tokens") > 0);
    /* pictures of earlier batches are not those of later ones */
    for (int step = 1; step <= 6; step++)
        CHECK_NEAR(e2e_metric("nothing_new", step, "distillation/reverse_kl"), 0, 0);
    for (int step = 1; step <= 2; step++) {
        static const char *const runs[] = { "nothing_new", "hint", "began", "by_other" };
        for (int i = 0; i < ARES_COUNT(runs); i++) {
            double kl = e2e_metric(runs[i], step, "distillation/reverse_kl");
            bool equal = i == 0 || (i == 2 && step == 1);
            CHECK_MSG(equal ? kl == 0 : kl > 0, "%s, step %d: a KL of %g", runs[i], step, kl);
            CHECK_NEAR(e2e_metric(runs[i], step, "exact/rollout_train_max_abs"), 0, 0);
        }
    }
    CHECK(e2e_same_runs("began", "cut", 2));
    /* the hint is told where the question stands, after the picture */
    ares_arena arena = { 0 };
    int64_t n;
    const ares_json **rows = e2e_rows(&arena, "hint", "rollouts/step_000001.jsonl", &n);
    const ares_json *told = n ? ares_json_get(rows[0], "teacher_prompt") : NULL;
    if (CHECK(told)) CHECK(ares_view_find(told->text, ARES_VIEW("How many?\n\n1"), 0) > 0);
    ares_arena_fini(&arena);
}
