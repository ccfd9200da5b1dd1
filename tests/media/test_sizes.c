/* Sizes and limits, read from headers alone. Values against the libraries are in vision.json. */
#include <math.h>

#include "media_test.h"

static int open_header(ares_arena *arena, uint32_t w, uint32_t h, const ares_media_options *o,
                       ares_media *out)
{
    ares_view file = picture_base64(arena, picture_png_header(arena, w, h));
    const ares_json *list =
        picture_json(arena, "[{\"path\": \"x.png\", \"bytes\": \"%s\"}]", file.data);
    const ares_processor p = small_processor();
    return media_open(list, NULL, &p, o, arena, out);
}

TEST(a_picture_is_planned_from_its_header_alone)
{
    ares_arena arena = { 0 };
    ares_media media;
    REQUIRE_OK(open_header(&arena, 50, 33, &(ares_media_options){ 0 }, &media));
    CHECK_EQ(media.n, 1);
    CHECK_EQ(media.items[0].grid.t, 1);
    CHECK_EQ(media.items[0].grid.h, 8); /* 33 pixels are nearest to 32 */
    CHECK_EQ(media.items[0].grid.w, 12);
    CHECK_EQ(media.items[0].frames, 1);
    CHECK_EQ(ares_medium_tokens(&media.items[0], 2), 24);
    ares_arena_fini(&arena);
}

TEST(limits_of_pictures_are_checked_in_the_header_and_named)
{
    static const struct {
        uint32_t w, h;
        int code;
        const char *part;
    } bad[] = {
        { 60000, 60000, ARES_EUNSUPPORTED, "60000 x 60000 pixels: more than 178956970" },
        { 13378, 13377, ARES_EUNSUPPORTED, "more than 178956970" },
        { 65536, 1000, ARES_EUNSUPPORTED, "a side may have 65535" },
        { 4294967295u, 1, ARES_EFORMAT, "4294967295" },
        { 0, 10, ARES_EFORMAT, "0 x 10 pixels" },
        { 10, 0, ARES_EFORMAT, "10 x 0 pixels" },
        { 201, 1, ARES_ELIMIT, "more than 200 times" },
        { 1, 201, ARES_ELIMIT, "more than 200 times" },
    };
    for (int i = 0; i < ARES_COUNT(bad); i++) {
        ares_arena arena = { 0 };
        ares_media media;
        CHECK_FAIL(open_header(&arena, bad[i].w, bad[i].h, &(ares_media_options){ 0 }, &media),
                   bad[i].code, bad[i].part);
        CHECK_CONTAINS(ares_error_message(), "media: images[0] = 'x.png': ");
        ares_arena_fini(&arena);
    }
}

TEST(sides_may_differ_by_200_times_after_the_first_resize)
{
    ares_arena arena = { 0 };
    ares_media media;
    CHECK_OK(open_header(&arena, 200, 1, &(ares_media_options){ 0 }, &media));
    /* 3000 x 2 becomes 19829 x 13, which is still too thin */
    CHECK_FAIL(open_header(&arena, 3000, 2, &(ares_media_options){ .min_pixels = 262144 }, &media),
               ARES_ELIMIT, "19829 x 13");
    /* 1999 x 10 becomes 99 x 0 */
    CHECK_FAIL(open_header(&arena, 1999, 10, &(ares_media_options){ .max_pixels = 49 }, &media),
               ARES_EUNSUPPORTED, "data.max_pixels");
    CHECK_FAIL(open_header(&arena, 2001, 10, &(ares_media_options){ .max_pixels = 49 }, &media),
               ARES_ELIMIT, "2001 x 10");
    ares_arena_fini(&arena);
}

TEST(a_first_resize_to_more_than_a_picture_may_have_is_refused)
{
    ares_arena arena = { 0 };
    ares_media media;
    CHECK_FAIL(open_header(&arena, 10, 10, &(ares_media_options){ .min_pixels = (int64_t)1 << 40 },
                           &media),
               ARES_EUNSUPPORTED, "resized to");
    ares_arena_fini(&arena);
}

TEST(a_processor_that_does_not_resize_takes_whole_blocks_only)
{
    ares_arena arena = { 0 };
    ares_media media;
    ares_processor p = small_processor();
    p.resize = false;
    for (int odd = 0; odd < 2; odd++) {
        ares_view file = picture_base64(&arena, picture_png_header(&arena, 24, odd ? 20 : 16));
        const ares_json *list = picture_json(&arena, "[{\"bytes\": \"%s\"}]", file.data);
        int rc = media_open(list, NULL, &p, &(ares_media_options){ 0 }, &arena, &media);
        if (odd) CHECK_FAIL(rc, ARES_EUNSUPPORTED, "does not resize");
        else if (CHECK_OK(rc)) CHECK_EQ(media.items[0].grid.w * media.items[0].grid.h, 24);
    }
    ares_arena_fini(&arena);
}

/* What a plan counts is what the largest square that may be read becomes. */
TEST(the_largest_square_is_what_one_of_the_most_pixels_becomes)
{
    static const ares_media_options limits[] = {
        { 0 }, { .max_pixels = 700 }, { .max_pixels = 1 }, { .min_pixels = 900, .max_pixels = 900 }
    };
    const ares_processor p = small_processor();
    int32_t patches[ARES_COUNT(limits)];
    for (int i = 0; i < ARES_COUNT(limits); i++) {
        ares_arena arena = { 0 };
        ares_media media;
        CHECK_OK(ares_media_largest(&p, &limits[i], &patches[i]));
        REQUIRE_OK(open_header(&arena, 13377, 13377, &limits[i], &media));
        CHECK_EQ(patches[i], media.items[0].grid.h * media.items[0].grid.w);
        ares_arena_fini(&arena);
    }
    CHECK(patches[2] < patches[1] && patches[1] < patches[3] && patches[3] < patches[0]);
}

TEST(frames_are_chosen_only_at_a_rate_that_is_one)
{
    ares_arena arena = { 0 };
    media_frames f;
    const double bad[] = { 0, -1, NAN, INFINITY };
    for (int i = 0; i < ARES_COUNT(bad); i++) {
        CHECK_FAIL(media_video_frames(100, bad[i], 2, &arena, &f), ARES_EFORMAT, "not a rate");
        CHECK_FAIL(media_video_frames(100, 25, bad[i], &arena, &f), ARES_ECONFIG, "video_fps");
    }
    CHECK_FAIL(media_video_frames(1, 25, 2, &arena, &f), ARES_EFORMAT, "a video of 1 frames");
    CHECK_FAIL(media_video_frames(0, 25, 2, &arena, &f), ARES_EFORMAT, "a video of 0 frames");
    CHECK_FAIL(media_video_frames((int64_t)1 << 40, 25, 2, &arena, &f), ARES_EUNSUPPORTED, "more");
    ares_arena_fini(&arena);
}

TEST(chosen_frames_rise_from_the_first_to_the_last)
{
    for (int64_t total = 2; total < 3000; total += 1 + total / 7) {
        ares_arena arena = { 0 };
        media_frames f;
        REQUIRE_OK(media_video_frames(total, 24, 3, &arena, &f));
        CHECK_EQ(f.n % 2, 0);
        CHECK(f.n >= 2 && f.n <= 768 && f.n <= total);
        CHECK_EQ(f.index[0], 0);
        CHECK_EQ(f.index[f.n - 1], total - 1);
        for (int32_t i = 1; i < f.n; i++) CHECK(f.index[i] >= f.index[i - 1]);
        ares_arena_fini(&arena);
    }
}
