/* The sweep's file and its command line: what is swept, and with what words. */
#include <stdio.h>
#include <string.h>

#include "sweep.h"

ares_option_table sweep_option_table, sweep_parameter_table;
ARES_OPTION_TABLE(sweep_option_table, sweep_options, SWEEP_OPTIONS)
ARES_OPTION_TABLE(sweep_parameter_table, sweep_parameter, SWEEP_PARAMETER_OPTIONS)

void sweep_describe(ares_str *out)
{
    ares_config *file = ares_config_new(), *parameter = ares_config_new();
    ares_str text = { 0 };
    ares_config_add_options(file, "", sweep_option_table, NULL);
    ares_config_add_options(parameter, "", sweep_parameter_table, NULL);
    ares_str_add_z(out, "a sweep's file:\n");
    ARES_ASSERT(ares_config_help(file, "", &text) == ARES_OK);
    ares_str_add_view(out, ares_str_view(&text));
    ares_str_clear(&text);
    ares_str_add_z(out, "\nan item of `over`:\n");
    ARES_ASSERT(ares_config_help(parameter, "", &text) == ARES_OK);
    ares_str_add_view(out, ares_str_view(&text));
    ares_str_fini(&text);
    ares_config_free(file);
    ares_config_free(parameter);
}

/* ---------------------------------------------------------------- the command line */
/* The words between commas outside brackets and quotes; empty ones are left out. */
static ares_texts split(ares_arena *arena, const char *list)
{
    const char **items = ares_arena_alloc(arena, (strlen(list) + 1) * sizeof *items);
    ares_texts out = { items, 0 };
    int depth = 0;
    char quote = 0;
    for (const char *begin = list, *p = list;; p++) {
        if (quote) quote = *p == quote ? 0 : quote;
        else if (*p == '"' || *p == '\'') quote = *p;
        else if (*p == '[' || *p == '{') depth++;
        else if (*p == ']' || *p == '}') depth--;
        if (*p && (*p != ',' || depth > 0 || quote)) continue;
        ares_view word = ares_view_trim((ares_view){ begin, (size_t)(p - begin) });
        if (word.len) items[out.count++] = ares_arena_copy(arena, word.data, word.len);
        if (!*p) return out;
        begin = p + 1;
    }
}

const char *sweep_value_of(const sweep_words *w, const char *name, int *i)
{
    const char *word = w->words[*i];
    size_t length = strlen(name);
    if (strncmp(word, name, length) != 0 || (word[length] && word[length] != '=')) return NULL;
    if (word[length]) return word + length + 1;
    return *i + 1 < w->n ? w->words[++*i] : "";
}

int sweep_read_pair(ares_arena *arena, const char *option, const char *pair, const char **name,
                    const char **value)
{
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair)
        return ares_fail(ARES_EUSE, "sweep: %s = '%s': write a name, '=' and what it gets", option,
                         pair);
    *name = ares_arena_copy(arena, pair, (size_t)(equals - pair));
    *value = equals + 1;
    return ARES_OK;
}

/* --over: values for a parameter of the file, else a new one that is an option of training. */
static int add_over(sweep *s, const char *pair)
{
    const char *name, *list;
    ARES_TRY(sweep_read_pair(&s->arena, "--over", pair, &name, &list));
    ares_texts values = split(&s->arena, list);
    for (int i = 0; i < s->n_parameters; i++)
        if (strcmp(s->parameters[i].name, name) == 0) {
            s->parameters[i].values = values;
            return ARES_OK;
        }
    if (s->n_parameters == SWEEP_PARAMETERS)
        return ares_fail(ARES_EUSE, "sweep: --over: more than %d parameters", SWEEP_PARAMETERS);
    static const ares_json nothing = { .type = ARES_JSON_OBJECT };
    s->parameters[s->n_parameters++] = (sweep_parameter){
        .name = name, .option = name, .values = values, .let = &nothing, .cases = &nothing
    };
    return ARES_OK;
}

/* --let: a variable of the file's `let`, so that a misspelt one is found. */
static int check_let(sweep *s, const char *pair)
{
    const char *name, *value;
    const ares_json *let = s->o.let;
    ARES_TRY(sweep_read_pair(&s->arena, "--let", pair, &name, &value));
    if (ares_json_get(let, name)) return ARES_OK;
    if (!let->count)
        return ares_fail(ARES_EUSE,
                         "sweep: --let = '%s': the sweep has no variables; name a --sweep FILE "
                         "with `let`",
                         name);
    const char **names = ares_arena_calloc(&s->arena, (size_t)let->count, sizeof *names);
    for (int64_t i = 0; i < let->count; i++) names[i] = let->members[i].key.data;
    return ares_lookup(ARES_EUSE, "sweep: --let", name, names, (int)let->count, &(int){ 0 });
}

int sweep_check_override(const char *word)
{
    static const char *const own[] = { "trainer.run_dir", "trainer.experiment_name" };
    while (*word == '-' || *word == '+' || *word == '~') word++;
    for (int i = 0; i < ARES_COUNT(own); i++)
        if (strncmp(word, own[i], strlen(own[i])) == 0)
            return ares_fail(ARES_EUSE,
                             "sweep: '%s': each run has its own; set `run` and `run_dir` in the "
                             "sweep's file, or --dir",
                             word);
    return ARES_OK;
}

static void override(sweep *s, const char *key, const char *value)
{
    if (value) ares_config_override(s->file, ares_arena_printf(&s->arena, "%s=%s", key, value));
}

static void override_i64(sweep *s, const char *key, int64_t value)
{
    if (value) override(s, key, ares_arena_printf(&s->arena, "%lld", (long long)value));
}

/* ---------------------------------------------------------------- the file */
static int read_parameters(sweep *s)
{
    int64_t n = s->o.over->count;
    if (n > SWEEP_PARAMETERS)
        return ares_fail(ARES_ECONFIG, "sweep: over: %lld parameters, more than %d", (long long)n,
                         SWEEP_PARAMETERS);
    s->parameters = ares_arena_calloc(&s->arena, SWEEP_PARAMETERS, sizeof *s->parameters);
    for (; s->n_parameters < n; s->n_parameters++) {
        char path[32];
        snprintf(path, sizeof path, "over.%d", s->n_parameters);
        ares_config_bind(s->file, path, sweep_parameter_table, &s->parameters[s->n_parameters]);
    }
    return ares_config_finish(s->file);
}

static int read_file(sweep *s, const sweep_words *w)
{
    s->file = ares_config_new();
    ares_config_add_options(s->file, "", sweep_option_table, &s->o);
    if (w->file) ares_config_load_file(s->file, w->file);
    override(s, "name", w->name);
    override(s, "dir", w->dir);
    override(s, "order", w->order);
    if (w->seeds) override(s, "seeds", ares_arena_printf(&s->arena, "[%s]", w->seeds));
    if (w->gpus) override(s, "gpus", ares_arena_printf(&s->arena, "[%s]", w->gpus));
    override_i64(s, "jobs", w->jobs);
    override_i64(s, "ranks", w->ranks);
    override(s, "cooldown", w->cooldown);
    ares_config_resolve(s->file);
    if (ares_config_fault_count(s->file)) return ares_config_finish(s->file);
    return read_parameters(s);
}

/* A case may only change what `let` has, so that a misspelt name is found. */
static int check_cases(const sweep_parameter *p)
{
    if (!p->values.count)
        return ares_fail(ARES_ECONFIG, "sweep: %s: no values; name some, as in --over %s=0,0.1",
                         p->name, p->name);
    for (int64_t i = 0; i < p->cases->count && p->cases->type == ARES_JSON_ARRAY; i++) {
        const ares_json *c = &p->cases->items[i];
        if (!ares_json_get(c, "when"))
            return ares_fail(ARES_ECONFIG, "sweep: %s: cases.%lld: needs `when`, a value", p->name,
                             (long long)i);
        for (int64_t k = 0; k < c->count; k++) {
            ares_view key = c->members[k].key;
            if (!ares_view_is(key, "when") && !ares_json_find(p->let, key))
                return ares_fail(ARES_ECONFIG, "sweep: %s: cases.%lld: `let` has no %.*s", p->name,
                                 (long long)i, (int)key.len, key.data);
        }
    }
    return ARES_OK;
}

int sweep_read(sweep *s, const sweep_words *w)
{
    s->lock = -1;
    ARES_TRY(read_file(s, w));
    for (int i = 0; i < w->n; i++) {
        const char *over = sweep_value_of(w, "--over", &i),
                   *variable = over ? NULL : sweep_value_of(w, "--let", &i);
        if (over) ARES_TRY(add_over(s, over));
        else if (variable) ARES_TRY(check_let(s, variable));
        else ARES_TRY(sweep_check_override(w->words[i]));
    }
    for (int i = 0; i < s->n_parameters; i++) ARES_TRY(check_cases(&s->parameters[i]));
    if (!s->n_parameters && !s->o.seeds.count)
        return ares_fail(ARES_EUSE, "sweep: nothing is swept; name a --sweep FILE, --over "
                                    "OPTION=VALUES or --seeds (see ares-train sweep --help)");
    return sweep_make_runs(s, w);
}

void sweep_fini(sweep *s)
{
    ares_config_free(s->file);
    ares_arena_fini(&s->arena);
}
