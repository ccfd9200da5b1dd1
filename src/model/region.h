#ifndef ARES_MODEL_REGION_H
#define ARES_MODEL_REGION_H

#include "ares/model.h"

/*
 * Gives every listed parameter its place, and allocates weights and, where the model is trainable,
 * gradients. What it has allocated when it fails is released by regions_release.
 */
int regions_allocate(ares_model *m, bool trainable);
/*
 * Norms and biases in the type of activations, after their weights were written; AdamW writes both.
 */
int regions_refresh(ares_model *m);
void regions_release(ares_model *m); /* weights, gradients, optimizer states */
#endif
