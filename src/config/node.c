/* The tree of a configuration: its nodes, and the tree as JSON. */
#include "internal.h"

#include <math.h>
#include <string.h>

/*
 * The tree of a configuration: maps, lists and scalars, each with the place it came from. Children
 * are linked lists, because configurations are small and the readers limit those that are not.
 */

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

/* The tree as JSON values, for the options that hand over a tree. */

/* Whether a number of YAML is one in JSON: 0x1F, +5, 010, 1. and .5 are not. */
static bool is_json_number(const char *text)
{
    const char *p = text + (*text == '-');
    size_t digits = strspn(p, "0123456789");
    if (digits == 0 || (*p == '0' && digits > 1)) return false;
    p += digits;
    return *p == 0 || *p == 'e' || *p == 'E' || (*p == '.' && p[1] >= '0' && p[1] <= '9');
}

static void build(ares_config *cfg, config_node *node, ares_json *json)
{
    *json = (ares_json){ .type = ARES_JSON_NULL, .count = node->count };
    node->json = json;
    size_t count = (size_t)node->count, i = 0;
    if (node->kind == CONFIG_LIST) {
        ares_json *items = ares_arena_calloc(&cfg->arena, count + 1, sizeof *items);
        json->type = ARES_JSON_ARRAY;
        json->items = items;
        for (config_node *child = node->first; child; child = child->next)
            build(cfg, child, &items[i++]);
        return;
    }
    if (node->kind == CONFIG_MAP) {
        ares_json *values = ares_arena_calloc(&cfg->arena, count + 1, sizeof *values);
        ares_json_member *members = ares_arena_calloc(&cfg->arena, count + 1, sizeof *members);
        json->type = ARES_JSON_OBJECT;
        json->members = members;
        for (config_node *child = node->first; child; child = child->next, i++) {
            build(cfg, child, &values[i]);
            members[i] = (ares_json_member){ ares_view_of(child->key), &values[i] };
        }
        return;
    }
    config_value v = config_value_of(node);
    static const ares_json_type types[] = { [CONFIG_NULL] = ARES_JSON_NULL,
                                            [CONFIG_BOOL] = ARES_JSON_BOOL,
                                            [CONFIG_INT] = ARES_JSON_INT,
                                            [CONFIG_FLOAT] = ARES_JSON_FLOAT,
                                            [CONFIG_STRING] = ARES_JSON_STRING };
    json->type = types[v.type];
    json->boolean = v.boolean;
    json->big = v.big;
    json->number = v.number;
    json->integer = v.integer;
    json->text = ares_view_of(node->text);
    if (v.type == CONFIG_FLOAT && fabs(v.number) < 9e18) json->integer = (int64_t)v.number;
    bool json_spelling = is_json_number(node->text);
    if ((v.type == CONFIG_INT || v.type == CONFIG_FLOAT) && !json_spelling) { /* 0x1F, +5, 1., .5 */
        ares_str text = { 0 };
        if (v.type == CONFIG_INT && !v.big) ares_str_addf(&text, "%lld", (long long)v.integer);
        else if (isfinite(v.number)) ares_str_add_double(&text, v.number);
        else ares_str_add_z(&text, "null");
        json->text = (ares_view){ ares_arena_copy(&cfg->arena, text.data, text.len), text.len };
        ares_str_fini(&text);
    }
}

void config_build_json(ares_config *cfg)
{
    build(cfg, cfg->root, ares_arena_calloc(&cfg->arena, 1, sizeof(ares_json)));
}
