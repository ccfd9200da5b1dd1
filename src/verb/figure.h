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
} figure_curve;
typedef struct figure {
    const char *title, *subtitle;  /* what is shown; how it was made */
    const char *x_label, *y_label; /* with units */
    const figure_curve *curves;
    int n_curves;
} figure;

/*
 * Appends the picture. Curves differ in colour (the eight of Okabe and Ito, which colour-blind
 * readers tell apart) and in dash.
 */
void figure_write_svg(const figure *f, ares_str *out);
#endif
