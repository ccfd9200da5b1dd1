/* What must hold between the options of the losses, and in a section of VAPOR. */
#include <stdio.h>
#include <string.h>

#include "ares/algo.h"
#include "ares/algo_loss.h"

typedef struct report {
    ares_algo_complain *complain;
    void *ctx;
} report;

static void say(const report *r, bool wrong, char severity, const char *option, const char *message)
{
    if (wrong) r->complain(r->ctx, severity, option, message);
}

static void check_clips(const ares_loss_config *c, const ares_loss *loss, const report *r)
{
    char text[160];
    double dual = ares_is_null_f64(c->clip_ratio_dual) ? 3 : c->clip_ratio_dual;
    bool acts = (loss->clips & ARES_LOSS_CLIPS_DUAL) || !ares_is_null_f64(c->clip_ratio_dual);
    snprintf(text, sizeof text,
             "must lie above 1 + clip_ratio_high = %g, or it would cut every clipped token",
             1 + c->clip_ratio_high);
    say(r, acts && (loss->clips & ARES_LOSS_CLIPS) && dual <= 1 + c->clip_ratio_high, 'e',
        "worker.actor.clip_ratio_dual", text);
    say(r, (loss->clips & ARES_LOSS_CLIPS) && c->clip_ratio_high < c->clip_ratio_low, 'w',
        "worker.actor.clip_ratio_high",
        "lies below clip_ratio_low: the policy is let down further than up, which ends exploration "
        "early");
    say(r, (loss->flags & ARES_LOSS_BATCH) && c->clip_cov_lb >= c->clip_cov_ub, 'e',
        "worker.actor.clip_cov_lb", "must lie below clip_cov_ub: no covariance is between them");
}

void ares_loss_check(const ares_loss_config *c, ares_algo_complain *complain, void *ctx)
{
    report r = { complain, ctx };
    char text[160];
    const ares_loss *loss = ares_loss_find(c->loss_type);
    bool micro = strcmp(c->loss_norm, "micro") == 0, mask = strcmp(c->rollout_is_mode, "mask") == 0;
    if (!loss) return;
    check_clips(c, loss, &r);
    (void)snprintf(text, sizeof text, "the loss %s is of the mini-batch as a whole; set minibatch",
                   loss->name);
    say(&r,
        (loss->flags & ARES_LOSS_BATCH) && strcmp(c->early_stop_scope, "micro") == 0 &&
            !ares_is_null_f64(c->early_stop_imp_ratio),
        'e', "worker.actor.early_stop_scope", text);
    say(&r,
        mask && !ares_is_null_f64(c->rollout_is_threshold_lower) &&
            c->rollout_is_threshold_lower >= c->rollout_is_threshold,
        'e', "worker.actor.rollout_is_threshold_lower",
        "must lie below rollout_is_threshold: no weight is between them");
    say(&r,
        mask && ares_is_null_f64(c->rollout_is_threshold_lower) && c->rollout_is_threshold < 1 &&
            strcmp(c->rollout_is, "none") != 0,
        'e', "worker.actor.rollout_is_threshold",
        "its reciprocal, the smallest weight, lies above it; set rollout_is_threshold_lower");
    say(&r, micro && strcmp(c->valid_token_scope, "rollout") == 0, 'w',
        "worker.actor.valid_token_scope", "has no effect with loss_norm: micro");
    say(&r,
        !ares_is_null_f64(c->loss_scale_factor) &&
            strcmp(c->loss_avg_mode, "seq-mean-token-sum-norm") != 0,
        'w', "worker.actor.loss_scale_factor",
        "divides in loss_avg_mode: seq-mean-token-sum-norm only");
}

static bool same_tags(const ares_texts *tags)
{
    return tags->count == 2 && strcmp(tags->items[0], tags->items[1]) == 0;
}

void ares_vapor_check(const ares_vapor_config *c, int64_t num_generations,
                      ares_algo_complain *complain, void *ctx)
{
    static const char same[] = "both tags are the same: the span ends at the second occurrence";
    report r = { complain, ctx };
    say(&r, num_generations == 1, 'w', "worker.rollout.n",
        "one response has no other to compare with: its advantage is always 0");
    say(&r, same_tags(&c->verifiable_term_split), 'w', "vapor.verifiable_term_split", same);
    say(&r, same_tags(&c->preference_term_split), 'w', "vapor.preference_term_split", same);
    say(&r, c->dpo_coef != 0 && c->sync_ref_model, 'w', "vapor.dpo_coef",
        "DPO's reference moves, too, so that nothing holds its pairs back; set "
        "vapor.sync_ref_model=false (docs/vapor.md#dpo)");
}
