/*
 * PPO's clipped loss under its two names: default and dapo. They differ only in the dual clip's
 * default.
 */
#include "entry.h"
#include "formula.h"

/*
 * loss_type default: PPO with low, high and dual clip
 * (docs/update.md#ppo-with-low-high-and-dual-clip; papers: formula.h). Unset, clip_ratio_dual is 3.
 */

ARES_LOSS_FN ares_token_term default_token(const loss_token *x, const loss_settings *s)
{
    return ares_ppo_token(x->log_ratio, x->advantage, s->low, s->high, s->dual);
}

LOSS_OF_TOKENS(default, .words = "default=ppo=vanilla",
               .doc = "PPO: clipped surrogate with low, high and dual clip",
               .formula = "max(-A r, -A clip(r, 1 - low, 1 + high)), at most -A dual where A < 0",
               .paper = "arXiv 1707.06347, 1912.09729",
               .clips = ARES_LOSS_CLIPS | ARES_LOSS_CLIPS_DUAL,
               .reads = "worker.actor.clip_ratio_low worker.actor.clip_ratio_high "
                        "worker.actor.clip_ratio_dual")

/*
 * loss_type dapo: PPO whose bounds are set apart (arXiv 2503.14476; docs/dapo.md#policy-loss). It
 * differs from default where clip_ratio_dual is unset: there is no dual clip then.
 */

ARES_LOSS_FN ares_token_term dapo_token(const loss_token *x, const loss_settings *s)
{
    return ares_ppo_token(x->log_ratio, x->advantage, s->low, s->high, s->dual);
}

LOSS_OF_TOKENS(dapo, .words = "dapo=actor",
               .doc = "PPO with separate clips, no dual clip unless clip_ratio_dual is set; often "
                      "with early_stop_imp_ratio",
               .formula = "max(-A r, -A clip(r, 1 - low, 1 + high))", .paper = "arXiv 2503.14476",
               .clips = ARES_LOSS_CLIPS,
               .reads = "worker.actor.clip_ratio_low worker.actor.clip_ratio_high "
                        "worker.actor.clip_ratio_dual")
