/*
 * What a card's device does beside kernels: copies through pinned memory, memory that is given
 * back, and the host's threads.
 */
#include "kernels_test.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static bool card_open(ares_device *d)
{
    const char *required = getenv("ARES_REQUIRE_CUDA");
    int rc = ares_device_open("cuda", 1, d);
    if (rc == ARES_OK || (required && *required)) return CHECK_OK(rc);
    test_skip(ares_error_message());
    return false;
}

/* Byte i of a copy of so many. */
static uint8_t byte_of(size_t bytes, size_t i)
{
    return (uint8_t)((bytes + i * 2654435761u) >> 7);
}

/* Its source is overwritten as soon as copy_in returns. */
static uint8_t *sent(ares_device *d, uint8_t *host, size_t bytes)
{
    uint8_t *p = d->k->alloc(d, bytes);
    for (size_t i = 0; i < bytes; i++) host[i] = byte_of(bytes, i);
    d->k->copy_in(d, p, host, bytes);
    memset(host, 0xee, bytes);
    return p;
}

/* Sizes around those of a piece (device.cu), and more of them than its ring holds. */
TEST_GPU(card_copies_are_whole_though_their_source_changes_at_once)
{
    enum { PIECE = 4 << 20, MOST = 18 << 20, ROUNDS = 3 };
    static const size_t sizes[] = { 1,   63, 64, 1000, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7,
                                    MOST };
    uint8_t *copy[ROUNDS * ARES_COUNT(sizes)], *host = ares_malloc(MOST);
    ares_device d;
    if (!card_open(&d)) return;
    for (int i = 0; i < ARES_COUNT(copy); i++)
        copy[i] = sent(&d, host, sizes[i % ARES_COUNT(sizes)]);
    for (int i = 0; i < ARES_COUNT(copy); i++) {
        size_t bytes = sizes[i % ARES_COUNT(sizes)], wrong = 0;
        memset(host, 0, bytes);
        d.k->copy_out(&d, host, copy[i], bytes);
        for (size_t k = 0; k < bytes; k++) wrong += host[k] != byte_of(bytes, k);
        CHECK_MSG(wrong == 0, "copy %d of %zu bytes: %zu are wrong", i, bytes, wrong);
        d.k->release(&d, copy[i], bytes);
    }
    CHECK_OK(d.k->sync(&d));
    CHECK_EQ(d.allocated, 0);
    ares_device_close(&d);
    ares_free(host);
}

/*
 * As optimizer states in host memory come and go: two windows take turns, the next numbers come
 * while the last ones are computed, and nothing waits before the end.
 */
TEST_GPU(card_stores_what_was_computed_before_its_window_is_filled_again)
{
    enum { N = 3000, ROUNDS = 9, WINDOWS = 2 };
    size_t bytes = N * sizeof(float), all = ROUNDS * bytes;
    float *window[WINDOWS], ones[N];
    ares_device d;
    if (!card_open(&d)) return;
    float *from = d.k->alloc_host(&d, all), *to = d.k->alloc_host(&d, all),
          *one = d.k->alloc(&d, bytes);
    REQUIRE(from && to && one);
    for (int i = 0; i < WINDOWS; i++) REQUIRE(window[i] = d.k->alloc(&d, bytes));
    for (int i = 0; i < ROUNDS * N; i++) from[i] = (float)i;
    for (int i = 0; i < N; i++) ones[i] = 1;
    d.k->copy_in(&d, one, ones, bytes);
    d.k->bring(&d, window[0], from, bytes);
    for (int i = 0; i < ROUNDS; i++) {
        float *now = window[i % WINDOWS];
        d.k->brought(&d);
        if (i) d.k->store(&d, to + (i - 1) * N, window[(i - 1) % WINDOWS], bytes);
        if (i + 1 < ROUNDS) d.k->bring(&d, window[(i + 1) % WINDOWS], from + (i + 1) * N, bytes);
        d.k->add(&d, now, one, N);
    }
    d.k->store(&d, to + (ROUNDS - 1) * N, window[(ROUNDS - 1) % WINDOWS], bytes);
    REQUIRE_OK(d.k->sync(&d));
    int64_t wrong = 0;
    for (int i = 0; i < ROUNDS * N; i++) wrong += to[i] != (float)i + 1;
    CHECK_EQ(wrong, 0);
    for (int i = 0; i < WINDOWS; i++) d.k->release(&d, window[i], bytes);
    d.k->release(&d, one, bytes);
    d.k->release_host(&d, from, all);
    d.k->release_host(&d, to, all);
    ares_device_close(&d);
}

TEST_GPU(card_memory_that_was_released_is_free_after_the_next_wait)
{
    const size_t bytes = (size_t)256 << 20;
    ares_device d;
    if (!card_open(&d)) return;
    CHECK_OK(d.k->sync(&d));
    double before = ares_device_memory_bytes(&d);
    void *p = d.k->alloc(&d, bytes);
    CHECK(ares_device_memory_bytes(&d) - before >= (double)bytes / 2);
    d.k->zero(&d, p, bytes); /* may still run */
    d.k->release(&d, p, bytes);
    CHECK_OK(d.k->sync(&d));
    CHECK(ares_device_memory_bytes(&d) - before < (double)bytes / 2);
    ares_device_close(&d);
}

/* Where p is not NULL, what another library keeps of the card, which has too little without. */
static struct {
    ares_device *d;
    void *p;
    size_t bytes;
    int trims;
} kept;
static void trim(void)
{
    kept.trims++;
    if (!kept.p) return;
    kept.d->k->release(kept.d, kept.p, kept.bytes);
    kept.p = NULL;
    CHECK_OK(kept.d->k->sync(kept.d));
}

TEST_GPU(cuda_memory_that_another_library_keeps_is_asked_for_before_an_allocation_fails)
{
    ares_device d;
    void (*trim_by)(ares_device *, void (*)(void));
    setenv("ARES_EMULATE_MEMORY", "0:67108864", 1);
    if (!card_open(&d)) return;
    *(void **)&trim_by = ares_device_symbol(&d, "ares_cuda_trim_by");
    REQUIRE(trim_by);
    trim_by(&d, trim);
    size_t most = (size_t)(ares_device_total_bytes(&d) - ares_device_memory_bytes(&d));
    size_t bytes = most / 8 * 5;
    kept.d = &d, kept.bytes = bytes, kept.trims = 0;
    kept.p = d.k->alloc(&d, bytes);
    REQUIRE(kept.p);
    void *p = d.k->alloc(&d, bytes);
    CHECK(p && !kept.p);
    CHECK_EQ(kept.trims, 1);
    CHECK(!d.k->alloc(&d, bytes)); /* and nothing comes free */
    CHECK_EQ(kept.trims, 2);
    CHECK_OK(d.k->sync(&d));
    d.k->release(&d, p, bytes);
    CHECK(d.k->alloc(&d, bytes)); /* what we have released ourselves comes first */
    CHECK_EQ(kept.trims, 2);
    CHECK_OK(d.k->sync(&d));
    ares_device_close(&d);
    unsetenv("ARES_EMULATE_MEMORY");
}

static void note(void *done)
{
    atomic_store((atomic_bool *)done, true);
}

/* Also where the run asks for one thread: the caller is busy with the card. */
TEST_GPU(card_work_of_the_host_is_done_while_the_caller_is_busy)
{
    atomic_bool done = false;
    ares_device d;
    if (!card_open(&d)) return;
    ares_pool_post(d.pool, note, &done);
    for (double start = ares_now_s(); !atomic_load(&done) && ares_now_s() - start < 10;) {}
    CHECK(atomic_load(&done));
    ares_device_close(&d);
}
