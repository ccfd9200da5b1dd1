/*
 * VAPOR's surrogate of one completion. Its ratio is to the reference model and joins the verifiable
 * span with the preference of the prompt's stored pair: log r' = S + beta D, clamped as a sum. The
 * objective min(r' A, clip(r') A) is to be maximised.
 */
#ifndef ARES_ALGO_LOSS_VAPOR_LOSS_H
#define ARES_ALGO_LOSS_VAPOR_LOSS_H

#include "formula.h"

typedef struct ares_vapor_term {
    double ratio, clipped, objective;
    /* d objective / d log r': A r' where it acts, the clip's boundary included */
    double u;
    int clip_low, clip_high; /* A < 0 and r' below the bound; A > 0 and r' above */
    int saturated;           /* the log lies beyond the clamp, and passes nothing */
} ares_vapor_term;

/* bound: of |log r'| (log_ratio_clamp, 20). */
ARES_LOSS_FN ares_vapor_term ares_vapor_completion(double log_ratio, double advantage,
                                                   double epsilon_low, double epsilon_high,
                                                   double bound)
{
    ares_vapor_term e = { 0, 0, 0, 0, 0, 0, log_ratio > bound || log_ratio < -bound };
    double low = 1 - epsilon_low, high = 1 + epsilon_high;
    e.ratio = ares_loss_exp(ares_loss_clamp(log_ratio, -bound, bound));
    e.clipped = ares_loss_clamp(e.ratio, low, high);
    e.clip_low = advantage < 0 && e.ratio < low;
    e.clip_high = advantage > 0 && e.ratio > high;
    double a = e.ratio * advantage, b = e.clipped * advantage;
    e.objective = b < a ? b : a;
    e.u = e.clip_low || e.clip_high || e.saturated ? 0 : a;
    return e;
}

/*
 * DPO (Rafailov et al., arXiv 2305.18290, equation 7) of a pair: -log sigmoid(beta D), D the
 * difference of the two answers' log-ratios to the reference.
 */
typedef struct ares_dpo_term {
    double loss, derivative; /* by D */
} ares_dpo_term;

ARES_LOSS_FN ares_dpo_term ares_dpo_pair(double difference, double beta)
{
    double x = beta * difference, e = ares_loss_exp(x < 0 ? x : -x);
    ares_dpo_term t = { (x < 0 ? -x : 0) + ares_loss_log(1 + e),
                        -beta * (x < 0 ? 1 / (1 + e) : e / (1 + e)) };
    return t;
}

#if !defined(__cplusplus)
#include "ares/algo_loss.h"

/* sum (mean: mean) of log pi - log ref over the span; 0 where there is no span or no finite sum */
double vapor_log_ratio(const ares_vapor_text *t, bool mean, bool *finite);
/* exp of the log-ratio, clamped to +-bound */
double vapor_ratio(double log_ratio, double bound);
#endif
#endif
