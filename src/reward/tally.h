/*
 * Sums that the metrics of rewards are made of: name -> (sum, count), added up over batches and
 * over ranks.
 */
#ifndef ARES_REWARD_TALLY_H
#define ARES_REWARD_TALLY_H

#include "ares/dist.h"

/* the metric is sum / count; the sum; or 1 while the sum is 0, else 0 */
typedef enum { TALLY_MEAN, TALLY_TOTAL, TALLY_NEVER } tally_kind;
typedef struct tally tally;
tally *tally_new(void);
void tally_free(tally *t);
void tally_add(tally *t, tally_kind kind, double sum, double count, const char *format, ...)
    ARES_PRINTF(5, 6);
/*
 * A collective: merges the ranks' sums in rank order, sets the metrics prefix + name, and clears t.
 */
int tally_report(tally *t, ares_world *w, const char *prefix, ares_metrics *m);
#endif
