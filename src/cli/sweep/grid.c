/*
 * Runs. A run's words are those that a user would type: files, overrides of all runs, the command
 * line's overrides, the swept values, and last the names, so that the later win.
 */
#include <stdio.h>
#include <string.h>

#include "sweep.h"

/* ---------------------------------------------------------------- variables of a run */
static const char *text_of(ares_arena *arena, const ares_json *v)
{
    if (v->type == ARES_JSON_BOOL) return v->boolean ? "true" : "false";
    if (v->type == ARES_JSON_NULL) return "null";
    return ares_arena_copy(arena, v->text.data ? v->text.data : "", v->text.len);
}

static const char *name_of(ares_arena *arena, ares_view key)
{
    return ares_arena_copy(arena, key.data, key.len);
}

/* Sets one variable from its template. */
static int let(sweep_variables *v, ares_view key, const ares_json *value)
{
    const char *text, *name = name_of(v->arena, key);
    if (value->type == ARES_JSON_OBJECT || value->type == ARES_JSON_ARRAY)
        return ares_fail(ARES_ECONFIG, "sweep: let: %s: must be a text or a number", name);
    ARES_TRY(sweep_expand(v, name, text_of(v->arena, value), &text));
    sweep_set(v, name, text);
    return ARES_OK;
}

static const ares_json *case_of(ares_arena *arena, const sweep_parameter *p, const char *value)
{
    for (int64_t i = 0; i < p->cases->count && p->cases->type == ARES_JSON_ARRAY; i++) {
        const ares_json *when = ares_json_get(&p->cases->items[i], "when");
        if (when && sweep_same_value(text_of(arena, when), value)) return &p->cases->items[i];
    }
    return NULL;
}

static int set_parameter(sweep_variables *v, const sweep_parameter *p, const char *value)
{
    const ares_json *other = case_of(v->arena, p, value);
    sweep_set(v, p->name, value);
    for (int64_t i = 0; i < p->let->count; i++) {
        const ares_json *its = other ? ares_json_find(other, p->let->members[i].key) : NULL;
        ARES_TRY(let(v, p->let->members[i].key, its ? its : p->let->members[i].value));
    }
    return ARES_OK;
}

/* ---------------------------------------------------------------- templates that are not set */
static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

const char *sweep_shown_name(const char *const *names, int n, int i)
{
    const char *last = last_part(names[i]);
    for (int k = 0; k < n; k++)
        if (k != i && strcmp(last_part(names[k]), last) == 0) return names[i];
    return last;
}

/* "lr_{worker.actor.optim.lr|label}-seed_{seed}" */
static const char *run_template(sweep *s)
{
    ares_str t = { 0 };
    const char *names[SWEEP_PARAMETERS];
    for (int i = 0; i < s->n_parameters; i++) names[i] = s->parameters[i].name;
    if (s->o.run) ares_str_add_z(&t, s->o.run);
    for (int i = 0; i < s->n_parameters && !s->o.run; i++)
        ares_str_addf(&t, "%s%s_{%s|label}", t.len ? "-" : "",
                      sweep_shown_name(names, s->n_parameters, i), names[i]);
    if (s->o.seeds.count && !(s->o.run && strstr(s->o.run, "{seed")))
        ares_str_addf(&t, "%sseed_{seed}", t.len ? "-" : "");
    const char *copy = ares_arena_copy(&s->arena, t.data, t.len);
    ares_str_fini(&t);
    return copy;
}

/* "entropy={entropy} | seed={seed}" */
static const char *result_template(sweep *s)
{
    ares_str t = { 0 };
    if (s->o.result) ares_str_add_z(&t, s->o.result);
    for (int i = 0; i < s->n_parameters && !s->o.result; i++)
        ares_str_addf(&t, "%s%s={%s}", t.len ? " | " : "", s->parameters[i].name,
                      s->parameters[i].name);
    if (s->o.seeds.count && !(s->o.result && strstr(s->o.result, "{seed")))
        ares_str_addf(&t, "%sseed={seed}", t.len ? " | " : "");
    const char *copy = ares_arena_copy(&s->arena, t.data, t.len);
    ares_str_fini(&t);
    return copy;
}

/* ---------------------------------------------------------------- a run */
typedef struct templates {
    const char *run, *result;
} templates;

/* Expands a template into a variable of its own, which later templates may use. */
static int name(sweep_variables *v, const char *variable, const char *text, const char **out)
{
    ARES_TRY(sweep_expand(v, variable, text, out));
    sweep_set(v, variable, *out);
    return ARES_OK;
}

static int name_run(sweep *s, sweep_variables *v, const templates *t, sweep_run *r)
{
    const char *sweep_name, *dir, *summary;
    ARES_TRY(name(v, "name", s->o.name, &sweep_name));
    ARES_TRY(name(v, "dir", s->o.dir, &dir));
    ARES_TRY(name(v, "summary", s->o.summary, &summary));
    if (s->dir && (strcmp(s->name, sweep_name) != 0 || strcmp(s->dir, dir) != 0 ||
                   strcmp(s->summary, summary) != 0))
        return ares_fail(ARES_ECONFIG,
                         "sweep: name, dir and summary are those of all runs, and cannot depend on "
                         "a parameter with several values ('%s' and '%s')",
                         s->dir, dir);
    s->name = sweep_name;
    s->dir = dir;
    s->summary = summary;
    ARES_TRY(name(v, "run", t->run, &r->name));
    ARES_TRY(name(v, "run_dir", s->o.run_dir, &r->run_dir));
    ARES_TRY(name(v, "log", s->o.log, &r->log));
    size_t length = strlen(r->log);
    if (length > 4 && strcmp(r->log + length - 4, ".log") == 0) length -= 4;
    r->result = ares_arena_printf(&s->arena, "%.*s.result", (int)length, r->log);
    return sweep_expand(v, "result", t->result, &r->fields);
}

static void add_word(sweep *s, sweep_run *r, const char *word)
{
    if (r->n_words % 32 == 0) {
        const char **more = ares_arena_calloc(&s->arena, (size_t)r->n_words + 33, sizeof *more);
        if (r->n_words) memcpy(more, r->words, (size_t)r->n_words * sizeof *more);
        r->words = more;
    }
    r->words[r->n_words++] = word;
}

static void add_option(sweep *s, sweep_run *r, const char *option, const char *value)
{
    add_word(s, r, ares_arena_printf(&s->arena, "%s=%s", option, value));
}

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
        else add_option(s, r, word, sweep_get(v, "seed"));
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
        const char *pair = sweep_value_of(w, "--let", &i), *key, *value;
        if (!pair) continue;
        ARES_TRY(sweep_read_pair(&s->arena, "--let", pair, &key, &value));
        sweep_set(v, key, value);
    }
    for (int i = 0; i < s->n_parameters; i++)
        ARES_TRY(set_parameter(v, &s->parameters[i], r->values[i]));
    if (r->seed >= 0)
        sweep_set(v, "seed", ares_arena_printf(&s->arena, "%lld", (long long)r->seed));
    return ARES_OK;
}

static int make_run(sweep *s, const sweep_words *w, const templates *t, sweep_run *r)
{
    sweep_variables v;
    sweep_variables_init(&v, &s->arena);
    int rc = set_variables(s, w, &v, r);
    if (rc == ARES_OK) rc = name_run(s, &v, t, r);
    if (rc == ARES_OK) rc = add_words(s, w, &v, r);
    sweep_variables_fini(&v);
    return rc;
}

/* ---------------------------------------------------------------- all runs */
static int64_t combinations(const sweep *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->n_parameters && n <= SWEEP_RUNS; i++) n *= s->parameters[i].values.count;
    return n;
}

/* The values of combination `at`; the first parameter varies slowest. */
static const char *const *combination(sweep *s, int64_t at)
{
    const char **values = ares_arena_calloc(&s->arena, (size_t)s->n_parameters + 1, sizeof *values);
    for (int i = s->n_parameters; i-- > 0;) {
        const ares_texts *of = &s->parameters[i].values;
        values[i] = of->items[at % of->count];
        at /= of->count;
    }
    return values;
}

/* Two runs may not share a directory or a log. */
static int check_names(const sweep *s)
{
    ares_map *seen = ares_map_new();
    int rc = ARES_OK;
    for (int i = 0; i < s->n && rc == ARES_OK; i++) {
        const char *paths[] = { s->runs[i].run_dir, s->runs[i].log };
        for (int k = 0; k < ARES_COUNT(paths) && rc == ARES_OK; k++) {
            int64_t other;
            if (ares_map_get(seen, ares_view_of(paths[k]), &other) && other != i)
                rc = ares_fail(ARES_ECONFIG,
                               "sweep: '%s' would be that of two runs (%s, and %s); name every "
                               "parameter in `run`, and no value twice",
                               paths[k], s->runs[other].fields, s->runs[i].fields);
            ares_map_put(seen, ares_view_of(paths[k]), i);
        }
    }
    ares_map_free(seen);
    return rc;
}

int sweep_make_runs(sweep *s, const sweep_words *w)
{
    int64_t grid = combinations(s), seeds = ARES_MAX(1, s->o.seeds.count);
    if (grid * seeds > SWEEP_RUNS)
        return ares_fail(ARES_ECONFIG, "sweep: %lld runs or more; at most %d",
                         (long long)(grid * seeds), SWEEP_RUNS);
    const templates t = { run_template(s), result_template(s) };
    bool by_seed = strcmp(s->o.order, "seeds") == 0;
    s->runs = ares_arena_calloc(&s->arena, (size_t)(grid * seeds), sizeof *s->runs);
    for (int64_t i = 0; i < grid * seeds; i++) {
        sweep_run *r = &s->runs[i];
        int64_t seed = by_seed ? i / grid : i % seeds;
        r->values = combination(s, by_seed ? i % grid : i / seeds);
        r->seed = s->o.seeds.count ? s->o.seeds.items[seed] : -1;
        ARES_TRY(make_run(s, w, &t, r));
        s->n++;
    }
    return check_names(s);
}
