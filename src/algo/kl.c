/*
 * Estimators of KL(pi || ref) by name (formulas: loss/kl.h). "full" has none: it is summed over the
 * vocabulary by the head.
 */
#include "loss/kl.h"

#include <math.h>
#include <string.h>

#include "ares/algo.h"
#include "find_name.h"

static double k1(double x)
{
    return ares_kl_k1(x);
}
static double k1_d(double x)
{
    return ares_kl_k1_derivative(x);
}
static double absolute(double x)
{
    return ares_kl_abs(x);
}
static double absolute_d(double x)
{
    return ares_kl_abs_derivative(x);
}
static double k2(double x)
{
    return ares_kl_k2(x);
}
static double k2_d(double x)
{
    return ares_kl_k2_derivative(x);
}
static double k3(double x)
{
    return ares_kl_k3(x);
}
static double k3_d(double x)
{
    return ares_kl_k3_derivative(x);
}
static bool k3_clamped(double x)
{
    return ares_kl_k3_clamped(x);
}

#define SCHULMAN "Schulman 2020, Approximating KL divergence"
static const ares_kl table[] = {
    { "kl", "k1: the log-ratio; unbiased, of either sign", "x", SCHULMAN, k1, k1_d, NULL },
    { "abs", "its size", "|x|", "verl", absolute, absolute_d, NULL },
    { "mse", "k2: half of its square", "x^2 / 2", SCHULMAN, k2, k2_d, NULL },
    { "low_var_kl", "k3: unbiased and never negative; clamped as in verl",
      "clamp(exp(k) - k - 1, -10, 10), k = clamp(-x, -20, 20)",
      SCHULMAN "; arXiv 2402.03300, equation 4", k3, k3_d, k3_clamped },
    { "kl+", "value of k1, gradient of k2", "x", "verl", k1, k2_d, NULL },
    { "abs+", "value of abs, gradient of k2", "|x|", "verl", absolute, k2_d, NULL },
    { "mse+", "k2", "x^2 / 2", "verl", k2, k2_d, NULL },
    { "low_var_kl+", "value of k3, gradient of k2", "that of low_var_kl", "verl", k3, k2_d,
      k3_clamped },
    { "full", "exact, over the whole vocabulary", "sum over the vocabulary of p (log p - log q)",
      "", NULL, NULL, NULL },
};
/* In the order of the table; other trainers' words behind '='. */
static const char *const words[] = { "kl=k1",   "abs",  "mse=k2",   "low_var_kl=k3=low-var-kl",
                                     "kl+=k1+", "abs+", "mse+=k2+", "low_var_kl+=k3+=low-var-kl+",
                                     "full" };

const char *const *ares_kl_names(int *n)
{
    *n = ARES_COUNT(words);
    return words;
}

const ares_kl *ares_kl_find(const char *name)
{
    int i;
    return algo_find("config: algorithm.kl_penalty", name, words, ARES_COUNT(words), &i) == ARES_OK
               ? &table[i]
               : NULL;
}

ares_kl_place ares_kl_acts(const ares_algorithm_config *a)
{
    if (a->disable_kl || !(a->kl_coef > 0)) return ARES_KL_NOWHERE;
    if (a->use_kl_loss) return ARES_KL_IN_LOSS;
    return a->use_kl_in_reward && strcmp(a->use_kl_in_reward, "false") == 0 ? ARES_KL_NOWHERE
                                                                            : ARES_KL_IN_REWARD;
}

int ares_kl_column(const ares_kl *kl, ares_batch *b)
{
    ARES_TRY(ARES_NEED(b, "kl", old_log_probs));
    ARES_TRY(ARES_NEED(b, "kl", ref_log_probs));
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
