#ifndef ARES_MODEL_PARAM_H
#define ARES_MODEL_PARAM_H

#include "ares/model.h"

/* What the parameters of a model are listed with. */
typedef struct listing {
    ares_model *m;
    const char *stem; /* what names begin with */
    ares_dtype storage;
    ares_layout layout; /* of matrices */
    int region;         /* of the matrices that are listed now */
    int vectors;        /* the region of norms and biases */
    int32_t parts;      /* among which outputs are divided; 1: the model is whole */
} listing;
/* Appends one parameter, k = 0: a vector of n. It gets memory when all are known. */
ares_param *param_add(const listing *l, int32_t n, int32_t k, const char *format, int index);
/* format: without the ".weight" and ".bias" at the end of names */
ares_linear param_add_linear(const listing *l, int32_t n, int32_t k, bool bias, const char *format,
                             int index);
/* The layer's weight, and its bias, directly behind those of the layer that was added before. */
ares_linear param_beside(ares_linear l);

/*
 * A model with all its parameters listed and their memory zeroed; their values are the caller's.
 * slice: cfg is a slice's, whose memory ares_model_slice_take takes; NULL: the model is no slice.
 */
typedef struct model_slice {
    ares_group *tp; /* NULL: all outputs are its own */
} model_slice;
int model_allocate(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   const model_slice *slice, ares_model **out);
bool param_has_shape(const ares_param *p, const ares_tensor_info *t);
ares_param *model_param(const ares_model *m, const char *name); /* NULL when absent */
#endif
