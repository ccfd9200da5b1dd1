/* Batches of numbered tokens for the tests of this room. */
#ifndef ARES_DATA_TEST_H
#define ARES_DATA_TEST_H

#include "ares/data.h"

/*
 * sizes[g] rows in group g, with prompts of prompt_lens[g] tokens and responses of lens[row]
 * tokens. Prompt token i of group g is 1000 g + i, token i of row r 100000 + 1000 r + i.
 * `responses` is put; prompts lie in the batch's arena.
 */
static inline void make_batch(ares_batch *b, int groups, const int *sizes, const int *prompt_lens,
                              const int *lens)
{
    ares_batch_init(b);
    for (int g = 0; g < groups; g++) {
        int32_t *prompt = ares_arena_alloc(&b->arena, (size_t)prompt_lens[g] * sizeof *prompt);
        for (int i = 0; i < prompt_lens[g]; i++) prompt[i] = 1000 * g + i;
        ares_batch_begin_group(b);
        for (int k = 0; k < sizes[g]; k++) {
            ares_sample s = {
                .draw = g, .index = k, .prompt = prompt, .prompt_len = prompt_lens[g]
            };
            ares_batch_add_row(b, &s, lens[b->rows]);
        }
    }
    ARES_PUT(b, responses);
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
            b->responses[t] = (int32_t)(100000 + 1000 * r + t - b->row_start[r]);
}
#endif
