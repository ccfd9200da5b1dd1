/*
 * What libares_video.so gives, which alone knows FFmpeg. Both functions give 0, or -1 and a text.
 * They see the input's data, or its fd through pread; they start no threads and open nothing.
 */
#ifndef ARES_MEDIA_VIDEO_H
#define ARES_MEDIA_VIDEO_H

#include "input.h"

typedef struct media_video_facts {
    int64_t frames; /* decoded from first to last */
    double rate;    /* frames per second, on average */
    int32_t w, h;   /* of every frame */
} media_video_facts;
/* Decodes the video and counts; more than most_pixels in a frame is an error. */
typedef int media_video_count_fn(const media_input *in, int64_t most_pixels, media_video_facts *out,
                                 char *error, size_t error_size);
/* Takes frame i of those chosen, [h][w][3], which lives for the call. */
typedef void media_frame_fn(void *ctx, int32_t i, const uint8_t *rgb);
/* Hands over the frames numbered index[0..n), which rise, one by one. rgb: room for a frame. */
typedef int media_video_frames_fn(const media_input *in, const int32_t *index, int32_t n, int32_t w,
                                  int32_t h, uint8_t *rgb, media_frame_fn *take, void *ctx,
                                  char *error, size_t error_size);
#endif
