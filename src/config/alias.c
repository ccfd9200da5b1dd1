/*
 * Where a path leads: to an option, into one, to a section, or to one of these by a word of another
 * trainer.
 */
#include "tree.h"

#include <string.h>

bool config_is_open(ares_option_type type)
{
    return type == ARES_OPTION_tree || type == ARES_OPTION_texts || type == ARES_OPTION_i64s ||
           type == ARES_OPTION_f64s;
}

static bool find_option(const ares_config *cfg, config_found *f)
{
    size_t len = strlen(f->path);
    for (;;) {
        int64_t i;
        if (ares_map_get(cfg->by_path, (ares_view){ f->path, len }, &i)) {
            f->option = &cfg->options.items[i];
            f->rest = f->path[len] ? f->path + len + 1 : "";
            f->kind = *f->rest && !config_is_open(f->option->option->type) ? FOUND_INSIDE_VALUE
                                                                           : FOUND_OPTION;
            return true;
        }
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

/* What an alias is to a path. */
typedef struct match {
    const ares_config_alias *alias; /* NULL: nothing */
    size_t covered;                 /* bytes of the path */
    bool section;                   /* the alias ends in ".*" */
    ares_view key;                  /* that stands for ? */
} match;

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
        if (m.covered > best.covered || (m.covered == best.covered && best.section && !m.section))
            best = m;
    }
    return best;
}

bool config_alias_is_of_value(const ares_config_alias *a)
{
    return a->when && *a->when == '=';
}

/*
 * Whether `list`, values in one line of YAML with | between them, has the value of the node; *x: x
 * itself, or any text that ends in .x.
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
    for (int i = 0; i < cfg->aliases.count; i++) {
        const ares_config_alias *a = cfg->aliases.items[i];
        if (!config_alias_is_of_value(a) ||
            !begins(path, a->from, strlen(a->from), &covered, &key) || path[covered])
            continue;
        if (has_value(cfg, a->when + 1, node)) return a;
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
    for (const char *key = path; *key;) { /* by the place of a ? */
        size_t n = strcspn(key, ".");
        if (has(cfg->alias_sections,
                ares_arena_printf(&cfg->arena, "%.*s?%s", (int)(key - path), path, key + n)))
            return true;
        key += n + (key[n] == '.');
    }
    return false;
}

/* What the path becomes: `to` with its ? filled in, and the rest that the alias does not cover. */
static const char *translated(ares_config *cfg, const match *m, const char *path)
{
    const char *to = m->alias->to, *hole = strchr(to, '?');
    size_t len = strlen(to);
    if (len > 2 && strcmp(to + len - 2, ".*") == 0) len -= 2;
    if (!hole) return ares_arena_printf(&cfg->arena, "%.*s%s", (int)len, to, path + m->covered);
    size_t head = (size_t)(hole - to);
    return ares_arena_printf(&cfg->arena, "%.*s%.*s%.*s%s", (int)head, to, (int)m->key.len,
                             m->key.data, (int)(len - head - 1), hole + 1, path + m->covered);
}

config_found config_find(ares_config *cfg, const char *path)
{
    enum { ALIAS_ROUNDS = 8 };
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
        f.path = translated(cfg, &m, f.path);
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
