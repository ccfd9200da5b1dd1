/* Options of training in environments: what follows from them, and what does not go with them. */
#include <stdio.h>
#include <string.h>

#include "agents/agents.h"

static ARES_OPTION_TABLE(agents_options, ares_agents_config, ARES_AGENTS_OPTIONS);
static ARES_OPTION_TABLE(train_options, ares_agent_side_config, ARES_AGENT_TRAIN_OPTIONS);
static ARES_OPTION_TABLE(val_options, ares_agent_side_config, ARES_AGENT_VAL_OPTIONS);

enum { TAGS = 64 };

/* The k-th of a list of tags, or the only one; NULL: there are no more. */
static const char *given_tag(ares_config *cfg, const char *path, int k)
{
    char item[64];
    snprintf(item, sizeof item, "%s.%d", path, k);
    const char *tag = ares_config_given(cfg, item);
    return tag || k ? tag : ares_config_given(cfg, path);
}

/* What another option says as well; own: its default is what counts where it is not given. */
static void follow(ares_config *cfg, const char *path, const char *own, const char *fallback)
{
    const char *value = ares_config_given(cfg, own);
    if (ares_config_is_set(cfg, path)) return; /* check_sizes tells whether they agree */
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
static void translate(ares_config *cfg)
{
    const char *tag;
    for (int k = 0; k < TAGS && (tag = given_tag(cfg, "env.val.tags", k)); k++)
        ares_env_preset(cfg, tag);
    for (int k = 0; k < TAGS && (tag = given_tag(cfg, "env.train.tags", k)); k++)
        ares_env_preset(cfg, tag);
    if (!given_tag(cfg, "env.train.tags", 0)) return;
    follow(cfg, "data.rollout_batch_size", "env.train.groups", ARES_AGENT_TRAIN_GROUPS);
    follow(cfg, "worker.rollout.n", "env.train.group_size", ARES_AGENT_TRAIN_GROUP_SIZE);
}

void agents_declare(ares_config *cfg, ares_train_config *out)
{
    ares_env_declare_options(cfg);
    ares_config_add_options(cfg, "env", agents_options, &out->agents);
    ares_config_add_options(cfg, "env.train", train_options, &out->agents_train);
    ares_config_add_options(cfg, "env.val", val_options, &out->agents_val);
    ares_config_translate_with(cfg, translate);
}

static void check_side(ares_config *cfg, const ares_agent_side_config *s, const char *path)
{
    char option[64];
    int64_t sum = 0;
    ares_env_definition d;
    if (!s->tags.count) return;
    for (int64_t k = 0; k < s->tags.count; k++) {
        if (ares_env_define(cfg, s->tags.items[k], &d) == ARES_OK) continue;
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

/* Options of data sets and rewards: an environment is its own prompt and its own judge. */
static void check_foreign(ares_config *cfg, const ares_train_config *c)
{
    static const char *const rewards[] = {
        "rewards",     "reward_function",    "max_length",
        "safe_length", "len_reward_penalty", "unfinished_score"
    };
    char option[64];
    for (int i = 0; i < ARES_COUNT(rewards); i++) {
        snprintf(option, sizeof option, "worker.reward.%s", rewards[i]);
        const ares_json *v = ares_config_get(cfg, option);
        if (v && v->type != ARES_JSON_NULL)
            ares_config_fault(cfg, option, "environments score their episodes; leave it out");
    }
    if (c->agents_train.tags.count && c->data.train_files.count)
        ares_config_fault(cfg, "data.train_files",
                          "env.train.tags says that the run trains in environments; leave one out");
    if (c->agents_val.tags.count && c->data.val_files.count)
        ares_config_fault(cfg, "data.val_files",
                          "env.val.tags says that the run validates in environments; leave one "
                          "out");
    if (!c->agents_train.tags.count && c->data.train_files.count)
        ares_config_fault(cfg, "env.val.tags",
                          "the run trains on data.train_files, and would be validated in "
                          "environments; train in environments, too, or leave it out");
    if (c->agents_train.tags.count && c->data.val_files.count)
        ares_config_fault(cfg, "data.val_files",
                          "the run trains in environments; set env.val.tags instead");
    if (!c->data.apply_chat_template)
        ares_config_fault(cfg, "data.apply_chat_template",
                          "a conversation with an environment needs a chat template; set true");
}

/* Whether the option has its value from the other one, where that was given. */
static bool follows(ares_config *cfg, const char *option, const char *from)
{
    const char *given = ares_config_given(cfg, from), *is = ares_config_get_text(cfg, option);
    return given && is && strcmp(given, is) == 0;
}

static void check_sizes(ares_config *cfg, const ares_train_config *c)
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

void agents_check(ares_config *cfg, const ares_train_config *c)
{
    ares_env_check_definitions(cfg);
    if (!agents_wanted(c)) return;
    check_side(cfg, &c->agents_train, "env.train");
    check_side(cfg, &c->agents_val, "env.val");
    check_foreign(cfg, c);
    check_sizes(cfg, c);
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
