/*
 * The options that the run in a directory began with, compared with those of a configuration
 * (begun.c). What a run directory is told by follows from these two: the options that differ, and
 * the hash in DONE.
 */
#ifndef ARES_TRAIN_RUN_BEGUN_H
#define ARES_TRAIN_RUN_BEGUN_H

#include "rundir.h"

enum { BEGUN_HASH = 17 }; /* 16 hexadecimal digits and a NUL */

/*
 * Compares the resolved configuration with config.yaml of the directory. changed: gets the
 * options that differ and change results, at most five, each with the value that it began with and
 * that of now; stays empty where none does. A length that grows is no such change: the run is
 * `longer`.
 */
int begun_compare(const char *dir, const ares_config *cfg, rundir_declare *declare,
                  ares_str *changed, bool *longer);
/* What DONE of a directory says. False: there is none. */
typedef struct begun_end {
    int64_t step;
    char hash[BEGUN_HASH], stopped[64]; /* empty where it cannot be read; no control ended it */
} begun_end;
bool begun_is_done(const char *dir, begun_end *end);
/*
 * Whether the directory holds nothing that another start would lose: no step was made, and no row
 * answered by a bootstrap pass. It may hold a validation, or a checkpoint of step 0.
 */
bool begun_is_empty(const char *dir);
/* A hash of the options that change results, the run's names left out. */
void begun_hash(const ares_config *cfg, char hash[static BEGUN_HASH]);
#endif
