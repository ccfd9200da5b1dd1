/* What verbs read of run directories: metrics by step, and how a run ended (runs.c). */
#ifndef ARES_VERB_RUNS_H
#define ARES_VERB_RUNS_H

#include "ares/core.h"

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
#endif
