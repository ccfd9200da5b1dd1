/* Groups of ranks give the bits of a sum from rank 0 up, in double, and of memcpy. */
#include "sums.h"

#include <stdio.h>
#include <stdlib.h>

/* Outside mpirun a test starts itself as 1, 2, 3 and 4 ranks; inside, it has a device. */
#define AS_UP_TO_FOUR_RANKS(name, device)                                           \
    if (!test_in_mpi()) {                                                           \
        for (int ranks = 1; ranks <= 4; ranks++) (void)test_as_ranks(ranks, #name); \
        return;                                                                     \
    }                                                                               \
    ares_world *w = NULL;                                                           \
    ares_device d = { 0 };                                                          \
    REQUIRE_OK(ares_world_open(&w));                                                \
    REQUIRE_OK(ares_device_open(device, 2, &d));                                    \
    int rank = ares_world_rank(w), size = ares_world_size(w)

static void end(ares_device *d, ares_world *w)
{
    ares_device_close(d);
    ares_world_close(w);
}

TEST_MPI(sums_in_a_group_are_those_of_the_world)
{
    AS_UP_TO_FOUR_RANKS(sums_in_a_group_are_those_of_the_world, "cpu");
    ares_group *g = NULL;
    REQUIRE_OK(ares_group_open(w, &d, size, 1, &g));
    CHECK_EQ(ares_group_rank(g), rank);
    CHECK_EQ(ares_group_size(g), size);
    sums_of_a_group(g, &d);
    CHECK_OK(ares_world_share_error(w, ARES_OK));
    ares_group_close(g);
    end(&d, w);
}

TEST_MPI(dc_of_ranks_lie_side_by_side)
{
    AS_UP_TO_FOUR_RANKS(dc_of_ranks_lie_side_by_side, "cpu");
    ares_group *g = NULL;
    REQUIRE_OK(ares_group_open(w, &d, size, 1, &g));
    dc_of_a_group(g, &d);
    CHECK_EQ(ares_group_rank(g), rank);
    ares_group_close(g);
    end(&d, w);
}

static bool card_is_here(void)
{
    const char *required = getenv("ARES_REQUIRE_CUDA");
    ares_device d = { 0 };
    int rc = ares_device_open("cuda", 1, &d);
    if (rc != ARES_OK && !(required && *required)) test_skip(ares_error_message());
    else CHECK_OK(rc);
    if (rc == ARES_OK) ares_device_close(&d);
    return rc == ARES_OK;
}

/*
 * The emulator runs what is queued in an order drawn by a seed (docs/testing.md); a card takes no
 * notice of it.
 */
TEST_GPU(ranks_with_cards_have_the_sums_and_columns_of_the_host)
{
    if (!test_in_mpi()) {
        if (!card_is_here()) return;
        for (int seed = 1; seed <= 4; seed++) {
            test_emulated_order(seed);
            (void)test_as_ranks(seed, "ranks_with_cards_have_the_sums_and_columns_of_the_host");
        }
        test_emulated_order(0);
        return;
    }
    ares_world *w = NULL;
    ares_device d = { 0 };
    ares_group *g = NULL;
    REQUIRE_OK(ares_world_open(&w));
    REQUIRE_OK(ares_device_open("cuda:0", 1, &d));
    REQUIRE_OK(ares_group_open(w, &d, ares_world_size(w), 1, &g));
    sums_of_a_group(g, &d);
    dc_of_a_group(g, &d);
    CHECK_OK(ares_world_share_error(w, ARES_OK));
    ares_group_close(g);
    end(&d, w);
}

/* Groups of two and two, next to each other and apart; each makes as many calls as it likes. */
TEST_MPI(groups_within_the_world_are_apart)
{
    AS_UP_TO_FOUR_RANKS(groups_within_the_world_are_apart, "cpu");
    static const int32_t members[2][4][2] = { { { 0, 1 }, { 0, 1 }, { 2, 3 }, { 2, 3 } },
                                              { { 0, 2 }, { 1, 3 }, { 0, 2 }, { 1, 3 } } };
    for (int stride = 1; stride <= 2 && size == 4; stride++) {
        ares_group *g = NULL;
        const int32_t *in = members[stride - 1][rank];
        REQUIRE_OK(ares_group_open(w, &d, 2, stride, &g));
        CHECK_EQ(ares_group_size(g), 2);
        CHECK_EQ(ares_group_rank(g), rank == in[1]);
        for (int i = 0; i < 1 + in[0] * 3; i++) {
            int32_t all[2] = { -1, -1 }, mine = rank;
            float x[3] = { element(rank, i), 1, (float)rank };
            ares_group_join(g, ares_group_gather(g, &mine, all, sizeof mine));
            ares_group_join(g, ares_group_sum(g, x, 3));
            CHECK_EQ(all[0], in[0]);
            CHECK_EQ(all[1], in[1]);
            CHECK_EQ(x[0], (float)((double)element(in[0], i) + (double)element(in[1], i)));
            CHECK_EQ(x[1], 2);
            CHECK_EQ(x[2], in[0] + in[1]);
        }
        CHECK_OK(ares_group_sync(g));
        CHECK_OK(ares_world_share_error(w, ARES_OK));
        ares_group_close(g);
    }
    end(&d, w);
}

TEST_MPI(ranks_that_make_different_calls_are_told)
{
    AS_UP_TO_FOUR_RANKS(ranks_that_make_different_calls_are_told, "cpu");
    ares_group *g = NULL;
    float x = 1;
    REQUIRE_OK(ares_group_open(w, &d, size, 1, &g));
    ares_group_join(g, ares_group_sum(g, &x, 1));
    CHECK_OK(ares_world_share_error(w, ARES_OK));
    /* nothing is moved for an array of none, so nobody would wait */
    if (rank == 0) ares_group_join(g, ares_group_sum(g, &x, 0));
    if (size == 1) CHECK_OK(ares_world_share_error(w, ARES_OK));
    else
        CHECK_FAIL(ares_world_share_error(w, ARES_OK), ARES_EDIST,
                   "dist: rank 1 has made other calls on its group than rank 0");
    ares_group_close(g);
    end(&d, w);
}

TEST(a_group_of_one_needs_no_launcher)
{
    if (test_in_mpi()) return;
    ares_device d = { 0 };
    ares_group *g = NULL;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    REQUIRE_OK(ares_group_open(NULL, &d, 1, 1, &g));
    float from[3] = { 1, 2, 3 }, to[3] = { 10, 20, 30 };
    ares_group_join(g, ares_group_sum_scatter(g, from, to, 3, true));
    CHECK_EQ(to[2], 33);
    ares_group_join(g, ares_group_gather_columns(g, from, to, 1, sizeof from));
    CHECK_EQ(to[2], 3);
    ares_group_join(g, ares_group_sum(g, from, 3));
    CHECK_EQ(from[0], 1);
    CHECK_EQ(ares_group_bytes(g), 0);
    CHECK_OK(ares_group_sync(g));
    ares_group_close(g);
    ares_device_close(&d);
}
