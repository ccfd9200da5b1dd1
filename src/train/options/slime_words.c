/*
 * Words of slime's curriculum from which other options follow (docs/curriculum.md#slimes-files). Of
 * a path to one of its functions the last part counts; no code is loaded.
 */
#include "slime_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES "worker.actor.global_batch_samples"
#define REWARDS "worker.reward.rewards"

static ARES_OPTION_TABLE(slime_options, ares_slime_config, ARES_SLIME_OPTIONS);

/* 0: not given, or no whole number, of which binding it reports the fault */
static long long whole(ares_config *cfg, const char *path)
{
    const char *text = ares_config_given(cfg, path);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* --eval-prompt-data: name and file, name and file .. */
static void eval_sets(ares_config *cfg)
{
    static const char word[] = "x-slime.eval_prompt_data";
    ares_str sets = { 0 };
    char path[64];
    const char *name;
    int i = 0;
    for (; snprintf(path, sizeof path, "%s.%d", word, i), (name = ares_config_given(cfg, path));
         i++) {
        bool quoted = strpbrk(name, "'\n") != NULL;
        if (quoted) ares_config_fault(cfg, word, "names and files have no quotes here");
        ares_str_addf(&sets, i % 2 ? ", path: '%s'}" : i ? ", {name: '%s'" : "[{name: '%s'", name);
    }
    if (i % 2 || (!i && ares_config_given(cfg, word)))
        ares_config_fault(cfg, word, "is a name and a file each, as in [aime, aime.jsonl]");
    else if (i) {
        ares_str_add_z(&sets, "]");
        ares_config_follow(cfg, "eval.datasets", sets.data, word);
    }
    ares_str_fini(&sets);
}

static void translate(ares_config *cfg)
{
    eval_sets(cfg);
    char value[200];
    long long samples = whole(cfg, SAMPLES), n = whole(cfg, "worker.rollout.n");
    const char *type = ares_config_given(cfg, "curriculum.rm_type");
    if (n < 1) n = 1;
    if (samples > 0 && samples % n == 0) {
        (void)snprintf(value, sizeof value, "%lld", samples / n);
        ares_config_follow(cfg, "worker.actor.global_batch_size", value, SAMPLES);
    }
    if (type && (strlen(type) > 150 || strpbrk(type, "'\n")))
        ares_config_fault(cfg, "curriculum.rm_type",
                          "is the name of a verifier: at most 150 characters, no quotes");
    else if (type) {
        (void)snprintf(value, sizeof value, "[{name: auto, rm_type: '%s'}]", type);
        ares_config_preset(cfg, REWARDS, value, "curriculum.rm_type");
    } else if (ares_config_given(cfg, "curriculum.custom_rm_path"))
        ares_config_preset(cfg, REWARDS, "[{name: auto}]", "curriculum.custom_rm_path");
}

void slime_declare(ares_config *cfg, ares_train_config *out)
{
    ares_config_add_options(cfg, "", slime_options, &out->slime);
    ares_config_translate_with(cfg, translate);
}

/* Rewards of the user's own take the place of those that the word stands for. */
static void warn_unused_type(const char *type, const ares_json *rewards)
{
    const ares_json *first = rewards && rewards->type == ARES_JSON_ARRAY && rewards->count
                                 ? &rewards->items[0]
                                 : NULL,
                    *own = ares_json_get(first, "rm_type");
    if (type && !(own && own->type == ARES_JSON_STRING && ares_view_is(own->text, type)))
        ares_log(ARES_LOG_WARN,
                 "config: curriculum.rm_type: has no effect beside worker.reward.rewards; write "
                 "{name: auto, rm_type: %s} there",
                 type);
}

void slime_check(ares_config *cfg, const ares_train_config *c)
{
    const ares_slime_config *s = &c->slime;
    const char *dot = s->custom_rm ? strrchr(s->custom_rm, '.') : NULL;
    if (s->samples != ARES_NULL_I64 && s->samples % c->rollout.n)
        ares_config_fault(cfg, SAMPLES,
                          "worker.rollout.n = %lld does not divide it, and the samples of a prompt "
                          "stay together; set a multiple",
                          (long long)c->rollout.n);
    warn_unused_type(s->rm_type, c->reward.rewards);
    if (s->custom_rm && strcmp(dot ? dot + 1 : s->custom_rm, "async_rm_math_if") != 0)
        ares_config_fault(cfg, "curriculum.custom_rm_path",
                          "no code is loaded; there is only async_rm_math_if; "
                          "worker.reward.rewards says what is rewarded");
}
