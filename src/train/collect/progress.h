/* Steps whose filters keep nothing. (progress.c) */
#ifndef ARES_TRAIN_COLLECT_PROGRESS_H
#define ARES_TRAIN_COLLECT_PROGRESS_H

#include "collect/filter_groups.h"

/* Counts a draw of so many prompts; kept: a group of it is. */
void progress_count(rounds *r, bool kept, int64_t prompts);
/* Adds to the pending error how many groups of the step were dropped, by reason; returns rc. */
int progress_add_drops(const ares_metrics *m, int rc);
/* ARES_ELIMIT with the counts of what was dropped, where nothing will ever be kept. */
int progress_check(const ares_trainer *t, const rounds *r, const ares_metrics *m,
                   const char *remedy);
#endif
