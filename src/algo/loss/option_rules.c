/*
 * What must hold between the options of the losses, and the sections of DAPO and VAPOR as their
 * documents write them.
 */
#include <math.h>
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
    say(&r, loss->flags & ARES_LOSS_PAIRS, 'e', "worker.actor.loss_type",
        "needs forward passes over the chosen and rejected answers of each row, which this trainer "
        "does not make yet; choose another loss");
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

static bool among(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0) return true;
    return false;
}
#define AMONG(word, ...)                              \
    among(word, (const char *const[]){ __VA_ARGS__ }, \
          ARES_COUNT(((const char *const[]){ __VA_ARGS__ })))

void ares_dapo_check(const ares_dapo_keys *k, ares_algo_complain *complain, void *ctx)
{
    report r = { complain, ctx };
    double eps = ares_is_null_f64(k->ratio_clip_eps) ? 0.2 : k->ratio_clip_eps;
    double low = ares_is_null_f64(k->clip_ratio_low) ? eps : k->clip_ratio_low,
           high = ares_is_null_f64(k->clip_ratio_high) ? eps : k->clip_ratio_high;
    const ares_kl *kl = ares_kl_find(k->kl_penalty_type);
    say(&r, strcmp(k->adv_type, "grpo") != 0, 'e', "adv_type",
        "DAPO's advantages are grpo; others belong to other algorithms");
    say(&r, !AMONG(k->loss_type, "actor", "ppo", "dapo"), 'e', "loss_type",
        "must be actor (or its alias ppo)");
    say(&r,
        !AMONG(k->loss_agg_func, "token-mean", "seq-mean-token-sum", "seq-mean-token-mean",
               "seq-mean-token-sum-norm"),
        'e', "loss_agg_func",
        "must be token-mean, seq-mean-token-sum, seq-mean-token-mean or seq-mean-token-sum-norm");
    say(&r, !kl || !kl->value, 'e', "kl_penalty_type",
        "must be low_var_kl, kl, abs or mse (aliases k3, k1, k2)");
    say(&r, !(k->group_size >= 2), 'e', "group_size", "a group needs two answers to compare");
    say(&r, !(eps >= 0 && eps < 1), 'e', "ratio_clip_eps", "must lie in [0, 1)");
    say(&r, !(low >= 0 && low < 1), 'e', "clip_ratio_low", "must lie in [0, 1)");
    say(&r, !(high >= 0), 'e', "clip_ratio_high", "must not be negative");
    say(&r, high >= 0 && high < low, 'w', "clip_ratio_high",
        "lies below clip_ratio_low; DAPO raises it above");
    say(&r, !ares_is_null_f64(k->clip_ratio_c) && !(k->clip_ratio_c > 1), 'e', "clip_ratio_c",
        "must lie above 1, or be null");
    say(&r, !(k->len_reward_penalty >= 0), 'e', "len_reward_penalty", "must not be negative");
    say(&r, !(k->max_length > 0), 'e', "max_length", "must be positive");
    say(&r, !(k->safe_length >= 0 && k->safe_length < k->max_length), 'e', "safe_length",
        "must lie in [0, max_length)");
    say(&r, !(k->kl_beta >= 0), 'e', "kl_beta", "must not be negative");
    say(&r, k->entropy_bonus > 0 && !k->calculate_entropy, 'w', "entropy_bonus",
        "has no effect while calculate_entropy is false");
    say(&r, k->entropy_bonus < 0, 'e', "entropy_bonus", "must not be negative");
    say(&r, !ares_is_null_f64(k->early_stop_imp_ratio) && !(k->early_stop_imp_ratio > 1), 'e',
        "early_stop_imp_ratio", "must lie above 1, or be null");
    say(&r, !(k->n_minibatches >= 1), 'e', "n_minibatches", "must be 1 or more");
    say(&r, !(k->importance_sampling_clip > 0), 'e', "importance_sampling_clip",
        "must be positive");
}

void ares_vapor_check(const ares_vapor_config *c, int64_t num_generations,
                      const char *const verifiable[2], const char *const preference[2],
                      ares_algo_complain *complain, void *ctx)
{
    report r = { complain, ctx };
    say(&r, num_generations < 1, 'e', "num_generations", "must be 1 or more");
    say(&r, num_generations == 1, 'w', "num_generations",
        "one completion has no other to compare with: its advantage is always 0");
    say(&r, !*verifiable[0] || !*verifiable[1], 'e', "verifiable_term_split",
        "needs two tags that are not empty");
    say(&r, !*preference[0] || !*preference[1], 'e', "preference_term_split",
        "needs two tags that are not empty");
    say(&r, *verifiable[0] && strcmp(verifiable[0], verifiable[1]) == 0, 'w',
        "verifiable_term_split", "both tags are the same: the span ends at the second occurrence");
    say(&r, *preference[0] && strcmp(preference[0], preference[1]) == 0, 'w',
        "preference_term_split", "both tags are the same: the span ends at the second occurrence");
    say(&r, !(c->beta >= 0), 'e', "beta", "must not be negative");
    say(&r, !(c->kl_coef >= 0), 'e', "kl_coef", "must not be negative");
    say(&r, !(c->epsilon_low >= 0 && c->epsilon_low < 1), 'e', "epsilon_low", "must lie in [0, 1)");
    say(&r, !(c->epsilon_high >= 0), 'e', "epsilon_high", "must not be negative");
    say(&r, !(c->log_ratio_clamp > 0), 'e', "log_ratio_clamp", "must be positive");
}
