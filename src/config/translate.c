/*
 * What the code for another trainer's configuration may do between reading and binding
 * (ares_config_translate_with).
 */
#include <math.h>

#include "tree.h"

void ares_config_translate_with(ares_config *cfg, void (*words)(ares_config *cfg))
{
    ARES_ASSERT(cfg->n_words < ARES_COUNT(cfg->words));
    cfg->words[cfg->n_words++] = words;
}

/*
 * A value in one spelling, for code that compares texts: true for TRUE; 4 for 0x4 and 4.0 when the
 * option is an integer.
 */
static const char *plain(ares_config *cfg, const config_node *node, const char *path)
{
    const config_option *o = config_option_at(cfg, path);
    config_value v = config_value_of(node);
    bool whole = o && o->option->type == ARES_OPTION_i64 && !v.big;
    if (v.type == CONFIG_BOOL) return v.boolean ? "true" : "false";
    if (whole && v.type == CONFIG_INT)
        return ares_arena_printf(&cfg->arena, "%lld", (long long)v.integer);
    if (whole && v.type == CONFIG_FLOAT && v.number == nearbyint(v.number) && fabs(v.number) < 1e15)
        return ares_arena_printf(&cfg->arena, "%.0f", v.number);
    return ares_config_get_text(cfg, path);
}

const char *ares_config_given(ares_config *cfg, const char *path)
{
    config_node *node = config_walk(cfg->root, path);
    if (!node || !node->layer || node->kind != CONFIG_SCALAR) return NULL;
    config_interpolate(cfg, node);
    return node->state == CONFIG_BROKEN || config_is_required(node) ? NULL : plain(cfg, node, path);
}

const char *ares_config_word(const ares_config *cfg, const char *path)
{
    const config_node *node = config_walk(cfg->root, path);
    return node && node->written ? node->written : path;
}

static int order(const ares_config *cfg, const char *a, const char *b)
{
    const config_node *x = config_walk(cfg->root, a), *y = config_walk(cfg->root, b);
    return x && y ? config_order(x, y) : 0;
}

bool ares_config_later(const ares_config *cfg, const char *a, const char *b)
{
    return order(cfg, a, b) > 0;
}
bool ares_config_together(const ares_config *cfg, const char *a, const char *b)
{
    return order(cfg, a, b) == 0;
}

bool ares_config_preset(ares_config *cfg, const char *path, const char *value, const char *by)
{
    if (ares_config_is_set(cfg, path)) return false;
    config_node *node = config_set_text(cfg, path, value);
    if (node) node->written = ares_arena_printf(&cfg->arena, "%s", by);
    return true;
}

void ares_config_follow(ares_config *cfg, const char *path, const char *value, const char *from)
{
    config_node place = *config_walk(cfg->root, from);
    config_node *node = config_set_text(cfg, path, value);
    if (!node) return;
    config_node_stamp(node, place.layer, place.line, place.source);
    node->written = ares_arena_printf(&cfg->arena, "%s", place.written ? place.written : from);
}

void ares_config_forget(ares_config *cfg, const char *path)
{
    config_reset(cfg, path, NULL);
}
