/* Definitions of environments: options under env.definitions.<Tag>. */
#include <stdio.h>
#include <string.h>

#include "ares/env.h"
#include "tags.h"

static ARES_OPTION_TABLE(env_table, ares_env_options, ARES_ENV_OPTIONS);
static ARES_OPTION_TABLE(definition_table, ares_env_definition_options,
                         ARES_ENV_DEFINITION_OPTIONS);

enum { TAGS = 64, PATH = 256 };

const char *const *ares_env_tag_names(int *n)
{
    static const char *names[TAGS];
    int types;
    const char *const *type = ares_env_type_names(&types);
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

/* The built-in tags as a first layer, and each type under its own name with its defaults. */
void ares_env_declare(ares_config *cfg)
{
    ares_str text = { 0 };
    int n;
    const char *const *types = ares_env_type_names(&n);
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
    const char *names[64];
    int n = 0;
    for (int64_t i = 0; all && i < all->count && n < ARES_COUNT(names); i++)
        names[n++] = all->members[i].key.data;
    if (ares_json_get(all, tag)) return ARES_OK;
    return ares_lookup(ARES_ECONFIG, "env: tag", tag, names, n, &(int){ 0 });
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
    d->type = ares_env_type_find(d->texts.type);
    if (!d->type) {
        int n;
        const char *const *names = ares_env_type_names(&n);
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
