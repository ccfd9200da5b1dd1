/*
 * Private to config. In order: values that change with the step; the tree; what the files of the
 * room share.
 */
#ifndef ARES_CONFIG_INTERNAL_H
#define ARES_CONFIG_INTERNAL_H

#include <stdarg.h>

#include "ares/config.h"

/*
 * ---- values that change with the step: a constant, a named schedule or an expression. They are
 * read once, with the configuration; no code of the user ever runs.
 */

/* ---------------- expressions (expression.c)
 * `lambda NAME: EXPR`, or EXPR alone, whose name is then `step`. The grammar and the meaning are
 * Python's over floats:
 *
 *     a if c else b    or and not    < <= > >= == != (chained)    + - * / // % **    ( )
 *     numbers, True, False, None, pi, e, inf
 *     abs ceil cos exp float floor int log log2 log10 max min pow round sin sqrt tan tanh
 *
 * Constants and functions of Python's math module may have the prefix `math.`. None is a whole
 * branch and means "no value". What is beyond the grammar is ARES_ECONFIG with its column; the
 * caller names the text.
 */
typedef struct expression expression;
/* none_allowed: whether None may be a value. The expression and its text lie in the arena. */
int expression_parse(ares_arena *arena, ares_view text, bool none_allowed, const expression **out);
/*
 * *value: NaN for None. ARES_ECONFIG where Python would raise an exception: division by zero, the
 * logarithm of 0, an overflow of exp or **, a power that is no real number. The same bits on every
 * x86 machine.
 */
int expression_at(const expression *e, int64_t step, double *value);
/* Whether None is one of its values. */
bool expression_may_be_none(const expression *e);

/* ---------------- scheduled values (schedule.c)
 * A number is a constant. A text is a number in quotes, an expression, or the name of a schedule,
 * with or without a path before it
 * (`examples.curriculum_learning.weight_scheduler.level_increasing`). The module `weight_scheduler`
 * or `reward_cap_scheduler` chooses the table of names; without one the list does. The tables
 * differ: exponential caps change five times more slowly than weights.
 */
typedef enum {
    SCHEDULED_NONE,
    SCHEDULED_CONSTANT,
    SCHEDULED_NAMED,
    SCHEDULED_EXPRESSION,
} scheduled_kind;
struct ares_scheduled {
    scheduled_kind kind;
    double constant;
    int named; /* which curve of schedule.c */
    const expression *expression;
    const char *text; /* as written; of a number its shortest form */
};
typedef ares_scheduled scheduled;
/* Texts and expressions lie in the arena. Anything else than the above is ARES_ECONFIG. */
int scheduled_parse(ares_arena *arena, const ares_json *value, ares_schedule_list list,
                    scheduled *out);
/* *value: NaN for none. step counts from 0. Fails as expression_at does. */
int scheduled_at(const scheduled *s, int64_t step, double *value);

/*
 * The tree behind ares/config.h, and what the files of this room share. A file calls only files
 * that stand before it here; the sections follow that order.
 */

/* Limits that no real configuration reaches; they bound the work of a hostile one. */
enum {
    CONFIG_MAX_DEPTH = 64, /* of maps and lists */
    /* nodes made in the life of a config, copies by anchors and interpolation included */
    CONFIG_MAX_NODES = 100000,
    CONFIG_MAX_KEY = 128,      /* bytes of one key */
    CONFIG_MAX_KEYS = 5000,    /* of one map: its children are searched one by one */
    CONFIG_MAX_TEXT = 1 << 16, /* bytes that interpolation may make of one value */
    CONFIG_MAX_TEXT_SUM = 1 << 24,
    CONFIG_MAX_FILE = 8 << 20, /* bytes */
    CONFIG_MAX_CHAIN = 100,    /* interpolations that refer to one another */
};

typedef enum { CONFIG_SCALAR, CONFIG_LIST, CONFIG_MAP } config_kind;
/* How far the interpolation of a node is. */
typedef enum { CONFIG_RAW, CONFIG_IN_WORK, CONFIG_DONE, CONFIG_BROKEN } config_state;

/* No text in the tree holds a NUL: the readers refuse it. */
typedef struct config_node config_node;
struct config_node {
    config_kind kind;
    config_state state;
    bool quoted; /* a string, whatever its text looks like */
    /* set by a word that stands for several options, or whose meaning depends on others */
    bool weak;
    int layer, line;     /* layer 0: the default; line 0: the command line */
    const char *source;  /* file name or override */
    const char *written; /* the user's name for it where an alias renamed it, else NULL */
    const char *key;     /* in a map */
    const char *text;    /* of a scalar */
    config_node *parent, *first, *last, *next; /* first, last: of the children */
    int64_t count;                             /* of the children */
    ares_json *json;                           /* after resolve */
};

typedef enum { CONFIG_NULL, CONFIG_BOOL, CONFIG_INT, CONFIG_FLOAT, CONFIG_STRING } config_scalar;
typedef struct config_value {
    config_scalar type;
    bool boolean, big; /* big: an integer beyond 64 bits */
    int64_t integer;
    double number;
} config_value;

/* A declaration of an option. */
typedef struct config_option {
    const ares_option *option;
    const char *path, *constraint; /* path with the prefix; constraint may have been replaced */
    void *into;                    /* the struct of its table, or NULL */
    /* its faults are not reported: the option is declared before, or its map has a fault already */
    bool again;
} config_option;

typedef struct config_fault {
    int layer, line, order; /* the report is sorted by these */
    const char *text;
} config_fault;
/* A use of a word whose meaning depends on other options. */
typedef struct config_pending {
    const ares_config_alias *alias;
    config_node *node;
    const char *path;
} config_pending;
typedef struct config_default {
    const ares_config_default *row;
    const config_node *by; /* where its word was used; NULL: nowhere */
    bool set;              /* config_apply_defaults gave its option the value */
} config_default;
/* A call of ares_config_bind. */
typedef struct config_bound {
    const char *path;
    ares_option_table *table;
} config_bound;

#define CONFIG_VECTOR(type) \
    struct {                \
        type *items;        \
        int count, cap;     \
    }
#define CONFIG_PUSH(vector, ...)                                                                \
    do {                                                                                        \
        if ((vector)->count == (vector)->cap) {                                                 \
            (vector)->cap = (vector)->cap ? 2 * (vector)->cap : 16;                             \
            (vector)->items =                                                                   \
                ares_realloc((vector)->items, (size_t)(vector)->cap * sizeof *(vector)->items); \
        }                                                                                       \
        (vector)->items[(vector)->count++] = (__VA_ARGS__);                                     \
    } while (0)

/* A field that ares_config_at_step sets. */
typedef struct config_schedule {
    const char *path, *constraint;
    double *field;
    scheduled value;
} config_schedule;

struct ares_config {
    ares_arena arena;
    config_node *root, at; /* at: the place that the YAML reader is reading */
    CONFIG_VECTOR(config_option) options;
    CONFIG_VECTOR(const ares_config_alias *) aliases;
    CONFIG_VECTOR(config_fault) faults;
    CONFIG_VECTOR(const char *) notes; /* announcements and warnings, already logged */
    CONFIG_VECTOR(config_pending) pending;
    CONFIG_VECTOR(config_default) defaults; /* of other trainers */
    CONFIG_VECTOR(config_bound) bound;
    CONFIG_VECTOR(config_schedule) schedules;
    ares_map *by_path;                  /* option path -> index of its first declaration */
    ares_map *sections;                 /* every proper prefix of an option's path */
    ares_map *alias_sections;           /* every proper prefix of another trainer's word */
    ares_map *announced;                /* words whose use has been logged */
    void (*words[8])(ares_config *cfg); /* ares_config_translate_with */
    int n_words;
    int layer, layers;         /* the layer being read, 0 in between; the number of layers so far */
    int64_t nodes, text_bytes; /* made so far; text_bytes by interpolation */
    bool too_big;              /* the limit of nodes has been reported */
    bool resolved;
    /* a file could not be read: options that it may have set are not reported as missing */
    bool unread;
};

/* ---- bind.c: what a scalar means */
config_value config_value_of(const config_node *node); /* CONFIG_STRING for a map or list */
config_value config_value_read(const char *text, bool quoted);
bool config_is_required(const config_node *node); /* an unquoted ??? */
bool config_is_yes_no(const char *text);          /* a flag in YAML 1.1, a text in 1.2 */
/* whether two scalars are equal: numbers and flags by their values, others by their texts */
bool config_same_value(const config_node *a, const config_node *b);

/* ---- print.c: a node in one line of YAML. raw: ${ stays an interpolation */
void config_emit_flow(ares_str *out, const config_node *node, bool raw);
/* for messages: 'text', 1e-6, [a, b]; cut when long */
void config_node_show(const config_node *node, ares_str *out);

/* ---- config.c: faults, notes, suggestions, the report */
/* notes "config: <place>: ..." */
void config_note_fault(ares_config *cfg, const config_node *where, const char *format, ...)
    ARES_PRINTF(3, 4);
/* notes "<place>: <path> = <value>: ..."; no value when where is NULL or ??? */
void config_value_fault(ares_config *cfg, const config_node *where, const char *path,
                        const char *format, ...) ARES_PRINTF(4, 5);
/* logs a line, and keeps it in cfg->notes */
void config_note(ares_config *cfg, ares_log_level level, const char *format, ...) ARES_PRINTF(3, 4);
/* "; did you mean 'x'?" or "" for a path that is no option */
void config_suggest(const ares_config *cfg, const char *path, ares_str *out);
/* ARES_OK, or all faults as one error */
int config_report(ares_config *cfg);

/* ---- yaml.c: the tree */
/* a node of the layer being read; NULL when there are too many */
config_node *config_node_new(ares_config *cfg, config_kind kind);
config_node *config_node_scalar(ares_config *cfg, const char *text, size_t len, bool quoted);
/* NULL: too many nodes, or too deep */
config_node *config_node_copy(ares_config *cfg, const config_node *from, int depth);
void config_node_add(config_node *parent, config_node *child);
void config_node_remove(config_node *child);
/* node becomes `by`, but keeps its key and its place in the parent */
void config_node_replace(config_node *node, config_node *by);
/* the child with the key of len bytes; NULL: none, or no map */
config_node *config_node_find(const config_node *map, const char *key, size_t len);
/* NULL: no such item */
config_node *config_node_item(const config_node *list, const char *index, size_t len);
/* the node at a dotted path below `from`; NULL: there is none */
config_node *config_walk(const config_node *from, const char *path);
int config_node_depth(const config_node *node);  /* the root has 0 */
int config_node_height(const config_node *node); /* a node without children has 0 */
/* appends the dotted path from the root */
void config_node_path(const config_node *node, ares_str *out);
/* sets the place of the node and of everything below it */
void config_node_stamp(config_node *node, int layer, int line, const char *source);

/* ---- yaml.c: the tree as JSON */
void config_build_json(ares_config *cfg);

/* ---- yaml.c: text -> tree. NULL after noting a fault. */
config_node *config_yaml_read(ares_config *cfg, const char *name, ares_view text);
/*
 * A value of the command line, or a default; the type tells whether [ and { are plain text. *error:
 * NULL, or what is wrong with the text. NULL after an error or with too many nodes.
 */
config_node *config_yaml_value(ares_config *cfg, ares_option_type type, const char *text,
                               const char **error);

/* ---- alias.c: where a path leads */
typedef enum {
    FOUND_OPTION, /* an option, or a place inside one that is open */
    FOUND_SECTION,
    FOUND_USER,    /* x-...: the user's own */
    FOUND_IGNORED, /* a word that is accepted and has no effect */
    FOUND_REFUSED,
    FOUND_PENDING,      /* a word whose meaning depends on other options */
    FOUND_SEVERAL,      /* a word for several options */
    FOUND_INSIDE_VALUE, /* below an option that takes one value */
    FOUND_NOTHING
} config_found_kind;

typedef struct config_found {
    config_found_kind kind;
    const config_option *option; /* FOUND_OPTION, FOUND_INSIDE_VALUE */
    const char *path, *rest;     /* the option's own path; what is left of it inside the option */
    const ares_config_alias *alias; /* FOUND_IGNORED, FOUND_REFUSED, FOUND_PENDING, FOUND_SEVERAL */
} config_found;
/* follows aliases until the path is none */
config_found config_find(ares_config *cfg, const char *path);
/* the option's own path, or path itself */
const char *config_alias_target(ares_config *cfg, const char *path);
/* whether it is an option, a section or another trainer's word for one */
bool config_is_known(ares_config *cfg, const char *path);
/* whether words of other trainers begin with it */
bool config_is_alias_section(ares_config *cfg, const char *path);
/*
 * the row that holds for this value of the word, or of what it is where its section has another
 * name; NULL: there is none
 */
const ares_config_alias *config_alias_of_value(ares_config *cfg, const char *path,
                                               const config_node *node);
/* whether options of the type hold items or keys of their own */
bool config_is_open(ares_option_type type);
/* logs once what becomes of a word: "from -> to", or that it is ignored (to "") and why */
void config_announce(ares_config *cfg, const char *from, const char *to, const char *note);

/* ---- bind.c: values -> fields */
/* whether a constraint is well formed, for assertions */
bool config_constraint_ok(ares_option_type type, const char *constraint);
bool config_takes_null(ares_config *cfg, const config_option *o, config_node *null);
/* "-1|[1,)" becomes "-1 or in [1,)" */
void config_show_constraint(ares_view body, ares_str *out);

/* ---- config.c: declared options */
config_option *config_option_at(const ares_config *cfg, const char *path); /* exactly there; NULL */
void config_add_default(ares_config *cfg, config_node *under, const ares_option *option);
const char *config_path_join(ares_config *cfg, const char *prefix, const char *path);
/* "a[0].b", OmegaConf's spelling, becomes a.0.b */
char *config_path_dotted(ares_config *cfg, const char *path, size_t len);

/* ---- interpolate.c */
void config_interpolate(ares_config *cfg, config_node *node); /* and everything below it */

/* ---- layer.c: what a file or an override does to the tree */
typedef enum { CONFIG_SET, CONFIG_ADD, CONFIG_APPEND } config_how;
void config_put(ares_config *cfg, const char *path, config_node *node, config_how how);
void config_reset(ares_config *cfg, const char *path, const config_node *where);
/* Below 0, 0 or above: a was set before b, with it, or after it. A command line is one setting. */
int config_order(const config_node *a, const config_node *b);
/* Whether the value is null, by which another trainer's file asks for nothing. */
bool config_asks_nothing(const config_node *node);

/* ---- alias.c: words whose meaning depends on other options */
/* Other trainers' defaults for options that no layer sets; before the pending words, which may
 * depend on them. */
void config_apply_defaults(ares_config *cfg);
void config_tell_defaults(ares_config *cfg);
void config_apply_pending(ares_config *cfg);

#endif
