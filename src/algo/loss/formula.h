/*
 * Private to algo: the arithmetic of a token or row, for all losses, which the C compiler and
 * nvcc share. Read it before the file of a loss.
 */
#ifndef ARES_ALGO_LOSS_FORMULA_H
#define ARES_ALGO_LOSS_FORMULA_H

#include <math.h>

#include "ares/algo.h"
#include "ares/algo_loss.h"

/*
 * The policy losses, in the order of worker.actor.loss_type's choices. To add one: NAME.c in this
 * folder, with its formula and its entry; a word here; its #include in formulas.h.
 */

/* clang-format off */
#define LOSS_LIST(X) \
    X(default) X(dapo) X(gspo) X(gspo_token) X(cispo) X(gmpo) X(sapo) X(clip_cov) X(kl_cov) \
    X(gpg) X(dppo_tv) X(dppo_kl) X(dro) X(vapor)
/* clang-format on */

/*
 * What the per-token formulas of this folder have in common: what they read and what they give. The
 * C compiler and nvcc read them alike; they work in double and call no function but ares_loss_exp
 * and ares_loss_log.
 */

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
    double tau_positive, tau_negative, ppo_kl_coef, dro_beta;
    int corrected; /* rollout_is is on: corrections differ from 1 */
} loss_settings;

/* What a formula reads of a token. */
typedef struct loss_token {
    double log_prob, log_ratio, advantage; /* log_ratio: log pi - log old */
    double weight, correction;             /* of the aggregation; of rollout_is, 1 without it */
    int chosen;                            /* by the loss's `choose`; 0 where it has none */
} loss_token;

typedef struct ares_token_term {
    double loss, gradient; /* of one token, before any weight; gradient by its log-prob */
    double ratio;          /* exp of the clamped log-ratio that the loss looks at */
    /*
     * Counted in actor/pg_clipfrac_higher and _lower (verl's names). Of PPO's losses: the clip, at
     * either end, took the token (l1 < l2); the dual bound acts. Others say what they count.
     */
    int clip_high, clip_low;
    int clipped; /* a clip has made the gradient 0, or bounds its factor */
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
    double ratio;      /* that the clip looks at: of the row, or of the token */
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

/* The settings of a loss's formulas, from the options; on a card the launch takes them along. */

static inline loss_settings loss_settings_of(const ares_loss_args *a, const ares_loss *loss)
{
    const ares_loss_config *cfg = a->cfg;
    const double unset = loss->clips & ARES_LOSS_CLIPS_DUAL ? 3 : (double)INFINITY;
    loss_settings s;
    s.low = 1 - cfg->clip_ratio_low;
    s.high = 1 + cfg->clip_ratio_high;
    s.log_low = cfg->clip_ratio_low;
    s.log_high = cfg->clip_ratio_high;
    s.dual = ares_is_null_f64(cfg->clip_ratio_dual) ? unset : cfg->clip_ratio_dual;
    s.tau_positive = cfg->tau_positive;
    s.tau_negative = cfg->tau_negative;
    s.ppo_kl_coef = cfg->ppo_kl_coef;
    s.dro_beta = cfg->dro_beta;
    s.corrected = a->rollout_weight != NULL;
    return s;
}

/*
 * PPO's clipped surrogate (Schulman et al., arXiv 1707.06347, equation 7) with separate bounds
 * below and above (DAPO, arXiv 2503.14476) and the dual clip of negative advantages (Ye et al.,
 * arXiv 1912.09729).
 */

/*
 * log_ratio = log pi - log old, of the token or of its row; low, high: bounds of the ratio; dual:
 * the bound of the loss of a negative advantage, times the advantage; infinity is none.
 */
ARES_LOSS_FN ares_token_term ares_ppo_token(double log_ratio, double advantage, double low,
                                            double high, double dual)
{
    ares_token_term e = { 0, 0, ares_loss_exp(ares_loss_bound(log_ratio)), 0, 0, 0 };
    double clipped = ares_loss_clamp(e.ratio, low, high), l1 = -advantage * e.ratio,
           l2 = -advantage * clipped;
    e.clip_high = l1 < l2;
    e.loss = l1 < l2 ? l2 : l1;
    e.gradient = (l1 < l2 || ares_loss_beyond(log_ratio)) ? 0 : l1;
    if (advantage < 0 && e.loss > -advantage * dual) {
        e.clip_low = 1;
        e.loss = -advantage * dual;
        e.gradient = 0;
    }
    e.clipped = e.clip_high || e.clip_low;
    return e;
}

/*
 * Weights that correct for a sampler whose probabilities are not the trainer's: exp(log old - log
 * rollout), of a token or of a whole row, without a gradient. truncate: the nearest number to the
 * ratio in [lower, upper] (Yao et al., "Your efficient RL framework secretly brings you off-policy
 * RL training", 2025, with lower = 0; slime's tis_clip_low is another). mask: the ratio inside
 * [lower, upper], 0 outside (IcePop; verl's mode mask).
 */

/* log_ratio: the token's, the sum over its row (sequence), or the mean over its row (geometric). */
ARES_LOSS_FN double ares_rollout_weight(double log_ratio, int mask, double lower, double upper)
{
    double ratio = ares_loss_exp(ares_loss_bound(log_ratio));
    if (mask) return ratio < lower || ratio > upper ? 0 : ratio;
    return ratio > upper ? upper : ratio < lower ? lower : ratio;
}

/*
 * The critic's squared error with PPO's clip around the old value (Schulman et al., arXiv
 * 1707.06347; verl): half of max((v - R)^2, (clamp(v, old +- range) - R)^2).
 */

/*
 * clip_high: the clipped error is the larger one. gradient is by the value. range infinity: no
 * clip.
 */
ARES_LOSS_FN ares_token_term ares_value_token(double value, double old_value, double target,
                                              double range)
{
    double clipped = ares_loss_clamp(value, old_value - range, old_value + range),
           a = value - target, b = clipped - target;
    ares_token_term e = { 0.5 * a * a, a, 1, b * b > a * a, 0, 0 };
    if (e.clip_high) {
        e.loss = 0.5 * b * b;
        e.gradient = 0;
    }
    return e;
}

/*
 * Per-token estimators of KL(pi || ref) from x = log pi - log ref (Schulman, "Approximating KL
 * divergence", 2020), and their derivatives by log pi. k3 has verl's clamps: the exponent to +-20,
 * the value to +-10; the gradient is 0 where one acts. The forms named with a + have the
 * estimator's value and the gradient of k2, which is that of the KL itself.
 */

ARES_LOSS_FN double ares_kl_k1(double x)
{
    return x;
}
ARES_LOSS_FN double ares_kl_k1_derivative(double x)
{
    return x == x ? 1 : x;
}
ARES_LOSS_FN double ares_kl_abs(double x)
{
    return x < 0 ? -x : x;
}
ARES_LOSS_FN double ares_kl_abs_derivative(double x)
{
    return x == x ? (double)((x > 0) - (x < 0)) : x;
}
ARES_LOSS_FN double ares_kl_k2(double x)
{
    return 0.5 * x * x;
}
ARES_LOSS_FN double ares_kl_k2_derivative(double x)
{
    return x;
}
/* A clamp acts; e: exp of clamp(-x, -20, 20). */
ARES_LOSS_FN bool ares_kl_k3_clamped_at(double e, double x)
{
    return x > 20 || x < -20 || e + x - 1 > 10;
}
ARES_LOSS_FN double ares_kl_k3(double x)
{
    double k = ares_loss_clamp(-x, -20, 20);
    return ares_loss_clamp(ares_loss_exp(k) - k - 1, -10, 10);
}
ARES_LOSS_FN bool ares_kl_k3_clamped(double x)
{
    return ares_kl_k3_clamped_at(ares_loss_exp(ares_loss_clamp(-x, -20, 20)), x);
}
ARES_LOSS_FN double ares_kl_k3_derivative(double x)
{
    double e = ares_loss_exp(ares_loss_clamp(-x, -20, 20));
    return ares_kl_k3_clamped_at(e, x) ? 0 : 1 - e;
}

/*
 * VAPOR's surrogate of one completion. Its ratio is to the reference model and joins the verifiable
 * span with the preference of the prompt's stored pair: log r' = S + beta D, clamped as a sum. The
 * objective min(r' A, clip(r') A) is to be maximised.
 */

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

/* sum (mean: mean) of log pi - log ref over the span; 0 where there is no span or no finite sum */
double vapor_log_ratio(const ares_vapor_text *t, bool mean, bool *finite);
/* exp of the log-ratio, clamped to +-bound */
double vapor_ratio(double log_ratio, double bound);
#endif

/*
 * Group sequence policy optimisation (Zheng et al., arXiv 2507.18071): PPO's clip on the sequence
 * ratio s = exp(mean over the row of log pi - log old). gspo and gspo_token differ in where the
 * gradient goes.
 */

ARES_LOSS_FN void ares_gspo_gather(loss_row *r, const loss_token *x)
{
    r->log_ratio += x->log_ratio;
}
ARES_LOSS_FN void ares_gspo_row(loss_row *r)
{
    r->mean_log_ratio = r->log_ratio / r->tokens;
}
ARES_LOSS_FN loss_row_token ares_gspo_token(const loss_row *r, const loss_token *x,
                                            const loss_settings *s)
{
    loss_row_token e;
    e.term = ares_ppo_token(r->mean_log_ratio, x->advantage, s->low, s->high, s->dual);
    e.weight = x->weight * x->correction;
    e.derivative = e.weight * e.term.gradient;
    e.ratio = e.term.ratio;
    return e;
}

/*
 * What dppo_tv and dppo_kl have in common (Qi et al., arXiv 2602.04879; docs/update.md#dppo): the
 * bound is not on the ratio but on a divergence between the old policy and this one, of which the
 * token is one outcome and all others are the other. A token that the update has moved beyond it,
 * in the direction of its advantage, is left out. The others weigh their ratio, at most
 * clip_ratio_dual, which passes no gradient.
 */

/* beyond: the divergence lies beyond clip_ratio_high (A > 0) or clip_ratio_low. */
ARES_LOSS_FN ares_token_term dppo_term(const loss_token *x, const loss_settings *s, int beyond)
{
    double ratio = ares_loss_exp(ares_loss_bound(x->log_ratio));
    ares_token_term e = { 0, 0, ratio, beyond, !beyond && ratio > s->dual, 0 };
    e.clipped = (e.clip_high || e.clip_low) && x->advantage != 0;
    if (beyond) return e;
    e.gradient = -x->advantage * (ratio > s->dual ? s->dual : ratio);
    e.loss = e.gradient * x->log_prob;
    return e;
}
#endif
