/* What holds for the metrics of every run. */
#ifndef TESTS_LAWS_H
#define TESTS_LAWS_H

#include "e2e.h"

/* Checks all rows of a run; steps: as many there must be. where: said in a failed check. */
bool laws_hold(const char *run, int steps, double entropy_coeff, const char *where);
/* Where no filter drops groups and answers that did not finish are masked: means of the metrics
 * are those of the others, in rollouts/. */
bool laws_of_finished(const char *run, int steps, const char *where);
/* Every metric but those of speed is the same in both runs. tolerance 0: bit for bit; else
 * relative, of 0.01 at least. without: parts of names that are left out, up to a NULL; NULL:
 * none. rows: how many are compared. */
bool laws_same(const char *a, const char *b, int rows, double tolerance, const char *const *without,
               const char *where);
#endif
