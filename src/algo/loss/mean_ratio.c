/* DAPO's early stop: the mean ratio of tokens, and whether it is too large. */
#include "walk.h"

bool ares_early_stop(const double *ratio, int ranks, double threshold, double *average)
{
    double sum = 0;
    for (int i = 0; i < ranks; i++) sum += ratio[i];
    if (average) *average = sum / ranks;
    return !ares_is_null_f64(threshold) && !(sum / ranks <= threshold);
}

void ares_ratio_sum(const ares_loss_args *a, double *sum, double *count)
{
    for (int64_t t = 0; t < a->n; t++) {
        if (!a->mask[t]) continue;
        *sum += ares_loss_exp(ares_loss_bound(loss_log_ratio(a, t)));
        *count += 1;
    }
}
