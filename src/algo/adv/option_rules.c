/* Options of the estimators that make no sense together. */
#include "adv.h"

void ares_adv_check(ares_config *cfg, const ares_algorithm_config *a, int64_t n)
{
    const ares_adv *adv = ares_adv_find(a->adv_estimator);
    if (!adv) return; /* the choice has been told already */
    bool grpo = adv == &ares_adv_grpo, gae = adv == &ares_adv_gae || adv == &ares_adv_bi_level_gae,
         discounted = gae || adv == &ares_adv_reinforce_plus_plus;
    if ((adv->needs & ARES_NEEDS_GROUPS) && n < 2)
        ares_config_fault(cfg, "worker.rollout.n",
                          "%s compares the responses of a prompt; set 2 or more", adv->name);
    if (a->bi_level_gae && !gae)
        ares_config_fault(cfg, "algorithm.bi_level_gae",
                          "%s knows no values; set algorithm.adv_estimator to gae, or leave it out",
                          adv->name);
    if (a->soft_advantage_reweight && !grpo)
        ares_config_fault(
            cfg, "algorithm.soft_advantage_reweight",
            "%s does not take it; set algorithm.adv_estimator to grpo, or leave it out", adv->name);
    if (a->grpo_advantage_length_weight && !grpo)
        ares_config_fault(
            cfg, "algorithm.grpo_advantage_length_weight",
            "%s does not take it; set algorithm.adv_estimator to grpo, or leave it out", adv->name);
    /* a schedule that begins with 1 moves on from it */
    if ((a->gamma != 1 || ares_config_scheduled(cfg, "algorithm.gamma")) && !discounted)
        ares_config_fault(
            cfg, "algorithm.gamma",
            "%s gives every token of a response the same advantage and discounts nothing; set 1.0",
            adv->name);
}
