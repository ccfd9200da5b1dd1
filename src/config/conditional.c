/*
 * Words of other trainers whose meaning depends on options: decided when all layers have been read.
 */
#include "tree.h"

#include <string.h>

/* "path=value", or several of them joined by '&', all of which must hold. */
static bool holds(ares_config *cfg, const char *when)
{
    char *list = ares_arena_printf(&cfg->arena, "%s", when), *rest = list;
    for (char *one; (one = strsep(&rest, "&"));) {
        char *equals = strchr(one, '=');
        ARES_ASSERT(equals);
        *equals = 0;
        config_node *on = config_walk(cfg->root, one);
        if (!on) return false;
        config_interpolate(cfg, on);
        ares_str is = { 0 };
        config_emit_flow(&is, on, true); /* True is true */
        bool same = strcmp(is.data, equals + 1) == 0;
        ares_str_fini(&is);
        if (!same) return false;
    }
    return true;
}

/* Whether the option gets the default; it stays an option that no layer sets. */
static bool set_default(ares_config *cfg, const config_default *d)
{
    const ares_config_default *row = d->row;
    const char *error;
    config_node *old = config_walk(cfg->root, row->path), *node;
    bool null = old && old->kind == CONFIG_SCALAR && config_value_of(old).type == CONFIG_NULL;
    if (old && (old->written || old->layer) && !null) return false;
    if (row->when && !holds(cfg, row->when)) return false;
    if (old) node = config_set_text(cfg, row->path, row->value);
    else { /* a key of an open map, which only config_put makes */
        node = config_yaml_value(cfg, ARES_OPTION_tree, row->value, &error);
        if (!node) return false;
        config_node_stamp(node, d->by->layer, d->by->line, d->by->source);
        config_put(cfg, row->path, node, CONFIG_SET);
        node = config_walk(cfg->root, row->path);
    }
    if (!node) return false;
    node->written = ares_arena_printf(&cfg->arena, "%s's default", row->trainer);
    return true;
}

void config_apply_defaults(ares_config *cfg)
{
    for (int i = 0; i < cfg->defaults.count;) {
        const char *trainer = cfg->defaults.items[i].row->trainer;
        ares_str told = { 0 };
        for (; i < cfg->defaults.count; i++) {
            const config_default *d = &cfg->defaults.items[i];
            if (strcmp(d->row->trainer, trainer) != 0) break;
            if (!d->by || !set_default(cfg, d)) continue;
            ares_str_addf(&told, "%s%s = %s", told.len ? ", " : "", d->row->path, d->row->value);
        }
        if (told.len)
            config_note(cfg, ARES_LOG_INFO, "defaults of %s, whose words are used: %s", trainer,
                        told.data);
        ares_str_fini(&told);
    }
}

/*
 * The row that tells what becomes of a word when none of its conditions holds; NULL: it is refused.
 */
static const ares_config_alias *otherwise(const ares_config *cfg, const char *word)
{
    for (int i = 0; i < cfg->aliases.count; i++)
        if (!cfg->aliases.items[i]->when && strcmp(cfg->aliases.items[i]->from, word) == 0)
            return cfg->aliases.items[i];
    return NULL;
}

static void apply(ares_config *cfg, const config_pending *p, const ares_config_alias *a)
{
    config_node *old = config_walk(cfg->root, a->to);
    const ares_config_alias *other = otherwise(cfg, p->path);
    bool set = old && old->layer && !config_asks_nothing(old),
         yields = set && other && (old->weak || old->layer > p->node->layer);
    if (set && config_asks_nothing(p->node)) return;
    if (yields) config_announce(cfg, p->path, "", other->note);
    else if (set && !other)
        config_value_fault(cfg, p->node, p->path, "means %s here, which is set as well; keep one",
                           a->to);
    else if (set && old->layer == p->node->layer && a->note)
        config_value_fault(cfg, p->node, p->path, "%s", a->note);
    else {
        config_announce(cfg, p->path, a->to, NULL);
        p->node->written = p->path;
        p->node->weak = true;
        if (set)
            config_node_replace(old,
                                p->node); /* of an earlier layer, or of this one and more general */
        else config_put(cfg, a->to, p->node, CONFIG_SET);
    }
}

/*
 * Applies aliases that hold only while another option has a certain value, in the order of their
 * rows. Of several uses of a word the last counts.
 */
void config_apply_pending(ares_config *cfg)
{
    for (int k = 0; k < cfg->aliases.count; k++) {
        const ares_config_alias *a = cfg->aliases.items[k];
        if (!a->when || config_alias_is_of_value(a) || !cfg->pending.count) continue;
        for (int i = cfg->pending.count - 1; i >= 0; i--) {
            config_pending *p = &cfg->pending.items[i];
            if (!p->node || strcmp(a->from, p->path) != 0 || !holds(cfg, a->when)) continue;
            apply(cfg, p, a);
            for (; i >= 0; i--)
                if (strcmp(cfg->pending.items[i].path, p->path) == 0)
                    cfg->pending.items[i].node = NULL;
            break;
        }
    }
    for (int i = 0; i < cfg->pending.count; i++) {
        const config_pending *p = &cfg->pending.items[i];
        bool later = !p->node;
        for (int k = i + 1; k < cfg->pending.count; k++)
            later = later || strcmp(cfg->pending.items[k].path, p->path) == 0;
        const ares_config_alias *other = later ? NULL : otherwise(cfg, p->path);
        if (other) config_announce(cfg, p->path, "", other->note);
        else if (!later)
            config_value_fault(cfg, p->node, p->path, "not accepted: %s",
                               p->alias->note ? p->alias->note
                                              : "its meaning depends on other options");
    }
    cfg->pending.count = 0;
}
