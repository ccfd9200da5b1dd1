/*
 * model: what a vision model makes of pictures and videos (vision/; docs/vision.md).
 */
#ifndef ARES_MODEL_VISION_H
#define ARES_MODEL_VISION_H

#include "ares/data_sight.h"
#include "ares/model.h"

/*
 * How a model directory makes tokens of pictures: by its config.json, which cfg is of, and the
 * files of its processor, which must agree with it.
 */
int ares_sight_rules_load(const ares_model_config *cfg, const char *dir, ares_sight_rules *out);

/* ---------------- features of pictures, computed once and stored (vision/features.c)
 * A picture's features depend on its pixels and the tower's weights alone, so whoever asks again is
 * given the stored ones. They lie in host memory and stay where they are until the next trim,
 * forget, or other version of the weights. Two pictures of the same pixels are one. Pictures are
 * known by their address, which must stay theirs while the store lives. Only the thread that made
 * the store calls these functions.
 */
typedef struct ares_features ares_features;
typedef struct ares_seen {
    const float *features; /* [tokens][hidden] */
    int32_t number;        /* of what is seen: equal for equal pixels */
} ares_seen;
/* keep_bytes: what may stay over a trim */
int ares_features_new(ares_model *m, const ares_processor *p, size_t keep_bytes,
                      ares_features **out);
void ares_features_free(ares_features *f);
/* Begins to decode, on the pool of the model's device, what is not stored. */
void ares_features_ahead(ares_features *f, const ares_sight *s);
/* Whether features of all pictures can be had without waiting for a decoder. */
bool ares_features_ready(ares_features *f, const ares_sight *s);
int ares_features_get(ares_features *f, const ares_medium *x, ares_seen *out);
/*
 * Features of rows of packed tokens that show pictures, at p->features. in: memory for
 * [p->n_features][hidden] floats
 */
int ares_features_show(ares_features *f, ares_packed *p, float *in);
/*
 * Where the tower is trained: all that is stored was made by weights of this many updates; what was
 * made by others is forgotten. Where it is frozen: nothing.
 */
void ares_features_at(ares_features *f, int64_t version);
/*
 * As show, where the tower is trained: made by the weights as they are, without the store. *off
 * becomes the largest difference to stored ones, where that is more.
 */
int ares_features_show_fresh(ares_features *f, ares_packed *p, float *in, double *off);
/*
 * The way back through the tower, in the order of p's rows: d [p->n_features][hidden], by features.
 * Adds to the gradients of its parameters; keep: as of the pass
 */
int ares_features_backward(ares_features *f, ares_keep keep, const ares_packed *p, const float *d);
/* Drops decoded pixels, and the features that were not asked for longest, down to keep_bytes. */
void ares_features_trim(ares_features *f);
/* Other weights have come: nothing that is stored is of use. */
void ares_features_forget(ares_features *f);
bool ares_features_trained(const ares_features *f); /* whether the tower has gradients */
/* Seconds in the tower and waiting for decoders since the last call. */
double ares_features_seconds(ares_features *f);

#endif
