/* Batches of literals for the tests of this room. */
#ifndef ARES_ALGO_TEST_H
#define ARES_ALGO_TEST_H

#include "ares/algo.h"
#include "ares/algo_loss.h"

/*
 * groups x n rows of lengths[row % n_lengths] tokens, responses and response_mask put, the mask all
 * 1.
 */
static inline void make_batch(ares_batch *b, int64_t groups, int64_t n, const int64_t *lengths,
                              int64_t n_lengths)
{
    ares_batch_init(b);
    for (int64_t g = 0; g < groups; g++) {
        ares_batch_begin_group(b);
        for (int64_t i = 0; i < n; i++) {
            ares_sample s = { .draw = g, .index = (int32_t)i };
            ares_batch_add_row(b, &s, lengths[(g * n + i) % n_lengths]);
        }
    }
    ARES_PUT(b, responses);
    ARES_PUT(b, response_mask);
    for (int64_t t = 0; t < b->tokens; t++) b->response_mask[t] = 1;
}

/* Puts a row's reward on its last token, as outcome rewards come. */
static inline void put_scores(ares_batch *b, const float *scores)
{
    ARES_PUT(b, token_level_rewards);
    for (int64_t r = 0; r < b->rows; r++)
        b->token_level_rewards[b->row_start[r + 1] - 1] = scores[r];
}
#endif
