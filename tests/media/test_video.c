/* Files of videos. What the good clip decodes to is in media.json. */
#include <sys/stat.h>
#include <unistd.h>

#include "media_test.h"

static const char *clip_path(void)
{
    return test_source("tests/golden/vision/media/clip.mkv");
}

static bool no_library(void)
{
    return access(ARES_BINARY_DIR "/libares_video.so", R_OK) != 0;
}

static int open_clip(ares_arena *arena, const char *path, ares_media *media)
{
    return open_list(arena, true, ares_arena_printf(arena, "['%s']", path), media);
}

TEST(without_its_library_a_video_file_is_refused_with_what_to_install)
{
    ares_arena arena = { 0 };
    ares_media media;
    setenv("ARES_VIDEO_LIB", test_file("none.so"), 1);
    CHECK_FAIL(open_clip(&arena, clip_path(), &media), ARES_EUNSUPPORTED, "libavformat-dev");
    CHECK_CONTAINS(ares_error_message(), "media: videos[0] = '");
    REQUIRE_OK(ares_file_write(test_file("none.so"), "no library", 10));
    CHECK_FAIL(open_clip(&arena, clip_path(), &media), ARES_EUNSUPPORTED,
               "install FFmpeg's libraries, or build again");
    unsetenv("ARES_VIDEO_LIB");
    ares_arena_fini(&arena);
}

TEST(a_clip_is_the_same_as_a_file_and_as_bytes)
{
    if (no_library()) SKIP("this build has no libares_video.so");
    ares_arena arena = { 0 };
    ares_media media;
    ares_view text = picture_base64(&arena, golden_file(&arena, "media/clip.mkv"));
    const ares_processor p = small_processor();
    uint64_t key[3];
    char *lists[] = { ares_arena_printf(&arena, "['%s']", clip_path()),
                      ares_arena_printf(&arena, "[{'bytes': '%s'}]", text.data),
                      ares_arena_printf(&arena, "['data:video/x-matroska;base64,%s']", text.data) };
    for (int i = 0; i < 3; i++) {
        uint8_t *pixels;
        REQUIRE_OK(open_list(&arena, true, lists[i], &media));
        CHECK_EQ(media.items[0].frames, 4); /* of 20, at 8 per second */
        CHECK_NEAR(media.items[0].second_per_grid, 1.25, 1e-12);
        REQUIRE_OK(ares_medium_read(&media.items[0], &p, &pixels, &key[i]));
        ares_free(pixels);
    }
    CHECK_EQ(key[1], key[0]);
    CHECK_EQ(key[2], key[0]);
    ares_arena_fini(&arena);
}

TEST(what_is_no_video_is_refused)
{
    if (no_library()) SKIP("this build has no libares_video.so");
    ares_arena arena = { 0 };
    ares_media media;
    /* a picture, a playlist that names another file, a text */
    CHECK_FAIL(open_clip(&arena, test_source("tests/golden/vision/media/a.png"), &media),
               ARES_EFORMAT, "not a video that FFmpeg reads");
    char *playlist = ares_arena_printf(&arena, "ffconcat version 1.0\nfile %s\n", clip_path());
    REQUIRE_OK(ares_file_write(test_file("list.mkv"), playlist, strlen(playlist)));
    CHECK_FAIL(open_clip(&arena, test_file("list.mkv"), &media), ARES_EFORMAT, "not a video");
    playlist = ares_arena_printf(&arena,
                                 "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n%s\n"
                                 "#EXT-X-ENDLIST\n",
                                 clip_path());
    REQUIRE_OK(ares_file_write(test_file("list.m3u8"), playlist, strlen(playlist)));
    CHECK_FAIL(open_clip(&arena, test_file("list.m3u8"), &media), ARES_EFORMAT, "not a video");
    ares_arena_fini(&arena);
}

TEST(a_clip_cut_anywhere_is_an_error)
{
    if (no_library()) SKIP("this build has no libares_video.so");
    ares_arena arena = { 0 };
    ares_media media;
    ares_view clip = golden_file(&arena, "media/clip.mkv");
    const char *path = test_file("clip.mkv");
    for (size_t n = 1; n < clip.len; n += n < 300 ? 1 : 1999) {
        REQUIRE_OK(ares_file_write(path, clip.data, n));
        CHECK_FAIL(open_clip(&arena, path, &media), ARES_EFORMAT, "media: videos[0] = '");
    }
    ares_arena_fini(&arena);
}

TEST(a_clip_with_changed_bytes_never_crashes)
{
    if (no_library()) SKIP("this build has no libares_video.so");
    ares_arena arena = { 0 };
    ares_view clip = golden_file(&arena, "media/clip.mkv");
    const char *path = test_file("clip.mkv");
    const ares_processor p = small_processor();
    int wrong = 0;
    for (size_t k = 0; k < clip.len; k += k < 700 ? 3 : 3001) {
        ares_arena inner = { 0 };
        ares_media media;
        uint8_t *pixels;
        uint64_t key;
        char *changed = ares_arena_copy(&inner, clip.data, clip.len);
        changed[k] ^= 0x55;
        REQUIRE_OK(ares_file_write(path, changed, clip.len));
        int rc = open_clip(&inner, path, &media);
        if (rc == ARES_OK && (rc = ares_medium_read(&media.items[0], &p, &pixels, &key)) == ARES_OK)
            ares_free(pixels);
        CHECK(rc == ARES_OK || strstr(ares_error_message(), "media: videos[0] = '"));
        wrong += rc != ARES_OK;
        ares_arena_fini(&inner);
    }
    CHECK(wrong > 20); /* most of the first bytes matter */
    ares_arena_fini(&arena);
}

static int check_container(const char *bytes, size_t n)
{
    uint8_t *copy = ares_malloc(n + 1);
    memcpy(copy, bytes, n);
    media_input in = { .data = copy, .size = (int64_t)n, .fd = -1 };
    int rc = media_container_check(&in);
    ares_free(copy);
    return rc;
}

TEST(containers_that_are_shorter_than_they_say_are_seen)
{
    static const char boxes[] = "\0\0\0\x0c"
                                "ftypisom"
                                "\0\0\0\x0a"
                                "mdat..",
                      large[] = "\0\0\0\x0c"
                                "ftypisom"
                                "\0\0\0\x01"
                                "mdat"
                                "\0\0\0\0\0\0\0\x12"
                                "..",
                      open[] = "\0\0\0\x0c"
                               "ftypisom"
                               "\0\0\0\0"
                               "mdat..",
                      lists[] = "RIFF\x06\0\0\0AVI .."
                                "RIFF\x04\0\0\0....",
                      none[] = "\0\0\0\x0c"
                               "ftypisom"
                               "\0\0\0\x07"
                               "mdat..";
    CHECK_OK(check_container(boxes, 22));
    CHECK_FAIL(check_container(boxes, 21), ARES_EFORMAT, "ends at byte 22 of 21");
    CHECK_FAIL(check_container(boxes, 15), ARES_EFORMAT, "ends at byte 20 of 15");
    CHECK_OK(check_container(large, 30));
    CHECK_FAIL(check_container(large, 29), ARES_EFORMAT, "ends at byte 30 of 29");
    CHECK_FAIL(check_container(large, 26), ARES_EFORMAT, "has no size");
    CHECK_OK(check_container(open, 22));
    CHECK_FAIL(check_container(none, 22), ARES_EFORMAT, "at byte 12 has no size");
    CHECK_OK(check_container(lists, 26));
    CHECK_FAIL(check_container(lists, 25), ARES_EFORMAT, "ends at byte 26 of 25");
    CHECK_FAIL(check_container(lists, 13), ARES_EFORMAT, "ends at byte 14 of 13");
}

TEST(a_clip_that_changes_after_it_was_opened_is_an_error)
{
    if (no_library()) SKIP("this build has no libares_video.so");
    ares_arena arena = { 0 };
    ares_media media;
    ares_view clip = golden_file(&arena, "media/clip.mkv");
    const char *path = test_file("clip.mkv");
    const ares_processor p = small_processor();
    uint8_t *pixels;
    uint64_t key;
    REQUIRE_OK(ares_file_write(path, clip.data, clip.len));
    REQUIRE_OK(open_clip(&arena, path, &media));
    REQUIRE_OK(ares_file_write(path, clip.data, clip.len / 2));
    CHECK_FAIL(ares_medium_read(&media.items[0], &p, &pixels, &key), ARES_EFORMAT, "");
    REQUIRE(unlink(path) == 0);
    CHECK_FAIL(ares_medium_read(&media.items[0], &p, &pixels, &key), ARES_EIO, "No such file");
    CHECK(!pixels);
    ares_arena_fini(&arena);
}
