/* What changes a configuration: YAML layers, then overrides and command lines. */
#include "internal.h"

#include <string.h>

#include "ares/core.h"

/*
 * ---- layers: what a file or an override does to the tree
 *
 * Aliases are applied key by key while a layer is read, not on the merged tree, because an old name
 * in a later layer must win over the new name in an earlier one.
 */

/* ---------------------------------------------------------------- setting */

/* Whether the value is, or has in it, an interpolation that is not resolved yet. */
static bool is_reference(const config_node *node)
{
    return node->kind == CONFIG_SCALAR && strstr(node->text, "${");
}

/* Whether the node would lie too deep below `under`; notes a fault if so. */
static bool too_deep(ares_config *cfg, const config_node *under, const config_node *node,
                     const char *path)
{
    if (config_node_depth(under) + config_node_height(node) <= CONFIG_MAX_DEPTH) return false;
    config_note_fault(cfg, node, "%.200s: nests deeper than %d", path, CONFIG_MAX_DEPTH);
    return true;
}

/* The node counts as set where `from` stands. */
static void take_place(config_node *node, const config_node *from)
{
    node->layer = from->layer;
    node->line = from->line;
    node->source = from->source;
    node->written = from->written;
}

/* Maps merge; everything else replaces. */
static void merge(config_node *into, config_node *node)
{
    if (into->kind != CONFIG_MAP || node->kind != CONFIG_MAP) {
        config_node_replace(into, node);
        return;
    }
    for (config_node *child = node->first, *after; child; child = after) {
        after = child->next;
        config_node *same = config_node_find(into, child->key, strlen(child->key));
        if (same) merge(same, child);
        else config_node_add(into, child);
    }
    take_place(into, node);
}

/*
 * Which of two values was set later: below 0, 0 or above. All words of one command line count as
 * one time.
 */
int config_order(const config_node *a, const config_node *b)
{
    if (!a->line && !b->line && a->layer && b->layer) return 0;
    return ARES_CMP(a->layer, b->layer);
}

/* A null: in a file of another trainer nobody gave a value. */
bool config_asks_nothing(const config_node *node)
{
    return node->kind == CONFIG_SCALAR && config_value_of(node).type == CONFIG_NULL;
}

/*
 * Whether the value is ${word} or ${oc.select:word,default} with another name of the same option,
 * as other trainers' files have where one value has two names. Such a value sets nothing.
 */
static bool refers_to_itself(ares_config *cfg, const config_node *node, const char *path)
{
    static const char select[] = "oc.select:";
    size_t n = node->kind == CONFIG_SCALAR ? strlen(node->text) : 0;
    if (n < 4 || strncmp(node->text, "${", 2) != 0 || node->text[n - 1] != '}') return false;
    const char *word = ares_arena_copy(&cfg->arena, node->text + 2, n - 3);
    if (strncmp(word, select, strlen(select)) == 0) {
        word += strlen(select);
        word = ares_arena_copy(&cfg->arena, word, strcspn(word, ", "));
    }
    return (node->written || strcmp(word, path) != 0) &&
           strcmp(config_alias_target(cfg, word), path) == 0;
}

/*
 * Two names of an option in one file, or on one command line, must agree: neither is the later one.
 * A null beside a value asks for nothing.
 */
static void set_option(ares_config *cfg, const config_found *f, config_node *node)
{
    config_node *old = config_walk(cfg->root, f->path);
    if (!old || too_deep(cfg, old, node, f->path) || refers_to_itself(cfg, node, f->path)) return;
    bool together = old->layer && config_order(old, node) == 0;
    const char *was = old->written ? old->written : f->path,
               *is = node->written ? node->written : f->path;
    bool respelled = strcmp(was, is) != 0;
    if (together && respelled && config_asks_nothing(old) != config_asks_nothing(node)) {
        /* of a value and a null under two names the value counts */
        if (config_asks_nothing(old)) merge(old, node);
    } else if (together && old->weak != node->weak) {
        /* a word for several options yields to the name of one of them */
        if (old->weak) merge(old, node);
    } else if (together && respelled && config_same_value(old, node)) return;
    /* a file: the fault can name the line of the first */
    else if (together && node->line)
        config_note_fault(cfg, node, "%s: set twice in this file (first in line %d%s%s); keep one",
                          f->path, old->line, old->written ? " as " : "",
                          old->written ? old->written : "");
    else if (together && respelled)
        config_value_fault(cfg, node, f->path,
                           "set as %s too, to another value; both are one option, so keep one",
                           was);
    else merge(old, node);
}

/* a+=[x] and a+=x. A scalar becomes a list of itself first, and null an empty list. */
static void append(ares_config *cfg, const config_found *f, config_node *list, config_node *node)
{
    ares_option_type type = f->option->option->type;
    if (!config_is_open(type) || is_reference(list)) {
        config_note_fault(cfg, node, "%s: += appends to a list, and this %s", f->path,
                          config_is_open(type) ? "is an interpolation; set it whole"
                                               : "takes one value");
        return;
    }
    if (list->kind == CONFIG_SCALAR) {
        bool null = config_value_of(list).type == CONFIG_NULL;
        config_node *item = null ? NULL : config_node_copy(cfg, list, 0);
        /* the node stays, so that its parent still points to it */
        *list = (config_node){
            .kind = CONFIG_LIST, .key = list->key, .parent = list->parent, .next = list->next
        };
        if (item) config_node_add(list, item);
    }
    if (list->kind != CONFIG_LIST) {
        config_note_fault(cfg, node, "%s: += appends to a list, and this is a map", f->path);
        return;
    }
    take_place(list, node);
    if (too_deep(cfg, list, node, f->path)) return;
    if (node->kind != CONFIG_LIST) {
        config_node_add(list, node);
        return;
    }
    for (config_node *item = node->first, *after; item; item = after) {
        after = item->next;
        config_node_add(list, item);
    }
}

/*
 * The child that the first `len` bytes of rest name; an open map gets it if it is missing. NULL
 * after a fault.
 */
static config_node *step_inside(ares_config *cfg, const config_found *f, config_node *at,
                                const char *rest, size_t len, const config_node *node,
                                config_how how)
{
    bool last = rest[len] == 0, open = f->option->option->type == ARES_OPTION_tree;
    if (len == 0 || len > CONFIG_MAX_KEY) {
        config_note_fault(cfg, node, "%.200s: a key of %zu bytes; keys have 1 to %d", f->path, len,
                          CONFIG_MAX_KEY);
        return NULL;
    }
    if (is_reference(at)) {
        config_note_fault(cfg, node, "%s: inside an interpolation; set the option whole", f->path);
        return NULL;
    }
    if (at->kind == CONFIG_SCALAR && open && config_value_of(at).type == CONFIG_NULL)
        *at = (config_node){
            .kind = CONFIG_MAP, .key = at->key, .parent = at->parent, .next = at->next
        };
    if (how == CONFIG_ADD && last && at->kind != CONFIG_MAP) {
        config_note_fault(cfg, node,
                          "%s: + adds a key to an open map, and this is not one; write %s=...",
                          f->path, f->path);
        return NULL;
    }
    if (at->kind == CONFIG_LIST) {
        config_node *item = config_node_item(at, rest, len);
        if (!item)
            config_note_fault(
                cfg, node,
                "%s: no item '%.*s' in a list of %lld; items count from 0, += [x] appends", f->path,
                (int)len, rest, (long long)at->count);
        return item;
    }
    if (at->kind != CONFIG_MAP) {
        config_note_fault(cfg, node,
                          "%s: '%.*s' is inside a value that is neither a map nor a list", f->path,
                          (int)len, rest);
        return NULL;
    }
    config_node *child = config_node_find(at, rest, len);
    if (child) return child;
    if (config_node_depth(at) >= CONFIG_MAX_DEPTH) {
        config_note_fault(cfg, node, "%.200s: nests deeper than %d", f->path, CONFIG_MAX_DEPTH);
        return NULL;
    }
    child = config_node_new(cfg, last ? CONFIG_SCALAR : CONFIG_MAP);
    if (!child) return NULL;
    child->text = "";
    child->key = ares_arena_copy(&cfg->arena, rest, len);
    take_place(child, node);
    config_node_add(at, child);
    return child;
}

/* Sets what lies inside the value of an option: a key of a map, an item of a list. */
static void set_inside(ares_config *cfg, const config_found *f, config_node *node, config_how how)
{
    config_node *option = config_walk(cfg->root, f->option->path), *at = option;
    for (const char *rest = f->rest; at && *rest;) {
        size_t len = strcspn(rest, ".");
        at = step_inside(cfg, f, at, rest, len, node, how);
        rest += len;
        if (*rest) rest++;
    }
    if (!at) return;
    /* the option counts as set, although only a part of it is */
    if (!option->layer) take_place(option, node);
    if (how == CONFIG_APPEND) append(cfg, f, at, node);
    else if (!too_deep(cfg, at, node, f->path)) merge(at, node);
}

/* Sets a key below x-anything, which is the user's own, kept for anchors and interpolation. */
static void set_user(ares_config *cfg, const char *path, config_node *node)
{
    config_node *at = cfg->root;
    for (const char *rest = path; *rest;) {
        size_t len = strcspn(rest, ".");
        config_node *child = config_node_find(at, rest, len);
        if (at->kind != CONFIG_MAP || config_node_depth(at) >= CONFIG_MAX_DEPTH) {
            config_note_fault(cfg, node, "%.200s: not a map that could hold it", path);
            return;
        }
        if (!child) {
            child = config_node_new(cfg, CONFIG_MAP);
            if (!child) return;
            child->key = ares_arena_copy(&cfg->arena, rest, len);
            config_node_add(at, child);
        }
        at = child;
        rest += len;
        if (*rest) rest++;
    }
    if (!too_deep(cfg, at, node, path)) merge(at, node);
}

/* Puts every key of a map in its place below path. */
static void set_section(ares_config *cfg, const char *path, config_node *node, config_how how)
{
    if (config_asks_nothing(node)) return; /* "worker:" and nothing below */
    if (node->kind != CONFIG_MAP || how != CONFIG_SET) {
        config_value_fault(cfg, node, path, "a section of options, not a value");
        return;
    }
    for (config_node *child = node->first, *after; child; child = after) {
        after = child->next;
        config_put(cfg,
                   *path ? ares_arena_printf(&cfg->arena, "%s.%s", path, child->key) : child->key,
                   child, CONFIG_SET);
    }
}

/*
 * One word for several options, as TRL's epsilon. An option of them that the same file names itself
 * wins over the word.
 */
static void set_several(ares_config *cfg, const char *path, const char *to, config_node *node,
                        config_how how)
{
    char *list = ares_arena_printf(&cfg->arena, "%s", to), *rest = list;
    config_announce(cfg, path, to, NULL);
    for (char *one; (one = strsep(&rest, "&"));) {
        config_node *copy = config_node_copy(cfg, node, 0);
        if (!copy) return;
        /* an option that the same file names itself wins */
        copy->weak = true;
        copy->written = path;
        config_put(cfg, one, copy, how);
    }
}

/* Refuses an unknown path. canonical: where an alias led from it; suggestions start from there. */
static void refuse_nothing(ares_config *cfg, const char *path, const char *canonical,
                           const config_node *node)
{
    ares_str hint = { 0 };
    config_suggest(cfg, canonical, &hint);
    config_note_fault(cfg, node, "%s: no such %s%s", path,
                      node->kind == CONFIG_MAP && !hint.len ? "section" : "option",
                      hint.len ? hint.data : "");
    ares_str_fini(&hint);
}

/*
 * The default of "${oc.select:word,default}" where the word is no option here: verl's own files
 * write this for keys that they leave out. Any other value is returned as it is.
 */
static config_node *without_select(ares_config *cfg, config_node *node)
{
    static const char select[] = "${oc.select:";
    size_t n = node->kind == CONFIG_SCALAR ? strlen(node->text) : 0, len = strlen(select);
    const char *error;
    if (n <= len || strncmp(node->text, select, len) != 0 || node->text[n - 1] != '}') return node;
    char *word = ares_arena_copy(&cfg->arena, node->text + len, n - len - 1);
    char *comma = strchr(word, ',');
    if (comma) *comma = 0;
    config_found f = config_find(cfg, word);
    /* a word that exists, or that is relative, is left to the interpolation */
    if (*word == '.' ||
        (f.kind != FOUND_NOTHING && f.kind != FOUND_IGNORED && f.kind != FOUND_REFUSED))
        return node;
    ares_view text = ares_view_trim(ares_view_of(comma ? comma + 1 : "null"));
    config_node *value = config_yaml_value(
        cfg, ARES_OPTION_tree, ares_arena_copy(&cfg->arena, text.data, text.len), &error);
    if (!value || error) return node;
    value->key = node->key;
    config_node_stamp(value, node->layer, node->line, node->source);
    return value;
}

/*
 * In files of other trainers a null means that nobody gave a value, and takes back the value of an
 * earlier layer. Returns whether this null was one of another trainer, and so is done with.
 */
static bool put_null(ares_config *cfg, const char *path, const config_found *f, config_node *node)
{
    if (!config_asks_nothing(node)) return false;
    if (f->kind == FOUND_OPTION) {
        config_node *old = config_walk(cfg->root, f->path);
        /* a null under our own name, or one that means something, is a value */
        if (strcmp(f->path, path) == 0 || *f->rest || config_takes_null(cfg, f->option, node))
            return false;
        if (old && old->layer && !old->weak && config_order(old, node) < 0)
            config_reset(cfg, path, node);
    } else if (f->kind == FOUND_PENDING) config_reset(cfg, path, node);
    else if (f->kind != FOUND_REFUSED && f->kind != FOUND_SEVERAL) return false;
    config_announce(cfg, path, "", "asks for nothing");
    return true;
}

/*
 * Applies a row that holds for certain values of a word: the word is refused, ignored, or sets an
 * option to the value that the row names.
 */
static void put_value(ares_config *cfg, const char *path, const ares_config_alias *a,
                      const config_node *from)
{
    const char *equals = a->to ? strchr(a->to, '=') : NULL, *error;
    ares_str word = { 0 };
    if (a->to && strncmp(a->to, "x-", 2) != 0) {
        /* announced as "word=value", since only this value means it */
        ares_str_addf(&word, "%s=", path);
        config_emit_flow(&word, from, true);
        config_announce(cfg, ares_arena_copy(&cfg->arena, word.data, word.len), a->to, a->note);
        ares_str_fini(&word);
    } else if (!a->to) config_value_fault(cfg, from, path, "not accepted: %s", a->note);
    if (!equals) return;
    config_node *node = config_yaml_value(cfg, ARES_OPTION_tree, equals + 1, &error);
    if (!node) return;
    config_node_stamp(node, from->layer, from->line, from->source);
    node->written = path;
    config_put(cfg, ares_arena_copy(&cfg->arena, a->to, (size_t)(equals - a->to)), node,
               CONFIG_SET);
}

/* Sets what a path of a layer names: an option, a section, or a word of another trainer for one. */
void config_put(ares_config *cfg, const char *path, config_node *node, config_how how)
{
    for (int i = 0; i < cfg->defaults.count; i++) {
        /* the path is the word, or lies in it where the word is a section, "x.*" */
        const char *word = cfg->defaults.items[i].row->word;
        size_t n = strlen(word);
        if (word[n - 1] == '*' ? strncmp(path, word, n - 1) == 0 : strcmp(path, word) == 0)
            cfg->defaults.items[i].by = node;
    }
    node = without_select(cfg, node);
    const ares_config_alias *of_value = config_alias_of_value(cfg, path, node);
    if (of_value) {
        put_value(cfg, path, of_value, node);
        return;
    }
    /* "seed" is a word of one trainer, and "seed.train" of another */
    if (node->kind == CONFIG_MAP && how == CONFIG_SET && config_is_alias_section(cfg, path)) {
        set_section(cfg, path, node, how);
        return;
    }
    config_found f = config_find(cfg, path);
    if (how == CONFIG_SET && put_null(cfg, path, &f, node)) return;
    const char *note = f.alias && f.alias->note ? f.alias->note : "it has no counterpart here";
    bool of_all =
        f.alias && strchr(f.alias->from, '?'); /* the keys that ? stands for may be many */
    /* reached by another name, which messages then use */
    if (f.kind == FOUND_OPTION && strcmp(f.path, path) != 0) {
        config_announce(cfg, of_all ? f.alias->from : path, of_all ? f.alias->to : f.path, NULL);
        node->written = path;
    }
    switch (f.kind) {
    case FOUND_OPTION:
        if (*f.rest) set_inside(cfg, &f, node, how);
        else if (how == CONFIG_APPEND) append(cfg, &f, config_walk(cfg->root, f.path), node);
        else set_option(cfg, &f, node);
        break;
    case FOUND_SECTION: set_section(cfg, path, node, how); break;
    case FOUND_USER:
        if (f.alias) node->written = path;
        set_user(cfg, f.path, node);
        break;
    case FOUND_IGNORED: config_announce(cfg, of_all ? f.alias->from : path, "", note); break;
    case FOUND_REFUSED: config_value_fault(cfg, node, path, "not accepted: %s", note); break;
    case FOUND_PENDING: CONFIG_PUSH(&cfg->pending, (config_pending){ f.alias, node, path }); break;
    case FOUND_INSIDE_VALUE:
        config_note_fault(cfg, node, "%s: no such option; '%s' is a value, not a section", path,
                          f.option->path);
        break;
    case FOUND_SEVERAL: set_several(cfg, path, f.alias->to, node, how); break;
    case FOUND_NOTHING: refuse_nothing(cfg, path, f.path, node); break;
    }
}

/*
 * Gives an option, or every option of a section, its default again; removes a key of an open map.
 */
void config_reset(ares_config *cfg, const char *path, const config_node *where)
{
    config_found f = config_find(cfg, path);
    for (int i = 0; i < cfg->defaults.count; i++)
        if (strcmp(cfg->defaults.items[i].row->word, path) == 0) cfg->defaults.items[i].by = NULL;
    if (f.kind == FOUND_PENDING) { /* as if the word had never been used */
        for (int i = 0; i < cfg->pending.count; i++)
            if (strcmp(cfg->pending.items[i].path, path) == 0) cfg->pending.items[i].node = NULL;
        return;
    }
    /* a key inside the value of an option */
    if (f.kind == FOUND_OPTION && *f.rest) {
        config_node *node = config_walk(cfg->root, f.path);
        if (node && node->parent->kind == CONFIG_MAP) config_node_remove(node);
        else config_note_fault(cfg, where, "%s: nothing to remove there", path);
        return;
    }
    if (f.kind != FOUND_OPTION && f.kind != FOUND_SECTION) {
        /* a word without effect has none to take back */
        if (f.kind != FOUND_IGNORED) refuse_nothing(cfg, path, f.path, where);
        return;
    }
    size_t len = strlen(f.path);
    for (int i = 0; i < cfg->options.count; i++) {
        const config_option *o = &cfg->options.items[i];
        if (o->again || strncmp(o->path, f.path, len) != 0 ||
            (o->path[len] != 0 && o->path[len] != '.'))
            continue;
        ares_option whole = *o->option;
        whole.path = o->path;
        config_add_default(cfg, cfg->root, &whole);
    }
}

/* ---------------------------------------------------------------- files */

/* Removes _target_, the Python class of a section, which verl's own files name for Hydra. */
static void drop_classes(config_node *node)
{
    for (config_node *child = node->first, *after; child; child = after) {
        after = child->next;
        if (node->kind == CONFIG_MAP && strcmp(child->key, "_target_") == 0)
            config_node_remove(child);
        else drop_classes(child);
    }
}

void ares_config_load_text(ares_config *cfg, const char *name, ares_view yaml)
{
    ARES_ASSERT(!cfg->resolved);
    cfg->layer = ++cfg->layers;
    config_node *map = config_yaml_read(cfg, ares_arena_printf(&cfg->arena, "%s", name), yaml);
    if (map) {
        drop_classes(map);
        set_section(cfg, "", map, CONFIG_SET);
    } else cfg->unread = true;
    cfg->layer = 0;
}

void ares_config_load_file(ares_config *cfg, const char *path)
{
    ares_str text = { 0 };
    if (ares_input_read(path, &text) == ARES_OK)
        ares_config_load_text(cfg, path, ares_str_view(&text));
    else {
        config_note_fault(cfg, NULL, "--config %s: %s", path, ares_error_message());
        ares_error_clear();
        cfg->unread = true;
    }
    ares_str_fini(&text);
}

/* ---------------------------------------------------------------- overrides */

/*
 * Whether a key of an override is a path: words of sound length without signs that YAML or Hydra
 * reads.
 */
static bool key_is_sound(const char *key, size_t len)
{
    enum { MAX_PATH = 1024 };
    size_t word = 0;
    if (len == 0 || len > MAX_PATH || !ares_view_is_utf8((ares_view){ key, len })) return false;
    for (size_t i = 0; i <= len; i++) {
        bool end = i == len || key[i] == '.';
        if (end && (word == 0 || word > CONFIG_MAX_KEY)) return false;
        if (!end && ((unsigned char)key[i] <= ' ' || strchr("=\"'{},", key[i]))) return false;
        word = end ? 0 : word + 1;
    }
    return true;
}

/* A node with the place of a word of the command line, for faults. */
static config_node place_of(const ares_config *cfg, const char *word)
{
    return (config_node){ .layer = cfg->layer, .source = word, .text = "" };
}

/* A word as a message shows it: cut when long, and not at all when it is no UTF-8. */
static const char *shown(ares_config *cfg, const char *word)
{
    size_t len = strlen(word);
    if (len <= 80 && ares_view_is_utf8((ares_view){ word, len })) return word;
    if (!ares_view_is_utf8((ares_view){ word, len })) return "(not UTF-8)";
    for (len = 80; ((unsigned char)word[len] & 0xC0) == 0x80;) len--;
    return ares_arena_printf(&cfg->arena, "%.*s...", (int)len, word);
}

/* One word of the command line, as Hydra reads it: a layer of its own, so that later ones win. */
void ares_config_override(ares_config *cfg, const char *word)
{
    ARES_ASSERT(!cfg->resolved);
    cfg->layer = ++cfg->layers;
    word = ares_arena_printf(&cfg->arena, "%s", word);
    config_node where = place_of(cfg, word);
    /* Hydra's ++ sets an option or adds a key, which = does here anyway */
    size_t signs = *word == '~' ? 1 : ARES_MIN(strspn(word, "+"), 2);
    const char *equals = strchr(word, '='), *start = word + signs;
    size_t len = equals ? (size_t)(equals - start) : strlen(start);
    config_how how = *word == '+' && signs == 1 ? CONFIG_ADD : CONFIG_SET;
    if (equals && equals > start && equals[-1] == '+') {
        how = CONFIG_APPEND;
        len--;
    }
    char *key = config_path_dotted(cfg, start, equals && equals < start ? 0 : len);
    if (!key_is_sound(key, strlen(key)) || (*word == '~') == (equals != NULL)) {
        config_note_fault(cfg, &where,
                          "'%s': not an override (a.b=value, a.b+=[item], +a.new=value, ~a.b)",
                          shown(cfg, word));
    } else if (*word == '~') {
        config_reset(cfg, key, &where);
    } else {
        const config_option *o = config_option_at(cfg, config_alias_target(cfg, key));
        ares_option_type type = o && how != CONFIG_APPEND ? o->option->type : ARES_OPTION_tree;
        const char *error;
        config_node *node = config_yaml_value(cfg, type, equals + 1, &error);
        if (error)
            config_note_fault(cfg, &where, "'%s': the value is not YAML: %s", shown(cfg, word),
                              error);
        else if (node) {
            config_node_stamp(node, cfg->layer, 0, word);
            config_put(cfg, key, node, how);
        }
    }
    cfg->layer = 0;
}

/* ---------------------------------------------------------------- argv */

/* Whether the word begins with the prefix. */
static bool starts(const char *word, const char *prefix)
{
    return strncmp(word, prefix, strlen(prefix)) == 0;
}

/* Whether the word ends with the suffix. */
static bool ends(const char *word, const char *suffix)
{
    size_t n = strlen(word), m = strlen(suffix);
    return n >= m && strcmp(word + n - m, suffix) == 0;
}

/* Notes a fault of a word of the command line; format takes the word and `what`. */
static void wrong_word(ares_config *cfg, const char *word, const char *format, const char *what)
{
    cfg->layer = ++cfg->layers;
    config_node where = place_of(cfg, word);
    config_note_fault(cfg, &where, format, shown(cfg, word), what);
    cfg->layer = 0;
}

/*
 * "--a.b=c" and "--a.max-len=c": dashes of a key become underscores unless it exists with dashes.
 */
static char *without_dashes(ares_config *cfg, const char *word)
{
    char *copy = ares_arena_printf(&cfg->arena, "%s", word + 2);
    size_t len = strcspn(copy, "=");
    /* cut at the "=" while the key is looked up */
    char kept = copy[len];
    copy[len] = 0;
    bool known = config_is_known(cfg, copy);
    for (size_t i = 0; i < len && !known; i++)
        if (copy[i] == '-') copy[i] = '_';
    copy[len] = kept;
    return copy;
}

bool ares_config_knows(ares_config *cfg, const char *word)
{
    char *key = without_dashes(cfg, word);
    key[strcspn(key, "=")] = 0;
    return config_is_known(cfg, key);
}

/* "--a.b c", or "--a.b" alone for a flag. Returns the number of further words it used. */
static int read_dashed(ares_config *cfg, int left, const char *const *next, const char *word)
{
    const char *key = without_dashes(cfg, word);
    bool value = left > 0 && !starts(next[0], "--"); /* whether the next word may be the value */
    if (strchr(key, '=')) {
        ares_config_override(cfg, key);
        return 0;
    }
    if (!config_is_known(cfg, key)) {
        ares_str hint = { 0 };
        ares_str_add_z(&hint, "");
        if (strlen(key) <= CONFIG_MAX_KEY) config_suggest(cfg, key, &hint);
        wrong_word(cfg, word, "%s: no such option%s", hint.data);
        ares_str_fini(&hint);
        return value && !strchr(next[0], '='); /* probably its value: report only one fault */
    }
    const config_option *o = config_option_at(cfg, config_alias_target(cfg, key));
    if (o && o->option->type == ARES_OPTION_flag) {
        config_scalar type = value ? config_value_read(next[0], false).type : CONFIG_STRING;
        /* after a flag, a word with = or ~ is the next override, not the flag's value */
        value = value && (type == CONFIG_BOOL || (!strchr(next[0], '=') && next[0][0] != '~'));
        if (!value) {
            ares_config_override(cfg, ares_arena_printf(&cfg->arena, "%s=true", key));
            return 0;
        }
    }
    if (!value && o) {
        wrong_word(cfg, word, "%s: needs a value%s", "");
        return 0;
    }
    if (!value) { /* another trainer's flag */
        ares_config_override(cfg, ares_arena_printf(&cfg->arena, "%s=true", key));
        return 0;
    }
    ares_config_override(cfg, ares_arena_printf(&cfg->arena, "%s=%s", key, next[0]));
    return 1;
}

void ares_config_read_args(ares_config *cfg, int argc, const char *const *argv)
{
    for (int pass = 0; pass < 2; pass++) { /* files, then overrides */
        for (int i = 0; i < argc; i++) {
            const char *word = argv[i], *file = NULL;
            if (starts(word, "config=")) file = word + 7;
            else if (starts(word, "--config=")) file = word + 9;
            else if (strcmp(word, "--config") == 0 && i + 1 < argc) file = argv[++i];
            if (file) {
                if (pass == 0) ares_config_load_file(cfg, file);
            } else if (pass == 0) continue;
            else if (strcmp(word, "--config") == 0) wrong_word(cfg, word, "%s: needs a file%s", "");
            else if (starts(word, "--") && word[2])
                i += read_dashed(cfg, argc - i - 1, argv + i + 1, word);
            else if (strchr(word, '=') || word[0] == '~') ares_config_override(cfg, word);
            else if (ends(word, ".yaml") || ends(word, ".yml"))
                wrong_word(cfg, word, "'%s': not an override; did you mean --config %s?", word);
            else
                wrong_word(cfg, word, "'%s': neither an option (key=value) nor --config FILE%s",
                           "");
        }
    }
}
