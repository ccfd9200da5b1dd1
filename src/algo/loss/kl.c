/*
 * Estimators of KL(pi || ref) by name (formulas: formula.h). "full" has none: it is summed over the
 * vocabulary by the head.
 */
#include "formula.h"

#include <math.h>
#include <string.h>

#include "ares/algo.h"
#include "ares/algo_loss.h"
#include "loss.h"

/* The inline formulas of formula.h as functions, whose addresses the table holds. */
#define VALUE(name)                            \
    static double name##_value(double x)       \
    {                                          \
        return ares_kl_##name(x);              \
    }                                          \
    static double name##_slope(double x)       \
    {                                          \
        return ares_kl_##name##_derivative(x); \
    }
ARES_KL_FORMULAS(VALUE)

/* Value and slope together; no clamp ever acts in these. */
#define BOTH(value_, slope_)                                                         \
    static double value_##_and_##slope_(double x, double *derivative, bool *clamped) \
    {                                                                                \
        *clamped = false;                                                            \
        *derivative = ares_kl_##slope_##_derivative(x);                              \
        return ares_kl_##value_(x);                                                  \
    }
BOTH(k1, k1)
BOTH(abs, abs)
BOTH(k2, k2)
BOTH(k1, k2)
BOTH(abs, k2)

/* One exponential for both, with the bits of k3 and of its derivative. */
static double k3_and_k3(double x, double *derivative, bool *clamped)
{
    double k = ares_loss_clamp(-x, -20, 20), e = ares_loss_exp(k);
    *clamped = ares_kl_k3_clamped_at(e, x);
    *derivative = *clamped ? 0 : 1 - e;
    return ares_loss_clamp(e - k - 1, -10, 10);
}
/* The value of k3 with the derivative of k2, for low_var_kl+. */
static double k3_and_k2(double x, double *derivative, bool *clamped)
{
    double value = k3_and_k3(x, derivative, clamped);
    *derivative = ares_kl_k2_derivative(x);
    return value;
}

/* The formulas of an estimator: one for the value, one for the derivative. */
#define FORMULAS(value_, slope_)                                                          \
    .value = value_##_value, .derivative = slope_##_slope, .both = value_##_and_##slope_, \
    .value_formula = ARES_KL_##value_, .derivative_formula = ARES_KL_##slope_
#define SCHULMAN "Schulman 2020, Approximating KL divergence"
static const ares_kl table[] = {
    { "kl", "kl=k1", "k1: the log-ratio; unbiased, of either sign", "x", SCHULMAN,
      FORMULAS(k1, k1) },
    { "abs", "abs", "its size", "|x|", "verl", FORMULAS(abs, abs) },
    { "mse", "mse=k2", "k2: half of its square", "x^2 / 2", SCHULMAN, FORMULAS(k2, k2) },
    { "low_var_kl", "low_var_kl=k3=low-var-kl",
      "k3: unbiased and never negative; clamped as in verl",
      "clamp(exp(k) - k - 1, -10, 10), k = clamp(-x, -20, 20)",
      SCHULMAN "; arXiv 2402.03300, equation 4", FORMULAS(k3, k3) },
    { "kl+", "kl+=k1+", "value of k1, gradient of k2", "x", "verl", FORMULAS(k1, k2) },
    { "abs+", "abs+", "value of abs, gradient of k2", "|x|", "verl", FORMULAS(abs, k2) },
    { "mse+", "mse+=k2+", "k2", "x^2 / 2", "verl", FORMULAS(k2, k2) },
    { "low_var_kl+", "low_var_kl+=k3+=low-var-kl+", "value of k3, gradient of k2",
      "that of low_var_kl", "verl", FORMULAS(k3, k2) },
    { "full", "full", "exact, over the whole vocabulary",
      "sum over the vocabulary of p (log p - log q)", "", .value_formula = ARES_KL_exact,
      .derivative_formula = ARES_KL_exact },
};

const char *const *ares_kl_names(int *n)
{
    static _Thread_local const char *words[ARES_COUNT(table)];
    for (int i = 0; i < ARES_COUNT(table); i++) words[i] = table[i].words;
    *n = ARES_COUNT(table);
    return words;
}

/* NULL with an error that lists the names. */
const ares_kl *ares_kl_find(const char *name)
{
    const char *names[ARES_COUNT(table)];
    int i;
    for (i = 0; i < ARES_COUNT(table); i++) {
        if (choice_has(table[i].words, name)) return &table[i];
        names[i] = table[i].name;
    }
    (void)ares_lookup(ARES_ECONFIG, "config: algorithm.kl_penalty", name, names, ARES_COUNT(table),
                      &i);
    return NULL;
}

/* The order matters: at coefficient 0 there is no KL whatever the switches say. */
ares_kl_place ares_kl_acts(const ares_algorithm_config *a)
{
    if (a->disable_kl || !(a->kl_coef > 0)) return ARES_KL_NOWHERE;
    if (a->use_kl_loss) return ARES_KL_IN_LOSS;
    return a->use_kl_in_reward && strcmp(a->use_kl_in_reward, "false") == 0 ? ARES_KL_NOWHERE
                                                                            : ARES_KL_IN_REWARD;
}

int ares_kl_column(const ares_kl *kl, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "shape", old_log_probs));
    ARES_TRY(ARES_NEED(b, "shape", ref_log_probs));
    /* `full` has no formula of two log-probs: its column is made with the logits */
    ARES_ASSERT(kl->value);
    ARES_PUT(b, kl);
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            if (!b->response_mask[t]) continue;
            double x = kl->value((double)b->old_log_probs[t] - (double)b->ref_log_probs[t]);
            if (!isfinite(x))
                return ares_fail(ARES_ENUMERIC,
                                 "kl: row %lld, token %lld has old_log_prob %g and ref_log_prob "
                                 "%g: must be finite where the mask is 1",
                                 (long long)r, (long long)(t - b->row_start[r]),
                                 (double)b->old_log_probs[t], (double)b->ref_log_probs[t]);
            b->kl[t] = (float)x;
        }
    return ARES_OK;
}
