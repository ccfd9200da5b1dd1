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
 * that of now; stays empty where none does.
 */
int begun_compare(const char *dir, const ares_config *cfg, rundir_declare *declare,
                  ares_str *changed);
/* A hash of the options that change results, the run's names left out. */
void begun_hash(const ares_config *cfg, char hash[static BEGUN_HASH]);
#endif
