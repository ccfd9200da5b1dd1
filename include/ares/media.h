/*
 * media: pictures and videos, from what a row says to the numbers that a vision tower reads, as
 * EasyR1's data path and the image processors of Qwen2-VL and Qwen2.5-VL make them
 * (docs/vision.md).
 *
 * What a file's header says is read first (ares_row_media): sizes, and so the number of tokens,
 * are known before anything is decoded, and what is too large is refused before memory is asked
 * for. All functions may be called on any thread of the pool; results depend on nothing else.
 */
#ifndef ARES_MEDIA_H
#define ARES_MEDIA_H

#include "ares/core.h"
#include "ares/io.h"

/* ---------------- the processor of a model directory (media/sizes.c; docs/vision.md#processor) */
typedef struct ares_processor {
    int32_t patch, merge, temporal; /* sides in pixels, in patches, in frames */
    /* limits of a picture and of a frame, in pixels */
    int64_t image_min, image_max, video_min, video_max;
    float mean[3], std[3];
    bool resize, rescale, normalize;
    double rescale_factor;
} ares_processor;
/* From processor_config.json or (video_)preprocessor_config.json; defaults where there is none. */
int ares_processor_load(const char *dir, ares_processor *out);

/* What a run's options ask for beside the processor. */
typedef struct ares_media_options {
    int64_t min_pixels,
        max_pixels;        /* of EasyR1's own resize, before the processor's; 0: no limit */
    double video_fps;      /* frames per second to take from a video */
    const char *image_dir; /* relative paths begin there; NULL: in the working directory */
} ares_media_options;

/* ---------------- pictures and videos of a row (media/media.c, media/sizes.c) */
typedef struct ares_grid {
    int32_t t, h, w; /* in patches; h and w are multiples of merge */
} ares_grid;
typedef struct ares_medium {
    bool video;
    ares_grid grid;
    int32_t frames;         /* that ares_medium_read gives; 1 for an image */
    double second_per_grid; /* of a video: seconds from one pair of frames to the next */
    /* where it comes from and how it is sized; only for media_open and ares_medium_read */
    const struct media_source *source;
} ares_medium;
typedef struct ares_media {
    int32_t n, n_images, n_videos;
    const ares_medium *items; /* [n] images in their order, then videos in theirs */
    int32_t turned;           /* images whose EXIF data ask for a turn, which is not made */
} ares_media;
/* How many tokens stand for it: t h w / merge^2. */
int32_t ares_medium_tokens(const ares_medium *m, int32_t merge);
/* *patches: how many the largest square picture has after both resizes. */
int ares_media_largest(const ares_processor *p, const ares_media_options *o, int32_t *patches);
/*
 * Decodes and resizes it. *pixels: RGB, 8 bits, [frames][14 h][14 w][3] (an image: one frame), to
 * be freed by ares_free; *key: of these bytes and sizes, two pictures with one key are one.
 */
int ares_medium_read(const ares_medium *m, const ares_processor *p, uint8_t **pixels,
                     uint64_t *key);
/*
 * The numbers that the tower reads are patches f32 [t h w][3][temporal][patch][patch], in blocks of
 * merge x merge patches, row by row. Writes n of them, from patch `first` on. An image is repeated
 * for every time; where the number of frames is odd, the last frame stands for the missing one.
 */
void ares_medium_patches(const ares_medium *m, const ares_processor *p, const uint8_t *pixels,
                         int32_t first, int32_t n, float *patches);

/*
 * ---------------- pictures in a sequence (row_media.c; docs/vision.md#prompts): what a vision
 * model needs of a sequence beside its ids: which tokens stand for pictures and videos, and
 * positions on three axes
 */

/* How a model and its processor turn pictures to tokens. */
typedef struct ares_media_rules {
    ares_processor processor;
    int32_t image_token, video_token; /* ids of the tokens that stand for a picture or a video */
    double tokens_per_second; /* steps of position per second of video; 0: one per pair of frames */
} ares_media_rules;

/* Tokens [first, first + n) of a sequence stand for a picture or video. */
typedef struct ares_place {
    const ares_medium *medium;
    int32_t first, n;
} ares_place;

/* Pictures and positions of the first n tokens of a sequence; all tokens after them are text. */
typedef struct ares_row_media {
    int32_t n;
    const int32_t *t, *h, *w; /* [n] positions in time, by row and by column */
    int32_t delta;            /* token number i >= n stands at i + delta on all axes */
    int32_t n_places;
    const ares_place *places; /* [n_places] ascending */
    int32_t turned;           /* images whose EXIF data ask for a turn, which is not made */
} ares_row_media;
/* The position of token i on the three axes; s NULL: the sequence is text, and it is i on each. */
void ares_media_position(const ares_row_media *s, int32_t i, int32_t *t, int32_t *h, int32_t *w);
#endif
