/*
 * Private to algo: AEPO's buckets of difficulty, the arithmetic of its KL, and the state of the
 * control. adaptive_kl.c uses the KL part too.
 */
#ifndef ARES_ALGO_CONTROL_AEPO_H
#define ARES_ALGO_CONTROL_AEPO_H

#include "ares/algo_control.h"
#include "control.h"
#include "stats.h"

/*
 * Difficulty, targets and alphas of AEPO as pure functions in double (aepo.c;
 * docs/aepo.md#difficulty-targets-and-alphas).
 */

/* easy from 2.0 / 3 on, medium from 1.0 / 3 on, else hard */
ares_difficulty difficulty_of(double accuracy);
/* ARES_DIFFICULTY_NONE when name is none of the three */
ares_difficulty difficulty_find(ares_view name);
double round_half_even(double x);
typedef struct aepo_prompt {
    ares_view gid;
    int64_t samples;
    double accuracy, hwe, length; /* sums over its samples */
    ares_difficulty difficulty;   /* written */
} aepo_prompt;
/*
 * By difficulty: the number of prompts, and means over prompts of their samples' mean number of HWE
 * tokens, accuracy and length.
 */
typedef struct aepo_buckets {
    int64_t prompts[ARES_DIFFICULTIES];
    double hwe[ARES_DIFFICULTIES], accuracy[ARES_DIFFICULTIES], length[ARES_DIFFICULTIES];
} aepo_buckets;
void aepo_bucket(aepo_prompt *prompts, int64_t n, aepo_buckets *out);
/*
 * By difficulty: alpha, the weight of the entropy score, and the target number of HWE tokens.
 * aepo_aim makes one step: alphas move by the old targets, then, with renew, the targets are
 * replaced. A difficulty without prompts keeps both; one without a target keeps its alpha and gets
 * a target. coef [ARES_DIFFICULTIES]: target / mean number.
 */
typedef struct aepo_aims {
    double alpha[ARES_DIFFICULTIES];
    int64_t target[ARES_DIFFICULTIES];
    bool target_known[ARES_DIFFICULTIES];
} aepo_aims;
typedef struct aepo_rates {
    double lr, min, max;
    const double *coef;
    bool renew;
} aepo_rates;
void aepo_aim(const aepo_rates *rates, const aepo_buckets *buckets, aepo_aims *aims);
/*
 * Accuracy by number of HWE tokens: 3 bins between 4 equally spaced edges from the smallest to the
 * largest number, truncated to integers; half-open, the last closed; n >= 1. The accuracy of an
 * empty bin is NaN.
 */
typedef struct accuracy_bins {
    int64_t edges[4], count[3];
    double accuracy[3];
} accuracy_bins;
void accuracy_by_hwe(const int64_t *hwe, const double *accuracy, int64_t n, accuracy_bins *out);

/*
 * The arithmetic of KL controllers, in double (aepo_kl.c, adaptive_kl.c;
 * docs/aepo.md#kl-by-token-and-difficulty).
 */

/* Mean over the tokens with mask 1; 0 where there is none. */
double kl_row_mean(const float *kl, const uint8_t *mask, int64_t n);
/* Dual ascent on a budget of KL: lambda <- max(0, lambda + eta (kl - budget)). */
double kl_lambda_step(double lambda, double kl, double budget, double eta);
/*
 * Moves beta in log space by a smoothed relative error. Only every interval-th update moves it;
 * update counts from 1.
 */
typedef struct log_beta_config {
    double target, lr, clip, ema, deadzone, min, max;
    int64_t interval;
} log_beta_config;
typedef struct log_beta {
    double beta, kl_ema, error_ema;
    bool started; /* kl_ema has a value */
} log_beta;
void log_beta_step(const log_beta_config *cfg, int64_t update, double kl, log_beta *s);
/* kl_weight of a row: factor, times scale where relax (NULL: nowhere) is 1; 0 where mask is 0. */
void kl_weigh(double factor, double scale, const uint8_t *relax, const uint8_t *mask, int64_t n,
              float *weight);
/*
 * The controller of Ziegler et al. (arXiv 1909.08593, 2.2): coef <- coef (1 + error min(n /
 * horizon, 1)), error = clip(kl / target - 1, -0.2, 0.2).
 */
double adaptive_kl_step(double coef, double kl, double target, double n, double horizon);

/*
 * Options and state of the AEPO control, shared by aepo.c (the order of a step, and what it
 * computes from a batch), aepo_kl.c (weights of the KL) and aepo_state.c (saving, metrics).
 */

#define AEPO_ALGORITHM_OPTIONS(X)                                                                  \
    CONTROL_KL_TYPE(X)                                                                             \
    X(flag, aepo, "aepo", "false", "",                                                             \
      "keep AEPO's state (threshold, difficulties, targets) even where no reward or option asks "  \
      "for it")                                                                                    \
    X(f64, entropy_percentile, "entropy_percentile", "95.0", "[0,100]",                            \
      "percentile of a response's window entropies; the threshold tau follows the median of "      \
      "these percentiles")                                                                         \
    X(f64, entropy_threshold_ema, "entropy_threshold_ema", "0.99", "[0,1]",                        \
      "share of the old tau in the new one (moving average)")                                      \
    X(i64, target_update_interval, "target_update_interval", "1", "[1,)",                          \
      "training steps between updates of the target numbers of HWE tokens (tokens of high window " \
      "entropy)")                                                                                  \
    X(f64, target_coef_easy, "target_coef_easy", "1.0", "[0,)",                                    \
      "easy prompts: target number of HWE tokens divided by their mean number")                    \
    X(f64, target_coef_medium, "target_coef_medium", "1.0", "[0,)",                                \
      "medium prompts: target number of HWE tokens divided by their mean number")                  \
    X(f64, target_coef_hard, "target_coef_hard", "1.0", "[0,)",                                    \
      "hard prompts: target number of HWE tokens divided by their mean number")                    \
    X(f64, alpha_entropy_lr, "alpha_entropy_lr", "0.05", "[0,)",                                   \
      "change of the entropy score's weight per HWE token by which the mean differs from the "     \
      "target")                                                                                    \
    X(f64, alpha_entropy_min, "alpha_entropy_min", "0.0", "[0,)",                                  \
      "smallest weight of the entropy score")                                                      \
    X(f64, alpha_entropy_max, "alpha_entropy_max", "2.0", "[0,)",                                  \
      "largest weight of the entropy score")                                                       \
    X(f64, alpha_entropy_init_easy, "alpha_entropy_init_easy", "0.5", "[0,)",                      \
      "easy prompts: first weight of the entropy score")                                           \
    X(f64, alpha_entropy_init_medium, "alpha_entropy_init_medium", "0.5", "[0,)",                  \
      "medium prompts: first weight of the entropy score")                                         \
    X(f64, alpha_entropy_init_hard, "alpha_entropy_init_hard", "0.5", "[0,)",                      \
      "hard prompts: first weight of the entropy score")                                           \
    X(flag, drop_easy_prompts, "drop_easy_prompts", "false", "",                                   \
      "leave out, from the next epoch on, prompts whose answers are all right and have few HWE "   \
      "tokens")                                                                                    \
    X(f64, drop_easy_ratio, "drop_easy_ratio", "0.8", "[0,1]",                                     \
      "drop_easy_prompts: 'few' is below fewest + this share of (target - fewest), with the "      \
      "fewest HWE tokens of an easy prompt")                                                       \
    X(f64, hwe_kl_scale, "hwe_kl_scale", "0.5", "[0,)",                                            \
      "dynamic_kl_loss: factor of the KL at HWE tokens")                                           \
    X(choice, hwe_kl_scope, "hwe_kl_scope", "token", "token|window",                               \
      "dynamic_kl_loss: hwe_kl_scale acts at HWE tokens alone, or at the tokens of their windows " \
      "as well")                                                                                   \
    X(choice, kl_bucket_controller, "kl_bucket_controller", "dual_ascent",                         \
      "dual_ascent|log_space|none",                                                                \
      "dynamic_kl_loss: what adapts the factor of the KL for each difficulty")                     \
    X(flag, difficulty_aware_kl_penalty, "difficulty_aware_kl_penalty", "false", "",               \
      "dynamic_kl_loss: multiply the KL by 2, 1 and 0.5 for easy, medium and hard prompts")        \
    X(f64, kl_lambda_lr, "kl_lambda_lr", "0.01", "[0,)",                                           \
      "kl_bucket_controller dual_ascent: step size")                                               \
    X(f64, kl_budget_easy, "kl_budget_easy", "0.05", "[0,)",                                       \
      "kl_bucket_controller dual_ascent: mean KL allowed to answers to easy prompts")              \
    X(f64, kl_budget_medium, "kl_budget_medium", "0.1", "[0,)",                                    \
      "kl_bucket_controller dual_ascent: mean KL allowed to answers to medium prompts")            \
    X(f64, kl_budget_hard, "kl_budget_hard", "0.2", "[0,)",                                        \
      "kl_bucket_controller dual_ascent: mean KL allowed to answers to hard prompts")              \
    X(f64, kl_beta_init, "kl_beta_init", "1.0", "(0,)",                                            \
      "kl_bucket_controller log_space: first factor")                                              \
    X(f64, kl_beta_lr, "kl_beta_lr", "0.05", "[0,)",                                               \
      "kl_bucket_controller log_space: step size in ln(factor)")                                   \
    X(f64, kl_beta_clip, "kl_beta_clip", "0.2", "(0,)",                                            \
      "kl_bucket_controller log_space: largest relative error that counts")                        \
    X(f64, kl_beta_ema, "kl_beta_ema", "0.97", "[0,1)",                                            \
      "kl_bucket_controller log_space: smoothing of KL and of its error")                          \
    X(f64, kl_beta_deadzone, "kl_beta_deadzone", "0.02", "[0,)",                                   \
      "kl_bucket_controller log_space: relative errors below this change nothing")                 \
    X(f64, kl_beta_min, "kl_beta_min", "1e-4", "(0,)",                                             \
      "kl_bucket_controller log_space: smallest factor")                                           \
    X(f64, kl_beta_max, "kl_beta_max", "100.0", "(0,)",                                            \
      "kl_bucket_controller log_space: largest factor")                                            \
    X(i64, kl_beta_update_interval, "kl_beta_update_interval", "100", "[1,)",                      \
      "kl_bucket_controller log_space: optimizer steps between updates")                           \
    X(f64, kl_target_easy, "kl_target_easy", "0.01", "(0,)",                                       \
      "kl_bucket_controller log_space: target KL of answers to easy prompts")                      \
    X(f64, kl_target_medium, "kl_target_medium", "0.01", "(0,)",                                   \
      "kl_bucket_controller log_space: target KL of answers to medium prompts")                    \
    X(f64, kl_target_hard, "kl_target_hard", "0.01", "(0,)",                                       \
      "kl_bucket_controller log_space: target KL of answers to hard prompts")
ARES_OPTION_STRUCT(aepo_algorithm_config, AEPO_ALGORITHM_OPTIONS);

#define AEPO_ACTOR_OPTIONS(X)                                                                \
    X(flag, dynamic_kl_loss, "dynamic_kl_loss", "false", "",                                 \
      "weigh the KL token by token: less at HWE tokens, adapted for each difficulty")        \
    X(flag, enable_second_chance_kl, "enable_second_chance_kl", "false", "",                 \
      "dynamic_kl_loss: less KL for answers that explore and fail")                          \
    X(flag, second_chance_easy_only, "second_chance_easy_only", "true", "",                  \
      "enable_second_chance_kl: only for answers to easy prompts")                           \
    X(flag, second_chance_incorrect_only, "second_chance_incorrect_only", "true", "",        \
      "enable_second_chance_kl: only for wrong answers")                                     \
    X(f64, second_chance_soft_cost_min, "second_chance_soft_cost_min", "0.5", "[0,)",        \
      "enable_second_chance_kl: an answer explores where the sum of its HWE tokens' window " \
      "entropy above tau is at least this")                                                  \
    X(f64, second_chance_kl_relax, "second_chance_kl_relax", "0.67", "[0,)",                 \
      "enable_second_chance_kl: factor of the KL of such an answer")
ARES_OPTION_STRUCT(aepo_actor_config, AEPO_ACTOR_OPTIONS);

#define AEPO_ROLLOUT_OPTIONS(X) \
    X(i64, window_size, "window_size", "4", "[1,)", "AEPO: tokens per window of entropies")
ARES_OPTION_STRUCT(aepo_rollout_config, AEPO_ROLLOUT_OPTIONS);

#define AEPO_DATA_OPTIONS(X)                                                                    \
    X(flag, bootstrap, "bootstrap", "false", "",                                                \
      "AEPO: answer all training rows once before the first step, to learn how difficult each " \
      "prompt is")                                                                              \
    X(i64, bootstrap_batch_size, "bootstrap_batch_size", "1024", "[1,)",                        \
      "bootstrap: prompts answered at once")
ARES_OPTION_STRUCT(aepo_data_config, AEPO_DATA_OPTIONS);

typedef struct aepo_options {
    aepo_algorithm_config algorithm;
    aepo_actor_config actor;
    aepo_rollout_config rollout;
    aepo_data_config data;
} aepo_options;

typedef enum { AEPO_KL_NONE, AEPO_KL_DUAL_ASCENT, AEPO_KL_LOG_SPACE } aepo_kl_controller;

/* A prompt's sums of the bootstrap pass. */
typedef struct aepo_seen {
    int64_t samples;
    double accuracy, hwe, length;
} aepo_seen;

typedef struct aepo {
    const aepo_options *options;
    ares_control_env env;
    aepo_kl_controller controller;
    /* --- saved */
    bool tau_known, tau_started;
    double tau;
    int64_t steps;
    ares_map *difficulty; /* gid -> ares_difficulty */
    aepo_aims aims;
    double lambda[ARES_DIFFICULTIES];
    log_beta beta[ARES_DIFFICULTIES];
    int64_t beta_updates;
    ares_map *skip; /* gid -> its place */
    bool baseline_known[ARES_DIFFICULTIES];
    double baseline_accuracy[ARES_DIFFICULTIES], baseline_length[ARES_DIFFICULTIES];
    bool bootstrap_done;
    int64_t bootstrap_prompts, bootstrap_tokens; /* answered and generated so far */
    ares_map *bootstrap_index;                   /* gid -> its place in bootstrap_seen */
    aepo_seen *bootstrap_seen;
    int64_t bootstrap_cap;
    /* --- of the step: the groups generated so far, where prompts may be dropped */
    bool generated;
    ares_batch made; /* no tokens: groups, samples with their counts */
} aepo;

/* How messages begin. */
#define AEPO_WHO "algo: control aepo"

#define AEPO_BY_DIFFICULTY(options, name)                                    \
    ((const double[ARES_DIFFICULTIES]){ 0, (options)->algorithm.name##_easy, \
                                        (options)->algorithm.name##_medium,  \
                                        (options)->algorithm.name##_hard })

void aepo_save(const void *state, ares_str *json);
int aepo_load(void *state, const ares_json *json);
aepo_seen *aepo_bootstrap_at(aepo *s, ares_view gid); /* the prompt's sums, zero when it is new */

/* local [b->rows]: index, length, accuracy and percentile of every row. */
void aepo_measure(const aepo *s, const ares_batch *b, ares_arena *arena, control_sample *local);
/*
 * Counts of every row at tau, into local; column and windows [b->tokens] and soft_cost [b->rows]
 * too where they are not NULL.
 */
void aepo_mark(const aepo *s, const ares_batch *b, ares_arena *arena, control_sample *local,
               uint8_t *column, float *window_column, double *soft_cost);

void aepo_write_kl_weight(const aepo *s, ares_batch *b, const double *soft_cost, ares_arena *arena);
int aepo_adapt_kl(aepo *s, const ares_batch *b, ares_metrics *m, ares_arena *arena);

/* Sets "<prefix>/<difficulty><suffix>". */
void aepo_metric(ares_metrics *m, const char *prefix, int difficulty, const char *suffix,
                 double value);
void aepo_report_state(const aepo *s, ares_metrics *m, const char *prefix); /* tau and targets */
void aepo_report_validation(const aepo *s, ares_metrics *m);
/* The step's metrics by difficulty; the samples' difficulty must be set. */
void aepo_report_batch(const aepo *s, const control_gathered *all, ares_metrics *m);
#endif
