/*
 * Logarithm, exponential and cosine from sums, products and quotients alone: the same bits on every
 * machine, which C libraries do not promise. For numbers that reach a weight: initial values and
 * learning rates. Good to 2 ulp or so.
 */
#ifndef ARES_CORE_ELEMENTARY_H
#define ARES_CORE_ELEMENTARY_H

double core_log(double x);    /* x positive and normal */
double core_exp(double x);    /* |x| < 700 */
double core_cos_pi(double x); /* cos(pi x) */

#endif
