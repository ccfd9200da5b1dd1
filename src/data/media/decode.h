/*
 * Picture files by their first bytes: what their headers say, and their pixels as RGB of 8 bits
 * (docs/vision.md#rows). Errors lack the file's name.
 */
#ifndef ARES_MEDIA_DECODE_H
#define ARES_MEDIA_DECODE_H

#include "input.h"
#include "plan.h"

typedef enum { MEDIA_PNG, MEDIA_JPEG, MEDIA_WEBP } media_format;

typedef struct media_header {
    media_format format;
    media_size size;
    bool turned; /* EXIF data ask for a turn or a mirror image */
} media_header;

/* What the header says; sizes are checked against the limits, and nothing large is read. */
int media_header_read(const media_input *in, media_header *out);
/*
 * Decodes all of in->data. rgb: [h][w][3] of `header`, which must be this input's: other sizes are
 * an error. place: the name for a warning about data that are damaged but readable.
 */
int media_decode(const media_input *in, const media_header *header, const char *place,
                 uint8_t *rgb);

/* One per format. *header: size and turned are written; data hold the whole file. */
int media_png_header(const media_input *in, media_header *header);
int media_jpeg_header(const media_input *in, media_header *header);
int media_webp_header(const media_input *in, media_header *header);
int media_png_decode(const uint8_t *data, size_t size, media_size want, uint8_t *rgb);
int media_jpeg_decode(const uint8_t *data, size_t size, media_size want, const char *place,
                      uint8_t *rgb);
int media_webp_decode(const uint8_t *data, size_t size, media_size want, uint8_t *rgb);

/* Whether a TIFF structure of EXIF data at an offset, with or without "Exif\0\0", asks for a turn.
 */
bool media_exif_turns(const media_input *in, int64_t offset, int64_t bytes);
/* the error for a file that was exchanged after its header was read */
int media_changed(void);
#endif
