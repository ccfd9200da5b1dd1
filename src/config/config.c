/*
 * A configuration. First its faults, collected with their places, then declared options and what
 * the rooms ask about them. layer.c and bind.c do the reading.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * ---- faults: collected with their places, and reported together, files before the command line,
 * in order of lines
 */

enum { SHOWN_FAULTS = 100 };

/* "file:line: " or "command line: "; nothing for a default. */
static void add_place(ares_str *out, const config_node *where)
{
    if (!where || !where->layer) return;
    if (where->line) ares_str_addf(out, "%s:%d: ", where->source, where->line);
    else ares_str_add_z(out, "command line: ");
}

/* A formatted text of any length, in the arena. */
static char *format_text(ares_config *cfg, const char *format, va_list args)
{
    ARES_ASSERT(format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    /* measured first: messages hold values of any length */
    char *text = ares_arena_alloc(&cfg->arena, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, format, args);
    return text;
}

/* Notes a fault and frees the text. One without a place comes last. */
static void push(ares_config *cfg, const config_node *where, ares_str *text)
{
    config_fault f = { INT32_MAX, 0, cfg->faults.count,
                       ares_arena_copy(&cfg->arena, text->data, text->len) };
    /* a default has no place */
    if (where && where->layer) f.layer = where->layer, f.line = where->line;
    ares_str_fini(text);
    CONFIG_PUSH(&cfg->faults, f);
}

void config_note_fault(ares_config *cfg, const config_node *where, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *message = format_text(cfg, format, args);
    va_end(args);
    ares_str text = { 0 };
    ares_str_add_z(&text, "config: ");
    add_place(&text, where);
    ares_str_add_z(&text, message);
    push(cfg, where, &text);
}

/* "config: file:line: path = value: what is wrong". */
static void config_value_faultv(ares_config *cfg, const config_node *where, const char *path,
                                const char *format, va_list args)
{
    const char *message = format_text(cfg, format, args);
    ares_str text = { 0 };
    ares_str_add_z(&text, "config: ");
    add_place(&text, where);
    bool kept = where && where->written && strncmp(path, "x-", 2) == 0; /* for a translation */
    ares_str_add_z(&text, kept ? where->written : path);
    /* "???" is no value to show */
    if (where && !config_is_required(where)) {
        ares_str_add_z(&text, " = ");
        config_node_show(where, &text);
    }
    if (where && where->written && !kept) ares_str_addf(&text, " (written %s)", where->written);
    ares_str_addf(&text, ": %s", message);
    push(cfg, where, &text);
}

void config_value_fault(ares_config *cfg, const config_node *where, const char *path,
                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    config_value_faultv(cfg, where, path, format, args);
    va_end(args);
}

/* Logs at once, and keeps the text for callers that ask later. */
void config_note(ares_config *cfg, ares_log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = format_text(cfg, format, args);
    va_end(args);
    CONFIG_PUSH(&cfg->notes, text);
    ares_log(level, "config: %s", text);
}

/* ---------------------------------------------------------------- did you mean */

/* Whether all keys before the last ones are the same. */
static bool same_section(const char *a, const char *b)
{
    size_t n = (size_t)(ares_after_last(a, '.') - a);
    return n == (size_t)(ares_after_last(b, '.') - b) && memcmp(a, b, n) == 0;
}

/*
 * Whether the sections of `path` are sections of `of`, in this order, so that path may be `of` with
 * some left out.
 */
static bool leaves_out(const char *path, const char *of)
{
    const char *end = ares_after_last(path, '.');
    while (path < end) {
        /* the next section of both, with its dot */
        size_t n = strcspn(path, ".") + 1, m = strcspn(of, ".") + 1;
        if (!of[m - 1]) return false;
        if (n == m && memcmp(path, of, n) == 0) path += n;
        of += m;
    }
    return true;
}

/* Whether the sections before the last words are misspellings of one another. */
static bool near_sections(const char *a, const char *b)
{
    char x[CONFIG_MAX_KEY], y[CONFIG_MAX_KEY];
    size_t n = (size_t)(ares_after_last(a, '.') - a), m = (size_t)(ares_after_last(b, '.') - b);
    /* a path without sections is near none */
    if (!n || !m || n > sizeof x || m > sizeof y) return false;
    snprintf(x, sizeof x, "%.*s", (int)n - 1, a);
    snprintf(y, sizeof y, "%.*s", (int)m - 1, b);
    const char *name = y;
    return ares_nearest(x, &name, 1) != NULL;
}

/*
 * The option that was probably meant: a misspelling of it, or its name with sections left out. No
 * other option is named, however like its last word is: "multi_turn.enable" is no
 * "filter_groups.enable". Tried in turn: a like word in the same section, the same word where
 * sections are left out, the nearest whole path with a like word.
 */
void config_suggest(const ares_config *cfg, const char *path, ares_str *out)
{
    int n = cfg->options.count, near = 0, same = 0, like = 0;
    const char *word = ares_after_last(path, '.'), *found = NULL;
    const char **names = ares_malloc((size_t)(n + 1) * sizeof *names);
    for (int i = 0; i < n; i++)
        if (same_section(cfg->options.items[i].path, path))
            names[near++] = ares_after_last(cfg->options.items[i].path, '.');
    /* 1. the same section, another last word */
    const char *leaf = ares_nearest(word, names, near);
    for (int i = 0; leaf && i < n && !found; i++) {
        const char *p = cfg->options.items[i].path;
        if (same_section(p, path) && strcmp(ares_after_last(p, '.'), leaf) == 0) found = p;
    }
    /* 2. the same last word, with sections left out */
    for (int i = 0; i < n && !found && same < 3; i++) {
        const config_option *o = &cfg->options.items[i];
        if (!o->again && strcmp(ares_after_last(o->path, '.'), word) == 0 &&
            leaves_out(path, o->path))
            names[same++] = o->path;
    }
    if (same) {
        ares_str_add_z(out, "; did you mean ");
        for (int i = 0; i < same; i++)
            ares_str_addf(out, "%s'%s'", i == 0 ? "" : i + 1 < same ? ", " : " or ", names[i]);
        ares_str_add_char(out, '?');
    } else if (!found) {
        for (int pass = 0; pass < 2; pass++) { /* the nearest last word, then the paths with it */
            int k = 0;
            for (int i = 0; i < n; i++) {
                const char *p = cfg->options.items[i].path, *leaf_of_p = ares_after_last(p, '.');
                if (strcmp(word, leaf_of_p) == 0 ? !near_sections(path, p) : !leaves_out(path, p))
                    continue;
                /* 3. the nearest path of all */
                if (pass == 0) names[k++] = leaf_of_p;
                else if (leaf && strcmp(leaf, leaf_of_p) == 0) names[k++] = p;
            }
            if (pass == 0) leaf = ares_nearest(word, names, k);
            else like = k;
        }
        found = ares_nearest(path, names, like);
        if (!found && like) found = names[0];
    }
    if (found) ares_str_addf(out, "; did you mean '%s'?", found);
    /* nothing is near: a short section is shown whole */
    else if (!same && near && near <= 12) {
        ares_str_add_z(out, " (options there: ");
        for (int i = 0, shown = 0; i < n; i++) {
            const config_option *o = &cfg->options.items[i];
            if (o->again || !same_section(o->path, path)) continue;
            ares_str_addf(out, "%s%s", shown++ ? ", " : "", ares_after_last(o->path, '.'));
        }
        ares_str_add_char(out, ')');
    }
    ares_free(names);
}

/* ---------------------------------------------------------------- the report */

/* The order of the report: by layer, line, and time. */
static int by_place(const void *a, const void *b)
{
    const config_fault *x = a, *y = b;
    if (x->layer != y->layer) return ARES_CMP(x->layer, y->layer);
    if (x->line != y->line) return ARES_CMP(x->line, y->line);
    return ARES_CMP(x->order, y->order);
}

/* ARES_OK, or one error with all faults in the order of their places. */
int config_report(ares_config *cfg)
{
    int n = cfg->faults.count;
    if (n == 0) return ARES_OK;
    qsort(cfg->faults.items, (size_t)n, sizeof *cfg->faults.items, by_place);
    ares_str text = { 0 };
    for (int i = 0; i < n && i < SHOWN_FAULTS; i++)
        ares_str_addf(&text, "%s%s", i ? "\n" : "", cfg->faults.items[i].text);
    if (n > SHOWN_FAULTS) ares_str_addf(&text, "\nconfig: and %d more faults", n - SHOWN_FAULTS);
    ares_fail(ARES_ECONFIG, "%s", text.data);
    ares_str_fini(&text);
    return ARES_ECONFIG;
}

int ares_config_fault_count(const ares_config *cfg)
{
    return cfg->faults.count;
}

/*
 * ---- a configuration: options are declared, and asked about when bind.c has filled the structs.
 * The tree holds the default of every declared option; layers change it in place (layer.c).
 */

/* An empty configuration; rooms add their options to it. */
ares_config *ares_config_new(void)
{
    ares_config *cfg = ares_calloc(1, sizeof *cfg);
    cfg->by_path = ares_map_new();
    cfg->sections = ares_map_new();
    cfg->alias_sections = ares_map_new();
    cfg->announced = ares_map_new();
    cfg->root = config_node_new(cfg, CONFIG_MAP);
    return cfg;
}

void ares_config_free(ares_config *cfg)
{
    if (!cfg) return;
    ares_map_free(cfg->by_path);
    ares_map_free(cfg->sections);
    ares_map_free(cfg->alias_sections);
    ares_map_free(cfg->announced);
    ares_free(cfg->options.items);
    ares_free(cfg->aliases.items);
    ares_free(cfg->faults.items);
    ares_free(cfg->notes.items);
    ares_free(cfg->pending.items);
    ares_free(cfg->defaults.items);
    ares_free(cfg->bound.items);
    ares_free(cfg->schedules.items);
    ares_arena_fini(&cfg->arena);
    ares_free(cfg);
}

/* ---------------------------------------------------------------- declaring */

config_option *config_option_at(const ares_config *cfg, const char *path)
{
    int64_t i;
    return ares_map_get(cfg->by_path, ares_view_of(path), &i) ? &cfg->options.items[i] : NULL;
}

/* Puts the default into the tree below `under`, with the sections that its path needs. */
void config_add_default(ares_config *cfg, config_node *under, const ares_option *option)
{
    const char *path = option->path, *error;
    /* the sections before the last word */
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        config_node *section = config_node_find(under, path, (size_t)(dot - path));
        if (!section) {
            section = config_node_new(cfg, CONFIG_MAP);
            if (!section) return;
            section->key = ares_arena_copy(&cfg->arena, path, (size_t)(dot - path));
            config_node_add(under, section);
        }
        ARES_ASSERT(section->kind == CONFIG_MAP);
        under = section;
    }
    config_node *node = config_yaml_value(cfg, option->type, option->text, &error);
    ARES_ASSERT(!error);
    if (!node) return;
    config_node_stamp(node, 0, 0, NULL);
    node->key = path;
    config_node *old = config_node_find(under, path, strlen(path));
    /* pointers to the node stay valid */
    if (old) config_node_replace(old, node);
    else config_node_add(under, node);
}

/* "a", "b.c" -> "a.b.c"; either may be empty. */
const char *config_path_join(ares_config *cfg, const char *prefix, const char *path)
{
    if (!prefix || !*prefix) return path;
    return *path ? ares_arena_printf(&cfg->arena, "%s.%s", prefix, path) : prefix;
}

/* "a[0].b" -> "a.0.b", OmegaConf allows both. */
char *config_path_dotted(ares_config *cfg, const char *path, size_t len)
{
    char *copy = ares_arena_copy(&cfg->arena, path, len), *to = copy;
    for (const char *p = copy; *p; p++) {
        if (*p == '[') *to++ = '.';
        else if (*p != ']') *to++ = *p;
    }
    *to = 0;
    return copy;
}

/* Every part of the path that ends before a dot. */
static void add_sections(ares_map *sections, const char *path)
{
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.'))
        ares_map_put(sections, (ares_view){ path, (size_t)(dot - path) }, 1);
}

/* Zeroed memory that lives as long as the configuration. */
void *ares_config_alloc(ares_config *cfg, size_t bytes)
{
    return ares_arena_calloc(&cfg->arena, 1, bytes + 1);
}

void ares_config_add_options(ares_config *cfg, const char *prefix, ares_option_table *table,
                             void *into)
{
    int n;
    const ares_option *options = table(&n);
    prefix = prefix ? ares_arena_printf(&cfg->arena, "%s", prefix) : "";
    for (int i = 0; i < n; i++) {
        const ares_option *o = &options[i];
        const char *path = config_path_join(cfg, prefix, o->path);
        const config_option *first = config_option_at(cfg, path);
        ARES_ASSERT(config_constraint_ok(o->type, o->constraint));
        if (first) { /* a second room reads the option: both must mean the same */
            const ares_option *f = first->option;
            ARES_ASSERT(f->type == o->type && !strcmp(f->text, o->text) &&
                        !strcmp(f->constraint, o->constraint) && f->flags == o->flags);
        } else {
            ARES_ASSERT(!config_walk(cfg->root, path)); /* not a section already */
            ares_option whole = *o;
            /* from the root, with the prefix */
            whole.path = path;
            config_add_default(cfg, cfg->root, &whole);
            ares_map_put(cfg->by_path, ares_view_of(path), cfg->options.count);
            add_sections(cfg->sections, path);
        }
        /* also for the second room: each fills a struct of its own */
        CONFIG_PUSH(&cfg->options, (config_option){ o, path, o->constraint, into, first != NULL });
    }
}

void ares_config_add_choices(ares_config *cfg, const char *path, const char *const *names, int n)
{
    ares_str text = { 0 };
    config_option *o = config_option_at(cfg, path);
    ARES_ASSERT(o && o->option->type == ARES_OPTION_choice && n > 0);
    /* null stays allowed */
    if (o->constraint[0] == '?') ares_str_add_char(&text, '?');
    for (int i = 0; i < n; i++) ares_str_addf(&text, "%s%s", i ? "|" : "", names[i]);
    const char *constraint = ares_arena_copy(&cfg->arena, text.data, text.len);
    ares_str_fini(&text);
    for (int i = 0; i < cfg->options.count; i++)
        if (strcmp(cfg->options.items[i].path, path) == 0)
            cfg->options.items[i].constraint = constraint;
}

void ares_config_add_aliases(ares_config *cfg, const ares_config_alias *aliases, int n)
{
    for (int i = 0; i < n; i++) {
        const ares_config_alias *a = &aliases[i];
        CONFIG_PUSH(&cfg->aliases, a);
        size_t len = strlen(a->from);
        bool section = len > 2 && strcmp(a->from + len - 2, ".*") == 0;
        /* refused or ignored as a whole, not word by word */
        if (section && (!a->to || !*a->to)) len -= 2;
        add_sections(cfg->alias_sections, ares_arena_copy(&cfg->arena, a->from, len));
    }
}

void ares_config_add_defaults(ares_config *cfg, const ares_config_default *defaults, int n)
{
    for (int i = 0; i < n; i++)
        CONFIG_PUSH(&cfg->defaults, (config_default){ .row = &defaults[i] });
}

/* ---------------------------------------------------------------- asking, faults */

void ares_config_fault(ares_config *cfg, const char *path, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    config_value_faultv(cfg, config_walk(cfg->root, path), path, format, args);
    va_end(args);
}

const ares_json *ares_config_get(const ares_config *cfg, const char *path)
{
    const config_node *node = config_walk(cfg->root, path);
    return node ? node->json : NULL;
}

/* The scalar as text; NULL for null, maps, lists and what is not there. */
const char *ares_config_get_text(const ares_config *cfg, const char *path)
{
    const config_node *node = config_walk(cfg->root, path);
    if (!node || node->kind != CONFIG_SCALAR || config_value_of(node).type == CONFIG_NULL)
        return NULL;
    return node->text;
}

/* Whether a layer has set the node or anything below it. */
static bool any_set(const config_node *node)
{
    if (node->layer) return true;
    for (const config_node *child = node->first; child; child = child->next)
        if (any_set(child)) return true;
    return false;
}

bool ares_config_is_set(const ares_config *cfg, const char *path)
{
    const config_node *node = config_walk(cfg->root, path);
    return node && any_set(node);
}

/* The name by which the user gave the option, where that is another one; else NULL. */
const char *ares_config_written(const ares_config *cfg, const char *path)
{
    const config_node *node = config_walk(cfg->root, path);
    return node ? node->written : NULL;
}

/* Whether the option may change when a run goes on, since it changes no result. */
bool ares_config_no_result(const ares_config *cfg, const char *path)
{
    const config_option *o = config_option_at(cfg, path);
    return o && (o->option->flags & ARES_NO_RESULT);
}
