/*
 * A mini-batch ends when its slowest rank does, so work is divided evenly within each chunk. The
 * largest part of a chunk goes to the rank with the least work so far, so that passes over the
 * whole batch end together as well.
 */
#include "collect/balance_groups.h"

#include "ares/data_balance.h"

/*
 * Parts come in descending order of their work; each goes to the rank that had the least work so
 * far, the first of several. part: from the number of a part to the rank; had: brought up to date.
 */
static void assign_parts(const int64_t *work, int64_t n, int64_t ranks, int64_t *had, int64_t *part)
{
    int64_t *of = ares_malloc((size_t)ranks * sizeof *of);
    bool *taken = ares_calloc((size_t)ranks, sizeof *taken);
    for (int64_t j = 0; j < ranks; j++) {
        int64_t least = -1;
        for (int64_t r = 0; r < ranks; r++)
            if (!taken[r] && (least < 0 || had[r] < had[least])) least = r;
        taken[least] = true;
        of[j] = least;
    }
    for (int64_t i = 0; i < n; i++) {
        part[i] = of[part[i]];
        had[part[i]] += work[i];
    }
    ares_free(taken);
    ares_free(of);
}

int balance_groups(const int64_t *work, int64_t count, int64_t chunk, int64_t ranks, bool balance,
                   int64_t *rank)
{
    int64_t *had = ares_calloc((size_t)ranks, sizeof *had);
    int rc = ARES_OK;
    for (int64_t i = 0; i < count; i++) rank[i] = i % ranks;
    for (int64_t at = 0; balance && at < count && rc == ARES_OK; at += chunk) {
        int64_t n = ARES_MIN(chunk, count - at);
        rc = ares_balance_parts(work + at, n, ranks, false, rank + at);
        if (rc == ARES_OK) assign_parts(work + at, n, ranks, had, rank + at);
    }
    ares_free(had);
    return rc;
}
