/*
 * Numbers that follow from the options (sizes.c;
 * docs/update.md#sizes-that-follow-from-the-options).
 */
#ifndef ARES_TRAIN_RUN_SIZES_H
#define ARES_TRAIN_RUN_SIZES_H

#include "ares/model.h"

/*
 * Steps of a run. examples: rows of the training set; drawn: prompts of one draw (ARES_NULL_I64: as
 * many as a batch). max_steps ARES_NULL_I64: as many steps as the epochs give.
 */
int64_t train_total_steps(int64_t examples, int64_t drawn, int64_t batch, int64_t epochs,
                          int64_t max_steps);
/*
 * Whether what is done every so many steps, at the end of each epoch and after the last step is
 * done now, after `step` steps. every 0 or less: after the last one only. epoch: its steps; 0:
 * epochs end nothing.
 */
bool train_is_due(int64_t step, int64_t total, int64_t every, int64_t epoch);
/*
 * Of one optimizer step: samples over all ranks, samples per rank, micro-batches per rank (0 where
 * micro is 0); and optimizer steps per training step.
 */
typedef struct train_sizes {
    int64_t global_samples, per_device, accumulation, updates;
} train_sizes;
train_sizes train_sizes_of(int64_t batch, int64_t mini_batch, int64_t n, int64_t world,
                           int64_t ulysses, int64_t micro);
/* Sizes of a model that its floating-point operations follow from. */
typedef struct flops_config {
    int64_t hidden, vocab, layers, heads, kv_heads, intermediate;
    int64_t head_dim; /* 0: hidden / heads */
} flops_config;
/*
 * TFLOP/s of forward and backward over some sequences. tokens, squares: the sum of their lengths,
 * and of the squares of these
 */
double train_tflops(const flops_config *c, double tokens, double squares, double seconds);
/*
 * The cost of a pass over sequences, as a whole number to compare groups by. Unit: what attention
 * costs for a pair of tokens.
 */
int64_t train_work(const ares_model_config *m, int64_t tokens, int64_t squares);
/* TFLOP/s of dense bf16 products on the card of this name; infinite where it is not known */
double train_peak_tflops(const char *card);
double train_card_bytes(const char *card); /* its memory; infinite where it is not known */
#endif
