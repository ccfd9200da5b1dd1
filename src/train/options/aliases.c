/*
 * The names that other trainers give to our options, in one list. Names whose meaning differs
 * (batches counted in samples, losses with other names) are refused with what to write instead;
 * details of an engine that no result depends on are ignored. Our own option always wins over an
 * alias of the same name.
 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACTOR "worker.actor."
#define CRITIC "worker.critic."
#define VERL "actor_rollout_ref."
/* An option of vapor.*, as TRL's trainers name it: alone, or in the section algorithm. */
#define VAPOR(name)                                  \
    { name, "vapor." name, NULL, NULL },             \
    {                                                \
        "algorithm." name, "vapor." name, NULL, NULL \
    }
/* A word that VAPOR's description has in its section, and that is an option elsewhere here. */
#define IN_VAPOR(name, to)                \
    { "vapor." name, to, NULL, NULL },    \
    {                                     \
        "algorithm." name, to, NULL, NULL \
    }
#define JUDGED(section)                                                                       \
    { section "reward_fn", "worker.reward.rewards=[{name: exact}]", "=exact_match", NULL },   \
        { section "reward_fn", "worker.reward.rewards=[{name: json}]", "=json_valid", NULL }, \
        { section "reward_fn", NULL, NULL,                                                    \
          "set worker.reward.rewards, as in [{name: number}], or [{name: regex, pattern: ...}]" }
/* Names of slime's functions and classes; what they do is always done here. */
#define SLIME_SOURCE(word)                                                 \
    { word, "",                                                            \
      "=*RolloutDataSource|*RolloutDataSourceWithBuffer|*MultipleWeighted" \
      "RolloutDataSourceWithBuffer",                                       \
      "data.train_files and curriculum.* say what is drawn" },             \
        { word, NULL, NULL,                                                \
          "no code is loaded; data.train_files and curriculum.* say what is drawn" }
#define SLIME_LOG(word)                                                          \
    { word, "", "=*custom_rollout_log_function", "metrics are always written" }, \
        { word, NULL, NULL, "no code is loaded; metrics are always written" }
#define BETA                                                                                   \
    "beta weighs the KL term in TRL, and preferences in DPO and VAPOR; for the KL term write " \
    "algorithm.kl_coef, with algorithm.use_kl_loss: true; for a teacher's divergence "         \
    "distillation.distillation_loss.beta"
#define DISTILL_LOSS "distillation.distillation_loss."
#define TEACHER "distillation.teacher_model."
#define VERL_TEACHERS "distillation.teacher_models."
#define NO_SERVER "the teacher is computed in this process, beside the student"
#define TEACHER_HERE \
    "not built: a teacher behind a server; name its directory in " TEACHER "model_path"
#define ONE_TEACHER "not built: more than one teacher; name it in " TEACHER "model_path"
#define TEACHER_ANSWERS \
    "not built; let `generate` write the teacher's answers, and use distillation.lmbda: 0"
/* An option of SDPO, as TRL names it alone and its own code in a section. */
#define OF_SDPO(section, name) { section name, "distillation." name, NULL, NULL }
#define SDPO(section)                                                                        \
    OF_SDPO(section, "reprompt_template"), OF_SDPO(section, "solution_template"),            \
        OF_SDPO(section, "feedback_template"), OF_SDPO(section, "success_reward_threshold"), \
        OF_SDPO(section, "use_successful_as_teacher"),                                       \
        OF_SDPO(section, "dont_reprompt_on_self_success"),                                   \
        OF_SDPO(section, "include_environment_feedback"),                                    \
        OF_SDPO(section, "environment_feedback_only_without_solution"),                      \
        OF_SDPO(section, "remove_thinking_from_demonstration"),                              \
        OF_SDPO(section, "max_reprompt_len"),                                                \
        { section "teacher_update_rate", TEACHER "update_rate", NULL, NULL },                \
        { section "distillation_alpha", DISTILL_LOSS "beta", NULL, NULL },                   \
        { section "distillation_is_clip", DISTILL_LOSS "is_clip", NULL, NULL },              \
        { section "distillation_topk", "", "=null", UNSAID },                                \
        { section "distillation_topk", NULL, NULL,                                           \
          "the whole vocabulary is compared; leave it out" },                                \
        { section "distillation_add_tail", "", "=false", UNSAID },                           \
        { section "distillation_add_tail", NULL, NULL,                                       \
          "the whole vocabulary is compared; leave it out" }
#define SEVERAL_TOKENS "not built: heads that predict several tokens"
#define NO_FP16 "not offered; set worker.actor.fsdp.torch_dtype to fp32 or bf16"
#define MEGATRON "a model is what its config.json says"
#define TRL_BATCH(word) "x-trl." word /* no option of ours */
#define BY_TOKENS \
    "micro-batches are cut by worker.actor.max_token_len_per_device; no result depends on it"
#define ENGINE "a detail of another engine"
/* of a section: the type in which mixed precision computes */
#define COMPUTES(word, worker)                                     \
    { word, worker "arithmetic=bf16", "=bf16|bfloat16", NULL },    \
        { word, worker "arithmetic=fp32", "=fp32|float32", NULL }, \
        { word, "", NULL, "products are in fp32, or bf16 where worker.*.arithmetic says so" }
#define SHARDS \
    "worker.*.fsdp.torch_dtype is how weights are stored, enable_full_shard what ranks share"
#define RANKS "ranks come from --ranks or mpirun"
#define PACKED "batches are always packed"
#define TWO_WEIGHTS "means algorithm.kl_coef here, which is set as well; keep one"
#define REWARDS "worker.reward.rewards says what is rewarded; {name: auto} goes by the data source"
#define PROMPTS                                                                                  \
    "prompts are never cut; a longer one is dropped (data.filter_overlong_prompts) or ends the " \
    "run"
#define BUFFER "worker.reward.overlong_buffer."
#define SIDE_BY_SIDE "environments always go side by side"
#define WHOLE_RUN "a checkpoint holds the whole run, the critic with it"
#define LORA ACTOR "model.lora."
#define CRITIC_LORA CRITIC "model.lora."
/* adapters.c says which of their values pass */
#define ADAPTER_ROWS(word, neutral, why)             \
    { LORA word, "x-lora.actor." word, NULL, NULL }, \
        { CRITIC_LORA word, "x-lora.critic." word, NULL, NULL },
/* PEFT's and other trainers' names for options of adapters, in a section of adapters */
#define ADAPTER_NAMES(section)                                                                     \
    { section "r", section "rank", NULL, NULL },                                                   \
        { section "lora_alpha", section "alpha", NULL, NULL },                                     \
        { section "init_lora_weights", section "init", NULL, NULL },                               \
        { section "init_lora_weights", section "init=kaiming", "=true", NULL },                    \
        { section "init_lora_weights", NULL, NO_INIT_VALUES, NO_INIT },                            \
        { section "init_method", section "init", NULL, NULL },                                     \
        { section "lora_A_init_method", section "init", NULL, NULL },                              \
        { section "lora_A_init_method", "", "=xavier",                                             \
          "A starts uniform within 1 / sqrt(inputs), or as init says" },                           \
        { section "init", NULL, NO_INIT_VALUES, NO_INIT },                                         \
        { section "target_modules", section "target_modules=all-linear", MEGATRONS_LAYERS, NULL }, \
        { section "merge", "", NULL, SAME_WEIGHTS },                                               \
        { section "lora_sync_path", "", NULL, SAME_WEIGHTS },                                      \
        { section "fully_sharded_loras", "", NULL, ENGINE },                                       \
        { section "max_loras", "", NULL, ENGINE },                                                 \
        { section "a2a_experimental", "", NULL, ENGINE },                                          \
        { section "dropout_position", "", NULL, "nothing is dropped out here" },                   \
        { section "dtype", "", NULL, "adapters are stored in fp32" },                              \
        { section "inference_mode", "", NULL, UNSAID },                                            \
        { section "base_model_name_or_path", "", NULL, "the model is worker.*.model.model_path" }
#define NO_INIT_VALUES "=false|pissa|olora|eva|corda|loftq|lora_ga|orthogonal"
#define NO_INIT                                                                                \
    "not built: A that starts from the weights or from data, and B that does not start at 0; " \
    "set kaiming or gaussian"
/* all linear layers, by Megatron's names: with q, k and v as one, and each by itself */
#define MEGATRONS_LAYERS                                                                 \
    "=[linear_qkv, linear_proj, linear_fc1, linear_fc2]|[linear_q, linear_k, linear_v, " \
    "linear_proj, linear_fc1_up, linear_fc1_gate, linear_fc2]"
/* verl's section for Megatron, which stands in its files beside the words for FSDP */
#define MEGATRONS_SECTION(from, to)                                                        \
    { from "rank", to "rank", NULL, NULL }, { from "alpha", to "alpha", NULL, NULL },      \
        { from "target_modules", to "target_modules", NULL, NULL },                        \
        { from "target_modules", to "target_modules=all-linear", MEGATRONS_LAYERS, NULL }, \
        { from "exclude_modules", to "exclude_modules", NULL, NULL },                      \
    {                                                                                      \
        from "adapter_path", to "adapter_path", NULL, NULL                                 \
    }
#define SAME_WEIGHTS \
    "actor and rollout read the same weights and adapters, so that nothing has to be synchronised"
#define FILES "each file is named with --config, a later one over those before it"
/* Megatron's words in the critic's section */
#define CRITIC_OF_MEGATRON(word) { "critic.model." word, "", NULL, MEGATRON }
/* its rows have lists of right answers */
#define RLINFS_MATH \
    "worker.reward.rewards=[{name: auto, rm_type: math, types: {math: {any_of: true}}}]"
#define OF_RLOO "algorithm.adv_estimator=rloo"
#define UNSAID "asks for nothing"
#define STEP_GROUPS "the groups that the step trains on are measured; leave it out"
/* verl's reward function, in either of the two sections where files have it */
#define CUSTOM_REWARD(before)                                                                      \
    { before "custom_reward_function.path", "worker.reward.reward_function", NULL, NULL },         \
        { before "custom_reward_function.name", "worker.reward.reward_function_name", NULL,        \
          NULL },                                                                                  \
        { before "custom_reward_function.reward_kwargs", "worker.reward.reward_function_kwargs",   \
          NULL, NULL },                                                                            \
    {                                                                                              \
        before "custom_reward_function.reward_kwargs.*", "worker.reward.reward_function_kwargs.*", \
            NULL, NULL                                                                             \
    }

#define OF_PAIRS "=dpo|ipo|kto|orpo|simpo|cpo"
#define PAIRS                                                                         \
    "not built; algorithm.name: vapor learns from pairs of answers beside a reward, " \
    "vapor.dpo_coef as DPO does (docs/vapor.md)"
#define PROFILED "timing_s/* in metrics.jsonl says where time goes"
#define NO_AUX_LOSS                                                                        \
    "no auxiliary loss of routers: it is a product of two means over a mini-batch, which " \
    "micro-batches would change"
#define NO_EXPERTS "rollout and update choose the same experts by themselves, on one device"
#define OFFLOADED "worker.*.offload.* says what waits in host memory"
#define ORDER "data.seed says the order of rows and mini-batches"
#define ADAMW "weights are trained with AdamW; worker.*.optim.strategy says how it is stored"
#define ADAMW_NAMES "=AdamW|adamw|adam|Adam"
#define QUANTIZED "not built: the rollout reads the actor's own weights, unquantised"
#define CONVERSATIONS                                                                            \
    "tools and conversations are environments here: set env.train.tags (docs/environments.md); " \
    "an "                                                                                        \
    "answer to a row of data.train_files is one turn"
#define NO_PENALTY "not built: tokens are sampled without a penalty on repetition"
#define NO_MIN_P "not built: set worker.rollout.top_p or top_k"
#define OWN_CLASS                                                                             \
    "no code of a data set is run; write what it makes as JSON lines, and name that file in " \
    "data.train_files (docs/data.md)"
#define OWN_SAMPLER \
    "no code of a sampler is run; curriculum.* draws data sets by weight and drops solved prompts"
#define OWN_LOG_PROBS "the rollout's log-probs are the actor's own"
#define LOSS_OF_CORRECTION                                                                    \
    "worker.actor.loss_type names the loss: gpg for REINFORCE without weights, cispo with "   \
    "clip_ratio_low=1 and clip_ratio_high = rollout_is_threshold - 1 for weights of tokens; " \
    "weights of rows are not built there"
#define REWARD_MODEL                                                                           \
    "not built: a reward model; serve it, and ask it from a command of worker.reward.rewards " \
    "(docs/rewards.md)"
#define SANDBOX                                                                          \
    "not built: a sandbox for programs; ask it from a command of worker.reward.rewards " \
    "(docs/rewards.md)"
#define ANSWERS "rollouts/*.jsonl in trainer.run_dir hold every answer"
/* Other trainers' words for writing answers or their tokens: a truth value, or null. */
#define LOGS_TOKENS(word)                                          \
    { word, "trainer.rollout_log=tokens", "=true", NULL },         \
        { word, "trainer.rollout_log=text", "=false|null", NULL }, \
        { word, NULL, NULL, "set true or false, or trainer.rollout_log: none, text or tokens" }
#define ONE_AFTER_ANOTHER "a step samples with the weights that it trains"
#define MODEL_OF_VERL VERL "model.path"
#define RANK0_OF_EASYR1 ACTOR "fsdp.enable_rank0_init"
#define MODEL_OF_TRL "model_name_or_path"
#define MODEL_OF_SLIME "hf_checkpoint"

#define RAGEN_TAGS "es_manager.train.env_configs.tags"

const ares_config_alias train_aliases[] = {
    /* EasyR1 and ARES: options without a use here. Those whose values are checked: presets.c */
    { "data.filter_overlong_prompts_workers", "", NULL,
      "prompts are encoded on the threads of trainer.threads" },
    { "worker.actor.padding_free", "", NULL, PACKED },
    { "worker.actor.dynamic_batching", "", NULL, BY_TOKENS },
    { "worker.actor.use_torch_compile", "", NULL, "kernels are compiled ahead of time" },
    { "worker.actor.model.trust_remote_code", "", NULL, "no code of a model is run" },
    { "worker.actor.optim.warmup_style", ACTOR "optim.lr_scheduler_type", NULL, NULL },
    { "worker.actor.strategy", "", NULL, SHARDS },
    { "worker.critic.strategy", "", NULL, SHARDS },
    { "worker.ref.strategy", "", NULL, SHARDS },
    { "worker.rollout.name", "", NULL, "the rollout engine is this program's own" },
    { "worker.actor.fsdp.*", "", NULL, SHARDS },
    COMPUTES("worker.actor.fsdp.mp_param_dtype", "worker.actor."),
    { "algorithm.filter_key", "algorithm.filter_key=accuracy", "=accuracy_normalized", NULL },
    /* features that are not built: refused, so that no similar option is proposed instead */
    { "algorithm.name", NULL, OF_PAIRS, PAIRS },
    { "algorithm.adv_estimator", NULL, OF_PAIRS, PAIRS },
    { ACTOR "loss_type", NULL, OF_PAIRS, PAIRS },
    { "worker.critic.padding_free", "", NULL, PACKED },
    { "worker.critic.dynamic_batching", "", NULL, BY_TOKENS },
    { "worker.critic.model.tokenizer_path", "", NULL, "the critic reads the actor's tokens" },
    { "worker.critic.model.trust_remote_code", "", NULL, "no code of a model is run" },
    { "worker.critic.model.freeze_vision_tower", "", NULL, "a critic reads text alone" },
    { "worker.critic.optim.warmup_style", "worker.critic.optim.lr_scheduler_type", NULL, NULL },
    { "worker.critic.fsdp.*", "", NULL, SHARDS },
    COMPUTES("worker.critic.fsdp.mp_param_dtype", "worker.critic."),
    { "worker.actor.fsdp.enable_cpu_offload", "", NULL, OFFLOADED },
    { "worker.critic.fsdp.enable_cpu_offload", "", NULL, OFFLOADED },
    { "worker.ref.fsdp.enable_cpu_offload", "", NULL, OFFLOADED },
    { "worker.ref.padding_free", "", NULL, PACKED },
    { "worker.ref.use_torch_compile", "", NULL, "kernels are compiled ahead of time" },
    { "worker.ref.micro_batch_size_per_device_for_experience", "", NULL, BY_TOKENS },
    { "worker.ref.fsdp.*", "", NULL, SHARDS },
    COMPUTES("worker.ref.fsdp.mp_param_dtype", "worker.ref."),
    { "worker.ref.offload.*", "", NULL, "a reference has no optimizer states" },
    { "worker.rollout.dtype", "", NULL,
      "rollout reads the actor's own weights: worker.actor.fsdp.torch_dtype" },
    { "worker.rollout.enforce_eager", "", NULL, ENGINE },
    { "worker.rollout.disable_log_stats", "", NULL, "rollout/* are always logged" },
    { "worker.rollout.disable_tqdm", "", NULL,
      "trainer.logger says whether the console shows progress" },
    { "worker.rollout.trust_remote_code", "", NULL, "no code of a model is run" },
    { "worker.reward.num_cpus", "", NULL, "rewards run on the threads of trainer.threads" },
    { "trainer.wandb_run_id", "", NULL, "a run directory goes on by itself, its metrics with it" },
    { "trainer.save_checkpoint_path", "trainer.run_dir", NULL, NULL },
    { "trainer.ray_timeline", "", NULL, ENGINE },

    /* verl and RAGEN */
    { "data.train_batch_size", NULL, "=0",
      "not built: a trainer that takes answers as they come (fully_async); a step has a batch of "
      "its "
      "own, so give its prompts" },
    { "data.train_batch_size", "data.rollout_batch_size", NULL, NULL },
    { "data.gen_batch_size", "data.mini_rollout_batch_size", NULL, NULL },
    { "data.truncation", "", NULL, PROMPTS },
    { "data.return_raw_chat", "", NULL, ENGINE },
    { "data.return_raw_input_ids", "", NULL, ENGINE },
    { "data.return_full_prompt", "", NULL, ENGINE },
    { "data.trust_remote_code", "", NULL, "no code of a model is run" },
    { "data.tokenizer", ACTOR "model.tokenizer_path", NULL, NULL },
    { VERL "hybrid_engine", "worker.hybrid_engine", NULL, NULL },
    { VERL "model.path", ACTOR "model.model_path", NULL, NULL },
    { VERL "model.*", ACTOR "model.*", NULL, NULL },
    { VERL "model.trust_remote_code", "", NULL, "no code of a model is run" },
    { VERL "model.use_remove_padding", "", NULL, PACKED },
    { VERL "model.use_fused_kernels", "", NULL, ENGINE },
    { VERL "model.use_liger", "", NULL, ENGINE },
    { VERL "model.use_shm", "", NULL, SAME_WEIGHTS },
    { VERL "model.external_lib", "", NULL, ENGINE },
    { VERL "actor.*", ACTOR "*", NULL, NULL },
    { VERL "actor.ppo_mini_batch_size", ACTOR "global_batch_size", NULL, NULL },
    { VERL "actor.ppo_micro_batch_size", "", NULL, BY_TOKENS },
    { VERL "actor.ppo_micro_batch_size_per_gpu", ACTOR "micro_batch_size_per_device_for_update",
      NULL, NULL },
    { VERL "actor.ppo_max_token_len_per_gpu", ACTOR "max_token_len_per_device", NULL, NULL },
    { VERL "actor.use_dynamic_bsz", "", NULL, BY_TOKENS },
    { VERL "actor.grad_clip", ACTOR "max_grad_norm", NULL, NULL },
    { VERL "actor.clip_ratio", ACTOR "clip_ratio_low&" ACTOR "clip_ratio_high", NULL, NULL },
    { VERL "actor.clip_ratio_c", ACTOR "clip_ratio_dual", NULL, NULL },
    { VERL "actor.loss_agg_mode", ACTOR "loss_avg_mode", NULL, NULL },
    { VERL "actor.use_token_level_loss", ACTOR "loss_avg_mode=token-mean", "=true", NULL },
    { VERL "actor.use_token_level_loss", ACTOR "loss_avg_mode=seq-mean-token-mean", "=false",
      NULL },
    { VERL "actor.policy_loss.loss_mode", ACTOR "loss_type", NULL, NULL },
    { VERL "actor.policy_loss.*", ACTOR "*", NULL,
      NULL }, /* clip_cov_*, kl_cov_ratio, ppo_kl_coef */
    { VERL "actor.loss_agg_scope", ACTOR "loss_norm", NULL, NULL },
    { VERL "actor.tau_pos", ACTOR "tau_positive", NULL, NULL },
    { VERL "actor.tau_neg", ACTOR "tau_negative", NULL, NULL },
    { VERL "actor.tis_imp_ratio_cap", "", "=-1", UNSAID },
    { VERL "actor.tis_imp_ratio_cap", NULL, NULL,
      "set worker.actor.rollout_is: token and worker.actor.rollout_is_threshold" },
    { ACTOR "loss_agg_scope", ACTOR "loss_norm", NULL, NULL },
    { ACTOR "loss_agg_mode", ACTOR "loss_avg_mode", NULL, NULL },
    { "algorithm.rollout_correction.rollout_is", ACTOR "rollout_is", NULL, NULL },
    { "algorithm.rollout_correction.rollout_is_threshold", ACTOR "rollout_is_threshold", NULL,
      NULL },
    { "algorithm.rollout_is", ACTOR "rollout_is", NULL, NULL },
    { "algorithm.rollout_is_mode", ACTOR "rollout_is_mode", NULL, NULL },
    { "algorithm.rollout_is_threshold", ACTOR "rollout_is_threshold", NULL, NULL },
    { "algorithm.rollout_is_threshold_lower", ACTOR "rollout_is_threshold_lower", NULL, NULL },
    { "algorithm.rollout_is_level", NULL, NULL,
      "set worker.actor.rollout_is: token, sequence or geometric" },
    { VERL "actor.use_kl_loss", "algorithm.use_kl_loss", NULL, NULL },
    { VERL "actor.kl_loss_coef", "algorithm.kl_coef", "algorithm.use_kl_loss=true", TWO_WEIGHTS },
    { VERL "actor.kl_loss_coef", "", NULL, "KL is no term of the loss" },
    /* verl's algorithm.kl_penalty is the estimator of the KL in the reward */
    { VERL "actor.kl_loss_type", "algorithm.kl_penalty", "algorithm.use_kl_loss=true", NULL },
    { VERL "actor.kl_loss_type", "", NULL, "KL is no term of the loss" },
    { VERL "actor.optim.lr_warmup_steps_ratio", ACTOR "optim.lr_warmup_ratio", NULL, NULL },
    { VERL "actor.optim.warmup_style", ACTOR "optim.lr_scheduler_type", NULL, NULL },
    { VERL "actor.optim.total_training_steps", "", NULL, "the schedule spans the run's own steps" },
    { VERL "actor.use_torch_compile", "", NULL, ENGINE },
    { VERL "actor.entropy_from_logits_with_chunking", "", NULL,
      "entropy is always computed in chunks" },
    { VERL "actor.entropy_checkpointing", "", NULL, ENGINE },
    { VERL "actor.fsdp_config.*", "", NULL, ENGINE },
    { VERL "actor.fsdp_config.param_offload", ACTOR "offload.offload_params", NULL, NULL },
    { VERL "actor.fsdp_config.optimizer_offload", ACTOR "offload.offload_optimizer", NULL, NULL },
    COMPUTES(VERL "actor.fsdp_config.mixed_precision.param_dtype", ACTOR),
    { VERL "actor.fsdp_config.model_dtype", ACTOR "fsdp.torch_dtype", NULL, NULL },
    { VERL "actor.megatron.*", "", NULL, SHARDS },
    { VERL "actor.megatron.param_offload", ACTOR "offload.offload_params", NULL, NULL },
    { VERL "actor.megatron.optimizer_offload", ACTOR "offload.offload_optimizer", NULL, NULL },
    { VERL "actor.veomni.*", "", NULL, SHARDS },
    { VERL "actor.engine.*", "", NULL, SHARDS },
    { VERL "actor.fsdp_config.fsdp_size", ACTOR "fsdp.fsdp_size", NULL, NULL },
    { VERL "actor.checkpoint.*", "", NULL, "a checkpoint holds the whole run" },
    { VERL "ref.*", "worker.ref.*", NULL, NULL },
    { VERL "ref.log_prob_micro_batch_size", "", NULL, BY_TOKENS },
    { VERL "ref.log_prob_micro_batch_size_per_gpu", "", NULL, BY_TOKENS },
    { VERL "ref.log_prob_use_dynamic_bsz", "", NULL, BY_TOKENS },
    { VERL "ref.log_prob_max_token_len_per_gpu", "", NULL, BY_TOKENS },
    { VERL "ref.fsdp_config.*", "", NULL, ENGINE },
    { VERL "ref.fsdp_config.param_offload", "worker.ref.offload.offload_params", NULL, NULL },
    COMPUTES(VERL "ref.fsdp_config.mixed_precision.param_dtype", "worker.ref."),
    { VERL "ref.fsdp_config.model_dtype", "worker.ref.fsdp.torch_dtype", NULL, NULL },
    { VERL "ref.megatron.*", "", NULL, SHARDS },
    { VERL "ref.megatron.param_offload", "worker.ref.offload.offload_params", NULL, NULL },
    { VERL "ref.veomni.*", "", NULL, SHARDS },
    { VERL "ref.engine.*", "", NULL, SHARDS },
    { VERL "ref.rollout_n", "", NULL, "it is worker.rollout.n" },
    { VERL "ref.use_torch_compile", "", NULL, ENGINE },
    { VERL "ref.entropy_from_logits_with_chunking", "", NULL, ENGINE },
    { VERL "ref.entropy_checkpointing", "", NULL, ENGINE },
    { VERL "ref.profiler.*", "", NULL, PROFILED },
    { VERL "ref.router_replay.*", "", NULL, NO_EXPERTS },
    { VERL "ref.fsdp_config.fsdp_size", "worker.ref.fsdp.fsdp_size", NULL, NULL },
    { VERL "rollout.*", "worker.rollout.*", NULL, NULL },
    { VERL "rollout.tensor_model_parallel_size", "worker.rollout.tensor_parallel_size", NULL,
      NULL },
    { VERL "rollout.prompt_length", "data.max_prompt_length", NULL, NULL },
    { VERL "rollout.response_length", "data.max_response_length", NULL, NULL },
    { VERL "rollout.val_kwargs", "worker.rollout.val_override_config", NULL, NULL },
    { VERL "rollout.do_sample", NULL, NULL, "temperature 0 is greedy; leave do_sample out" },
    { VERL "rollout.log_prob_micro_batch_size", "", NULL, BY_TOKENS },
    { VERL "rollout.log_prob_micro_batch_size_per_gpu", "", NULL, BY_TOKENS },
    { VERL "rollout.log_prob_use_dynamic_bsz", "", NULL, BY_TOKENS },
    { VERL "rollout.log_prob_max_token_len_per_gpu", "", NULL, BY_TOKENS },
    { VERL "rollout.free_cache_engine", "", NULL, ENGINE },
    { VERL "rollout.load_format", "", NULL, SAME_WEIGHTS },
    { VERL "rollout.mode", "", NULL, ENGINE },
    { VERL "rollout.engine_kwargs.*", "", NULL, ENGINE },
    { "algorithm.kl_ctrl.kl_coef", "algorithm.kl_coef", "algorithm.use_kl_loss=false",
      TWO_WEIGHTS },
    /* with a KL in the loss: its weight, where actor.kl_loss_coef is not set */
    { "algorithm.kl_ctrl.kl_coef", "algorithm.kl_coef", "algorithm.use_kl_loss=true", TWO_WEIGHTS },
    { "algorithm.kl_ctrl.kl_coef", "", NULL, "another option is the weight of the KL" },
    { "algorithm.kl_ctrl.type", "algorithm.kl_type", NULL, NULL },
    { "algorithm.kl_ctrl.horizon", "algorithm.kl_horizon", NULL, NULL },
    { "algorithm.kl_ctrl.target_kl", "algorithm.kl_target", NULL, NULL },
    { "algorithm.filter_groups.max_num_gen_batches", "trainer.max_try_make_batch", NULL, NULL },
    { VERL "actor.ulysses_sequence_parallel_size", ACTOR "ulysses_size", NULL, NULL },
    { VERL "ref.ulysses_sequence_parallel_size", "worker.ref.ulysses_size", NULL, NULL },
    CUSTOM_REWARD(""),
    CUSTOM_REWARD("reward."),
    { "custom_reward_function.overlong_buffer.*", BUFFER "*", NULL, NULL },
    { "reward_model.overlong_buffer.*", BUFFER "*", NULL, NULL },
    { "reward_model.reward_kwargs.overlong_buffer_cfg.*", BUFFER "*", NULL, NULL },
    { "reward_model.reward_kwargs.max_resp_len", BUFFER "max_resp_len", NULL, NULL },
    { "reward_model.reward_manager", "", NULL, REWARDS },
    { BUFFER "log", "", NULL, "reward/length_penalty is always logged" },
    { "trainer.total_training_steps", "trainer.max_steps", NULL, NULL },
    { "trainer.test_freq", "trainer.val_freq", NULL, NULL },
    { "trainer.default_local_dir", "trainer.run_dir", NULL, NULL },
    { "trainer.log_val_generations", "trainer.val_generations_to_log", NULL, NULL },
    { "trainer.max_actor_ckpt_to_keep", "trainer.save_limit", NULL, NULL },
    { "trainer.resume_mode", "", NULL,
      "a run directory goes on by itself, else from trainer.load_checkpoint_path" },
    { "trainer.default_hdfs_dir", "", NULL, ENGINE },
    { "ray_init.*", "", NULL, RANKS },
    { "ray_kwargs.*", "", NULL, RANKS },

    /* of the actor */
    { VERL "actor.freeze_vision_tower", ACTOR "model.freeze_vision_tower", NULL, NULL },
    { VERL "actor.clip_ratio_low", ACTOR "clip_ratio_low=1", "=10", NULL },
    { VERL "actor.policy_loss.tau_pos", ACTOR "tau_positive", NULL, NULL },
    { VERL "actor.policy_loss.tau_neg", ACTOR "tau_negative", NULL, NULL },
    { VERL "actor.calculate_entropy", "", NULL, "actor/entropy is measured where it is needed" },
    { VERL "actor.calculate_sum_pi_squared", "", NULL,
      "algorithm.adv_estimator: optimal_token_baseline has it computed" },
    { VERL "actor.sum_pi_squared_checkpointing", "", NULL, ENGINE },
    { VERL "actor.use_prefix_grouper", "", NULL, ACTOR "share_prompts does it" },
    { VERL "actor.use_fused_kernels", "", NULL, ENGINE },
    { VERL "actor.use_remove_padding", "", NULL, PACKED },
    { VERL "actor.ppo_infer_max_token_len_per_gpu", "", NULL, BY_TOKENS },
    { VERL "actor.ppo_infer_micro_batch_size_per_gpu", "", NULL, BY_TOKENS },
    { VERL "actor.rollout_n", "", NULL, "it is worker.rollout.n" },
    { VERL "actor.data_loader_seed", "", NULL, ORDER },
    { VERL "actor.profiler.*", "", NULL, PROFILED },
    { VERL "actor.router_replay.*", "", NULL, NO_EXPERTS },
    { VERL "actor.optim.lr_warmup_steps", ACTOR "optim.lr_warmup_steps=null", "=-1", NULL },
    { VERL "actor.optim.optimizer", "", ADAMW_NAMES, ADAMW },
    { VERL "actor.optim.optimizer", NULL, NULL, ADAMW },
    { VERL "actor.optim.optimizer_impl", "", NULL, ADAMW },
    { VERL "actor.optim.clip_grad", ACTOR "max_grad_norm", NULL, NULL },
    { VERL "actor.optim.num_cycles", "", "=0.5", "a cosine is half a period" },
    { VERL "actor.optim.override_optimizer_config.*", "", NULL, ENGINE },
    { VERL "actor.optim.lr_decay_style", ACTOR "optim.lr_scheduler_type", NULL, NULL },
    { VERL "actor.optim.lr_decay_steps", "", NULL, "the schedule spans the run's own steps" },
    { VERL "actor.optim.lr_warmup_init", "", "=0", "the warm-up begins at 0" },
    { VERL "actor.optim.min_lr", "", "=0", UNSAID },
    { VERL "actor.optim.min_lr", "", ACTOR "optim.lr_scheduler_type=constant", UNSAID },
    { VERL "actor.optim.min_lr", NULL, NULL, "set worker.actor.optim.min_lr_ratio, a share of lr" },
    { VERL "actor.model_engine", "", NULL, SHARDS },
    { VERL "actor.pad_to_length", "", NULL, PACKED },
    { VERL "actor.entropy_from_logits_chunk_size", "", NULL, ENGINE },
    { VERL "ref.entropy_from_logits_chunk_size", "", NULL, ENGINE },
    { VERL "ref.pad_to_length", "", NULL, PACKED },
    { VERL "rollout.nnodes", "", NULL, RANKS },
    { VERL "rollout.n_gpus_per_node", "", NULL, RANKS },
    { VERL "rollout.full_determinism", "", NULL, "a run has the same bits each time" },
    { VERL "rollout.moe_load_balance_metrics_interval", "", NULL, NO_EXPERTS },
    { "model_engine", "", NULL, SHARDS },
    { "actor@" VERL "actor", "", NULL, SHARDS },
    /* of the critic */
    { "critic.model.fsdp_config.param_offload", CRITIC "offload.offload_params", NULL, NULL },
    { "critic.model.fsdp_config.optimizer_offload", CRITIC "offload.offload_optimizer", NULL,
      NULL },
    COMPUTES("critic.model.fsdp_config.mixed_precision.param_dtype", CRITIC),
    { "critic.model.fsdp_config.model_dtype", CRITIC "fsdp.torch_dtype", NULL, NULL },
    { "critic.fsdp_config.*", "", NULL, ENGINE },
    { "critic.fsdp_config.param_offload", CRITIC "offload.offload_params", NULL, NULL },
    { "critic.fsdp_config.optimizer_offload", CRITIC "offload.offload_optimizer", NULL, NULL },
    { "critic.megatron.*", "", NULL, SHARDS },
    { "critic.megatron.param_offload", CRITIC "offload.offload_params", NULL, NULL },
    { "critic.megatron.optimizer_offload", CRITIC "offload.offload_optimizer", NULL, NULL },
    { "critic.veomni.*", "", NULL, SHARDS },
    { "critic.enable", "", NULL, "algorithm.adv_estimator says whether there is a critic" },
    { "critic.shuffle", "", NULL, "actor and critic take the mini-batches in one order" },
    { "critic.data_loader_seed", "", NULL, ORDER },
    { "critic.profiler.*", "", NULL, PROFILED },
    { "critic.model.enable_activation_offload", "", NULL, OFFLOADED },
    { CRITIC "model.override_config.?", "", "=0", "nothing is dropped out here" },
    { CRITIC "model.override_config.max_position_embeddings", "", NULL,
      "a critic reads the actor's sequences, however long" },
    { CRITIC "model.override_config.*", NULL, NULL, "a model is what its config.json says" },
    { "critic.model.use_fused_kernels", "", NULL, ENGINE },
    { "critic.model.tiled_mlp.*", "", NULL, ENGINE },
    { "critic.optim.lr_warmup_steps", CRITIC "optim.lr_warmup_steps=null", "=-1", NULL },
    { "critic.optim.optimizer", "", ADAMW_NAMES, ADAMW },
    { "critic.optim.optimizer", NULL, NULL, ADAMW },
    { "critic.optim.optimizer_impl", "", NULL, ADAMW },
    { "critic.optim.clip_grad", CRITIC "max_grad_norm", NULL, NULL },
    { "critic.optim.num_cycles", "", "=0.5", "a cosine is half a period" },
    { "critic.optim.override_optimizer_config.*", "", NULL, ENGINE },
    /* of the model */
    { VERL "model.override_config.model_config.*", ACTOR "model.override_config.*", NULL, NULL },
    { VERL "model.torch_dtype", ACTOR "fsdp.torch_dtype", NULL, NULL },
    { VERL "model.hf_config_path", NULL, NULL, "a model is what its own config.json says" },
    { VERL "model.custom_chat_template", NULL, NULL,
      "write it to a file, and name that in data.override_chat_template" },
    { VERL "model.enable_activation_offload", "", NULL, OFFLOADED },
    { VERL "model.fused_kernel_options.*", "", NULL, ENGINE },
    { VERL "model.tiled_mlp.*", "", NULL, ENGINE },
    { VERL "model.mtp.enable", "", "=false", UNSAID },
    { VERL "model.mtp.enable", NULL, NULL, SEVERAL_TOKENS },
    { VERL "model.mtp.*", "", NULL, "there are no heads that predict several tokens" },
    { VERL "nccl_timeout", "trainer.comm_timeout_s", NULL, NULL },
    /* of the rollout */
    { VERL "rollout.do_sample", "", "=true", "answers are sampled at worker.rollout.temperature" },
    { VERL "rollout.cudagraph_capture_sizes", "", NULL, ENGINE },
    { VERL "rollout.data_parallel_size", "", NULL, RANKS },
    { VERL "rollout.expert_parallel_size", "", NULL, NO_EXPERTS },
    { VERL "rollout.moe_tensor_parallel_size", "", NULL, NO_EXPERTS },
    { VERL "rollout.pipeline_model_parallel_size", "", NULL, SHARDS },
    { VERL "rollout.logprobs_mode", "", NULL,
      "log-probs of the rollout are those that it samples with" },
    { VERL "rollout.calculate_log_probs", "", NULL,
      "the rollout's log-probs are always kept, as worker.actor.rollout_is and metrics need them" },
    { VERL "rollout.scheduling_policy", "", NULL, ENGINE },
    { VERL "rollout.over_sample_rate", "", "=0", UNSAID },
    { VERL "rollout.over_sample_rate", NULL, NULL,
      "set curriculum.over_sampling_batch_size, a number of prompts" },
    { VERL "rollout.multi_stage_wake_up", "", NULL, ENGINE },
    { VERL "rollout.layered_summon", "", NULL, SAME_WEIGHTS },
    { VERL "rollout.update_weights_bucket_megabytes", "", NULL, ENGINE },
    { VERL "rollout.checkpoint_engine.*", "", NULL, ENGINE },
    { VERL "rollout.skip_tokenizer_init", "", NULL, ENGINE },
    { VERL "rollout.skip_rollout", "", "=false", UNSAID },
    { VERL "rollout.skip_rollout", NULL, NULL, "answers are always made anew" },
    { VERL "rollout.skip_dump_dir", "", NULL, ENGINE },
    { VERL "rollout.enable_rollout_routing_replay", "", NULL, NO_EXPERTS },
    { VERL "rollout.quantization", NULL, NULL, QUANTIZED },
    { VERL "rollout.quantization_config_file", NULL, NULL, QUANTIZED },
    { VERL "rollout.enable_true_mode", "", NULL, ENGINE },
    { VERL "rollout.mtp.*", "", NULL, "there are no heads that predict several tokens" },
    { VERL "rollout.mtp", "", NULL, "there are no heads that predict several tokens" },
    { VERL "rollout.profiler.*", "", NULL, PROFILED },
    { VERL "rollout.trace.*", "", NULL, "rollouts/*.jsonl in trainer.run_dir hold every answer" },
    { VERL "rollout.prometheus.*", "", NULL, "metrics.jsonl holds what is measured" },
    { VERL "rollout.agent.*", "", NULL, ENGINE },
    { VERL "rollout.agent.default_agent_loop", "", "=single_turn_agent", UNSAID },
    { VERL "rollout.agent.default_agent_loop", NULL, NULL, CONVERSATIONS },
    { VERL "rollout.agent.agent_loop_config_path", NULL, NULL, CONVERSATIONS },
    { VERL "rollout.multi_turn.enable", "", "=false", UNSAID },
    { VERL "rollout.multi_turn.enable", NULL, NULL, CONVERSATIONS },
    { VERL "rollout.multi_turn.tool_config_path", NULL, NULL, CONVERSATIONS },
    { VERL "rollout.multi_turn.interaction_config_path", NULL, NULL, CONVERSATIONS },
    { VERL "rollout.multi_turn.*", "", NULL, "env.* says how a conversation goes on" },
    { VERL "rollout.repetition_penalty", "", "=1", UNSAID },
    { VERL "rollout.repetition_penalty", NULL, NULL, NO_PENALTY },
    { VERL "rollout.min_p", "", "=0", UNSAID },
    { VERL "rollout.min_p", NULL, NULL, NO_MIN_P },
    /* of the data */
    { "data.use_shm", "", NULL, ENGINE },
    { "data.seed", "", "=null", UNSAID },
    { "data.val_batch_size", "", "=null", UNSAID },
    { "data.train_max_samples", "", "=-1", UNSAID },
    { "data.train_max_samples", NULL, NULL, "name a file of so many rows in data.train_files" },
    { "data.val_max_samples", "", "=-1", UNSAID },
    { "data.val_max_samples", NULL, NULL, "name a file of so many rows in data.val_files" },
    { "data.reward_fn_key", "", "=data_source", "that key says where a row comes from" },
    { "data.reward_fn_key", NULL, NULL, "write the row's source under the key data_source" },
    { "data.tool_config_path", NULL, NULL, CONVERSATIONS },
    { "data.dataloader_num_workers", "", NULL, ENGINE },
    { "data.image_patch_size", "", NULL, "the model's own processor says it" },
    { "data.return_multi_modal_inputs", "", NULL, ENGINE },
    { "data.validation_shuffle", "", NULL, "validation answers each row once, in any order" },
    { "data.custom_cls.path", NULL, NULL, OWN_CLASS },
    { "data.custom_cls.name", "", NULL, "data.custom_cls.path would name its file" },
    { "data.sampler.class_path", NULL, NULL, OWN_SAMPLER },
    { "data.sampler.class_name", "", NULL, "data.sampler.class_path would name its file" },
    { "data.datagen.path", NULL, NULL, OWN_CLASS },
    { "data.datagen.name", "", NULL, "data.datagen.path would name its file" },
    { "data.apply_chat_template_kwargs", "data.chat_template_kwargs", NULL, NULL },
    { "data.apply_chat_template_kwargs.*", "data.chat_template_kwargs.*", NULL, NULL },
    /* of the algorithm */
    { "algorithm.adv_estimator", "algorithm.adv_estimator=grpo", "=grpo_vectorized", NULL },
    { "algorithm.adv_estimator", "algorithm.adv_estimator=rloo", "=rloo_vectorized", NULL },
    { "algorithm.use_pf_ppo", "", "=false", UNSAID },
    { "algorithm.use_pf_ppo", NULL, NULL, "not built: batches drawn again by their rewards" },
    { "algorithm.pf_ppo.*", "", NULL, "algorithm.use_pf_ppo would use it" },
    { "algorithm.rollout_correction.bypass_mode", ACTOR "recompute_log_probs=false", "=true",
      NULL },
    { "algorithm.rollout_correction.bypass_mode", "", "=false", OWN_LOG_PROBS },
    { "algorithm.rollout_correction.use_policy_gradient", "", "=false", UNSAID },
    { "algorithm.rollout_correction.use_policy_gradient", NULL, NULL, LOSS_OF_CORRECTION },
    { "algorithm.rollout_correction.loss_type", "", "=ppo_clip", UNSAID },
    { "algorithm.rollout_correction.loss_type", NULL, NULL, LOSS_OF_CORRECTION },
    { "algorithm.rollout_correction.rollout_is_batch_normalize", ACTOR "rollout_is_batch_normalize",
      NULL, NULL },
    { "algorithm.rollout_correction.rollout_rs", ACTOR "rollout_rs", NULL, NULL },
    { "algorithm.rollout_correction.rollout_rs_threshold", ACTOR "rollout_rs_threshold", NULL,
      NULL },
    { "algorithm.rollout_correction.rollout_rs_threshold_lower", ACTOR "rollout_rs_threshold_lower",
      NULL, NULL },
    { "algorithm.rollout_correction.rollout_token_veto_threshold",
      ACTOR "rollout_token_veto_threshold", NULL, NULL },
    /* of rewards */
    { "reward_model.enable", "", "=false", UNSAID },
    { "reward_model.enable", NULL, NULL, REWARD_MODEL },
    { "reward_model.*", "", NULL, "worker.reward.* says how answers are judged" },
    { "reward_model.sandbox_fusion.url", NULL, NULL, SANDBOX },
    { "reward_manager.*", "", NULL, REWARDS },
    { "reward.reward_model.enable", "", "=false", UNSAID },
    { "reward.reward_model.enable", NULL, NULL, REWARD_MODEL },
    { "reward.reward_model.*", "", NULL, "no reward model is run" },
    { "reward.reward_manager.*", "", NULL, REWARDS },
    { "reward.num_workers", "", NULL, "rewards run on the threads of trainer.threads" },
    { "reward.sandbox_fusion.url", NULL, NULL, SANDBOX },
    { "reward.sandbox_fusion.*", "", NULL, "there is no sandbox" },
    { "reward.reward_kwargs.overlong_buffer_cfg.*", BUFFER "*", NULL, NULL },
    { "reward.reward_kwargs.max_resp_len", BUFFER "max_resp_len", NULL, NULL },
    /* of the run */
    { "trainer.resume_mode", "trainer.find_last_checkpoint=false", "=disable", NULL },
    { "trainer.resume_mode", "x-verl.resume_mode=resume_path", "=resume_path", NULL },
    { "trainer.remove_previous_ckpt_in_save", "trainer.save_limit=1", "=true", NULL },
    { "trainer.remove_previous_ckpt_in_save", "", "=false", UNSAID },
    { "trainer.save_freq", "trainer.save_freq=-1", "=0", NULL },
    { "trainer.test_freq", "trainer.val_freq=0", "=0|-1", NULL },
    { "trainer.rollout_data_dir", "trainer.rollout_log=text", "=false|null", NULL },
    { "trainer.rollout_data_dir", "", NULL, ANSWERS },
    { "trainer.validation_data_dir", "", NULL, ANSWERS },
    { "trainer.esi_redundant_time", "", NULL, "trainer.save_minutes keeps a state to go on from" },
    { "trainer.del_local_ckpt_after_load", "", NULL, "trainer.save_limit says which are kept" },
    { "trainer.ray_wait_register_center_timeout", "", NULL, RANKS },
    { "trainer.use_legacy_worker_impl", "", NULL, ENGINE },
    { "trainer.worker_env.*", "", NULL, ENGINE },
    { "global_profiler.*", "", NULL, PROFILED },
    { "transfer_queue.*", "", NULL, ENGINE },
    /* teachers: verl, TRL, SDPO's code, tinker-cookbook, prime-rl; slime's are with its others */
    { VERL_TEACHERS "?.model_path", TEACHER "model_path", NULL, NULL },
    { VERL_TEACHERS "?.inference.*", "", NULL, NO_SERVER },
    { VERL_TEACHERS "?.num_replicas", "", NULL, NO_SERVER },
    { VERL_TEACHERS "?.key", "", NULL, "there is one teacher" },
    { "distillation.teacher_key", "", "=null|data_source", "there is one teacher" },
    { "distillation.teacher_key", NULL, NULL, ONE_TEACHER },
    { "distillation.n_gpus_per_node", "", NULL, NO_SERVER },
    { "distillation.nnodes", "", NULL, NO_SERVER },
    { "distillation.num_replicas", "", NULL, NO_SERVER },
    { "distillation.num_workers", "", NULL, NO_SERVER },
    { "distillation.enable_resource_pool", "", NULL, NO_SERVER },
    { DISTILL_LOSS "loss_mode", NULL, "=forward_kl_topk|forward_kl_topk_tail|topk_logits",
      "the whole vocabulary is compared; write loss_mode: jsd, beta: 0" },
    { DISTILL_LOSS "jsd_beta", DISTILL_LOSS "beta", DISTILL_LOSS "loss_mode=jsd", NULL },
    { DISTILL_LOSS "jsd_beta", "", NULL, "it is of loss_mode: jsd" },
    { DISTILL_LOSS "kd_temperature", DISTILL_LOSS "temperature", NULL, NULL },
    { DISTILL_LOSS "use_policy_loss", DISTILL_LOSS "use_task_rewards", NULL, NULL },
    { DISTILL_LOSS "topk", "x-verl.distillation", NULL, NULL }, /* marks its file; no option */
    { DISTILL_LOSS "log_prob_min_clamp", "", NULL, "the whole vocabulary is compared" },
    { DISTILL_LOSS "policy_loss_mode", "", "=vanilla", "worker.actor.loss_type names the loss" },
    { DISTILL_LOSS "policy_loss_mode", NULL, NULL, "set worker.actor.loss_type" },
    { DISTILL_LOSS "clip_ratio_low", ACTOR "clip_ratio_low", NULL, NULL },
    { DISTILL_LOSS "clip_ratio_high", ACTOR "clip_ratio_high", NULL, NULL },
    { DISTILL_LOSS "clip_ratio", ACTOR "clip_ratio_low&" ACTOR "clip_ratio_high", NULL, NULL },
    { "teacher_model_name_or_path", TEACHER "model_path", NULL, NULL },
    { "teacher_model_init_kwargs.*", "", NULL, "distillation.teacher_model.* says how it opens" },
    { "teacher_model_kind", TEACHER "kind", NULL, NULL },
    { "teacher_sync_steps", TEACHER "sync_steps", NULL, NULL },
    { "teacher_model_server_url", NULL, NULL, TEACHER_HERE },
    { "distillation_mode", DISTILL_LOSS "loss_mode=jsd", "=full_logits", NULL },
    { "distillation_mode", DISTILL_LOSS "loss_mode=k1", "=sampled_token", NULL },
    { "distillation_mode", NULL, NULL,
      "the whole vocabulary is compared; write full_logits or sampled_token" },
    { "distillation_weight", "", "=1|1.0", UNSAID },
    { "distillation_weight", NULL, NULL,
      "of a weight w write distillation.distillation_loss.use_task_rewards: true, "
      "distillation_loss_coef: w / (1 - w)" },
    { "generate_from_teacher", "", "=false", UNSAID },
    { "generate_from_teacher", NULL, NULL, TEACHER_ANSWERS },
    { "seq_kd", "", "=false", UNSAID },
    { "seq_kd", NULL, NULL, TEACHER_ANSWERS },
    { "use_teacher_server", "", "=false", UNSAID },
    { "use_teacher_server", NULL, NULL, TEACHER_HERE },
    { "lmbda", "distillation.lmbda", NULL, NULL },
    { "num_loss_tokens_to_skip", DISTILL_LOSS "num_loss_tokens_to_skip", NULL, NULL },
    { "teacher_prompt_template", "distillation.teacher_prompt_template", NULL, NULL },
    { "kl_penalty_coef", DISTILL_LOSS "distillation_loss_coef", NULL, NULL },
    { "kl_discount_factor", DISTILL_LOSS "kl_discount_factor", NULL, NULL },
    { "demo_key", "distillation.privileged_context_key", NULL, NULL },
    { "beta_distill_positive_advantage_only", "distillation.positive_advantage_only", NULL, NULL },
    SDPO(""),
    SDPO(VERL "actor.self_distillation."),
    { VERL "actor.self_distillation.alpha", DISTILL_LOSS "beta", NULL, NULL },
    { VERL "actor.self_distillation.is_clip", DISTILL_LOSS "is_clip", NULL, NULL },
    { VERL "actor.self_distillation.full_logit_distillation", DISTILL_LOSS "loss_mode=jsd", "=true",
      NULL },
    { VERL "actor.self_distillation.full_logit_distillation", DISTILL_LOSS "loss_mode=k1", "=false",
      NULL },
    { VERL "actor.self_distillation.teacher_regularization", TEACHER "kind=ema", "=ema", NULL },
    { VERL "actor.self_distillation.teacher_regularization", TEACHER "kind=live", "=none", NULL },
    { VERL "actor.self_distillation.teacher_regularization", NULL, NULL,
      "not built: a teacher of a trust region; set ema" },
    { VERL "actor.policy_loss.loss_mode", "distillation.enabled=true", "=sdpo", NULL },
    { "async_training.*", "", NULL, ONE_AFTER_ANOTHER },
    /* what else its whole configuration has (_generated_ppo_trainer.yaml) */
    { VERL "actor.optim.zero_indexed_step", "", "=true", "the warm-up begins at 0" },
    { VERL "actor.optim.zero_indexed_step", NULL, NULL, "the warm-up begins at 0; leave it out" },
    { "critic.optim.zero_indexed_step", "", "=true", "the warm-up begins at 0" },
    { "critic.optim.zero_indexed_step", NULL, NULL, "the warm-up begins at 0; leave it out" },
    { VERL "actor.qat.enable", "", "=false", UNSAID },
    { VERL "actor.qat.enable", NULL, NULL, QUANTIZED },
    { VERL "actor.qat.*", "", NULL, "weights are not quantised" },
    { VERL "rollout.qat", "", "=null", UNSAID },
    { VERL "rollout.qat.*", "", NULL, "weights are not quantised" },
    { VERL "rollout.disaggregation.enabled", "", "=false", UNSAID },
    { VERL "rollout.disaggregation.enabled", NULL, NULL, "each rank reads and writes by itself" },
    { VERL "rollout.disaggregation.*", "", NULL, ENGINE },
    { VERL "rollout.router_config_path", "", NULL, ENGINE },
    { "algorithm.filter_groups.max_inflight_gen_batches", "", NULL, ENGINE },
    { "algorithm.filter_groups.metric", "algorithm.filter_groups.metric=score",
      "=reward|seq_reward", NULL },
    { "critic.loss_scale_factor", "x-verl.critic_loss_scale_factor", NULL, NULL },
    { "critic.model.custom_chat_template", "", NULL, "the critic reads the actor's tokens" },
    { "critic.model.hf_config_path", NULL, NULL, "a model is what its own config.json says" },
    { "critic.model.fused_kernel_options.*", "", NULL, ENGINE },
    { "critic.model.use_liger", "", NULL, ENGINE },
    { "critic.model.mtp.*", "", NULL, "a critic predicts no tokens" },
    { "data.audio_key", "", NULL, "models here hear nothing" },
    { "data.function_tool_path", NULL, NULL, CONVERSATIONS },
    { "data.mm_processor_kwargs", "", "={}", UNSAID },
    { "data.mm_processor_kwargs", NULL, NULL, "the model's own processor says it" },
    { "sandbox_fusion.url", NULL, NULL, SANDBOX },
    { "sandbox_fusion.*", "", NULL, "there is no sandbox" },
    { "skip.?.enable", "", "=false", UNSAID },
    { "skip.?.enable", NULL, NULL, "answers are always made anew" },
    { "skip.*", "", NULL, "answers are always made anew" },
    { "trainer.checkpoint_callback_class", NULL, NULL, "no code is loaded" },
    { "trainer.use_v1", "", NULL, ENGINE },
    { "trainer.v1.*", "", NULL, ENGINE },
    { "trainer.v1.sampler.custom_sampler.path", NULL, NULL, OWN_SAMPLER },

    /* RAGEN: agents (docs/environments.md#names-of-ragen) */
    { "defaults", "", NULL, FILES },
    { "hydra.*", "", NULL, FILES },
    { "system.CUDA_VISIBLE_DEVICES", "", NULL,
      "the environment variable of that name, trainer.device and --ranks say which cards are "
      "used" },
    { "model_path", ACTOR "model.model_path", NULL, NULL },
    { "ppo_mini_batch_size", ACTOR "global_batch_size", NULL, NULL },
    { "micro_batch_size_per_gpu", ACTOR "micro_batch_size_per_device_for_update", NULL, NULL },
    { "log_prob_micro_batch_size_per_gpu", "", NULL, BY_TOKENS },
    { "seed.train", "env.train.seed", NULL, NULL },
    { "seed.val", "env.val.seed", NULL, NULL },
    { "enable_response_mask", "env.enable_response_mask", NULL, NULL },
    { "grpo_advantage_length_weight", "algorithm.grpo_advantage_length_weight", NULL, NULL },
    { "lora.*", LORA "*", NULL, NULL },
    { VERL "actor.use_ref", "", NULL, "a reference model is opened where a KL needs one" },
    { VERL "actor.micro_batch_size_per_gpu", ACTOR "micro_batch_size_per_device_for_update", NULL,
      NULL },
    { VERL "actor.grpo_advantage_length_weight", "algorithm.grpo_advantage_length_weight", NULL,
      NULL },
    { VERL "actor.checkpoint.save_contents", "trainer.save_model_only=true", "=[model]", NULL },
    { VERL "rollout.prompt_length", "", "=1",
      "worker.rollout.max_model_len bounds a conversation" },
    { VERL "rollout.tp_size_check", "", NULL, ENGINE },
    { VERL "rollout.rollout_filter_ratio", "worker.rollout.rollout_filter_value", NULL, NULL },
    { VERL "rollout.rollout_filter_type", "", "=std", "groups are ranked by that" },
    { VERL "rollout.rollout_filter_type", "worker.rollout.rollout_filter_metric=reward",
      "=max_mean", NULL },
    { VERL "rollout.rollout_filter_empty_stop_steps", "algorithm.filter_empty_stop_steps", NULL,
      NULL },
    { VERL "rollout.gradient_analysis_num_buckets", "report.gradient_analysis.buckets", NULL,
      NULL },
    { VERL "rollout.gradient_analysis_bucket_mode", "report.gradient_analysis.bucket_mode", NULL,
      NULL },
    { "critic.*", CRITIC "*", NULL, NULL },
    { "critic.ppo_mini_batch_size", CRITIC "global_batch_size", NULL, NULL },
    { "critic.ppo_micro_batch_size", "", NULL, BY_TOKENS },
    { "critic.ppo_micro_batch_size_per_gpu", CRITIC "micro_batch_size_per_device_for_update", NULL,
      NULL },
    { "critic.forward_micro_batch_size", "", NULL, BY_TOKENS },
    { "critic.forward_micro_batch_size_per_gpu", "", NULL, BY_TOKENS },
    { "critic.ppo_max_token_len_per_gpu", CRITIC "max_token_len_per_device", NULL, NULL },
    { "critic.forward_max_token_len_per_gpu", "", NULL, BY_TOKENS },
    { "critic.use_dynamic_bsz", "", NULL, BY_TOKENS },
    { "critic.grad_clip", CRITIC "max_grad_norm", NULL, NULL },
    { "critic.loss_agg_mode", CRITIC "loss_avg_mode", NULL, NULL },
    { "critic.ulysses_sequence_parallel_size", CRITIC "ulysses_size", NULL, NULL },
    { "critic.rollout_n", "", NULL, "it is worker.rollout.n" },
    { "critic.checkpoint.*", "", NULL, WHOLE_RUN },
    { "critic.optim.lr_warmup_steps_ratio", CRITIC "optim.lr_warmup_ratio", NULL, NULL },
    { "critic.optim.total_training_steps", "", NULL, "the schedule spans the run's own steps" },
    { "critic.model.path", CRITIC "model.model_path", NULL, NULL },
    { "critic.model.use_remove_padding", "", NULL, PACKED },
    { "critic.model.external_lib", "", NULL, ENGINE },
    { "critic.model.use_shm", "", NULL, SAME_WEIGHTS },
    { "critic.model.fsdp_config.*", "", NULL, ENGINE },
    { "critic.model.fsdp_config.fsdp_size", CRITIC "fsdp.fsdp_size", NULL, NULL },
    { "data.max_prompt_length", "", "=null", UNSAID },
    { "data.max_response_length", "", "=null", UNSAID },
    { "trainer.local_log_dir", "", NULL, "metrics and logs lie in trainer.run_dir" },
    { "trainer.wandb_id", "", NULL, "a run directory goes on by itself, its metrics with it" },
    { "trainer.validation_steps", "", "=1", "env.val.groups are validated" },
    { "trainer.validation_steps", NULL, NULL, "set env.val.groups to so many times as much" },
    { "trainer.generations_to_log_to_wandb.val", "trainer.val_generations_to_log", NULL, NULL },
    { "trainer.generations_to_log_to_wandb.train", "", NULL,
      "rollouts/step_*.jsonl holds every episode" },
    { "trainer.max_critic_ckpt_to_keep", "", NULL, WHOLE_RUN },
    { "trainer.gradient_analysis_mode", "", "=true",
      "report.gradient_analysis.every says in which steps" },
    { "trainer.gradient_analysis_mode", NULL, NULL,
      "set report.gradient_analysis.every to 0, or leave it out" },
    { "trainer.gradient_analysis_every", "report.gradient_analysis.every", NULL, NULL },
    { "trainer.gradient_analysis_only", "report.gradient_analysis.only", NULL, NULL },
    { "trainer.gradient_analysis_env_groups", NULL, NULL, STEP_GROUPS },
    { "trainer.gradient_analysis_group_size", NULL, NULL, STEP_GROUPS },
    { "trainer.gradient_analysis_log_prefilter", "", NULL,
      "the groups that filters have chosen are measured" },
    { "trainer.exit_after_gradient_analysis", "", "=false", "trainer.max_steps ends a run" },
    { "trainer.exit_after_gradient_analysis", NULL, NULL,
      "set trainer.max_steps to the step that is measured" },
    { "trainer.resume_from_path", "trainer.load_checkpoint_path", "x-verl.resume_mode=resume_path",
      "it is read beside trainer.resume_mode=resume_path alone" },
    { "trainer.resume_from_path", "", NULL,
      "it is read beside trainer.resume_mode=resume_path alone" },
    { "agent_proxy.*", "env.*", NULL, NULL },
    { "agent_proxy.max_turn", "env.max_turns", NULL, NULL },
    { "agent_proxy.action_sep", "env.action_separator", NULL, NULL },
    { "agent_proxy.batch_adjust_mode", "algorithm.batch_adjust_mode", NULL, NULL },
    { "collapse_detection.compute_freq", "report.collapse.freq", "env.enable_think=true", NULL },
    { "collapse_detection.compute_freq", "", NULL, "without thoughts there is nothing to measure" },
    { "collapse_detection.micro_batch_size", "", NULL, BY_TOKENS },
    { "collapse_detection.first_turn_enabled", "report.collapse.first_turn", NULL, NULL },
    { "collapse_detection.multi_turn_enabled", "report.collapse.multi_turn", NULL, NULL },
    { "collapse_detection.num_samples", "report.collapse.samples", NULL, NULL },
    { "es_manager.*", "env.*", NULL, NULL },
    { "es_manager.train.env_groups", "env.train.groups", NULL, NULL },
    { "es_manager.train.env_configs.*", "env.train.*", NULL, NULL },
    { "es_manager.train.env_configs.n_groups", "env.train.n_groups=[]", "=null", NULL },
    { "es_manager.val.env_groups", "env.val.groups", NULL, NULL },
    { "es_manager.val.env_configs.*", "env.val.*", NULL, NULL },
    { "es_manager.val.env_configs.n_groups", "env.val.n_groups=[]", "=null", NULL },
    { "ctx_manager.*", "", NULL, "worker.rollout.* says how answers are sampled" },
    { "custom_envs.?.*", "env.definitions.?.*", NULL, NULL },
    { "custom_envs.?.env_type", "env.definitions.?.type", NULL, NULL },
    { "custom_envs.?.env_instruction", "env.definitions.?.instruction", NULL, NULL },
    { "custom_envs.?.max_actions_per_traj", "env.definitions.?.max_actions", NULL, NULL },
    { "custom_envs.?.parallel_friendly", "", NULL, SIDE_BY_SIDE },
    { "custom_envs.?.max_workers", "", NULL, SIDE_BY_SIDE },
    { "custom_envs.?.env_config", "", "=null", "the type's own values" },
    { "custom_envs.?.env_config.*", "env.definitions.?.options.*", NULL, NULL },
    { "custom_envs.?.env_config.render_mode", "", "=text", "states are texts" },
    { "custom_envs.?.env_config.grid_lookup", "env.definitions.?.options.symbols", NULL, NULL },
    { "custom_envs.?.env_config.grid_vocab", "", NULL, "what a symbol means is said by the type" },

    /* RLinf */
    { "algorithm.group_size", "worker.rollout.n", NULL, NULL },
    { "algorithm.kl_beta", "algorithm.kl_coef", NULL, NULL },
    { "algorithm.kl_penalty_type", "algorithm.kl_penalty", NULL, NULL },
    { "algorithm.adv_type", "algorithm.adv_estimator", NULL, NULL },
    { "algorithm.adv_type", "algorithm.adv_estimator=grpo", "=math_grpo", NULL },
    { "algorithm.loss_agg_func", ACTOR "loss_avg_mode", NULL, NULL },
    { "algorithm.clip_ratio_low", ACTOR "clip_ratio_low", NULL, NULL },
    { "algorithm.clip_ratio_high", ACTOR "clip_ratio_high", NULL, NULL },
    { "algorithm.ratio_clip_eps", ACTOR "clip_ratio_low&" ACTOR "clip_ratio_high", NULL, NULL },
    { "algorithm.clip_ratio_c", ACTOR "clip_ratio_dual", NULL, NULL },
    { "algorithm.loss_type", ACTOR "loss_type", NULL, NULL },
    { "algorithm.loss_type", ACTOR "loss_type=dapo", "=math_ppo_actor", NULL },
    { "algorithm.use_valid_token_scale", ACTOR "loss_norm", NULL, NULL },
    { "algorithm.valid_token_scope", ACTOR "valid_token_scope", NULL, NULL },
    { "algorithm.early_stop_imp_ratio", ACTOR "early_stop_imp_ratio", NULL, NULL },
    { "algorithm.entropy_bonus", ACTOR "entropy_coeff", NULL, NULL },
    { "algorithm.dynamic_sampling.enable", "algorithm.filter_groups.enable", NULL, NULL },
    { "algorithm.gae_lambda", "algorithm.lam", NULL, NULL },
    { "algorithm.gen_batch_size", "data.mini_rollout_batch_size", NULL, NULL },
    { "algorithm.dynamic_sampling.max_resample", "algorithm.max_resample", NULL, NULL },
    { "algorithm.dynamic_sampling.gen_batch_size", "data.mini_rollout_batch_size", NULL, NULL },
    { "algorithm.dynamic_sampling.on_exhausted", "algorithm.on_exhausted", NULL, NULL },
    { "algorithm.max_length", "worker.reward.max_length", NULL, NULL },
    { "algorithm.safe_length", "worker.reward.safe_length", NULL, NULL },
    { "algorithm.len_reward_penalty", "worker.reward.len_reward_penalty", NULL, NULL },
    { "reward.max_length", "worker.reward.max_length", NULL, NULL },
    { "reward.safe_length", "worker.reward.safe_length", NULL, NULL },
    { "reward.len_reward_penalty", "worker.reward.len_reward_penalty", NULL, NULL },
    { "algorithm.overlong_buffer.*", BUFFER "*", NULL, NULL },
    { "reward.overlong_buffer.*", BUFFER "*", NULL, NULL },
    { "reward.correct", "worker.reward.correct", NULL, NULL },
    { "reward.incorrect", "worker.reward.incorrect", NULL, NULL },
    { "reward.scale", "worker.reward.scale", NULL, NULL },
    { "reward.reward_scale", "worker.reward.scale", NULL, NULL },
    { "algorithm.shuffle_rollout", ACTOR "shuffle", NULL, NULL },
    { "algorithm.recompute_logprobs", ACTOR "recompute_log_probs", NULL, NULL },
    { "algorithm.sampling_params.temperature", "worker.rollout.temperature", NULL, NULL },
    { "algorithm.sampling_params.top_p", "worker.rollout.top_p", NULL, NULL },
    { "algorithm.sampling_params.top_k", "worker.rollout.top_k", NULL, NULL },
    { "algorithm.sampling_params.max_new_tokens", "data.max_response_length", NULL, NULL },
    { "runner.logger.logger_backends", "x-rlinf.logger_backends", NULL, NULL },
    { "runner.logger.project_name", "trainer.project_name", NULL, NULL },
    { "runner.logger.experiment_name", "trainer.experiment_name", NULL, NULL },
    { "runner.logger.log_path", "", NULL, "metrics and logs lie in trainer.run_dir" },
    { "runner.max_epochs", "trainer.total_epochs", NULL, NULL },
    { "runner.max_steps", "trainer.max_steps", NULL, NULL },
    { "runner.max_steps", "", "=-1", UNSAID },
    { "runner.val_check_interval", "trainer.val_freq", NULL, NULL },
    { "runner.save_interval", "trainer.save_freq", NULL, NULL },
    { "actor.global_batch_size", "", NULL,
      "algorithm.n_minibatches says how many mini-batches a step has" },
    { "actor.micro_batch_size", ACTOR "micro_batch_size_per_device_for_update", NULL, NULL },
    { "actor.optim.lr", ACTOR "optim.lr", NULL, NULL },
    { "actor.optim.clip_grad", ACTOR "max_grad_norm", NULL, NULL },
    { "actor.optim.weight_decay", ACTOR "optim.weight_decay", NULL, NULL },
    { "actor.optim.adam_beta1", ACTOR "optim.betas.0", NULL, NULL },
    { "actor.optim.adam_beta2", ACTOR "optim.betas.1", NULL, NULL },
    { "actor.optim.adam_eps", ACTOR "optim.eps", NULL, NULL },
    { "actor.optim.optimizer", "", ADAMW_NAMES, ADAMW },
    { "actor.optim.optimizer", NULL, NULL, ADAMW },
    { "actor.optim.min_lr", "", NULL, "worker.actor.optim.min_lr_ratio is the least share of lr" },
    { "actor.optim.fp16", "", NULL, "actor.model.precision says it" },
    { "actor.optim.bf16", "", NULL, "actor.model.precision says it" },
    { "actor.optim.use_distributed_optimizer", "", NULL, SHARDS },
    { "actor.optim.use_precision_aware_optimizer", "", NULL, ENGINE },
    { "actor.optim.overlap_?", "", NULL, ENGINE },
    { "actor.optim.optimizer_enable_pin", "", NULL, ENGINE },
    { "actor.optim.optimizer_cpu_offload", ACTOR "offload.offload_optimizer", NULL, NULL },
    { "actor.optim.loss_scale", "", NULL, "nothing is computed in fp16" },
    { "actor.optim.loss_scale_window", "", NULL, "nothing is computed in fp16" },
    { "actor.lr_sched.lr_decay_style", ACTOR "optim.lr_scheduler_type", NULL, NULL },
    { "actor.lr_sched.lr_warmup_fraction", ACTOR "optim.lr_warmup_ratio", NULL, NULL },
    { "actor.lr_sched.lr_warmup_iters", "", "=0", UNSAID },
    { "actor.lr_sched.lr_warmup_iters", ACTOR "optim.lr_warmup_steps", NULL, NULL },
    { "actor.lr_sched.lr_warmup_init", "", "=0", "the warm-up begins at 0" },
    { "actor.lr_sched.lr_decay_iters", "", NULL, "the schedule spans the run's own steps" },
    { "actor.lr_sched.max_lr", "", NULL, "actor.optim.lr says it" },
    { "actor.lr_sched.min_lr", "", "=0", UNSAID },
    { "actor.lr_sched.min_lr", "", ACTOR "optim.lr_scheduler_type=constant", UNSAID },
    { "actor.lr_sched.min_lr", NULL, NULL, "set worker.actor.optim.min_lr_ratio, a share of lr" },
    { "actor.model.model_path", ACTOR "model.model_path", NULL, NULL },
    /* fp32 holds every number of fp16 */
    { "actor.model.precision", ACTOR "fsdp.torch_dtype=fp32", "=fp16", NULL },
    { "actor.model.precision", ACTOR "fsdp.torch_dtype", NULL, NULL },
    { "actor.model.*", "", NULL, MEGATRON },
    { "actor.tokenizer.tokenizer_model", ACTOR "model.tokenizer_path", NULL, NULL },
    { "actor.tokenizer.*", "", NULL, "tokens are what the model's tokenizer.json says" },
    { "actor.fsdp_config.*", "", NULL, SHARDS },
    { "actor.megatron.*", "", NULL, SHARDS },
    { "actor.offload_optimizer", ACTOR "offload.offload_optimizer", NULL, NULL },
    { "actor.offload_weight", ACTOR "offload.offload_params", NULL, NULL },
    { "actor.offload_grad", "", NULL, OFFLOADED },
    { "actor.enable_offload", "", NULL, OFFLOADED },
    { "actor.seed", "", NULL, ORDER },
    { "actor.training_backend", "", NULL, SHARDS },
    { "actor.group_name", "", NULL, RANKS },
    { "actor.spec_name", "", NULL, MEGATRON },
    { "actor.mcore_gpt", "", NULL, ENGINE },
    { "actor.calculate_flops", "", NULL, "perf/* are always measured" },
    { "actor.enable_dp_load_balance", "trainer.balance_batch", NULL, NULL },
    { "rollout.model.model_path", ACTOR "model.model_path", NULL, NULL },
    { "rollout.model.*", "", NULL, "rollout reads the actor's own weights" },
    { "rollout.gpu_memory_utilization", "worker.rollout.gpu_memory_utilization", NULL, NULL },
    { "rollout.tensor_parallel_size", "worker.rollout.tensor_parallel_size", NULL, NULL },
    { "rollout.seed", "worker.rollout.seed", NULL, NULL },
    { "rollout.group_name", "", NULL, RANKS },
    { "rollout.pipeline_parallel_size", "", NULL, SHARDS },
    { "rollout.return_logprobs", "", NULL, "the rollout's log-probs are always kept" },
    { "rollout.print_outputs", "", NULL, ANSWERS },
    { "rollout.rollout_backend", "", NULL, ENGINE },
    { "rollout.vllm.*", "", NULL, ENGINE },
    { "rollout.sglang.*", "", NULL, ENGINE },
    { "rollout.enforce_eager", "", NULL, ENGINE },
    { "rollout.distributed_executor_backend", "", NULL, ENGINE },
    { "rollout.disable_log_stats", "", NULL, ENGINE },
    { "rollout.detokenize", "", NULL, ENGINE },
    { "rollout.padding", "", NULL, PACKED },
    { "rollout.eos", "", NULL, "the model's own end tokens" },
    { "rollout.validate_?", "", NULL, "actor and rollout share their weights" },
    { "rollout.weight_reload", "", NULL, "actor and rollout share their weights" },
    { "rollout.max_running_requests", "", NULL, ENGINE },
    { "rollout.cuda_graph_max_bs", "", NULL, ENGINE },
    { "inference.*", "", NULL, "log-probs are computed by the actor itself" },
    { "runner.task_type", "", "=reasoning", UNSAID },
    { "runner.task_type", NULL, NULL, "only answers to prompts: set reasoning" },
    { "runner.seq_length", "x-rlinf.seq_length", NULL, NULL },
    { "runner.enable_dynamic_batch_size", "", NULL, BY_TOKENS },
    { "runner.max_tokens_per_mbs", "", NULL, BY_TOKENS },
    { "runner.resume_dir", "trainer.find_last_checkpoint=true", "=auto", NULL },
    { "runner.resume_dir", "trainer.load_checkpoint_path", NULL, NULL },
    { "algorithm.reinpp_kl_beta", "", "=0", UNSAID },
    { "algorithm.reinpp_kl_beta", "x-rlinf.reinpp_kl_beta", NULL, NULL },
    { "algorithm.use_reinpp_baseline", "", "=false", UNSAID },
    { "algorithm.use_reinpp_baseline", "algorithm.adv_estimator=reinforce_plus_plus_baseline",
      "=true", NULL },
    { "algorithm.training_batch_size_per_gpu", ACTOR "micro_batch_size_per_device_for_update", NULL,
      NULL },
    { "algorithm.rollout_batch_size_per_gpu", "", NULL, ENGINE },
    { "algorithm.val_rollout_batch_size_per_gpu", "", NULL, ENGINE },
    { "algorithm.logprob_forward_micro_batch_size", "x-rlinf.logprob_forward_micro_batch_size",
      NULL, NULL },
    { "algorithm.max_num_gen_batches", "", "=1", UNSAID },
    { "algorithm.max_num_gen_batches", NULL, NULL,
      "set algorithm.max_resample, and algorithm.filter_groups.enable" },
    { "algorithm.adv_type", "algorithm.adv_estimator=reinforce_plus_plus", "=reinpp", NULL },
    { "algorithm.sampling_params.do_sample", "", "=true", UNSAID },
    { "algorithm.sampling_params.do_sample", NULL, NULL,
      "temperature 0 is greedy; leave do_sample out" },
    { "algorithm.sampling_params.repetition_penalty", "", "=1", UNSAID },
    { "algorithm.sampling_params.repetition_penalty", NULL, NULL, NO_PENALTY },
    { "algorithm.sampling_params.min_new_tokens", "", "=0|1", UNSAID },
    { "algorithm.sampling_params.min_new_tokens", NULL, NULL,
      "not built: an answer may end at any token" },
    { "data.type", "", NULL, "rows are read by their keys (docs/data.md)" },
    { "data.dataset_name", "", NULL, "rows are read by their keys (docs/data.md)" },
    { "data.train_data_paths", "data.train_files", NULL, NULL },
    { "data.val_data_paths", "data.val_files", NULL, NULL },
    { "data.val_rollout_batch_size", "data.val_batch_size=-1", "=null", NULL },
    { "data.val_rollout_batch_size", "data.val_batch_size", NULL, NULL },
    { "data.filter_prompt_by_length", "data.filter_overlong_prompts", NULL, NULL },
    { "data.image_keys", "data.image_key", NULL, NULL },
    { "data.use_chat_template", "data.apply_chat_template", NULL, NULL },
    { "data.lazy_loading", "", NULL, ENGINE },
    { "data.num_workers", "", NULL, ENGINE },
    { "reward.use_reward_model", "", "=false", UNSAID },
    { "reward.use_reward_model", NULL, NULL, REWARD_MODEL },
    { "reward.reward_type", RLINFS_MATH, "=math", NULL },
    { "reward.reward_type", NULL, NULL, REWARDS },
    { "reward.group_name", "", NULL, RANKS },
    { "reward.tokenizer.*", "", NULL, "answers are read by the actor's own tokens" },
    { "reward.reward_min_val", "worker.reward.incorrect", NULL, NULL },
    { "reward.reward_max_val", "worker.reward.correct", NULL, NULL },
    { "algorithm.value_cliprange", CRITIC "cliprange_value", NULL, NULL },
    { "algorithm.critic_warmup_steps", "trainer.critic_warmup", NULL, NULL },
    { "critic.use_critic_model", "", NULL,
      "algorithm.adv_estimator says whether there is a critic" },
    { "critic.seed", "", NULL, ORDER },
    { "critic.group_name", "", NULL, RANKS },
    { "critic.training_backend", "", NULL, SHARDS },
    { "critic.mcore_gpt", "", NULL, ENGINE },
    { "critic.spec_name", "", NULL, MEGATRON },
    { "critic.offload_optimizer", CRITIC "offload.offload_optimizer", NULL, NULL },
    { "critic.offload_weight", CRITIC "offload.offload_params", NULL, NULL },
    { "critic.offload_grad", "", NULL, OFFLOADED },
    { "critic.enable_offload", "", NULL, OFFLOADED },
    { "critic.enable_dp_load_balance", "", NULL, "trainer.balance_batch deals rows to ranks" },
    { "critic.calculate_flops", "", NULL, "perf/* are always measured" },
    { "critic.tokenizer.*", "", NULL, "the critic reads the actor's tokens" },
    { "critic.model.precision", CRITIC "fsdp.torch_dtype=fp32", "=fp16", NULL },
    { "critic.model.precision", CRITIC "fsdp.torch_dtype", NULL, NULL },
    CRITIC_OF_MEGATRON("add_bias_linear"),
    CRITIC_OF_MEGATRON("tensor_model_parallel_size"),
    CRITIC_OF_MEGATRON("pipeline_model_parallel_size"),
    CRITIC_OF_MEGATRON("activation"),
    CRITIC_OF_MEGATRON("sequence_parallel"),
    CRITIC_OF_MEGATRON("recompute_method"),
    CRITIC_OF_MEGATRON("recompute_granularity"),
    CRITIC_OF_MEGATRON("recompute_num_layers"),
    CRITIC_OF_MEGATRON("seq_length"),
    CRITIC_OF_MEGATRON("encoder_seq_length"),
    CRITIC_OF_MEGATRON("normalization"),
    CRITIC_OF_MEGATRON("position_embedding_type"),
    CRITIC_OF_MEGATRON("apply_rope_fusion"),
    CRITIC_OF_MEGATRON("bias_dropout_fusion"),
    CRITIC_OF_MEGATRON("persist_layer_norm"),
    CRITIC_OF_MEGATRON("bias_activation_fusion"),
    CRITIC_OF_MEGATRON("batch_p2p_comm"),
    CRITIC_OF_MEGATRON("variable_seq_lengths"),
    CRITIC_OF_MEGATRON("gradient_accumulation_fusion"),
    CRITIC_OF_MEGATRON("moe_token_dispatcher_type"),
    CRITIC_OF_MEGATRON("use_cpu_initialization"),
    { "critic.optim.adam_beta1", CRITIC "optim.betas.0", NULL, NULL },
    { "critic.optim.adam_beta2", CRITIC "optim.betas.1", NULL, NULL },
    { "critic.optim.adam_eps", CRITIC "optim.eps", NULL, NULL },
    { "critic.optim.min_lr", "", NULL,
      "worker.critic.optim.min_lr_ratio is the least share of lr" },
    { "critic.optim.fp16", "", NULL, "critic.model.precision says it" },
    { "critic.optim.bf16", "", NULL, "critic.model.precision says it" },
    { "critic.optim.use_distributed_optimizer", "", NULL, SHARDS },
    { "critic.optim.overlap_?", "", NULL, ENGINE },
    { "critic.optim.optimizer_enable_pin", "", NULL, ENGINE },
    { "critic.lr_sched.lr_decay_style", CRITIC "optim.lr_scheduler_type", NULL, NULL },
    { "critic.lr_sched.lr_warmup_fraction", CRITIC "optim.lr_warmup_ratio", NULL, NULL },
    { "critic.lr_sched.lr_warmup_iters", "", "=0", UNSAID },
    { "critic.lr_sched.lr_warmup_iters", CRITIC "optim.lr_warmup_steps", NULL, NULL },
    { "critic.lr_sched.lr_warmup_init", "", "=0", "the warm-up begins at 0" },
    { "critic.lr_sched.lr_decay_iters", "", NULL, "the schedule spans the run's own steps" },
    { "critic.lr_sched.max_lr", "", NULL, "critic.optim.lr says it" },
    { "critic.lr_sched.min_lr", "", "=0", UNSAID },
    { "critic.lr_sched.min_lr", NULL, NULL, "set worker.critic.optim.min_lr_ratio, a share of lr" },
    /* the two ends of a schedule: they must agree, as two spellings of one option */
    { "critic.lr_sched.start_weight_decay", CRITIC "optim.weight_decay", NULL, NULL },
    { "critic.lr_sched.end_weight_decay", CRITIC "optim.weight_decay", NULL, NULL },

    /* adapters; flags and words of which only some values pass: adapters.c */
    ADAPTER_NAMES(LORA),
    ADAPTER_NAMES(CRITIC_LORA),
    ADAPTER_WORDS(ADAPTER_ROWS)
    /* verl and RLinf */
    { VERL "model.lora_rank", LORA "rank", NULL, NULL },
    { VERL "model.lora_alpha", LORA "alpha", NULL, NULL },
    { VERL "model.target_modules", LORA "target_modules", NULL, NULL },
    { VERL "model.exclude_modules", LORA "exclude_modules", NULL, NULL },
    { VERL "model.target_parameters", "x-lora.actor.target_parameters", NULL, NULL },
    { VERL "model.lora_adapter_path", LORA "adapter_path", NULL, NULL },
    MEGATRONS_SECTION(VERL "model.lora.", "x-verl.actor_lora."),
    MEGATRONS_SECTION("critic.model.lora.", "x-verl.critic_lora."),
    { "critic.model.lora_rank", CRITIC_LORA "rank", NULL, NULL },
    { "critic.model.lora_alpha", CRITIC_LORA "alpha", NULL, NULL },
    { "critic.model.target_modules", CRITIC_LORA "target_modules", NULL, NULL },
    { "critic.model.exclude_modules", CRITIC_LORA "exclude_modules", NULL, NULL },
    { "critic.model.target_parameters", "x-lora.critic.target_parameters", NULL, NULL },
    { "critic.model.lora_adapter_path", CRITIC_LORA "adapter_path", NULL, NULL },
    { "actor.model.is_lora", "x-rlinf.is_lora", NULL,
      "whether actor.model.lora_* make adapters; see worker.actor.model.lora" },
    { "actor.model.lora_rank", LORA "rank", NULL, NULL },
    { "actor.model.lora_alpha", LORA "alpha", NULL, NULL },
    { "actor.model.lora_path", LORA "adapter_path", NULL, NULL },
    /* TRL; PEFT by itself, also in a section; SkyRL */
    { "use_peft", "x-trl.use_peft", NULL,
      "whether lora_* make adapters; see worker.actor.model.lora" },
    { "lora_r", LORA "rank", NULL, NULL },
    { "lora_alpha", LORA "alpha", NULL, NULL },
    { "lora_target_modules", LORA "target_modules", NULL, NULL },
    { "lora_dropout", "x-lora.actor.lora_dropout", NULL, NULL },
    { "lora_target_parameters", "x-lora.actor.target_parameters", NULL, NULL },
    { "lora_modules_to_save", "x-lora.actor.modules_to_save", NULL, NULL },
    { "lora_task_type", "x-lora.actor.task_type", NULL, NULL },
    { "lora_bias", "x-lora.actor.lora_bias", NULL, NULL },
    { "lora_sync_path", "", NULL, SAME_WEIGHTS },
    { "use_rslora", LORA "use_rslora", NULL, NULL },
    { "use_dora", "x-lora.actor.use_dora", NULL, NULL },
    { "r", LORA "rank", NULL, NULL },
    { "target_modules", LORA "target_modules", NULL, NULL },
    { "exclude_modules", LORA "exclude_modules", NULL, NULL },
    { "rank_pattern", LORA "rank_pattern", NULL, NULL },
    { "alpha_pattern", LORA "alpha_pattern", NULL, NULL },
    { "layers_to_transform", LORA "layers_to_transform", NULL, NULL },
    { "layers_pattern", LORA "layers_pattern", NULL, NULL },
    { "init_lora_weights", LORA "init", NULL, NULL },
    { "init_lora_weights", LORA "init=kaiming", "=true", NULL },
    { "init_lora_weights", NULL, NO_INIT_VALUES, NO_INIT },
    { "bias", "x-lora.actor.bias", NULL, NULL },
    { "modules_to_save", "x-lora.actor.modules_to_save", NULL, NULL },
    { "target_parameters", "x-lora.actor.target_parameters", NULL, NULL },
    { "fan_in_fan_out", "x-lora.actor.fan_in_fan_out", NULL, NULL },
    { "ensure_weight_tying", "x-lora.actor.ensure_weight_tying", NULL, NULL },
    { "peft_config.*", LORA "*", NULL, NULL },
    { "trainer.policy.model.lora.*", LORA "*", NULL, NULL },
    { "trainer.critic.model.lora.*", CRITIC_LORA "*", NULL, NULL },
    { "bnb_4bit_?", "", NULL, "the model is not quantised" },
    { "use_bnb_nested_quant", "", NULL, "the model is not quantised" },

    /* TRL, and VAPOR written for it: options without a section */
    { "model_name_or_path", ACTOR "model.model_path", NULL, NULL },
    { "num_generations", "worker.rollout.n", NULL, NULL },
    VAPOR("verifiable_term_split"),
    VAPOR("preference_term_split"),
    VAPOR("preference_detach"),
    VAPOR("ratio_reduction"),
    VAPOR("log_ratio_clamp"),
    VAPOR("failure_ratio"),
    VAPOR("max_pair_length"),
    { "kl_penalty_type", "vapor.kl_penalty_type", NULL, NULL },
    VAPOR("sync_ref_model"),
    VAPOR("ref_model_sync_steps"),
    VAPOR("ref_model_mixup_alpha"),
    { "w1", "vapor.kl_coef", NULL, NULL },
    { "algorithm.w1", "vapor.kl_coef", NULL, NULL },
    { "vapor.epsilon", "vapor.epsilon_low&vapor.epsilon_high", NULL, NULL },
    { "vapor.w1", "vapor.kl_coef", NULL, NULL },
    IN_VAPOR("num_generations", "worker.rollout.n"),
    IN_VAPOR("max_completion_length", "data.max_response_length"),
    IN_VAPOR("temperature", "worker.rollout.temperature"),
    IN_VAPOR("top_p", "worker.rollout.top_p"),
    IN_VAPOR("top_k", "worker.rollout.top_k"),
    { "top_k", "worker.rollout.top_k=-1", "=0", NULL },
    { "algorithm.top_k", "worker.rollout.top_k=-1", "=0", NULL },
    { "vapor.top_k", "worker.rollout.top_k=-1", "=0", NULL },
    IN_VAPOR("learning_rate", ACTOR "optim.lr"),
    JUDGED(""),
    JUDGED("algorithm."),
    JUDGED("vapor."),
    { "max_prompt_length", "data.max_prompt_length", NULL, NULL },
    { "max_completion_length", "data.max_response_length", NULL, NULL },
    { "temperature", "worker.rollout.temperature", NULL, NULL },
    { "top_p", "worker.rollout.top_p", NULL, NULL },
    { "top_k", "worker.rollout.top_k", NULL, NULL },
    { "learning_rate", ACTOR "optim.lr", NULL, NULL },
    { "weight_decay", ACTOR "optim.weight_decay", NULL, NULL },
    { "adam_beta1", ACTOR "optim.betas.0", NULL, NULL },
    { "adam_beta2", ACTOR "optim.betas.1", NULL, NULL },
    { "adam_epsilon", ACTOR "optim.eps", NULL, NULL },
    { "max_grad_norm", ACTOR "max_grad_norm", NULL, NULL },
    { "lr_scheduler_type", ACTOR "optim.lr_scheduler_type", NULL, NULL },
    { "warmup_ratio", ACTOR "optim.lr_warmup_ratio", NULL, NULL },
    { "warmup_steps", ACTOR "optim.lr_warmup_steps", NULL, NULL },
    { "gradient_checkpointing", ACTOR "model.enable_gradient_checkpointing", NULL, NULL },
    { "num_iterations", ACTOR "ppo_epochs", NULL, NULL },
    { "epsilon", ACTOR "clip_ratio_low&" ACTOR "clip_ratio_high", NULL, NULL },
    { "epsilon_low", ACTOR "clip_ratio_low", NULL, NULL },
    { "epsilon_high", ACTOR "clip_ratio_high", NULL, NULL },
    { "algorithm.epsilon", ACTOR "clip_ratio_low&" ACTOR "clip_ratio_high", NULL, NULL },
    { "algorithm.epsilon_low", ACTOR "clip_ratio_low", NULL, NULL },
    { "algorithm.epsilon_high", ACTOR "clip_ratio_high", NULL, NULL },
    { "kl_coef", "algorithm.kl_coef", NULL, NULL },
    { "delta", ACTOR "clip_ratio_dual", NULL, NULL },
    { "reward_funcs", "worker.reward.reward_funcs", NULL, NULL },
    { "reward_weights", "worker.reward.reward_weights", NULL, NULL },
    { "scale_rewards", "algorithm.norm_adv_by_std_in_grpo", NULL, NULL },
    { "scale_rewards", "algorithm.norm_adv_by_std_in_grpo=true", "=group", NULL },
    { "scale_rewards", "algorithm.norm_adv_by_std_in_grpo=false", "=none", NULL },
    { "scale_rewards", NULL, "=batch",
      "not built: division by the deviation of the batch; set group or none" },
    { "importance_sampling_level", "", "=token", UNSAID },
    { "importance_sampling_level", ACTOR "loss_type=gspo", "=sequence", NULL },
    { "importance_sampling_level", ACTOR "loss_type=gspo_token", "=sequence_token", NULL },
    { "importance_sampling_level", NULL, NULL, "set token or sequence" },
    { "beta", DISTILL_LOSS "beta", "distillation.enabled=true", BETA },
    { "beta", "algorithm.kl_coef=0", "=0", NULL },
    { "beta", "vapor.beta", "worker.actor.loss_type=vapor", BETA },
    { "beta", "vapor.beta", "algorithm.name=vapor", NULL },
    { "algorithm.beta", "vapor.beta", "algorithm.name=vapor", NULL },
    { "algorithm.beta", "vapor.beta", "worker.actor.loss_type=vapor",
      "beta weighs the KL term in TRL, and preferences in DPO and VAPOR; write algorithm.kl_coef "
      "for the KL term" },
    { "beta", "algorithm.kl_coef", "algorithm.use_kl_loss=true", NULL },
    { "beta", "algorithm.kl_coef", OF_RLOO, NULL }, /* of the KL in the reward */
    { "mask_truncated_completions", "algorithm.mask_truncated", NULL, NULL },
    /* TRL's names for how tokens are averaged */
    { "loss_type", ACTOR "loss_avg_mode=token-mean", "=dapo|bnpo", NULL },
    { "loss_type", ACTOR "loss_avg_mode=seq-mean-token-sum-norm", "=dr_grpo", NULL },
    { "loss_type", ACTOR "loss_type=cispo", "=cispo", NULL },
    { "loss_type", ACTOR "loss_type=sapo", "=sapo", NULL },
    { "sapo_temperature_pos", ACTOR "tau_positive", NULL, NULL },
    { "sapo_temperature_neg", ACTOR "tau_negative", NULL, NULL },
    { "loss_type", ACTOR "loss_avg_mode=seq-mean-token-mean", "=grpo", NULL },
    { "loss_type", NULL, NULL,
      "worker.actor.loss_type names the token's loss, worker.actor.loss_avg_mode how tokens are "
      "averaged" },
    { "num_train_epochs", "trainer.total_epochs", NULL, NULL },
    { "max_steps", "trainer.max_steps", NULL, NULL },
    { "max_steps", "", "=-1", UNSAID },
    { "save_steps", "trainer.save_freq", NULL, NULL },
    { "eval_steps", "trainer.val_freq", NULL, NULL },
    { "save_total_limit", "trainer.save_limit", NULL, NULL },
    { "output_dir", "trainer.run_dir", NULL, NULL },
    { "run_name", "trainer.experiment_name", NULL, NULL },
    { "report_to", "x-trl.report_to", NULL, NULL }, /* translate_loggers */
    { "logging_steps", "", NULL, "every step is logged" },
    { "logging_strategy", "", NULL, "every step is logged" },
    { "logging_first_step", "", NULL, "every step is logged" },
    { "logging_dir", "", NULL, "metrics and logs lie in trainer.run_dir" },
    LOGS_TOKENS("log_completions"),
    LOGS_TOKENS("enable_token_export"), /* prime-rl's, in the file of its trainer or of its run */
    LOGS_TOKENS("trainer.enable_token_export"),
    { "num_completions_to_print", "", NULL, ANSWERS },
    { "log_unique_prompts", "", NULL, ANSWERS },
    { "log_multimodal", "", NULL, ANSWERS },
    { "eval_strategy", "trainer.val_freq=0", "=no", NULL },
    { "eval_strategy", "", "=steps", "eval_steps says how often" },
    { "eval_strategy", NULL, NULL, "set trainer.val_freq to the steps of an epoch" },
    { "eval_on_start", "trainer.val_before_train", NULL, NULL },
    { "save_strategy", "trainer.save_freq=-1", "=no", NULL },
    { "save_strategy", "", "=steps", "save_steps says how often" },
    { "save_strategy", NULL, NULL, "set trainer.save_freq to the steps of an epoch" },
    { "load_best_model_at_end", "", NULL, "ares-train export takes the best checkpoint" },
    { "resume_from_checkpoint", "", "=true|false", "a run directory goes on by itself" },
    { "resume_from_checkpoint", "trainer.load_checkpoint_path", NULL, NULL },
    { "overwrite_output_dir", "", NULL, "a run directory goes on by itself" },
    { "push_to_hub", "", "=false", UNSAID },
    { "push_to_hub", NULL, NULL, "nothing is uploaded; leave it out" },
    { "dataset_name", "data.train_files", NULL, NULL },
    { "dataset_config", NULL, NULL, "name the files of that part in data.train_files" },
    { "dataset_train_split", "", "=train", UNSAID },
    { "dataset_train_split", "x-trl.train_split", NULL, NULL },
    { "dataset_test_split", "", "=test", UNSAID },
    { "dataset_test_split", "x-trl.test_split", NULL, NULL },
    { "shuffle_dataset", "data.shuffle", NULL, NULL },
    { "data_seed", "data.seed", NULL, NULL },
    { "model_revision", "", "=main", UNSAID },
    { "model_revision", NULL, NULL, "fetch that revision, and name its directory" },
    { "dtype", "", "=auto", UNSAID },
    { "dtype", ACTOR "fsdp.torch_dtype", NULL, NULL },
    { "torch_dtype", "", "=auto", UNSAID },
    { "torch_dtype", ACTOR "fsdp.torch_dtype", NULL, NULL },
    { "trust_remote_code", "", NULL, "no code of a model is run" },
    { "attn_implementation", "", NULL, ENGINE },
    { "load_in_8bit", "", "=false", UNSAID },
    { "load_in_8bit", NULL, NULL, QUANTIZED },
    { "load_in_4bit", "", "=false", UNSAID },
    { "load_in_4bit", NULL, NULL, QUANTIZED },
    { "optim", "", "=adamw_torch|adamw_torch_fused|adamw_hf|adamw", ADAMW },
    { "optim", NULL, NULL, ADAMW },
    { "lr_scheduler_type", ACTOR "optim.lr_scheduler_type=constant", "=constant_with_warmup",
      NULL },
    { "lr_scheduler_type", ACTOR "optim.lr_scheduler_type=cosine", "=cosine_with_min_lr", NULL },
    { "lr_scheduler_kwargs.min_lr_rate", ACTOR "optim.min_lr_ratio", NULL, NULL },
    { "lr_scheduler_kwargs", "", "={}", UNSAID },
    { "lr_scheduler_kwargs", NULL, NULL, "set worker.actor.optim.min_lr_ratio" },
    { "disable_dropout", "", NULL, "nothing is dropped out here" },
    { "gradient_checkpointing_kwargs", "", NULL, ENGINE },
    { "gradient_checkpointing_kwargs.*", "", NULL, ENGINE },
    { "num_generations_eval", "worker.rollout.val_override_config.n", NULL, NULL },
    { "repetition_penalty", "", "=1", UNSAID },
    { "repetition_penalty", NULL, NULL, NO_PENALTY },
    { "min_p", "", "=0", UNSAID },
    { "min_p", NULL, NULL, NO_MIN_P },
    { "generation_kwargs", "", "={}", UNSAID },
    { "generation_kwargs", NULL, NULL, "worker.rollout.* says how answers are sampled" },
    { "chat_template_kwargs", "data.chat_template_kwargs", NULL, NULL },
    { "chat_template_kwargs.*", "data.chat_template_kwargs.*", NULL, NULL },
    { "top_entropy_quantile", "", "=1", UNSAID },
    { "top_entropy_quantile", NULL, NULL, "not built: learning from uncertain tokens alone" },
    { "use_bias_correction_kl", "", "=false", UNSAID },
    { "use_bias_correction_kl", NULL, NULL, "not built: a KL weighed by the policy's ratio" },
    { "off_policy_mask_threshold", NULL, NULL, "set worker.actor.early_stop_imp_ratio" },
    { "vllm_gpu_memory_utilization", "worker.rollout.gpu_memory_utilization", NULL, NULL },
    { "vllm_max_model_length", "worker.rollout.max_model_len", NULL, NULL },
    { "vllm_tensor_parallel_size", "worker.rollout.tensor_parallel_size", NULL, NULL },
    { "vllm_mode", "", NULL, ENGINE },
    { "vllm_server_host", "", NULL, ENGINE },
    { "vllm_server_port", "", NULL, ENGINE },
    { "vllm_server_base_url", "", NULL, ENGINE },
    { "vllm_server_timeout", "", NULL, ENGINE },
    { "vllm_enable_sleep_mode", "", NULL, ENGINE },
    { "vllm_importance_sampling_correction", "", NULL, OWN_LOG_PROBS },
    { "vllm_importance_sampling_mode", "", NULL, OWN_LOG_PROBS },
    { "vllm_importance_sampling_cap", "", NULL, OWN_LOG_PROBS },
    { "vllm_importance_sampling_clip_max", "", NULL, OWN_LOG_PROBS },
    { "ddp_find_unused_parameters", "", NULL, ENGINE },
    { "dataloader_num_workers", "", NULL, ENGINE },
    { "deepspeed", "", NULL, SHARDS },
    { "per_device_eval_batch_size", "", NULL, "data.val_batch_size prompts are validated at once" },
    { "seed", "worker.rollout.seed&data.seed", NULL, NULL },
    { "bf16", ACTOR "arithmetic=bf16", "=true", NULL },
    { "bf16", ACTOR "arithmetic=fp32", "=false", NULL },
    { "bf16", NULL, NULL, "set worker.actor.arithmetic: bf16" },
    { "fp16", "", "=false", UNSAID },
    { "fp16", NULL, NULL, NO_FP16 },
    /* batches of samples: translate_batches */
    { "per_device_train_batch_size", TRL_BATCH("per_device_train_batch_size"), NULL, NULL },
    { "gradient_accumulation_steps", TRL_BATCH("gradient_accumulation_steps"), NULL, NULL },
    { "generation_batch_size", TRL_BATCH("generation_batch_size"), NULL, NULL },
    { "steps_per_generation", TRL_BATCH("steps_per_generation"), NULL, NULL },
    { "num_processes", "trainer.n_gpus_per_node", NULL, NULL },
    { "num_machines", "trainer.nnodes", NULL, NULL },
    { "accelerate_config", "", NULL, SHARDS },
    { "config_file", "", NULL, SHARDS },
    { "packing", "", NULL, PACKED },
    { "packing_strategy", "", "=bfd", PACKED },
    { "packing_strategy", NULL, NULL, "not built: rows that go on in the next sequence" },
    { "padding_free", "", NULL, PACKED },
    { "eval_packing", "", NULL, PACKED },
    { "dataset_num_proc", "", NULL, "rows are encoded on the threads of trainer.threads" },
    { "eos_token", ACTOR "model.eos_token", NULL, NULL },
    { "reward_model_name_or_path", NULL, NULL, REWARD_MODEL },
    { "completion_only_loss", "", "=true", UNSAID },
    { "completion_only_loss", NULL, NULL, "the loss is on what the assistant writes" },
    { "assistant_only_loss", "", "=true", UNSAID },
    { "assistant_only_loss", NULL, NULL, "the loss is on what the assistant writes" },
    { "use_vllm", "", NULL, ENGINE },
    { "remove_unused_columns", "", NULL, ENGINE },

    /* slime, the curriculum's trainer: options without a section */
    { "hf_checkpoint", ACTOR "model.model_path", NULL, NULL },
    { "rollout_batch_size", "data.rollout_batch_size", NULL, NULL },
    { "global_batch_size", ACTOR "global_batch_samples", NULL, NULL },
    { "num_steps_per_rollout", "algorithm.n_minibatches", NULL, NULL },
    { "n_samples_per_prompt", "worker.rollout.n", NULL, NULL },
    { "rollout_temperature", "worker.rollout.temperature", NULL, NULL },
    { "rollout_top_p", "worker.rollout.top_p", NULL, NULL },
    { "rollout_top_k", "worker.rollout.top_k", NULL, NULL },
    { "rollout_stop", "worker.rollout.stop", NULL, NULL },
    { "rollout_stop_token_ids", "worker.rollout.stop_token_ids", NULL, NULL },
    { "rollout_max_prompt_len", "data.max_prompt_length", NULL, NULL },
    { "rollout_max_response_len", "data.max_response_length", NULL, NULL },
    { "rollout_shuffle", "data.shuffle", NULL, NULL },
    { "rollout_seed", "worker.rollout.seed&data.seed", NULL, NULL },
    { "rollout_skip_special_tokens", "worker.reward.skip_special_tokens", NULL, NULL },
    { "prompt_data", "data.train_files", NULL, NULL },
    { "prompt_data_source_names", "curriculum.names", NULL, NULL },
    { "data_source_weights", "curriculum.weights", NULL, NULL },
    { "data_source_reward_caps", "curriculum.reward_caps", NULL, NULL },
    SLIME_SOURCE("data_source_path"),
    SLIME_SOURCE("curriculum.data_source_path"),
    { "custom_rm_path", "curriculum.custom_rm_path", NULL, NULL },
    SLIME_LOG("custom_rollout_log_function_path"),
    SLIME_LOG("curriculum.custom_rollout_log_function_path"),
    { "rm_type", "curriculum.rm_type", NULL, NULL },
    { "input_key", "data.prompt_key", NULL, NULL },
    { "label_key", "data.answer_key", NULL, NULL },
    { "dynamic_sampling_filter_path", "algorithm.dynamic_sampling_filter", NULL, NULL },
    { "over_sampling_batch_size", "curriculum.over_sampling_batch_size", NULL, NULL },
    { "max_fetches_per_rollout", "curriculum.max_fetches_per_rollout", NULL, NULL },
    { "partial_rollout", "curriculum.partial_rollout", NULL, NULL },
    { "mask_offpolicy_in_partial_rollout", "curriculum.mask_offpolicy_in_partial_rollout", NULL,
      NULL },
    { "recycle_surplus", "curriculum.recycle_surplus", NULL, NULL },
    { "apply_chat_template", "data.apply_chat_template", NULL, NULL },
    { "apply_chat_template_kwargs", "data.chat_template_kwargs", NULL, NULL },
    { "apply_chat_template_kwargs.*", "data.chat_template_kwargs.*", NULL, NULL },
    { "metadata_key", "data.metadata_key", NULL, NULL },
    { "buffer_filter_path", NULL, NULL,
      "prompts that are given back come first, the oldest first" },
    { "reward_key", "", "=score", "a reward's answer has its score under that name" },
    { "reward_key", NULL, NULL, "worker.reward.rewards gives one score" },
    { "group_rm", NULL, NULL, "answers are judged one by one" },
    { "max_tokens_per_gpu", ACTOR "max_token_len_per_device", NULL, NULL },
    { "use_dynamic_batch_size", "", NULL, BY_TOKENS },
    { "balance_data", "trainer.balance_batch", NULL, NULL },
    { "num_epoch", "trainer.total_epochs", NULL, NULL },
    { "num_rollout", "trainer.max_steps", NULL, NULL },
    { "save_interval", "trainer.save_freq", NULL, NULL },
    { "eval_interval", "trainer.val_freq", NULL, NULL },
    { "skip_eval_before_train", "trainer.val_before_train=false", "=true", NULL },
    { "skip_eval_before_train", "trainer.val_before_train=true", "=false", NULL },
    { "skip_eval_before_train", NULL, NULL, "set trainer.val_before_train, which is the contrary" },
    { "start_rollout_id", NULL, NULL,
      "a run goes on by itself; trainer.load_checkpoint_path names another checkpoint" },
    /* slime's defaults, written out */
    { "group_rm", "", "=false", "answers are judged one by one" },
    { "dynamic_sampling_filter_path", "algorithm.dynamic_sampling_filter=none", "=null", NULL },
    { "save_interval", "trainer.save_freq=-1", "=null", NULL },
    { "eval_interval", "trainer.val_freq=0", "=null", NULL },
    { "rollout_stop", "worker.rollout.stop=[]", "=null", NULL },
    { "rollout_stop_token_ids", "worker.rollout.stop_token_ids=[]", "=null", NULL },
    { "eval_config", NULL, NULL, "name the file after another --config" },
    { "eval_prompt_data", "x-slime.eval_prompt_data", NULL, NULL },
    { "datasets", "eval.datasets", NULL, NULL },
    { "n_samples_per_eval_prompt", "worker.rollout.val_override_config.n", NULL, NULL },
    { "eval_temperature", "worker.rollout.val_override_config.temperature", NULL, NULL },
    { "eval_top_p", "worker.rollout.val_override_config.top_p", NULL, NULL },
    { "eval_top_k", "worker.rollout.val_override_config.top_k", NULL, NULL },
    { "eval_max_response_len", "worker.rollout.val_override_config.max_new_tokens", NULL, NULL },
    { "eval_input_key", "eval.defaults.input_key", NULL, NULL },
    { "eval_label_key", "eval.defaults.label_key", NULL, NULL },
    { "log_passrate", "", NULL, "eval/<name>-pass@k is always reported" },
    { "advantage_estimator", "algorithm.adv_estimator", NULL, NULL },
    { "use_kl_loss", "algorithm.use_kl_loss", NULL, NULL },
    { "kl_loss_coef", "algorithm.kl_coef", "algorithm.use_kl_loss=true", TWO_WEIGHTS },
    { "kl_loss_coef", "", NULL, "KL is no term of the loss" },
    { "kl_loss_type", "algorithm.kl_penalty", "algorithm.use_kl_loss=true", NULL },
    { "kl_loss_type", "", NULL, "KL is no term of the loss" },
    { "entropy_coef", ACTOR "entropy_coeff", NULL, NULL },
    { "eps_clip", ACTOR "clip_ratio_low&" ACTOR "clip_ratio_high", NULL, NULL },
    { "eps_clip_high", ACTOR "clip_ratio_high", NULL, NULL },
    { "lr", ACTOR "optim.lr", NULL, NULL },
    { "lr_decay_style", ACTOR "optim.lr_scheduler_type", NULL, NULL },
    { "clip_grad", ACTOR "max_grad_norm", NULL, NULL },
    { "ref_load", "", NULL, "the reference is the model of hf_checkpoint" },
    { "optimizer", "", ADAMW_NAMES, ADAMW },
    { "optimizer", NULL, NULL, ADAMW },
    { "optimizer_cpu_offload", ACTOR "offload.offload_optimizer", NULL, NULL },
    { "overlap_cpu_optimizer_d2h_h2d", "", NULL, ENGINE },
    { "use_precision_aware_optimizer", "", NULL, ENGINE },
    { "attention_dropout", "", "=0", UNSAID },
    { "attention_dropout", NULL, NULL, "nothing is dropped out here" },
    { "hidden_dropout", "", "=0", UNSAID },
    { "hidden_dropout", NULL, NULL, "nothing is dropped out here" },
    { "attention_backend", "", NULL, ENGINE },
    { "attention_softmax_in_fp32", "", NULL, ENGINE },
    { "accumulate_allreduce_grads_in_fp32", "", NULL, ENGINE },
    { "no_gradient_accumulation_fusion", "", NULL, ENGINE },
    { "no_check_for_nan_in_loss_and_grad", "", NULL,
      "an update with a NaN is left out and counted" },
    { "recompute_?", "", NULL, "worker.actor.model.enable_gradient_checkpointing does it" },
    { "moe_aux_loss_coeff", "", "=0", NO_AUX_LOSS },
    { "moe_aux_loss_coeff", NULL, NULL, NO_AUX_LOSS "; set 0" },
    { "worker.actor.router_aux_loss_coef", "", "=0", NO_AUX_LOSS },
    { "worker.actor.router_aux_loss_coef", NULL, NULL, NO_AUX_LOSS "; set 0" },
    { "moe_?", "", NULL, NO_EXPERTS },
    { "decoder_?", "", NULL, SHARDS },
    { "update_weight_?", "", NULL, "actor and rollout share their weights" },
    { "transformer_impl", "", NULL, ENGINE },
    { "train_backend", "", NULL, ENGINE },
    { "log_probs_chunk_size", "", NULL, BY_TOKENS },
    { "micro_batch_size", "", NULL, BY_TOKENS },
    { "data_pad_size_multiplier", "", NULL, PACKED },
    { "deterministic_mode", "", NULL, "a run has the same bits each time" },
    { "model_name", "", NULL, MEGATRON },
    { "rotary_base", "", NULL, MEGATRON },
    { "use_tensorboard", "x-slime.use_tensorboard", NULL, NULL },
    { "tb_project_name", "trainer.project_name", NULL, NULL },
    { "tb_experiment_name", "trainer.experiment_name", NULL, NULL },
    { "rollout_num_gpus", "", NULL, RANKS },
    { "prefill_num_servers", "", NULL, ENGINE },
    { "rollout_max_context_len", "worker.rollout.max_model_len", NULL, NULL },
    { "use_tis", ACTOR "rollout_is=token", "=true", NULL },
    { "use_tis", ACTOR "rollout_is=none", "=false", NULL },
    { "tis_clip", ACTOR "rollout_is_threshold", NULL, NULL },
    { "tis_clip_low", "", "=0", UNSAID },
    { "tis_clip_low", ACTOR "rollout_is_threshold_lower", NULL, NULL },
    { "use_rollout_logprobs", ACTOR "recompute_log_probs=false", "=true", NULL },
    { "use_rollout_logprobs", "", "=false", UNSAID },
    { "calculate_per_token_loss", ACTOR "loss_avg_mode=token-mean", "=true", NULL },
    { "calculate_per_token_loss", "", "=false", UNSAID },
    { "advantage_estimator", ACTOR "loss_type=gspo", "=gspo", NULL },
    { "advantage_estimator", ACTOR "loss_type=cispo", "=cispo", NULL },
    { "dynamic_sampling_filter_path", "algorithm.dynamic_sampling_filter=nonzero_std",
      "=*check_reward_nonzero_std", NULL },
    { "custom_generate_function_path", NULL, NULL, CONVERSATIONS },
    { "rollout_function_path", "",
      "=slime.rollout.fully_async_rollout.generate_rollout_fully_async",
      "each step samples with the weights that it trains" },
    { "rollout_function_path", NULL, NULL, "no code is loaded; a step samples, then it trains" },
    { "custom_reward_post_process_path", NULL, NULL,
      "no code is loaded; algorithm.adv_estimator says what becomes of rewards" },
    { "custom_tis_function_path", NULL, NULL, "no code is loaded; worker.actor.rollout_is weighs" },
    { "custom_config_path", NULL, NULL, "no code is loaded that would read it" },
    { "use_opd", "distillation.enabled", NULL, NULL },
    { "opd_kl_coef", DISTILL_LOSS "distillation_loss_coef", NULL, NULL },
    { "opd_teacher_load", TEACHER "model_path", NULL, NULL },
    { "opd_teacher_ckpt_step", "", NULL, "a run directory is read at its latest checkpoint" },
    { "opd_type", "", "=megatron", NO_SERVER },
    { "opd_type", NULL, NULL, TEACHER_HERE },
    { "enable_mtp_training", "", "=false", UNSAID },
    { "enable_mtp_training", NULL, NULL, SEVERAL_TOKENS },
    { "mtp_?", "", NULL, "there are no heads that predict several tokens" },
    { "fp8_format", NULL, NULL, "not built: training in fp8; leave it out" },
    { "fp8_recipe", NULL, NULL, "not built: training in fp8; leave it out" },
    { "sglang_kv_cache_dtype", "", "=auto", UNSAID },
    { "sglang_kv_cache_dtype", NULL, NULL, QUANTIZED },
    { "sglang_mem_fraction_static", "", NULL,
      "worker.rollout.gpu_memory_utilization is a share of the memory, too" },
    { "sglang_?", "", NULL, ENGINE },
    { "tensor_model_parallel_size", "", NULL, SHARDS },
    { "pipeline_model_parallel_size", "", NULL, SHARDS },
    { "context_parallel_size", "", NULL, SHARDS },
    { "expert_model_parallel_size", "", NULL, SHARDS },
    { "expert_tensor_parallel_size", "", NULL, SHARDS },
    { "sequence_parallel", "", NULL, SHARDS },
    { "save", "trainer.run_dir", NULL, NULL },
    { "load", "", NULL, "a run directory goes on by itself" },
    { "save_hf", "", NULL, "the model of a checkpoint has the form of Hugging Face" },
    { "no_save_optim", "trainer.save_model_only", NULL, NULL },
    { "gamma", "algorithm.gamma", NULL, NULL },
    { "lambd", "algorithm.lam", NULL, NULL },
    { "value_clip", CRITIC "cliprange_value", NULL, NULL },
    { "eps_clip_c", ACTOR "clip_ratio_dual", NULL, NULL },
    { "normalize_advantages", "algorithm.normalize_advantages", NULL, NULL },
    { "grpo_std_normalization", "algorithm.norm_adv_by_std_in_grpo", NULL, NULL },
    { "disable_grpo_std_normalization", "algorithm.norm_adv_by_std_in_grpo=false", "=true", NULL },
    { "disable_grpo_std_normalization", "algorithm.norm_adv_by_std_in_grpo=true", "=false", NULL },
    { "disable_grpo_std_normalization", NULL, NULL,
      "set algorithm.norm_adv_by_std_in_grpo, which is the contrary" },
    { "lr_warmup_iters", ACTOR "optim.lr_warmup_steps", NULL, NULL },
    { "lr_warmup_fraction", ACTOR "optim.lr_warmup_ratio", NULL, NULL },
    { "only_train_params_name_list", ACTOR "model.trainable", NULL, NULL },
    { "freeze_params_name_list", NULL, NULL,
      "worker.actor.model.trainable names what is trained, not what is frozen" },
    { "use_opsm", "", "=false", UNSAID },
    { "use_opsm", NULL, NULL, "not built: leaving out sequences; set worker.actor.rollout_is" },
    { "use_fault_tolerance", "", NULL, ENGINE },
    { "use_wandb", "x-slime.use_wandb", NULL, NULL },
    { "wandb_project", "trainer.project_name", NULL, NULL },
    { "wandb_?", "", NULL, "wandb sync says where a run goes; its files lie in WANDB_DIR" },
    { "rollout_num_gpus_per_engine", "", NULL, ENGINE },
    { "colocate", "", NULL, "actor and rollout share their weights" },
};
const int train_alias_count = ARES_COUNT(train_aliases);

/*
 * Defaults of other trainers that change what is learnt and differ from ours (docs/migrate.md). A
 * default is set where a file uses the word in the second column. Most of verl's need the word that
 * names its model, because a single other word does not make a file one of verl's.
 */
#define ADAPTED LORA "rank!=0&" LORA "adapter_path=null"
#define CRITIC_ADAPTED CRITIC_LORA "rank!=0&" CRITIC_LORA "adapter_path=null"
#define TRL_ADAPTED "x-trl.use_peft=true&" LORA "adapter_path=null"
#define RLINF_ADAPTED "x-rlinf.is_lora=true&" LORA "adapter_path=null"
static const ares_config_default defaults[] = {
    /* TRL's sampled_token and slime's teacher are advantages; slime's beside the task's */
    { "TRL", "distillation_mode", DISTILL_LOSS "use_policy_gradient", "true",
      DISTILL_LOSS "loss_mode=k1" },
    { "SDPO", VERL "actor.self_distillation.full_logit_distillation",
      DISTILL_LOSS "use_policy_gradient", "true", DISTILL_LOSS "loss_mode=k1" },
    { "slime", "use_opd", DISTILL_LOSS "loss_mode", "k1", "distillation.enabled=true" },
    { "slime", "use_opd", DISTILL_LOSS "use_policy_gradient", "true", "distillation.enabled=true" },
    { "slime", "use_opd", DISTILL_LOSS "use_task_rewards", "true", "distillation.enabled=true" },
    { "SDPO", VERL "actor.self_distillation.*", "distillation.context", "group",
      "distillation.enabled=true" },
    { "SDPO", VERL "actor.self_distillation.*", "distillation.success_reward_threshold", "0.5",
      "distillation.enabled=true" },
    { "SDPO", VERL "actor.self_distillation.*", "distillation.include_environment_feedback", "true",
      "distillation.enabled=true" },
    { "SDPO", VERL "actor.self_distillation.*", "distillation.remove_thinking_from_demonstration",
      "true", "distillation.enabled=true" },
    { "SDPO", VERL "actor.self_distillation.*",
      "distillation.environment_feedback_only_without_solution", "true",
      "distillation.enabled=true" },
    { "SDPO", VERL "actor.self_distillation.*", TEACHER "kind", "ema",
      "distillation.enabled=true" },
    { "SDPO", VERL "actor.self_distillation.*", DISTILL_LOSS "beta", "0.5",
      "distillation.enabled=true&" DISTILL_LOSS "loss_mode=jsd" },
    { "SDPO", VERL "actor.self_distillation.*", DISTILL_LOSS "is_clip", "2.0",
      "distillation.enabled=true&" DISTILL_LOSS "loss_mode=jsd" },
    /* its templates end without a line feed */
    { "SDPO", VERL "actor.self_distillation.*", "distillation.reprompt_template",
      "\"{prompt}{solution}{feedback}\\n\\nCorrectly solve the original question.\"",
      "distillation.enabled=true" },
    { "SDPO", VERL "actor.self_distillation.*", "distillation.solution_template",
      "\"\\nCorrect solution:\\n\\n{successful_previous_attempt}\"", "distillation.enabled=true" },
    { "SDPO", VERL "actor.self_distillation.*", "distillation.feedback_template",
      "\"\\nThe following is feedback from your unsuccessful earlier attempt:\\n\\n"
      "{feedback_raw}\"",
      "distillation.enabled=true" },
    /* RAGEN's mini-batches count episodes; the other values are fixed in its code */
    { "RAGEN", "ppo_mini_batch_size", ACTOR "mini_batch_unit", "rows", NULL },
    { "RAGEN", RAGEN_TAGS, ACTOR "mini_batch_unit", "rows", NULL },
    { "RAGEN", RAGEN_TAGS, ACTOR "clip_ratio_dual", "3.0", NULL },
    { "RAGEN", RAGEN_TAGS, "worker.rollout.val_override_config.top_p", "1.0", NULL },
    { "RAGEN", RAGEN_TAGS, "worker.rollout.val_override_config.top_k", "-1", NULL },
    { "RAGEN", RAGEN_TAGS, "algorithm.filter_empty_policy", "retry", NULL },
    { "RAGEN", RAGEN_TAGS, "algorithm.early_stop_rv_window", "5", NULL },
    { "RAGEN", RAGEN_TAGS, "algorithm.early_stop_low_success", "0.01", NULL },
    { "RAGEN", VERL "rollout.rollout_filter_ratio", "worker.rollout.rollout_filter_strategy",
      "top_k", NULL },
    { "RAGEN", "lora.rank", LORA "alpha", "16", ADAPTED },
    /* verl and RLinf have no KL until one is switched on; here it acts in the reward by default */
    { "verl", VERL "*", "algorithm.use_kl_in_reward", "false", NULL },
    { "verl", "algorithm.kl_ctrl.*", "algorithm.use_kl_in_reward", "false", NULL },
    { "verl", VERL "*", "algorithm.kl_penalty", "kl", "algorithm.use_kl_in_reward=true" },
    { "verl", "algorithm.kl_ctrl.*", "algorithm.kl_penalty", "kl",
      "algorithm.use_kl_in_reward=true" },
    { "verl", VERL "*", ACTOR "clip_ratio_high", "0.2", NULL },
    { "verl", VERL "*", ACTOR "ppo_kl_coef", "0.1", ACTOR "loss_type=kl_cov" },
    { "verl", VERL "*", ACTOR "model.freeze_vision_tower", "false", NULL },
    { "verl", VERL "*", "worker.rollout.val_override_config.temperature", "0", NULL },
    { "verl", MODEL_OF_VERL, "worker.reward.rewards", "[{name: auto}]",
      "worker.reward.reward_function=null&env.train.tags=[]&env.val.tags=[]" },
    { "verl", MODEL_OF_VERL, "algorithm.adv_estimator", "gae", NULL },
    { "verl", MODEL_OF_VERL, "data.rollout_batch_size", "1024", NULL },
    { "verl", MODEL_OF_VERL, "worker.critic.optim.lr", "1e-5", NULL },
    { "verl", MODEL_OF_VERL, "trainer.total_epochs", "30", NULL },
    { "verl", VERL "model.lora_rank", LORA "alpha", "16", ADAPTED },
    { "verl", VERL "model.lora.rank", LORA "alpha", "32", "x-verl.actor_lora.rank!=0" },
    { "verl", "critic.model.lora_rank", CRITIC_LORA "alpha", "16", CRITIC_ADAPTED },
    { "verl", "critic.model.lora.rank", CRITIC_LORA "alpha", "32", "x-verl.critic_lora.rank!=0" },
    { "EasyR1", RANK0_OF_EASYR1, ACTOR "model.freeze_vision_tower", "false", NULL },
    { "EasyR1", RANK0_OF_EASYR1, "algorithm.filter_key", "overall", NULL },
    { "EasyR1", RANK0_OF_EASYR1, "algorithm.kl_penalty", "kl", NULL },
    { "RLinf", "algorithm.kl_beta", "algorithm.use_kl_loss", "true", NULL },
    { "RLinf", "reward.reward_type", "worker.reward.correct", "1", NULL },
    { "RLinf", "reward.reward_type", "worker.reward.incorrect", "-1", NULL },
    { "RLinf", "actor.global_batch_size", "algorithm.n_minibatches", "1", NULL },
    { "RLinf", "actor.model.is_lora", LORA "rank", "32", RLINF_ADAPTED },
    { "RLinf", "actor.model.is_lora", LORA "alpha", "${" LORA "rank}", RLINF_ADAPTED },
    { "RLinf", "actor.model.is_lora", LORA "init", "gaussian", RLINF_ADAPTED },
    { "RLinf", "actor.model.is_lora", LORA "target_modules",
      "[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head]", RLINF_ADAPTED },
    /* Megatron's too: the learning rate falls; neither KL nor dual clip; answers weigh the same */
    { "slime", MODEL_OF_SLIME, "algorithm.kl_coef", "0", NULL },
    { "slime", MODEL_OF_SLIME, "algorithm.kl_penalty", "kl", "algorithm.use_kl_loss=true" },
    { "slime", MODEL_OF_SLIME, ACTOR "clip_ratio_high", "0.2", NULL },
    { "slime", MODEL_OF_SLIME, ACTOR "loss_type", "dapo", NULL },
    { "slime", MODEL_OF_SLIME, ACTOR "loss_avg_mode", "seq-mean-token-mean", NULL },
    { "slime", MODEL_OF_SLIME, ACTOR "optim.lr_scheduler_type", "linear", NULL },
    { "slime", MODEL_OF_SLIME, CRITIC "cliprange_value", "0.2", NULL },
    { "slime", MODEL_OF_SLIME, "data.shuffle", "false", NULL },
    { "slime", MODEL_OF_SLIME, "data.apply_chat_template", "false", NULL },
    { "slime", MODEL_OF_SLIME, "data.prompt_key", "input", NULL },
    /* trl rloo: a KL in the reward, and the sum over an answer's tokens, which is its ratio's slope
     */
    { "TRL", MODEL_OF_TRL, "algorithm.use_kl_loss", "false", OF_RLOO },
    { "TRL", MODEL_OF_TRL, "algorithm.use_kl_in_reward", "true", OF_RLOO },
    { "TRL", MODEL_OF_TRL, "algorithm.kl_coef", "0.05", OF_RLOO },
    { "TRL", MODEL_OF_TRL, "algorithm.kl_penalty", "kl", OF_RLOO },
    { "TRL", MODEL_OF_TRL, ACTOR "loss_avg_mode", "seq-mean-token-sum", OF_RLOO },
    { "TRL", MODEL_OF_TRL, "worker.rollout.n", "2", OF_RLOO },
    /* beta, the weight of the KL in the loss, is 0 */
    { "TRL", MODEL_OF_TRL, "algorithm.use_kl_loss", "true", NULL },
    { "TRL", MODEL_OF_TRL, "algorithm.kl_coef", "0", NULL },
    { "TRL", MODEL_OF_TRL, ACTOR "clip_ratio_high", "0.2", NULL },
    { "TRL", MODEL_OF_TRL, ACTOR "loss_type", "dapo", NULL }, /* no dual clip */
    { "TRL", MODEL_OF_TRL, "worker.rollout.n", "8", NULL },
    { "TRL", MODEL_OF_TRL, ACTOR "optim.weight_decay", "0", NULL },
    { "TRL", MODEL_OF_TRL, ACTOR "optim.lr_scheduler_type", "linear", NULL },
    { "TRL", MODEL_OF_TRL, "trainer.total_epochs", "3", NULL },
    { "TRL", MODEL_OF_TRL, ACTOR "optim.lr", "2e-5", "sft.batch_size!=null" }, /* of trl sft */
    { "TRL", "use_peft", LORA "rank", "16", TRL_ADAPTED },
    { "TRL", "use_peft", LORA "alpha", "32", TRL_ADAPTED },
    { "TRL", "use_peft", LORA "target_modules", "[q_proj, v_proj]", TRL_ADAPTED },
    { "PEFT", "peft_config.*", LORA "rank", "8", LORA "adapter_path=null" },
    { "PEFT", "peft_config.*", LORA "alpha", "8", LORA "adapter_path=null" },
    { "PEFT", "peft_config.*", LORA "target_modules", "[q_proj, v_proj]",
      LORA "adapter_path=null" },
    { "PEFT", "r", LORA "alpha", "8", ADAPTED },
    { "PEFT", "r", LORA "target_modules", "[q_proj, v_proj]", ADAPTED },
    { "SkyRL", "trainer.policy.model.lora.rank", LORA "alpha", "16", ADAPTED },
    { "SkyRL", "trainer.critic.model.lora.rank", CRITIC_LORA "alpha", "16", CRITIC_ADAPTED },
};

/* The word's value, a whole number of 1 or more; `unsaid` without the word. Else a fault. */
static long long batch_word(ares_config *cfg, const char *word, long long unsaid)
{
    const char *text = ares_config_given(cfg, word);
    char *end = NULL;
    long long n = text ? strtoll(text, &end, 10) : unsaid;
    if (!text) return unsaid;
    if (*end || n < 1 || n > 1000000000) {
        ares_config_fault(cfg, word, "must be an integer in [1,1000000000]");
        return unsaid;
    }
    return n;
}

#define TRLS_BATCH "TRL's 8 samples for each process"

/* from: NULL: TRL's default */
static void follow_batch(ares_config *cfg, const char *path, long long value, const char *from)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", value);
    if (from) ares_config_follow(cfg, path, text, from);
    else (void)ares_config_preset(cfg, path, text, TRLS_BATCH);
    ares_log(ARES_LOG_INFO, "config: %s -> %s = %s", ares_config_word(cfg, path), path, text);
}

/* Whether the model is named as TRL does, and nothing says how large batches are. */
static bool wants_trls_batches(ares_config *cfg)
{
    static const char *const sizes[] = { "data.rollout_batch_size",    ACTOR "global_batch_size",
                                         ACTOR "global_batch_samples", "algorithm.n_minibatches",
                                         "env.train.groups",           "sft.batch_size" };
    const char *validates = ares_config_given(cfg, "trainer.val_only");
    for (int i = 0; i < ARES_COUNT(sizes); i++)
        if (ares_config_is_set(cfg, sizes[i])) return false;
    return strcmp(ares_config_word(cfg, ACTOR "model.model_path"), MODEL_OF_TRL) == 0 &&
           !(validates && strcmp(validates, "true") == 0);
}

/*
 * TRL counts samples: an optimizer step has per_device_train_batch_size x processes x
 * gradient_accumulation_steps of them, and answers for steps_per_generation batches are sampled at
 * once. Here batches are counted in prompts, and in rows for sft.
 */
static void translate_batches(ares_config *cfg)
{
    static const char device[] = TRL_BATCH("per_device_train_batch_size"),
                      sum[] = TRL_BATCH("gradient_accumulation_steps"),
                      answers[] = TRL_BATCH("generation_batch_size"),
                      steps[] = TRL_BATCH("steps_per_generation");
    static const char *const words[] = { device, sum, answers, steps };
    const char *from = NULL;
    for (int i = 0; !from && i < ARES_COUNT(words); i++)
        if (ares_config_given(cfg, words[i])) from = words[i];
    if (!from && !wants_trls_batches(cfg)) return;
    long long ranks = batch_word(cfg, "trainer.n_gpus_per_node", 1) *
                      batch_word(cfg, "trainer.nnodes", 1),
              batch = batch_word(cfg, device, 8) * ranks, times = batch_word(cfg, sum, 1),
              at_once = batch_word(cfg, answers, batch * batch_word(cfg, steps, times)),
              n = batch_word(cfg, "worker.rollout.n",
                             atoll(ares_config_get_text(cfg, "worker.rollout.n")));
    if (ares_config_get_text(cfg, "sft.batch_size")) {
        follow_batch(cfg, "sft.batch_size", batch * times, from);
        return;
    }
    if (at_once < batch * times)
        ares_config_fault(cfg, ares_config_given(cfg, steps) ? steps : from,
                          "makes optimizer steps of %lld samples, of which %lld are sampled at "
                          "once; set steps_per_generation to a multiple of "
                          "gradient_accumulation_steps",
                          batch * times, at_once);
    else if (!from && at_once % n)
        ares_config_fault(cfg, "worker.rollout.n",
                          "does not divide the %lld samples of an optimizer step, " TRLS_BATCH
                          "; set per_device_train_batch_size",
                          at_once);
    else if (at_once % n || batch * times % n)
        ares_config_fault(cfg, from,
                          "makes optimizer steps of %lld samples (%lld processes) and %lld at "
                          "once: num_generations = %lld does not divide both, and the samples of "
                          "a prompt stay together; set data.rollout_batch_size and "
                          "worker.actor.global_batch_size in prompts",
                          batch * times, ranks, at_once, n);
    else {
        follow_batch(cfg, "data.rollout_batch_size", at_once / n, from);
        follow_batch(cfg, ACTOR "global_batch_size", batch * times / n, from);
    }
}

/*
 * Where metrics go in the words of others: a list of names (TRL, RLinf), or a flag for each
 * (slime). Their consoles always show steps. A name that we have no writer for is refused, also in
 * trainer.logger.
 */
static void translate_loggers(ares_config *cfg)
{
    static const char own[] = "trainer.logger",
                      *const lists[] = { own, "x-trl.report_to", "x-rlinf.logger_backends" },
                      *const names[] = { "console", "file",   "tensorboard",
                                         "trackio", "mlflow", "wandb" },
                      *const flags[][2] = { { "x-slime.use_tensorboard", "tensorboard" },

                                            { "x-slime.use_wandb", "wandb" } };
    ares_str value = { 0 };
    const char *from = NULL; /* the word that `value` comes from */
    char path[64];
    for (int i = 0; i < ARES_COUNT(lists); i++) {
        const char *name = ares_config_given(cfg, lists[i]);
        bool scalar = name != NULL, given = i > 0 && ares_config_is_set(cfg, lists[i]);
        (void)snprintf(path, sizeof path, "%s", lists[i]);
        if (given) {
            from = lists[i];
            ares_str_clear(&value);
            ares_str_add_z(&value, "[console");
        }
        for (int k = 0; k == 0 || name; k++) {
            int which;
            if (!scalar) {
                (void)snprintf(path, sizeof path, "%s.%d", lists[i], k);
                name = ares_config_given(cfg, path);
            }
            if (name && ares_lookup(ARES_ECONFIG, NULL, name, names, ARES_COUNT(names), &which) ==
                            ARES_OK) {
                if (given) ares_str_addf(&value, ", %s", name);
            } else if (name && !(given && strcmp(name, "none") == 0)) {
                ares_config_fault(cfg, path,
                                  "%s; for another tracker write tensorboard: TensorBoard files "
                                  "are what they import",
                                  ares_error_message());
                from = NULL;
                ares_config_forget(cfg, own); /* its fault is told once */
            }
            ares_error_clear();
            if (scalar) break;
        }
    }
    for (int i = 0; i < ARES_COUNT(flags); i++) {
        const char *flag = ares_config_given(cfg, flags[i][0]);
        if (!flag || strcmp(flag, "true") != 0) continue;
        from = flags[i][0];
        ares_str_addf(&value, "%s, %s", value.len ? "" : "[console", flags[i][1]);
    }
    if (from && (!ares_config_is_set(cfg, own) || ares_config_later(cfg, from, own))) {
        ares_str_add_char(&value, ']');
        ares_log(ARES_LOG_INFO, "config: %s -> %s = %s", ares_config_word(cfg, from), own,
                 value.data);
        ares_config_follow(cfg, own, value.data, from);
    }
    ares_str_fini(&value);
}

/* TRL's splits of the folder that dataset_name names: train, and test for evaluations. */
static void translate_splits(ares_config *cfg)
{
    static const char *const splits[][3] = {
        { "x-trl.test_split", "data.val_files", "test" },
        { "x-trl.train_split", "data.train_files", "train" },
    };
    const char *name = ares_config_given(cfg, "data.train_files"),
               *word = ares_config_word(cfg, "data.train_files"),
               *asks = ares_config_word(cfg, "trainer.val_freq");
    bool folder = name && strcmp(word, "dataset_name") == 0 && ares_dir_exists(name),
         tests = strcmp(asks, "eval_steps") == 0 && !ares_config_is_set(cfg, "data.val_files");
    ares_str path = { 0 };
    for (int i = 0; i < ARES_COUNT(splits); i++) {
        const char *split = ares_config_given(cfg, splits[i][0]);
        if (split && !folder)
            ares_config_fault(cfg, splits[i][0],
                              "is a split of a folder, and dataset_name names none; name the "
                              "files of that split in %s",
                              splits[i][1]);
        if (!folder || (!split && i == 0 && !tests)) continue;
        ares_config_follow(cfg, splits[i][1],
                           ares_path_join(&path, name, split ? split : splits[i][2]),
                           split ? splits[i][0] : splits[1][1]);
    }
    ares_str_fini(&path);
}

/* RLinf's KL in the rewards of Reinforce++; kl_beta is that of the loss. */
static void translate_kl_of_reinpp(ares_config *cfg)
{
    static const char word[] = "x-rlinf.reinpp_kl_beta";
    const char *beta = ares_config_given(cfg, word),
               *other = ares_config_given(cfg, "algorithm.kl_coef");
    if (!beta) return;
    if (other && atof(other) != 0) {
        ares_config_fault(cfg, word, "one KL acts here: set algorithm.kl_beta=0, or this to 0");
        return;
    }
    ares_config_follow(cfg, "algorithm.kl_coef", beta, word);
    ares_config_follow(cfg, "algorithm.use_kl_in_reward", "true", word);
    ares_config_follow(cfg, "algorithm.use_kl_loss", "false", word);
}

static void translate(ares_config *cfg)
{
    static const char bypass[] = "algorithm.rollout_correction.bypass_mode",
                      *const rejects[] = { ACTOR "rollout_rs",
                                           ACTOR "rollout_token_veto_threshold" },
                      one[] = "worker.reward.reward_funcs", upper[] = ACTOR "rollout_is_threshold",
                      resume[] = "x-verl.resume_mode", scale[] = "x-verl.critic_loss_scale_factor",
                      warmup[] = ACTOR "optim.lr_warmup_steps";
    char path[64], lower[64], higher[64];
    translate_batches(cfg);
    translate_splits(cfg);
    translate_kl_of_reinpp(cfg);
    adapters_translate(cfg);
    types_translate(cfg); /* of models that adapters share */
    translate_loggers(cfg);
    if (ares_config_given(cfg, scale))
        ares_config_fault(cfg, scale, "not built: losses of a critic divided by a fixed length");
    if (ares_config_given(cfg, resume) && !ares_config_given(cfg, "trainer.load_checkpoint_path"))
        ares_config_fault(cfg, resume,
                          "nothing says from where; set trainer.resume_from_path to a checkpoint");
    const char *own = ares_config_word(cfg, ACTOR "recompute_log_probs");
    for (int i = 0; i < ARES_COUNT(rejects) && own && strcmp(own, bypass) == 0; i++)
        if (ares_config_given(cfg, rejects[i]))
            ares_config_fault(
                cfg, rejects[i],
                "not built: rejection by the policy of each update (bypass_mode); set "
                "algorithm.rollout_correction.bypass_mode=false, which rejects once a "
                "step, by the policy before it");
    /* verl's "0.5_4.0": weights outside of the two are 0 */
    const char *both = ares_config_given(cfg, upper), *mid = both ? strchr(both, '_') : NULL;
    if (mid && strlen(both) <= 60) {
        (void)snprintf(lower, sizeof lower, "%.*s", (int)(mid - both), both);
        (void)snprintf(higher, sizeof higher, "%s", mid + 1);
        ares_config_follow(cfg, ACTOR "rollout_is_threshold_lower", lower, upper);
        ares_config_follow(cfg, ACTOR "rollout_is_mode", "mask", upper);
        ares_config_follow(cfg, upper, higher, upper);
    }
    /* a number of TRL's below 1 is a share of all steps */
    const char *steps = ares_config_given(cfg, warmup);
    double share = steps ? strtod(steps, NULL) : 0;
    if (share > 0 && share < 1 && strcmp(ares_config_word(cfg, warmup), "warmup_steps") == 0) {
        ares_config_follow(cfg, ACTOR "optim.lr_warmup_ratio", steps, warmup);
        ares_config_forget(cfg, warmup);
    }
    /* TRL's accuracy_reward reads a row's `solution`; reward_funcs is a name or a list of names */
    const char *name = ares_config_given(cfg, one);
    for (int i = 0; name || i == 0; i++) {
        if (name && strcmp(name, "accuracy_reward") == 0)
            ares_config_preset(cfg, "data.answer_key", "solution", "reward_funcs: accuracy_reward");
        (void)snprintf(path, sizeof path, "%s.%d", one, i);
        name = ares_config_given(cfg, path);
    }
}

void train_add_aliases(ares_config *cfg)
{
    ares_config_add_aliases(cfg, train_aliases, train_alias_count);
    ares_config_add_defaults(cfg, defaults, ARES_COUNT(defaults));
    ares_config_translate_with(cfg, translate);
}
