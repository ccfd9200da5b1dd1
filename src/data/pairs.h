/* What the goldens of VAPOR's rows share with pairs.c. */
#ifndef ARES_DATA_PAIRS_PRIVATE_H
#define ARES_DATA_PAIRS_PRIVATE_H

#include "ares/data_pairs.h"

/* The texts of a row's stored answers; *there: it has both. The message lacks the row's place. */
int data_pair_texts(const ares_json *row, const ares_pair_options *o, ares_arena *arena,
                    ares_view *chosen, ares_view *rejected, bool *there);
#endif
