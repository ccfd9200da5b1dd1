/* The runs of a sweep, by value, as a figure needs them (sweep_study.c). */
#ifndef ARES_VERB_SWEEP_STUDY_H
#define ARES_VERB_SWEEP_STUDY_H

#include "runs.h"

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
/* Reads into a zeroed study; its arena is to be freed, also after a failure. */
int sweep_study_read(sweep_study *s, const char *dir);
int sweep_study_runs(const sweep_study *s); /* with metrics */
#endif
