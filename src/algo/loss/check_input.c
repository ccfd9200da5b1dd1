/* Whether a loss's input can be computed with, and the place of what cannot be. */
#include <math.h>
#include <stdio.h>

#include "walk.h"

void loss_place(const int64_t *row_start, int64_t row, int64_t end, int64_t first, int64_t t,
                char out[64])
{
    int64_t r = row;
    if (!row_start) {
        snprintf(out, 64, "token %lld", (long long)t);
        return;
    }
    while (r + 1 < end && row_start[r + 1] <= first + t) r++;
    snprintf(out, 64, "row %lld, token %lld", (long long)r, (long long)(first + t - row_start[r]));
}

int loss_check(const ares_loss_args *a, const char *function)
{
    const struct {
        const char *name;
        const float *x;
    } arrays[] = {
        { "log_prob", a->log_prob },
        { "old_log_prob", a->old_log_prob },
        { "advantage", a->advantage },
        { "weight", a->weight },
        { "rollout weight", a->rollout_weight },
    };
    char place[64];
    for (int64_t t = 0; t < a->n; t++) {
        if (a->mask[t] == 0) continue;
        if (a->mask[t] != 1) {
            loss_place(a->row_start, a->row, a->end, a->first, t, place);
            return ares_fail(ARES_ENUMERIC, "loss: %s: mask of %s is %d: must be 0 or 1", function,
                             place, a->mask[t]);
        }
        for (int i = 0; i < ARES_COUNT(arrays); i++) {
            if (!arrays[i].x || isfinite(arrays[i].x[t])) continue;
            loss_place(a->row_start, a->row, a->end, a->first, t, place);
            return ares_fail(ARES_ENUMERIC,
                             "loss: %s: %s of %s is %g: must be finite where the mask is 1",
                             function, arrays[i].name, place, (double)arrays[i].x[t]);
        }
    }
    return ARES_OK;
}

int loss_without_pairs(const ares_loss_args *a, const ares_loss *loss)
{
    (void)a;
    return ares_fail(ARES_EUNSUPPORTED,
                     "loss: %s: needs log-probs of the rows' chosen and rejected answers beside "
                     "the completions'; ares_vapor_loss takes all of them",
                     loss->name);
}
