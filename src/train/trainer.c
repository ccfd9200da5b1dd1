/* Wiring: from a checked configuration to everything a step needs, and back. */
#include <stdio.h>
#include <string.h>

#include "controls.h"
#include "run/run.h"
#include "triggers.h"

int trainer_open_device(ares_trainer *t)
{
    const ares_trainer_config *c = &t->cfg->trainer;
    int threads = c->threads == ARES_NULL_I64 ? ares_world_threads(t->world) : (int)c->threads;
    char card[32];
    /* a process per card */
    snprintf(card, sizeof card, "cuda:%d", ares_world_local_rank(t->world));
    ARES_TRY(
        ares_device_open(strcmp(c->device, "cuda") == 0 ? card : c->device, threads, &t->device));
    ARES_TRY(ares_model_find(t->cfg->actor.model_path, &t->model_dir));
    return ares_model_fingerprint(t->model_dir.data, &t->model_weights);
}

int trainer_open_model(ares_trainer *t, const char *weights)
{
    const ares_train_config *c = t->cfg;
    ares_model_options opt = { .storage = c->actor.dtype && strcmp(c->actor.dtype, "bf16") == 0
                                              ? ARES_BF16
                                              : ARES_F32,
                               .trainable = !c->trainer.val_only };
    ARES_TRY(ares_model_load(weights ? weights : c->actor.model_path, &t->device, &opt, &t->model));
    ARES_TRY(ares_tokenizer_load(
        c->actor.tokenizer_path ? c->actor.tokenizer_path : t->model_dir.data, &t->tokenizer));
    if (ares_tokenizer_vocab_size(t->tokenizer) > t->model->cfg.vocab)
        return ares_fail(ARES_EFORMAT,
                         "model: %s: the tokenizer has ids up to %lld, the embedding %d rows; they "
                         "do not belong together",
                         t->model_dir.data, (long long)ares_tokenizer_vocab_size(t->tokenizer) - 1,
                         t->model->cfg.vocab);
    return ARES_OK;
}

static int open_data(ares_trainer *t)
{
    const ares_train_config *c = t->cfg;
    int64_t dropped;
    ARES_TRY(ares_prompt_encoder_new(
        &c->data, c->actor.tokenizer_path ? c->actor.tokenizer_path : t->model_dir.data,
        t->tokenizer, &t->encoder));
    if (!c->trainer.val_only) {
        ARES_TRY(ares_dataset_load(&c->data.train_files, &c->data, true, &t->train));
        ARES_TRY(ares_reward_check_rows(t->reward, t->train));
        ARES_TRY(ares_dataset_encode(t->train, t->encoder, t->device.pool, &dropped));
        int64_t drawn = c->data.mini_rollout_batch_size == ARES_NULL_I64
                            ? c->data.rollout_batch_size
                            : c->data.mini_rollout_batch_size;
        drawn = ARES_MAX(drawn, 1); /* 0, draws of any size: prompt by prompt */
        ARES_TRY(ares_loader_init(&t->loader, ares_dataset_count(t->train), drawn, c->data.shuffle,
                                  (uint64_t)c->data.seed));
        t->total_steps =
            ares_train_total_steps(ares_dataset_count(t->train), drawn, c->data.rollout_batch_size,
                                   c->trainer.total_epochs, c->trainer.max_steps);
    }
    if (c->data.val_files.count) {
        ARES_TRY(ares_dataset_load(&c->data.val_files, &c->data, true, &t->val));
        ARES_TRY(ares_reward_check_rows(t->reward, t->val));
        ARES_TRY(ares_dataset_encode(t->val, t->encoder, t->device.pool, &dropped));
    }
    return ARES_OK;
}

static int open_rollout(ares_trainer *t)
{
    const ares_train_config *c = t->cfg;
    int64_t len = c->rollout.max_model_len == ARES_NULL_I64
                      ? c->data.max_prompt_length + c->data.max_response_length
                      : c->rollout.max_model_len;
    ares_rollout_options o = {
        .cache_tokens = c->rollout.cache_tokens == ARES_NULL_I64 ? 0 : c->rollout.cache_tokens,
        .max_num_seqs = (int32_t)c->rollout.max_num_seqs,
        .max_num_batched_tokens = c->rollout.max_num_batched_tokens == ARES_NULL_I64
                                      ? 2048
                                      : (int32_t)c->rollout.max_num_batched_tokens,
        .max_model_len = (int32_t)ARES_MIN(len, t->model->cfg.max_position),
        .entropy_top_k = strcmp(c->rollout.entropy_mode, "topk_tail") == 0
                             ? (int32_t)c->rollout.entropy_topk
                             : 0,
        .most_likely = t->triggers && strcmp(c->rollout.trigger_match, "argmax") == 0,
        .no_prefix_cache = !c->rollout.enable_prefix_caching
    };
    return ares_rollout_new(t->model, t->tokenizer, &o, &t->rollout);
}

/* weights: the policy's in a checkpoint; the critic's lie beside them. */
static int open_critic(ares_trainer *t, const char *weights)
{
    ares_str path = { 0 };
    if (weights) ares_path_join(&path, weights, "../critic");
    t->critic = ares_calloc(1, sizeof *t->critic);
    int rc = ares_critic_open(t->critic, t->cfg, &t->device, t->world, t->total_steps, path.data);
    ares_str_fini(&path);
    return rc;
}

static int open_parts(ares_trainer *t, ares_config *cfg, const char *weights)
{
    const ares_train_config *c = t->cfg;
    ARES_TRY(trainer_open_device(t));
    ARES_TRY(ares_reward_open(cfg, &c->reward, t->device.pool, &t->reward));
    ARES_TRY(trainer_open_model(t, weights));
    ARES_TRY(open_data(t));
    ARES_TRY(triggers_load(t));
    ARES_TRY(open_rollout(t));
    validation_sampling(cfg, c, &t->val_sampling, &t->val_n);
    ARES_TRY(ares_config_finish(cfg));
    if (c->trainer.val_only)
        return controls_open(t, &t->controls); /* a shaped score is shaped as in training */
    t->adv = ares_adv_find(c->algorithm.adv_estimator);
    if (!t->adv) return ARES_ECONFIG;
    ARES_TRY(ares_actor_open(&t->actor, c, t->model, t->world, t->total_steps));
    ARES_TRY(controls_open(t, &t->controls));
    if (t->adv->needs & ARES_NEEDS_VALUES) ARES_TRY(open_critic(t, weights));
    if (ares_kl_acts(&c->algorithm) == ARES_KL_NOWHERE) return ARES_OK;
    t->ref = ares_calloc(1, sizeof *t->ref);
    t->actor.ref = t->ref;
    return ares_reference_open(t->ref, c, &t->device);
}

int ares_trainer_open(ares_trainer *t, ares_config *cfg, const ares_train_config *c,
                      ares_world *world, const char *weights)
{
    *t = (ares_trainer){
        .cfg = c, .world = world, .best_score = -1, .best_step = -1, .validated_step = -1
    };
    ares_batch_init(&t->batch);
    return ares_world_agree(world, open_parts(t, cfg, weights));
}

void ares_trainer_close(ares_trainer *t)
{
    ares_rollout_free(t->rollout);
    ares_free(t->triggers);
    ares_actor_close(&t->actor);
    sft_free(t->sft);
    controls_close(t->controls);
    if (t->critic) ares_critic_close(t->critic);
    ares_free(t->critic);
    if (t->ref) ares_reference_close(t->ref);
    ares_free(t->ref);
    ares_model_free(t->model);
    ares_reward_close(t->reward);
    ares_dataset_free(t->train);
    ares_dataset_free(t->val);
    ares_loader_fini(&t->loader);
    ares_prompt_encoder_free(t->encoder);
    ares_tokenizer_free(t->tokenizer);
    ares_batch_fini(&t->batch);
    ares_str_fini(&t->begun.controls);
    ares_str_fini(&t->run_dir);
    ares_str_fini(&t->model_dir);
    ares_device_close(&t->device);
}
