/* WebP by libwebp. The colours under transparent pixels are kept. */
#include "decode.h"

#include <string.h>
#include <webp/decode.h>

static const char *status_text(VP8StatusCode status)
{
    switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA: return "it ends before its picture does";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "a feature that libwebp does not have";
    case VP8_STATUS_OUT_OF_MEMORY: return "not enough memory";
    default: return "damaged data";
    }
}

static uint32_t little_endian(const uint8_t *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

/* EXIF data stand in a chunk of their own, after the picture. */
static bool turned(const media_input *in)
{
    enum { MOST_CHUNKS = 64 };
    uint8_t chunk[8];
    int64_t at = 12;
    for (int i = 0; i < MOST_CHUNKS && media_input_at(in, at, chunk, 8) == 8; i++) {
        int64_t bytes = little_endian(chunk + 4);
        if (memcmp(chunk, "EXIF", 4) == 0) return media_exif_turns(in, at + 8, bytes);
        at += 8 + bytes + (bytes & 1);
    }
    return false;
}

int media_webp_header(const media_input *in, media_header *header)
{
    WebPBitstreamFeatures f = { 0 };
    VP8StatusCode status = VP8_STATUS_NOT_ENOUGH_DATA;
    /* A colour profile of any size may stand before the picture's own header. */
    for (size_t n = 1 << 12; status == VP8_STATUS_NOT_ENOUGH_DATA; n *= 8) {
        uint8_t *start = ares_malloc(n);
        size_t got = media_input_at(in, 0, start, n);
        status = WebPGetFeatures(start, got, &f);
        ares_free(start);
        if (got < n) break;
    }
    if (status != VP8_STATUS_OK)
        return ares_fail(ARES_EFORMAT, "WebP: no header: %s", status_text(status));
    if (f.has_animation)
        return ares_fail(ARES_EUNSUPPORTED, "an animated WebP; give a picture of it, or its "
                                            "frames as a video");
    header->size = (media_size){ f.width, f.height };
    header->turned = turned(in);
    return ARES_OK;
}

int media_webp_decode(const uint8_t *data, size_t size, media_size want, uint8_t *rgb)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return ares_fail(ARES_EUNSUPPORTED, "WebP: libwebp is of another version");
    VP8StatusCode status = WebPGetFeatures(data, size, &config.input);
    if (status == VP8_STATUS_OK && (config.input.width != want.w || config.input.height != want.h))
        return media_changed();
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = rgb;
    config.output.u.RGBA.stride = want.w * 3;
    config.output.u.RGBA.size = (size_t)want.w * (size_t)want.h * 3;
    if (status == VP8_STATUS_OK) status = WebPDecode(data, size, &config);
    WebPFreeDecBuffer(&config.output);
    return status == VP8_STATUS_OK ? ARES_OK
                                   : ares_fail(ARES_EFORMAT, "WebP: %s", status_text(status));
}
