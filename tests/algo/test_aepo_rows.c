/*
 * What AEPO reads off a batch, beside each row by itself: long rows, rows without tokens, tokens of
 * others between the policy's.
 */
#include "algo_test.h"
#include "control/aepo.h"
#include "stats.h"
#include "test.h"

enum { WINDOW = 4 };
static const int64_t lengths[] = { 700, 3, 0, 600, 300, 5, 9000 };

/* Of token i of the batch: its entropy, and whether the policy wrote it. */
static float entropy_of(int64_t i)
{
    return (float)(i * 7919 % 4096) / 1024;
}
static uint8_t own(int64_t i)
{
    return i % 5 != 3;
}

/* The row's marks and counts, from its own tokens alone. */
static void check_row(const aepo *s, const ares_batch *b, int64_t row, const control_sample *local,
                      const uint8_t *column, const float *window_column, double soft_cost)
{
    int64_t from = b->row_start[row], length = b->row_start[row + 1] - from, n = 0, differ = 0;
    double *h = ares_malloc((size_t)(2 * length + 1) * sizeof *h), *window = h + length;
    uint8_t *mask = ares_malloc((size_t)length + 1);
    for (int64_t i = 0; i < length; i++)
        if (own(from + i)) h[n++] = (double)entropy_of(from + i);
    int64_t windows = entropy_windows(h, n, WINDOW, window);
    hwe_marked hwe = hwe_mark(window, windows, n, s->tau, NULL, mask);
    CHECK_EQ(local->length, n);
    CHECK_EQ(local->hwe, hwe.count);
    CHECK_EQ(local->invalid, hwe.invalid);
    CHECK_NEAR(soft_cost, hwe.soft_cost, 0);
    CHECK_NEAR(local->threshold,
               entropy_sample_threshold(h, n, WINDOW, s->options->algorithm.entropy_percentile), 0);
    for (int64_t i = 0, k = 0; i < length; i++) {
        if (!own(from + i)) continue;
        differ += column[from + i] != mask[k];
        differ += window_column[from + i] != (k < windows ? (float)window[k] : -1);
        k++;
    }
    CHECK_EQ(differ, 0);
    ares_free(mask);
    ares_free(h);
}

TEST(rows_of_a_batch_are_measured_and_marked_as_each_by_itself)
{
    aepo_options options = { .rollout.window_size = WINDOW, .algorithm.entropy_percentile = 80 };
    const aepo s = { .options = &options, .tau = 2.25 };
    ares_arena arena = { 0 };
    ares_batch b;
    make_batch(&b, 1, ARES_COUNT(lengths), lengths, ARES_COUNT(lengths));
    ARES_PUT(&b, entropies);
    for (int64_t i = 0; i < b.tokens; i++) {
        b.entropies[i] = entropy_of(i);
        b.response_mask[i] = own(i);
    }
    size_t n = (size_t)b.tokens + 1;
    control_sample *local = ares_arena_calloc(&arena, (size_t)b.rows, sizeof *local);
    double *soft_cost = ares_arena_alloc(&arena, (size_t)b.rows * sizeof *soft_cost);
    uint8_t *column = ares_arena_alloc(&arena, n);
    float *window = ares_arena_alloc(&arena, n * sizeof *window);
    aepo_measure(&s, &b, &arena, local);
    aepo_mark(&s, &b, &arena, local, column, window, soft_cost);
    for (int64_t r = 0; r < b.rows; r++)
        check_row(&s, &b, r, &local[r], column, window, soft_cost[r]);
    ares_batch_fini(&b);
    ares_arena_fini(&arena);
}
