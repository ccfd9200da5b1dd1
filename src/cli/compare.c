/* ares-train compare: first reading the metrics of run directories, then the command. */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads metrics.jsonl and DONE of a run directory; all lies in the arena. */
int runs_read(ares_arena *arena, const char *verb, const char *dir, runs_run *out)
{
    ares_str path = { 0 }, text = { 0 };
    *out = (runs_run){ .dir = dir };
    int rc = ARES_OK;
    if (!ares_file_exists(ares_path_join(&path, dir, "metrics.jsonl")))
        rc = ares_fail(
            ARES_EUSE,
            "%s: '%s': no metrics.jsonl there; name run directories ('ares-train runs' lists "
            "them)",
            verb, dir);
    else rc = ares_file_read(path.data, &text);
    if (rc == ARES_OK) {
        const char *at = ares_arena_copy(arena, text.data, text.len), *end = at + text.len,
                   *line_end;
        int64_t lines = 0;
        for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
        out->rows = ares_arena_alloc(arena, (size_t)(lines + 1) * sizeof *out->rows);
        /* a last line without an end is being written by a run that is not finished */
        for (; rc == ARES_OK && (line_end = memchr(at, '\n', (size_t)(end - at)));
             at = line_end + 1) {
            int64_t step = 0;
            rc = ares_json_parse(arena, (ares_view){ at, (size_t)(line_end - at) }, path.data,
                                 &out->rows[out->n]);
            if (rc == ARES_OK) rc = ares_json_get_i64(out->rows[out->n], "step", 0, &step);
            out->last_step = ARES_MAX(out->last_step, step);
            out->n++;
        }
    }
    out->done = ares_file_exists(ares_path_join(&path, dir, "DONE"));
    ares_str end = { 0 };
    if (out->done && ares_file_read(path.data, &end) == ARES_OK) {
        /* JSON with "stopped" where a control ended the run; DONE of older runs is empty */
        const ares_json *done, *why = NULL;
        const char *copy = ares_arena_copy(arena, end.data ? end.data : "", end.len);
        if (ares_json_parse(arena, ares_view_trim((ares_view){ copy, end.len }), path.data,
                            &done) == ARES_OK)
            why = ares_json_get(done, "stopped");
        if (why && why->type == ARES_JSON_STRING) out->stopped = why->text.data;
    }
    ares_str_fini(&end);
    ares_str_fini(&path);
    ares_str_fini(&text);
    return rc;
}

/* A metric by step; steps without it are left out, and of a repeated step the last row counts. */
runs_series runs_series_of(ares_arena *arena, const runs_run *r, const char *metric)
{
    size_t bytes = (size_t)(r->n + 1) * sizeof(double);
    runs_series p = { .step = ares_arena_alloc(arena, bytes),
                      .value = ares_arena_alloc(arena, bytes) };
    for (int64_t i = 0; i < r->n; i++) {
        const ares_json *v = ares_json_get(r->rows[i], metric),
                        *step = ares_json_get(r->rows[i], "step");
        if (!v || !step || (v->type != ARES_JSON_INT && v->type != ARES_JSON_FLOAT)) continue;
        if (!p.n || p.step[p.n - 1] != step->number) p.n++;
        p.step[p.n - 1] = step->number;
        p.value[p.n - 1] = v->number;
    }
    return p;
}

/* The failure for a metric that no run has, with the nearest name of those that some run has. */
int runs_unknown_metric(ares_arena *arena, const char *metric, const runs_run *const *runs, int n)
{
    /* every name of every row, once */
    ares_map *names = ares_map_new();
    for (int i = 0; i < n; i++)
        for (int64_t row = 0; row < runs[i]->n; row++)
            for (int64_t k = 0; k < runs[i]->rows[row]->count; k++)
                ares_map_put(names, runs[i]->rows[row]->members[k].key, 0);
    /* as C strings, for ares_nearest */
    int count = (int)ares_map_count(names);
    const char **all = ares_arena_alloc(arena, (size_t)(count + 1) * sizeof *all);
    for (int i = 0; i < count; i++) {
        ares_view name = ares_map_key(names, i);
        all[i] = ares_arena_copy(arena, name.data, name.len);
    }
    ares_map_free(names);
    const char *like = ares_nearest(metric, all, count);
    return ares_fail(ARES_EUSE,
                     "compare: --metric = '%s': no run has it in its metrics.jsonl%s%s%s", metric,
                     like ? "; did you mean '" : "; its keys are the names there", like ? like : "",
                     like ? "'?" : "");
}

/* From the last value back, so that each mean is of values not yet replaced. */
void runs_smooth(runs_series *p, int64_t window)
{
    for (int64_t i = p->n; i-- > 0;) {
        int64_t first = ARES_MAX(0, i - window + 1);
        double sum = 0;
        for (int64_t k = first; k <= i; k++) sum += p->value[k];
        p->value[i] = sum / (double)(i - first + 1);
    }
}

/* The first part that occurs in the name decides. */
const char *runs_unit_of(const char *metric)
{
    static const struct {
        const char *part, *unit;
    } units[] = {
        { "timing_s/", "s" },
        { "response_length", "tokens" },
        { "num_tokens", "tokens" },
        { "generated_tokens", "tokens" },
        { "hwe_num", "tokens per answer" },
        { "aepo/target", "tokens per answer" },
        { "aepo/tau", "nats" },
        { "aepo/kl/", "nats per token" },
        { "success", "share of episodes" },
        { "accuracy", "share of answers right" },
        { "acc_mean", "share of answers right" },
        { "_frac", "share" },
        { "actor/entropy", "nats" },
        { "kl_loss", "nats per token" },
        { "mi_estimate", "nats" },
        { "entropy_est", "nats" },
        { "kept_ratio", "share" },
        { "memory", "GiB" },
    };
    for (int i = 0; i < ARES_COUNT(units); i++)
        if (strstr(metric, units[i].part)) return units[i].unit;
    return NULL;
}

/*
 * ares-train compare: the runs of a study side by side. Runs of one variant differ only in their
 * seeds. Where variants have the same number of runs, the k-th run of one and the k-th run of
 * another are a pair, and the differences of pairs say more than those of means.
 */

/* The options as typed; those not set have the defaults of ares_cli_compare. */
typedef struct options {
    const char *metric, *columns, *svg, *title, *x, *band;
    int64_t last, smooth; /* steps that a mean of the table, and of the figure, counts */
    bool asked;           /* --metric was given */
} options;
/* The runs that one name was given. */
typedef struct variant {
    const char *name;
    int n;
    runs_run *runs; /* [n] in the order in which they were named */
} variant;
/* All that the words name. */
typedef struct study {
    ares_arena arena;
    int n;
    variant *variants; /* [n] in the order of their first runs */
} study;

/* ---------------------------------------------------------------- reading */
/* Reads the runs that the words [n] name, each [VARIANT=]RUN_DIR. */
static int read_study(study *s, int n, const char *const *words)
{
    if (!n)
        return ares_fail(ARES_EUSE,
                         "compare: no run directory is named (see ares-train compare --help)");
    s->variants = ares_arena_alloc(&s->arena, (size_t)n * sizeof *s->variants);
    for (int i = 0; i < n; i++) {
        /* a directory's own name may have a '=' in it */
        const char *equals = ares_dir_exists(words[i]) ? NULL : strchr(words[i], '=');
        const char *name =
            equals ? ares_arena_copy(&s->arena, words[i], (size_t)(equals - words[i])) : words[i];
        int k = 0;
        ares_str line = { 0 }; /* in which a name of any bytes keeps the table whole */
        cli_add_line(&line, ares_view_of(name));
        name = ares_arena_copy(&s->arena, line.data ? line.data : "", line.len);
        ares_str_fini(&line);
        while (k < s->n && strcmp(s->variants[k].name, name) != 0) k++;
        variant *v = &s->variants[k];
        if (k == s->n) {
            runs_run *runs = ares_arena_alloc(&s->arena, (size_t)n * sizeof *runs);
            s->variants[s->n++] = (variant){ .name = name, .runs = runs };
        }
        ARES_TRY(runs_read(&s->arena, "compare", equals ? equals + 1 : words[i], &v->runs[v->n++]));
    }
    return ARES_OK;
}

/* ---------------------------------------------------------------- tables */
/* Mean of a metric over the run's last steps, or its sum over all ("sum:A"); NaN: never logged. */
static double column_of(ares_arena *arena, const runs_run *r, const char *column, int64_t last)
{
    /* "sum:rollout/generated_tokens" */
    bool total = strncmp(column, "sum:", 4) == 0;
    runs_series p = runs_series_of(arena, r, total ? column + 4 : column);
    double sum = 0, n = 0;
    for (int64_t i = 0; i < p.n; i++) {
        if (!total && p.step[i] <= (double)(r->last_step - last)) continue;
        sum += p.value[i];
        n++;
    }
    return n > 0 ? total ? sum : sum / n : NAN;
}

typedef struct table {
    const char *const *columns; /* metrics, "sum:" before some */
    int n_columns;
    int64_t last; /* steps that a mean counts */
    int name_width;
} table;
/* columns of a cell at least: "0.512 ± 0.031" and room for a sign */
enum { CELL_WIDTH = 16 };

/* columns: how wide the text prints; width: of the column. */
static void print_cell(const char *text, int columns, int width)
{
    printf(" %s%*s |", text, ARES_MAX(0, width - columns), "");
}

/* Columns of a column of the table. */
static int width_of(const char *column)
{
    return ARES_MAX(CELL_WIDTH, (int)strlen(column));
}

/* The names of the columns and the rule below them, in Markdown. */
static void print_head(const table *t, const char *first)
{
    printf("\n|");
    print_cell(first, (int)strlen(first), t->name_width);
    print_cell("runs", 4, 4);
    for (int k = 0; k < t->n_columns; k++)
        print_cell(t->columns[k], (int)strlen(t->columns[k]), width_of(t->columns[k]));
    printf("\n|---|---|");
    for (int k = 0; k < t->n_columns; k++) printf("---|");
    putchar('\n');
}

/* against: the variant that is subtracted run by run; NULL: none. */
static void print_row(ares_arena *arena, const table *t, const variant *v, const variant *against)
{
    /* how many runs the variant has */
    char runs[16];
    snprintf(runs, sizeof runs, "%d", v->n);
    putchar('|');
    print_cell(v->name, (int)strlen(v->name), t->name_width);
    print_cell(runs, (int)strlen(runs), 4);
    for (int k = 0; k < t->n_columns; k++) {
        const char *column = t->columns[k];
        /* a number per run: of the run, or less that of its pair */
        double *x = ares_arena_alloc(arena, (size_t)v->n * sizeof *x);
        for (int i = 0; i < v->n; i++)
            x[i] = column_of(arena, &v->runs[i], column, t->last) -
                   (against ? column_of(arena, &against->runs[i], column, t->last) : 0);
        int wide;
        /* "0.512 ± 0.031": mean and standard deviation (n - 1) */
        int n = v->n;
        bool sign = against != NULL;
        double sum = 0, squares = 0;
        for (int i = 0; i < n; i++) sum += x[i];
        double mean = sum / n;
        for (int i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
        double size = fabs(mean);
        /* three digits or more count: 0.123, 12.34, 123.4, 1234 */
        int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
        const char *text =
            !isfinite(mean) ? "-"
            : n > 1 ? ares_arena_printf(arena, sign ? "%+.*f ± %.*f" : "%.*f ± %.*f", decimals,
                                        mean, decimals, sqrt(squares / (n - 1)))
                    : ares_arena_printf(arena, sign ? "%+.*f" : "%.*f", decimals, mean);
        wide = (int)strlen(text) - (strstr(text, "±") ? 1 : 0); /* "±" has two bytes */
        print_cell(text, wide, width_of(column));
    }
    putchar('\n');
}

/* ---------------------------------------------------------------- the figure */

/* --band: lowest to highest run; the standard error of the mean */
static const char *const bands[] = { "range", "error", NULL };

/*
 * The mean of the runs, and the band around it, at the steps that all runs of the variant have.
 * o->x: the metric whose sums take the place of steps; NULL: none.
 */
static figure_curve curve_of(ares_arena *arena, const variant *v, const options *o)
{
    bool error = strcmp(o->band, "error") == 0;
    runs_series *of = ares_arena_alloc(arena, (size_t)v->n * sizeof *of);
    int64_t *at = ares_arena_calloc(arena, (size_t)v->n, sizeof *at), n = 0;
    for (int i = 0; i < v->n; i++) {
        of[i] = runs_series_of(arena, &v->runs[i], o->metric);
        runs_smooth(&of[i], o->smooth);
    }
    size_t bytes = (size_t)(of[0].n + 1) * sizeof(double);
    double *x = ares_arena_alloc(arena, bytes), *mid = ares_arena_alloc(arena, bytes),
           *low = ares_arena_alloc(arena, bytes), *high = ares_arena_alloc(arena, bytes);
    for (int64_t k = 0; k < of[0].n; k++) {
        bool all = true;
        double sum = 0, squares = 0;
        low[n] = INFINITY;
        high[n] = -INFINITY;
        for (int i = 0; i < v->n && all; i++) {
            /* steps rise in every series: at[i] goes through series i once */
            while (at[i] < of[i].n && of[i].step[at[i]] < of[0].step[k]) at[i]++;
            all = at[i] < of[i].n && of[i].step[at[i]] == of[0].step[k];
            if (!all) break;
            double y = of[i].value[at[i]];
            sum += y;
            squares += y * y;
            low[n] = fmin(low[n], y);
            high[n] = fmax(high[n], y);
        }
        if (!all) continue;
        x[n] = of[0].step[k];
        mid[n] = sum / v->n;
        if (error) {
            /* the standard error of the mean; 0 of a single run */
            int m = v->n;
            double half = m > 1 ? sqrt(fmax(squares - sum * sum / m, 0) / (m - 1) / m) : 0;
            low[n] = mid[n] - half;
            high[n] = mid[n] + half;
        }
        n++;
    }
    if (o->x) {
        /* each step becomes the metric's sum over steps up to it, as the mean over the runs */
        double *sum = ares_arena_calloc(arena, (size_t)n + 1, sizeof *sum);
        for (int i = 0; i < v->n; i++) {
            runs_series p = runs_series_of(arena, &v->runs[i], o->x);
            for (int64_t k = 0; k < n; k++) {
                double total = 0;
                for (int64_t j = 0; j < p.n && p.step[j] <= x[k]; j++) total += p.value[j];
                sum[k] += total;
            }
        }
        for (int64_t k = 0; k < n; k++) x[k] = sum[k] / v->n;
    }
    const char *name = v->n > 1 ? ares_arena_printf(arena, "%s (%d runs)", v->name, v->n) : v->name;
    return (figure_curve){ .name = name, .n = n, .x = x, .mid = mid, .low = low, .high = high };
}

/* Whether any run has the metric. */
static bool ever_logged(study *s, const char *metric)
{
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->variants[i].n; k++)
            if (runs_series_of(&s->arena, &s->variants[i].runs[k], metric).n) return true;
    return false;
}

/* Writes the figure: a curve per variant. */
static int draw(study *s, const options *o)
{
    figure_curve *curves = ares_arena_alloc(&s->arena, (size_t)s->n * sizeof *curves);
    int64_t found = 0;
    bool several = false;
    for (int i = 0; i < s->n; i++) {
        curves[i] = curve_of(&s->arena, &s->variants[i], o);
        found += curves[i].n;
        several = several || s->variants[i].n > 1;
    }
    if (o->x && !ever_logged(s, o->x))
        return ares_fail(ARES_EUSE, "compare: --x = '%s': no run has it in its metrics.jsonl",
                         o->x);
    if (!found)
        return ares_fail(ARES_EUSE, "compare: --metric = '%s': no run has it in its metrics.jsonl",
                         o->metric);
    /* "reward/accuracy (share of answers right)" */
    const char *unit = runs_unit_of(o->metric);
    const char *what =
        o->smooth > 1 ? ares_arena_printf(&s->arena, "mean over %lld steps", (long long)o->smooth)
                      : "as logged";
    const char *x_unit = o->x ? runs_unit_of(o->x) : NULL,
               *x_label = !o->x    ? "training step"
                          : x_unit ? ares_arena_printf(&s->arena, "total of %s (%s)", o->x, x_unit)
                                   : ares_arena_printf(&s->arena, "total of %s", o->x);
    figure f = { .title = o->title ? o->title : o->metric,
                 .subtitle = several ? ares_arena_printf(
                                           &s->arena, "%s; line: mean of the runs, band: %s", what,
                                           strcmp(o->band, "error") == 0 ? "its standard error"
                                                                         : "lowest to highest")
                                     : what,
                 .x_label = x_label,
                 .y_label =
                     unit ? ares_arena_printf(&s->arena, "%s (%s)", o->metric, unit) : o->metric,
                 .curves = curves,
                 .n_curves = s->n };
    ares_str svg = { 0 };
    figure_write_svg(&f, &svg);
    int rc = ares_file_write_atomic(o->svg, svg.data, svg.len);
    ares_str_fini(&svg);
    if (rc == ARES_OK) printf("figure: %s\n", o->svg);
    return rc;
}

/* Reads all runs before anything is printed, so that a wrong name prints no half table. */
static int compare(const options *o, int n_words, const char *const *words)
{
    study s = { 0 };
    int rc = read_study(&s, n_words, words);
    if (rc == ARES_OK && o->asked && !ever_logged(&s, o->metric)) {
        int n = 0; /* of the runs of all variants */
        for (int i = 0; i < s.n; i++) n += s.variants[i].n;
        const runs_run **runs = ares_arena_alloc(&s.arena, (size_t)(n + 1) * sizeof *runs);
        n = 0;
        for (int i = 0; i < s.n; i++)
            for (int k = 0; k < s.variants[i].n; k++) runs[n++] = &s.variants[i].runs[k];
        rc = runs_unknown_metric(&s.arena, o->metric, runs, n);
    }
    if (rc == ARES_OK) {
        /* a table of the variants; one of the differences of those with as many runs as the first
         */
        const variant *first = &s.variants[0];
        const char *less = ares_arena_printf(&s.arena, "less %s", first->name);
        static const char head[] = "variant";
        table t = { .last = o->last,
                    .name_width = ARES_MAX((int)sizeof head - 1, (int)strlen(less)) };
        /* the metric, then the words between commas */
        const char **columns =
            ares_arena_alloc(&s.arena, (strlen(o->columns) + 2) * sizeof *columns);
        char *rest = ares_arena_copy(&s.arena, o->columns, strlen(o->columns)), *save = NULL;
        columns[t.n_columns++] = o->metric;
        for (char *word = strtok_r(rest, ",", &save); word; word = strtok_r(NULL, ",", &save))
            columns[t.n_columns++] = word;
        t.columns = columns;
        int pairs = 0; /* variants that the second table compares with the first */
        for (int i = 0; i < s.n; i++) {
            t.name_width = ARES_MAX(t.name_width, (int)strlen(s.variants[i].name));
            pairs += i && s.variants[i].n == first->n;
        }
        print_head(&t, head);
        for (int i = 0; i < s.n; i++) print_row(&s.arena, &t, &s.variants[i], NULL);
        if (pairs) print_head(&t, less);
        for (int i = 1; i < s.n; i++)
            if (s.variants[i].n == first->n) print_row(&s.arena, &t, &s.variants[i], first);
        printf("\nMean over the last %lld steps; ± the standard deviation over the runs.\n",
               (long long)t.last);
        for (int i = 0; i < s.n; i++)
            for (int k = 0; k < s.variants[i].n; k++)
                if (!s.variants[i].runs[k].done) {
                    ares_str line = { 0 };
                    cli_add_line(&line, ares_view_of(s.variants[i].runs[k].dir));
                    printf("not finished: %s, step %lld\n", line.data,
                           (long long)s.variants[i].runs[k].last_step);
                    ares_str_fini(&line);
                }
    }
    if (rc == ARES_OK && o->svg) rc = draw(&s, o);
    ares_arena_fini(&s.arena);
    if (rc == ARES_OK && fflush(stdout))
        rc = ares_fail(ARES_EIO, "compare: stdout cannot be written");
    return rc;
}

int ares_cli_compare(int argc, char **argv)
{
    options o = { .band = "range", .last = 5, .smooth = 5 };
    const cli_option list[] = {
        CLI_OPTION(TEXT, o.metric, "--metric", "NAME",
                   "what the figure shows, and the first column; unless set reward/accuracy. Of "
                   "a sweep: what table and figure show, instead of success and more"),
        CLI_OPTION(TEXT, o.columns, "--columns", "A,B,..",
                   "further columns; \"sum:A\" is the sum of A over all steps; unless set "
                   "response_length/mean"),
        CLI_OPTION(I64, o.last, "--last", "N", "a column is the mean over the last N steps",
                   .least = 1, .most = INT64_MAX),
        CLI_OPTION(I64, o.smooth, "--smooth", "N", "the figure's curves are means over N steps",
                   .least = 1, .most = INT64_MAX),
        CLI_OPTION(TEXT, o.svg, "--svg", "FILE",
                   "writes the figure: a curve for each variant, and a band around it"),
        CLI_OPTION(TEXT, o.band, "--band", "range|error",
                   "the band goes from the lowest to the highest run, or is the standard error of "
                   "the mean",
                   .choices = bands),
        CLI_OPTION(TEXT, o.x, "--x", "NAME",
                   "the figure is drawn over the sum of NAME up to a step (mean of the runs), not "
                   "over steps"),
        CLI_OPTION(TEXT, o.title, "--title", "TEXT", "of the figure; unless set the metric's name"),
    };
    const cli_command command = {
        .name = "compare",
        .usage = "[options] [VARIANT=]RUN_DIR ...\n[--metric NAME] [--svg FILE] [--title TEXT] "
                 "[--smooth N] SWEEP_DIR",
        .about = "Reads metrics.jsonl of every run directory. Runs with the same VARIANT are one "
                 "line of the table, mean and standard deviation over them, and one curve of the "
                 "figure; a RUN_DIR without a name is a variant of its own. The second table is "
                 "the difference of every variant to the first, run by run in the order they were "
                 "named.\nOf the folder of a sweep (sweep.json) it prints best and last success "
                 "per value, and draws figure3.svg there: every value's curves, over its seeds. "
                 "Best is over the steps of training: the untrained model's validation is none.",
        .example = "ares-train compare --svg accuracy.svg full=runs/a/1 full=runs/a/2 "
                   "plain=runs/b/1 plain=runs/b/2\n"
                   "ares-train compare --svg cost.svg --x rollout/generated_tokens --metric "
                   "val/accuracy full=runs/a/1 plain=runs/b/1",
        .options = list,
        .n_options = ARES_COUNT(list),
        .words = CLI_WORDS,
    };
    bool helped;
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    ares_str manifest = { 0 }; /* the folder of a sweep has one */
    bool is_sweep =
        !helped && argc == 2 && ares_file_exists(ares_path_join(&manifest, argv[1], "sweep.json"));
    ares_str_fini(&manifest);
    if (is_sweep) {
        if (o.columns || o.x)
            return ares_fail(ARES_EUSE,
                             "compare: %s: '%s' is the folder of a sweep, whose table and figure "
                             "show one metric; name run directories, or leave it out",
                             o.columns ? "--columns" : "--x", argv[1]);
        return figure3_draw(&(figure3_options){ .dir = argv[1],
                                                .svg = o.svg,
                                                .title = o.title,
                                                .metric = o.metric,
                                                .smooth = o.smooth });
    }
    /* a default that no run has is no mistake of the user's */
    o.asked = o.metric != NULL;
    if (!o.metric) o.metric = "reward/accuracy";
    if (!o.columns) o.columns = "response_length/mean";
    return helped ? ARES_OK : compare(&o, argc - 1, (const char *const *)argv + 1);
}
