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

/* ---------------- advantages (adv.c, adv/): batch -> advantages, returns
 * In: token_level_rewards, response_mask, whole groups; values for ARES_NEEDS_VALUES (turn_ends
 * too, where a row has several turns), samples' baseline for ARES_NEEDS_BASELINE. Out: both
 * columns, 0 where the mask is 0. Everything in double; no order of rows or groups and no rank
 * count changes a bit. Sums over the batch cross ranks: compute is a collective.
 *
 * A row's score is the sum of its rewards. A row without a token of mask 1 (a discarded answer:
 * dapo.md 6.3) has no part in its group's statistics; a group left with fewer than two answers
 * learns nothing. Rows of one episode count once. A group that has only one answer is compared with
 * 0, at a deviation of 1, as in verl (vapor: gets 0); ares_adv_check refuses to sample such groups.
 * What is no number, a mask that is neither 0 nor 1, a group without rows and column lengths that
 * disagree are errors with their place.
 */
enum { ARES_NEEDS_GROUPS = 1, ARES_NEEDS_VALUES = 2, ARES_NEEDS_BASELINE = 4 };
typedef struct ares_adv {
    const char *name, *doc, *formula, *paper;
    unsigned needs;
    /* world NULL: one rank */
    int (*compute)(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b);
} ares_adv;
const ares_adv *ares_adv_find(const char *name); /* NULL and a message with the choices */
const char *const *ares_adv_names(int *n);
const ares_adv *const *ares_adv_list(int *n);
/* Faults of options that make no sense together, or for this estimator. n: samples a prompt. */
void ares_adv_check(ares_config *cfg, const ares_algorithm_config *a, int64_t n);
/*
 * A_t <- A_t min(exp(old_log_probs - rollout_log_probs), clip) (RLinf; dapo.md 2.5). compute does
 * it where importance_sampling_fix is set.
 */
int ares_adv_importance_fix(ares_batch *b, double clip);

/* ---------------- aggregation (agg.c)
 * Every mode is a weight per token: loss = sum over tokens of weight x token loss. With N tokens
 * and B rows that have any, in the mini-batch over all ranks, a token of a row of n weighs
 *
 *     token-mean 1 / N      seq-mean-token-sum 1 / B      seq-mean-token-mean 1 / (B n)
 *                           seq-mean-token-sum-norm 1 / max_len
 *
 * Counts are over the whole mini-batch and all ranks, so that no micro-batch size and no rank count
 * changes a gradient. Counts of a micro-batch of so many rows instead (loss_norm micro) give what
 * verl and RLinf do without their global scale, once weights are divided by micro-batches x ranks.
 */
/* mask-1 tokens, rows with at least one, divisor of ...-sum-norm */
typedef struct ares_agg_counts {
    double tokens, rows, max_len;
} ares_agg_counts;
void ares_agg_count(const ares_batch *b, int64_t row, int64_t end, ares_agg_counts *out); /* adds */
/*
 * weight [tokens of rows row..end), from row_start[row] on; 0 where the mask is 0, and everywhere
 * when there is no token at all.
 */
int ares_agg_weights(const char *mode, const ares_batch *b, int64_t row, int64_t end,
                     const ares_agg_counts *global, float *weight);
/*
 * loss_norm micro: n micro-batches of consecutive rows, each counted by itself; weights from the
 * first one's first token on, divided by n x ranks.
 */
int ares_agg_weights_micro(const char *mode, const ares_batch *b, const ares_micro_batch *micro,
                           int64_t n, int ranks, double max_len, float *weight);

/* ---------------- KL estimators (kl.c), x = log pi - log ref (formulas: src/algo/loss/kl.h) */
#define ARES_KL_FORMULAS(X) X(k1) X(abs) X(k2) X(k3)
#define ARES_KL_FORMULA_ENUM(name) ARES_KL_##name,
typedef enum { ARES_KL_FORMULAS(ARES_KL_FORMULA_ENUM) ARES_KL_exact } ares_kl_formula;
typedef struct ares_kl {
    const char *name, *words; /* words: the name and its aliases, "name=alias=alias" */
    const char *doc, *formula, *paper;
    /* NULL: the exact sum over the vocabulary, from the logits of both models */
    double (*value)(double x);
    double (*derivative)(double x); /* of the value by log pi; of k2 in the forms named with a + */
    bool (*clamped)(double x);      /* a clamp of the value acts; NULL: it has none */
    /* what value and derivative compute, for code that cannot call them (nvcc's) */
    ares_kl_formula value_formula, derivative_formula;
} ares_kl;
/* by its name or an alias (k1, k2, k3, low-var-kl, k3+ ...) */
const ares_kl *ares_kl_find(const char *name);
/* choices of the option: names with their aliases behind '=' */
const char *const *ares_kl_names(int *n);
/*
 * Where the KL to the reference acts: the one answer for whoever opens a reference, computes,
 * weighs or reports it. Nowhere at kl_coef 0: the adaptive controller multiplies the coefficient,
 * and AEPO's factors multiply the KL, so that nothing lifts it from 0.
 */
typedef enum ares_kl_place { ARES_KL_NOWHERE, ARES_KL_IN_LOSS, ARES_KL_IN_REWARD } ares_kl_place;
ares_kl_place ares_kl_acts(const ares_algorithm_config *a);
/*
 * Puts column kl: the estimator between old_log_probs and ref_log_probs, 0 where the mask is 0. Not
 * of the exact KL.
 */
int ares_kl_column(const ares_kl *kl, ares_batch *b);

/* ---------------- policy losses (loss.c, loss/; per-token formulas: src/algo/loss/NAME.h)
 * Plain arrays over the tokens of some rows. A loss adds d loss / d log_prob to its output and to
 * its sums, and never sees a model. Masked tokens count nowhere, and may hold anything. Where the
 * mask is 1 a log-prob, advantage or weight that is not finite, and a mask that is neither 0 nor 1,
 * is an error with its place: a finite input never gives a NaN.
 */
/* of log pi - log old: bin i is [-2 + i / 16, -2 + (i + 1) / 16); the outer two take the rest */
enum { ARES_LOSS_BINS = 64 };
typedef struct ares_loss_sums {
    /* weighted by the aggregation, without coefficients; kl by kl_weight too, kl_plain not */
    double loss, kl, kl_plain, entropy;
    /* tokens with a KL, and those where a clamp of its estimator acts: plain counts */
    double kl_tokens, kl_clamped;
    /* weighted likewise: verl's entropy_loss, an estimate of the entropy */
    double neg_log_prob;
    double tokens, clip_high, clip_low; /* counts over mask-1 tokens */
    /* estimators of KL(old || pi), plain sums over tokens; log-ratios clamped to +-20 */
    double neg_log_ratio, k2, k3;
    /*
     * sums of the loss's ratio, of it within the clip's bounds, of |ratio - 1|, of |token loss|
     */
    double ratio, ratio_clipped, ratio_off, loss_abs;
    double saturated; /* tokens whose log-ratio lies beyond the clamp */
    /* rollout_is: sum of weights, count of those cut or zeroed, of all; 0 without */
    double weight, weight_cut, weight_tokens;
    /* plain sums, where samples' accuracy is known (right: above 1/2) */
    double entropy_right, tokens_right, entropy_wrong, tokens_wrong;
    double ratio_min, ratio_max;
    double bins[ARES_LOSS_BINS];
} ares_loss_sums;
typedef struct ares_loss_args {
    const ares_loss_config *cfg;
    int64_t n;
    const float *log_prob, *old_log_prob, *advantage, *weight; /* [n] */
    /* [n] of the sampler's correction; NULL: 1 */
    const float *is_weight;
    const uint8_t *mask;  /* [n] */
    const float *entropy; /* [n]; NULL: not at hand */
    float *d_log_prob;    /* [n], added to */
    /* [n], added to; NULL when no term needs it */
    float *d_entropy;
    ares_loss_sums *sums;
    /*
     * Where the arrays stand. Rows [row, end) of a batch, whose tokens begin at row_start[]; the
     * arrays begin at its token first. row_start NULL: all n tokens are one row. Losses that are
     * not ARES_LOSS_LOCAL need whole rows, and theirs alone.
     */
    int64_t row, end, first;
    const int64_t *row_start;
    /* by row of the batch; NULL: nothing is known of them */
    const ares_sample *samples;
    /* of ARES_LOSS_BATCH: statistics cross ranks; NULL: one rank */
    ares_world *world;
    /* of random choices: (seed, step); draw, sample, position and the update follow */
    ares_rng_key key;
    /* number of the pass over these rows */
    uint64_t update;
} ares_loss_args;
enum {
    /* a token's derivative needs that token only: head forward and backward may fuse */
    ARES_LOSS_LOCAL = 1,
    ARES_LOSS_ROWS = 2,  /* whole rows */
    ARES_LOSS_BATCH = 4, /* the whole mini-batch, on all ranks at once (a collective) */
    ARES_LOSS_PAIRS = 8  /* log-probs of stored answers besides: ares_vapor_loss */
};
enum {
    /* reads clip_ratio_low and high as bounds of a ratio, and clip_ratio_dual where it is set */
    ARES_LOSS_CLIPS = 1,
    ARES_LOSS_CLIPS_DUAL = 2 /* clip_ratio_dual null is 3, not none */
};
typedef struct ares_loss {
    const char *name, *words; /* words: the name and its aliases, "name=alias=alias" */
    /* formula: of a token; r = exp(log pi - log old), A its advantage, sg: no gradient */
    const char *doc, *formula, *paper;
    unsigned flags; /* one of ARES_LOSS_LOCAL, _ROWS, _BATCH, _PAIRS */
    unsigned clips;
    int (*compute)(const ares_loss_args *a);
    /*
     * Of ARES_LOSS_BATCH: checks the input, marks in chosen [n] (zeroed) the tokens that the loss
     * treats apart, and says whether any rank has a token. A collective.
     */
    int (*choose)(const ares_loss_args *a, uint8_t *chosen, bool *any);
} ares_loss;
/* by its name or an alias (ppo: default; actor: dapo; geo_mean: gmpo) */
const ares_loss *ares_loss_find(const char *name);
/* choices of the option: names with their aliases behind '=' */
const char *const *ares_loss_names(int *n);
const ares_loss *const *ares_loss_list(int *n);
void ares_loss_sums_init(ares_loss_sums *s);
void ares_loss_sums_merge(ares_loss_sums *into, const ares_loss_sums *from);
int ares_loss_sums_reduce(ares_loss_sums *s, ares_world *w); /* over all ranks */
/* The whole loss: policy, + kl_coef x KL, - entropy_coeff x entropy. */
double ares_loss_total(const ares_loss_sums *s, double entropy_coeff, double kl_coef);
/* lower edge of bin i, 0 .. BINS; the outer two are drawn as if they ended */
double ares_loss_bin_edge(int i);
/*
 * What one metric each is made of: actor/pg_clipfrac_higher, ratio_mean, approx_kl, entropy_correct
 * ... Nothing where no token was seen.
 */
void ares_loss_metrics(const ares_loss_sums *s, ares_metrics *m);

/*
 * The KL term of a loss. Estimators read ref_log_prob; the exact KL comes in full and its
 * derivative goes to d_full.
 */
typedef struct ares_kl_args {
    const ares_kl *kl;
    double coef;
    const float *ref_log_prob; /* [n]; NULL: no term (unless full) */
    const float *weight;       /* [n], kl_weight; NULL: 1 */
    /* [n]: the unweighted value of each mask-1 token; NULL: not wanted */
    float *out;
    const float *full; /* [n] */
    float *d_full;     /* [n], added to */
} ares_kl_args;
/*
 * The KL (k NULL: none) and entropy terms of a loss, over the same arrays: + coef x weight x kl, -
 * entropy_coeff x entropy.
 */
int ares_loss_terms(const ares_loss_args *a, const ares_kl_args *k);

/*
 * Weights of rollout_is for rows [row, end), from row_start[row] on, 1 where nothing is corrected
 * and 0 where the mask is 0; sums may be NULL.
 */
int ares_is_weights(const ares_loss_config *cfg, const ares_batch *b, int64_t row, int64_t end,
                    float *weight, ares_loss_sums *sums);
/*
 * DAPO's early stop (dapo.md 4.5): whether the mean over ranks of their mean ratios exceeds the
 * threshold (NaN: off). A NaN among them does. average may be NULL.
 */
bool ares_early_stop(const double *ratio, int ranks, double threshold, double *average);
/* Mean ratio over the mask-1 tokens, as early_stop sees it; sum and count are added to. */
void ares_ratio_sum(const ares_loss_args *a, double *sum, double *count);

/*
 * The critic's loss over some tokens (loss/value.c): d_value += weight x derivative; sums: loss
 * (weighted), tokens, clip_high, and of values.
 */
typedef struct ares_value_sums {
    double loss, tokens, clip, value;
} ares_value_sums;
typedef struct ares_value_args {
    int64_t n;
    /* [n]; old_value: of the batch, target: returns */
    const float *value, *old_value, *target, *weight;
    const uint8_t *mask;
    double cliprange_value; /* 0.5; infinity: no clip */
    float *d_value;         /* [n], added to */
    ares_value_sums *sums;
    /* for messages, as in ares_loss_args */
    int64_t first;
    const int64_t *row_start;
    int64_t row, end;
} ares_value_args;
int ares_value_loss(const ares_value_args *a);

/*
 * VAPOR (loss/vapor.c): completions of several prompts, each with a stored pair of answers. Spans
 * as token ranges [span, span_end); span_end <= span: no span was found, the ratio is 1 and the
 * reward is taken as 0. A NaN or infinity in a span makes it neutral.
 */
typedef struct ares_vapor_config {
    double beta, epsilon_low, epsilon_high, kl_coef, log_ratio_clamp; /* 0.1, 0.2, 0.2, 0.04, 20 */
    /* ratio_reduction mean: log-ratios are divided by the length of their span */
    bool ratio_mean;
    bool preference_detach; /* the preference term passes no gradient */
    /* failure_ratio full: the whole completion is the span where none was found */
    bool failure_full;
} ares_vapor_config;
typedef struct ares_vapor_text {
    int64_t n, span, span_end;
    const float *log_prob, *ref_log_prob; /* [n] */
    float *d_log_prob;                    /* [n], added to; may be NULL */
} ares_vapor_text;
typedef struct ares_vapor_completion_args {
    ares_vapor_text text;
    double reward;
    double reward_used, advantage, log_ratio, ratio, objective; /* written */
} ares_vapor_completion_args;
typedef struct ares_vapor_prompt {
    int64_t n;
    ares_vapor_completion_args *completions;
    ares_vapor_text chosen, rejected; /* n 0: the row has none */
    double margin, term;              /* written: D, exp(beta D); NaN and 1 without a usable pair */
    bool usable;                      /* written: both spans were there, and are numbers */
} ares_vapor_prompt;
typedef struct ares_vapor_sums {
    /* counts; sums over completions and tokens */
    double prompts, completions, tokens, objective, kl;
    double reward, extracted, usable, margin, preferred, term, ratio, ratio_max, clip_low,
        clip_high, saturated, nonfinite, u_abs, equal_groups;
} ares_vapor_sums;
/*
 * totals: completions and tokens of the mini-batch over all ranks, by which terms are divided
 * (NULL: of these prompts). sums is added to.
 */
int ares_vapor_loss(const ares_vapor_config *cfg, const ares_kl *kl, ares_vapor_prompt *prompts,
                    int64_t n, const double totals[2], ares_vapor_sums *sums);
void ares_vapor_sums_init(ares_vapor_sums *s);
/* vapor/...; the difference of preferences only where a pair was usable. */
void ares_vapor_metrics(const ares_vapor_config *cfg, const ares_vapor_sums *s, ares_metrics *m);
/* S of a span; 0 where there is none or it is not finite */
double ares_vapor_log_ratio(const ares_vapor_text *t, bool mean, bool *finite);
/* exp of the clamped log-ratio */
double ares_vapor_ratio(double log_ratio, double bound);

/*
 * Relations between options of losses, told one by one: severity 'e' (refused) or 'w' (allowed,
 * said). (check.c)
 */
typedef void ares_algo_complain(void *ctx, char severity, const char *option, const char *message);
void ares_loss_check(const ares_loss_config *cfg, ares_algo_complain *complain, void *ctx);
/* A whole DAPO section, as its document writes it (dapo.md 7); NaN: null. */
typedef struct ares_dapo_keys {
    const char *adv_type, *loss_type, *loss_agg_func, *kl_penalty_type;
    double group_size, clip_ratio_high, clip_ratio_low, ratio_clip_eps, clip_ratio_c,
        len_reward_penalty, safe_length, max_length, kl_beta, entropy_bonus, early_stop_imp_ratio,
        n_minibatches, importance_sampling_clip;
    bool calculate_entropy;
} ares_dapo_keys;
void ares_dapo_check(const ares_dapo_keys *k, ares_algo_complain *complain, void *ctx);
void ares_vapor_check(const ares_vapor_config *cfg, int64_t num_generations,
                      const char *const verifiable_split[2], const char *const preference_split[2],
                      ares_algo_complain *complain, void *ctx);

/* ---------------- controls (control.c, control/): state that learns from each step
 * A control is opened where its options ask for it, sees every batch after its groups are complete
 * and again after the update, and is part of every checkpoint. All of its input comes from the
 * batch; what it decides it writes there: samples' difficulty, hwe_count, hwe_target,
 * entropy_alpha; columns hwe, kl_weight; kl_coef. The same on every rank: what ranks know is
 * gathered through world and added in the order of draw numbers, so that no rank count changes a
 * bit. Every function but save and those that only ask is a collective. To add one: a file in
 * control/ and a word in control.c.
 */
typedef struct ares_control_env {
    ares_world *world; /* may be NULL: one rank */
    const ares_algorithm_config *algorithm;
    int64_t n; /* samples a prompt */
    /* a reward reads hwe_count, hwe_target, entropy_alpha and difficulty of the samples */
    bool entropy_reward;
    /*
     * of the training rows (ares_dataset_gids); NULL: a loaded state's prompts are not looked up
     */
    const ares_map *gids;
} ares_control_env;
typedef struct ares_control_section {
    const char *section; /* where its options stand: "algorithm" */
    ares_option_table *options;
    size_t offset; /* of this section's struct in the control's options */
} ares_control_section;
enum { ARES_CONTROL_SECTIONS = 4, ARES_CONTROL_NEEDS_GIDS = 1 };
typedef struct ares_control {
    const char *name, *doc, *formula, *paper;
    const char *option; /* words that ask for it */
    /* ARES_CONTROL_NEEDS_GIDS: prompts are told apart by gid, so ares_dataset_gids must hold */
    unsigned needs;
    ares_control_section sections[ARES_CONTROL_SECTIONS]; /* options NULL: none left */
    size_t options_size; /* of the whole struct, zeroed before its sections are bound */
    bool (*wanted)(const void *options, const ares_control_env *env);
    /* options and env's pointers outlive the state */
    int (*open)(const void *options, const ares_control_env *env, void **state);
    /* the groups are complete: before log-probs and rewards */
    int (*observe)(void *state, ares_batch *b, ares_metrics *m);
    int (*adapt)(void *state, const ares_batch *b, ares_metrics *m); /* the update is done */
    void (*save)(const void *state, ares_str *json);                 /* one JSON object */
    /* what save wrote; a message names the member that does not fit */
    int (*load)(void *state, const ares_json *json);
    void (*close)(void *state);
    /* The rest may be NULL. */
    /*
     * every batch of groups made for the step, before any is filtered out; tokens and accuracies
     * are there
     */
    int (*generated)(void *state, const ares_batch *b);
    /*
     * Groups on trial, for a filter of shaped scores: writes samples' difficulty, hwe_count,
     * hwe_target and entropy_alpha by what is known so far and each group's own accuracy; learns
     * nothing.
     */
    int (*provisional)(const void *state, ares_batch *b);
    /* the i-th prompt that shall not come again from the next epoch on; false: no more */
    bool (*dropped)(const void *state, int64_t i, ares_view *gid);
    /*
     * Validation: all of its rows at once, as one batch (the rank's part); writes what observe
     * writes, learns nothing but where it must start.
     */
    int (*validate)(void *state, ares_batch *b, ares_metrics *m);
    /*
     * A pass over all training rows before the first step, in their order. bootstrap: prompts a
     * batch, 0 when none is asked for or it is complete; *done: prompts it has had (a part of the
     * state: a pass that was cut off goes on). Then bootstrap_add for every batch,
     * bootstrap_finish.
     */
    int64_t (*bootstrap)(const void *state, int64_t *done);
    int (*bootstrap_add)(void *state, ares_batch *b, ares_metrics *m);
    int (*bootstrap_finish)(void *state, ares_metrics *m);
} ares_control;
const ares_control *const *ares_control_list(int *n);

/* ---------------- entropy of tokens and windows (entropy.c; aepo.md 2), all in double */
/*
 * Entropy of a token from the log-probs of its likeliest candidates; tail: what they leave of the
 * mass counts as one more outcome.
 */
double ares_entropy_top_k(const double *log_probs, int64_t n, bool tail);
/*
 * window[t] = (h[t+1] + ... + h[t+w]) / w for t < n - w, the number returned (0 or more; nothing is
 * written behind it): the entropy that follows token t. Each sum is made of its own w terms, so a
 * window has the same bits wherever it stands in whatever answer.
 */
int64_t ares_entropy_windows(const double *h, int64_t n, int64_t w, double *window);
/*
 * The list behind a sample's percentile: the windows, then their mean for each token without one;
 * all h[0] where there is no window.
 */
void ares_entropy_pad_windows(const double *h, int64_t n, const double *window, int64_t windows,
                              double *padded);
/*
 * q-th percentile with linear interpolation between order statistics, as numpy's; 0 for n = 0. x
 * finite. By selection: O(n).
 */
double ares_percentile(const double *x, int64_t n, double q);
double ares_median(const double *x, int64_t n);
/* the percentile of the padded list */
double ares_entropy_sample_threshold(const double *h, int64_t n, int64_t w, double q);
/*
 * tau by the thresholds x [n] of a batch's samples: their median the first time, then a moving
 * average of it.
 */
double ares_entropy_threshold_step(bool started, double tau, const double *x, int64_t n, double ema,
                                   double *median);
/*
 * High-window-entropy (HWE) tokens: candidates (NULL: all) whose window reaches tau. mask [n] is
 * written (may be NULL): 0 where there is no window.
 */
/* candidates at or above tau, below it; sum of window - tau of the former */
typedef struct ares_hwe {
    int64_t count, invalid;
    double soft_cost;
} ares_hwe;
ares_hwe ares_hwe_mark(const double *window, int64_t windows, int64_t n, double tau,
                       const uint8_t *candidates, uint8_t *mask);
/* each HWE token and the w tokens behind it */
void ares_hwe_widen(const uint8_t *mask, int64_t n, int64_t w, uint8_t *wide);
/*
 * A token's text as trigger words are compared: leading U+2581 and U+0120 stripped, then white
 * space, then lower case. Replaces out.
 */
void ares_trigger_normalize(ares_view token, ares_str *out);

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
