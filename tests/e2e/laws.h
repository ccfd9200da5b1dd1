/* Properties that the metrics of every run have. */
#ifndef TESTS_LAWS_H
#define TESTS_LAWS_H

#include "e2e.h"

/*
 * Checks all rows of a run, which must have `steps` steps. masks_old: tokens of earlier steps may
 * be masked; where: named in the message of a failed check.
 */
bool laws_hold(const char *run, int steps, double entropy_coeff, bool masks_old, const char *where);
/*
 * For runs in which no filter drops groups and unfinished answers are masked: checks that means
 * among the metrics are those of the finished answers in rollouts/.
 */
bool laws_of_finished(const char *run, int steps, const char *where);
/*
 * Checks that the first `rows` rows of two runs have the same metrics, except those of
 * e2e_of_speed. tolerance: 0 for the same bits, otherwise relative (a value below 0.01 counts as
 * 0.01). without: parts of names to be left out, ended by NULL; NULL: none.
 */
bool laws_same(const char *a, const char *b, int rows, double tolerance, const char *const *without,
               const char *where);
#endif
