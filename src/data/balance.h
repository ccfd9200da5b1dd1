#ifndef ARES_DATA_BALANCE_PRIVATE_H
#define ARES_DATA_BALANCE_PRIVATE_H

#include "ares/data_balance.h"

/*
 * Micro-batches of about max_tokens (EasyR1; docs/update.md#micro-batches): *k = min(n, ceil(total
 * / max_tokens)) parts, or `least` if that is more (the number that another rank needs); a part may
 * exceed max_tokens. part [n]; part 0 has the largest sum of squared lengths.
 */
int balance_micro_batches(const int64_t *length, int64_t n, int64_t max_tokens, int64_t least,
                          int64_t *k, int64_t *part);
#endif
