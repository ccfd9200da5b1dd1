/*
 * algo: the algorithms, as pure functions of a batch. No model, no text, no clock.
 */
#ifndef ARES_ALGO_H
#define ARES_ALGO_H

#include "ares/config.h"
#include "ares/core.h"
#include "ares/data.h"
#include "ares/dist.h"

/* ---------------- options: algorithm.* and the loss's part of worker.actor.* (aepo.md 7.2) */
#define ARES_ALGORITHM_OPTIONS(X)                                                           \
    X(choice, adv_estimator, "adv_estimator", "grpo", "", "how rewards become advantages")  \
    X(flag, norm_adv_by_std_in_grpo, "norm_adv_by_std_in_grpo", "true", "",                 \
      "grpo, grpo_passk: divide by the group's standard deviation; false is Dr. GRPO")      \
    X(f64, gamma, "gamma", "1.0", "[0,1]",                                                  \
      "discount of a token's reward per token before it (gae, reinforce_plus_plus)")        \
    X(f64, lam, "lam", "1.0", "[0,1]",                                                      \
      "gae: how far advantages reach beyond one step; 1: to the end")                       \
    X(flag, bi_level_gae, "bi_level_gae", "false", "",                                      \
      "gae: over the turns of an episode first, then over each turn's tokens")              \
    X(f64, high_level_gamma, "high_level_gamma", "0.95", "[0,1]",                           \
      "bi_level_gae: discount per turn")                                                    \
    X(flag, normalize_advantages, "normalize_advantages", "false", "",                      \
      "advantages of all tokens of the batch to mean 0 and deviation 1 (DAPO)")             \
    X(flag, soft_advantage_reweight, "soft_advantage_reweight", "false", "",                \
      "grpo: times the group's deviation over the largest of the batch")                    \
    X(flag, grpo_advantage_length_weight, "grpo_advantage_length_weight", "false", "",      \
      "grpo: over the response's length, times the mean length of the batch")               \
    X(flag, zero_task_advantage, "zero_task_advantage", "false", "",                        \
      "advantages 0: what remains of the loss is its KL and entropy terms")                 \
    X(flag, importance_sampling_fix, "importance_sampling_fix", "false", "",                \
      "advantages times exp(old - rollout log-prob), at most importance_sampling_clip")     \
    X(f64, importance_sampling_clip, "importance_sampling_clip", "2.0", "(0,)",             \
      "importance_sampling_fix: largest factor")                                            \
    X(flag, disable_kl, "disable_kl", "false", "", "no reference model and no KL anywhere") \
    X(flag, use_kl_loss, "use_kl_loss", "false", "",                                        \
      "KL to the reference model as a term of the loss")                                    \
    X(choice, use_kl_in_reward, "use_kl_in_reward", "null", "true=True|false=False",        \
      "KL taken off the reward; null: unless use_kl_loss is true")                          \
    X(choice, kl_penalty, "kl_penalty", "low_var_kl", "", "estimator of the KL term")       \
    X(f64, kl_coef, "kl_coef", "1e-3", "[0,)", "weight of the KL term")
ARES_OPTION_STRUCT(ares_algorithm_config, ARES_ALGORITHM_OPTIONS);
ares_option_table ares_algorithm_options;

#define ARES_LOSS_OPTIONS(X)                                                                       \
    X(choice, loss_type, "loss_type", "default", "", "policy loss")                                \
    X(f64, clip_ratio_low, "clip_ratio_low", "0.2", "[0,1]",                                       \
      "PPO clip below 1; DAPO keeps it under clip_ratio_high; 1 is no bound. gmpo: of the log")    \
    X(f64, clip_ratio_high, "clip_ratio_high", "0.3", "[0,)",                                      \
      "PPO clip above 1. gmpo: of the log")                                                        \
    X(f64, clip_ratio_dual, "clip_ratio_dual", "null", "(1,)",                                     \
      "bound of the loss of negative advantages, times the advantage; null: 3, and none for dapo") \
    X(f64, tau_positive, "tau_positive", "1.0", "(0,)",                                            \
      "sapo: steepness of the gate where the advantage is not negative")                           \
    X(f64, tau_negative, "tau_negative", "1.05", "(0,)",                                           \
      "sapo: steepness of the gate where it is")                                                   \
    X(f64, clip_cov_ratio, "clip_cov_ratio", "2e-4", "(0,1]",                                      \
      "clip_cov: share of the tokens left out")                                                    \
    X(f64, clip_cov_lb, "clip_cov_lb", "1.0", "",                                                  \
      "clip_cov: they are drawn from covariances above this")                                      \
    X(f64, clip_cov_ub, "clip_cov_ub", "5.0", "", "clip_cov: and below this")                      \
    X(f64, kl_cov_ratio, "kl_cov_ratio", "2e-4", "[0,1]",                                          \
      "kl_cov: share of the tokens, largest covariances first, that carry the penalty; 0: none")   \
    X(f64, ppo_kl_coef, "ppo_kl_coef", "1.0", "[0,)", "kl_cov: weight of the penalty")             \
    X(f64, early_stop_imp_ratio, "early_stop_imp_ratio", "null", "(1,)",                           \
      "tokens whose mean ratio exceeds this teach nothing; null: off")                             \
    X(choice, early_stop_scope, "early_stop_scope", "minibatch", "minibatch|micro",                \
      "whose mean ratio: that of all ranks' tokens, or of each "                                   \
      "micro_batch_size_per_device_for_update samples, as RLinf's")                                \
    X(choice, loss_avg_mode, "loss_avg_mode", "token-mean",                                        \
      "token-mean=token|seq-mean-token-mean=seq|seq-mean-token-sum|seq-mean-token-sum-norm",       \
      "how token losses become one")                                                               \
    X(choice, loss_norm, "loss_norm", "global", "global=minibatch=true=True|micro=false=False",    \
      "what loss_avg_mode counts: the mini-batch over all ranks, or each "                         \
      "micro_batch_size_per_device_for_update samples of a rank by themselves, whose losses are "  \
      "averaged, as verl and EasyR1 do")                                                           \
    X(choice, valid_token_scope, "valid_token_scope", "minibatch", "minibatch|rollout",            \
      "loss_norm global: rollout counts all mini-batches of the step, as RLinf does")              \
    X(f64, loss_scale_factor, "loss_scale_factor", "null", "(0,)",                                 \
      "divisor of seq-mean-token-sum-norm; null: data.max_response_length")                        \
    X(f64, entropy_coeff, "entropy_coeff", "0.0", "", "weight of the exact entropy bonus")         \
    X(choice, rollout_is, "rollout_is", "none",                                                    \
      "none=false=False=null=None|token=true=True|sequence|geometric",                             \
      "weights exp(old - rollout) for a sampler that differs from the trainer: of a token, of a "  \
      "row (product or geometric mean)")                                                           \
    X(choice, rollout_is_mode, "rollout_is_mode", "truncate", "truncate|mask=clip",                \
      "weights beyond the thresholds: cut off above, or 0")                                        \
    X(f64, rollout_is_threshold, "rollout_is_threshold", "2.0", "(0,)", "largest weight")          \
    X(f64, rollout_is_threshold_lower, "rollout_is_threshold_lower", "null", "[0,)",               \
      "mask: smallest weight; null: 1 / rollout_is_threshold")
ARES_OPTION_STRUCT(ares_loss_config, ARES_LOSS_OPTIONS);
ares_option_table ares_loss_options;
/*
 * Designated initialisers of an ares_loss_config with the defaults of all but the common options:
 * for programs without a configuration.
 */
#define ARES_LOSS_DEFAULTS                                                                       \
    .tau_positive = 1.0, .tau_negative = 1.05, .clip_cov_ratio = 2e-4, .clip_cov_lb = 1.0,       \
    .clip_cov_ub = 5.0, .kl_cov_ratio = 2e-4, .ppo_kl_coef = 1.0,                                \
    .early_stop_imp_ratio = __builtin_nan(""), .early_stop_scope = "minibatch",                  \
    .loss_norm = "global", .valid_token_scope = "minibatch",                                     \
    .loss_scale_factor = __builtin_nan(""), .rollout_is = "none", .rollout_is_mode = "truncate", \
    .rollout_is_threshold = 2.0, .rollout_is_threshold_lower = __builtin_nan("")

/*
 * Where the KL to the reference acts: the one answer for whoever opens a reference, computes,
 * weighs or reports it. Nowhere at kl_coef 0: the adaptive controller multiplies the coefficient,
 * and AEPO's factors multiply the KL, so that nothing lifts it from 0.
 */
typedef enum ares_kl_place { ARES_KL_NOWHERE, ARES_KL_IN_LOSS, ARES_KL_IN_REWARD } ares_kl_place;
ares_kl_place ares_kl_acts(const ares_algorithm_config *a);

/* ---------------- statistics (stats.c): f64 throughout, no order of the values changes a bit */
/* of equal values: that value; 0 for n = 0 */
double ares_mean(const double *x, int64_t n);
double ares_std(const double *x, int64_t n, double mean); /* divides by n - 1; 0 for n < 2 */
/*
 * An exact sum of doubles, however many: a fixed-point number of 2,240 bits, rounded once. Sums of
 * parts and of ranks add up to the same bits as one sum over everything.
 */
enum { ARES_EXACT_LIMBS = 70 };
/* {0} is zero */
typedef struct ares_exact_sum {
    int64_t limb[ARES_EXACT_LIMBS], added;
} ares_exact_sum;
void ares_exact_add(ares_exact_sum *s, double x); /* x finite */
/* n sums at once over all ranks */
int ares_exact_ranks(ares_exact_sum *s, int n, ares_world *world);
double ares_exact_value(const ares_exact_sum *s);
/* Over the values x [n] where mask [n] is 1, on all ranks. */
typedef struct ares_moments {
    double count, sum;
    /*
     * sum / (count + 1e-8), and the mean square about it times count / (count - 1): as verl and
     * EasyR1 whiten
     */
    double mean, var;
    double true_mean, population_var; /* without either */
} ares_moments;
int ares_masked_moments(ares_world *world, const double *x, const uint8_t *mask, int64_t n,
                        ares_moments *out);
/* (x - mean) / sqrt(var + 1e-8); 0 where mask is 0 */
int ares_masked_whiten(ares_world *world, double *x, const uint8_t *mask, int64_t n);
/* (x - true_mean) / (sqrt(population_var) + 1e-5) (dapo.md 2.4); 0 likewise */
int ares_masked_normalize(ares_world *world, double *x, const uint8_t *mask, int64_t n);
/*
 * The chance that one of k answers out of n, of which `correct` are right, is right (arXiv
 * 2107.03374, eq. 1).
 */
double ares_pass_at_k(int64_t n, int64_t correct, int64_t k);
/* how many k are reported, 1, 2, 4 ... up to n; none of one answer */
int ares_pass_at_k_count(int64_t n);

/*
 * Every advantage, loss, aggregation, KL, entropy, filter, controller and correction with formula,
 * paper, needs and option, as tables of Markdown, appended. (page.c)
 */
void ares_algo_tables(ares_str *out);
#endif
