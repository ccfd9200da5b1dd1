/* The options of eval.*, with the names that slime's files of evaluations have. */
#include <string.h>

#include "collect/answerer.h"
#include "run/eval_sets.h"

#define SET_OPTIONS(X)                                                                           \
    X(text, name, "name", "null", "nonempty", "part of the names of its metrics")                \
    X(text, path, "path", "null", "nonempty", "file of its rows")                                \
    X(text, rm_type, "rm_type", "null", "nonempty", "verifier of its rows")                      \
    X(text, input_key, "input_key", "null", "nonempty", "null: data.prompt_key")                 \
    X(text, label_key, "label_key", "null", "nonempty", "null: data.answer_key")                 \
    X(text, tool_key, "tool_key", "null", "", "not offered")                                     \
    X(text, metadata_key, "metadata_key", "null", "nonempty", "null: data.metadata_key")         \
    X(i64, n, "n_samples_per_eval_prompt", "null", "[1,1000000]", "answers to each prompt")      \
    X(f64, temperature, "temperature", "null", "[0,)", "0 is greedy")                            \
    X(f64, top_p, "top_p", "null", "(0,1]", "nucleus sampling")                                  \
    X(i64, top_k, "top_k", "null", "-1|[1,1000000000]", "-1 is off")                             \
    X(i64, max_response_len, "max_response_len", "null", "[1,1000000000]",                       \
      "tokens of an answer at most")                                                             \
    X(texts, stop, "stop", "null", "nonempty", "strings that end an answer")                     \
    X(i64s, stop_token_ids, "stop_token_ids", "null", "[0,2147483647]",                          \
      "token ids that end an answer")                                                            \
    X(i64, min_new_tokens, "min_new_tokens", "null", "[0,0]", "not offered")                     \
    X(text, generate, "custom_generate_function_path", "null", "", "not offered: no code loads") \
    X(tree, metadata, "metadata_overrides", "{}", "map", "members for each row's metadata")
ARES_OPTION_STRUCT(set_options, SET_OPTIONS);
static ARES_OPTION_TABLE(set_table, set_options, SET_OPTIONS);

/* rm_type comes first, so that the overrides may name another. */
static const ares_json *metadata_of(ares_config *cfg, const char *rm_type, const ares_json *more)
{
    if (!rm_type && !more->count) return NULL;
    struct {
        ares_json all, type;
        ares_json_member members[];
    } *m = ares_config_alloc(cfg, sizeof *m + (size_t)(more->count + 1) * sizeof *m->members);
    m->type = (ares_json){ .type = ARES_JSON_STRING, .text = ares_view_of(rm_type ? rm_type : "") };
    m->all = (ares_json){ .type = ARES_JSON_OBJECT, .members = m->members };
    if (rm_type && !ares_json_get(more, "rm_type"))
        m->members[m->all.count++] = (ares_json_member){ ARES_VIEW("rm_type"), &m->type };
    for (int64_t i = 0; i < more->count; i++) m->members[m->all.count++] = more->members[i];
    return &m->all;
}

#define FIRST_TEXT(field) (o->field ? o->field : d->field)
#define FIRST_NUMBER(field) (o->field != ARES_NULL_I64 ? o->field : d->field)
#define FIRST_REAL(field) (ares_is_null_f64(o->field) ? d->field : o->field)
#define FIRST_LIST(field) (o->field.count ? o->field : d->field)

/* s, *n: of the level below; what o or else d gives takes its place. */
static void resolve_sampling(ares_config *cfg, const set_options *o, const set_options *d,
                             ares_sampling *s, int64_t *n)
{
    double temperature = FIRST_REAL(temperature), top_p = FIRST_REAL(top_p);
    int64_t count = FIRST_NUMBER(n), top_k = FIRST_NUMBER(top_k),
            tokens = FIRST_NUMBER(max_response_len);
    ares_texts stop = FIRST_LIST(stop);
    ares_i64s ids = FIRST_LIST(stop_token_ids);
    if (count != ARES_NULL_I64) *n = count;
    if (!ares_is_null_f64(temperature)) s->temperature = (float)temperature;
    if (!ares_is_null_f64(top_p)) s->top_p = (float)top_p;
    if (top_k != ARES_NULL_I64) s->top_k = (int32_t)top_k;
    if (tokens != ARES_NULL_I64) s->max_new_tokens = (int32_t)tokens;
    if (stop.count) {
        s->n_stop_strings = (int32_t)stop.count;
        s->stop_strings = stop.items;
    }
    if (!ids.count) return;
    int32_t *own = ares_config_alloc(cfg, (size_t)ids.count * sizeof *own);
    for (int64_t i = 0; i < ids.count; i++) own[i] = (int32_t)ids.items[i];
    s->n_stop_ids = (int32_t)ids.count;
    s->stop_ids = own;
}

static void refuse(ares_config *cfg, const char *path, const set_options *o)
{
    if (o->tool_key || o->generate)
        ares_config_fault(cfg, path,
                          "%s is not offered: an answer is one turn of the policy; leave it out",
                          o->tool_key ? "tool_key" : "custom_generate_function_path");
}

enum { NAME_BYTES = 80 };

static bool read_set(ares_config *cfg, const ares_train_config *c, const char *path,
                     const ares_json *item, const char *name, const set_options *d, eval_set *out)
{
    set_options bound, *o = &bound;
    if (item->type != ARES_JSON_OBJECT) {
        ares_config_fault(cfg, path, "a data set is a map, as in {name: aime, path: aime.jsonl}");
        return false;
    }
    ares_config_bind(cfg, path, set_table, o);
    refuse(cfg, path, o);
    *out = (eval_set){ .name = o->name ? o->name : name, .path = o->path, .data = c->data };
    if (!out->name || !out->path) {
        ares_config_fault(cfg, path, "a data set has a name and a path; give both");
        return false;
    }
    if (!*out->name || strlen(out->name) > NAME_BYTES || strpbrk(out->name, "/ \t\r\n"))
        ares_config_fault(cfg, path,
                          "name '%s' is part of names of metrics; use 1 to %d characters, neither "
                          "'/' nor blanks",
                          out->name, NAME_BYTES);
    if (FIRST_TEXT(input_key)) out->data.prompt_key = FIRST_TEXT(input_key);
    if (FIRST_TEXT(label_key)) out->data.answer_key = FIRST_TEXT(label_key);
    if (FIRST_TEXT(metadata_key)) out->data.metadata_key = FIRST_TEXT(metadata_key);
    out->metadata = metadata_of(cfg, FIRST_TEXT(rm_type), o->metadata);
    validation_sampling(cfg, c, &out->sampling, &out->n);
    resolve_sampling(cfg, o, d, &out->sampling, &out->n);
    if (c->rollout.max_model_len != ARES_NULL_I64 &&
        c->data.max_prompt_length + out->sampling.max_new_tokens > c->rollout.max_model_len)
        ares_config_fault(cfg, path,
                          "max_response_len = %d and data.max_prompt_length = %lld do not fit in "
                          "worker.rollout.max_model_len = %lld",
                          out->sampling.max_new_tokens, (long long)c->data.max_prompt_length,
                          (long long)c->rollout.max_model_len);
    return true;
}

static void check_names(ares_config *cfg, const eval_sets *e)
{
    for (int64_t i = 0; i < e->n; i++)
        for (int64_t k = 0; k < i; k++)
            if (strcmp(e->items[i].name, e->items[k].name) == 0)
                ares_config_fault(cfg, "eval.datasets",
                                  "'%s' is the name of two data sets; give each its own",
                                  e->items[i].name);
}

void eval_sets_read(ares_config *cfg, const ares_train_config *c, eval_sets *out)
{
    const ares_json *list = c->eval.datasets;
    set_options defaults;
    *out = (eval_sets){ 0 };
    ares_config_bind(cfg, "eval.defaults", set_table, &defaults);
    refuse(cfg, "eval.defaults", &defaults);
    if (defaults.name || defaults.path || defaults.metadata->count)
        ares_config_fault(cfg, "eval.defaults",
                          "name, path and metadata_overrides are those of one data set; write them "
                          "under eval.datasets");
    out->items = ares_config_alloc(cfg, (size_t)list->count * sizeof *out->items);
    for (int64_t i = 0; i < list->count; i++) {
        ares_str path = { 0 }, name = { 0 };
        bool map = list->type == ARES_JSON_OBJECT;
        if (map) ares_str_add_view(&name, list->members[i].key);
        else ares_str_addf(&name, "%lld", (long long)i);
        ares_str_addf(&path, "eval.datasets.%s", name.data);
        char *own = NULL;
        if (map) {
            own = ares_config_alloc(cfg, name.len + 1);
            memcpy(own, name.data, name.len);
        }
        const ares_json *item = map ? list->members[i].value : &list->items[i];
        if (map && strchr(own, '.')) /* it would be a path of options */
            ares_config_fault(cfg, "eval.datasets",
                              "the key '%s' has a dot in it; write a list of {name: %s, path: ...}",
                              own, own);
        else if (read_set(cfg, c, path.data, item, own, &defaults, &out->items[out->n])) out->n++;
        ares_str_fini(&name);
        ares_str_fini(&path);
    }
    check_names(cfg, out);
}

int64_t eval_sets_longest(const eval_sets *e)
{
    int64_t most = 0;
    for (int64_t i = 0; i < e->n; i++) most = ARES_MAX(most, e->items[i].sampling.max_new_tokens);
    return most;
}
