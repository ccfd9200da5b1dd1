/*
 * The runs of a sweep: names and templates, the sweep's file and command line, then the runs in
 * order.
 */
#include "sweep.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---------------------------------------------------------------- variables */
/* Names and values of a run, which templates are expanded with. */
void sweep_variables_init(sweep_variables *v, ares_arena *arena)
{
    *v = (sweep_variables){ .arena = arena, .index = ares_map_new() };
}

void sweep_variables_fini(sweep_variables *v)
{
    ares_map_free(v->index);
    ares_free(v->values);
}

/* A later value replaces an earlier one. */
void sweep_set(sweep_variables *v, const char *name, const char *value)
{
    int64_t at;
    if (!ares_map_get(v->index, ares_view_of(name), &at)) {
        if (v->n == v->cap) {
            v->cap = v->cap ? 2 * v->cap : 16;
            v->values = ares_realloc(v->values, (size_t)v->cap * sizeof *v->values);
        }
        at = v->n++;
        ares_map_put(v->index, ares_view_of(name), at);
    }
    v->values[at] = value;
}

/* The value of a variable; NULL: there is no such one. */
static const char *get(const sweep_variables *v, ares_view name)
{
    int64_t at;
    return ares_map_get(v->index, name, &at) ? v->values[at] : NULL;
}

/* ---------------------------------------------------------------- values */
/* A value as a part of a file's name: "1e-5" stays, "0.1" is "01" or "0p1", "A/b" is "a_b". */
void sweep_label(const char *value, const char *dot, ares_str *out)
{
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '.') ares_str_add_z(out, dot);
        else if (c < 128 && (isalnum(c) || strchr("_-+", c)))
            ares_str_add_char(out, (char)tolower(c));
        else ares_str_add_char(out, '_');
    }
}

/* Case does not count, and numbers are compared as numbers: 0.10 is 0.1. */
bool sweep_same_value(const char *a, const char *b)
{
    double x, y;
    if (strcasecmp(a, b) == 0) return true;
    return ares_parse_double(ares_view_of(a), &x) && ares_parse_double(ares_view_of(b), &y) &&
           x == y;
}

/* ---------------------------------------------------------------- templates */
/* Bytes of a name: letters, digits, _ and points, as in worker.actor.optim.lr. */
static size_t word_length(const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_' || at[n] == '.') n++;
    return n;
}

/* "{name}" or "{name|form}" at the brace; 0: something else stands there. */
static size_t read_variable(const char *at, ares_view *name, ares_view *form)
{
    *name = (ares_view){ at + 1, word_length(at + 1) };
    const char *p = at + 1 + name->len;
    *form = (ares_view){ p, 0 };
    if (*p == '|') {
        *form = (ares_view){ p + 1, word_length(p + 1) };
        p += 1 + form->len;
    }
    return name->len && *p == '}' ? (size_t)(p + 1 - at) : 0;
}

/* Appends a variable's value in the form asked for. */
static int add_variable(const sweep_variables *v, const char *what, ares_view name, ares_view form,
                        ares_str *out)
{
    const char *value = get(v, name);
    if (!value) {
        ares_str list = { 0 };
        for (int64_t i = 0; i < ares_map_count(v->index); i++) {
            ares_view key = ares_map_key(v->index, i);
            ares_str_addf(&list, "%s%.*s", i ? ", " : "", (int)key.len, key.data);
        }
        int rc = ares_fail(ARES_ECONFIG, "sweep: %s: {%.*s}: no such variable (choices: %s)", what,
                           (int)name.len, name.data, list.len ? list.data : "none");
        ares_str_fini(&list);
        return rc;
    }
    if (!form.len) ares_str_add_z(out, value);
    else if (ares_view_is(form, "label")) sweep_label(value, "", out);
    else if (ares_view_is(form, "label_p")) sweep_label(value, "p", out);
    else if (ares_view_is(form, "base")) {
        /* what follows the last slash; slashes at the end do not count */
        size_t end = strlen(value);
        while (end && value[end - 1] == '/') end--;
        size_t begin = end;
        while (begin && value[begin - 1] != '/') begin--;
        ares_str_add(out, value + begin, end - begin);
    } else
        return ares_fail(ARES_ECONFIG,
                         "sweep: %s: {%.*s|%.*s}: no such form (choices: label, label_p, base)",
                         what, (int)name.len, name.data, (int)form.len, form.data);
    return ARES_OK;
}

/* "lr_{lr|label}" gives "lr_1e-5"; a brace that begins no variable stays as it is. */
int sweep_expand(const sweep_variables *v, const char *what, const char *text, const char **out)
{
    ares_str all = { 0 };
    int rc = ARES_OK;
    while (*text && rc == ARES_OK) {
        ares_view name, form;
        size_t length = *text == '{' ? read_variable(text, &name, &form) : 0;
        if (length) rc = add_variable(v, what, name, form, &all);
        else ares_str_add_char(&all, *text);
        text += length ? length : 1;
    }
    *out = ares_arena_copy(v->arena, all.data ? all.data : "", all.len);
    ares_str_fini(&all);
    return rc;
}

/* The sweep's file and its command line: what is swept, and with what words. */

ares_option_table sweep_option_table, sweep_parameter_table;
ARES_OPTION_TABLE(sweep_option_table, sweep_options, SWEEP_OPTIONS)
ARES_OPTION_TABLE(sweep_parameter_table, sweep_parameter, SWEEP_PARAMETER_OPTIONS)

/* The options of a sweep's file, for --help. */
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
/* Splits at commas outside brackets and quotes; empty words are left out. */
static ares_texts split(ares_arena *arena, const char *list)
{
    const char **items = ares_arena_alloc(arena, (strlen(list) + 1) * sizeof *items);
    ares_texts out = { items, 0 };
    /* commas within [1,2], {a: 1} and "a,b" separate nothing */
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

/*
 * The value of `--name value` or `--name=value` at word *i, which moves on; NULL: another word.
 */
static const char *sweep_value_of(const sweep_words *w, const char *name, int *i)
{
    const char *word = w->words[*i];
    size_t length = strlen(name);
    if (strncmp(word, name, length) != 0 || (word[length] && word[length] != '=')) return NULL;
    if (word[length]) return word + length + 1;
    return *i + 1 < w->n ? w->words[++*i] : "";
}

/* "a=b": its two sides. option: where it stands, for a failure. */
static int sweep_read_pair(ares_arena *arena, const char *option, const char *pair,
                           const char **name, const char **value)
{
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair)
        return ares_fail(ARES_EUSE, "sweep: %s = '%s': write a name, '=' and what it gets", option,
                         pair);
    *name = ares_arena_copy(arena, pair, (size_t)(equals - pair));
    *value = equals + 1;
    return ARES_OK;
}

enum { SWEEP_PARAMETERS = 16, SWEEP_RUNS = 10000 }; /* at most */

/* --over: values for a parameter of the file, or a new one that sets an option of training. */
static int add_over(sweep *s, const char *pair)
{
    const char *name = NULL, *list = NULL;
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

/* --let may only set variables of the file's `let`, so that a misspelt one is found. */
static int check_let(sweep *s, const char *pair)
{
    const char *name = NULL, *value = NULL;
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

/* Refuses an override of what the sweep decides for each run. */
static int sweep_check_override(const char *word)
{
    static const char *const own[] = { "trainer.run_dir", "trainer.experiment_name" };
    /* --key=value, +key=value and ~key name the same option */
    while (*word == '-' || *word == '+' || *word == '~') word++;
    for (int i = 0; i < ARES_COUNT(own); i++)
        if (strncmp(word, own[i], strlen(own[i])) == 0)
            return ares_fail(ARES_EUSE,
                             "sweep: '%s': each run has its own; set `run` and `run_dir` in the "
                             "sweep's file, or --dir",
                             word);
    return ARES_OK;
}

/* The command line's value of an option of the file; NULL: not given. */
static void override(sweep *s, const char *key, const char *value)
{
    if (value) ares_config_override(s->file, ares_arena_printf(&s->arena, "%s=%s", key, value));
}

static void override_i64(sweep *s, const char *key, int64_t value)
{
    if (value) override(s, key, ares_arena_printf(&s->arena, "%lld", (long long)value));
}

/* ---------------------------------------------------------------- the file */
/* Reads the file, lays the command line over it, and binds the parameters. */
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

void sweep_fini(sweep *s)
{
    ares_config_free(s->file);
    ares_arena_fini(&s->arena);
}

/*
 * Runs. A run's words are those that a user would type: files, overrides of all runs, the command
 * line's overrides, the swept values, and last the names, so that the later win.
 */

/* ---------------------------------------------------------------- variables of a run */
/* A scalar as it would be typed. */
static const char *text_of(ares_arena *arena, const ares_json *v)
{
    if (v->type == ARES_JSON_BOOL) return v->boolean ? "true" : "false";
    if (v->type == ARES_JSON_NULL) return "null";
    return ares_arena_copy(arena, v->text.data ? v->text.data : "", v->text.len);
}

/* Sets one variable from its template. */
static int let(sweep_variables *v, ares_view key, const ares_json *value)
{
    const char *text, *name = ares_arena_copy(v->arena, key.data, key.len);
    if (value->type == ARES_JSON_OBJECT || value->type == ARES_JSON_ARRAY)
        return ares_fail(ARES_ECONFIG, "sweep: let: %s: must be a text or a number", name);
    ARES_TRY(sweep_expand(v, name, text_of(v->arena, value), &text));
    sweep_set(v, name, text);
    return ARES_OK;
}

/* ---------------------------------------------------------------- templates that are not set */
/* The last part of a name, or all of it where another name ends alike. */
const char *sweep_shown_name(const char *const *names, int n, int i)
{
    const char *last = ares_after_last(names[i], '.');
    for (int k = 0; k < n; k++)
        if (k != i && strcmp(ares_after_last(names[k], '.'), last) == 0) return names[i];
    return last;
}

/*
 * A template of runs, "lr_{worker.actor.optim.lr|label}-seed_{seed}", or of the first fields of
 * results, "entropy={entropy} | seed={seed}". own: the file's; NULL: it has none.
 */
static const char *template_of(sweep *s, const char *own, bool of_results)
{
    ares_str t = { 0 };
    const char *names[SWEEP_PARAMETERS], *gap = of_results ? " | " : "-";
    for (int i = 0; i < s->n_parameters; i++) names[i] = s->parameters[i].name;
    if (own) ares_str_add_z(&t, own);
    for (int i = 0; i < s->n_parameters && !own; i++) {
        if (t.len) ares_str_add_z(&t, gap);
        if (of_results) ares_str_addf(&t, "%s={%s}", names[i], names[i]);
        else
            ares_str_addf(&t, "%s_{%s|label}", sweep_shown_name(names, s->n_parameters, i),
                          names[i]);
    }
    if (s->o.seeds.count && !(own && strstr(own, "{seed"))) {
        if (t.len) ares_str_add_z(&t, gap);
        ares_str_add_z(&t, of_results ? "seed={seed}" : "seed_{seed}");
    }
    const char *copy = ares_arena_copy(&s->arena, t.data, t.len);
    ares_str_fini(&t);
    return copy;
}

/* ---------------------------------------------------------------- a run */

/* Expands a template into a variable of its own, which later templates may use. */
static int name(sweep_variables *v, const char *variable, const char *text, const char **out)
{
    ARES_TRY(sweep_expand(v, variable, text, out));
    sweep_set(v, variable, *out);
    return ARES_OK;
}

/*
 * The order matters: each text may use the variables set before it. name, dir and summary belong to
 * the sweep, and must come out the same for every run.
 */
static int name_run(sweep *s, sweep_variables *v, const char *run, const char *result, sweep_run *r)
{
    const char *sweep_name, *dir, *summary;
    ARES_TRY(name(v, "name", s->o.name, &sweep_name));
    ARES_TRY(name(v, "dir", s->o.dir, &dir));
    ARES_TRY(name(v, "summary", s->o.summary, &summary));
    /* from the second run on, they are compared with those of the first */
    if (s->dir && (strcmp(s->name, sweep_name) != 0 || strcmp(s->dir, dir) != 0 ||
                   strcmp(s->summary, summary) != 0))
        return ares_fail(ARES_ECONFIG,
                         "sweep: name, dir and summary are those of all runs, and cannot depend on "
                         "a parameter with several values ('%s' and '%s')",
                         s->dir, dir);
    s->name = sweep_name;
    s->dir = dir;
    s->summary = summary;
    ARES_TRY(name(v, "run", run, &r->name));
    ARES_TRY(name(v, "run_dir", s->o.run_dir, &r->run_dir));
    ARES_TRY(name(v, "log", s->o.log, &r->log));
    /* logs/a.log has its result in logs/a.result */
    size_t length = strlen(r->log);
    if (length > 4 && strcmp(r->log + length - 4, ".log") == 0) length -= 4;
    r->result = ares_arena_printf(&s->arena, "%.*s.result", (int)length, r->log);
    return sweep_expand(v, "result", result, &r->fields);
}

/* The list grows by 32 words, with room for the NULL that ends it. */
static void add_word(sweep *s, sweep_run *r, const char *word)
{
    if (r->n_words % 32 == 0) {
        const char **more = ares_arena_calloc(&s->arena, (size_t)r->n_words + 33, sizeof *more);
        if (r->n_words) memcpy(more, r->words, (size_t)r->n_words * sizeof *more);
        r->words = more;
    }
    r->words[r->n_words++] = word;
}

/* key=value */
static void add_option(sweep *s, sweep_run *r, const char *option, const char *value)
{
    add_word(s, r, ares_arena_printf(&s->arena, "%s=%s", option, value));
}

/* The words as listed above; later ones win. */
static int add_words(sweep *s, const sweep_words *w, sweep_variables *v, sweep_run *r)
{
    const char *word;
    int skipped;
    for (int64_t i = 0; i < s->o.config.count; i++) {
        ARES_TRY(sweep_expand(v, "config", s->o.config.items[i], &word));
        add_word(s, r, "--config");
        add_word(s, r, word);
    }
    for (int64_t i = 0; i < s->o.set.count; i++) {
        ARES_TRY(sweep_expand(v, "set", s->o.set.items[i], &word));
        ARES_TRY(sweep_check_override(word));
        add_word(s, r, word);
    }
    /* words of the sweep itself are none of a run */
    for (int i = 0; i < w->n; i++) {
        skipped = i;
        if (sweep_value_of(w, "--over", &skipped) || sweep_value_of(w, "--let", &skipped))
            i = skipped;
        else add_word(s, r, w->words[i]);
    }
    for (int i = 0; i < s->n_parameters; i++)
        if (s->parameters[i].option) add_option(s, r, s->parameters[i].option, r->values[i]);
    for (int64_t i = 0; i < s->o.seed_options.count && r->seed >= 0; i++) {
        ARES_TRY(sweep_expand(v, "seed_options", s->o.seed_options.items[i], &word));
        if (strchr(word, '=')) add_word(s, r, word);
        else add_option(s, r, word, get(v, ARES_VIEW("seed")));
    }
    add_option(s, r, "trainer.experiment_name", r->name);
    add_option(s, r, "trainer.run_dir", r->run_dir);
    return ARES_OK;
}

/* Variables of the command line come after those of the file, and win. */
static int set_variables(sweep *s, const sweep_words *w, sweep_variables *v, const sweep_run *r)
{
    for (int64_t i = 0; i < s->o.let->count; i++)
        ARES_TRY(let(v, s->o.let->members[i].key, s->o.let->members[i].value));
    for (int i = 0; i < w->n; i++) {
        const char *pair = sweep_value_of(w, "--let", &i), *key = NULL, *value = NULL;
        if (!pair) continue;
        ARES_TRY(sweep_read_pair(&s->arena, "--let", pair, &key, &value));
        sweep_set(v, key, value);
    }
    /* a parameter, and the variables that go with it */
    for (int i = 0; i < s->n_parameters; i++) {
        const sweep_parameter *p = &s->parameters[i];
        const ares_json *other = NULL, *cases = p->cases; /* other: the first case of this value */
        for (int64_t k = 0; k < cases->count && cases->type == ARES_JSON_ARRAY && !other; k++) {
            const ares_json *when = ares_json_get(&cases->items[k], "when");
            if (when && sweep_same_value(text_of(v->arena, when), r->values[i]))
                other = &cases->items[k];
        }
        sweep_set(v, p->name, r->values[i]);
        for (int64_t k = 0; k < p->let->count; k++) {
            const ares_json *its = other ? ares_json_find(other, p->let->members[k].key) : NULL;
            ARES_TRY(let(v, p->let->members[k].key, its ? its : p->let->members[k].value));
        }
    }
    if (r->seed >= 0)
        sweep_set(v, "seed", ares_arena_printf(&s->arena, "%lld", (long long)r->seed));
    return ARES_OK;
}

/* ---------------------------------------------------------------- all runs */

/* Makes the runs, after file and command line are read. */
static int sweep_make_runs(sweep *s, const sweep_words *w)
{
    int64_t grid = 1, seeds = ARES_MAX(1, s->o.seeds.count);
    for (int i = 0; i < s->n_parameters && grid <= SWEEP_RUNS; i++)
        grid *= s->parameters[i].values.count;
    if (grid * seeds > SWEEP_RUNS)
        return ares_fail(ARES_ECONFIG, "sweep: %lld runs or more; at most %d",
                         (long long)(grid * seeds), SWEEP_RUNS);
    const char *run = template_of(s, s->o.run, false), *result = template_of(s, s->o.result, true);
    bool by_seed = strcmp(s->o.order, "seeds") == 0;
    s->runs = ares_arena_calloc(&s->arena, (size_t)(grid * seeds), sizeof *s->runs);
    for (int64_t i = 0; i < grid * seeds; i++) {
        sweep_run *r = &s->runs[i];
        /* by seed: the whole grid with the first seed, then with the second */
        int64_t seed = by_seed ? i / grid : i % seeds, at = by_seed ? i % grid : i / seeds;
        const char **values =
            ares_arena_calloc(&s->arena, (size_t)s->n_parameters + 1, sizeof *values);
        for (int k = s->n_parameters; k-- > 0;) { /* the first parameter varies slowest */
            const ares_texts *of = &s->parameters[k].values;
            values[k] = of->items[at % of->count];
            at /= of->count;
        }
        r->values = values;
        r->seed = s->o.seeds.count ? s->o.seeds.items[seed] : -1;
        sweep_variables v;
        sweep_variables_init(&v, &s->arena);
        int rc = set_variables(s, w, &v, r);
        if (rc == ARES_OK) rc = name_run(s, &v, run, result, r);
        if (rc == ARES_OK) rc = add_words(s, w, &v, r);
        sweep_variables_fini(&v);
        ARES_TRY(rc);
        s->n++;
    }
    /* no two runs may share a directory or a log */
    ares_map *seen = ares_map_new();
    int rc = ARES_OK;
    for (int r = 0; r < s->n && rc == ARES_OK; r++) {
        const char *paths[] = { s->runs[r].run_dir, s->runs[r].log };
        for (int p = 0; p < ARES_COUNT(paths) && rc == ARES_OK; p++) {
            int64_t other;
            if (ares_map_get(seen, ares_view_of(paths[p]), &other) && other != r)
                rc = ares_fail(ARES_ECONFIG,
                               "sweep: '%s' would be that of two runs (%s, and %s); name every "
                               "parameter in `run`, and no value twice",
                               paths[p], s->runs[other].fields, s->runs[r].fields);
            ares_map_put(seen, ares_view_of(paths[p]), r);
        }
    }
    ares_map_free(seen);
    return rc;
}

/* Reads file and command line, checks both, and makes the list of runs. */
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
    for (int i = 0; i < s->n_parameters; i++) {
        /* a case may only change what `let` has, so that a misspelt name is found */
        const sweep_parameter *p = &s->parameters[i];
        if (!p->values.count)
            return ares_fail(ARES_ECONFIG, "sweep: %s: no values; name some, as in --over %s=0,0.1",
                             p->name, p->name);
        for (int64_t at = 0; at < p->cases->count && p->cases->type == ARES_JSON_ARRAY; at++) {
            const ares_json *c = &p->cases->items[at];
            if (!ares_json_get(c, "when"))
                return ares_fail(ARES_ECONFIG, "sweep: %s: cases.%lld: needs `when`, a value",
                                 p->name, (long long)at);
            for (int64_t k = 0; k < c->count; k++) {
                ares_view key = c->members[k].key;
                if (!ares_view_is(key, "when") && !ares_json_find(p->let, key))
                    return ares_fail(ARES_ECONFIG, "sweep: %s: cases.%lld: `let` has no %.*s",
                                     p->name, (long long)at, (int)key.len, key.data);
            }
        }
    }
    if (!s->n_parameters && !s->o.seeds.count)
        return ares_fail(ARES_EUSE, "sweep: nothing is swept; name a --sweep FILE, --over "
                                    "OPTION=VALUES or --seeds (see ares-train sweep --help)");
    return sweep_make_runs(s, w);
}
