#ifndef ARES_MODEL_REGION_H
#define ARES_MODEL_REGION_H

#include "ares/model.h"

int regions_count(const ares_model *m); /* the frozen ones too */
/*
 * Gives every listed parameter its place, and allocates weights and, where the model is trainable,
 * gradients. What it has allocated when it fails is released by regions_release.
 */
int regions_allocate(ares_model *m, bool trainable);
/*
 * Norms and biases in the type of activations, after their weights were written; AdamW writes both.
 */
int regions_refresh(ares_model *m);
void regions_give_memory(ares_model *m); /* m->weights among regions and parameters */
void regions_release(ares_model *m);     /* weights, gradients, optimizer states */

/* Whether a region's weights are whole on the device only while they are held. (hold.c) */
bool region_apart(const ares_region *r);
/* Memory of the device for such weights. */
int slots_open(ares_model *m);
void slots_close(ares_model *m);
/* Begins to bring the weights of region r: call it before launching what comes before r. */
void region_ahead(ares_model *m, int r);
void slots_forget(ares_model *m); /* weights were written where they lie */

/* Of a trained model: elements of m->grads. (gradients.c) */
int64_t gradients_elements(const ares_model *m);
void gradients_close(ares_model *m);
/* A region's gradient of a pass is complete: it leaves, if ranks share the weights. */
void gradients_leave(ares_model *m, int region);
/* Around the backward of the look-up: m->embed_grad has a place; the embedding's is complete. */
void gradients_begin_look_up(ares_model *m);
void gradients_end_look_up(ares_model *m);

void windows_close(ares_model *m); /* optimizer states, wherever they lie (windows.c) */
/* Whether region i is one of the matrices of a vision tower. */
bool region_of_tower(const ares_model *m, int i);
#endif
