/*
 * Curves with bands as a picture (figure.c): an SVG of text and shapes without style sheets or
 * scripts, so that a browser, a README and a printer show it alike.
 */
#ifndef ARES_VERB_FIGURE_H
#define ARES_VERB_FIGURE_H

#include "ares/core.h"

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
#endif
