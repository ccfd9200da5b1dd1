/*
 * Per-token estimators of KL(pi || ref) from x = log pi - log ref (Schulman, "Approximating KL
 * divergence", 2020), and their derivatives by log pi. k3 has verl's clamps: the exponent to +-20,
 * the value to +-10; the gradient is 0 where one acts. The forms named with a + have the
 * estimator's value and the gradient of k2, which is that of the KL itself.
 */
#ifndef ARES_ALGO_LOSS_KL_H
#define ARES_ALGO_LOSS_KL_H

#include "formula.h"

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
#endif
