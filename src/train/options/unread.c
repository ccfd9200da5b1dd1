/*
 * Warns of options that a user has set and that nothing of the run reads. The entries of the
 * algorithms' tables name the options that they alone read (ares_adv.reads); the table below names
 * options that are read only while another option has a certain value. An option that some of
 * these name is warned of when none of them is in use.
 */
#include "options.h"

#include <stdio.h>
#include <string.h>

#include "agents/agents.h"
#include "ares/algo_control.h"
#include "collect/collect.h"
#include "trainer.h"

static const struct {
    const char *option, *values; /* "a|b": on with one of these values; NULL: unless it is null */
    const char *reads;           /* options that are read only then, separated by spaces */
} switches[] = {
    { "algorithm.bi_level_gae", "true", "algorithm.high_level_gamma" },
    { "algorithm.importance_sampling_fix", "true", "algorithm.importance_sampling_clip" },
    { "algorithm.drop_easy_prompts", "true", "algorithm.drop_easy_ratio" },
    { "algorithm.early_stop_low_success", NULL, "algorithm.early_stop_low_success_validations" },
    { "algorithm.filter_empty_policy", "skip", "algorithm.filter_empty_stop_steps" },
    { "algorithm.kl_bucket_controller", "dual_ascent",
      "algorithm.kl_lambda_lr algorithm.kl_budget_easy algorithm.kl_budget_medium "
      "algorithm.kl_budget_hard" },
    { "algorithm.kl_bucket_controller", "log_space",
      "algorithm.kl_beta_init algorithm.kl_beta_lr algorithm.kl_beta_clip algorithm.kl_beta_ema "
      "algorithm.kl_beta_deadzone algorithm.kl_beta_min algorithm.kl_beta_max "
      "algorithm.kl_beta_update_interval algorithm.kl_target_easy algorithm.kl_target_medium "
      "algorithm.kl_target_hard" },
    { "worker.actor.dynamic_kl_loss", "true",
      "algorithm.hwe_kl_scale algorithm.hwe_kl_scope algorithm.kl_bucket_controller" },
    { "worker.actor.enable_second_chance_kl", "true",
      "worker.actor.second_chance_easy_only worker.actor.second_chance_incorrect_only "
      "worker.actor.second_chance_soft_cost_min worker.actor.second_chance_kl_relax" },
    { "worker.actor.early_stop_imp_ratio", NULL, "worker.actor.early_stop_scope" },
    { "worker.actor.loss_avg_mode", "seq-mean-token-sum-norm", "worker.actor.loss_scale_factor" },
    { "worker.actor.rollout_is", "token|sequence|geometric|true|True",
      "worker.actor.rollout_is_mode worker.actor.rollout_is_threshold "
      "worker.actor.rollout_is_threshold_lower worker.actor.rollout_is_batch_normalize" },
    { "worker.actor.rollout_rs", NULL,
      "worker.actor.rollout_rs_threshold worker.actor.rollout_rs_threshold_lower" },
    { "env.token_exact", "false",
      "env.train_text_include_warning env.enable_response_mask env.mask_template_tokens" },
    { "env.context_window_mode", "limited_multi_turn|single_turn", "env.max_context_window" },
    { "env.reward_normalization.method", "mean|mean_std|asym_clip",
      "env.reward_normalization.grouping" },
    { "curriculum.partial_rollout", "true",
      "curriculum.mask_offpolicy_in_partial_rollout curriculum.partial.old_log_probs" },
    { "curriculum.recycle_surplus", "true", "curriculum.partial.old_log_probs" },
    { "algorithm.over_length_action", "drop", "trainer.max_try_make_batch" },
    { "data.bootstrap", "true", "data.bootstrap_batch_size" },
    { "distillation.context", "row", "distillation.teacher_prompt_template" },
    { "distillation.context", "row|group",
      "distillation.privileged_context_key distillation.max_reprompt_len" },
    { "distillation.context", "group",
      "distillation.reprompt_template distillation.solution_template "
      "distillation.feedback_template distillation.success_reward_threshold "
      "distillation.use_successful_as_teacher distillation.dont_reprompt_on_self_success "
      "distillation.include_environment_feedback "
      "distillation.environment_feedback_only_without_solution "
      "distillation.remove_thinking_from_demonstration" },
    { "trainer.rollout_log", "text|tokens", "trainer.rollout_log_freq" },
    { "trainer.rollout_log", "tokens", "trainer.rollout_log_tokens" },
    { "worker.actor.optim.lr_scheduler_type", "linear|cosine", "worker.actor.optim.min_lr_ratio" },
    { "worker.critic.optim.lr_scheduler_type", "linear|cosine",
      "worker.critic.optim.min_lr_ratio" },
};

/* A part of the program that reads options. */
typedef struct reader {
    const char *option, *values; /* a user asks for it by setting the option to one of the values */
    const char *reads;
    bool used;     /* by this run */
    bool a_switch; /* of the table: used while its option has one of the values and is read */
} reader;
enum { MOST = 128 };
typedef struct readers {
    ares_config *cfg, *defaults;
    reader items[MOST];
    int n;
} readers;

static void add(readers *r, reader x)
{
    ARES_ASSERT(r->n < MOST);
    if (x.reads) r->items[r->n++] = x;
}

/* Whether the word is one of a list; "vapor.*" in a list of names stands for all of the section. */
static bool listed(const char *list, char between, const char *word)
{
    for (const char *p = list; *p;) {
        const char *end = strchr(p, between);
        size_t n = end ? (size_t)(end - p) : strlen(p);
        bool section = n > 1 && p[n - 1] == '*';
        if (strncmp(p, word, section ? n - 1 : n) == 0 && (section || !word[n])) return true;
        p += n + (end != NULL);
    }
    return false;
}

/* Whether x is a switch whose option has one of its values. */
static bool is_on(const readers *r, const reader *x)
{
    const char *value = ares_config_get_text(r->cfg, x->option);
    return x->a_switch && value && (!x->values || listed(x->values, '|', value));
}

/* true where no reader names the option, too: then more than one part of the program reads it */
static bool is_read(const readers *r, const char *path)
{
    bool named = false;
    for (int i = 0; i < r->n; i++) {
        const reader *x = &r->items[i];
        if (!listed(x->reads, ' ', path)) continue;
        named = true;
        if (x->used || (is_on(r, x) && is_read(r, x->option))) return true;
    }
    return !named;
}

/* What a user could ask for so that the option is read: "loss_type=default|dapo, ..". */
static void add_readers(const readers *r, const char *path, const char **last, ares_str *out)
{
    for (int i = 0; i < r->n; i++) {
        const reader *x = &r->items[i];
        if (!listed(x->reads, ' ', path)) continue;
        if (is_on(r, x)) { /* itself not read */
            add_readers(r, x->option, last, out);
            continue;
        }
        if (*last && strcmp(*last, x->option) == 0) ares_str_addf(out, "|%s", x->values);
        else
            ares_str_addf(out, "%s%s%s%s", *last ? ", " : "", x->option, x->values ? "=" : "",
                          x->values ? x->values : "");
        *last = x->option;
    }
}

bool options_same(const ares_json *a, const ares_json *b)
{
    if (!a || !b) return a == b;
    bool numbers = (a->type == ARES_JSON_INT || a->type == ARES_JSON_FLOAT) &&
                   (b->type == ARES_JSON_INT || b->type == ARES_JSON_FLOAT);
    if (numbers) return a->number == b->number;
    ares_str x = { 0 }, y = { 0 };
    ares_json_write(&x, a);
    ares_json_write(&y, b);
    bool equal = ares_view_eq(ares_str_view(&x), ares_str_view(&y));
    ares_str_fini(&x);
    ares_str_fini(&y);
    return equal;
}

/*
 * Warns of an option that a user set to something else than its default and that nothing reads.
 * path: an option, or "section.*" for all of a section. done: options that were looked at
 */
static void check_path(readers *r, ares_map *done, const char *path)
{
    size_t n = strlen(path);
    if (path[n - 1] == '*') {
        char section[64], option[160];
        snprintf(section, sizeof section, "%.*s", (int)(n - 2), path);
        const ares_json *all = ares_config_get(r->defaults, section);
        for (int64_t i = 0; all && all->type == ARES_JSON_OBJECT && i < all->count; i++) {
            ares_view key = all->members[i].key;
            snprintf(option, sizeof option, "%s.%.*s", section, (int)key.len, key.data);
            check_path(r, done, option);
        }
        return;
    }
    if (ares_map_get(done, ares_view_of(path), NULL)) return;
    ares_map_put(done, ares_view_of(path), 1);
    const ares_json *usual = ares_config_get(r->defaults, path);
    ARES_ASSERT(usual); /* the tables name options */
    if (usual->type == ARES_JSON_OBJECT && usual->count) {
        char inside[160];
        snprintf(inside, sizeof inside, "%s.*", path);
        check_path(r, done, inside);
        return;
    }
    if (!ares_config_is_set(r->cfg, path) || options_same(ares_config_get(r->cfg, path), usual) ||
        is_read(r, path))
        return;
    ares_str who = { 0 };
    const char *value = ares_config_get_text(r->cfg, path), *last = NULL,
               *written = ares_config_written(r->cfg, path);
    add_readers(r, path, &last, &who);
    ares_log(ARES_LOG_WARN,
             "config: %s = %s: has no effect, because nothing in this run reads it (it is for %s)",
             written ? written : path, value ? value : "..", who.data);
    ares_str_fini(&who);
}

/* Readers that are used because of what the run does, which no single option's value tells. */
static void add_facts(readers *r, const ares_train_config *c, const ares_reward *reward)
{
    static const char kl[] = "algorithm.kl_coef algorithm.kl_penalty";
    /* a coefficient of 0 asks for no KL */
    bool weighed = ares_kl_acts(&c->algorithm) != ARES_KL_NOWHERE || c->algorithm.kl_coef == 0;
    if (c->algorithm.disable_kl)
        add(r, (reader){ "algorithm.disable_kl", "false", kl, weighed, false });
    else {
        add(r, (reader){ "algorithm.use_kl_loss", "true", kl, weighed, false });
        add(r, (reader){ "algorithm.use_kl_in_reward", "true", kl, weighed, false });
    }
    add(r, (reader){ "worker.actor.optim.lr_warmup_steps", "null",
                     "worker.actor.optim.lr_warmup_ratio", c->optim.warmup_steps == ARES_NULL_I64,
                     false });
    add(r, (reader){ "worker.critic.optim.lr_warmup_steps", "null",
                     "worker.critic.optim.lr_warmup_ratio",
                     c->critic_optim.warmup_steps == ARES_NULL_I64, false });
    add(r, (reader){ "worker.reward.reward_function", NULL,
                     "worker.reward.reward_function_kwargs worker.reward.reward_function_name "
                     "worker.reward.reward_type",
                     c->reward.reward_function != NULL, false });
    add(r, (reader){ "a reward in Python", NULL, "worker.reward.python",
                     reward && ares_reward_calls_python(reward), false });
    add(r, (reader){ "worker.reward.reward_funcs", NULL, "worker.reward.reward_weights",
                     c->reward.reward_funcs.count > 0, false });
    static const char steps[] = "curriculum.step_unit curriculum.schedules";
    add(r, (reader){ "curriculum.weights", NULL, steps,
                     c->curriculum.weights->type != ARES_JSON_NULL, false });
    add(r, (reader){ "curriculum.reward_caps", NULL, steps,
                     c->curriculum.reward_caps->type != ARES_JSON_NULL, false });
    add(r, (reader){ "curriculum.over_sampling_batch_size", NULL,
                     "curriculum.max_fetches_per_rollout curriculum.recycle_surplus",
                     oversampling_wanted(c), false });
    add(r, (reader){ "distillation.lmbda", NULL, "distillation.response_key",
                     c->distillation.lmbda < 1, false });
    add(r, (reader){ "distillation.teacher_model.kind", "base|ema",
                     "distillation.teacher_model.fsdp.* distillation.teacher_model.offload.*",
                     c->distillation.teacher_path || strcmp(c->distillation.kind, "live") != 0,
                     false });
    add(r, (reader){ "env.train.tags", NULL,
                     "env.max_turns env.max_actions_per_turn env.action_separator env.enable_think "
                     "env.format_penalty env.on_failure env.max_failed_frac env.token_exact "
                     "env.use_turn_scores env.context_window_mode env.reward_normalization.method",
                     agents_wanted(c), false });
    add(r,
        (reader){ "env.train.tags", NULL, "env.train.*", c->agents_train.tags.count > 0, false });
    add(r, (reader){ "env.val.tags", NULL, "env.val.*", c->agents_val.tags.count > 0, false });
}

void unread_tell(ares_config *cfg, const ares_train_config *c, const ares_reward *reward)
{
    readers r = { .cfg = cfg, .defaults = ares_config_new() };
    ares_train_config *usual = ares_calloc(1, sizeof *usual);
    ares_map *done = ares_map_new();
    int n;
    const char *const *names;
    /* where a teacher alone teaches there are no advantages, and mostly no policy loss */
    static const char task[] = "distillation.distillation_loss.use_task_rewards";
    bool taught = teacher_alone(c), no_loss = taught && !c->distillation.use_policy_gradient;
    add(&r, (reader){ task, "true",
                      "algorithm.adv_estimator algorithm.normalize_advantages "
                      "algorithm.importance_sampling_fix algorithm.zero_task_advantage",
                      !taught, false });
    add(&r, (reader){ task, "true", "worker.actor.loss_type", !no_loss, false });
    ares_train_config_declare(r.defaults, usual);
    ares_config_resolve(r.defaults);
    names = ares_adv_names(&n);
    for (int i = 0; i < n; i++) {
        const ares_adv *a = ares_adv_find(names[i]);
        bool turns = strcmp(a->name, "bi_level_gae") == 0 && c->algorithm.bi_level_gae,
             own = ares_adv_find(c->algorithm.adv_estimator) == a || turns, off = own && taught;
        const char *by = off ? task : "algorithm.adv_estimator", *with = off ? "true" : a->name;
        add(&r, (reader){ by, with, a->reads, own && !off, false });
        if (a->needs & ARES_NEEDS_VALUES)
            add(&r, (reader){ by, with, "worker.critic.*", own && !off, false });
    }
    const ares_loss *own = ares_loss_find(c->loss.loss_type);
    names = ares_loss_names(&n);
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(names[i], "="), names[i]);
        const ares_loss *l = ares_loss_find(name);
        bool off = l == own && no_loss;
        add(&r, (reader){ off ? task : "worker.actor.loss_type", off ? "true" : l->name, l->reads,
                          l == own && !off, false });
    }
    const ares_filter *const *filters = ares_filter_list(&n);
    for (int i = 0; i < n; i++) {
        bool wanted = filters[i]->wanted(&c->filter);
        add(&r, (reader){ filters[i]->option, NULL, filters[i]->reads, wanted, false });
        add(&r, (reader){ filters[i]->option, NULL, "trainer.max_try_make_batch", wanted, false });
    }
    const ares_control *const *controls = ares_control_list(&n);
    for (int i = 0; i < n; i++)
        add(&r, (reader){ controls[i]->option, NULL, controls[i]->reads,
                          controls_wants(c, reward, i), false });
    for (int i = 0; i < ARES_COUNT(switches); i++)
        add(&r, (reader){ switches[i].option, switches[i].values, switches[i].reads, false, true });
    add_facts(&r, c, reward);
    for (int i = 0; i < r.n && !c->trainer.val_only; i++)
        for (const char *p = r.items[i].reads; *p;) {
            char path[128];
            size_t length = strcspn(p, " ");
            snprintf(path, sizeof path, "%.*s", (int)length, p);
            check_path(&r, done, path);
            p += length + (p[length] == ' ');
        }
    ares_config_free(r.defaults);
    ares_free(usual);
    ares_map_free(done);
}
