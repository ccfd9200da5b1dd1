/*
 * Options of adapters (LoRA): what other trainers' words ask for, options that follow, and the
 * rules between them (docs/adapters.md#options).
 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/run.h"
#include "trainer.h"
#include "vapor.h"

#define RANK "worker.actor.model.lora.rank"
#define ADAPTER "worker.actor.model.lora.adapter_path"

/*
 * Flags by which other trainers ask for adapters, with their words for rank and path, which say
 * nothing unless the flag is true.
 */
static const struct {
    const char *option, *word, *rank, *path;
} flags[] = {
    { "x-trl.use_peft", "use_peft", "lora_r", NULL },
    { "x-rlinf.is_lora", "actor.model.is_lora", "actor.model.lora_rank", "actor.model.lora_path" },
};

/* Words that ask for something which is not offered, unless they have one of the neutral values. */
static const struct {
    const char *word, *neutral, *why; /* neutral: "a|b", beside null and what is empty */
} asked[] = {
#define ADAPTER_WORD_ROW(word, neutral, why) { word, neutral, why },
    ADAPTER_WORDS(ADAPTER_WORD_ROW)
#undef ADAPTER_WORD_ROW
};

/* What is asked of one model. */
typedef struct side {
    const char *name; /* actor or critic */
    const ares_lora_options *lora;
    const char *saved; /* what a checkpoint calls the adapter; NULL: a reference reads the first */
    ares_lora_side of;
    const char *model_path, *strategy;
    double lr;
} side;

enum { PATH_BYTES = 128 };
/* The full name of an option or word of the side, in memory of the block around the call. */
#define PATH(section, name, key) path_of((char[PATH_BYTES]){ 0 }, section, name, key)
static const char *path_of(char *out, const char *section, const char *name, const char *key)
{
    (void)snprintf(out, PATH_BYTES, "%s.%s.%s", section, name, key);
    return out;
}

/* ---- once all layers are read: options that follow */

/*
 * Gives the option the value by which it asks for no adapter where the flag is false, or where
 * nobody gave the flag and its trainer's word set the option. A later layer may ask for adapters in
 * other words.
 */
static void switch_off(ares_config *cfg, int flag, const char *option, const char *word,
                       const char *off)
{
    const char *given = ares_config_given(cfg, flags[flag].option);
    if (!ares_config_is_set(cfg, option) || (given && strcmp(given, "true") == 0)) return;
    if (word && strcmp(ares_config_word(cfg, option), word) == 0)
        ares_config_follow(cfg, option, off, option);
    else if (given && !ares_config_later(cfg, option, flags[flag].option))
        ares_config_follow(cfg, option, off, flags[flag].option);
}

/* verl's section of adapters for Megatron, with its defaults there. */
static const char *const megatrons[][2] = { { "rank", "0" },
                                            { "alpha", "32" },
                                            { "target_modules", "all-linear" },
                                            { "exclude_modules", "" },
                                            { "adapter_path", "" } };

/* verl's files have that section beside the words for FSDP; it counts where its rank is not 0. */
static void take_megatrons(ares_config *cfg, const char *name)
{
    char section[24], key[64];
    (void)snprintf(section, sizeof section, "%s_lora", name);
    const char *rank = ares_config_given(cfg, PATH("x-verl", section, "rank"));
    bool path = ares_config_given(cfg, PATH("x-verl", section, "adapter_path")) != NULL;
    if (!path && (!rank || strcmp(rank, "0") == 0)) return;
    for (int i = 0; i < ARES_COUNT(megatrons); i++) {
        (void)snprintf(key, sizeof key, "model.lora.%s", megatrons[i][0]);
        ares_config_move(cfg, PATH("x-verl", section, megatrons[i][0]), PATH("worker", name, key));
    }
}

/* Whether options ask for adapters of a model; before they are bound. */
static bool asks_adapters(ares_config *cfg, const char *name)
{
    const char *option = PATH("worker", name, "model.lora.rank"),
               *rank = ares_config_given(cfg, option);
    if (!rank) rank = ares_config_get_text(cfg, option); /* another trainer's default */
    return (rank && strcmp(rank, "0") != 0) ||
           ares_config_given(cfg, PATH("worker", name, "model.lora.adapter_path"));
}

/* Whether a path is the actor's, or null, which means it. */
static bool is_same_model(const char *path, const char *actor)
{
    return !path || (actor && strcmp(path, actor) == 0);
}

void adapters_translate(ares_config *cfg)
{
    /* a run of an adapter as the model: its base, and the adapter to start from */
    const char *model = ares_config_given(cfg, "worker.actor.model.model_path");
    bool run = model && ares_model_adapted(model);
    if (run && ares_config_preset(cfg, ADAPTER, model, "worker.actor.model.model_path"))
        ares_log(ARES_LOG_INFO,
                 "config: worker.actor.model.model_path = '%s': a run of an adapter -> its base, "
                 "and " ADAPTER " = '%s'",
                 model, model);
    const char *start = ares_config_given(cfg, ADAPTER);
    if (run && start && strcmp(start, model) != 0)
        ares_config_fault(cfg, ADAPTER,
                          "worker.actor.model.model_path = '%s' is a run of an adapter already; "
                          "leave one of both out, or merge that one first (ares-train merge "
                          "--model '%s' --adapter '%s' --out DIR)",
                          model, model, model);
    const char *dropout = "x-lora.actor.lora_dropout";
    take_megatrons(cfg, "actor");
    take_megatrons(cfg, "critic");
    for (int i = 0; i < ARES_COUNT(flags); i++) {
        const char *given = ares_config_given(cfg, flags[i].option);
        if (given && strcmp(given, "true") != 0 && strcmp(given, "false") != 0)
            ares_config_fault(cfg, flags[i].option, "must be true or false");
        switch_off(cfg, i, RANK, flags[i].rank, "0");
        switch_off(cfg, i, ADAPTER, flags[i].path, "null");
    }
    for (int i = 0; i < ARES_COUNT(asked); i++) { /* asking interpolates */
        (void)ares_config_given(cfg, PATH("x-lora", "actor", asked[i].word));
        (void)ares_config_given(cfg, PATH("x-lora", "critic", asked[i].word));
    }
    if (!asks_adapters(cfg, "actor")) return;
    const char *peft = ares_config_given(cfg, flags[0].option);
    if (peft && strcmp(peft, "true") == 0 && !ares_config_is_set(cfg, dropout))
        ares_log(ARES_LOG_INFO, "config: lora_dropout -> 0 (TRL's default, 0.05, is not taken "
                                "over: the sampler has no dropout)");
    /* a mixture of two adapters is no adapter of their rank */
    (void)ares_config_preset(cfg, "vapor.sync_ref_model", "false", "worker.actor.model.lora");
}

bool adapters_on_actors_base(ares_config *cfg, const char *name)
{
    if (!asks_adapters(cfg, "actor")) return false;
    if (strcmp(name, "ref") == 0) return !ares_config_given(cfg, "worker.ref.model.model_path");
    return asks_adapters(cfg, "critic") &&
           is_same_model(ares_config_given(cfg, "worker.critic.model.model_path"),
                         ares_config_given(cfg, "worker.actor.model.model_path"));
}

/* ---- rules */

/* Whether a value is null, empty, or one of the list "a|b". */
static bool is_one_of(const ares_json *value, const char *list)
{
    if (value->type == ARES_JSON_NULL || (value->type == ARES_JSON_ARRAY && !value->count) ||
        (value->type == ARES_JSON_OBJECT && !value->count))
        return true;
    ares_str text = { 0 };
    if (value->type == ARES_JSON_STRING) ares_str_add_z(&text, value->text.data);
    else ares_json_write(&text, value);
    bool number = value->type == ARES_JSON_INT || value->type == ARES_JSON_FLOAT, found = false;
    for (const char *one = list; *one && !found;) {
        size_t n = strcspn(one, "|");
        char *end;
        double x = strtod(one, &end);
        found = number ? end == one + n && x == value->number
                       : text.len == n && memcmp(text.data, one, n) == 0;
        one += n + (one[n] == '|');
    }
    ares_str_fini(&text);
    return found;
}

/* Whether the user gave the option or word another value than those of the list. */
static bool is_given_other(const ares_config *cfg, const char *path, const char *list)
{
    const ares_json *value = ares_config_get(cfg, path);
    return ares_config_is_set(cfg, path) && value && !is_one_of(value, list);
}

/* Warns of all that is set for adapters, in one line, where there are none. */
static void tell_unread(const ares_config *cfg, const side *s)
{
    int n;
    const ares_option *options = ares_lora_option_table(&n);
    const char *rank = ares_config_word(cfg, PATH("worker", s->name, "model.lora.rank")),
               *path = ares_config_word(cfg, PATH("worker", s->name, "model.lora.adapter_path"));
    ares_str names = { 0 };
    const char *flag = NULL; /* which says that there are none */
    for (int i = 0; i < ARES_COUNT(flags) && strcmp(s->name, "actor") == 0; i++) {
        const char *said = ares_config_get_text(cfg, flags[i].option);
        if (said || strcmp(rank, flags[i].rank) == 0 ||
            (flags[i].path && strcmp(path, flags[i].path) == 0))
            flag = flags[i].word;
    }
    for (int i = 0; i < n; i++) {
        char option[PATH_BYTES], key[64];
        (void)snprintf(key, sizeof key, "model.lora.%s", options[i].path);
        (void)path_of(option, "worker", s->name, key);
        const char *word = ares_config_word(cfg, option);
        bool off = false; /* switch_off changed it */
        for (int k = 0; k < ARES_COUNT(flags); k++) {
            bool its = strcmp(word, flags[k].word) == 0;
            off |= its || strcmp(word, flags[k].rank) == 0 ||
                   (flags[k].path && strcmp(word, flags[k].path) == 0);
            if (its) word = option;
        }
        /* a rank that is no rank is a fault, which is told */
        bool rank_itself = strcmp(options[i].path, "rank") == 0;
        if (off || (!rank_itself && is_given_other(cfg, option, options[i].text)))
            ares_str_addf(&names, "%s%s", names.len ? ", " : "", word);
    }
    for (int i = 0; i < ARES_COUNT(megatrons); i++) {
        char section[24];
        (void)snprintf(section, sizeof section, "%s_lora", s->name);
        const char *option = PATH("x-verl", section, megatrons[i][0]);
        if (is_given_other(cfg, option, megatrons[i][1]))
            ares_str_addf(&names, "%s%s", names.len ? ", " : "", ares_config_word(cfg, option));
    }
    for (int i = 0; i < ARES_COUNT(asked); i++) {
        const char *option = PATH("x-lora", s->name, asked[i].word);
        if (is_given_other(cfg, option, asked[i].neutral))
            ares_str_addf(&names, "%s%s", names.len ? ", " : "", ares_config_word(cfg, option));
    }
    if (names.len && flag)
        ares_log(ARES_LOG_WARN,
                 "config: %s: nothing reads it, for without %s: true there are no "
                 "adapters",
                 names.data, flag);
    else if (names.len)
        ares_log(ARES_LOG_WARN,
                 "config: %s: nothing reads it, for with worker.%s.model.lora.rank "
                 "= 0 there are no adapters",
                 names.data, s->name);
    ares_str_fini(&names);
}

/* Which option a message of the selection is about: "WHERE: KEY...", in PEFT's words. */
static const char *option_of(const char *message, const char *where)
{
    static const char *const options[][2] = { { "r:", "rank" },
                                              { "lora_alpha", "alpha" },
                                              { "rank_pattern", "rank_pattern" },
                                              { "alpha_pattern", "alpha_pattern" },
                                              { "exclude_modules", "exclude_modules" },
                                              { "layers_pattern", "layers_pattern" },
                                              { "layers_to_transform", "layers_to_transform" } };
    size_t n = strlen(where);
    const char *key = strncmp(message, where, n) == 0 && message[n] ? message + n + 2 : message;
    for (int i = 0; i < ARES_COUNT(options); i++)
        if (strncmp(key, options[i][0], strlen(options[i][0])) == 0) return options[i][1];
    return "target_modules";
}

/* Reads a model's config.json; a fault of the model is told where it is loaded. */
static bool find_model(const char *path, ares_str *dir, ares_model_config *model)
{
    bool known = path && ares_model_find(path, dir) == ARES_OK &&
                 ares_model_config_load(dir->data, model) == ARES_OK;
    ares_error_clear();
    return known;
}

/*
 * Whether the user gave the option, be it as its default. A printed configuration gives the whole
 * section at once, and says no more than the defaults of the one that was printed.
 */
static bool is_said(const ares_config *cfg, const side *s, const char *key)
{
    int n;
    const ares_option *options = ares_lora_option_table(&n);
    char option[PATH_BYTES], other[PATH_BYTES];
    (void)snprintf(option, sizeof option, "worker.%s.model.lora.%s", s->name, key);
    bool said = false;
    for (int i = 0; i < n; i++) {
        (void)snprintf(other, sizeof other, "worker.%s.model.lora.%s", s->name, options[i].path);
        said |= !ares_config_is_set(cfg, other) || ares_config_later(cfg, option, other);
    }
    return said && ares_config_is_set(cfg, option);
}

/* Chooses the layers as opening the model will, where its config.json can be read. */
static void check_layers(ares_config *cfg, const ares_train_config *c, const side *s)
{
    ares_str dir = { 0 }, start = { 0 };
    ares_lora_options lora = *s->lora;
    ares_model_config model;
    ares_lora_side of = s->of;
    char key[64];
    of.says_alpha = is_said(cfg, s, "alpha") || s->lora->alpha != 64;
    of.says_targets = is_said(cfg, s, "target_modules");
    if (s->saved) lora.adapter_path = rundir_starting_adapter(c, s->lora, s->saved, &start);
    if (lora.adapter_path && lora.adapter_path != s->lora->adapter_path)
        ares_log(ARES_LOG_INFO,
                 "config: worker.%s.model.lora.adapter_path = '%s': it is gone; the run goes on "
                 "from its checkpoint, and nothing else reads it",
                 s->name, s->lora->adapter_path);
    if (find_model(s->model_path, &dir, &model) &&
        ares_lora_check(&model, &lora, &of, dir.data) != ARES_OK) {
        (void)snprintf(key, sizeof key, "model.lora.%s",
                       s->lora->adapter_path ? "adapter_path"
                                             : option_of(ares_error_message(), dir.data));
        ares_config_fault(cfg, PATH("worker", s->name, key), "%s", ares_error_message());
        ares_error_clear();
    }
    ares_str_fini(&dir);
    ares_str_fini(&start);
}

/* Options that a given adapter's own file says. */
static void tell_of_file(ares_config *cfg, const side *s)
{
    int n;
    const ares_option *options = ares_lora_option_table(&n);
    static const char *const own[] = { "rank", "alpha", "target_modules",
                                       "adapter_path" }; /* compared when opened */
    for (int i = 0; i < n; i++) {
        char option[PATH_BYTES], key[64];
        bool compared = false;
        for (int k = 0; k < ARES_COUNT(own); k++)
            compared = compared || strcmp(options[i].path, own[k]) == 0;
        (void)snprintf(key, sizeof key, "model.lora.%s", options[i].path);
        (void)path_of(option, "worker", s->name, key);
        if (!compared && is_given_other(cfg, option, options[i].text))
            ares_config_fault(cfg, option,
                              "the adapter of adapter_path says it itself; leave one of both out");
    }
}

static void check_side(ares_config *cfg, const ares_train_config *c, const side *s)
{
    if (!ares_lora_wanted(s->lora)) {
        tell_unread(cfg, s);
        return;
    }
    for (int i = 0; i < ARES_COUNT(asked); i++) {
        const char *option = PATH("x-lora", s->name, asked[i].word);
        if (is_given_other(cfg, option, asked[i].neutral))
            ares_config_fault(cfg, option, "not accepted: %s", asked[i].why);
    }
    if (strcmp(s->strategy, "adamw_bf16") == 0)
        ares_log(ARES_LOG_INFO,
                 "config: worker.%s.optim.strategy = 'adamw_bf16': adapters and their states are "
                 "stored in fp32 (on a card beside bf16), as by adamw",
                 s->name);
    check_layers(cfg, c, s);
    if (s->lora->adapter_path) tell_of_file(cfg, s);
    if (s->lr < 5e-6)
        ares_log(ARES_LOG_INFO,
                 "config: worker.%s.optim.lr = %g: adapters want about ten times the rate of full "
                 "training (docs/adapters.md)",
                 s->name, s->lr);
}

void adapters_check(ares_config *cfg, const ares_train_config *c, bool reinforcement)
{
    const char *own = c->critic.model_path, *base = c->actor.model_path;
    bool referred = reinforcement && trainer_needs_reference(c) && !c->ref.model_path &&
                    strcmp(c->ref.adapter, "start") == 0;
    const side actor = { .name = "actor",
                         .lora = &c->actor_lora,
                         .saved = referred ? NULL : "adapter",
                         .of = { .tower = !c->actor.freeze_vision || c->trainer.val_only },
                         .model_path = base,
                         .strategy = c->optim.strategy,
                         .lr = c->trainer.val_only ? 1 : c->optim.lr };
    const side critic = { .name = "critic",
                          .lora = &c->critic_lora,
                          .saved = "critic",
                          .of = { .critic = true },
                          .model_path = own ? own : base,
                          .strategy = c->critic_optim.strategy,
                          .lr = c->trainer.val_only ? 1 : c->critic_optim.lr };
    bool valued = reinforcement && trainer_needs_critic(c);
    check_side(cfg, c, &actor);
    if (valued) check_side(cfg, c, &critic);
    if (valued && own && ares_model_adapted(own) && !critic.lora->adapter_path)
        ares_config_fault(cfg, "worker.critic.model.model_path",
                          "it is a run of an adapter, which a critic takes as "
                          "worker.critic.model.lora.adapter_path; give it there, or merge it first "
                          "(ares-train merge)");
    if (!ares_lora_wanted(actor.lora)) return;
    if (valued && actor.lora->adapter_path && !own && !ares_lora_wanted(critic.lora))
        ares_log(ARES_LOG_WARN,
                 "config: worker.critic.model.model_path: the critic starts from the "
                 "model without the adapter of " ADAPTER "; a merged model "
                 "(ares-train merge) has it");
    if (!reinforcement) return;
    if (vapor_wanted(c) && !ares_config_is_set(cfg, "vapor.sync_ref_model"))
        ares_log(ARES_LOG_INFO, "config: vapor.sync_ref_model -> false: a mixture of two adapters "
                                "is no adapter; the reference is the model that the run starts "
                                "from");
    if (vapor_wanted(c) && c->vapor.sync_ref_model)
        ares_config_fault(cfg, "vapor.sync_ref_model",
                          "a mixture of two adapters is no adapter of their rank; set false: the "
                          "reference is the model that the run starts from");
}
