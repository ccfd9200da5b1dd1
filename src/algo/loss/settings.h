/* The settings of a loss's formulas, from the options: for the C and for the host side of the
 * twins. */
#ifndef ARES_ALGO_LOSS_SETTINGS_H
#define ARES_ALGO_LOSS_SETTINGS_H

#include "ares/algo.h"
#include "ares/algo_loss.h"
#include "formula.h"

static inline loss_settings loss_settings_of(const ares_loss_args *a, const ares_loss *loss)
{
    const ares_loss_config *cfg = a->cfg;
    const double unset = loss->clips & ARES_LOSS_CLIPS_DUAL ? 3 : (double)INFINITY;
    loss_settings s;
    s.low = 1 - cfg->clip_ratio_low;
    s.high = 1 + cfg->clip_ratio_high;
    s.log_low = cfg->clip_ratio_low;
    s.log_high = cfg->clip_ratio_high;
    s.dual = ares_is_null_f64(cfg->clip_ratio_dual) ? unset : cfg->clip_ratio_dual;
    s.tau_positive = cfg->tau_positive;
    s.tau_negative = cfg->tau_negative;
    s.ppo_kl_coef = cfg->ppo_kl_coef;
    s.corrected = a->rollout_weight != NULL;
    return s;
}
#endif
