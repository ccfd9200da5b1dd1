#ifndef ARES_MODEL_ROPE_ANGLES_H
#define ARES_MODEL_ROPE_ANGLES_H

#include "ares/model.h"

typedef struct ares_rope ares_rope;
ares_rope *rope_new(const ares_model_config *c);
void rope_free(ares_rope *r);
/*
 * The cosines, then the sines of one position: [head_dim] (rope_angles.c). length: tokens of the
 * whole sequence; only dynamic scaling depends on it.
 */
void rope_row(const ares_model *m, int32_t position, int32_t length, float *cos_sin);
/* The same of a position in time, row and column: each turns its section of the angles. */
void rope_row_of_three(const ares_model *m, const int32_t position[3], int32_t length,
                       float *cos_sin);
#endif
