/*
 * The KV cache lends its memory to training: the same steps, bit for bit, as with memory of their
 * own, in plain rounds and where samples are cut and go on in a later step.
 */
#include <string.h>

#include "collect/collect.h"
#include "plan/plan.h"
#include "tiny_trainer.h"

enum { STEPS = 3 };

typedef struct record {
    double grad_norm[STEPS], reward[STEPS], exact[STEPS];
    size_t grew; /* bytes that the device has handed out beyond those it began with, at most */
    uint8_t *weights;
    size_t bytes;
} record;

/*
 * The engine again, with a cache that is large enough for what training keeps, or with a small one,
 * which shares as much memory as training says that it takes.
 */
static bool lend(ares_trainer *t, bool small)
{
    ares_rollout_options o = { .cache_tokens = small ? 256 : 1 << 16,
                               .max_num_seqs = 6,
                               .max_num_batched_tokens = 128,
                               .max_model_len = 128,
                               .lends_cache = true };
    ares_rollout_free(t->rollout);
    t->rollout = NULL;
    if (small && !CHECK_OK(peak_reserve(t, 1, &o.training_bytes))) return false;
    if (t->slice) { /* one that has no memory yet */
        ares_model_free(t->slice);
        if (!CHECK_OK(ares_model_slice(t->run.model, NULL, &t->slice))) return false;
        t->slice_version = -1;
    }
    return CHECK_OK(
        ares_rollout_new(t->slice ? t->slice : t->run.model, t->run.tokenizer, &o, &t->rollout));
}

enum { NOTHING, LARGE, SMALL }; /* the cache that lends */

static bool train(const char *first, const char *second, int lends, record *out)
{
    opened o;
    *out = (record){ 0 };
    bool well = CHECK_OK(open_trainer(&o, first, second)) && (!lends || lend(&o.t, lends == SMALL));
    size_t begun = o.t.run.device.most_allocated = o.t.run.device.allocated;
    for (int i = 0; i < STEPS && well; i++) {
        well = CHECK_OK(ares_train_step(&o.t, o.m));
        o.t.run.step++;
        CHECK_EQ(o.t.run.model->params.of_training.turn > 0, lends != NOTHING);
        CHECK_EQ(o.t.actor.learner.scratch.turn > 0, lends != NOTHING);
        ares_metrics_get(o.m, "actor/grad_norm", &out->grad_norm[i]);
        ares_metrics_get(o.m, "reward/overall", &out->reward[i]);
        CHECK(ares_metrics_get(o.m, "exact/rollout_train_max_abs", &out->exact[i]) || !well);
    }
    if (well) {
        out->grew = o.t.run.device.most_allocated - begun;
        const ares_model *m = o.t.run.model;
        bool on_host = m->params.host_weights != NULL;
        out->bytes = on_host ? m->params.host_weights_bytes : m->params.weights_bytes;
        out->weights = ares_malloc(out->bytes);
        memcpy(out->weights, on_host ? m->params.host_weights : m->params.weights, out->bytes);
    }
    close_trainer(&o);
    return well;
}

static void same_steps(const char *first, const char *second)
{
    record own;
    if (!train(first, second, NOTHING, &own)) return;
    CHECK(own.grad_norm[0] > 0);
    for (int lends = LARGE; lends <= SMALL; lends++) {
        record lent;
        if (!train(first, second, lends, &lent)) return;
        CHECK(lent.grew < own.grew / 2); /* what is left: the engine's own buffers */
        CHECK_MEM(own.grad_norm, lent.grad_norm, sizeof own.grad_norm);
        CHECK_MEM(own.reward, lent.reward, sizeof own.reward);
        for (int i = 0; i < STEPS; i++) CHECK_NEAR(lent.exact[i], 0, 0);
        CHECK_EQ(own.bytes, lent.bytes);
        CHECK_MEM(own.weights, lent.weights, own.bytes);
        ares_free(lent.weights);
    }
    ares_free(own.weights);
}

TEST(steps_in_memory_that_the_cache_lends_have_the_same_bits)
{
    same_steps("worker.reward.rewards=[{name: random}]", "worker.rollout.top_p=0.95");
}

TEST(partial_samples_go_on_in_memory_that_the_cache_lends)
{
    same_steps("worker.reward.rewards=[{name: random}]",
               "curriculum={over_sampling_batch_size: 8, partial_rollout: true}");
}

/* Rollout's own weights lie there, too. */
TEST(weights_of_rollout_in_memory_that_training_takes_have_the_same_bits)
{
    same_steps("worker.reward.rewards=[{name: random}]",
               "worker.actor.offload.offload_params=true");
}

/*
 * A critic has memory of training's phase, too, and a tied model's look-up; passes of log-probs
 * come before those that keep what a backward reads. Seen to fail where the buffers are not told
 * how large they will be: activations grow, and what they leave is lost to the turn.
 */
TEST(all_that_training_takes_lies_in_the_memory_that_it_has_announced)
{
    static const char *const options[][2] = {
        { "algorithm.adv_estimator=gae", "worker.actor.recompute_log_probs=true" },
        { "algorithm.adv_estimator=gae", "worker.critic.max_token_len_per_device=4096" },
        { "algorithm.adv_estimator=gae",
          "worker.critic={share_prompts: false, max_token_len_per_device: 256}" },
        { "worker.actor={round_tokens: 100, max_token_len_per_device: 64, offload: "
          "{offload_params: true}}",
          "data.max_prompt_length=28" },
        { "worker.actor={share_prompts: false, max_token_len_per_device: 64}",
          "data.max_prompt_length=28" },
        { "worker.actor={share_prompts: false, max_token_len_per_device: 96, "
          "recompute_log_probs: true}",
          "data={max_prompt_length: 24, apply_chat_template: false}" },
    };
    for (int i = 0; i < ARES_COUNT(options); i++) {
        opened o;
        bool well = CHECK_OK(open_trainer(&o, options[i][0], options[i][1])) && lend(&o.t, true);
        size_t begun = o.t.run.device.most_allocated = o.t.run.device.allocated;
        for (int k = 0; k < 2 && well; k++) well = CHECK_OK(ares_train_step(&o.t, o.m));
        if (well) {
            const ares_trainer *t = &o.t;
            CHECK(t->run.model->params.of_training.turn > 0 && t->actor.learner.scratch.turn > 0);
            if (t->critic)
                CHECK(t->critic->learner.model->params.of_training.turn > 0 &&
                      t->critic->learner.scratch.turn > 0);
            CHECK_EQ(t->run.device.most_allocated - begun, 0);
        }
        close_trainer(&o);
    }
}

TEST(weights_of_rollout_are_filled_again_where_training_has_left_the_policy_as_it_was)
{
    opened o;
    ares_held training = { 0 };
    bool well = CHECK_OK(open_trainer(&o, "worker.actor.offload.offload_params=true",
                                      "worker.rollout.top_p=0.95")) &&
                lend(&o.t, false) && CHECK_OK(trainer_renew_rollout(&o.t));
    if (well) {
        const ares_model *slice = o.t.slice;
        size_t bytes = slice->params.weights_bytes;
        void *had = memcpy(ares_malloc(bytes), slice->params.weights, bytes);
        void *taken = ares_phase_take(&o.t.run.device, ARES_PHASE_TRAIN, &training, bytes);
        CHECK(taken == slice->params.weights);
        memset(taken, 7, bytes);
        CHECK_OK(trainer_renew_rollout(&o.t));
        CHECK_MEM(slice->params.weights, had, bytes);
        ares_free(had);
    }
    close_trainer(&o);
}
