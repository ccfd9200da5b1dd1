/*
 * Private to train: declaring and checking the options of special subjects and of other trainers,
 * for ares_train_config_declare and ares_train_config_check.
 */
#ifndef ARES_TRAIN_OPTIONS_OPTIONS_H
#define ARES_TRAIN_OPTIONS_OPTIONS_H

#include "ares/config.h"
#include "ares/data.h"
#include "ares/train.h"

/*
 * Words of PEFT, and of verl for Megatron, that ask for more than adapters of linear layers: their
 * values that ask for nothing ("a|b"), and why another one is refused. A word of
 * worker.actor.model.lora is kept as x-lora.actor.<word>, one of worker.critic.model.lora as
 * x-lora.critic.<word>. (adapters.c)
 */
#define ADAPTER_NO_DROPOUT \
    "the sampler has no dropout: sampled and trained log-probs would differ; set 0"
#define ADAPTER_NO_BIASES "not offered: adapters that train biases; leave it out"
#define ADAPTER_ALONE "not offered: weights that are trained beside adapters; leave it out"
#define ADAPTER_WORDS(X)                                                                      \
    X("lora_dropout", "0", ADAPTER_NO_DROPOUT)                                                \
    X("dropout", "0", ADAPTER_NO_DROPOUT)                                                     \
    X("use_dora", "false", "not offered: DoRA, which changes the forward pass; set false")    \
    X("type", "lora|canonical_lora|vlm_lora", "only LoRA is offered; set lora")               \
    X("peft_type", "LORA", "only LoRA is offered; set LORA")                                  \
    X("task_type", "CAUSAL_LM", "only CAUSAL_LM is offered; leave it out")                    \
    X("bias", "none", ADAPTER_NO_BIASES)                                                      \
    X("lora_bias", "false", ADAPTER_NO_BIASES)                                                \
    X("modules_to_save", "", ADAPTER_ALONE)                                                   \
    X("freeze_language_model", "true", ADAPTER_ALONE)                                         \
    X("freeze_vision_model", "true", ADAPTER_ALONE)                                           \
    X("freeze_vision_projection", "true", ADAPTER_ALONE)                                      \
    X("target_parameters", "",                                                                \
      "not offered: adapters of parameters that are no linear layer; name layers in "         \
      "target_modules")                                                                       \
    X("fan_in_fan_out", "false", "the layers of models here are all stored alike; set false") \
    X("ensure_weight_tying", "false", "a tied head is adapted by itself; set false")          \
    X("lora_B_init_method", "zero", "B starts at 0, so that a run starts as its base; set zero")

/* Options that follow from words for adapters. (adapters.c) */
void adapters_translate(ares_config *cfg);
/*
 * Faults and warnings of what is asked of adapters and of parameters that are trained.
 * reinforcement: reference and critic are there where options ask for them. (adapters.c)
 */
void adapters_check(ares_config *cfg, const ares_train_config *c, bool reinforcement);

/* Declares the names that other trainers have for options. (aliases.c) */
void train_add_aliases(ares_config *cfg);

/*
 * Faults of distillation.*, and of options that do not go with it. Nothing is checked of a run that
 * only validates. (distill.c)
 */
void distillation_check(ares_config *cfg, const ares_train_config *c);
/* Whether two values are equal; 1 and 1.0 are. (unread.c) */
bool options_same(const ares_json *a, const ares_json *b);

/* Checks trainer.device, and the kernels and transport that go with it. (options.c) */
void device_check(ares_config *cfg, const ares_trainer_config *c);

/* Refuses limits of pictures that exclude each other. (options.c) */
void pixels_check(ares_config *cfg, const ares_data_config *d);
/* Expressions of model.trainable, against the names of the model where it is there. */
void trainable_check(ares_config *cfg, const ares_train_config *c);

/* The one key of worker.actor.model.override_config that has an effect. */
#define PUBLISHED_POSITIONS "max_position_embeddings"

/*
 * Words of DAPO and of slime's curriculum from which other options follow: declares and translates
 * them. (presets.c)
 */
void presets_declare(ares_config *cfg, ares_train_config *out);
/*
 * The words of slime's curriculum, EasyR1 and ARES, once all options have their values: faults go
 * to cfg; words that have no effect are logged. (presets.c)
 */
void presets_check(ares_config *cfg, const ares_train_config *c, int world);

/*
 * Warns of options that a user has set to something else than their default and that nothing of the
 * run reads. reward: NULL where none can be opened. (unread.c)
 */
void unread_tell(ares_config *cfg, const ares_train_config *c, const ares_reward *reward);
#endif
