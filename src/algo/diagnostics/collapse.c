/*
 * How much of a thought depends on its prompt: the mutual information of thoughts Z and prompts X,
 * estimated from the log-prob of every thought after every prompt (RAGEN's collapse metrics, after
 * arXiv 2504.20073; docs/diagnostics.md#collapse). A policy that thinks the same whatever it reads
 * has I(X; Z) = 0. Prompts count as equally likely.
 */
#include <math.h>

#include "ares/algo_diagnostics.h"
#include "ares/kernels.h"
#include "diagnostics/zscore.h"
#include "stats.h"

ARES_OPTION_TABLE(ares_collapse_options, ares_collapse_config, ARES_COLLAPSE_OPTIONS);

const int ares_collapse_looks[ARES_COLLAPSE_LOOKS] = { 1, 2, 4, 8 };
static const double STD_EPS = 1e-3; /* RAGEN's */

/* log of the mean over prompts of exp(log-prob). */
static double mixture(const double *log_prob, int64_t n)
{
    double largest = log_prob[0], sum = 0;
    for (int64_t j = 1; j < n; j++) largest = fmax(largest, log_prob[j]);
    if (!isfinite(largest)) return largest;
    for (int64_t j = 0; j < n; j++) sum += ares_f64_exp(log_prob[j] - largest);
    return largest + ares_f64_log(sum) - ares_f64_log((double)n);
}

/* How many prompts come before the first of the own text when the likeliest comes first. */
static int64_t place_of_own(const ares_collapse_scores *s, int64_t thought)
{
    const double *x = s->log_prob + thought * s->prompts;
    int64_t text = s->text[s->own[thought]], best = -1, before = 0;
    for (int64_t j = 0; j < s->prompts; j++)
        if (s->text[j] == text && (best < 0 || x[j] > x[best])) best = j;
    for (int64_t j = 0; j < s->prompts; j++)
        before += x[j] > x[best] || (x[j] == x[best] && j < best);
    return before;
}

static void look(const ares_collapse_scores *s, ares_collapse *out)
{
    double chance = 0;
    for (int64_t i = 0; i < s->thoughts; i++) {
        int64_t place = place_of_own(s, i), alike = 0;
        for (int64_t j = 0; j < s->prompts; j++) alike += s->text[j] == s->text[s->own[i]];
        for (int k = 0; k < ARES_COLLAPSE_LOOKS; k++)
            out->accuracy[k] += place < ares_collapse_looks[k];
        chance += (double)alike / (double)s->prompts;
    }
    for (int k = 0; k < ARES_COLLAPSE_LOOKS; k++) {
        double seen = fmin(ares_collapse_looks[k], (double)s->prompts);
        out->accuracy[k] /= (double)s->thoughts;
        out->chance[k] = fmin(1, chance / (double)s->thoughts * seen);
    }
}

double collapse_zscore(double mi, double deviation)
{
    return mi / (deviation + STD_EPS);
}

void ares_collapse_measure(const ares_collapse_scores *s, double *matched, double *marginal,
                           ares_collapse *out)
{
    double squares = 0;
    *out = (ares_collapse){ 0 };
    for (int64_t i = 0; i < s->thoughts; i++) {
        const double *x = s->log_prob + i * s->prompts;
        matched[i] = x[s->own[i]];
        marginal[i] = mixture(x, s->prompts);
    }
    double of_own = stats_mean(matched, s->thoughts), of_all = stats_mean(marginal, s->thoughts);
    for (int64_t i = 0; i < s->thoughts; i++)
        squares += (marginal[i] - of_all) * (marginal[i] - of_all);
    out->mi = of_own - of_all;
    out->mi_bound = ares_f64_log((double)s->prompts);
    out->conditional_entropy = -of_own;
    out->entropy = -of_all;
    out->marginal_std = sqrt(squares / (double)s->thoughts);
    out->zscore = collapse_zscore(out->mi, out->marginal_std);
    look(s, out);
}
