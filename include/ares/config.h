/*
 * config: YAML files and dotted overrides -> the configuration structs of the rooms.
 *
 * A room declares each option once, in a list in its own header. The list makes the struct, the
 * table, the default, the checks and the text of `--help-config`:
 *
 *     #define ARES_ROLLOUT_OPTIONS(X) \
 *         X(f64, temperature, "temperature", "1.0", "[0,)", "sampling temperature; 0 is greedy") \
 *         X(i64, top_k, "top_k", "-1", "-1|[1,)", "keep the k most likely tokens; -1 is off") \
 *         X(i64, max_len, "max_len", "null", "[1,)", "tokens; null is prompt + response") \
 *         X(choice, dtype, "dtype", "bf16", "bf16=bfloat16|fp32=float32", "of the KV cache")
 *     ARES_OPTION_STRUCT(ares_rollout_config, ARES_ROLLOUT_OPTIONS);
 *     ares_option_table ares_rollout_options;
 *
 * One .c file defines the table:
 *
 *     ARES_OPTION_TABLE(ares_rollout_options, ares_rollout_config, ARES_ROLLOUT_OPTIONS);
 *
 * The code that assembles the program declares everything first, then reads files and the command
 * line, then fills the structs, and reports all faults at once:
 *
 *     ares_config *cfg = ares_config_new();
 *     ares_config_add_options(cfg, "worker.rollout", ares_rollout_options, &rollout);
 *     ares_config_add_aliases(cfg, aliases, ARES_COUNT(aliases));
 *     ares_config_read_args(cfg, argc, argv);
 *     ares_config_resolve(cfg);
 *     if (rollout.n < 2)
 *         ares_config_fault(cfg, "worker.rollout.n", "grpo compares responses; set 2 or more");
 *     ARES_TRY(ares_config_finish(cfg));
 *
 * The functions in between do not fail: each notes a fault with its place (file:line, or the
 * command line) and goes on, so that one run shows everything that is wrong.
 *
 * The rules, in short. Layers: defaults < files from left to right < overrides from left to right;
 * maps merge, lists and scalars replace. YAML 1.2 core schema (1e-6 is a number, 010 is ten), with
 * True/False/None as Python writes them; yes/no/on/off stay strings, with a warning. Anchors and
 * `<<` work; a duplicate key is a fault. Dotted keys in files are paths. Top-level keys that begin
 * with `x-` are the user's own, for anchors and interpolation. Interpolations: ${a.b}, ${.sibling},
 * ${..uncle}, ${a.0.b}, ${oc.env:VAR,default}, ${oc.select:key,default}; `\${` is a literal `${`.
 * An unquoted `???` is a value that the user must still set. See docs/design.md#configuration.
 */
#ifndef ARES_CONFIG_H
#define ARES_CONFIG_H

#include "ares/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------- options
 * X(type, field, path, default, constraint, doc); path may be dotted, and is relative to the prefix
 * of ares_config_add_options. A row that ends in `doc, ARES_NO_RESULT)` is an option that changes
 * only speed, memory or which files are kept, and no number of a run: its value may change when a
 * run is resumed (ares_config_no_result). An f64 whose row ends in `doc, ARES_SCHEDULED)` takes a
 * number, the name of a schedule or an expression in `step` (docs/design.md#schedules); the field
 * holds its value at step 0 until ares_config_at_step. The default is YAML text: "1e-6", "null",
 * "[0.9, 0.999]", "{}", "???" (required), or an interpolation of another option
 * ("${data.max_prompt_length}").
 *
 * type     field                constraint
 * flag     bool
 * i64      int64_t              alternatives joined by '|', each a range or a number: "[1,)",
 *          "-1|[1,)", "(0,1]"
 * f64      double               the same; NaN and infinities are never accepted
 * text     const char *         "", or "nonempty"
 * choice   const char *         "a|b|c"; "token-mean=token|seq-mean=seq": the field always holds
 *          the spelling before '='
 * texts    ares_texts           a list; a scalar is a list of one. The constraint of each item as
 * i64s     ares_i64s            above, then "#2" for exactly two items or "#1+" for one or more
 * f64s     ares_f64s
 * tree     const ares_json *    any of "map|list|text|number|flag", or "" for anything. A map
 *          inside it is open: it may have any keys. Never a NULL pointer. Numbers keep their
 *          spelling in ->text where it is JSON's. For reward_kwargs, for options of table entries
 *          (ares_config_bind), for an option that takes a constant or an expression.
 *
 * null is accepted where the default is null or the constraint begins with '?' ("?[1,)"). The field
 * then holds ARES_NULL_I64, a NaN (ares_is_null_f64), a NULL pointer, an empty list, or a tree of
 * type ARES_JSON_NULL.
 *
 * An option may be declared more than once (two rooms read it) when type, default and constraint
 * agree.
 */
#define ARES_NULL_I64 INT64_MIN
static inline bool ares_is_null_f64(double x)
{
    return x != x;
}

typedef struct ares_texts {
    const char *const *items;
    int64_t count;
} ares_texts;
typedef struct ares_i64s {
    const int64_t *items;
    int64_t count;
} ares_i64s;
typedef struct ares_f64s {
    const double *items;
    int64_t count;
} ares_f64s;

#define ARES_OPTION_TYPES(X) \
    X(flag, bool)            \
    X(i64, int64_t)          \
    X(f64, double)           \
    X(text, const char *)    \
    X(choice, const char *)  \
    X(texts, ares_texts) X(i64s, ares_i64s) X(f64s, ares_f64s) X(tree, const ares_json *)
#define ARES_OPTION_TYPE_(name, ctype) ARES_OPTION_##name,
typedef enum { ARES_OPTION_TYPES(ARES_OPTION_TYPE_) ARES_OPTION_TYPE_COUNT } ares_option_type;
#undef ARES_OPTION_TYPE_
#define ARES_OPTION_CTYPE_(name, ctype) typedef ctype ares_option_##name##_ctype;
ARES_OPTION_TYPES(ARES_OPTION_CTYPE_)
#undef ARES_OPTION_CTYPE_

/* A row of a table, as ARES_OPTION_TABLE writes it. */
typedef struct ares_option {
    const char *path;
    ares_option_type type;
    size_t offset;                       /* of the field in the struct */
    const char *text, *constraint, *doc; /* text: the default */
    unsigned flags;                      /* ARES_NO_RESULT, ARES_SCHEDULED */
} ares_option;
enum { ARES_NO_RESULT = 1, ARES_SCHEDULED = 2 };
typedef const ares_option *ares_option_table(int *count);

#define ARES_OPTION_FIELD_(type, field, path, text, constraint, ...) \
    ares_option_##type##_ctype field;
#define ARES_OPTION_STRUCT(struct_name, LIST) \
    typedef struct struct_name {              \
        LIST(ARES_OPTION_FIELD_)              \
    } struct_name
#define ARES_OPTION_ENTRY_(option_type, field, option_path, default_text, what_fits, ...) \
    { .path = option_path,                                                                \
      .type = ARES_OPTION_##option_type,                                                  \
      .offset = offsetof(ares_option_owner_, field),                                      \
      .text = default_text,                                                               \
      .constraint = what_fits,                                                            \
      .doc = __VA_ARGS__ },
#define ARES_OPTION_TABLE(table_name, struct_name, LIST)                   \
    const ares_option *table_name(int *count)                              \
    {                                                                      \
        typedef struct_name ares_option_owner_;                            \
        static const ares_option options[] = { LIST(ARES_OPTION_ENTRY_) }; \
        *count = ARES_COUNT(options);                                      \
        return options;                                                    \
    }

/* ------------------------------------------------------------------ declaring */
typedef struct ares_config ares_config;
ares_config *ares_config_new(void);
void ares_config_free(ares_config *cfg); /* also frees the texts, lists and trees of the structs */
/* zeroed memory for a struct to bind; lives as long as cfg */
void *ares_config_alloc(ares_config *cfg, size_t bytes);

/*
 * Declares the options of a table under prefix, which may be "" or NULL. into is the struct of the
 * table, which ares_config_resolve fills; with NULL the options are declared and checked, and fill
 * nothing.
 */
void ares_config_add_options(ares_config *cfg, const char *prefix, ares_option_table *table,
                             void *into);
/*
 * Replaces the constraint of a declared choice, for names that only another room's table knows.
 * names are borrowed.
 */
void ares_config_add_choices(ares_config *cfg, const char *path, const char *const *names, int n);

/*
 * Option names of other trainers, called words here. The first use of each is logged as `old ->
 * new`. They are applied key by key as a layer is read, so the order of layers holds for old names
 * as for new ones. A word that is given null is ignored unless its option takes null.
 *
 * `from` is a word, "algorithm.group_size", or a whole section, "actor_rollout_ref.rollout.*" (to:
 * "worker.rollout.*"). An exact name wins over a section, a longer section over a shorter one. A ?
 * stands for any one key: "custom_envs.?.env_type" (to: "env.definitions.?.type").
 *
 * `to` is the new name, or several joined by '&' (TRL's epsilon); each of the several that is
 * itself set in the same file or on the command line wins over the word. "" accepts and ignores the
 * word, and logs that. NULL refuses it, with the note as the remedy.
 *
 * `when` says where the row holds; a word may have several rows:
 *
 *   NULL            always
 *   "path=value"    while that option has that value once all layers are read, "path!=value" while
 *                   it has another; several conditions are joined by '&'
 *   "=value|value"  where the word itself is given one of these values, each in one line of YAML;
 *                   *x stands for x and for any text that ends in .x. `to` is then "", NULL or
 *                   "option=value". Such a row may also name an option of our own, and holds for
 *                   words of sections that lead to its own.
 *
 * When no row of a word holds, the word is refused, or ignored if its last row has `when` NULL and
 * `to` "". A word that may be ignored in this way yields to its option where a later layer sets it,
 * and to another such word for the same option whose row stands earlier.
 *
 * `note` is shown when the word is ignored or refused. In a row with `when`, for a word that may be
 * ignored, it says why the word and its option may not stand in one file; NULL: they may, and the
 * word wins.
 */
typedef struct ares_config_alias {
    const char *from, *to, *when, *note;
} ares_config_alias;
/* aliases are borrowed */
void ares_config_add_aliases(ares_config *cfg, const ares_config_alias *aliases, int n);
/*
 * A default of another trainer. Where `word`, or any word of the section "x.*", is used in any
 * layer, the option at `path` has this value instead of its own default, while `when` holds
 * (as in an alias; NULL: always). Of several rows for one option the first that holds counts. The
 * rows of one trainer stand together: one line of the log tells all values that they gave and that
 * no word whose meaning depends on other options has replaced.
 */
typedef struct ares_config_default {
    const char *trainer, *word, *path, *value, *when;
} ares_config_default;
/* defaults are borrowed */
void ares_config_add_defaults(ares_config *cfg, const ares_config_default *defaults, int n);

/*
 * Options that set other options: presets, and numbers from which options follow. `words` is called
 * by ares_config_resolve when all layers are read and before the structs are filled, and calls the
 * functions below; several are called in the order in which they were given. Paths are names of
 * options, not words of other trainers.
 *
 *   given     the value that a layer gives the option, interpolated; flags as true or false, whole
 *             numbers in decimal digits; NULL when no layer gives one, or null
 *   word      the name that the user wrote for the option: another trainer's, or the path
 *   together  whether one file, or the command line, gives both
 *   later     whether a is given in a later layer than b; false when they are given together
 *   preset    gives the option a value unless a layer does; returns whether it did. by is shown
 *             with the value: "algorithm.name: dapo"
 *   follow    gives the option a value as if it stood in the place of `from`
 *   move      gives the option the value of a key x-.., however deep it is, unless that is null or
 * a later layer gives the option another forget    gives the option its default again
 */
void ares_config_translate_with(ares_config *cfg, void (*words)(ares_config *cfg));
const char *ares_config_given(ares_config *cfg, const char *path);
const char *ares_config_word(const ares_config *cfg, const char *path);
bool ares_config_later(const ares_config *cfg, const char *a, const char *b);
bool ares_config_together(const ares_config *cfg, const char *a, const char *b);
bool ares_config_preset(ares_config *cfg, const char *path, const char *value, const char *by);
void ares_config_follow(ares_config *cfg, const char *path, const char *value, const char *from);
void ares_config_move(ares_config *cfg, const char *key, const char *path);
void ares_config_forget(ares_config *cfg, const char *path);

/* ------------------------------------------------------------------ reading
 * Each file and each override is a layer over those before it.
 */
void ares_config_load_file(ares_config *cfg, const char *path);
/* name stands for the file in messages */
void ares_config_load_text(ares_config *cfg, const char *name, ares_view yaml);
/*
 * One override: a.b=c, a.0.b=c, a+=[x] (append), +a.b=c (new key of an open map), ~a.b (back to the
 * default). The value is YAML when it begins with [ { " or '. Otherwise it is a scalar as written:
 * `#`, `: ` and `*` have no meaning. For text and choice options [ and { have none either, so that
 * a regular expression needs no quoting.
 */
void ares_config_override(ares_config *cfg, const char *word);
/*
 * A command line: --config FILE, --config=FILE, config=FILE, --a.b=c, --a.b c, --flag.option, and
 * overrides. Files are read before overrides, wherever they stand. Anything else is a fault, which
 * suggests the nearest option. The caller removes its own arguments (verb, --check ...) first.
 */
void ares_config_read_args(ares_config *cfg, int argc, const char *const *argv);
/*
 * Whether "--word" or "--word=value" of a command line names an option, a section, or another
 * trainer's word for one. A caller that suggests words of its own asks this first.
 */
bool ares_config_knows(ares_config *cfg, const char *word);

/* ------------------------------------------------------------------ binding, faults, the report */
/*
 * Interpolates, checks every option's type and constraint, and fills the structs. An option with a
 * fault keeps its default.
 */
void ares_config_resolve(ares_config *cfg);
/*
 * After resolve: declares the options of the map at path, which lies inside a tree option
 * ("worker.reward.rewards.0"), and fills the struct at once from the map and the defaults. Several
 * tables may be bound to one path; ares_config_finish reports keys that none of them has.
 * ares_config_print shows these options like others.
 */
void ares_config_bind(ares_config *cfg, const char *path, ares_option_table *table, void *into);
/*
 * Notes a fault of an option, with the place where it was set: "config: train.yaml:31: <path> =
 * <value>: <message>".
 */
void ares_config_fault(ares_config *cfg, const char *path, const char *format, ...)
    ARES_PRINTF(3, 4);
/* ARES_OK, or ARES_ECONFIG with every fault in one message, one per line, by layer and line. */
int ares_config_finish(ares_config *cfg);
/* faults noted so far */
int ares_config_fault_count(const ares_config *cfg);

/* ------------------------------------------------------------------ asking, after resolve */
/* the value of an option, section or item; NULL when absent */
const ares_json *ares_config_get(const ares_config *cfg, const char *path);
/* a scalar as text; NULL when absent, null, or no scalar */
const char *ares_config_get_text(const ares_config *cfg, const char *path);
/*
 * Whether a file or an override sets it. A file that ares_config_print wrote sets every option, so
 * to ask whether the user gave a value, prefer the default null.
 */
bool ares_config_is_set(const ares_config *cfg, const char *path);
/* the other trainer's word that set the option; NULL when none did */
const char *ares_config_written(const ares_config *cfg, const char *path);
/*
 * Gives every option that has a schedule its value at a training step (counted from 0), in the
 * field it is bound to. A value that does not fit the option's constraint and an expression that
 * fails are ARES_ECONFIG with option and step.
 */
int ares_config_at_step(ares_config *cfg, int64_t step);
/* whether the option is set to a schedule or an expression */
bool ares_config_scheduled(const ares_config *cfg, const char *path);
/*
 * A value that changes with the step: a number, the name of a schedule or an expression in `step`
 * (docs/design.md#schedules). The lists differ in the names, and caps may be none: null or None.
 */
typedef enum { ARES_SCHEDULE_WEIGHT, ARES_SCHEDULE_CAP } ares_schedule_list;
typedef struct ares_scheduled ares_scheduled;
/*
 * After resolve: the items [*n] of the list at path, in cfg's memory. A text that is a key of the
 * map at `own` stands for the value there. NULL where the option is null or no list, and where an
 * item is no value that changes with the step: a fault is then noted, but for a value of the map it
 * is ares_config_check_schedules that notes it.
 */
const ares_scheduled *const *ares_config_schedules(ares_config *cfg, const char *path,
                                                   ares_schedule_list list, const char *own,
                                                   int64_t *n);
/* Notes a fault for each value of the map at `own` that is no schedule, used or not. */
void ares_config_check_schedules(ares_config *cfg, const char *own);
/* *value: NaN for none. ARES_ECONFIG with the step where an expression fails or gives NaN. */
int ares_scheduled_at(const ares_scheduled *s, int64_t step, double *value);
/* as written */
const char *ares_scheduled_text(const ares_scheduled *s);
/* whether the option's row has ARES_NO_RESULT */
bool ares_config_no_result(const ares_config *cfg, const char *path);

/*
 * The resolved options as YAML, in order of declaration: a valid --config that gives this
 * configuration again.
 */
void ares_config_print(const ares_config *cfg, ares_str *out);
/*
 * Options with default, type, constraint and doc, as YAML with comments; configs/base.yaml is the
 * text of all of them. word chooses what is shown: a section, an option, another trainer's word for
 * one, or a part of the names or docs ("" or NULL: all options). Of a word that leads to no option,
 * comments say what becomes of it. ARES_ECONFIG where it chooses none. Works before resolve.
 */
int ares_config_help(ares_config *cfg, const char *word, ares_str *out);
/*
 * For completion in a shell: the path of the i-th declared option, in order of declaration; NULL
 * past the last one, "" for the second declaration of an option. values receives the words that it
 * takes, separated by blanks; it stays empty where the user writes a text of his own. number: the
 * option takes numbers.
 */
const char *ares_config_option(const ares_config *cfg, int i, ares_str *values, bool *number);

#ifdef __cplusplus
}
#endif
#endif
