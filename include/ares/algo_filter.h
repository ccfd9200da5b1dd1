/*
 * algo: which groups of answers a step learns from, and how many to ask for (src/algo/filter;
 * docs/filters.md). A filter is a pure function of plain arrays, because groups are filtered before
 * there is a batch. Its decisions do not depend on the number of ranks when the arrays hold the
 * groups of all ranks in the order of their draws.
 */
#ifndef ARES_ALGO_FILTER_H
#define ARES_ALGO_FILTER_H

#include "ares/config.h"
#include "ares/core.h"

/* An option that both the step and a control (control/early_stop.c) read. */
#define ARES_FILTER_EMPTY_POLICY(X)                                                             \
    X(choice, empty_policy, "algorithm.filter_empty_policy", "null", "retry|skip",              \
      "what happens when filters keep no group of a step: retry draws a whole batch again, "    \
      "up to 10 rounds, and then ends the run; skip fills the step with masked groups, trains " \
      "on nothing, and ends the run after filter_empty_stop_steps such steps in a row; null: "  \
      "as skip, but the run never ends for it")
/* ---------------- options, under the paths of EasyR1, verl, RAGEN and slime */
#define ARES_FILTER_OPTIONS(X)                                                                     \
    X(flag, online_filtering, "algorithm.online_filtering", "false", "",                           \
      "keep groups whose mean (filter_key) lies strictly between filter_low and filter_high")      \
    X(choice, filter_key, "algorithm.filter_key", "accuracy", "accuracy=acc|overall=score",        \
      "online_filtering: take the mean of the answers' accuracies, or of their overall scores as " \
      "the batch would have them, penalties of length and entropy included")                       \
    X(f64, filter_low, "algorithm.filter_low", "0.01", "", "online_filtering: strict lower bound") \
    X(f64, filter_high, "algorithm.filter_high", "0.99", "",                                       \
      "online_filtering: strict upper bound")                                                      \
    X(flag, informative, "algorithm.filter_groups.enable", "false", "",                            \
      "DAPO's dynamic sampling: keep groups that have both right and wrong answers")               \
    X(choice, informative_by, "algorithm.filter_groups.metric", "acc",                             \
      "acc=accuracy|score=seq_reward=seq_final_reward",                                            \
      "filter_groups: acc keeps groups of right and wrong answers, judged before any shaping of "  \
      "their reward; score keeps groups whose scores differ by more than 1e-6")                    \
    X(choice, resample_mode, "algorithm.dynamic_sampling.mode", "new_prompts",                     \
      "new_prompts|same_prompt",                                                                   \
      "what replaces a dropped group: a group of another prompt, or further answers to the same "  \
      "prompt")                                                                                    \
    X(i64, max_resample, "algorithm.max_resample", "null", "",                                     \
      "most draws after the first for one batch; negative: no limit; null: "                       \
      "trainer.max_try_make_batch less one. With rollout_filter_* as the only filter, draws are "  \
      "repeated only where this is set and not 0")                                                 \
    X(choice, on_exhausted, "algorithm.on_exhausted", "null", "fill_masked|smaller_batch|error",   \
      "what happens when the last draw leaves the batch incomplete: dropped groups fill it "       \
      "without being trained on, the batch stays smaller, or the run ends with an error; null: "   \
      "fill_masked with filter_groups, smaller_batch with rollout_filter_* as the only filter, "   \
      "else error")                                                                                \
    X(choice, over_length_action, "algorithm.over_length_action", "mask", "mask|drop|keep",        \
      "answers longer than worker.reward.max_length, or than the limit of the reward that "        \
      "penalises length: mask keeps them in the batch but trains on nothing of them and counts "   \
      "them nowhere; drop leaves them out of the batch as well; keep treats them like others")     \
    X(flag, mask_truncated, "algorithm.mask_truncated", "false", "",                               \
      "do what over_length_action: mask does to every answer that is cut off by length (DAPO's "   \
      "overlong filtering)")                                                                       \
    X(choice, dynamic_sampling, "algorithm.dynamic_sampling_filter", "none",                       \
      "none|reward_cap=check_reward_cap_per_source=examples.curriculum_learning.reward_cap_"       \
      "filter.check_reward_cap_per_source|nonzero_std=check_reward_nonzero_std",                   \
      "reward_cap: drop groups whose scores are all 0 and groups whose mean score is above the "   \
      "cap of their data source; nonzero_std: drop groups of equal scores")                        \
    X(flag, keep_when_insufficient, "algorithm.keep_when_insufficient", "false", "",               \
      "nonzero_std: keep a group where dropping it would make another draw necessary")             \
    X(choice, rv_strategy, "worker.rollout.rollout_filter_strategy", "top_p",                      \
      "none|top_p|top_k=top_f|top_k_abs|min_p",                                                    \
      "rank the groups of the batch that the other filters have filled by rollout_filter_metric "  \
      "and keep the first ones; the batch becomes smaller. rollout_filter_value says how many")    \
    X(f64, rv_value, "worker.rollout.rollout_filter_value", "1.0", "[0,)",                         \
      "how many groups stay. top_p: until their share of the mass reaches this; top_k: this "      \
      "share of all groups; top_k_abs: this number of groups; min_p: those with at least this "    \
      "share of the largest metric")                                                               \
    X(choice, rv_type, "worker.rollout.rollout_filter_type", "largest", "largest|smallest",        \
      "whether the groups with the largest or with the smallest metric stay")                      \
    X(choice, rv_metric, "worker.rollout.rollout_filter_metric", "reward_variance",                \
      "reward_variance=reward_std|reward|reward_sum|entropy|entropy_variance=entropy_std|length",  \
      "what groups are ranked by; ..._variance is the standard deviation within the group, with "  \
      "divisor n - 1")                                                                             \
    X(flag, rv_include_zero, "worker.rollout.rollout_filter_include_zero", "true", "",             \
      "rank groups whose metric is 0 as well; false: they are dropped")                            \
    X(choice, rv_prob_mode, "worker.rollout.rollout_filter_top_p_prob_mode", "softmax",            \
      "softmax|linear",                                                                            \
      "top_p: a group's mass is the softmax of its metric, or the metric itself")                  \
    X(f64, rv_eps, "worker.rollout.rollout_filter_selection_eps", "0.01", "[0,)",                  \
      "top_p with linear masses: subtracted from the mass that is to be reached")                  \
    X(choice, loss_scaling, "worker.actor.filter_loss_scaling", "none", "none|linear|sqrt",        \
      "multiply advantages by the share of groups that stay, or by its square root")               \
    X(choice, batch_adjust, "algorithm.batch_adjust_mode", "none", "none|copy|delete",             \
      "a batch that filters made smaller is brought to whole mini-batches of rows: copy grows it " \
      "to the next common multiple of data.rollout_batch_size and the mini-batches by copies of "  \
      "rows chosen at random, delete drops such rows down to the multiple below. A copy counts "   \
      "like any row, and rows that train nothing leave the batch first. It needs "                 \
      "worker.actor.mini_batch_unit: rows")                                                        \
    ARES_FILTER_EMPTY_POLICY(X)
ARES_OPTION_STRUCT(ares_filter_config, ARES_FILTER_OPTIONS);
ares_option_table ares_filter_options;

/* ---------------- groups (filter/filter.c) */
typedef struct ares_groups {
    int64_t groups;
    /* [groups + 1]: group g owns rows [group_start[g], group_start[g + 1]) */
    const int64_t *group_start;
    /*
     * By row; NULL where no filter in use needs it (ares_filter_needs). score: from the reward
     * manager, before any shaping, so that penalties of length and entropy do not make equal
     * answers differ.
     */
    const double *score;
    const double *overall;          /* the shaped score, as the batch would have it */
    const double *accuracy;         /* NaN: the reward gives none */
    const double *length, *entropy; /* tokens of the policy; their mean entropy */
    const uint8_t *valid;           /* 0: discarded (too long); NULL: all count */
    /* By group. */
    const char *const *source; /* name of the data source; NULL, or an entry NULL: unknown */
    const double *cap;         /* its reward cap (ares_reward_cap); NULL, or an entry NaN: none */
    /* for keep_when_insufficient: groups asked for and not dropped so far, groups of the batch */
    int64_t in_play, target;
} ares_groups;
typedef struct ares_verdict {
    bool keep;
    char reason[112]; /* "" where keep is true; all_zero_math, zero_std_1.0, accuracy_low ... */
} ares_verdict;
/* What a filter reads; RANKS: it compares groups with each other. */
enum {
    ARES_FILTER_SCORE = 1,
    ARES_FILTER_ACCURACY = 2,
    ARES_FILTER_LENGTH = 4,
    ARES_FILTER_ENTROPY = 8,
    ARES_FILTER_OVERALL = 16,
    ARES_FILTER_RANKS = 32
};
/* What the checks of filters know of a run besides its filters. */
typedef struct ares_filter_run {
    int64_t n;   /* samples per prompt */
    bool judges; /* answers may have an accuracy */
} ares_filter_run;
typedef struct ares_filter {
    const char *name, *doc, *formula, *paper; /* formula: of what stays */
    const char *option;                       /* the setting that asks for it, as users write it */
    bool (*wanted)(const ares_filter_config *cfg);
    unsigned (*needs)(const ares_filter_config *cfg);
    /* looks at groups whose keep is true, and may clear it with a reason */
    int (*select)(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v);
    /* reports its options that make no sense, whether or not it is wanted; NULL: there are none */
    void (*check)(ares_config *cfg, const ares_filter_config *f, const ares_filter_run *run);
    const char *reads; /* as ares_adv.reads */
} ares_filter;
const ares_filter *const *ares_filter_list(int *n);
unsigned ares_filter_needs(const ares_filter_config *cfg); /* of all filters wanted; 0: none is */
/*
 * Runs every wanted filter in the order of the list; v [groups] is written. An empty group, a
 * number that is not finite and a missing accuracy that a filter needs are errors that name the
 * row; it is no error if all groups are dropped. Answers that are not valid count in no filter; a
 * group that has no others is dropped as all_discarded.
 */
int ares_filter_groups(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v);
/*
 * Splits cfg into the filters of each draw, whose dropped groups are replaced by further draws, and
 * the one that acts once on the complete batch: RAGEN's ranking, which makes the batch smaller.
 * Where the ranking is the only filter and max_resample is set and not 0, it acts on each draw
 * instead.
 */
void ares_filter_stages(const ares_filter_config *cfg, ares_filter_config *of_draws,
                        ares_filter_config *of_batch);
/*
 * on_exhausted, or where it is unset: fill_masked with filter_groups, smaller_batch with the
 * ranking as the only filter, else error.
 */
const char *ares_filter_on_exhausted(const ares_filter_config *cfg);
/* Counts over all draws of a step: groups, those kept, those of equal scores. */
typedef struct ares_filter_counts {
    int64_t groups, kept, zero;
} ares_filter_counts;
/* Adds to the counts and to the metrics rollout/dynamic_filter/drop_<reason>. */
void ares_filter_count(const ares_groups *g, const ares_verdict *v, ares_filter_counts *c,
                       ares_metrics *m);
/* The metrics rollout/filter_kept_count, _kept_ratio and _zero_count; none without groups. */
void ares_filter_report(const ares_filter_counts *c, ares_metrics *m);
/* Reports options that make no sense together: of each filter, and of several. */
void ares_filter_check(ares_config *cfg, const ares_filter_config *f, const ares_filter_run *run);

/*
 * Whether an answer is discarded (docs/dapo.md#answers-beyond-the-limit). max_length ARES_NULL_I64:
 * no limit; stopped: it ended by itself, and was not cut off by length.
 */
bool ares_answer_discarded(const ares_filter_config *cfg, int64_t length, int64_t max_length,
                           bool stopped);
/*
 * The reward cap of a source (docs/filters.md#caps-by-data-source); NaN, no cap, where the source
 * is NULL or not among the names, or the numbers of names and caps differ.
 */
double ares_reward_cap(const char *const *names, int64_t n_names, const double *caps,
                       int64_t n_caps, const char *source);
/* mode none: 1; linear: kept / total; sqrt: its square root */
double ares_filter_loss_scale(const char *mode, int64_t kept, int64_t total);

/* ---------------- how many groups to ask for (filter/resample.c) */
/*
 * Over-sampling (docs/filters.md#over-sampling): `batch` groups are fetched at the start, and again
 * whenever the groups that are not dropped could no longer fill the batch.
 */
typedef struct ares_oversampling {
    int64_t target, batch, max_fetches; /* groups per batch, groups per fetch; 0: no limit */
    int64_t fetches, submitted, finished, dropped, kept;
} ares_oversampling;
/* an error where batch is below target */
int ares_oversampling_init(ares_oversampling *s, int64_t target, int64_t batch,
                           int64_t max_fetches);
/* groups to fetch; call again until it is 0 */
int ares_oversampling_fetch(ares_oversampling *s, int64_t *groups);
/* counts a judged group; returns whether it joins the batch, which may be full */
bool ares_oversampling_finish(ares_oversampling *s, bool keep);
bool ares_oversampling_done(const ares_oversampling *s);

/*
 * DAPO's rounds (docs/dapo.md#rounds-of-draws): draw, keep the informative groups, and draw again
 * for the missing ones up to max_resample times.
 */
typedef struct ares_resampling {
    int64_t target;       /* prompts wanted */
    int64_t batch;        /* prompts per round; 0: those missing */
    int64_t max_resample; /* rounds after the first; negative: no limit */
    int64_t rounds, drawn, kept, surplus;
} ares_resampling;
/* prompts of the next round; 0: the batch is full, or no round is left */
int64_t ares_resampling_draw(const ares_resampling *s);
int64_t ares_resampling_dropped(const ares_resampling *s); /* uninformative groups so far */
/*
 * Counts a judged round of n groups. Groups are numbered in the order of all draws, from 0; the
 * numbers of informative groups that the batch takes are appended to kept_ids, those of
 * uninformative ones to dropped_ids. Both have space for drawn + n numbers.
 */
void ares_resampling_add(ares_resampling *s, const bool *informative, int64_t n, int64_t *kept_ids,
                         int64_t *dropped_ids);
/*
 * The groups to train on: batch [target] receives the numbers of *count groups, first the kept
 * ones; with fill_masked then uninformative ones in their order, from *masked on, whose loss mask
 * is to be 0. With error the message has the counts. *outcome: full, filled or smaller_batch.
 */
int ares_resampling_finish(const ares_resampling *s, const char *on_exhausted,
                           const int64_t *kept_ids, const int64_t *dropped_ids, int64_t *batch,
                           int64_t *count, int64_t *masked, const char **outcome);

/*
 * The number of rows after filtering (docs/filters.md#a-smaller-batch-made-whole): rounded up, by
 * copying rows, or down, by deleting some, to a multiple of lcm(env_groups, mini_batch, other);
 * other: the critic's mini-batch, or a number of ranks.
 */
int64_t ares_batch_adjust_divisor(int64_t env_groups, int64_t mini_batch, int64_t other);
int64_t ares_batch_adjust_target(bool copy, int64_t rows, int64_t divisor);
#endif
