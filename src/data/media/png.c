/*
 * PNG by libpng. What depends on libpng's defaults: a wrong check sum of a chunk that a picture
 * needs is an error, of another one it is passed over.
 */
#include "decode.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CHUNKS = 4096, CHUNK_MEMORY = 8 << 20, CACHED_CHUNKS = 128 };

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Chunks up to the picture's data: the header, EXIF data, the mark of an animation. */
int media_png_header(const media_input *in, media_header *header)
{
    uint8_t chunk[16];
    if (media_input_at(in, 8, chunk, 16) != 16 || memcmp(chunk + 4, "IHDR", 4) != 0)
        return ares_fail(ARES_EFORMAT, "PNG: no header");
    uint32_t w = big_endian(chunk + 8), h = big_endian(chunk + 12);
    if (w > INT32_MAX || h > INT32_MAX)
        return ares_fail(ARES_EFORMAT, "PNG: a header of %u x %u pixels", w, h);
    header->size = (media_size){ (int32_t)w, (int32_t)h };
    int64_t at = 8;
    for (int i = 0; i < MOST_CHUNKS; i++) {
        if (media_input_at(in, at, chunk, 8) != 8)
            return ares_fail(ARES_EFORMAT, "PNG: it ends before the picture's data");
        uint32_t bytes = big_endian(chunk);
        if (memcmp(chunk + 4, "IDAT", 4) == 0) return ARES_OK;
        if (memcmp(chunk + 4, "acTL", 4) == 0)
            return ares_fail(ARES_EUNSUPPORTED, "an animated PNG; give a picture of it, or its "
                                                "frames as a video");
        if (memcmp(chunk + 4, "eXIf", 4) == 0)
            header->turned |= media_exif_turns(in, at + 8, bytes);
        at += 12 + (int64_t)bytes;
    }
    return ares_fail(ARES_EFORMAT, "PNG: more than %d chunks before the picture's data",
                     MOST_CHUNKS);
}

typedef struct reader {
    const uint8_t *data;
    size_t size, at;
    char message[200];
    png_bytep *rows;
} reader;

static void fail(png_structp png, png_const_charp message)
{
    reader *r = png_get_error_ptr(png);
    snprintf(r->message, sizeof r->message, "%s", message);
    png_longjmp(png, 1);
}
static void pass_over(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    reader *r = png_get_io_ptr(png);
    if (n > r->size - r->at) png_error(png, "it ends before its picture does");
    memcpy(to, r->data + r->at, n);
    r->at += n;
}

/* Any PNG to RGB of 8 bits: alpha dropped, grey repeated, the high byte of two. */
static void set_rgb(png_structp png, png_infop info)
{
    int type = png_get_color_type(png, info);
    if (png_get_bit_depth(png, info) == 16) png_set_strip_16(png);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

/* false: libpng has jumped here, and r->message says why */
static bool read_picture(png_structp png, png_infop info, reader *r, media_size want, uint8_t *rgb)
{
    if (setjmp(png_jmpbuf(png))) return false;
    png_set_user_limits(png, MEDIA_MOST_SIDE, MEDIA_MOST_SIDE);
    png_set_chunk_malloc_max(png, CHUNK_MEMORY);
    png_set_chunk_cache_max(png, CACHED_CHUNKS);
    /* Nothing but the header, the palette and the data is looked at. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_read_fn(png, r, read_bytes);
    png_read_info(png, info);
    if (png_get_image_width(png, info) != (uint32_t)want.w ||
        png_get_image_height(png, info) != (uint32_t)want.h)
        png_error(png, "its size is another than in its header");
    set_rgb(png, info);
    if (png_get_rowbytes(png, info) != (size_t)want.w * 3) png_error(png, "not three channels");
    r->rows = ares_malloc((size_t)want.h * sizeof *r->rows);
    for (int32_t y = 0; y < want.h; y++) r->rows[y] = rgb + (int64_t)y * want.w * 3;
    png_read_image(png, r->rows);
    png_read_end(png, NULL);
    return true;
}

int media_png_decode(const uint8_t *data, size_t size, media_size want, uint8_t *rgb)
{
    reader r = { .data = data, .size = size };
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, fail, pass_over);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    bool read = info && read_picture(png, info, &r, want, rgb);
    png_destroy_read_struct(&png, &info, NULL);
    ares_free(r.rows);
    return read ? ARES_OK
                : ares_fail(ARES_EFORMAT, "PNG: %s", *r.message ? r.message : "libpng's version");
}
