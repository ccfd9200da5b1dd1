/* sweep.json and the runs it names. */
#include "sweep_study.h"

#include <string.h>

#include "figure.h"

static const char *text_of(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type == ARES_JSON_STRING ? v->text.data : NULL;
}

static const char *manifest_path(sweep_study *s, const char *dir)
{
    return ares_arena_printf(&s->arena, "%s/sweep.json", dir);
}

/* The run directory as written, or below the folder that the sweep was started in, or beside. */
static const char *find_run(sweep_study *s, const ares_json *run)
{
    const char *dir = text_of(run, "run_dir"), *name = text_of(run, "run");
    const char *places[] = { dir, ares_arena_printf(&s->arena, "%s/%s", s->from, dir),
                             ares_arena_printf(&s->arena, "%s/%s", s->dir, name) };
    for (int i = 0; i < ARES_COUNT(places); i++)
        if (ares_file_exists(ares_arena_printf(&s->arena, "%s/metrics.jsonl", places[i])))
            return places[i];
    return NULL;
}

static sweep_variant *variant_named(sweep_study *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->variants[i].name, name) == 0) return &s->variants[i];
    size_t bytes = (size_t)s->runs->count * sizeof(runs_run);
    s->variants[s->n] = (sweep_variant){ .name = name, .runs = ares_arena_alloc(&s->arena, bytes) };
    return &s->variants[s->n++];
}

static int read_runs(sweep_study *s)
{
    s->variants = ares_arena_calloc(&s->arena, (size_t)s->runs->count + 1, sizeof *s->variants);
    for (int64_t i = 0; i < s->runs->count; i++) {
        const ares_json *run = &s->runs->items[i];
        const char *name = text_of(run, "variant");
        if (!name || !text_of(run, "run_dir") || !text_of(run, "run"))
            return ares_fail(ARES_EFORMAT,
                             "compare: %s/sweep.json: runs.%lld: needs run, variant and run_dir",
                             s->dir, (long long)i);
        sweep_variant *v = variant_named(s, name);
        v->all++;
        const char *dir = find_run(s, run);
        if (dir) ARES_TRY(runs_read(&s->arena, "compare", dir, &v->runs[v->n++]));
    }
    return ARES_OK;
}

static int read_manifest(sweep_study *s)
{
    const char *path = manifest_path(s, s->dir);
    const ares_json *all;
    ares_str text = { 0 };
    int rc = ares_file_read(path, &text);
    const char *copy = ares_arena_copy(&s->arena, text.data ? text.data : "", text.len);
    ares_str_fini(&text);
    ARES_TRY(rc);
    ARES_TRY(ares_json_parse(&s->arena, ares_view_trim(ares_view_of(copy)), path, &all));
    s->name = text_of(all, "sweep");
    s->from = text_of(all, "from");
    s->runs = ares_json_get(all, "runs");
    if (!s->name || !s->runs || s->runs->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "compare: %s: not a sweep's list of runs", path);
    if (!s->from) s->from = ".";
    const ares_json *p = ares_json_get(all, "parameters");
    s->parameter = p && p->count == 1 && p->items[0].type == ARES_JSON_STRING
                       ? p->items[0].text.data
                       : "value";
    return ARES_OK;
}

/* Numbers get colours in their order; a word among them (nofilter) is black and dashed. */
static void choose_colours(sweep_study *s)
{
    int numbers = 0, at = 0;
    double x;
    for (int i = 0; i < s->n; i++)
        numbers += ares_parse_double(ares_view_of(s->variants[i].name), &x);
    bool ordered = 2 * numbers > s->n;
    for (int i = 0; i < s->n; i++) {
        sweep_variant *v = &s->variants[i];
        bool word = ordered && !ares_parse_double(ares_view_of(v->name), &x);
        if (word) memcpy(v->colour, "#000000", 8);
        else figure_ordered_colour(at++, ordered ? numbers : s->n, v->colour);
        v->dash = word ? "2 3" : at % 2 == 0 ? "8 3" : "";
    }
}

int sweep_study_read(sweep_study *s, const char *dir)
{
    s->dir = dir;
    ARES_TRY(read_manifest(s));
    ARES_TRY(read_runs(s));
    choose_colours(s);
    return ARES_OK;
}

int sweep_study_runs(const sweep_study *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) n += s->variants[i].n;
    return n;
}

bool sweep_study_is(const char *dir)
{
    sweep_study s = { 0 };
    bool is = ares_file_exists(manifest_path(&s, dir));
    ares_arena_fini(&s.arena);
    return is;
}
