/* What a row says about a picture or video: where it comes from (docs/vision.md#rows). */
#ifndef ARES_MEDIA_SOURCE_H
#define ARES_MEDIA_SOURCE_H

#include "decode.h"
#include "resample.h"
#include "video.h"

/* An entry: a file, or bytes as a text in base64. */
typedef struct media_entry {
    const char *path;  /* NULL: of base64 */
    ares_view base64;  /* borrowed from the entry */
    const char *place; /* for messages: "media: images[1] = 'a.png'" */
} media_entry;
/* `where` is "images[1]". */
int media_entry_read(const ares_json *entry, const char *where, const char *image_dir,
                     ares_arena *arena, media_entry *out);
int media_entry_open(const media_entry *e, int64_t most, media_input *out);

typedef struct media_source {
    const media_entry *entries; /* [n]: a picture, the pictures of a video, or the video's file */
    int32_t n;
    bool file; /* a video's file, of which `chosen` are taken */
    media_frames chosen;
    media_size size, sized; /* as decoded, and after the first resize */
    media_filter filter;    /* of the first resize; the second is always torch's of bytes */
} media_source;

/* XXH64 of bytes: one number for one picture (read.c). */
uint64_t media_hash(const uint8_t *data, size_t n, uint64_t seed);

/* An error where the file of a video is shorter than it says (container.c). */
int media_container_check(const media_input *in);
/* The frames of a video's file (video.c). */
int media_video_open(const media_entry *e, int64_t *frames, double *rate, media_size *size);
/* rgb: room for one frame, in which each is handed over */
int media_video_read(const media_entry *e, const media_frames *chosen, media_size size,
                     uint8_t *rgb, media_frame_fn *take, void *ctx);
#endif
