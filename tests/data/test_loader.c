/* The order of rows, and how a run resumes from a number of draws. */
#include "test.h"

#include "internal.h"

enum { ROWS = 23, BATCH = 5, STEPS = 13 }; /* four batches per epoch, three rows left out */

static void draw(bool shuffle, uint64_t seed, int64_t from, int64_t steps, int64_t *out)
{
    loader l;
    int64_t first;
    REQUIRE_OK(loader_init(&l, ROWS, &(ares_order){ BATCH, shuffle, seed, NULL }));
    l.drawn = from;
    for (int64_t s = 0; s < steps; s++) {
        CHECK_OK(loader_next(&l, out + s * BATCH, &first));
        CHECK_EQ(first, from + s * BATCH);
        CHECK_EQ(loader_epoch(&l), l.drawn / 20);
    }
    loader_fini(&l);
}

TEST(an_epoch_draws_no_row_twice_and_the_next_has_another_order)
{
    int64_t ids[STEPS * BATCH], left_out = 0;
    draw(true, 7, 0, STEPS, ids);
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[ROWS] = { 0 };
        for (int i = 0; i < 20; i++) {
            int64_t id = ids[epoch * 20 + i];
            if (CHECK(id >= 0 && id < ROWS)) CHECK_EQ(seen[id]++, 0);
        }
        for (int r = 0; r < ROWS; r++) left_out |= (int64_t)(seen[r] == 0) << r;
    }
    CHECK(__builtin_popcountll((unsigned long long)left_out) > 3); /* not the same rows each time */
    CHECK(memcmp(ids, ids + 20, 20 * sizeof *ids) != 0 &&
          memcmp(ids + 20, ids + 40, 20 * sizeof *ids) != 0);
}

TEST(any_point_of_a_run_is_reached_again_from_the_number_drawn)
{
    int64_t whole[STEPS * BATCH], rest[STEPS * BATCH];
    draw(true, 7, 0, STEPS, whole);
    for (int64_t s = 0; s < STEPS; s++) {
        draw(true, 7, s * BATCH, STEPS - s, rest);
        CHECK_MEM(rest, whole + s * BATCH, (size_t)((STEPS - s) * BATCH) * sizeof *rest);
    }
    draw(true, 8, 0, STEPS, rest);
    CHECK(memcmp(rest, whole, sizeof whole) != 0); /* another seed, another order */
}

TEST(without_shuffling_rows_come_as_they_lie)
{
    int64_t ids[6 * BATCH];
    draw(false, 7, 0, 6, ids);
    for (int i = 0; i < 30; i++) CHECK_EQ(ids[i], i % 20);
}

TEST(too_few_rows_and_a_state_of_another_batch_size_are_refused)
{
    loader l;
    int64_t ids[BATCH], first;
    CHECK_FAIL(loader_init(&l, 4, &(ares_order){ 5, true, 1, NULL }), ARES_ECONFIG,
               "4 rows are fewer than data.rollout_batch_size = 5");
    REQUIRE_OK(loader_init(&l, 5, &(ares_order){ 5, true, 1, NULL }));
    CHECK_OK(loader_next(&l, ids, &first));
    l.drawn = 8;
    CHECK_FAIL(loader_next(&l, ids, &first), ARES_ESTATE,
               "8 prompts drawn are not a whole number of draws of 5");
    loader_fini(&l);
    loader_fini(&l); /* as after a failed start */
}

/* The rows of a loader that skips row e in every epoch e, from draw `from` on as in a resumed run.
 */
static void draw_skipping(int64_t from, int64_t steps, const int64_t *skipped, int64_t *out,
                          int64_t *epochs, int64_t *skipped_after)
{
    loader l;
    int64_t first;
    REQUIRE_OK(loader_init(&l, ROWS, &(ares_order){ BATCH, true, 7, NULL }));
    l.drawn = from;
    for (int64_t i = 0; i < ROWS && skipped; i++)
        if (skipped[i] != LOADER_KEPT) loader_restore(&l, i, skipped[i]);
    for (int64_t s = 0; s < steps; s++) {
        epochs[s] = loader_epoch(&l);
        CHECK_OK(loader_next(&l, out + s * BATCH, &first));
        CHECK_EQ(first, from + s * BATCH);
        loader_skip(&l, epochs[s]);
        loader_skip(&l, epochs[s]);
        if (skipped_after) memcpy(skipped_after + s * ROWS, l.skipped, ROWS * sizeof *l.skipped);
    }
    loader_fini(&l);
}

TEST(a_skipped_row_is_not_drawn_from_the_next_epoch_on)
{
    int64_t ids[30 * BATCH], epochs[30], skipped[30 * ROWS];
    draw_skipping(0, 30, NULL, ids, epochs, skipped);
    bool dropped_row_seen = false;
    for (int s = 0; s < 30; s++)
        for (int i = 0; i < BATCH; i++) {
            /* rows 0 .. e - 1 were skipped in earlier epochs */
            CHECK(ids[s * BATCH + i] >= epochs[s]);
            dropped_row_seen = dropped_row_seen || ids[s * BATCH + i] == epochs[s];
        }
    CHECK(dropped_row_seen);           /* the epoch in which it is dropped still has it */
    CHECK_EQ(epochs[29], 8);           /* four batches in each of four epochs, then three */
    for (int64_t s = 1; s < 30; s++) { /* resumed anywhere: the same rest */
        int64_t rest[30 * BATCH], rest_epochs[30];
        draw_skipping(s * BATCH, 30 - s, skipped + (s - 1) * ROWS, rest, rest_epochs, NULL);
        CHECK_MEM(rest, ids + s * BATCH, (size_t)((30 - s) * BATCH) * sizeof *rest);
    }
}

TEST(a_loader_with_nothing_left_says_so)
{
    loader l;
    int64_t ids[BATCH], first;
    REQUIRE_OK(loader_init(&l, 6, &(ares_order){ 5, false, 1, NULL }));
    CHECK_OK(loader_next(&l, ids, &first));
    loader_skip(&l, 1);
    loader_skip(&l, 4);
    CHECK_FAIL(loader_next(&l, ids, &first), ARES_ESTATE,
               "2 of 6 rows are skipped, and the rest fills no batch of 5");
    loader_fini(&l);
}
