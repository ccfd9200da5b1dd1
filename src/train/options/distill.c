/*
 * Rules between distillation.* and the other options (docs/distillation.md#what-it-meets). The
 * rules of these options among themselves are in src/algo/distill.c.
 */
#include "options.h"

#include <stdio.h>
#include <string.h>

#include "agents/agents.h"
#include "ares/algo_filter.h"
#include "teacher_texts.h"
#include "trainer.h"
#include "vapor.h"

#define D "distillation."
#define LOSS D "distillation_loss."
#define TEACHER D "teacher_model."

static void note(void *ctx, char severity, const char *option, const char *message)
{
    if (severity == 'e') ares_config_fault(ctx, option, "%s", message);
    else ares_log(ARES_LOG_WARN, "config: %s: %s", option, message);
}

/*
 * Without distillation.enabled no other option may ask for a teacher. A file in verl's form gives
 * every option of its section, with other defaults than ours, and asks for nothing by that.
 */
static void check_disabled(ares_config *cfg)
{
    int n;
    const ares_option *options = ares_distillation_options(&n);
    ares_distillation_config usual;
    ares_config *defaults = ares_config_new();
    bool of_verl = ares_config_get(cfg, "x-verl.distillation") != NULL;
    ares_config_add_options(defaults, "distillation", ares_distillation_options, &usual);
    ares_config_resolve(defaults);
    for (int i = 0; i < n; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, D "%s", options[i].path);
        if (options_same(ares_config_get(cfg, path), ares_config_get(defaults, path))) continue;
        if (!of_verl)
            ares_config_fault(cfg, path,
                              "a teacher that nothing asks for; set " D
                              "enabled to true, or leave it out");
    }
    ares_config_free(defaults);
}

static void check_templates(ares_config *cfg, const ares_distillation_config *c)
{
    for (int k = 0; k < TEACHER_TEMPLATES; k++) {
        const teacher_template *t = &teacher_templates[k];
        ares_str names = { 0 };
        ares_view unknown;
        if (teacher_fill(teacher_template_text(c, k), k, NULL, NULL, &unknown)) continue;
        for (int i = 0; i < TEACHER_NAMES && t->names[i]; i++)
            ares_str_addf(&names, "%s{%s}", i ? ", " : "", t->names[i]);
        ares_config_fault(cfg, t->option,
                          "has no value for {%.*s} (names: %s); write {{%.*s}} for the text itself",
                          (int)ARES_MIN(unknown.len, 60), unknown.data, names.data,
                          (int)ARES_MIN(unknown.len, 60), unknown.data);
        ares_str_fini(&names);
    }
}

/* Filters, which would drop what a stored answer or equal rewards still teach. */
static void check_filters(ares_config *cfg, const ares_train_config *c)
{
    const ares_distillation_config *d = &c->distillation;
    bool equal = d->use_policy_gradient && !d->use_task_rewards;
    int n;
    const ares_filter *const *filters = ares_filter_list(&n);
    for (int i = 0; i < n; i++) {
        if (!filters[i]->wanted(&c->filter)) continue;
        if (equal)
            ares_config_fault(cfg, filters[i]->option,
                              "drops groups by their rewards, and the teacher's advantages are "
                              "there for all; leave it out, or set " LOSS
                              "use_task_rewards to true");
        if (d->lmbda < 1)
            ares_config_fault(cfg, D "lmbda",
                              "a stored answer has no reward, by which %s chooses; set 1, or leave "
                              "that out",
                              filters[i]->option);
    }
}

/* Environments whose teacher is told what the policy is not: at least one must have that. */
static void check_environments(ares_config *cfg, const ares_train_config *c)
{
    const ares_texts *tags = &c->agents_train.tags;
    const char *key = "privileged_context";
    if (strcmp(c->distillation.context_key, key) != 0)
        ares_config_fault(cfg, D "privileged_context_key",
                          "environments have no rows of data; leave it out, and set "
                          "env.definitions.<tag>.%s",
                          key);
    for (int64_t i = 0; i < tags->count; i++) {
        const ares_json *one =
            ares_json_get(ares_config_get(cfg, "env.definitions"), tags->items[i]);
        const ares_json *value = one ? ares_json_get(one, key) : NULL;
        if (value && value->type != ARES_JSON_NULL) return;
    }
    if (tags->count)
        ares_config_fault(cfg, D "context",
                          "no environment has anything to tell the teacher; set "
                          "env.definitions.%s.%s",
                          tags->items[0], key);
}

/* What the rest of a run has that a teacher does not go with. */
static void check_others(ares_config *cfg, const ares_train_config *c)
{
    const ares_distillation_config *d = &c->distillation;
    const char *aepo = ares_config_get_text(cfg, "algorithm.aepo");
    bool ema = strcmp(d->kind, "ema") == 0, context = strcmp(d->context, "none") != 0;
    if (vapor_wanted(c))
        ares_config_fault(cfg, D "enabled",
                          "worker.actor.loss_type = 'vapor' judges whole answers and has no term "
                          "of a token; set false, or take another loss");
    if (ares_distills_vocabulary(d) && ares_kl_acts(&c->algorithm) != ARES_KL_NOWHERE &&
        strcmp(c->algorithm.kl_penalty, "full") == 0)
        ares_config_fault(cfg, "algorithm.kl_penalty",
                          "the head compares the policy with one model over the whole vocabulary, "
                          "and " LOSS "loss_mode = jsd has it compare with the teacher; set "
                          "low_var_kl, or algorithm.disable_kl to true");
    if (ema && ares_lora_wanted(&c->actor_lora))
        ares_config_fault(cfg, TEACHER "kind",
                          "a moving average of adapters is no adapter of that rank; set base or "
                          "live, or leave worker.actor.model.lora out");
    if (ares_config_scheduled(cfg, LOSS "distillation_loss_coef") && !d->use_task_rewards &&
        d->coef == 1)
        ares_config_fault(cfg, LOSS "distillation_loss_coef",
                          "without " LOSS "use_task_rewards there is nothing to weigh against; set "
                          "1, or that to true");
    if (strcmp(d->context, "group") == 0 && c->rollout.n == 1 && !d->include_feedback)
        ares_config_fault(cfg, "worker.rollout.n",
                          "with " D "context = group an answer learns from others to its prompt, "
                          "and there are none; set 2 or more, or " D
                          "include_environment_feedback to true");
    if (agents_wanted(c) && context && strcmp(c->agents.context_window_mode, "full") != 0)
        ares_config_fault(cfg, D "context",
                          "env.context_window_mode = '%s' makes a row of every turn, and a context "
                          "goes into the first message of an episode in one row; set none, or "
                          "env.context_window_mode=full",
                          c->agents.context_window_mode);
    if (agents_wanted(c) && strcmp(d->context, "row") == 0) check_environments(cfg, c);
    if (d->lmbda < 1 && agents_wanted(c))
        ares_config_fault(cfg, D "lmbda",
                          "an episode has no stored answer; set 1, or leave env.train.tags out");
    if (d->lmbda < 1 && aepo && strcmp(aepo, "true") == 0)
        ares_config_fault(cfg, D "lmbda",
                          "a stored answer has no entropies, which algorithm.aepo reads; set 1, or "
                          "that to false");
    bool cpu = strncmp(c->trainer.device, "cpu", 3) == 0,
         aten = strcmp(c->trainer.kernels, "aten") == 0;
    if (!cpu && !d->use_policy_gradient)
        ares_config_fault(cfg, LOSS "loss_mode",
                          "trainer.device = '%s': not built on a card, whose head compares with no "
                          "teacher; set trainer.device to cpu, or take k1 with " LOSS
                          "use_policy_gradient = true",
                          c->trainer.device);
    if (oversampling_wanted(c) && d->lmbda < 1)
        ares_config_fault(cfg, D "lmbda",
                          "over-sampling chooses among answers as they end, and a stored one is "
                          "there at once; set 1, or leave over-sampling out");
    if (training_storage(c) == ARES_BF16 && (!cpu || aten) &&
        (d->teacher_path || strcmp(d->kind, "live") != 0) && d->dtype &&
        strcmp(d->dtype, "bf16") != 0)
        ares_config_fault(cfg, TEACHER "fsdp.torch_dtype",
                          "worker.actor.fsdp.torch_dtype=bf16 makes this device compute in bf16, "
                          "and its products take one type; set %s",
                          ema ? TEACHER "kind to base or live" : "bf16 here too");
}

/* The teacher's directory: whether it is there, and has positions for the student's rows. */
static void check_directory(ares_config *cfg, const ares_train_config *c)
{
    static const char option[] = TEACHER "model_path";
    const ares_distillation_config *d = &c->distillation;
    int64_t tokens = c->data.max_prompt_length + c->data.max_response_length;
    ares_str dir = { 0 };
    ares_model_config m;
    if (!d->teacher_path) return;
    if (ares_model_find(d->teacher_path, &dir) == ARES_OK &&
        ares_model_config_load(dir.data, &m) == ARES_OK && strcmp(d->context, "none") == 0 &&
        !agents_wanted(c) && tokens > m.max_position)
        ares_config_fault(cfg, option,
                          "data.max_prompt_length and max_response_length take %lld tokens, and "
                          "the teacher has %d positions; lower one of them",
                          (long long)tokens, m.max_position);
    ares_error_clear(); /* a directory that is not there is told where the run's files are opened */
    ares_str_fini(&dir);
}

void distillation_check(ares_config *cfg, const ares_train_config *c)
{
    if (c->trainer.val_only) return;
    if (!c->distillation.enabled) {
        check_disabled(cfg);
        return;
    }
    ares_distillation_check(&c->distillation, note, cfg);
    check_templates(cfg, &c->distillation);
    check_filters(cfg, c);
    check_others(cfg, c);
    check_directory(cfg, c);
}
