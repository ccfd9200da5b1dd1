/* Sums and columns of a group beside those that are computed by hand, on any device. */
#ifndef ARES_TEST_DIST_SUMS_H
#define ARES_TEST_DIST_SUMS_H

#include "ares/dist.h"
#include "test.h"

#include <string.h>

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
static void sums_of_a_group(ares_group *g, ares_device *d)
{
    int most = ARES_COUNT(sizes) - (ares_group_size(g) != 2);
    for (int i = 0; i < most; i++) check_sums(g, d, sizes[i]);
}

static void dc_of_a_group(ares_group *g, ares_device *d)
{
    static const int64_t shapes[][2] = { { 0, 3 }, { 1, 65537 }, { 7, 1 }, { 301, 65 } };
    int size = ares_group_size(g);
    for (int s = 0; s < ARES_COUNT(shapes); s++) {
        int64_t rows = shapes[s][0], n = shapes[s][1], before = ares_group_bytes(g);
        float *mine = put_filled(d, ares_group_rank(g), rows * n),
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
}

#endif
