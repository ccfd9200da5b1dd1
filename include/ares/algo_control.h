/*
 * algo: controls, which keep state and learn from each step, and their arithmetic as pure functions
 * in double (src/algo/control; docs/aepo.md#difficulty-targets-and-alphas,
 * docs/aepo.md#kl-by-token-and-difficulty).
 */
#ifndef ARES_ALGO_CONTROL_H
#define ARES_ALGO_CONTROL_H

#include "ares/algo.h"

/* ---------------- controls (control/table.c)
 * A control is opened where its options ask for it, sees every batch after its groups are complete
 * and again after the update, and is part of every checkpoint. It reads its input from the batch
 * and writes its decisions there: samples' difficulty, hwe_count, hwe_target and entropy_alpha, the
 * columns hwe and kl_weight, kl_coef. Its state is the same on every rank: what the ranks know is
 * gathered through world and added in the order of draw numbers, so that the number of ranks
 * changes no bit. Every function but save and those that only ask is a collective. To add one: a
 * file in control/ and a word in control/table.c.
 */
typedef struct ares_control_env {
    ares_world *world; /* may be NULL: one rank */
    const ares_algorithm_config *algorithm;
    int64_t n;           /* samples per prompt */
    bool validates;      /* validations are made during training */
    bool entropy_reward; /* a reward reads samples' hwe_count, hwe_target, entropy_alpha, difficulty
                          */
    /* the training rows' ids (ares_source_gids), which a loaded state's must be among; NULL: any
     */
    const ares_map *gids;
} ares_control_env;
typedef struct ares_control_section {
    const char *section; /* the options' path: "algorithm" */
    ares_option_table *options;
    size_t offset; /* of this section's struct in the control's options */
} ares_control_section;
enum { ARES_CONTROL_SECTIONS = 4, ARES_CONTROL_NEEDS_GIDS = 1 };
typedef struct ares_control {
    const char *name, *doc, *formula, *paper;
    const char *option; /* the setting that asks for it, as users write it */
    /* ARES_CONTROL_NEEDS_GIDS: it tells prompts apart by gid, so every row needs one */
    unsigned needs;
    ares_control_section sections[ARES_CONTROL_SECTIONS]; /* the rest have options NULL */
    size_t options_size; /* of the whole struct, zeroed before its sections are bound */
    bool (*wanted)(const void *options, const ares_control_env *env);
    /* options and env's pointers outlive the state */
    int (*open)(const void *options, const ares_control_env *env, void **state);
    void (*save)(const void *state, ares_str *json); /* one JSON object */
    /* what save wrote; a message names the member that does not fit */
    int (*load)(void *state, const ares_json *json);
    void (*close)(void *state);
    /* The rest may be NULL. */
    /* after the groups are complete, before log-probs and rewards */
    int (*observe)(void *state, ares_batch *b, ares_metrics *m);
    int (*adapt)(void *state, const ares_batch *b, ares_metrics *m); /* after the update */
    /* every batch of groups made for the step, with accuracies, before any group is filtered out */
    int (*generated)(void *state, const ares_batch *b);
    /*
     * Asked after observe, and before a run goes on: a word for the reason to end the run, or NULL.
     * The step in which observe brings it about makes no update. It follows from the saved state.
     */
    const char *(*stop)(const void *state);
    /*
     * Groups that a filter of shaped scores is about to judge: writes samples' difficulty,
     * hwe_count, hwe_target and entropy_alpha from what is known so far and each group's own
     * accuracy; the state does not change.
     */
    int (*provisional)(const void *state, ares_batch *b);
    /* the i-th prompt that is left out from the next epoch on; false: no more */
    bool (*dropped)(const void *state, int64_t i, ares_view *gid);
    /*
     * Validation: all of the rank's validation rows as one batch. Writes what observe writes; the
     * state changes only where it has no value to start from.
     */
    int (*validate)(void *state, ares_batch *b, ares_metrics *m);
    /*
     * A validation during training is complete: its metrics, the same on every rank. Not after the
     * one before the first step, nor after one that a run makes only to show where it goes on.
     */
    int (*validated)(void *state, const ares_metrics *m);
    /*
     * A pass over all training rows before the first step, in their order. bootstrap returns the
     * prompts per batch, or 0 when no pass is asked for or it is complete; *done: prompts that it
     * has had, which the state keeps so that an interrupted pass goes on. Then bootstrap_add for
     * every batch, and bootstrap_finish.
     */
    int64_t (*bootstrap)(const void *state, int64_t *done);
    int (*bootstrap_add)(void *state, ares_batch *b, ares_metrics *m);
    int (*bootstrap_finish)(void *state, ares_metrics *m);
} ares_control;
const ares_control *const *ares_control_list(int *n);

/* ---------------- difficulty, targets, alphas (control/buckets.c) */
/* easy from 2.0 / 3 on, medium from 1.0 / 3 on, else hard */
ares_difficulty ares_difficulty_of(double accuracy);
/* ARES_DIFFICULTY_NONE when name is none of the three */
ares_difficulty ares_difficulty_find(ares_view name);
double ares_round_half_even(double x);
/* Target number of HWE tokens of a difficulty: coef x the mean over its prompts, rounded. */
int64_t ares_aepo_target(double mean, double coef);
typedef struct ares_aepo_prompt {
    ares_view gid;
    int64_t samples;
    double accuracy, hwe, length; /* sums over its samples */
    ares_difficulty difficulty;   /* written */
} ares_aepo_prompt;
/*
 * By difficulty: the number of prompts, and means over prompts of their samples' mean number of HWE
 * tokens, accuracy and length.
 */
typedef struct ares_aepo_buckets {
    int64_t prompts[ARES_DIFFICULTIES];
    double hwe[ARES_DIFFICULTIES], accuracy[ARES_DIFFICULTIES], length[ARES_DIFFICULTIES];
} ares_aepo_buckets;
void ares_aepo_bucket(ares_aepo_prompt *prompts, int64_t n, ares_aepo_buckets *out);
/*
 * The weight of the entropy score and the target of each difficulty, and one step of them: alphas
 * move by the old targets, then, with renew, the targets are replaced. A difficulty without prompts
 * keeps both; one without a target keeps its alpha and gets a target. coef: by difficulty.
 */
typedef struct ares_aepo_aims {
    double alpha[ARES_DIFFICULTIES];
    int64_t target[ARES_DIFFICULTIES];
    bool target_known[ARES_DIFFICULTIES];
} ares_aepo_aims;
typedef struct ares_aepo_rates {
    double lr, min, max;
    const double *coef;
    bool renew;
} ares_aepo_rates;
void ares_aepo_aim(const ares_aepo_rates *rates, const ares_aepo_buckets *buckets,
                   ares_aepo_aims *aims);
/*
 * Prompts that have become too easy: all answers right, with fewer HWE tokens than m + ratio
 * (target_easy - m), where m is the smallest mean number of an easy prompt. prompts: after
 * ares_aepo_bucket; drop [n] is written.
 */
void ares_aepo_too_easy(const ares_aepo_prompt *prompts, int64_t n, double target_easy,
                        double ratio, bool *drop);
/*
 * Accuracy by number of HWE tokens: 3 bins between 4 equally spaced edges from the smallest to the
 * largest number, truncated to integers; half-open, the last closed; n >= 1. The accuracy of an
 * empty bin is NaN.
 */
typedef struct ares_accuracy_bins {
    int64_t edges[4], count[3];
    double accuracy[3];
} ares_accuracy_bins;
void ares_accuracy_by_hwe(const int64_t *hwe, const double *accuracy, int64_t n,
                          ares_accuracy_bins *out);

/* ---------------- KL (control/kl_bucket.c, control/adaptive_kl.c) */
/* Mean over the tokens with mask 1; 0 where there is none. */
double ares_kl_row_mean(const float *kl, const uint8_t *mask, int64_t n);
/*
 * After an optimizer step of the actor: appends the mean KL of every row of [row, end) that counts
 * and that the step trained on to b->row_kl, and increments b->updates. kl [b->tokens]; NULL: no KL
 * is known. passed [b->rows]: which rows the step trained on; NULL: all.
 */
void ares_kl_see(ares_batch *b, int64_t row, int64_t end, const float *kl, const bool *passed);
/* Dual ascent on a budget of KL: lambda <- max(0, lambda + eta (kl - budget)). */
double ares_kl_lambda_step(double lambda, double kl, double budget, double eta);
/*
 * Moves beta in log space by a smoothed relative error. Only every interval-th update moves it;
 * update counts from 1.
 */
typedef struct ares_log_beta_config {
    double target, lr, clip, ema, deadzone, min, max;
    int64_t interval;
} ares_log_beta_config;
typedef struct ares_log_beta {
    double beta, kl_ema, error_ema;
    bool started; /* kl_ema has a value */
} ares_log_beta;
void ares_log_beta_step(const ares_log_beta_config *cfg, int64_t update, double kl,
                        ares_log_beta *s);
/* kl_weight of a row: factor, times scale where relax (NULL: nowhere) is 1; 0 where mask is 0. */
void ares_kl_weigh(double factor, double scale, const uint8_t *relax, const uint8_t *mask,
                   int64_t n, float *weight);
/*
 * The controller of Ziegler et al. (arXiv 1909.08593, 2.2): coef <- coef (1 + error n / horizon),
 * error = clip(kl / target - 1, -0.2, 0.2).
 */
double ares_adaptive_kl_step(double coef, double kl, double target, double n, double horizon);
/*
 * KL as part of the reward: token_level_rewards, which the caller has allocated, = scores - coef x
 * kl_weight x kl where the mask is 1, else the scores. Reads b->kl and, if it is not NULL,
 * b->kl_weight. Adds to sums[0] the mean KL, without weights, of each row that counts, to sums[1]
 * the number of these rows.
 */
void ares_kl_in_reward(ares_batch *b, double coef, double sums[2]);
#endif
