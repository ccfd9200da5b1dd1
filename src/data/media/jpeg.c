/* JPEG by libjpeg-turbo, with its default arithmetic, which is Pillow's. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "decode.h"

enum { MOST_SCANS = 500, MOST_SEGMENTS = 4096 };

/* SOF markers of processes that libjpeg has: baseline, extended, progressive, and arithmetic. */
static bool readable(int marker)
{
    return marker == 0xc0 || marker == 0xc1 || marker == 0xc2 || marker == 0xc9 || marker == 0xca;
}

int media_jpeg_header(const media_input *in, media_header *header)
{
    int64_t at = 2;
    for (int i = 0; i < MOST_SEGMENTS; i++) {
        uint8_t s[10];
        if (media_input_at(in, at, s, 4) != 4) break;
        if (s[0] != 0xff)
            return ares_fail(ARES_EFORMAT, "JPEG: no marker at byte %lld", (long long)at);
        int marker = s[1], bytes = s[2] << 8 | s[3];
        if (marker == 0xff) { /* any number of these may stand before a marker */
            at++, i--;
            continue;
        }
        if (marker == 0xd8 || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {
            at += 2;
            continue;
        }
        if (marker == 0xd9 || marker == 0xda) break;
        if (marker == 0xe1) header->turned |= media_exif_turns(in, at + 4, bytes - 2);
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
            marker != 0xcc) {
            if (media_input_at(in, at, s, 10) != 10) break;
            if (!readable(marker) || s[4] != 8)
                return ares_fail(ARES_EUNSUPPORTED,
                                 "JPEG: %d bits and process %d (lossless, hierarchical or more "
                                 "than 8 bits); convert it",
                                 s[4], marker - 0xc0);
            if (s[9] != 1 && s[9] != 3 && s[9] != 4)
                return ares_fail(ARES_EUNSUPPORTED, "JPEG: %d channels (choices: 1, 3, 4)", s[9]);
            header->size = (media_size){ s[7] << 8 | s[8], s[5] << 8 | s[6] };
            return ARES_OK;
        }
        at += 2 + ARES_MAX(bytes, 2);
    }
    return ares_fail(ARES_EFORMAT, "JPEG: no header before the picture's data");
}

typedef struct reader {
    struct jpeg_error_mgr errors; /* first: libjpeg hands out its address */
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
    bool ended;
    uint8_t *row;
} reader;

static void fail(j_common_ptr jpeg)
{
    reader *r = (reader *)jpeg->err;
    jpeg->err->format_message(jpeg, r->message);
    longjmp(r->jump, 1);
}

/*
 * Warnings are about damaged data, which Pillow accepts, except for the end of the file: libjpeg
 * would fill the rest with grey.
 */
static void warn(j_common_ptr jpeg, int level)
{
    reader *r = (reader *)jpeg->err;
    if (level >= 0) return;
    if (jpeg->err->msg_code == JWRN_JPEG_EOF) fail(jpeg);
    if (jpeg->err->num_warnings++ == 0) jpeg->err->format_message(jpeg, r->message);
}

static void watch_scans(j_common_ptr jpeg)
{
    reader *r = (reader *)jpeg->err;
    if (((j_decompress_ptr)jpeg)->input_scan_number <= MOST_SCANS) return;
    snprintf(r->message, sizeof r->message, "more than %d scans", MOST_SCANS);
    longjmp(r->jump, 1);
}

static int product(int a, int b) /* a b / 255, rounded as Pillow does */
{
    int t = a * b + 128;
    return ((t >> 8) + t) >> 8;
}

/* Four inks, stored inverted as Adobe's programs do (and as Pillow takes every one of these). */
static void inks_to_rgb(const uint8_t *in, int32_t w, uint8_t *rgb)
{
    for (int32_t x = 0; x < w; x++, in += 4, rgb += 3)
        for (int c = 0; c < 3; c++) rgb[c] = (uint8_t)(in[3] - product(255 - in[c], in[3]));
}

/* false: libjpeg has jumped here, and r->message says why */
static bool read_picture(struct jpeg_decompress_struct *jpeg, reader *r, const uint8_t *data,
                         size_t size, media_size want, uint8_t *rgb)
{
    if (setjmp(r->jump)) return false;
    jpeg_create_decompress(jpeg);
    jpeg->progress = &r->progress;
    jpeg_mem_src(jpeg, data, size);
    jpeg_read_header(jpeg, TRUE);
    if (jpeg->image_width != (JDIMENSION)want.w || jpeg->image_height != (JDIMENSION)want.h) {
        snprintf(r->message, sizeof r->message, "its size is another than in its header");
        return false;
    }
    bool inks = jpeg->num_components == 4;
    jpeg->out_color_space = inks ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(jpeg);
    if (inks) r->row = ares_malloc((size_t)want.w * 4);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = rgb + (int64_t)jpeg->output_scanline * want.w * 3, *row = inks ? r->row : to;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (inks) inks_to_rgb(row, want.w, to);
    }
    jpeg_finish_decompress(jpeg);
    return true;
}

int media_jpeg_decode(const uint8_t *data, size_t size, media_size want, const char *place,
                      uint8_t *rgb)
{
    struct jpeg_decompress_struct jpeg = { 0 };
    reader r = { .progress = { .progress_monitor = watch_scans } };
    jpeg.err = jpeg_std_error(&r.errors);
    r.errors.error_exit = fail;
    r.errors.emit_message = warn;
    bool read = read_picture(&jpeg, &r, data, size, want, rgb);
    jpeg_destroy_decompress(&jpeg);
    ares_free(r.row);
    if (!read) return ares_fail(ARES_EFORMAT, "JPEG: %s", r.message);
    if (r.errors.num_warnings)
        ares_warn("%s: JPEG: damaged data, used as libjpeg mends them (%ld warnings, the first: "
                  "%s)",
                  place, r.errors.num_warnings, r.message);
    return ARES_OK;
}
