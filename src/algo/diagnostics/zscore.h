/* What the collapse metrics of a step and their moving averages share. (diagnostics/collapse.c) */
#ifndef ARES_ALGO_DIAGNOSTICS_ZSCORE_H
#define ARES_ALGO_DIAGNOSTICS_ZSCORE_H

/* mi by a deviation, kept from dividing by 0: RAGEN's z-score */
double collapse_zscore(double mi, double deviation);

#endif
