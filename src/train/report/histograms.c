/*
 * Distributions as counts over fixed bins, so that ranks can add them. Bins widen quadratically,
 * because most tokens have little entropy.
 */
#include "report.h"

enum { BINS = 60 };
static const double LARGEST = 12; /* nats: the entropy of 160,000 equally likely ids */

static double edge_of(int i)
{
    return LARGEST * i * i / (BINS * BINS);
}

static void count(double *bins, double x)
{
    int i = 0;
    while (i < BINS - 1 && x >= edge_of(i + 1)) i++;
    bins[i]++;
}

/* Tokens with mask 1 and a value of 0 or more. */
static int log_column(const ares_trainer *t, ares_tracker *tracker, const char *tag, const float *x)
{
    const ares_batch *b = &t->batch;
    double bins[BINS] = { 0 }, edge[BINS + 1];
    for (int64_t i = 0; i < b->tokens; i++)
        if (b->response_mask[i] && x[i] >= 0) count(bins, (double)x[i]);
    ARES_TRY(ares_world_sum_f64(t->run.world, bins, BINS));
    for (int i = 0; i <= BINS; i++) edge[i] = edge_of(i);
    return tracker ? ares_tracker_bins(tracker, t->run.step, tag, edge, bins, BINS) : ARES_OK;
}

int report_histograms(const ares_trainer *t, ares_tracker *tracker)
{
    const ares_batch *b = &t->batch;
    if (!b->entropies_1) return ARES_OK;
    ARES_TRY(log_column(t, tracker, "rollout/entropy_distribution", b->entropies_1));
    return b->window_entropies
               ? log_column(t, tracker, "rollout/window_entropy_distribution", b->window_entropies)
               : ARES_OK;
}
