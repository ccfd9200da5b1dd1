/* What the test of the rule for old checkpoints shares with checkpoint.c. */
#ifndef ARES_IO_CHECKPOINT_H
#define ARES_IO_CHECKPOINT_H

#include <stdbool.h>

/*
 * Which of n checkpoints, newest first, are to be removed when `keep` are to be left: spared ones
 * stay and count among the kept, the rest of the kept are the newest. The newest of all always
 * stays, so keep 1 may leave two. keep <= 0 keeps all. EasyR1's rule (docs/design.md#checkpoints).
 */
void io_checkpoint_excess(const bool *spared, int n, int keep, bool *remove);

#endif
