/* Steps whose filters keep nothing. (progress.c) */
#ifndef ARES_TRAIN_COLLECT_PROGRESS_H
#define ARES_TRAIN_COLLECT_PROGRESS_H

#include "collect/filter_groups.h"

/* Counts a draw of so many prompts; kept: a group of it is. */
void progress_count(rounds *r, bool kept, int64_t prompts);
/* ARES_ELIMIT with the counts of what was dropped, where nothing will ever be kept. */
int progress_check(const ares_trainer *t, const rounds *r, const ares_metrics *m,
                   const char *remedy);
#endif
