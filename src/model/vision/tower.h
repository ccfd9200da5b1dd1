/* Private to model: the vision tower, its passes over a picture and its blocks. */
#ifndef ARES_MODEL_VISION_TOWER_H
#define ARES_MODEL_VISION_TOWER_H

#include "../internal.h"
#include "ares/model.h"

/* The tower's passes over one picture or video. (tower.c; docs/vision.md#tower) */

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

/* Lists the tower's parameters, behind all others; its regions begin at l->region. */
void tower_list(listing *l);
void tower_close(ares_model *m); /* memory of its passes */
/*
 * Attention's windows in a grid: order[i] is the token, in the order of patches, that stands in
 * place i; window w has the places [start[w], start[w + 1]). Both arrays have room for tokens + 1
 * numbers. Returns the number of windows.
 */
int32_t tower_windows(const ares_vision_config *v, ares_grid grid, int32_t *order, int32_t *start);
/*
 * Cosines and sines of rows (or columns) 0 .. n - 1 for heads of `dim` numbers: [n][dim / 4]. Angle
 * j is the row times 10000^(-4 j / dim).
 */
void tower_angles(int32_t dim, int32_t n, float *cosine, float *sine);
/* The row and the column of each patch in the whole picture, in the order of patches. */
void tower_places(const ares_vision_config *v, ares_grid grid, int32_t *y, int32_t *x);

/* ---------------- blocks (tower.c); void *: of the activations' type, all on the device */
/* Of a norm's rows; mean only of LayerNorm. NULL where there is no backward. */
typedef struct tower_stats {
    float *mean, *rstd;
} tower_stats;
/* What a block keeps for its backward. */
typedef struct tower_saved {
    void *x_in; /* [rows][width] */
    tower_stats in, mid;
    void *qkv;   /* [rows][3 width], after rotation */
    void *attn;  /* [rows][width] */
    float *lse;  /* [rows][heads] */
    void *x_mid; /* the stream between attention and MLP; x_in where there is no backward */
    void *wide;  /* [rows][I], [rows][2 I] if gated: what the activation reads */
} tower_saved;
/* Buffers that every block uses and none keeps; those named d_ are for backward. */
typedef struct tower_scratch {
    void *h, *act; /* [rows][width], [rows][I] */
    void *d_h, *d_act, *d_wide, *d_attn, *d_qkv;
} tower_scratch;
/* The rows of a picture or video, in the order of windows. */
typedef struct tower_pass {
    ares_model *m;
    int32_t rows;
    ares_segments frame, window; /* rows that see each other */
    const float *cos_sin;        /* [rows][width / heads] */
    tower_scratch t;
} tower_pass;

#endif
