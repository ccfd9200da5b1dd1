#ifndef ARES_MODEL_PARAM_H
#define ARES_MODEL_PARAM_H

#include "ares/model.h"

/* Parameters listed and zeroed, nothing filled in. */
int model_allocate(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   ares_model **out);
/*
 * Rows [n][k] of the given dtype in host memory <-> a parameter's tensor (weight, grad or a state
 * of the same layout) on its device.
 */
int model_put(ares_model *m, const ares_matrix *to, const void *rows, ares_dtype dtype);
int model_get(const ares_model *m, const ares_matrix *from, void *rows, ares_dtype dtype);
int model_fill_master(ares_model *m, ares_param *p);
#endif
