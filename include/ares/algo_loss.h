/*
 * algo: from log-probs to a loss and its derivatives: aggregation, KL estimators, policy losses,
 * the critic's loss, VAPOR.
 */
#ifndef ARES_ALGO_LOSS_H
#define ARES_ALGO_LOSS_H

#include "ares/algo.h"

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
    const float *rollout_weight;
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
int ares_rollout_weights(const ares_loss_config *cfg, const ares_batch *b, int64_t row, int64_t end,
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
void ares_vapor_check(const ares_vapor_config *cfg, int64_t num_generations,
                      const char *const verifiable_split[2], const char *const preference_split[2],
                      ares_algo_complain *complain, void *ctx);
#endif
