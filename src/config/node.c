/*
 * The tree of a configuration: maps, lists and scalars, each with the place it came from. Children
 * are linked lists, because configurations are small and the readers limit those that are not.
 */
#include "tree.h"

#include <string.h>

config_node *config_node_new(ares_config *cfg, config_kind kind)
{
    if (cfg->nodes >= CONFIG_MAX_NODES) {
        if (!cfg->too_big) {
            cfg->too_big = true;
            config_note_fault(
                cfg, &cfg->at,
                "the configuration has more than %d values; anchors or interpolation may "
                "multiply them",
                CONFIG_MAX_NODES);
        }
        return NULL;
    }
    cfg->nodes++;
    config_node *node = ares_arena_calloc(&cfg->arena, 1, sizeof *node);
    node->kind = kind;
    node->layer = cfg->layer;
    return node;
}

config_node *config_node_scalar(ares_config *cfg, const char *text, size_t len, bool quoted)
{
    config_node *node = config_node_new(cfg, CONFIG_SCALAR);
    if (!node) return NULL;
    node->text = ares_arena_copy(&cfg->arena, text, len);
    node->quoted = quoted;
    return node;
}

config_node *config_node_copy(ares_config *cfg, const config_node *from, int depth)
{
    if (depth > CONFIG_MAX_DEPTH) return NULL;
    config_node *node = config_node_new(cfg, from->kind);
    if (!node) return NULL;
    node->state = from->state;
    node->quoted = from->quoted;
    node->layer = from->layer;
    node->line = from->line;
    node->source = from->source;
    node->key = from->key;
    node->text = from->text;
    for (const config_node *child = from->first; child; child = child->next) {
        config_node *copy = config_node_copy(cfg, child, depth + 1);
        if (!copy) return NULL;
        config_node_add(node, copy);
    }
    return node;
}

void config_node_add(config_node *parent, config_node *child)
{
    child->parent = parent;
    child->next = NULL;
    if (parent->last) parent->last->next = child;
    else parent->first = child;
    parent->last = child;
    parent->count++;
}

void config_node_remove(config_node *child)
{
    config_node *parent = child->parent, *before = NULL;
    for (config_node *c = parent->first; c != child; c = c->next) before = c;
    if (before) before->next = child->next;
    else parent->first = child->next;
    if (parent->last == child) parent->last = before;
    parent->count--;
}

void config_node_replace(config_node *node, config_node *by)
{
    config_node kept = *node;
    *node = *by;
    node->key = kept.key;
    node->parent = kept.parent;
    node->next = kept.next;
    for (config_node *child = node->first; child; child = child->next) child->parent = node;
}

config_node *config_node_find(const config_node *map, const char *key, size_t len)
{
    if (map->kind != CONFIG_MAP) return NULL;
    for (config_node *child = map->first; child; child = child->next)
        if (strncmp(child->key, key, len) == 0 && child->key[len] == 0) return child;
    return NULL;
}

config_node *config_node_item(const config_node *list, const char *index, size_t len)
{
    int64_t i;
    if (list->kind != CONFIG_LIST || len == 0 || index[0] < '0' || index[0] > '9') return NULL;
    if (!ares_parse_i64((ares_view){ index, len }, &i) || i >= list->count) return NULL;
    config_node *child = list->first;
    while (i-- > 0) child = child->next;
    return child;
}

config_node *config_walk(const config_node *from, const char *path)
{
    const config_node *node = from;
    while (node && *path) {
        size_t len = strcspn(path, ".");
        node = node->kind == CONFIG_LIST ? config_node_item(node, path, len)
                                         : config_node_find(node, path, len);
        path += len;
        if (*path == '.') path++;
    }
    return (config_node *)node;
}

int config_node_depth(const config_node *node)
{
    int depth = 0;
    for (; node->parent; node = node->parent) depth++;
    return depth;
}

int config_node_height(const config_node *node)
{
    int height = 0;
    for (const config_node *child = node->first; child; child = child->next) {
        /* once: ARES_MAX would ask twice, and so on at each depth */
        int below = config_node_height(child) + 1;
        if (below > height) height = below;
    }
    return height;
}

void config_node_path(const config_node *node, ares_str *out)
{
    if (!node->parent) return;
    config_node_path(node->parent, out);
    if (out->len) ares_str_add_char(out, '.');
    if (node->parent->kind == CONFIG_MAP) {
        ares_str_add_z(out, node->key);
        return;
    }
    int64_t i = 0;
    for (const config_node *child = node->parent->first; child != node; child = child->next) i++;
    ares_str_addf(out, "%lld", (long long)i);
}

void config_node_stamp(config_node *node, int layer, int line, const char *source)
{
    node->layer = layer;
    node->line = line;
    node->source = source;
    for (config_node *child = node->first; child; child = child->next)
        config_node_stamp(child, layer, line, source);
}
