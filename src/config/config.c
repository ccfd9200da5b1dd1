/*
 * The life of a configuration: options declared, then resolved, bound, and asked. The tree holds
 * every default from the moment an option is declared; layers change it in place (config_layer.c).
 */
#include "tree.h"

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
    ares_free(cfg->implied.items);
    ares_free(cfg->bound.items);
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

static const char *joined(ares_config *cfg, const char *prefix, const char *path)
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
        const char *path = joined(cfg, prefix, o->path);
        const config_option *first = config_option_at(cfg, path);
        ARES_ASSERT(config_constraint_ok(o->type, o->constraint));
        if (first) {
            const ares_option *f = first->option;
            ARES_ASSERT(f->type == o->type && !strcmp(f->text, o->text) &&
                        !strcmp(f->constraint, o->constraint) && f->no_result == o->no_result);
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

void ares_config_add_implied(ares_config *cfg, const ares_config_implied *implied, int n)
{
    for (int i = 0; i < n; i++) CONFIG_PUSH(&cfg->implied, (config_implied){ .row = &implied[i] });
}

/* ---------------------------------------------------------------- binding */

void ares_config_resolve(ares_config *cfg)
{
    config_settle_implied(cfg);
    config_settle_pending(cfg);
    if (cfg->words) cfg->words(cfg);
    for (config_node *node = cfg->root->first; node; node = node->next)
        if (strncmp(node->key, "x-", 2) != 0) config_interpolate(cfg, node);
    config_build_json(cfg);
    for (int i = 0; i < cfg->options.count; i++) {
        const config_option *o = &cfg->options.items[i];
        config_node *node = config_walk(cfg->root, o->path);
        if (node) config_bind_option(cfg, o, node, node);
    }
    cfg->resolved = true;
}

void ares_config_bind(ares_config *cfg, const char *path, ares_option_table *table, void *into)
{
    ARES_ASSERT(cfg->resolved);
    int n;
    const ares_option *options = table(&n);
    path = ares_arena_printf(&cfg->arena, "%s", path);
    config_node *map = config_walk(cfg->root, path), *where = map;
    bool wrong = map && map->kind != CONFIG_MAP && config_value_of(map).type != CONFIG_NULL;
    if (wrong && map->state != CONFIG_BROKEN)
        config_value_fault(cfg, map, path, "must be a map of options");
    if (!map || map->kind != CONFIG_MAP) {
        map = config_node_new(cfg, CONFIG_MAP);
        if (!map) return;
        map->parent = cfg->root;
    } else CONFIG_PUSH(&cfg->bound, (config_bound){ path, table });
    for (int i = 0; i < n; i++) {
        const ares_option *o = &options[i];
        ARES_ASSERT(config_constraint_ok(o->type, o->constraint));
        config_node *node = config_walk(map, o->path);
        if (!node) {
            config_add_default(cfg, map, o);
            node = config_walk(map, o->path);
            if (node) config_interpolate(cfg, node);
        }
    }
    config_build_json(cfg);
    for (int i = 0; i < n; i++) {
        config_option o = { &options[i], joined(cfg, path, options[i].path), options[i].constraint,
                            into, wrong };
        config_node *node = config_walk(map, options[i].path);
        if (node) config_bind_option(cfg, &o, node, node->layer ? node : where);
    }
}

static bool bound_knows(const ares_config *cfg, const char *path, const char *key, bool *section)
{
    size_t len = strlen(key);
    *section = false;
    for (int i = 0; i < cfg->bound.count; i++) {
        if (strcmp(cfg->bound.items[i].path, path) != 0) continue;
        int n;
        const ares_option *options = cfg->bound.items[i].table(&n);
        for (int k = 0; k < n; k++) {
            if (strcmp(options[k].path, key) == 0) return true;
            if (strncmp(options[k].path, key, len) == 0 && options[k].path[len] == '.')
                *section = true;
        }
    }
    return *section;
}

static void refuse_unknown(ares_config *cfg, const char *path, const char *key,
                           const config_node *node)
{
    const char *names[64] = { NULL };
    int count = 0, n;
    for (int i = 0; i < cfg->bound.count; i++) {
        if (strcmp(cfg->bound.items[i].path, path) != 0) continue;
        const ares_option *options = cfg->bound.items[i].table(&n);
        for (int k = 0; k < n && count < ARES_COUNT(names); k++) names[count++] = options[k].path;
    }
    ares_str hint = { 0 };
    const char *near = ares_nearest(key, names, count);
    if (near) ares_str_addf(&hint, "; did you mean '%s.%s'?", path, near);
    else {
        ares_str_add_z(&hint, " (options there: ");
        for (int i = 0; i < count; i++) ares_str_addf(&hint, "%s%s", i ? ", " : "", names[i]);
        ares_str_add_char(&hint, ')');
    }
    config_note_fault(cfg, node, "%s.%s: no such option%s", path, key, hint.data);
    ares_str_fini(&hint);
}

static void check_bound(ares_config *cfg, const char *path, const config_node *map,
                        const char *prefix)
{
    for (const config_node *child = map->first; child; child = child->next) {
        const char *key = joined(cfg, prefix, child->key);
        bool section;
        if (!bound_knows(cfg, path, key, &section)) refuse_unknown(cfg, path, key, child);
        else if (section && child->kind == CONFIG_MAP) check_bound(cfg, path, child, key);
        else if (section && config_value_of(child).type != CONFIG_NULL)
            config_note_fault(cfg, child, "%s.%s: a section of options, not a value", path, key);
    }
}

int ares_config_finish(ares_config *cfg)
{
    ARES_ASSERT(cfg->resolved);
    for (int i = 0; i < cfg->bound.count; i++) {
        const char *path = cfg->bound.items[i].path;
        bool first = true;
        for (int k = 0; k < i; k++) first = first && strcmp(cfg->bound.items[k].path, path) != 0;
        const config_node *map = config_walk(cfg->root, path);
        if (first && map && map->kind == CONFIG_MAP) check_bound(cfg, path, map, "");
    }
    cfg->bound.count = 0;
    return config_report(cfg);
}

/* ---------------------------------------------------------------- asking */

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
    return o && o->option->no_result;
}
