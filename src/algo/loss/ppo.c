/* loss_type default: PPO with low, high and dual clip (aepo.md 6.3). */
#include "ppo.h"

#include <math.h>

#include "ares/algo.h"

static int ppo(const ares_loss_args *a)
{
    ares_loss_sums *s = a->sums;
    double low = 1 - a->cfg->clip_ratio_low, high = 1 + a->cfg->clip_ratio_high;
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        double log_ratio = (double)a->log_prob[t] - (double)a->old_log_prob[t], w = (double)a->weight[t];
        double clamped = log_ratio < -20 ? -20 : log_ratio > 20 ? 20 : log_ratio; /* a NaN stays one, and is found in the sums */
        double ratio = ares_f64_exp(clamped);
        ares_ppo_term e = ares_ppo_token(log_ratio, ratio, (double)a->advantage[t], low, high, a->cfg->clip_ratio_dual);
        a->d_log_prob[t] += (float)(e.gradient * w);
        s->loss += e.loss * w;
        s->tokens += 1;
        s->clip_high += e.clip_high;
        s->clip_low += e.clip_low;
        s->neg_log_ratio -= clamped;
        s->ratio += ratio;
        s->ratio_min = fmin(s->ratio_min, ratio);
        s->ratio_max = fmax(s->ratio_max, ratio);
    }
    return ARES_OK;
}

const ares_loss ares_loss_default = { "default", "PPO: clipped surrogate with low, high and dual clip", ARES_LOSS_LOCAL, ppo };
