/*
 * What the per-token formulas of this folder have in common: what they read and what they give. The
 * C compiler and nvcc read them alike; they work in double and call no function but ares_loss_exp
 * and ares_loss_log.
 */
#ifndef ARES_ALGO_LOSS_FORMULA_H
#define ARES_ALGO_LOSS_FORMULA_H

#include <math.h>

#ifdef __CUDACC__
#define ARES_LOSS_FN static __host__ __device__ inline
#define ares_loss_exp exp
#define ares_loss_log log
#else
#include "ares/kernels.h"
#define ARES_LOSS_FN static inline
#define ares_loss_exp ares_f64_exp
#define ares_loss_log ares_f64_log
#endif

/* Exponents are clamped to +-this, and no gradient passes beyond it (verl). */
#define ARES_LOG_RATIO_BOUND 20.0

/* What the options set, for all tokens. */
typedef struct loss_settings {
    double low, high;         /* bounds of the ratio: 1 - clip_ratio_low, 1 + clip_ratio_high */
    double log_low, log_high; /* clip_ratio_low and clip_ratio_high themselves: bounds of a log */
    double dual; /* largest loss of a negative advantage, times the advantage; infinity: no bound */
    double tau_positive, tau_negative, ppo_kl_coef;
    int corrected; /* rollout_is is on: corrections differ from 1 */
} loss_settings;

/* What a formula reads of a token. */
typedef struct loss_token {
    double log_prob, log_ratio, advantage; /* log_ratio: log pi - log old */
    double weight, correction;             /* of the aggregation; of rollout_is, 1 without it */
    int chosen;                            /* by the loss's `choose`; 0 where it has none */
} loss_token;

typedef struct ares_token_term {
    double loss, gradient;   /* of one token, before any weight; gradient by its log-prob */
    double ratio;            /* exp of the clamped log-ratio that the loss looks at */
    int clip_high, clip_low; /* the clip took the token (l1 < l2); the dual bound acts */
} ares_token_term;

/* Sums over the tokens of a row whose mask is 1, and what a loss of rows makes of them. */
typedef struct loss_row {
    double tokens; /* counted by the walk; the other sums are added by the loss's NAME_gather */
    double log_ratio, advantage, weight, log_correction;
    ares_token_term term; /* written by NAME_row, where the loss has one term for the row */
    double mean_log_ratio;
} loss_row;
typedef struct loss_row_token {
    ares_token_term term;
    double weight;     /* of the term in the sums */
    double derivative; /* of the row's loss by this token's log-prob, weights included */
} loss_row_token;

/* Each token keeps its own derivative, or every token gets the row's sum divided by its tokens. */
enum { LOSS_DERIVATIVE_OF_TOKEN, LOSS_DERIVATIVE_SPREAD };

/* A NaN stays one, and is found in the sums. */
ARES_LOSS_FN double ares_loss_clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}
ARES_LOSS_FN double ares_loss_bound(double log_ratio)
{
    return ares_loss_clamp(log_ratio, -ARES_LOG_RATIO_BOUND, ARES_LOG_RATIO_BOUND);
}
ARES_LOSS_FN int ares_loss_beyond(double log_ratio)
{
    return log_ratio > ARES_LOG_RATIO_BOUND || log_ratio < -ARES_LOG_RATIO_BOUND;
}
#endif
