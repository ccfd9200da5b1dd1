/* Where a saved state comes from: its data and its model. (origin.c) */
#ifndef ARES_TRAIN_RUN_ORIGIN_H
#define ARES_TRAIN_RUN_ORIGIN_H

#include "run/training.h"

/* Hashes of all training rows, and of the model that the run began with. */
typedef struct train_origin {
    char data[24], model[24];
} train_origin;
train_origin train_origin_of(const training *t);
/* A model in words: "llama, 30 layers of 576, 49152 ids". States fit where the words are equal. */
void origin_describe_model(const ares_model_config *c, ares_str *out);
#endif
