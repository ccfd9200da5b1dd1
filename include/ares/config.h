/*
 * config: YAML files and dotted overrides -> the structs of the rooms.
 *
 * A room declares each option once, in a list in its own header; the list makes the struct, the
 * table, the default, the checks and `--help-config`:
 *
 *     #define ARES_ROLLOUT_OPTIONS(X) \
 *         X(f64, temperature, "temperature", "1.0", "[0,)", "sampling temperature; 0 is greedy") \
 *         X(i64, top_k, "top_k", "-1", "-1|[1,)", "keep the k most likely tokens; -1 is off") \
 *         X(i64, max_len, "max_len", "null", "[1,)", "tokens; null is prompt + response") \
 *         X(choice, dtype, "dtype", "bf16", "bf16=bfloat16|fp32=float32", "of the KV cache")
 *     ARES_OPTION_STRUCT(ares_rollout_config, ARES_ROLLOUT_OPTIONS);
 *     ares_option_table ares_rollout_options;
 *
 * one .c file defines the table
 *
 *     ARES_OPTION_TABLE(ares_rollout_options, ares_rollout_config, ARES_ROLLOUT_OPTIONS);
 *
 * and whoever assembles the program declares everything first, then reads files and words, then
 * binds, and reports all faults at once:
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
 * The functions in between never fail one by one: a fault is noted with its place (file:line, or
 * the words of the command line) and the work goes on, so that one run shows everything that is
 * wrong.
 *
 * The rules, in short. Layers: defaults < files from left to right < overrides from left to right;
 * maps merge, lists and scalars replace. YAML 1.2 core schema (1e-6 is a number, 010 is ten), with
 * True/False/None as Python writes them; yes/no/on/off stay strings, with a warning. Anchors and
 * `<<` work; a duplicate key is a fault. Dotted keys in files are paths. Top-level keys that begin
 * with `x-` are the user's own, for anchors and interpolation. ${a.b}, ${.sibling}, ${..uncle},
 * ${a.0.b}, ${oc.env:VAR,default}, ${oc.select:key,default}; `\${` is a literal `${`. An unquoted
 * `???` is a value still required.
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
 * speed, memory or what is kept, and no number of a run: a run that goes on may have another value
 * of it (ares_config_no_result). The default is YAML text: "1e-6", "null", "[0.9, 0.999]", "{}",
 * "???" (required), or an interpolation of another option ("${data.max_prompt_length}").
 *
 * type     field                constraint
 * flag     bool
 * i64      int64_t              alternatives joined by '|', each a range or a number: "[1,)",
 *          "-1|[1,)", "(0,1]"
 * f64      double               the same; NaN is never accepted, infinity only where the range is
 *          open to it (none is)
 * text     const char *         "", or "nonempty"
 * choice   const char *         "a|b|c"; "token-mean=token|seq-mean=seq": the field always holds
 *          the spelling before '='
 * texts    ares_texts           a list; a scalar is a list of one. Item constraint as above, then
 *          "#2" for exactly two
 * i64s     ares_i64s            items or "#1+" for one or more
 * f64s     ares_f64s
 * tree     const ares_json *    any of "map|list|text|number|flag", or "" for anything; a map in
 *          it is open: any key goes.
 *                               Never a NULL pointer. Numbers keep their spelling in ->text where
 *                                   JSON has it. For reward_kwargs, for the own
 *                               options of table entries (ares_config_bind), for a
 *                                   constant-or-expression.
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

typedef struct ares_option {
    const char *path;
    ares_option_type type;
    size_t offset;
    const char *text, *constraint, *doc; /* text: the default */
    bool no_result;                      /* ARES_NO_RESULT */
} ares_option;
#define ARES_NO_RESULT true
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
void ares_config_free(ares_config *cfg); /* texts, lists and trees in bound structs go with it */
/* zeroed, for a struct to bind; goes with cfg */
void *ares_config_alloc(ares_config *cfg, size_t bytes);

/*
 * prefix may be "" or NULL. into (the struct of the table) may be NULL: declared and checked, bound
 * nowhere.
 */
void ares_config_add_options(ares_config *cfg, const char *prefix, ares_option_table *table,
                             void *into);
/*
 * Choices known only to a table of another room: replaces the constraint of a declared choice.
 * names are borrowed.
 */
void ares_config_add_choices(ares_config *cfg, const char *path, const char *const *names, int n);

/*
 * Words of other trainers. Each use is announced once as `old -> new`. Applied key by key as a
 * layer is read, so the order of layers holds for old names as for new ones.
 *
 *   from   "algorithm.group_size", or a whole section: "actor_rollout_ref.rollout.*" (to:
 *          "worker.rollout.*");
 *          an exact name wins over a section, a longer section over a shorter one
 *   to     the new name, or several joined by '&' (TRL's epsilon), any of which wins over it when
 *          named in the same
 *          file or on the command line; "" accepts and ignores (announced); NULL refuses, with the
 *              note as the remedy
 *   when   NULL, or "path=value": only while that option has that value in the end. A word may have
 *          several rows. Where none holds it is refused, or ignored if its last row has when NULL
 *          and to ""; a word that may be ignored gives way to its option set in a later layer, and
 *          to another such word for that option whose row stands before its own
 *   note   said when the word is ignored or refused. In a row with when of a word that may be
 *          ignored: why word and option may not stand in one file; NULL: they may, the word wins
 */
typedef struct ares_config_alias {
    const char *from, *to, *when, *note;
} ares_config_alias;
/* borrowed */
void ares_config_add_aliases(ares_config *cfg, const ares_config_alias *aliases, int n);
/* What a word means besides: where it was used, in whatever layer, and nothing gives the option a
 * value (null is none), the option has this one. */
typedef struct ares_config_implied {
    const char *word, *path, *value;
} ares_config_implied;
/* borrowed */
void ares_config_add_implied(ares_config *cfg, const ares_config_implied *implied, int n);

/*
 * Words that stand for others by more than a name: presets, and numbers from which options follow.
 * `words` is called by resolve, when all layers are read and before anything is bound, and calls
 * these. Paths are options' own.
 *
 *   given       the value a layer gives the option, interpolated; flags as true or false, whole
 *               numbers in decimal digits; NULL: none does, or null
 *   word        the user's name for it, where an alias led there; else the path
 *   together    whether one file, or the command line, gives both
 *   later       whether a is given in a later layer than b; false where they are given together
 *   preset      gives the option a value that no layer gives it; false: one does. by:
 *               "algorithm.name: dapo"
 *   follow      gives the option a value, as if it stood where `from` stands
 *   forget      the option has its default again
 */
void ares_config_translate_with(ares_config *cfg, void (*words)(ares_config *cfg));
const char *ares_config_given(ares_config *cfg, const char *path);
const char *ares_config_word(const ares_config *cfg, const char *path);
bool ares_config_later(const ares_config *cfg, const char *a, const char *b);
bool ares_config_together(const ares_config *cfg, const char *a, const char *b);
bool ares_config_preset(ares_config *cfg, const char *path, const char *value, const char *by);
void ares_config_follow(ares_config *cfg, const char *path, const char *value, const char *from);
void ares_config_forget(ares_config *cfg, const char *path);

/* ------------------------------------------------------------------ reading */
void ares_config_load_file(ares_config *cfg, const char *path);
void ares_config_load_text(ares_config *cfg, const char *name, ares_view yaml);
/*
 * One override: a.b=c  a.0.b=c  a+=[x] (append)  +a.b=c (new key of an open map)  ~a.b (back to
 *                      the default).
 * The value is YAML when it begins with [ { " or ', and otherwise a scalar as it stands: `#`, `: `
 * and `*` have no meaning. For text and choice options [ and { have none either, so that a regular
 * expression needs no quoting.
 */
void ares_config_override(ares_config *cfg, const char *word);
/*
 * The words of a command line, in order: --config FILE, --config=FILE, config=FILE, --a.b=c, --a.b
 * c, --flag.option, and overrides. Files are read before overrides, wherever they stand. Any other
 * word is a fault, with the nearest option. The caller has taken its own words (verb, --check ...)
 * out before.
 */
void ares_config_read_args(ares_config *cfg, int argc, const char *const *argv);

/* ------------------------------------------------------------------ binding, faults, the report */
/*
 * Interpolates, checks every option's type and constraint, and fills the structs (a faulty option
 * keeps its default).
 */
void ares_config_resolve(ares_config *cfg);
/*
 * After resolve: the map at path (inside a tree option: "worker.reward.rewards.0") has these
 * options. Filled at once from the map, or from the defaults where it has none of them. Tables
 * bound to the same path add up; a key that none of them names is a fault of finish. Bound options
 * appear in print like others.
 */
void ares_config_bind(ares_config *cfg, const char *path, ares_option_table *table, void *into);
/*
 * A fault of relation, placed where the option was set: "config: train.yaml:31: <path> = <value>:
 * <message>".
 */
void ares_config_fault(ares_config *cfg, const char *path, const char *format, ...)
    ARES_PRINTF(3, 4);
/*
 * ARES_OK, or ARES_ECONFIG with every fault in one message, a line each, ordered by layer and line.
 */
int ares_config_finish(ares_config *cfg);
int ares_config_fault_count(const ares_config *cfg);

/* ------------------------------------------------------------------ asking, after resolve */
/* option, section or item; NULL when absent */
const ares_json *ares_config_get(const ares_config *cfg, const char *path);
/* scalars as text; NULL when absent or null */
const char *ares_config_get_text(const ares_config *cfg, const char *path);
/*
 * Whether a file or an override sets it. A resolved file sets everything: for "not given" prefer a
 * null default.
 */
bool ares_config_is_set(const ares_config *cfg, const char *path);
/* Another trainer's word that set it; NULL: none did. */
const char *ares_config_written(const ares_config *cfg, const char *path);
/* the option's row says ARES_NO_RESULT */
bool ares_config_no_result(const ares_config *cfg, const char *path);

/*
 * The resolved options as YAML, in order of declaration: a valid --config that gives this
 * configuration again.
 */
void ares_config_print(const ares_config *cfg, ares_str *out);
/*
 * Options with default, type, constraint and doc as YAML with comments; all of them make
 * configs/base.yaml. prefix is a section or an option ("" or NULL: all); ARES_ECONFIG with the
 * nearest name when there is none such. Needs no resolve.
 */
int ares_config_help(const ares_config *cfg, const char *prefix, ares_str *out);

#ifdef __cplusplus
}
#endif
#endif
