/* The tree as JSON values, for the options that hand over a tree. */
#include "tree.h"

#include <math.h>
#include <string.h>

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
