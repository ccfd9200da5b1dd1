/*
 * The list of group filters, and the statistics that they share. To add one: a file in this folder
 * and a word here.
 */
#ifndef ARES_ALGO_FILTER_LIST_H
#define ARES_ALGO_FILTER_LIST_H

#include "ares/algo_filter.h"

#define FILTER_LIST(X) X(accuracy_range) X(informative) X(reward_cap) X(nonzero_std) X(rv)
#define FILTER_DECLARE(name) extern const ares_filter ares_filter_##name;
FILTER_LIST(FILTER_DECLARE)

/* ---------------- of one group (filter.c, rv.c) */
/* 0 < right answers < valid answers (docs/dapo.md#informative-groups) */
bool group_informative(const double *accuracy, const uint8_t *valid, int64_t n);
/* whether the largest less the smallest valid x is above tolerance */
bool group_spread(const double *x, const uint8_t *valid, int64_t n, double tolerance);
/* the metric of one group, by a choice of rollout_filter_metric */
double group_metric(const char *metric, const ares_groups *g, int64_t group);
/*
 * RAGEN's selection (docs/filters.md#selection-by-reward-variance): ranked [n] receives the groups
 * that stay, best first (min_p, and top_p of 1 or more: by index); returns their number. Ties go to
 * the lower index. probability [n], which may be NULL, receives the softmax of top_p over the
 * candidates in index order.
 */
int64_t rv_select(const ares_filter_config *cfg, const double *metric, int64_t n, int64_t *ranked,
                  double *probability);
#endif
