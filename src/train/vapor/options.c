/* Options of VAPOR: what follows from the loss, its other names, and what does not go with it. */
#include <stdlib.h>
#include <string.h>

#include "agents/agents.h"
#include "roles/mini_batches.h"
#include "vapor/vapor.h"

#define LOSS "worker.actor.loss_type"
#define ACTOR "worker.actor."

/* What an option of the token losses is called here. */
static const char *const followed[][2] = {
    { ACTOR "clip_ratio_low", "vapor.epsilon_low" },
    { ACTOR "clip_ratio_high", "vapor.epsilon_high" },
    { "algorithm.kl_coef", "vapor.kl_coef" },
    { "algorithm.kl_penalty", "vapor.kl_penalty_type" },
};

static bool same_value(const char *a, const char *b)
{
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return strcmp(a, b) == 0 || (end_a > a && end_b > b && !*end_a && !*end_b && x == y);
}

/* Whether one word of the user gave this option and another: it gives way to a word for one. */
static bool broad(const ares_config *cfg, const char *from, const char *word)
{
    for (int i = 0; i < ARES_COUNT(followed); i++)
        if (strcmp(followed[i][0], from) != 0 &&
            strcmp(ares_config_word(cfg, followed[i][0]), word) == 0)
            return true;
    return false;
}

/*
 * Of two spellings the one in the later layer counts; given together, they must agree. A resolved
 * file gives all options: there a default says nothing.
 */
static void follow(ares_config *cfg, const char *from, const char *to, bool gives_way)
{
    const char *given = ares_config_given(cfg, from), *own = ares_config_given(cfg, to);
    if (!given) return;
    char *value = ares_strdup(given), *word = ares_strdup(ares_config_word(cfg, from));
    bool together = own && ares_config_together(cfg, from, to);
    if (!own || ares_config_later(cfg, from, to)) {
        ares_log(ARES_LOG_INFO, "config: %s -> %s", word, to);
        ares_config_follow(cfg, to, value, from);
    }
    ares_config_forget(cfg, from);
    const char *otherwise = ares_config_get_text(cfg, from);
    if (together && !gives_way && !same_value(value, own) &&
        !(otherwise && same_value(value, otherwise)))
        ares_config_fault(cfg, to,
                          "%s = %s is the same option with " LOSS " = 'vapor'; keep one of them",
                          word, value);
    ares_free(value);
    ares_free(word);
}

static void translate(ares_config *cfg)
{
    const char *name = ares_config_given(cfg, "algorithm.name");
    bool named = name && strcmp(name, "vapor") == 0;
    if (named) ares_config_preset(cfg, LOSS, "vapor", "algorithm.name: vapor");
    const char *loss = ares_config_get_text(cfg, LOSS);
    if (named && loss && strcmp(loss, "vapor") != 0)
        ares_config_fault(cfg, LOSS,
                          "is another loss than algorithm.name: vapor means; leave it out, or set "
                          "algorithm.name to null");
    if (!loss || strcmp(loss, "vapor") != 0) return;
    ares_config_preset(cfg, "algorithm.adv_estimator", "vapor", LOSS ": vapor");
    ares_config_preset(cfg, "algorithm.disable_kl", "true", LOSS ": vapor");
    bool gives_way[ARES_COUNT(followed)];
    for (int i = 0; i < ARES_COUNT(followed); i++)
        gives_way[i] = broad(cfg, followed[i][0], ares_config_word(cfg, followed[i][0]));
    for (int i = 0; i < ARES_COUNT(followed); i++)
        follow(cfg, followed[i][0], followed[i][1], gives_way[i]);
}

void vapor_declare(ares_config *cfg, ares_train_config *out)
{
    ares_config_add_options(cfg, "vapor", ares_vapor_options, &out->vapor);
    ares_config_translate_with(cfg, translate);
}

/* Each option, the value that it must have, and why. */
static const struct {
    const char *option, *value, *why;
} fixed[] = {
    { "algorithm.adv_estimator", "vapor", "compares the responses to a prompt by itself" },
    { "algorithm.disable_kl", "true", "has a KL of its own: vapor.kl_coef" },
    { "algorithm.use_kl_loss", "false", "has a KL of its own: vapor.kl_coef" },
    { "algorithm.use_kl_in_reward", "false", "has a KL of its own: vapor.kl_coef" },
    { "algorithm.aepo", "false", "has neither shaped scores nor a KL by token" },
    { "algorithm.difficulty_aware_kl_penalty", "false", "has no KL by difficulty" },
    { ACTOR "dynamic_kl_loss", "false", "has no KL by token" },
    { ACTOR "enable_second_chance_kl", "false", "has no KL by token" },
    { "algorithm.importance_sampling_fix", "false",
      "compares with the reference, not the sampler" },
    { "algorithm.normalize_advantages", "false", "reads scores, not advantages" },
    { "algorithm.zero_task_advantage", "false", "reads scores, not advantages" },
    { "algorithm.batch_adjust_mode", "none", "needs the responses to a prompt as they are" },
    { ACTOR "filter_loss_scaling", "none", "reads scores, not advantages" },
    { ACTOR "rollout_is", "none", "compares with the reference, not the sampler" },
    { ACTOR "early_stop_imp_ratio", NULL, "has no ratio of tokens" },
    { ACTOR "clip_ratio_dual", NULL, "has no dual clip" },
    { ACTOR "mini_batch_unit", "prompts", "needs the responses to a prompt in one mini-batch" },
    { ACTOR "loss_avg_mode", "token-mean", "gives every response the same weight" },
    { ACTOR "loss_norm", "global", "counts the responses of the mini-batch" },
    { ACTOR "valid_token_scope", "minibatch", "counts the responses of the mini-batch" },
    { "report.gradient_analysis.every", "0", "is not divided into a task, an entropy and a KL" },
};

static void warn_or_fault(void *ctx, char severity, const char *option, const char *message)
{
    if (severity == 'e') ares_config_fault(ctx, option, "%s", message);
    else ares_log(ARES_LOG_WARN, "config: %s: %s", option, message);
}

/* Whether an option has a value, however that is written (True, 0.0). NULL: null, as good as false
 */
static bool has_value(const ares_config *cfg, const char *option, const char *value)
{
    const ares_json *is = ares_config_get(cfg, option);
    if (!is || is->type == ARES_JSON_NULL) return !value || strcmp(value, "false") == 0;
    if (!value) return false;
    return is->type == ARES_JSON_BOOL ? strcmp(value, is->boolean ? "true" : "false") == 0
                                      : same_value(ares_config_get_text(cfg, option), value);
}

void vapor_check(ares_config *cfg, const ares_train_config *c)
{
    if (!vapor_wanted(c) || c->trainer.val_only) return;
    for (int i = 0; i < ARES_COUNT(fixed); i++) {
        if (has_value(cfg, fixed[i].option, fixed[i].value)) continue;
        ares_config_fault(cfg, fixed[i].option,
                          "does not go with " LOSS " = 'vapor', which %s; set %s", fixed[i].why,
                          fixed[i].value ? fixed[i].value : "null");
    }
    if (has_value(cfg, "data.bootstrap", "true") &&
        has_value(cfg, "algorithm.drop_easy_prompts", "false"))
        ares_config_fault(cfg, "data.bootstrap",
                          "answers the whole data set for difficulties and targets, which " LOSS
                          " = 'vapor' does not read; set false");
    if (agents_wanted(c))
        ares_config_fault(cfg, LOSS,
                          "vapor judges a part of a single answer, and env.train.tags names "
                          "environments; take another loss");
    if (strcmp(c->vapor.kl_penalty, "full") == 0)
        ares_config_fault(cfg, "vapor.kl_penalty_type",
                          "the exact KL needs the logits of both models; take an estimator, such "
                          "as low_var_kl");
    ares_vapor_check(&c->vapor, c->rollout.n, warn_or_fault, cfg);
}
