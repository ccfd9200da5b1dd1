/* train: the options of a run, and runs: by rewards, supervised, or validation alone. */
#ifndef ARES_TRAIN_H
#define ARES_TRAIN_H

#include "ares/algo.h"
#include "ares/algo_filter.h"
#include "ares/config.h"
#include "ares/core.h"
#include "ares/data.h"
#include "ares/dist.h"
#include "ares/io.h"
#include "ares/model.h"
#include "ares/reward.h"
#include "ares/rollout.h"

/* ---------------- options (docs/design.md#option-names) */
#define ARES_ACTOR_OPTIONS(X)                                                                      \
    X(text, model_path, "model.model_path", "???", "nonempty",                                     \
      "model, checkpoint or run directory")                                                        \
    X(text, tokenizer_path, "model.tokenizer_path", "null", "", "null: the model's own")           \
    X(f64, parameters, "model.parameters", "null", "[1,)",                                         \
      "how many the model has, so that --check can compare memory where the model is not there; "  \
      "null: as its config.json says",                                                             \
      ARES_NO_RESULT)                                                                              \
    X(flag, gradient_checkpointing, "model.enable_gradient_checkpointing", "false", "",            \
      "keep block inputs only and recompute the rest in backward", ARES_NO_RESULT)                 \
    X(choice, dtype, "fsdp.torch_dtype", "fp32", "?fp32=float32|bf16=bfloat16",                    \
      "storage of the weights, null is fp32; bf16 keeps an fp32 master for the optimizer")         \
    X(i64, global_batch_size, "global_batch_size", "256", "[1,)", "prompts of an optimizer step")  \
    X(i64, max_token_len, "max_token_len_per_device", "1024", "[1,)",                              \
      "tokens of a micro-batch; changes memory and speed, no result; a GPU wants more",            \
      ARES_NO_RESULT)                                                                              \
    X(i64, micro_batch_size, "micro_batch_size_per_device_for_update", "null", "[1,)",             \
      "samples of a micro-batch as loss_norm and early_stop_scope: micro count them; computation " \
      "is cut by max_token_len_per_device")                                                        \
    X(flag, share_prompts, "share_prompts", "true", "",                                            \
      "compute a group's prompt once in the update")                                               \
    X(i64, ppo_epochs, "ppo_epochs", "1", "[1,)", "passes over the batch")                         \
    X(f64, max_grad_norm, "max_grad_norm", "1.0", "(0,)",                                          \
      "gradients are scaled down to this global norm")                                             \
    X(flag, shuffle, "shuffle", "false", "",                                                       \
      "groups in a random order before the batch is cut into mini-batches")                        \
    X(flag, recompute_log_probs, "recompute_log_probs", "false", "",                               \
      "old log-probs by a pass of the trainer; false: those of the rollout, where tokens and "     \
      "weights are still the same")
ARES_OPTION_STRUCT(ares_actor_config, ARES_ACTOR_OPTIONS);

#define ARES_OPTIM_OPTIONS(X)                                                                  \
    X(f64, lr, "lr", "1e-6", "[0,)", "peak learning rate")                                     \
    X(f64s, betas, "betas", "[0.9, 0.999]", "[0,1)#2", "of AdamW's moments")                   \
    X(f64, eps, "eps", "1e-8", "(0,)", "AdamW's")                                              \
    X(f64, weight_decay, "weight_decay", "1e-2", "[0,)", "decoupled; not on norms and biases") \
    X(choice, strategy, "strategy", "adamw", "adamw|adamw_bf16",                               \
      "adamw_bf16: weights and states in bf16, with a Kahan sum of what rounding leaves out")  \
    X(choice, scheduler, "lr_scheduler_type", "constant", "constant|linear|cosine",            \
      "shape of the learning rate behind the warm-up")                                         \
    X(f64, warmup_ratio, "lr_warmup_ratio", "0.0", "[0,1]", "share of all steps")              \
    X(i64, warmup_steps, "lr_warmup_steps", "null", "[0,)", "wins over the ratio")             \
    X(f64, min_lr_ratio, "min_lr_ratio", "null", "[0,1]",                                      \
      "learning rate at the end, as a share of lr (linear, cosine); null is 0")
ARES_OPTION_STRUCT(ares_optim_config, ARES_OPTIM_OPTIONS);

#define ARES_CRITIC_OPTIONS(X)                                                                 \
    X(text, model_path, "model.model_path", "null", "nonempty",                                \
      "what the critic starts from, its head apart; null: the actor's")                        \
    X(choice, dtype, "fsdp.torch_dtype", "fp32", "?fp32=float32|bf16=bfloat16",                \
      "storage of its weights, null is fp32; arithmetic and states are fp32")                  \
    X(flag, gradient_checkpointing, "model.enable_gradient_checkpointing", "true", "",         \
      "compute blocks again in backward; changes memory and speed, no result", ARES_NO_RESULT) \
    X(i64, global_batch_size, "global_batch_size", "null", "[1,)",                             \
      "prompts of an optimizer step, over all ranks; null: the actor's")                       \
    X(i64, ppo_epochs, "ppo_epochs", "1", "[1,)", "passes over the batch")                     \
    X(f64, max_grad_norm, "max_grad_norm", "1.0", "(0,)", "of the whole gradient")             \
    X(f64, cliprange_value, "cliprange_value", "0.5", "(0,)",                                  \
      "how far a value may move from the old one before its error stops teaching")             \
    X(choice, loss_avg_mode, "loss_avg_mode", "token-mean",                                    \
      "token-mean=token|seq-mean-token-mean=seq|seq-mean-token-sum|seq-mean-token-sum-norm",   \
      "how token losses become one; counts are global")                                        \
    X(i64, max_token_len, "max_token_len_per_device", "1024", "[1,)",                          \
      "tokens of a micro-batch; changes memory and speed, no result", ARES_NO_RESULT)          \
    X(flag, share_prompts, "share_prompts", "true", "", "the prompt of a group is computed once")
ARES_OPTION_STRUCT(ares_critic_config, ARES_CRITIC_OPTIONS);

#define ARES_REF_OPTIONS(X)                                                     \
    X(choice, dtype, "fsdp.torch_dtype", "fp32", "?fp32=float32|bf16=bfloat16", \
      "storage of the reference's weights; null is bf16")
ARES_OPTION_STRUCT(ares_ref_config, ARES_REF_OPTIONS);

#define ARES_ROLLOUT_OPTIONS(X)                                                                    \
    X(i64, n, "n", "1", "[1,)", "samples of a prompt")                                             \
    X(f64, temperature, "temperature", "1.0", "[0,)",                                              \
      "of sampling, and of the losses; 0 is greedy")                                               \
    X(f64, top_p, "top_p", "1.0", "(0,1]", "nucleus; 1 is off")                                    \
    X(i64, top_k, "top_k", "-1", "-1|[1,)", "most likely tokens; -1 is off")                       \
    X(i64, seed, "seed", "1", "[0,)", "of sampling")                                               \
    X(flag, ignore_eos, "ignore_eos", "false", "", "sample on behind end-of-sequence tokens")      \
    X(texts, stop, "stop", "[]", "nonempty",                                                       \
      "strings that end a response; the token that completes one is kept")                         \
    X(i64s, stop_token_ids, "stop_token_ids", "[]", "[0,)",                                        \
      "ids that end a response, on top of the model's own")                                        \
    X(i64, max_num_seqs, "max_num_seqs", "128", "[1,)",                                            \
      "samples decoded at once; changes speed, no result", ARES_NO_RESULT)                         \
    X(i64, max_num_batched_tokens, "max_num_batched_tokens", "null", "[1,)",                       \
      "tokens of one forward; changes speed, no result; null: 2048", ARES_NO_RESULT)               \
    X(i64, max_model_len, "max_model_len", "null", "[2,)",                                         \
      "prompt and response; null: the sum of data.max_*_length")                                   \
    X(choice, entropy_mode, "entropy_mode", "full", "full|topk_tail",                              \
      "of the entropies at temperature 1 that aepo looks at: exact, or from the likeliest tokens " \
      "and one bucket for the rest, as published")                                                 \
    X(i64, entropy_topk, "entropy_topk", "10", "[1,64]",                                           \
      "likeliest tokens of topk_tail; the sampled one is added")                                   \
    X(text, trigger_tokens_file, "trigger_tokens_file", "null", "nonempty",                        \
      "JSON array of words: only they count as high-entropy tokens, as published "                 \
      "(examples/trigger_words.json); null: every token may")                                      \
    X(choice, trigger_match, "trigger_match", "argmax", "argmax|sampled",                          \
      "whose text is compared with them: the likeliest token's, as published, or the sampled "     \
      "one's")                                                                                     \
    X(i64, cache_tokens, "cache_tokens", "null", "[64,)",                                          \
      "size of the kv cache; null: what max_num_seqs full samples need, within 6 GiB",             \
      ARES_NO_RESULT)                                                                              \
    X(flag, enable_prefix_caching, "enable_prefix_caching", "true", "",                            \
      "find tokens of a prompt that are in the KV cache already, of another prompt with the same " \
      "beginning, instead of computing them; changes no result",                                   \
      ARES_NO_RESULT)                                                                              \
    X(tree, val_override, "val_override_config", "{}", "map",                                      \
      "n, do_sample, temperature, top_p, top_k, max_new_tokens (at most "                          \
      "data.max_response_length) of validation; n is 1 unless set here")
ARES_OPTION_STRUCT(ares_rollout_config, ARES_ROLLOUT_OPTIONS);

#define ARES_TRAINER_OPTIONS(X)                                                                   \
    X(text, project_name, "project_name", "ares", "nonempty", "first part of the run directory")  \
    X(text, experiment_name, "experiment_name", "demo", "nonempty",                               \
      "second part of the run directory")                                                         \
    X(text, run_dir, "run_dir", "null", "", "null: runs/<project_name>/<experiment_name>")        \
    X(i64, total_epochs, "total_epochs", "15", "[1,)", "passes over the training rows")           \
    X(i64, max_steps, "max_steps", "null", "[0,)", "null: as many as the epochs give")            \
    X(text, device, "device", "cpu", "nonempty",                                                  \
      "cpu; cuda, a card for each rank of a machine; cuda:1")                                     \
    X(i64, threads, "threads", "null", "[1,)",                                                    \
      "null: the CPUs at hand, shared by the ranks of this machine; changes speed, no result",    \
      ARES_NO_RESULT)                                                                             \
    X(texts, logger, "logger", "[console, tensorboard]",                                          \
      "console|file|tensorboard|wandb|mlflow|swanlab",                                            \
      "metrics.jsonl is always written; wandb, mlflow, swanlab: TensorBoard files, which they "   \
      "import",                                                                                   \
      ARES_NO_RESULT)                                                                             \
    X(flag, balance_batch, "balance_batch", "true", "",                                           \
      "ranks share the work of each mini-batch evenly, in whole groups; false: groups are dealt " \
      "out in turn")                                                                              \
    X(i64, val_freq, "val_freq", "-1", "-1|[1,)", "steps between validations; -1: never")         \
    X(flag, val_before_train, "val_before_train", "true", "",                                     \
      "validate before the first step, also of a run that goes on from a step that was not "      \
      "validated")                                                                                \
    X(flag, val_only, "val_only", "false", "",                                                    \
      "validate what load_checkpoint_path names, else the latest checkpoint, else the model; "    \
      "print the result and write nothing")                                                       \
    X(i64, val_generations, "val_generations_to_log", "0", "[0,)",                                \
      "validation samples shown in TensorBoard", ARES_NO_RESULT)                                  \
    X(i64, save_freq, "save_freq", "-1", "-1|[1,)",                                               \
      "steps between checkpoints that are kept; -1: at the end only", ARES_NO_RESULT)             \
    X(f64, save_minutes, "save_minutes", "10", "?(0,)",                                           \
      "minutes between states to go on from after a crash, of which one is kept beside those of " \
      "save_freq; null: off",                                                                     \
      ARES_NO_RESULT)                                                                             \
    X(i64, save_limit, "save_limit", "-1", "-1|[1,)",                                             \
      "checkpoints of save_freq kept, the newest and the best among them; -1: all",               \
      ARES_NO_RESULT)                                                                             \
    X(i64, critic_warmup, "critic_warmup", "0", "[0,)", "steps in which only the critic learns")  \
    X(i64, max_try_make_batch, "max_try_make_batch", "20", "",                                    \
      "draws of prompts for one batch at most, where filters drop groups; 0: no limit")           \
    X(flag, save_model_only, "save_model_only", "false", "",                                      \
      "checkpoints of save_freq without optimizer states: smaller, and no run can go on from "    \
      "them; that of save_minutes has them",                                                      \
      ARES_NO_RESULT)                                                                             \
    X(text, load_checkpoint, "load_checkpoint_path", "null", "",                                  \
      "a checkpoint, or a run directory, to go on from where this run has no checkpoint of its "  \
      "own; none there: a fresh start",                                                           \
      ARES_NO_RESULT)                                                                             \
    X(flag, find_last_checkpoint, "find_last_checkpoint", "true", "",                             \
      "go on from the run directory's latest checkpoint; false: refuse to where there is one",    \
      ARES_NO_RESULT)                                                                             \
    X(flag, force, "force", "false", "",                                                          \
      "go on though data set, model or options are not those of the state (the word --force)",    \
      ARES_NO_RESULT)
ARES_OPTION_STRUCT(ares_trainer_config, ARES_TRAINER_OPTIONS);

#define ARES_SFT_OPTIONS(X)                                                                     \
    X(i64, batch_size, "batch_size", "64", "[1,)", "rows of an optimizer step, over all ranks") \
    X(i64, max_length, "max_length", "2048", "[2,)", "tokens of a row")                         \
    X(choice, truncation, "truncation", "drop", "drop|cut|error",                               \
      "what becomes of longer rows; dropped and cut ones are counted")                          \
    X(text, response_key, "response_key", "response", "nonempty",                               \
      "key of the answer to data.prompt_key: a string")                                         \
    X(text, messages_key, "messages_key", "messages", "nonempty",                               \
      "key of a conversation; wins over prompt and answer where a row has it")
ARES_OPTION_STRUCT(ares_sft_config, ARES_SFT_OPTIONS);

/*
 * Keys of EasyR1 and ARES that name what is settled otherwise here: their values are checked
 * (published.c).
 */
#define ARES_PUBLISHED_OPTIONS(X)                                                                  \
    X(flag, hybrid_engine, "worker.hybrid_engine", "true", "",                                     \
      "actor and rollout share their weights; false is refused")                                   \
    X(choice, actor_strategy, "worker.actor.strategy", "fsdp", "fsdp|fsdp2|megatron",              \
      "has no effect: one process a card holds all weights", ARES_NO_RESULT)                       \
    X(choice, critic_strategy, "worker.critic.strategy", "fsdp", "fsdp|fsdp2|megatron",            \
      "has no effect", ARES_NO_RESULT)                                                             \
    X(choice, ref_strategy, "worker.ref.strategy", "fsdp", "fsdp|fsdp2|megatron", "has no effect", \
      ARES_NO_RESULT)                                                                              \
    X(i64, actor_ulysses, "worker.actor.ulysses_size", "1", "[1,)",                                \
      "ranks that share a sequence; above 1 is refused")                                           \
    X(i64, critic_ulysses, "worker.critic.ulysses_size", "1", "[1,)", "the same")                  \
    X(i64, ref_ulysses, "worker.ref.ulysses_size", "1", "[1,)", "the same")                        \
    X(i64, actor_micro_experience, "worker.actor.micro_batch_size_per_device_for_experience",      \
      "null", "[1,)", "checked against the batch; max_token_len_per_device cuts micro-batches",    \
      ARES_NO_RESULT)                                                                              \
    X(i64, critic_micro_update, "worker.critic.micro_batch_size_per_device_for_update", "null",    \
      "[1,)", "the same", ARES_NO_RESULT)                                                          \
    X(i64, critic_micro_experience, "worker.critic.micro_batch_size_per_device_for_experience",    \
      "null", "[1,)", "the same", ARES_NO_RESULT)                                                  \
    X(tree, actor_override, "worker.actor.model.override_config", "{}", "map",                     \
      "a model's config.json says what it is; members are refused")                                \
    X(tree, critic_override, "worker.critic.model.override_config", "{}", "map", "the same")       \
    X(i64, actor_lora, "worker.actor.model.lora.rank", "0", "[0,)",                                \
      "all weights are trained; above 0 is refused")                                               \
    X(i64, critic_lora, "worker.critic.model.lora.rank", "0", "[0,)", "the same")                  \
    X(flag, actor_offload, "worker.actor.fsdp.enable_cpu_offload", "false", "",                    \
      "has no effect: weights stay on the device", ARES_NO_RESULT)                                 \
    X(flag, critic_offload, "worker.critic.fsdp.enable_cpu_offload", "false", "", "the same",      \
      ARES_NO_RESULT)                                                                              \
    X(choice, rollout_name, "worker.rollout.name", "native", "native|vllm|sglang|hf",              \
      "the rollout engine is always this program's own", ARES_NO_RESULT)                           \
    X(i64, tensor_parallel_size, "worker.rollout.tensor_parallel_size", "null", "[1,)",            \
      "checked against the ranks; each holds the whole model and rolls out by itself",             \
      ARES_NO_RESULT)                                                                              \
    X(tree, chunked_prefill, "worker.rollout.enable_chunked_prefill", "null", "flag",              \
      "prompts are always cut; false: max_num_batched_tokens must hold a whole sequence",          \
      ARES_NO_RESULT)                                                                              \
    X(i64, nnodes, "trainer.nnodes", "null", "[1,)",                                               \
      "machines; with n_gpus_per_node checked against the ranks started")                          \
    X(i64, n_gpus_per_node, "trainer.n_gpus_per_node", "null", "[1,)",                             \
      "ranks of a machine; null: as many as --ranks or mpirun start")
ARES_OPTION_STRUCT(ares_published_config, ARES_PUBLISHED_OPTIONS);

/*
 * DAPO's words that stand for several options: translated into them before anything is bound
 * (dapo.c).
 */
#define ARES_DAPO_OPTIONS(X)                                                                      \
    X(choice, name, "algorithm.name", "null", "dapo",                                             \
      "a preset: dapo sets what its paper and RLinf's page say, where nothing else does")         \
    X(i64, n_minibatches, "algorithm.n_minibatches", "null", "[1,)",                              \
      "mini-batches of a batch; becomes worker.actor.global_batch_size")                          \
    X(tree, calculate_entropy, "algorithm.calculate_entropy", "null", "flag",                     \
      "false: no entropy bonus, whatever worker.actor.entropy_coeff says; null: true, but false " \
      "where that is written algorithm.entropy_bonus, as in RLinf")                               \
    X(flag, overlong_enable, "worker.reward.overlong_buffer.enable", "false", "",                 \
      "a penalty of length as verl spells it; becomes worker.reward.safe_length, max_length and " \
      "len_reward_penalty")                                                                       \
    X(i64, overlong_len, "worker.reward.overlong_buffer.len", "null", "[0,)",                     \
      "tokens before the longest answer, where the penalty grows")                                \
    X(f64, overlong_factor, "worker.reward.overlong_buffer.penalty_factor", "null", "[0,)",       \
      "the full penalty; null: 1.0")                                                              \
    X(i64, overlong_longest, "worker.reward.overlong_buffer.max_resp_len", "null", "[1,)",        \
      "the longest answer; null: data.max_response_length")
ARES_OPTION_STRUCT(ares_dapo_config, ARES_DAPO_OPTIONS);

typedef struct ares_train_config {
    ares_data_config data;
    ares_algorithm_config algorithm;
    ares_filter_config filter;
    ares_loss_config loss;
    ares_actor_config actor;
    ares_optim_config optim;
    ares_ref_config ref;
    ares_critic_config critic;
    ares_optim_config critic_optim;
    ares_rollout_config rollout;
    ares_reward_config reward;
    ares_trainer_config trainer;
    ares_published_config published;
    ares_dapo_config dapo;
    ares_sft_config sft; /* of supervised runs only */
    void *controls[8];   /* options of each entry of ares_control_list, in its order */
} ares_train_config;
/* Declares the names that other trainers have for options. (options/aliases.c) */
void ares_train_add_aliases(ares_config *cfg);
/*
 * Declares every option of training (sections, aliases, choices of the tables) on cfg, bound into
 * out. (options/declared.c)
 */
void ares_train_config_declare(ares_config *cfg, ares_train_config *out);
/*
 * After ares_config_resolve: checks relations between options, and the options of table entries;
 * reports all faults at once. world: the number of ranks that the run will have.
 */
int ares_train_config_check(ares_config *cfg, const ares_train_config *c, int world);
/*
 * Ranks that trainer.nnodes and n_gpus_per_node name; 1 where they name none. For a check without a
 * launch. (options/published.c)
 */
int ares_train_named_ranks(const ares_train_config *c);

/*
 * Adds a fault where a run of local_ranks processes on this machine cannot fit into its memory or
 * its cards. Reads config.json, no weight, and opens no device. words: receives what a process
 * holds, as text. reinforcement: count reference and critic, where the options ask for them.
 * (run/memory.c)
 */
void ares_train_memory_check(ares_config *cfg, const ares_train_config *c, int local_ranks,
                             bool reinforcement, ares_str *words);

/*
 * ---------------- numbers that follow from the options (run/sizes.c;
 * docs/update.md#sizes-that-follow-from-the-options)
 */
/*
 * Steps of a run. examples: rows of the training set; drawn: prompts of one draw (ARES_NULL_I64: as
 * many as a batch). max_steps ARES_NULL_I64: as many steps as the epochs give.
 */
int64_t ares_train_total_steps(int64_t examples, int64_t drawn, int64_t batch, int64_t epochs,
                               int64_t max_steps);
/*
 * Of one optimizer step: samples over all ranks, samples per rank, micro-batches per rank (0 where
 * micro is 0); and optimizer steps per training step.
 */
typedef struct ares_train_sizes {
    int64_t global_samples, per_device, accumulation, updates;
} ares_train_sizes;
ares_train_sizes ares_train_sizes_of(int64_t batch, int64_t mini_batch, int64_t n, int64_t world,
                                     int64_t ulysses, int64_t micro);
/* Sizes of a model that its floating-point operations follow from. */
typedef struct ares_flops_config {
    int64_t hidden, vocab, layers, heads, kv_heads, intermediate;
    int64_t head_dim; /* 0: hidden / heads */
} ares_flops_config;
/*
 * TFLOP/s of forward and backward over some sequences. tokens, squares: the sum of their lengths,
 * and of the squares of these
 */
double ares_train_tflops(const ares_flops_config *c, double tokens, double squares, double seconds);
/*
 * The cost of a pass over sequences, as a whole number to compare groups by. Unit: what attention
 * costs for a pair of tokens.
 */
int64_t ares_train_work(const ares_model_config *m, int64_t tokens, int64_t squares);
/* TFLOP/s of dense bf16 products on the card of this name; infinite where it is not known */
double ares_train_peak_tflops(const char *card);
double ares_train_card_bytes(const char *card); /* its memory; infinite where it is not known */

/* ---------------- parts of a run that other verbs use */
/*
 * Log-probs and entropies (NULL: not wanted) of rows [row, end) under a model, at
 * rollout.temperature: what rollout recorded, bit for bit. Of cfg it also reads
 * actor.max_token_len and actor.share_prompts. (roles/learner.c)
 */
int ares_train_log_probs(ares_model *m, ares_workspace *w, const ares_train_config *cfg,
                         const ares_batch *b, int64_t row, int64_t end, float *log_probs,
                         float *entropies);
/* Copies the tokenizer and generation files of a model directory. (run/state.c) */
int ares_train_copy_tokenizer(const char *from, const char *to);

/* ---------------- runs */
/* Trains from a checked configuration until done, stopped or failed. */
int ares_train_run(ares_config *cfg, const ares_train_config *c, ares_world *world);
/* Validation alone. output (may be NULL): a file to write every answer to, as JSON lines. */
int ares_eval_run(ares_config *cfg, const ares_train_config *c, ares_world *world,
                  const char *output);

/*
 * ---------------- supervised fine-tuning (sft/)
 *
 * Rows of {prompt, response} or {messages}. The loss is the mean of -log p over all tokens of the
 * step that the assistant wrote, its end token included. Its own options are sft.*; those of data,
 * model, optimizer and trainer are as above.
 */
/* The options sft.*, besides those of ares_train_config_declare. */
void ares_sft_declare(ares_config *cfg, ares_train_config *out);
int ares_sft_check(ares_config *cfg, const ares_train_config *c, int world);
int ares_sft_run(ares_config *cfg, const ares_train_config *c, ares_world *world);
#endif
