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
    X(flag, norm_adv_by_std_in_grpo, "norm_adv_by_std_in_grpo", "true", "", "grpo: divide by the group's standard deviation; false is Dr. GRPO") \
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

/* ------------------------------------------------------------------ advantages (adv.c, adv/): batch -> advantages, returns */
enum { ARES_NEEDS_GROUPS = 1, ARES_NEEDS_VALUES = 2, ARES_NEEDS_BASELINE = 4 };
typedef struct ares_adv {
    const char *name, *doc;
    unsigned needs;
    int (*compute)(const ares_algorithm_config *cfg, ares_batch *b); /* reads token_level_rewards, response_mask (values) */
} ares_adv;
const ares_adv *ares_adv_find(const char *name);          /* NULL and a message with the choices */
const char *const *ares_adv_names(int *n);

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
 * hwe_target, entropy_alpha; columns hwe, kl_weight; kl_coef. The same on every rank: sums cross ranks through world.
 */
typedef struct ares_control_env {
    ares_world *world;           /* may be NULL: one rank */
    const ares_algorithm_config *algorithm;
    int64_t n;                   /* samples a prompt */
} ares_control_env;
typedef struct ares_control {
    const char *name, *doc;
    const char *section;         /* where its options stand: "algorithm" */
    ares_option_table *options;
    size_t options_size;
    bool (*wanted)(const void *options, const ares_algorithm_config *algorithm);
    int (*open)(const void *options, const ares_control_env *env, void **state);
    int (*observe)(void *state, ares_batch *b, ares_metrics *m);  /* the groups are complete: before log-probs and rewards */
    int (*adapt)(void *state, const ares_batch *b, ares_metrics *m); /* the update is done */
    void (*save)(const void *state, ares_str *json);              /* one JSON object */
    int (*load)(void *state, const ares_json *json);              /* what save wrote; a message names the member that does not fit */
    void (*close)(void *state);
} ares_control;
const ares_control *const *ares_control_list(int *n);

/* ------------------------------------------------------------------ statistics (stats.c): f64 throughout, row order irrelevant to equal values */
double ares_mean(const float *x, int64_t n);
double ares_std(const float *x, int64_t n, double mean); /* divides by n - 1; 0 for n < 2 */
#endif
