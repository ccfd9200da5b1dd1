#ifndef ARES_MODEL_TRANSFER_H
#define ARES_MODEL_TRANSFER_H

#include "ares/model.h"

/*
 * Rows [n][k] of the given type in host memory <-> a parameter's tensor (weight, gradient or an
 * optimizer state, all of one layout) on its device.
 */
int model_put(ares_model *m, const ares_matrix *to, const void *rows, ares_dtype dtype);
int model_get(const ares_model *m, const ares_matrix *from, void *rows, ares_dtype dtype);
#endif
