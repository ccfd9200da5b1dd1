/* Pictures made by tests: bytes of a generator, PNG files of them, and base64. */
#ifndef ARES_TEST_PICTURES_H
#define ARES_TEST_PICTURES_H

#include <png.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/core.h"

/* The bytes called noise and two in vision.json. */
static inline uint8_t *picture_bytes(ares_arena *arena, const char *kind, uint32_t seed, int64_t n)
{
    uint8_t *out = ares_arena_alloc(arena, (size_t)n + 1);
    bool two = strcmp(kind, "two") == 0;
    uint32_t x = seed;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        out[i] = (uint8_t)(x >> 24);
        if (two) out[i] = out[i] > 127 ? 255 : 0;
    }
    return out;
}

/* zlib's */
static inline uint32_t picture_crc32(const void *data, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= ((const uint8_t *)data)[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* A PNG file of RGB bytes [h][w][3]. */
static inline ares_view picture_png(ares_arena *arena, const uint8_t *rgb, int32_t w, int32_t h)
{
    png_image image = { .version = PNG_IMAGE_VERSION,
                        .width = (uint32_t)w,
                        .height = (uint32_t)h,
                        .format = PNG_FORMAT_RGB };
    png_alloc_size_t bytes = 0;
    ARES_ASSERT(png_image_write_to_memory(&image, NULL, &bytes, 0, rgb, 0, NULL));
    char *out = ares_arena_alloc(arena, bytes);
    ARES_ASSERT(png_image_write_to_memory(&image, out, &bytes, 0, rgb, 0, NULL));
    return (ares_view){ out, bytes };
}

static inline void put32(ares_str *s, uint32_t x)
{
    for (int i = 24; i >= 0; i -= 8) ares_str_add_char(s, (char)(x >> i));
}

/* The first bytes of a PNG file of that size: enough for the pass over headers. */
static inline ares_view picture_png_header(ares_arena *arena, uint32_t w, uint32_t h)
{
    ares_str s = { 0 };
    ares_str_add(&s, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
    put32(&s, w);
    put32(&s, h);
    ares_str_add(&s, "\x08\x02\0\0\0", 5);
    put32(&s, picture_crc32(s.data + 12, 17));
    ares_str_add(&s, "\0\0\0\0IDAT", 8);
    ares_view v = { ares_arena_copy(arena, s.data, s.len), s.len };
    ares_str_fini(&s);
    return v;
}

static inline ares_view picture_base64(ares_arena *arena, ares_view bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = ares_arena_alloc(arena, bytes.len / 3 * 4 + 5), *to = out;
    for (size_t i = 0; i < bytes.len; i += 3) {
        uint32_t x = 0;
        size_t n = ARES_MIN(bytes.len - i, (size_t)3);
        for (size_t k = 0; k < 3; k++) x = x << 8 | (k < n ? (unsigned char)bytes.data[i + k] : 0);
        for (size_t k = 0; k < 4; k++) *to++ = k <= n ? digits[x >> (18 - 6 * k) & 63] : '=';
    }
    *to = 0;
    return (ares_view){ out, (size_t)(to - out) };
}

/* A JSON document. */
ARES_PRINTF(2, 3)
static inline const ares_json *picture_json(ares_arena *arena, const char *format, ...)
{
    char *text = NULL;
    const ares_json *out;
    va_list args;
    va_start(args, format);
    ARES_ASSERT(vasprintf(&text, format, args) >= 0);
    va_end(args);
    ARES_ASSERT(ares_json_parse(arena, ares_view_of(ares_arena_copy(arena, text, strlen(text))),
                                "test", &out) == ARES_OK);
    free(text);
    return out;
}
#endif
