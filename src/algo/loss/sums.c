/* Sums of a loss: added over ranks and reported as metrics (docs/update.md#metrics). */
#include <math.h>

#include "ares/algo_loss.h"

/* Every member that simply adds up. */
/* clang-format off */
#define SUM_LIST(X) \
    X(loss) X(kl) X(kl_plain) X(kl_tokens) X(kl_clamped) X(entropy) X(entropy_plain) \
    X(entropy_tokens) X(tokens) X(clip_high) X(clip_low) X(neg_log_ratio) X(k2) X(k3) X(ratio) \
    X(ratio_clipped) X(ratio_off) X(loss_abs) X(saturated) X(weight) X(weight_cut) \
    X(weight_tokens) X(entropy_right) X(tokens_right) X(entropy_wrong) X(tokens_wrong)
/* clang-format on */

void ares_loss_sums_init(ares_loss_sums *s)
{
    *s = (ares_loss_sums){ .ratio_min = INFINITY, .ratio_max = -INFINITY };
}

int ares_loss_sums_reduce(ares_loss_sums *s, ares_world *w)
{
    double sums[64], bounds[2] = { s->ratio_max, -s->ratio_min };
    int n = 0;
#define PUT(name) sums[n++] = s->name;
    SUM_LIST(PUT)
#undef PUT
    ARES_TRY(ares_world_sum_f64(w, sums, n));
    ARES_TRY(ares_world_sum_f64(w, s->bins, ARES_LOSS_BINS));
    ARES_TRY(ares_world_max_f64(w, bounds, 2));
    n = 0;
#define TAKE(name) s->name = sums[n++];
    SUM_LIST(TAKE)
#undef TAKE
    s->ratio_max = bounds[0];
    s->ratio_min = -bounds[1];
    return ARES_OK;
}

double ares_loss_total(const ares_loss_sums *s, double entropy_coeff, double kl_coef)
{
    return s->loss + kl_coef * s->kl - entropy_coeff * s->entropy;
}

double ares_loss_bin_edge(int i)
{
    return -2 + i / 16.0;
}

void ares_loss_metrics(const ares_loss_sums *s, ares_metrics *m)
{
    double n = s->tokens;
    if (s->tokens_right > 0)
        ares_metrics_set(m, "actor/entropy_correct", s->entropy_right / s->tokens_right);
    if (s->tokens_wrong > 0)
        ares_metrics_set(m, "actor/entropy_wrong", s->entropy_wrong / s->tokens_wrong);
    if (s->entropy_tokens > 0)
        ares_metrics_set(m, "actor/entropy", s->entropy_plain / s->entropy_tokens);
    if (s->kl_tokens > 0) {
        ares_metrics_set(m, "actor/kl", s->kl_plain / s->kl_tokens);
        ares_metrics_set(m, "actor/kl_clamped_frac", s->kl_clamped / s->kl_tokens);
    }
    if (n == 0) return;
    ares_metrics_set(m, "actor/policy_loss_abs", s->loss_abs / n);
    ares_metrics_set(m, "actor/pg_clipfrac_higher", s->clip_high / n);
    ares_metrics_set(m, "actor/pg_clipfrac_lower", s->clip_low / n);
    ares_metrics_set(m, "actor/ppo_kl", s->neg_log_ratio / n);
    ares_metrics_set(m, "actor/ppo_kl_k2", s->k2 / n);
    ares_metrics_set(m, "actor/ppo_kl_k3", s->k3 / n);
    ares_metrics_set(m, "actor/ratio_mean", s->ratio / n);
    ares_metrics_set(m, "actor/ratio_max", s->ratio_max);
    ares_metrics_set(m, "actor/ratio_min", s->ratio_min);
    ares_metrics_set(m, "actor/clipped_ratio", s->ratio_clipped / n);
    ares_metrics_set(m, "actor/ratio_abs", s->ratio_off / n);
    ares_metrics_set(m, "actor/ratio_saturated", s->saturated / n);
    if (s->weight_tokens > 0) {
        ares_metrics_set(m, "actor/rollout_is_mean", s->weight / s->weight_tokens);
        ares_metrics_set(m, "actor/rollout_is_cut_frac", s->weight_cut / s->weight_tokens);
    }
}
