/* Sums for metrics whose names are known only when they occur. (measures.c) */
#ifndef ARES_TRAIN_AGENTS_MEASURES_H
#define ARES_TRAIN_AGENTS_MEASURES_H

#include "ares/dist.h"
#include "ares/io.h"

typedef struct measure {
    char *name, *per; /* per: the entry whose count divides the sum; NULL: its own */
    double sum, count;
} measure;
typedef struct measures {
    measure *items;
    int64_t n;
    ares_map *index; /* by name */
} measures;

void measures_add(measures *t, const char *name, const char *per, double value);
/* A collective: writes the means over all ranks, with names that begin with prefix, and forgets. */
int measures_report(measures *t, ares_world *w, const char *prefix, ares_metrics *m);
void measures_fini(measures *t);
#endif
