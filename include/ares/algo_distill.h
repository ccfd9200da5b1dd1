/*
 * algo: distillation (docs/distillation.md). The options, and the pure functions of tokens, weights
 * and metrics. The divergence over the vocabulary is computed by the head (ares/kernels.h); what a
 * teacher reads is made by train (src/train/teacher_texts.h).
 */
#ifndef ARES_ALGO_DISTILL_H
#define ARES_ALGO_DISTILL_H

#include "ares/algo_loss.h"
#include "ares/config.h"
#include "ares/data.h"
#include "ares/dist.h"

/* ---------------- options: distillation.* */
#define ARES_DISTILLATION_OPTIONS(X)                                                               \
    X(flag, enabled, "enabled", "false", "",                                                       \
      "learn from a teacher's distribution at each token of the student's answers "                \
      "(docs/distillation.md)")                                                                    \
    X(text, teacher_path, "teacher_model.model_path", "null", "nonempty",                          \
      "the teacher: a model, checkpoint or run directory with the student's tokens; null: the "    \
      "policy itself, as teacher_model.kind says")                                                 \
    X(choice, kind, "teacher_model.kind", "live", "live|base|ema",                                 \
      "model_path null: which weights teach: live: the policy's as they are; base: those that "    \
      "training starts from; ema: a moving average of the policy's")                               \
    X(f64, update_rate, "teacher_model.update_rate", "0.05", "(0,1]",                              \
      "kind ema: share of the policy in the moved teacher")                                        \
    X(i64, sync_steps, "teacher_model.sync_steps", "1", "[1,)",                                    \
      "kind ema: training steps from one move of the teacher to the next")                         \
    X(choice, dtype, "teacher_model.fsdp.torch_dtype", "fp32", "?fp32=float32|bf16=bfloat16",      \
      "how the weights of the teacher are stored; null is bf16; kind live has the actor's own")    \
    X(tree, full_shard, "teacher_model.fsdp.enable_full_shard", "null", "flag",                    \
      "true: each of several ranks keeps its part of the teacher's weights; blocks are gathered "  \
      "once per pass over the batch; same results",                                                \
      ARES_NO_RESULT)                                                                              \
    X(i64, fsdp_size, "teacher_model.fsdp.fsdp_size", "-1", "?-1|[1,)",                            \
      "how many neighbouring ranks share the teacher, with enable_full_shard: -1, null, all "      \
      "ranks or more: all; a divisor of all ranks; 1: each has all of it; same results",           \
      ARES_NO_RESULT)                                                                              \
    X(flag, offload_params, "teacher_model.offload.offload_params", "false", "",                   \
      "keep the weights of the teacher in host memory; they come to the device block by block, "   \
      "once per pass over the batch; same results",                                                \
      ARES_NO_RESULT)                                                                              \
    X(choice, loss_mode, "distillation_loss.loss_mode", "jsd",                                     \
      "jsd|k1=kl|k2=mse|k3=low_var_kl=low-var-kl|abs|k1+=kl+|k2+=mse+|"                            \
      "k3+=low_var_kl+=low-var-kl+|abs+",                                                          \
      "jsd: the divergence over the whole vocabulary (distillation_loss.beta says which); others " \
      "estimate the reverse KL from the sampled token, as algorithm.kl_penalty does")              \
    X(f64, beta, "distillation_loss.beta", "1.0", "[0,1]",                                         \
      "jsd: 0 is the forward KL(teacher || student), 1 the reverse KL(student || teacher); "       \
      "between, the teacher's share of the mixture of the Jensen-Shannon divergence")              \
    X(f64, temperature, "distillation_loss.temperature", "null", "(0,)",                           \
      "jsd: temperature of both softmaxes; null: worker.rollout.temperature")                      \
    X(flag, use_task_rewards, "distillation_loss.use_task_rewards", "false", "",                   \
      "add the divergence to the policy loss; false: the teacher alone teaches")                   \
    X(f64, coef, "distillation_loss.distillation_loss_coef", "1.0", "[0,)",                        \
      "use_task_rewards: weight of the divergence, or of the teacher's advantage", ARES_SCHEDULED) \
    X(flag, use_policy_gradient, "distillation_loss.use_policy_gradient", "false", "",             \
      "with loss_mode k1: log teacher - log student of the sampled token is an advantage of the "  \
      "policy loss")                                                                               \
    X(f64, kl_discount_factor, "distillation_loss.kl_discount_factor", "0.0", "[0,1]",             \
      "use_policy_gradient: a token's advantage is also of later tokens' log-ratios, with this "   \
      "discount; 0: of its own alone")                                                             \
    X(f64, loss_max_clamp, "distillation_loss.loss_max_clamp", "null", "(0,)",                     \
      "bound of a token's divergence or log-ratio, of either sign; null: none")                    \
    X(f64, is_clip, "distillation_loss.is_clip", "null", "(0,)",                                   \
      "jsd, k2, k3: multiply the divergence by the ratio of the policy to the one that sampled, "  \
      "at most this; null: no weight")                                                             \
    X(i64, skip_tokens, "distillation_loss.num_loss_tokens_to_skip", "0", "[0,)",                  \
      "first tokens of an answer that learn nothing from the teacher")                             \
    X(flag, positive_only, "positive_advantage_only", "false", "",                                 \
      "use_task_rewards: learn from the teacher only where the task's advantage is above 0")       \
    X(f64, lmbda, "lmbda", "1.0", "[0,1]",                                                         \
      "share of prompts that the student answers; the others are learnt from their stored "        \
      "answers under response_key")                                                                \
    X(text, response_key, "response_key", "response", "nonempty",                                  \
      "lmbda: key of a row's stored answer")                                                       \
    X(choice, context, "context", "none", "none|row=sdft=opsd|group=sdpo",                         \
      "what the teacher reads and the student does not: none: nothing; row: the row's "            \
      "privileged_context_key; group: a right answer of the group, or feedback")                   \
    X(text, context_key, "privileged_context_key", "privileged_context", "nonempty",               \
      "key of a row's context, or a path as in reward_model.ground_truth")                         \
    X(text, prompt_template, "teacher_prompt_template", "\"{prompt}\\n\\n{privileged_context}\"",  \
      "nonempty", "context row: text of the teacher's last message")                               \
    X(text, reprompt_template, "reprompt_template",                                                \
      "\"{prompt}{solution}{feedback}\\n\\nCorrectly solve the original question.\\n\"",           \
      "nonempty", "context group: text of the teacher's last message")                             \
    X(text, solution_template, "solution_template",                                                \
      "\"\\nCorrect solution:\\n\\n{successful_previous_attempt}\\n\\n\"", "nonempty",             \
      "context group: how an answer of the group is shown, {solution} of reprompt_template")       \
    X(text, feedback_template, "feedback_template",                                                \
      "\"\\nThe following is feedback from your unsuccessful earlier attempt:\\n\\n"               \
      "{feedback_raw}\\n\\n\"",                                                                    \
      "nonempty", "context group: how feedback is shown, {feedback} of reprompt_template")         \
    X(f64, success_threshold, "success_reward_threshold", "1.0", "",                               \
      "context group: an answer of this score or more is a right one")                             \
    X(flag, use_successful, "use_successful_as_teacher", "true", "",                               \
      "context group: show a right answer of the group")                                           \
    X(flag, skip_own, "dont_reprompt_on_self_success", "true", "",                                 \
      "context group: never show an answer to itself")                                             \
    X(flag, include_feedback, "include_environment_feedback", "false", "",                         \
      "context group: show what the reward or the environment said of the answer")                 \
    X(flag, feedback_alone, "environment_feedback_only_without_solution", "false", "",             \
      "context group: show feedback only where no right answer is shown")                          \
    X(flag, remove_thinking, "remove_thinking_from_demonstration", "false", "",                    \
      "context group: leave <think>..</think> out of the answer that is shown")                    \
    X(i64, max_reprompt_len, "max_reprompt_len", "10240", "[1,)",                                  \
      "tokens of a teacher's prompt with a context at most; a longer one gives its row no "        \
      "teacher")
ARES_OPTION_STRUCT(ares_distillation_config, ARES_DISTILLATION_OPTIONS);
ares_option_table ares_distillation_options;

/*
 * Reports what makes no sense of the options by themselves, with paths relative to "distillation.".
 * Nothing where enabled is false. (distill.c)
 */
void ares_distillation_check(const ares_distillation_config *c, ares_algo_complain *complain,
                             void *ctx);
/* Whether the loss is the divergence that the head sums over the vocabulary. */
bool ares_distills_vocabulary(const ares_distillation_config *c);

/* ---------------- of a token (distill.c), in double; log-probs are natural logarithms */
/*
 * The loss of a token by an estimator (k2, k3 ...; by ares_kl_find(loss_mode)) of x = log pi - log
 * teacher, clamped to +-max_clamp (NaN: not), and its derivative by log pi: 0 beyond the clamp, the
 * whole one at its bound, as of torch.clamp. *clamped: the value was beyond.
 */
double ares_distill_token(const ares_kl *kl, double log_prob, double teacher_log_prob,
                          double max_clamp, double *derivative, bool *clamped);
/* The same of a divergence of the vocabulary: D, and the factor of its gradient, 1 or 0. */
double ares_distill_clamp(double divergence, double max_clamp, double *factor);
/*
 * min(exp(clamp(log pi - log old, -20, 20)), is_clip), which has no gradient (arXiv 2601.20802,
 * SDPO); 1 where is_clip is NaN.
 */
double ares_distill_is_weight(double log_prob, double old_log_prob, double is_clip);

/* ---------------- of a batch (distill.c). Row r owns tokens [row_start[r], row_start[r + 1]) */
/*
 * The tokens that the teacher teaches: column `distilled`, put, is 1 where the row has a teacher
 * (ares_sample.distilled), response_mask is 1, the token is none of the row's first
 * distillation_loss.num_loss_tokens_to_skip of mask 1, and, with positive_advantage_only, its
 * advantage is above 0. Returns their number on this rank.
 */
int64_t ares_distill_tokens(const ares_distillation_config *c, ares_batch *b);
/*
 * Policy-gradient form (distillation_loss.use_policy_gradient): with d = old_log_probs -
 * teacher_log_probs, clamped to +-loss_max_clamp, and r = d + kl_discount_factor x r of the row's
 * next token of mask 1, takes coef x r off the advantages of rows that have a teacher; others keep
 * theirs. Without use_task_rewards the advantages that are there are dropped first. To be called
 * after everything else that changes advantages. ARES_ENUMERIC names row and token where a log-prob
 * is not finite. sums: d before the clamp, and its tokens; added to.
 */
int ares_distill_advantages(const ares_distillation_config *c, double coef, ares_batch *b,
                            double sums[2]);
/*
 * Weights of the two terms of a token, f32 [n] each: of the task's, weight with use_task_rewards
 * and else 0 (task NULL: not wanted); of the divergence, weight x coef (1 without use_task_rewards)
 * where distilled is 1, else 0. weight: of ares_agg_weights.
 */
void ares_distill_weights(const ares_distillation_config *c, double coef, const float *weight,
                          const uint8_t *distilled, int64_t n, float *task, float *divergence);

/* ---------------- metrics (distill.c), columns [tokens] of the step's first pass over each token
 */
typedef struct ares_distill_seen {
    const float *divergence, *reverse_kl;
    /* NULL: not known (token modes have none) */
    const float *forward_kl, *teacher_entropy, *is_weight;
    const uint8_t *agree, *clamped; /* argmax of student and teacher; beyond loss_max_clamp */
    const uint8_t *seen;            /* 1: the update went over the token; NULL: over all */
} ares_distill_seen;
/*
 * distillation/loss, loss_min, reverse_kl, reverse_kl_p50, reverse_kl_q1 ...: means over the tokens
 * of column `distilled` of all ranks; a mean without a token is left out. distillation/tokens and
 * reprompt_sample_fraction always. A collective.
 */
int ares_distill_metrics(const ares_distill_seen *s, const ares_batch *b, ares_world *world,
                         ares_metrics *m);
#endif
