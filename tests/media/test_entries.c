/* Entries of rows: what is opened, what is refused, and how errors name it. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "media_test.h"

static void check_refused(bool videos, const char *list, int code, const char *part)
{
    ares_arena arena = { 0 };
    ares_media media;
    CHECK_FAIL(open_list(&arena, videos, list, &media), code, part);
    CHECK(strncmp(ares_error_message(), "media: ", 7) == 0);
    ares_arena_fini(&arena);
}

TEST(a_row_without_pictures_has_none)
{
    ares_arena arena = { 0 };
    ares_media media;
    ares_processor p = small_processor();
    ares_json null = { .type = ARES_JSON_NULL };
    REQUIRE_OK(media_open(NULL, NULL, &p, &(ares_media_options){ 0 }, &arena, &media));
    CHECK_EQ(media.n, 0);
    REQUIRE_OK(media_open(&null, &null, &p, &(ares_media_options){ 0 }, &arena, &media));
    CHECK_EQ(media.n, 0);
    REQUIRE_OK(open_list(&arena, false, "[]", &media));
    CHECK_EQ(media.n, 0);
    ares_arena_fini(&arena);
}

TEST(an_entry_that_is_no_picture_is_refused_by_its_place)
{
    check_refused(false, "[17]", ARES_EFORMAT, "images[0] = '17': neither a path");
    check_refused(false, "[{'url': 'x'}]", ARES_EFORMAT, "images[0] = '{\"url\":\"x\"}'");
    check_refused(false, "[null]", ARES_EFORMAT, "images[0] = 'null'");
    check_refused(false, "[['a.png']]", ARES_EFORMAT, "neither a path");
    check_refused(false, "['']", ARES_EFORMAT, "an empty path");
    check_refused(false, "['file://']", ARES_EFORMAT, "an empty path");
    check_refused(false, "[{'bytes': '', 'path': 'a.png'}]", ARES_EFORMAT, "no bytes");
    check_refused(false, "'a.png'", ARES_EFORMAT, "images: not a list");
    check_refused(true, "{'frames': []}", ARES_EFORMAT, "videos: not a list");
}

TEST(urls_are_refused_by_name)
{
    check_refused(false, "['http://host/a.png']", ARES_EUNSUPPORTED, "URLs (http) are not fetched");
    check_refused(false, "['https://host/a.png']", ARES_EUNSUPPORTED, "URLs (https)");
    check_refused(false, "['s3://bucket/a.png']", ARES_EUNSUPPORTED, "URLs (s3)");
    check_refused(true, "['https://host/a.mp4']", ARES_EUNSUPPORTED, "videos[0] = 'https://host");
    check_refused(false, "['data:text/plain,abc']", ARES_EUNSUPPORTED, "data:image/png;base64");
    check_refused(false, "['data:text/plain;base64,abcd']", ARES_EUNSUPPORTED, "data:image");
    check_refused(false, "['data:image/png;base64']", ARES_EUNSUPPORTED, "data:image");
}

TEST(paths_that_are_no_regular_files_are_refused_without_waiting)
{
    ares_arena arena = { 0 };
    ares_str list = { 0 };
    check_refused(false, "['no/such/file.png']", ARES_EIO, "No such file");
    ares_str_addf(&list, "['%s']", test_dir());
    check_refused(false, list.data, ARES_EIO, "a folder");
    const char *pipe = test_file("pipe.png"); /* nobody will ever write to it */
    REQUIRE(mkfifo(pipe, 0600) == 0);
    ares_str_clear(&list);
    ares_str_addf(&list, "['%s']", pipe);
    check_refused(false, list.data, ARES_EIO, "not a regular file");
    check_refused(true, list.data, ARES_EIO, "not a regular file");
    check_refused(false, "['/dev/zero']", ARES_EIO, "not a regular file");
    check_refused(false, "['/dev/stdin']", ARES_EIO, "");
    check_refused(false, "['a\\u0000b.png']", ARES_EFORMAT, "a path with a NUL in it");
    ares_str_fini(&list);
    ares_arena_fini(&arena);
}

TEST(files_that_are_empty_or_too_large_are_refused_before_they_are_read)
{
    ares_str list = { 0 };
    REQUIRE_OK(ares_file_write(test_file("empty.png"), "", 0));
    ares_str_addf(&list, "['%s']", test_file("empty.png"));
    check_refused(false, list.data, ARES_EFORMAT, "an empty file");
    REQUIRE_OK(ares_file_write(test_file("large.png"), "\x89PNG", 4));
    REQUIRE(truncate(test_file("large.png"), MEDIA_MOST_FILE + 1) == 0); /* a hole */
    ares_str_clear(&list);
    ares_str_addf(&list, "['%s']", test_file("large.png"));
    check_refused(false, list.data, ARES_EUNSUPPORTED, "268435457 bytes: more than 268435456");
    ares_str_fini(&list);
}

TEST(relative_paths_begin_at_image_dir)
{
    ares_arena arena = { 0 };
    ares_media media;
    ares_processor p = small_processor();
    const char *dir = test_source("tests/golden/vision");
    ares_media_options o = { .image_dir = dir };
    const ares_json *list = picture_json(
        &arena, "[\"media/a.png\", {\"path\": \"media/b.png\"}, \"file://%s/media/c.png\"]", dir);
    REQUIRE_OK(media_open(list, NULL, &p, &o, &arena, &media));
    CHECK_EQ(media.n_images, 3);
    CHECK_EQ(media.items[0].source->size.w, 131);
    CHECK_EQ(media.items[1].source->size.w, 60);
    CHECK_EQ(media.items[2].source->size.w, 230);
    o.image_dir = "/nowhere";
    CHECK_FAIL(media_open(list, NULL, &p, &o, &arena, &media), ARES_EIO,
               "media: images[0] = 'media/a.png': No such file");
    ares_arena_fini(&arena);
}

/* ---------------------------------------------------------------- base64 */

static int read_base64(const char *text, size_t n, int64_t most, ares_str *out)
{
    media_input in;
    int rc = media_input_base64((ares_view){ text, n }, most, &in);
    ares_str_clear(out);
    if (rc != ARES_OK) return rc;
    ares_str_add(out, (const char *)in.data, (size_t)in.size);
    media_input_close(&in);
    return rc;
}

TEST(base64_gives_back_every_length_and_byte)
{
    ares_arena arena = { 0 };
    ares_str out = { 0 };
    for (int64_t n = 1; n < 300; n++) {
        const uint8_t *bytes = picture_bytes(&arena, "noise", (uint32_t)n, n);
        ares_view text = picture_base64(&arena, (ares_view){ (const char *)bytes, (size_t)n });
        REQUIRE_OK(read_base64(text.data, text.len, 1000, &out));
        CHECK_EQ(out.len, n);
        CHECK_MEM(out.data, bytes, n);
    }
    CHECK_OK(read_base64(" SGVs\r\nbG8h\t\n", 13, 100, &out));
    CHECK_STR(out.data, "Hello!");
    ares_str_fini(&out);
    ares_arena_fini(&arena);
}

TEST(what_is_not_base64_is_refused_where_it_ends)
{
    static const struct {
        const char *text;
        size_t n;
        const char *part;
    } bad[] = {
        { "@@", 2, "byte 0x40 at character 1" },
        { "QUJ", 3, "ends within a group" },
        { "Q", 1, "ends within a group" },
        { "QU=", 3, "ends within a group" },
        { "Q===", 4, "byte 0x3d at character 2" },
        { "====", 4, "byte 0x3d at character 1" },
        { "QUJD=", 5, "byte 0x3d at character 5" },
        { "QQ==QUJD", 8, "byte 0x51 at character 5" },
        { "QQ==\n=", 6, "byte 0x3d" },
        { "QUJD_-", 6, "byte 0x5f at character 5" },
        { "QU\0D", 4, "byte 0x00 at character 3" },
        { "\xc3\xa9", 2, "byte 0xc3" },
        { "", 0, "no bytes" },
        { "   ", 3, "no bytes" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(bad); i++)
        CHECK_FAIL(read_base64(bad[i].text, bad[i].n, 100, &out), ARES_EFORMAT, bad[i].part);
    CHECK_FAIL(read_base64("QUJDQUJDQUJD", 12, 6, &out), ARES_EUNSUPPORTED, "more than 6");
    CHECK_FAIL(read_base64("QUJDQUJD", 8, 5, &out), ARES_EUNSUPPORTED, "6 bytes: more than 5");
    ares_str_fini(&out);
}

TEST(a_long_string_is_base64_and_shown_cut)
{
    ares_arena arena = { 0 };
    ares_media media;
    const uint8_t *rgb = picture_bytes(&arena, "noise", 5, 60 * 60 * 3);
    ares_view text = picture_base64(&arena, picture_png(&arena, rgb, 60, 60));
    CHECK(text.len > 4096);
    REQUIRE_OK(open_list(&arena, false, ares_arena_printf(&arena, "['%s']", text.data), &media));
    CHECK_EQ(media.items[0].source->size.h, 60);
    ((char *)text.data)[5000] = '!';
    CHECK_FAIL(open_list(&arena, false, ares_arena_printf(&arena, "['%s']", text.data), &media),
               ARES_EFORMAT, "not base64: byte 0x21 at character 5001");
    CHECK(strlen(ares_error_message()) < 400);
    ares_arena_fini(&arena);
}

/* ---------------------------------------------------------------- frames */

TEST(frames_of_different_sizes_are_an_error_that_names_the_frame)
{
    ares_arena arena = { 0 };
    ares_media media;
    char *list = ares_arena_printf(&arena, "[[%s, %s]]", noise_entry(&arena, 16, 16, 1),
                                   noise_entry(&arena, 16, 17, 2));
    CHECK_FAIL(open_list(&arena, true, list, &media), ARES_EFORMAT,
               "16 x 17 pixels, where the video's first frame has 16 x 16");
    CHECK_CONTAINS(ares_error_message(), "media: videos[0][1] = ");
    ares_arena_fini(&arena);
}

TEST(a_video_may_be_one_frame_and_says_its_rate)
{
    ares_arena arena = { 0 };
    ares_media media;
    const char *one = noise_entry(&arena, 16, 24, 1);
    REQUIRE_OK(open_list(&arena, true, ares_arena_printf(&arena, "[[%s]]", one), &media));
    CHECK_EQ(media.n_videos, 1);
    CHECK(media.items[0].video);
    CHECK_EQ(media.items[0].frames, 1);
    CHECK_EQ(media.items[0].grid.t, 1);
    CHECK_NEAR(media.items[0].second_per_grid, 1, 0); /* two frames at two per second */
    REQUIRE_OK(open_list(
        &arena, true,
        ares_arena_printf(&arena, "[{'frames': [%s, %s, %s], 'sample_fps': 0.5}]", one, one, one),
        &media));
    CHECK_EQ(media.items[0].frames, 3);
    CHECK_EQ(media.items[0].grid.t, 2);
    CHECK_NEAR(media.items[0].second_per_grid, 4, 0);
    ares_arena_fini(&arena);
}

TEST(rates_of_frames_that_are_none_are_refused)
{
    static const char *const bad[] = { "0", "-2", "1e-320", "'fast'" };
    for (int i = 0; i < ARES_COUNT(bad); i++) {
        ares_arena arena = { 0 };
        ares_media media;
        char *list = ares_arena_printf(&arena, "[{'frames': [%s], 'sample_fps': %s}]",
                                       noise_entry(&arena, 16, 16, 1), bad[i]);
        CHECK_FAIL(open_list(&arena, true, list, &media), ARES_EFORMAT, "sample_fps");
        CHECK_CONTAINS(ares_error_message(), "media: videos[0]");
        ares_arena_fini(&arena);
    }
    check_refused(true, "[[]]", ARES_EFORMAT, "videos[0]: a video without frames");
    check_refused(true, "[{'frames': 3}]", ARES_EFORMAT, "videos[0]: 'frames' is not a list");
}

TEST(the_frames_of_a_video_together_have_a_limit)
{
    ares_arena arena = { 0 };
    ares_media media;
    ares_view file = picture_base64(&arena, picture_png_header(&arena, 13000, 13000));
    ares_str list = { 0 };
    for (int i = 0; i < 5; i++) ares_str_addf(&list, "%s{'bytes': '%s'}", i ? ", " : "", file.data);
    char *four = ares_arena_printf(&arena, "[[%.*s]]", (int)(list.len - file.len - 15), list.data),
         *five = ares_arena_printf(&arena, "[[%s]]", list.data);
    CHECK_OK(open_list(&arena, true, four, &media)); /* 2.03e9 bytes */
    CHECK_FAIL(open_list(&arena, true, five, &media), ARES_EUNSUPPORTED,
               "5 frames of 13000 x 13000 pixels: more than 2147483648");
    ares_str_fini(&list);
    ares_arena_fini(&arena);
}
