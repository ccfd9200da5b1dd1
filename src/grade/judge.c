/*
 * A verifier with its options; and `auto`, which hands each row to the verifier that the row's
 * rm_type or data_source names. The verifiers it may hand on to are all opened at the start, so
 * that judging changes nothing and threads may share it.
 */
#include "judge.h"

#include <string.h>

#include "math/answers.h"

static const char boxed_prefix[] = "boxed_";

struct ares_judge {
    const ares_verifier *verifier;
    void *options; /* the verifier's own */
    bool boxed;
    char *name;
    char *unusable;        /* why it cannot judge: an option without a default is missing */
    ares_config *defaults; /* owns the options' texts where nobody set them */
};

/* ---------------------------------------------------------------- the dispatcher */
typedef struct judge_set {
    ares_map *names; /* "math", "boxed_math" -> index */
    ares_judge **judges;
    int n;
} judge_set;

#define AUTO_OPTIONS(X)                                                                    \
    X(text, rm_type, "rm_type", "null", "nonempty", "the verifier of rows that name none") \
    X(tree, types, "types", "{}", "map",                                                   \
      "options of verifiers: {deepscaler: {require_think: false}}")                        \
    X(tree, sources, "sources", "{}", "map", "data_source -> verifier: {my/gsm8k: gsm8k}")
typedef struct auto_options {
    AUTO_OPTIONS(ARES_OPTION_FIELD_)
    judge_set set; /* filled by ares_judge_check */
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

/* "aime..." is a family, the others are whole names. */
static const char *known_source(ares_view source)
{
    if (ares_view_starts(source, ARES_VIEW("aime"))) source.len = 4;
    for (int i = 0; i < ARES_COUNT(known_sources); i++)
        if (ares_view_is(source, known_sources[i].source)) return known_sources[i].verifier;
    return NULL;
}

static ares_view text_member(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type == ARES_JSON_STRING ? ares_view_trim(v->text) : (ares_view){ NULL, 0 };
}

ares_view judge_rm_type(const ares_json *row, const ares_json *sources, const char *fallback)
{
    ares_view type = text_member(ares_json_get(row, "metadata"), "rm_type");
    if (!type.len) type = text_member(row, "rm_type");
    if (type.len) return type;
    ares_view source = text_member(row, "data_source");
    const ares_json *own = sources && source.data ? ares_json_find(sources, source) : NULL;
    if (own && own->type == ARES_JSON_STRING) return own->text;
    if (fallback) return ares_view_trim(ares_view_of(fallback));
    const char *known = source.data ? known_source(source) : NULL;
    return known ? ares_view_of(known) : source;
}

static const ares_judge *of_set(const judge_set *set, ares_view name)
{
    int64_t i;
    if (ares_map_get(set->names, name, &i)) return set->judges[i];
    for (int k = 0; k < ARES_COUNT(rm_types); k++)
        if (ares_view_is(name, rm_types[k].name) &&
            ares_map_get(set->names, ares_view_of(rm_types[k].verifier), &i))
            return set->judges[i];
    return NULL;
}

/* Why the row's name stands for no verifier. */
static int no_judge(const auto_options *o, const ares_json *row, ares_view name)
{
    const char *names[128], *nearest;
    char word[64] = { 0 };
    int n = 0;
    if (!name.len)
        return ares_fail(ARES_ECONFIG, "reward: auto: the row has neither rm_type nor data_source; "
                                       "give it an rm_type, or set rm_type of the reward");
    memcpy(word, name.data, ARES_MIN(name.len, sizeof word - 1));
    if (!text_member(ares_json_get(row, "metadata"), "rm_type").len &&
        !text_member(row, "rm_type").len)
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

static int dispatch(const ares_verify_in *in, ares_verify_out *out)
{
    const auto_options *o = in->options;
    ares_view name = judge_rm_type(in->row, o->sources, o->rm_type);
    const ares_judge *j = of_set(&o->set, name);
    if (!j) return no_judge(o, in->row, name);
    out->judged_by = j->name;
    if (j->unusable)
        return ares_fail(
            ARES_ECONFIG,
            "reward: auto: rm_type = '%s': it needs options: %s; set types.%s of the reward",
            j->name, j->unusable, j->verifier->name);
    return ares_judge_run(j, in, out);
}

static void close_set(judge_set *set)
{
    for (int i = 0; i < set->n; i++) ares_judge_free(set->judges[i]);
    ares_free(set->judges);
    ares_map_free(set->names);
    *set = (judge_set){ 0 };
}

/*
 * Opens every verifier twice, plain and boxed, with the options that `types` gives for its plain
 * name.
 */
static void open_set(ares_config *cfg, const char *path, auto_options *o)
{
    judge_set *set = &o->set;
    int n;
    const char *const *names = ares_verifier_names(&n);
    close_set(set);
    set->names = ares_map_new();
    set->judges = ares_calloc((size_t)n * 2 + 1, sizeof *set->judges);
    ares_str where = { 0 };
    for (int i = 0; i < 2 * n; i++) {
        ares_judge *j;
        if (ares_verifier_find(names[i / 2]) == &ares_verifier_auto) continue;
        ares_str_clear(&where);
        ares_str_addf(&where, "%s%s", i % 2 ? boxed_prefix : "", names[i / 2]);
        int rc = ares_judge_new(where.data, &j);
        ARES_ASSERT(rc == ARES_OK);
        ares_map_put(set->names, ares_str_view(&where), set->n);
        set->judges[set->n++] = j;
        if (ares_json_get(o->types, names[i / 2])) {
            ares_str_clear(&where);
            ares_str_addf(&where, "%s%stypes.%s", path, *path ? "." : "", names[i / 2]);
            if (j->verifier->options)
                ares_config_bind(cfg, where.data, j->verifier->options, j->options);
            if (i % 2 == 0) ares_judge_check(j, cfg, where.data);
            if (i % 2 == 0 && j->verifier->limit)
                ares_config_fault(
                    cfg, where.data,
                    "a limit of length is of all rows, and auto judges some; make it an entry of "
                    "worker.reward.rewards: {name: %s, ...}",
                    names[i / 2]);
        } else ares_judge_use_defaults(j);
    }
    for (int64_t k = 0; k < o->types->count && o->types->type == ARES_JSON_OBJECT; k++) {
        ares_view key = o->types->members[k].key;
        if (ares_map_get(set->names, key, NULL) &&
            !ares_view_starts(key, ares_view_of(boxed_prefix)))
            continue;
        ares_str_clear(&where);
        ares_str_addf(&where, "%s%stypes", path, *path ? "." : "");
        ares_config_fault(cfg, where.data,
                          "'%.*s' is no verifier (ares-train grade --list names them)",
                          (int)ARES_MIN(key.len, 60), key.data);
    }
    if (o->rm_type && !of_set(set, ares_view_trim(ares_view_of(o->rm_type)))) {
        ares_str_clear(&where);
        ares_str_addf(&where, "%s%srm_type", path, *path ? "." : "");
        ares_config_fault(cfg, where.data, "no such verifier (ares-train grade --list names them)");
    }
    for (int64_t k = 0; k < o->sources->count && o->sources->type == ARES_JSON_OBJECT; k++) {
        const ares_json *v = o->sources->members[k].value;
        if (v->type == ARES_JSON_STRING && of_set(set, v->text)) continue;
        ares_str_clear(&where);
        ares_str_addf(&where, "%s%ssources", path, *path ? "." : "");
        ares_config_fault(cfg, where.data, "data_source '%.*s' names no verifier",
                          (int)ARES_MIN(o->sources->members[k].key.len, 60),
                          o->sources->members[k].key.data);
    }
    ares_str_fini(&where);
}

const ares_verifier ares_verifier_auto = {
    "auto",
    "hands the row to the verifier that its rm_type (or metadata.rm_type) or data_source names",
    auto_table,
    sizeof(auto_options),
    NULL,
    dispatch,
    NULL
};

/* ---------------------------------------------------------------- judges */
int ares_judge_new(const char *name, ares_judge **out)
{
    int n, i;
    const char *const *names = ares_verifier_names(&n);
    size_t prefix = sizeof boxed_prefix - 1;
    bool boxed = strncmp(name, boxed_prefix, prefix) == 0;
    *out = NULL;
    ARES_TRY(
        ares_lookup(ARES_ECONFIG, "reward: verifier", boxed ? name + prefix : name, names, n, &i));
    ares_judge *j = ares_calloc(1, sizeof *j);
    *j = (ares_judge){ .verifier = ares_verifier_find(names[i]),
                       .boxed = boxed,
                       .name = ares_strdup(name) };
    j->options = ares_calloc(1, j->verifier->options_size + 1);
    *out = j;
    return ARES_OK;
}

void ares_judge_free(ares_judge *j)
{
    if (!j) return;
    if (j->verifier == &ares_verifier_auto) close_set(&((auto_options *)j->options)->set);
    ares_config_free(j->defaults);
    ares_free(j->options);
    ares_free(j->name);
    ares_free(j->unusable);
    ares_free(j);
}

const char *ares_judge_name(const ares_judge *j)
{
    return j->name;
}

ares_option_table *ares_judge_options(ares_judge *j, void **into)
{
    *into = j->options;
    return j->verifier->options;
}

void ares_judge_check(ares_judge *j, ares_config *cfg, const char *path)
{
    if (j->verifier == &ares_verifier_auto) open_set(cfg, path, j->options);
    if (j->verifier->check && j->verifier->check(j->options) != ARES_OK)
        ares_config_fault(cfg, path, "%s", ares_error_message());
}

void ares_judge_use_defaults(ares_judge *j)
{
    j->defaults = ares_config_new();
    if (j->verifier->options)
        ares_config_add_options(j->defaults, "", j->verifier->options, j->options);
    ares_config_resolve(j->defaults);
    ares_judge_check(j, j->defaults, "");
    if (ares_config_finish(j->defaults) == ARES_OK) return;
    j->unusable = ares_strdup(ares_error_message());
    ares_error_clear();
}

bool ares_judge_limit(const ares_judge *j, int64_t *limit)
{
    if (j->verifier->limit) *limit = j->verifier->limit(j->options);
    return j->verifier->limit;
}

int ares_judge_run(const ares_judge *j, const ares_verify_in *in, ares_verify_out *out)
{
    ares_verify_in own = *in;
    if (j->unusable)
        return ares_fail(ARES_ECONFIG, "reward: %s: it needs options: %s", j->name, j->unusable);
    if (j->boxed) {
        own.response = math_last_boxed(in->response);
        out->no_answer = !own.response.data;
    }
    own.options = j->options;
    if (!own.response.data) own.response = ARES_VIEW("");
    return j->verifier->verify(&own, out);
}
