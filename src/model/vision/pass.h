/* The tower's passes over one picture or video. (tower.c; docs/vision.md#tower) */
#ifndef ARES_MODEL_VISION_PASS_H
#define ARES_MODEL_VISION_PASS_H

#include "ares/model.h"

/*
 * The features of one picture or video: f32 [t h w / merge^2][hidden], host. patches: f32
 * [t h w][channels][temporal][patch][patch], blocks of merge x merge patches row by row.
 */
int tower_features(ares_model *m, ares_grid grid, const float *patches, float *features);
/*
 * Adds to the gradients of the tower's parameters, which are not frozen. d_features: the
 * derivatives by its features, f32, host, in their order. The forward pass is made again, and keeps
 * the inputs of blocks or everything. Gradients of several pictures add up in the order of calls.
 */
int tower_backward_of(ares_model *m, ares_keep keep, ares_grid grid, const float *patches,
                      const float *d_features);
#endif
