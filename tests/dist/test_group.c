/* Groups of ranks give the bits of a sum from rank 0 up, in double, and of memcpy. */
#include "ares/dist.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* The sum over ranks that every transport must give. */
static float *summed(int ranks, int64_t n)
{
    float *x = ares_calloc((size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        double sum = (double)element(0, i);
        for (int r = 1; r < ranks; r++) sum += (double)element(r, i);
        x[i] = (float)sum;
    }
    return x;
}

static int64_t differ(const float *a, const float *b, int64_t n)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += memcmp(&a[i], &b[i], sizeof *a) != 0;
    return wrong;
}

/* ---------------- arrays of a device
 * The last thing that a kernel writes before a call, and reads after it was joined: a call that
 * does not wait for the device, or a device that does not wait for it, gives other numbers on a
 * card.
 */
static size_t bytes_of(int64_t n)
{
    return (size_t)n * sizeof(float);
}
static float *put(ares_device *d, const float *host, int64_t n)
{
    float *x = d->k->alloc(d, bytes_of(2 * n + 1)), *written = x + n;
    d->k->copy_in(d, written, host, bytes_of(n));
    if (n > 0) d->k->copy(d, x, written, bytes_of(n));
    return x;
}
/* Gives the memory back too. */
static float *take(ares_device *d, float *x, int64_t n)
{
    float *host = ares_calloc((size_t)n + 1, sizeof *host);
    if (n > 0) d->k->copy(d, x + n, x, bytes_of(n));
    d->k->copy_out(d, host, x + n, bytes_of(n));
    d->k->release(d, x, bytes_of(2 * n + 1));
    return host;
}
static float *put_filled(ares_device *d, int rank, int64_t n)
{
    float *host = fill(rank, n), *x = put(d, host, n);
    ares_free(host);
    return x;
}
static void check(ares_device *d, float *x, const float *want, int64_t n)
{
    float *is = take(d, x, n);
    CHECK_EQ(differ(is, want, n), 0);
    ares_free(is);
}

/* around a chunk, and one that takes two pieces */
static const int64_t sizes[] = { 0, 1, 33, 65535, 65536, 65537, (1 << 20) + 3 };

static void check_sums(ares_group *g, ares_device *d, int64_t n)
{
    int rank = ares_group_rank(g), size = ares_group_size(g);
    int64_t before = ares_group_bytes(g), own = rank * n;
    float *whole = fill(rank, n * size), *sums = summed(size, n * size), *twice = fill(9, n);
    float *from = put(d, whole, n * size), *mine = put_filled(d, 9, n),
          *added = put_filled(d, 9, n);
    (void)ares_group_sum_scatter(g, from, mine, n, false);
    ares_group_join(g, ares_group_sum_scatter(g, from, added, n, true));
    CHECK_EQ(ares_group_bytes(g) - before, 2 * n * 4 * (size - 1));
    check(d, mine, sums + own, n);
    for (int64_t i = 0; i < n; i++) twice[i] += sums[own + i];
    check(d, added, twice, n);
    check(d, from, whole, n * size);
    /* in its place: the other parts stay */
    from = put(d, whole, n * size);
    ares_group_join(g, ares_group_sum_scatter(g, from, from + own, n, false));
    memcpy(whole + own, sums + own, bytes_of(n));
    check(d, from, whole, n * size);
    /* summed parts gathered in their places, or from elsewhere, are the whole sum */
    from = put(d, whole, n * size);
    before = ares_group_bytes(g);
    ares_group_join(g, ares_group_gather(g, from + own, from, bytes_of(n)));
    CHECK_EQ(ares_group_bytes(g) - before, n * 4 * (size - 1));
    check(d, from, sums, n * size);
    mine = put(d, sums + own, n);
    from = put(d, whole, n * size);
    ares_group_join(g, ares_group_gather(g, mine, from, bytes_of(n)));
    check(d, mine, sums + own, n);
    check(d, from, sums, n * size);
    mine = put_filled(d, rank, n);
    ares_group_join(g, ares_group_sum(g, mine, n));
    check(d, mine, sums, n);
    CHECK_OK(ares_group_sync(g));
    ares_free(whole);
    ares_free(sums);
    ares_free(twice);
}

/* Two ranks alone add the last size, which takes long. */
static void sums(ares_world *w, ares_device *d)
{
    int most = ARES_COUNT(sizes) - (ares_world_size(w) != 2);
    ares_group *g = NULL;
    REQUIRE_OK(ares_group_open(w, d, ares_world_size(w), 1, &g));
    CHECK_EQ(ares_group_rank(g), ares_world_rank(w));
    CHECK_EQ(ares_group_size(g), ares_world_size(w));
    for (int i = 0; i < most; i++) check_sums(g, d, sizes[i]);
    CHECK_OK(ares_world_agree(w, ARES_OK));
    ares_group_close(g);
}

static void columns(ares_world *w, ares_device *d)
{
    static const int64_t shapes[][2] = { { 0, 3 }, { 1, 65537 }, { 7, 1 }, { 301, 65 } };
    int size = ares_world_size(w);
    ares_group *g = NULL;
    REQUIRE_OK(ares_group_open(w, d, size, 1, &g));
    for (int s = 0; s < ARES_COUNT(shapes); s++) {
        int64_t rows = shapes[s][0], n = shapes[s][1], before = ares_group_bytes(g);
        float *mine = put_filled(d, ares_world_rank(w), rows * n),
              *all = put_filled(d, 8, rows * n * size), *want = fill(8, rows * n * size);
        ares_group_join(g, ares_group_gather_columns(g, mine, all, rows, bytes_of(n)));
        CHECK_EQ(ares_group_bytes(g) - before, rows * n * 4 * (size - 1));
        for (int64_t i = 0; i < rows * n * size; i++)
            want[i] = element((int)(i / n % size), i / (n * size) * n + i % n);
        check(d, all, want, rows * n * size);
        d->k->release(d, mine, bytes_of(2 * rows * n + 1));
        ares_free(want);
    }
    CHECK_OK(ares_group_sync(g));
    ares_group_close(g);
}

TEST_MPI(sums_in_a_group_are_those_of_the_world)
{
    AS_UP_TO_FOUR_RANKS(sums_in_a_group_are_those_of_the_world, "cpu");
    CHECK_EQ(rank < size, true);
    sums(w, &d);
    end(&d, w);
}

TEST_MPI(columns_of_ranks_lie_side_by_side)
{
    AS_UP_TO_FOUR_RANKS(columns_of_ranks_lie_side_by_side, "cpu");
    CHECK_EQ(rank < size, true);
    columns(w, &d);
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
 * The emulator runs what is queued in an order drawn by a seed (tests/gpu/emulate); a card takes no
 * notice of it.
 */
TEST_GPU(ranks_with_cards_have_the_sums_and_columns_of_the_host)
{
    if (!test_in_mpi()) {
        if (!card_is_here()) return;
        for (int seed = 1; seed <= 4; seed++) {
            char text[8];
            snprintf(text, sizeof text, "%d", seed);
            setenv("ARES_EMULATE_SEED", text, 1);
            (void)test_as_ranks(seed, "ranks_with_cards_have_the_sums_and_columns_of_the_host");
        }
        unsetenv("ARES_EMULATE_SEED");
        return;
    }
    ares_world *w = NULL;
    ares_device d = { 0 };
    REQUIRE_OK(ares_world_open(&w));
    REQUIRE_OK(ares_device_open("cuda:0", 1, &d));
    sums(w, &d);
    columns(w, &d);
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
        CHECK_OK(ares_world_agree(w, ARES_OK));
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
    ares_group_join(g, ares_group_sum(g, from, 3));
    CHECK_EQ(from[0], 1);
    CHECK_EQ(ares_group_bytes(g), 0);
    CHECK_OK(ares_group_sync(g));
    ares_group_close(g);
    ares_device_close(&d);
}
