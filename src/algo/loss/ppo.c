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
        double clamped = ares_loss_bound(log_ratio);
        ares_token_term e = ares_ppo_token(log_ratio, (double)a->advantage[t], low, high, a->cfg->clip_ratio_dual);
        a->d_log_prob[t] += (float)(e.gradient * w);
        s->loss += e.loss * w;
        s->tokens += 1;
        s->clip_high += e.clip_high;
        s->clip_low += e.clip_low;
        s->neg_log_ratio -= clamped;
        s->ratio += e.ratio;
        s->ratio_min = fmin(s->ratio_min, e.ratio);
        s->ratio_max = fmax(s->ratio_max, e.ratio);
    }
    return ARES_OK;
}

const ares_loss ares_loss_default = { "default", "PPO: clipped surrogate with low, high and dual clip", ARES_LOSS_LOCAL, ppo };
