#ifndef ARES_TRAIN_REPORT_REPORT_H
#define ARES_TRAIN_REPORT_REPORT_H

#include "trainer.h"

/* The usual metrics of a batch, over all ranks. (report.c) */
int report_batch(const ares_trainer *t, const ares_batch *b, ares_metrics *m);
/* Metrics by data set of a curriculum; none without one. A collective. (sources.c) */
int report_sources(const ares_trainer *t, const ares_batch *b, ares_metrics *m);
/* global_seqlen, timing_per_token_ms, perf/mfu_.. (speed.c) */
int report_lengths(const ares_trainer *t, const ares_batch *b, ares_metrics *m);
/*
 * Norms of the gradients that the terms of the loss have for groups of similar reward deviation
 * (docs/diagnostics.md#gradients-by-reward-variance). Trains nothing and changes no bit of a run.
 * After the batch has its advantages; a collective. (gradient_analysis.c)
 */
bool report_gradients_due(const ares_trainer *t);
int report_gradients(ares_trainer *t, const ares_batch *b, ares_metrics *m);
/* perf/.._memory_.._gb: the most so far, of the rank with most. A collective. (speed.c) */
int report_memory(const training *t, ares_metrics *m);
/*
 * Distributions of the step in TensorBoard: entropies of tokens, and of the windows after them
 * where a control has computed these. A collective; tracker is NULL where nothing is written.
 * (histograms.c)
 */
int report_histograms(const ares_trainer *t, ares_tracker *tracker);
/*
 * rollouts/step_<n>.jsonl: a JSON line per row of the batch, of all ranks in rank order: what was
 * asked and answered, its scores and its advantage. A collective. (rollouts.c)
 */
int report_rollouts(const ares_trainer *t);
#endif
