/*
 * The figure of a sweep (figure3.c): what sweep.json names, as curves per value. Named after Figure
 * 3 of the intervention study whose sweeps it shows first (docs/sweeps.md#the-figure).
 */
#ifndef ARES_VERB_FIGURE3_H
#define ARES_VERB_FIGURE3_H

#include "ares/core.h"

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
#endif
