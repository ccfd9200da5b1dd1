/*
 * The tree of a configuration, and YAML text -> tree over libyaml's events. First the nodes, then
 * the tree as JSON, then the reader.
 *
 * libyaml reads the syntax of YAML 1.1 and does not interpret scalars; config_value_read does, by
 * the core schema of 1.2. Anchors are copied where they are used, so that no node has two parents;
 * config_node_new limits the number of copies.
 */
#include "internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

/*
 * ---- nodes: maps, lists and scalars, each with the place it came from. Children are linked lists,
 * because configurations are small and the readers limit those that are not.
 */

/* A node of the layer being read; NULL at the limit, whose fault is noted once. */
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

/* quoted: the text is a string, whatever it looks like. */
config_node *config_node_scalar(ares_config *cfg, const char *text, size_t len, bool quoted)
{
    config_node *node = config_node_new(cfg, CONFIG_SCALAR);
    if (!node) return NULL;
    node->text = ares_arena_copy(&cfg->arena, text, len);
    node->quoted = quoted;
    return node;
}

/* A copy with all that is below; NULL at the limits of depth and number. */
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
    /* the list is linked one way: the node before is searched */
    config_node *parent = child->parent, *before = NULL;
    for (config_node *c = parent->first; c != child; c = c->next) before = c;
    if (before) before->next = child->next;
    else parent->first = child->next;
    if (parent->last == child) parent->last = before;
    parent->count--;
}

/* The node itself stays, so pointers to it hold. */
void config_node_replace(config_node *node, config_node *by)
{
    /* place in the tree and key stay */
    config_node kept = *node;
    *node = *by;
    node->key = kept.key;
    node->parent = kept.parent;
    node->next = kept.next;
    for (config_node *child = node->first; child; child = child->next) child->parent = node;
}

/* The child with the key [len]; NULL: there is none. */
config_node *config_node_find(const config_node *map, const char *key, size_t len)
{
    if (map->kind != CONFIG_MAP) return NULL;
    for (config_node *child = map->first; child; child = child->next)
        if (strncmp(child->key, key, len) == 0 && child->key[len] == 0) return child;
    return NULL;
}

/* The item of a list by its index as text, "0" the first; NULL: there is none. */
config_node *config_node_item(const config_node *list, const char *index, size_t len)
{
    int64_t i;
    if (list->kind != CONFIG_LIST || len == 0 || index[0] < '0' || index[0] > '9') return NULL;
    if (!ares_parse_i64((ares_view){ index, len }, &i) || i >= list->count) return NULL;
    config_node *child = list->first;
    while (i-- > 0) child = child->next;
    return child;
}

/* "a.b.0" from a node downward; "" is the node itself, NULL: nothing is there. */
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

/* How many nodes lie above. */
int config_node_depth(const config_node *node)
{
    int depth = 0;
    for (; node->parent; node = node->parent) depth++;
    return depth;
}

/* How many levels lie below. */
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

/* Appends the path from the root, "a.b.0". */
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

/* Gives the node and all below it a place of origin. */
void config_node_stamp(config_node *node, int layer, int line, const char *source)
{
    node->layer = layer;
    node->line = line;
    node->source = source;
    for (config_node *child = node->first; child; child = child->next)
        config_node_stamp(child, layer, line, source);
}

/* ---- the tree as JSON values, for the options that hand over a tree */

/* Whether a number of YAML is one in JSON: 0x1F, +5, 010, 1. and .5 are not. */
static bool is_json_number(const char *text)
{
    const char *p = text + (*text == '-');
    size_t digits = strspn(p, "0123456789");
    if (digits == 0 || (*p == '0' && digits > 1)) return false;
    p += digits;
    return *p == 0 || *p == 'e' || *p == 'E' || (*p == '.' && p[1] >= '0' && p[1] <= '9');
}

/* Sets node->json for the node and everything below it. */
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
    /* where the cast is defined */
    if (v.type == CONFIG_FLOAT && fabs(v.number) < 9e18) json->integer = (int64_t)v.number;
    if ((v.type == CONFIG_INT || v.type == CONFIG_FLOAT) && !is_json_number(node->text)) {
        ares_str text = { 0 };
        if (v.type == CONFIG_INT && !v.big) ares_str_addf(&text, "%lld", (long long)v.integer);
        else if (isfinite(v.number)) ares_str_add_double(&text, v.number);
        /* JSON has no infinity and no NaN */
        else ares_str_add_z(&text, "null");
        json->text = (ares_view){ ares_arena_copy(&cfg->arena, text.data, text.len), text.len };
        ares_str_fini(&text);
    }
}

void config_build_json(ares_config *cfg)
{
    build(cfg, cfg->root, ares_arena_calloc(&cfg->arena, 1, sizeof(ares_json)));
}

/* ---- the reader */
typedef struct anchor {
    const char *name;
    config_node *node; /* NULL: it is still being read */
} anchor;

typedef struct reader {
    ares_config *cfg;
    yaml_parser_t parser;
    ares_view text;
    const char *name;
    const char **error; /* where the first fault goes instead of the report; NULL: the report */
    bool failed;
    CONFIG_VECTOR(anchor) anchors;
} reader;

static void fault(reader *r, int line, const char *format, ...) ARES_PRINTF(3, 4);

static void fault(reader *r, int line, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->failed = true;
    if (r->error) {
        if (!*r->error) *r->error = ares_arena_printf(&r->cfg->arena, "%s", text);
        return;
    }
    config_node where = { .layer = r->cfg->layer, .line = line, .source = r->name };
    config_note_fault(r->cfg, &where, "%s", text);
}

/* The next event; false after a fault. The caller deletes the event. */
static bool next(reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event)) return true;
    /* what libyaml says; the causes that users meet most are named */
    yaml_parser_t *p = &r->parser;
    int line = (int)p->problem_mark.line + 1;
    const char *problem = p->problem ? p->problem : "cannot be read";
    /* of the line of the fault: its first byte, its end, its indent */
    size_t at = 0, end, blanks = 0;
    /* the start of the line of the fault */
    for (int left = line; left > 1 && at < r->text.len; at++) left -= r->text.data[at] == '\n';
    for (end = at; end < r->text.len && r->text.data[end] != '\n';) end++;
    ares_view text = { r->text.data + at, end - at }; /* of the line */
    while (blanks < text.len && text.data[blanks] == ' ') blanks++;
    if (p->error == YAML_READER_ERROR) {
        line = 1; /* there libyaml tells the offset only */
        for (size_t i = 0; i < p->problem_offset && i < r->text.len; i++)
            line += r->text.data[i] == '\n';
        fault(r, line, "not YAML: %s; save the file as UTF-8 text", problem);
    } else if (blanks < text.len && text.data[blanks] == '\t') {
        fault(r, line, "indented with a tab; YAML takes spaces");
    } else {
        /* [${a}] and {x: ${a}}: YAML reads the brace as a map */
        bool reference = p->context && strstr(p->context, "flow") &&
                         ares_view_find(text, ARES_VIEW("${"), 0) >= 0;
        fault(r, line, "column %d: not YAML: %s%s%s%s", (int)p->problem_mark.column + 1, problem,
              p->context ? ", " : "", p->context ? p->context : "",
              reference ? "; inside [ ] and { } write \"${...}\" in quotes" : "");
    }
    return false;
}

static int line_of(const yaml_event_t *event)
{
    return (int)event->start_mark.line + 1;
}

/* ---------------------------------------------------------------- nodes */

static config_node *read_event(reader *r, yaml_event_t *event, int depth);

/* A scalar. Its tag may only say what the text is read as anyway; !!str and ! quote it. */
static config_node *read_scalar(reader *r, yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value,
               *tag = (const char *)event->data.scalar.tag;
    size_t len = event->data.scalar.length;
    static const char core[] = "tag:yaml.org,2002:";
    if (memchr(text, 0, len)) return fault(r, line_of(event), "a text with a NUL byte"), NULL;
    bool quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    /* "! 1" is the text 1 */
    if (tag && strcmp(tag, "!") == 0) quoted = true;
    else if (tag) {
        /* in the order of config_scalar */
        static const char *const names[] = { "null", "bool", "int", "float", "str" };
        int type = -1;
        for (int i = 0; i < ARES_COUNT(names); i++)
            if (strncmp(tag, core, sizeof core - 1) == 0 &&
                strcmp(tag + sizeof core - 1, names[i]) == 0)
                type = i;
        if (type < 0)
            return fault(r, line_of(event), "tag '%.60s' has no meaning here; leave it out", tag),
                   NULL;
        quoted = type == CONFIG_STRING;
        config_scalar is = config_value_read(text, quoted).type;
        /* !!float 1 is allowed, !!int 1.5 is not */
        if (is != (config_scalar)type && !(is == CONFIG_INT && type == CONFIG_FLOAT))
            return fault(r, line_of(event), "'%.60s' is no value of its tag !!%s", text,
                         names[type]),
                   NULL;
    }
    return config_node_scalar(r->cfg, text, len, quoted);
}

/*
 * Adds the keys of `<<: *base` or `<<: [*a, *b]` that the map does not have itself; of a list the
 * earlier map wins.
 */
static bool merge_into(reader *r, config_node *map, config_node *base, int line)
{
    if (base->kind == CONFIG_LIST) {
        for (config_node *item = base->first; item; item = item->next)
            if (item->kind != CONFIG_MAP || !merge_into(r, map, item, line))
                return fault(r, line, "`<<` takes a map or a list of maps"), false;
        return true;
    }
    if (base->kind != CONFIG_MAP)
        return fault(r, line, "`<<` takes a map or a list of maps"), false;
    for (config_node *child = base->first, *after; child; child = after) {
        after = child->next;
        if (!config_node_find(map, child->key, strlen(child->key))) config_node_add(map, child);
    }
    return true;
}

/* A key and its value. *base: the value of <<, which is merged when all keys are known. */
static bool read_pair(reader *r, config_node *map, yaml_event_t *event, config_node **base,
                      int *base_line, int depth)
{
    const char *text = (const char *)event->data.scalar.value;
    if (event->type != YAML_SCALAR_EVENT)
        return fault(r, line_of(event),
                     "a key must be a single word (found a list, a map or an alias)"),
               false;
    /* a key is no value that an alias could copy */
    if (event->data.scalar.anchor) return fault(r, line_of(event), "an anchor on a key"), false;
    size_t len = event->data.scalar.length;
    if (len == 0 || len > CONFIG_MAX_KEY || memchr(text, 0, len))
        return fault(r, line_of(event), "a key of %zu bytes; keys have 1 to %d, and no NUL", len,
                     CONFIG_MAX_KEY),
               false;
    const char *key = ares_arena_copy(&r->cfg->arena, text, len);
    bool merge = strcmp(key, "<<") == 0 && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    int line = line_of(event);
    /* the value follows its key */
    yaml_event_t value_event;
    if (!next(r, &value_event)) return false;
    config_node *value = read_event(r, &value_event, depth + 1);
    yaml_event_delete(&value_event);
    if (!value) return false;
    if (map->count >= CONFIG_MAX_KEYS)
        return fault(r, line, "a map of more than %d keys", CONFIG_MAX_KEYS), false;
    /* a second "<<" counts as a second key of this name */
    config_node *first = merge ? *base : config_node_find(map, key, strlen(key));
    if (first) {
        fault(r, line, "key '%s' appears twice (first in line %d); keep one", key,
              merge ? *base_line : first->line);
        return true;
    }
    /* merged last: the own keys of the map win, wherever they stand */
    if (merge) {
        *base = value;
        *base_line = line;
        return true;
    }
    value->key = key;
    value->line = line;
    config_node_add(map, value);
    return true;
}

/* The children of a map or list, up to its end. */
static bool read_children(reader *r, config_node *node, int depth)
{
    config_node *base = NULL;
    int base_line = 0;
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!next(r, &event)) return false;
        bool ok = true;
        if (event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT)
            more = false;
        else if (node->kind == CONFIG_MAP)
            ok = read_pair(r, node, &event, &base, &base_line, depth);
        else {
            config_node *item = read_event(r, &event, depth + 1);
            if (item) config_node_add(node, item);
            else ok = false;
        }
        yaml_event_delete(&event);
        if (!ok) return false;
    }
    return !base || merge_into(r, node, base, base_line);
}

/* The node that begins with the event; NULL after a fault. */
static config_node *read_event(reader *r, yaml_event_t *event, int depth)
{
    if (depth > CONFIG_MAX_DEPTH)
        return fault(r, line_of(event), "nests deeper than %d", CONFIG_MAX_DEPTH), NULL;
    /* where the fault of too many values is reported */
    r->cfg->at = (config_node){ .layer = r->cfg->layer, .line = line_of(event), .source = r->name };
    if (event->type == YAML_ALIAS_EVENT) {
        /* a copy of the node with this anchor, the last where one is given again */
        const char *name = (const char *)event->data.alias.anchor;
        for (int i = r->anchors.count - 1; i >= 0; i--) {
            if (strcmp(r->anchors.items[i].name, name) != 0) continue;
            config_node *node = r->anchors.items[i].node;
            if (!node)
                return fault(r, line_of(event), "alias *%.60s is inside its own anchor", name),
                       NULL;
            config_node *copy = config_node_copy(r->cfg, node, depth);
            if (!copy && !r->cfg->too_big)
                fault(r, line_of(event), "alias *%.60s nests deeper than %d", name,
                      CONFIG_MAX_DEPTH);
            /* also at the limit of values, whose fault is noted already */
            if (!copy) r->failed = true;
            return copy;
        }
        return fault(r, line_of(event), "alias *%.60s has no anchor before it", name), NULL;
    }
    const char *name = NULL, *tag = NULL;
    config_node *node = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        name = (const char *)event->data.scalar.anchor;
        node = read_scalar(r, event);
    } else if (event->type == YAML_MAPPING_START_EVENT ||
               event->type == YAML_SEQUENCE_START_EVENT) {
        bool map = event->type == YAML_MAPPING_START_EVENT;
        name = (const char *)(map ? event->data.mapping_start.anchor
                                  : event->data.sequence_start.anchor);
        tag = (const char *)(map ? event->data.mapping_start.tag : event->data.sequence_start.tag);
        node = config_node_new(r->cfg, map ? CONFIG_MAP : CONFIG_LIST);
    }
    if (!node) return r->failed = true, NULL;
    if (tag && strcmp(tag, "!") != 0 && strcmp(tag, YAML_MAP_TAG) != 0 &&
        strcmp(tag, YAML_SEQ_TAG) != 0)
        return fault(r, line_of(event), "tag '%.60s' has no meaning here; leave it out", tag), NULL;
    node->line = line_of(event);
    node->source = r->name;
    /* NULL until the node is complete, so that an alias inside it is found out */
    int slot = r->anchors.count;
    if (name)
        CONFIG_PUSH(&r->anchors,
                    (anchor){ ares_arena_copy(&r->cfg->arena, name, strlen(name)), NULL });
    if (node->kind != CONFIG_SCALAR && !read_children(r, node, depth)) return NULL;
    if (name) r->anchors.items[slot].node = node;
    return node;
}

/* ---------------------------------------------------------------- documents */

/* The one document; NULL after a fault, or where there is none. */
static config_node *read_document(reader *r)
{
    config_node *node = NULL;
    for (;;) {
        yaml_event_t event;
        if (!next(r, &event)) return NULL;
        /* kept: the event is deleted below */
        yaml_event_type_t type = event.type;
        int line = line_of(&event);
        /* --- alone at the start is allowed */
        if (type == YAML_DOCUMENT_START_EVENT && node) {
            fault(r, line, "a second document (---); one file holds one");
        } else if (type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_START_EVENT &&
                   type != YAML_DOCUMENT_END_EVENT && type != YAML_STREAM_END_EVENT &&
                   type != YAML_NO_EVENT)
            node = read_event(r, &event, 0);
        yaml_event_delete(&event);
        if (r->failed && (!node || type == YAML_DOCUMENT_START_EVENT)) return NULL;
        if (type == YAML_STREAM_END_EVENT || type == YAML_NO_EVENT) return node;
    }
}

/* error: where the first fault goes; NULL: to the faults of cfg. *failed: there was one. */
static config_node *read_text(ares_config *cfg, const char *name, ares_view text,
                              const char **error, bool *failed)
{
    /* the parser borrows the text */
    reader r = { .cfg = cfg, .text = text, .name = name, .error = error };
    ARES_ASSERT(yaml_parser_initialize(&r.parser));
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text.data, text.len);
    config_node *node = read_document(&r);
    yaml_parser_delete(&r.parser);
    ares_free(r.anchors.items);
    cfg->at = (config_node){ 0 };
    *failed = r.failed;
    return node;
}

/* A file as a map; NULL after a fault, which is noted. name: for places. */
config_node *config_yaml_read(ares_config *cfg, const char *name, ares_view text)
{
    config_node where = { .layer = cfg->layer, .line = 1, .source = name };
    if (text.len > CONFIG_MAX_FILE) {
        config_note_fault(cfg, &where, "a configuration of %zu bytes; the limit is %d", text.len,
                          CONFIG_MAX_FILE);
        return NULL;
    }
    bool failed;
    config_node *node = read_text(cfg, name, text, NULL, &failed);
    if (!node && failed) return NULL;
    if (!node || config_value_of(node).type == CONFIG_NULL) {
        node = config_node_new(cfg, CONFIG_MAP); /* an empty file sets nothing */
        if (node) node->source = name;
        return node;
    }
    if (node->kind == CONFIG_MAP) return node;
    /* of the value that is no map */
    where.line = node->line;
    config_note_fault(cfg, &where, "the file must be a map of options (key: value)");
    return NULL;
}

/*
 * A value from the command line or a table: [..], {..} and quotes are YAML, else it is one scalar.
 */
config_node *config_yaml_value(ares_config *cfg, ares_option_type type, const char *text,
                               const char **error)
{
    ares_view v = ares_view_trim(ares_view_of(text));
    bool wants_text = type == ARES_OPTION_text || type == ARES_OPTION_choice;
    *error = NULL;
    if (!ares_view_is_utf8(v)) return *error = "not UTF-8", NULL;
    if (v.len == 0) return config_node_scalar(cfg, "", 0, wants_text);
    char c = v.data[0];
    if (c == '"' || c == '\'' || (!wants_text && (c == '[' || c == '{'))) {
        bool failed;
        config_node *node = read_text(cfg, NULL, v, error, &failed);
        /* of a text only a scalar counts: "[a]" stays a text */
        if (node && !failed && (node->kind == CONFIG_SCALAR || !wants_text)) return node;
        if (!wants_text && !*error) *error = "not YAML";
        if (!wants_text) return NULL;
        *error = NULL; /* a text may begin with a quote that it does not close */
    }
    return config_node_scalar(cfg, v.data, v.len, false);
}
