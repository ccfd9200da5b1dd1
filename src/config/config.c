/*
 * A configuration: options are declared, and asked about when resolve.c has filled the structs. The
 * tree holds the default of every declared option; layers change it in place (layer.c).
 */
#include "tree.h"

#include <stdarg.h>
#include <string.h>

ares_config *ares_config_new(void)
{
    ares_config *cfg = ares_calloc(1, sizeof *cfg);
    cfg->by_path = ares_map_new();
    cfg->sections = ares_map_new();
    cfg->alias_sections = ares_map_new();
    cfg->announced = ares_map_new();
    cfg->root = config_node_new(cfg, CONFIG_MAP);
    return cfg;
}

void ares_config_free(ares_config *cfg)
{
    if (!cfg) return;
    ares_map_free(cfg->by_path);
    ares_map_free(cfg->sections);
    ares_map_free(cfg->alias_sections);
    ares_map_free(cfg->announced);
    ares_free(cfg->options.items);
    ares_free(cfg->aliases.items);
    ares_free(cfg->faults.items);
    ares_free(cfg->notes.items);
    ares_free(cfg->pending.items);
    ares_free(cfg->defaults.items);
    ares_free(cfg->bound.items);
    ares_free(cfg->schedules.items);
    ares_arena_fini(&cfg->arena);
    ares_free(cfg);
}

/* ---------------------------------------------------------------- declaring */

config_option *config_option_at(const ares_config *cfg, const char *path)
{
    int64_t i;
    return ares_map_get(cfg->by_path, ares_view_of(path), &i) ? &cfg->options.items[i] : NULL;
}

void config_add_default(ares_config *cfg, config_node *under, const ares_option *option)
{
    const char *path = option->path, *error;
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        config_node *section = config_node_find(under, path, (size_t)(dot - path));
        if (!section) {
            section = config_node_new(cfg, CONFIG_MAP);
            if (!section) return;
            section->key = ares_arena_copy(&cfg->arena, path, (size_t)(dot - path));
            config_node_add(under, section);
        }
        ARES_ASSERT(section->kind == CONFIG_MAP);
        under = section;
    }
    config_node *node = config_yaml_value(cfg, option->type, option->text, &error);
    ARES_ASSERT(!error);
    if (!node) return;
    config_node_stamp(node, 0, 0, NULL);
    node->key = path;
    config_node *old = config_node_find(under, path, strlen(path));
    if (old) config_node_replace(old, node);
    else config_node_add(under, node);
}

config_node *config_set_text(ares_config *cfg, const char *path, const char *text)
{
    const config_option *o = config_option_at(cfg, path);
    const char *error;
    ARES_ASSERT(o);
    config_node *node = config_yaml_value(cfg, o->option->type,
                                          ares_arena_printf(&cfg->arena, "%s", text), &error),
                *old = config_walk(cfg->root, path);
    ARES_ASSERT(!error);
    if (!node || !old) return NULL;
    config_node_stamp(node, 0, 0, NULL);
    config_node_replace(old, node);
    return config_walk(cfg->root, path);
}

const char *config_path_join(ares_config *cfg, const char *prefix, const char *path)
{
    if (!prefix || !*prefix) return path;
    return *path ? ares_arena_printf(&cfg->arena, "%s.%s", prefix, path) : prefix;
}

static void add_sections(ares_map *sections, const char *path)
{
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.'))
        ares_map_put(sections, (ares_view){ path, (size_t)(dot - path) }, 1);
}

void *ares_config_alloc(ares_config *cfg, size_t bytes)
{
    return ares_arena_calloc(&cfg->arena, 1, bytes + 1);
}

void ares_config_add_options(ares_config *cfg, const char *prefix, ares_option_table *table,
                             void *into)
{
    int n;
    const ares_option *options = table(&n);
    prefix = prefix ? ares_arena_printf(&cfg->arena, "%s", prefix) : "";
    for (int i = 0; i < n; i++) {
        const ares_option *o = &options[i];
        const char *path = config_path_join(cfg, prefix, o->path);
        const config_option *first = config_option_at(cfg, path);
        ARES_ASSERT(config_constraint_ok(o->type, o->constraint));
        if (first) {
            const ares_option *f = first->option;
            ARES_ASSERT(f->type == o->type && !strcmp(f->text, o->text) &&
                        !strcmp(f->constraint, o->constraint) && f->flags == o->flags);
        } else {
            ARES_ASSERT(!config_walk(cfg->root, path)); /* not a section already */
            ares_option whole = *o;
            whole.path = path;
            config_add_default(cfg, cfg->root, &whole);
            ares_map_put(cfg->by_path, ares_view_of(path), cfg->options.count);
            add_sections(cfg->sections, path);
        }
        CONFIG_PUSH(&cfg->options, (config_option){ o, path, o->constraint, into, first != NULL });
    }
}

void ares_config_add_choices(ares_config *cfg, const char *path, const char *const *names, int n)
{
    ares_str text = { 0 };
    config_option *o = config_option_at(cfg, path);
    ARES_ASSERT(o && o->option->type == ARES_OPTION_choice && n > 0);
    if (o->constraint[0] == '?') ares_str_add_char(&text, '?');
    for (int i = 0; i < n; i++) ares_str_addf(&text, "%s%s", i ? "|" : "", names[i]);
    const char *constraint = ares_arena_copy(&cfg->arena, text.data, text.len);
    ares_str_fini(&text);
    for (int i = 0; i < cfg->options.count; i++)
        if (strcmp(cfg->options.items[i].path, path) == 0)
            cfg->options.items[i].constraint = constraint;
}

void ares_config_add_aliases(ares_config *cfg, const ares_config_alias *aliases, int n)
{
    for (int i = 0; i < n; i++) {
        const ares_config_alias *a = &aliases[i];
        CONFIG_PUSH(&cfg->aliases, a);
        size_t len = strlen(a->from);
        bool section = len > 2 && strcmp(a->from + len - 2, ".*") == 0;
        /* refused or ignored as a whole, not word by word */
        if (section && (!a->to || !*a->to)) len -= 2;
        add_sections(cfg->alias_sections, ares_arena_copy(&cfg->arena, a->from, len));
    }
}

void ares_config_add_defaults(ares_config *cfg, const ares_config_default *defaults, int n)
{
    for (int i = 0; i < n; i++)
        CONFIG_PUSH(&cfg->defaults, (config_default){ .row = &defaults[i] });
}

/* ---------------------------------------------------------------- asking, faults */

void ares_config_fault(ares_config *cfg, const char *path, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    config_value_faultv(cfg, config_walk(cfg->root, path), path, format, args);
    va_end(args);
}

const ares_json *ares_config_get(const ares_config *cfg, const char *path)
{
    const config_node *node = config_walk(cfg->root, path);
    return node ? node->json : NULL;
}

const char *ares_config_get_text(const ares_config *cfg, const char *path)
{
    const config_node *node = config_walk(cfg->root, path);
    if (!node || node->kind != CONFIG_SCALAR || config_value_of(node).type == CONFIG_NULL)
        return NULL;
    return node->text;
}

static bool any_set(const config_node *node)
{
    if (node->layer) return true;
    for (const config_node *child = node->first; child; child = child->next)
        if (any_set(child)) return true;
    return false;
}

bool ares_config_is_set(const ares_config *cfg, const char *path)
{
    const config_node *node = config_walk(cfg->root, path);
    return node && any_set(node);
}

const char *ares_config_written(const ares_config *cfg, const char *path)
{
    const config_node *node = config_walk(cfg->root, path);
    return node ? node->written : NULL;
}

bool ares_config_no_result(const ares_config *cfg, const char *path)
{
    const config_option *o = config_option_at(cfg, path);
    return o && (o->option->flags & ARES_NO_RESULT);
}
