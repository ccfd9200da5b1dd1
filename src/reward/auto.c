/*
 * `auto` hands each row to the verifier that the row's rm_type or data_source names
 * (docs/rewards.md#several-kinds-of-rows-in-one-run). All verifiers that a row may name are opened
 * at the start, each plain and with the prefix "boxed_", so that judging changes nothing and
 * threads may share them.
 */
#include "verifier.h"

#include <string.h>

static const ares_verifier *const verifiers[] = { VERIFY_LIST(VERIFY_ENTRY) };

typedef struct judge_set {
    ares_map *names; /* "math", "boxed_math" -> index */
    ares_judge **judges;
    int n;
} judge_set;

#define AUTO_OPTIONS(X)                                                                      \
    X(text, rm_type, "rm_type", "null", "nonempty", "verifier of rows that do not name one") \
    X(tree, types, "types", "{}", "map",                                                     \
      "options of verifiers, as in {deepscaler: {require_think: false}}")                    \
    X(tree, sources, "sources", "{}", "map", "verifiers by data_source, as in {my/gsm8k: gsm8k}")
typedef struct auto_options {
    AUTO_OPTIONS(ARES_OPTION_FIELD_)
    judge_set set; /* filled by open_all */
} auto_options;
static ARES_OPTION_TABLE(auto_table, auto_options, AUTO_OPTIONS);

/*
 * Other names of verifiers in rows: slime's rm_types, and the data sources that verl's score
 * table knows.
 */
static const struct {
    const char *name, *verifier;
} rm_types[] = { { "format", "format_think" }, { "ifeval", "ifbench" } };
static const struct {
    const char *source, *verifier;
} known_sources[] = {
    { "openai/gsm8k", "gsm8k" },
    { "lighteval/MATH", "math_hendrycks" },
    { "DigitalLearningGmbH/MATH-lighteval", "math_hendrycks" },
    { "HuggingFaceH4/MATH-500", "math_hendrycks" },
    { "math_dapo", "dapo" },
    { "math_dapo_reasoning", "dapo" },
    { "aime", "dapo" },
};

/* A string member, trimmed; data NULL: there is none. */
static ares_view text_member(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type == ARES_JSON_STRING ? ares_view_trim(v->text) : (ares_view){ NULL, 0 };
}

/*
 * The row's own rm_type; data NULL: it has none. *no_text: it has one that is no string, in whose
 * place the default verifier does not stand in.
 */
static ares_view own_rm_type(const ares_json *row, bool *no_text)
{
    const ares_json *const objects[] = { ares_json_get(row, "metadata"), row };
    bool other = false;
    *no_text = false;
    for (int k = 0; k < ARES_COUNT(objects); k++) {
        const ares_json *v = ares_json_get(objects[k], "rm_type");
        ares_view text = text_member(objects[k], "rm_type");
        if (text.len) return text;
        other = other || (v && v->type != ARES_JSON_STRING && v->type != ARES_JSON_NULL);
    }
    *no_text = other;
    return (ares_view){ NULL, 0 };
}

ares_view auto_rm_type(const ares_json *row, const ares_json *sources, const char *fallback)
{
    bool no_text;
    ares_view type = own_rm_type(row, &no_text);
    if (type.len) return type;
    ares_view source = text_member(row, "data_source");
    const ares_json *own = sources && source.data ? ares_json_find(sources, source) : NULL;
    if (own && own->type == ARES_JSON_STRING) return own->text;
    if (fallback) return ares_view_trim(ares_view_of(fallback));
    /* "aime..." is a family; the other names are whole */
    ares_view known = source;
    if (ares_view_starts(known, ARES_VIEW("aime"))) known.len = 4;
    for (int i = 0; i < ARES_COUNT(known_sources); i++)
        if (ares_view_is(known, known_sources[i].source))
            return ares_view_of(known_sources[i].verifier);
    return source;
}

/* The judge of that name, or of the name that it is another one for; NULL: none. */
static const ares_judge *find_judge(const judge_set *set, ares_view name)
{
    int64_t i;
    if (ares_map_get(set->names, name, &i)) return set->judges[i];
    for (int k = 0; k < ARES_COUNT(rm_types); k++)
        if (ares_view_is(name, rm_types[k].name) &&
            ares_map_get(set->names, ares_view_of(rm_types[k].verifier), &i))
            return set->judges[i];
    return NULL;
}

/* Judges by the judge that the row names, which metrics then call judged_by. */
static int dispatch(const ares_verify_in *in, ares_verify_out *out)
{
    const auto_options *o = in->options;
    ares_view name = auto_rm_type(in->row, o->sources, o->rm_type);
    const ares_judge *j = find_judge(&o->set, name);
    bool no_text;
    bool named = own_rm_type(in->row, &no_text).len;
    if (!j || no_text) {
        /* why the row has no verifier */
        const char *names[128], *nearest;
        char word[64] = { 0 };
        int n = 0;
        if (no_text)
            return ares_fail(
                ARES_ECONFIG,
                "reward: auto: the row's rm_type is not a string; give a verifier's name");
        if (!name.len)
            return ares_fail(ARES_ECONFIG,
                             "reward: auto: the row has neither rm_type nor data_source; "
                             "give it an rm_type, or set rm_type of the reward");
        memcpy(word, name.data, ARES_MIN(name.len, sizeof word - 1));
        if (!named)
            return ares_fail(ARES_ECONFIG,
                             "reward: auto: data_source = '%s': stands for no verifier; "
                             "give the row an rm_type, or set rm_type or sources of the reward",
                             word);
        for (; n < o->set.n && n < ARES_COUNT(names); n++) names[n] = o->set.judges[n]->name;
        nearest = ares_nearest(word, names, n);
        return ares_fail(ARES_ECONFIG, "reward: auto: rm_type = '%s': no such verifier%s%s%s", word,
                         nearest ? "; did you mean '" : "", nearest ? nearest : "",
                         nearest ? "'?" : " (ares-train grade --list names them)");
    }
    const char *name_of_judge = out->judged_by = j->name, *plain = name_of_judge,
               *missing = j->unusable;
    size_t prefix = sizeof ARES_BOXED_PREFIX - 1;
    if (strncmp(plain, ARES_BOXED_PREFIX, prefix) == 0) plain += prefix;
    if (missing)
        return ares_fail(
            ARES_ECONFIG,
            "reward: auto: rm_type = '%s': it needs options: %s; set types.%s of the reward",
            name_of_judge, missing, plain);
    return ares_judge_run(j, in, out);
}

static void close_all(void *options)
{
    judge_set *set = &((auto_options *)options)->set;
    for (int i = 0; i < set->n; i++) ares_judge_free(set->judges[i]);
    ares_free(set->judges);
    ares_map_free(set->names);
    *set = (judge_set){ 0 };
}

/* "path.key", or "key" where path is empty. */
static const char *join_path(ares_str *out, const char *path, const char *key)
{
    ares_str_clear(out);
    ares_str_addf(out, "%s%s%s", path, *path ? "." : "", key);
    return out->data;
}

/*
 * Opens a verifier plain or with the prefix "boxed_", with the options that `types` gives for its
 * plain name.
 */
static void open_judge(auto_options *o, const ares_verifier *verifier, bool boxed, ares_config *cfg,
                       const char *path)
{
    judge_set *set = &o->set;
    const char *plain = verifier->name;
    void *options;
    int64_t limit;
    double penalty;
    ares_judge *j = judge_of(verifier, boxed);
    ares_str key = { 0 }, where = { 0 };
    ares_map_put(set->names, ares_view_of(j->name), set->n);
    set->judges[set->n++] = j;
    if (ares_json_get(o->types, plain)) {
        ares_str_addf(&key, "types.%s", plain);
        join_path(&where, path, key.data);
        ares_option_table *table = ares_judge_options(j, &options);
        if (table) ares_config_bind(cfg, where.data, table, options);
        if (!boxed || ares_config_fault_count(cfg) == 0) /* no fault twice */
            ares_judge_check(j, cfg, where.data);
        if (!boxed && judge_limit(j, &limit, &penalty))
            ares_config_fault(cfg, where.data,
                              "a limit of length applies to all rows, and auto judges some; make "
                              "it an entry of worker.reward.rewards: {name: %s, ...}",
                              plain);
    } else judge_use_defaults(j);
    ares_str_fini(&key);
    ares_str_fini(&where);
}

/* Opens every verifier twice, plain and boxed, before any row is seen. */
static void open_all(void *options, ares_config *cfg, const char *path)
{
    auto_options *o = options;
    close_all(o);
    o->set.names = ares_map_new();
    o->set.judges = ares_calloc(2 * ARES_COUNT(verifiers), sizeof *o->set.judges);
    for (int i = 0; i < ARES_COUNT(verifiers); i++) {
        open_judge(o, verifiers[i], false, cfg, path);
        open_judge(o, verifiers[i], true, cfg, path);
    }
    /* every name in `types`, `rm_type` and `sources` must stand for a verifier */
    const judge_set *set = &o->set;
    ares_str where = { 0 };
    for (int64_t k = 0; k < o->types->count && o->types->type == ARES_JSON_OBJECT; k++) {
        ares_view key = o->types->members[k].key;
        if (ares_map_get(set->names, key, NULL) &&
            !ares_view_starts(key, ARES_VIEW(ARES_BOXED_PREFIX)))
            continue;
        ares_config_fault(cfg, join_path(&where, path, "types"),
                          "'%.*s' is no verifier (ares-train grade --list names them)",
                          (int)ARES_MIN(key.len, 60), key.data);
    }
    if (o->rm_type && !find_judge(set, ares_view_trim(ares_view_of(o->rm_type))))
        ares_config_fault(cfg, join_path(&where, path, "rm_type"),
                          "no such verifier (ares-train grade --list names them)");
    for (int64_t k = 0; k < o->sources->count && o->sources->type == ARES_JSON_OBJECT; k++) {
        const ares_json *v = o->sources->members[k].value;
        if (v->type == ARES_JSON_STRING && find_judge(set, v->text)) continue;
        ares_config_fault(
            cfg, join_path(&where, path, "sources"), "data_source '%.*s' names no verifier",
            (int)ARES_MIN(o->sources->members[k].key.len, 60), o->sources->members[k].key.data);
    }
    ares_str_fini(&where);
}

const ares_verifier ares_verifier_auto = {
    .name = "auto",
    .doc =
        "hands a row to the verifier that its rm_type (or metadata.rm_type) or data_source names",
    .options = auto_table,
    .options_size = sizeof(auto_options),
    .verify = dispatch,
    .judges = true,
    .open = open_all,
    .close = close_all,
    .any_truth = true,
};
