/*
 * Private to cli: drawing curves, the figure of a sweep, and the metrics of the runs that they
 * show.
 */
#ifndef ARES_CLI_FIGURE_H
#define ARES_CLI_FIGURE_H

#include "ares/core.h"

/*
 * Curves with bands as a picture (figure.c): an SVG of text and shapes without style sheets or
 * scripts, so that a browser, a README and a printer show it alike.
 */

typedef struct figure_curve {
    const char *name; /* in the legend */
    int64_t n;
    const double *x, *mid, *low, *high; /* [n]; x rises; low and high bound the band */
    const char *colour, *dash;          /* NULL: by the curve's place */
    bool thin;                          /* a run alone, outside the legend */
    bool dots, bars;                    /* a dot at each point; its band as a bar */
    int64_t n_crosses;
    const double *cross_x, *cross_y; /* [n_crosses] */
} figure_curve;
typedef struct figure {
    const char *title, *subtitle;  /* what is shown; how it was made */
    const char *x_label, *y_label; /* with units; y_label NULL: none */
    const figure_curve *curves;
    int n_curves;
    const char *const *x_names; /* [n_x_names] words at x = 0, 1, ..; NULL: numbers */
    int n_x_names;
    bool own_legend; /* of a panel: its curves are not those of the page's legend */
} figure;

/*
 * Appends the picture. Curves differ in colour (the eight of Okabe and Ito, which colour-blind
 * readers tell apart) and in dash.
 */
void figure_write_svg(const figure *f, ares_str *out);

/* Several figures side by side, two in a row, under one legend. */
typedef struct figure_page {
    const char *title, *subtitle, *legend_title;
    const figure_curve *legend; /* names, colours and dashes */
    int n_legend;
    const figure *panels;
    int n_panels;
} figure_page;
void figure_write_page(const figure_page *p, ares_str *out);
/*
 * A colour for value i of n that have an order: from violet over green to ochre, none too light for
 * white paper. text has room for "#rrggbb".
 */
void figure_ordered_colour(int i, int n, char text[static 8]);

/*
 * The figure of a sweep (figure3.c): what sweep.json names, as curves per value. Named after Figure
 * 3 of the intervention study whose sweeps it shows first (docs/sweeps.md#the-figure).
 */

typedef struct figure3_options {
    const char *dir;    /* that of sweep.json */
    const char *svg;    /* NULL: figure3.svg there */
    const char *title;  /* NULL: the sweep's name */
    const char *metric; /* the one that is shown; NULL: success and what explains it */
    int64_t smooth;     /* steps that a point of a training metric is the mean of */
} figure3_options;

/* Whether any run of the sweep has metrics yet; true as well where drawing will say what is wrong.
 */
bool figure3_has_metrics(const char *dir);
/* Prints a table of best and last success, and writes the figure. */
int figure3_draw(const figure3_options *o);

/* What verbs read of run directories: metrics by step, and how a run ended (compare.c). */

typedef struct runs_run {
    int64_t n;
    const ares_json **rows; /* [n] the lines of metrics.jsonl */
    int64_t last_step;
    bool done;
    const char *stopped; /* why a control ended it; NULL: none did */
    const char *dir;
} runs_run;
/* values of a metric at rising steps */
typedef struct runs_series {
    int64_t n;
    double *step, *value; /* [n] */
} runs_series;

/* Reads a run directory into the arena. verb: for messages. */
int runs_read(ares_arena *arena, const char *verb, const char *dir, runs_run *out);
/* A metric by step. Where several rows of one step have it, the last of them counts. */
runs_series runs_series_of(ares_arena *arena, const runs_run *r, const char *metric);
/* Fails, with a name like it that the runs [n] have logged. */
int runs_unknown_metric(ares_arena *arena, const char *metric, const runs_run *const *runs, int n);
/* Replaces each value by the mean of the last `window` values up to it. */
void runs_smooth(runs_series *p, int64_t window);
/* A metric's unit, by a part of its name; NULL: none, or not known. */
const char *runs_unit_of(const char *metric);

/* The runs of a sweep, by value, as a figure needs them (figure3.c). */

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

bool sweep_study_is(const char *dir); /* whether sweep.json is there */
#endif
