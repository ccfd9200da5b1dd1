#include "ares/dist.h"
#include "test.h"

#include <math.h>
#include <stdio.h>

/*
 * Outside mpirun a test starts itself as three ranks; inside, the same function does the work of a
 * rank.
 */
#define AS_RANKS(name)                                        \
    if (!test_as_ranks(3, #name)) return;                     \
    ares_world *w = NULL;                                     \
    REQUIRE_OK(ares_world_open(&w));                          \
    int rank = ares_world_rank(w), size = ares_world_size(w); \
    CHECK_EQ(size, 3);

TEST(a_world_of_one_needs_no_launcher)
{
    if (test_in_mpi()) return;
    ares_world *one = NULL;
    REQUIRE_OK(ares_world_open(&one));
    for (int i = 0; i < 2; i++) {
        ares_world *w = i ? NULL : one;
        double x[2] = { 1.5, -2 };
        size_t start[2] = { 9, 9 };
        ares_str all = { 0 };
        CHECK_EQ(ares_world_rank(w), 0);
        CHECK_EQ(ares_world_size(w), 1);
        CHECK_EQ(ares_world_local_size(w), 1);
        CHECK_EQ(ares_world_threads(w), ares_cpu_count());
        CHECK_OK(ares_world_sum_f64(w, x, 2));
        CHECK_OK(ares_world_max_f64(w, x, 2));
        CHECK_NEAR(x[1], -2, 0);
        CHECK_OK(ares_world_broadcast(w, x, sizeof x, 0));
        CHECK_OK(ares_world_gather_all(w, "abc", 3, &all, start));
        CHECK_STR(all.data, "abc");
        CHECK_EQ(start[1], 3);
        (void)ares_fail(ARES_EIO, "mine");
        CHECK_FAIL(ares_world_share_error(w, ARES_EIO), ARES_EIO, "mine");
        CHECK_OK(ares_world_share_error(w, ARES_OK));
        ares_str_fini(&all);
    }
    ares_world_close(one);
    ares_world_close(NULL);
}

static double element(int rank, int64_t i)
{
    double x = ares_rng_normal(ares_rng_sub(ares_rng_root(1, ARES_RNG_TEST), (uint64_t)rank, 0),
                               (uint64_t)i);
    return i % 3 ? x : x * 1e10; /* so different that another order of addition changes the sum */
}

/* Fails with MPI_Allreduce instead of the ordered sum: 215 of a million elements differed. */
TEST_MPI(sums_add_the_ranks_in_order)
{
    AS_RANKS(sums_add_the_ranks_in_order)
    /* the last one takes several blocks */
    static const int64_t sizes[] = { 0, 1, 2, 5, 1000, 1000003 };
    for (int k = 0; k < ARES_COUNT(sizes); k++) {
        int64_t n = sizes[k], wrong = 0;
        double *f64 = ares_calloc((size_t)n, sizeof *f64);
        int64_t *i64 = ares_calloc((size_t)n, sizeof *i64);
        for (int64_t i = 0; i < n; i++) {
            f64[i] = element(rank, i);
            i64[i] = (int64_t)element(rank, i) * 1000;
        }
        REQUIRE_OK(ares_world_sum_f64(w, f64, n));
        REQUIRE_OK(ares_world_sum_i64(w, i64, n));
        for (int64_t i = 0; i < n; i++) {
            double e[3] = { element(0, i), element(1, i), element(2, i) };
            wrong += f64[i] != (e[0] + e[1]) + e[2];
            wrong += i64[i] != ((int64_t)e[0] + (int64_t)e[1] + (int64_t)e[2]) * 1000;
        }
        CHECK_EQ(wrong, 0);
        ares_free(f64);
        ares_free(i64);
    }
    ares_world_close(w);
}

TEST_MPI(the_greatest_of_all_ranks_and_nan_above_all)
{
    AS_RANKS(the_greatest_of_all_ranks_and_nan_above_all)
    int64_t i[3] = { rank, -rank, 5 };
    double x[3] = { -1.0 - rank, rank == 1 ? 7 : 0, rank == 2 ? NAN : 3 };
    CHECK_OK(ares_world_max_i64(w, i, 3));
    CHECK_OK(ares_world_max_f64(w, x, 3));
    CHECK_EQ(i[0], 2);
    CHECK_EQ(i[1], 0);
    CHECK_EQ(i[2], 5);
    CHECK_NEAR(x[0], -1, 0);
    CHECK_NEAR(x[1], 7, 0);
    CHECK(isnan(x[2]));
    ares_world_close(w);
}

TEST_MPI(gathering_keeps_every_ranks_own_length)
{
    AS_RANKS(gathering_keeps_every_ranks_own_length)
    ares_str mine = { 0 }, all = { 0 };
    size_t start[4];
    /* rank 0 has nothing to say */
    for (int i = 0; i < rank * 2; i++) ares_str_addf(&mine, "%d", rank);
    for (int round = 0; round < 2; round++)
        CHECK_OK(ares_world_gather_all(w, mine.data, mine.len, &all, start));
    CHECK_STR(all.data, "112222");
    CHECK_EQ(start[1], 0);
    CHECK_EQ(start[2], 2);
    CHECK_EQ(start[3], 6);
    CHECK_OK(ares_world_gather_all(w, NULL, 0, &all, NULL));
    CHECK_EQ(all.len, 0);
    ares_str_fini(&mine);
    ares_str_fini(&all);
    ares_world_close(w);
}

TEST_MPI(a_broadcast_reaches_everyone)
{
    AS_RANKS(a_broadcast_reaches_everyone)
    char text[16] = "";
    if (rank == 2) snprintf(text, sizeof text, "from two");
    CHECK_OK(ares_world_broadcast(w, text, sizeof text, 2));
    CHECK_STR(text, "from two");
    ares_world_close(w);
}

TEST_MPI(all_ranks_agree_on_the_first_failure)
{
    AS_RANKS(all_ranks_agree_on_the_first_failure)
    CHECK_OK(ares_world_share_error(w, ARES_OK));
    int rc = ARES_OK;
    if (rank == 1) rc = ares_fail(ARES_EFORMAT, "data: row 7 is odd");
    if (rank == 2) rc = ares_fail(ARES_EIO, "disk");
    CHECK_EQ(ares_world_share_error(w, rc), ARES_EFORMAT);
    CHECK_STR(ares_error_message(), "rank 1: data: row 7 is odd");
    rc = ares_fail(ARES_ECONFIG, "config: bad (as rank %d sees it)", rank);
    CHECK_EQ(ares_world_share_error(w, rc), ARES_ECONFIG);
    CHECK_STR(ares_error_message(), "config: bad (as rank 0 sees it)");
    ares_world_close(w);
}

TEST_MPI(ranks_of_one_machine_share_its_cpus)
{
    AS_RANKS(ranks_of_one_machine_share_its_cpus)
    int64_t threads = ares_world_threads(w);
    CHECK(threads >= 1);
    CHECK_EQ(ares_world_local_size(w), size);
    CHECK_EQ(ares_world_local_rank(w), rank);
    CHECK_OK(ares_world_sum_i64(w, &threads, 1));
    CHECK_EQ(threads, ARES_MAX(size, ares_cpu_count() / size * size)); /* mpirun --bind-to none */
    ares_world_close(w);
}

TEST_MPI(abort_ends_the_ranks_that_wait_with_the_exit_code)
{
    if (!test_in_mpi()) {
        ares_str out = { 0 };
        CHECK_EQ(test_mpirun(&out, 3, "abort_ends_the_ranks_that_wait_with_the_exit_code"), 2);
        CHECK_CONTAINS(ares_str_view(&out).data, "config: seen by one rank");
        ares_str_fini(&out);
        return;
    }
    ares_world *w = NULL;
    REQUIRE_OK(ares_world_open(&w));
    if (ares_world_rank(w) == 1)
        ares_world_abort(w, ares_fail(ARES_ECONFIG, "config: seen by one rank"));
    CHECK_OK(ares_world_share_error(w, ARES_OK)); /* never returns */
    CHECK(false && "the others went on");
}
