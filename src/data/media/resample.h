/*
 * Bicubic resampling of RGB bytes, bit for bit as the libraries of EasyR1's data path do it
 * (docs/vision.md#processor). Two passes, rows before columns; a pass that changes nothing is left
 * out.
 */
#ifndef ARES_MEDIA_RESAMPLE_H
#define ARES_MEDIA_RESAMPLE_H

#include "plan.h"

typedef enum {
    MEDIA_PILLOW,    /* weights of 22 bits, bytes between the passes */
    MEDIA_TORCH_U8,  /* weights of 16 bits, bytes between the passes */
    MEDIA_TORCH_F32, /* no rounding before the end */
} media_filter;

/* in [from.h][from.w][3], out [to.h][to.w][3] */
void media_resample(media_filter filter, const uint8_t *in, media_size from, uint8_t *out,
                    media_size to);
#endif
