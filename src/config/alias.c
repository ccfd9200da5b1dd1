/*
 * Options by the names of other trainers. In order: where a path leads; translations between
 * reading and binding; words whose meaning depends on other options.
 */
#include "internal.h"

#include <math.h>
#include <string.h>

/*
 * ---- where a path leads: to an option, into one, to a section, or to one of these by a word of
 * another trainer
 */

bool config_is_open(ares_option_type type)
{
    return type == ARES_OPTION_tree || type == ARES_OPTION_texts || type == ARES_OPTION_i64s ||
           type == ARES_OPTION_f64s;
}

/* Whether the path, or a part of it that ends before a dot, is an option. */
static bool find_option(const ares_config *cfg, config_found *f)
{
    size_t len = strlen(f->path);
    for (;;) {
        int64_t i;
        if (ares_map_get(cfg->by_path, (ares_view){ f->path, len }, &i)) {
            f->option = &cfg->options.items[i];
            /* what lies inside the value: "k" of "data.kwargs.k" */
            f->rest = f->path[len] ? f->path + len + 1 : "";
            f->kind = *f->rest && !config_is_open(f->option->option->type) ? FOUND_INSIDE_VALUE
                                                                           : FOUND_OPTION;
            return true;
        }
        /* the part before the last dot: "a.b.c" -> "a.b" */
        while (len > 0 && f->path[len - 1] != '.') len--;
        if (len == 0) return false;
        len--;
    }
}

/*
 * Whether the path begins with `from` [n], in which ? stands for any one key: *covered bytes, and
 * the key that stands there.
 */
static bool begins(const char *path, const char *from, size_t n, size_t *covered, ares_view *key)
{
    const char *p = path;
    for (size_t i = 0; i < n; i++) {
        if (from[i] != '?') {
            if (*p++ != from[i]) return false;
            continue;
        }
        *key = (ares_view){ p, strcspn(p, ".") };
        if (!key->len) return false;
        p += key->len;
    }
    *covered = (size_t)(p - path);
    return *p == '.' || *p == 0;
}

/* How an alias fits a path. */
typedef struct match {
    const ares_config_alias *alias; /* NULL: nothing */
    size_t covered;                 /* bytes of the path */
    bool section;                   /* the alias ends in ".*" */
    ares_view key;                  /* the key of the path that ? stands for */
} match;

/* Whether the row holds for some values of its word only. */
static bool config_alias_is_of_value(const ares_config_alias *a)
{
    return a->when && *a->when == '=';
}

/*
 * The alias whose `from` covers most of the path. An exact name wins over a section of the same
 * length.
 */
static match find_alias(const ares_config *cfg, const char *path)
{
    match best = { 0 };
    for (int i = 0; i < cfg->aliases.count; i++) {
        const ares_config_alias *a = cfg->aliases.items[i];
        size_t len = strlen(a->from);
        match m = { .alias = a, .section = len > 2 && strcmp(a->from + len - 2, ".*") == 0 };
        if (config_alias_is_of_value(a)) continue;
        if (!begins(path, a->from, m.section ? len - 2 : len, &m.covered, &m.key)) continue;
        /* the most precise row */
        if (m.covered > best.covered || (m.covered == best.covered && best.section && !m.section))
            best = m;
    }
    return best;
}

/* `to` with its ? filled in, then the part of the path that the alias does not cover. */
static const char *renamed(ares_config *cfg, const char *path, const match *m)
{
    const char *to = m->alias->to, *hole = strchr(to, '?'), *tail = path + m->covered;
    size_t len = strlen(to), head = hole ? (size_t)(hole - to) : 0;
    if (len > 2 && strcmp(to + len - 2, ".*") == 0) len -= 2;
    if (!hole) return ares_arena_printf(&cfg->arena, "%.*s%s", (int)len, to, tail);
    return ares_arena_printf(&cfg->arena, "%.*s%.*s%.*s%s", (int)head, to, (int)m->key.len,
                             m->key.data, (int)(len - head - 1), hole + 1, tail);
}

enum { ALIAS_ROUNDS = 8 }; /* an alias may lead to another; a circle of them ends here */

/*
 * Whether the node's value is in `list`: values, each in one line of YAML, with | between them. An
 * item *x stands for x and for any text that ends in .x.
 */
static bool has_value(ares_config *cfg, const char *list, const config_node *node)
{
    ares_str text = { 0 };
    config_emit_flow(&text, node, true);
    bool found = false;
    for (const char *one = list; !found; one++) {
        size_t n = strcspn(one, "|");
        config_node value = { .kind = CONFIG_SCALAR, .text = ares_arena_copy(&cfg->arena, one, n) };
        bool ends = *value.text == '*' && text.len >= n && text.data[text.len - n] == '.';
        found = (ends && strcmp(text.data + text.len - n + 1, value.text + 1) == 0) ||
                strcmp(text.data, value.text + (*value.text == '*')) == 0 ||
                (!node->quoted && config_same_value(node, &value));
        one += n;
        if (!*one) break;
    }
    ares_str_fini(&text);
    return found;
}

const ares_config_alias *config_alias_of_value(ares_config *cfg, const char *path,
                                               const config_node *node)
{
    size_t covered;
    ares_view key;
    for (int round = 0; round < ALIAS_ROUNDS; round++) {
        for (int i = 0; i < cfg->aliases.count; i++) {
            const ares_config_alias *a = cfg->aliases.items[i];
            if (!config_alias_is_of_value(a) ||
                !begins(path, a->from, strlen(a->from), &covered, &key) || path[covered])
                continue;
            if (has_value(cfg, a->when + 1, node)) return a;
        }
        /* a word of a section that has another name means what it means there */
        match m = find_alias(cfg, path);
        if (!m.alias || !m.section || m.alias->when || !m.alias->to || !*m.alias->to) return NULL;
        path = renamed(cfg, path, &m);
    }
    return NULL;
}

static bool has(const ares_map *map, const char *path)
{
    return ares_map_get(map, ares_view_of(path), NULL);
}

bool config_is_alias_section(ares_config *cfg, const char *path)
{
    if (has(cfg->alias_sections, path)) return true;
    for (const char *key = path; *key;) { /* the row may have a ? in the place of any key */
        size_t n = strcspn(key, ".");
        if (has(cfg->alias_sections,
                ares_arena_printf(&cfg->arena, "%.*s?%s", (int)(key - path), path, key + n)))
            return true;
        key += n + (key[n] == '.');
    }
    return false;
}

config_found config_find(ares_config *cfg, const char *path)
{
    config_found f = { .kind = FOUND_NOTHING, .path = path };
    for (int round = 0; round < ALIAS_ROUNDS; round++) {
        if (find_option(cfg, &f)) return f;
        f.kind = FOUND_USER;
        if (strncmp(f.path, "x-", 2) == 0) return f;
        match m = find_alias(cfg, f.path);
        const ares_config_alias *a = m.alias;
        bool exact = a && !f.path[m.covered] && !m.section;
        f.kind = FOUND_SECTION;
        if (!exact && (has(cfg->sections, f.path) || config_is_alias_section(cfg, f.path)))
            return f;
        f.kind = FOUND_NOTHING;
        if (!a) return f;
        f.alias = a;
        if (!a->to) f.kind = FOUND_REFUSED;
        else if (!*a->to) f.kind = FOUND_IGNORED;
        else if (a->when) f.kind = FOUND_PENDING;
        else if (strchr(a->to, '&')) f.kind = FOUND_SEVERAL;
        if (f.kind == FOUND_SEVERAL && f.path[m.covered])
            f.kind = FOUND_NOTHING; /* nothing lies below such a word */
        if (f.kind != FOUND_NOTHING || strchr(a->to, '&')) return f;
        f.path = renamed(cfg, f.path, &m);
    }
    return f;
}

const char *config_alias_target(ares_config *cfg, const char *path)
{
    config_found f = config_find(cfg, path);
    return f.kind == FOUND_OPTION || f.kind == FOUND_SECTION || f.kind == FOUND_USER ? f.path
                                                                                     : path;
}

bool config_is_known(ares_config *cfg, const char *path)
{
    return config_find(cfg, path).kind != FOUND_NOTHING;
}

void config_announce(ares_config *cfg, const char *from, const char *to, const char *note)
{
    if (ares_map_get(cfg->announced, ares_view_of(from), NULL)) return;
    ares_map_put(cfg->announced, ares_view_of(from), 1);
    if (*to) config_note(cfg, ARES_LOG_INFO, "%s -> %s", from, to);
    else
        config_note(cfg, ARES_LOG_INFO, "%s -> (ignored: %s)", from,
                    note ? note : "it has no meaning here");
}

/* ---- what `words` of ares_config_translate_with may call, between reading and binding */

void ares_config_translate_with(ares_config *cfg, void (*words)(ares_config *cfg))
{
    ARES_ASSERT(cfg->n_words < ARES_COUNT(cfg->words));
    cfg->words[cfg->n_words++] = words;
}

const char *ares_config_given(ares_config *cfg, const char *path)
{
    config_node *node = config_walk(cfg->root, path);
    if (!node || !node->layer || node->kind != CONFIG_SCALAR) return NULL;
    config_interpolate(cfg, node);
    if (node->state == CONFIG_BROKEN || config_is_required(node)) return NULL;
    /* one spelling, for callers that compare texts: true for TRUE; as an integer, 4 for 0x4, 4.0 */
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

const char *ares_config_word(const ares_config *cfg, const char *path)
{
    const config_node *node = config_walk(cfg->root, path);
    return node && node->written ? node->written : path;
}

/* Of two options, which was set later: below 0, 0 or above; 0 where one is not there. */
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

/* Gives an option a value as if it were its default: no layer has set it. */
static config_node *set_text(ares_config *cfg, const char *path, const char *text)
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

bool ares_config_preset(ares_config *cfg, const char *path, const char *value, const char *by)
{
    if (ares_config_is_set(cfg, path)) return false;
    config_node *node = set_text(cfg, path, value);
    if (node) node->written = ares_arena_printf(&cfg->arena, "%s", by);
    return true;
}

void ares_config_follow(ares_config *cfg, const char *path, const char *value, const char *from)
{
    config_node place = *config_walk(cfg->root, from); /* a copy: setting path may replace it */
    config_node *node = set_text(cfg, path, value);
    if (!node) return;
    config_node_stamp(node, place.layer, place.line, place.source);
    node->written = ares_arena_printf(&cfg->arena, "%s", place.written ? place.written : from);
}

void ares_config_move(ares_config *cfg, const char *key, const char *path)
{
    const config_node *from = config_walk(cfg->root, key);
    config_node *to = config_walk(cfg->root, path), *copy;
    if (!from || config_asks_nothing(from) || config_order(to, from) > 0) return;
    copy = config_node_copy(cfg, from, config_node_depth(to));
    if (!copy) return;
    copy->written = from->written;
    config_node_replace(to, copy);
    if (copy->written) config_announce(cfg, copy->written, path, NULL);
}

void ares_config_forget(ares_config *cfg, const char *path)
{
    config_reset(cfg, path, NULL);
}

/* ---- words of other trainers whose meaning depends on options, decided after all layers */

/* "path=value" or "path!=value", or several of them joined by '&', all of which must hold. */
static bool holds(ares_config *cfg, const char *when)
{
    /* a copy that strsep may cut */
    char *list = ares_arena_printf(&cfg->arena, "%s", when), *rest = list;
    for (char *one; (one = strsep(&rest, "&"));) {
        char *equals = strchr(one, '=');
        ARES_ASSERT(equals && equals > one);
        bool other = equals[-1] == '!';
        equals[other ? -1 : 0] = 0;
        config_node *on = config_walk(cfg->root, one);
        if (!on) return false;
        config_interpolate(cfg, on);
        ares_str is = { 0 };
        config_emit_flow(&is, on, true); /* True is true */
        bool same = strcmp(is.data, equals + 1) == 0;
        ares_str_fini(&is);
        if (same == other) return false;
    }
    return true;
}

static const char *default_written(ares_config *cfg, const config_default *d)
{
    return ares_arena_printf(&cfg->arena, "%s's default", d->row->trainer);
}

/* Gives an option another trainer's default, and tells whether it did. No layer sets it by that. */
static bool set_default(ares_config *cfg, const config_default *d)
{
    const ares_config_default *row = d->row;
    const char *error;
    config_node *old = config_walk(cfg->root, row->path), *node;
    /* a null counts as a value that nobody gave */
    bool null = old && config_asks_nothing(old);
    if (old && (old->written || old->layer) && !null) return false;
    if (row->when && !holds(cfg, row->when)) return false;
    if (old) node = set_text(cfg, row->path, row->value);
    else { /* a key of an open map, which only config_put makes */
        node = config_yaml_value(cfg, ARES_OPTION_tree, row->value, &error);
        if (!node) return false;
        config_node_stamp(node, d->by->layer, d->by->line, d->by->source);
        config_put(cfg, row->path, node, CONFIG_SET);
        node = config_walk(cfg->root, row->path);
    }
    if (!node) return false;
    node->written = default_written(cfg, d);
    return true;
}

void config_apply_defaults(ares_config *cfg)
{
    for (int i = 0; i < cfg->defaults.count; i++) {
        config_default *d = &cfg->defaults.items[i];
        d->set = d->by && set_default(cfg, d);
    }
}

/* Those that stayed: a word whose meaning was decided later may have given another value. */
void config_tell_defaults(ares_config *cfg)
{
    for (int i = 0; i < cfg->defaults.count;) {
        const char *trainer = cfg->defaults.items[i].row->trainer;
        ares_str told = { 0 };
        for (; i < cfg->defaults.count; i++) {
            const config_default *d = &cfg->defaults.items[i];
            if (strcmp(d->row->trainer, trainer) != 0) break;
            const char *written = d->set ? config_walk(cfg->root, d->row->path)->written : NULL;
            if (written && strcmp(written, default_written(cfg, d)) == 0)
                ares_str_addf(&told, "%s%s = %s", told.len ? ", " : "", d->row->path,
                              d->row->value);
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

/*
 * Gives the word's value to the option that the row `a` names, unless the option is set itself.
 * `other`: the row by which the word may be ignored.
 */
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
        /* old is of an earlier layer, or of this one and set by a word for several options */
        if (set) config_node_replace(old, p->node);
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
    /* words for which no row held: ignored or refused, once each */
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
