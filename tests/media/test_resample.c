/*
 * The passes against sums written one by one: all widths and heights around the blocks in which the
 * passes work. Values against the libraries are in vision.json.
 */
#include <math.h>

#include "media_test.h"

static double cubic(double x)
{
    x = fabs(x);
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

/* One output of a line of bytes `stride` apart. */
static int line_at(media_filter filter, const uint8_t *in, int stride, int n_in, int n_out, int i)
{
    double scale = (double)n_in / n_out, wide = fmax(scale, 1), w[4096], most = 0;
    int bits = filter == MEDIA_PILLOW ? 22 : 0, first = 0, last = 0;
    int64_t sum = 0;
    for (int out = 0; out < n_out && filter == MEDIA_TORCH_U8; out++) { /* the largest weight */
        double c = (out + 0.5) * scale, all = 0, top = 0;
        int lo = (int)fmax(c - 2 * wide + 0.5, 0), hi = (int)fmin(c + 2 * wide + 0.5, n_in);
        for (int x = lo; x < hi; x++) all += cubic((x - c + 0.5) / wide);
        for (int x = lo; x < hi; x++) top = fmax(top, cubic((x - c + 0.5) / wide) / all);
        most = fmax(most, top);
    }
    while (bits < 22 && (int)(0.5 + most * (1 << (bits + 1))) < 32768) bits++;
    double c = (i + 0.5) * scale, all = 0;
    first = (int)fmax(c - 2 * wide + 0.5, 0);
    last = (int)fmin(c + 2 * wide + 0.5, n_in);
    for (int x = first; x < last; x++)
        all += w[x - first] = cubic((x - first + first - c + 0.5) / wide);
    for (int x = first; x < last; x++)
        sum += (int64_t)round(w[x - first] / all * (1 << bits)) * in[x * stride];
    sum = (sum + (1 << (bits - 1))) >> bits;
    return sum < 0 ? 0 : sum > 255 ? 255 : (int)sum;
}

static void check(media_filter filter, media_size from, media_size to)
{
    ares_arena arena = { 0 };
    size_t n_in = (size_t)from.w * (size_t)from.h * 3, n = (size_t)to.w * (size_t)to.h * 3;
    const uint8_t *noise =
        picture_bytes(&arena, from.w % 2 ? "two" : "noise", (uint32_t)from.h, (int64_t)n_in);
    /* blocks of their own, so that a sanitizer sees a byte too many */
    uint8_t *in = ares_malloc(n_in), *got = ares_malloc(n), *want = ares_malloc(n),
            *between = ares_malloc((size_t)to.w * (size_t)from.h * 3);
    memcpy(in, noise, n_in);
    for (int y = 0; y < from.h; y++)
        for (int x = 0; x < to.w * 3; x++)
            between[y * to.w * 3 + x] =
                from.w == to.w
                    ? in[y * to.w * 3 + x]
                    : (uint8_t)line_at(filter, in + y * from.w * 3 + x % 3, 3, from.w, to.w, x / 3);
    for (int y = 0; y < to.h; y++)
        for (int x = 0; x < to.w * 3; x++)
            want[y * to.w * 3 + x] =
                from.h == to.h ? between[y * to.w * 3 + x]
                               : (uint8_t)line_at(filter, between + x, to.w * 3, from.h, to.h, y);
    static const char *const isas[] = { "avx512", "avx2", "plain" };
    for (int i = 0; i < ARES_COUNT(isas); i++) {
        setenv("ARES_ISA", isas[i], 1);
        memset(got, 0, n);
        media_resample(filter, in, from, got, to);
        unsetenv("ARES_ISA");
        CHECK_MSG(memcmp(got, want, n) == 0, "filter %d, %d x %d to %d x %d, %s", filter, from.w,
                  from.h, to.w, to.h, isas[i]);
    }
    ares_free(in);
    ares_free(got);
    ares_free(want);
    ares_free(between);
    ares_arena_fini(&arena);
}

TEST(every_size_around_the_blocks_is_the_sum_of_its_weights)
{
    for (int i = 0; i < 60; i++) {
        media_size from = { 1 + i * 7 % 53, 1 + i * 11 % 41 },
                   to = { 1 + i * 5 % 47, 1 + i * 3 % 37 };
        check(MEDIA_PILLOW, from, to);
        check(MEDIA_TORCH_U8, from, to);
    }
}

TEST(one_side_alone_may_change)
{
    static const int sides[] = { 1, 2, 15, 16, 17, 21, 22, 33, 64 };
    for (int i = 0; i < ARES_COUNT(sides); i++)
        for (int k = 0; k < ARES_COUNT(sides); k++) {
            check(MEDIA_TORCH_U8, (media_size){ sides[i], 19 }, (media_size){ sides[k], 19 });
            check(MEDIA_TORCH_U8, (media_size){ 23, sides[i] }, (media_size){ 23, sides[k] });
            check(MEDIA_PILLOW, (media_size){ sides[i], 19 }, (media_size){ sides[k], 19 });
            check(MEDIA_PILLOW, (media_size){ 23, sides[i] }, (media_size){ 23, sides[k] });
        }
}

/* one register of input for a block of pixels, two, and more than that */
TEST(pictures_shrink_and_grow_by_every_factor_around_a_block)
{
    static const int tenths[] = { 7, 10, 11, 12, 13, 15, 20, 24, 25, 26, 27, 30, 40 };
    for (int i = 0; i < ARES_COUNT(tenths); i++)
        for (int w = 45; w < 54; w++) {
            check(MEDIA_TORCH_U8, (media_size){ w * tenths[i] / 10, 5 }, (media_size){ w, 6 });
            check(MEDIA_PILLOW, (media_size){ w * tenths[i] / 10, 9 }, (media_size){ w, 8 });
        }
}

/* more rows than lie between the passes at a time */
TEST(tall_pictures_pass_in_pieces)
{
    check(MEDIA_TORCH_U8, (media_size){ 13, 300 }, (media_size){ 16, 301 });
    check(MEDIA_PILLOW, (media_size){ 17, 301 }, (media_size){ 11, 90 });
    check(MEDIA_TORCH_U8, (media_size){ 12, 500 }, (media_size){ 20, 7 });
    check(MEDIA_PILLOW, (media_size){ 12, 70 }, (media_size){ 20, 700 });
}

TEST(a_much_smaller_picture_takes_all_its_bytes_into_account)
{
    check(MEDIA_PILLOW, (media_size){ 1000, 3 }, (media_size){ 3, 3 });
    check(MEDIA_TORCH_U8, (media_size){ 3, 1000 }, (media_size){ 3, 3 });
    check(MEDIA_PILLOW, (media_size){ 2, 2 }, (media_size){ 200, 100 });
    check(MEDIA_TORCH_U8, (media_size){ 2, 2 }, (media_size){ 200, 100 });
}

TEST(floats_of_a_flat_picture_stay_flat)
{
    uint8_t in[40 * 30 * 3], out[56 * 28 * 3];
    memset(in, 201, sizeof in);
    media_resample(MEDIA_TORCH_F32, in, (media_size){ 40, 30 }, out, (media_size){ 56, 28 });
    for (size_t i = 0; i < sizeof out; i++) REQUIRE(out[i] == 201);
}
