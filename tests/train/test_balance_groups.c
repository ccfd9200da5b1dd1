/*
 * Which rank trains on which groups: at least one of each mini-batch, even work, and mini-batches
 * that no rank count changes.
 */
#include "collect/collect.h"

#include "ares/core.h"
#include "test.h"

enum { COUNT = 48, CHUNK = 16 };

/* Work of unlike groups: the largest has 20 times that of the smallest. */
static void unlike(int64_t *work)
{
    for (int i = 0; i < COUNT; i++)
        work[i] = 50 + (int64_t)ares_rng_below(ares_rng_root(3, ARES_RNG_TEST), (uint64_t)i, 951);
    work[5] = 1000;
    work[7] = 50;
}

static int64_t most_of(const int64_t *work, const int64_t *rank, int64_t from, int64_t end,
                       int64_t ranks, int64_t *least)
{
    int64_t sum[8] = { 0 }, most = 0;
    for (int64_t i = from; i < end; i++) sum[rank[i]] += work[i];
    *least = INT64_MAX;
    for (int64_t r = 0; r < ranks; r++) {
        most = ARES_MAX(most, sum[r]);
        *least = ARES_MIN(*least, sum[r]);
    }
    return most;
}

TEST(ranks_get_even_work_of_every_mini_batch_and_a_group_at_least)
{
    static const int64_t counts[] = { 2, 4, 8 };
    int64_t work[COUNT], rank[COUNT], turns[COUNT], low, low_in_turn;
    unlike(work);
    for (int k = 0; k < ARES_COUNT(counts); k++) {
        int64_t ranks = counts[k];
        REQUIRE_OK(balance_groups(work, COUNT, CHUNK, ranks, true, rank));
        REQUIRE_OK(balance_groups(work, COUNT, CHUNK, ranks, false, turns));
        for (int64_t at = 0; at < COUNT; at += CHUNK) {
            int64_t n[8] = { 0 }, high = most_of(work, rank, at, at + CHUNK, ranks, &low);
            int64_t in_turn =
                most_of(work, turns, at, at + CHUNK, ranks, &low_in_turn) - low_in_turn;
            for (int64_t i = at; i < at + CHUNK; i++) n[rank[i]]++;
            for (int64_t r = 0; r < ranks; r++) CHECK(n[r] > 0);
            CHECK_MSG(high - low < in_turn, "%lld ranks, from %lld: %lld, in turn %lld",
                      (long long)ranks, (long long)at, (long long)(high - low), (long long)in_turn);
        }
        int64_t high = most_of(work, rank, 0, COUNT, ranks, &low);
        CHECK_MSG(20 * (high - low) < high, "%lld ranks: %lld of %lld apart in all",
                  (long long)ranks, (long long)(high - low), (long long)high);
    }
}

TEST(the_rank_with_the_larger_part_of_one_mini_batch_gets_the_smaller_of_the_next)
{
    static const int64_t work[] = { 9, 1, 9, 1, 7, 1, 7, 1 };
    int64_t rank[8], n = 0, mine[2] = { 0 };
    REQUIRE_OK(balance_groups(work, 8, 2, 2, true, rank));
    for (int i = 0; i < 8; i++) mine[rank[i]] += work[i];
    for (int i = 0; i < 8; i++) n += rank[i];
    CHECK_EQ(n, 4);
    CHECK_EQ(mine[0], mine[1]);
}

/* Three short groups balance a long one: no equal numbers give even work. */
TEST(a_long_group_is_balanced_by_more_short_ones)
{
    static const int64_t work[] = { 9, 3, 3, 3 };
    int64_t rank[4];
    REQUIRE_OK(balance_groups(work, 4, 4, 2, true, rank));
    CHECK(rank[1] == rank[2] && rank[2] == rank[3] && rank[0] != rank[1]);
}

TEST(a_short_last_mini_batch_is_dealt_out_too_and_one_rank_has_all)
{
    int64_t work[COUNT], rank[COUNT], n = 0;
    unlike(work);
    REQUIRE_OK(balance_groups(work, 20, CHUNK, 2, true, rank));
    for (int i = CHUNK; i < 20; i++) n += rank[i];
    CHECK(n > 0 && n < 4);
    REQUIRE_OK(balance_groups(work, COUNT, CHUNK, 1, true, rank));
    for (int i = 0; i < COUNT; i++) CHECK_EQ(rank[i], 0);
    REQUIRE_OK(balance_groups(work, 0, CHUNK, 2, true, rank));
}
