/* What tests of the room share: a processor of small pictures, and the room's door in one call. */
#ifndef ARES_MEDIA_TEST_H
#define ARES_MEDIA_TEST_H

#include "media/internal.h"
#include "pictures.h"
#include "test.h"

static inline ares_processor small_processor(void)
{
    return (ares_processor){ .patch = 4,
                             .merge = 2,
                             .temporal = 2,
                             .image_min = 64,
                             .image_max = 4096,
                             .video_min = 64,
                             .video_max = 1024,
                             .mean = { .5f, .5f, .5f },
                             .std = { .25f, .25f, .5f },
                             .resize = true,
                             .rescale = true,
                             .normalize = true,
                             .rescale_factor = 1 / 255.0 };
}

/* Opens a list of images, or of videos, given as JSON with ' for ". */
static inline int open_list(ares_arena *arena, bool videos, const char *text, ares_media *out)
{
    char *json = ares_arena_copy(arena, text, strlen(text));
    for (char *c = json; *c; c++)
        if (*c == '\'') *c = '"';
    const ares_json *list = picture_json(arena, "%s", json);
    const ares_processor p = small_processor();
    const ares_media_options o = { .video_fps = 2 };
    return media_open(videos ? NULL : list, videos ? list : NULL, &p, &o, arena, out);
}

/* A noisy picture as an entry: "{'bytes': '...'}". */
static inline const char *noise_entry(ares_arena *arena, int32_t w, int32_t h, uint32_t seed)
{
    const uint8_t *rgb = picture_bytes(arena, "noise", seed, (int64_t)w * h * 3);
    return ares_arena_printf(arena, "{'bytes': '%s'}",
                             picture_base64(arena, picture_png(arena, rgb, w, h)).data);
}

/* Header and pixels of bytes in memory; *rgb is to be freed by ares_free. */
static inline int decode_bytes(ares_view bytes, media_header *header, uint8_t **rgb)
{
    media_input in = { .data = (const uint8_t *)bytes.data, .size = (int64_t)bytes.len, .fd = -1 };
    *rgb = NULL;
    int rc = media_header_read(&in, header);
    if (rc != ARES_OK) return rc;
    *rgb = ares_malloc((size_t)header->size.w * (size_t)header->size.h * 3);
    return media_decode(&in, header, "test", *rgb);
}

/* decode_bytes fails so. */
#define CHECK_BAD(bytes, code, part)                                  \
    do {                                                              \
        media_header header_;                                         \
        uint8_t *rgb_;                                                \
        CHECK_FAIL(decode_bytes(bytes, &header_, &rgb_), code, part); \
        ares_free(rgb_);                                              \
    } while (0)

/* A file of tests/golden/vision, whole. */
static inline ares_view golden_file(ares_arena *arena, const char *name)
{
    ares_str text = { 0 };
    const char *path = ares_arena_printf(arena, "%s/%s", test_source("tests/golden/vision"), name);
    CHECK_OK(ares_file_read(path, &text));
    ares_view v = { ares_arena_copy(arena, text.data, text.len), text.len };
    ares_str_fini(&text);
    return v;
}
#endif
