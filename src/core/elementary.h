/*
 * Logarithm, exponential and cosine from sums, products and quotients only: the same bits on every
 * machine, which C libraries do not promise. For numbers that affect weights: initial values and
 * learning rates. The error is about 2 ulp.
 */
#ifndef ARES_CORE_ELEMENTARY_H
#define ARES_CORE_ELEMENTARY_H

double core_log(double x);    /* x positive and normal */
double core_exp(double x);    /* |x| < 700 */
double core_cos_pi(double x); /* cos(pi x) */

#endif
