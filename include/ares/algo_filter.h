/*
 * algo: which groups of answers a step learns from, and how many to ask for. A filter is a pure
 * function of plain arrays, because groups are filtered before there is a batch; what it decides
 * depends on no rank count when the arrays hold the groups of all ranks in the order of their
 * draws.
 */
#ifndef ARES_ALGO_FILTER_H
#define ARES_ALGO_FILTER_H

#include "ares/config.h"
#include "ares/core.h"

/* ---------------- options, under the paths their users type (EasyR1, verl, RAGEN, the curriculum)
 */
#define ARES_FILTER_OPTIONS(X)                                                                    \
    X(flag, online_filtering, "algorithm.online_filtering", "false", "",                          \
      "keep groups whose mean lies strictly between filter_low and filter_high")                  \
    X(choice, filter_key, "algorithm.filter_key", "accuracy", "accuracy=acc|overall=score",       \
      "of what online_filtering takes the mean; overall: the score as the batch would have it, "  \
      "penalties of length and entropy included")                                                 \
    X(f64, filter_low, "algorithm.filter_low", "0.01", "", "strict lower bound")                  \
    X(f64, filter_high, "algorithm.filter_high", "0.99", "", "strict upper bound")                \
    X(flag, informative, "algorithm.filter_groups.enable", "false", "",                           \
      "DAPO: keep groups of right and wrong answers")                                             \
    X(choice, informative_by, "algorithm.filter_groups.metric", "acc",                            \
      "acc=accuracy|score=seq_reward=seq_final_reward",                                           \
      "acc: of answers before any shaping of their reward; score: scores that differ by more "    \
      "than 1e-6")                                                                                \
    X(choice, resample_mode, "algorithm.dynamic_sampling.mode", "new_prompts",                    \
      "new_prompts|same_prompt",                                                                  \
      "what replaces a dropped group: one of a further prompt, or further answers to the same "   \
      "one")                                                                                      \
    X(i64, max_resample, "algorithm.max_resample", "null", "",                                    \
      "draws after the first for one batch at most; negative: no limit; null: "                   \
      "trainer.max_try_make_batch less one. rollout_filter_* alone draws again only where this "  \
      "is set and not 0")                                                                         \
    X(choice, on_exhausted, "algorithm.on_exhausted", "null", "fill_masked|smaller_batch|error",  \
      "after the last of them: dropped groups fill the batch and teach nothing, the batch stays " \
      "smaller, or the run ends; null: fill_masked with filter_groups, smaller_batch with "       \
      "rollout_filter_* alone, else error")                                                       \
    X(choice, over_length_action, "algorithm.over_length_action", "mask", "mask|drop|keep",       \
      "answers longer than worker.reward.max_length, or than the limit of the reward that "       \
      "penalises length: mask: they teach nothing and count nowhere; drop: nor are they rows of " \
      "the batch; keep: they are as others")                                                      \
    X(flag, mask_truncated, "algorithm.mask_truncated", "false", "",                              \
      "the same for every answer that is cut by length (DAPO's overlong filtering)")              \
    X(choice, dynamic_sampling, "algorithm.dynamic_sampling_filter", "none",                      \
      "none|reward_cap=check_reward_cap_per_source=examples.curriculum_learning.reward_cap_"      \
      "filter.check_reward_cap_per_source|nonzero_std=check_reward_nonzero_std",                  \
      "reward_cap: drop groups of zeros and those whose mean is above their source's cap; "       \
      "nonzero_std: of equal scores")                                                             \
    X(flag, keep_when_insufficient, "algorithm.keep_when_insufficient", "false", "",              \
      "nonzero_std: keep a group when dropping it would force another draw")                      \
    X(choice, rv_strategy, "worker.rollout.rollout_filter_strategy", "top_p",                     \
      "none|top_p|top_k=top_f|top_k_abs|min_p",                                                   \
      "which groups of the batch that other filters have filled, ranked by "                      \
      "rollout_filter_metric, stay; the batch is the smaller for it")                             \
    X(f64, rv_value, "worker.rollout.rollout_filter_value", "1.0", "[0,)",                        \
      "top_p: mass; top_k: share of all groups; top_k_abs: groups; min_p: share of the largest")  \
    X(choice, rv_type, "worker.rollout.rollout_filter_type", "largest", "largest|smallest",       \
      "which end of the ranking stays")                                                           \
    X(choice, rv_metric, "worker.rollout.rollout_filter_metric", "reward_variance",               \
      "reward_variance=reward_std|reward|reward_sum|entropy|entropy_variance=entropy_std|length", \
      "of a group: ..._variance is the standard deviation, by n - 1")                             \
    X(flag, rv_include_zero, "worker.rollout.rollout_filter_include_zero", "true", "",            \
      "rank groups whose metric is 0 as well")                                                    \
    X(choice, rv_prob_mode, "worker.rollout.rollout_filter_top_p_prob_mode", "softmax",           \
      "softmax|linear", "top_p: what a group's mass is")                                          \
    X(f64, rv_eps, "worker.rollout.rollout_filter_selection_eps", "0.01", "[0,)",                 \
      "top_p linear: taken off the mass to reach")                                                \
    X(choice, loss_scaling, "worker.actor.filter_loss_scaling", "none", "none|linear|sqrt",       \
      "advantages times the share of groups that stay, or its root")
ARES_OPTION_STRUCT(ares_filter_config, ARES_FILTER_OPTIONS);
ares_option_table ares_filter_options;

/* ------------------------------------------------------------------ groups (filter.c, filter/) */
typedef struct ares_groups {
    int64_t groups;
    /* [groups + 1]: group g owns rows [group_start[g], group_start[g + 1]) */
    const int64_t *group_start;
    /* By row. NULL where no filter in use asks for it (ares_filter_needs). */
    /* of the reward manager, before any shaping: length and entropy teach no group apart */
    const double *score;
    const double *overall;          /* as the batch would have it, shaped */
    const double *accuracy;         /* NaN: the reward gives none */
    const double *length, *entropy; /* tokens of the policy; their mean entropy */
    const uint8_t *valid;           /* 0: discarded (too long); NULL: all count */
    /* By group. */
    /* name of the data source; NULL, or an entry NULL: unknown */
    const char *const *source;
    /* the source's reward cap at the group's step (ares_reward_cap); NULL, or NaN: none */
    const double *cap;
    /* groups asked for and not dropped so far, and the batch's: keep_when_insufficient */
    int64_t in_play, target;
} ares_groups;
typedef struct ares_verdict {
    bool keep;
    /* "" for a group that stays: all_zero_math, zero_std_1.0, accuracy, rv ... */
    char reason[112];
} ares_verdict;
/* RANKS: compares groups with each other */
enum {
    ARES_FILTER_SCORE = 1,
    ARES_FILTER_ACCURACY = 2,
    ARES_FILTER_LENGTH = 4,
    ARES_FILTER_ENTROPY = 8,
    ARES_FILTER_OVERALL = 16,
    ARES_FILTER_RANKS = 32
};
typedef struct ares_filter {
    const char *name, *doc, *formula, *paper; /* formula: of what stays */
    const char *option;                       /* words that ask for it */
    bool (*wanted)(const ares_filter_config *cfg);
    unsigned (*needs)(const ares_filter_config *cfg);
    /* decides on groups whose keep is true; may clear it */
    int (*select)(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v);
} ares_filter;
const ares_filter *const *ares_filter_list(int *n);
unsigned ares_filter_needs(const ares_filter_config *cfg); /* of all filters wanted; 0: none is */
/*
 * Every wanted filter, in the order of the list; v [groups] is written. An empty group, a number
 * that is not finite, and an accuracy that is asked for and not there are errors that name the row.
 * All groups dropped is no error. Answers that are not valid count in no filter; a group of nothing
 * else is dropped as all_discarded.
 */
int ares_filter_groups(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v);
/*
 * The filters that see each draw, whose groups are replaced by further draws, and the one that
 * looks once, at the batch they have filled: RAGEN's ranking, from which the batch comes out
 * smaller. Where it is the only filter and max_resample is set and not 0, it ranks the groups of
 * each draw instead.
 */
void ares_filter_stages(const ares_filter_config *cfg, ares_filter_config *of_draws,
                        ares_filter_config *of_batch);
/*
 * What on_exhausted is where nobody sets it: fill_masked with filter_groups, smaller_batch with the
 * ranking alone, else error.
 */
const char *ares_filter_on_exhausted(const ares_filter_config *cfg);
/* What filters have made of the groups of a step, over all its draws. */
/* zero: groups of equal scores */
typedef struct ares_filter_counts {
    int64_t groups, kept, zero;
} ares_filter_counts;
/* Adds to counts, and to rollout/dynamic_filter/drop_<reason>. */
void ares_filter_count(const ares_groups *g, const ares_verdict *v, ares_filter_counts *c,
                       ares_metrics *m);
/*
 * rollout/filter_kept_count, filter_kept_ratio, filter_zero_count; nothing where no group was
 * counted.
 */
void ares_filter_report(const ares_filter_counts *c, ares_metrics *m);
/* faults of combinations; n: samples a prompt */
void ares_filter_check(ares_config *cfg, const ares_filter_config *f, int64_t n);

/* 0 < right < valid answers (dapo.md 5.1) */
bool ares_group_informative(const double *accuracy, const uint8_t *valid, int64_t n);
/* dapo.md 6.3; max_length ARES_NULL_I64: none */
bool ares_answer_discarded(const ares_filter_config *cfg, int64_t length, int64_t max_length,
                           bool stopped);
/* max - min above tolerance */
bool ares_group_spread(const double *x, const uint8_t *valid, int64_t n, double tolerance);
/* rollout_filter_metric */
double ares_group_metric(const char *metric, const ares_groups *g, int64_t group);
/*
 * RAGEN's selection (agentic.md 3.2): groups that stay, best first (min_p, and top_p of 1 or more:
 * by index); their number. Ties go to the lower index. probability [n] of top_p softmax over the
 * candidates in index order; NULL: not wanted.
 */
int64_t ares_rv_select(const ares_filter_config *cfg, const double *metric, int64_t n,
                       int64_t *ranked, double *probability);
/*
 * The cap of a source among configured ones; NaN (no cap) where counts differ, the source is
 * unknown, or it has none.
 */
double ares_reward_cap(const char *const *names, int64_t n_names, const double *caps,
                       int64_t n_caps, const char *source);
/* none 1, linear kept / total, sqrt its root */
double ares_filter_loss_scale(const char *mode, int64_t kept, int64_t total);

/* ---------------- how many to ask for (resample.c) */
/*
 * Over-sampling (curriculum.md 6): at the start, and whenever what is in play could not fill the
 * batch any more, `batch` further groups.
 */
typedef struct ares_oversampling {
    /* groups of the batch, of a fetch; 0: no limit */
    int64_t target, batch, max_fetches;
    int64_t fetches, submitted, finished, dropped, kept;
} ares_oversampling;
/* batch below target: an error */
int ares_oversampling_init(ares_oversampling *s, int64_t target, int64_t batch,
                           int64_t max_fetches);
/* 0: none now; call again until it is */
int ares_oversampling_fetch(ares_oversampling *s, int64_t *groups);
/* one group is judged: whether it joins the batch (the batch may be full) */
bool ares_oversampling_finish(ares_oversampling *s, bool keep);
bool ares_oversampling_done(const ares_oversampling *s);

/*
 * DAPO's rounds (dapo.md 5.3): draw, keep the informative, draw again up to max_resample times;
 * then make do.
 */
typedef struct ares_resampling {
    /* prompts wanted; of a round, 0: those missing; negative: no limit */
    int64_t target, batch, max_resample;
    int64_t rounds, drawn, kept, surplus;
} ares_resampling;
/* prompts of the next round; 0: full, or exhausted */
int64_t ares_resampling_draw(const ares_resampling *s);
/*
 * A round is judged. kept_ids, dropped_ids: grow by the numbers (drawn in the run of rounds, from
 * 0) of informative groups that the batch takes, and of uninformative ones; both have room for
 * drawn + n.
 */
int64_t ares_resampling_dropped(const ares_resampling *s); /* uninformative groups so far */
void ares_resampling_add(ares_resampling *s, const bool *informative, int64_t n, int64_t *kept_ids,
                         int64_t *dropped_ids);
/*
 * What is trained on. batch [target]: kept groups, then, for fill_masked, uninformative ones in
 * their order, whose loss mask is 0: those from *masked on. smaller_batch: rounded down to a
 * multiple of `multiple`. error: the message has the counts. *outcome: full, filled, smaller_batch.
 */
int ares_resampling_finish(const ares_resampling *s, const char *on_exhausted, int64_t multiple,
                           const int64_t *kept_ids, const int64_t *dropped_ids, int64_t *batch,
                           int64_t *count, int64_t *masked, const char **outcome);

/*
 * Rows after filtering, made whole (agentic.md 3.3): up (copy) or down (delete) to a multiple of
 * lcm(env_groups, mini_batch, ranks).
 */
int64_t ares_batch_adjust_divisor(int64_t env_groups, int64_t mini_batch, int64_t ranks);
int64_t ares_batch_adjust_target(bool copy, int64_t rows, int64_t divisor);
/* the tail cut off; fewer than one batch: an error */
int ares_trim_to_global_batch(int64_t samples, int64_t global_batch, int64_t *out);
/* floor to a multiple of ranks, at least ranks */
int64_t ares_dynamic_global_batch(int64_t samples, int64_t ranks);
#endif
