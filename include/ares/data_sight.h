/*
 * data: what a vision model needs of a sequence beside its ids: which tokens stand for pictures and
 * videos, and positions of three axes (sight.c, positions.c; docs/vision.md#prompts).
 */
#ifndef ARES_DATA_SIGHT_H
#define ARES_DATA_SIGHT_H

#include "ares/media.h"

/* How a model and its processor make tokens of pictures. */
typedef struct ares_sight_rules {
    ares_processor processor;
    int32_t image_token,
        video_token;          /* ids that stand for what a picture or a video is turned to */
    double tokens_per_second; /* of positions in a video; 0: one per pair of frames */
} ares_sight_rules;

/* Tokens [first, first + n) of a sequence stand for a picture or video. */
typedef struct ares_place {
    const ares_medium *medium;
    int32_t first, n;
} ares_place;

/* Of the first n tokens of a sequence, behind which there is text alone. */
typedef struct ares_sight {
    int32_t n;
    const int32_t *t, *h, *w; /* [n] positions in time, by row and by column */
    int32_t delta;            /* token number i >= n stands at i + delta on all axes */
    int32_t n_places;
    const ares_place *places; /* [n_places] ascending */
    int32_t turned;           /* images whose EXIF data ask for a turn, which is not made */
} ares_sight;
/* The position of token i. sight NULL: i on all axes. */
void ares_sight_position(const ares_sight *s, int32_t i, int32_t *t, int32_t *h, int32_t *w);

#endif
