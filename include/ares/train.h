/* train: the options of a run, and runs: by rewards, supervised, or validation alone. */
#ifndef ARES_TRAIN_H
#define ARES_TRAIN_H

#include "ares/algo.h"
#include "ares/algo_distill.h"
#include "ares/algo_filter.h"
#include "ares/algo_loss.h"
#include "ares/config.h"
#include "ares/core.h"
#include "ares/data.h"
#include "ares/data_source.h"
#include "ares/dist.h"
#include "ares/io.h"
#include "ares/model.h"
#include "ares/reward.h"
#include "ares/rollout.h"
#include "ares/serve_tinker.h"

/* ---------------- options (docs/design.md#option-names) */
#define ARES_ACTOR_OPTIONS(X)                                                                     \
    X(text, model_path, "model.model_path", "???", "nonempty",                                    \
      "the model to train: a model, checkpoint or run directory")                                 \
    X(text, tokenizer_path, "model.tokenizer_path", "null", "",                                   \
      "directory of the tokenizer; null: the one of model_path")                                  \
    X(text, eos_token, "model.eos_token", "null", "nonempty",                                     \
      "token that ends an answer, beside those that the files of model and tokenizer name, and "  \
      "that is put after plain answers of supervised rows; null: those of the files alone")       \
    X(f64, parameters, "model.parameters", "null", "[1,)",                                        \
      "number of parameters, so that --check can compute memory where the model directory is "    \
      "not there; null: as its config.json says",                                                 \
      ARES_NO_RESULT)                                                                             \
    X(flag, gradient_checkpointing, "model.enable_gradient_checkpointing", "false", "",           \
      "keep only the inputs of the blocks and compute the rest again in the backward pass; less " \
      "memory, slower, same results",                                                             \
      ARES_NO_RESULT)                                                                             \
    X(flag, freeze_vision, "model.freeze_vision_tower", "true", "",                               \
      "of a vision model: the tower, its merger included, keeps its weights, gets no adapters, "  \
      "and what it makes of an image is kept over steps")                                         \
    X(texts, trainable, "model.trainable", "null", "nonempty",                                    \
      "expressions that are searched in the names of parameters, such as lm_head or "             \
      "'layers\\.(22|23)\\.': those with a match are trained, the others keep their weights; "    \
      "null: all are trained")                                                                    \
    X(choice, arithmetic, "arithmetic", "null", "?fp32=float32|bf16=bfloat16",                    \
      "how products are computed; bf16: both factors are rounded to bf16, sums are fp32, and "    \
      "weights and the KV cache take half the memory; null: fp32; on a card and with "            \
      "trainer.kernels: aten as fsdp.torch_dtype")                                                \
    X(choice, dtype, "fsdp.torch_dtype", "null", "?fp32=float32|bf16=bfloat16",                   \
      "how the weights are stored; null: as worker.actor.arithmetic says, and bf16 on a card; "   \
      "bf16 keeps an fp32 copy for the optimizer")                                                \
    X(tree, full_shard, "fsdp.enable_full_shard", "null", "flag",                                 \
      "true: each of several ranks keeps its part of the actor's weights and gradients; "         \
      "blocks are gathered twice per optimizer step and computed again; null, false: of "         \
      "its optimizer states alone; same results",                                                 \
      ARES_NO_RESULT)                                                                             \
    X(i64, fsdp_size, "fsdp.fsdp_size", "-1", "?-1|[1,)",                                         \
      "how many neighbouring ranks share the actor, as enable_full_shard says, such as those of " \
      "a machine: -1, null, all ranks or more: all; 1: each rank keeps everything, with the "     \
      "same results; a divisor of all ranks between, which changes the last bits of sums as the " \
      "number of ranks does",                                                                     \
      ARES_NO_RESULT)                                                                             \
    X(flag, offload_params, "offload.offload_params", "false", "",                                \
      "keep the actor's weights in host memory; they come to the device block by block, twice "   \
      "per optimizer step; blocks are computed again in the backward pass, and rollout decodes "  \
      "with a copy of its own, which a card has in memory that training uses too; same results",  \
      ARES_NO_RESULT)                                                                             \
    X(flag, offload_optimizer, "offload.offload_optimizer", "false", "",                          \
      "keep the actor's optimizer states in host memory; they come to the device piece by piece " \
      "in an optimizer step, and go back; same results",                                          \
      ARES_NO_RESULT)                                                                             \
    X(i64, global_batch_size, "global_batch_size", "256", "[1,)",                                 \
      "prompts per optimizer step, over all ranks; rows where worker.actor.mini_batch_unit says " \
      "so")                                                                                       \
    X(choice, mini_batch_unit, "mini_batch_unit", "prompts", "prompts|rows",                      \
      "what worker.actor.global_batch_size counts: prompts with all their samples, or single "    \
      "rows, where the samples of a prompt may be divided between two optimizer steps")           \
    X(i64, max_token_len, "max_token_len_per_device", "1024", "[1,)",                             \
      "tokens per micro-batch at most; changes memory and speed, no result; where it is not set " \
      "a card takes what fits, up to 16384",                                                      \
      ARES_NO_RESULT)                                                                             \
    X(i64, round_tokens, "round_tokens", "null", "[1,)",                                          \
      "tokens per round of a rank at most: micro-batches of a mini-batch that go through the "    \
      "model together where weights come block by block (enable_full_shard, offload_params), "    \
      "which keep the inputs of all blocks, and whose gradients ranks sum by themselves; null: "  \
      "the mini-batch is one round")                                                              \
    X(i64, micro_batch_size, "micro_batch_size_per_device_for_update", "null", "[1,)",            \
      "samples per micro-batch where loss_norm: micro and early_stop_scope: micro count them; "   \
      "the computation itself is cut by max_token_len_per_device")                                \
    X(flag, share_prompts, "share_prompts", "true", "",                                           \
      "compute the prompt that the samples of a group share once per group in the update")        \
    X(flag, skip_zero_gradients, "skip_zero_gradients", "true", "",                               \
      "leave tokens out of the backward pass where all derivatives of the loss are exactly 0, "   \
      "such as groups of equal rewards without a KL or entropy term; also of the critic; the "    \
      "CPU's native kernels do, others compute everything; same results",                         \
      ARES_NO_RESULT)                                                                             \
    X(i64, ppo_epochs, "ppo_epochs", "1", "[1,)", "passes over the batch")                        \
    X(f64, max_grad_norm, "max_grad_norm", "1.0", "(0,)",                                         \
      "largest global norm of the gradients; larger ones are scaled down to it")                  \
    X(flag, shuffle, "shuffle", "false", "",                                                      \
      "put the groups in a random order before the batch is cut into mini-batches")               \
    X(flag, recompute_log_probs, "recompute_log_probs", "false", "",                              \
      "compute the old log-probs of every group with the trainer; false: only of groups whose "   \
      "tokens or weights are not those of the rollout any more, and take the log-probs of the "   \
      "rollout elsewhere")
ARES_OPTION_STRUCT(ares_actor_config, ARES_ACTOR_OPTIONS);

#define ARES_OPTIM_OPTIONS(X)                                                                     \
    X(f64, lr, "lr", "1e-6", "[0,)", "peak learning rate", ARES_SCHEDULED)                        \
    X(f64s, betas, "betas", "[0.9, 0.999]", "[0,1)#2",                                            \
      "decay rates of AdamW's first and second moment")                                           \
    X(f64, eps, "eps", "1e-8", "(0,)", "AdamW's epsilon, added to the root of the second moment") \
    X(f64, weight_decay, "weight_decay", "1e-2", "[0,)",                                          \
      "decoupled weight decay; not applied to norms and biases", ARES_SCHEDULED)                  \
    X(choice, strategy, "strategy", "adamw", "adamw|adamw_bf16",                                  \
      "adamw: states in fp32; adamw_bf16: weights and states in bf16, with a Kahan sum of what "  \
      "rounding leaves out")                                                                      \
    X(choice, scheduler, "lr_scheduler_type", "constant", "constant|linear|cosine",               \
      "shape of the learning rate after the warm-up")                                             \
    X(f64, warmup_ratio, "lr_warmup_ratio", "0.0", "[0,1]",                                       \
      "length of the warm-up as a share of all steps; unused where lr_warmup_steps is set")       \
    X(i64, warmup_steps, "lr_warmup_steps", "null", "[0,)",                                       \
      "length of the warm-up in steps; null: lr_warmup_ratio decides")                            \
    X(f64, min_lr_ratio, "min_lr_ratio", "null", "[0,1]",                                         \
      "learning rate at the end as a share of lr (linear, cosine); null is 0")
ARES_OPTION_STRUCT(ares_optim_config, ARES_OPTIM_OPTIONS);

#define ARES_CRITIC_OPTIONS(X)                                                                     \
    X(text, model_path, "model.model_path", "null", "nonempty",                                    \
      "the model that the critic starts from (its value head is new): a model, checkpoint or "     \
      "run directory; null: worker.actor.model.model_path")                                        \
    X(texts, trainable, "model.trainable", "null", "nonempty",                                     \
      "expressions that are searched in the names of parameters, such as lm_head or "              \
      "'layers\\.(22|23)\\.': those with a match are trained, the others keep their weights; "     \
      "null: all are trained")                                                                     \
    X(choice, arithmetic, "arithmetic", "null", "?fp32=float32|bf16=bfloat16",                     \
      "how the critic's products are computed; null: as worker.actor.arithmetic")                  \
    X(choice, dtype, "fsdp.torch_dtype", "null", "?fp32=float32|bf16=bfloat16",                    \
      "how the critic's weights are stored; null: as worker.critic.arithmetic says; bf16 keeps "   \
      "an fp32 copy for the optimizer")                                                            \
    X(tree, full_shard, "fsdp.enable_full_shard", "null", "flag",                                  \
      "true: each of several ranks keeps its part of the critic's weights and gradients; "         \
      "blocks are gathered twice per optimizer step and computed again; null, false: of "          \
      "its optimizer states alone; same results",                                                  \
      ARES_NO_RESULT)                                                                              \
    X(i64, fsdp_size, "fsdp.fsdp_size", "-1", "?-1|[1,)",                                          \
      "how many neighbouring ranks share the critic, as enable_full_shard says, such as those of " \
      "a machine: -1, null, all ranks or more: all; 1: each rank keeps everything, with the "      \
      "same results; a divisor of all ranks between, which changes the last bits of sums as the "  \
      "number of ranks does",                                                                      \
      ARES_NO_RESULT)                                                                              \
    X(flag, gradient_checkpointing, "model.enable_gradient_checkpointing", "true", "",             \
      "keep only the inputs of the blocks and compute the rest again in the backward pass; less "  \
      "memory, slower, same results",                                                              \
      ARES_NO_RESULT)                                                                              \
    X(i64, global_batch_size, "global_batch_size", "null", "[1,)",                                 \
      "prompts, or rows, per optimizer step over all ranks; null: that of worker.actor")           \
    X(choice, mini_batch_unit, "mini_batch_unit", "null", "?prompts|rows",                         \
      "what worker.critic.global_batch_size counts; null: worker.actor.mini_batch_unit")           \
    X(i64, ppo_epochs, "ppo_epochs", "1", "[1,)", "passes over the batch")                         \
    X(f64, max_grad_norm, "max_grad_norm", "1.0", "(0,)",                                          \
      "largest global norm of the gradients; larger ones are scaled down to it")                   \
    X(f64, cliprange_value, "cliprange_value", "0.5", "(0,)",                                      \
      "how far a value may move from the old one in an update (the clipped value loss of PPO)")    \
    X(choice, loss_avg_mode, "loss_avg_mode", "token-mean",                                        \
      "token-mean=token|seq-mean-token-mean=seq|seq-mean-token-sum|seq-mean-token-sum-norm",       \
      "how the losses of tokens become one number; tokens and sequences are counted over all "     \
      "ranks")                                                                                     \
    X(i64, max_token_len, "max_token_len_per_device", "1024", "[1,)",                              \
      "tokens per micro-batch at most; changes memory and speed, no result; where it is not set "  \
      "a card takes what fits, up to 16384",                                                       \
      ARES_NO_RESULT)                                                                              \
    X(i64, round_tokens, "round_tokens", "null", "[1,)",                                           \
      "as worker.actor.round_tokens, of the critic's update")                                      \
    X(flag, share_prompts, "share_prompts", "true", "",                                            \
      "compute the prompt that the samples of a group share once per group in the update")         \
    X(flag, offload_params, "offload.offload_params", "false", "",                                 \
      "keep the critic's weights in host memory; they come to the device block by block, once "    \
      "per pass over the batch and twice per optimizer step; blocks are computed again in the "    \
      "backward pass; same results",                                                               \
      ARES_NO_RESULT)                                                                              \
    X(flag, offload_optimizer, "offload.offload_optimizer", "false", "",                           \
      "keep the critic's optimizer states in host memory; they come to the device piece by "       \
      "piece in an optimizer step, and go back; same results",                                     \
      ARES_NO_RESULT)
ARES_OPTION_STRUCT(ares_critic_config, ARES_CRITIC_OPTIONS);

#define ARES_REF_OPTIONS(X)                                                        \
    X(text, model_path, "model.model_path", "null", "nonempty",                    \
      "the reference model: a model, checkpoint or run directory; null: the one "  \
      "that training starts from")                                                 \
    X(choice, adapter, "model.adapter", "start", "start|none",                     \
      "beside worker.actor.model.lora.adapter_path: the reference is the policy "  \
      "as it starts, or the model without its adapter")                            \
    X(choice, arithmetic, "arithmetic", "null", "?fp32=float32|bf16=bfloat16",     \
      "how the reference's products are computed; null: as "                       \
      "worker.actor.arithmetic")                                                   \
    X(choice, dtype, "fsdp.torch_dtype", "null", "?fp32=float32|bf16=bfloat16",    \
      "how the weights of the reference model are stored; null: as "               \
      "worker.ref.arithmetic says")                                                \
    X(tree, full_shard, "fsdp.enable_full_shard", "null", "flag",                  \
      "true: each of several ranks keeps its part of the reference's weights; "    \
      "blocks are gathered once per pass over the batch; same results",            \
      ARES_NO_RESULT)                                                              \
    X(i64, fsdp_size, "fsdp.fsdp_size", "-1", "?-1|[1,)",                          \
      "how many neighbouring ranks share the reference, with enable_full_shard: "  \
      "-1, null, all ranks or more: all; a divisor of all ranks; 1: each has "     \
      "all of it; same results",                                                   \
      ARES_NO_RESULT)                                                              \
    X(flag, offload_params, "offload.offload_params", "false", "",                 \
      "keep the weights of the reference in host memory; they come to the device " \
      "block by block, once per pass over the batch; same results",                \
      ARES_NO_RESULT)
ARES_OPTION_STRUCT(ares_ref_config, ARES_REF_OPTIONS);

#define ARES_ROLLOUT_OPTIONS(X)                                                                 \
    X(i64, n, "n", "1", "[1,)", "samples per prompt")                                           \
    X(f64, temperature, "temperature", "1.0", "[0,)",                                           \
      "sampling temperature, also used by the losses; 0 is greedy")                             \
    X(f64, top_p, "top_p", "1.0", "(0,1]",                                                      \
      "nucleus sampling: the share of probability that is sampled from; 1 is off")              \
    X(i64, top_k, "top_k", "-1", "-1|[1,)", "sample from the k likeliest tokens; -1 is off")    \
    X(i64, seed, "seed", "1", "[0,)", "seed of sampling")                                       \
    X(flag, ignore_eos, "ignore_eos", "false", "",                                              \
      "continue sampling after an end-of-sequence token")                                       \
    X(texts, stop, "stop", "[]", "nonempty",                                                    \
      "strings that end a response; the token that completes one is kept")                      \
    X(i64s, stop_token_ids, "stop_token_ids", "[]", "[0,)",                                     \
      "token ids that end a response, beside the model's own")                                  \
    X(i64, max_num_seqs, "max_num_seqs", "128", "[1,)",                                         \
      "samples decoded at once; changes speed, no result; where it is not set a card takes "    \
      "what fits, up to 512",                                                                   \
      ARES_NO_RESULT)                                                                           \
    X(i64, max_num_batched_tokens, "max_num_batched_tokens", "null", "[1,)",                    \
      "tokens per forward pass at most; changes speed, no result; null: 2048", ARES_NO_RESULT)  \
    X(i64, max_model_len, "max_model_len", "null", "[2,)",                                      \
      "tokens of prompt and response together at most; null: data.max_prompt_length + "         \
      "data.max_response_length, in environments once for each turn that a prompt shows "       \
      "(env.max_turns, env.max_context_window); never more than the model's positions")         \
    X(choice, entropy_mode, "entropy_mode", "full", "full|topk_tail",                           \
      "the token entropies (temperature 1) that aepo reads: full: exact; topk_tail: from the "  \
      "likeliest tokens and one bucket for all others, as in the published code")               \
    X(i64, entropy_topk, "entropy_topk", "10", "[1,64]",                                        \
      "entropy_mode topk_tail: number of likeliest tokens; the sampled token is added to them") \
    X(text, trigger_tokens_file, "trigger_tokens_file", "null", "nonempty",                     \
      "JSON array of words; only they count as high-entropy tokens, as in the published code "  \
      "(examples/trigger_words.json); null: every token may count")                             \
    X(choice, trigger_match, "trigger_match", "argmax", "argmax|sampled",                       \
      "which token is compared with the words of trigger_tokens_file: argmax: the likeliest "   \
      "one, as in the published code; sampled: the sampled one")                                \
    X(i64, cache_tokens, "cache_tokens", "null", "[64,)",                                       \
      "tokens that fit in the KV cache; changes speed, no result; null: what max_num_seqs "     \
      "samples of full length need, or on a card as much as training takes in turn, within "    \
      "6 GiB (CPU) or gpu_memory_utilization (card)",                                           \
      ARES_NO_RESULT)                                                                           \
    X(f64, gpu_memory_utilization, "gpu_memory_utilization", "0.6", "(0,1]",                    \
      "on a card, the KV cache with everything that stays there takes at most this share of "   \
      "its memory, unless cache_tokens is set; the memory in which training takes turns with "  \
      "it may be larger; no effect on the CPU",                                                 \
      ARES_NO_RESULT)                                                                           \
    X(flag, enable_prefix_caching, "enable_prefix_caching", "true", "",                         \
      "take the tokens at the beginning of a prompt that are in the KV cache already, from a "  \
      "prompt with the same beginning, instead of computing them; changes speed, no result",    \
      ARES_NO_RESULT)                                                                           \
    X(i64, state_snapshots, "state_snapshots", "null", "[0,65536]",                             \
      "of a model with delta nets: states that are kept where prompts and answers end, for "    \
      "who goes on from there, beside those of samples that are decoded; changes speed, no "    \
      "result; null: as many as max_num_seqs (docs/model.md#gated-delta-nets)",                 \
      ARES_NO_RESULT)                                                                           \
    X(choice, speculation, "speculation", "auto", "none|auto",                                  \
      "auto: where few samples are decoded and it pays by what was right so far, the next "     \
      "tokens are guessed from places in the prompt and in the answers of the group where the " \
      "last ones stood before, and several are computed in one pass; changes speed, no result " \
      "(docs/performance.md#speculation); on a card, or with kernels aten, nothing is guessed", \
      ARES_NO_RESULT)                                                                           \
    X(i64, tensor_parallel_size, "tensor_parallel_size", "null", "[1,)",                        \
      "ranks that decode as one: each computes its share of every matrix's outputs and keeps "  \
      "its share of the KV cache (docs/ranks.md#tensor-parallelism); must divide the number "   \
      "of ranks and the model's heads, kv heads, hidden and intermediate sizes; changes no "    \
      "result; null: 1, each rank decodes by itself",                                           \
      ARES_NO_RESULT)                                                                           \
    X(i64, limit_images, "limit_images", "0", "[0,)",                                           \
      "images of a row at most; a row with more is an error; 0: any number")                    \
    X(tree, val_override, "val_override_config", "{}", "map",                                   \
      "sampling of validation, a map of n, do_sample, temperature, top_p, top_k and "           \
      "max_new_tokens (at most data.max_response_length); n is 1 unless set here")
ARES_OPTION_STRUCT(ares_rollout_config, ARES_ROLLOUT_OPTIONS);

#define ARES_TRAINER_OPTIONS(X)                                                                   \
    X(text, project_name, "project_name", "ares", "nonempty",                                     \
      "first part of the default run directory")                                                  \
    X(text, experiment_name, "experiment_name", "demo", "nonempty",                               \
      "second part of the default run directory")                                                 \
    X(text, run_dir, "run_dir", "null", "",                                                       \
      "where checkpoints, metrics and logs are written; null: "                                   \
      "runs/<project_name>/<experiment_name>")                                                    \
    X(i64, total_epochs, "total_epochs", "15", "[1,)", "passes over the training rows")           \
    X(i64, max_steps, "max_steps", "null", "[0,)",                                                \
      "training steps at most; null: as many as total_epochs gives. A larger number lengthens a " \
      "run, also one that is finished")                                                           \
    X(text, device, "device", "cpu", "nonempty",                                                  \
      "cpu; cuda: one GPU for each rank of a machine; cuda:1: that GPU")                          \
    X(choice, kernels, "kernels", "native", "native|aten",                                        \
      "whose arithmetic: native: that of ares-train; aten: the operators of libtorch, on one "    \
      "thread; slower, and equal to native within the error of float32. On device cpu only: on "  \
      "a card native takes products and attention from libtorch already")                         \
    X(i64, threads, "threads", "null", "[1,)",                                                    \
      "CPU threads; changes speed, no result; null: all CPUs at hand, divided among the ranks "   \
      "of the machine",                                                                           \
      ARES_NO_RESULT)                                                                             \
    X(f64, comm_timeout, "comm_timeout_s", "600", "?[0,)",                                        \
      "seconds that a rank waits for the others before it ends the run and says which rank does " \
      "not come; more than the longest time that ranks may be apart, such as in answering their " \
      "prompts; 0 or null: for ever (docs/ranks.md)",                                             \
      ARES_NO_RESULT)                                                                             \
    X(choice, comm_transport, "comm_transport", "auto", "auto|staged|nccl",                       \
      "what moves bytes between the cards of ranks: nccl; staged: MPI, over host memory; auto: "  \
      "nccl where every rank has a card of its own and libnccl.so.2 is found, else staged "       \
      "(docs/ranks.md)",                                                                          \
      ARES_NO_RESULT)                                                                             \
    X(texts, logger, "logger", "[console, tensorboard]",                                          \
      "console|file|tensorboard|trackio|mlflow|wandb",                                            \
      "where metrics go beside metrics.jsonl, which is always written (file: nothing else); "     \
      "trackio, mlflow and wandb write the files that those programs open (docs/trackers.md)",    \
      ARES_NO_RESULT)                                                                             \
    X(choice, progress, "progress", "auto", "auto|line|none",                                     \
      "what the console shows between two steps, of rank 0's share: auto: on a terminal a line "  \
      "that moves, else line: a line of the log every 30 s at most; none: nothing",               \
      ARES_NO_RESULT)                                                                             \
    X(flag, balance_batch, "balance_batch", "true", "",                                           \
      "true: share the work of each mini-batch evenly among the ranks, in whole groups; where "   \
      "mini-batches count rows, also make each of rows of like length, as verl does, unless "     \
      "worker.actor.shuffle is true; false: deal the groups out in turn, and leave the rows in "  \
      "their order")                                                                              \
    X(i64, val_freq, "val_freq", "-1", "-1|[0,)",                                                 \
      "steps between validations; -1: only one at the end, where there are rows for it; 0: none") \
    X(flag, val_before_train, "val_before_train", "true", "",                                     \
      "validate before the first step, also when a run goes on from a step that was not "         \
      "validated")                                                                                \
    X(flag, val_only, "val_only", "false", "",                                                    \
      "only validate the checkpoint of load_checkpoint_path, else the latest checkpoint, else "   \
      "the model; print the result and write nothing")                                            \
    X(i64, val_generations, "val_generations_to_log", "0", "[0,)",                                \
      "validation samples shown in TensorBoard", ARES_NO_RESULT)                                  \
    X(choice, rollout_log, "rollout_log", "tokens", "none|text|tokens",                           \
      "what rollouts/step_*.jsonl hold of the answers: text: texts, scores and advantages; "      \
      "tokens: also log-probs, entropies, ratios and more of each token "                         \
      "(docs/runs.md#columns-of-tokens); "                                                        \
      "none: no such files",                                                                      \
      ARES_NO_RESULT)                                                                             \
    X(i64, rollout_log_freq, "rollout_log_freq", "1", "[1,)",                                     \
      "steps between two of these files; the first and the last step always have one",            \
      ARES_NO_RESULT)                                                                             \
    X(i64, rollout_log_tokens, "rollout_log_tokens", "16384", "-1|[1,)",                          \
      "rollout_log tokens: of how many response tokens of a step, over all ranks: whole groups, " \
      "those with the widest spread of advantages first, and at least one; -1: of all",           \
      ARES_NO_RESULT)                                                                             \
    X(i64, save_freq, "save_freq", "-1", "-1|[1,)",                                               \
      "steps between checkpoints that are kept; -1: only one at the end", ARES_NO_RESULT)         \
    X(f64, save_minutes, "save_minutes", "10", "?(0,)",                                           \
      "minutes between states to go on from after a crash; only the latest is kept, beside the "  \
      "checkpoints of save_freq; null: off",                                                      \
      ARES_NO_RESULT)                                                                             \
    X(flag, save_async, "save_async", "false", "",                                                \
      "checkpoints are copied and written while the run goes on, which takes as much memory as "  \
      "a rank writes of one; its failure ends the run a step later; same results",                \
      ARES_NO_RESULT)                                                                             \
    X(i64, save_limit, "save_limit", "-1", "-1|[1,)",                                             \
      "checkpoints of save_freq to keep: the newest ones and the best one; -1: all",              \
      ARES_NO_RESULT)                                                                             \
    X(i64, critic_warmup, "critic_warmup", "0", "[0,)",                                           \
      "first steps, in which only the critic learns")                                             \
    X(i64, max_try_make_batch, "max_try_make_batch", "20", "",                                    \
      "draws of prompts for one batch at most, where filters drop groups; 0: no limit")           \
    X(flag, save_model_only, "save_model_only", "false", "",                                      \
      "checkpoints of save_freq without optimizer states: smaller, but no run can go on from "    \
      "them; the state of save_minutes keeps them",                                               \
      ARES_NO_RESULT)                                                                             \
    X(flag, report, "report", "true", "",                                                         \
      "write report.html into the run directory at the end: verdicts, curves, answers by token, " \
      "as "                                                                                       \
      "ares-train report does (docs/report.md)",                                                  \
      ARES_NO_RESULT)                                                                             \
    X(text, load_checkpoint, "load_checkpoint_path", "null", "",                                  \
      "a checkpoint or run directory to go on from where this run has no checkpoint of its own",  \
      ARES_NO_RESULT)                                                                             \
    X(flag, find_last_checkpoint, "find_last_checkpoint", "true", "",                             \
      "true: go on from the latest checkpoint of the run directory; false: refuse to run where "  \
      "there is one",                                                                             \
      ARES_NO_RESULT)                                                                             \
    X(flag, force, "force", "false", "",                                                          \
      "go on although the data set, the model or the options are not those of the state (same "   \
      "as the command line option --force)",                                                      \
      ARES_NO_RESULT)
ARES_OPTION_STRUCT(ares_trainer_config, ARES_TRAINER_OPTIONS);

#define ARES_GRADIENTS_OPTIONS(X)                                                                 \
    X(i64, every, "every", "0", "[0,)",                                                           \
      "measure in step 1 and every so many steps after it the gradient that each term of the "    \
      "loss has for groups of similar reward deviation (metrics grad_norm/*, "                    \
      "docs/diagnostics.md); costs a forward and backward pass per term, twice; 0: never")        \
    X(i64, buckets, "buckets", "6", "[1,)",                                                       \
      "buckets of equally many groups, in ascending order of their rewards' standard deviation")  \
    X(choice, bucket_mode, "bucket_mode", "quantile", "quantile|fixed=fixed_rv",                  \
      "quantile: buckets of equally many groups; fixed: groups whose standard deviation lies in " \
      "[0,1), [1,2), [2,3), [3,4), [4,5), and 5 or more")                                         \
    X(flag, only, "only", "false", "",                                                            \
      "measure, and train nothing: neither the policy nor the critic is updated in any step")
ARES_OPTION_STRUCT(ares_gradients_config, ARES_GRADIENTS_OPTIONS);

/* ---------------- curriculum.* (docs/curriculum.md#over-sampling-and-partial-rollouts) */
#define ARES_OVERSAMPLING_OPTIONS(X)                                                               \
    X(i64, batch, "over_sampling_batch_size", "null", "[1,)",                                      \
      "prompts that are drawn together, at least data.rollout_batch_size; the groups that end "    \
      "first make the batch; null: with partial_rollout that size, else draws are answered as a "  \
      "whole")                                                                                     \
    X(i64, max_fetches, "max_fetches_per_rollout", "0", "[0,)",                                    \
      "draws of over_sampling_batch_size prompts for one batch at most, before the run ends with " \
      "an error; 0: no limit")                                                                     \
    X(flag, recycle_surplus, "recycle_surplus", "false", "",                                       \
      "groups that end together with the last of the batch, and have no place in it, are for "     \
      "the next batch; false: they are left out, and their prompts count as drawn")                \
    X(flag, partial, "partial_rollout", "false", "",                                               \
      "answers that have not ended when the batch is full go on in the next step; false: they "    \
      "are left out, and their prompts count as drawn")                                            \
    X(flag, mask_offpolicy, "mask_offpolicy_in_partial_rollout", "false", "",                      \
      "do not train on the tokens that an answer had before it went on")                           \
    X(choice, old_log_probs, "partial.old_log_probs", "recompute", "recompute|stored",             \
      "old log-probs of tokens of earlier weights: recompute: under the weights that the step "    \
      "begins with; stored: as they were sampled")
ARES_OPTION_STRUCT(ares_oversampling_config, ARES_OVERSAMPLING_OPTIONS);

/*
 * Words of slime's curriculum that stand for other options, translated into those before anything
 * is bound (options/presets.c).
 */
#define ARES_SLIME_OPTIONS(X)                                                                      \
    X(i64, samples, "worker.actor.global_batch_samples", "null", "[1,)",                           \
      "samples per optimizer step over all ranks, as slime counts them; sets "                     \
      "worker.actor.global_batch_size")                                                            \
    X(text, rm_type, "curriculum.rm_type", "null", "nonempty",                                     \
      "verifier of rows that name none; sets worker.reward.rewards to [{name: auto, rm_type: "     \
      "..}]")                                                                                      \
    X(text, custom_rm, "curriculum.custom_rm_path", "null", "",                                    \
      "async_rm_math_if, with or without the path of slime's example: sets worker.reward.rewards " \
      "to [{name: auto}]; no other function is known")
ARES_OPTION_STRUCT(ares_slime_config, ARES_SLIME_OPTIONS);

/* ---------------- evaluation: eval.* (docs/curriculum.md#evaluation) */
#define ARES_EVAL_OPTIONS(X)                                                                     \
    X(tree, defaults, "defaults", "{}", "map",                                                   \
      "what data sets of eval.datasets have in common, under the same names")                    \
    X(tree, datasets, "datasets", "[]", "list|map",                                              \
      "data sets that are evaluated where a validation is due: a list of maps with name, path, " \
      "rm_type, input_key, label_key, n_samples_per_eval_prompt, temperature, top_p, top_k, "    \
      "max_response_len, stop, stop_token_ids, metadata_overrides; or a map from names to such " \
      "maps")
ARES_OPTION_STRUCT(ares_eval_config, ARES_EVAL_OPTIONS);

/* ---------------- environments: env.* (docs/environments.md#training) */
#define ARES_AGENTS_OPTIONS(X)                                                                     \
    X(i64, max_turns, "max_turns", "5", "[1,10000]",                                               \
      "turns of an episode; an environment that has not ended by then counts as not solved")       \
    X(i64, max_actions_per_turn, "max_actions_per_turn", "2", "[1,)",                              \
      "actions that are taken from one answer; further ones are left out")                         \
    X(text, action_separator, "action_separator", "||", "nonempty",                                \
      "what stands between the actions of an answer")                                              \
    X(flag, enable_think, "enable_think", "true", "",                                              \
      "answers begin with a thought in <think> tags; false: with the answer")                      \
    X(f64, format_penalty, "format_penalty", "-0.1", "[-1e30,1e30]",                               \
      "added to an episode's score for each turn with an unknown action, or with none")            \
    X(choice, on_failure, "on_failure", "discard", "discard|score",                                \
      "an episode whose environment failed (its program died, was late, answered nonsense): "      \
      "discard: no part of its group's comparison and of the loss; score: failure_score")          \
    X(f64, failure_score, "failure_score", "null", "[-1e30,1e30]",                                 \
      "with on_failure: score, the score of a failed episode; null: what it had until then")       \
    X(f64, max_failed_frac, "max_failed_frac", "0.5", "[0,1]",                                     \
      "a step in which a larger share of the episodes failed ends the run, saved")                 \
    X(flag, token_exact, "token_exact", "false", "",                                               \
      "train on the tokens that were sampled, with the chat template's text between them; false: " \
      "on the conversation's text, written anew and encoded as a whole, as in RAGEN")              \
    X(flag, train_text_include_warning, "train_text_include_warning", "true", "",                  \
      "token_exact: false: keep the warning about an answer without action in the text that is "   \
      "trained on; false: leave it out, as in RAGEN")                                              \
    X(flag, enable_response_mask, "enable_response_mask", "true", "",                              \
      "token_exact: false: train on the model's messages only; false: on everything after the "    \
      "system message")                                                                            \
    X(flag, mask_template_tokens, "mask_template_tokens", "true", "",                              \
      "token_exact: false: train on the template's tokens around an answer too, as in RAGEN: the " \
      "role and the first tag before it, the newline and the beginning of the next message after " \
      "it; false: only on what the model writes and the token that ends it")                       \
    X(flag, use_turn_scores, "use_turn_scores", "false", "",                                       \
      "the reward of each turn stands where the turn ends, without penalties; false: their sum "   \
      "stands at the end of the episode")                                                          \
    X(choice, context_window_mode, "context_window_mode", "full",                                  \
      "full|limited_multi_turn|single_turn",                                                       \
      "what a prompt shows: full: all turns; limited_multi_turn: the last turns; single_turn: "    \
      "the last turns as a digest; a turn is a row of its own in the last two")                    \
    X(i64, max_context_window, "max_context_window", "-1", "-1|[1,)",                              \
      "turns that a prompt shows, the present one included, where context_window_mode is not "     \
      "full; -1: all")                                                                             \
    X(choice, normalization_grouping, "reward_normalization.grouping", "state",                    \
      "state|inductive|batch",                                                                     \
      "among which episodes scores are normalised: state: of a group; inductive: of a tag; "       \
      "batch: all")                                                                                \
    X(choice, normalization, "reward_normalization.method", "identity",                            \
      "identity|mean|mean_std|asym_clip",                                                          \
      "identity: none; mean: minus the mean; mean_std: also divided by the standard deviation; "   \
      "asym_clip: that, within -1 and 3; filters see the score as it was")
ARES_OPTION_STRUCT(ares_agents_config, ARES_AGENTS_OPTIONS);

#define ARES_AGENT_SIDE_OPTIONS(X, GROUPS, GROUP_SIZE, SEED, OF)                                   \
    X(texts, tags, "tags", "[]", "nonempty",                                                       \
      "environments of " OF ", by the names of env.definitions; [] for none")                      \
    X(i64, groups, "groups", GROUPS, "[1,1000000]", "groups of environments of " OF)               \
    X(i64s, n_groups, "n_groups", "[]", "[1,1000000]", "groups of each tag; []: the same for all") \
    X(i64, group_size, "group_size", GROUP_SIZE, "[1,1000000]",                                    \
      "environments of a group, which all begin alike")                                            \
    X(i64, seed, "seed", SEED, "[0,)",                                                             \
      "seed of the first group; each group after it has the next number")
#define ARES_AGENT_TRAIN_GROUPS "8"
#define ARES_AGENT_TRAIN_GROUP_SIZE "16"
#define ARES_AGENT_TRAIN_OPTIONS(X)                                                           \
    ARES_AGENT_SIDE_OPTIONS(X, ARES_AGENT_TRAIN_GROUPS, ARES_AGENT_TRAIN_GROUP_SIZE, "10000", \
                            "a training step")
#define ARES_AGENT_VAL_OPTIONS(X) ARES_AGENT_SIDE_OPTIONS(X, "512", "1", "123", "a validation")
ARES_OPTION_STRUCT(ares_agent_side_config, ARES_AGENT_TRAIN_OPTIONS);

#define ARES_SFT_OPTIONS(X)                                                                     \
    X(i64, batch_size, "batch_size", "64", "[1,)", "rows per optimizer step, over all ranks")   \
    X(i64, max_length, "max_length", "2048", "[2,)", "tokens of a row at most")                 \
    X(choice, truncation, "truncation", "drop", "drop|cut|error",                               \
      "what happens to longer rows: drop or cut them (both are counted), or end with an error") \
    X(text, response_key, "response_key", "response", "nonempty",                               \
      "key of the answer to data.prompt_key, a string")                                         \
    X(text, messages_key, "messages_key", "messages", "nonempty",                               \
      "key of a conversation; used instead of prompt and answer where a row has it")
ARES_OPTION_STRUCT(ares_sft_config, ARES_SFT_OPTIONS);

/*
 * Options of EasyR1 and of ARES for which this program has no choice: their values are checked
 * (options/presets.c).
 */
#define ARES_PUBLISHED_OPTIONS(X)                                                                 \
    X(flag, hybrid_engine, "worker.hybrid_engine", "true", "",                                    \
      "whether actor and rollout share their weights; they always do: false is refused")          \
    X(choice, actor_reduce, "worker.actor.fsdp.mp_reduce_dtype", "fp32",                          \
      "fp32=float32|bf16=bfloat16|fp16=float16",                                                  \
      "in what gradients leave a rank; always fp32, added in double: others are refused")         \
    X(choice, critic_reduce, "worker.critic.fsdp.mp_reduce_dtype", "fp32",                        \
      "fp32=float32|bf16=bfloat16|fp16=float16",                                                  \
      "in what gradients leave a rank; always fp32, added in double: others are refused")         \
    X(i64, actor_ulysses, "worker.actor.ulysses_size", "1", "[1,)",                               \
      "ranks that share a sequence; has no effect here, because each rank computes whole ones: "  \
      "docs/ranks.md#long-rows says what holds a long one",                                       \
      ARES_NO_RESULT)                                                                             \
    X(i64, critic_ulysses, "worker.critic.ulysses_size", "1", "[1,)",                             \
      "ranks that share a sequence; has no effect here, because each rank computes whole ones: "  \
      "docs/ranks.md#long-rows says what holds a long one",                                       \
      ARES_NO_RESULT)                                                                             \
    X(i64, ref_ulysses, "worker.ref.ulysses_size", "1", "[1,)",                                   \
      "ranks that share a sequence; has no effect here, because each rank computes whole ones: "  \
      "docs/ranks.md#long-rows says what holds a long one",                                       \
      ARES_NO_RESULT)                                                                             \
    X(i64, actor_micro_experience, "worker.actor.micro_batch_size_per_device_for_experience",     \
      "null", "[1,)",                                                                             \
      "must divide the samples of a batch; otherwise has no effect because micro-batches are "    \
      "cut by max_token_len_per_device",                                                          \
      ARES_NO_RESULT)                                                                             \
    X(i64, critic_micro_update, "worker.critic.micro_batch_size_per_device_for_update", "null",   \
      "[1,)",                                                                                     \
      "must divide a rank's samples of an optimizer step; otherwise has no effect because "       \
      "micro-batches are cut by max_token_len_per_device",                                        \
      ARES_NO_RESULT)                                                                             \
    X(i64, critic_micro_experience, "worker.critic.micro_batch_size_per_device_for_experience",   \
      "null", "[1,)",                                                                             \
      "must divide the samples of a batch; otherwise has no effect because micro-batches are "    \
      "cut by max_token_len_per_device",                                                          \
      ARES_NO_RESULT)                                                                             \
    X(tree, actor_override, "worker.actor.model.override_config", "{}", "map",                    \
      "in place of the model's config.json: max_position_embeddings, the tokens of a prompt and " \
      "its response at most; dropouts of 0 are accepted; nothing else can be changed")            \
    X(tree, chunked_prefill, "worker.rollout.enable_chunked_prefill", "null", "flag",             \
      "prompts are always computed in chunks; with false, max_num_batched_tokens must hold a "    \
      "prompt and response of full length",                                                       \
      ARES_NO_RESULT)                                                                             \
    X(i64, nnodes, "trainer.nnodes", "null", "[1,)",                                              \
      "machines; with n_gpus_per_node it is checked against the ranks that were started")         \
    X(i64, n_gpus_per_node, "trainer.n_gpus_per_node", "null", "[1,)",                            \
      "ranks per machine, checked against the ranks that were started; null: as many as --ranks " \
      "or mpirun start")
ARES_OPTION_STRUCT(ares_published_config, ARES_PUBLISHED_OPTIONS);

/*
 * Words of DAPO's configurations that stand for several options: translated into those before
 * anything is bound (options/presets.c).
 */
#define ARES_DAPO_OPTIONS(X)                                                                      \
    X(choice, name, "algorithm.name", "null", "dapo|vapor",                                       \
      "a preset: dapo sets the options of the DAPO paper and of RLinf that nothing else sets, "   \
      "vapor the loss of VAPOR (docs/vapor.md)")                                                  \
    X(i64, n_minibatches, "algorithm.n_minibatches", "null", "[1,)",                              \
      "mini-batches per batch; sets worker.actor.global_batch_size")                              \
    X(tree, calculate_entropy, "algorithm.calculate_entropy", "null", "flag",                     \
      "false: no entropy bonus, whatever worker.actor.entropy_coeff says; null: true, but false " \
      "where the coefficient is written algorithm.entropy_bonus, as in RLinf")                    \
    X(flag, overlong_enable, "worker.reward.overlong_buffer.enable", "false", "",                 \
      "verl's penalty of long responses; sets worker.reward.safe_length, max_length and "         \
      "len_reward_penalty")                                                                       \
    X(i64, overlong_len, "worker.reward.overlong_buffer.len", "null", "[0,)",                     \
      "width of the zone before max_resp_len in which the penalty grows, in tokens")              \
    X(f64, overlong_factor, "worker.reward.overlong_buffer.penalty_factor", "null", "[0,)",       \
      "penalty at max_resp_len and beyond; null: 1.0")                                            \
    X(i64, overlong_longest, "worker.reward.overlong_buffer.max_resp_len", "null", "[1,)",        \
      "tokens of the longest response without the full penalty; null: data.max_response_length")
ARES_OPTION_STRUCT(ares_dapo_config, ARES_DAPO_OPTIONS);

typedef struct ares_train_config {
    ares_data_config data;
    ares_curriculum_config curriculum;
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
    ares_collapse_config collapse;
    ares_gradients_config gradients;
    ares_oversampling_config oversampling;
    ares_eval_config eval;
    ares_slime_config slime;

    ares_agents_config agents;
    ares_agent_side_config agents_train, agents_val;
    ares_lora_options actor_lora, critic_lora;
    ares_published_config published;
    ares_dapo_config dapo;
    ares_vapor_config vapor;
    ares_distillation_config distillation;
    ares_sft_config sft; /* of supervised runs only */
    void *controls[8];   /* options of each entry of ares_control_list, in its order */
} ares_train_config;
/*
 * Declares every option of training (sections, aliases, choices of the tables) on cfg, bound into
 * out. (options/options.c)
 */
void ares_train_config_declare(ares_config *cfg, ares_train_config *out);
/*
 * After ares_config_resolve: checks relations between options, and the options of table entries;
 * reports all faults at once. world: the number of ranks that the run will have.
 */
int ares_train_config_check(ares_config *cfg, const ares_train_config *c, int world);
/*
 * Ranks that trainer.nnodes and n_gpus_per_node name; 1 where they name none. For a check without a
 * launch. (options/presets.c)
 */
int ares_train_named_ranks(const ares_train_config *c);

/*
 * Adds a fault where a run of ranks, local_ranks of them on this machine, cannot fit into its
 * memory or its cards. Reads config.json, no weight, and opens no device. words: receives what a
 * process holds, as text. reinforcement: count reference and critic, where the options ask for
 * them. (plan/plan.c)
 */
void ares_train_memory_check(ares_config *cfg, const ares_train_config *c, int ranks,
                             int local_ranks, bool reinforcement, ares_str *words);

typedef struct ares_plan_options {
    int ranks, local_ranks;
    double memory; /* bytes of a rank; 0: of this machine */
    bool json, supervised;
} ares_plan_options;
/*
 * What a rank of the run holds and sends, as a table or JSON into out; ARES_ELIMIT where it does
 * not fit, with the options that would make it fit. Reads config.json alone. (plan/plan.c)
 */
int ares_train_plan(ares_config *cfg, const ares_train_config *c, const ares_plan_options *o,
                    ares_str *out);
/*
 * ARES_ELIMIT where a checked configuration does not fit this machine with rows of full length;
 * otherwise words receives what a process needs, if its config.json can be read. A run that starts
 * on the CPU is only warned: there memory is taken as rows get long, and they may stay short.
 */
int ares_train_plan_check(ares_config *cfg, const ares_train_config *c, int ranks, int local_ranks,
                          bool reinforcement, bool starts, ares_str *words);
/*
 * Notes a fault of trainer.logger for each tracker that could not be written on this machine: to be
 * called on rank 0, which writes them, before faults are reported. (run/start.c)
 */
void ares_train_check_trackers(ares_config *cfg, const ares_train_config *c);
/*
 * Checks the files that a run reads, weights apart: the first rows of each data file, tokenizer and
 * chat template, and trainer.load_checkpoint_path. Where rows or the model are not on this machine
 * it only warns: the configuration may be meant for another one. (run/start.c)
 */
int ares_train_check_files(ares_config *cfg, const ares_train_config *c);

/*
 * Starts each of the user's programs once: a reward program with the first row, an environment with
 * a reset. ARES_ECHILD: one does not work. (run/start.c)
 */
int ares_train_try_programs(ares_config *cfg, const ares_train_config *c);

/*
 * Opens and closes what a run of a checked configuration opens before its first step, by the same
 * functions, but no weight: model and tokenizer, rows, environments, rewards, controls, the engine.
 * What fails here would have failed there. (trainer.c)
 */
int ares_train_rehearse(ares_config *cfg, const ares_train_config *c, int ranks);

/* ---------------- parts of a run that other verbs use */
/*
 * Log-probs and entropies (NULL: not wanted) of rows [row, end) under a model, with an adapter
 * (NULL: alone; ares_workspace_adapt has been called for its rank), at
 * rollout.temperature: what rollout recorded, bit for bit. Of cfg it also reads
 * actor.max_token_len and actor.share_prompts. features: of images and videos; NULL: the rows are
 * text. A model that is a slice gives every rank of its group the bits of the whole model; all of
 * them call it with the same rows. (learner.c)
 */
int ares_train_log_probs(ares_model *m, ares_adapter *adapter, ares_workspace *w,
                         ares_features *features, const ares_train_config *cfg, const ares_batch *b,
                         int64_t row, int64_t end, float *log_probs, float *entropies);
/*
 * What the server of Tinker's API trains with: adapters beside a frozen model, whose folder is
 * base_dir, that share one set of buffers (tinker.c). max_token_len: tokens, and log-probs, of a
 * pass at most, which only a single datum may exceed; it changes memory and speed, no result. The
 * model stays the caller's, and its device has no allocation of phases (ares_phases_open), because
 * gradients outlive decoding. Close: after all models and snapshots are freed.
 */
int ares_train_tinker_open(ares_model *m, const char *base_dir, int64_t max_token_len,
                           ares_tinker_learner *out);
void ares_train_tinker_close(ares_tinker_learner *l);
/* Copies the tokenizer and generation files of a model directory. (run/checkpoint.c) */
int ares_train_copy_tokenizer(const char *from, const char *to);

/* ---------------- runs */
typedef enum {
    ARES_RUN_NONE,       /* no run yet, or a start of other options that made no step */
    ARES_RUN_UNFINISHED, /* this run; the same command goes on */
    ARES_RUN_FINISHED,   /* this run; its DONE has the hash of these options */
    ARES_RUN_CHANGED     /* a run with other options */
} ares_run_state;
/* Appends the path of the run directory: trainer.run_dir, or the default. (run/rundir.c) */
void ares_run_path(const ares_train_config *c, ares_str *path);
/*
 * What the run directory of a resolved configuration holds. changed: gets the options that differ,
 * with both values (ARES_RUN_CHANGED). Takes no lock, writes nothing. (run/rundir.c)
 */
int ares_run_inspect(const ares_config *cfg, const ares_train_config *c, ares_run_state *state,
                     ares_str *changed);
/*
 * A collective, called before anything depends on the options. Fails on all ranks where a rank was
 * started with another program, command (the verb and what it is to do) or configuration than rank
 * 0; names the rank, the option and both values. Paths of models and trainer.threads may differ.
 * What models and files hold is compared later, by the run. (run/start.c)
 */
int ares_train_same_start(const ares_config *cfg, const char *command, ares_world *world);
/* Trains from a checked configuration until done, stopped or failed. */
int ares_train_run(ares_config *cfg, const ares_train_config *c, ares_world *world);
/* Validation alone. output (may be NULL): a file to write every answer to, as JSON lines. */
int ares_eval_run(ares_config *cfg, const ares_train_config *c, ares_world *world,
                  const char *output);

typedef struct ares_verify_options {
    const char *run_dir;
    int64_t step; /* -1: the latest of which there are rollouts and the state that it began with */
    int64_t rows; /* of logits, over all ranks */
    const char *const *words; /* [n_words] overrides that change no result, and paths */
    int n_words;
} ares_verify_options;
/*
 * Makes a step of a run again, from the state that it began with and without its update, and
 * compares what is sampled with what the run has written; then decoding with the training forward
 * (docs/exactness.md). Writes nothing into the run directory, and takes no lock there. out: on rank
 * 0, the table of what was compared, also of a step that differs. ARES_ESTATE: something differs;
 * ARES_EUSE: nothing was compared; both say what. A collective. (run/verify.c)
 */
int ares_verify_run(const ares_verify_options *o, ares_world *world, ares_str *out);

/*
 * ---------------- supervised fine-tuning (sft.c)
 *
 * Rows of {prompt, response} or {messages}. The loss is the mean of -log p over all tokens of the
 * step that the assistant wrote, its end token included. Its own options are sft.*; those of data,
 * model, optimizer and trainer are as above.
 */
/* The options sft.*, besides those of ares_train_config_declare. */
void ares_sft_declare(ares_config *cfg, ares_train_config *out);
int ares_sft_check(ares_config *cfg, const ares_train_config *c, int world);
int ares_sft_check_files(ares_config *cfg, const ares_train_config *c); /* as for runs by reward */
int ares_sft_run(ares_config *cfg, const ares_train_config *c, ares_world *world);
#endif
