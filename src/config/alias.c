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
 * The alias whose `from` covers most of the path; `*covered` is the length that it covers. An exact
 * name wins over a section of the same length.
 */
static const ares_config_alias *find_alias(const ares_config *cfg, const char *path,
                                           size_t *covered)
{
    const ares_config_alias *best = NULL;
    size_t whole = strlen(path), best_len = 0;
    for (int i = 0; i < cfg->aliases.count; i++) {
        const ares_config_alias *a = cfg->aliases.items[i];
        size_t len = strlen(a->from);
        bool section = len > 2 && strcmp(a->from + len - 2, ".*") == 0;
        if (section) len -= 2;
        if (len > whole || len <= best_len || memcmp(a->from, path, len) != 0) continue;
        if (path[len] != '.' && path[len] != 0) continue;
        best = a;
        best_len = len;
    }
    for (int i = 0; best && i < cfg->aliases.count; i++)
        if (strlen(cfg->aliases.items[i]->from) == best_len &&
            memcmp(cfg->aliases.items[i]->from, path, best_len) == 0) {
            best = cfg->aliases.items[i];
            break;
        }
    *covered = best_len;
    return best;
}

static bool has(const ares_map *map, const char *path)
{
    return ares_map_get(map, ares_view_of(path), NULL);
}

config_found config_find(ares_config *cfg, const char *path)
{
    enum { ALIAS_ROUNDS = 8 };
    config_found f = { .kind = FOUND_NOTHING, .path = path };
    for (int round = 0; round < ALIAS_ROUNDS; round++) {
        if (find_option(cfg, &f)) return f;
        f.kind = FOUND_USER;
        if (strncmp(f.path, "x-", 2) == 0) return f;
        size_t covered;
        const ares_config_alias *a = find_alias(cfg, f.path, &covered);
        bool exact = a && !f.path[covered] && strlen(a->from) == covered;
        f.kind = FOUND_SECTION;
        if (!exact && (has(cfg->sections, f.path) || has(cfg->alias_sections, f.path))) return f;
        f.kind = FOUND_NOTHING;
        if (!a) return f;
        f.alias = a;
        if (!a->to) f.kind = FOUND_REFUSED;
        else if (!*a->to) f.kind = FOUND_IGNORED;
        else if (a->when) f.kind = FOUND_PENDING;
        else if (strchr(a->to, '&')) f.kind = FOUND_SEVERAL;
        if (f.kind == FOUND_SEVERAL && f.path[covered])
            f.kind = FOUND_NOTHING; /* nothing lies below such a word */
        if (f.kind != FOUND_NOTHING || strchr(a->to, '&')) return f;
        size_t to = strlen(a->to);
        if (to > 2 && strcmp(a->to + to - 2, ".*") == 0) to -= 2;
        f.path = ares_arena_printf(&cfg->arena, "%.*s%s", (int)to, a->to, f.path + covered);
    }
    return f;
}

const char *config_alias_target(ares_config *cfg, const char *path)
{
    config_found f = config_find(cfg, path);
    return f.kind == FOUND_OPTION || f.kind == FOUND_SECTION ? f.path : path;
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
