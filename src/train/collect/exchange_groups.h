/* Groups go from the ranks that answered them to those that train on them. (exchange_groups.c) */
#ifndef ARES_TRAIN_COLLECT_EXCHANGE_GROUPS_H
#define ARES_TRAIN_COLLECT_EXCHANGE_GROUPS_H

#include "collect/collection.h"

/*
 * c: this rank's groups of a batch of `count`, each with its place; on return those that it trains
 * on, in no order. Every rank gets as many of each mini-batch, with even work where
 * trainer.balance_batch asks for it. A collective.
 */
int exchange_groups(ares_trainer *t, collection *c, int64_t count);
#endif
