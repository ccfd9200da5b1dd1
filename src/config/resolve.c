/*
 * From merged layers to filled structs: conditional words, interpolation, binding; and the report,
 * with the keys that no bound table has.
 */
#include "tree.h"

#include <string.h>

void ares_config_resolve(ares_config *cfg)
{
    config_apply_defaults(cfg);
    config_apply_pending(cfg);
    for (int i = 0; i < cfg->n_words; i++) cfg->words[i](cfg);
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
        config_option o = { &options[i], config_path_join(cfg, path, options[i].path),
                            options[i].constraint, into, wrong };
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
        const char *key = config_path_join(cfg, prefix, child->key);
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
