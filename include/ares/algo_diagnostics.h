/*
 * algo: what is measured of a step besides its training, as pure functions in double
 * (src/algo/diagnostics; docs/diagnostics.md).
 */
#ifndef ARES_ALGO_DIAGNOSTICS_H
#define ARES_ALGO_DIAGNOSTICS_H

#include "ares/algo.h"

/* ---------------- collapse (diagnostics/collapse.c; docs/diagnostics.md#collapse)
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
 * matched, marginal [thoughts], written: the log-prob after the own prompt, and that of the mixture
 * of all prompts. Ties between prompts go to the first. At least one thought and one prompt.
 */
void ares_collapse_measure(const ares_collapse_scores *s, double *matched, double *marginal,
                           ares_collapse *out);

/* ---------------- groups by the deviation of their rewards (diagnostics/std_buckets.c)
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
 * The standard deviation, by n - 1, of the scores of a group's answers, as they are without any
 * penalty of length. An answer that is there twice, or in several rows, counts once, a discarded
 * one not at all. *std: 0 for a single answer. false: no answer counts.
 */
bool ares_group_reward_std(const ares_batch *b, int64_t group, double *std);
#endif
