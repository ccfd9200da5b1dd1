/* Opening and closing what every kind of run has. */
#include "run/training.h"

#include <stdio.h>
#include <string.h>

#include "options/published.h"

void training_init(training *t, const ares_train_config *cfg, ares_world *world)
{
    *t = (training){
        .cfg = cfg, .world = world, .best_score = -1, .best_step = -1, .validated_step = -1
    };
}

ares_dtype training_storage(const ares_train_config *c)
{
    const char *dtype = c->actor.dtype;
    return dtype && strcmp(dtype, "bf16") == 0 ? ARES_BF16 : ARES_F32;
}

/* Activations have the type of the actor's weights; the CPU's native table keeps f32. */
static int open_device(training *t)
{
    const ares_trainer_config *c = &t->cfg->trainer;
    ares_dtype act = training_storage(t->cfg);
    int threads = c->threads == ARES_NULL_I64 ? ares_world_threads(t->world) : (int)c->threads;
    char card[32];
    /* a process per card */
    snprintf(card, sizeof card, "cuda:%d", ares_world_local_rank(t->world));
    ARES_TRY(ares_device_open_table(strcmp(c->device, "cuda") == 0 ? card : c->device, c->kernels,
                                    act, threads, &t->device));
    ARES_TRY(ares_model_find(t->cfg->actor.model_path, &t->model_dir));
    return ares_model_fingerprint(t->model_dir.data, &t->model_weights);
}

int training_open_device(training *t)
{
    ARES_TRY(ares_world_agree(t->world, open_device(t)));
    return sharing_open(&t->groups, t->cfg, t->world, &t->device, ares_world_size(t->world));
}

int training_open_counting(training *t, int ranks)
{
    const ares_train_config *c = t->cfg;
    ares_device_open_counting(c->trainer.device, c->trainer.kernels, training_storage(c), 0,
                              &t->device);
    ARES_TRY(ares_model_find(c->actor.model_path, &t->model_dir));
    return sharing_open(&t->groups, c, NULL, &t->device, ranks);
}

/*
 * worker.actor.model.override_config, in which published_check has left max_position_embeddings
 * alone to act. Rotations follow positions however many there are, unless they are scaled by it.
 */
int training_set_positions(ares_model_config *m, const ares_json *override)
{
    int64_t positions;
    ARES_TRY(ares_json_get_i64(override, PUBLISHED_POSITIONS, m->max_position, &positions));
    if (positions != m->max_position && m->rope.kind != ARES_ROPE_DEFAULT)
        return ares_fail(ARES_ECONFIG,
                         "config: worker.actor.model.override_config: " PUBLISHED_POSITIONS
                         " = %lld: this model's rope scaling depends on it (now %d); change a "
                         "copy of its config.json",
                         (long long)positions, m->max_position);
    m->max_position = (int32_t)positions;
    return ARES_OK;
}

int training_open_model(training *t, const char *weights)
{
    const ares_train_config *c = t->cfg;
    const ares_model_share share = sharing_of_actor(c, &t->groups);
    ares_model_options opt = { .storage = training_storage(c),
                               .trainable = !c->trainer.val_only,
                               .freeze_vision = c->actor.freeze_vision,
                               .share = &share };
    ARES_TRY(ares_model_load(weights ? weights : c->actor.model_path, &t->device, &opt, &t->model));
    ARES_TRY(training_set_positions(&t->model->cfg, c->published.actor_override));
    ARES_TRY(ares_tokenizer_load(
        c->actor.tokenizer_path ? c->actor.tokenizer_path : t->model_dir.data, &t->tokenizer));
    int32_t last = (int32_t)ares_tokenizer_vocab_size(t->tokenizer) - 1;
    if (last >= t->model->cfg.vocab) {
        bool named = ares_tokenizer_is_special(t->tokenizer, last);
        ares_view token = ares_tokenizer_token_bytes(t->tokenizer, last);
        return ares_fail(ARES_EFORMAT,
                         "model: %s: the tokenizer has ids up to %d, the embedding %d rows; they "
                         "do not belong together%s%.*s%s",
                         t->model_dir.data, last, t->model->cfg.vocab, named ? ", or take '" : "",
                         named ? (int)ARES_MIN(token.len, 60) : 0, token.data,
                         named ? "' out of the files that name it" : "");
    }
    ARES_TRY(ares_model_add_eos(
        &t->model->cfg, ares_tokenizer_role_id(t->tokenizer, ARES_TOKEN_EOS), t->model_dir.data));
    if (!t->model->cfg.vision.depth) return ARES_OK;
    ARES_TRY(ares_sight_rules_load(&t->model->cfg, t->model_dir.data, &t->sight));
    return ares_features_new(t->model, &t->sight.processor, (size_t)(c->data.vision_cache_gb * 1e9),
                             &t->features);
}

int training_open_encoder(training *t, const ares_data_config *data, ares_prompt_encoder **out)
{
    const ares_train_config *c = t->cfg;
    return ares_prompt_encoder_new(
        &(ares_prompt_options){ .cfg = data,
                                .tokenizer = t->tokenizer,
                                .sight = t->features ? &t->sight : NULL,
                                .limit_images = c->rollout.limit_images,
                                .model_dir = c->actor.tokenizer_path ? c->actor.tokenizer_path
                                                                     : t->model_dir.data },
        out);
}

void step_begin_fini(step_begin *b)
{
    ares_str_fini(&b->controls);
    ares_source_snapshot_fini(&b->source);
}

void training_close(training *t)
{
    ares_features_free(t->features);
    ares_model_free(t->model);
    ares_source_close(&t->source);
    ares_source_close(&t->val);
    ares_prompt_encoder_free(t->encoder);
    ares_tokenizer_free(t->tokenizer);
    step_begin_fini(&t->begun);
    ares_str_fini(&t->run_dir);
    ares_str_fini(&t->model_dir);
    sharing_close(&t->groups);
    ares_device_close(&t->device);
}
