/* Batches of some of the groups of a batch. */
#ifndef ARES_TESTS_KEEP_GROUPS_H
#define ARES_TESTS_KEEP_GROUPS_H

#include "ares/data.h"

/* Keeps the groups whose flag is set, in order, with their rows and every column. */
static inline void keep_groups(ares_batch *b, const bool *keep)
{
    int64_t n = 0, *order = ares_arena_alloc(&b->arena, ((size_t)b->rows + 1) * sizeof *order);
    for (int64_t g = 0; g < b->groups; g++)
        for (int64_t r = b->group_start[g]; keep[g] && r < b->group_start[g + 1]; r++)
            order[n++] = r;
    ares_batch_take(b, order, n);
}
#endif
