/* Groups of ranks give the bits of ares_world_sum_f32 and of memcpy. */
#include "ares/dist.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

/* Outside mpirun a test starts itself as 1, 2, 3 and 4 ranks. */
#define AS_UP_TO_FOUR_RANKS(name)                                   \
    if (!test_in_mpi()) {                                           \
        for (int ranks = 1; ranks <= 4; ranks++) {                  \
            ares_str out = { 0 };                                   \
            int status = test_mpirun(&out, ranks, #name);           \
            CHECK_MSG(status == 0, "%s", ares_str_view(&out).data); \
            ares_str_fini(&out);                                    \
        }                                                           \
        return;                                                     \
    }                                                               \
    ares_world *w = NULL;                                           \
    ares_device d = { 0 };                                          \
    REQUIRE_OK(ares_world_open(&w));                                \
    REQUIRE_OK(ares_device_open("cpu", 2, &d));                     \
    int rank = ares_world_rank(w), size = ares_world_size(w)

static void end(ares_device *d, ares_world *w)
{
    ares_device_close(d);
    ares_world_close(w);
}

/*
 * Element i of an array of a rank. The ranks' large parts cancel, and what is left depends on the
 * order of addition: (1e10 + 1e-10) - 1e10 is not 1e10 - 1e10 + 1e-10, in double.
 */
static float element(int rank, int64_t i)
{
    uint64_t bits = ((uint64_t)i * 4 + (uint64_t)rank + 1) * 0x9e3779b97f4a7c15u;
    double x = (double)(int32_t)((bits ^ bits >> 29) * 0xbf58476d1ce4e5b9u >> 32) / 1e9;
    if (i % 4 == 0) return (float)(x * 1e10);
    if (i % 4 == 1) return (float)(x * 1e-10);
    if (i % 4 == 2) return rank % 3 == 0 ? 1e10f : rank % 3 == 1 ? 1e-10f : -1e10f;
    return (float)x;
}

static float *fill(int rank, int64_t n)
{
    float *x = ares_calloc((size_t)n + 1, sizeof *x); /* +1: an array of none is no NULL */
    for (int64_t i = 0; i < n; i++) x[i] = element(rank, i);
    return x;
}

static int64_t differ(const float *a, const float *b, int64_t n)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += memcmp(&a[i], &b[i], sizeof *a) != 0;
    return wrong;
}

/* around a chunk, and one that takes two pieces */
static const int64_t sizes[] = { 0, 1, 33, 65535, 65536, 65537, (1 << 20) + 3 };

static void check_sums(ares_group *g, ares_world *w, int rank, int size, int64_t n)
{
    float *whole = fill(rank, n * size), *want = fill(rank, n * size), *mine = fill(9, n),
          *added = fill(9, n), *twice = fill(9, n);
    REQUIRE_OK(ares_world_sum_f32(w, want, n * size));
    const float *part = want + rank * n;
    int64_t before = ares_group_bytes(g);
    ares_group_join(g, ares_group_sum_scatter(g, whole, mine, n, false));
    CHECK_EQ(ares_group_bytes(g) - before, n * 4 * (size - 1));
    ares_group_join(g, ares_group_sum_scatter(g, whole, added, n, true));
    CHECK_EQ(differ(mine, part, n), 0);
    for (int64_t i = 0; i < n; i++) twice[i] += part[i];
    CHECK_EQ(differ(added, twice, n), 0);
    /* in its place: the other parts stay */
    float *untouched = fill(rank, n * size);
    ares_group_join(g, ares_group_sum_scatter(g, whole, whole + rank * n, n, false));
    memcpy(untouched + rank * n, part, (size_t)n * sizeof *part);
    CHECK_EQ(differ(whole, untouched, n * size), 0);
    /* summed parts gathered in their places are the whole sum */
    before = ares_group_bytes(g);
    ares_group_join(g, ares_group_gather(g, whole + rank * n, whole, (size_t)n * sizeof *whole));
    CHECK_EQ(ares_group_bytes(g) - before, n * 4 * (size - 1));
    CHECK_EQ(differ(whole, want, n * size), 0);
    ares_group_join(g, ares_group_sum(g, untouched, 0));
    float *all = fill(rank, n);
    ares_group_join(g, ares_group_sum(g, all, n));
    CHECK_EQ(differ(all, want, n), 0);
    CHECK_OK(ares_group_sync(g));
    float *of[] = { whole, want, mine, added, twice, untouched, all };
    for (int i = 0; i < ARES_COUNT(of); i++) ares_free(of[i]);
}

TEST_MPI(sums_in_a_group_are_those_of_the_world)
{
    AS_UP_TO_FOUR_RANKS(sums_in_a_group_are_those_of_the_world);
    ares_group *g = NULL;
    REQUIRE_OK(ares_group_open(w, &d, size, 1, &g));
    CHECK_STR(ares_group_transport(g), "host");
    CHECK_EQ(ares_group_rank(g), rank);
    CHECK_EQ(ares_group_size(g), size);
    for (int i = 0; i < ARES_COUNT(sizes); i++) check_sums(g, w, rank, size, sizes[i]);
    CHECK_OK(ares_world_agree(w, ARES_OK));
    ares_group_close(g);
    end(&d, w);
}

TEST_MPI(columns_of_ranks_lie_side_by_side)
{
    AS_UP_TO_FOUR_RANKS(columns_of_ranks_lie_side_by_side);
    static const int64_t shapes[][2] = { { 0, 3 }, { 1, 65537 }, { 7, 1 }, { 301, 65 } };
    ares_group *g = NULL;
    REQUIRE_OK(ares_group_open(w, &d, size, 1, &g));
    for (int s = 0; s < ARES_COUNT(shapes); s++) {
        int64_t rows = shapes[s][0], n = shapes[s][1], wrong = 0;
        float *mine = fill(rank, rows * n), *all = fill(8, rows * n * size);
        int64_t before = ares_group_bytes(g);
        ares_group_join(g, ares_group_gather_columns(g, mine, all, rows, (size_t)n * sizeof *mine));
        CHECK_EQ(ares_group_bytes(g) - before, rows * n * 4 * (size - 1));
        for (int64_t i = 0; i < rows * n * size; i++) {
            int from = (int)(i / n % size);
            wrong += all[i] != element(from, i / (n * size) * n + i % n);
        }
        CHECK_EQ(wrong, 0);
        ares_free(mine);
        ares_free(all);
    }
    CHECK_OK(ares_group_sync(g));
    ares_group_close(g);
    end(&d, w);
}

/* Groups of two and two, next to each other and apart; each makes as many calls as it likes. */
TEST_MPI(groups_within_the_world_are_apart)
{
    AS_UP_TO_FOUR_RANKS(groups_within_the_world_are_apart);
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
        CHECK_OK(ares_world_agree(w, ARES_OK));
        ares_group_close(g);
    }
    end(&d, w);
}

TEST_MPI(ranks_that_make_different_calls_are_told)
{
    AS_UP_TO_FOUR_RANKS(ranks_that_make_different_calls_are_told);
    ares_group *g = NULL;
    float x = 1;
    REQUIRE_OK(ares_group_open(w, &d, size, 1, &g));
    ares_group_join(g, ares_group_sum(g, &x, 1));
    CHECK_OK(ares_world_agree(w, ARES_OK));
    /* nothing is moved for an array of none, so nobody would wait */
    if (rank == 0) ares_group_join(g, ares_group_sum(g, &x, 0));
    if (size == 1) CHECK_OK(ares_world_agree(w, ARES_OK));
    else
        CHECK_FAIL(ares_world_agree(w, ARES_OK), ARES_EDIST,
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
    to[0] = 7;
    ares_group_join(g, ares_group_fetch(g, from, to, sizeof from));
    CHECK_EQ(from[0], 7);
    from[1] = 8;
    ares_group_join(g, ares_group_store(g, to, from, sizeof from));
    CHECK_EQ(to[1], 8);
    ares_group_join(g, ares_group_sum(g, from, 3));
    CHECK_EQ(from[0], 7);
    CHECK_EQ(ares_group_bytes(g), 0);
    CHECK_OK(ares_group_sync(g));
    ares_group_close(g);
    ares_device_close(&d);
}
