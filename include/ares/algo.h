/*
 * algo: the algorithms, as pure functions of a batch. No model, no text, no clock.
 */
#ifndef ARES_ALGO_H
#define ARES_ALGO_H

#include "ares/config.h"
#include "ares/core.h"
#include "ares/data.h"
#include "ares/dist.h"

/* ------------------------------------------------------------------ options: algorithm.* and the loss's part of worker.actor.* (aepo.md 7.2) */
#define ARES_ALGORITHM_OPTIONS(X)                                                                                                       \
    X(choice, adv_estimator, "adv_estimator", "grpo", "", "how rewards become advantages")                                              \
    X(flag, norm_adv_by_std_in_grpo, "norm_adv_by_std_in_grpo", "true", "", "grpo, grpo_passk: divide by the group's standard deviation; false is Dr. GRPO") \
    X(f64, gamma, "gamma", "1.0", "[0,1]", "discount of a token's reward per token before it (gae, reinforce_plus_plus)")               \
    X(f64, lam, "lam", "1.0", "[0,1]", "gae: how far advantages reach beyond one step; 1: to the end")                                  \
    X(flag, bi_level_gae, "bi_level_gae", "false", "", "gae: over the turns of an episode first, then over each turn's tokens")         \
    X(f64, high_level_gamma, "high_level_gamma", "0.95", "[0,1]", "bi_level_gae: discount per turn")                                    \
    X(flag, normalize_advantages, "normalize_advantages", "false", "", "advantages of all tokens of the batch to mean 0 and deviation 1 (DAPO)") \
    X(flag, soft_advantage_reweight, "soft_advantage_reweight", "false", "", "grpo: times the group's deviation over the largest of the batch") \
    X(flag, grpo_advantage_length_weight, "grpo_advantage_length_weight", "false", "", "grpo: over the response's length, times the mean length of the batch") \
    X(flag, zero_task_advantage, "zero_task_advantage", "false", "", "advantages 0: what remains of the loss is its KL and entropy terms") \
    X(flag, importance_sampling_fix, "importance_sampling_fix", "false", "", "advantages times exp(old - rollout log-prob), at most importance_sampling_clip") \
    X(f64, importance_sampling_clip, "importance_sampling_clip", "2.0", "(0,)", "importance_sampling_fix: largest factor")              \
    X(flag, disable_kl, "disable_kl", "false", "", "no reference model and no KL anywhere")                                             \
    X(flag, use_kl_loss, "use_kl_loss", "false", "", "KL to the reference model as a term of the loss")                                 \
    X(choice, kl_penalty, "kl_penalty", "low_var_kl", "", "estimator of the KL term")                                                   \
    X(f64, kl_coef, "kl_coef", "1e-3", "[0,)", "weight of the KL term")
ARES_OPTION_STRUCT(ares_algorithm_config, ARES_ALGORITHM_OPTIONS);
ares_option_table ares_algorithm_options;

#define ARES_LOSS_OPTIONS(X)                                                                                                            \
    X(choice, loss_type, "loss_type", "default", "", "policy loss of a token")                                                          \
    X(f64, clip_ratio_low, "clip_ratio_low", "0.2", "[0,1]", "PPO clip below 1; DAPO keeps it under clip_ratio_high")                   \
    X(f64, clip_ratio_high, "clip_ratio_high", "0.3", "[0,)", "PPO clip above 1")                                                       \
    X(f64, clip_ratio_dual, "clip_ratio_dual", "3.0", "(1,)", "bound of the loss of negative advantages, times the advantage")          \
    X(choice, loss_avg_mode, "loss_avg_mode", "token-mean",                                                                             \
      "token-mean=token|seq-mean-token-mean=seq|seq-mean-token-sum|seq-mean-token-sum-norm", "how token losses become one; counts are global") \
    X(f64, entropy_coeff, "entropy_coeff", "0.0", "", "weight of the exact entropy bonus")
ARES_OPTION_STRUCT(ares_loss_config, ARES_LOSS_OPTIONS);
ares_option_table ares_loss_options;

/* ------------------------------------------------------------------ advantages (adv.c, adv/): batch -> advantages, returns
 * In: token_level_rewards, response_mask, whole groups; values for ARES_NEEDS_VALUES (turn_ends too, where a row has several turns),
 * samples' baseline for ARES_NEEDS_BASELINE. Out: both columns, 0 where the mask is 0. Everything in double; no order of rows or groups
 * and no rank count changes a bit. Sums over the batch cross ranks: compute is a collective.
 *
 * A row's score is the sum of its rewards. A row without a token of mask 1 (a discarded answer: dapo.md 6.3) has no part in its
 * group's statistics; a group left with fewer than two answers learns nothing. Rows of one episode count once. A group that has only one
 * answer is compared with 0, at a deviation of 1, as in verl (vapor: gets 0); ares_adv_check refuses to sample such groups. What is
 * no number, a mask that is neither 0 nor 1, a group without rows and column lengths that disagree are errors with their place.
 */
enum { ARES_NEEDS_GROUPS = 1, ARES_NEEDS_VALUES = 2, ARES_NEEDS_BASELINE = 4 };
typedef struct ares_adv {
    const char *name, *doc, *formula, *paper;
    unsigned needs;
    int (*compute)(const ares_algorithm_config *cfg, ares_world *world, ares_batch *b); /* world NULL: one rank */
} ares_adv;
const ares_adv *ares_adv_find(const char *name);          /* NULL and a message with the choices */
const char *const *ares_adv_names(int *n);
const ares_adv *const *ares_adv_list(int *n);
/* Faults of options that make no sense together, or for this estimator. n: samples a prompt. */
void ares_adv_check(ares_config *cfg, const ares_algorithm_config *a, int64_t n);
/* A_t <- A_t min(exp(old_log_probs - rollout_log_probs), clip) (RLinf; dapo.md 2.5). compute does it where importance_sampling_fix is set. */
int ares_adv_importance_fix(ares_batch *b, double clip);

/* ------------------------------------------------------------------ aggregation (agg.c)
 * Every mode is a weight per token: loss = sum over tokens of weight x token loss. Counts are over the whole mini-batch
 * and all ranks, so that no micro-batch size and no rank count changes a gradient.
 */
typedef struct ares_agg_counts { double tokens, rows, max_len; } ares_agg_counts; /* mask-1 tokens, rows with at least one, longest possible response */
void ares_agg_count(const ares_batch *b, int64_t row, int64_t end, ares_agg_counts *out); /* adds */
/* weight [tokens of rows row..end), from row_start[row] on; 0 where the mask is 0. */
int ares_agg_weights(const char *mode, const ares_batch *b, int64_t row, int64_t end, const ares_agg_counts *global, float *weight);

/* ------------------------------------------------------------------ KL estimators (kl.c), x = log pi - log ref (Schulman, "Approximating KL divergence") */
typedef struct ares_kl {
    const char *name, *doc;
    double (*value)(double x);
    double (*derivative)(double x); /* of the value by log pi */
} ares_kl;
const ares_kl *ares_kl_find(const char *name);
const char *const *ares_kl_names(int *n);

/* ------------------------------------------------------------------ policy losses (loss.c, loss/)
 * Plain arrays over the tokens of some rows. A loss writes d loss / d log_prob, adds to its sums, and never sees a model.
 */
typedef struct ares_loss_sums {
    double loss, kl, entropy;                    /* weighted by the aggregation: the terms of the loss, KL and entropy without their coefficients */
    double tokens, clip_high, clip_low, neg_log_ratio, ratio; /* counts and plain sums over mask-1 tokens */
    double ratio_min, ratio_max;
} ares_loss_sums;
typedef struct ares_loss_args {
    const ares_loss_config *cfg;
    int64_t n;
    const float *log_prob, *old_log_prob, *advantage, *weight; /* [n] */
    const uint8_t *mask;                                       /* [n] */
    const float *entropy;                                      /* [n]; NULL: not at hand */
    float *d_log_prob;                                         /* [n], added to */
    float *d_entropy;                                          /* [n], added to; NULL when no term needs it */
    ares_loss_sums *sums;
} ares_loss_args;
enum { ARES_LOSS_LOCAL = 1 };   /* a token's derivative needs that token only: head forward and backward may fuse */
typedef struct ares_loss {
    const char *name, *doc;
    unsigned flags;
    int (*compute)(const ares_loss_args *a);
} ares_loss;
const ares_loss *ares_loss_find(const char *name);
const char *const *ares_loss_names(int *n);
void ares_loss_sums_init(ares_loss_sums *s);
void ares_loss_sums_merge(ares_loss_sums *into, const ares_loss_sums *from);
/* The KL and entropy terms of a loss, over the same arrays. ref_log_prob, kl_weight may be NULL. */
int ares_loss_terms(const ares_loss_args *a, const ares_kl *kl, double kl_coef, const float *ref_log_prob, const float *kl_weight);

/* ------------------------------------------------------------------ controls (control.c, control/): state that learns from each step
 * A control is opened where its options ask for it, sees every batch after its groups are complete and again after the update, and
 * is part of every checkpoint. All of its input comes from the batch; what it decides it writes there: samples' difficulty, hwe_count,
 * hwe_target, entropy_alpha; columns hwe, kl_weight; kl_coef. The same on every rank: what ranks know is gathered through world and
 * added in the order of draw numbers, so that no rank count changes a bit. Every function but save and those that only ask is a
 * collective. To add one: a file in control/ and a word in control.c.
 */
typedef struct ares_control_env {
    ares_world *world;           /* may be NULL: one rank */
    const ares_algorithm_config *algorithm;
    int64_t n;                   /* samples a prompt */
    int64_t mini_batch;          /* prompts of an optimizer step, over all ranks; 0: the whole batch */
    bool entropy_reward;         /* a reward reads hwe_count, hwe_target, entropy_alpha and difficulty of the samples */
    const ares_map *gids;        /* of the training rows (ares_dataset_gids); NULL: a loaded state's prompts are not looked up */
} ares_control_env;
typedef struct ares_control_section {
    const char *section;         /* where its options stand: "algorithm" */
    ares_option_table *options;
    size_t offset;               /* of this section's struct in the control's options */
} ares_control_section;
enum { ARES_CONTROL_SECTIONS = 4, ARES_CONTROL_NEEDS_GIDS = 1 };
typedef struct ares_control {
    const char *name, *doc;
    unsigned needs;              /* ARES_CONTROL_NEEDS_GIDS: prompts are told apart by gid, so ares_dataset_gids must hold */
    ares_control_section sections[ARES_CONTROL_SECTIONS]; /* options NULL: none left */
    size_t options_size;         /* of the whole struct, zeroed before its sections are bound */
    bool (*wanted)(const void *options, const ares_control_env *env);
    int (*open)(const void *options, const ares_control_env *env, void **state); /* options and env's pointers outlive the state */
    int (*observe)(void *state, ares_batch *b, ares_metrics *m);  /* the groups are complete: before log-probs and rewards */
    int (*adapt)(void *state, const ares_batch *b, ares_metrics *m); /* the update is done */
    void (*save)(const void *state, ares_str *json);              /* one JSON object */
    int (*load)(void *state, const ares_json *json);              /* what save wrote; a message names the member that does not fit */
    void (*close)(void *state);
    /* The rest may be NULL. */
    int (*generated)(void *state, const ares_batch *b);           /* every batch of groups made for the step, before any is filtered out; tokens and accuracies are there */
    bool (*dropped)(const void *state, int64_t i, ares_view *gid); /* the i-th prompt that shall not come again from the next epoch on; false: no more */
    /* Validation: all of its rows at once, as one batch (the rank's part); writes what observe writes, learns nothing but where it must start. */
    int (*validate)(void *state, ares_batch *b, ares_metrics *m);
    /* A pass over all training rows before the first step, in their order. bootstrap: prompts a batch, 0 when none is asked for or it is complete;
     * *done: prompts it has had (a part of the state: a pass that was cut off goes on). Then bootstrap_add for every batch, bootstrap_finish. */
    int64_t (*bootstrap)(const void *state, int64_t *done);
    int (*bootstrap_add)(void *state, ares_batch *b, ares_metrics *m);
    int (*bootstrap_finish)(void *state, ares_metrics *m);
} ares_control;
const ares_control *const *ares_control_list(int *n);

/* ------------------------------------------------------------------ entropy of tokens and windows (entropy.c; aepo.md 2), all in double */
/* Entropy of a token from the log-probs of its likeliest candidates; tail: what they leave of the mass counts as one more outcome. */
double ares_entropy_top_k(const double *log_probs, int64_t n, bool tail);
/*
 * window[t] = (h[t+1] + ... + h[t+w]) / w for t < n - w, the number returned (0 or more; nothing is written behind it): the entropy that
 * follows token t. Each sum is made of its own w terms, so a window has the same bits wherever it stands in whatever answer.
 */
int64_t ares_entropy_windows(const double *h, int64_t n, int64_t w, double *window);
/* The list behind a sample's percentile: the windows, then their mean for each token without one; all h[0] where there is no window. */
void ares_entropy_pad_windows(const double *h, int64_t n, const double *window, int64_t windows, double *padded);
/* q-th percentile with linear interpolation between order statistics, as numpy's; 0 for n = 0. By selection: O(n). */
double ares_percentile(const double *x, int64_t n, double q);
double ares_median(const double *x, int64_t n);
double ares_entropy_sample_threshold(const double *h, int64_t n, int64_t w, double q); /* the percentile of the padded list */
double ares_entropy_threshold_step(bool started, double tau, double median, double ema); /* tau <- median the first time, then a moving average */
/* High-window-entropy (HWE) tokens: candidates (NULL: all) whose window reaches tau. mask [n] is written (may be NULL): 0 where there is no window. */
typedef struct ares_hwe { int64_t count, invalid; double soft_cost; } ares_hwe; /* candidates at or above tau, below it; sum of window - tau of the former */
ares_hwe ares_hwe_mark(const double *window, int64_t windows, int64_t n, double tau, const uint8_t *candidates, uint8_t *mask);
void ares_hwe_widen(const uint8_t *mask, int64_t n, int64_t w, uint8_t *wide); /* each HWE token and the w tokens behind it */
/* A token's text as trigger words are compared: leading U+2581 and U+0120 stripped, then white space, then lower case (ASCII). Into out, replaced. */
void ares_trigger_normalize(ares_view token, ares_str *out);

/* ------------------------------------------------------------------ statistics (stats.c): f64 throughout, no order of the values changes a bit */
double ares_mean(const double *x, int64_t n);              /* of equal values: that value; 0 for n = 0 */
double ares_std(const double *x, int64_t n, double mean);  /* divides by n - 1; 0 for n < 2 */
/*
 * An exact sum of doubles, however many: a fixed-point number of 2,240 bits, rounded once. Sums of parts and of ranks add up to the
 * same bits as one sum over everything.
 */
enum { ARES_EXACT_LIMBS = 70 };
typedef struct ares_exact_sum { int64_t limb[ARES_EXACT_LIMBS], added; } ares_exact_sum; /* {0} is zero */
void ares_exact_add(ares_exact_sum *s, double x);          /* x finite */
int ares_exact_ranks(ares_exact_sum *s, int n, ares_world *world); /* n sums at once over all ranks */
double ares_exact_value(const ares_exact_sum *s);
/* Over the values x [n] where mask [n] is 1, on all ranks. */
typedef struct ares_moments {
    double count, sum;
    double mean, var;                 /* sum / (count + 1e-8), and the mean square about it times count / (count - 1): as verl and EasyR1 whiten */
    double true_mean, population_var; /* without either */
} ares_moments;
int ares_masked_moments(ares_world *world, const double *x, const uint8_t *mask, int64_t n, ares_moments *out);
int ares_masked_whiten(ares_world *world, double *x, const uint8_t *mask, int64_t n);    /* (x - mean) / sqrt(var + 1e-8); 0 where mask is 0 */
int ares_masked_normalize(ares_world *world, double *x, const uint8_t *mask, int64_t n); /* (x - true_mean) / (sqrt(population_var) + 1e-5) (dapo.md 2.4); 0 likewise */
/* The chance that one of k answers out of n, of which `correct` are right, is right (arXiv 2107.03374, eq. 1). */
double ares_pass_at_k(int64_t n, int64_t correct, int64_t k);
#endif
