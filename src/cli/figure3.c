/* The figure of a sweep: first its runs by value, from sweep.json, then the drawing. */
#include "cli.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct sweep_variant {
    const char *name; /* the swept value */
    int n, all;       /* all: runs of the sweep; n: those with metrics */
    runs_run *runs;   /* [n] */
    char colour[8];   /* "#rrggbb" */
    const char *dash; /* an SVG's stroke-dasharray */
} sweep_variant;

typedef struct sweep_study {
    ares_arena arena;
    const char *name;
    const char *parameter; /* what is swept; "value" where it is not one parameter */
    const char *dir, *from;
    const ares_json *runs;
    int n;
    sweep_variant *variants; /* [n] in the order of the sweep */
} sweep_study;

/* The runs by the value they were swept with; a run without metrics is counted and left out. */
static int read_runs(sweep_study *s)
{
    s->variants = ares_arena_calloc(&s->arena, (size_t)s->runs->count + 1, sizeof *s->variants);
    for (int64_t i = 0; i < s->runs->count; i++) {
        const ares_json *run = &s->runs->items[i];
        const char *name = cli_text_of(run, "variant");
        if (!name || !cli_text_of(run, "run_dir") || !cli_text_of(run, "run"))
            return ares_fail(ARES_EFORMAT,
                             "compare: %s/sweep.json: runs.%lld: needs run, variant and run_dir",
                             s->dir, (long long)i);
        int k = 0;
        while (k < s->n && strcmp(s->variants[k].name, name) != 0) k++;
        sweep_variant *v = &s->variants[k];
        if (k == s->n) {
            size_t bytes = (size_t)s->runs->count * sizeof(runs_run);
            s->variants[s->n++] =
                (sweep_variant){ .name = name, .runs = ares_arena_alloc(&s->arena, bytes) };
        }
        v->all++;
        /*
         * The run directory as written, or below the folder that the sweep was started in, or
         * beside sweep.json, where both were moved together.
         */
        const char *as_written = cli_text_of(run, "run_dir"), *dir = NULL;
        const char *places[] = {
            as_written, ares_arena_printf(&s->arena, "%s/%s", s->from, as_written),
            ares_arena_printf(&s->arena, "%s/%s", s->dir, cli_text_of(run, "run"))
        };
        for (int p = 0; p < ARES_COUNT(places) && !dir; p++)
            if (ares_file_exists(ares_arena_printf(&s->arena, "%s/metrics.jsonl", places[p])))
                dir = places[p];
        if (dir) ARES_TRY(runs_read(&s->arena, "compare", dir, &v->runs[v->n++]));
    }
    return ARES_OK;
}

/* Reads into a zeroed study; its arena is to be freed, also after a failure. */
static int sweep_study_read(sweep_study *s, const char *dir)
{
    const char *path = ares_arena_printf(&s->arena, "%s/sweep.json", dir);
    const ares_json *all;
    ares_str text = { 0 };
    s->dir = dir;
    int rc = ares_file_read(path, &text);
    const char *copy = ares_arena_copy(&s->arena, text.data ? text.data : "", text.len);
    ares_str_fini(&text);
    ARES_TRY(rc);
    ARES_TRY(ares_json_parse(&s->arena, ares_view_trim(ares_view_of(copy)), path, &all));
    s->name = cli_text_of(all, "sweep");
    s->from = cli_text_of(all, "from");
    s->runs = ares_json_get(all, "runs");
    if (!s->name || !s->runs || s->runs->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "compare: %s: not a sweep's list of runs", path);
    if (!s->from) s->from = ".";
    const ares_json *p = ares_json_get(all, "parameters");
    s->parameter = p && p->count == 1 && p->items[0].type == ARES_JSON_STRING
                       ? p->items[0].text.data
                       : "value";
    ARES_TRY(read_runs(s));
    /* numbers get colours in their order; a word among them (nofilter) is black and dashed */
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
    return ARES_OK;
}

/* How many runs have metrics. */
static int sweep_study_runs(const sweep_study *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) n += s->variants[i].n;
    return n;
}

/*
 * The figure of a sweep: a panel per metric with a curve per value, and best and last success
 * against the swept value. A curve is the mean over the steps that all seeds of the value have;
 * behind that, where some have ended, each remaining seed goes on as a thin line of its own,
 * because a mean over survivors would rise where a run collapses.
 */

/* ---------------------------------------------------------------- metrics */
enum { MOST_NAMES = 4, MOST_PANELS = 32 }; /* names: of a subject, a panel each */

/* The names of metrics that match a pattern, as first met; returns how many, MOST_NAMES at most. */
static int names_like(sweep_study *s, const char *pattern, const char **names)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->variants[i].n; k++) {
            const runs_run *r = &s->variants[i].runs[k];
            for (int64_t row = 0; row < r->n; row++)
                for (int64_t m = 0; m < r->rows[row]->count; m++) {
                    ares_view key = r->rows[row]->members[m].key;
                    char name[200];
                    snprintf(name, sizeof name, "%.*s", (int)key.len, key.data);
                    if (fnmatch(pattern, name, FNM_PATHNAME) != 0) continue;
                    bool known = false;
                    for (int j = 0; j < n; j++) known = known || strcmp(names[j], name) == 0;
                    if (!known && n < MOST_NAMES)
                        names[n++] = ares_arena_copy(&s->arena, name, strlen(name));
                }
        }
    return n;
}

/* What a panel shows: metrics of the first pattern that any run has; `*` matches a tag. */
typedef struct subject {
    const char *patterns[4];
    bool success;   /* the first one shown also gets a panel of best and last */
    bool as_logged; /* not smoothed: validations are few */
    bool below_one; /* shown only where it is below 1 somewhere */
} subject;
static const subject subjects[] = {
    { .patterns = { "val-env/*/success", "val/accuracy", "val/reward_score" },
      .success = true,
      .as_logged = true },
    { .patterns = { "train/*/success", "reward/accuracy", "reward/overall" }, .success = true },
    { .patterns = { "rollout/in_group_reward_std" } },
    { .patterns = { "actor/entropy" } },
    { .patterns = { "actor/kl_loss" } },
    { .patterns = { "collapse_first_turn_sample/mi_estimate" }, .as_logged = true },
    { .patterns = { "collapse_first_turn_sample/conditional_entropy_est" }, .as_logged = true },
    { .patterns = { "train/response_length", "response_length/mean" } },
    { .patterns = { "rollout/filter_kept_ratio" }, .below_one = true },
};

/* ---------------------------------------------------------------- curves */
/* An empty curve with room for the points, which add_point writes through its const pointers. */
static figure_curve new_curve(sweep_study *s, const sweep_variant *v, int64_t points)
{
    double *x[4];
    for (int i = 0; i < 4; i++)
        x[i] = ares_arena_alloc(&s->arena, (size_t)(points + 1) * sizeof(double));
    return (figure_curve){ .name = v->name,
                           .x = x[0],
                           .mid = x[1],
                           .low = x[2],
                           .high = x[3],
                           .colour = v->colour,
                           .dash = v->dash };
}

/* Appends to a curve the mean of y [n] at x, with lowest and highest as its band. */
static void add_point(figure_curve *c, double x, const double *y, int n)
{
    double sum = 0, low = INFINITY, high = -INFINITY;
    for (int i = 0; i < n; i++) {
        sum += y[i];
        low = fmin(low, y[i]);
        high = fmax(high, y[i]);
    }
    ((double *)c->x)[c->n] = x;
    ((double *)c->mid)[c->n] = sum / n;
    ((double *)c->low)[c->n] = low;
    ((double *)c->high)[c->n++] = high;
}

/* A metric by step, of those runs of a value that have it. */
typedef struct seeds {
    int n;
    runs_series *of; /* [n] */
    bool *stopped;   /* [n] early */
} seeds;

/* Appends the curves of a value: the mean, then the thin ones. */
static int add_curves(sweep_study *s, const sweep_variant *v, const char *metric, int64_t window,
                      figure_curve *out)
{
    int n = 0;
    seeds x = { .of = ares_arena_alloc(&s->arena, (size_t)(v->n + 1) * sizeof *x.of),
                .stopped = ares_arena_alloc(&s->arena, (size_t)(v->n + 1) * sizeof *x.stopped) };
    for (int i = 0; i < v->n; i++) {
        runs_series p = runs_series_of(&s->arena, &v->runs[i], metric);
        if (!p.n) continue;
        runs_smooth(&p, window);
        x.stopped[x.n] = v->runs[i].stopped != NULL;
        x.of[x.n++] = p;
    }
    if (!x.n) return 0;
    /* the mean over the steps that all seeds have */
    figure_curve c = new_curve(s, v, x.of[0].n);
    double *y = ares_arena_alloc(&s->arena, (size_t)x.n * sizeof *y);
    for (int64_t k = 0; k < x.of[0].n; k++) {
        int have = 0;
        for (int i = 0; i < x.n; i++)
            for (int64_t j = 0; j < x.of[i].n; j++)
                if (x.of[i].step[j] == x.of[0].step[k]) y[have++] = x.of[i].value[j];
        if (have == x.n) add_point(&c, x.of[0].step[k], y, have);
    }
    out[n++] = c;
    /* a cross at the last point of each run that was stopped early */
    double *at = ares_arena_alloc(&s->arena, (size_t)x.n * 2 * sizeof *at);
    for (int i = 0; i < x.n; i++) {
        if (!x.stopped[i]) continue;
        at[out->n_crosses] = x.of[i].step[x.of[i].n - 1];
        at[x.n + out->n_crosses++] = x.of[i].value[x.of[i].n - 1];
    }
    out->cross_x = at;
    out->cross_y = at + x.n;
    for (int i = 0; i < x.n; i++) {
        /* a run after the last step of the mean, where it begins; empty where it has no more */
        const runs_series *p = &x.of[i];
        const figure_curve *mean = &out[0];
        figure_curve rest = new_curve(s, v, p->n + 1);
        double end = mean->n ? mean->x[mean->n - 1] : -INFINITY;
        rest.thin = true;
        for (int64_t k = 0; k < p->n; k++) {
            if (p->step[k] <= end) continue;
            if (!rest.n && mean->n) add_point(&rest, end, &mean->mid[mean->n - 1], 1);
            add_point(&rest, p->step[k], &p->value[k], 1);
        }
        if (rest.n) out[n++] = rest;
    }
    return n;
}

/* ---------------------------------------------------------------- panels */

/* Best and last of a metric of the runs of a value. */
typedef struct ends {
    int n, stopped;
    double *best, *last; /* [n] of each run that has the metric */
} ends;

static ends ends_of(sweep_study *s, const sweep_variant *v, const char *metric)
{
    ends e = { .best = ares_arena_alloc(&s->arena, (size_t)(v->n + 1) * sizeof(double)),
               .last = ares_arena_alloc(&s->arena, (size_t)(v->n + 1) * sizeof(double)) };
    for (int i = 0; i < v->n; i++) {
        runs_series p = runs_series_of(&s->arena, &v->runs[i], metric);
        if (!p.n) continue;
        e.best[e.n] = p.value[p.n - 1]; /* step 0 is the untrained model */
        for (int64_t k = 0; k < p.n; k++)
            if (p.step[k] > 0) e.best[e.n] = fmax(e.best[e.n], p.value[k]);
        e.last[e.n++] = p.value[p.n - 1];
        e.stopped += v->runs[i].stopped != NULL;
    }
    return e;
}

/*
 * Best and last of a metric against the values, in the order of the sweep, beside each other, so
 * that neither bar hides the other.
 */
#define BESIDE 0.07 /* of the way to the next value */
static figure over_values(sweep_study *s, const char *metric, const char *best)
{
    sweep_variant *looks =
        ares_arena_alloc(&s->arena, 2 * sizeof *looks); /* curves point into them */
    looks[0] = (sweep_variant){ .name = best, .colour = "#0072b2", .dash = "" };
    looks[1] = (sweep_variant){ .name = "last", .colour = "#d55e00", .dash = "7 3" };
    figure_curve *c = ares_arena_calloc(&s->arena, 2, sizeof *c);
    const char **names = ares_arena_alloc(&s->arena, (size_t)(s->n + 1) * sizeof *names);
    double *cross = ares_arena_alloc(&s->arena, (size_t)(2 * s->n + 1) * sizeof *cross);
    for (int i = 0; i < 2; i++) {
        c[i] = new_curve(s, &looks[i], s->n);
        c[i].dots = c[i].bars = true;
    }
    for (int i = 0; i < s->n; i++) {
        ends e = ends_of(s, &s->variants[i], metric);
        names[i] = s->variants[i].name;
        if (!e.n) continue;
        add_point(&c[0], i - BESIDE, e.best, e.n);
        add_point(&c[1], i + BESIDE, e.last, e.n);
        if (!e.stopped) continue;
        cross[c[1].n_crosses] = i + BESIDE;
        cross[s->n + c[1].n_crosses++] = c[1].mid[c[1].n - 1];
    }
    c[1].cross_x = cross;
    c[1].cross_y = cross + s->n;
    return (figure){ .title = ares_arena_printf(&s->arena, "%s and last", best),
                     .x_label = s->parameter,
                     .curves = c,
                     .n_curves = 2,
                     .x_names = names,
                     .n_x_names = s->n,
                     .own_legend = true };
}

/* More success is better; whether more of the metric of --metric is better, is not known. */
static const char *best_of(const figure3_options *o)
{
    return o->metric ? "highest" : "best";
}

/* Makes all panels, returns how many. *first: the metric that has a panel of best and last. */
static int make_panels(sweep_study *s, const figure3_options *o, figure *panels, const char **first)
{
    const subject asked = { .patterns = { o->metric }, .success = true };
    const subject *of = o->metric ? &asked : subjects;
    size_t most = (size_t)(sweep_study_runs(s) + s->n); /* a mean per value, a rest per run */
    int n = 0, count = o->metric ? 1 : ARES_COUNT(subjects);
    *first = NULL;
    for (int i = 0; i < count; i++) {
        const char *names[MOST_NAMES], *const *patterns = of[i].patterns;
        int found = 0;
        for (int k = 0; k < ARES_COUNT(of[i].patterns) && patterns[k] && !found; k++)
            found = names_like(s, patterns[k], names);
        for (int k = 0; k < found && n + 2 <= MOST_PANELS; k++) {
            const char *unit = runs_unit_of(names[k]);
            figure_curve *curves = ares_arena_calloc(&s->arena, most, sizeof *curves);
            figure f = { .title = unit ? ares_arena_printf(&s->arena, "%s (%s)", names[k], unit)
                                       : names[k],
                         .x_label = "training step",
                         .curves = curves };
            for (int v = 0; v < s->n; v++)
                f.n_curves += add_curves(s, &s->variants[v], names[k],
                                         of[i].as_logged ? 1 : o->smooth, curves + f.n_curves);
            bool below_one = false;
            for (int c = 0; c < f.n_curves; c++)
                for (int64_t p = 0; p < curves[c].n; p++)
                    below_one = below_one || curves[c].low[p] < 1;
            if (!f.n_curves || (of[i].below_one && !below_one)) continue;
            panels[n++] = f;
            if (*first || !of[i].success) continue;
            *first = names[k];
            panels[n++] = over_values(s, names[k], best_of(o));
        }
    }
    return n;
}

/* ---------------------------------------------------------------- the table */
/* "0.512 (0.480 to 0.544)": mean of x [n], lowest and highest. */
static void print_cell(const double *x, int n)
{
    double sum = 0, low = INFINITY, high = -INFINITY;
    char text[64] = "-";
    for (int i = 0; i < n; i++) {
        sum += x[i];
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    if (n == 1) snprintf(text, sizeof text, "%.3f", sum);
    if (n > 1) snprintf(text, sizeof text, "%.3f (%.3f to %.3f)", sum / n, low, high);
    printf(" %-24s |", text);
}

/* A row per value: runs, best and last of the metric, how many stopped early. */
static void print_table(sweep_study *s, const char *metric, const char *best)
{
    int width = (int)strlen(s->parameter);
    for (int i = 0; i < s->n; i++) width = ARES_MAX(width, (int)strlen(s->variants[i].name));
    printf("\n%s: mean over seeds (lowest to highest)\n\n| %-*s | runs  | %-24s | %-24s | stopped "
           "early |\n"
           "|---|---|---|---|---|\n",
           metric, width, s->parameter, best, "last");
    for (int i = 0; i < s->n; i++) {
        const sweep_variant *v = &s->variants[i];
        ends e = ends_of(s, v, metric);
        char runs[16];
        snprintf(runs, sizeof runs, "%d/%d", e.n, v->all);
        printf("| %-*s | %-5s |", width, v->name, runs);
        print_cell(e.best, e.n);
        print_cell(e.last, e.n);
        printf(" %-13d |\n", e.stopped);
    }
    putchar('\n');
}

/* ---------------------------------------------------------------- the page */
/* Says what the kinds of lines and marks mean that the page shows. */
static const char *subtitle(sweep_study *s, int64_t window, bool thin)
{
    bool seeds = false, stopped = false;
    char smooth[48] = "";
    for (int i = 0; i < s->n; i++) {
        seeds = seeds || s->variants[i].all > 1;
        for (int k = 0; k < s->variants[i].n; k++)
            stopped = stopped || s->variants[i].runs[k].stopped;
    }
    if (window > 1)
        snprintf(smooth, sizeof smooth, "; training: mean over %lld steps", (long long)window);
    return ares_arena_printf(&s->arena, "%s%s%s%s",
                             seeds ? "mean of seeds, band: lowest to highest" : "one run per value",
                             thin ? "; thin: one seed, others ended" : "",
                             stopped ? "; ×: stopped early" : "", smooth);
}

/* All panels under one legend, as figure3.svg in the sweep's folder or where --svg says. */
static int write_page(sweep_study *s, const figure3_options *o, const figure *panels, int n)
{
    bool thin = false;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < panels[i].n_curves; k++) thin = thin || panels[i].curves[k].thin;
    figure_curve *legend = ares_arena_calloc(&s->arena, (size_t)s->n + 1, sizeof *legend);
    for (int i = 0; i < s->n; i++)
        legend[i] = (figure_curve){ .name = s->variants[i].name,
                                    .colour = s->variants[i].colour,
                                    .dash = s->variants[i].dash };
    const figure_page page = { .title = o->title ? o->title : s->name,
                               .subtitle = subtitle(s, o->smooth, thin),
                               .legend_title = s->parameter,
                               .legend = legend,
                               .n_legend = s->n,
                               .panels = panels,
                               .n_panels = n };
    const char *path = o->svg ? o->svg : ares_arena_printf(&s->arena, "%s/figure3.svg", s->dir);
    ares_str svg = { 0 };
    figure_write_page(&page, &svg);
    int rc = ares_file_write_atomic(path, svg.data, svg.len);
    ares_str_fini(&svg);
    if (rc == ARES_OK) printf("figure: %s\n", path);
    return rc;
}

/* Reads the sweep, makes the panels, prints the table and writes the page. */
static int draw(sweep_study *s, const figure3_options *o)
{
    figure panels[MOST_PANELS];
    const char *first;
    ARES_TRY(sweep_study_read(s, o->dir));
    int n = make_panels(s, o, panels, &first);
    int n_runs = sweep_study_runs(s), at = 0;
    if (!n && o->metric && n_runs) {
        const runs_run **runs = ares_arena_alloc(&s->arena, (size_t)(n_runs + 1) * sizeof *runs);
        for (int i = 0; i < s->n; i++)
            for (int k = 0; k < s->variants[i].n; k++) runs[at++] = &s->variants[i].runs[k];
        return runs_unknown_metric(&s->arena, o->metric, runs, at);
    }
    if (!n)
        return ares_fail(ARES_EUSE, "compare: '%s': no run of the sweep has metrics to show yet",
                         o->dir);
    if (first) print_table(s, first, best_of(o));
    return write_page(s, o, panels, n);
}

/* True also where the sweep cannot be read: drawing then says why. */
bool figure3_has_metrics(const char *dir)
{
    sweep_study s = { 0 };
    bool has = sweep_study_read(&s, dir) != ARES_OK || sweep_study_runs(&s) > 0;
    ares_arena_fini(&s.arena);
    return has;
}

int figure3_draw(const figure3_options *o)
{
    sweep_study s = { 0 };
    int rc = draw(&s, o);
    ares_arena_fini(&s.arena);
    if (fflush(stdout) && rc == ARES_OK)
        rc = ares_fail(ARES_EIO, "compare: stdout cannot be written");
    return rc;
}
