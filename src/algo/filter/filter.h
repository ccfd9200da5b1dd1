/* The list of group filters. To add one: a file in this folder and a word here. */
#ifndef ARES_ALGO_FILTER_LIST_H
#define ARES_ALGO_FILTER_LIST_H

#include "ares/algo_filter.h"

#define FILTER_LIST(X) X(accuracy_range) X(informative) X(reward_cap) X(nonzero_std) X(rv)
#define FILTER_DECLARE(name) extern const ares_filter ares_filter_##name;
FILTER_LIST(FILTER_DECLARE)
#endif
