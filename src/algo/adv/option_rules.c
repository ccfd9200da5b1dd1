/* Options of the estimators that make no sense together. */
#include "adv.h"

/* A schedule that begins with the value moves on from it. */
static bool other_than_1(const ares_config *cfg, const char *path, double value)
{
    return value != 1 || ares_config_scheduled(cfg, path);
}

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
    if (other_than_1(cfg, "algorithm.gamma", a->gamma) && !discounted)
        ares_config_fault(
            cfg, "algorithm.gamma",
            "%s gives every token of a response the same advantage and discounts nothing; set 1.0",
            adv->name);
    if (other_than_1(cfg, "algorithm.lam", a->lam) && !gae)
        ares_config_fault(cfg, "algorithm.lam",
                          "%s has no use for it; set 1.0, or algorithm.adv_estimator to gae",
                          adv->name);
}
