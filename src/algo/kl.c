/*
 * Per-token estimators of KL(pi || ref) from x = log pi - log ref (Schulman, "Approximating KL divergence", 2020).
 * low_var_kl is k3 with verl's clamps: the exponent to +-20, the value to +-10; the gradient is 0 where one acts.
 */
#include "ares/algo.h"

#include <math.h>

/* Passes a NaN on, which fmin and fmax would swallow. */
static double clamp(double x, double bound) { return x < -bound ? -bound : x > bound ? bound : x; }

static double k1_value(double x) { return x; }
static double k1_derivative(double x)
{
    (void)x;
    return 1;
}
static double abs_value(double x) { return fabs(x); }
static double abs_derivative(double x) { return (x > 0) - (x < 0); }
static double k2_value(double x) { return 0.5 * x * x; }
static double k2_derivative(double x) { return x; }

static double k3_value(double x)
{
    double k = clamp(-x, 20);
    return clamp(ares_f64_exp(k) - k - 1, 10);
}

static double k3_derivative(double x)
{
    double e = ares_f64_exp(-x);
    if (-x < -20 || -x > 20 || e + x - 1 > 10) return 0;
    return 1 - e;
}

static const ares_kl table[] = {
    { "kl", "k1: x", k1_value, k1_derivative },
    { "abs", "|x|", abs_value, abs_derivative },
    { "mse", "k2: x^2 / 2", k2_value, k2_derivative },
    { "low_var_kl", "k3: exp(-x) + x - 1, clamped as in verl", k3_value, k3_derivative },
};
static const char *const names[] = { "kl", "abs", "mse", "low_var_kl" };

const char *const *ares_kl_names(int *n)
{
    *n = ARES_COUNT(names);
    return names;
}

const ares_kl *ares_kl_find(const char *name)
{
    int i;
    return ares_lookup(ARES_ECONFIG, "config: algorithm.kl_penalty", name, names, ARES_COUNT(names), &i) == ARES_OK ? &table[i] : NULL;
}
