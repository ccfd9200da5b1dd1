/*
 * Which checkpoints are removed. A case prunes before it saves `current`; here that one is there
 * already.
 */
#include "golden.h"

#include <stdlib.h>

#include "../../src/core/internal.h"

static int newest_first(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

GOLDEN(aepo, checkpoint_prune)
{
    /* this program has EasyR1's rule */
    if (ares_view_is(golden_string(g, "variant"), "ares")) return golden_unknown(g);
    int64_t n, gone = 0;
    const double *existing = golden_flat(g, golden_in(g, "existing"), &n);
    double best = golden_number_or(g, "best", -1), current = golden_number(g, "current");
    double *steps = ares_arena_calloc(g->arena, (size_t)n + 2, sizeof *steps),
           *removed = ares_arena_calloc(g->arena, (size_t)n + 2, sizeof *removed);
    bool *spared = ares_arena_calloc(g->arena, (size_t)n + 2, sizeof *spared),
         *remove = ares_arena_calloc(g->arena, (size_t)n + 2, sizeof *remove);
    int count = 1;
    steps[0] = current;
    for (int64_t i = 0; i < n; i++)
        if (existing[i] < current) steps[count++] = existing[i];
    qsort(steps, (size_t)count, sizeof *steps, newest_first);
    for (int i = 0; i < count; i++) spared[i] = steps[i] == best;
    io_checkpoint_excess(spared, count, (int)golden_number(g, "save_limit"), remove);
    for (int i = count - 1; i >= 0; i--)
        if (remove[i]) removed[gone++] = steps[i];
    golden_numbers(g, "removed", removed, gone, g->expected);
}
