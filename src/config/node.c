/*
 * The tree of a configuration: maps, lists and scalars with the place each came from, and what a
 * scalar means.
 *
 * Children are linked lists: configurations are small, and the readers bound the ones that are not.
 */
#include "tree.h"

#include <math.h>
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

void config_node_show(const config_node *node, ares_str *out)
{
    enum { SHOWN = 72 };
    size_t start = out->len;
    config_value value = config_value_of(node);
    bool text = node->kind == CONFIG_SCALAR && value.type == CONFIG_STRING;
    if (text) {
        ares_str_add_char(out, '\'');
        for (const char *p = node->text; *p && out->len - start < 2 * SHOWN; p++) {
            if ((unsigned char)*p < 32) ares_str_add_char(out, ' ');
            else ares_str_add_char(out, *p);
        }
    } else config_emit_flow(out, node, true);
    if (out->len - start > SHOWN) {
        size_t end = start + SHOWN;
        while (end > start && ((unsigned char)out->data[end] & 0xC0) == 0x80) end--;
        out->len = end;
        out->data[end] = 0;
        ares_str_add_z(out, "...");
    }
    if (text) ares_str_add_char(out, '\'');
}

void config_node_stamp(config_node *node, int layer, int line, const char *source)
{
    node->layer = layer;
    node->line = line;
    node->source = source;
    for (config_node *child = node->first; child; child = child->next)
        config_node_stamp(child, layer, line, source);
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0) return true;
    return false;
}

bool config_is_yes_no(const char *text)
{
    static const char *const words[] = { "yes", "Yes", "YES", "no",  "No",  "NO", "on",
                                         "On",  "ON",  "off", "Off", "OFF", NULL };
    return is_one_of(text, words);
}

bool config_is_required(const config_node *node)
{
    return node->kind == CONFIG_SCALAR && !node->quoted && strcmp(node->text, "???") == 0;
}

/* 0x1F and 0o17; too many digits give a big value. */
static bool read_based(const char *digits, unsigned base, config_value *value)
{
    if (!*digits) return false;
    uint64_t sum = 0;
    double number = 0;
    for (const char *p = digits; *p; p++) {
        unsigned c = (unsigned char)*p;
        unsigned digit = c - '0' < 10 ? c - '0' : (c | 32) - 'a' < 6 ? (c | 32) - 'a' + 10 : 99;
        if (digit >= base) return false;
        number = number * base + digit;
        if (sum > (uint64_t)INT64_MAX / base) value->big = true;
        sum = sum * base + digit;
    }
    if (sum > (uint64_t)INT64_MAX) value->big = true;
    value->type = CONFIG_INT;
    value->integer = value->big ? INT64_MAX : (int64_t)sum;
    value->number = number;
    return true;
}

static bool read_number(const char *text, config_value *value)
{
    static const char *const infinities[] = { ".inf", ".Inf", ".INF", NULL }, *const nans[] = {
        ".nan", ".NaN", ".NAN", NULL
    };
    const char *unsigned_part = text + (*text == '-' || *text == '+');
    if (is_one_of(text, nans) || is_one_of(unsigned_part, infinities)) {
        value->type = CONFIG_FLOAT;
        value->number = is_one_of(text, nans) ? (double)NAN
                        : *text == '-'        ? -(double)INFINITY
                                              : (double)INFINITY;
        return true;
    }
    if (text[0] == '0' && text[1] == 'x') return read_based(text + 2, 16, value);
    if (text[0] == '0' && text[1] == 'o') return read_based(text + 2, 8, value);
    if (!ares_parse_double(ares_view_of(text), &value->number)) return false;
    value->type = strpbrk(text, ".eE") ? CONFIG_FLOAT : CONFIG_INT;
    if (value->type == CONFIG_INT && !ares_parse_i64(ares_view_of(text), &value->integer)) {
        value->big = true;
        value->integer = *text == '-' ? INT64_MIN : INT64_MAX;
    }
    return true;
}

config_value config_value_read(const char *text, bool quoted)
{
    static const char *const nulls[] = { "", "~", "null", "Null", "NULL", "None", NULL };
    static const char *const trues[] = { "true", "True", "TRUE", NULL }, *const falses[] = {
        "false", "False", "FALSE", NULL
    };
    config_value value = { .type = CONFIG_STRING };
    if (quoted) return value;
    if (is_one_of(text, nulls)) value.type = CONFIG_NULL;
    else if (is_one_of(text, trues) || is_one_of(text, falses)) {
        value.type = CONFIG_BOOL;
        value.boolean = is_one_of(text, trues);
    } else if (!read_number(text, &value)) value = (config_value){ .type = CONFIG_STRING };
    return value;
}

config_value config_value_of(const config_node *node)
{
    if (node->kind != CONFIG_SCALAR) return (config_value){ .type = CONFIG_STRING };
    return config_value_read(node->text, node->quoted);
}
