/*
 * Curves with bands as SVG. The frame of a figure has a fixed size; its legend stands to its right
 * and takes the width that its names need. A page has smaller frames under a legend in rows. Last
 * the figure of a sweep: its runs by value, from sweep.json, then the drawing.
 */
#include "cli.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 640, /* of the frame; all in pixels */
    HEIGHT = 360,
    LEFT = 76,
    TOP = 64,
    BOTTOM = 56,
    LEGEND_GAP = 20,
    LEGEND_LINE = 22,
    SAMPLE = 34,   /* the line beside a name in the legend */
    CHARACTER = 8, /* estimated width: the reader's font is unknown */
    TICKS = 6      /* about so many on an axis; a number, not pixels */
};

/* of Okabe and Ito, which colour-blind readers tell apart, with a darker yellow */
static const char *const colours[] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                       "#e69f00", "#56b4e9", "#000000", "#8c8400" };
static const char *const dashes[] = { "", "7 3", "2 3", "9 3 2 3" };

/* The curve's own colour, else the i-th of the table. */
static const char *colour_of(const figure_curve *c, int i)
{
    return c->colour ? c->colour : colours[i % ARES_COUNT(colours)];
}
/* As the colours: after all of them the dashes move on by one, so that no pair repeats soon. */
static const char *dash_of(const figure_curve *c, int i)
{
    return c->dash ? c->dash : dashes[(i + i / ARES_COUNT(colours)) % ARES_COUNT(dashes)];
}

/* Colour i of n that go from dark violet by green to orange, as an order reads. */
void figure_ordered_colour(int i, int n, char text[static 8])
{
    static const double anchors[][3] = {
        { 68, 1, 84 }, { 59, 82, 139 }, { 33, 145, 140 }, { 80, 170, 80 }, { 214, 150, 0 }
    };
    double at = n > 1 ? (double)i / (n - 1) * (ARES_COUNT(anchors) - 1) : 0;
    int k = ARES_MIN((int)at, ARES_COUNT(anchors) - 2);
    unsigned rgb[3];
    for (int c = 0; c < 3; c++)
        rgb[c] = (unsigned)lround(anchors[k][c] + (at - k) * (anchors[k + 1][c] - anchors[k][c]));
    snprintf(text, 8, "#%02x%02x%02x", rgb[0] & 255, rgb[1] & 255, rgb[2] & 255);
}

/*
 * An axis from low to high. Ticks are multiples of step, which is 1, 2 or 5 times a power of ten;
 * the first and the last lie on or inside low and high.
 */
typedef struct axis {
    double low, high, step;
    int decimals;
} axis;

/* An axis that shows low to high; whole: ticks at whole numbers alone. 0 to 7 has a tick per 2. */
static axis axis_of(double low, double high, bool whole)
{
    if (!(high > low)) {
        double pad = fabs(low) > 0 ? 0.1 * fabs(low) : 1;
        low -= pad;
        high += pad;
    }
    double raw = (high - low) / TICKS, power = pow(10, floor(log10(raw))), lead = raw / power;
    double step = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
    if (whole && step < 1) step = 1;
    int decimals = (int)ceil(-log10(step) - 1e-9);
    return (axis){ low, high, step, decimals > 0 ? decimals : 0 };
}

/* Where a figure is drawn, in pixels of the picture, and what its axes show. */
typedef struct plot {
    double left, top, width, height;
    axis x, y;
} plot;

/* The place of a value: pixels from the left, and from the top (an SVG's y points down). */
static double across(const plot *p, double v)
{
    return p->left + (v - p->x.low) / (p->x.high - p->x.low) * p->width;
}
static double up(const plot *p, double v)
{
    return p->top + p->height - (v - p->y.low) / (p->y.high - p->y.low) * p->height;
}

/* Escapes what XML would read, and leaves out control characters, which it forbids. */
static void add_text(ares_str *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '&') ares_str_add_z(out, "&amp;");
        else if (*text == '<') ares_str_add_z(out, "&lt;");
        else if (*text == '>') ares_str_add_z(out, "&gt;");
        else if ((unsigned char)*text >= ' ') ares_str_add_char(out, *text);
    }
}

/* A text element; attributes say where it stands. */
static void write_text(ares_str *out, const char *attributes, const char *text)
{
    ares_str_addf(out, "<text %s>", attributes);
    add_text(out, text);
    ares_str_add_z(out, "</text>\n");
}

/* The first multiple of the step inside the axis; a rounding error does not lose it. */
static double first_tick(const axis *a)
{
    return ceil(a->low / a->step - 1e-9) * a->step;
}

/* A mark below the frame, and what stands under it. */
static void write_x_tick(const plot *p, double v, const char *text, ares_str *out)
{
    char place[160];
    double at = across(p, v), bottom = p->top + p->height;
    ares_str_addf(out, "<path d=\"M%.1f %.0fv5\" stroke=\"#444444\"/>\n", at, bottom);
    snprintf(place, sizeof place, "x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\"", at, bottom + 20);
    write_text(out, place, text);
}

/* Lines and numbers of the y axis, ticks of the x axis, the frame, the names of both. */
static void write_axes(const figure *f, const plot *p, ares_str *out)
{
    char place[160], number[64];
    double bottom = p->top + p->height;
    for (double v = first_tick(&p->y); v <= p->y.high + 1e-9 * p->y.step; v += p->y.step) {
        double at = up(p, v);
        ares_str_addf(out, "<path d=\"M%.0f %.1fh%.0f\" stroke=\"#dddddd\"/>\n", p->left, at,
                      p->width);
        snprintf(place, sizeof place, "x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\"", p->left - 8,
                 at + 4.5);
        snprintf(number, sizeof number, "%.*f", p->y.decimals,
                 fabs(v) < 1e-9 * p->y.step ? 0 : v); /* no -0 */
        write_text(out, place, number);
    }
    for (int i = 0; i < f->n_x_names; i++) write_x_tick(p, i, f->x_names[i], out);
    double x_end = p->x.high + 1e-9 * p->x.step;
    for (double v = first_tick(&p->x); v <= x_end && !f->x_names; v += p->x.step) {
        snprintf(number, sizeof number, "%.*f", p->x.decimals, fabs(v) < 1e-9 * p->x.step ? 0 : v);
        write_x_tick(p, v, number, out);
    }
    ares_str_addf(out, "<path d=\"M%.0f %.0fv%.0fh%.0f\" fill=\"none\" stroke=\"#444444\"/>\n",
                  p->left, p->top, p->height, p->width);
    snprintf(place, sizeof place, "x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\"",
             p->left + p->width / 2, bottom + 44);
    write_text(out, place, f->x_label);
    if (!f->y_label) return;
    snprintf(place, sizeof place,
             "transform=\"translate(%.0f %.0f) rotate(-90)\" text-anchor=\"middle\"",
             p->left - (LEFT - 20), p->top + p->height / 2);
    write_text(out, place, f->y_label);
}

/* Whether any point has a band of some height. */
static bool has_band(const figure_curve *c)
{
    for (int64_t k = 0; k < c->n; k++)
        if (c->high[k] > c->low[k]) return true;
    return false;
}

/* Bands, then lines, then crosses, so that no band hides a line. */
static void write_curves(const figure *f, const plot *p, ares_str *out)
{
    int n = 0;
    for (int i = 0; i < f->n_curves; i++) n += has_band(&f->curves[i]);
    double opacity = n > 3 ? 0.42 / n : 0.14; /* so that many overlapping bands stay light */
    for (int i = 0; i < f->n_curves; i++) {   /* a band around the line, or a bar at each point */
        const figure_curve *c = &f->curves[i];
        if (!has_band(c)) continue;
        for (int64_t k = 0; k < c->n && c->bars; k++)
            ares_str_addf(out, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\" stroke-width=\"1.4\"/>\n",
                          across(p, c->x[k]), up(p, c->low[k]), up(p, c->high[k]), colour_of(c, i));
        if (c->bars) continue;
        ares_str_addf(out, "<path fill=\"%s\" fill-opacity=\"%.2f\" d=\"", colour_of(c, i),
                      opacity);
        for (int64_t k = 0; k < c->n; k++) /* along the upper edge, and back along the lower one */
            ares_str_addf(out, "%c%.1f %.1f", k ? 'L' : 'M', across(p, c->x[k]), up(p, c->high[k]));
        for (int64_t k = c->n; k-- > 0;)
            ares_str_addf(out, "L%.1f %.1f", across(p, c->x[k]), up(p, c->low[k]));
        ares_str_add_z(out, "Z\"/>\n");
    }
    /* lines above all bands; last to first, so that the first curve lies above the others */
    for (int i = f->n_curves; i-- > 0;) {
        const figure_curve *c = &f->curves[i];
        for (int64_t k = 0; k < c->n && (c->n == 1 || c->dots); k++)
            ares_str_addf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
                          across(p, c->x[k]), up(p, c->mid[k]), colour_of(c, i));
        if (c->n < 2) continue;
        ares_str_addf(out,
                      "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" "
                      "stroke-linejoin=\"round\" stroke-dasharray=\"%s\" d=\"",
                      colour_of(c, i), c->thin ? "1" : "2.2", dash_of(c, i));
        for (int64_t k = 0; k < c->n; k++)
            ares_str_addf(out, "%c%.1f %.1f", k ? 'L' : 'M', across(p, c->x[k]), up(p, c->mid[k]));
        ares_str_add_z(out, "\"/>\n");
    }
    for (int i = f->n_curves; i-- > 0;) {
        const figure_curve *c = &f->curves[i];
        for (int64_t k = 0; k < c->n_crosses; k++) /* where a run was stopped early */
            ares_str_addf(out,
                          "<path class=\"stopped\" d=\"M%.1f %.1fl10 10m0 -10l-10 10\" "
                          "stroke=\"%s\" stroke-width=\"2.4\"/>\n",
                          across(p, c->cross_x[k]) - 5, up(p, c->cross_y[k]) - 5, colour_of(c, i));
    }
}

/* An entry of a legend: a short line as the curve is drawn, then its name. */
static void write_sample(const figure_curve *c, int i, double x, double y, ares_str *out)
{
    char place[96];
    ares_str_addf(
        out,
        "<path d=\"M%.0f %.0fh%d\" stroke=\"%s\" stroke-width=\"2.2\" stroke-dasharray=\"%s\"/>\n",
        x, y, SAMPLE, colour_of(c, i), dash_of(c, i));
    snprintf(place, sizeof place, "x=\"%.0f\" y=\"%.0f\"", x + SAMPLE + 8, y + 5);
    write_text(out, place, c->name);
}

/* The plot of a figure in a frame. */
static plot plot_of(const figure *f, double left, double top, double width, double height)
{
    double xs[2] = { INFINITY, -INFINITY }, ys[2] = { INFINITY, -INFINITY };
    for (int i = 0; i < f->n_curves; i++)
        for (int64_t k = 0; k < f->curves[i].n; k++) {
            const figure_curve *c = &f->curves[i];
            xs[0] = fmin(xs[0], c->x[k]);
            xs[1] = fmax(xs[1], c->x[k]);
            ys[0] = fmin(ys[0], c->low[k]);
            ys[1] = fmax(ys[1], c->high[k]);
        }
    if (!(xs[0] <= xs[1])) { /* no curve has points: an empty frame */
        xs[0] = ys[0] = 0;
        xs[1] = ys[1] = 1;
    }
    if (f->x_names) {
        xs[0] = -0.5;
        xs[1] = f->n_x_names - 0.5;
    } else if (xs[0] > 0 && xs[0] < 0.1 * xs[1]) xs[0] = 0; /* steps count from 1 */
    double pad = 0.04 * (ys[1] - ys[0]);
    return (plot){ left,
                   top,
                   width,
                   height,
                   axis_of(xs[0], xs[1], true),
                   axis_of(ys[0] - (ys[0] == 0 ? 0 : pad), ys[1] + pad, false) };
}

/* The picture's element, its background, title and subtitle. */
static void open_svg(const char *title, const char *subtitle, int width, int height, ares_str *out)
{
    char place[64];
    ares_str_addf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222222\">\n",
        width, height, width, height);
    ares_str_add_z(out, "<title>");
    add_text(out, title);
    ares_str_add_z(out, "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    snprintf(place, sizeof place, "x=\"%d\" y=\"26\" font-size=\"17\" font-weight=\"bold\"", LEFT);
    write_text(out, place, title);
    snprintf(place, sizeof place, "x=\"%d\" y=\"47\" fill=\"#555555\"", LEFT);
    write_text(out, place, subtitle);
}

/* The width that title and subtitle need. */
static int text_width(const char *title, const char *subtitle)
{
    return LEFT + (int)ARES_MAX(strlen(subtitle) * CHARACTER, strlen(title) * (CHARACTER + 2));
}

/* One figure, with its legend to the right. */
void figure_write_svg(const figure *f, ares_str *out)
{
    size_t longest = 0;
    plot p = plot_of(f, LEFT, TOP, WIDTH, HEIGHT);
    for (int i = 0; i < f->n_curves; i++) longest = ARES_MAX(longest, strlen(f->curves[i].name));
    int beside = LEFT + WIDTH + LEGEND_GAP + SAMPLE + 8 + (int)longest * CHARACTER + 12;
    int width = ARES_MAX(beside, text_width(f->title, f->subtitle)), height = TOP + HEIGHT + BOTTOM;
    int legend = TOP + f->n_curves * LEGEND_LINE + 12;
    open_svg(f->title, f->subtitle, width, ARES_MAX(height, legend), out);
    write_axes(f, &p, out);
    write_curves(f, &p, out);
    for (int i = 0; i < f->n_curves; i++)
        write_sample(&f->curves[i], i, LEFT + WIDTH + LEGEND_GAP, TOP + 12 + i * LEGEND_LINE, out);
    ares_str_add_z(out, "</svg>\n");
}

/* ---------------------------------------------------------------- pages */
enum {
    COLUMNS = 2,
    PANEL_WIDTH = 400,
    PANEL_HEIGHT = 230,
    PANEL_ACROSS = LEFT + PANEL_WIDTH + 8,
    PANEL_DOWN = 28 + PANEL_HEIGHT + BOTTOM + 8,
    PAGE_WIDTH = COLUMNS * PANEL_ACROSS + 24
};

/* Several figures side by side, two in a row, under one legend. */
typedef struct figure_page {
    const char *title, *subtitle, *legend_title;
    const figure_curve *legend; /* names, colours and dashes */
    int n_legend;
    const figure *panels;
    int n_panels;
} figure_page;

/* Pixels of an entry of a legend and of the gap after it. */
static int sample_width(const figure_curve *c)
{
    return SAMPLE + 8 + (int)strlen(c->name) * CHARACTER + 14;
}

/* Writes the legend in rows from y on; returns where the panels may begin. */
static int write_page_legend(const figure_page *p, int y, ares_str *out)
{
    char place[96];
    int x = LEFT;
    snprintf(place, sizeof place, "x=\"%d\" y=\"%d\" font-weight=\"bold\"", x, y + 5);
    write_text(out, place, p->legend_title);
    x += (int)strlen(p->legend_title) * CHARACTER + 16;
    for (int i = 0; i < p->n_legend; i++) {
        int wide = sample_width(&p->legend[i]);
        if (x + wide > PAGE_WIDTH && x > LEFT) {
            x = LEFT;
            y += LEGEND_LINE;
        }
        write_sample(&p->legend[i], i, x, y, out);
        x += wide;
    }
    return y + LEGEND_LINE;
}

/* Panels in COLUMNS columns, row by row. */
static void write_figures(const figure_page *p, ares_str *out)
{
    ares_str unused = { 0 };
    int top = TOP + 8 + write_page_legend(p, 0, &unused); /* only for its height */
    int rows = (p->n_panels + COLUMNS - 1) / COLUMNS;
    ares_str_fini(&unused);
    open_svg(p->title, p->subtitle, ARES_MAX(PAGE_WIDTH, text_width(p->title, p->subtitle)),
             top + rows * PANEL_DOWN, out);
    write_page_legend(p, TOP + 8, out);
    for (int i = 0; i < p->n_panels; i++) {
        const figure *f = &p->panels[i];
        char place[96];
        int left = LEFT + i % COLUMNS * PANEL_ACROSS, y = top + i / COLUMNS * PANEL_DOWN;
        plot frame = plot_of(f, left, y + 28, PANEL_WIDTH, PANEL_HEIGHT);
        snprintf(place, sizeof place, "x=\"%d\" y=\"%d\" font-weight=\"bold\"", left, y + 18);
        write_text(out, place, f->title);
        write_axes(f, &frame, out);
        write_curves(f, &frame, out);
        /* its own names stand beside the title, from the right */
        for (int k = f->n_curves, x = left + PANEL_WIDTH; k-- > 0 && f->own_legend;) {
            x -= sample_width(&f->curves[k]);
            write_sample(&f->curves[k], k, x, y + 13, out);
        }
    }
    ares_str_add_z(out, "</svg>\n");
}

/* ---------------------------------------------------------------- the figure of a sweep */
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
    write_figures(&page, &svg);
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
    if (first) {
        /* a row per value: runs, best and last of the metric, how many stopped early */
        int width = (int)strlen(s->parameter);
        for (int i = 0; i < s->n; i++) width = ARES_MAX(width, (int)strlen(s->variants[i].name));
        printf(
            "\n%s: mean over seeds (lowest to highest)\n\n| %-*s | runs  | %-24s | %-24s | stopped "
            "early |\n"
            "|---|---|---|---|---|\n",
            first, width, s->parameter, best_of(o), "last");
        for (int i = 0; i < s->n; i++) {
            const sweep_variant *v = &s->variants[i];
            ends e = ends_of(s, v, first);
            char runs[16];
            snprintf(runs, sizeof runs, "%d/%d", e.n, v->all);
            printf("| %-*s | %-5s |", width, v->name, runs);
            print_cell(e.best, e.n);
            print_cell(e.last, e.n);
            printf(" %-13d |\n", e.stopped);
        }
        putchar('\n');
    }
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
