/* Overrides and command lines. */
#include "tree.h"

#include <string.h>

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

/* a[0].b is a.0.b */
static char *clean_key(ares_config *cfg, const char *key, size_t len)
{
    char *copy = ares_arena_copy(&cfg->arena, key, len), *to = copy;
    for (const char *p = copy; *p; p++) {
        if (*p == '[') *to++ = '.';
        else if (*p != ']') *to++ = *p;
    }
    *to = 0;
    return copy;
}

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
    char *key = clean_key(cfg, start, equals && equals < start ? 0 : len);
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

static bool starts(const char *word, const char *prefix)
{
    return strncmp(word, prefix, strlen(prefix)) == 0;
}

static bool ends(const char *word, const char *suffix)
{
    size_t n = strlen(word), m = strlen(suffix);
    return n >= m && strcmp(word + n - m, suffix) == 0;
}

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
    bool value = left > 0 && !starts(next[0], "--");
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
