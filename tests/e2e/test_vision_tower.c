/* What trains of a vision model and what does not, and what a trained tower reports. */
#include "vision_runs.h"

#include <math.h>
#include <stdio.h>

#include "ares/io.h"

#define TRAINED "worker.actor.model.freeze_vision_tower=false "

static const char *in(const char *run, const char *file)
{
    char name[200];
    snprintf(name, sizeof name, "%s/checkpoints/step_000002/%s", run, file);
    return test_file(name);
}

static const char *start(void)
{
    return test_file("sees/model.safetensors");
}

TEST(a_frozen_tower_keeps_every_byte_and_has_no_optimizer_states)
{
    int64_t tensors;
    if (!vision_trains("frozen", "%s", "")) return;
    const char *model = in("frozen", "model/model.safetensors");
    CHECK_EQ(vision_changed(start(), model, "visual.", &tensors), 0);
    CHECK(tensors > 20);
    CHECK(vision_changed(start(), model, "model.layers.", &tensors) > 10);
    CHECK_EQ(vision_changed(in("frozen", "optimizer.safetensors"),
                            in("frozen", "optimizer.safetensors"), "visual.", &tensors),
             0);
    CHECK_EQ(tensors, 0);
    CHECK(isnan(e2e_metric("frozen", 1, "exact/vision_max_abs")));
}

TEST(a_trained_tower_changes_from_its_patches_to_its_merger)
{
    static const char *const parts[] = { "visual.patch_embed.",        "visual.blocks.0.attn.qkv.",
                                         "visual.blocks.0.attn.proj.", "visual.blocks.0.mlp.",
                                         "visual.blocks.0.norm",       "visual.blocks.1.",
                                         "visual.merger.ln_q",         "visual.merger.mlp.0.",
                                         "visual.merger.mlp.2." };
    int64_t tensors;
    if (!vision_trains("trained", TRAINED)) return;
    const char *model = in("trained", "model/model.safetensors");
    for (int i = 0; i < ARES_COUNT(parts); i++) {
        int64_t changed = vision_changed(start(), model, parts[i], &tensors);
        CHECK_MSG(tensors > 0 && changed == tensors, "%s: %lld of %lld", parts[i],
                  (long long)changed, (long long)tensors);
    }
    const char *states = in("trained", "optimizer.safetensors");
    int64_t of_model, of_states;
    vision_changed(start(), start(), "visual.", &of_model);
    vision_changed(states, states, "visual.", &of_states);
    CHECK_EQ(of_states, 2 * of_model);
}

/* With the same answers, the norm is that of more numbers. */
TEST(the_gradient_norm_counts_a_trained_tower)
{
    vision_trains("frozen", "%s", "");
    vision_trains("trained", TRAINED);
    CHECK(e2e_same_rollouts("frozen", "trained", 1));
    double frozen = e2e_metric("frozen", 1, "actor/grad_norm"),
           trained = e2e_metric("trained", 1, "actor/grad_norm");
    CHECK_MSG(trained > frozen * (1 + 1e-6), "%.9g with the tower, %.9g without", trained, frozen);
}

TEST(features_of_the_first_mini_batch_are_those_of_the_rollout_and_later_ones_are_not)
{
    vision_trains("one", TRAINED "trainer.max_steps=3");
    vision_trains("two", TRAINED "trainer.max_steps=3 worker.actor.global_batch_size=2");
    for (int step = 1; step <= 3; step++) {
        CHECK_NEAR(e2e_metric("one", step, "exact/vision_max_abs"), 0, 0);
        CHECK_NEAR(e2e_metric("two", step, "exact/rollout_train_max_abs"), 0, 0);
    }
    CHECK(e2e_metric("two", 1, "exact/vision_max_abs") > 0);
}

/* The reference's own tower stays where it was while the policy's moves away. */
TEST(a_reference_of_a_trained_tower_sees_with_its_own)
{
    static const char kl[] = "algorithm.disable_kl=false algorithm.use_kl_loss=true "
                             "algorithm.kl_coef=0.1 trainer.max_steps=3 ";
    for (int t = 0; t < 2; t++) {
        const char *run = t ? "trained" : "frozen";
        vision_trains(run, "%s%s", kl, t ? TRAINED : "");
        CHECK_NEAR(e2e_metric(run, 1, "actor/kl_loss"), 0, 1e-6);
        CHECK(e2e_metric(run, 3, "actor/kl_loss") > 1e-5);
        char again[32];
        snprintf(again, sizeof again, "%s_again", run);
        vision_trains(again, "%s%s data.vision_cache_gb=0 worker.actor.max_token_len_per_device=64",
                      kl, t ? TRAINED : "");
        e2e_same_runs(run, again, 3);
    }
}
