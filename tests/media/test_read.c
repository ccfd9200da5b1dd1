/* From a medium to bytes, their key, and patches. Values against the libraries are in media.json.
 */
#include "media_test.h"

static uint8_t *read_list(ares_arena *arena, bool videos, const char *list, uint64_t *key,
                          ares_media *media)
{
    uint8_t *pixels = NULL;
    const ares_processor p = small_processor();
    if (CHECK_OK(open_list(arena, videos, list, media)))
        CHECK_OK(ares_medium_read(&media->items[0], &p, &pixels, key));
    return pixels;
}

TEST(a_picture_of_whole_blocks_keeps_its_bytes)
{
    ares_arena arena = { 0 };
    ares_media media;
    uint64_t key;
    char *list = ares_arena_printf(&arena, "[%s]", noise_entry(&arena, 24, 16, 3));
    uint8_t *pixels = read_list(&arena, false, list, &key, &media);
    if (pixels) CHECK_MEM(pixels, picture_bytes(&arena, "noise", 3, 24 * 16 * 3), 24 * 16 * 3);
    ares_free(pixels);
    ares_arena_fini(&arena);
}

TEST(the_hash_is_xxh64)
{
    static const char text[] = "Nobody inspects the spammish repetition";
    CHECK_EQ(media_hash((const uint8_t *)"", 0, 0), (long long)0xef46db3751d8e999u);
    CHECK_EQ(media_hash((const uint8_t *)"a", 1, 0), (long long)0xd24ec4f1a98c6e5bu);
    CHECK_EQ(media_hash((const uint8_t *)"abc", 3, 0), (long long)0x44bc2cf5ad770999u);
    CHECK_EQ(media_hash((const uint8_t *)text, 39, 0), (long long)0xfbcea83c8a378bf1u);
}

TEST(one_key_stands_for_one_picture)
{
    ares_arena arena = { 0 };
    ares_media media;
    uint64_t key[6];
    const char *one = noise_entry(&arena, 24, 16, 3);
    char *lists[] = { ares_arena_printf(&arena, "[%s]", one),
                      ares_arena_printf(&arena, "[%s]", noise_entry(&arena, 24, 16, 4)),
                      ares_arena_printf(&arena, "[%s]", noise_entry(&arena, 16, 24, 3)),
                      ares_arena_printf(&arena, "[[%s]]", one),
                      ares_arena_printf(&arena, "[[%s, %s]]", one, one),
                      ares_arena_printf(&arena, "[%s]", noise_entry(&arena, 24, 16, 3)) };
    for (int i = 0; i < 6; i++)
        ares_free(read_list(&arena, i == 3 || i == 4, lists[i], &key[i], &media));
    CHECK_EQ(key[5], key[0]);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++) CHECK(key[i] != key[k]);
    ares_arena_fini(&arena);
}

/* The place of a value, from docs/vision.md#processor: (t, y, x) of a patch; c, k, j, i inside. */
static void check_patches(const ares_medium *m, const ares_processor *p, const uint8_t *pixels,
                          float (*value)(uint8_t byte, int c))
{
    int32_t side = p->patch, w = m->grid.w, h = m->grid.h;
    int64_t each = 3 * p->temporal * side * side, at = 0;
    float *patches = ares_malloc((size_t)(m->grid.t * h * w * each) * sizeof *patches);
    ares_medium_patches(m, p, pixels, 0, m->grid.t * m->grid.h * m->grid.w, patches);
    for (int32_t t = 0; t < m->grid.t; t++)
        for (int32_t block = 0; block < h * w / 4; block++)
            for (int32_t in = 0; in < 4; in++)
                for (int c = 0; c < 3; c++)
                    for (int32_t k = 0; k < p->temporal; k++)
                        for (int32_t j = 0; j < side * side; j++, at++) {
                            int32_t y = block / (w / 2) * 2 + in / 2,
                                    x = block % (w / 2) * 2 + in % 2,
                                    f = ARES_MIN(t * p->temporal + k, m->frames - 1),
                                    row = y * side + j / side, column = x * side + j % side;
                            uint8_t byte =
                                pixels[((f * h * side + row) * w * side + column) * 3 + c];
                            if (patches[at] != value(byte, c)) {
                                CHECK_NEAR(patches[at], value(byte, c), 0);
                                goto done;
                            }
                        }
done:
    ares_free(patches);
}

static float normal(uint8_t byte, int c)
{
    return ((float)byte - .5f * 255.0f) / ((c == 2 ? .5f : .25f) * 255.0f);
}
static float plain(uint8_t byte, int c)
{
    (void)c;
    return byte;
}
static float scaled(uint8_t byte, int c)
{
    (void)c;
    return (float)byte * (float)(1 / 255.0);
}
static float unscaled(uint8_t byte, int c)
{
    return ((float)byte - .5f) / (c == 2 ? .5f : .25f);
}

TEST(patches_of_an_image_hold_it_in_both_times)
{
    ares_arena arena = { 0 };
    ares_media media;
    uint64_t key;
    ares_processor p = small_processor();
    char *list = ares_arena_printf(&arena, "[%s]", noise_entry(&arena, 50, 33, 3));
    uint8_t *pixels = read_list(&arena, false, list, &key, &media);
    if (pixels) {
        check_patches(&media.items[0], &p, pixels, normal);
        p.normalize = false;
        check_patches(&media.items[0], &p, pixels, scaled);
        p.rescale = false;
        check_patches(&media.items[0], &p, pixels, plain);
        p.normalize = true;
        check_patches(&media.items[0], &p, pixels, unscaled);
    }
    ares_free(pixels);
    ares_arena_fini(&arena);
}

TEST(patches_of_an_odd_number_of_frames_repeat_the_last)
{
    for (int frames = 1; frames <= 5; frames++) {
        ares_arena arena = { 0 };
        ares_media media;
        uint64_t key;
        ares_processor p = small_processor();
        for (p.temporal = 1; p.temporal <= 3; p.temporal++) {
            ares_str list = { 0 };
            for (int i = 0; i < frames; i++)
                ares_str_addf(&list, "%s%s", i ? ", " : "[[",
                              noise_entry(&arena, 21, 27, (uint32_t)i));
            ares_str_addf(&list, "]]");
            uint8_t *pixels = read_list(&arena, true, list.data, &key, &media);
            ares_medium m = media.items[0];
            m.grid.t = (frames + p.temporal - 1) / p.temporal;
            if (pixels) check_patches(&m, &p, pixels, normal);
            ares_free(pixels);
            ares_str_fini(&list);
        }
        ares_arena_fini(&arena);
    }
}

TEST(a_file_that_changes_after_its_header_was_read_is_an_error)
{
    ares_arena arena = { 0 };
    ares_media media;
    uint8_t *pixels;
    uint64_t key;
    const ares_processor p = small_processor();
    const uint8_t *rgb = picture_bytes(&arena, "noise", 1, 64 * 64 * 3);
    const char *path = test_file("a.png");
    ares_view file = picture_png(&arena, rgb, 24, 16);
    REQUIRE_OK(ares_file_write(path, file.data, file.len));
    REQUIRE_OK(open_list(&arena, false, ares_arena_printf(&arena, "['%s']", path), &media));
    file = picture_png(&arena, rgb, 24, 24);
    REQUIRE_OK(ares_file_write(path, file.data, file.len));
    CHECK_FAIL(ares_medium_read(&media.items[0], &p, &pixels, &key), ARES_EIO,
               "its size is another than when its header was read");
    CHECK_CONTAINS(ares_error_message(), "media: images[0] = '");
    CHECK(!pixels);
    REQUIRE_OK(ares_file_write(path, file.data, file.len / 2));
    CHECK_FAIL(ares_medium_read(&media.items[0], &p, &pixels, &key), ARES_EIO, "a.png");
    ares_arena_fini(&arena);
}

TEST(a_damaged_frame_is_named)
{
    ares_arena arena = { 0 };
    ares_media media;
    uint8_t *pixels;
    uint64_t key;
    const ares_processor p = small_processor();
    const char *dir = test_source("tests/golden/vision/decode");
    char *list = ares_arena_printf(&arena, "[['%s/rgb8.png', '%s/corrupt.png']]", dir, dir);
    REQUIRE_OK(open_list(&arena, true, list, &media)); /* its header is right */
    CHECK_FAIL(ares_medium_read(&media.items[0], &p, &pixels, &key), ARES_EFORMAT,
               "corrupt.png': PNG: ");
    CHECK_CONTAINS(ares_error_message(), "media: videos[0][1] = ");
    ares_arena_fini(&arena);
}

/* ---------------------------------------------------------------- threads */

typedef struct shared {
    const ares_media *media;
    uint64_t *keys;
    int *rc;
} shared;

static void read_one(void *ctx, int64_t task, int worker)
{
    shared *s = ctx;
    uint8_t *pixels;
    const ares_processor p = small_processor();
    (void)worker;
    s->rc[task] =
        ares_medium_read(&s->media->items[task % s->media->n], &p, &pixels, &s->keys[task]);
    ares_free(pixels);
}

TEST(threads_read_the_same_media_side_by_side)
{
    enum { TASKS = 64 };
    ares_arena arena = { 0 };
    ares_media media;
    const char *dir = test_source("tests/golden/vision");
    uint64_t keys[2][TASKS];
    int rc[TASKS];
    char *list = ares_arena_printf(
        &arena, "['%s/media/a.png', '%s/decode/q75_420.jpg', '%s/decode/lossy.webp', %s]", dir, dir,
        dir, noise_entry(&arena, 90, 120, 8));
    REQUIRE_OK(open_list(&arena, false, list, &media));
    for (int round = 0; round < 2; round++) {
        ares_pool *pool = ares_pool_new(round ? 4 : 1);
        ares_pool_run(pool, TASKS, read_one, &(shared){ &media, keys[round], rc });
        ares_pool_free(pool);
        for (int i = 0; i < TASKS; i++) CHECK_EQ(rc[i], ARES_OK);
    }
    CHECK_MEM(keys[1], keys[0], sizeof keys[0]);
    ares_arena_fini(&arena);
}
