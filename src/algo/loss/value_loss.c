/*
 * The critic's loss (docs/update.md#critic): half of the larger of two squared errors, that of the
 * value and that of the value clipped around the old one.
 */
#include "value_loss.h"

#include <math.h>

#include "plain.h"
#include "walk.h"

static int value_fault(const ares_value_args *a, int64_t t)
{
    char place[64];
    loss_place(a->row_start, a->row, a->end, a->first, t, place);
    if (a->mask[t] != 1)
        return ares_fail(ARES_ENUMERIC, "loss: value: mask of %s is %d: must be 0 or 1", place,
                         a->mask[t]);
    return ares_fail(ARES_ENUMERIC,
                     "loss: value: %s has value %g, old value %g, return %g, weight %g: must be "
                     "finite where the mask is 1",
                     place, (double)a->value[t], (double)a->old_value[t], (double)a->target[t],
                     (double)a->weight[t]);
}

int value_loss(const ares_value_args *a)
{
    ares_value_sums *s = a->sums;
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        double value = (double)a->value[t], old = (double)a->old_value[t],
               target = (double)a->target[t], w = (double)a->weight[t];
        if (a->mask[t] != 1 || !isfinite(value) || !isfinite(old) || !isfinite(target) ||
            !isfinite(w))
            return value_fault(a, t);
        ares_token_term e = ares_value_token(value, old, target, a->cliprange_value);
        a->d_value[t] += (float)(w * e.gradient);
        s->loss += w * e.loss;
        s->tokens += 1;
        s->clip += e.clip_high;
        s->value += value;
    }
    return ARES_OK;
}
