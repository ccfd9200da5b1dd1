/*
 * ${...}: references to other options and to the environment, resolved on the merged tree.
 *
 * A value that is one interpolation becomes a copy of what it refers to, with its type. Inside a
 * longer text the scalar's text is inserted. The text of an environment variable, or of a default
 * after a comma, is read as if it stood in the file.
 */
#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The values being resolved, innermost first; a value that appears twice is a circle. */
typedef struct chain {
    config_node *node;
    const struct chain *outer;
    int depth;
} chain;

static void resolve(ares_config *cfg, config_node *node, const chain *outer);

/* Notes a fault of the value being resolved; NULL. */
static config_node *broken(ares_config *cfg, const chain *c, const char *format, ...)
    ARES_PRINTF(3, 4);
static config_node *broken(ares_config *cfg, const chain *c, const char *format, ...)
{
    ares_str path = { 0 };
    config_node_path(c->node, &path);
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    config_value_fault(cfg, c->node, path.len ? path.data : "value", "%s", text);
    ares_str_fini(&path);
    return NULL;
}

/*
 * Notes a fault of values that refer to one another. It is reported at the value of the circle that
 * was set last, because a default is rarely what is wrong.
 */
static config_node *circle(ares_config *cfg, const chain *c, const config_node *target)
{
    ares_str text = { 0 };
    const chain *guilty = c;
    config_node_path(target, &text);
    for (const chain *at = c; at; at = at->outer) {
        ares_str path = { 0 };
        config_node_path(at->node, &path);
        ares_str_addf(&text, " <- %s", path.data ? path.data : "");
        ares_str_fini(&path);
        if (at->node->kind == CONFIG_SCALAR && at->node->layer > guilty->node->layer) guilty = at;
        if (at->node == target || text.len > 300) break;
    }
    broken(cfg, guilty, "the interpolation goes in a circle: %s", text.data);
    ares_str_fini(&text);
    return NULL;
}

/*
 * Walks to a path, resolving the interpolations on the way. NULL when absent; *bad when a fault was
 * noted, now or before.
 */
static config_node *reach(ares_config *cfg, config_node *from, const char *path, const chain *c,
                          bool *bad)
{
    config_node *node = from;
    for (;;) {
        /* the node that the path names: its own interpolations are left to the caller */
        bool last = *path == 0;
        bool reference =
            node->kind == CONFIG_SCALAR && node->state != CONFIG_DONE && strstr(node->text, "${");
        if (reference && !last) resolve(cfg, node, c);
        bool in_work = reference && !last && node->state == CONFIG_IN_WORK;
        if ((node->state == CONFIG_BROKEN && (last || node->kind == CONFIG_SCALAR)) || in_work) {
            if (in_work) circle(cfg, c, node);
            *bad = true;
            return NULL;
        }
        if (last) return node;
        size_t len = strcspn(path, ".");
        config_node *child = node->kind == CONFIG_LIST ? config_node_item(node, path, len)
                                                       : config_node_find(node, path, len);
        if (!child) return NULL;
        node = child;
        path += len;
        if (*path == '.') path++;
    }
}

/*
 * The node that a name refers to, with its own interpolations resolved. A name that begins with
 * dots starts from the value's own map, one map outward per further dot. NULL: *bad after a fault,
 * else absent, which may_lack allows.
 */
static config_node *refer(ares_config *cfg, const chain *c, const char *name, bool may_lack,
                          bool *bad)
{
    config_node *base = cfg->root, *found = NULL;
    const char *path = config_path_dotted(cfg, name, strlen(name));
    if (*path == '.') {
        base = c->node;
        /* "..a" is a of the map around */
        for (; *path == '.' && base; path++) base = base->parent;
    }
    if (base && *path) found = reach(cfg, base, path, c, bad);
    /* by another trainer's word for it */
    if (!found && !*bad && base == cfg->root && *path)
        found = reach(cfg, base, config_alias_target(cfg, path), c, bad);
    if (found && !*bad) {
        for (const chain *at = c; at; at = at->outer)
            if (at->node == found) return *bad = true, circle(cfg, c, found);
        resolve(cfg, found, c);
        if (found->state == CONFIG_BROKEN) *bad = true;
    }
    if (*bad) return NULL;
    if (!found && !may_lack) {
        ares_str hint = { 0 };
        if (*name != '.') config_suggest(cfg, path, &hint);
        broken(cfg, c, "${%.100s}: no such option%s", name, hint.len ? hint.data : "");
        ares_str_fini(&hint);
        *bad = true;
    }
    return found;
}

/*
 * RLinf's arithmetic of whole numbers: ${multiply:2,3}, ${int_div:7,2}, ${subtract:3,1}. Returns
 * false where inner begins with none of these names. *out: NULL after a fault.
 */
static bool computed(ares_config *cfg, const chain *c, const char *inner, config_node **out)
{
    enum { MULTIPLY, INT_DIV, SUBTRACT };
    static const char *const names[] = { "multiply:", "int_div:", "subtract:" };
    int which = 0;
    while (which < ARES_COUNT(names) && strncmp(inner, names[which], strlen(names[which])) != 0)
        which++;
    if (which == ARES_COUNT(names)) return false;
    const char *first = inner + strlen(names[which]);
    char *end, *second;
    /* strtoll reports overflow there alone */
    errno = 0;
    long long a = strtoll(first, &end, 10), b = 0, x = 0;
    bool bad = end == first || *end != ',';
    if (!bad) {
        b = strtoll(second = end + 1, &end, 10);
        bad = end == second || *end || errno;
    }
    if (which == MULTIPLY) bad = bad || __builtin_mul_overflow(a, b, &x);
    else if (which == SUBTRACT) bad = bad || __builtin_sub_overflow(a, b, &x);
    else if (bad || b == 0 || __builtin_sub_overflow(0, a, &x)) bad = true;
    else x = a / b - (a % b != 0 && (a < 0) != (b < 0)); /* Python's // */
    if (bad) {
        *out = broken(cfg, c, "${%.100s}: needs two whole numbers, as in ${%s12,3}", inner,
                      names[which]);
        return true;
    }
    const char *text = ares_arena_printf(&cfg->arena, "%lld", x);
    *out = config_node_scalar(cfg, text, strlen(text), false);
    return true;
}

/*
 * inner: the text between the braces, with its own interpolations already resolved. NULL after a
 * fault.
 */
static config_node *evaluate(ares_config *cfg, const chain *c, char *inner)
{
    ares_view v = ares_view_trim(ares_view_of(inner));
    inner = ares_arena_copy(&cfg->arena, v.data, v.len);
    bool environment = strncmp(inner, "oc.env:", 7) == 0,
         select = strncmp(inner, "oc.select:", 10) == 0, bad = false;
    if (environment || select) { /* a name, and after a comma the default in YAML */
        char *name = inner + (select ? 10 : 7), *comma = strchr(name, ',');
        if (comma) *comma = 0;
        v = ares_view_trim(ares_view_of(name));
        const char *key = ares_arena_copy(&cfg->arena, v.data, v.len), *error = NULL;
        const char *value = environment ? getenv(key) : NULL;
        if (value && !ares_view_is_utf8(ares_view_of(value)))
            return broken(cfg, c, "environment variable %s is not UTF-8", key);
        if (value) return config_node_scalar(cfg, value, strlen(value), !*value);
        config_node *node = select ? refer(cfg, c, key, true, &bad) : NULL;
        if (bad || (node && !config_is_required(node))) return node;
        if (comma) node = config_yaml_value(cfg, ARES_OPTION_tree, comma + 1, &error);
        if (error)
            return broken(cfg, c, "the default '%.100s' of the interpolation is not YAML: %s",
                          comma + 1, error);
        if (comma) return node;
        if (select) return config_node_scalar(cfg, "null", 4, false);
        return broken(
            cfg, c,
            "environment variable %.100s is not set; set it, or write ${oc.env:%.100s,default}",
            key, key);
    }
    char *colon = strchr(inner, ':');
    config_node *number;
    if (computed(cfg, c, inner, &number)) return number;
    if (colon) {
        *colon = 0;
        return broken(
            cfg, c,
            "${%.60s:...}: unknown; did you mean an environment variable, ${oc.env:NAME,default}? "
            "(choices: oc.env, oc.select)",
            inner);
    }
    if (!*inner) return broken(cfg, c, "${} names nothing");
    return refer(cfg, c, inner, false, &bad);
}

/* The brace that closes the one opened before p; NULL: there is none. */
static const char *closing(const char *p)
{
    for (int depth = 1; *p; p++) {
        if (*p == '{') depth++;
        if (*p == '}' && --depth == 0) return p;
    }
    return NULL;
}

static bool write_out(ares_config *cfg, const chain *c, const char *p, const char *end,
                      ares_str *out, int nested);

/* The value of the interpolation whose "${" ends before p; *end becomes its closing brace. */
static config_node *evaluate_at(ares_config *cfg, const chain *c, const char *p, const char **end,
                                int nested)
{
    enum { NESTED = 16 };
    *end = closing(p);
    if (!*end) return broken(cfg, c, "${ without its }; a literal one is \\${");
    if (nested > NESTED)
        return broken(cfg, c, "interpolations inside one another, deeper than %d", NESTED);
    ares_str inner = { 0 };
    ares_str_add_z(&inner, "");
    config_node *node =
        write_out(cfg, c, p, *end, &inner, nested + 1) ? evaluate(cfg, c, inner.data) : NULL;
    ares_str_fini(&inner);
    return node;
}

/*
 * Copies text and inserts the values of its interpolations. An odd number of backslashes before ${
 * makes it literal, and half of the backslashes (rounded down) stay. Elsewhere a backslash is an
 * ordinary character.
 */
static bool write_out(ares_config *cfg, const chain *c, const char *p, const char *end,
                      ares_str *out, int nested)
{
    while (p < end) {
        size_t slashes = 0;
        while (p + slashes < end && p[slashes] == '\\') slashes++;
        bool dollar = p + slashes + 1 < end && p[slashes] == '$' && p[slashes + 1] == '{';
        ares_str_add(out, p, dollar ? slashes / 2 : slashes);
        p += slashes;
        if (p == end) break;
        if (!dollar || slashes % 2) {
            /* a literal "${" or an ordinary character */
            size_t n = dollar ? 2 : 1;
            ares_str_add(out, p, n);
            p += n;
            continue;
        }
        config_node *node = evaluate_at(cfg, c, p + 2, &p, nested);
        if (!node) return false;
        if (node->kind != CONFIG_SCALAR)
            return broken(cfg, c, "a map or a list cannot stand inside a text"), false;
        if (config_is_required(node))
            return broken(cfg, c, "refers to an option that is required and not set"), false;
        ares_str_add_z(out, node->text);
        p++;
        if (out->len > CONFIG_MAX_TEXT || cfg->text_bytes + (int64_t)out->len > CONFIG_MAX_TEXT_SUM)
            return broken(cfg, c, "interpolation makes a text of more than %d bytes",
                          CONFIG_MAX_TEXT),
                   false;
    }
    cfg->text_bytes += (int64_t)out->len;
    return true;
}

/* A value that is one interpolation becomes a copy of its target; any other text is written out. */
static bool resolve_scalar(ares_config *cfg, config_node *node, const chain *c)
{
    const char *text = node->text, *end;
    size_t len = strlen(text);
    if (text[0] == '$' && text[1] == '{' && closing(text + 2) == text + len - 1) {
        config_node *target = evaluate_at(cfg, c, text + 2, &end, 0);
        int depth = config_node_depth(node);
        config_node *copy = target ? config_node_copy(cfg, target, depth) : NULL;
        if (!copy && target && !cfg->too_big)
            broken(cfg, c, "nests deeper than %d", CONFIG_MAX_DEPTH);
        if (!copy) return false;
        if (config_is_required(copy))
            return broken(cfg, c, "refers to an option that is required and not set"), false;
        /* the place and name of the value that refers stay */
        const char *written = node->written;
        int layer = node->layer, line = node->line;
        const char *source = node->source;
        config_node_stamp(copy, layer, line, source);
        config_node_replace(node, copy);
        node->written = written;
        return true;
    }
    ares_str out = { 0 };
    bool ok = write_out(cfg, c, text, text + len, &out, 0);
    if (ok) {
        node->text = ares_arena_copy(&cfg->arena, out.data ? out.data : "", out.len);
        node->quoted = true;
    }
    ares_str_fini(&out);
    return ok;
}

/* Resolves a node and everything below it. outer: the values whose resolution led here. */
static void resolve(ares_config *cfg, config_node *node, const chain *outer)
{
    if (node->state == CONFIG_DONE || node->state == CONFIG_BROKEN) return;
    chain c = { node, outer, outer ? outer->depth + 1 : 1 };
    if (node->state == CONFIG_IN_WORK) {
        if (outer) circle(cfg, outer, node);
        node->state = CONFIG_BROKEN;
        return;
    }
    if (c.depth > CONFIG_MAX_CHAIN + CONFIG_MAX_DEPTH) {
        broken(cfg, &c, "more than %d interpolations that refer to one another", CONFIG_MAX_CHAIN);
        node->state = CONFIG_BROKEN;
        return;
    }
    node->state = CONFIG_IN_WORK;
    bool ok = true;
    if (node->kind == CONFIG_SCALAR) {
        if (strstr(node->text, "${")) ok = resolve_scalar(cfg, node, &c);
    } else
        for (config_node *child = node->first; child; child = child->next) {
            resolve(cfg, child, &c);
            if (child->state == CONFIG_BROKEN) ok = false;
        }
    node->state = ok ? CONFIG_DONE : CONFIG_BROKEN;
    if (!ok) return;
    /* a scalar may have become a map or a list, copied from nodes that are resolved */
    for (config_node *child = node->first; child; child = child->next) child->state = CONFIG_DONE;
}

void config_interpolate(ares_config *cfg, config_node *node)
{
    resolve(cfg, node, NULL);
}
