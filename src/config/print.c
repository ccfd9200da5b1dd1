/* A configuration as text: a node in one line, then the whole as YAML and the list of options. */
#include "internal.h"

#include <string.h>
#include <strings.h>

/* ---- a node as YAML in one line, which reads back as the same node */

/* Whether the text needs no quotes in YAML, by a narrow rule: what it refuses is quoted. */
static bool is_plain(const char *text)
{
    static const char first[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.$";
    static const char others[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.$+-@";
    return *text && strchr(first, *text) && text[strspn(text, others)] == 0;
}

/* In double quotes as in JSON, with escapes for all characters that libyaml does not read. */
static void add_quoted(ares_str *out, const char *text)
{
    ares_str_add_char(out, '"');
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        /* set for characters of three bytes */
        unsigned code = 0;
        if (*p == '"' || *p == '\\') ares_str_addf(out, "\\%c", *p);
        else if (*p == '\n') ares_str_add_z(out, "\\n");
        else if (*p == '\t') ares_str_add_z(out, "\\t");
        else if (*p < 32 || *p == 127) ares_str_addf(out, "\\u%04x", *p);
        else if (*p == 0xC2 && p[1] < 0xA0)
            ares_str_addf(out, "\\u%04x", *++p); /* C1; NEL among them would break the line */
        else if (p[0] == 0xE2 && p[1] == 0x80 && (p[2] == 0xA8 || p[2] == 0xA9))
            code = p[2] == 0xA8 ? 0x2028 : 0x2029;
        else if (p[0] == 0xEF && p[1] == 0xBB && p[2] == 0xBF) code = 0xFEFF;
        else if (p[0] == 0xEF && p[1] == 0xBF && p[2] >= 0xBE)
            code = p[2] == 0xBE ? 0xFFFE : 0xFFFF;
        else ares_str_add_char(out, (char)*p);
        if (code) {
            ares_str_addf(out, "\\u%04x", code);
            p += 2;
        }
    }
    ares_str_add_char(out, '"');
}

/* Quotes a text that would read as a number, a flag, null or, by YAML 1.1, yes and no. */
static void emit_scalar(ares_str *out, const config_node *node, bool raw)
{
    config_value v = config_value_of(node);
    /* the mark of a value that is still missing */
    if (config_is_required(node)) ares_str_add_z(out, "???");
    else if (v.type == CONFIG_NULL) ares_str_add_z(out, "null");
    else if (v.type == CONFIG_BOOL) ares_str_add_z(out, v.boolean ? "true" : "false");
    else if (v.type != CONFIG_STRING) ares_str_add_z(out, node->text);
    else {
        ares_str text = { 0 };
        ares_str_add_z(&text, ""); /* never a NULL pointer */
        if (raw) ares_str_add_z(&text, node->text);
        else {
            /* a literal ${ gets a backslash, and each backslash before it is doubled */
            for (const char *p = node->text; *p;) {
                size_t n = strspn(p, "\\");
                bool dollar = p[n] == '$' && p[n + 1] == '{';
                for (size_t i = 0; i < (dollar ? 2 * n + 1 : n); i++)
                    ares_str_add_char(&text, '\\');
                p += n;
                if (*p) ares_str_add_char(&text, *p++);
            }
        }
        /* not what would be read back as something else */
        if (is_plain(text.data) && config_value_read(text.data, false).type == CONFIG_STRING &&
            !config_is_yes_no(text.data))
            ares_str_add_z(out, text.data);
        else add_quoted(out, text.data);
        ares_str_fini(&text);
    }
}

/* Keys are quoted by the rule of texts. */
static void config_emit_key(ares_str *out, const char *key)
{
    if (is_plain(key)) ares_str_add_z(out, key);
    else add_quoted(out, key);
}

/* raw: texts as they are, without a backslash before "${". */
void config_emit_flow(ares_str *out, const config_node *node, bool raw)
{
    if (node->kind == CONFIG_SCALAR) {
        emit_scalar(out, node, raw);
        return;
    }
    bool map = node->kind == CONFIG_MAP;
    ares_str_add_char(out, map ? '{' : '[');
    for (const config_node *child = node->first; child; child = child->next) {
        if (child != node->first) ares_str_add_z(out, ", ");
        if (map) {
            config_emit_key(out, child->key);
            ares_str_add_z(out, ": ");
        }
        config_emit_flow(out, child, raw);
    }
    ares_str_add_char(out, map ? '}' : ']');
}

/* A value in a message: cut after 72 bytes, texts in single quotes. */
void config_node_show(const config_node *node, ares_str *out)
{
    enum { SHOWN = 72 };
    size_t start = out->len;
    config_value value = config_value_of(node);
    /* numbers and flags without quotes */
    bool text = node->kind == CONFIG_SCALAR && value.type == CONFIG_STRING;
    if (text) {
        ares_str_add_char(out, '\'');
        for (const char *p = node->text; *p && out->len - start < 2 * SHOWN; p++) {
            if ((unsigned char)*p < 32) ares_str_add_char(out, ' ');
            else ares_str_add_char(out, *p);
        }
    } else config_emit_flow(out, node, true);
    if (out->len - start > SHOWN) {
        size_t end = start + SHOWN;
        /* not inside a character */
        while (end > start && ((unsigned char)out->data[end] & 0xC0) == 0x80) end--;
        out->len = end;
        out->data[end] = 0;
        ares_str_add_z(out, "...");
    }
    if (text) ares_str_add_char(out, '\'');
}

/* ---------------------------------------------------------------- blocks */

/* An empty map or list, a scalar, or a short list of scalars. */
static bool fits_a_line(const config_node *node)
{
    if (node->count == 0) return true;
    if (node->kind != CONFIG_LIST) return false;
    size_t len = 0;
    for (const config_node *child = node->first; child; child = child->next) {
        if (child->kind != CONFIG_SCALAR) return false;
        len += strlen(child->text) + 2;
    }
    return len < 80;
}

/* Two spaces per level. */
static void indent(ares_str *out, int depth)
{
    for (int i = 0; i < depth; i++) ares_str_add_z(out, "  ");
}

/* The children of a map or list. started: the first line is indented already, after "- ". */
static void emit_block(ares_str *out, const config_node *node, int depth, bool started)
{
    for (const config_node *child = node->first; child; child = child->next) {
        /* x- keys are the user's own, and no options */
        if (depth == 0 && strncmp(child->key, "x-", 2) == 0) continue;
        if (!started) indent(out, depth);
        started = false;
        if (node->kind == CONFIG_MAP) {
            config_emit_key(out, child->key);
            ares_str_add_char(out, ':');
        } else ares_str_add_char(out, '-');
        if (fits_a_line(child)) {
            ares_str_add_char(out, ' ');
            config_emit_flow(out, child, false);
            ares_str_add_char(out, '\n');
        } else if (node->kind == CONFIG_LIST) {
            ares_str_add_char(out, ' ');
            emit_block(out, child, depth + 1, true);
        } else {
            ares_str_add_char(out, '\n');
            emit_block(out, child, depth + 1, false);
        }
    }
}

/* The whole configuration as YAML that reads back as the same. */
void ares_config_print(const ares_config *cfg, ares_str *out)
{
    emit_block(out, cfg->root, 0, false);
}

/* ---------------------------------------------------------------- help */

/* The option's doc as a comment, then its key and default. */
static void help_option(ares_str *out, const config_option *o, const char *key, int depth)
{
    ares_str comment = { 0 };
    ares_str_addf(&comment, "%s (", o->option->doc);
    /* what the option accepts, in words: type, constraint, whether null */
    static const char *const names[] = {
        "true or false", "integer",          "number",          "text", "choice",
        "list of texts", "list of integers", "list of numbers", "any"
    };
    /* "?[0,1]#2+": may be null, the range, the number of items */
    const char *c = o->constraint + (o->constraint[0] == '?'), *hash = strchr(c, '#');
    ares_view body = { c, hash ? (size_t)(hash - c) : strlen(c) };
    ares_option_type type = o->option->type;
    bool null = o->constraint[0] == '?' ||
                (*o->option->text && config_value_read(o->option->text, false).type == CONFIG_NULL);
    /* the constraint is a list of words, not of ranges */
    bool words = type == ARES_OPTION_choice ||
                 (type == ARES_OPTION_texts && body.len && !ares_view_is(body, "nonempty"));
    if (type != ARES_OPTION_choice && (type != ARES_OPTION_tree || !body.len))
        ares_str_add_z(&comment, names[type]);
    if (type != ARES_OPTION_choice && type != ARES_OPTION_tree && body.len)
        ares_str_add_z(&comment, ", ");
    if (!words) config_show_constraint(body, &comment);
    for (size_t i = 0; words && i < body.len; i++) {
        if (body.data[i] == '|') ares_str_add_z(&comment, ", ");
        else if (body.data[i] == '=') /* other spellings are accepted but not shown */
            while (i + 1 < body.len && body.data[i + 1] != '|') i++;
        else ares_str_add_char(&comment, body.data[i]);
    }
    if (hash) {
        /* "#2+" -> "at least 2 items" */
        size_t n = strlen(hash + 1);
        bool more = hash[n] == '+';
        ares_str_addf(&comment, ", %s%.*s items", more ? "at least " : "", (int)(n - more),
                      hash + 1);
    }
    if (null) ares_str_add_z(&comment, ", or null");
    if (o->option->flags & ARES_SCHEDULED)
        ares_str_add_z(&comment, ", a schedule or an expression in step");
    if (o->option->flags & ARES_NO_RESULT)
        ares_str_add_z(&comment, "; may change when a run goes on");
    ares_str_add_char(&comment, ')');
    /* of the comment, so that lines end near column 110 */
    const size_t width = 108 - 2 * (size_t)depth;
    for (const char *text = comment.data; *text;) {
        /* cut at the last space that fits; a word longer than the line stays whole */
        size_t len = strlen(text), cut = len;
        if (len > width)
            for (cut = width; cut > 0 && text[cut] != ' '; cut--) {}
        if (cut == 0) cut = len;
        indent(out, depth);
        ares_str_addf(out, "# %.*s\n", (int)cut, text);
        text += cut;
        while (*text == ' ') text++;
    }
    ares_str_fini(&comment);
    indent(out, depth);
    config_emit_key(out, key);
    ares_config *cfg = ares_config_new(); /* for the nodes of one default */
    const char *error;
    config_node *node = config_yaml_value(cfg, o->option->type, o->option->text, &error);
    ares_str_add_z(out, ": ");
    if (node) config_emit_flow(out, node, true);
    ares_str_add_char(out, '\n');
    ares_config_free(cfg);
}

/* Whether the path is prefix, or lies below it. */
static bool below(const char *path, const char *prefix)
{
    size_t len = strlen(prefix);
    return len == 0 || (strncmp(path, prefix, len) == 0 && (path[len] == 0 || path[len] == '.'));
}

/* Whether the text has the word in it, in whatever case. */
static bool mentions(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; *text; text++)
        if (strncasecmp(text, word, n) == 0) return true;
    return false;
}

/* The options that help is asked for: those below a section or option, or those that mention it. */
typedef struct asked {
    const char *word;
    bool mention;
} asked;

/* Whether help shows the option. */
static bool is_asked(const asked *a, const config_option *o)
{
    return a->mention ? mentions(o->path, a->word) || mentions(o->option->doc, a->word)
                      : below(o->path, a->word);
}

/* Whether help shows an option of the section. */
static bool any_asked(const ares_config *cfg, const asked *a, const char *section)
{
    for (int i = 0; i < cfg->options.count; i++)
        if (below(cfg->options.items[i].path, section) && is_asked(a, &cfg->options.items[i]))
            return true;
    return false;
}

/*
 * Walks the tree, which has the order of declaration, and prints what is asked for and the sections
 * that lead to it.
 */
static void help(const ares_config *cfg, const config_node *map, const char *path, const asked *a,
                 int depth, ares_str *out)
{
    for (const config_node *child = map->first; child; child = child->next) {
        char *whole = ares_arena_printf((ares_arena *)&cfg->arena, "%s%s%s", path, *path ? "." : "",
                                        child->key);
        const config_option *o = config_option_at(cfg, whole);
        /* sections without such an option are left out */
        if (o ? !is_asked(a, o) : !any_asked(cfg, a, whole)) continue;
        if (o) {
            help_option(out, o, child->key, depth);
            continue;
        }
        /* an empty line between the sections of the top */
        if (depth == 0 && out->len) ares_str_add_char(out, '\n');
        indent(out, depth);
        config_emit_key(out, child->key);
        ares_str_add_z(out, ":\n");
        help(cfg, child, whole, a, depth + 1, out);
    }
}

/* What becomes of another trainer's word that leads to no option by itself; false: there is none.
 */
static bool help_word(const ares_config *cfg, const char *word, ares_str *out)
{
    bool found = false;
    for (int i = 0; i < cfg->aliases.count; i++) {
        const ares_config_alias *a = cfg->aliases.items[i];
        const char *note = a->note ? a->note : "read beside other words";
        bool of_value = a->when && *a->when == '=', where = a->when && !of_value;
        if (strcmp(a->from, word) != 0) continue;
        found = true;
        ares_str_addf(out, "# %s%s: ", word, of_value ? a->when : "");
        if (!a->to) ares_str_addf(out, "refused: %s", note);
        else if (!*a->to) ares_str_addf(out, "has no effect: %s", note);
        else ares_str_add_z(out, strncmp(a->to, "x-", 2) == 0 ? note : a->to);
        ares_str_addf(out, "%s%s\n", where ? ", where " : "", where ? a->when : "");
    }
    return found;
}

/* word: a path, another trainer's name for one, or a word of names and docs; NULL: all options. */
int ares_config_help(ares_config *cfg, const char *word, ares_str *out)
{
    asked a = { .word = word ? word : "" };
    /* no such path: another name for it, else a word of the docs */
    if (*a.word && !any_asked(cfg, &a, "")) a.word = config_alias_target(cfg, a.word);
    a.mention = *a.word && !any_asked(cfg, &a, "");
    bool told = a.mention && help_word(cfg, word, out);
    if (!any_asked(cfg, &a, "")) {
        if (told) return ARES_OK;
        ares_str hint = { 0 };
        config_suggest(cfg, word, &hint);
        ares_fail(ARES_ECONFIG, "config: %s: no option has this in its name or text%s", word,
                  hint.len ? hint.data : "");
        ares_str_fini(&hint);
        return ARES_ECONFIG;
    }
    help(cfg, cfg->root, "", &a, 0, out);
    return ARES_OK;
}

const char *ares_config_option(const ares_config *cfg, int i, ares_str *values, bool *number)
{
    ares_str_clear(values);
    if (i >= cfg->options.count) return NULL;
    const config_option *o = &cfg->options.items[i];
    ares_option_type type = o->option->type;
    *number = type == ARES_OPTION_i64 || type == ARES_OPTION_f64 || type == ARES_OPTION_i64s ||
              type == ARES_OPTION_f64s;
    if (config_option_at(cfg, o->path) != o) return "";
    /* "?a|b=c|d#1+": null, the names a, b and d, of which b may be written c; one item or more */
    const char *c = o->constraint + (o->constraint[0] == '?');
    bool words = type == ARES_OPTION_choice ||
                 (type == ARES_OPTION_texts && *c && *c != '#' && strncmp(c, "nonempty", 8) != 0);
    if (type == ARES_OPTION_flag) ares_str_add_z(values, "true false");
    for (size_t n = strcspn(c, "#"); words && n;) {
        size_t word = strcspn(c, "|=#"), whole = ARES_MIN(strcspn(c, "|"), n);
        ares_str_addf(values, "%s%.*s", values->len ? " " : "", (int)word, c);
        whole += whole < n; /* and the | after it */
        c += whole;
        n -= whole;
    }
    if (values->len && (o->constraint[0] == '?' || strcmp(o->option->text, "null") == 0))
        ares_str_add_z(values, " null");
    return o->path;
}
