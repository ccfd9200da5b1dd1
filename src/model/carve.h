/* Buffers of a pass, cut from one allocation. */
#ifndef ARES_MODEL_CARVE_H
#define ARES_MODEL_CARVE_H

#include "ares/model.h"

/* Hands out consecutive pieces of one allocation; where base is NULL it only counts bytes. */
typedef struct carver {
    char *base;
    size_t at;
    ares_dtype act;
} carver;

static inline void *carve_bytes(carver *c, int64_t rows, int64_t width, size_t each)
{
    void *p = c->base ? c->base + c->at : NULL;
    c->at += ((size_t)(rows * width) * each + 63) / 64 * 64;
    return p;
}
static inline float *carve_floats(carver *c, int64_t rows, int64_t width)
{
    return carve_bytes(c, rows, width, sizeof(float));
}
static inline void *carve(carver *c, int64_t rows, int64_t width) /* activations */
{
    return carve_bytes(c, rows, width, ares_dtype_bytes(c->act));
}
#endif
