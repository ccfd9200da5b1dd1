#ifndef ARES_MODEL_PARAM_H
#define ARES_MODEL_PARAM_H

#include "ares/model.h"

/*
 * A model with all its parameters listed and their memory zeroed; their values are the caller's.
 * tp: cfg is a slice's; NULL: the model is whole.
 */
int model_allocate(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   ares_group *tp, ares_model **out);
ares_param *model_param(const ares_model *m, const char *name); /* NULL when absent */
#endif
