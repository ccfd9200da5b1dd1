/* Sizes, and which frames of a video: functions of numbers alone (docs/vision.md#limits). */
#ifndef ARES_MEDIA_PLAN_H
#define ARES_MEDIA_PLAN_H

#include "ares/media.h"

typedef struct media_size {
    int32_t w, h;
} media_size;

#define MEDIA_MOST_PIXELS 178956970 /* of a picture: where Pillow refuses */
#define MEDIA_MOST_SIDE 65535
#define MEDIA_MOST_FILE ((int64_t)256 << 20)
#define MEDIA_MOST_VIDEO ((int64_t)1 << 31) /* bytes of the frames that are kept */
#define MEDIA_MOST_ASPECT 200

/* ARES_ELIMIT when a side is more than 200 times the other. */
int media_check_aspect(media_size s);
/* sides and pixels of a picture, before or after a resize */
int media_check_size(media_size s, const char *what);

/* EasyR1's own resize: at most max pixels, then at least min; 0: no limit. */
int media_easyr1_size(media_size in, int64_t min, int64_t max, media_size *out);
/* The processor's: multiples of factor, between min and max pixels. Also checks the aspect. */
int media_smart_resize(media_size in, int32_t factor, int64_t min, int64_t max, media_size *out);
/* Of the frames of a video, before the processor's; min and max as for easyr1_size. */
int media_video_size(media_size in, int32_t frames, int32_t factor, int64_t min, int64_t max,
                     media_size *out);

typedef struct media_frames {
    int32_t n;
    int32_t *index; /* [n], rising, from 0; some may be equal */
    double sample_fps;
} media_frames;
/*
 * Which of `total` frames at `rate` per second stand for a video that is wanted at `fps` frames per
 * second: an even number of them from 4 to 768, evenly spaced, the first and the last among them.
 */
int media_video_frames(int64_t total, double rate, double fps, ares_arena *arena,
                       media_frames *out);
#endif
