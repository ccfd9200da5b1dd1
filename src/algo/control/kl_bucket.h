/*
 * The arithmetic of KL controllers, in double (kl_bucket.c, adaptive_kl.c;
 * docs/aepo.md#kl-by-token-and-difficulty).
 */
#ifndef ARES_ALGO_CONTROL_KL_BUCKET_H
#define ARES_ALGO_CONTROL_KL_BUCKET_H

#include "ares/algo_control.h"

/* Mean over the tokens with mask 1; 0 where there is none. */
double kl_row_mean(const float *kl, const uint8_t *mask, int64_t n);
/* Dual ascent on a budget of KL: lambda <- max(0, lambda + eta (kl - budget)). */
double kl_lambda_step(double lambda, double kl, double budget, double eta);
/*
 * Moves beta in log space by a smoothed relative error. Only every interval-th update moves it;
 * update counts from 1.
 */
typedef struct log_beta_config {
    double target, lr, clip, ema, deadzone, min, max;
    int64_t interval;
} log_beta_config;
typedef struct log_beta {
    double beta, kl_ema, error_ema;
    bool started; /* kl_ema has a value */
} log_beta;
void log_beta_step(const log_beta_config *cfg, int64_t update, double kl, log_beta *s);
/* kl_weight of a row: factor, times scale where relax (NULL: nowhere) is 1; 0 where mask is 0. */
void kl_weigh(double factor, double scale, const uint8_t *relax, const uint8_t *mask, int64_t n,
              float *weight);
/*
 * The controller of Ziegler et al. (arXiv 1909.08593, 2.2): coef <- coef (1 + error min(n /
 * horizon, 1)), error = clip(kl / target - 1, -0.2, 0.2).
 */
double adaptive_kl_step(double coef, double kl, double target, double n, double horizon);
#endif
