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
      RANDOM LENGTHS TWO
      "worker.actor.loss_type=dapo worker.actor.clip_ratio_high=0.28 "
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
      RANDOM LENGTHS KL "worker.actor.loss_type=clip_cov worker.actor.clip_cov_lb=0",
      "critic/kl", 2, true },
    { "exact KL in the loss",
      RANDOM LENGTHS KL TWO "algorithm.use_kl_loss=true algorithm.kl_penalty=full",
      "actor/kl_loss", 2, false },
    { "exact KL in the reward", RANDOM LENGTHS KL "algorithm.kl_penalty=full", "critic/kl", 2,
      false },
    { "exact KL, trained tower",
      RANDOM LENGTHS KL TWO TRAINED "algorithm.use_kl_loss=true algorithm.kl_penalty=full",
      "actor/kl_loss", 2, false },
    { "KL in the reward, trained tower", RANDOM LENGTHS KL TRAINED "algorithm.kl_penalty=full",
      "critic/kl", 2, false },
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
    { "bf16", RANDOM LENGTHS TRAINED "worker.actor.fsdp.torch_dtype=bf16", "actor/grad_norm", 1,
      false },
};

#define CUTS                                                                   \
    "worker.actor.max_token_len_per_device=70 worker.rollout.max_num_seqs=5 "  \
    "worker.rollout.max_num_batched_tokens=24 trainer.threads=2 "              \
    "data.vision_cache_gb=0 worker.actor.model.enable_gradient_checkpointing=true "

static void check_method(int i)
{
    char run[16], whole[16];
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

TEST(every_method_trains_over_pictures_and_goes_on_bit_for_bit)
{
    for (int i = 0; i < ARES_COUNT(methods); i++) check_method(i);
}
