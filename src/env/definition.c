/* Definitions of environments: options under env.definitions.<Tag>. */
#include <stdio.h>
#include <string.h>

#include "tags.h"
#include "types.h"

static ARES_OPTION_TABLE(env_table, ares_env_options, ARES_ENV_OPTIONS);
static ARES_OPTION_TABLE(definition_table, ares_env_definition_options,
                         ARES_ENV_DEFINITION_OPTIONS);

enum { TAGS = 64, PATH = 256 };

const char *const *ares_env_tag_names(int *n)
{
    static const char *names[TAGS];
    int types;
    const char *const *type = env_type_names(&types);
    ARES_ASSERT(env_tag_count + types <= TAGS);
    for (int i = 0; i < env_tag_count; i++) names[i] = env_tags[i].name;
    for (int i = 0; i < types; i++) names[env_tag_count + i] = type[i];
    *n = env_tag_count + types;
    return names;
}

static void write_string(ares_str *out, const char *key, const char *value)
{
    ares_json_write_string(ares_json_key(out, key), ares_view_of(value));
}

void ares_env_declare_options(ares_config *cfg)
{
    ares_config_add_options(cfg, "env", env_table, NULL);
}

static void preset(ares_config *cfg, const char *tag, const char *key, const char *value)
{
    ares_str path = { 0 };
    ares_str_addf(&path, "env.definitions.%s.%s", tag, key);
    bool set = ares_config_is_set(cfg, path.data);
    ares_str_addf(&path, "=%s", value);
    if (!set) ares_config_override(cfg, path.data);
    ares_str_fini(&path);
}

static void preset_options(ares_config *cfg, const env_tag *t)
{
    ares_arena arena = { 0 };
    const ares_json *options;
    int rc = ares_json_parse(&arena, ares_view_of(t->options), t->name, &options);
    ARES_ASSERT(rc == ARES_OK); /* tags.c is ours */
    for (int64_t i = 0; i < options->count; i++) {
        ares_str key = { 0 }, value = { 0 };
        const ares_json *v = options->members[i].value;
        ares_str_addf(&key, "options.%s", options->members[i].key.data);
        if (v->type == ARES_JSON_STRING) ares_str_add_view(&value, v->text);
        else ares_json_write(&value, v);
        preset(cfg, t->name, key.data, value.data);
        ares_str_fini(&key);
        ares_str_fini(&value);
    }
    ares_arena_fini(&arena);
}

void ares_env_preset(ares_config *cfg, const char *tag)
{
    char number[32];
    for (int i = 0; i < env_tag_count; i++) {
        const env_tag *t = &env_tags[i];
        if (strcmp(t->name, tag) != 0) continue;
        preset(cfg, tag, "type", t->type);
        ares_str text = { 0 };
        ares_json_write_string(&text, ares_view_of(t->instruction)); /* blanks at its end count */
        preset(cfg, tag, "instruction", text.data);
        ares_str_fini(&text);
        snprintf(number, sizeof number, "%lld", (long long)t->max_actions);
        preset(cfg, tag, "max_actions", number);
        snprintf(number, sizeof number, "%lld", (long long)t->max_tokens);
        preset(cfg, tag, "max_tokens", number);
        preset_options(cfg, t);
        return;
    }
    int n;
    const char *const *types = env_type_names(&n);
    for (int i = 0; i < n; i++)
        if (strcmp(types[i], tag) == 0) preset(cfg, tag, "type", tag);
}

/* The built-in tags as a first layer, and each type under its own name with its defaults. */
void ares_env_declare(ares_config *cfg)
{
    ares_str text = { 0 };
    int n;
    const char *const *types = env_type_names(&n);
    ares_config_add_options(cfg, "env", env_table, NULL);
    ares_json_begin(&text, '{');
    ares_json_begin(ares_json_key(&text, "env"), '{');
    ares_json_begin(ares_json_key(&text, "definitions"), '{');
    for (int i = 0; i < env_tag_count; i++) {
        const env_tag *t = &env_tags[i];
        ares_json_begin(ares_json_key(&text, t->name), '{');
        write_string(&text, "type", t->type);
        write_string(&text, "instruction", t->instruction);
        ares_json_write_i64(ares_json_key(&text, "max_actions"), t->max_actions);
        ares_json_write_i64(ares_json_key(&text, "max_tokens"), t->max_tokens);
        ares_json_splice(ares_json_key(&text, "options"), ares_view_of(t->options));
        ares_json_end(&text, '}');
    }
    for (int i = 0; i < n; i++) {
        ares_json_begin(ares_json_key(&text, types[i]), '{');
        write_string(&text, "type", types[i]);
        ares_json_end(&text, '}');
    }
    for (int i = 0; i < 3; i++) ares_json_end(&text, '}');
    ares_config_load_text(cfg, "the built-in tags", ares_str_view(&text));
    ares_str_fini(&text);
}

static int check_tag(const ares_config *cfg, const char *tag)
{
    const ares_json *all = ares_config_get(cfg, "env.definitions");
    const char *names[2 * TAGS];
    int n = 0, built_in;
    const char *const *known = ares_env_tag_names(&built_in);
    if (ares_json_get(all, tag)) return ARES_OK;
    for (int i = 0; i < built_in; i++)
        if (!ares_json_get(all, known[i])) names[n++] = known[i];
    for (int64_t i = 0; all && i < all->count && n < ARES_COUNT(names); i++)
        names[n++] = all->members[i].key.data;
    return ares_lookup(ARES_ECONFIG, "env: tag", tag, names, n, &(int){ 0 });
}

void ares_env_check_definitions(ares_config *cfg)
{
    const ares_json *all = ares_config_get(cfg, "env.definitions");
    int built_in;
    const char *const *known = ares_env_tag_names(&built_in);
    for (int64_t i = 0; all && i < all->count; i++) {
        const char *tag = all->members[i].key.data;
        ares_str path = { 0 };
        bool is_known = false;
        for (int k = 0; k < built_in; k++) is_known = is_known || strcmp(known[k], tag) == 0;
        if (is_known || ares_json_get(all->members[i].value, "type")) continue;
        const char *near = ares_nearest(tag, known, built_in);
        ares_str_addf(&path, "env.definitions.%s", tag);
        ares_config_fault(cfg, path.data, "no such tag%s%s%s (one of your own needs a type)",
                          near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        ares_str_fini(&path);
    }
}

int ares_env_define(ares_config *cfg, const char *tag, ares_env_definition *d)
{
    char path[PATH], options[PATH + 8];
    *d = (ares_env_definition){ 0 };
    if (strlen(tag) > PATH - 32 || strchr(tag, '.'))
        return ares_fail(ARES_ECONFIG, "env: tag = '%.64s': too long, or with a dot in it", tag);
    ARES_TRY(check_tag(cfg, tag));
    snprintf(path, sizeof path, "env.definitions.%s", tag);
    d->tag = strcpy(ares_config_alloc(cfg, strlen(tag)), tag);
    int faults = ares_config_fault_count(cfg);
    ares_config_bind(cfg, path, definition_table, &d->texts);
    if (ares_config_fault_count(cfg) > faults) return ARES_OK;
    d->type = env_type_find(d->texts.type);
    if (!d->type) {
        int n;
        const char *const *names = env_type_names(&n);
        ares_lookup(ARES_ECONFIG, NULL, d->texts.type, names, n, &(int){ 0 });
        snprintf(options, sizeof options, "%s.type", path);
        ares_config_fault(cfg, options, "%s", ares_error_message());
        return ARES_OK;
    }
    snprintf(options, sizeof options, "%s.options", path);
    d->options = ares_config_alloc(cfg, d->type->options_size);
    if (d->type->options) ares_config_bind(cfg, options, d->type->options, d->options);
    if (d->type->check && ares_config_fault_count(cfg) == faults)
        d->type->check(d->options, cfg, options);
    return ARES_OK;
}

int ares_env_definition_open(ares_env_definition *d)
{
    return d->type->load ? d->type->load(d->options, &d->shared) : ARES_OK;
}

void ares_env_definition_close(ares_env_definition *d)
{
    if (d->type && d->type->unload) d->type->unload(d->shared);
    *d = (ares_env_definition){ 0 };
}
