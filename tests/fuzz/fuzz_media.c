/*
 * libFuzzer entry for pictures and the entries of rows. The first byte says what the rest is: the
 * bytes of a picture, two frames, a text in base64, a JSON list of entries, EXIF data and a
 * container of a video. Checks, besides that nothing crashes: an error has a message, a picture
 * that opens has sizes within the limits, and reading it twice gives the same bytes.
 */
#include <string.h>

#include "media/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Larger ones are allowed and only slow. */
enum { MOST_PIXELS = 1 << 18 };

static const ares_processor processor = { .patch = 4,
                                          .merge = 2,
                                          .temporal = 2,
                                          .image_min = 64,
                                          .image_max = 4096,
                                          .video_min = 64,
                                          .video_max = 4096,
                                          .mean = { .5f, .5f, .5f },
                                          .std = { .25f, .25f, .25f },
                                          .resize = true,
                                          .rescale = true,
                                          .normalize = true,
                                          .rescale_factor = 1 / 255.0 };

static void read_twice(const ares_medium *m)
{
    uint8_t *a = NULL, *b = NULL;
    uint64_t key[2];
    media_size s = m->source->size;
    ARES_ASSERT(s.w >= 1 && s.h >= 1 && (int64_t)s.w * s.h <= MEDIA_MOST_PIXELS);
    ARES_ASSERT(m->frames >= 1 && m->grid.h % 2 == 0 && m->grid.w % 2 == 0);
    if ((int64_t)s.w * s.h > MOST_PIXELS) return;
    size_t n = (size_t)(m->frames * m->grid.h * m->grid.w) * 4 * 4 * 3;
    int rc = ares_medium_read(m, &processor, &a, &key[0]);
    ARES_ASSERT(rc == ares_medium_read(m, &processor, &b, &key[1]) && !a == (rc != ARES_OK));
    if (rc == ARES_OK) {
        float *patches = ares_malloc((size_t)(m->grid.t * m->grid.h * m->grid.w) * 96 * 4);
        ares_medium_patches(m, &processor, a, 0, m->grid.t * m->grid.h * m->grid.w, patches);
        ARES_ASSERT(key[0] == key[1] && memcmp(a, b, n) == 0);
        ares_free(patches);
    } else ARES_ASSERT(ares_error_message()[0]);
    ares_free(a);
    ares_free(b);
}

static void open_list(const char *text, bool videos, size_t size)
{
    ares_arena arena = { 0 };
    ares_media media;
    const ares_json *list;
    /* some with EasyR1's resize; no entry is a file */
    const ares_media_options o = { .min_pixels = size % 3 == 1 ? 5000 : 0,
                                   .max_pixels = size % 3 ? 20000 : 0,
                                   .video_fps = 2,
                                   .image_dir = "/nowhere" };
    if (ares_json_parse(&arena, ares_view_of(text), "row", &list) == ARES_OK) {
        int rc =
            media_open(videos ? NULL : list, videos ? list : NULL, &processor, &o, &arena, &media);
        ARES_ASSERT(rc == ARES_OK || ares_error_message()[0]);
        for (int32_t i = 0; rc == ARES_OK && i < media.n; i++) read_twice(&media.items[i]);
    }
    ares_arena_fini(&arena);
}

static void add_bytes(ares_str *out, const uint8_t *data, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    ares_str_add_z(out, "{\"bytes\":\"");
    for (size_t i = 0; i < n; i += 3) {
        uint32_t x = 0;
        for (size_t k = 0; k < 3; k++) x = x << 8 | (i + k < n ? data[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            ares_str_add_char(out, k <= n - i ? digits[x >> (18 - 6 * k) & 63] : '=');
    }
    ares_str_add_z(out, "\"}");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 1 << 16) return 0;
    ares_str text = { 0 };
    int mode = data[0] % 5;
    data++, size--;
    media_input in = { .data = data, .size = (int64_t)size, .fd = -1 };
    ares_log_set(ARES_LOG_ERROR, 0);
    ares_str_add_char(&text, '[');
    if (mode == 0) add_bytes(&text, data, size);
    else if (mode == 1) {
        ares_str_add_char(&text, '[');
        add_bytes(&text, data, size / 2);
        ares_str_add_char(&text, ',');
        add_bytes(&text, data + size / 2, size - size / 2);
        ares_str_add_char(&text, ']');
    } else if (mode == 2) ares_json_write_string(&text, (ares_view){ (const char *)data, size });
    else if (mode == 3) ares_str_add(&text, (const char *)data, size);
    ares_str_add_char(&text, ']');
    if (mode == 2) { /* as it is, without the reader of JSON */
        media_input out;
        if (media_input_base64((ares_view){ (const char *)data, size }, 1000, &out) == ARES_OK) {
            ARES_ASSERT(out.size >= 1 && out.size <= 1000 && out.size <= (int64_t)size);
            media_input_close(&out);
        }
    }
    if (mode < 4) open_list(text.data, mode == 1 || (mode == 3 && size % 2), size);
    else {
        media_exif_turns(&in, 0, in.size);
        media_container_check(&in);
    }
    ares_str_fini(&text);
    return 0;
}
