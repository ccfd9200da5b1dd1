/*
 * What the per-token formulas of loss/ have in common. They are read by the C compiler and by nvcc
 * alike, work in double and call no function but ares_loss_exp and ares_loss_log.
 */
#ifndef ARES_ALGO_LOSS_TOKEN_H
#define ARES_ALGO_LOSS_TOKEN_H

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

/* exponents are clamped to +-this, and pass no gradient beyond (verl) */
#define ARES_LOG_RATIO_BOUND 20.0

typedef struct ares_token_term {
    double loss, gradient;   /* of one token, before any weight; gradient by its log-prob */
    double ratio;            /* exp of the clamped log-ratio that the loss looks at */
    int clip_high, clip_low; /* the clip took the token (l1 < l2); the dual bound acts */
} ares_token_term;

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
