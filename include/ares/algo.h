/*
 * algo: the algorithms, as pure functions of a batch. No model, no text, no clock. This header has
 * the options and the statistics that all parts share, the advantage estimators, what the sampler
 * records for AEPO, and what is measured of a step besides its training. The other parts are
 *
 *   algo_loss.h      aggregation, KL estimators, policy losses, the critic's loss, VAPOR, and which
 *                    of them a device has functions for
 *   algo_filter.h    which groups a step learns from
 *   algo_control.h   controls: state that learns from each step, such as AEPO's
 */
#ifndef ARES_ALGO_H
#define ARES_ALGO_H

#include "ares/config.h"
#include "ares/core.h"
#include "ares/data.h"
#include "ares/dist.h"

/* ---------------- options: algorithm.* and the loss's part of worker.actor.*
 * (docs/design.md#option-names)
 */
#define ARES_ALGORITHM_OPTIONS(X)                                                                  \
    X(choice, adv_estimator, "adv_estimator", "grpo", "",                                          \
      "how rewards become advantages (estimators: docs/algorithms.md)")                            \
    X(flag, norm_adv_by_std_in_grpo, "norm_adv_by_std_in_grpo", "true", "",                        \
      "grpo and grpo_passk: divide by the standard deviation of the group's scores; false is Dr. " \
      "GRPO")                                                                                      \
    X(f64, gamma, "gamma", "1.0", "[0,1]",                                                         \
      "gae and reinforce_plus_plus: discount of a reward per token between it and the token it "   \
      "is credited to",                                                                            \
      ARES_SCHEDULED)                                                                              \
    X(f64, lam, "lam", "1.0", "[0,1]",                                                             \
      "gae: lambda, how far an advantage looks beyond the next token; 0: not at all, 1: to the "   \
      "end of the response",                                                                       \
      ARES_SCHEDULED)                                                                              \
    X(flag, bi_level_gae, "bi_level_gae", "false", "",                                             \
      "gae: first over the turns of an episode, then over the tokens of each turn")                \
    X(f64, high_level_gamma, "high_level_gamma", "0.95", "[0,1]",                                  \
      "gae with bi_level_gae: discount per turn")                                                  \
    X(flag, normalize_advantages, "normalize_advantages", "false", "",                             \
      "scale the advantages of all tokens of the batch to mean 0 and standard deviation 1 (DAPO)") \
    X(flag, soft_advantage_reweight, "soft_advantage_reweight", "false", "",                       \
      "grpo: multiply advantages by the group's standard deviation divided by the largest one of " \
      "the batch")                                                                                 \
    X(flag, grpo_advantage_length_weight, "grpo_advantage_length_weight", "false", "",             \
      "grpo: divide advantages by the response's length and multiply them by the batch's mean "    \
      "length")                                                                                    \
    X(flag, zero_task_advantage, "zero_task_advantage", "false", "",                               \
      "set all advantages to 0, so that only the loss's KL and entropy terms train the model")     \
    X(flag, importance_sampling_fix, "importance_sampling_fix", "false", "",                       \
      "multiply advantages by exp(old - rollout log-prob), at most importance_sampling_clip")      \
    X(f64, importance_sampling_clip, "importance_sampling_clip", "2.0", "(0,)",                    \
      "importance_sampling_fix: largest factor")                                                   \
    X(flag, disable_kl, "disable_kl", "false", "",                                                 \
      "open no reference model and use no KL anywhere")                                            \
    X(flag, use_kl_loss, "use_kl_loss", "false", "",                                               \
      "add the KL to the reference model to the loss, times kl_coef; false: it is part of the "    \
      "reward (use_kl_in_reward) unless disable_kl is true")                                       \
    X(choice, use_kl_in_reward, "use_kl_in_reward", "null", "true=True|false=False",               \
      "subtract the KL to the reference model, times kl_coef, from the reward; null: unless "      \
      "use_kl_loss is true")                                                                       \
    X(choice, kl_penalty, "kl_penalty", "low_var_kl", "",                                          \
      "how the KL to the reference model is estimated (estimators: docs/algorithms.md)")           \
    X(f64, kl_coef, "kl_coef", "1e-3", "[0,)",                                                     \
      "weight of the KL; 0: no KL, and no reference model is opened", ARES_SCHEDULED)
ARES_OPTION_STRUCT(ares_algorithm_config, ARES_ALGORITHM_OPTIONS);
ares_option_table ares_algorithm_options;

#define ARES_LOSS_OPTIONS(X)                                                                       \
    X(choice, loss_type, "loss_type", "default", "", "policy loss (losses: docs/algorithms.md)")   \
    X(f64, clip_ratio_low, "clip_ratio_low", "0.2", "[0,1]",                                       \
      "PPO clips ratios below 1 - clip_ratio_low; DAPO keeps it under clip_ratio_high; 1 is no "   \
      "bound. gmpo: bound of the log of the ratio")                                                \
    X(f64, clip_ratio_high, "clip_ratio_high", "0.3", "[0,)",                                      \
      "PPO clips ratios above 1 + clip_ratio_high. gmpo: bound of the log of the ratio")           \
    X(f64, clip_ratio_dual, "clip_ratio_dual", "null", "(1,)",                                     \
      "dual clip: a token with a negative advantage A has a loss of at most -A times this; null: " \
      "3, and no bound for loss_type dapo")                                                        \
    X(f64, tau_positive, "tau_positive", "1.0", "(0,)",                                            \
      "sapo: steepness of the gate where the advantage is 0 or more")                              \
    X(f64, tau_negative, "tau_negative", "1.05", "(0,)",                                           \
      "sapo: steepness of the gate where the advantage is negative")                               \
    X(f64, clip_cov_ratio, "clip_cov_ratio", "2e-4", "(0,1]",                                      \
      "clip_cov: share of the tokens that are left out of the loss")                               \
    X(f64, clip_cov_lb, "clip_cov_lb", "1.0", "",                                                  \
      "clip_cov: tokens are drawn among those whose covariance of advantage and log-prob is "      \
      "above this")                                                                                \
    X(f64, clip_cov_ub, "clip_cov_ub", "5.0", "", "clip_cov: and below this")                      \
    X(f64, kl_cov_ratio, "kl_cov_ratio", "2e-4", "[0,1]",                                          \
      "kl_cov: share of the tokens, those of largest covariance first, that carry the penalty; "   \
      "0: none")                                                                                   \
    X(f64, ppo_kl_coef, "ppo_kl_coef", "1.0", "[0,)", "kl_cov: weight of the penalty")             \
    X(f64, dro_beta, "dro_beta", "0.05", "[0,)",                                                   \
      "dro: weight of the squared log of the ratio; 0: none")                                      \
    X(f64, early_stop_imp_ratio, "early_stop_imp_ratio", "null", "(1,)",                           \
      "skip the gradient of tokens whose mean ratio exceeds this (early_stop_scope: over which "   \
      "tokens); null: never")                                                                      \
    X(choice, early_stop_scope, "early_stop_scope", "minibatch", "minibatch|micro",                \
      "early_stop_imp_ratio: take the mean over the mini-batch on all ranks, or over each "        \
      "micro_batch_size_per_device_for_update samples, as RLinf does")                             \
    X(choice, loss_avg_mode, "loss_avg_mode", "token-mean",                                        \
      "token-mean=token|seq-mean-token-mean=seq|seq-mean-token-sum|seq-mean-token-sum-norm",       \
      "how the losses of tokens become one number (docs/update.md)")                               \
    X(choice, loss_norm, "loss_norm", "global", "global=minibatch=true=True|micro=false=False",    \
      "what loss_avg_mode counts: the mini-batch over all ranks, or each "                         \
      "micro_batch_size_per_device_for_update samples of a rank by themselves, whose losses are "  \
      "then averaged, as verl and EasyR1 do")                                                      \
    X(choice, valid_token_scope, "valid_token_scope", "minibatch", "minibatch|rollout",            \
      "with loss_norm global: minibatch counts the mini-batch; rollout counts all mini-batches "   \
      "of the step, as RLinf does")                                                                \
    X(f64, loss_scale_factor, "loss_scale_factor", "null", "(0,)",                                 \
      "divisor of loss_avg_mode seq-mean-token-sum-norm; null: data.max_response_length")          \
    X(f64, entropy_coeff, "entropy_coeff", "0.0", "",                                              \
      "weight of the entropy bonus: the exact entropy of each token, times this, is subtracted "   \
      "from the loss",                                                                             \
      ARES_SCHEDULED)                                                                              \
    X(choice, rollout_is, "rollout_is", "none",                                                    \
      "none=false=False=null=None|token=true=True|sequence|geometric",                             \
      "multiply losses by exp(old - rollout log-prob), for a sampler that differs from the "       \
      "trainer: a weight per token, or one per row, the product (sequence) or the geometric mean " \
      "of its tokens' weights")                                                                    \
    X(choice, rollout_is_mode, "rollout_is_mode", "truncate", "truncate|mask=clip",                \
      "rollout_is: truncate holds weights between the thresholds; mask sets weights outside both " \
      "thresholds to 0")                                                                           \
    X(f64, rollout_is_threshold, "rollout_is_threshold", "2.0", "(0,)",                            \
      "rollout_is: largest weight")                                                                \
    X(f64, rollout_is_threshold_lower, "rollout_is_threshold_lower", "null", "[0,)",               \
      "rollout_is: smallest weight; null: 1 / rollout_is_threshold (mask), none (truncate)")       \
    X(flag, rollout_is_batch_normalize, "rollout_is_batch_normalize", "false", "",                 \
      "rollout_is: divide the weights by their mean over the step, of tokens or of rows")          \
    X(text, rollout_rs, "rollout_rs", "null", "nonempty",                                          \
      "leave out of the update what the sampler and the trainer disagree about: token_k1|k2|k3, "  \
      "seq_sum_k1|k2|k3, seq_mean_k1|k2|k3, seq_max_k2|k3, several with commas between them, or "  \
      "one of token, sequence and geometric; null: nothing (docs/dapo.md)")                        \
    X(text, rollout_rs_threshold, "rollout_rs_threshold", "null", "nonempty",                      \
      "rollout_rs: largest value, one for all or one for each with commas between them; of k1 "    \
      "bounds of the ratio rollout / trainer, LOWER_UPPER, or one number for 1 / UPPER_UPPER")     \
    X(f64, rollout_rs_threshold_lower, "rollout_rs_threshold_lower", "null", "(0,)",               \
      "rollout_rs token, sequence, geometric: smallest ratio trainer / rollout; null: 1 / "        \
      "rollout_rs_threshold")                                                                      \
    X(f64, rollout_token_veto_threshold, "rollout_token_veto_threshold", "null", "(0,)",           \
      "leave out answers with a token whose ratio trainer / rollout is below this; null: none")
ARES_OPTION_STRUCT(ares_loss_config, ARES_LOSS_OPTIONS);
ares_option_table ares_loss_options;
/*
 * For programs without a configuration: designated initialisers of an ares_loss_config with the
 * defaults of all options but loss_type, loss_avg_mode, clip_ratio_* and entropy_coeff.
 */
#define ARES_LOSS_DEFAULTS                                                                       \
    .tau_positive = 1.0, .tau_negative = 1.05, .clip_cov_ratio = 2e-4, .clip_cov_lb = 1.0,       \
    .clip_cov_ub = 5.0, .kl_cov_ratio = 2e-4, .ppo_kl_coef = 1.0, .dro_beta = 0.05,              \
    .early_stop_imp_ratio = __builtin_nan(""), .early_stop_scope = "minibatch",                  \
    .loss_norm = "global", .valid_token_scope = "minibatch",                                     \
    .loss_scale_factor = __builtin_nan(""), .rollout_is = "none", .rollout_is_mode = "truncate", \
    .rollout_is_threshold = 2.0, .rollout_is_threshold_lower = __builtin_nan(""),                \
    .rollout_rs_threshold_lower = __builtin_nan(""),                                             \
    .rollout_token_veto_threshold = __builtin_nan("")

/*
 * Where the KL to the reference acts, for all code that opens a reference or computes, weighs or
 * reports the KL. Nowhere at kl_coef 0: the adaptive controller multiplies the coefficient and
 * AEPO's factors multiply the KL, so nothing can make it positive again.
 */
typedef enum ares_kl_place { ARES_KL_NOWHERE, ARES_KL_IN_LOSS, ARES_KL_IN_REWARD } ares_kl_place;
ares_kl_place ares_kl_acts(const ares_algorithm_config *a);

/* ---------------- statistics (stats.c) */
/*
 * The probability that at least one of k answers, drawn from n of which `correct` are right, is
 * right (arXiv 2107.03374, equation 1).
 */
double ares_pass_at_k(int64_t n, int64_t correct, int64_t k);
/* how many k are reported: 1, 2, 4 ... up to n; 0 for n = 1 */
int ares_pass_at_k_count(int64_t n);
/*
 * Exact expected values over k draws with replacement from n answers, which verl estimates by 1000
 * such draws. best: the greatest of the k values. maj: the value of the vote that most of the k
 * answers have; of tied votes the one drawn first wins, and a vote's value is that of its first
 * answer drawn. votes [n]: numbers below n; O(votes k^3) steps.
 *
 *   std     written: the standard deviation of that value over all draws
 */
double ares_best_at_k(const double *values, int64_t n, int64_t k, double *std);
double ares_maj_at_k(const double *values, const int32_t *votes, int64_t n, int64_t k, double *std);

/*
 * Appends the Markdown tables of docs/algorithms.md: every advantage, loss, aggregation, KL,
 * entropy, filter, controller and correction with its formula, paper, needs and option.
 * (doc_tables.c)
 */
void ares_algo_tables(ares_str *out);

/* algo: advantage estimators, batch -> advantages and returns (src/algo/adv). */

/*
 * Reads token_level_rewards and response_mask of whole groups, values for ARES_NEEDS_VALUES (and
 * turn_ends where a row has several turns), the samples' baseline for ARES_NEEDS_BASELINE. Writes
 * advantages and returns, 0 where the mask is 0. Computes in double; neither the order of rows and
 * groups nor the number of ranks changes a bit. compute is a collective, because sums over the
 * batch include all ranks.
 *
 * A row's score is the sum of its rewards. A row without a token of mask 1 is a discarded answer
 * (docs/dapo.md#answers-beyond-the-limit) and is left out of its group's statistics; a group left
 * with fewer than two answers gets advantages of 0. The rows of one episode count once. In a group
 * that has only one answer in all, the score is compared with 0 at a standard deviation of 1, as in
 * verl (vapor: the advantage is 0); ares_adv_check refuses to sample such groups. A number that is
 * not finite, a mask that is neither 0 nor 1, a group without rows and columns of different lengths
 * are errors that name the place.
 */
enum {
    ARES_NEEDS_GROUPS = 1,
    ARES_NEEDS_VALUES = 2,
    ARES_NEEDS_BASELINE = 4,
    ARES_NEEDS_SUM_PI_SQUARED = 8 /* also old_log_probs, and rollout_is_weights where they are */
};
typedef struct ares_adv {
    const char *name, *doc, *formula, *paper;
    unsigned needs;
    /* world NULL: one rank */
    int (*compute)(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b);
    /* options that this entry reads and others do not, separated by blanks; NULL: none */
    const char *reads;
} ares_adv;
const ares_adv *ares_adv_find(const char *name); /* NULL and a message with the choices */
const char *const *ares_adv_names(int *n);
/*
 * Whether an estimator looks at the turns of a row; where a row is one turn, it gives what gae
 * gives.
 */
bool ares_adv_sees_turns(const ares_adv *adv, const ares_algorithm_config *cfg);
/* Reports options that make no sense together, or for this estimator. n: samples per prompt. */
void ares_adv_check(ares_config *cfg, const ares_algorithm_config *a, int64_t n);

/*
 * algo: what a sampler records for AEPO: the entropy of a token and its text as a trigger word
 * (src/algo/stats.c; docs/aepo.md#entropy-windows-and-hwe-tokens).
 */

/*
 * Entropy of a token from the log-probs of its most probable candidates; tail: the rest of the
 * probability counts as one more outcome.
 */
double ares_entropy_top_k(const double *log_probs, int64_t n, bool tail);
/*
 * A token's text in the form in which trigger words are compared: leading U+2581 and U+0120
 * removed, then white space at both ends, then lower case. Replaces out.
 */
void ares_trigger_normalize(ares_view token, ares_str *out);

/*
 * algo: what is measured of a step besides its training, as pure functions in double
 * (src/algo/diagnostics; docs/diagnostics.md).
 */

/* ---------------- collapse (diagnostics.c; docs/diagnostics.md#collapse)
 * Options: report.collapse.*. The trainer samples and scores by them; the control `collapse` keeps
 * the moving averages.
 */
#define ARES_COLLAPSE_OPTIONS(X)                                                                  \
    X(i64, freq, "freq", "0", "[0,)",                                                             \
      "measure in step 1 and in every step that is a multiple of this how much of the thoughts "  \
      "depends on their prompts (metrics collapse_*, docs/diagnostics.md); costs passes over "    \
      "samples x prompts; 0: never")                                                              \
    X(i64, samples, "samples", "64", "[2,)", "thoughts that are drawn for each of the two kinds") \
    X(flag, first_turn, "first_turn", "true", "",                                                 \
      "draw among the first turns, and compare the prompts of groups "                            \
      "(collapse_first_turn_sample)")                                                             \
    X(flag, multi_turn, "multi_turn", "true", "",                                                 \
      "draw an episode, then one of its turns, and compare the prompts of what was drawn "        \
      "(collapse_trajectory_sample)")
ARES_OPTION_STRUCT(ares_collapse_config, ARES_COLLAPSE_OPTIONS);
ares_option_table ares_collapse_options;

/*
 * Thoughts scored under prompts: the row of a thought holds its log-prob, a mean over its tokens or
 * a sum, after each prompt.
 */
typedef struct ares_collapse_scores {
    int64_t thoughts, prompts;
    const double *log_prob; /* [thoughts][prompts] */
    const int64_t *own;     /* [thoughts]: the prompt after which it was written */
    const int64_t *text;    /* [prompts]: equal numbers mark prompts of the same text */
} ares_collapse_scores;
/* Answers "is the own prompt among the k likeliest?" for k = 1, 2, 4, 8. */
enum { ARES_COLLAPSE_LOOKS = 4 };
extern const int ares_collapse_looks[ARES_COLLAPSE_LOOKS];
typedef struct ares_collapse {
    double mi, mi_bound;                 /* I(X; Z) in nats, which log(prompts) bounds */
    double conditional_entropy, entropy; /* H(Z | X), H(Z) */
    double marginal_std, zscore;
    double accuracy[ARES_COLLAPSE_LOOKS], chance[ARES_COLLAPSE_LOOKS];
} ares_collapse;
/*
 * matched, marginal [thoughts], written: the thought's log-prob after its own prompt, and under the
 * mixture of all prompts. Of equally likely prompts the first wins. At least one thought and one
 * prompt.
 */
void ares_collapse_measure(const ares_collapse_scores *s, double *matched, double *marginal,
                           ares_collapse *out);

/* ---------------- groups by the deviation of their rewards (diagnostics.c)
 * order [n], written: the groups in ascending order of std, the first first where they are equal.
 * start, written: bucket k has the groups order[start[k]] .. order[start[k + 1] - 1]. The functions
 * return the number of buckets.
 */
/* Buckets of equal size, as many as count or n at most; the last takes the rest. start [count+1] */
int64_t ares_std_quantiles(const double *std, int64_t n, int64_t count, int64_t *order,
                           int64_t *start);
/* [0,1), [1,2), [2,3), [3,4), [4,5), [5,infinity). start [ARES_STD_BANDS + 1] */
enum { ARES_STD_BANDS = 6 };
int64_t ares_std_bands(const double *std, int64_t n, int64_t *order, int64_t *start);
/*
 * The standard deviation, with divisor n - 1, of the scores of a group's answers before any penalty
 * for length. An answer that occurs twice or has several rows counts once; a discarded one does not
 * count. *std: 0 for a single answer. false: no answer counts.
 */
bool ares_group_reward_std(const ares_batch *b, int64_t group, double *std);
#endif
