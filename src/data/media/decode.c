/* From files of pictures to pixels: PNG, WebP, JPEG, and the choice by the first bytes. */
#include "internal.h"

#include <stdio.h> /* first: jpeglib.h needs it */

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>
#include <setjmp.h>
#include <string.h>
#include <webp/decode.h>

/* Numbers of n bytes in files, with the highest byte first (big) or last. */
static uint32_t number(const uint8_t *at, int n, bool big)
{
    uint32_t x = 0;
    for (int i = 0; i < n; i++) x = x << 8 | at[big ? i : n - 1 - i];
    return x;
}

/*
 * PNG by libpng. What depends on libpng's defaults: a wrong check sum of a chunk that a picture
 * needs is an error, of another one it is passed over.
 */

enum { PNG_MOST_CHUNKS = 4096, CHUNK_MEMORY = 8 << 20, CACHED_CHUNKS = 128 };
/* Chunks up to the picture's data: the header, EXIF data, the mark of an animation. */
static int media_png_header(const media_input *in, media_header *header)
{
    uint8_t chunk[16];
    if (media_input_at(in, 8, chunk, 16) != 16 || memcmp(chunk + 4, "IHDR", 4) != 0)
        return ares_fail(ARES_EFORMAT, "PNG: no header");
    uint32_t w = number(chunk + 8, 4, true), h = number(chunk + 12, 4, true);
    if (w > INT32_MAX || h > INT32_MAX)
        return ares_fail(ARES_EFORMAT, "PNG: a header of %u x %u pixels", w, h);
    header->size = (media_size){ (int32_t)w, (int32_t)h };
    int64_t at = 8;
    for (int i = 0; i < PNG_MOST_CHUNKS; i++) {
        if (media_input_at(in, at, chunk, 8) != 8)
            return ares_fail(ARES_EFORMAT, "PNG: it ends before the picture's data");
        uint32_t bytes = number(chunk, 4, true);
        if (memcmp(chunk + 4, "IDAT", 4) == 0) return ARES_OK;
        if (memcmp(chunk + 4, "acTL", 4) == 0)
            return ares_fail(ARES_EUNSUPPORTED, "an animated PNG; give a picture of it, or its "
                                                "frames as a video");
        if (memcmp(chunk + 4, "eXIf", 4) == 0)
            header->turned |= media_exif_turns(in, at + 8, bytes);
        at += 12 + (int64_t)bytes;
    }
    return ares_fail(ARES_EFORMAT, "PNG: more than %d chunks before the picture's data",
                     PNG_MOST_CHUNKS);
}

typedef struct png_reader {
    const uint8_t *data;
    size_t size, at;
    char message[200];
    png_bytep *rows;
} png_reader;

static void png_fail(png_structp png, png_const_charp message)
{
    png_reader *r = png_get_error_ptr(png);
    snprintf(r->message, sizeof r->message, "%s", message);
    png_longjmp(png, 1);
}
/* Warnings, which libpng would print. */
static void pass_over(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    png_reader *r = png_get_io_ptr(png);
    if (n > r->size - r->at) png_error(png, "it ends before its picture does");
    memcpy(to, r->data + r->at, n);
    r->at += n;
}

/* false: libpng has jumped here, and r->message says why */
static bool png_read_picture(png_structp png, png_infop info, png_reader *r, media_size want,
                             uint8_t *rgb)
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
    /* any PNG to RGB of 8 bits: alpha dropped, grey repeated, the high byte of two */
    int type = png_get_color_type(png, info);
    if (png_get_bit_depth(png, info) == 16) png_set_strip_16(png);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    /* png_read_image makes the passes of an interlaced picture by itself */
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != (size_t)want.w * 3) png_error(png, "not three channels");
    r->rows = ares_malloc((size_t)want.h * sizeof *r->rows);
    for (int32_t y = 0; y < want.h; y++) r->rows[y] = rgb + (int64_t)y * want.w * 3;
    png_read_image(png, r->rows);
    png_read_end(png, NULL);
    return true;
}

static int media_png_decode(const uint8_t *data, size_t size, media_size want, uint8_t *rgb)
{
    png_reader r = { .data = data, .size = size };
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, png_fail, pass_over);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    /* libpng jumps out of png_read_picture on an error: what is freed here lives outside of it */
    bool read = info && png_read_picture(png, info, &r, want, rgb);
    png_destroy_read_struct(&png, &info, NULL);
    ares_free(r.rows);
    return read ? ARES_OK
                : ares_fail(ARES_EFORMAT, "PNG: %s", *r.message ? r.message : "libpng's version");
}

/* WebP by libwebp. The colours under transparent pixels are kept. */

/* libwebp has no texts of its own. */
static const char *status_text(VP8StatusCode status)
{
    switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA: return "it ends before its picture does";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "a feature that libwebp does not have";
    case VP8_STATUS_OUT_OF_MEMORY: return "not enough memory";
    default: return "damaged data";
    }
}
static int media_webp_header(const media_input *in, media_header *header)
{
    WebPBitstreamFeatures f = { 0 };
    VP8StatusCode status = VP8_STATUS_NOT_ENOUGH_DATA;
    /* A colour profile of any size may stand before the picture's own header. */
    for (size_t n = 1 << 12; status == VP8_STATUS_NOT_ENOUGH_DATA; n *= 8) {
        uint8_t *start = ares_malloc(n);
        size_t got = media_input_at(in, 0, start, n);
        status = WebPGetFeatures(start, got, &f);
        ares_free(start);
        /* more bytes than the file has will not help */
        if (got < n) break;
    }
    if (status != VP8_STATUS_OK)
        return ares_fail(ARES_EFORMAT, "WebP: no header: %s", status_text(status));
    /* an animation is not one picture */
    if (f.has_animation)
        return ares_fail(ARES_EUNSUPPORTED, "an animated WebP; give a picture of it, or its "
                                            "frames as a video");
    header->size = (media_size){ f.width, f.height };
    enum { MOST_CHUNKS = 64 };
    uint8_t chunk[8];
    int64_t at = 12;
    /* EXIF data stand in a chunk of their own, after the picture */
    for (int i = 0; i < MOST_CHUNKS && media_input_at(in, at, chunk, 8) == 8; i++) {
        int64_t bytes = number(chunk + 4, 4, false);
        if (memcmp(chunk, "EXIF", 4) == 0) {
            header->turned = media_exif_turns(in, at + 8, bytes);
            break;
        }
        /* RIFF pads chunks of an odd size by a byte */
        at += 8 + bytes + (bytes & 1);
    }
    return ARES_OK;
}

static int media_webp_decode(const uint8_t *data, size_t size, media_size want, uint8_t *rgb)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return ares_fail(ARES_EUNSUPPORTED, "WebP: libwebp is of another version");
    VP8StatusCode status = WebPGetFeatures(data, size, &config.input);
    if (status == VP8_STATUS_OK && (config.input.width != want.w || config.input.height != want.h))
        return media_changed();
    config.output.colorspace = MODE_RGB;
    /* into the caller's memory, rows without padding */
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = rgb;
    config.output.u.RGBA.stride = want.w * 3;
    config.output.u.RGBA.size = (size_t)want.w * (size_t)want.h * 3;
    if (status == VP8_STATUS_OK) status = WebPDecode(data, size, &config);
    WebPFreeDecBuffer(&config.output);
    return status == VP8_STATUS_OK ? ARES_OK
                                   : ares_fail(ARES_EFORMAT, "WebP: %s", status_text(status));
}

/* JPEG by libjpeg-turbo, with its default arithmetic, which is Pillow's. */

enum { MOST_SCANS = 500, MOST_SEGMENTS = 4096 };

static int media_jpeg_header(const media_input *in, media_header *header)
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
        /* markers without a length: start of image, TEM, restarts */
        if (marker == 0xd8 || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {
            at += 2;
            continue;
        }
        /* end of image, start of scan: no frame header comes any more */
        if (marker == 0xd9 || marker == 0xda) break;
        /* APP1, where cameras put EXIF data */
        if (marker == 0xe1) header->turned |= media_exif_turns(in, at + 4, bytes - 2);
        /* frame headers SOF0 to SOF15; c4, c8 and cc are tables and reserved */
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
            marker != 0xcc) {
            if (media_input_at(in, at, s, 10) != 10) break;
            /* processes that libjpeg has: baseline, extended, progressive, and arithmetic ones */
            /* SOF0, 1 and 2: Huffman codes; SOF9 and 10: the same with arithmetic coding */
            bool readable = marker == 0xc0 || marker == 0xc1 || marker == 0xc2 || marker == 0xc9 ||
                            marker == 0xca;
            if (!readable || s[4] != 8)
                return ares_fail(ARES_EUNSUPPORTED,
                                 "JPEG: %d bits and process %d (lossless, hierarchical or more "
                                 "than 8 bits); convert it",
                                 s[4], marker - 0xc0);
            if (s[9] != 1 && s[9] != 3 && s[9] != 4)
                return ares_fail(ARES_EUNSUPPORTED, "JPEG: %d channels (choices: 1, 3, 4)", s[9]);
            /* height stands before width */
            header->size = (media_size){ s[7] << 8 | s[8], s[5] << 8 | s[6] };
            return ARES_OK;
        }
        at += 2 + ARES_MAX(bytes, 2);
    }
    return ares_fail(ARES_EFORMAT, "JPEG: no header before the picture's data");
}

typedef struct jpeg_reader {
    struct jpeg_error_mgr errors; /* first: libjpeg hands out its address */
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
    bool ended;
    uint8_t *row;
} jpeg_reader;

/* libjpeg's error exit, which must not return. */
static void jpeg_fail(j_common_ptr jpeg)
{
    jpeg_reader *r = (jpeg_reader *)jpeg->err;
    jpeg->err->format_message(jpeg, r->message);
    longjmp(r->jump, 1);
}

/*
 * Warnings are about damaged data, which Pillow accepts, except for the end of the file: libjpeg
 * would fill the rest with grey.
 */
static void warn(j_common_ptr jpeg, int level)
{
    jpeg_reader *r = (jpeg_reader *)jpeg->err;
    if (level >= 0) return;
    if (jpeg->err->msg_code == JWRN_JPEG_EOF) jpeg_fail(jpeg);
    if (jpeg->err->num_warnings++ == 0) jpeg->err->format_message(jpeg, r->message);
}

/* A small file of very many scans could take hours: libjpeg decodes the whole picture for each. */
static void watch_scans(j_common_ptr jpeg)
{
    jpeg_reader *r = (jpeg_reader *)jpeg->err;
    if (((j_decompress_ptr)jpeg)->input_scan_number <= MOST_SCANS) return;
    snprintf(r->message, sizeof r->message, "more than %d scans", MOST_SCANS);
    longjmp(r->jump, 1);
}

/* false: libjpeg has jumped here, and r->message says why */
static bool jpeg_read_picture(struct jpeg_decompress_struct *jpeg, jpeg_reader *r,
                              const uint8_t *data, size_t size, media_size want, uint8_t *rgb)
{
    /* memory that a jump passes over lies in jpeg and r, which the caller frees */
    if (setjmp(r->jump)) return false;
    jpeg_create_decompress(jpeg);
    jpeg->progress = &r->progress;
    jpeg_mem_src(jpeg, data, size);
    jpeg_read_header(jpeg, TRUE);
    if (jpeg->image_width != (JDIMENSION)want.w || jpeg->image_height != (JDIMENSION)want.h) {
        snprintf(r->message, sizeof r->message, "its size is another than in its header");
        return false;
    }
    /* libjpeg turns grey and YCbCr to RGB itself, but not CMYK */
    bool inks = jpeg->num_components == 4;
    jpeg->out_color_space = inks ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(jpeg);
    if (inks) r->row = ares_malloc((size_t)want.w * 4);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = rgb + (int64_t)jpeg->output_scanline * want.w * 3, *row = inks ? r->row : to;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (inks) {
            /* four inks, inverted as Adobe's programs store them (Pillow takes every one so) */
            const uint8_t *in = row;
            for (int32_t x = 0; x < want.w; x++, in += 4, to += 3)
                for (int c = 0; c < 3; c++) {
                    /* a product / 255, rounded as Pillow does */
                    int t = (255 - in[c]) * in[3] + 128;
                    to[c] = (uint8_t)(in[3] - (((t >> 8) + t) >> 8));
                }
        }
    }
    jpeg_finish_decompress(jpeg);
    return true;
}

static int media_jpeg_decode(const uint8_t *data, size_t size, media_size want, const char *place,
                             uint8_t *rgb)
{
    struct jpeg_decompress_struct jpeg = { 0 };
    jpeg_reader r = { .progress = { .progress_monitor = watch_scans } };
    jpeg.err = jpeg_std_error(&r.errors);
    r.errors.error_exit = jpeg_fail;
    r.errors.emit_message = warn;
    bool read = jpeg_read_picture(&jpeg, &r, data, size, want, rgb);
    jpeg_destroy_decompress(&jpeg);
    ares_free(r.row);
    /* r.message is that of the error, or of the first warning */
    if (!read) return ares_fail(ARES_EFORMAT, "JPEG: %s", r.message);
    if (r.errors.num_warnings)
        ares_warn("%s: JPEG: damaged data, used as libjpeg mends them (%ld warnings, the first: "
                  "%s)",
                  place, r.errors.num_warnings, r.message);
    return ARES_OK;
}

/* Which format, by the first bytes; the name of a file says nothing. */

/* Kinds that are told apart only to name them: bytes at an offset. */
static const struct {
    int at;
    const char *bytes, *name;
} others[] = {
    { 0, "GIF8", "a GIF" },
    { 0, "BM", "a BMP picture" },
    { 0, "II*", "a TIFF picture" },
    { 0, "MM\0*", "a TIFF picture" },
    { 4, "ftypavi", "an AVIF picture" },
    { 4, "ftyphei", "a HEIC picture" },
    { 4, "ftyphev", "a HEIC picture" },
    { 4, "ftypmif1", "a HEIC or AVIF picture" },
    { 4, "ftypmsf1", "a HEIC or AVIF picture" },
    { 4, "ftyp", "a video (MP4 or its kin)" },
    { 4, "JXL ", "a JPEG XL picture" },
    { 0, "\xff\x0a", "a JPEG XL picture" },
    { 4, "jP  ", "a JPEG 2000 picture" },
    { 0, "\xff\x4f\xff\x51", "a JPEG 2000 picture" },
    { 0, "\x1a\x45\xdf\xa3", "a video (Matroska or WebM)" },
    { 8, "AVI ", "a video (AVI)" },
    { 0, "%PDF", "a PDF document" },
    { 0, "<svg", "an SVG drawing" },
    { 0, "<?xml", "an XML document" },
    { 0, "<!DOCTYPE", "an HTML page" },
    { 0, "<html", "an HTML page" },
    { 0, "version https://git-lfs", "a pointer of Git LFS (git lfs pull fetches the file)" },
};

/* The first bytes decide, because files are often named wrongly. */
int media_header_read(const media_input *in, media_header *out)
{
    uint8_t start[32] = { 0 };
    size_t n = media_input_at(in, 0, start, sizeof start);
    *out = (media_header){ 0 };
    if (n >= 8 && memcmp(start, "\x89PNG\r\n\x1a\n", 8) == 0) {
        out->format = MEDIA_PNG;
        ARES_TRY(media_png_header(in, out));
    } else if (n >= 3 && memcmp(start, "\xff\xd8\xff", 3) == 0) {
        out->format = MEDIA_JPEG;
        ARES_TRY(media_jpeg_header(in, out));
    } else if (n >= 12 && memcmp(start, "RIFF", 4) == 0 && memcmp(start + 8, "WEBP", 4) == 0) {
        out->format = MEDIA_WEBP;
        ARES_TRY(media_webp_header(in, out));
    } else {
        for (int i = 0; i < ARES_COUNT(others); i++) {
            /* "MM\0*" has a NUL in it, where strlen stops */
            size_t len =
                others[i].bytes[0] == 'M' && !others[i].bytes[2] ? 4 : strlen(others[i].bytes);
            if ((size_t)others[i].at + len <= n &&
                memcmp(start + others[i].at, others[i].bytes, len) == 0)
                return ares_fail(ARES_EUNSUPPORTED, "%s; convert it to PNG, JPEG or WebP",
                                 others[i].name);
        }
        char hex[3 * 8 + 1] = "";
        for (size_t i = 0; i < n && i < 8; i++) snprintf(hex + 3 * i, 4, " %02x", start[i]);
        return ares_fail(ARES_EFORMAT,
                         "not a picture: no PNG, JPEG or WebP begins with the bytes%s", hex);
    }
    return media_check_size(out->size, "a header of");
}

int media_decode(const media_input *in, const media_header *header, const char *place, uint8_t *rgb)
{
    ARES_ASSERT(in->data);
    switch (header->format) {
    case MEDIA_PNG: return media_png_decode(in->data, (size_t)in->size, header->size, rgb);
    case MEDIA_JPEG: return media_jpeg_decode(in->data, (size_t)in->size, header->size, place, rgb);
    default: return media_webp_decode(in->data, (size_t)in->size, header->size, rgb);
    }
}

int media_changed(void)
{
    return ares_fail(ARES_EIO, "its size is another than when its header was read");
}

bool media_exif_turns(const media_input *in, int64_t offset, int64_t bytes)
{
    enum { ORIENTATION = 0x112, SHORT = 3, MOST_ENTRIES = 512 };
    uint8_t head[8], entry[12];
    if (media_input_at(in, offset, head, 6) == 6 && memcmp(head, "Exif\0\0", 6) == 0)
        offset += 6, bytes -= 6;
    /* damaged EXIF data ask for nothing: the picture itself may be fine */
    if (bytes < 8 || media_input_at(in, offset, head, 8) != 8) return false;
    /* TIFF: "MM" big-endian, "II" little-endian; then the offset of the first directory */
    bool big = head[0] == 'M';
    if (memcmp(head, big ? "MM\0*" : "II*\0", 4) != 0) return false;
    int64_t at = number(head + 4, 4, big);
    if (at + 2 > bytes || media_input_at(in, offset + at, entry, 2) != 2) return false;
    int n = (int)number(entry, 2, big);
    for (int i = 0; i < n && i < MOST_ENTRIES; i++) {
        int64_t where = at + 2 + 12 * (int64_t)i;
        if (where + 12 > bytes || media_input_at(in, offset + where, entry, 12) != 12) return false;
        if (number(entry, 2, big) != ORIENTATION || number(entry + 2, 2, big) != SHORT) continue;
        /* 1: as stored; 2 to 8: mirrored, turned or both */
        uint32_t turn = number(entry + 8, 2, big);
        return turn >= 2 && turn <= 8;
    }
    return false;
}
