/* The table of policy losses, and the terms that every one of them may carry. To add one: a file in loss/ and a word here. */
#include "ares/algo.h"

#include <math.h>

#define LOSS_LIST(X) X(default)

#define DECLARE(name) extern const ares_loss ares_loss_##name;
#define ENTRY(name) &ares_loss_##name,
#define NAME(name) #name,
LOSS_LIST(DECLARE)
static const ares_loss *const table[] = { LOSS_LIST(ENTRY) };
static const char *const names[] = { LOSS_LIST(NAME) };

const char *const *ares_loss_names(int *n)
{
    *n = ARES_COUNT(names);
    return names;
}

const ares_loss *ares_loss_find(const char *name)
{
    int i;
    return ares_lookup(ARES_ECONFIG, "config: worker.actor.loss_type", name, names, ARES_COUNT(names), &i) == ARES_OK ? table[i] : NULL;
}

void ares_loss_sums_init(ares_loss_sums *s) { *s = (ares_loss_sums){ .ratio_min = INFINITY, .ratio_max = -INFINITY }; }

void ares_loss_sums_merge(ares_loss_sums *into, const ares_loss_sums *from)
{
    into->loss += from->loss;
    into->kl += from->kl;
    into->entropy += from->entropy;
    into->tokens += from->tokens;
    into->clip_high += from->clip_high;
    into->clip_low += from->clip_low;
    into->neg_log_ratio += from->neg_log_ratio;
    into->ratio += from->ratio;
    into->ratio_min = fmin(into->ratio_min, from->ratio_min);
    into->ratio_max = fmax(into->ratio_max, from->ratio_max);
}

int ares_loss_terms(const ares_loss_args *a, const ares_kl *kl, double kl_coef, const float *ref_log_prob, const float *kl_weight)
{
    double entropy_coeff = a->cfg->entropy_coeff;
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        double w = (double)a->weight[t];
        if (ref_log_prob) {
            double x = (double)a->log_prob[t] - (double)ref_log_prob[t], scale = kl_weight ? (double)kl_weight[t] : 1;
            a->sums->kl += w * kl->value(x);
            a->d_log_prob[t] += (float)(w * kl_coef * scale * kl->derivative(x));
        }
        if (a->entropy) a->sums->entropy += w * (double)a->entropy[t];
        if (entropy_coeff != 0 && a->d_entropy) a->d_entropy[t] -= (float)(w * entropy_coeff);
    }
    return ARES_OK;
}
