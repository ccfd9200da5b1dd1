/* The tower's passes over one picture or video. (tower.c; docs/vision.md#tower) */
#ifndef ARES_MODEL_VISION_PASS_H
#define ARES_MODEL_VISION_PASS_H

#include "ares/model.h"

/*
 * A picture or video as the tower reads it: the values of its patches, f32
 * [t h w][channels][temporal][patch][patch], blocks of merge x merge patches row by row. They are
 * never all there at once: `write` makes n rows of them, from row `first` on, on any thread.
 */
typedef struct tower_input {
    ares_grid grid;
    void (*write)(const void *of, int32_t first, int32_t n, float *values);
    const void *of;
} tower_input;

/* The features: f32 [t h w / merge^2][hidden], host. */
int tower_features(ares_model *m, const tower_input *in, float *features);
/*
 * Adds to the gradients of the tower's parameters, which are not frozen. d_features: the
 * derivatives by the features, f32, host, in their order. The forward pass is made again, and keeps
 * the inputs of blocks or everything. Gradients of several pictures add up in the order of calls.
 */
int tower_backward_of(ares_model *m, ares_keep keep, const tower_input *in,
                      const float *d_features);
#endif
