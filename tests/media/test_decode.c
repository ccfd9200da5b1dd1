/* Damaged and hostile picture files. What good ones decode to is in vision.json. */
#include "media_test.h"

/* ---------------------------------------------------------------- which kind */

TEST(other_kinds_of_pictures_are_named_in_the_error)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *name;
    } kinds[] = {
        { "GIF89a..........", 16, "a GIF" },
        { "GIF87a..........", 16, "a GIF" },
        { "BM..............", 16, "a BMP picture" },
        { "II*\0............", 16, "a TIFF picture" },
        { "MM\0*............", 16, "a TIFF picture" },
        { "\0\0\0\x20"
          "ftypheic....",
          16, "a HEIC picture" },
        { "\0\0\0\x20"
          "ftypavif....",
          16, "an AVIF picture" },
        { "\0\0\0\x20"
          "ftypisom....",
          16, "a video (MP4" },
        { "%PDF-1.7........", 16, "a PDF document" },
        { "<!DOCTYPE html>.", 16, "an HTML page" },
        { "version https://git-lfs.github.com/x", 36, "a pointer of Git LFS" },
    };
    for (int i = 0; i < ARES_COUNT(kinds); i++)
        CHECK_BAD(((ares_view){ kinds[i].bytes, kinds[i].n }), ARES_EUNSUPPORTED, kinds[i].name);
    CHECK_BAD(ARES_VIEW("hello world, I am a picture"), ARES_EFORMAT,
              "not a picture: no PNG, JPEG or WebP begins with the bytes 68 65 6c 6c");
    CHECK_BAD(ARES_VIEW("MM"), ARES_EFORMAT, "not a picture");
    CHECK_BAD(ARES_VIEW("B"), ARES_EFORMAT,
              "not a picture: no PNG, JPEG or WebP begins with the "
              "bytes 42");
}

TEST(the_name_of_a_file_says_nothing)
{
    ares_arena arena = { 0 };
    ares_media media;
    ares_view png = golden_file(&arena, "decode/rgb8.png");
    REQUIRE_OK(ares_file_write(test_file("photo.jpg"), png.data, png.len));
    CHECK_OK(open_list(&arena, false, ares_arena_printf(&arena, "['%s']", test_file("photo.jpg")),
                       &media));
    ares_arena_fini(&arena);
}

/* ---------------------------------------------------------------- damage */

/* No beginning of a file is a picture: none may crash, and none may be filled up. */
TEST(a_file_cut_anywhere_is_an_error)
{
    static const char *const names[] = { "rgb8.png",     "palette_alpha.png", "bits1.png",
                                         "rgb16.png",    "grey.jpg",          "q75_420.jpg",
                                         "cmyk.jpg",     "progressive.jpg",   "lossy.webp",
                                         "lossless.webp" };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        ares_arena arena = { 0 };
        ares_view whole = golden_file(&arena, ares_arena_printf(&arena, "decode/%s", names[i]));
        for (size_t n = 0; n < whole.len; n++) {
            media_header header;
            uint8_t *rgb, *part = ares_malloc(n + 1); /* a sanitizer sees a read beyond it */
            memcpy(part, whole.data, n);
            int rc = decode_bytes((ares_view){ (char *)part, n }, &header, &rgb);
            bool padding = whole.len % 2 == 0 && n == whole.len - 1 && i >= 8;
            CHECK_MSG(rc == ARES_EFORMAT || padding, "%s: %zu of %zu bytes give %d", names[i], n,
                      whole.len, rc);
            ares_free(part);
            ares_free(rgb);
        }
        ares_arena_fini(&arena);
    }
}

TEST(a_changed_byte_never_crashes_and_png_sees_it)
{
    static const char *const names[] = { "rgb8.png", "q75_420.jpg", "progressive.jpg",
                                         "cmyk.jpg", "lossy.webp",  "lossless.webp" };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(names); i++) {
        ares_arena arena = { 0 };
        ares_view whole = golden_file(&arena, ares_arena_printf(&arena, "decode/%s", names[i]));
        uint8_t *changed = ares_malloc(whole.len);
        for (size_t k = 0; k < whole.len; k++)
            for (int flip = 1; flip < 256; flip *= 16) {
                media_header header;
                uint8_t *rgb;
                memcpy(changed, whole.data, whole.len);
                changed[k] ^= (uint8_t)flip;
                int rc = decode_bytes((ares_view){ (char *)changed, whole.len }, &header, &rgb);
                CHECK(rc == ARES_OK || ares_error_message()[0]);
                if (i == 0) CHECK_MSG(rc != ARES_OK, "byte %zu of a PNG file changed", k);
                ares_free(rgb);
            }
        ares_free(changed);
        ares_arena_fini(&arena);
    }
    ares_log_set(ARES_LOG_INFO, 0);
}

/* ---------------------------------------------------------------- PNG */

static void put_chunk(ares_str *s, const char *type, const void *data, size_t n)
{
    put32(s, (uint32_t)n);
    size_t at = s->len;
    ares_str_add(s, type, 4);
    ares_str_add(s, data, n);
    put32(s, picture_crc32(s->data + at, n + 4));
}

/* Signature and header: w x h, RGB. */
static void begin_png(ares_str *s, uint32_t w, uint32_t h)
{
    ares_arena arena = { 0 };
    ares_view v = picture_png_header(&arena, w, h);
    ares_str_clear(s);
    ares_str_add(s, v.data, v.len - 8);
    ares_arena_fini(&arena);
}

/* What zlib makes of the rows of a w x h picture of zeros: the data of a PNG file of it. */
static ares_view packed_zeros(ares_arena *arena, int32_t w, int32_t h)
{
    uint8_t *zeros = ares_calloc((size_t)w * (size_t)h, 3);
    ares_view file = picture_png(arena, zeros, w, h);
    ares_free(zeros);
    ares_str all = { 0 };
    for (size_t at = 8; at + 12 <= file.len;) {
        const uint8_t *c = (const uint8_t *)file.data + at;
        size_t n = (size_t)c[0] << 24 | (size_t)c[1] << 16 | (size_t)c[2] << 8 | c[3];
        if (memcmp(c + 4, "IDAT", 4) == 0) ares_str_add(&all, (const char *)c + 8, n);
        at += 12 + n;
    }
    ares_view v = { ares_arena_copy(arena, all.data, all.len), all.len };
    ares_str_fini(&all);
    return v;
}

TEST(a_png_without_data_or_with_too_little_is_an_error)
{
    ares_arena arena = { 0 };
    ares_str s = { 0 };
    ares_view short_data = packed_zeros(&arena, 5, 4);
    begin_png(&s, 5, 5);
    put_chunk(&s, "IDAT", "", 0);
    put_chunk(&s, "IEND", "", 0);
    CHECK_BAD(ares_str_view(&s), ARES_EFORMAT, "PNG: ");
    begin_png(&s, 5, 5);
    put_chunk(&s, "IDAT", short_data.data, short_data.len);
    put_chunk(&s, "IEND", "", 0);
    CHECK_BAD(ares_str_view(&s), ARES_EFORMAT, "PNG: Not enough image data");
    begin_png(&s, 5, 5);
    put_chunk(&s, "IEND", "", 0);
    CHECK_BAD(ares_str_view(&s), ARES_EFORMAT, "PNG: it ends before the picture's data");
    ares_str_fini(&s);
    ares_arena_fini(&arena);
}

TEST(empty_data_chunks_between_others_are_passed_over)
{
    ares_arena arena = { 0 };
    ares_str s = { 0 };
    ares_view data = packed_zeros(&arena, 5, 5);
    uint8_t *rgb;
    media_header header;
    begin_png(&s, 5, 5);
    put_chunk(&s, "IDAT", "", 0);
    put_chunk(&s, "IDAT", data.data, 3);
    put_chunk(&s, "IDAT", "", 0);
    put_chunk(&s, "IDAT", data.data + 3, data.len - 3);
    put_chunk(&s, "IDAT", "", 0);
    put_chunk(&s, "IEND", "", 0);
    if (CHECK_OK(decode_bytes(ares_str_view(&s), &header, &rgb)))
        for (int i = 0; i < 75; i++) CHECK_EQ(rgb[i], 0);
    ares_free(rgb);
    ares_str_fini(&s);
    ares_arena_fini(&arena);
}

TEST(a_png_with_endless_chunks_before_its_data_is_an_error)
{
    ares_str s = { 0 };
    begin_png(&s, 5, 5);
    for (int i = 0; i < 5000; i++) put_chunk(&s, "teSt", "", 0);
    put_chunk(&s, "IDAT", "", 0);
    CHECK_BAD(ares_str_view(&s), ARES_EFORMAT, "more than 4096 chunks");
    ares_str_fini(&s);
}

TEST(an_animated_png_is_refused)
{
    ares_str s = { 0 };
    begin_png(&s, 5, 5);
    put_chunk(&s, "acTL", "\0\0\0\2\0\0\0\0", 8);
    put_chunk(&s, "IDAT", "", 0);
    CHECK_BAD(ares_str_view(&s), ARES_EUNSUPPORTED, "an animated PNG");
    ares_str_fini(&s);
}

/* ---------------------------------------------------------------- JPEG and WebP */

TEST(a_jpeg_of_a_thousand_scans_is_refused)
{
    ares_arena arena = { 0 };
    ares_str s = { 0 };
    ares_view whole = golden_file(&arena, "decode/progressive.jpg");
    size_t last = whole.len - 2, scan = last;
    while (memcmp(whole.data + scan, "\xff\xda", 2) != 0) scan--; /* the last one begins here */
    ares_str_add(&s, whole.data, last);
    for (int i = 0; i < 1000; i++) ares_str_add(&s, whole.data + scan, last - scan);
    ares_str_add(&s, "\xff\xd9", 2);
    CHECK_BAD(ares_str_view(&s), ARES_EFORMAT, "JPEG: more than 500 scans");
    ares_str_fini(&s);
    ares_arena_fini(&arena);
}

TEST(a_jpeg_that_libjpeg_does_not_decode_is_refused_by_its_header)
{
    ares_arena arena = { 0 };
    ares_view whole = golden_file(&arena, "decode/grey.jpg");
    char *data = (char *)whole.data;
    size_t sof = 2;
    while (memcmp(data + sof, "\xff\xc0", 2) != 0) sof++;
    data[sof + 1] = (char)0xc3;
    CHECK_BAD(whole, ARES_EUNSUPPORTED, "8 bits and process 3 (lossless");
    data[sof + 1] = (char)0xc1;
    data[sof + 4] = 12;
    CHECK_BAD(whole, ARES_EUNSUPPORTED, "12 bits");
    data[sof + 4] = 8;
    data[sof + 9] = 2;
    CHECK_BAD(whole, ARES_EUNSUPPORTED, "2 channels");
    data[sof + 9] = 1;
    data[sof + 5] = data[sof + 6] = 0; /* the height would follow after the data */
    CHECK_BAD(whole, ARES_EFORMAT, "23 x 0 pixels");
    CHECK_BAD(((ares_view){ data, sof }), ARES_EFORMAT, "no header");
    CHECK_BAD(ARES_VIEW("\xff\xd8\xff\xd9"), ARES_EFORMAT, "no header");
    ares_arena_fini(&arena);
}

TEST(damage_inside_a_jpeg_is_accepted_as_pillow_does)
{
    ares_arena arena = { 0 };
    ares_view whole = golden_file(&arena, "decode/q90_444.jpg");
    media_header header;
    uint8_t *rgb;
    ((char *)whole.data)[whole.len - 200] ^= 0x55;
    ares_log_set(ARES_LOG_ERROR, 0);
    CHECK_OK(decode_bytes(whole, &header, &rgb));
    ares_log_set(ARES_LOG_INFO, 0);
    ares_free(rgb);
    ares_arena_fini(&arena);
}

TEST(an_animated_webp_is_refused)
{
    ares_arena arena = { 0 };
    ares_str s = { 0 };
    ares_view still = golden_file(&arena, "decode/lossless.webp");
    ares_str_add(&s, "RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x16\0\0\x10\0\0", 30);
    ares_str_add(&s, "ANIM\x06\0\0\0\0\0\0\0\0\0", 14);
    ares_str_add(&s, still.data + 12, still.len - 12);
    s.data[4] = (char)(s.len - 8);
    s.data[5] = (char)((s.len - 8) >> 8);
    CHECK_BAD(ares_str_view(&s), ARES_EUNSUPPORTED, "an animated WebP");
    ares_str_fini(&s);
    ares_arena_fini(&arena);
}

/* ---------------------------------------------------------------- EXIF */

TEST(an_orientation_is_counted_and_not_followed)
{
    ares_arena arena = { 0 };
    ares_media media;
    const char *dir = test_source("tests/golden/vision/decode");
    char *list = ares_arena_printf(
        &arena, "['%s/rgb8_orientation6.png', '%s/rgb8.png', '%s/rgb8_orientation6.png']", dir, dir,
        dir);
    REQUIRE_OK(open_list(&arena, false, list, &media));
    CHECK_EQ(media.turned, 2);
    CHECK_EQ(media.items[0].source->size.w, 23); /* as stored */
    ares_arena_fini(&arena);
}

/* Of EXIF data of n bytes in a file that ends with them, and in one that goes on. */
static bool turns(const char *bytes, size_t n, size_t file)
{
    uint8_t *copy = ares_malloc(file + 1);
    memcpy(copy, bytes, file);
    media_input in = { .data = copy, .size = (int64_t)file, .fd = -1 };
    bool is = media_exif_turns(&in, 0, (int64_t)n);
    ares_free(copy);
    return is;
}

TEST(exif_data_are_read_in_both_orders_of_bytes_and_within_their_bounds)
{
    static const char little[] = "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0",
                      big[] = "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0";
    CHECK(turns(little, 28, 28));
    CHECK(turns(big, 22, 22));
    for (size_t n = 0; n < 28; n++) CHECK(!turns(little, n, n) && !turns(little, n, 28));
    char upright[28], far[28];
    memcpy(upright, little, 28);
    upright[24] = 1;
    CHECK(!turns(upright, 28, 28));
    memcpy(far, little, 28);
    memset(far + 10, 0xff, 4); /* the directory lies 4 GB away */
    CHECK(!turns(far, 28, 28));
}
