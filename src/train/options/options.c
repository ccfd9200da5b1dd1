/*
 * The options of training and the rules between them. The special subjects come first (device,
 * limits of pictures, over-sampling, environments, VAPOR); the list of all options, and
 * ares_train_config_check, which calls the checks of each subject, are at the end.
 */
#include "options.h"
#include "agents/agents.h"
#include "collect/collect.h"
#include "learner.h"
#include "roles.h"
#include "trainer.h"
#include "vapor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The device and its kernels; checked for reinforcement learning and for supervised training. */

void device_check(ares_config *cfg, const ares_trainer_config *c)
{
    bool cpu = strncmp(c->device, "cpu", 3) == 0;
    if (!cpu && strncmp(c->device, "cuda", 4) != 0)
        ares_config_fault(cfg, "trainer.device", "no such device (choices: cpu, cuda, cuda:<n>)");
    else if (!cpu && strcmp(c->kernels, "aten") == 0)
        ares_config_fault(cfg, "trainer.kernels",
                          "aten computes on the CPU, not on trainer.device=%s; set native, or "
                          "trainer.device=cpu",
                          c->device);
    if (cpu && strcmp(c->comm_transport, "nccl") == 0)
        ares_config_fault(cfg, "trainer.comm_transport",
                          "nccl moves bytes between cards, and trainer.device=%s is none; set auto",
                          c->device);
}

/* Limits of pictures. EasyR1 applies the largest size, then the smallest, even where it is larger.
 */

void pixels_check(ares_config *cfg, const ares_data_config *d)
{
    if (d->min_pixels == ARES_NULL_I64 || d->max_pixels == ARES_NULL_I64 ||
        d->min_pixels <= d->max_pixels)
        return;
    ares_config_fault(cfg, "data.min_pixels",
                      "exceeds data.max_pixels = %lld; lower it, or set one of them to null",
                      (long long)d->max_pixels);
}

/*
 * Over-sampling and partial rollouts: the options that ask for them, and the options that exclude
 * them (docs/curriculum.md).
 */

ARES_OPTION_TABLE(oversampling_options, ares_oversampling_config, ARES_OVERSAMPLING_OPTIONS);

#define OVER "curriculum.over_sampling_batch_size"
#define PARTIAL "curriculum.partial_rollout"

static void oversampling_check(ares_config *cfg, const ares_train_config *c)
{
    const ares_oversampling_config *o = &c->oversampling;
    const ares_filter_config *f = &c->filter;
    const char *by = o->batch != ARES_NULL_I64 ? OVER : PARTIAL;
    if (c->trainer.val_only || !oversampling_wanted(c)) return;
    if (agents_wanted(c)) {
        ares_config_fault(cfg, by,
                          "an episode with an environment cannot be cut and go on later; leave it "
                          "out");
        return;
    }
    if (o->batch != ARES_NULL_I64 && o->batch < c->data.rollout_batch_size)
        ares_config_fault(cfg, OVER,
                          "a fetch must fill the batch: data.rollout_batch_size is %lld; set that "
                          "or more",
                          (long long)c->data.rollout_batch_size);
    if (o->batch != ARES_NULL_I64 && o->batch > INT32_MAX / c->rollout.n)
        ares_config_fault(cfg, OVER,
                          "a fetch would have more than 2147483647 responses (worker.rollout.n = "
                          "%lld); 2 or 3 times data.rollout_batch_size is usual",
                          (long long)c->rollout.n);
    /* fetches go on until the batch is full, so options that end rounds of draws have no effect */
    ares_filter_config of_draws, of_batch;
    ares_filter_stages(f, &of_draws, &of_batch);
    if (c->data.mini_rollout_batch_size != ARES_NULL_I64)
        ares_config_fault(cfg, "data.mini_rollout_batch_size",
                          "with %s a draw is %s prompts; set null", by, OVER);
    if (f->max_resample != ARES_NULL_I64)
        ares_config_fault(cfg, "algorithm.max_resample",
                          "with %s, curriculum.max_fetches_per_rollout says how often prompts are "
                          "drawn; set null",
                          by);
    if (strcmp(f->resample_mode, "same_prompt") == 0)
        ares_config_fault(cfg, "algorithm.dynamic_sampling.mode",
                          "with %s a dropped group is replaced by one of another prompt; set "
                          "new_prompts",
                          by);
    if (f->on_exhausted && strcmp(f->on_exhausted, "error") != 0 && !ares_filter_needs(&of_batch))
        ares_config_fault(cfg, "algorithm.on_exhausted",
                          "with %s prompts are drawn until the batch is full, or the run ends; set "
                          "error",
                          by);
    if (c->actor.recompute_log_probs && strcmp(o->old_log_probs, "stored") == 0)
        ares_config_fault(cfg, "curriculum.partial.old_log_probs",
                          "worker.actor.recompute_log_probs computes all of them; set recompute, "
                          "or the other to false");
}

/* Training in environments: options that follow from env.*, and options that env.* excludes. */

static ARES_OPTION_TABLE(agents_options, ares_agents_config, ARES_AGENTS_OPTIONS);
static ARES_OPTION_TABLE(train_options, ares_agent_side_config, ARES_AGENT_TRAIN_OPTIONS);
static ARES_OPTION_TABLE(val_options, ares_agent_side_config, ARES_AGENT_VAL_OPTIONS);

enum { TAGS = 64 };

/* The k-th tag of a list; for k = 0 also a tag that is given without a list. NULL: no more. */
static const char *given_tag(ares_config *cfg, const char *path, int k)
{
    char item[64];
    snprintf(item, sizeof item, "%s.%d", path, k);
    const char *tag = ares_config_given(cfg, item);
    return tag || k ? tag : ares_config_given(cfg, path);
}

/* The option at path takes the value of `own`, an option of env.train, or its default, fallback. */
static void follow_agents(ares_config *cfg, const char *path, const char *own, const char *fallback)
{
    const char *value = ares_config_given(cfg, own);
    if (ares_config_is_set(cfg, path)) return; /* check_agent_sizes tells whether they agree */
    ares_config_follow(cfg, path, value ? value : fallback, value ? own : "env.train.tags");
}

int64_t agents_turns_shown(const ares_train_config *c)
{
    const ares_agents_config *a = &c->agents;
    bool all = strcmp(a->context_window_mode, "full") == 0 || a->max_context_window < 0;
    if (!agents_wanted(c)) return 1;
    return all ? a->max_turns : ARES_MIN(a->max_turns, a->max_context_window);
}

/* The built-in tags that are used get their definitions; a step has the groups that env.train says.
 */
static void translate_agents(ares_config *cfg)
{
    const char *tag;
    for (int k = 0; k < TAGS && (tag = given_tag(cfg, "env.val.tags", k)); k++)
        ares_env_preset(cfg, tag);
    for (int k = 0; k < TAGS && (tag = given_tag(cfg, "env.train.tags", k)); k++)
        ares_env_preset(cfg, tag);
    if (!given_tag(cfg, "env.train.tags", 0)) return;
    follow_agents(cfg, "data.rollout_batch_size", "env.train.groups", ARES_AGENT_TRAIN_GROUPS);
    follow_agents(cfg, "worker.rollout.n", "env.train.group_size", ARES_AGENT_TRAIN_GROUP_SIZE);
}

/* Options of the conversations that we write, which a program that plays by itself never sees. */
static const char *const conversations[] = { "max_turns",
                                             "max_actions_per_turn",
                                             "action_separator",
                                             "enable_think",
                                             "format_penalty",
                                             "token_exact",
                                             "use_turn_scores",
                                             "train_text_include_warning",
                                             "enable_response_mask",
                                             "max_context_window",
                                             "mask_template_tokens",
                                             "context_window_mode" };

/* Which kinds of tags a run has: whose conversations we write, and whose programs play. */
typedef struct tag_kinds {
    bool written, played;
} tag_kinds;

static void warn_unread(ares_config *cfg, const char *path)
{
    if (ares_config_is_set(cfg, path))
        ares_log(ARES_LOG_WARN,
                 "config: %s: has no effect: the program of a type 'agent' writes the conversation",
                 path);
}

/* Requests of programs are rendered by the model's chat template. */
static void check_template(ares_config *cfg, const ares_train_config *c)
{
    ares_str dir = { 0 };
    ares_chat *chat = NULL;
    bool found =
        c->actor.tokenizer_path ||
        (c->actor.model_path && ares_model_find_tokenizer(c->actor.model_path, &dir) == ARES_OK);
    if (found && ares_chat_load(c->actor.tokenizer_path ? c->actor.tokenizer_path : dir.data, NULL,
                                &chat) != ARES_OK)
        ares_config_fault(cfg, "worker.actor.model.model_path",
                          "requests of a program of a type 'agent' need a chat template: %s; name "
                          "a file in data.override_chat_template",
                          ares_error_message());
    ares_error_clear(); /* a fault of the model is told where it is loaded */
    ares_chat_free(chat);
    ares_str_fini(&dir);
}

/* The options of env.train or env.val; path: which of the two. */
static void check_side(ares_config *cfg, const ares_agent_side_config *s, const char *path,
                       tag_kinds *kinds)
{
    char option[64];
    int64_t sum = 0;
    ares_env_definition d;
    if (!s->tags.count) return;
    for (int64_t k = 0; k < s->tags.count; k++) {
        if (ares_env_define(cfg, s->tags.items[k], &d) == ARES_OK) {
            static const char *const texts[] = { "instruction", "max_actions", "max_tokens" };
            bool played = d.type && d.type->program;
            kinds->played |= played;
            kinds->written |= !played;
            for (int i = 0; i < ARES_COUNT(texts) && played; i++) {
                char of_tag[400];
                snprintf(of_tag, sizeof of_tag, "env.definitions.%s.%s", s->tags.items[k],
                         texts[i]);
                warn_unread(cfg, of_tag);
            }
            continue;
        }
        snprintf(option, sizeof option, "%s.tags", path);
        ares_config_fault(cfg, option, "%s", ares_error_message());
        ares_error_clear();
    }
    for (int64_t k = 0; k < s->n_groups.count; k++) sum += s->n_groups.items[k];
    snprintf(option, sizeof option, "%s.n_groups", path);
    if (s->n_groups.count && s->n_groups.count != s->tags.count)
        ares_config_fault(cfg, option, "%lld numbers for %lld tags; give one for each",
                          (long long)s->n_groups.count, (long long)s->tags.count);
    else if (s->n_groups.count && sum != s->groups)
        ares_config_fault(cfg, option,
                          "they add up to %lld, and %s.groups is %lld; make them equal",
                          (long long)sum, path, (long long)s->groups);
    snprintf(option, sizeof option, "%s.groups", path);
    if (!s->n_groups.count && s->groups % s->tags.count)
        ares_config_fault(cfg, option,
                          "%lld tags cannot share them evenly; set a multiple, or say with "
                          "%s.n_groups how many each has",
                          (long long)s->tags.count, path);
}

/* Whether `from` was given, and the option has its value. */
static bool follows(ares_config *cfg, const char *option, const char *from)
{
    const char *given = ares_config_given(cfg, from), *is = ares_config_get_text(cfg, option);
    return given && is && strcmp(given, is) == 0;
}

/* The sizes of a step come from env.train; the options of data sets may only repeat them. */
static void check_agent_sizes(ares_config *cfg, const ares_train_config *c)
{
    const ares_agent_side_config *s = &c->agents_train;
    if (!s->tags.count || c->trainer.val_only) return;
    if (c->data.rollout_batch_size != s->groups &&
        !follows(cfg, "data.rollout_batch_size", "env.train.groups"))
        ares_config_fault(cfg, "data.rollout_batch_size",
                          "env.train.groups = %lld says how many prompts a step has; leave it out",
                          (long long)s->groups);
    if (c->rollout.n != s->group_size && !follows(cfg, "worker.rollout.n", "env.train.group_size"))
        ares_config_fault(cfg, "worker.rollout.n",
                          "env.train.group_size = %lld says how many episodes a group has; leave "
                          "it out",
                          (long long)s->group_size);
    if (c->trainer.max_steps == ARES_NULL_I64)
        ares_config_fault(cfg, "trainer.max_steps",
                          "environments never end, so no number of epochs says when the run does; "
                          "set the number of steps");
}

/* Faults of env.*, and of options that environments exclude. */
static void agents_check(ares_config *cfg, const ares_train_config *c)
{
    static const char *const rewards[] = {
        "rewards",     "reward_function",    "max_length",
        "safe_length", "len_reward_penalty", "unfinished_score"
    };
    char option[64];
    bool trains = c->agents_train.tags.count > 0; /* in environments */
    ares_env_check_definitions(cfg);
    if (!agents_wanted(c)) return;
    tag_kinds kinds = { 0 };
    check_side(cfg, &c->agents_train, "env.train", &kinds);
    check_side(cfg, &c->agents_val, "env.val", &kinds);
    for (int i = 0; i < ARES_COUNT(conversations) && kinds.played && !kinds.written; i++) {
        snprintf(option, sizeof option, "env.%s", conversations[i]);
        /* it also says how much room a conversation has, where no length does */
        if (strcmp(conversations[i], "max_turns") == 0 && c->rollout.max_model_len == ARES_NULL_I64)
            continue;
        warn_unread(cfg, option);
    }
    if (kinds.played && !c->data.override_chat_template) check_template(cfg, c);
    if (kinds.played && c->rollout.tensor_parallel_size > 1)
        ares_config_fault(cfg, "worker.rollout.tensor_parallel_size",
                          "%lld ranks that decode as one have no endpoint for programs of a type "
                          "'agent'; set 1",
                          (long long)c->rollout.tensor_parallel_size);
    /* an environment has its own prompts and scores: options of data sets and rewards are faults */
    for (int i = 0; i < ARES_COUNT(rewards); i++) {
        snprintf(option, sizeof option, "worker.reward.%s", rewards[i]);
        const ares_json *v = ares_config_get(cfg, option);
        if (v && v->type != ARES_JSON_NULL)
            ares_config_fault(cfg, option, "environments score their episodes; leave it out");
    }
    if (trains && c->data.train_files.count)
        ares_config_fault(cfg, "data.train_files",
                          "env.train.tags says that the run trains in environments; leave one out");
    if (c->agents_val.tags.count && c->data.val_files.count)
        ares_config_fault(cfg, "data.val_files",
                          "env.val.tags says that the run validates in environments; leave one "
                          "out");
    if (!trains && c->data.train_files.count)
        ares_config_fault(cfg, "env.val.tags",
                          "the run trains on data.train_files, and would be validated in "
                          "environments; train in environments, too, or leave it out");
    if (trains && c->data.val_files.count)
        ares_config_fault(cfg, "data.val_files",
                          "the run trains in environments; set env.val.tags instead");
    if (!c->data.apply_chat_template)
        ares_config_fault(cfg, "data.apply_chat_template",
                          "a conversation with an environment needs a chat template; set true");
    check_agent_sizes(cfg, c);
    if (c->collapse.freq > 0 && !c->agents.enable_think)
        ares_config_fault(
            cfg, "report.collapse.freq",
            "it measures thoughts, and env.enable_think = false asks for none; set 0");
    if (!c->agents.enable_response_mask && !c->agents.mask_template_tokens &&
        !c->agents.token_exact)
        ares_config_fault(cfg, "env.mask_template_tokens",
                          "env.enable_response_mask: false trains on all that follows the system "
                          "message; set one of them to true");
    if (!ares_is_null_f64(c->agents.failure_score) && strcmp(c->agents.on_failure, "discard") == 0)
        ares_config_fault(cfg, "env.failure_score",
                          "a failed episode is discarded; set env.on_failure to score, or leave it "
                          "out");
    else if (!ares_is_null_f64(c->agents.failure_score) && c->agents.use_turn_scores)
        ares_config_fault(cfg, "env.failure_score",
                          "it is of a whole episode, and env.use_turn_scores trains on the rewards "
                          "of turns; leave one out");
    if (c->agents.use_turn_scores && strcmp(c->agents.normalization, "identity") != 0)
        ares_config_fault(cfg, "env.reward_normalization.method",
                          "the scores of turns are not normalised; set identity, or "
                          "env.use_turn_scores to false");
}

/* VAPOR: options that follow from its loss, other names of its options, and what it excludes. */

#define LOSS "worker.actor.loss_type"
#define ACTOR "worker.actor."

/* Options of the token losses, and what VAPOR calls the same. */
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

/*
 * Of two spellings the one in the later layer counts; given together, they must agree. A resolved
 * file gives all options: there a default says nothing. gives_way: one word of the user gave this
 * option and others, and a word for this one alone counts more
 */
static void follow_vapor(ares_config *cfg, const char *from, const char *to, bool gives_way)
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

static void translate_vapor(ares_config *cfg)
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
    /* asked before any is followed, which forgets its word */
    bool gives_way[ARES_COUNT(followed)] = { 0 };
    for (int i = 0; i < ARES_COUNT(followed); i++)
        for (int k = 0; k < ARES_COUNT(followed); k++)
            if (k != i && strcmp(ares_config_word(cfg, followed[k][0]),
                                 ares_config_word(cfg, followed[i][0])) == 0)
                gives_way[i] = true;
    for (int i = 0; i < ARES_COUNT(followed); i++)
        follow_vapor(cfg, followed[i][0], followed[i][1], gives_way[i]);
}

/* Options with the value that VAPOR needs, and why: "VAPOR .."; value NULL: it must be null. */
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
    { ACTOR "rollout_rs", NULL, "compares with the reference, not the sampler" },
    { ACTOR "rollout_token_veto_threshold", NULL, "compares with the reference, not the sampler" },
    { ACTOR "early_stop_imp_ratio", NULL, "has no ratio of tokens" },
    { ACTOR "clip_ratio_dual", NULL, "has no dual clip" },
    { ACTOR "mini_batch_unit", "prompts", "needs the responses to a prompt in one mini-batch" },
    { ACTOR "loss_avg_mode", "token-mean", "gives every response the same weight" },
    { ACTOR "loss_norm", "global", "counts the responses of the mini-batch" },
    { ACTOR "valid_token_scope", "minibatch", "counts the responses of the mini-batch" },
    { "report.gradient_analysis.every", "0", "is not divided into a task, an entropy and a KL" },
};

/* Takes the findings of ares_loss_check and ares_vapor_check. */
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

/* Faults of options that VAPOR excludes, and of vapor.*. */
static void vapor_check(ares_config *cfg, const ares_train_config *c)
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

/* All options of training, and what must hold between them. */

ARES_OPTION_TABLE(actor_options, ares_actor_config, ARES_ACTOR_OPTIONS);
ARES_OPTION_TABLE(optim_options, ares_optim_config, ARES_OPTIM_OPTIONS);
ARES_OPTION_TABLE(ref_options, ares_ref_config, ARES_REF_OPTIONS);
ARES_OPTION_TABLE(critic_options, ares_critic_config, ARES_CRITIC_OPTIONS);
ARES_OPTION_TABLE(rollout_options, ares_rollout_config, ARES_ROLLOUT_OPTIONS);
ARES_OPTION_TABLE(trainer_options, ares_trainer_config, ARES_TRAINER_OPTIONS);
ARES_OPTION_TABLE(eval_options, ares_eval_config, ARES_EVAL_OPTIONS);
ARES_OPTION_TABLE(gradients_options, ares_gradients_config, ARES_GRADIENTS_OPTIONS);
static ARES_OPTION_TABLE(published_options, ares_published_config, ARES_PUBLISHED_OPTIONS);

void ares_train_config_declare(ares_config *cfg, ares_train_config *out)
{
    ares_config_add_options(cfg, "data", ares_data_options, &out->data);
    ares_config_add_options(cfg, "curriculum", ares_curriculum_options, &out->curriculum);
    ares_config_add_options(cfg, "algorithm", ares_algorithm_options, &out->algorithm);
    ares_config_add_options(cfg, "", ares_filter_options, &out->filter);
    ares_config_add_options(cfg, "worker.actor", actor_options, &out->actor);
    ares_config_add_options(cfg, "worker.actor", ares_loss_options, &out->loss);
    ares_config_add_options(cfg, "worker.actor.optim", optim_options, &out->optim);
    ares_config_add_options(cfg, "worker.actor.model.lora", ares_lora_option_table,
                            &out->actor_lora);
    ares_config_add_options(cfg, "worker.ref", ref_options, &out->ref);
    ares_config_add_options(cfg, "worker.critic", critic_options, &out->critic);
    ares_config_add_options(cfg, "worker.critic.optim", optim_options, &out->critic_optim);
    ares_config_add_options(cfg, "worker.critic.model.lora", ares_lora_option_table,
                            &out->critic_lora);
    ares_config_add_options(cfg, "worker.rollout", rollout_options, &out->rollout);
    ares_config_add_options(cfg, "worker.reward", ares_reward_options, &out->reward);
    ares_config_add_options(cfg, "trainer", trainer_options, &out->trainer);
    ares_config_add_options(cfg, "report.collapse", ares_collapse_options, &out->collapse);
    ares_config_add_options(cfg, "report.gradient_analysis", gradients_options, &out->gradients);
    ares_config_add_options(cfg, "eval", eval_options, &out->eval);
    ares_config_add_options(cfg, "", published_options, &out->published);
    ares_env_declare_options(cfg);
    ares_config_add_options(cfg, "env", agents_options, &out->agents);
    ares_config_add_options(cfg, "env.train", train_options, &out->agents_train);
    ares_config_add_options(cfg, "env.val", val_options, &out->agents_val);
    ares_config_translate_with(cfg, translate_agents); /* first: others read sizes that it sets */
    presets_declare(cfg, out);
    ares_config_add_options(cfg, "curriculum", oversampling_options, &out->oversampling);
    ares_config_add_options(cfg, "vapor", ares_vapor_options, &out->vapor);
    ares_config_translate_with(cfg, translate_vapor);
    ares_config_add_options(cfg, "distillation", ares_distillation_options, &out->distillation);
    controls_declare(cfg, out);
    int n;
    const char *const *names = ares_adv_names(&n);
    ares_config_add_choices(cfg, "algorithm.adv_estimator", names, n);
    names = ares_kl_names(&n);
    ares_config_add_choices(cfg, "algorithm.kl_penalty", names, n);
    ares_config_add_choices(cfg, "vapor.kl_penalty_type", names, n);
    names = ares_loss_names(&n);
    ares_config_add_choices(cfg, "worker.actor.loss_type", names, n);
    train_add_aliases(cfg);
}

/*
 * A mini-batch of prompts is divided evenly among ranks. Rows of a mini-batch of rows stay on the
 * rank that has their group, so a rank may have none of them.
 */
static void check_mini_batch(ares_config *cfg, const ares_train_config *c, const char *option,
                             mini_batch_size size, int world)
{
    int64_t prompts = c->data.rollout_batch_size, rows = prompts * c->rollout.n;
    if (size.rows && rows % size.count)
        ares_config_fault(cfg, option,
                          "the %lld rows of a step (data.rollout_batch_size x worker.rollout.n) "
                          "are no multiple of it; mini_batch_unit says that it counts rows",
                          (long long)rows);
    if (size.rows && prompts % world)
        ares_config_fault(cfg, "data.rollout_batch_size",
                          "prompts are dealt out to %d ranks; set a multiple of %d", world, world);
    if (size.rows) return;
    if (prompts % size.count)
        ares_config_fault(cfg, option,
                          "data.rollout_batch_size = %lld is no multiple of it; both count prompts",
                          (long long)prompts);
    if (size.count % world)
        ares_config_fault(cfg, option, "prompts are dealt out to %d ranks; set a multiple of %d",
                          world, world);
}

/* The kv cache must hold one row, which may begin and end in the middle of a block. */
static void check_cache(ares_config *cfg, const ares_train_config *c, const char *row,
                        int64_t tokens)
{
    int64_t least = tokens + 2 * ARES_KV_BLOCK;
    if (c->rollout.cache_tokens != ARES_NULL_I64 && c->rollout.cache_tokens < least)
        ares_config_fault(cfg, "worker.rollout.cache_tokens", "one %s tokens needs %lld", row,
                          (long long)least);
}

/* Sizes of a step that must divide each other, and rows that must fit in the context. */
static void check_sizes(ares_config *cfg, const ares_train_config *c, int world)
{
    int64_t batch = c->data.rollout_batch_size;
    if (batch > INT32_MAX / c->rollout.n) {
        ares_config_fault(cfg, "worker.rollout.n",
                          "a step would have more than %d responses to its %lld prompts "
                          "(data.rollout_batch_size); lower one of them",
                          INT32_MAX, (long long)batch);
        return;
    }
    check_mini_batch(cfg, c, "worker.actor.global_batch_size", mini_batch_size_of_actor(c), world);
    if (c->critic.global_batch_size != ARES_NULL_I64 || c->critic.mini_batch_unit)
        check_mini_batch(cfg, c, "worker.critic.global_batch_size", mini_batch_size_of_critic(c),
                         world);
    int64_t drawn =
        c->data.mini_rollout_batch_size == ARES_NULL_I64 ? batch : c->data.mini_rollout_batch_size;
    if (drawn % world)
        ares_config_fault(cfg, "data.mini_rollout_batch_size",
                          "prompts are dealt out to %d ranks; set a multiple of %d", world, world);
    if (c->rollout.max_model_len != ARES_NULL_I64 && !agents_wanted(c) &&
        c->rollout.max_model_len < c->data.max_prompt_length + c->data.max_response_length)
        ares_config_fault(cfg, "worker.rollout.max_model_len",
                          "data.max_prompt_length + data.max_response_length = %lld do not fit; "
                          "raise it, or set it to null",
                          (long long)(c->data.max_prompt_length + c->data.max_response_length));
    if (!agents_wanted(c))
        check_cache(cfg, c, "sample of data.max_prompt_length + data.max_response_length",
                    c->data.max_prompt_length + c->data.max_response_length);
    else if (c->rollout.max_model_len != ARES_NULL_I64) /* it grows up to the whole context */
        check_cache(cfg, c, "conversation of worker.rollout.max_model_len",
                    c->rollout.max_model_len);
}

/* Rows are copied and dropped one by one, so mini-batches must count them one by one. */
static void check_adjusting(ares_config *cfg, const ares_train_config *c)
{
    static const char option[] = "algorithm.batch_adjust_mode";
    const ares_adv *adv = ares_adv_find(c->algorithm.adv_estimator);
    const char *mode = c->filter.batch_adjust;
    if (c->trainer.val_only || !adv || strcmp(mode, "none") == 0) return;
    mini_batch_size mini = mini_batch_size_of_actor(c);
    int64_t rows = c->data.rollout_batch_size * c->rollout.n;
    /* RAGEN's check; a share of the mass of deviations is about that share of the groups */
    if (mini.rows && strcmp(mode, "copy") == 0 && strcmp(c->filter.rv_strategy, "top_p") == 0 &&
        c->filter.rv_value * (double)rows < (double)mini.count)
        ares_config_fault(cfg, "worker.rollout.rollout_filter_value",
                          "that share of the step's %lld rows is less than a mini-batch, whose "
                          "rows would be copies; set %.3g or more, or lower "
                          "worker.actor.global_batch_size, now %lld",
                          (long long)rows, (double)mini.count / (double)rows,
                          (long long)mini.count);
    if (!mini.rows)
        ares_config_fault(cfg, option,
                          "%s makes whole mini-batches of rows, and these count prompts; set "
                          "worker.actor.mini_batch_unit to rows",
                          mode);
    else if (trainer_needs_critic(c) && !mini_batch_size_of_critic(c).rows)
        ares_config_fault(cfg, option,
                          "%s makes whole mini-batches of rows, and the critic's count prompts; "
                          "set worker.critic.mini_batch_unit to rows",
                          mode);
    if (strcmp(mode, "delete") == 0 && (adv->needs & ARES_NEEDS_GROUPS))
        ares_config_fault(cfg, option,
                          "delete may leave a single answer to a prompt, and %s compares them; "
                          "set copy",
                          adv->name);
}

/*
 * Warns of penalties of length that never act or that outweigh a right answer, and of answers that
 * are too long to be trained on (docs/dapo.md#penalty-of-length).
 */
static void check_lengths(ares_config *cfg, const ares_train_config *c, const ares_reward *reward)
{
    static const char action[] = "algorithm.over_length_action";
    int64_t limit = ares_reward_max_length(reward), longest = c->data.max_response_length,
            safe = c->reward.safe_length;
    double right, wrong, penalty;
    bool keep = strcmp(c->filter.over_length_action, "keep") == 0;
    if (limit != ARES_NULL_I64 && longest > limit && !keep)
        ares_log(
            ARES_LOG_WARN,
            "config: the rewards' limit of length is %lld tokens: data.max_response_length = %lld "
            "allows longer answers, from which nothing is learnt",
            (long long)limit, (long long)longest);
    if (ares_config_given(cfg, action) && limit == ARES_NULL_I64)
        ares_log(ARES_LOG_WARN,
                 "config: %s = '%s': has no effect, because nothing says when an answer is too "
                 "long; set worker.reward.max_length",
                 action, c->filter.over_length_action);
    bool worth = ares_reward_worth(reward, &right, &wrong, &penalty);
    if (penalty > 0 && safe != ARES_NULL_I64 && safe >= longest)
        ares_log(
            ARES_LOG_WARN,
            "config: worker.reward.safe_length = %lld: no answer of training is longer, because "
            "data.max_response_length = %lld ends it, and nothing is taken off for length; "
            "set safe_length and max_length for the lengths of this run",
            (long long)safe, (long long)longest);
    else if (worth && right > wrong && penalty >= right - wrong)
        ares_log(ARES_LOG_WARN,
                 "config: the full penalty of length is %g, and a right answer earns %g, a wrong "
                 "one %g: a right answer of full length scores no more than a short wrong one; "
                 "lower the penalty, or set worker.reward.correct and incorrect (DAPO: 1 and -1)",
                 penalty, right, wrong);
}

/* A right answer must earn more than a wrong one, where the options say what both earn. */
static void check_worth(ares_config *cfg, const ares_reward_config *r)
{
    static const char *const paths[] = { "worker.reward.scale", "worker.reward.correct",
                                         "worker.reward.incorrect" };
    const double given[] = { r->scale, r->correct, r->incorrect };
    double right = ares_is_null_f64(r->correct) ? 1 : r->correct,
           wrong = ares_is_null_f64(r->incorrect) ? -1 : r->incorrect,
           scale = ares_is_null_f64(r->scale) ? 1 : r->scale;
    if (right * scale > wrong * scale) return;
    for (int i = 0; i < ARES_COUNT(paths); i++) {
        if (ares_is_null_f64(given[i]) || (i == 0 && scale > 0)) continue;
        ares_config_fault(cfg, paths[i],
                          "a right answer would earn %g and a wrong one %g; let correct x scale "
                          "be more than incorrect x scale",
                          right * scale + 0, wrong * scale + 0); /* never -0 */
        return;
    }
}

/*
 * There is one KL with one coefficient, in the loss or in the reward. own_kl: the loss has a KL of
 * its own, and its own rules for these options.
 */
static void check_kl(ares_config *cfg, const ares_algorithm_config *a, bool own_kl)
{
    static const char beta[] = "algorithm.kl_beta";
    bool in_reward = a->use_kl_in_reward && strcmp(a->use_kl_in_reward, "true") == 0;
    const char *type = ares_config_get_text(cfg, "algorithm.kl_type");
    const char *written = ares_config_written(cfg, "algorithm.kl_coef");
    bool weighs = a->kl_coef > 0 || ares_config_scheduled(cfg, "algorithm.kl_coef");
    if (a->disable_kl && weighs && (a->use_kl_loss || in_reward) && !own_kl)
        ares_log(ARES_LOG_WARN,
                 "config: %s = true: algorithm.disable_kl = true wins: there is no KL and no "
                 "reference model",
                 a->use_kl_loss ? "algorithm.use_kl_loss" : "algorithm.use_kl_in_reward");
    if (type && strcmp(type, "adaptive") == 0 && ares_kl_acts(a) != ARES_KL_IN_REWARD)
        ares_log(ARES_LOG_WARN,
                 "config: algorithm.kl_type = adaptive: has no effect: it steers a KL in the "
                 "reward, and %s "
                 "leaves none there",
                 a->disable_kl     ? "algorithm.disable_kl"
                 : a->kl_coef == 0 ? "algorithm.kl_coef = 0"
                 : a->use_kl_loss  ? "algorithm.use_kl_loss"
                                   : "algorithm.use_kl_in_reward = false");
    if (a->disable_kl) return;
    if (ares_config_scheduled(cfg, "algorithm.kl_coef") && a->kl_coef == 0)
        ares_config_fault(
            cfg, "algorithm.kl_coef",
            "is 0 at step 0, and 0 switches the KL off: no reference model is opened; "
            "begin above 0");
    if (ares_config_scheduled(cfg, "algorithm.kl_coef") && type && strcmp(type, "adaptive") == 0)
        ares_config_fault(
            cfg, "algorithm.kl_coef",
            "a schedule and algorithm.kl_type = adaptive cannot both move it; keep one");
    if (a->use_kl_loss && in_reward)
        ares_config_fault(cfg, "algorithm.use_kl_in_reward",
                          "algorithm.use_kl_loss makes the KL a term of the loss, and it acts in "
                          "one place only; set one of them to false");
    if (!a->use_kl_loss && a->kl_coef > 0 && written && strcmp(written, beta) == 0)
        ares_config_fault(cfg, "algorithm.use_kl_loss",
                          "%s = %g is the weight of a term of the loss; leave this option out, or "
                          "set algorithm.kl_coef instead",
                          beta, a->kl_coef);
}

/* The curriculum, and the filter that applies its caps. */
static void check_curriculum(ares_config *cfg, const ares_train_config *c)
{
    static const char filter[] = "algorithm.dynamic_sampling_filter";
    ares_curriculum curriculum;
    bool filtered = strcmp(c->filter.dynamic_sampling, "reward_cap") == 0,
         capped = c->curriculum.reward_caps->type != ARES_JSON_NULL;
    int64_t steps = c->trainer.max_steps == ARES_NULL_I64 ? 1 : c->trainer.max_steps;
    ares_curriculum_read(cfg, &c->curriculum, &c->data.train_files, steps, c->trainer.force,
                         &curriculum);
    if (curriculum.caps_left_out)
        ares_log(ARES_LOG_WARN, "config: curriculum.reward_caps: not one for each of "
                                "data.train_files, so no data set has a cap");
    if (filtered && !capped)
        ares_config_fault(cfg, filter,
                          "there are no caps; set curriculum.reward_caps, or choose nonzero_std");
    if (capped && !filtered)
        ares_config_fault(cfg, "curriculum.reward_caps",
                          "nothing applies them; set %s to reward_cap", filter);
    if (curriculum.n && agents_wanted(c))
        ares_config_fault(cfg, "curriculum.names",
                          "a curriculum is of data sets, and this run acts in environments");
}

/* What config.json of the model at path says; false where it cannot be read. */
static bool read_model(const char *path, ares_str *dir, ares_model_config *out)
{
    bool known = path && ares_model_find(path, dir) == ARES_OK &&
                 ares_model_config_load(dir->data, out) == ARES_OK;
    ares_error_clear(); /* a fault of the model is told where it is loaded */
    return known;
}

/* Refuses an option that allows more tokens per sequence than the model has positions. */
static void check_room(ares_config *cfg, const char *option, const char *what, int64_t tokens,
                       const char *model, int64_t positions)
{
    if (tokens > positions)
        ares_config_fault(cfg, option,
                          "%s take %lld tokens, and the model has %lld positions "
                          "(" PUBLISHED_POSITIONS " of %s/config.json): answers would end early; "
                          "lower it, or set worker.actor.model.override_config." PUBLISHED_POSITIONS
                          "=%lld if the model can read so much",
                          what, (long long)tokens, (long long)positions, model, (long long)tokens);
}

/*
 * Refuses options that allow longer sequences than the model has positions for. validated: tokens
 * of an answer of validation at most
 */
static void check_positions(ares_config *cfg, const ares_train_config *c, int64_t validated,
                            const eval_sets *evals)
{
    ares_str dir = { 0 };
    ares_model_config m;
    int64_t prompt = c->data.max_prompt_length, most = c->rollout.max_model_len;
    bool known = read_model(c->actor.model_path, &dir, &m) &&
                 training_set_positions(&m, c->published.actor_override) == ARES_OK;
    ares_error_clear();
    if (known && most != ARES_NULL_I64)
        check_room(cfg, "worker.rollout.max_model_len", "prompt and response", most, dir.data,
                   m.max_position);
    else if (known && agents_wanted(c)) {
        char row[160];
        int64_t turns = agents_turns_shown(c),
                tokens = turns * (prompt + c->data.max_response_length);
        tokens = ARES_MIN(tokens, m.max_position);
        snprintf(row, sizeof row,
                 "conversation of %lld turns (worker.rollout.max_model_len: null) of %lld",
                 (long long)turns, (long long)tokens);
        check_cache(cfg, c, row, tokens);
    } else if (known) {
        if (!c->trainer.val_only)
            check_room(cfg, "data.max_response_length", "data.max_prompt_length and it",
                       prompt + c->data.max_response_length, dir.data, m.max_position);
        if (c->data.val_files.count &&
            (c->trainer.val_only || validated > c->data.max_response_length))
            check_room(cfg, "worker.rollout.val_override_config",
                       "data.max_prompt_length and max_new_tokens", prompt + validated, dir.data,
                       m.max_position);
        for (int64_t i = 0; i < evals->n; i++)
            if (c->trainer.val_only ||
                evals->items[i].sampling.max_new_tokens > c->data.max_response_length)
                check_room(cfg, "eval.datasets", "data.max_prompt_length and max_response_len",
                           prompt + evals->items[i].sampling.max_new_tokens, dir.data,
                           m.max_position);
    }
    if (known && vapor_wanted(c))
        check_room(cfg, "vapor.max_pair_length", "prompt and stored answer",
                   c->vapor.max_pair_length, dir.data, m.max_position);
    ares_str_fini(&dir);
}

/* Tells that snapshots of states are kept by nobody. */
static void check_snapshots(const ares_train_config *c)
{
    ares_str dir = { 0 };
    ares_model_config m;
    long long n = c->rollout.state_snapshots;
    if (n == ARES_NULL_I64) return;
    if (read_model(c->actor.model_path, &dir, &m) && !m.net.v_heads)
        ares_log(ARES_LOG_WARN,
                 "config: worker.rollout.state_snapshots = %lld: has no effect: a %s has no delta "
                 "nets, and goes on from its KV cache alone",
                 n, m.model_type);
    else if (n && !c->rollout.enable_prefix_caching)
        ares_log(ARES_LOG_WARN,
                 "config: worker.rollout.state_snapshots = %lld: has no effect with "
                 "worker.rollout.enable_prefix_caching: false",
                 n);
    ares_str_fini(&dir);
}

/* Of one model: `lora` are the options of its adapter, path its directory. */
static void check_trained(ares_config *cfg, const char *option, const ares_model_options *opt,
                          const char *lora, const ares_lora_options *adapter, const char *path)
{
    ares_str dir = { 0 };
    ares_model_config m;
    int64_t count;
    if (!opt->trained.items) return;
    if (!opt->trained.count)
        ares_config_fault(cfg, option, "nothing would be trained; name something, or set null");
    if (ares_lora_wanted(adapter))
        ares_config_fault(cfg, option,
                          "%s.%s asks for an adapter, beside which the model keeps all its "
                          "weights; leave one of them out",
                          lora, adapter->rank > 0 ? "rank" : "adapter_path");
    if (read_model(path, &dir, &m) && ares_model_config_trained(&m, opt, &count) != ARES_OK)
        ares_config_fault(cfg, option, "%s", ares_error_message());
    ares_error_clear();
    ares_str_fini(&dir);
}

void trainable_check(ares_config *cfg, const ares_train_config *c)
{
    const ares_model_options actor = { .freeze_vision = c->actor.freeze_vision,
                                       .trained = c->actor.trainable },
                             critic = { .value_head = true, .trained = c->critic.trainable };
    check_trained(cfg, "worker.actor.model.trainable", &actor, "worker.actor.model.lora",
                  &c->actor_lora, c->actor.model_path);
    if (trainer_needs_critic(c))
        check_trained(cfg, "worker.critic.model.trainable", &critic, "worker.critic.model.lora",
                      &c->critic_lora,
                      c->critic.model_path ? c->critic.model_path : c->actor.model_path);
}

/* What a run learns from, and by which algorithm. */
static void check_learning(ares_config *cfg, const ares_train_config *c)
{
    const ares_adv *adv = ares_adv_find(c->algorithm.adv_estimator);
    if (!c->trainer.val_only && !c->data.train_files.count && !c->agents_train.tags.count)
        ares_config_fault(cfg, "data.train_files",
                          "no training rows; name a JSONL file, environments in env.train.tags, "
                          "or set trainer.val_only=true");
    if ((c->trainer.val_only || c->trainer.val_freq > 0) && !c->data.val_files.count &&
        !c->eval.datasets->count && !c->agents_val.tags.count)
        ares_config_fault(
            cfg, "data.val_files",
            "validation is asked for and has no rows; name a JSONL file, data sets in "
            "eval.datasets, environments in env.val.tags%s",
            c->trainer.val_only ? "" : ", or set trainer.val_freq=-1");
    /* where a teacher alone teaches, no estimator compares the answers to a prompt */
    if (!c->trainer.val_only)
        ares_adv_check(cfg, &c->algorithm,
                       teacher_alone(c) ? ARES_MAX(c->rollout.n, 2) : c->rollout.n);
    if (c->rollout.temperature == 0 && !c->trainer.val_only)
        ares_config_fault(cfg, "worker.rollout.temperature",
                          "greedy samples of a prompt are all the same; set a temperature above 0 "
                          "(val_override_config may be greedy)");
    ares_loss_check(&c->loss, warn_or_fault, cfg);
    check_kl(cfg, &c->algorithm, vapor_wanted(c));
    /* in the steps of critic_warmup only the critic learns: without a critic nothing would */
    if (teacher_alone(c) && c->trainer.critic_warmup != 0)
        ares_config_fault(cfg, "trainer.critic_warmup",
                          "a teacher alone teaches, without a critic, so that nothing would learn "
                          "in these steps; set 0, or "
                          "distillation.distillation_loss.use_task_rewards to true");
    else if (!c->trainer.val_only && adv && !(adv->needs & ARES_NEEDS_VALUES) &&
             c->trainer.critic_warmup != 0)
        ares_config_fault(cfg, "trainer.critic_warmup",
                          "%s has no critic, so that nothing would learn in these steps; set 0, or "
                          "algorithm.adv_estimator to gae",
                          adv->name);
    /* both options weigh by exp(old - rollout log-prob) */
    if (c->algorithm.importance_sampling_fix && strcmp(c->loss.rollout_is, "none") != 0)
        ares_config_fault(
            cfg, "algorithm.importance_sampling_fix",
            "corrects the same difference of rollout and trainer as worker.actor.rollout_is = "
            "'%s'; set one of them only",
            c->loss.rollout_is);
    if (c->gradients.only && c->gradients.every == 0)
        ares_config_fault(cfg, "report.gradient_analysis.only",
                          "nothing would be trained and nothing measured; set "
                          "report.gradient_analysis.every as well");
    if (c->collapse.freq > 0 && !c->collapse.first_turn && !c->collapse.multi_turn)
        ares_config_fault(cfg, "report.collapse.freq",
                          "nothing is drawn: report.collapse.first_turn and "
                          "report.collapse.multi_turn are false; set one of them to true, or this "
                          "to 0");
    if (!c->trainer.val_only) check_curriculum(cfg, c);
}

/* Rewards, and what reads their scores: filters, controls, and the estimator's baseline. */
static void check_rewards(ares_config *cfg, const ares_train_config *c)
{
    const ares_adv *adv = ares_adv_find(c->algorithm.adv_estimator);
    ares_reward *reward = NULL; /* environments score their episodes */
    check_worth(cfg, &c->reward);
    if (!agents_wanted(c) && ares_reward_open(cfg, &c->reward, NULL, &reward) == ARES_OK) {
        check_lengths(cfg, c, reward);
        /*
         * A greedy answer is judged like the sampled ones, penalties of length included, but no
         * control counts its HWE tokens. Its score would lack what shaping adds to the scores of
         * the sampled answers, also of wrong ones, and those would be reinforced wherever the
         * greedy answer is wrong.
         */
        if (!c->trainer.val_only && !teacher_alone(c) && adv &&
            (adv->needs & ARES_NEEDS_BASELINE) && ares_reward_shapes(reward))
            ares_config_fault(
                cfg, "algorithm.adv_estimator",
                "compares answers with a greedy one, whose score the reward 'aepo' does not shape "
                "as it shapes theirs; set grpo or rloo, or take a reward that is not shaped, such "
                "as math");
        if (vapor_wanted(c) && ares_reward_shapes(reward))
            ares_config_fault(
                cfg, "worker.reward.rewards",
                "the reward 'aepo' is shaped by the entropies of whole responses, and "
                "worker.actor.loss_type = 'vapor' judges a part of them; leave it out");
    }
    const ares_filter_run run = {
        .n = c->rollout.n, .judges = c->trainer.val_only || !reward || ares_reward_judges(reward)
    };
    ares_filter_check(cfg, &c->filter, &run);
    controls_check(cfg, c, reward);
    unread_tell(cfg, c, reward);
    ares_reward_close(reward);
}

/* How a step is divided: into draws, mini-batches, micro-batches. */
static void check_step(ares_config *cfg, const ares_train_config *c, int world)
{
    check_sizes(cfg, c, world);
    check_adjusting(cfg, c);
    /* an option that counts per micro-batch needs the number of samples in one */
    const char *by = strcmp(c->loss.loss_norm, "micro") == 0 ? "worker.actor.loss_norm" : NULL;
    if (!by && !ares_is_null_f64(c->loss.early_stop_imp_ratio) &&
        strcmp(c->loss.early_stop_scope, "micro") == 0)
        by = "worker.actor.early_stop_scope";
    if (by && c->actor.micro_batch_size == ARES_NULL_I64)
        ares_config_fault(
            cfg, by,
            "counts per micro-batch, and nothing says how many samples one has; set "
            "worker.actor.micro_batch_size_per_device_for_update, or take the default");
    if (strcmp(c->filter.resample_mode, "same_prompt") == 0 &&
        c->data.mini_rollout_batch_size != ARES_NULL_I64 && c->data.mini_rollout_batch_size != 0)
        ares_config_fault(
            cfg, "data.mini_rollout_batch_size",
            "algorithm.dynamic_sampling.mode: same_prompt draws the whole batch once; set null");
}

/* Where models compute, how ranks share them, and what of them is trained. */
static void check_models(ares_config *cfg, const ares_train_config *c, int world)
{
    static const char tp[] = "worker.rollout.tensor_parallel_size";
    bool cpu = strncmp(c->trainer.device, "cpu", 3) == 0,
         aten = strcmp(c->trainer.kernels, "aten") == 0;
    int64_t parts = c->rollout.tensor_parallel_size;
    device_check(cfg, &c->trainer);
    /* so many ranks divide the model among them to decode */
    if (parts != ARES_NULL_I64 && parts != 1 && world % parts)
        ares_config_fault(cfg, tp,
                          "the number of ranks, %d, is no multiple of it; start %lld with --ranks, "
                          "or set 1: each rank then decodes by itself",
                          world, (long long)parts);
    else if (parts != ARES_NULL_I64 && parts != 1 && (!cpu || aten))
        ares_config_fault(cfg, tp,
                          cpu ? "needs trainer.kernels=native; set that, or 1: each rank then "
                                "decodes by itself"
                              : "cards do not divide a model among ranks yet; set 1: each rank "
                                "then decodes by itself");
    adapters_check(cfg, c, true);
    sharing_check(cfg, c, world);
    trainable_check(cfg, c);
    types_check(cfg, c, true);
}

/* What is sampled besides the step's answers, and whether all of it fits. */
static void check_sampling(ares_config *cfg, const ares_train_config *c)
{
    eval_sets evals;
    ares_sampling sampling;
    int64_t n, prompt = c->data.max_prompt_length, most = c->rollout.max_model_len;
    triggers_check(cfg, &c->rollout);
    validation_sampling(cfg, c, &sampling, &n);
    if (c->data.val_files.count && sampling.max_new_tokens > c->data.max_response_length &&
        most != ARES_NULL_I64 && prompt + sampling.max_new_tokens > most)
        ares_config_fault(cfg, "worker.rollout.val_override_config",
                          "max_new_tokens = %d and data.max_prompt_length = %lld do not fit in "
                          "worker.rollout.max_model_len = %lld; raise that, or lower one of them",
                          sampling.max_new_tokens, (long long)prompt, (long long)most);
    eval_sets_read(cfg, c, &evals);
    if (evals.n && agents_wanted(c))
        ares_config_fault(cfg, "eval.datasets",
                          "this run acts in environments; set env.val.tags instead");
    check_positions(cfg, c, sampling.max_new_tokens, &evals);
    check_snapshots(c);
}

int ares_train_config_check(ares_config *cfg, const ares_train_config *c, int world)
{
    check_learning(cfg, c);
    pixels_check(cfg, &c->data);
    check_step(cfg, c, world);
    check_models(cfg, c, world);
    presets_check(cfg, c, world);
    check_sampling(cfg, c);
    agents_check(cfg, c);
    oversampling_check(cfg, c);
    vapor_check(cfg, c);
    distillation_check(cfg, c);
    check_rewards(cfg, c);
    return ares_config_finish(cfg);
}
