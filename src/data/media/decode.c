/* Which format, by the first bytes; the name of a file says nothing. */
#include "decode.h"

#include <stdio.h>
#include <string.h>

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

static int refuse(const uint8_t *start, size_t n)
{
    for (int i = 0; i < ARES_COUNT(others); i++) {
        size_t len = others[i].bytes[0] == 'M' && !others[i].bytes[2] ? 4 : strlen(others[i].bytes);
        if ((size_t)others[i].at + len <= n &&
            memcmp(start + others[i].at, others[i].bytes, len) == 0)
            return ares_fail(ARES_EUNSUPPORTED, "%s; convert it to PNG, JPEG or WebP",
                             others[i].name);
    }
    char hex[3 * 8 + 1] = "";
    for (size_t i = 0; i < n && i < 8; i++) snprintf(hex + 3 * i, 4, " %02x", start[i]);
    return ares_fail(ARES_EFORMAT, "not a picture: no PNG, JPEG or WebP begins with the bytes%s",
                     hex);
}

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
    } else return refuse(start, n);
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

/* Numbers of TIFF, in the order of bytes that the structure's first two letters give. */
static uint32_t number(const uint8_t *at, int bytes, bool big)
{
    uint32_t x = 0;
    for (int i = 0; i < bytes; i++) x = x << 8 | at[big ? i : bytes - 1 - i];
    return x;
}

bool media_exif_turns(const media_input *in, int64_t offset, int64_t bytes)
{
    enum { ORIENTATION = 0x112, SHORT = 3, MOST_ENTRIES = 512 };
    uint8_t head[8], entry[12];
    if (media_input_at(in, offset, head, 6) == 6 && memcmp(head, "Exif\0\0", 6) == 0)
        offset += 6, bytes -= 6;
    if (bytes < 8 || media_input_at(in, offset, head, 8) != 8) return false;
    bool big = head[0] == 'M';
    if (memcmp(head, big ? "MM\0*" : "II*\0", 4) != 0) return false;
    int64_t at = number(head + 4, 4, big);
    if (at + 2 > bytes || media_input_at(in, offset + at, entry, 2) != 2) return false;
    int n = (int)number(entry, 2, big);
    for (int i = 0; i < n && i < MOST_ENTRIES; i++) {
        int64_t where = at + 2 + 12 * (int64_t)i;
        if (where + 12 > bytes || media_input_at(in, offset + where, entry, 12) != 12) return false;
        if (number(entry, 2, big) != ORIENTATION || number(entry + 2, 2, big) != SHORT) continue;
        uint32_t turn = number(entry + 8, 2, big);
        return turn >= 2 && turn <= 8;
    }
    return false;
}
