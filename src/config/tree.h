/* The tree behind ares/config.h, and how its files divide the work. Private to core. */
#ifndef ARES_CONFIG_TREE_H
#define ARES_CONFIG_TREE_H

#include "ares/config.h"

/* What no configuration needs, and what keeps a hostile one from eating the machine. */
enum {
    CONFIG_MAX_DEPTH = 64, /* of maps and lists */
    /* made in the life of a config; counts copies by anchors and interpolation */
    CONFIG_MAX_NODES = 100000,
    CONFIG_MAX_KEY = 128,      /* bytes of one key */
    CONFIG_MAX_KEYS = 5000,    /* of one map: its children are searched one by one */
    CONFIG_MAX_TEXT = 1 << 16, /* bytes that interpolation may make of one value */
    CONFIG_MAX_TEXT_SUM = 1 << 24,
    CONFIG_MAX_FILE = 8 << 20,
    CONFIG_MAX_CHAIN = 100, /* interpolations that refer to one another */
};

typedef enum { CONFIG_SCALAR, CONFIG_LIST, CONFIG_MAP } config_kind;
/* of interpolation */
typedef enum { CONFIG_RAW, CONFIG_IN_WORK, CONFIG_DONE, CONFIG_BROKEN } config_state;

/* No text in the tree holds a NUL: the readers refuse it. */
typedef struct config_node config_node;
struct config_node {
    config_kind kind;
    config_state state;
    bool quoted; /* a string, whatever it looks like */
    /* set by a word that stands for several options, or whose meaning depended on others */
    bool weak;
    int layer, line;     /* layer 0: the default; line 0: the command line */
    const char *source;  /* file name or override */
    const char *written; /* the user's name for it where an alias renamed it, else NULL */
    const char *key;     /* in a map */
    const char *text;    /* of a scalar */
    config_node *parent, *first, *last, *next;
    int64_t count;
    ares_json *json; /* after resolve */
};

typedef enum { CONFIG_NULL, CONFIG_BOOL, CONFIG_INT, CONFIG_FLOAT, CONFIG_STRING } config_scalar;
typedef struct config_value {
    config_scalar type;
    bool boolean, big;
    int64_t integer;
    double number;
} config_value;

typedef struct config_option {
    const ares_option *option;
    const char *path, *constraint;
    void *into;
    /* bound without a word about its faults: declared before, or part of what is wrong already */
    bool again;
} config_option;

typedef struct config_fault {
    int layer, line, order;
    const char *text;
} config_fault;
typedef struct config_pending {
    const ares_config_alias *alias;
    config_node *node;
    const char *path;
} config_pending;
typedef struct config_implied {
    const ares_config_implied *row;
    const config_node *by; /* where the word was used; NULL: nowhere */
} config_implied;
typedef struct config_bound {
    const char *path;
    ares_option_table *table;
} config_bound;

#define CONFIG_VECTOR(type) \
    struct {                \
        type *items;        \
        int count, room;    \
    }
#define CONFIG_PUSH(vector, ...)                                                                 \
    do {                                                                                         \
        if ((vector)->count == (vector)->room) {                                                 \
            (vector)->room = (vector)->room ? 2 * (vector)->room : 16;                           \
            (vector)->items =                                                                    \
                ares_realloc((vector)->items, (size_t)(vector)->room * sizeof *(vector)->items); \
        }                                                                                        \
        (vector)->items[(vector)->count++] = (__VA_ARGS__);                                      \
    } while (0)

struct ares_config {
    ares_arena arena;
    config_node *root, at; /* at: what the YAML reader is looking at */
    CONFIG_VECTOR(config_option) options;
    CONFIG_VECTOR(const ares_config_alias *) aliases;
    CONFIG_VECTOR(config_fault) faults;
    CONFIG_VECTOR(const char *) notes; /* announcements and warnings, already logged */
    CONFIG_VECTOR(config_pending) pending;
    CONFIG_VECTOR(config_implied) implied;
    CONFIG_VECTOR(config_bound) bound;
    ares_map *by_path;  /* option path -> index of its first declaration */
    ares_map *sections; /* every proper prefix of an option's path */
    ares_map *alias_sections;
    ares_map *announced;
    void (*words)(ares_config *cfg); /* ares_config_translate_with */
    int layer, layers; /* of what is being read, 0 in between; how many there have been */
    int64_t nodes, text_bytes;
    bool too_big; /* reported once */
    bool resolved;
    /* a file could not be read: what it may have set is not reported as missing */
    bool unread;
};

/* ---- config_node.c: the tree */
/* layer of the moment; NULL when there are too many */
config_node *config_node_new(ares_config *cfg, config_kind kind);
config_node *config_node_scalar(ares_config *cfg, const char *text, size_t len, bool quoted);
/* NULL: too many, too deep */
config_node *config_node_copy(ares_config *cfg, const config_node *from, int depth);
void config_node_add(config_node *parent, config_node *child);
void config_node_remove(config_node *child);
/* keeps key and place in the parent */
void config_node_replace(config_node *node, config_node *by);
config_node *config_node_find(const config_node *map, const char *key, size_t len);
/* NULL: no such item */
config_node *config_node_item(const config_node *list, const char *index, size_t len);
config_node *config_walk(const config_node *from, const char *path);
int config_node_depth(const config_node *node); /* the root has 0 */
int config_node_height(const config_node *node);
void config_node_path(const config_node *node, ares_str *out);
/* for messages: 'text', 1e-6, [a, b]; cut when long */
void config_node_show(const config_node *node, ares_str *out);
/* and everything below */
void config_node_stamp(config_node *node, int layer, int line, const char *source);
config_value config_value_of(const config_node *node);
config_value config_value_read(const char *text, bool quoted);
bool config_is_required(const config_node *node); /* a bare ??? */
bool config_is_yes_no(const char *text);

/* ---- config_yaml.c: text -> tree. NULL after noting a fault. */
config_node *config_yaml_read(ares_config *cfg, const char *name, ares_view text);
/* A value of the command line or of a default; type tells whether [ and { are plain text. */
config_node *config_yaml_value(ares_config *cfg, ares_option_type type, const char *text,
                               const char **error);

/* ---- config_alias.c: where a path leads */
typedef enum {
    FOUND_OPTION,
    FOUND_SECTION,
    FOUND_USER,
    FOUND_IGNORED,
    FOUND_REFUSED,
    FOUND_PENDING,
    FOUND_SEVERAL,
    FOUND_INSIDE_VALUE,
    FOUND_NOTHING
} config_found_kind;

typedef struct config_found {
    config_found_kind kind;
    const config_option *option;    /* FOUND_OPTION, FOUND_INSIDE_VALUE */
    const char *path, *rest;        /* canonical; what is left of it inside the option */
    const ares_config_alias *alias; /* FOUND_IGNORED, FOUND_REFUSED, FOUND_PENDING, FOUND_SEVERAL */
} config_found;
config_found config_find(ares_config *cfg, const char *path);
/* canonical path, or path itself */
const char *config_alias_target(ares_config *cfg, const char *path);
/* option, section or another's word for one */
bool config_is_known(ares_config *cfg, const char *path);
/* holds items or keys of its own */
bool config_is_open(ares_option_type type);

/* ---- config.c and config_layer.c: options, layers */
config_option *config_option_at(const ares_config *cfg, const char *path); /* exactly there; NULL */
void config_add_default(ares_config *cfg, config_node *under, const ares_option *option);
typedef enum { CONFIG_SET, CONFIG_ADD, CONFIG_APPEND } config_how;
void config_put(ares_config *cfg, const char *path, config_node *node, config_how how);
void config_reset(ares_config *cfg, const char *path, const config_node *where);
/* before the pending: their meaning may depend on it */
void config_settle_implied(ares_config *cfg);
void config_settle_pending(ares_config *cfg);
/* Which was set later: below 0, 0 or above. All words of a command line are set together. */
int config_order(const config_node *a, const config_node *b);

/* ---- config_fault.c */
void config_note_fault(ares_config *cfg, const config_node *where, const char *format, ...)
    ARES_PRINTF(3, 4);
/* "<place>: <path> = <value>: ...", the value left out for a NULL or required one */
void config_value_fault(ares_config *cfg, const config_node *where, const char *path,
                        const char *format, ...) ARES_PRINTF(4, 5);
void config_note(ares_config *cfg, ares_log_level level, const char *format, ...) ARES_PRINTF(3, 4);
/* "; did you mean 'x'?" or "" for a path that is no option */
void config_suggest(const ares_config *cfg, const char *path, ares_str *out);
int config_report(ares_config *cfg);

/* ---- config_interpolate.c */
void config_interpolate(ares_config *cfg, config_node *node); /* and everything below it */

/* ---- config_bind.c */
/* well formed: for our own mistakes */
bool config_constraint_ok(ares_option_type type, const char *constraint);
void config_show_constraint(ares_view body, ares_str *out);
/* Writes the field when the value fits; otherwise notes the fault (unless quiet) and leaves it. */
bool config_read_option(ares_config *cfg, const config_option *o, config_node *node, void *field,
                        bool quiet);
void config_bind_option(ares_config *cfg, const config_option *o, config_node *node,
                        const config_node *where);

/* ---- config_json.c */
void config_build_json(ares_config *cfg);

/* ---- config_print.c */
/* raw: ${ is an interpolation */
void config_emit_scalar(ares_str *out, const config_node *node, bool raw);
void config_emit_flow(ares_str *out, const config_node *node, bool raw);

#endif
